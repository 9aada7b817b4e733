"""An interrupt between any two steps of entering or leaving a block leaves nothing switched."""
import shardtrace as st
from shardtrace.ir.settings import config as configuration
from shardtrace.ir.settings import context
from shardtrace.ir.settings.context import STATE, config

from ..interrupts import interrupted

FILES = (configuration.__file__, context.__file__)


def x64():
    with st.enable_x64(True), config.override(jax_disable_jit=True):
        pass


def test_an_interrupt_leaves_no_override():
    n = 1
    while interrupted(x64, n, lambda code: code.co_filename in FILES)[0]:
        assert STATE.overrides == {} and STATE.override_entries == (), n
        n += 1
    assert n > 50


def test_overrides_left_out_of_order_take_back_their_own():
    first, second = st.enable_x64(True), config.override(jax_disable_jit=True)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert STATE.overrides == {"jax_disable_jit": True}
    second.__exit__(None, None, None)
    assert STATE.overrides == {}
