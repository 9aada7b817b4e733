"""An interrupt between any two steps of entering or leaving a block leaves nothing switched."""
import sys

import shardtrace as st
from shardtrace.ir import context
from shardtrace.ir.context import STATE, config

_FILES = (context.__file__,)


def interrupted(block, n):
    """Run `block` with an interrupt at the n-th bytecode of the modules; whether there was one."""
    seen = 0

    def trace(frame, event, arg):
        nonlocal seen
        # Python drops what a finalizer raises: nothing to interrupt there
        if frame.f_code.co_filename not in _FILES or frame.f_code.co_name == "__del__":
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == n:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        block()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def x64():
    with st.enable_x64(True), config.override(jax_disable_jit=True):
        pass


def test_an_interrupt_leaves_no_override():
    n = 1
    while interrupted(x64, n):
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
