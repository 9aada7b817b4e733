"""Collectives on the simulated executor, on the wire and as their ops declare them agree."""
from __future__ import annotations

import math

import numpy as np
import pytest

from shardtrace.ir.op import OPS
from shardtrace.ir.spec import axis_factor
from shardtrace.runtime.per_device.executor import PerDeviceRun

from ...references import ops as references

RING = tuple((i, (i + 1) % 6) for i in range(6))

# (op, params without axis sizes, local shape of the operand)
CASES = [
    ("psum", dict(axes=("X",), axis_index_groups=None), (4, 6)),
    ("psum", dict(axes=("Y", "X"), axis_index_groups=None), (5,)),
    ("psum", dict(axes=("Y",), axis_index_groups=((0, 2), (1,))), (4,)),
    ("psum", dict(axes=("X", "Y"), axis_index_groups=((5, 0), (1, 2), (4, 3))), (4,)),
    ("psum_invariant", dict(axes=("X", "Y")), (4, 6)),
    ("psum_invariant", dict(axes=("X",)), (0, 6)),
    ("pprod", dict(axes=("X", "Y"), axis_index_groups=None), (3, 2)),
    ("pmax", dict(axes=("Y",), axis_index_groups=None), (3, 2)),
    ("pmin", dict(axes=("X", "Y"), axis_index_groups=None), (7,)),
    ("all_gather", dict(axis_name=("X",), all_gather_dimension=0, tiled=True), (2, 3)),
    ("all_gather", dict(axis_name=("Y", "X"), all_gather_dimension=1, tiled=True), (2, 3)),
    ("all_gather", dict(axis_name=("X", "Y"), all_gather_dimension=1, tiled=False), (2, 3)),
    ("all_gather", dict(axis_name=("Y",), all_gather_dimension=0, tiled=False), ()),
    ("all_gather_invariant", dict(axis_name=("Y",), all_gather_dimension=0, tiled=True), (2, 3)),
    ("reduce_scatter", dict(axis_name=("X",), scatter_dimension=0, tiled=True), (4, 6)),
    ("reduce_scatter", dict(axis_name=("Y", "X"), scatter_dimension=1, tiled=True), (4, 6)),
    ("reduce_scatter", dict(axis_name=("Y",), scatter_dimension=1, tiled=False), (2, 3)),
    ("all_to_all", dict(axis_name=("X",), split_axis=0, concat_axis=1, tiled=True), (4, 6)),
    ("all_to_all", dict(axis_name=("Y", "X"), split_axis=1, concat_axis=0, tiled=True), (4, 6)),
    ("all_to_all", dict(axis_name=("Y",), split_axis=1, concat_axis=1, tiled=True), (4, 6)),
    *[(f"{name}_scatter", dict(axis_name=axes, scatter_dimension=d, tiled=tiled), shape)
      for name, axes, d, tiled, shape in (
          ("pmax", ("X",), 0, True, (4, 6)), ("pmin", ("X", "Y"), 1, True, (4, 6)),
          ("pprod", ("Y", "X"), 1, True, (4, 6)), ("pmax", ("X",), 0, False, (2, 5)))],
    ("all_to_all", dict(axis_name=("X", "Y"), split_axis=0, concat_axis=0, tiled=True), (6, 2)),
    ("all_to_all", dict(axis_name=("X",), split_axis=0, concat_axis=1, tiled=False), (2, 5)),
    ("all_to_all", dict(axis_name=("X", "Y"), split_axis=1, concat_axis=0, tiled=False), (2, 6)),
    ("ppermute", dict(axis_name=("X",), perm=((0, 1), (1, 0))), (4, 6)),
    ("ppermute", dict(axis_name=("Y",), perm=((0, 2), (1, 0))), (4, 6)),
    ("ppermute", dict(axis_name=("Y", "X"), perm=RING), (4,)),
    ("ppermute", dict(axis_name=("X", "Y"), perm=((0, 0), (3, 5))), (4,)),
    ("all_slice", dict(axes=("X",), dimension=0), (4, 6)),
    ("all_slice", dict(axes=("Y", "X"), dimension=1), (4, 6)),
]
GROUPED = {"all_gather", "reduce_scatter", "all_to_all"}
LAYOUTS = [(), (("X",),), (("Y",),), (("X", "Y"),), (("Y", "X"),), ((), ("X", "Y")),
           (("Y",), ("X",)), ((), ("Y",)), (("Z", "X"), ()), (("Y",), ("Z", "X"))]


def _layouts(ndim):
    for layout in LAYOUTS:
        if len(layout) <= ndim or not any(layout[ndim:]):
            yield (tuple(layout) + ((),) * ndim)[:ndim]


