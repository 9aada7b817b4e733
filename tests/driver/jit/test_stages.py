"""What a user can ask of the stages of a jitted function: types, trees, donation, figures, text."""
import re

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import stages
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

X = np.ones((8, 8), np.float32)


def _all_stages(jitted, *args, **kwargs):
    traced = jitted.trace(*args, **kwargs)
    lowered = traced.lower()
    return traced, lowered, lowered.compile()


def f(x, y, *, z):
    return {"a": x @ y + z, "b": jnp.sin(x)}


@pytest.fixture
def mesh():
    return st.make_mesh((4, 2), ("x", "y"))


def test_every_stage_says_types_trees_and_donation():
    for stage in _all_stages(st.jit(f, donate_argnums=0), X, X, z=1.0):
        assert str(stage.in_avals) == (
            "((ShapedArray(float32[8,8]), ShapedArray(float32[8,8])), "
            "{'z': ShapedArray(float32[], weak_type=True)})")
        (x, y), named = stage.args_info
        assert (x.shape, x.dtype, x.donated) == ((8, 8), np.float32, True)
        assert not y.donated and not named["z"].donated
        assert stage.donate_argnums == (0,)
        assert sorted(stage.out_info) == ["a", "b"] and stage.out_info["a"].shape == (8, 8)
        assert stage.fun_name == "f"
        assert st.tree.structure(((0, 0), {"z": 0})) == stage.in_tree
        assert st.tree.structure({"a": 0, "b": 0}) == stage.out_tree


def test_arguments_donated_by_name_are_numbered_by_leaf():
    jitted = st.jit(lambda a, b: b["u"] + a, donate_argnames="b")
    lowered = jitted.lower(1.0, {"u": 1.0, "v": 2.0})
    assert lowered.donate_argnums == (1, 2)


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_compiled_program_takes_arrays_that_lie_elsewhere_only_where_nobody_put_them(kind):
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(kind,) * 2)
    rows, columns, whole = (NamedSharding(mesh, P(*spec)) for spec in (("x",), (None, "x"), ()))
    x = st.device_put(X, rows)
    double = st.jit(lambda x: x * 2)
    compiled = double.lower(x).compile()
    for given in (x, X, jnp.ones((8, 8)), st.device_put(X, NamedSharding(mesh, P("x", None)))):
        found = compiled(given)
        assert found.sharding.is_equivalent_to(rows, 2)
        np.testing.assert_array_equal(found, 2 * X)
    asked = st.jit(lambda x: x * 2, in_shardings=rows).lower(
        st.ShapeDtypeStruct((8, 8), "float32")).compile()
    nowhere = double.lower(st.ShapeDtypeStruct((8, 8), "float32")).compile()
    for program, other in ((compiled, columns), (compiled, whole), (asked, columns),
                           (nowhere, rows)):
        with pytest.raises(ValueError, match="(?s)input shardings that disagree.*1 mismatches"
                           ".*Passed sharding: .*Required sharding: "):
            program(st.device_put(X, other))
    with pytest.raises(TypeError, match="Argument 'x' compiled with float32.* with int32"):
        compiled(np.ones((8, 8), np.int32))


def test_what_was_lowered_for_a_type_takes_arrays():
    lowered = st.jit(lambda x: x + 1).lower(st.core.ShapedArray((8, 8), np.float32))
    np.testing.assert_array_equal(lowered.compile()(X), X + 1)
    per_device = st.pmap(lambda x: x + 1).lower(st.core.ShapedArray((8, 8), np.float32)).compile()
    np.testing.assert_array_equal(per_device(X), X + 1)
    with pytest.raises(TypeError, match=r"Argument 'flat_args\[0\]' compiled with float32.*int32"):
        per_device(np.ones((8, 8), np.int32))


def test_out_avals_have_the_tree_of_the_result():
    traced = st.jit(f).trace(X, X, z=1.0)
    assert str(traced.out_avals["b"]) == "float32[8,8]"


def test_results_in_containers_are_called_by_their_paths():
    def f(x):
        return x, {"b": x + 1, "a": [x * 2, None]}
    text = str(st.jit(f).trace(1.0).jaxpr)
    assert """(~f32[] "[0]", ~f32[] "[1]['a'][0]", ~f32[] "[1]['b']")""" in text
    for plain in (lambda x: x, lambda x: (x, x), lambda x: [x]):
        assert "[0]" not in str(st.jit(plain).trace(1.0).jaxpr)


