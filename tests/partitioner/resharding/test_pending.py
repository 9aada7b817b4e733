"""Explicit axes: reshard in all its forms, pending sums that the types ask for, their end."""
from __future__ import annotations

import itertools

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import config, lax
from shardtrace.ir.diagnostics.errors import DuplicateSpecError
from shardtrace.ir.ops.communication.sharding import explicit_sharding
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.parse import parse_program
from shardtrace.partitioner.collectives import collectives
from shardtrace.partitioner.pipeline import partition
from shardtrace.sharding import AbstractMesh

from ...rows import rows
from ..building import Build, explicit
from ..lockstep import partitioned

MESH = explicit(2, 4, names="XY")
SPECS = [P(), P("X"), P(None, "X"), P("Y", "X"), P(("X", "Y")), P(("Y", "X"), None),
         P(unreduced={"X"}), P("Y", unreduced={"X"}), P(unreduced={"X", "Y"}),
         P(reduced={"X"}), P("Y", None, reduced={"X"})]


def kinds(done):
    return [(c.op, c.axes) for c in collectives(done.local)]


@rows("a, b", list(itertools.product(SPECS, SPECS)))
def test_reshard_between_all_kinds_of_specs(a, b):
    build = Build(MESH)
    x = build.arg(8, 8, spec=a)
    y = build.reshard(x, b)
    assert y.aval.spec == b.padded(2)
    done = partitioned(build.program(y))
    assert done.out_specs[0].unreduced == b.unreduced
    assert done.out_specs[0].reduced == b.reduced


@pytest.mark.parametrize("a, b, want", [
    (P("X"), P(), [("all_gather_invariant", ("X",))]),
    (P(), P("X"), []),
    (P("X"), P(("X", "Y")), []),
    (P("X"), P(None, "X"), [("all_to_all", ("X",))]),
    (P(("X", "Y")), P(("Y", "X")), [("retile", ("X", "Y"))]),
    (P(unreduced={"X"}), P(), [("psum_invariant", ("X",))]),
    (P(unreduced={"X"}), P("X"), [("reduce_scatter", ("X",))]),
    (P(), P(unreduced={"X"}), []),
    (P(), P(reduced={"X"}), []),
    (P(reduced={"X"}), P("X"), []),
])
def test_reshard_moves_what_jax_moves(a, b, want):
    build = Build(MESH)
    done = partitioned(build.program(build.reshard(build.arg(8, 8, spec=a), b)))
    assert kinds(done) == want


def test_a_contraction_over_a_split_dimension_ends_where_out_sharding_says():
    for out, want in ((P(), [("psum_invariant", ("Y",))]),
                      (P(None, "Y"), [("reduce_scatter", ("Y",))]),
                      (P(unreduced={"Y"}), [])):
        b = Build(MESH)
        x, w = b.arg(8, 8, spec=P(None, "Y")), b.arg(8, 8, spec=P("Y", None))
        done = partitioned(b.program(b.dot(x, w, out=out)))
        assert kinds(done) == want


def test_pending_sums_pass_through_linear_ops_and_are_finished_once():
    b = Build(MESH)
    x, w = b.arg(8, 8, spec=P(None, "Y")), b.arg(8, 8, spec=P("Y", None))
    u = b.dot(x, w, out=P(unreduced={"Y"}))
    v = b.dot(w, x, ((0,), (1,)), out=P(unreduced={"Y"}))
    total = b.transpose(b.op("add", u, v), 1, 0)
    assert total.aval.unreduced == {"Y"}
    done = partitioned(b.program(b.reshard(total, P("Y", None))))
    assert kinds(done) == [("reduce_scatter", ("Y",))]


def test_a_pending_sum_times_a_reduced_value_stays_pending():
    b = Build(MESH)
    x, w = b.arg(8, 8, spec=P(None, "X")), b.arg(8, 8, spec=P("X", None))
    u = b.dot(x, w, out=P(unreduced={"X"}))
    r = b.arg(8, 8, spec=P(reduced={"X"}))
    done = partitioned(b.program(b.reshard(b.op("mul", u, r), P())))
    assert kinds(done) == [("psum_invariant", ("X",))]


def test_pending_scalars_and_sums():
    b = Build(MESH)
    x = b.arg(8, 8, spec=P("X", "Y"))
    s = b.op("reduce_sum", x, axes=(0, 1),
             out_sharding=NamedSharding(MESH, P(unreduced={"X"})))
    assert s.aval.str_short() == "int32[]{U:X}"
    done = partitioned(b.program(s, b.reshard(s, P())))
    assert done.out_specs[0].unreduced == {"X"}


def test_pending_arguments_and_results():
    b = Build(MESH)
    x = b.arg(8, 8, spec=P("X", unreduced={"Y"}))
    y = b.arg(8, 8, spec=P("X", unreduced={"Y"}))
    done = partitioned(b.program(b.op("add", x, y), b.reshard(x, P("X", "Y"))))
    assert kinds(done) == [("reduce_scatter", ("Y",))]


