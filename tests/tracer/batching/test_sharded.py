"""vmap on meshes: Explicit axes, shard_map, spmd_axis_name.

Types and errors are what JAX 0.10.2 says of the same program; where JAX is installed it is asked.
"""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding, auto_axes, reshard
from shardtrace.sharding import PartitionSpec as P

from ...rows import rows
from .examplewise import ints, same

EXPLICIT, AUTO = AxisType.Explicit, AxisType.Auto
V = ints(4)



def named(f, **kwargs):
    return st.vmap(f, axis_name="i", **kwargs)


# -- Explicit meshes -------------------------------------------------------------------------------

def test_vmaps_in_vmaps_outside_of_jit_make_constants_on_the_mesh_of_their_arguments():
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(EXPLICIT,) * 2)
    both = NamedSharding(mesh, P("x", "y"))
    keys = st.random.split(st.random.key(0), (8, 2))
    folded = st.vmap(st.vmap(lambda k: st.random.fold_in(k, 1)))
    out = folded(st.device_put(keys, both))
    assert st.typeof(out).sharding.spec == P("x", "y")
    np.testing.assert_array_equal(st.random.key_data(out), st.random.key_data(folded(keys)))
    each = st.vmap(st.vmap(lambda v: st.grad(lambda v: jnp.sum(jnp.full(3, v)))(v)))(
        st.device_put(np.ones((8, 2), np.float32), both))
    np.testing.assert_array_equal(each, 3 * np.ones((8, 2)))


@pytest.fixture
def explicit():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(EXPLICIT,) * 2)):
        yield


def put(value, *spec):
    return st.device_put(np.asarray(value), P(*spec))


A, Q = ints(4, 8), ints(8, 8)


def test_the_mapped_dimension_keeps_its_axes(explicit):
    x, w = put(A, "x", "y"), put(A, "x", None)
    inside = []
    out = st.vmap(lambda a: inside.append(str(st.typeof(a))) or a.sum())(x)
    assert inside == ["float32[8@y]"] and str(st.typeof(out)) == "float32[4@x]"
    same(out, A.sum(1))
    cases = [
        (jnp.sin, x, "float32[4@x,8@y]"), (lambda a: jnp.zeros(3), x, "float32[4@x,3]"),
        (lambda a: jnp.outer(a, a), w, "float32[4@x,8,8]"), (jnp.cumsum, w, "float32[4@x,8]"),
        (lambda a: a @ put(Q, None, "y"), w, "float32[4@x,8@y]"),
        (lambda a: a.at[0].set(0.0), w, "float32[4@x,8]"), (lambda a: a[2], w, "float32[4@x]"),
        (lambda a: jnp.where(a > 0, a, 0), x, "float32[4@x,8@y]"),
        (lambda a: jnp.stack([a, a]), x, "float32[4@x,2,8@y]"), (lambda a: 1.0, x, "~float32[4]"),
        (st.jit(lambda a: a + jnp.ones(8)), x, "float32[4@x,8@y]"),
        (st.vmap(jnp.sin), x, "float32[4@x,8@y]"),
        (st.vmap(lambda a: jnp.zeros(2)), x, "float32[4@x,8@y,2]"),
    ]
    for f, arg, wanted in cases:
        assert str(st.typeof(st.vmap(f)(arg))) == wanted
    moved = st.vmap(lambda a: a, in_axes=1, out_axes=0)(put(Q, "x", "y"))
    assert str(st.typeof(moved)) == "float32[8@y,8@x]"


