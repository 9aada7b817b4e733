"""shardtrace.random: JAX's numbers, key arrays, out_sharding, errors.

The numbers are in tests/golden/random.json, recorded from JAX 0.10.2 by tests/record/random.py.
"""
from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import random
from shardtrace.ir.settings.context import config
from shardtrace.ir.text.parse import parse_program
from shardtrace.nn import initializers
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...paths import GOLDEN
from ...rows import rows

RECORDED = json.loads((GOLDEN / "random.json").read_text())


def scope() -> dict[str, Any]:
    return {"random": random, "jnp": jnp, "np": np, "initializers": initializers,
            "k": random.key(2024), "st": st, "P": P}


def wide(x: Any) -> np.ndarray:
    x = np.asarray(x)
    if x.dtype.kind == "c":
        return np.stack([x.real, x.imag]).astype(np.float64)
    return x if x.dtype.kind in "biu" else x.astype(np.float64)


@pytest.fixture
def mesh() -> Any:
    mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        yield mesh


# -- numbers ---------------------------------------------------------------------------------------

@rows("case", RECORDED["cases"])
def test_numbers_are_those_of_jax(case: dict[str, Any]) -> None:
    value = eval(case["expression"], scope())
    assert str(value.dtype) == case["dtype"]
    assert list(value.shape) == case["shape"]
    # Numbers near 0 come from logarithms near 1: the error is relative to the terms, not to them.
    np.testing.assert_allclose(wide(value), np.asarray(case["values"]), rtol=case["rtol"],
                               atol=case["rtol"])


@pytest.mark.parametrize("expression", [
    "random.bits(k, (3, 4))", "random.normal(k, (5,))", "random.randint(k, (4,), 0, 9)",
    "random.permutation(k, 6)", "random.gamma(k, 2.0, (3,))", "random.key_data(random.split(k))",
])
def test_numbers_are_the_same_under_jit(expression: str) -> None:
    names = scope()
    traced = st.jit(lambda k: eval(expression, {**names, "k": k}))(names["k"])
    np.testing.assert_array_equal(traced, eval(expression, names))


def test_raw_and_typed_keys_draw_the_same() -> None:
    raw, typed = random.PRNGKey(5), random.key(5)
    np.testing.assert_array_equal(random.normal(raw, (4,)), random.normal(typed, (4,)))
    np.testing.assert_array_equal(random.split(raw), random.key_data(random.split(typed)))
    np.testing.assert_array_equal(random.key_data(random.wrap_key_data(raw)), raw)


def test_every_row_of_a_mapped_draw_is_that_of_its_key() -> None:
    keys = random.split(random.key(1), 3)
    rows = st.vmap(lambda k: random.normal(k, (4,)))(keys)
    for i in range(3):
        np.testing.assert_array_equal(rows[i], random.normal(keys[i], (4,)))
    folded = st.vmap(random.fold_in, in_axes=(None, 0))(keys[0], jnp.arange(3))
    for i in range(3):
        np.testing.assert_array_equal(random.key_data(folded[i]),
                                      random.key_data(random.fold_in(keys[0], i)))


@pytest.mark.parametrize("draw", [
    "lambda k, a: random.gamma(k, a)", "lambda k, a: random.gamma(k, a, (3,))",
    "lambda k, a: random.permutation(k, 5)", "lambda k, a: random.beta(k, a, 2.0)",
    "lambda k, a: random.categorical(k, jnp.arange(4) * a)",
    "lambda k, a: random.key_data(random.split(k))",
])
def test_mapped_samplers_do_what_a_loop_does(draw: str) -> None:
    f = eval(draw, scope())
    keys, parameters = random.split(random.key(4), 3), jnp.array([0.5, 1.0, 4.0])
    together = st.vmap(f)(keys, parameters)
    shared = st.vmap(lambda a: f(keys[0], a))(parameters)
    for i in range(3):
        np.testing.assert_allclose(together[i], f(keys[i], parameters[i]), rtol=1e-6)
        if np.shape(shared) == np.shape(together):
            np.testing.assert_allclose(shared[i], f(keys[0], parameters[i]), rtol=1e-6)


# Recorded from JAX 0.10.2: d/da of the gamma numbers of key 11.
GAMMA_GRADS = [2.90713, 0.763328, 1.496256, 0.7169309, 0.9716628]


def test_gamma_numbers_have_a_derivative() -> None:
    a = jnp.array([0.1, 0.5, 1.0, 3.0, 50.0])
    grads = st.grad(lambda a: random.gamma(random.key(11), a).sum())(a)
    np.testing.assert_allclose(grads, GAMMA_GRADS, rtol=5e-6)
    key = random.key(3)
    grad = st.grad(lambda a: random.gamma(key, a, (200,)).mean())(4.0)
    assert abs(float(grad) - 1) < 0.1             # the mean of gamma numbers is `a`


