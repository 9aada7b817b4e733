"""Helper functions that are copied into generated programs, for what `jax.lax` does not provide.

`source.py` copies each helper that a program calls, so a helper may use only numpy, JAX and other
helpers of this file. Modules have the names under which a generated program imports them.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.support.lazy import lazy_import

jax = lazy_import("jax")
jnp = lazy_import("jax.numpy")
lax = lazy_import("jax.lax")
primitives = lazy_import("jax.extend.core.primitives")

Array = Any


# -- exchanges ------------------------------------------------------------------------------------

def own_block(x: Array, axes: tuple, size: int, dim: int) -> Array:
    """The block of a dimension that the device's place along the axes numbers."""
    count = x.shape[dim] // size
    return lax.dynamic_slice_in_dim(x, lax.axis_index(axes) * count, count, dim)


def look_up(table: Any, index: Array) -> Array:
    """Row `index` of a table."""
    return lax.dynamic_index_in_dim(jnp.asarray(table), index, keepdims=False)


def exchange_tiles(x: Array, axes: tuple, shape: tuple, rounds: tuple) -> Array:
    """A new tile of this shape, put together in rounds: (who sends whom; the shape of a piece;
    where it begins in the sender's tile and in the receiver's; who receives one)."""
    me = lax.axis_index(axes)
    out = jnp.zeros(shape, x.dtype)
    for pairs, piece, there, here, receives in rounds:
        sent = lax.dynamic_slice(x, tuple(look_up(there, me)), piece)
        if pairs:
            sent = lax.ppermute(sent, axes, pairs)
        start = tuple(look_up(here, me))
        if not receives.all():
            sent = jnp.where(look_up(receives, me), sent, lax.dynamic_slice(out, start, piece))
        out = lax.dynamic_update_slice(out, sent, start)
    return out


def exchange_tiles_in_one(x: Array, axes: tuple, shape: tuple, piece: tuple, there: Any, here: Any,
                           receives: Any) -> Array:
    """As `exchange_tiles`, by one all-to-all of a piece from everybody to everybody: where it
    begins in the sender's tile [senders, receivers, dimensions] and in the receiver's [receivers,
    senders, dimensions], and whether it belongs there [receivers, senders]."""
    me = lax.axis_index(axes)
    sent = jnp.stack([lax.dynamic_slice(x, tuple(start), piece) for start in look_up(there, me)])
    got = lax.all_to_all(sent, axes, 0, 0, tiled=True)
    out = jnp.zeros(shape, x.dtype)
    for part, start, belongs, always in zip(got, look_up(here, me), look_up(receives, me),
                                            receives.all(0), strict=True):
        if not always:
            part = jnp.where(belongs, part, lax.dynamic_slice(out, tuple(start), piece))
        out = lax.dynamic_update_slice(out, part, tuple(start))
    return out


def send_rows(x: Array, axes: tuple, dim: int, pairs: tuple, rows: Any, me: Array) -> Array:
    """What arrives of these rows [members, rows]: for pairs (who sends whom) all of them; without,
    as many are for each member, in their order, and go there by an all-to-all."""
    sent = take_rows(x, dim, rows, me)
    if pairs:
        return lax.ppermute(sent, axes, pairs)
    return lax.all_to_all(sent, axes, dim, dim, tiled=True)


def take_rows(x: Array, dim: int, rows: Any, me: Array) -> Array:
    """The rows of a block that the table [members, rows] names for this member."""
    count = rows.shape[1]
    if (rows == rows[:, :1] + np.arange(count)).all():
        first = rows[:, 0]
        start = int(first[0]) if (first == first[0]).all() else look_up(first, me)
        if isinstance(start, int):
            return lax.slice_in_dim(x, start, start + count, axis=dim)
        return lax.dynamic_slice_in_dim(x, start, count, dim)
    return jnp.take(x, look_up(rows, me), axis=dim, mode="clip")


