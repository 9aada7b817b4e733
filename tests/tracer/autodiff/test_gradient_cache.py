"""The gradient of a program that was differentiated before is recorded again as it was."""
import gc

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.program import Program
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P
from shardtrace.tracer.autodiff import gradient_cache
from shardtrace.tracer.staging.builder import Builder

from ...rows import rows

pytestmark = pytest.mark.usefixtures("only_own_objects")

X = np.linspace(0.1, 1, 16, dtype=np.float32).reshape(4, 4)


def scanned(x, w):
    return lax.scan(lambda c, row: (jnp.tanh(c @ w + row), c.sum()), x[0], x)[0].sum()


def helped(x, w):
    def inner(v):
        return jnp.where(v > 0.5, v, v * v)
    return inner(x).mean() + inner(w).sum()


LOSSES = {
    "elementwise": lambda: lambda x, w: (jnp.sin(x) * w + 2.0).sum(),
    "norm": lambda: lambda x, w: ((x - x.mean(-1, keepdims=True)) ** 2 * w).mean(),
    "ours with a rule": lambda: lambda x, w: nn.relu(nn.relu(x @ w) @ w).sum(),
    "scan": lambda: lambda x, w: scanned(x, w),
    "branches": lambda: lambda x, w: lax.cond(
        x[0, 0] > 0, lambda v: jnp.cos(v), lambda v: v * 3, x @ w).sum(),
    "nested jit": lambda: lambda x, w: st.jit(lambda v: v * v + w)(x).sum(),
    "closed over": lambda: lambda x, w: (x * x[0]).sum() + w[0, 0],
    "checkpoint": lambda: lambda x, w: st.checkpoint(lambda v: jnp.exp(v @ w))(x).sum(),
    "through helpers": lambda: lambda x, w: helped(x, w),
    "second derivative": lambda: lambda x, w: (st.grad(
        lambda v: (jnp.tanh(v) * w).sum())(x) ** 2).sum(),
    "unused": lambda: lambda x, w: x[1, 1],
    "numbers": lambda: lambda x, w: jnp.float32(2) * x[0, 0] * 3.5 + w.max(),
}


def account(program):
    """All that a program says of itself, the places of its equations included."""
    places = []

    def visit(p):
        for e in p.eqns:
            at = e.location
            places.append((e.op.name, at.file, at.line, at.column, at.function, at.transform,
                           at.scope))
            for value in e.params.values():
                for x in value if isinstance(value, tuple) else (value,):
                    if isinstance(x, Program):
                        visit(x)
    visit(program)
    return str(program), places


def traced(make, transform, *args):
    return account(st.jit(transform(make())).trace(*args).jaxpr)


@rows("name", LOSSES)
@rows("transform", [
    st.grad, st.value_and_grad, lambda f: st.grad(f, (0, 1)),
    lambda f: st.value_and_grad(lambda x, w: (f(x, w), {"a": x * 2, "b": 3}), has_aux=True),
    lambda f: lambda x, w: [st.grad(f)(x, x), st.grad(f)(x, w)]])
def test_what_is_recorded_again_cannot_be_told_from_what_was_recorded(name, transform):
    st.clear_caches()
    found = [traced(LOSSES[name], transform, X, X) for _ in range(4)]
    assert found[1:] == found[:1] * 3


def test_a_second_gradient_is_neither_linearized_nor_transposed():
    def rows():
        with st.profile_phases() as profile:
            traced(LOSSES["scan"], st.grad, X, X)
        return {row.name for row in profile.rows}
    st.clear_caches()
    first, second = rows(), rows()
    assert {"linearize", "transpose"} <= first
    assert not {"linearize", "transpose"} & second
    st.clear_caches()
    assert rows() == first


NUMBERS = {                    # {} are numbers, of which a derivative may read some
    "passed on": "(jnp.sin(x) * {} + w / {}).sum()",
    "an exponent": "(x ** {} * {}).sum()",
    "one power of another": "jnp.power({}, x).sum() * jnp.power(w, {}).sum()",
    "compared": "jnp.where(x > {}, x * {}, jnp.maximum(w, 0.5)).sum()",
    "in a body": "lax.scan(lambda c, r: (c * {} + r, c), x[0] * {}, w)[0].sum()",
    "in a call": "st.jit(lambda v, n: v * n + {})(x, {}).sum()",
    "in a rule of ours": "nn.softplus(nn.relu(x * {}) - {}).sum()",
    "in a branch": "lax.cond(x[0, 0] > {}, lambda v: v * 2.0, lambda v: v * {}, x).sum()",
    "of a recursion": "recurse(2, x, {}, {})",
}
HELPERS = """
def recurse(n, x, a, b):
    return (x * a).sum() + (st.jit(lambda x: recurse(n - 1, x, b, b))(x) if n else 0)
"""


