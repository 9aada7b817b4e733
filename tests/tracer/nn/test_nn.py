"""nn: activations and their derivatives at kinks, reductions without overflow, attention."""
from __future__ import annotations

import operator

import numpy as np
import pytest
import scipy.special

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn

from ...rows import rows

INF = np.inf
X = np.array([-INF, -20, -2, -0.5, 0, 0.5, 2, 20, INF], np.float32)


def gelu(x):
    with np.errstate(invalid="ignore"):
        return np.where(x == -INF, 0, x * 0.5 * scipy.special.erfc(-x / np.sqrt(2)))


ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0), "relu6": lambda x: np.clip(x, 0, 6),
    "sigmoid": scipy.special.expit, "softplus": lambda x: np.logaddexp(x, 0),
    "leaky_relu": lambda x: np.where(x >= 0, x, 0.01 * x),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "hard_tanh": lambda x: np.clip(x, -1, 1),
    "hard_sigmoid": lambda x: np.clip(x + 3, 0, 6) / 6, "tanh": np.tanh, "identity": lambda x: x,
    "log_sigmoid": lambda x: -np.logaddexp(-x, 0),
    "sparse_plus": lambda x: np.where(x <= -1, 0, np.where(x >= 1, x, (x + 1) ** 2 / 4)),
    "sparse_sigmoid": lambda x: np.clip((x + 1) / 2, 0, 1),
}
FINITE = {
    "silu": lambda x: x * scipy.special.expit(x), "swish": lambda x: x * scipy.special.expit(x),
    "soft_sign": lambda x: x / (1 + np.abs(x)),
    "mish": lambda x: x * np.tanh(np.logaddexp(x, 0)),
    "squareplus": lambda x: (x + np.sqrt(x * x + 4)) / 2,
    "hard_silu": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "celu": lambda x: np.maximum(x, 0) + np.minimum(0, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: 1.0507009873554805 * np.where(
        x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0))),
}


@rows("name", [*ACTIVATIONS, *FINITE])
def test_activations_equal_their_formulas_in_double_precision(name):
    reference = {**ACTIVATIONS, **FINITE}[name]
    x = X if name in ACTIVATIONS else X[1:-1]
    with np.errstate(all="ignore"):
        want = reference(x.astype(np.float64))
    np.testing.assert_allclose(getattr(nn, name)(x), want, rtol=2e-5, atol=1e-7)
    np.testing.assert_allclose(st.jit(getattr(nn, name))(x), want, rtol=2e-5, atol=1e-7)


