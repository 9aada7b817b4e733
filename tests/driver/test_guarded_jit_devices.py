"""`jit(device=...)` moves its arguments: a guard on transfers between devices sees that."""
from __future__ import annotations

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp

pytestmark = pytest.mark.filterwarnings("ignore:.*device argument.*:DeprecationWarning")


@pytest.mark.parametrize("setting", ["disallow", "disallow_explicit"])
def test_a_move_by_jit_is_one_that_nobody_asked_for(setting):
    x, away = jnp.ones(2), st.devices()[1]
    f = st.jit(lambda x: x + 1, device=away)
    with st.transfer_guard_device_to_device(setting):
        with pytest.raises(st.errors.JaxRuntimeError, match="Disallowed device-to-device"):
            f(x)
    np.testing.assert_array_equal(f(x), [2, 2])
    moved = st.device_put(x, away)
    with st.transfer_guard_device_to_device(setting):
        np.testing.assert_array_equal(f(moved), [2, 2])
    with st.transfer_guard_device_to_device("allow"):
        assert f(x).devices() == {away}
