"""Derivatives, outside of jit and within: values, types, control flow, users' rules, errors."""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import ad_checkpoint, dtypes, lax, nn
from shardtrace.errors import UnexpectedTracerError
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.text.parse import parse_program
from shardtrace.ir.verify import verify

from ...rows import rows

F32 = np.float32
V = np.array([0.5, -1.0, 2.0], F32)
X = np.linspace(-1, 2, 12).astype(F32).reshape(3, 4)
W = np.linspace(1, -2, 20).astype(F32).reshape(4, 5)


def slope(f: Callable[..., Any], x: np.ndarray, direction: np.ndarray, step: float = 1e-6) -> float:
    """The derivative of f, computed in float64, by central differences."""
    with st.enable_x64():
        wide = np.asarray(x, np.float64)
        ahead, behind = (np.asarray(f(jnp.asarray(wide + s * step * direction))) for s in (1, -1))
    return float(ahead - behind) / (2 * step)


# -- against finite differences --------------------------------------------------------------------

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "polynomial": lambda x: jnp.sum(x**3 - 2 * x),
    "exp of a product": lambda x: jnp.exp(x * x.sum()).sum(),
    "matmul": lambda x: jnp.tanh(x @ np.asarray(W, np.float64)).sum(),
    "softmax": lambda x: nn.log_softmax(x)[0, 1],
    "where": lambda x: jnp.where(x > 0, jnp.log(jnp.where(x > 0, x, 1.0)), x**2).sum(),
    "indexing": lambda x: x[1, :2].sum() + (x[np.array([0, 0])] ** 2).sum(),
    "update": lambda x: (x.at[0].set(0.0) * x).sum(),
    "maximum": lambda x: jnp.max(x) + jnp.maximum(x, 0.3).sum(),
    "sort": lambda x: (jnp.sort(x.ravel()) * np.arange(12.0)).sum(),
    "cumulative": lambda x: (jnp.cumsum(x, 0) ** 2).sum() + jnp.prod(x + 3),
    "concatenate": lambda x: (jnp.concatenate([x, 2 * x.T.reshape(3, 4)]) ** 2).sum(),
    "norm": lambda x: jnp.linalg.norm(x),
    "inverse": lambda x: jnp.linalg.inv(x @ x.T + 3 * np.eye(3)).sum(),
    "jit": lambda x: st.jit(lambda y: jnp.sin(y) * y)(x).sum(),
    "checkpoint": lambda x: st.checkpoint(lambda y: jnp.sin(jnp.sin(y)) * y)(x).sum(),
    "vmap": lambda x: st.vmap(lambda row: jnp.sin(row).sum() * row)(x).sum(),
}


@rows("name", FUNCTIONS)
@rows("jitted", [False, True])
def test_gradients_are_slopes(name: str, jitted: bool) -> None:
    f = FUNCTIONS[name]
    direction = np.cos(np.arange(12.0)).reshape(3, 4)
    with st.enable_x64():
        x = np.asarray(X, np.float64) + 0.01
        gradient = (st.jit if jitted else lambda g: g)(st.grad(f))(x)
        _, pushed = st.jvp(f, (x,), (direction,))
        assert gradient.dtype == np.float64 and gradient.shape == x.shape
    expected = slope(f, x, direction)
    np.testing.assert_allclose(np.sum(np.asarray(gradient) * direction), expected, rtol=1e-6)
    np.testing.assert_allclose(float(pushed), expected, rtol=1e-6)


@pytest.mark.parametrize("name", ["polynomial", "softmax", "jit", "checkpoint", "vmap", "matmul"])
def test_second_derivatives_are_slopes_of_gradients(name: str) -> None:
    f = FUNCTIONS[name]
    direction = np.sin(np.arange(12.0)).reshape(3, 4)
    with st.enable_x64():
        x = np.asarray(X, np.float64) + 0.01
        over_reverse = st.jvp(st.grad(f), (x,), (direction,))[1]
        over_forward = st.grad(lambda y: st.jvp(f, (y,), (direction,))[1])(x)
        reverse_twice = st.grad(lambda y: jnp.sum(st.grad(f)(y) * direction))(x)
    def along(y):
        return jnp.sum(st.grad(f)(y) * direction)
    expected = slope(along, x, direction)
    for product in (over_reverse, over_forward, reverse_twice):
        np.testing.assert_allclose(np.sum(np.asarray(product) * direction), expected, rtol=1e-5)
        np.testing.assert_allclose(product, over_reverse, rtol=1e-9, atol=1e-12)


# -- Python control flow and values ----------------------------------------------------------------

