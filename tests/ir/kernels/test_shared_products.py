"""Products that threads share have the numbers that one thread gives."""
from __future__ import annotations

import threading

import numpy as np
import pytest

from shardtrace.ir.kernels.matrices import blas_threads, gemm
from shardtrace.ir.kernels.matrices.blas_threads import Threads
from shardtrace.ir.kernels.matrices.conv_products import by_products
from shardtrace.ir.kernels.windows import windows
from shardtrace.ir.support import threads

F32 = np.dtype(np.float32)
CASES = [("bij", "bjk", "bik", (64, 40, 24)), ("bji", "bjk", "bik", (64, 40, 24)),
         ("bij", "bkj", "bik", (64, 40, 24)), ("abij", "abjk", "abik", (5, 7, 30, 40, 24)),
         ("abij", "abjk", "abik", (1, 33, 30, 40, 24)), ("bij", "bjk", "bki", (64, 40, 24)),
         ("bij", "bj", "bi", (300, 64, 3)), ("ij", "jk", "ik", (70, 40)),
         ("ij", "jk", "ik", (3, 40)), ("ij", "jk", "ik", (700, 40)),
         ("ji", "jk", "ik", (40, 70)), ("ij", "kj", "ki", (70, 40)), ("ij", "kj", "ik", (3, 40))]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Small products are shared by three threads."""
    monkeypatch.setattr(threads, "ENOUGH", 1)
    monkeypatch.setattr(threads, "free_cores", lambda: 16)
    for module in (blas_threads, gemm):
        monkeypatch.setattr(module, "SINGLE_THREAD", 1)
    monkeypatch.setattr(blas_threads, "_library", lambda module: Threads(lambda: 3, print))
    monkeypatch.setattr(threads, "CORES", 3)


@pytest.mark.parametrize(("a", "b", "out", "sizes"), CASES)
def test_the_numbers_are_those_of_one_thread(a, b, out, sizes, monkeypatch):
    by_label = dict(zip(dict.fromkeys(a + b), (*sizes, 9), strict=False))
    shapes = [tuple(by_label[x] for x in labels) for labels in (a, b)]
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(F32) for shape in shapes)
    monkeypatch.setattr(threads, "CORES", 1)
    wanted = gemm.prepared(shapes[0], a, shapes[1], b, out, F32)(x, y)
    monkeypatch.setattr(threads, "CORES", 3)
    product = gemm.prepared(shapes[0], a, shapes[1], b, out, F32)
    for given in (x, np.asfortranarray(x)):
        np.testing.assert_allclose(product(given, y), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(wanted, np.einsum(f"{a},{b}->{out}", x, y), rtol=1e-4, atol=1e-4)


def test_several_threads_multiply(monkeypatch):
    both, met = threading.Barrier(2, timeout=60), []

    def multiply(a, b, out):
        if len(met) < 2:
            met.append(threading.get_ident())
            both.wait()
        return np.matmul(a, b, out=out)
    monkeypatch.setattr(gemm, "single_threaded", lambda function: multiply)
    for shape, labels in (((64, 32, 32), "bij bjk bik"), ((64, 64), "ij jk ik")):
        met.clear()
        product = gemm.prepared(shape, labels.split()[0], shape, labels.split()[1],
                                labels.split()[2], F32)
        assert (product(np.ones(shape, F32), np.ones(shape, F32)) == shape[-1]).all()
        assert len(set(met)) == 2


@pytest.mark.parametrize(("a", "b"), [("ij", "jk"), ("ji", "jk"), ("ij", "kj"), ("ji", "kj")])
def test_all_multiply_adds_of_a_product_count(a, b, monkeypatch):
    asked, sizes = [], dict(zip("ijk", (3, 50, 7), strict=True))
    monkeypatch.setattr(gemm, "shares", lambda each, work: asked.append((each, work)) or 1)
    shapes = [tuple(sizes[x] for x in labels) for labels in (a, b)]
    gemm.prepared(shapes[0], a, shapes[1], b, "ik", F32)
    assert asked == [(3 * 50 * 7,) * 2]


def test_a_matrix_times_itself_is_left_to_blas(monkeypatch):
    seen = []
    monkeypatch.setattr(gemm, "single_threaded", lambda function: lambda a, b, out: (
        seen.append(a.shape), np.matmul(a, b))[1])
    x = np.arange(64 * 40, dtype=F32).reshape(64, 40) / 1000
    product = gemm.prepared(x.shape, "ij", x.shape, "kj", "ik", F32)
    np.testing.assert_allclose(product(x, x), x @ x.T, rtol=1e-5)
    assert seen == [(64, 40)]


def test_blas_shares_where_it_has_more_cores_and_nobody_where_it_has_one_thread(monkeypatch):
    assert blas_threads.shares(1 << 20, 1 << 20) == 3
    assert blas_threads.shares(blas_threads.SHORT, 1 << 40) == 3
    monkeypatch.setattr(blas_threads, "core_count", lambda: 64)
    assert blas_threads.shares(blas_threads.SHORT, 1 << 40) == 1
    monkeypatch.setattr(blas_threads, "_library", lambda module: Threads(lambda: 1, print))
    assert blas_threads.shares(1 << 20, 1 << 20) == 1
    monkeypatch.setattr(blas_threads, "_library", lambda module: None)
    assert blas_threads.shares(1 << 20, 1 << 20) == 1


@pytest.mark.parametrize(("last", "n", "size"), [(True, 5, 9), (False, 5, 9), (False, 9, 5)])
def test_a_convolution_has_the_numbers_of_one_thread(last, n, size, monkeypatch):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n, size, size, 4) if last else (4, size, size, n)).astype(F32)
    x = x.transpose(0, 3, 1, 2) if last else x.transpose(3, 0, 1, 2)
    seen = windows(x[:, None], (3, 3), (1, 1), (1, 1))
    k = rng.normal(size=(1, 6, 4, 3, 3)).astype(F32)
    monkeypatch.setattr("shardtrace.ir.kernels.matrices.conv_products.PIECE", 1 << 9)
    found = by_products(seen, k, F32)
    monkeypatch.setattr(threads, "CORES", 1)
    np.testing.assert_allclose(found, by_products(seen, k, F32), rtol=1e-5, atol=1e-5)