def exchange_rows(x: Array, axes: tuple, dim: int, rounds: tuple, places: Any) -> Array:
    """Rows from other members' blocks: each round says who sends whom which of its rows, `places`
    where the rows wanted are in the own block and what arrived, one after the other (-1: zeros)."""
    me = lax.axis_index(axes)
    parts = [x] + [send_rows(x, axes, dim, pairs, rows, me) for pairs, rows in rounds]
    if (places < 0).any():
        nothing = list(x.shape)
        nothing[dim] = 1
        parts.append(jnp.zeros(nothing, x.dtype))
        places = np.where(places < 0, sum(p.shape[dim] for p in parts) - 1, places)
    return take_rows(lax.concatenate(parts, dim), dim, places, me)


def exchange_runs(x: Array, axes: tuple, dim: int, rounds: tuple, runs: tuple) -> Array:
    """As `exchange_rows`, where all members put together as many rows of the same parts: for each
    run the part (0: the own block), where the members' rows begin in it, and how many there are."""
    me = lax.axis_index(axes)
    parts = [x] + [send_rows(x, axes, dim, pairs, rows, me) for pairs, rows in rounds]
    found = [take_rows(parts[part], dim, np.add.outer(starts, np.arange(count)), me)
             for part, starts, count in runs]
    return found[0] if len(found) == 1 else lax.concatenate(found, dim)


def move_axes(x: Array, axes: tuple, sizes: tuple, entering: tuple, leaving: tuple) -> Array:
    """A new tile, where the axes that cut some dimensions cut others from now on, by one
    all-to-all. entering: for each dimension the axes that cut it now, major first, after those
    that go on to; leaving: those that did."""
    size = dict(zip(axes, sizes, strict=True))
    shape, front, rest = [], {}, []
    for d, n in enumerate(x.shape):
        for a in entering[d]:
            front[a] = len(shape)
            shape.append(size[a])
            n //= size[a]
        rest.append(len(shape))
        shape.append(n)
    x = x.reshape(shape).transpose([*(front[a] for a in axes), *rest])
    shape = x.shape
    x = lax.all_to_all(x.reshape((-1, *shape[len(axes):])), axes, 0, 0, tiled=True).reshape(shape)
    order, whole = [], []
    for d in range(len(rest)):
        order += [*(axes.index(a) for a in leaving[d]), len(axes) + d]
        whole.append(int(np.prod([shape[len(axes) + d], *(size[a] for a in leaving[d])])))
    return x.transpose(order).reshape(whole)


def combine_all(x: Array, axes: tuple, size: int, function: Any) -> Array:
    """The blocks of all members of a group, combined by a function of two: each member combines a
    part of all blocks, and the parts are gathered."""
    flat = x.reshape(-1)
    flat = jnp.pad(flat, (0, -flat.size % size))
    part = combine_own(flat, axes, size, 0, function)
    return lax.all_gather(part, axes, tiled=True)[:x.size].reshape(x.shape)


def combine_own(x: Array, axes: tuple, size: int, dim: int, function: Any) -> Array:
    """The own block of a dimension of what `combine_all` gives."""
    found, *others = jnp.split(lax.all_to_all(x, axes, dim, dim, tiled=True), size, dim)
    for other in others:
        found = function(found, other)
    return found


# -- random numbers -------------------------------------------------------------------------------

def positions(shape: tuple, whole: tuple, starts: dict) -> tuple:
    """The row-major positions of a block in an array of shape `whole`, as two words: high, low.

    starts: by dimension where the block begins, 0 for those that are not there."""
    high, low = jnp.zeros(shape, jnp.uint32), jnp.zeros(shape, jnp.uint32)
    stride = 1
    for d in reversed(range(len(shape))):
        at = lax.broadcasted_iota(jnp.uint32, shape, d)
        if d in starts:
            at = at + starts[d].astype(jnp.uint32)
        step = lax.full_like(at, stride % (1 << 32))
        by = at * step
        high = high + high_product(at, step) + at * np.uint32((stride >> 32) % (1 << 32))
        low = low + by
        high = high + (low < by).astype(jnp.uint32)
        stride *= whole[d]
    return high, low