def as_declared_by_the_op(eqn, blocks, run):
    """The exchange of the op on blocks stacked [X, Y, Z, ...], back as a list of blocks."""
    mesh = run.mesh
    names = eqn.axes
    shape = blocks[0].shape
    x = np.array(blocks).reshape((*mesh.axis_sizes, *shape))
    order = [mesh.axis_names.index(n) for n in names]
    others = [i for i in range(len(mesh.axis_names)) if i not in order]
    count = math.prod(mesh.axis_sizes[i] for i in order)
    lead = len(others) + 1
    x = x.transpose([*others, *order, *range(len(mesh.axis_names), x.ndim)])
    x = x.reshape([mesh.axis_sizes[i] for i in others] + [count] + list(shape))
    out = eqn.op.collective.evaluate(x, lead, count, **eqn.params)
    local = out.shape[lead:]
    out = np.broadcast_to(out, (*out.shape[:lead - 1], count, *local))
    out = out.reshape([mesh.axis_sizes[i] for i in (*others, *order)] + list(local))
    back = np.argsort([*others, *order])
    out = out.transpose([*back, *range(len(back), out.ndim)])
    return list(out.reshape((len(blocks), *local)))


def as_referred(eqn, blocks, run):
    """What tests/references says that each device gets."""
    mesh, out = run.mesh, [None] * len(blocks)
    names = eqn.axes
    places = list(np.ndindex(*mesh.axis_sizes))
    groups = {}
    for i, at in enumerate(places):
        others = tuple(k for k, n in zip(at, mesh.axis_names, strict=True) if n not in names)
        groups.setdefault(others, []).append(i)
    for members in groups.values():
        members.sort(key=lambda i: [places[i][mesh.axis_names.index(n)] for n in names])
        for chosen in eqn.params.get("axis_index_groups") or (range(len(members)),):
            group = [members[k] for k in chosen]
            results = references.COLLECTIVES[eqn.op.name](
                np.array([blocks[i] for i in group]), **eqn.params)
            for i, x in zip(group, results, strict=True):
                out[i] = x
    return out


def complete(name, params, builder):
    """The size of a collective's group, and its params with those that follow from its axes."""
    size = math.prod(builder.sizes[a] for a in params.get("axis_name", params.get("axes")))
    sized = name.endswith("_scatter") or not name.startswith("p")
    return size, {**params, **({"axis_size": size} if sized else {}),
                  **({"axis_index_groups": None} if name in GROUPED else {})}


@pytest.mark.parametrize("dtype", [np.float32, np.int32, "bfloat16"])
@pytest.mark.parametrize(("name", "params", "shape"), CASES)
@np.errstate(invalid="ignore")
def test_all_ways_to_run_a_collective_agree(name, params, shape, dtype, local, run_both):
    dtype = np.dtype(__import__("ml_dtypes").bfloat16) if dtype == "bfloat16" else dtype
    for entries in _layouts(len(shape)):
        builder = local(X=2, Y=3, Z=2)
        _, params = complete(name, params, builder)
        whole = [n * math.prod(builder.sizes[a] for a in e)
                 for n, e in zip(shape, entries, strict=True)]
        x = builder.arg(whole, entries, dtype)
        y = builder.emit(name, x, **params)
        program = builder.program((y, ((),) * y.aval.ndim))
        arguments = builder.values()
        if dtype is np.float32:
            some = arguments[0].data.reshape(-1)[1:20:6]
            some[:] = np.resize([np.nan, np.inf, -np.inf], len(some))
        tolerance = 2e-2 if np.dtype(dtype).itemsize == 2 else 2e-5
        run_both(program, builder.mesh, arguments, tolerance, tolerance)

        run = PerDeviceRun(program, builder.mesh)
        blocks = run.scatter(arguments[0], program.global_in[0], x.aval)
        (wired,) = run.run(program, [blocks])
        judged = as_referred(program.eqns[-1], blocks, run)
        declared = as_declared_by_the_op(program.eqns[-1], blocks, run)
        for other in judged, declared:
            assert [np.shape(x) for x in other] == [np.shape(x) for x in wired]
            np.testing.assert_allclose(np.asarray(wired, np.float64), np.asarray(other, np.float64),
                                       rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("name", "params", "shape"), [
    c for c in CASES if c[1].get("axis_index_groups") is None])
