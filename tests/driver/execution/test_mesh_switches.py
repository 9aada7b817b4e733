"""Programs that switch to a mesh of other axes in the middle run, and results say which mesh."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.shardings.refinement import common_refinement
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding, use_abstract_mesh
from shardtrace.sharding import PartitionSpec as P

DATA = np.arange(128.0, dtype=np.float32).reshape(16, 8)
SWITCHES = [((2, 2), (4, 1)), ((4, 1), (2, 2)), ((4, 2), (2, 4)), ((8, 1), (2, 4)),
            ((2, 4), (8, 1)), ((2, 2), (2, 2)), ((1, 8), (4, 2))]


def meshes(outer, inner, kind=AxisType.Explicit):
    mesh = st.make_mesh(outer, ("x", "y"), axis_types=(kind,) * 2)
    return mesh, mesh.abstract_mesh.update(axis_sizes=inner, axis_names=("a", "b"))


# -- the refinement --------------------------------------------------------------------------------

def axes(*sizes):
    return AbstractMesh(sizes, tuple("abcdef"[:len(sizes)]))


@pytest.mark.parametrize(("first", "second", "sizes"), [
    ((2, 2), (4,), (2, 2)), ((4,), (2, 2), (2, 2)), ((4, 2), (2, 4), (2, 2, 2)),
    ((2, 1, 4), (8,), (2, 1, 4)), ((6,), (2, 3), (2, 3)), ((12,), (2, 6), (2, 6)),
    ((4, 6), (2, 12), (2, 2, 6)), ((1, 1), (1,), (1, 1)), ((8, 1), (1, 2, 4), (2, 4, 1))])
def test_the_refinement_has_the_cuts_of_both(first, second, sizes):
    assert common_refinement([axes(*first), axes(*second)]).mesh.axis_sizes == sizes


@pytest.mark.parametrize(("first", "second"), [((2, 3), (3, 2)), ((4, 6), (6, 4)), ((2,), (3,))])
def test_cuts_that_do_not_divide_each_other_have_none(first, second):
    assert common_refinement([axes(*first), axes(*second)]) is None


def test_specs_go_to_the_refinement_and_back():
    a, b = axes(4, 2), AbstractMesh((2, 4), ("p", "q"))
    both = common_refinement([a, b])
    for mesh, specs in ((a, [P("a"), P("b", "a"), P(("a", "b")), P(("b", "a"), None), P()]),
                        (b, [P("p"), P("q", "p"), P(("p", "q")), P(None, ("q", "p"))])):
        for spec in specs:
            assert both.from_refined(mesh, both.to_refined(mesh, spec)) == spec
    assert both.from_refined(a, both.to_refined(b, P("p"))) is None


# -- running ---------------------------------------------------------------------------------------

@pytest.mark.parametrize(("outer", "inner"), SWITCHES)
@pytest.mark.parametrize(("before", "after"), [
    (P("x", "y"), P(("a", "b"), None)), (P(("x", "y")), P("b", "a")), (P(None, "x"), P("a"))])
def test_a_switch_between_explicit_meshes(outer, inner, before, after, executor):
    mesh, other = meshes(outer, inner)

    @st.jit
    def f(x):
        x = jnp.sin(x)
        with use_abstract_mesh(other):
            y = st.reshard(x, after)
            out = y @ jnp.ones((8, 8)) if after == P("a") else y * 2
            assert out.aval.mesh is other
            return out, out.sum()

    with st.set_mesh(mesh):
        out, total = f(st.device_put(DATA, before))
    expected = np.sin(DATA)
    expected = expected @ np.ones((8, 8)) if after == P("a") else expected * 2
    np.testing.assert_allclose(out, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-4, atol=1e-3)
    assert out.sharding.mesh.shape_tuple == other.shape_tuple
    assert out.sharding.spec == P(*after.partitions, *[None] * (2 - len(after)))


@pytest.mark.parametrize(("outer", "inner"), SWITCHES)
def test_a_switch_there_and_back_has_a_gradient(outer, inner, executor):
    mesh, other = meshes(outer, inner)

    @st.jit
    def f(x):
        x = jnp.sin(x)
        with use_abstract_mesh(other):
            out = st.reshard(x, P(("a", "b"), None)) * 2
        return st.reshard(out, P("y", None))

    with st.set_mesh(mesh):
        x = st.device_put(DATA, P("x", "y"))
        out = f(x)
        assert out.sharding == NamedSharding(mesh, P("y", None))
        g = st.jit(st.grad(lambda x: f(x).sum()))(x)
        assert g.sharding == x.sharding
        eager = st.grad(lambda x: f(x).sum())(x)
    np.testing.assert_allclose(g, 2 * np.cos(DATA), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(eager, g)


@pytest.mark.parametrize(("outer", "inner"), SWITCHES)
def test_a_switch_between_auto_meshes(outer, inner, executor):
    mesh, other = meshes(outer, inner, AxisType.Auto)

    @st.jit
    def f(x):
        with use_abstract_mesh(other):
            return st.lax.with_sharding_constraint(jnp.sin(x), P(("a", "b"), None)) * 2

    with st.set_mesh(mesh):
        out = f(st.device_put(DATA, P("x", "y")))
    np.testing.assert_allclose(out, 2 * np.sin(DATA), rtol=1e-6)
    assert out.sharding.mesh.shape_tuple == other.shape_tuple
    assert out.sharding.is_equivalent_to(NamedSharding(out.sharding.mesh, P(("a", "b"))), 2)


def test_a_switch_from_explicit_to_auto_axes(executor):
    mesh, _ = meshes((4, 2), (2, 4))
    other = AbstractMesh((2, 4), ("a", "b"))

    @st.jit
    def f(x):
        x = st.reshard(x, P())
        with use_abstract_mesh(other):
            return st.lax.with_sharding_constraint(jnp.arange(16.0), P("b")) + 1

    with st.set_mesh(mesh):
        out = f(DATA)
    np.testing.assert_array_equal(out, np.arange(16) + 1)
    assert out.sharding.spec == P("b") and out.sharding.mesh.axis_types == (AxisType.Auto,) * 2


def test_a_switch_inside_of_a_loop(executor):
    mesh, other = meshes((4, 2), (2, 4))

    def step(x, _):
        with use_abstract_mesh(other):
            y = st.reshard(x, P("b", "a"))
            y = y + y
        return st.reshard(y, P("x", "y")), None

    with st.set_mesh(mesh):
        x = st.device_put(DATA, P("x", "y"))
        out = st.jit(lambda x: st.lax.scan(step, x, None, length=3)[0])(x)
    np.testing.assert_array_equal(out, 8 * DATA)


def test_a_region_over_axes_with_other_names(executor):
    mesh, other = meshes((4, 2), (4, 2))

    @st.jit
    def f(x):
        with use_abstract_mesh(other):
            y = st.reshard(x, P("a", "b"))
            return st.shard_map(lambda t: st.lax.psum(t, "a"), in_specs=P("a", "b"),
                                out_specs=P(None, "b"))(y)

    with st.set_mesh(mesh):
        out = f(st.device_put(DATA, P("x", "y")))
    np.testing.assert_array_equal(out, DATA.reshape(4, 4, 8).sum(0))


def test_a_region_whose_axes_are_cut_is_refused():
    mesh, other = meshes((4, 2), (2, 4))

    @st.jit
    def f(x):
        with use_abstract_mesh(other):
            return st.shard_map(lambda t: t * 2, in_specs=P("a", "b"), out_specs=P("a", "b"))(
                st.reshard(x, P("a", "b")))

    with st.set_mesh(mesh), pytest.raises(NotImplementedError, match="whose axis 'b' is"):
        f(st.device_put(DATA, P("x", "y")))


def test_the_context_may_have_other_names_outside_of_jit():
    mesh = st.make_mesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        with use_abstract_mesh(AbstractMesh((2,), ("y",))):
            out = jnp.arange(8)
        assert out.sharding.mesh.axis_names == ("y",) and out.sharding.spec == P()


def test_meshes_that_cut_in_other_places_are_refused():
    mesh = st.make_mesh((2, 3), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    other = mesh.abstract_mesh.update(axis_sizes=(3, 2), axis_names=("a", "b"))

    @st.jit
    def f(x):
        with use_abstract_mesh(other):
            return st.reshard(x, P("a", "b")) * 2

    with st.set_mesh(mesh), pytest.raises(ValueError, match="no mesh has axes of which both"):
        f(st.device_put(np.ones((6, 6), np.float32), P("x", "y")))


def test_a_program_without_devices_can_switch():
    mesh, other = meshes((4, 2), (2, 4))
    x = st.ShapeDtypeStruct((16, 8), np.float32,
                            sharding=NamedSharding(mesh.abstract_mesh, P("x", "y")))

    def f(x):
        with use_abstract_mesh(other):
            return st.reshard(x, P("b", "a")) * 2

    compiled = st.jit(f).lower(x).compile()
    assert compiled.output_shardings == NamedSharding(other, P("b", "a"))