def test_a_branch_may_look_at_the_value() -> None:
    f = st.grad(lambda x: x**2 if x > 0 else -x)
    assert float(f(3.0)) == 6.0 and float(f(-3.0)) == -1.0
    assert float(st.grad(f)(3.0)) == 2.0
    primal, tangent = st.jvp(lambda x: x * 2 if float(x) > 1 else x, (2.0,), (1.0,))
    assert (float(primal), float(tangent)) == (4.0, 2.0)


def test_loops_over_values_and_indices() -> None:
    def power(x, n):
        out = x
        while out < 100:
            out = out * x
        return out * [1.0, 2.0, 3.0][n]
    assert float(st.grad(power)(3.0, jnp.asarray(1))) == 2 * 5 * 3.0**4


def test_printing_shows_the_value(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        print(x)
        print(f"{x:.2f} {int(x)} {x.item()}")
        return x * x
    st.grad(f)(3.0)
    assert capsys.readouterr().out == (
        "GradTracer(primal=3.0, typeof(tangent)=f32[])\n3.00 3 3.0\n")


def test_under_jit_there_is_no_value() -> None:
    with pytest.raises(TypeError, match="Attempted boolean conversion"):
        st.jit(st.grad(lambda x: x if x > 0 else -x))(1.0)


def test_the_differentiated_function_runs_once() -> None:
    calls = []
    def f(x):
        calls.append(1)
        return jnp.sin(x)
    st.value_and_grad(f)(1.0)
    assert len(calls) == 1
    g = st.jit(f)
    for _ in range(3):
        st.grad(g)(2.0)
    assert len(calls) == 2


# -- types and trees -------------------------------------------------------------------------------

def test_gradients_of_python_numbers_are_weak() -> None:
    for f in (lambda x: x * x, lambda x: jnp.sin(x) * x**3, st.jit(lambda x: x * x)):
        g = st.grad(f)(3.0)
        assert g.weak_type and g.dtype == F32


def test_cotangents_through_parts_of_a_complex_number_are_strong() -> None:
    for part in (jnp.real, jnp.imag):
        _, pull = st.vjp(part, 2 + 1j)
        assert not pull(1.0)[0].weak_type


def test_gradients_have_the_tree_of_the_argument() -> None:
    params = {"w": W, "b": [np.ones(5, F32), None]}
    g = st.grad(lambda p: jnp.tanh(X @ p["w"] + p["b"][0]).sum())(params)
    assert set(g) == {"w", "b"} and g["b"][1] is None
    assert g["w"].shape == W.shape and g["b"][0].shape == (5,)


def test_argnums_aux_and_keywords() -> None:
    def f(a, b, *, scale):
        return (a * b).sum() * scale, {"kept": a * 2, "text": "as it is"}
    both = st.value_and_grad(f, argnums=(0, -1), has_aux=True)
    (value, aux), (ga, gb) = both(V, V * 2, scale=3.0)
    np.testing.assert_allclose(ga, 6 * V)
    np.testing.assert_allclose(gb, 3 * V)
    np.testing.assert_allclose(aux["kept"], 2 * V)
    assert aux["text"] == "as it is" and float(value) == pytest.approx(float((6 * V * V).sum()))


def test_integers_have_float0_tangents() -> None:
    gi, gx = st.grad(lambda i, x: (i * x).sum(), argnums=(0, 1), allow_int=True)(np.arange(3), V)
    assert gi.dtype == dtypes.float0 and gi.shape == (3,)
    np.testing.assert_array_equal(gx, [0, 1, 2])
    outs, tangents = st.jvp(lambda i, x: (i + 1, i * x), (np.arange(3), V),
                            (np.zeros(3, dtypes.float0), V))
    assert tangents[0].dtype == dtypes.float0
    np.testing.assert_allclose(tangents[1], np.arange(3) * V)
    assert outs[0].dtype == np.int32


def test_results_that_do_not_move() -> None:
    assert float(st.grad(lambda x: 1.0)(2.0)) == 0.0
    ga, gb = st.grad(lambda a, b: jnp.sum(a), argnums=(0, 1))(V, W)
    np.testing.assert_array_equal(gb, np.zeros_like(W))
    assert float(st.grad(lambda x: lax.stop_gradient(x) * x)(3.0)) == 3.0
    out, f_jvp = st.linearize(lambda x: (x * 2, 5.0), 3.0)
    assert float(f_jvp(1.0)[0]) == 2.0 and float(f_jvp(1.0)[1]) == 0.0


def test_holomorphic_and_complex() -> None:
    assert complex(st.grad(lambda z: z**2, holomorphic=True)(2 + 1j)) == 4 + 2j
    np.testing.assert_allclose(complex(st.grad(lambda z: jnp.abs(z) ** 2)(2 + 1j)), 4 - 2j,
                               rtol=1e-6)


def test_vjp_and_linearize_do_not_run_the_function_again() -> None:
    calls = []
    def f(x):
        calls.append(1)
        return {"s": jnp.sin(x), "t": x.sum()}
    out, pull = st.vjp(f, V)
    _, push = st.linearize(f, V)
    for _ in range(2):
        (ct,) = pull({"s": np.ones(3, F32), "t": F32(2)})
        np.testing.assert_allclose(ct, np.cos(V) + 2, rtol=1e-6)
        np.testing.assert_allclose(push(V)["s"], np.cos(V) * V, rtol=1e-6)
    assert len(calls) == 2


def test_linear_transpose_maps_cotangents_to_each_operand() -> None:
    transpose = st.linear_transpose(lambda x, y: 0.5 * x - y[0], st.ShapeDtypeStruct((3,), F32),
                                    st.ShapeDtypeStruct((2, 3), F32))
    a, b = transpose(V)
    np.testing.assert_allclose(a, 0.5 * V)
    np.testing.assert_allclose(b, [-V, 0 * V])


def test_jacobians_and_hessian() -> None:
    def f(a, b):
        return {"p": a * b.sum(), "q": jnp.outer(a, b)}
    forward = st.jacfwd(f, argnums=(0, 1))(V, V[:2])
    reverse = st.jacrev(f, argnums=(0, 1))(V, V[:2])
    for k, n in (("p", (3,)), ("q", (3, 2))):
        for i, m in ((0, (3,)), (1, (2,))):
            assert forward[k][i].shape == n + m
            np.testing.assert_allclose(forward[k][i], reverse[k][i], rtol=1e-6)
    h = st.hessian(lambda v: (v**3).sum() + v[0] * v[1])(V)
    expected = np.diag(6 * V)
    expected[0, 1] = expected[1, 0] = 1
    np.testing.assert_allclose(h, expected, rtol=1e-6)


# -- programs --------------------------------------------------------------------------------------

def test_a_call_stays_one_call_in_each_direction() -> None:
    inner = st.jit(lambda x: jnp.sin(x) * x)
    program = st.make_jaxpr(st.grad(lambda x: inner(x).sum()))(V)
    calls = [e for e in program.eqns if e.op.name == "jit"]
    assert len(calls) == 2
    verify(program)
    assert programs_equal(parse_program(str(program)), program)


def test_equations_keep_the_users_place() -> None:
    program = st.make_jaxpr(st.grad(lambda x: jnp.sum(x * jnp.sin(x))))(V)
    words = {e.location.transform for e in program.eqns}
    assert {"jvp", "transpose(jvp)"} <= words
    assert all(e.location.short_file == "test_autodiff.py" for e in program.eqns)


def _all_equations(program):
    inside = [e for _, _, inner in program.subprograms() for e in _all_equations(inner)]
    return [*program.eqns, *inside]


def test_equations_of_a_rule_of_ours_stand_where_the_function_was_called() -> None:
    def loss(x):
        h = nn.relu(x)
        return jnp.sum(nn.silu(h))

    first = loss.__code__.co_firstlineno
    for transformed in (st.grad(loss), st.grad(st.jit(loss)), lambda x: st.jvp(loss, (x,), (x,))):
        eqns = _all_equations(st.make_jaxpr(transformed)(V))
        lines = {e.op.name: e.location.line for e in eqns}
        assert lines["max"] == lines["gt"] == lines["select_n"] == first + 1
        assert lines["logistic"] == lines["sub"] == first + 2


def test_only_what_the_result_needs_is_differentiated() -> None:
    def f(x):
        return x.sum(), jnp.exp(x)
    program = st.make_jaxpr(st.grad(f, has_aux=True))(V)
    assert [e.op.name for e in program.eqns].count("mul") == 0


# -- checkpoint ------------------------------------------------------------------------------------

def block(x):
    y = ad_checkpoint.checkpoint_name(jnp.sin(x @ W), "y")
    return jnp.sin(y @ W.T).sum()


@pytest.mark.parametrize("policy,dots", [
    (None, 1), ("nothing_saveable", 1), ("dots_saveable", 0), ("everything_saveable", 0)])
def test_checkpoint_policies_say_what_is_computed_again(policy: str | None, dots: int) -> None:
    chosen = policy and getattr(st.checkpoint_policies, policy)
    f = st.checkpoint(block, policy=chosen)
    np.testing.assert_allclose(st.grad(f)(X), st.grad(block)(X), rtol=2e-6)
    program = st.make_jaxpr(st.grad(f))(X)
    (again,) = [e.params["jaxpr"] for e in program.eqns if e.op.name == "checkpoint"]
    names = [e.op.name for e in again.eqns]
    # Transposing the two products takes two more; the rest are computed again.
    forward = names.count("dot_general") - 2
    assert forward == 2 * dots or (forward == dots)
    assert (forward > 0) == bool(dots)


def test_named_values_are_kept() -> None:
    kept = st.checkpoint(block, policy=st.checkpoint_policies.save_only_these_names("y"))
    other = st.checkpoint(block, policy=st.checkpoint_policies.save_only_these_names("z"))
    counts = []
    for f in (kept, other):
        program = st.make_jaxpr(st.grad(f))(X)
        (again,) = [e.params["jaxpr"] for e in program.eqns if e.op.name == "checkpoint"]
        counts.append(len(again.eqns))
        np.testing.assert_allclose(st.grad(f)(X), st.grad(block)(X), rtol=2e-6)
    assert counts[0] < counts[1]


def test_checkpoint_with_static_arguments_under_jit() -> None:
    @functools.partial(st.checkpoint, static_argnums=(1,))
    def f(x, training):
        return jnp.sin(x) if training else x
    assert float(st.jit(st.grad(lambda x: f(x, True)))(1.0)) == pytest.approx(np.cos(1), rel=1e-6)
    assert float(st.grad(st.grad(lambda x: f(jnp.sin(x), True)))(1.0)) == pytest.approx(
        float(st.grad(st.grad(lambda x: jnp.sin(jnp.sin(x))))(1.0)), rel=1e-6)


def test_a_function_under_checkpoint_is_traced_once_for_types_and_static_arguments() -> None:
    seen = []

    @functools.partial(st.checkpoint, static_argnums=(1,))
    def f(x, n):
        seen.append((x.shape, n))
        return jnp.sin(x) * n

    for n in (2, 2, 3):
        for x in (1.0, 2.0, jnp.ones(3)):
            np.testing.assert_allclose(f(x, n), np.sin(x) * n, rtol=1e-6)
            np.testing.assert_allclose(st.jvp(lambda x, n=n: f(x, n), (x,), (x,))[1],
                                       np.cos(x) * n * x, rtol=1e-6)
    assert sorted(seen) == [((), 2), ((), 3), ((3,), 2), ((3,), 3)]


def test_what_a_function_under_checkpoint_closes_over_is_that_of_each_trace() -> None:
    factor = [2.0]

    def loss(w):
        factor[0] = w
        return g(1.0)

    g = st.checkpoint(lambda x: jnp.sin(x) * factor[0])
    for w in (1.0, 2.0):
        assert float(st.grad(loss)(w)) == pytest.approx(np.sin(1), rel=1e-6)
        assert float(st.jit(loss)(w)) == pytest.approx(np.sin(1) * w, rel=1e-6)
    kept = {}
    for a in (1, [1]):                      # which cannot be told apart by its hash
        kept[str(a)] = st.checkpoint(lambda x, a: x * len([a]), static_argnums=1)(3.0, a)
    assert set(map(float, kept.values())) == {3.0}


# -- closures --------------------------------------------------------------------------------------

def test_functions_close_over_values_that_are_differentiated_outside() -> None:
    def f(a):
        inner = st.grad(lambda b: jnp.sum(a * b * b))(a)
        return st.jit(lambda b: (inner * a * b * V).sum())(a)
    for wrap in (lambda g: g, st.jit):
        np.testing.assert_allclose(wrap(st.grad(f))(V), 8 * V**4, rtol=1e-5)


def test_escaped_tracers_are_refused() -> None:
    kept = []
    def f(x):
        kept.append(x * 2)
        return x
    st.grad(f)(1.0)
    with pytest.raises(UnexpectedTracerError, match="unexpected tracer"):
        kept[0] + 1


@pytest.mark.parametrize("f", [
    lambda x: lax.concatenate([x, np.ones(3)], 0), lambda x: lax.pad(x, np.float64(1), [(1, 0, 0)]),
    lambda x: lax.dynamic_update_slice(x, np.ones(2), (1,)),
    lambda x: lax.select(np.ones(3, bool), x, np.arange(3.0))])
def test_constants_of_numpy_are_narrow_in_derivatives_of_derivatives(f):
    x = jnp.arange(3.0)
    inner = lambda x: st.jvp(f, (x,), (x,))[1]              # noqa: E731
    out, tangent = st.jvp(inner, (x,), (x,))
    assert out.dtype == tangent.dtype == "float32"
    np.testing.assert_array_equal(st.jacfwd(st.grad(lambda x: (f(x) ** 2).sum()))(x),
                                  st.jacfwd(st.grad(lambda x: (f(x) * f(x)).sum()))(x))
