"""shard_map: blocks, what varies, collectives, and the borders of the region."""
from functools import partial

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)


@pytest.fixture
def line():
    return st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def types_inside(f, mesh, in_specs, out_specs, *args, **kwargs):
    seen = []

    def body(*blocks):
        out = f(*blocks)
        seen.extend(str(st.typeof(v)) for v in [*blocks, out])
        return out

    st.make_jaxpr(st.shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs,
                               **kwargs))(*args)
    return seen


A = np.arange(64, dtype=np.float32).reshape(8, 8)


def test_blocks_have_local_shapes_and_vary_over_the_axes_of_their_spec(mesh):
    assert types_inside(lambda a: a * 2, mesh, P("x", "y"), P("x", "y"), A) == [
        "float32[4,2]{V:(x,y)}", "float32[4,2]{V:(x,y)}"]
    assert types_inside(lambda a: a * 2, mesh, P("x"), P("x"), A)[0] == "float32[4,8]{V:x}"
    assert types_inside(lambda a: a, mesh, P(), P(), A) == ["float32[8,8]", "float32[8,8]"]
    assert types_inside(lambda a: a, mesh, P("x"), P("x"), A, check_vma=False)[0] == "float32[4,8]"


@pytest.mark.parametrize("f, out", [
    (lambda a: lax.psum(a, "x"), "float32[4,2]{V:y}"),
    (lambda a: lax.psum(a, ("x", "y")), "float32[4,2]"),
    (lambda a: lax.pmax(a, "y"), "float32[4,2]{V:x}"),
    (lambda a: lax.all_gather(a, "x"), "float32[2,4,2]{V:(x,y)}"),
    (lambda a: lax.all_gather(a, "x", tiled=True), "float32[8,2]{V:(x,y)}"),
    (lambda a: lax.all_gather(a, "x", tiled=True, to="invarying"), "float32[8,2]{V:y}"),
    (lambda a: lax.all_gather(a, "x", tiled=True, to="reduced"), "float32[8,2]{V:y, R:x}"),
    (lambda a: lax.psum_scatter(a, "x", tiled=True), "float32[2,2]{V:(x,y)}"),
    (lambda a: lax.ppermute(a, "x", [(0, 1)]), "float32[4,2]{V:(x,y)}"),
    (lambda a: lax.all_to_all(a, "y", 0, 1, tiled=True), "float32[1,8]{V:(x,y)}"),
    (lambda a: lax.pcast(a, "y", to="unreduced"), "float32[4,2]{V:x, U:y}"),
    (lambda a: lax.axis_index("y"), "int32[]{V:y}"),
    (lambda a: jnp.zeros(3), "float32[3]"),
    (lambda a: jnp.zeros(3) + a[0, 0], "float32[3]{V:(x,y)}"),
])
def test_collectives_change_what_values_vary_over(mesh, f, out):
    seen = []

    def body(a):
        seen.append(str(st.typeof(f(a))))
        return a

    st.make_jaxpr(st.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y")))(A)
    assert seen == [out]


def test_the_body_reads_like_jaxs():
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    program = st.make_jaxpr(st.shard_map(lambda a: a * 2, mesh=mesh, in_specs=P("x", "y"),
                                         out_specs=P("x", "y")))(A)
    (eqn,) = program.eqns
    assert eqn.primitive.name == "shard_map"
    assert [e.primitive.name for e in eqn.params["jaxpr"].eqns] == ["pvary", "mul"]


@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("wrap", [lambda f: f, st.jit], ids=["eager", "jit"])
def test_bodies_give_the_same_values_on_both_executors(line, wrap, executor):
    x = jnp.arange(8)

    def run(f, out_specs=P("x"), in_specs=P("x")):
        g = wrap(st.shard_map(f, mesh=line, in_specs=in_specs, out_specs=out_specs))
        with st.config.override(shardtrace_engine=executor):
            return np.asarray(g(x)).tolist()

    assert run(lambda v: v * 2) == [0, 2, 4, 6, 8, 10, 12, 14]
    assert run(lambda v: jnp.sum(v, keepdims=True)) == list(range(8))
    assert run(lambda v: lax.psum(v.sum(), "x"), P()) == 28
    assert run(lambda v: lax.psum(v, "x")) == [28] * 8
    assert run(lambda v: lax.pmean(v.astype(jnp.float32), "x"), P()) == [3.5]
    assert run(lambda v: lax.pmax(v, "x"), P()) == [7]
    assert run(lambda v: lax.axis_index("x")[None]) == list(range(8))
    assert run(lambda v: lax.all_gather(v, "x", tiled=True, to="invarying"), P()) == list(range(8))
    assert run(lambda v: lax.ppermute(v, "x", [(i, (i + 1) % 8) for i in range(8)])) == [
        7, 0, 1, 2, 3, 4, 5, 6]
    assert run(lambda v: lax.ppermute(v + 1, "x", [(0, 1)])) == [0, 1, 0, 0, 0, 0, 0, 0]
    assert run(lambda v: lax.psum_scatter(lax.all_gather(v, "x", tiled=True), "x", tiled=True)) == [
        8 * i for i in range(8)]
    assert run(lambda v: v[None] * 2 + lax.axis_index("x"), P("x")) == [[3 * i] for i in range(8)]


def test_psum_of_an_invarying_value_multiplies(line):
    f = st.shard_map(lambda v: lax.psum(v, "x"), mesh=line, in_specs=P(), out_specs=P())
    assert float(f(jnp.float32(2))) == 16.0
    assert st.shard_map(lambda v: v + lax.psum(1, "x"), mesh=line, in_specs=P("x"),
                        out_specs=P("x"))(jnp.zeros(8, jnp.int32)).tolist() == [8] * 8


def test_all_gather_over_axes_in_another_order_than_the_meshs(mesh):
    f = st.shard_map(lambda v: lax.all_gather(v, ("y", "x"), tiled=True, to="invarying"),
                     mesh=mesh, in_specs=P(("x", "y")), out_specs=P())
    assert f(jnp.arange(8)).tolist() == [0, 4, 1, 5, 2, 6, 3, 7]


def test_partial_manual_keeps_the_other_axes(mesh):
    explicit = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    seen = []

    def body(a):
        seen.append(str(st.typeof(a)))
        return a * 2

    with st.set_mesh(explicit):
        x = st.device_put(A, P("x", "y"))
        out = st.shard_map(body, in_specs=P("x"), out_specs=P("x"), axis_names={"x"})(x)
    assert seen == ["float32[4,8@y]{V:x}"]
    assert str(st.typeof(out)) == "float32[8@x,8@y]"
    np.testing.assert_array_equal(np.asarray(out), A * 2)


def test_in_specs_are_inferred_over_explicit_axes():
    explicit = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(explicit):
        x = st.device_put(A, P("x", "y"))
        assert str(st.typeof(st.shard_map(lambda v: v, out_specs=P("x", "y"))(x))) == (
            "float32[8@x,8@y]")
        with pytest.raises(ValueError, match=r"in_specs passed to shard_map: P\('x', None\) does "
                           r"not match the specs of the input: P\('x', 'y'\)"):
            st.shard_map(lambda v: v, in_specs=P("x"), out_specs=P("x"))(x)


def test_partial_application_and_pytrees(mesh):
    @partial(st.shard_map, mesh=mesh, in_specs=({"a": P("x"), "b": P()}, None), out_specs=P("x"))
    def f(tree, scale):
        return tree["a"] * tree["b"] * scale

    out = st.jit(lambda a: f({"a": a, "b": jnp.float32(2)}, 3))(jnp.arange(4.0))
    assert out.tolist() == [0.0, 6.0, 12.0, 18.0]


def test_a_captured_array_is_replicated(line):
    table = jnp.arange(8)
    f = st.shard_map(lambda v: v + table[lax.axis_index("x")], mesh=line, in_specs=P("x"),
                     out_specs=P("x"))
    assert f(jnp.zeros(8, jnp.int32)).tolist() == list(range(8))


def region(mesh, f=lambda a: a, in_specs=P("x"), out_specs=P("x"), arg=A, **kwargs):
    return lambda: st.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs,
                                **kwargs)(arg)


