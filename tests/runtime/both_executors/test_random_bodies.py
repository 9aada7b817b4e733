"""Random bodies of shard_map, with loops and branches in them: both executors agree to the bit.

All numbers are small integers, whatever their dtype, so that no order of additions matters. A
function is called several times with two sets of arguments, and all results are looked at last:
nothing that was given or returned may have changed meanwhile.
"""
from __future__ import annotations

import math
import random

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.kernels import reductions
from shardtrace.ir.support import threads
from shardtrace.runtime.plans import blocked, in_place, plan, registers, tiled_fusion
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows

MESHES = [{"x": 8}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}, {"x": 3, "y": 2}, {"x": 1}]
DTYPES = ["float32", "float32", "float32", "int32", "int32", "bool"]
STEPS = ["unary", "binary", "binary", "where", "mask", "mask", "psum", "extreme", "gather",
         "scatter", "swap", "shift", "own", "part", "update", "row", "rows", "take", "sum",
         "reshape", "transpose", "join", "cast", "scan", "scan", "while", "cond", "call"]
LOW = [(tiled_fusion, "SINGLE", 1), (tiled_fusion, "LARGE", 1), (blocked, "BLOCK", 50),
       (threads, "ENOUGH", 64), (in_place, "FEWEST", 1), (registers, "FEWEST", 1),
       (reductions, "SHORTEST", 2), (plan, "ROUNDS", 1)]