def test_the_older_way_of_counting() -> None:
    # Recorded from JAX 0.10.2 with jax_threefry_partitionable off.
    with config.override(jax_threefry_partitionable=False):
        key = random.key(0)
        assert random.bits(key, (3,)).tolist() == OLDER["bits"]
        assert random.bits(key, (5,), "uint8").tolist() == OLDER["bits8"]
        assert random.key_data(random.split(key, 3)).tolist() == OLDER["split"]
    assert random.bits(key, (3,)).tolist() != OLDER["bits"]


OLDER = {
    "bits": [4146024105, 1351547692, 2718843009], "bits8": [143, 35, 95, 55, 29],
    "split": [[2467461003, 428148500], [3186719485, 3840466878], [2562233961, 1946702221]],
}


def test_64_bit_types() -> None:
    with config.override(jax_enable_x64=True):
        key = random.key(2**40 + 5)
        assert random.key_data(key).tolist() == [256, 5]
        bits = random.bits(random.key(0), (2,), "uint64")
        assert bits.dtype == np.uint64
        assert bits.tolist() == [7719171245655871230, 3989946895414531357]
        assert random.uniform(key, (3,)).dtype == np.float64


# -- key arrays ------------------------------------------------------------------------------------

def test_keys_print_their_words() -> None:
    key = random.key(42)
    assert repr(key) == "Array((), dtype=key<fry>) overlaying:\n[ 0 42]"
    assert repr(random.split(key)[:1]) == repr(random.split(key)[0:1])
    assert str(st.typeof(random.split(key, (2, 3)))) == "key<fry>[2,3]"
    assert str(key.dtype) == "key<fry>" and key.nbytes == 8


def test_keys_are_elements_that_can_be_moved_but_not_computed_with() -> None:
    keys = random.split(random.key(0), 6)
    words = np.asarray(random.key_data(keys))
    moved = keys.reshape(2, 3).T
    np.testing.assert_array_equal(random.key_data(moved),
                                  words.reshape(2, 3, 2).transpose(1, 0, 2))
    np.testing.assert_array_equal(random.key_data(jnp.stack([keys[4], keys[1]])), words[[4, 1]])
    first, second = random.split(random.key(0))
    np.testing.assert_array_equal(random.key_data(first),
                                  random.key_data(random.split(random.key(0)))[0])
    np.testing.assert_array_equal(random.key_data(jnp.where(True, second, first)),
                                  random.key_data(second))
    with pytest.raises(TypeError, match="add does not accept dtype"):
        first + 1
    with pytest.raises(TypeError, match="cannot be converted to a NumPy array"):
        np.asarray(first)
    with pytest.raises(TypeError, match="key array cannot be converted to boolean"):
        bool(first)


@pytest.mark.parametrize("expression", [
    "jnp.zeros_like(random.split(k, 3))", "jnp.empty((3,), k.dtype)", "jnp.zeros(3, k.dtype)",
])
def test_key_arrays_of_zeros(expression: str) -> None:
    keys = eval(expression, scope())
    assert keys.dtype is random.key_dtype() and keys.shape == (3,)
    assert not np.asarray(random.key_data(keys)).any()


def test_the_generator_has_a_name() -> None:
    assert random.key_impl(random.key(0)) == random.key_impl(random.PRNGKey(0)) == "threefry2x32"
    assert random.key(0, impl="threefry2x32").dtype is random.key_dtype()
    assert random.key(0, dtype=random.key_dtype()).dtype is random.key_dtype("threefry2x32")


def test_traced_programs_show_the_primitives() -> None:
    text = str(st.make_jaxpr(lambda k: random.normal(random.fold_in(k, 1), (4,)))(random.key(0)))
    names = re.findall(r"= ([a-z_0-9]+)", text)
    drawn = [n for n in names if n.startswith("random_") or n == "erf_inv"]
    assert drawn == ["random_fold_in", "random_bits", "erf_inv"]
    assert "random_bits[bit_width=32, shape=(4,)]" in text


# -- sharding --------------------------------------------------------------------------------------