@pytest.mark.parametrize("kwargs, error, phrases", [
    ({"f": lambda a: a.sum(), "out_specs": P("x")}, ValueError,
     ["was given an out_specs entry which is too long", "has shape float32[]{V:x}",
      "add at least one (singleton) axis"]),
    ({"out_specs": P()}, ValueError,
     ["which require replication which can't be statically inferred given the mesh",
      "check_vma=False", "lax.psum"]),
    ({"in_specs": P("x", None, "y")}, ValueError,
     ["in_specs entry which is too long to be compatible", "bound to <lambda>'s parameter 'a'"]),
    ({"arg": np.ones((3, 4), np.float32)}, ValueError,
     ["not evenly divisible by the corresponding mesh axis sizes",
      "maps array axis 0 (of size 3) to mesh axis 'x' (of size 2), but 2 does not evenly divide"]),
    ({"in_specs": "x"}, TypeError, ["must be a pytree of `st.sharding.PartitionSpec` instances"]),
    ({"axis_names": {"x"}, "in_specs": P("y")}, ValueError,
     ["must refer to an axis marked as manual", "in_specs refers to 'y'"]),
    ({"axis_names": {"z"}}, ValueError, ["to be a subset of mesh.axis_names"]),
    ({"f": lambda a: lax.psum(a, "z")}, NameError, ["unbound axis name: z"]),
    ({"f": lambda a: lax.pcast(a, "z", to="varying")}, NameError, ["unbound axis name: z"]),
    ({"f": lambda a: lax.psum(a, ("x", "y"))}, ValueError, ["mixed", "input state:"]),
])
def test_misuse_is_refused_with_the_reason(mesh, kwargs, error, phrases):
    with pytest.raises(error) as caught:
        region(mesh, **kwargs)()
    for phrase in phrases:
        if phrase != "mixed":
            assert phrase in str(caught.value)


