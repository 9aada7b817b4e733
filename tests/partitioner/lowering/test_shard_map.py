"""Manual regions: their bodies in place, their borders, over all axes or some."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.builder import ProgramBuilder
from shardtrace.ir.meshes.mesh import AxisType
from shardtrace.ir.op import OPS
from shardtrace.ir.ops.control.manual import entering_type, manual_mesh
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import partition

from .. import lockstep
from ..building import Build, auto, explicit, literal


def shard_map(b, f, operands, in_specs, out_specs, manual=None, check_vma=True):
    """Append a shard_map of `f(body, *blocks) -> results` to a program that is being built."""
    mesh = b.mesh
    axes = frozenset(mesh.axis_names if manual is None else manual)
    body = Build(manual_mesh(mesh, axes), "body")
    body.builder = ProgramBuilder(body.mesh, Level.TRACED)
    invars = [Var(entering_type(x.aval, s, mesh, axes, check_vma))
              for x, s in zip(operands, in_specs, strict=True)]
    results = f(body, *invars)
    results = results if isinstance(results, tuple) else (results,)
    program = Program("body", invars, body.builder.eqns, results, consts=body.builder.consts,
                      mesh=body.mesh)
    return b.op("shard_map", *operands, jaxpr=program, in_specs=tuple(in_specs),
                out_specs=tuple(out_specs), mesh=mesh, manual_axes=axes, check_vma=check_vma)


def run(program, want, in_shardings=None, args=None):
    """Partition, run in step at both last stages, compare with `want(*args)`."""
    args = args or [np.arange(v.aval.size, dtype=v.aval.dtype).reshape(v.aval.shape) % 11
                    for v in program.invars]
    done = partition(program, mesh=program.mesh, in_shardings=in_shardings)
    for stage in ("local", "optimized"):
        got = lockstep.run_local(done.stages[stage], args)
        expected = want(*args)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for a, e in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, e)
    return done


def kinds(done):
    return [(c.op, c.axes) for c in collectives(done.local)]


@pytest.mark.parametrize("mesh", [auto(2, 4, names="xy"), explicit(2, 4, names="xy")],
                         ids=["auto", "explicit"])
def test_psum_over_one_axis(mesh):
    b = Build(mesh)
    x = b.arg(8, 8, spec=P("x", "y") if mesh.explicit_axes else None)

    def body(s, x):
        return s.op("psum_invariant", x, axes=("y",))

    (y,) = shard_map(b, body, [x], [P("x", "y")], [P("x")])
    done = run(b.program(y), lambda x: x.reshape(8, 4, 2).sum(1), [P("x", "y")])
    assert kinds(done) == [("psum_invariant", ("y",))]
    assert done.out_specs[0].entries == (("x",), ())


def test_operands_are_brought_to_in_specs_and_results_stay_as_out_specs():
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(8, 8)
    (y,) = shard_map(b, lambda s, x: s.op("neg", x), [b.op("neg", x)], [P(None, "x")],
                     [P(None, "x")])
    done = run(b.program(y), lambda x: x, [P("x")])
    assert kinds(done) == [("all_to_all", ("x",))]
    assert done.out_specs[0].entries == ((), ("x",))


def test_axis_index_and_ring():
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(8, 4)
    perm = tuple((i, (i + 1) % 4) for i in range(4))

    def body(s, x):
        i = s.op("axis_index", axis_name=("y",), varying=True)
        y = s.op("ppermute", x, axis_name=("y",), perm=perm)
        return s.op("add", y, i)

    (y,) = shard_map(b, body, [x], [P("y")], [P("y")])

    def want(x):
        blocks = np.split(x, 4)
        return np.concatenate([blocks[(i - 1) % 4] + i for i in range(4)])

    run(b.program(y), want)


@pytest.mark.parametrize("name, params, spec_out, want", [
    ("all_gather", dict(all_gather_dimension=0, tiled=True), P("y"), lambda x: np.tile(x, (4, 1))),
    ("all_gather_invariant", dict(all_gather_dimension=0, tiled=True), P(), lambda x: x),
    ("reduce_scatter", dict(scatter_dimension=1, tiled=True), P(None, "y"),
     lambda x: sum(np.split(x, 4))),
    ("all_to_all", dict(split_axis=1, concat_axis=0, tiled=True), P(None, "y"), lambda x: x),
])
def test_collectives_of_the_user(name, params, spec_out, want):
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(8, 8)
    (y,) = shard_map(
        b, lambda s, x: s.op(name, x, axis_name=("y",), axis_size=4, **params), [x], [P("y")],
        [spec_out])
    done = run(b.program(y), want)
    assert kinds(done) == [(name, ("y",))]


def test_partial_manual_keeps_the_other_axis_for_propagation():
    b = Build(auto(2, 4, names="xy"))
    x, w = b.arg(8, 8), b.arg(8, 8)

    def body(s, x, w):
        return s.op("psum_invariant", s.dot(x, w), axes=("x",))

    (y,) = shard_map(b, body, [x, w], [P(None, "x"), P("x")], [P()], manual={"x"})
    done = run(b.program(b.op("neg", y)), lambda x, w: -(x @ w),
               [P("y", "x"), P("x", None)])
    assert done.out_specs[0].entries == (("y",), ())
    assert kinds(done) == [("psum_invariant", ("x",))]


def test_partial_manual_axes_are_major():
    mesh = explicit(2, 4, names="xy")
    b = Build(mesh)
    x = b.arg(8, 4, spec=P(("y", "x"), None))
    (y,) = shard_map(b, lambda s, x: s.op("neg", x), [x], [P("x")], [P("x")], manual={"x"})
    assert y.aval.str_short() == "int32[8@(x,y),4]"
    done = run(b.program(y), lambda x: -x)
    assert kinds(done) == [("retile", ("x", "y"))]


def test_a_contraction_over_the_automatic_axis_inside_a_manual_region():
    b = Build(auto(2, 4, names="xy"))
    x, w = b.arg(8, 8), b.arg(8, 8)
    (y,) = shard_map(b, lambda s, x, w: s.dot(x, s.op("pvary", w, axes=("x",))), [x, w],
                     [P("x"), P()], [P("x")], manual={"x"})
    done = run(b.program(y), lambda x, w: x @ w, [P("x", "y"), P("y")])
    assert kinds(done) == [("psum_invariant", ("y",))]


def test_without_check_vma_what_varies_is_found_and_claims_take_the_first_block():
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(8, 8)
    y, z = shard_map(b, lambda s, x: (s.op("neg", x), s.op("psum", x, axes=("y",),
                                                          axis_index_groups=None)),
                     [x], [P("y")], [P(), P()], check_vma=False)
    run(b.program(y, z), lambda x: (-x[:2], x.reshape(4, 2, 8).sum(0)))


def test_a_constant_body_is_tiled():
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(4)

    def body(s, x):
        return s.op("pvary", s.broadcast(literal(3), (2,)), axes=("x",))

    (y,) = shard_map(b, body, [x], [P()], [P("x")])
    run(b.program(y), lambda x: np.full(4, 3))


def test_pending_sums_cross_the_border():
    mesh = explicit(2, 4, names="xy")
    b = Build(mesh)
    x = b.arg(8, 8, spec=P("x", unreduced={"y"}))
    (y,) = shard_map(b, lambda s, x: s.op("unreduced_psum", x, axes=("y",)), [x],
                     [P("x", unreduced={"y"})], [P("x")])
    run(b.program(y), lambda x: x)
    b = Build(mesh)
    x = b.arg(8, 8, spec=P("x", "y"))
    (y,) = shard_map(b, lambda s, x: s.op("vary_unreduced_cast_p", x, axes=("y",)), [x],
                     [P("x", "y")], [P("x", unreduced={"y"})])
    assert y.aval.unreduced == {"y"}
    done = run(b.program(b.reshard(y, P("x"))), lambda x: x.reshape(8, 4, 2).sum(1))
    assert kinds(done) == [("psum_invariant", ("y",))]


def test_calls_inside_and_around_manual_regions_are_inlined():
    b = Build(auto(2, 4, names="xy"))
    x = b.arg(8, 8)
    inner = Build(b.mesh, "inner")
    a = inner.arg(8, 8)
    called = inner.program(inner.op("sign", a))
    (y,) = b.op("jit", x, jaxpr=called, name="inner")
    (z,) = b.op("jit", y, jaxpr=called, name="inner")
    (w,) = shard_map(b, lambda s, x: s.op("neg", x), [z], [P("x")], [P("x")])
    done = run(b.program(w, y), lambda x: (-np.sign(np.sign(x)), np.sign(x)), [P("x")])
    assert [e.op.name for e in done.stages["inlined"].eqns] == ["sign", "sign", "shard_map"]
    assert [e.op for e in done.local.eqns] == [OPS["sign"], OPS["sign"], OPS["neg"]]


@pytest.mark.parametrize("names", [{"x"}, {"x", "y"}], ids=["x", "x and y"])
@pytest.mark.parametrize("check_vma", [True, False])
def test_what_a_checkpoint_captures_is_an_array_of_the_region(names, check_vma):
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    places = np.array([0, -1, 2], np.int32)

    def gradient(wrap):
        def body(x):
            table = jnp.array([3., 1., 2.])
            return wrap(lambda z: jnp.take(jnp.sin(z), places, mode="clip")[:, None]
                        * (z * table[places[0]]))(x)
        f = st.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), axis_names=names,
                         check_vma=check_vma)
        return st.jit(st.grad(lambda x: f(x).sum()))(np.arange(16, dtype=np.float32))
    want = np.asarray(gradient(lambda f: f))
    np.testing.assert_allclose(gradient(st.checkpoint), want, rtol=1e-5, atol=1e-5)