def test_shardings_named_inside_are_those_of_one_example(explicit):
    x, w, q = put(A, "x", "y"), put(A, "x", None), put(Q, None, "y")
    cases = [
        (lambda a: jnp.dot(a, q, out_sharding=P("y")), w, "float32[4@x,8@y]"),
        (lambda a: reshard(a, P(None)), x, "float32[4@x,8]"),
        (lambda a: a.reshape(2, 4, out_sharding=P(None, "y")), w, "float32[4@x,2,4@y]"),
        (lambda a: jnp.zeros(8, out_sharding=P("y")), w, "float32[4@x,8@y]"),
        (lambda a: jnp.broadcast_to(a, (2, 8), out_sharding=P(None, "y")), w,
         "float32[4@x,2,8@y]"),
        (lambda a: lax.with_sharding_constraint(a, P("y")), x, "float32[4@x,8@y]"),
        (st.jit(lambda a: reshard(a, P(None))), x, "float32[4@x,8]"),
        (auto_axes(lambda a: a[0] + jnp.cumsum(a), out_sharding=P("y")), x, "float32[4@x,8@y]"),
    ]
    for f, arg, wanted in cases:
        assert str(st.typeof(st.vmap(f)(arg))) == wanted
        assert str(st.typeof(st.jit(st.vmap(f))(arg))) == wanted
    same(st.vmap(cases[-1][0])(x), A[:, :1] + A.cumsum(1))
    with pytest.raises(Exception, match="multiple times|more than one|duplicate|at most"):
        st.vmap(lambda a: reshard(a, P("x")))(x)


def test_mapped_arguments_are_split_alike_and_unmapped_ones_otherwise(explicit):
    x, w, r, u = put(A, "x", "y"), put(A, "x", None), put(A, None, "y"), put(V, "x")
    with pytest.raises(ValueError, match="Mapped away dimension of inputs passed to vmap should be "
                       "sharded the same. Got inconsistent axis specs: x vs None"):
        st.vmap(jnp.add)(x, r)
    with pytest.raises(ValueError) as error:
        st.vmap(lambda a, b: a, (0, None))(w, u)
    assert ("Unmapped values passed to vmap cannot be sharded along the mesh axis you are vmapping "
            "over. Got type: f32[4@x], in_axes: None and vmapped mesh axis: ('x',)"
            ) in str(error.value)
    with pytest.raises(ShardingTypeError, match="incompatible shardings"):
        st.vmap(lambda a, b: a + b, (0, None))(put(A, None, "x"), put(ints(8), "y"))
    with pytest.raises(ValueError) as error:
        st.vmap(jnp.sin, spmd_axis_name="y")(x)
    assert ("Only one of spmd_axis_name or arrays sharded on `Explicit` mesh axis type is allowed. "
            "Got spmd_axis_name=('y',) and arrays sharded on explicit_mesh_axis=('x',)"
            ) in str(error.value)
    same(st.vmap(jnp.sin, spmd_axis_name="x")(x), np.sin(A))


def test_collectives_over_a_split_mapped_axis(explicit):
    x = put(A, "x", "y")
    total = named(lambda a: lax.psum(a, "i"), out_axes=None)(x)
    assert str(st.typeof(total)) == "float32[8@y]"
    same(total, A.sum(0))
    ring = [(0, 1), (1, 2), (2, 3), (3, 0)]
    turned = named(lambda a: lax.ppermute(a, "i", ring))(x)
    assert str(st.typeof(turned)) == "float32[4@x,8@y]"
    same(turned, np.roll(A, 1, 0))
    same(named(lambda a: lax.all_gather(a, "i"), out_axes=None)(x), A)


# -- shard_map -------------------------------------------------------------------------------------

def test_shard_map_is_about_the_other_axes_of_a_split_vmap(explicit):
    x = put(A, "x", "y")
    total = st.vmap(st.shard_map(lambda b: lax.psum(b, "y"), out_specs=P()))(x)
    assert str(st.typeof(total)) == "float32[4@x,2]"
    same(total, A.reshape(4, 4, 2).sum(1))
    doubled, ones = st.jit(st.vmap(st.shard_map(
        lambda b: (b * 2, jnp.ones(2)), in_specs=P("y"), out_specs=(P("y"), P()))))(x)
    same(doubled, A * 2)
    assert str(st.typeof(ones)) == "float32[4@x,2]"
    with pytest.raises(ValueError):
        st.vmap(st.shard_map(lambda b: b, in_specs=P("x"), out_specs=P("x")))(x)