def test_a_compiled_result_says_its_sharding(mesh):
    s = NamedSharding(mesh, P("x"))
    compiled = st.jit(lambda x: x * 2).lower(st.device_put(X, s)).compile()
    assert compiled.out_info.sharding == s
    assert compiled.output_shardings == s and compiled.input_shardings == ((s,), {})


def test_in_shardings_give_types_their_mesh_when_lowered(mesh):
    s = NamedSharding(mesh.update(axis_types=(AxisType.Explicit,) * 2), P("x"))
    traced, lowered, compiled = _all_stages(st.jit(lambda x: x + 1, in_shardings=s), X)
    assert str(traced.in_avals[0][0]) == "float32[8,8]"
    assert str(lowered.in_avals[0][0]) == str(compiled.in_avals[0][0]) == "float32[8@x,8]"
    for stage in (traced, lowered, compiled):
        assert stage.args_info[0][0] == stages.ArgInfo(st.typeof(jnp.asarray(X)), False)
    assert compiled.output_shardings.spec == P("x")


def test_classes_are_public():
    traced, lowered, compiled = _all_stages(st.jit(lambda x: x), 1.0)
    assert isinstance(traced, stages.Traced) and isinstance(lowered, stages.Lowered)
    assert isinstance(compiled, stages.Compiled) and isinstance(st.jit(f), stages.Wrapped)
    assert isinstance(lowered.args_info[0][0], stages.ArgInfo)


@pytest.mark.parametrize(("function", "flops", "transcendentals"), [
    (lambda x: x + 1, 64, 0), (lambda x: x @ x, 1024, 0), (lambda x: x @ x[0], 128, 0),
    (lambda x: jnp.sin(x) + jnp.exp(x) * jnp.tanh(x), 128, 192), (jnp.sum, 63, 0),
    (lambda x: jnp.max(x, 0), 56, 0), (lambda x: x.T, 0, 0),
    (lambda x: jnp.take_along_axis(x, x[:, :2].astype(int), 1), 128, 0),
    (lambda x: st.lax.scan(lambda c, _: (c @ x, None), x, None, length=5)[0], 5120, 0)])
def test_figures_count_operations_as_xla_does(function, flops, transcendentals):
    _, lowered, compiled = _all_stages(st.jit(function), X)
    for stage in (lowered, compiled):
        figures = stage.cost_analysis()
        assert (figures["flops"], figures["transcendentals"]) == (flops, transcendentals)
        assert figures["bytes accessed"] > 0


def test_a_compiled_program_is_one_devices(mesh):
    x = st.device_put(X, NamedSharding(mesh, P("x", "y")))
    _, lowered, compiled = _all_stages(st.jit(lambda x: x + x), x)
    assert lowered.cost_analysis()["flops"] == 8 * compiled.cost_analysis()["flops"] == 64


def test_stages_and_explanations_count_alike(mesh):
    x = st.device_put(X, NamedSharding(mesh, P("x", "y")))
    compiled = st.jit(lambda x: jnp.tanh(x @ x.T).sum(), donate_argnums=0).lower(x).compile()
    costs, found = compiled.cost_analysis(), compiled.explain()
    assert costs["flops"] + costs["transcendentals"] == found.flops
    assert compiled.memory_analysis().peak_memory_in_bytes == found.peak_bytes


def test_memory_is_counted_per_device(mesh):
    x = st.device_put(X, NamedSharding(mesh, P("x", "y")))
    jitted = st.jit(lambda x, unused: jnp.tanh(x) + x, donate_argnums=0)
    figures = jitted.lower(x, X).compile().memory_analysis()
    assert (figures.argument_size_in_bytes, figures.output_size_in_bytes) == (32, 32)
    assert figures.alias_size_in_bytes == 32
    assert figures.peak_memory_in_bytes == 32        # the result is where the argument was