def hash_block(keys: Array, shape: tuple, whole: tuple, starts: dict) -> tuple:
    """The two words of the hash of each position of a block, for each key."""
    words = jax.random.key_data(keys)
    whole_shape = (*keys.shape, *shape)
    first, second = (jnp.broadcast_to(words[..., k].reshape(keys.shape + (1,) * len(shape)),
                                      whole_shape) for k in range(2))
    high, low = (jnp.broadcast_to(w, whole_shape) for w in positions(shape, whole, starts))
    return primitives.threefry2x32_p.bind(first, second, high, low)


def random_bits_block(keys: Array, bit_width: int, shape: tuple, whole: tuple, starts: dict
                      ) -> Array:
    """The block that begins at `starts` of the random bits of an array of shape `whole`."""
    first, second = hash_block(keys, shape, whole, starts)
    if bit_width == 64:
        return first.astype(jnp.uint64) << np.uint64(32) | second.astype(jnp.uint64)
    return (first ^ second).astype(f"uint{bit_width}")


def random_split_block(keys: Array, shape: tuple, whole: tuple, starts: dict) -> Array:
    """The block that begins at `starts` of the keys that each key splits into."""
    return jax.random.wrap_key_data(jnp.stack(hash_block(keys, shape, whole, starts), -1))


