"""`from_jax`: what goes in, what the imported function is, and where its equations stand."""
from __future__ import annotations

import doctest
import inspect
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import interop
from shardtrace.sharding import PartitionSpec as P

from ..executors import EXECUTORS
from ..real_jax import real_jax
from .programs import equations

jax = real_jax()
jnp = jax.numpy
MESH = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
EXPLICIT = jax.make_mesh((4, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)


def f32(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def on(mesh: Any, x: Any, *spec: Any) -> Any:
    return jax.device_put(x, jax.NamedSharding(mesh, jax.P(*spec)))


def line_of(f: Any, text: str) -> int:
    """The line of a function's source that has this text."""
    lines, first = inspect.getsourcelines(f)
    (found,) = [i for i, line in enumerate(lines) if text in line]
    return first + found


def agrees(f: Any, *args: Any, **options: Any) -> Any:
    """An imported function, whose values on both executors are JAX's."""
    wanted = jax.tree.leaves(f(*args))
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            step = interop.from_jax(f, *args, **options)
            for a, b in zip(jax.tree.leaves(step(*args)), wanted, strict=True):
                np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)
    return interop.from_jax(f, *args, **options)


# -- arguments and results ------------------------------------------------------------------------

def test_arguments_keep_their_paths_and_results_their_structure() -> None:
    def f(params: Any, batch: Any, scale: Any = 2.0) -> Any:
        return {"out": batch @ params["w"][0] * scale, "none": None, "sum": (batch.sum(),)}

    params, batch = {"w": [f32(4, 3)]}, f32(2, 4)
    step = agrees(jax.jit(f), params, batch)
    assert step.trace().jaxpr.arg_names == ("params['w'][0]", "batch")
    found = step(params, batch)
    assert set(found) == {"out", "none", "sum"} and found["none"] is None
    assert isinstance(found["sum"], tuple)
    assert [s.shape for s in step.args] == [(4, 3), (2, 4)]
    named = interop.from_jax(f, params, batch, scale=3.0)
    assert named.trace().jaxpr.arg_names == ("params['w'][0]", "batch", "scale")


def test_leaves_that_are_no_arrays_are_a_part_of_the_program() -> None:
    def f(layer: Any, x: Any) -> Any:
        return layer["act"](x) if layer["on"] else x

    layer = {"act": jnp.tanh, "on": True}
    step = interop.from_jax(f, layer, f32(3))
    np.testing.assert_allclose(step(layer, f32(3)), np.tanh(f32(3)), rtol=1e-6)
    with pytest.raises(TypeError, match="imported with True as a part of the program"):
        step({**layer, "on": False}, f32(3))
    with pytest.raises(TypeError, match="of another structure"):
        step({"act": jnp.tanh}, f32(3))


def test_random_keys_may_be_closed_over() -> None:
    keys = jax.random.split(jax.random.key(3), 2)
    agrees(lambda x: x + jax.random.normal(keys[1], x.shape), f32(3))


def test_other_shapes_and_dtypes_are_traced_by_jax_again() -> None:
    step = interop.from_jax(lambda x: x.reshape(-1) * x.size, f32(2, 3))
    assert step(f32(4, 5)).shape == (20,)
    np.testing.assert_allclose(step(f32(4, 5)), f32(4, 5).reshape(-1) * 20, rtol=1e-6)
    half = step(f32(2, 3).astype(np.float16))
    assert (half.shape, half.dtype) == ((6,), np.float16)
    jaxpr = jax.make_jaxpr(lambda x: x * 2)(f32(2))
    for other in (f32(3), f32(2).astype(np.float16)):
        with pytest.raises(ValueError, match="has arguments of its own shapes"):
            interop.from_jax(jaxpr)(other)


def test_what_jax_has_traced_is_taken_as_it_is() -> None:
    def f(x: Any, w: Any) -> Any:
        return {"out": x @ w}

    rows = jax.NamedSharding(MESH, jax.P("x"))
    traced = jax.jit(f, in_shardings=(rows, None)).trace(f32(8, 4), f32(4, 2))
    step = interop.from_jax(traced)
    assert step.trace().lower().compile().input_shardings[0][0].spec == P("x")
    np.testing.assert_allclose(step(f32(8, 4), f32(4, 2))["out"], f32(8, 4) @ f32(4, 2), rtol=1e-5)
    closed = jax.make_jaxpr(f)(f32(8, 4), f32(4, 2))
    mesh = st.make_mesh((8,), ("d",))
    step = interop.from_jax(closed, mesh=mesh, in_shardings=[P("d"), P()])
    assert [str(t) for t in step.trace().lower().program.in_avals] == [
        "float32[8@d,4]", "float32[4,2]"]


def test_what_jax_has_lowered_is_read_as_stablehlo() -> None:
    def f(x: Any, unread: Any, w: Any) -> Any:
        return {"out": x @ w}

    rows = jax.NamedSharding(MESH, jax.P("x"))
    lowered = jax.jit(f, in_shardings=(rows, None, None)).lower(f32(8, 4), f32(3), f32(4, 2))
    step = interop.from_jax(lowered)
    assert [s.shape for s in step.args] == [(8, 4), (4, 2)]         # those that it reads
    assert step.trace().lower().compile().input_shardings[0][0].spec == P("x", None)
    np.testing.assert_allclose(step(f32(8, 4), f32(4, 2))["out"], f32(8, 4) @ f32(4, 2), rtol=1e-5)
    (product,) = [e for e in equations(step.trace().jaxpr) if e.op.name == "dot_general"]
    assert product.location.file == __file__
    other = interop.from_jax(lowered, mesh=st.make_mesh((4, 2), ("x", "y")),
                             in_shardings=[P("x", "y"), P("y")])
    assert "all-reduce" in [c.kind for c in st.explain(other)().collectives]


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(TypeError, match="from_jax takes a function"):
        interop.from_jax(3)
    with pytest.raises(TypeError, match="a traced function has its arguments"):
        interop.from_jax(jax.make_jaxpr(jnp.sin)(1.0), 1.0)
    with pytest.raises(ValueError, match="needs a mesh"):
        interop.from_jax(jnp.sin, f32(8), in_shardings=jax.P("x"))


# -- shardings ------------------------------------------------------------------------------------

def test_shardings_of_arguments_and_constraints_are_those_of_jax() -> None:
    x, w = on(MESH, f32(8, 16), "x", "y"), on(MESH, f32(16, 8), "y", None)
    step = agrees(jax.jit(lambda x, w: jnp.tanh(x @ w)), x, w)
    assert [(c.kind, c.mesh_axes) for c in st.explain(step)().collectives] == [
        ("all-reduce", ("y",))]
    asked = jax.NamedSharding(MESH, jax.P(None, "x"))
    step = agrees(jax.jit(lambda x, w: jax.lax.with_sharding_constraint(x @ w, asked)), x, w)
    assert step(x, w).sharding.spec == P(None, "x")
    step = agrees(jax.jit(lambda x, w: x @ w, out_shardings=asked), x, w)
    assert step(x, w).sharding.spec == P(None, "x")


def test_specs_stand_on_the_mesh_that_is_given() -> None:
    mesh = st.make_mesh((8,), ("d",))
    step = agrees(lambda p, x: x @ p["w"], {"w": f32(16, 8)}, f32(8, 16), mesh=mesh,
                  in_shardings=({"w": jax.P()}, P("d")), out_shardings=P(None, "d"))
    compiled = step.lower().compile()
    assert [s.spec for s in compiled.input_shardings[0]] == [P(), P("d")]
    assert compiled.output_shardings[0].spec == P(None, "d")


def test_explicit_types_are_those_of_jax() -> None:
    def f(x: Any, w: Any) -> Any:
        h = jnp.einsum("ij,jk->ik", x, w, out_sharding=jax.P("x", None))
        return jnp.sin(jax.sharding.reshard(h, jax.P(None, "x"))) + jnp.arange(8.0)

    with jax.set_mesh(EXPLICIT):
        x, w = jax.device_put(f32(8, 16), jax.P("x", "y")), jax.device_put(f32(16, 8), jax.P())
        program = agrees(jax.jit(f), x, w).trace().jaxpr
        assert [str(t) for t in (*program.in_avals, *program.out_avals)] == [
            "float32[8@x,16@y]", "float32[16,8]", "float32[8,8@x]"]
        agrees(jax.jit(jax.grad(lambda x, w: (jnp.einsum(
            "ij,jk->ik", x, w, out_sharding=jax.P("x", None)) ** 2).sum())), x, w)


def test_a_mesh_of_more_devices_than_there_are_is_abstract() -> None:
    big = jax.sharding.AbstractMesh((64, 64), ("a", "b"))

    def struct(*spec: Any) -> Any:
        return jax.ShapeDtypeStruct((8192, 8192), jnp.bfloat16,
                                    sharding=jax.NamedSharding(big, jax.P(*spec)))

    step = interop.from_jax(lambda x, w: x @ w, struct("a", "b"), struct("b", None))
    assert [(c.kind, c.mesh_axes, c.group_size) for c in st.explain(step)().collectives] == [
        ("all-reduce", ("b",), 64)]


def test_analyses_take_an_imported_function() -> None:
    x, w = on(MESH, f32(8, 16), "x", "y"), on(MESH, f32(16, 8), "y", None)
    step = interop.from_jax(lambda x, w: jnp.tanh(x @ w), x, w)
    assert "all-reduce" in str(st.whatif(step, {"x": P("x", None), "w": P()})())
    assert "of shape (16, 16)" in str(st.whatif(step, {"x": (16, 16)})())
    st.testing.assert_equivalent(step, x, w)
    with pytest.raises(AssertionError):
        st.testing.assert_comm(step, x, w, max_bytes=0)


# -- places ---------------------------------------------------------------------------------------

def two_places(x: Any) -> Any:
    first = jnp.where(x > 0, x, 0.0)      # first
    second = jnp.where(x < 0, x, 0.0)     # second
    return first - second


def test_library_functions_stand_where_they_are_called() -> None:
    """JAX traces `where` once and keeps the program: its equations name the first caller."""
    program = interop.from_jax(two_places, f32(4)).trace().jaxpr
    found = [e.location.line for e in equations(program) if e.op.name == "select_n"]
    assert found == [line_of(two_places, "# first"), line_of(two_places, "# second")]


def inner_step(c: Any, w: Any) -> Any:
    h = jnp.tanh(c @ w)                   # product
    return h, h.sum()                     # sum


def whole(ws: Any, x: Any) -> Any:
    _, sums = jax.lax.scan(inner_step, x, ws)
    return sums.sum()


def test_equations_of_a_gradient_stand_at_the_lines_that_they_come_from() -> None:
    program = interop.from_jax(jax.grad(whole), f32(3, 4, 4), f32(2, 4)).trace().jaxpr
    products = [e.location for e in equations(program) if e.op.name == "dot_general"]
    assert len(products) >= 3
    assert {p.line for p in products} == {line_of(inner_step, "# product")}
    assert {p.short_file for p in products} == {"test_from_jax.py"}
    assert any("transpose" in p.transform for p in products)


def test_scopes_are_kept() -> None:
    def f(x: Any) -> Any:
        with jax.named_scope("head"):
            return jnp.sin(x)

    (eqn,) = interop.from_jax(f, f32(3)).trace().jaxpr.eqns
    assert eqn.location.scope == "head"


# -- primitives that are not known ----------------------------------------------------------------

def test_an_unknown_primitive_is_named_with_its_line_and_can_be_registered() -> None:
    primitive = jax.extend.core.Primitive("unheard_of")
    primitive.def_abstract_eval(lambda x, factor: x)
    primitive.def_impl(lambda x, factor: x * factor)

    def f(x: Any) -> Any:
        return primitive.bind(x + 1, factor=3)      # unheard

    step = interop.from_jax(f, f32(4))
    with pytest.raises(NotImplementedError, match="primitive 'unheard_of'") as caught:
        step.trace()
    assert f"test_from_jax.py:{line_of(f, '# unheard')}" in str(caught.value)
    assert "interop.register('unheard_of')" in str(caught.value)

    interop.register(primitive, lambda x, factor: x * factor)
    np.testing.assert_allclose(step(f32(4)), (f32(4) + 1) * 3, rtol=1e-6)


@pytest.mark.parametrize("name", ["from_jax", "register", "xla_report"])
def test_the_examples_of_docstrings_run(name: str) -> None:
    names = {"st": st, "np": np, "P": P}
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = [t for t in finder.find(getattr(interop, name), name, module=False, globs=names)
             if t.examples]
    assert found
    for test in found:
        assert doctest.DocTestRunner().run(test).failed == 0