def test_other_dialects_are_refused():
    lowered = st.jit(lambda x: x).lower(1.0)
    assert lowered.as_text("shardtrace") == lowered.as_text()
    assert "#" not in st.jit(lambda x: x + 1).lower(1.0).as_text(debug_info=False)
    with pytest.raises(ValueError, match="unknown dialect: stablehlo"):
        lowered.as_text("stablehlo")
    with pytest.raises(ValueError, match="unknown dialect: hlo"):
        lowered.compiler_ir(dialect="hlo")
    assert lowered.compile().runtime_executable() is not None


# -- devices given at last -------------------------------------------------------------------------

def test_a_program_lowered_without_devices_runs_on_those_given_to_compile(mesh):
    small = st.make_mesh((2, 1), ("x", "y"))
    struct = st.ShapeDtypeStruct((8, 2), jnp.float32,
                                 sharding=NamedSharding(small.abstract_mesh, P("x")))
    lowered = st.jit(lambda x: x * 2).trace(struct).lower(lowering_platforms=("tpu",))
    compiled = lowered.compile(device_assignment=tuple(small.devices.flat))
    x = st.device_put(np.arange(16, dtype=np.float32).reshape(8, 2), NamedSharding(small, P("x")))
    assert compiled(x).sharding == NamedSharding(small, P("x"))
    np.testing.assert_array_equal(compiled(x), np.asarray(x) * 2)
    with pytest.raises(ValueError, match=r"The size of abstract mesh 2.*must match the length of "
                                         r"device assignment: 1"):
        lowered.compile(device_assignment=(st.devices()[0],))
    with pytest.raises(ValueError, match="has no devices to run on"):
        lowered.compile()(x)


def test_devices_that_differ_from_the_arguments_are_refused(mesh):
    struct = st.ShapeDtypeStruct((8, 2), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match="device_assignment passed to `.compile` must match"):
        st.jit(lambda x: x).lower(struct).compile(device_assignment=(st.devices()[0],))


def test_abstract_and_concrete_meshes_have_one_size(mesh):
    one = st.ShapeDtypeStruct((8, 2), jnp.float32, sharding=NamedSharding(
        st.make_mesh((1,), ("x",)).abstract_mesh, P("x")))
    other = st.ShapeDtypeStruct((8,), jnp.float32, sharding=NamedSharding(mesh, P("x")))
    with pytest.raises(ValueError, match="AbstractMesh size: 1 does not match the device "
                                         "assignment size: 8"):
        st.jit(lambda x, y: (x, y)).lower(one, other)


def test_abstract_meshes_may_name_their_axes_differently():
    a, b = [st.ShapeDtypeStruct((8, 2), jnp.float32, sharding=NamedSharding(
        st.make_mesh((2,), (name,)).abstract_mesh, P(name))) for name in "xy"]
    assert "x=2" in st.jit(lambda a, b: a * b).trace(a, b).lower().as_text()


ABSTRACT = st.sharding.AbstractMesh((2, 4), ("x", "y"))


def _held(x):
    return st.lax.with_sharding_constraint(x, NamedSharding(ABSTRACT, P("x")))


@pytest.mark.parametrize("f", [
    lambda x: _held(x).sum(0),
    lambda x: st.shard_map(lambda x: st.lax.psum(x, "x"), mesh=ABSTRACT, in_specs=P("x"),
                           out_specs=P())(x),
    lambda x: st.lax.scan(lambda c, _: (_held(c), None), x, length=2)[0].sum(0),
    lambda x: st.lax.cond(x[0, 0] > 0, lambda x: _held(x).sum(0), lambda x: x[0], x)])
def test_an_abstract_mesh_that_only_the_function_names_is_lowered_for(f):
    x = st.ShapeDtypeStruct((8, 2), np.float32)
    lowered = st.jit(f).lower(x)
    assert lowered._executable.placement.abstract_mesh.shape_tuple == ABSTRACT.shape_tuple
    assert {c.kind for c in st.explain(f)(x).collectives} == {"all-reduce"}
    with pytest.raises(ValueError, match="has no devices to run on"):
        lowered.compile()(np.ones((8, 2), np.float32))


