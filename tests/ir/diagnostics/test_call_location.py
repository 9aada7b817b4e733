"""A layout asked for in a helper that only passes a value on stands where that is called."""
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.source import call_location
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))


def passed_on(v, *spec):
    """A helper of one line."""
    return st.lax.with_sharding_constraint(v, NamedSharding(MESH, P(*spec)))


def passed_on_twice(v):
    return passed_on(v, "x")


def doing_more(v):
    doubled = v * 2
    return st.lax.with_sharding_constraint(doubled, NamedSharding(MESH, P("x")))


def line_of(f, name="sharding_constraint"):
    program = st.jit(f).trace(jnp.ones((8, 8))).jaxpr
    (eqn,) = [e for e in program.eqns if e.primitive.name == name]
    return eqn.location.line - f.__code__.co_firstlineno, eqn.location.function


def test_the_call_of_a_helper_is_the_place():
    def f(v):
        w = v + 1
        return passed_on(w, "x")
    assert line_of(f) == (2, "f")


def test_helpers_of_helpers_are_passed_through():
    def f(v):
        return jnp.sin(passed_on_twice(v))
    assert line_of(f) == (1, "f")


def test_a_function_that_does_more_is_the_place_itself():
    assert line_of(doing_more) == (2, "doing_more")


def test_other_equations_stay_where_they_are():
    def helper(v):
        return jnp.sin(v)

    def f(v):
        return helper(v)
    line, function = line_of(f, "sin")
    assert function == "helper" and line == -2


def test_derivatives_keep_the_place():
    def f(v):
        return st.grad(lambda u: passed_on(u, "x").sum())(v)
    program = st.jit(f).trace(jnp.ones((8, 8))).jaxpr
    found = {e.location.line - f.__code__.co_firstlineno for e in program.eqns
             if e.primitive.name == "sharding_constraint"}
    assert found == {1}


def test_no_source_is_read_before_somebody_asks(monkeypatch):
    monkeypatch.setattr(call_location, "_passing", lambda *_: pytest.fail("a file was parsed"))
    with st.set_mesh(MESH):
        program = st.jit(st.grad(lambda v: (passed_on(v, "x") ** 2).sum())).trace(
            jnp.ones((8, 8))).jaxpr
    places = [e.location for e in program.eqns if e.primitive.name == "sharding_constraint"]
    assert {p.transform for p in places} == {"jvp", "transpose(jvp)"}
    monkeypatch.undo()
    assert {p.function for p in places} == {"<lambda>"}


def test_two_calls_of_a_helper_are_two_places():
    def f(v):
        return passed_on(passed_on(v, "x"), None, "x")
    first, second = st.jit(f).trace(jnp.ones((8, 8))).jaxpr.eqns
    assert first.location.key != second.location.key
