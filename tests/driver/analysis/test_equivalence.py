"""The equivalence check: right programs pass, a wrong rule is found with its line and factor."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.experimental.custom_partitioning import custom_partitioning
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((2, 4), ("x", "y"))


def placed(shape, *spec, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    value = rng.standard_normal(shape).astype(dtype) if dtype != np.int32 else (
        rng.integers(0, shape[0], shape).astype(dtype))
    return st.device_put(value, NamedSharding(MESH, P(*spec)))


def layer(x, w1, w2):
    h = st.nn.softmax(x @ w1)
    return (h @ w2).sum(0)


def scanned(x, ws):
    return st.lax.scan(lambda h, w: (jnp.tanh(h @ w), h.sum()), x, ws)


def looped(x):
    return st.lax.fori_loop(0, 3, lambda i, h: h / h.sum(1, keepdims=True), x)


def branched(x):
    return st.lax.cond(x.sum() > 0, lambda v: v.sum(1), lambda v: v.max(1), x)


def mapped(x):
    return st.shard_map(lambda v: st.lax.psum(v, "y"), mesh=MESH, in_specs=P("x", "y"),
                        out_specs=P("x"))(x) * 2


def gradient(x, w):
    return st.grad(lambda w: (jnp.sin(x @ w) ** 2).mean())(w)


@pytest.mark.parametrize(("function", "args"), [
    (layer, [placed((16, 32), "x"), placed((32, 64), None, "y"), placed((64, 16), "y")]),
    (scanned, [placed((16, 32), "x"), placed((3, 32, 32), None, None, "y")]),
    (looped, [placed((8, 16), "x", "y")]), (branched, [placed((8, 16), "x", "y")]),
    (mapped, [placed((8, 16), "x", "y")]),
    (gradient, [placed((16, 32), "x"), placed((32, 16), "y")]),
    (lambda x: jnp.sort(jnp.cumsum(x, 1), 0), [placed((16, 32), "x", "y")]),
    (lambda x, i: x[i].astype(jnp.bfloat16), [placed((16, 32), "x"),
                                              placed((16,), dtype=np.int32)]),
    (lambda x: jnp.concatenate([x, x[::-1]]).reshape(-1), [placed((16, 32), "x", "y")])],
    ids=lambda v: getattr(v, "__name__", ""))
def test_programs_that_are_right_pass(function, args):
    st.testing.assert_equivalent(function, *args)


def wrong_sums():
    """Running sums whose rule claims that both dimensions may be split."""
    @custom_partitioning
    def sums(x):
        return jnp.cumsum(x, axis=1)

    sums.def_partition(sharding_rule="i j -> i j")
    return sums


def test_a_wrong_rule_is_found_with_its_line_and_factor():
    sums = wrong_sums()

    def f(x):
        h = jnp.tanh(x)
        return sums(h) * 2
    st.testing.assert_equivalent(f, placed((8, 16), "x"))
    with pytest.raises(AssertionError) as failed:
        st.testing.assert_equivalent(f, placed((8, 16), "x", "y"))
    text = str(failed.value)
    line = f.__code__.co_firstlineno + 2
    assert f"`custom_partitioning` line {line} computes something else on blocks" in text
    assert "factor `j` split over y alone makes it differ" in text
    assert "factor `i`" not in text and "i j -> i j" in text


def test_a_wrong_rule_in_a_loop_is_found():
    sums = wrong_sums()

    def f(x):
        return st.lax.fori_loop(0, 2, lambda i, h: sums(h) * 0.5, x)
    with pytest.raises(AssertionError, match="`custom_partitioning` line .* computes something"):
        st.testing.assert_equivalent(f, placed((8, 16), "x", "y"))


def test_rules_are_tried_in_random_layouts():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 16)), rng.standard_normal((16, 8))
    st.testing.fuzz_equivalent(lambda x, w: jnp.tanh(x @ w), x, w, mesh=MESH, count=4)
    with pytest.raises(AssertionError, match="factor `j` split over"):
        st.testing.fuzz_equivalent(wrong_sums(), x.astype(np.float32), mesh=MESH, count=12)
