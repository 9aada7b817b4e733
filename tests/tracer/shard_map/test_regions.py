"""shard_map in context: nested, outside of a trace, in derivatives and vmaps, and its refusals."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit
A = np.arange(32, dtype=np.float32).reshape(4, 8)


def mesh_of(*kinds):
    names = ("x", "y", "z")[:len(kinds)]
    return st.make_mesh((2,) * len(kinds), names, axis_types=kinds)


def put(mesh, spec, value=A):
    return st.device_put(value, NamedSharding(mesh, spec))


def close(got, want):
    np.testing.assert_allclose(np.asarray(got), want, rtol=1e-6)


# -- nested ----------------------------------------------------------------------------------------

def squared(check_vma=True, inner=frozenset({"y"})):
    def within(x):
        return st.shard_map(lambda b: b * b, in_specs=P(None, "y"), out_specs=P(None, "y"),
                            axis_names=inner)(x)
    return st.shard_map(within, in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
                        check_vma=check_vma)


@pytest.mark.parametrize("kind", [AUTO, EXPLICIT])
@pytest.mark.parametrize("check_vma", [True, False])
def test_a_region_in_a_region_keeps_its_blocks_apart(kind, check_vma, executor):
    mesh = mesh_of(kind, kind, AUTO)
    spec = P("x", "y") if kind is EXPLICIT else P("x")
    with st.set_mesh(mesh):
        close(st.jit(squared(check_vma))(put(mesh, spec)), A * A)
        close(st.jit(st.grad(lambda x: squared(check_vma)(x).sum()))(put(mesh, spec)), 2 * A)


def test_the_inner_region_may_name_all_axes():
    mesh = mesh_of(AUTO, AUTO)
    with st.set_mesh(mesh):
        close(st.jit(squared(inner=frozenset()))(put(mesh, P("x", "y"))), A * A)


def test_smap_nests_over_one_axis_at_a_time():
    mesh = mesh_of(AUTO, AUTO, AUTO)
    seen = []

    def note(x):
        seen.append((st.sharding.get_abstract_mesh().manual_axes, str(st.typeof(x))))

    def within(x):
        note(x)
        return x * x

    def around(x):
        note(x)
        return st.smap(within, in_axes=1, out_axes=1, axis_name="y")(x)

    with st.set_mesh(mesh):
        close(st.jit(st.smap(around, in_axes=0, out_axes=0, axis_name="x"))(put(mesh, P())), A * A)
    assert seen == [(("x",), "float32[2,8]{V:x}"), (("x", "y"), "float32[2,4]{V:(x,y)}")]


# -- outside of a trace ----------------------------------------------------------------------------

def signed(x):
    total = lax.psum(x.sum(), ("x", "y"))
    if total < 0:
        return x
    return -x


def test_python_branches_on_what_is_the_same_on_all_devices(executor):
    mesh = mesh_of(AUTO, AUTO)
    f = st.shard_map(signed, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"))
    close(f(A), -A)
    close(f(-A), -A)
    close(st.grad(lambda x: f(x).sum())(A), np.full_like(A, -1))
    with pytest.raises(st.errors.TracerBoolConversionError):
        st.jit(f)(A)


def test_python_branches_on_blocks_that_differ_are_refused():
    f = st.shard_map(lambda x: x if x.sum() > 0 else -x, mesh=mesh_of(AUTO), in_specs=P("x"),
                     out_specs=P("x"))
    with pytest.raises(st.errors.TracerBoolConversionError):
        f(A)


def test_looking_at_a_value_shows_nothing_twice(capsys):
    def f(x):
        st.debug.print("sum {}", x.sum())
        return x * (2 if lax.psum(x.sum(), "x") > 0 else 1)
    st.shard_map(f, mesh=mesh_of(AUTO), in_specs=P("x"), out_specs=P("x"))(A)
    assert capsys.readouterr().out.splitlines() == ["sum 120.0", "sum 376.0"]


@pytest.mark.parametrize("spec", [P("x"), P(("x", "y")), P(None, "y")])
def test_results_are_sharded_as_out_specs_say(spec):
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    out = st.shard_map(lambda x: x * 2, mesh=mesh, in_specs=spec, out_specs=spec)(put(mesh, spec))
    assert out.sharding == NamedSharding(mesh, spec)


def test_a_none_in_in_specs_marks_static_arguments():
    mesh = mesh_of(AUTO)
    close(st.shard_map(lambda s: s * 2, mesh=mesh, in_specs=None, out_specs=P())(3.0), 6)
    f = st.shard_map(lambda n, x: x * n, mesh=mesh, in_specs=(None, P("x")), out_specs=P("x"))
    close(f(3, A), 3 * A)


def test_an_abstract_mesh_is_made_concrete_by_an_argument():
    mesh, other = mesh_of(AUTO), st.make_mesh((2,), ("q",), axis_types=(AUTO,))
    f = st.shard_map(lambda x: x * 2, mesh=mesh.abstract_mesh, in_specs=P("x"), out_specs=P("x"))
    close(f(put(mesh, P("x"))), A * 2)
    with pytest.raises(ValueError, match="Please pass `st.Array`s with a `NamedSharding` as inp"):
        f(A)
    with pytest.raises(ValueError, match="Mesh shape of the input .* does not match the mesh sha"):
        f(put(other, P("q")))


# -- transformations -------------------------------------------------------------------------------

def test_a_function_traced_before_names_its_mesh_in_derivatives():
    f = st.jit(st.shard_map(lambda a: lax.all_gather(a, "x", tiled=True, to="invarying"),
                            mesh=mesh_of(AUTO), in_specs=P("x"), out_specs=P()))
    v = np.arange(8, dtype=np.float32)
    close(f(v), v)
    close(st.jit(st.grad(lambda x: (f(x) ** 2).sum()))(v), 2 * v)
    close(st.jvp(f, (v,), (v,))[1], v)


def test_the_gradient_of_a_reduced_result_is_summed_once(executor):
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    with st.set_mesh(mesh):
        @st.shard_map(out_specs=P(reduced={"y"}))
        def f(x):
            whole = lax.all_gather(x, "y", axis=1, tiled=True, to="reduced")
            return lax.psum(whole.sum(), "x")
        close(st.jit(st.grad(f))(put(mesh, P("x", "y"))), np.ones_like(A))


def test_spmd_axis_name_leaves_derivatives_as_they_are(executor):
    mesh = mesh_of(AUTO, AUTO)
    f = st.shard_map(lambda x: jnp.sin(x.sum()), mesh=mesh, in_specs=P("y"), out_specs=P(),
                     check_vma=False)
    x = put(mesh, P("x", "y"), A / 100)
    close(st.vmap(st.grad(f), spmd_axis_name="x")(x), st.vmap(st.grad(f))(x))


def test_jacobians_within_a_region():
    mesh = mesh_of(EXPLICIT)
    with st.set_mesh(mesh):
        f = st.shard_map(lambda w, x: st.jacrev(lambda v: jnp.sin(v) * w)(x[0])[None],
                         in_specs=(P(), P("x")), out_specs=P("x"))
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        want = np.stack([np.diag(2 * np.cos(row)) for row in x])
        close(st.jit(f)(jnp.float32(2), put(mesh, P("x"), x)), want)


def test_random_numbers_of_one_key_are_the_same_on_all_devices(executor):
    mesh, key, a = mesh_of(AUTO), st.random.key(3), np.ones((8, 2), np.float32)
    for draw in (st.random.gamma, st.random.loggamma, lambda k, a: st.random.beta(k, a, a)):
        f = st.shard_map(lambda k, a, draw=draw: draw(lax.pcast(k, "x", to="varying"), a),
                         mesh=mesh, in_specs=(P(), P("x")), out_specs=P("x"))
        first, second = np.split(np.asarray(f(key, a)), 2)
        close(first, second)
        close(first, draw(key, a[:4]))


# -- groups ----------------------------------------------------------------------------------------

PAIRS = ((0, 1), (2, 3))


@pytest.mark.parametrize("f", [
    lambda v: lax.all_gather(v, "x", axis_index_groups=PAIRS, tiled=True),
    lambda v: lax.psum_scatter(jnp.tile(v, 2), "x", axis_index_groups=PAIRS, tiled=True),
    lambda v: lax.all_to_all(jnp.tile(v, 2), "x", 0, 0, axis_index_groups=PAIRS, tiled=True),
])
def test_exchanges_in_parts_of_a_group_are_typed(f, executor):
    mesh = st.make_mesh((4,), ("x",), axis_types=(AUTO,))
    out = [st.jit(st.shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=check))(
        np.arange(4, dtype=np.float32)) for check in (True, False)]
    close(out[0], np.asarray(out[1]))
    assert set(np.asarray(out[0])[:len(out[0]) // 2]) <= {0, 1, 2}


def test_sums_over_parts_need_untracked_types():
    f = st.shard_map(lambda v: lax.psum(v, "x", axis_index_groups=((0,), (1,))),
                     mesh=mesh_of(AUTO), in_specs=P("x"), out_specs=P("x"))
    with pytest.raises(NotImplementedError, match="axis_index_groups needs"):
        f(A)


# -- refusals --------------------------------------------------------------------------------------

def constrained(spec, **kwargs):
    mesh = mesh_of(AUTO, AUTO)
    return st.jit(st.shard_map(
        lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh, spec)) * 2, mesh=mesh,
        in_specs=P("x"), out_specs=P("x"), **kwargs))


def test_constraints_within_a_region_speak_of_the_other_axes():
    close(constrained(P(None, "y"), axis_names={"x"})(A), A * 2)
    with pytest.raises(ValueError, match="contains a manual axes"):
        constrained(P("x"), axis_names={"x"})(A)


def on_context_mesh():
    with st.set_mesh(mesh_of(AUTO, AUTO)):
        st.shard_map(lambda x: x, mesh=mesh_of(EXPLICIT, EXPLICIT), in_specs=P("x"),
                     out_specs=P("x"))(A)


def captured():
    mesh = mesh_of(EXPLICIT)
    with st.set_mesh(mesh):
        w = jnp.ones((2, 4))
        st.shard_map(lambda x: x * w[0, 0], in_specs=P("x"), out_specs=P("x"))(put(mesh, P("x")))


def over_a_mapped_axis():
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    f = st.shard_map(lambda x: x, mesh=mesh, in_specs=P("x"), out_specs=P("x"),
                     axis_names={"x", "y"})
    st.jit(st.vmap(f))(put(mesh, P("x", "y")))


def smapped(**kwargs):
    with st.set_mesh(mesh_of(AUTO)):
        st.smap(lambda x: x, **{"out_axes": 0, "axis_name": "x", **kwargs})(A)


def device_put_within():
    st.shard_map(lambda x: x + st.device_put(1, st.devices()[0]), mesh=mesh_of(AUTO),
                 in_specs=P("x"), out_specs=P("x"))(A)


def pending_of_a_constant():
    mesh = mesh_of(EXPLICIT, EXPLICIT)
    with st.set_mesh(mesh):
        st.jit(st.shard_map(lambda x: x, in_specs=P("x"),
                            out_specs=P("x", unreduced={"y"})))(put(mesh, P("x")))


@pytest.mark.parametrize(("call", "error", "phrase"), [
    (on_context_mesh, ValueError, "should match the mesh passed to shard_map"),
    (lambda: st.shard_map(lambda x: x, mesh=st.sharding.AbstractMesh((), ()), in_specs=P(),
                          out_specs=P())(A), ValueError, "shard_map requires a non-empty mesh"),
    (captured, NotImplementedError, "Closing over inputs to shard_map where the input is sharded"),
    (over_a_mapped_axis, ValueError, "st.shard_map requires axis_names="),
    (smapped, TypeError, "in_axes was not specified when axis_name="),
    (lambda: smapped(in_axes=[0]), TypeError, "smap in_axes must be an int, None"),
    (lambda: smapped(in_axes=("x",)), TypeError, "container with those types as leaves"),
    (lambda: smapped(in_axes=0, out_axes="x"), TypeError, "smap out_axes must be an int, None"),
    (device_put_within, ValueError, "device_put with explicit device not allowed within shard_map"),
    (pending_of_a_constant, ValueError,
     "vary_unreduced_cast is a Varying->Unreduced collective"),
    (lambda: st.shard_map(lambda x: lax.pcast(x, "y", to="varying"), mesh=mesh_of(AUTO, AUTO),
                          in_specs=P("x"), out_specs=P("x"), axis_names={"x"}, check_vma=False)(A),
     NameError, "Found an unbound axis name: y"),
])
def test_wrong_use_raises_what_jax_raises(call, error, phrase):
    with pytest.raises(error) as caught:
        call()
    assert phrase in str(caught.value)


def test_types_tell_their_manual_axes_under_jaxs_names():
    seen = []

    def f(x):
        mat = st.typeof(x).mat
        seen.append((set(mat.varying), set(mat.invarying(st.sharding.get_abstract_mesh()))))
        return x
    st.shard_map(f, mesh=mesh_of(AUTO, AUTO), in_specs=P("x"), out_specs=P("x"))(A)
    assert seen == [({"x"}, {"y"})]


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("b", [AxisType.Explicit, AxisType.Auto])
def test_tiled_exchanges_keep_the_other_axes_of_each_dimension(executor, b):
    mesh = st.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Explicit, b))
    plain = st.make_mesh((4,), ("b",))
    x = np.arange(32.0 * 16, dtype=np.float32).reshape(32, 16)
    region = "b" if b == AxisType.Explicit else None
    exchanges = [(lambda t: lax.all_gather(t, "b", tiled=True), (128, 16)),
                 (lambda t: lax.all_to_all(t, "b", 0, 0, tiled=True), (32, 16)),
                 (lambda t: lax.all_to_all(t, "b", 1, 0, tiled=True), (128, 4)),
                 (lambda t: lax.all_to_all(t, "b", 0, 1, tiled=True), (8, 64))]
    for f, shape in exchanges:
        want = st.shard_map(f, mesh=plain, in_specs=P("b"), out_specs=P("b"))(x)
        with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
            split = st.device_put(x, NamedSharding(mesh, P("a")))
            g = st.shard_map(f, in_specs=P("b"), out_specs=P("b"), axis_names={"b"})
            for y in (g(split), st.jit(g)(split)):
                expected = st.ShapeDtypeStruct(shape, "float32", sharding=NamedSharding(
                    mesh, P(("b", "a") if region else "a", None)))
                assert st.typeof(y) == st.typeof(expected)
                np.testing.assert_array_equal(y, want)
