"""The law: unshard(run(partition(p), shard(args))) == evaluate(p, args), on random programs.

Integer programs, so that equality is exact whatever the order of sums. Each program is partitioned
with random specs for some arguments and results, and with random constraints inside.
"""
from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from shardtrace.ir.program import Level, Var
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import partition

from . import lockstep
from .building import Build, auto

MESHES = (auto(2, 2), auto(2, 4), auto(4), auto(2, 2, 2), auto(2, 3))
SHAPES = ((8, 8), (8, 12), (4, 8, 6), (24,), (8, 1), (6, 4, 2))


@st.composite
def spec_for(draw, shape, mesh):
    """A spec that divides `shape`."""
    axes = draw(st.permutations(mesh.axis_names))
    entries: list[tuple] = [()] * len(shape)
    left = list(shape)
    for axis in axes:
        if not shape or draw(st.booleans()):
            continue
        d = draw(st.integers(0, len(shape) - 1))
        if left[d] % mesh.axis_size(axis) == 0:
            left[d] //= mesh.axis_size(axis)
            entries[d] = (*entries[d], axis)
    return P(*entries)


@st.composite
def programs(draw):
    mesh = draw(st.sampled_from(MESHES))
    b = Build(mesh)
    values: list[Var] = [b.arg(*draw(st.sampled_from(SHAPES)))
                         for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(1, 7))):
        x = draw(st.sampled_from(values))
        values.append(draw(one_equation(b, x, values, mesh)))
    results = draw(st.lists(st.sampled_from(values), min_size=1, max_size=3))
    return b.program(values[-1], *results)


@st.composite
def one_equation(draw, b: Build, x: Var, values, mesh) -> Var:
    shape = x.aval.shape
    n = len(shape)
    kinds = ["neg"]
    if n:
        kinds += ["sum", "max", "transpose", "reshape", "slice", "cumsum", "rev", "pad",
                  "broadcast", "iota", "concat", "constrain", "argmax", "dynamic_slice", "sort"]
    others = [v for v in values if v.aval.shape == shape]
    kinds += ["add", "mul", "select"]
    if n == 2:
        kinds += ["dot"] * 3
    kind = draw(st.sampled_from(kinds))
    d = draw(st.integers(0, max(0, n - 1)))
    if kind == "neg":
        return b.op("neg", x)
    if kind in ("add", "mul"):
        y = draw(st.sampled_from(others))
        return b.op(kind, x, y)
    if kind == "select":
        y = draw(st.sampled_from(others))
        return b.op("select_n", b.op("gt", x, y), x, y)
    if kind == "sum":
        return b.sum(x, *sorted(draw(st.sets(st.integers(0, n - 1), min_size=1))))
    if kind == "max":
        return b.op("reduce_max", x, axes=(d,))
    if kind == "argmax":
        return b.op("argmax", x, axes=(d,), index_dtype=np.dtype(np.int32))
    if kind == "transpose":
        return b.transpose(x, *draw(st.permutations(range(n))))
    if kind == "reshape":
        size = int(np.prod(shape))
        first = draw(st.sampled_from([k for k in (1, 2, 3, 4, 6, 8, 12) if size % k == 0]))
        sizes = draw(st.sampled_from([(first, size // first), (size // first, first), (size,)]))
        return b.reshape(x, *sizes)
    if kind == "slice":
        start = draw(st.integers(0, shape[d] - 1))
        limit = draw(st.integers(start + 1, shape[d]))
        lows, highs = [0] * n, list(shape)
        lows[d], highs[d] = start, limit
        return b.slice(x, tuple(lows), tuple(highs))
    if kind == "dynamic_slice":
        sizes = list(shape)
        sizes[d] = draw(st.integers(1, shape[d]))
        zero = b.sum(b.iota((1,), 0), 0)
        return b.op("dynamic_slice", x, *[zero] * n, slice_sizes=tuple(sizes))
    if kind == "cumsum":
        return b.op("cumsum", x, axis=d, reverse=draw(st.booleans()))
    if kind == "sort":
        return b.op("sort", x, dimension=d, is_stable=True, num_keys=1)[0]
    if kind == "rev":
        return b.op("rev", x, dimensions=(d,))
    if kind == "pad":
        config = [(0, 0, 0)] * n
        config[d] = draw(st.sampled_from([(1, 1, 0), (0, 2, 0), (2, 0, 1), (-1, 1, 0)]))
        zero = b.sum(b.iota((1,), 0), 0)
        return b.op("pad", x, zero, padding_config=tuple(config))
    if kind == "broadcast":
        size = draw(st.sampled_from([2, 4, 8]))
        at = draw(st.integers(0, n))
        new = (*shape[:at], size, *shape[at:])
        return b.broadcast(x, new, *(i if i < at else i + 1 for i in range(n)))
    if kind == "iota":
        return b.op("add", x, b.iota(shape, d))
    if kind == "concat":
        y = draw(st.sampled_from(others))
        return b.op("concatenate", x, y, dimension=d)
    if kind == "constrain":
        spec = draw(spec_for(shape, mesh))
        entries = [P.UNCONSTRAINED if draw(st.integers(0, 4)) == 0 else p
                   for p in spec.padded(n).partitions]
        return b.constrain(x, *entries)
    pairs = [v for v in values if v.aval.ndim == 2 and v.aval.shape[0] == shape[1]]
    if pairs:
        return b.dot(x, draw(st.sampled_from(pairs)))
    return b.dot(x, x, ((d,), (d,)))


def received(local):
    return sum(c.received_bytes * c.count for c in collectives(local))


def check(program, in_shardings, out_shardings, seed=0):
    rng = np.random.default_rng(seed)
    args = [rng.integers(-3, 4, v.aval.shape).astype(np.int32) for v in program.invars]
    want = lockstep.evaluate(program, args)
    done = partition(program, mesh=program.mesh, in_shardings=in_shardings,
                     out_shardings=out_shardings)
    for stage, name in ((Level.RESOLVED, "resolved"), (Level.RESHARDED, "resharded"),
                        (Level.LOCAL, "local")):
        assert done.stages[name].level is stage
    for wanted, spec in zip(out_shardings, done.out_specs, strict=True):
        if wanted is not None:
            assert spec.entries == wanted.padded(len(spec)).entries
    for name in ("local", "optimized"):
        for got, whole in zip(lockstep.run_local(done.stages[name], args), want, strict=True):
            lockstep.close(got, whole, name)
    assert received(done.local) <= received(done.stages["local"])
    return done


@settings(max_examples=max(60, settings().max_examples))
@given(st.data())
def test_partitioned_programs_compute_what_they_say(data):
    program = data.draw(programs())
    ins = [data.draw(st.none() | spec_for(v.aval.shape, program.mesh)) for v in program.invars]
    outs = [data.draw(st.none() | spec_for(v.aval.shape, program.mesh)) for v in program.outvars]
    check(program, ins, outs)
