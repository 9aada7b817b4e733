"""Generators that users define: `jax.extend.random` (0.10.2).

A generator is four functions on the words of keys: seed, split, fold_in, random_bits. Its keys are
arrays of a dtype of their own, which `random` uses like any others. Where numbers are drawn the
user's functions are traced, so programs hold what these compute.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...ir.dtypes import KEY_DTYPES, KeyDType, named_key_dtype
from ...ir.ops.random.primitives import (
    random_bits_p,
    random_fold_in_p,
    random_seed_p,
    random_split_p,
    random_unwrap_p,
    random_wrap_p,
    threefry2x32_p,
)
from ...ir.types import Shape
from ...ir.values.array import Array
from .. import jnp, lax
from ..operands.dtype_promotion import dtype_name


class PRNGImpl(NamedTuple):
    """What a generator does: the shape of a key's words, and functions on them.

    seed(integer) -> words; split(words, shape) -> words of that many keys; random_bits(words,
    width, shape) -> unsigned integers; fold_in(words, integer) -> words.
    """

    key_shape: Shape
    seed: Callable[..., Any]
    split: Callable[..., Any]
    random_bits: Callable[..., Any]
    fold_in: Callable[..., Any]
    name: str = "<unnamed>"
    tag: str = "?"


class PRNGSpec:
    """A generator as functions of `random` take it for `impl`, and give it (`random.key_impl`)."""

    __slots__ = ("_impl",)

    def __init__(self, impl: PRNGImpl) -> None:
        self._impl = impl

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PRNGSpec) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)

    def __str__(self) -> str:
        return self._impl.tag

    def __repr__(self) -> str:
        return f"PRNGSpec({self._impl.name!r})"


_DTYPES: dict[PRNGImpl, KeyDType] = {}
_IMPLS: dict[KeyDType, PRNGImpl] = {}           # of users' generators alone


def define_prng_impl(*, key_shape: Shape, seed: Callable[..., Any], split: Callable[..., Any],
                     random_bits: Callable[..., Any], fold_in: Callable[..., Any],
                     name: str = "<unnamed>", tag: str = "?") -> PRNGSpec:
    """A generator of one's own, as `impl` of `random.key` and of `random.wrap_key_data`.

    key_shape: of the uint32 words of one key. seed(integer) -> words; split(words, shape) -> words
    of new keys, `(*shape, *key_shape)`; random_bits(words, bit_width, shape) -> unsigned integers
    of that width; fold_in(words, integer) -> words. All are traced. name, tag: for texts.

    Sharding
      Auto: what the functions compute is partitioned as any other code.
      Explicit: the words of keys are whole on every device; the functions say how bits are split.
      Manual: as Explicit.

    >>> from shardtrace.extend.random import define_prng_impl
    >>> step = lambda words, n: words * np.uint32(747796405) + jnp.uint32(n)
    >>> spec = define_prng_impl(
    ...     key_shape=(1,), seed=lambda s: jnp.uint32(s)[None], fold_in=step, name="counter",
    ...     split=lambda w, shape: step(w, jnp.arange(np.prod(shape))).reshape(*shape, 1),
    ...     random_bits=lambda w, width, shape: step(w, jnp.arange(np.prod(shape))).reshape(shape))
    >>> first, second = st.random.split(st.random.key(7, impl=spec))
    >>> st.random.bits(first, (2,)), st.random.key_impl(first)
    (Array([3640682959, 3640682960], dtype=uint32), PRNGSpec('counter'))
    """
    return PRNGSpec(PRNGImpl(tuple(key_shape), seed, split, random_bits, fold_in, name, tag))


def own_key_dtype(impl: PRNGImpl) -> KeyDType:
    """The dtype of the keys of a generator; entered with its first key."""
    found = _DTYPES.get(impl)
    if found is None:
        found = _DTYPES[impl] = named_key_dtype(impl.tag, impl.key_shape)
        _IMPLS[found] = impl
    return found


def own_impl(dtype: Any) -> PRNGImpl | None:
    """The generator of keys of this dtype, if a user defined it."""
    return _IMPLS.get(dtype)


# -- the generators that are here, on words --------------------------------------------------------

def impl_of(name: str, dtype: KeyDType) -> PRNGImpl:
    """A generator of this library as functions on the words of its keys."""
    more = {} if dtype.impl == "fry" else {"generator": dtype.impl}

    def on_words(op: Any, words: Any, *others: Any, **params: Any) -> Array:
        keys = random_wrap_p.bind(words, impl=dtype.impl)
        return random_unwrap_p.bind(op.bind(keys, *others, **params, **more))

    impl = PRNGImpl(
        dtype.key_shape,
        lambda seed: random_unwrap_p.bind(random_seed_p.bind(seed, impl=dtype.impl)),
        lambda words, shape: on_words(random_split_p, words, shape=tuple(shape)),
        lambda words, bit_width, shape: random_bits_p.bind(
            random_wrap_p.bind(words, impl=dtype.impl), bit_width=bit_width, shape=tuple(shape),
            **more),
        lambda words, data: on_words(random_fold_in_p, words, jnp.uint32(data)),
        name, dtype.impl)
    _DTYPES[impl] = dtype
    return impl


threefry_prng_impl = impl_of("threefry2x32", KEY_DTYPES["fry"])
rbg_prng_impl = impl_of("rbg", KEY_DTYPES["rbg"])
unsafe_rbg_prng_impl = impl_of("unsafe_rbg", KEY_DTYPES["urbg"])


def threefry_2x32(keypair: Any, count: Any) -> Array:
    """The Threefry hash of `count`, of any shape, under two words: uint32 of the same shape.

    Raises TypeError for other dtypes than uint32.

    >>> from shardtrace.extend.random import threefry_2x32
    >>> threefry_2x32(np.zeros(2, np.uint32), jnp.arange(3, dtype=np.uint32))
    Array([4146024105, 1351547692, 2718843009], dtype=uint32)
    """
    first, second = keypair
    types = [dtype_name(x) for x in (first, second, count)]
    if types != ["uint32"] * 3:
        raise TypeError("threefry_2x32 requires uint32 arguments, got "
                        f"[{', '.join(f'dtype({t!r})' for t in types)}]")
    count = jnp.asarray(count)
    flat = count.ravel()
    halves = jnp.pad(flat, (0, flat.size % 2)).reshape(2, -1)
    words = threefry2x32_p.bind(jnp.asarray(first), jnp.asarray(second), halves[0], halves[1])
    return lax.concatenate(words, 0)[:flat.size].reshape(count.shape)
