"""Composed functions under vmap are recorded again as they were recorded."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P
from shardtrace.tracer.batching import memoized as batching_composed

X = np.linspace(0.1, 1, 64, dtype=np.float32).reshape(4, 4, 4)


def several(x, w):
    return nn.softmax(x @ w) @ x, nn.log_softmax(x, axis=0).mean(), (w @ w).sum()


CALLS = {
    "one dimension": lambda: st.vmap(lambda x, w: several(x, w), (0, None)),
    "another": lambda: st.vmap(lambda x, w: several(x, w), (2, 1)),
    "both": lambda: st.vmap(lambda x, w: several(x, x + w), (0, 0)),
    "one value": lambda: lambda x, w: st.vmap(lambda a, b: a @ b + b @ a)(x, x),
    "nested": lambda: st.vmap(st.vmap(lambda x, w: nn.softmax(x * w), (0, None)), (0, None)),
    "named": lambda: st.vmap(lambda x, w: st.lax.psum(nn.softmax(x @ w), "i"), (0, None),
                             axis_name="i"),
    "gradient within": lambda: st.vmap(st.grad(lambda x, w: nn.softmax(x @ w)[0, 0]), (0, None)),
    "gradient around": lambda: st.grad(lambda x, w: st.vmap(
        lambda a: nn.logsumexp(a @ w))(x).sum()),
    "outer values": lambda: lambda x, w: st.vmap(lambda a: nn.softmax(a @ (w @ w)) @ w)(x),
    "numbers": lambda: st.vmap(lambda x, w: (jnp.clip(x, 0, 0.5), jnp.clip(x, 0.0, 0.5),
                                             jnp.clip(x, False, 0.5)), (0, None)),
}


def account(program):
    return str(program), [(e.location.line, e.location.column, e.location.transform)
                          for e in program.eqns]


@pytest.mark.parametrize("name", CALLS)
def test_what_is_recorded_again_cannot_be_told_from_what_was_recorded(name):
    st.clear_caches()
    w = X[0] if name in ("one dimension", "nested", "named", "gradient within", "gradient around",
                         "outer values", "numbers") else X
    found = [account(st.jit(CALLS[name]()).trace(X, w).jaxpr) for _ in range(4)]
    assert found[1:] == found[:1] * 3


def test_the_function_is_not_run_again(monkeypatch):
    f = CALLS["one dimension"]
    st.clear_caches()
    for _ in range(2):
        st.jit(f()).trace(X, X[0])
    monkeypatch.setattr(batching_composed, "marks", lambda *_: pytest.fail("it runs"))
    st.jit(f()).trace(X, X[0])


def test_errors_name_the_op_of_a_value_that_was_recorded_again():
    def shown():
        texts = []
        st.jit(st.vmap(lambda x: texts.append(
            (y := nn.softmax(x)).builder.describe(y.variable)) or y)).trace(X)
        return texts
    st.clear_caches()
    first = shown()
    assert "softmax" in first[0] and shown() == shown() == first


def test_a_mapped_dimension_that_is_split_stays_so():
    mesh = st.make_mesh((2,), ("a",), axis_types=(AxisType.Explicit,))
    with st.set_mesh(mesh):
        x = np.ones((4, 2, 2), np.float32)
        for spec in (P("a"), P(None), P(None, "a")) * 3:
            put = st.device_put(x, spec)
            out = st.jit(st.vmap(lambda v: nn.softmax(v, axis=-1))).trace(put).jaxpr.outvars[0]
            assert out.aval.spec == put.aval.spec