def test_no_collective_outside_of_shard_map():
    with pytest.raises(NameError, match="unbound axis name: x"):
        lax.axis_size("x")


def test_check_vma_false_trusts_out_specs(line):
    f = st.shard_map(lambda v: v, mesh=line, in_specs=P("x"), out_specs=P(), check_vma=False)
    assert f(jnp.arange(8.0)).tolist() == [0.0]


def test_an_explicit_array_may_not_be_captured():
    explicit = st.make_mesh((8,), ("x",), axis_types=(AxisType.Explicit,))
    table = st.device_put(np.arange(8.0, dtype=np.float32), NamedSharding(explicit, P("x")))
    with st.set_mesh(explicit), pytest.raises(NotImplementedError, match="Closing over inputs"):
        st.shard_map(lambda v: v + table, in_specs=P("x"), out_specs=P("x"))(table)


def test_a_result_with_the_type_of_an_explicit_array_outside_counts_as_captured():
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    table = st.device_put(np.ones(4, np.float32), NamedSharding(mesh, P("x")))
    unchanged = st.custom_vjp(lambda v: v)
    unchanged.defvjp(lambda v: (v, None), lambda _, ct: (ct,))
    bodies = (lambda v: unchanged(table),
              lambda v: st.grad(lambda a, b: jnp.sum(a), argnums=1)(v, table))
    with st.set_mesh(mesh):
        for body in bodies:
            f = st.shard_map(body, in_specs=P(), out_specs=P(), axis_names={"x"})
            with pytest.raises(NotImplementedError, match="Closing over inputs"):
                st.jit(f)(np.ones(2, np.float32))


def test_a_block_prints_the_part_of_every_device_outside_of_a_trace(capsys):
    mesh = st.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))

    def body(v):
        print(v)
        print(lax.psum(v, "i"))
        return v

    st.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i"))(jnp.arange(4.0))
    assert capsys.readouterr().out == (
        "On cpu:0 at mesh coordinates (i,) = (0,):\n[0. 1.]\n\n"
        "On cpu:1 at mesh coordinates (i,) = (1,):\n[2. 3.]\n\n"
        "On cpu:0 at mesh coordinates (i,) = (0,):\n[2. 4.]\n\n"
        "On cpu:1 at mesh coordinates (i,) = (1,):\n[2. 4.]\n\n")
    st.jit(st.shard_map(body, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(jnp.arange(4.0))
    assert capsys.readouterr().out.splitlines()[0] == "JitTracer(float32[2]{V:i})"


def test_a_body_may_return_nothing():
    mesh = st.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))
    assert st.shard_map(lambda v: None, mesh=mesh, in_specs=P("i"), out_specs=None)(
        jnp.arange(4.0)) is None