def test_shard_map_and_vmap_in_each_other():
    with st.set_mesh(st.make_mesh((2, 4), ("x", "y"), axis_types=(AUTO,) * 2)):
        blocks = {"in_specs": P("x", "y"), "out_specs": P("x")}
        same(st.shard_map(st.vmap(lambda b: lax.psum(b, "y")), **blocks)(A),
             A.reshape(4, 4, 2).sum(1))
        centred = st.shard_map(st.vmap(lambda b: b - lax.pmean(b, ("i", "x")), axis_name="i"),
                               in_specs=P("x", "y"), out_specs=P("x", "y"))
        same(centred(A), A - A.mean(0))
        summed = st.vmap(st.shard_map(lambda b: lax.psum(b, ("y", "i")), in_specs=P("y"),
                                      out_specs=P()), axis_name="i", out_axes=None)
        same(summed(A), A.reshape(4, 4, 2).sum((0, 1)))
        shuffles = [
            (lambda b: lax.all_gather(b, "y", tiled=True), P("y"), P("y"), np.tile(A, (1, 4))),
            (lambda b: lax.psum_scatter(b, "y", tiled=True), P(None), P("y"), A * 4),
            (lambda b: lax.all_to_all(b, "y", 0, 0, tiled=True), P("y"), P("y"), None),
            (lambda b: lax.ppermute(b, "y", [(0, 1)]), P("y"), P("y"),
             np.concatenate([0 * A[:, :2], A[:, :2], 0 * A[:, 4:]], 1)),
        ]
        for f, in_spec, out_spec, wanted in shuffles:
            one = st.shard_map(f, in_specs=in_spec, out_specs=out_spec)
            if wanted is None:
                with pytest.raises(ValueError, match="divisible"):
                    st.vmap(one)(A)
                continue
            same(st.vmap(one)(A), wanted)


def test_spmd_axis_name_splits_the_mapped_dimension():
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AUTO,) * 2)
    with st.set_mesh(mesh):
        def constrained(axes):
            return st.vmap(lambda a: lax.with_sharding_constraint(a * 2, P(axes)),
                           spmd_axis_name="x")

        out = st.jit(constrained("y"))(A)
        assert out.sharding.spec == P("x", "y")
        same(out, A * 2)
        with pytest.raises(ValueError) as error:
            constrained("x")(A)
        assert ("vmap spmd_axis_name ('x',) cannot appear in with_sharding_constraint spec, but "
                "got spec P('x',)") in str(error.value)
        region = st.vmap(st.shard_map(lambda b: lax.psum(b, "y"), in_specs=P("y"), out_specs=P()),
                         spmd_axis_name="x")
        same(region(A), A.reshape(4, 4, 2).sum(1))
        program = st.make_jaxpr(region)(A)
        assert program.eqns[-1].params["in_specs"] == (P("x", "y"),)
        with pytest.raises(ValueError, match="spmd_axis_name cannot appear in shard_map in_specs"):
            st.vmap(st.shard_map(lambda b: b, in_specs=P("x"), out_specs=P("x")),
                    spmd_axis_name="x")(A)
        with pytest.raises(ValueError, match="cannot be named by a collective"):
            st.vmap(st.shard_map(lambda b: lax.psum(b, "x"), in_specs=P("y"), out_specs=P("y")),
                    spmd_axis_name="x")(A)


def test_a_mesh_that_only_the_body_names_gives_the_devices():
    mesh = st.make_mesh((4,), ("d",), axis_types=(AUTO,))
    x = ints(3, 8)
    region = st.shard_map(lambda b: lax.psum(b, "d"), mesh=mesh, in_specs=P("d"), out_specs=P())
    same(st.vmap(region)(x), x.reshape(3, 4, 2).sum(1))
    same(st.vmap(lambda a: lax.with_sharding_constraint(a, NamedSharding(mesh, P("d"))))(x), x)