SHARDED = [
    ("random.bits(k, (8, 4), out_sharding={})", "uint32[8@X,4@Y]"),
    ("random.normal(k, (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
    ("random.uniform(k, (8, 4), minval=-1.0, out_sharding={})", "float32[8@X,4@Y]"),
    ("random.randint(k, (8, 4), 0, 100, out_sharding={})", "int32[8@X,4@Y]"),
    ("random.bernoulli(k, 0.3, (8, 4), out_sharding={})", "bool[8@X,4@Y]"),
    ("random.truncated_normal(k, -1.0, 1.0, (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
    ("random.gamma(k, 2.5, (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
    ("random.beta(k, 2.0, jnp.ones(4), (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
    ("random.categorical(k, jnp.zeros((8, 4, 3)), out_sharding={})", "int32[8@X,4@Y]"),
    ("random.permutation(k, jnp.arange(32).reshape(8, 4), out_sharding={})", "int32[8@X,4@Y]"),
    ("random.maxwell(k, (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
    ("random.ball(k, 4, shape=(8,), out_sharding={})", "float32[8@X,4@Y]"),
    ("initializers.glorot_normal()(k, (8, 4), out_sharding={})", "float32[8@X,4@Y]"),
]


@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("expression, expected", SHARDED, ids=lambda x: x.split("(")[0])
def test_a_sharded_draw_is_the_unsharded_one(mesh: Any, expression: str, expected: str, jit: bool
                                             ) -> None:
    names = scope()

    def draw(spec: str) -> Any:
        f = lambda k: eval(expression.format(spec), {**names, "k": k})   # noqa: E731
        return (st.jit(f) if jit else f)(names["k"])

    whole, sharded = draw("None"), draw("P('X', 'Y')")
    assert str(st.typeof(sharded)) == expected
    assert sharded.sharding.is_equivalent_to(NamedSharding(mesh, P("X", "Y")), 2)
    np.testing.assert_allclose(np.asarray(sharded), np.asarray(whole), rtol=1e-6)


def test_each_device_makes_its_own_block(mesh: Any) -> None:
    f = st.jit(lambda k: random.bits(k, (8, 4), out_sharding=P("X", "Y")))
    text = f.lower(random.key(0)).compile().as_text()
    assert "random_bits_block[bit_width=32, dims=(0, 1), shape=(4, 1), whole=(8, 4)]" in text
    assert "all_slice" not in text and "all_gather" not in text


def test_auto_axes_reach_the_bits() -> None:
    mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.Auto,) * 2)
    sharding = NamedSharding(mesh, P("X", "Y"))
    f = st.jit(lambda k: random.normal(k, (8, 4)) * 2, out_shardings=sharding)
    key = random.key(0)
    assert "random_bits_block" in f.lower(key).compile().as_text()
    np.testing.assert_array_equal(f(key), random.normal(key, (8, 4)) * 2)


def test_the_checking_executor_draws_the_same(mesh: Any) -> None:
    f = st.jit(lambda k: random.normal(k, (8, 4), out_sharding=P("X", "Y")))
    g = st.jit(lambda k: random.gamma(k, 2.5, (8,), out_sharding=P("Y")))
    key = random.key(9)
    expected = np.asarray(f(key)), np.asarray(g(key))
    with config.override(shardtrace_engine="per_device"):
        f.clear_cache()
        g.clear_cache()
        np.testing.assert_array_equal(f(key), expected[0])
        np.testing.assert_array_equal(g(key), expected[1])


def test_devices_of_shard_map_draw_with_their_own_keys(mesh: Any) -> None:
    key = random.key(3)

    def block(k: Any) -> Any:
        return random.normal(random.fold_in(k, st.lax.axis_index("Y")), (1, 3))

    drawn = st.jit(st.shard_map(block, in_specs=P(), out_specs=P("Y")))(key)
    for i in range(4):
        np.testing.assert_array_equal(np.asarray(drawn)[i:i + 1],
                                      random.normal(random.fold_in(key, i), (1, 3)))
    with pytest.raises(TypeError, match="watch out for key-reuse problems"):
        st.jit(st.shard_map(random.gamma, in_specs=(P(), P("X")), out_specs=P("X")))(
            key, st.reshard(jnp.ones(8), P("X")))


def test_programs_with_keys_are_text(mesh: Any) -> None:
    captured = random.key(7)
    f = st.jit(lambda k: random.uniform(k, (8,), out_sharding=P("X")) + random.gamma(
        random.fold_in(captured, 2), 2.0))
    traced = f.trace(random.key(0))
    for program in (traced.jaxpr, traced.lower().compile().program):
        assert str(parse_program(str(program))) == str(program)


TYPES = [
    ("random.normal(k, (8,))", "float32[8]"),
    ("random.normal(k, (8,), out_sharding=P('X', unreduced={'Y'}))", "float32[8@X]{U:Y}"),
    ("random.uniform(k, ())", "float32[]"),
    ("random.split(k, 8)", "key<fry>[8]"),
    ("st.reshard(random.split(k, 8), P('X'))", "key<fry>[8@X]"),
    ("random.key_data(st.reshard(random.split(k, 8), P('X')))", "uint32[8@X,2]"),
    ("st.vmap(lambda k: random.normal(k, (3,)))(st.reshard(random.split(k, 8), P('X')))",
     "float32[8@X,3]"),
    ("random.bernoulli(k, st.reshard(jnp.full(8, 0.5), P('X')))", "bool[8@X]"),
    ("random.categorical(k, st.reshard(jnp.ones((8, 4)), P('X')))", "int32[8@X]"),
    ("random.gamma(k, st.reshard(jnp.ones(8), P('X')))", "float32[8]"),
    ("random.orthogonal(k, 4, out_sharding=P('X'))", "float32[4@X,4]"),
]


@pytest.mark.parametrize("expression, expected", TYPES, ids=lambda x: x[:60])
def test_types_on_an_explicit_mesh(mesh: Any, expression: str, expected: str) -> None:
    names = scope()
    types: list[str] = []
    st.jit(lambda k: types.append(str(st.typeof(eval(expression, {**names, "k": k}))))
           or k).trace(names["k"])
    assert types == [expected]


# -- errors ----------------------------------------------------------------------------------------

ERRORS = [
    ("random.key(1.5)", TypeError, "PRNG key seed must be an integer"),
    ("random.key(np.arange(3))", TypeError, "key accepts a scalar seed, but was given an array of"),
    ("random.key(k)", TypeError, "key accepts a scalar seed, but was given a PRNG key."),
    ("random.key(2**63)", OverflowError, "too large"),
    ("random.key(0, impl='foo')", ValueError, 'unrecognized PRNG implementation "foo"'),
    ("random.key(0, impl=3)", TypeError, "unrecognized type <class 'int'>"),
    ("random.split(random.split(k))", ValueError,
     "split accepts a single key, but was given a key array of shape (2,) != ()"),
    ("random.uniform(random.split(k))", ValueError, "Use st.vmap for batching"),
    ("random.uniform(3)", TypeError, "expected key_data to have ndim, shape, and dtype"),
    ("random.uniform(np.arange(3, dtype='uint32'))", TypeError, "to end with (2,)"),
    ("random.uniform(np.arange(2))", TypeError, "key_data.dtype = uint32; got dtype=int64"),
    ("random.fold_in(k, -1)", OverflowError, "out of bounds for uint32"),
    ("random.fold_in(k, np.arange(2))", TypeError, "fold_in accepts a scalar"),
    ("random.bits(k, dtype='int32')", ValueError, "must be an unsigned int dtype, got int32"),
    ("random.normal(k, dtype='int32')", ValueError, "must be a float or complex dtype, got int32"),
    ("random.exponential(k, dtype='int32')", ValueError, "must be a float dtype, got int32"),
    ("random.geometric(k, 0.5, dtype='float32')", ValueError, "must be an int dtype, got float32"),
    ("random.randint(k, (), 0, 5, dtype='float32')", TypeError, "only accepts integer dtypes"),
    ("random.bernoulli(k, 1)", TypeError, "must have a floating dtype, got int32."),
    ("random.bernoulli(k, 0.5, mode='x')", ValueError, "expected 'high' or 'low'"),
    ("random.gumbel(k, mode='x')", ValueError, "Must provide valid mode for gumbel got: x"),
    ("random.gamma(k, jnp.ones(2), (3,))", ValueError, "Incompatible shapes for broadcasting"),
    ("random.pareto(k, jnp.ones((2, 1)), (3,))", ValueError,
     "pareto parameter shapes must be broadcast-compatible with shape argument"),
    ("random.choice(k, 5, (6,), replace=False)", ValueError,
     "Cannot take a larger sample (size 6)"),
    ("random.choice(k, 0, (3,))", ValueError, "a must be greater than 0"),
    ("random.permutation(k, 5.0)", TypeError, "x must be an integer or at least 1-dimensional"),
    ("random.wrap_key_data(np.arange(4))", TypeError, "JAX encountered invalid PRNG key data"),
    ("random.normal(k, (8,), out_sharding=P('X'))", ValueError, "not under a mesh context"),
    ("initializers.he_normal()(k, (3,))", ValueError, "Can't compute input and output sizes"),
    ("initializers.variance_scaling(1.0, 'x', 'normal')(k, (3, 3))", ValueError, "invalid mode"),
    ("initializers.variance_scaling(1.0, 'fan_in', 'x')(k, (3, 3))", ValueError,
     "invalid distribution"),
]


@rows("expression, cls, message", ERRORS)
def test_errors_have_the_class_and_phrase_of_jax(expression: str, cls: type, message: str) -> None:
    with pytest.raises(cls, match=re.escape(message)):
        eval(expression, scope())


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_counts_of_numbers_of_python_under_strict_settings(dtype):
    key = random.key(12)
    want = random.binomial(key, 21, 0.3, shape=(50,), dtype=dtype)
    for setting in (st.numpy_dtype_promotion("strict"), st.numpy_rank_promotion("raise")):
        with setting:
            for f in (random.binomial, st.jit(random.binomial, static_argnums=(1, 2, 3, 4))):
                found = f(key, 21, 0.3, (50,), dtype)
                assert found.dtype == dtype and np.array_equal(found, want)
