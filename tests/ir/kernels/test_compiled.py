"""Compiled loops give numpy's numbers to the last bit; without llvmlite numpy computes them."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardtrace.ir.kernels import compiled
from shardtrace.ir.kernels.compiled import NUMBER, Loop
from shardtrace.ir.kernels.elementwise import float32_functions
from shardtrace.ir.kernels.generators import threefry

F32 = np.float32
NUMBERS = np.concatenate([
    np.array([0, -0.0, 1, -1, 2, -2, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3e38], F32),
    np.linspace(-1, 1, 100_003, dtype=F32), np.logspace(-44, 0, 5_000).astype(F32),
    1 - np.logspace(-7, 0, 5_000).astype(F32)])


@pytest.fixture
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a loop can compute is compiled."""
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(compiled, "ENOUGH", 0)
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())


@pytest.fixture
def numpy_alone(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that computes in numpy what its argument gives."""
    def run(f: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(Loop, "pays", lambda self, elements: False)
            return f()
    return run


@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 1000])
def test_every_element_is_computed(size: int, loops: None) -> None:
    loop = Loop(lambda a, x, y: (x * a + y, x - y), "float float float", "float float", [NUMBER])
    x, y = np.arange(2 * size, dtype=F32).reshape(2, size)
    total, rest = np.full((2, size + 1), 7, F32)
    assert loop.pays(size)
    loop(np.array([3], F32), x, y, total[:size], rest[:size])
    np.testing.assert_array_equal(total[:size], 3 * x + y)
    np.testing.assert_array_equal(rest[:size], x - y)
    assert total[size] == rest[size] == 7


@pytest.mark.parametrize("width", [8, 32, 64])
@pytest.mark.parametrize(("keys", "shape", "whole", "starts"), [
    (7, (5_000,), None, ()), (range(300), (37,), None, ()),
    (range(3), (2, 3, 50), (1 << 20, 1 << 20, 60), (5, 1, 7))])
def test_bits_are_those_of_numpy(keys: Any, shape: Any, whole: Any, starts: Any, width: int,
                                 loops: None, numpy_alone: Any) -> None:
    keys = np.asarray(keys, np.uint64)
    wanted = numpy_alone(lambda: threefry.random_bits(keys, width, shape, whole, starts))
    found = threefry.random_bits(keys, width, shape, whole, starts)
    np.testing.assert_array_equal(found, wanted)


def test_hashes_of_broadcast_operands_are_those_of_numpy(loops: None, numpy_alone: Any) -> None:
    numbers = np.arange(100, dtype=np.uint32)
    operands = numbers[:50], numbers[:, None], np.uint32(7), numbers[50:]
    wanted = numpy_alone(lambda: threefry.threefry2x32(*operands))
    np.testing.assert_array_equal(threefry.threefry2x32(*operands), wanted)


def test_erf_inv_is_that_of_numpy(loops: None, numpy_alone: Any) -> None:
    wanted = numpy_alone(lambda: float32_functions.erf_inv(NUMBERS))
    found = float32_functions.erf_inv(NUMBERS)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(np.signbit(found[wanted == 0]), np.signbit(wanted[wanted == 0]))


def test_nothing_is_compiled_before_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refused:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("LLVM is asked for")
    monkeypatch.setattr(compiled, "llvm", Refused())
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())
    loop = Loop(lambda x: (x + x,), "float", "float")
    assert not loop.pays(compiled.ENOUGH // 2)
    with pytest.raises(AssertionError):
        loop.pays(compiled.ENOUGH)


def test_without_llvmlite_numpy_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []

    class Missing:
        def __getattr__(self, name: str) -> Any:
            looked.append(name)
            raise ModuleNotFoundError("No module named 'llvmlite'")
    monkeypatch.setattr(compiled, "llvm", Missing())
    monkeypatch.setattr(compiled, "ENOUGH", 0)
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())
    for _ in range(2):
        loop = Loop(lambda x: (x + x,), "float", "float")
        assert not loop.pays(1)
    assert len(looked) == 1                 # looked for once
