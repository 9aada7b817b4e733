"""`debug_nans` and `debug_infs`: the error names the op that made the number, and its line."""
import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import PartitionSpec as P

SHARDED = r"^Invalid value \(nan\) encountered in sharded computation\."


@pytest.fixture(autouse=True)
def debugging():
    with st.debug_nans(True):
        yield


def test_the_op_that_made_it_is_named() -> None:
    def f(x):
        y = jnp.log(x)              # made here
        return jnp.stack([y, y]).sum() * 2

    for g in (f, st.jit(f), st.jit(lambda x: st.jit(f)(x) + 1)):
        with pytest.raises(FloatingPointError, match=r"^invalid value \(nan\) encountered in log"
                           ) as caught:
            g(np.float32(-1))
        assert "# made here" in str(caught.value)
    assert f(np.float32(1)) == 0


def test_numbers_that_nothing_computed() -> None:
    """Inputs and literals: the program run op by op makes none."""
    for f, x in [(lambda x: x * 3.0, np.nan), (lambda x: (jnp.nan, x + 2), 3.0)]:
        with pytest.raises(FloatingPointError, match="the de-optimized function did not produce"):
            st.jit(f)(x)
    with pytest.raises(FloatingPointError, match="encountered in mul"):
        jnp.ones(2) * np.nan        # of one op, all that comes out is its own


@pytest.mark.parametrize("size", [1, 8])
def test_regions_of_shard_map_and_pmap(size: int) -> None:
    mesh = st.make_mesh((size,), ("x",), devices=st.devices()[:size])
    divide = st.shard_map(lambda x: 0.0 / x, mesh=mesh, in_specs=P("x"), out_specs=P("x"))
    log = st.shard_map(st.jit(lambda x: jnp.log(x**2)), mesh=mesh, in_specs=P("x"),
                       out_specs=P("x"))
    x = np.ones((size,), np.float32)
    bad = np.concatenate([x[1:], [0]], dtype=np.float32)
    donating = st.pmap(lambda x: 0.0 / x, donate_argnums=0, devices=st.devices()[:size])
    for f in (divide, st.jit(divide), st.pmap(lambda x: 0.0 / x, devices=st.devices()[:size])):
        assert np.array_equal(f(x), np.zeros(size))
        with pytest.raises(FloatingPointError, match=SHARDED):
            f(bad)
    with pytest.raises(FloatingPointError):
        donating(jnp.asarray(bad))
    with pytest.raises(FloatingPointError, match=SHARDED):
        st.vjp(log, bad)[1](x)
