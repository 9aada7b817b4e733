"""The pool of large buffers: memory is used again when nobody can see it any more."""
from __future__ import annotations

import gc
import mmap
import platform
import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.support import buffer_pool as module
from shardtrace.ir.support.buffer_pool import POOL, BufferPool, empty

F32 = np.dtype(np.float32)
pytestmark = pytest.mark.usefixtures("only_own_objects")
MB = 1 << 20


def address(x):
    return x.__array_interface__["data"][0]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.complex128, np.bool_,
                                   ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_an_array_of_the_pool_is_like_any_other(dtype):
    pool = BufferPool()
    x = pool.empty((3, 1 << 19), np.dtype(dtype))
    assert x.shape == (3, 1 << 19) and x.dtype == dtype
    assert x.flags.c_contiguous and x.flags.writeable and x.flags.aligned
    x[:] = 1
    assert (x == np.ones((), dtype)).all()


def test_small_arrays_are_not_of_the_pool():
    assert empty((4, 4), F32).base is None


def test_memory_comes_back_when_the_last_view_is_gone():
    pool = BufferPool()
    x = pool.empty((MB,), F32)
    where = address(x)
    view = x.reshape(1024, -1)[3:7].T
    del x
    assert address(pool.empty((MB,), F32)) != where
    del view
    assert address(pool.empty((MB,), F32)) == where


def test_an_array_in_a_cycle_comes_back_when_it_is_collected():
    pool = BufferPool()
    x = pool.empty((MB,), F32)
    where = address(x)
    cycle = [x]
    cycle.append(cycle)
    del x, cycle
    gc.collect()
    assert address(pool.empty((MB,), F32)) == where


def test_no_more_is_held_than_was_in_use_at_one_time():
    pool = BufferPool()
    for n in (4, 3, 2, 1, 5):
        x = pool.empty((n, MB), np.dtype(np.uint8))
        del x
    assert pool.kept <= 5 * MB + (1 << 16)


def test_memory_is_not_lent_for_much_less_than_its_size():
    pool = BufferPool()
    x = pool.empty((8, MB), np.dtype(np.uint8))
    y = pool.empty((8, MB), np.dtype(np.uint8))
    del x
    assert pool.kept == 8 * MB
    z = pool.empty((2, MB), np.dtype(np.uint8))
    assert z.nbytes + y.nbytes == 10 * MB and pool.kept <= 6 * MB


def test_beyond_the_limit_memory_is_given_back():
    pool = BufferPool(limit=3 * MB)
    x, y = (pool.empty((2, MB), np.dtype(np.uint8)) for _ in range(2))
    del x, y
    assert pool.kept == 2 * MB
    pool.clear()
    assert pool.kept == 0


def test_threads_never_share_memory():
    pool = BufferPool()
    wrong = []

    def work(value):
        for _ in range(200):
            x = pool.empty((1 << 17,), F32)
            x[:] = value
            if not (x == value).all():
                wrong.append(value)
    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_results_that_the_user_keeps_are_never_written_again():
    f = st.jit(lambda x: (st.numpy.tanh(x) * 2, x @ x))
    x = np.random.default_rng(0).standard_normal((512, 512)).astype(np.float32)
    kept = [f(x * i) for i in range(4)]
    view = np.asarray(kept[1][0])[5:9]
    copies = [[np.array(v) for v in r] for r in kept]
    part = view.copy()
    del kept[2]
    for i in range(6):
        f(x * (7 + i))
    del copies[2]
    for r, c in zip(kept, copies, strict=True):
        for a, b in zip(r, c, strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(view, part)


def test_clear_caches_empties_the_pool():
    st.jit(lambda x: st.numpy.exp(x) + 1)(np.ones((1024, 512), np.float32))
    gc.collect()
    assert POOL.kept > 0
    st.clear_caches()
    assert POOL.kept == 0


@pytest.mark.skipif(not hasattr(mmap, "MADV_HUGEPAGE"), reason="a system without large pages")
def test_what_fills_large_pages_begins_where_one_does():
    own = BufferPool()
    x = own.empty(((1 << 22) + (1 << 16),), np.dtype(np.uint8))
    assert address(x) % (1 << 21) == 0
    x[:] = 1
    assert x.sum(dtype=np.int64) == x.size
    del x
    gc.collect()
    assert own.kept == (1 << 22) + (1 << 16)


def test_without_large_pages_memory_is_numpys(monkeypatch):
    class Refusing(mmap.mmap):
        def __new__(cls, *args, **kwargs):
            raise OSError("no such pages")
    monkeypatch.setattr(module.mmap, "mmap", Refusing)
    x = BufferPool().empty((1 << 20,), F32)
    x[:] = 1
    assert x.nbytes == 1 << 22 and address(x) % 64 == 0


def test_traced_memory_is_traced(monkeypatch):
    monkeypatch.setattr(module, "is_tracing", lambda: True)
    monkeypatch.setattr(module.mmap, "mmap", None)
    assert BufferPool().empty((1 << 20,), F32).nbytes == 1 << 22


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have other rules")
def test_what_numpy_allocates_by_itself_keeps_its_pages():
    code = """
import resource
import numpy as np
import shardtrace.ir.support.buffer_pool
def run():
    arrays = [np.ones(n) for n in (10**5, 2 * 10**5, 3 * 10**5)]
for _ in range(3):
    run()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    run()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) < 1000             # 22,800 if memory was given back