def test_a_shard_map_over_axes_of_other_sizes_is_refused():
    def f(x):
        return st.shard_map(lambda x: x * 2, mesh=ABSTRACT, in_specs=P("x"), out_specs=P("x"))(x)

    x = st.ShapeDtypeStruct((8, 2), np.float32, sharding=NamedSharding(
        st.sharding.AbstractMesh((4, 4), ("x", "y")), P("x")))
    with pytest.raises(ValueError, match="`shard_map` is over mesh .*'x': 2.* on mesh .*'x': 4"):
        st.jit(f).lower(x)
    with pytest.raises(ValueError, match="`shard_map` is over mesh"):
        st.whatif(f, {"x": 4})(x.update(sharding=NamedSharding(ABSTRACT, P("x"))))
    with pytest.raises(ValueError, match="no argument lies on a mesh of which x"):
        st.whatif(f, {"x": 4})(st.ShapeDtypeStruct((8, 2), np.float32))


# -- calls of a compiled program -------------------------------------------------------------------

def test_a_call_with_other_arguments_says_what_differs():
    compiled = st.jit(lambda x: x).lower(X).compile()
    with pytest.raises(TypeError, match=re.escape(
            "There are 1 mismatches, including:\n    * at args, seen tuple of length 1 but now "
            "given tuple of length 2, so the lengths do not match")):
        compiled(X, 1)


# -- one trace for one function --------------------------------------------------------------------

def test_two_jits_of_a_function_share_its_trace():
    traced = []

    def g(x):
        traced.append(1)
        return x + 1

    st.jit(g)(X)
    st.jit(g)(X)
    st.jit(g, keep_unused=True).trace(X)
    assert len(traced) == 1
    st.jit(g, static_argnums=0)(2)
    assert len(traced) == 2
    st.jit(g)(X[0])
    assert len(traced) == 3
    st.clear_caches()


# -- meshes of `with mesh:` ------------------------------------------------------------------------

@pytest.mark.parametrize("use", [
    lambda f, x: f(x), lambda f, x: f.trace(x), lambda f, x: f.lower(x), lambda f, x: st.jit(f)(x)])
@pytest.mark.parametrize("where", ["in_shardings", "out_shardings"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_jit_does_not_look_at_an_entered_mesh(mesh, use, where):
    with mesh, pytest.raises(RuntimeError, match=f"jit requires a non-empty mesh in context if "
                                                 f"you are passing `PartitionSpec`s to {where}"):
        use(st.jit(lambda x: x, **{where: P("x")}), X)


# -- messages --------------------------------------------------------------------------------------

class Model:
    def apply(self, v):
        return v * 2


def test_devices_that_disagree_name_the_function_as_it_is_defined(mesh):
    a = st.device_put(X, st.devices()[0])
    s = NamedSharding(mesh, P("x"))

    def message(f, *args, **kwargs):
        with pytest.raises(ValueError) as e:
            st.jit(f)(*args, **kwargs)
        return str(e.value)

    constrained = st.jit(lambda q: q * 2, in_shardings=s, out_shardings=s)
    assert "and jit inside jit with device ids [0, 1" in message(lambda q: constrained(q), a)
    assert ("and sharding_constraint inside jit with device ids [0, 1" in message(
        lambda q: st.lax.scan(
            lambda c, _: (st.lax.with_sharding_constraint(c, s), None), q, None, length=2), a))

    def rest(*args, **options):
        return args[0] + options["b"]

    text = message(rest, a, b=st.device_put(X, s))
    assert "argument args[0] of test_devices_that_disagree" in text
    assert "argument options['b'] of test_devices_that_disagree" in text


def test_a_method_is_named_with_its_class(mesh):
    a = st.device_put(X, st.devices()[0])
    with st.set_mesh(mesh), pytest.raises(ValueError, match=r"argument v of Model\.apply with"):
        st.jit(Model().apply)(a)


def test_what_has_a_shape_and_a_dtype_stands_for_an_array_where_none_is_needed():
    class Described:
        def __init__(self, *shape):
            self.shape, self.dtype = shape, np.dtype(np.float32)

    def f(a, b):
        return jnp.dot(a, b) + 1

    assert st.eval_shape(f, Described(3, 4), Described(4, 5)).shape == (3, 5)
    assert st.jit(f).lower(Described(3, 4), Described(4, 5)).compile().out_avals.shape == (3, 5)
    with pytest.raises((TypeError, ValueError)):
        st.jit(f)(Described(3, 4), Described(4, 5))