def test_reshard_takes_explicit_axes_only():
    mixed = explicit(2, 4, names="XY").update_axis_types({"Y": type(MESH.axis_types[0]).Auto})
    with pytest.raises(ValueError, match="cannot contain axis names that are of type Auto or Man"):
        explicit_sharding(NamedSharding(mixed, P("Y")), "reshard")
    with pytest.raises(TypeError, match="`out_sharding` argument of reshard only supports"):
        explicit_sharding("X", "reshard")
    with pytest.raises(ValueError, match="not under a mesh context"):
        explicit_sharding(P("X"), "reshard")
    assert explicit_sharding(None, "reshard") is None
    b = Build(MESH)
    with pytest.raises(ValueError, match="Reshard should only be used with out_shardings which"):
        b.op("reshard", b.arg(8, 8), dst_sharding=None)
    with pytest.raises(DuplicateSpecError, match="at most one positional dimension"):
        b.reshard(b.arg(8, 8), P("X", "X"))


def test_with_sharding_constraint_asserts_on_explicit_meshes():
    b = Build(MESH)
    x = b.arg(8, 8, spec=P("X", "Y"))
    assert b.constrain(x, "X", "Y").aval is x.aval
    with pytest.raises(AssertionError, match=r"acts as an assert when all axes .* P\('X', 'Y'\) "
                       r"did not match the sharding provided: P\('X', None\)"):
        b.constrain(x, "X")


def test_constraints_name_auto_axes_only_and_no_more_dimensions_than_there_are():
    mixed = MESH.update_axis_types({"Y": type(MESH.axis_types[0]).Auto})
    b = Build(mixed)
    with pytest.raises(ValueError, match="can only refer to Auto axes of the mesh"):
        b.constrain(b.arg(8, 8), "X")
    with pytest.raises(ValueError, match="only valid for values of rank at least 3"):
        b.constrain(b.arg(8, 8), None, None, "Y")


def test_auto_axes_are_minor_to_explicit_ones():
    mixed = MESH.update_axis_types({"Y": type(MESH.axis_types[0]).Auto})
    b = Build(mixed)
    x = b.arg(16, 8, spec=P("X", None))
    y = b.constrain(x, "Y", None)
    assert y.aval is x.aval
    done = partition(b.program(y), mesh=mixed)
    assert done.out_specs[0].entries == (("X", "Y"), ())


def test_a_region_that_makes_axes_auto_keeps_the_layout_and_returns_to_types():
    b = Build(MESH)
    x, w = b.arg(8, 8, spec=P("X", None)), b.arg(8, 8, spec=P(None, "Y"))
    region = MESH.update_axis_types({a: type(MESH.axis_types[0]).Auto for a in "XY"})
    inside = [b.op("reshard", v, dst_sharding=NamedSharding(region, P())) for v in (x, w)]
    assert [v.aval.str_short() for v in inside] == ["int32[8,8]"] * 2
    b.builder.mesh = region
    y = b.op("neg", b.dot(*inside))
    b.builder.mesh = MESH
    z = b.reshard(y, P("X", None))
    done = partitioned(b.program(z))
    assert [str(v.aval) for e in done.resolved.eqns for v in e.outvars] == [
        "int32[8@X,8@Y]", "int32[8@X,8@Y]", "int32[8@X,8]"]
    assert kinds(done) == [("all_gather_invariant", ("Y",))]


@pytest.mark.parametrize("spec", [P(unreduced={"X"}), P("Y", unreduced={"X"})])
def test_a_weak_value_that_becomes_a_sum_stays_weak(spec):
    b = Build(MESH)
    x = b.arg(8, 8, name="x")
    text = str(b.program(b.reshard(x, spec))).replace("int32", "~f32").replace(
        "i32", "~f32")
    done = partition(parse_program(text), mesh=MESH)
    assert all(v.aval.weak_type for v in done.local.outvars)


@pytest.mark.parametrize("scales", [1, 9])
def test_gradients_wait_for_the_end_of_a_loop_and_what_it_carries_does_not(scales):
    mesh = AbstractMesh((2, 4), ("dp", "tp"))

    def struct(shape, *spec):
        return st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(mesh, P(*spec)))

    def loss(weights, x):
        def layer(x, w):
            up, down, factors = w
            for _ in range(2):
                h = jnp.tanh(x * lax.rsqrt((x ** 2).mean(-1, keepdims=True)) @ up)
                for factor in factors:
                    h = h * factor
                x = x + h @ down
            return x, None
        return (lax.scan(layer, x, weights)[0] ** 2).mean()

    weights = (struct((6, 64, 256), None, None, "tp"), struct((6, 256, 64), None, "tp"),
               [struct((6, 256), None, "tp")] * scales)
    with config.override(shardtrace_objective="time"):
        found = st.jit(st.grad(loss)).lower(weights, struct((32, 64), "dp")).compile()
    assert sorted((r.count, r.mesh_axes) for r in found.collectives()) == [
        (1, ("dp",)), *[(6, ("tp",))] * 4]