def test_gelu_both_ways():
    x = X[1:-1]
    np.testing.assert_allclose(nn.gelu(x, approximate=False), gelu(x), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(nn.gelu(x), gelu(x), atol=5e-4)


def test_glu_multiplies_one_half_by_the_gate_of_the_other():
    x = np.linspace(-2, 2, 12, dtype=np.float32).reshape(2, 6)
    a, b = np.split(x, 2, axis=1)
    np.testing.assert_allclose(nn.glu(x), a * scipy.special.expit(b), rtol=1e-5)


@rows("name, x, slope", [
    ("relu", 0, 0), ("relu", -1, 0), ("relu", 2, 1), ("relu6", 0, 0), ("relu6", 6, 0),
    ("softplus", INF, 1), ("softplus", -INF, 0), ("softplus", 0, 0.5), ("elu", -INF, 0),
    ("elu", 0, 1), ("log_sigmoid", -INF, 1), ("sigmoid", INF, 0), ("leaky_relu", -1, 0.01),
    ("hard_tanh", 2, 0), ("log1mexp", 1e-3, 1 / np.expm1(1e-3)), ("selu", -INF, 0),
])
def test_derivatives_where_formulas_break(name, x, slope):
    got = st.grad(getattr(nn, name))(np.float32(x))
    np.testing.assert_allclose(got, slope, rtol=1e-5)


@pytest.mark.parametrize("f", [
    nn.softplus, lambda x: jnp.logaddexp(0, x), lambda x: jnp.logaddexp(x, 0.0)])
def test_what_adds_one_to_an_exponential_needs_no_logarithm_for_its_slope(f):
    slope = st.jit(st.vmap(st.grad(f)))
    x = np.array([-INF, -120, -50, -3, 0, 3, 50, INF, np.nan], np.float32)
    want = scipy.special.expit(x.astype(np.float64))
    np.testing.assert_allclose(slope(x), want, rtol=1e-6, atol=1e-30)
    assert np.asarray(slope(x))[-2:].tolist()[0] == 1
    used = [e.primitive.name for e in slope.lower(x).compile().program.eqns]
    assert "logistic" in used and "log1p" not in used
    assert st.grad(lambda a, b: jnp.logaddexp(a, b), (0, 1))(INF, INF) == (1, 1)


ROWS = np.array([[1, 2, 3, 1000], [-1e4, -1e4, 0, 1], [-INF, 0, 1, 2]], np.float32)


def test_softmax_and_its_logarithm_do_not_overflow():
    np.testing.assert_allclose(nn.softmax(ROWS), scipy.special.softmax(ROWS, -1), rtol=1e-5)
    np.testing.assert_allclose(nn.log_softmax(ROWS), scipy.special.log_softmax(ROWS, -1), rtol=1e-5)
    np.testing.assert_allclose(nn.softmax(ROWS, axis=0).sum(0), 1, rtol=1e-5)


def test_softmax_of_a_part_leaves_zeros_elsewhere():
    mask = np.array([[True, True, False, False]] * 3)
    got = nn.softmax(ROWS, where=mask)
    assert not got[:, 2:].any()
    np.testing.assert_allclose(got[:, :2], scipy.special.softmax(ROWS[:, :2], -1), rtol=1e-5)


def test_logsumexp_equals_that_of_scipy_with_weights_and_signs():
    weights = np.array([1, -1, 2, 0.5], np.float32)
    np.testing.assert_allclose(nn.logsumexp(ROWS, axis=1), scipy.special.logsumexp(ROWS, 1),
                               rtol=1e-6)
    got, sign = nn.logsumexp(ROWS, axis=1, b=-weights, return_sign=True)
    want = scipy.special.logsumexp(ROWS.astype(float), 1, b=-weights, return_sign=True)
    np.testing.assert_allclose(got, want[0], rtol=1e-5)
    np.testing.assert_array_equal(sign, want[1])
    np.testing.assert_allclose(nn.logmeanexp(ROWS, axis=1),
                               scipy.special.logsumexp(ROWS, 1) - np.log(4), rtol=1e-5)
    assert nn.logsumexp(np.full(3, -INF, np.float32)) == -INF


@pytest.mark.parametrize("algorithm", ["fast", "stable"])
def test_standardize_subtracts_the_mean_and_divides_by_the_deviation(algorithm):
    x = np.arange(12, dtype=np.float32).reshape(3, 4) ** 2
    got = nn.standardize(x, axis=0, epsilon=0.0, algorithm=algorithm)
    np.testing.assert_allclose(got, (x - x.mean(0)) / x.std(0), rtol=1e-4, atol=1e-5)


def test_one_hot_rows_of_classes_out_of_range_are_zero():
    np.testing.assert_array_equal(nn.one_hot(np.array([0, 2, 5, -1]), 3),
                                  [[1, 0, 0], [0, 0, 1], [0, 0, 0], [0, 0, 0]])
    assert nn.one_hot(np.array([[1]]), 2, axis=0, dtype=jnp.int8).shape == (2, 1, 1)


# -- attention -------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
B, T, S, N, K, H = 2, 5, 7, 4, 2, 8
Q = RNG.normal(size=(B, T, N, H)).astype(np.float32)
KEYS = RNG.normal(size=(B, S, N, H)).astype(np.float32)
VALUES = RNG.normal(size=(B, S, N, H)).astype(np.float32)


def attention(q, k, v, mask=None, bias=0.0, scale=None):
    logits = np.einsum("btnh,bsnh->bnts", q, k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    logits = logits + bias
    if mask is not None:
        logits = np.where(mask, logits, -1e30)
    return np.einsum("bnts,bsnh->btnh", scipy.special.softmax(logits, -1), v)


def near(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_attention_equals_its_formula_batched_or_not():
    near(nn.dot_product_attention(Q, KEYS, VALUES), attention(Q, KEYS, VALUES))
    near(nn.dot_product_attention(Q[0], KEYS[0], VALUES[0], scale=0.3),
         attention(Q[:1], KEYS[:1], VALUES[:1], scale=0.3)[0])


def test_attention_with_bias_and_mask():
    bias = RNG.normal(size=(1, N, T, S)).astype(np.float32)
    mask = RNG.random((B, 1, T, S)) > 0.3
    near(nn.dot_product_attention(Q, KEYS, VALUES, bias, mask),
         attention(Q, KEYS, VALUES, mask, bias))


def test_leading_dimensions_of_attention_may_be_left_out():
    row = RNG.normal(size=S).astype(np.float32)
    near(nn.dot_product_attention(Q, KEYS, VALUES, row, row > 0),
         attention(Q, KEYS, VALUES, np.broadcast_to(row > 0, (T, S)), row))
    near(nn.dot_product_attention(Q, KEYS, VALUES, np.float32(0.5)), attention(Q, KEYS, VALUES))
    near(nn.dot_product_attention(Q[0, 0], KEYS[0, :1], VALUES[0, :1]),
         attention(Q[:1, :1], KEYS[:1, :1], VALUES[:1, :1])[0, 0])


def test_causal_attention_sees_nothing_later():
    mask = np.tril(np.ones((T, S), bool))
    near(nn.dot_product_attention(Q, KEYS, VALUES, is_causal=True),
         attention(Q, KEYS, VALUES, mask))


def test_attention_to_a_window():
    rows, columns = np.ogrid[:T, :S]
    mask = (columns >= rows - 2) & (columns <= rows + 1)
    near(nn.dot_product_attention(Q, KEYS, VALUES, local_window_size=(2, 1)),
         attention(Q, KEYS, VALUES, mask))


def test_attention_to_sequences_of_several_lengths():
    lengths = np.array([3, 6])
    mask = (np.arange(S) < lengths[:, None])[:, None, None, :]
    near(nn.dot_product_attention(Q, KEYS, VALUES, key_value_seq_lengths=lengths),
         attention(Q, KEYS, VALUES, mask))


def test_groups_of_query_heads_share_a_key_head():
    k, v = KEYS[:, :, :K], VALUES[:, :, :K]
    near(nn.dot_product_attention(Q, k, v),
         attention(Q, np.repeat(k, N // K, 2), np.repeat(v, N // K, 2)))


def test_attention_has_derivatives():
    def loss(q):
        return nn.dot_product_attention(q, KEYS, VALUES, is_causal=True).sum()

    step = 1e-2 * RNG.normal(size=Q.shape).astype(np.float32)
    slope = float((st.grad(loss)(Q) * step).sum())
    assert np.isclose(slope, (loss(Q + step) - loss(Q - step)) / 2, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(("arguments", "text"), [
    ({"key": KEYS[:, :, :3], "value": VALUES[:, :, :3]}, "multiple of key/value heads"),
    ({"key": KEYS[..., :3]}, "shapes must be"),
    ({"bias": Q[None]}, "bias ndim should be 4, but got 5"),
])
def test_attention_of_shapes_that_do_not_fit_is_refused(arguments, text):
    with pytest.raises(ValueError, match=text):
        nn.dot_product_attention(**{"query": Q, "key": KEYS, "value": VALUES, **arguments})


@pytest.mark.parametrize(("name", "other"), [
    ("nn.swish", "nn.silu"), ("nn.hard_swish", "nn.hard_silu"), ("nn.tanh", "numpy.tanh"),
    ("nn.logsumexp", "scipy.special.logsumexp"),
    ("nn.initializers.xavier_normal", "nn.initializers.glorot_normal"),
    ("nn.initializers.kaiming_uniform", "nn.initializers.he_uniform")])
def test_names_of_one_function_in_jax_are_those_of_one_here(name, other):
    assert operator.attrgetter(name)(st) is operator.attrgetter(other)(st)