# -- against JAX -----------------------------------------------------------------------------------

PROGRAMS = """
vmap(jnp.sin)(xy)                       vmap(jnp.sum)(xy)            vmap(jnp.sum)(x)
vmap(lambda a: jnp.zeros(3))(xy)        vmap(jnp.cumsum)(x)          vmap(jnp.cumsum)(xy)
vmap(lambda a: (a, 1.0))(xy)            vmap(lambda a: a[2])(x)
vmap(jnp.add)(xy, y)                    vmap(jnp.add)(xy, x)         vmap(jnp.add)(y, y)
vmap(jnp.add, (0, None))(x, y[0])       vmap(jnp.dot)(xy, xy)        vmap(jnp.outer)(x, x)
vmap(jnp.add, (0, None), 1)(x, v)       vmap(jnp.dot, (0, None))(x, v)
vmap(lambda a: a, 1, 0)(xy)             vmap(lambda a: a, 0, -1)(xy) vmap(vmap(jnp.sin))(xy)
vmap(lambda a: jax.sharding.reshard(a, P(None)))(xy)
vmap(lambda a: jax.sharding.reshard(a, P('x')))(xy)
vmap(lambda a: jnp.dot(q, a, out_sharding=P('y')))(x)
vmap(lambda a: jnp.zeros(8, out_sharding=P('y')))(x)
vmap(lambda a: lax.with_sharding_constraint(a, P('x')))(xy)
vmap(lambda a: lax.with_sharding_constraint(a, P('y')))(xy)
vmap(lambda a: lax.psum(a, 'i'), axis_name='i')(xy)
vmap(lambda a: lax.psum(a, 'i'), axis_name='i', out_axes=None)(xy)
vmap(jnp.sin, spmd_axis_name='y')(xy)   vmap(jnp.sin, spmd_axis_name='x')(xy)
vmap(jax.shard_map(lambda b: lax.psum(b, 'y'), out_specs=P()))(xy)
vmap(jax.shard_map(lambda b: b * 2, in_specs=P('x'), out_specs=P('x')))(xy)
vmap(jax.jit(lambda a: (jnp.ones(2), a)))(xy)
jax.jit(vmap(lambda a: jnp.take(a, jnp.array([0, 1]))))(x)
"""


def outcome(library, numpy, lax, spec, axis_type, program):
    """Types of the results, or the class and first words of the error, of a program's text."""
    mesh = library.make_mesh((2, 4), ("x", "y"), axis_types=(axis_type.Explicit,) * 2)
    with library.set_mesh(mesh):
        names = {"jax": library, "jnp": numpy, "lax": lax, "P": spec, "vmap": library.vmap}
        for name, dims in (("x", ("x", None)), ("y", (None, "y")), ("xy", ("x", "y")),
                           ("v", (None,)), ("q", (None, None))):
            value = {1: A[0], 2: A}[len(dims)] if name != "q" else Q
            names[name] = library.device_put(value, spec(*dims))
        try:
            results = eval(program, names)
        except Exception as e:
            return type(e).__name__, str(e).split(":")[0][:40]
        leaves = results if isinstance(results, tuple) else (results,)
        return [str(library.typeof(r)).removeprefix("~") for r in leaves]


@rows("program", [p for line in PROGRAMS.strip().splitlines()
                  for p in line.split("  ") if p.strip()])
def test_types_and_errors_are_jax_s(program):
    jax = pytest.importorskip("jax")
    if jax.device_count() < 8:
        pytest.skip("JAX has fewer than 8 devices")
    theirs = outcome(jax, jax.numpy, jax.lax, jax.P, jax.sharding.AxisType, program)
    assert outcome(st, jnp, lax, P, AxisType, program) == theirs
