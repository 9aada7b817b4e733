"""Stacks of products that threads share have the numbers that one thread gives."""
from __future__ import annotations

import threading

import numpy as np
import pytest

from shardtrace.ir.kernels.matrices import gemm
from shardtrace.ir.support import threads

F32 = np.dtype(np.float32)
CASES = [("bij", "bjk", "bik", (64, 40, 24)), ("bji", "bjk", "bik", (64, 40, 24)),
         ("bij", "bkj", "bik", (64, 40, 24)), ("abij", "abjk", "abik", (5, 7, 30, 40, 24)),
         ("abij", "abjk", "abik", (1, 33, 30, 40, 24)), ("bij", "bjk", "bki", (64, 40, 24)),
         ("bij", "bj", "bi", (300, 64, 3))]


@pytest.mark.parametrize(("a", "b", "out", "sizes"), CASES)
def test_the_numbers_are_those_of_one_thread(a, b, out, sizes, monkeypatch):
    by_label = dict(zip(dict.fromkeys(a + b), (*sizes, 9), strict=False))
    shapes = [tuple(by_label[x] for x in labels) for labels in (a, b)]
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=shape).astype(F32) for shape in shapes)
    monkeypatch.setattr(threads, "CORES", 1)
    wanted = gemm.prepared(shapes[0], a, shapes[1], b, out, F32)(x, y)
    monkeypatch.setattr(threads, "CORES", 3)
    monkeypatch.setattr(threads, "ENOUGH", 1)
    monkeypatch.setattr(gemm, "SINGLE_THREAD", 1)
    product = gemm.prepared(shapes[0], a, shapes[1], b, out, F32)
    for given in (x, np.asfortranarray(x)):
        np.testing.assert_allclose(product(given, y), wanted, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(wanted, np.einsum(f"{a},{b}->{out}", x, y), rtol=1e-4, atol=1e-4)


def test_several_threads_multiply(monkeypatch):
    monkeypatch.setattr(threads, "CORES", 2)
    monkeypatch.setattr(threads, "ENOUGH", 1)
    monkeypatch.setattr(gemm, "SINGLE_THREAD", 1)
    both, met = threading.Barrier(2, timeout=60), []

    def multiply(a, b, out):
        if len(met) < 2:
            met.append(threading.get_ident())
            both.wait()
        return np.matmul(a, b, out=out)
    monkeypatch.setattr(gemm, "for_work", lambda function, *rest: multiply)
    x = np.ones((64, 32, 32), F32)
    product = gemm.prepared(x.shape, "bij", x.shape, "bjk", "bik", F32)
    assert (product(x, x) == 32).all()
    assert len(set(met)) == 2
