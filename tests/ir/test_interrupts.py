"""An interrupt between any two steps of entering or leaving a block leaves nothing switched."""
import threading

import shardtrace as st
from shardtrace.ir.settings import config as configuration
from shardtrace.ir.settings import context
from shardtrace.ir.settings.context import STATE, config
from shardtrace.ir.support import caches
from shardtrace.ir.support.caches import CACHES, ProgramCache

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


def test_an_interrupt_leaves_no_lock_taken():
    """Else another thread would wait for ever; this one may take it again and would not notice."""
    cache = ProgramCache("of a test", "a number", 100, 1)
    del CACHES["of a test"]
    free = []

    def take_and_give_back():
        free.append(cache._lock.acquire(blocking=False))
        cache._lock.release()

    def block():
        cache.keep("a", 1, 1)
        cache.get("a")

    n = 1
    while interrupted(block, n, lambda code: code.co_filename == caches.__file__)[0]:
        other = threading.Thread(target=take_and_give_back)
        other.start()
        other.join()
        n += 1
    assert n > 3 and all(free)