class Body:
    """Applies random steps to a pool of arrays."""

    def __init__(self, seed, sizes):
        self.rng, self.sizes, self.deep, self.parted = random.Random(seed), sizes, 0, 0

    def some_axes(self):
        axes = tuple(self.rng.sample(list(self.sizes), self.rng.randint(1, len(self.sizes))))
        return axes, math.prod(self.sizes[a] for a in axes)

    def pick(self, pool, test=lambda x: True):
        found = [x for x in pool if test(x)]
        return found[-1 - int(self.rng.random() ** 2 * len(found))] if found else None

    def like(self, pool, x):
        return self.pick(pool, lambda y: y.shape == x.shape and y.dtype == x.dtype)

    def here(self):
        """True on some devices."""
        axes, n = self.some_axes()
        i, k = lax.axis_index(axes), self.rng.randrange(n)
        return self.rng.choice([i == k, i < k, i != k, i % 2 == 0, (i + 1) % n == k])

    def place(self, pool, n):
        i = self.pick(pool, lambda x: x.ndim == 0 and x.dtype == jnp.int32)
        known = jnp.int32(self.rng.randrange(-1, n + 1))
        return self.rng.choice([known, lax.axis_index(self.some_axes()[0]),
                                known if i is None else i])

    def run(self, pool, count):
        pool = list(pool)
        for _ in range(count):
            new = getattr(self, self.rng.choice(STEPS))(pool, self.pick(pool)) or ()
            pool += [small(x) for x in new if x.size <= 2000]
        return pool

    def unary(self, pool, x):
        if x.dtype != bool:
            return [self.rng.choice([jnp.negative, jnp.abs, jnp.sign, jnp.square])(x)]

    def binary(self, pool, x):
        y = self.pick(pool, lambda y: y.dtype == x.dtype and (y.shape == x.shape or not y.ndim))
        if y is not None and x.dtype != bool:
            return [self.rng.choice([jnp.add, jnp.multiply, jnp.maximum, jnp.subtract])(x, y)]

    def where(self, pool, x):
        return [jnp.where(x > 0 if x.dtype != bool else x, x, self.like(pool, x))]

    def mask(self, pool, x):
        kept = jnp.where(self.here(), *self.rng.choice([
            (x, jnp.zeros_like(x)), (jnp.zeros_like(x), x), (x, self.like(pool, x))]))
        return [kept] if self.rng.random() < 0.5 else self.psum(pool, kept)

    def psum(self, pool, x):
        if not self.parted and x.dtype != bool:
            return [lax.psum(x, self.some_axes()[0])]

    def extreme(self, pool, x):
        if not self.parted:
            return [lax.pmax(x, self.some_axes()[0])]

    def gather(self, pool, x):
        axes, n = self.some_axes()
        if not self.parted and x.size * n <= 2000:
            return [lax.all_gather(x, axes, tiled=x.ndim > 0)]

    def scatter(self, pool, x):
        axes, n = self.some_axes()
        if not self.parted and x.ndim and x.shape[0] % n == 0 and x.dtype != bool:
            return [lax.psum_scatter(x, axes, tiled=True)]

    def swap(self, pool, x):
        axes, n = self.some_axes()
        if not self.parted and x.ndim and x.shape[0] % n == 0:
            return [lax.all_to_all(x, axes, 0, self.rng.randrange(x.ndim), tiled=True)]

    def shift(self, pool, x):
        axes, n = self.some_axes()
        k, open_ = self.rng.choice([1, -1, 2]), self.rng.random() < 0.4
        if not self.parted:
            return [lax.ppermute(x, axes, [(i, (i + k) % n) for i in range(n)
                                           if not open_ or 0 <= i + k < n])]

    def own(self, pool, x):
        """Rows of a table whose parts the devices have."""
        axis = self.rng.choice(list(self.sizes))
        if not self.parted and x.ndim and x.dtype != bool:
            here = jnp.arange(5) - lax.axis_index(axis) * x.shape[0]
            mine = ((here >= 0) & (here < x.shape[0])).reshape((5,) + (1,) * (x.ndim - 1))
            return [lax.psum(jnp.where(mine, jnp.take(x, here, 0, mode="clip"), 0), axis)]

    def part(self, pool, x):
        if x.ndim:
            size = self.rng.randint(1, x.shape[0])
            return [lax.dynamic_slice_in_dim(x, self.place(pool, x.shape[0]), size)]

    def update(self, pool, x):
        y = self.pick(pool, lambda y: y.dtype == x.dtype and y.ndim == x.ndim and all(
            m <= n for m, n in zip(y.shape, x.shape, strict=True)))
        return [lax.dynamic_update_slice(x, y, [self.place(pool, n) for n in x.shape])]

    def row(self, pool, x):
        if x.ndim:
            i = self.place(pool, x.shape[0])
            y = self.pick(pool, lambda y: y.dtype == x.dtype and y.shape in ((), x.shape[1:]))
            how = "set" if x.dtype == bool else self.rng.choice(["set", "add", "max"])
            return [x[i], x if y is None else getattr(x.at[i], how)(y)]

    def rows(self, pool, x):
        if x.ndim and x.dtype != bool:
            return [x.at[jnp.array([0, -1, 0, x.shape[0]])].add(1)]

    def take(self, pool, x):
        if x.ndim:
            return [jnp.take(x, jnp.array([0, x.shape[0] - 1, 0]), 0), jnp.flip(x, 0)]

    def sum(self, pool, x):
        if x.ndim and x.dtype != bool:
            f = self.rng.choice([jnp.sum, jnp.max, jnp.cumsum])
            return [f(x, self.rng.randrange(x.ndim)).astype(x.dtype)]

    def reshape(self, pool, x):
        return [x.reshape(-1), x[None]] if x.ndim < 4 else [x.reshape(-1)]

    def transpose(self, pool, x):
        return [x.transpose(self.rng.sample(range(x.ndim), x.ndim))]

    def join(self, pool, x):
        if x.ndim:
            return [jnp.concatenate([x, self.like(pool, x)]), x[self.rng.randrange(x.shape[0]):]]

    def cast(self, pool, x):
        return [x.astype(self.rng.choice(DTYPES))]

    def conform(self, pool, x):
        found = self.like(pool, x)
        return small(jnp.ones_like(x) if found is None else found)

    def inside(self, seed, given, count):
        """What the same steps make of these arrays however often they are taken."""
        outer, self.rng = self.rng, random.Random(seed)
        self.deep += 1
        try:
            return self.run(given, count)
        finally:
            self.rng, self.deep = outer, self.deep - 1

    def loop(self, pool):
        """The carry, twice the first of it, and the body: values move, are added to, or are new."""
        carry = [self.pick(pool) for _ in range(self.rng.randint(1, 3))]
        carry, held, seed = [*carry, carry[0]], self.pick(pool), self.rng.random()
        ways = [self.rng.choice(["new", "new", "add", "same"]) for _ in carry]

        def body(c, i):
            made, new = self.inside(seed, [*c, held, i], 4), []
            for x, way in zip(c, ways, strict=True):
                y = self.conform(made, x)
                new.append(x if way == "same" else small(x + y) if way == "add" and (
                    x.dtype != bool) else y)
            return new[::-1] if [x.aval for x in new] == [x.aval for x in new[::-1]] else new
        return [small(x) for x in carry], body

    def scan(self, pool, x):
        if self.deep < 2:
            carry, body = self.loop(pool)
            out, ys = lax.scan(lambda c, i: (body(c, i), (c[0], c[-1])), carry,
                               jnp.arange(self.rng.choice([1, 3, 9])),
                               reverse=self.rng.random() < 0.3)
            return [*out, *ys]

    def while_(self, pool, x):
        if self.deep < 2:
            carry, body = self.loop(pool)
            return lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, c[0], body(c[2], c[0])),
                                  (jnp.int32(0), jnp.int32(7), carry))[2]

    def cond(self, pool, x):
        if self.deep < 2:
            parted, seed = self.rng.random() < 0.5, self.rng.random()
            test = self.here() if parted else jnp.bool_(self.rng.random() < 0.5)
            self.parted += parted
            try:
                return lax.cond(test, *[lambda *a, k=k: [
                    self.conform(self.inside(seed + k, a, 2), a[0]), a[-1]] for k in (0, 1)],
                    x, self.pick(pool), self.like(pool, x))
            finally:
                self.parted -= parted

    def call(self, pool, x):
        wrap, seed = self.rng.choice([st.jit, st.checkpoint]), self.rng.random()
        return wrap(lambda *a: self.inside(seed, a, 2)[-2:])(x, self.pick(pool))


