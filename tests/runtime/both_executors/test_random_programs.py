"""Random per-device programs: the simulated executor agrees with devices that run alone."""
from __future__ import annotations

import math

import hypothesis
import numpy as np
from hypothesis import strategies as st

F32 = np.dtype(np.float32)
DOT = dict(precision=None, preferred_element_type=F32, out_sharding=None)
SIZES = {"X": 2, "Y": 3}


def draw_entries(data, rank):
    entries = [()] * rank
    for a in data.draw(st.permutations(["X", "Y"])):
        d = data.draw(st.integers(-1, rank - 1))
        if d >= 0:
            entries[d] = (*entries[d], a)
    return tuple(entries)


class Maker:
    """Draws equations over a pool of float32 variables of ranks 0 to 3."""

    def __init__(self, data, builder):
        self.data, self.b, self.pool = data, builder, []

    def draw(self, strategy):
        return self.data.draw(strategy)

    def pick(self, condition=lambda v: True):
        found = [v for v in self.pool if condition(v)]
        return self.draw(st.sampled_from(found)) if found else None

    def add(self, v):
        if math.prod(v.aval.shape) <= 4000:
            self.pool.append(v)

    def group(self):
        return tuple(self.draw(st.sampled_from([("X",), ("Y",), ("X", "Y"), ("Y", "X")])))

    # -- equations ---------------------------------------------------------------------------
    def argument(self):
        rank = self.draw(st.integers(1, 3))
        local = [self.draw(st.sampled_from([2, 3, 6])) for _ in range(rank)]
        entries = draw_entries(self.data, rank)
        whole = [n * math.prod(SIZES[a] for a in e) for n, e in zip(local, entries, strict=True)]
        self.add(self.b.arg(whole, entries))

    def unary(self):
        self.add(self.b.emit(self.draw(st.sampled_from(["neg", "tanh", "abs"])), self.pick(),
                             **{}))

    def binary(self):
        x = self.pick()
        y = self.pick(lambda v: v.aval.shape in (x.aval.shape, ()))
        name = self.draw(st.sampled_from(["add", "sub", "mul", "max"]))
        self.add(self.b.emit(name, x, y))

    def scaled(self):
        self.add(self.b.emit("mul", self.b.literal(self.draw(st.sampled_from([0.5, -2.0]))),
                             self.pick()))

    def dot(self):
        x = self.pick(lambda v: v.aval.ndim >= 1)
        i = self.draw(st.integers(0, x.aval.ndim - 1))
        y = self.pick(lambda v: x.aval.shape[i] in v.aval.shape)
        j = self.draw(st.sampled_from(
            [d for d, n in enumerate(y.aval.shape) if n == x.aval.shape[i]]))
        if x.aval.ndim + y.aval.ndim - 2 <= 3:
            self.add(self.b.emit("dot_general", x, y,
                                 dimension_numbers=(((i,), (j,)), ((), ())), **DOT))

    def batched_dot(self):
        x = self.pick(lambda v: v.aval.ndim == 3)
        y = x and self.pick(lambda v: v.aval.shape == x.aval.shape)
        if y:
            b, k = self.draw(st.sampled_from([(0, 1), (0, 2), (1, 0), (2, 1)]))
            self.add(self.b.emit("dot_general", x, y,
                                 dimension_numbers=(((k,), (k,)), ((b,), (b,))), **DOT))

    def reduce(self):
        x = self.pick(lambda v: v.aval.ndim >= 1)
        axes = (self.draw(st.integers(0, x.aval.ndim - 1)),)
        if self.draw(st.booleans()):
            self.add(self.b.emit("reduce_sum", x, axes=axes, out_sharding=None))
        else:
            self.add(self.b.emit("reduce_max", x, axes=axes))

    def transpose(self):
        x = self.pick()
        self.add(self.b.emit("transpose", x, permutation=tuple(
            self.draw(st.permutations(range(x.aval.ndim))))))

    def reshape(self):
        x = self.pick(lambda v: v.aval.ndim >= 1)
        shape = x.aval.shape
        if self.draw(st.booleans()) and len(shape) > 1:
            d = self.draw(st.integers(0, len(shape) - 2))
            new = (*shape[:d], shape[d] * shape[d + 1], *shape[d + 2:])
        else:
            d = self.draw(st.integers(0, len(shape) - 1))
            k = self.draw(st.sampled_from([k for k in (1, 2, 3) if shape[d] % k == 0]))
            new = (*shape[:d], k, shape[d] // k, *shape[d + 1:])
        if len(new) <= 3:
            self.add(self.b.emit("reshape", x, new_sizes=new, dimensions=None, sharding=None))

    def broadcast(self):
        x = self.pick(lambda v: v.aval.ndim <= 2) or self.b.literal(1.5)
        at = self.draw(st.integers(0, x.aval.ndim))
        shape = list(x.aval.shape)
        shape.insert(at, self.draw(st.sampled_from([2, 6])))
        kept = tuple(d for d in range(len(shape)) if d != at)
        self.add(self.b.emit("broadcast_in_dim", x, shape=tuple(shape), broadcast_dimensions=kept,
                             sharding=None))

    def filled(self):
        shape = tuple(self.draw(st.sampled_from([(2, 3), (6,), (3, 6), (2, 2, 3)])))
        self.add(self.b.emit("broadcast_in_dim", self.b.literal(0.75), shape=shape,
                             broadcast_dimensions=(), sharding=None))

    def slice(self):
        x = self.pick(lambda v: any(n > 1 for n in v.aval.shape))
        if x:
            start = [self.draw(st.integers(0, n - 1)) for n in x.aval.shape]
            self.add(self.b.emit("slice", x, start_indices=tuple(start),
                                 limit_indices=x.aval.shape, strides=None))

    def cumsum(self):
        x = self.pick(lambda v: v.aval.ndim >= 1)
        self.add(self.b.emit("cumsum", x, axis=self.draw(st.integers(0, x.aval.ndim - 1)),
                             reverse=False))

    def place(self):
        i = self.b.emit("axis_index", axis_name=self.group(), varying=True)
        self.add(self.b.emit("convert_element_type", i, new_dtype=F32, weak_type=False,
                             sharding=None))

    def psum(self):
        self.add(self.b.emit("psum", self.pick(), axes=self.group(), axis_index_groups=None))

    def pmax(self):
        self.add(self.b.emit("pmax", self.pick(), axes=self.group(), axis_index_groups=None))

    def gather(self):
        x, group = self.pick(lambda v: v.aval.ndim >= 1), self.group()
        self.add(self.b.emit(
            "all_gather", x, axis_name=group, tiled=True, axis_index_groups=None,
            all_gather_dimension=self.draw(st.integers(0, x.aval.ndim - 1)),
            axis_size=math.prod(SIZES[a] for a in group)))

    def scatter(self):
        group = self.group()
        n = math.prod(SIZES[a] for a in group)
        x = self.pick(lambda v: any(m % n == 0 for m in v.aval.shape))
        if x:
            d = self.draw(st.sampled_from([d for d, m in enumerate(x.aval.shape) if m % n == 0]))
            if self.draw(st.booleans()):
                self.add(self.b.emit("reduce_scatter", x, axis_name=group, scatter_dimension=d,
                                     tiled=True, axis_index_groups=None, axis_size=n))
            else:
                self.add(self.b.emit("all_slice", x, axes=group, dimension=d, axis_size=n))

    def swap(self):
        group = self.group()
        n = math.prod(SIZES[a] for a in group)
        x = self.pick(lambda v: any(m % n == 0 for m in v.aval.shape))
        if x:
            d = self.draw(st.sampled_from([d for d, m in enumerate(x.aval.shape) if m % n == 0]))
            self.add(self.b.emit(
                "all_to_all", x, axis_name=group, split_axis=d, tiled=True, axis_size=n,
                concat_axis=self.draw(st.integers(0, x.aval.ndim - 1)), axis_index_groups=None))

    def shift(self):
        group = self.group()
        n = math.prod(SIZES[a] for a in group)
        self.add(self.b.emit("ppermute", self.pick(), axis_name=group,
                             perm=tuple((i, (i + 1) % n) for i in range(n))))


STEPS = ["unary", "binary", "scaled", "dot", "dot", "batched_dot", "reduce", "transpose", "reshape",
         "broadcast", "filled", "slice", "cumsum", "place", "psum", "psum", "pmax", "gather",
         "scatter", "swap", "shift", "argument"]


@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.data())
def test_random_programs_agree(local, run_both, data):
    builder = local(**SIZES)
    maker = Maker(data, builder)
    maker.argument()
    maker.argument()
    for _ in range(data.draw(st.integers(1, 14))):
        getattr(maker, data.draw(st.sampled_from(STEPS)))()
    last = maker.pool[-3:]
    results = [(v, draw_entries(data, v.aval.ndim)) for v in last]
    program = builder.program(*results)
    run_both(program, builder.mesh, builder.values(), 1e-4, 1e-4)