def test_the_meter_counts_what_the_op_declares(name, params, shape, local):
    """On shapes that divide evenly, measured bytes are those of the declared formula."""
    builder = local(X=2, Y=3, Z=2)
    size, params = complete(name, params, builder)
    shape = tuple(n * 6 for n in shape) if params.get("tiled", True) else shape
    x = builder.arg([2 * shape[0], *shape[1:]] if shape else (), (("Z",),) + ((),) * (
        len(shape) - 1) if shape else ())
    y = builder.emit(name, x, **params)
    program = builder.program((y, ((),) * y.aval.ndim))
    run = PerDeviceRun(program, builder.mesh)
    run(builder.values())
    op = OPS[name]
    ((received,),) = run.traffic.values()
    assert received.max() == op.collective.wire(x.aval, size, program.eqns[-1].params)


def test_axis_index_is_row_major_in_the_order_of_the_names(local, run_both):
    for names in (("X",), ("Y", "X"), ("X", "Y"), ("Z", "X")):
        builder = local(X=2, Y=3, Z=2)
        i = builder.emit("axis_index", axis_name=names, varying=True)
        program = builder.program((i, ()))
        (out,) = run_both(program, builder.mesh, [])
        grid = np.indices((2, 3, 2))
        at = dict(zip("XYZ", grid, strict=True))
        want = 0
        for n in names:
            want = want * builder.sizes[n] + at[n]
        shown = np.broadcast_to(
            out.data.reshape([builder.sizes[a] if a in out.lead else 1 for a in "XYZ"]), (2, 3, 2))
        np.testing.assert_array_equal(shown, want)


def test_collectives_over_a_part_of_an_axis(local, run_both):
    """Sub-axes are axes: X=8 as [2, 4], sums and gathers over either part."""
    for part, size in (("X:(1)2", 2), ("X:(2)4", 4), ("X:(2)2", 2)):
        builder = local(X=8)
        x = builder.arg((16, 4), (("X",), ()))
        total = builder.emit("psum", x, axes=(part,), axis_index_groups=None)
        whole = builder.emit("all_gather", x, axis_name=(part,), all_gather_dimension=0, tiled=True,
                             axis_size=size, axis_index_groups=None)
        own = builder.emit("all_slice", whole, axes=(part,), dimension=0, axis_size=size)
        program = builder.program((total, ((), ())), (whole, ((), ())), (own, (("X",), ())))
        arguments = builder.values()
        run_both(program, builder.mesh, arguments)
        assert axis_factor(part, builder.mesh.shape)[2] == size


def test_gathers_and_own_blocks_copy_nothing(local):
    from shardtrace.runtime.simulation.executor import compile_simulated
    builder = local(X=2, Y=4)
    x = builder.arg((16, 8), (("X", "Y"), ()))
    g = builder.emit("all_gather", x, axis_name=("Y",), all_gather_dimension=0, tiled=True,
                     axis_size=4, axis_index_groups=None)
    t = builder.emit("all_to_all", g, axis_name=("X",), split_axis=1, concat_axis=0, tiled=True,
                     axis_size=2, axis_index_groups=None)
    s = builder.emit("all_slice", t, axes=("Y",), dimension=0, axis_size=4)
    program = builder.program((s, (("Y",), ("X",))))
    (argument,) = builder.values()
    (out,) = compile_simulated(program, builder.mesh)([argument])
    np.testing.assert_array_equal(out.data, argument.data)
    assert np.shares_memory(out.data, argument.data)


def test_a_dimension_that_changes_its_axis_is_not_moved(local, run_both):
    """Blocks along X go to the devices with that place along Y: the array is the same."""
    builder = local(X=2, Y=2, Z=3)
    x = builder.arg((4, 6), (("X",), ("Z",)))
    swap = tuple((2 * i + j, 2 * j + i) for i in range(2) for j in range(2))
    y = builder.emit("ppermute", x, axis_name=("X", "Y"), perm=swap)
    program = builder.program((y, (("Y",), ("Z",))))
    (argument,) = builder.values()
    (out,) = run_both(program, builder.mesh, [argument])
    assert out.lead == () and np.shares_memory(out.data, argument.data)


def test_a_permutation_of_equal_blocks_leaves_them_equal(local, run_both):
    builder = local(X=2, Y=3)
    x = builder.arg((4,), (("X",),))
    rows = tuple((3 * i + j, 3 * (1 - i) + (j + 1) % 3) for i in range(2) for j in range(3))
    y = builder.emit("ppermute", x, axis_name=("X", "Y"), perm=rows)
    program = builder.program((y, (("X",),)))
    (argument,) = builder.values()
    (out,) = run_both(program, builder.mesh, [argument])
    assert out.lead == ()
    np.testing.assert_array_equal(out.data, np.roll(argument.data, 2))
