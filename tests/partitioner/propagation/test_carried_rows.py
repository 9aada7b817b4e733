"""Recurrences with split weights: their rows are split instead, where that takes less time."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.ir.settings.context import config
from shardtrace.partitioner.propagation.propagate import solve
from shardtrace.sharding import AbstractMesh, NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((2, 4), ("x", "y"))
WHOLE = NamedSharding(MESH, P())
ROWS, WEIGHTS = (st.ShapeDtypeStruct((n, 24), np.float32, sharding=WHOLE) for n in (16, 24))


def carried(body, init=ROWS, weights=WEIGHTS, loop="scan"):
    """The layout in which a loop starts, with split rows."""
    def f(init, w):
        if loop == "while":
            return lax.while_loop(lambda c: c[0].sum() < 5, lambda c: body(c, w), init)
        return lax.scan(lambda c, _: (body(c, w), None), init, length=4)[0]
    program = st.jit(f).lower(init, weights).stages["inlined"]
    solution = solve(program, MESH, (None, None), (None,), carried_rows=True)
    (eqn,) = [e for e in program.eqns if e.op.name in ("scan", "while")]
    return solution.graph.layouts[solution.graph.of(eqn.outvars[-1])].entries


@pytest.mark.parametrize(("body", "want"), [
    (lambda c, w: jnp.tanh(c @ w), (("x", "y"), ())),               # the batch
    (lambda c, w: jnp.tanh(w[:16, :16] @ c), ((), ("x", "y"))),
    (lambda c, w: jnp.cumsum(c, 0), ((), ("x", "y"))),
    (lambda c, w: c - c.max(1, keepdims=True), (("x", "y"), ())),
    (lambda c, w: c[::-1] * 2, ((), ("x", "y"))),
    (lambda c, w: c / c.sum(), ((), ())),                           # all elements meet
    (lambda c, w: jnp.roll(c, 1, 1).at[0].set(0), ((), ())),
    (lambda c, w: lax.fori_loop(0, 3, lambda i, c: c * 2, c), (("x", "y"), ())),    # by itself
])
def test_rows_are_what_iterations_keep_apart(body, want) -> None:
    assert carried(body) == want


def test_axes_are_those_that_divide() -> None:
    few = st.ShapeDtypeStruct((2, 24), np.float32)
    assert carried(lambda c, w: jnp.tanh(c @ w), few) == (("x",), ())
    assert carried(lambda c, w: jnp.tanh(c @ w), few.update(shape=(3, 24))) == ((), ())
    assert carried(lambda c, w: jnp.tanh(c @ w), loop="while") == (("x", "y"), ())


def test_a_constraint_goes_before() -> None:
    def body(c, w):
        return lax.with_sharding_constraint(jnp.tanh(c @ w), NamedSharding(MESH, P(None, "y")))
    assert carried(body) == ((), ("y",))


def recurrence(xs, w):
    def step(h, x):
        h = jnp.tanh(h @ w + x)
        return h, h.sum(-1)
    return lax.scan(step, jnp.zeros(xs.shape[1:]), xs)[1]


def test_a_recurrence_exchanges_nothing_in_its_steps_where_that_takes_less_time() -> None:
    rng = np.random.default_rng(0)
    xs = rng.normal(size=(64, 16, 256)).astype(np.float32)
    w = rng.normal(size=(256, 256)).astype(np.float32) / 16
    mesh = st.make_mesh((2, 4), ("x", "y"))
    placed = [st.device_put(x, NamedSharding(mesh, P(*spec)))
              for x, spec in ((xs, (None, None, "y")), (w, ("y", "x")))]
    with config.override(shardtrace_objective="time"):
        for executor in ("simulated", "per_device"):
            with config.override(shardtrace_engine=executor):
                result = st.jit(recurrence)(*placed)
                h, want = np.zeros((16, 256), np.float32), []
                for x in xs:
                    h = np.tanh(h @ w + x)
                    want.append(h.sum(-1))
                np.testing.assert_allclose(result, want, rtol=2e-4, atol=2e-4)
        compiled = st.jit(recurrence).lower(*placed).compile()
    assert {r.count for r in compiled.collectives()} == {1}
    usual = st.jit(recurrence, compiler_options={"objective": "bytes"}).lower(*placed).compile()
    assert compiled.explain().time < 0.5 * usual.explain().time
    assert "the rows that `scan` keeps apart" in str(compiled.explain())