def test_a_reduced_operand_becomes_varying_beside_a_varying_one():
    mesh = st.make_mesh((2,), ("X",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        x = st.device_put(np.ones((8, 4), np.float32), P("X", None))
        w = st.reshard(np.ones((4, 2), np.float32), P(None, None, reduced={"X"}))
        layer = st.shard_map(lambda x, w: jnp.tanh(x @ w), out_specs=P("X", None), in_specs=(
            P("X", None), P(None, None, reduced={"X"})))
        grad = st.grad(lambda w, x: jnp.sum(layer(x, w) ** 2))(w, x)
        assert str(st.typeof(grad)) == "float32[4,2]{U:X}"


def nested_regions(outer, inner, around):
    mesh = st.make_mesh((2, 3), ("x", "y"))

    def f(v):
        def body(a):
            return st.shard_map(around, in_specs=P("y"), out_specs=P("y"), axis_names={"y"},
                                check_vma=inner)(a)
        return st.shard_map(body, in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
                            check_vma=outer)(v).sum()
    with st.set_mesh(mesh):
        return st.jit(st.grad(f))(np.arange(12, dtype=np.float32))


@pytest.mark.parametrize("outer", [True, False])
def test_slopes_of_nested_regions(outer):
    for inner in {outer, True}:
        found = nested_regions(outer, inner, lambda b: b * 2.0)
        np.testing.assert_array_equal(found, np.full(12, 2))
    found = nested_regions(outer, outer, lambda b: b * (1.0 + lax.axis_index("x")))
    np.testing.assert_array_equal(found, [1] * 6 + [2] * 6)


@pytest.mark.parametrize("outer, inner, around", [
    (True, False, lambda b: b * 2.0), (False, True, lambda b: b * (1.0 + lax.axis_index("x"))),
    (False, True, lambda b: lax.all_gather(b, "x", tiled=True))])
def test_slopes_of_nested_regions_of_which_one_tracks_what_varies_are_refused(outer, inner, around):
    with pytest.raises(ValueError, match="Expected cotangent type .*V:.*x.* but got") as caught:
        nested_regions(outer, inner, around)
    assert "give both the same `check_vma`" in str(caught.value)


@pytest.mark.parametrize("outer, inner, spec, around, want", [
    (True, False, P(), lambda b: b * b, lambda v: 4 * v),
    (True, False, P(), lambda b: b * lax.psum(jnp.sum(b * b), "x"),
     lambda v: 4 * (v @ v + 2 * v * v.sum())),
    (True, False, P(), lambda b: b * jnp.sum(lax.all_gather(b, "x")),
     lambda v: np.full(4, 8 * v.sum())),
    (False, True, P("x"), lambda b: b * lax.psum(jnp.sum(b * b), "x"),
     lambda v: v @ v + 2 * v * v.sum())])
def test_slopes_of_nested_regions_in_which_nothing_varies_along_the_outer_axes(
        outer, inner, spec, around, want):
    """One of them tracks what varies, the other has nothing of that: sums are known, as in JAX."""
    mesh = st.make_mesh((2, 2), ("x", "y"), devices=st.devices()[:4])
    v = np.array([1, 0.5, 2, 1.5], np.float32)

    def body(a):
        r = st.shard_map(around, in_specs=P(), out_specs=P(), axis_names={"y"}, check_vma=inner)(a)
        return lax.psum(jnp.sum(r), "x")

    f = st.shard_map(body, in_specs=spec, out_specs=P(), axis_names={"x"}, check_vma=outer)
    with st.set_mesh(mesh):
        np.testing.assert_allclose(st.jit(st.grad(f))(v), want(v))


def test_slopes_of_nested_regions_that_read_the_place_along_outer_axes_are_refused():
    def around(b):
        return b * (1.0 + lax.axis_index("x"))
    mesh = st.make_mesh((2, 3), ("x", "y"))
    f = st.shard_map(lambda a: st.shard_map(around, in_specs=P("y"), out_specs=P("y"),
                                            axis_names={"y"}, check_vma=False)(a),
                     in_specs=P(), out_specs=P(), axis_names={"x"})
    with st.set_mesh(mesh), pytest.raises(ValueError, match="Expected cotangent type .*V:.*x"):
        st.jit(st.grad(lambda v: f(v).sum()))(np.arange(12, dtype=np.float32))


def test_an_output_that_is_not_pending_as_its_spec_says_is_named_with_what_helps():
    mesh = st.make_mesh((4,), ("x",), axis_types=(AxisType.Explicit,))

    def total(v):
        return v, v.sum()

    f = st.shard_map(total, mesh=mesh, in_specs=P(), out_specs=(P(), P(reduced={"x"})))
    with pytest.raises(ValueError, match="equal to the reduced present on the out_aval") as raised:
        f(jnp.arange(8.0))
    assert "of out_specs[1]" in str(raised.value)
    assert "help: leave `reduced` out of that spec" in str(raised.value)