@pytest.mark.parametrize("name", NUMBERS)
def test_what_has_other_numbers_and_places_is_what_it_would_be_by_itself(name):
    def program(numbers, place):
        names = {"jnp": jnp, "lax": lax, "st": st, "nn": nn}
        exec(compile("\n" * place + HELPERS + "loss = lambda x, w: " + " " * place
                     + NUMBERS[name].format(*numbers), "some.py", "exec"), names)
        return traced(lambda: names["loss"], lambda f: st.grad(f, (0, 1)), X, X)
    cases = [((a, b), place) for a, b in [(2., 2.), (2., 3.), (0., 1.), (3., 2.), (-0., 0.5)]
             for place in (0, 3)]
    alone = []
    for case in cases:
        st.clear_caches()
        alone.append(program(*case))
    st.clear_caches()
    for _ in range(3):
        assert [program(*case) for case in cases] == alone


def test_a_program_with_another_number_is_differentiated_no_more():
    def phases(number):
        with st.profile_phases() as profile:
            traced(lambda: lambda x, w: (jnp.sin(x) * number + w).sum(), st.grad, X, X)
        return {row.name for row in profile.rows}
    st.clear_caches()
    assert {"linearize", "transpose"} <= phases(2.0)
    assert not {"linearize", "transpose"} & phases(3.0)


def test_two_arguments_that_are_one_value_are_told_from_two():
    def product(x, y):
        return (x * jnp.sin(y)).sum()

    def texts(f):
        return [traced(lambda: f, lambda g: g, X, X) for _ in range(3)]
    st.clear_caches()
    same = texts(lambda x, y: st.grad(product, (0, 1))(x, x))
    other = texts(lambda x, y: st.grad(product, (0, 1))(x, y))
    for _ in range(2):
        st.clear_caches()
        assert texts(lambda x, y: st.grad(product, (0, 1))(x, x))[0][0] == same[2][0]
        assert texts(lambda x, y: st.grad(product, (0, 1))(x, y))[0][0] == other[2][0]


def test_values_are_those_of_each_trace():
    for k in range(4):
        f = st.jit(st.grad(lambda x: (x ** 2).sum()))
        assert np.allclose(f(X + k), 2 * (X + k))


def test_rules_of_the_user_run_each_time():
    ran = []

    @st.custom_jvp
    def f(x):
        return jnp.sin(x)

    @f.defjvp
    def _(primals, tangents):
        ran.append(1)
        return f(*primals), tangents[0] * len(ran)

    def factor():
        return float(st.jit(lambda x: st.grad(f)(x))(1.0))
    assert [factor() for _ in range(4)] == [1, 2, 3, 4]


def test_shardings_are_those_of_the_program():
    mesh = st.make_mesh((2,), ("a",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        xs = [st.device_put(X, P("a", None)), st.device_put(X, P(None, "a"))]
        for x in xs * 4:
            g = st.jit(st.grad(lambda v: jnp.tanh(v).sum())).trace(x).jaxpr.outvars[0]
            assert g.aval.spec == x.aval.spec


def test_little_is_kept(monkeypatch):
    st.clear_caches()
    kept = gradient_cache._kept
    monkeypatch.setattr(kept, "most", 3_000)
    for n in range(5):
        for _ in range(2):
            traced(lambda n=n: lambda x, w: sum(jnp.sin(x * w + i) for i in range(90 + n)).sum(),
                   st.grad, X, X)
    assert 0 < kept.equations <= kept.most
    assert len(kept.things) < 5                     # some have gone
    assert sum(count for _, count in kept.things.values()) == kept.equations
    st.clear_caches()
    assert not kept.things and not kept.equations


def test_a_trace_is_not_kept_alive_by_what_is_recorded_again():
    def builders():
        gc.collect()
        return sum(isinstance(r, Builder) for r in gc.get_objects())
    st.clear_caches()
    before = builders()
    for _ in range(3):
        traced(LOSSES["norm"], st.grad, X, X)
    assert builders() <= before


def test_values_keep_the_users_names():
    def loss(w, x):
        hidden = jnp.tanh(x @ w)
        out = hidden * 2
        return (out ** 2).sum()

    def step(w, x):
        slope = st.grad(loss)(w, x)
        return w - slope
    texts = [str(st.jit(lambda w, x: step(w, x)).trace(X, X).jaxpr) for _ in range(3)]
    assert texts[1:] == texts[:1] * 2
    assert all(f" {name}: " in texts[0] for name in ("hidden", "out", "slope"))