def hash_halves(keys: Array, count: int) -> Array:
    """`count` words for each key, by the older way of counting: one hash gives two of them."""
    half = -(-count // 2)
    numbers = np.arange(2 * half, dtype=np.uint32)
    numbers[count:] = 0
    words = jax.random.key_data(keys)
    shape = (*keys.shape, half)
    made = primitives.threefry2x32_p.bind(
        *(jnp.broadcast_to(words[..., k, None], shape) for k in range(2)),
        *(jnp.broadcast_to(n, shape) for n in (numbers[:half], numbers[half:])))
    return jnp.concatenate(made, -1)[..., :count]


def older_random_bits(keys: Array, bit_width: int, shape: tuple) -> Array:
    """Random bits where `jax_threefry_partitionable` is off."""
    size = int(np.prod(shape))
    count = -(-bit_width * size // 32)
    bits = hash_halves(keys, count)
    if bit_width == 64:
        bits = (bits[..., :count // 2].astype(jnp.uint64) << np.uint64(32)
                | bits[..., count // 2:].astype(jnp.uint64))
    elif bit_width < 32:
        shifts = np.arange(32 // bit_width, dtype=np.uint32) * np.uint32(bit_width)
        bits = (bits[..., None] >> shifts).astype(f"uint{bit_width}")
        bits = bits.reshape((*keys.shape, count * len(shifts)))[..., :size]
    return bits.reshape((*keys.shape, *shape))


def older_random_split(keys: Array, shape: tuple) -> Array:
    """New keys where `jax_threefry_partitionable` is off."""
    words = hash_halves(keys, 2 * int(np.prod(shape)))
    return jax.random.wrap_key_data(words.reshape((*keys.shape, *shape, 2)))


def random_gamma_each(keys: Array, a: Array, log_space: bool) -> Array:
    """A gamma number of each key and shape parameter, after Marsaglia and Tsang."""
    def one(key: Array, alpha: Array) -> Array:
        boosts = alpha >= 1
        grown = jnp.where(boosts, alpha, alpha + 1)
        d = grown - np.asarray(1 / 3, a.dtype)
        c = np.asarray(1 / 3, a.dtype) / jnp.sqrt(d)

        def next_normal(state: tuple) -> tuple:
            key, _, _ = state
            key, part = jax.random.split(key)
            x = jax.random.normal(part, (), a.dtype)
            return key, x, 1 + x * c

        def step(state: tuple) -> tuple:
            key, _, _, _ = state
            key, first, second = jax.random.split(key, 3)
            _, x, v = lax.while_loop(
                lambda s: s[2] <= 0, next_normal,
                (first, jnp.zeros((), a.dtype), -jnp.ones((), a.dtype)))
            return key, x * x, v * v * v, jax.random.uniform(second, (), a.dtype)

        def refused(state: tuple) -> Array:
            _, x2, v, u = state
            return (u >= 1 - np.asarray(0.0331, a.dtype) * x2 * x2) & (
                jnp.log(u) >= x2 * np.asarray(0.5, a.dtype) + d * (1 - v + jnp.log(v)))

        key, part = jax.random.split(key)
        state = (key, jnp.zeros((), a.dtype), jnp.ones((), a.dtype), jnp.full((), 2, a.dtype))
        _, _, v, _ = lax.while_loop(refused, step, state)
        if log_space:
            less = -jax.random.exponential(part, (), a.dtype)
            return jnp.log(d) + jnp.log(v) + jnp.where(boosts | (less == 0), 0, less / alpha)
        uniform = 1 - jax.random.uniform(part, (), a.dtype)
        return d * v * jnp.where(boosts, 1, uniform ** (1 / alpha))

    return jax.vmap(one)(keys.reshape(-1), a.reshape(-1)).reshape(a.shape)


# -- others ---------------------------------------------------------------------------------------

def high_product(x: Array, y: Array) -> Array:
    """The upper half of a product of integers, from the products of the halves of their bits."""
    x, y = jnp.broadcast_arrays(x, y)
    bits = x.dtype.itemsize * 8
    dtype, half = f"uint{bits}", bits // 2
    low = np.asarray((1 << half) - 1, dtype)
    a, b = (lax.bitcast_convert_type(z, dtype) for z in (x, y))
    a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
    middle = a1 * b0 + (a0 * b0 >> half)
    high = a1 * b1 + (middle >> half) + ((middle & low) + a0 * b1 >> half)
    if x.dtype.kind == "i":
        high = high - jnp.where(x < 0, b, 0) - jnp.where(y < 0, a, 0)
    return lax.bitcast_convert_type(high, x.dtype)


def equal_in_order(x: Array, y: Array) -> Array:
    """Are numbers the same, where -0 comes before 0 and a NaN is itself?"""
    if jnp.iscomplexobj(x):
        return equal_in_order(x.real, y.real) & equal_in_order(x.imag, y.imag)
    x, y = jnp.broadcast_arrays(x, y)
    return lax.eq_to_p.bind(x, y)


def roll_rows(x: Array, dimension: int, shift: int) -> Array:
    """The rows of x, each `shift` further on, the last ones in front."""
    return jnp.roll(x, shift, dimension)


def place_rows(source: Array, base: Array, dimension: int, start: int, limit: int, low: int
               ) -> Array:
    """`base` with rows start to limit of `source` written from row `low` on."""
    return lax.dynamic_update_slice_in_dim(
        base, lax.slice_in_dim(source, start, limit, axis=dimension), low, dimension)


def in_memory(x: Array, memory_space: str) -> Array:
    """x in the memory of the device or the host; on the CPU these are the same."""
    if jax.default_backend() == "cpu":
        return x
    return jax.device_put(x, getattr(jax.memory.Space, memory_space.capitalize()))


def packed_qr(x: Array) -> tuple:
    """R, and below it the reflections that make Q, with their factors."""
    packed, factors = jnp.linalg.qr(x, mode="raw")
    return jnp.swapaxes(packed, -1, -2), factors


def call_host(function: Any, results: tuple, axes: tuple, places: tuple, *operands: Array) -> tuple:
    """Results of a function of the host. It is given the device's number along `places`, the axes
    that it is called for each of, and along the other axes, whose devices share a call."""
    others = tuple(a for a in axes if a not in places)
    numbers = [lax.axis_index(names) if names else jnp.zeros((), jnp.int32)
               for names in (places, others)]
    return jax.experimental.io_callback(function, results, *numbers, *operands)


def threefry_hash(*words: Array) -> tuple:
    """Two words of the hash of counters (the last two) under keys (the first two)."""
    shape = jnp.broadcast_shapes(*(w.shape for w in words))
    return primitives.threefry2x32_p.bind(*(jnp.broadcast_to(w, shape) for w in words))


def rng_bit_generator_block(state: Array, shape: tuple, whole: tuple, dtype: Any, algorithm: Any,
                            starts: dict) -> tuple:
    """The state after drawing bits of shape `whole`, and of these the block at `starts`."""
    state, bits = lax.rng_bit_generator(state, whole, dtype, algorithm)
    return state, lax.dynamic_slice(bits, [
        starts.get(d, np.int32(0)) for d in range(len(shape))], shape)