setattr(Body, "while", Body.while_)


def small(x):
    return x if x.dtype == bool else jnp.clip(x, -9, 9)


def case(seed):
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    sizes = rng.choice(MESHES)
    mesh = st.make_mesh(tuple(sizes.values()), tuple(sizes),
                        axis_types=(AxisType.Auto,) * len(sizes))
    given, specs = ([], []), []
    for _ in range(rng.randint(1, 3)):
        shape = [rng.choice([1, 2, 4, 6]) for _ in range(rng.randint(1, 3))]
        entries = [[] for _ in shape]
        for a in sizes:
            if rng.random() < 0.7:
                entries[rng.randrange(len(shape))].append(a)
        whole = [n * math.prod(sizes[a] for a in e) for n, e in zip(shape, entries, strict=True)]
        dtype = rng.choice(DTYPES)
        specs.append(P(*[tuple(e) or None for e in entries]))
        for values in given:
            values.append(st.device_put(numbers.integers(-4, 5, whole).astype(dtype),
                                        NamedSharding(mesh, specs[-1])))
    count, start = rng.randint(3, 14), rng.random()

    def f(*arrays):
        body = Body(start, sizes)
        pool = body.run([*arrays, lax.axis_index("x")], count)
        last = [body.pick(pool) for _ in range(3)]
        return [x[None] for x in (*last, last[0], arrays[0])]
    return st.shard_map(f, mesh=mesh, in_specs=tuple(specs), out_specs=P(tuple(sizes)),
                        check_vma=False), given


def check(seed):
    f, given = case(seed)
    before = [[np.array(x) for x in values] for values in given]
    with st.config.override(shardtrace_engine="per_device"):
        jitted = st.jit(f)
        want = [[np.array(y) for y in jitted(*values)] for values in given]
    jitted = st.jit(f)
    order = [0, 1, 0, 0, 1]
    for k, found in zip(order, [jitted(*given[k]) for k in order], strict=True):
        for a, b in zip(found, want[k], strict=True):
            np.testing.assert_array_equal(a, b)
    for values, old in zip(given, before, strict=True):
        for a, b in zip(values, old, strict=True):
            np.testing.assert_array_equal(a, b)


@rows("seed", range(20))
def test_both_executors_agree(seed):
    check(seed)


@pytest.mark.parametrize("seed", range(20, 40))
def test_so_do_they_where_everything_counts_as_large(seed, monkeypatch):
    for module, name, value in LOW:
        monkeypatch.setattr(module, name, value)
    check(seed)
