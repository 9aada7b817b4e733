"""Calls of numpy as instructions of compiled loops give numpy's results to the last bit."""
from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir.kernels import compiled
from shardtrace.ir.kernels.compiled import COLUMN, NUMBER, ROW, Loop
from shardtrace.ir.kernels.elementwise import elements
from shardtrace.ir.kernels.elementwise.elements import KINDS, bits_of, cast_of, element_of

from ...rows import rows

BF16, F16, F32 = (np.dtype(t) for t in (ml_dtypes.bfloat16, np.float16, np.float32))
ODD = [0, -0.0, 1, -1, 1.5, -2.5, 0.5, 3e-39, -1e-45, 65504, 65519, 65520, -65536, 3.3e38, 1e-7,
       -6e-8, 2.9e-8, 7.1, 1 / 3, np.inf, -np.inf, np.nan, 257, 100000.25]
FLOATS = [F32, np.dtype(np.float64)]
INTEGERS = [t for t in KINDS if t.kind in "iu"]


@pytest.fixture(autouse=True)
def loops(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")
    monkeypatch.setattr(compiled, "_SEEN", compiled._Seen())


def numbers(dtype: np.dtype) -> np.ndarray:
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.array([*range(0, 40), 100, info.min, info.max, info.max - 1, info.min + 1], dtype)
    with np.errstate(all="ignore"):
        return np.concatenate([ODD, np.linspace(-9, 9, 200)]).astype(dtype)


def computed(element: Any, arrays: list[np.ndarray], out: np.dtype) -> np.ndarray:
    loop = Loop(lambda *xs: (element(*xs),), " ".join([KINDS[x.dtype] for x in arrays]), KINDS[out])
    found = np.empty(arrays[0].shape, out)
    assert loop.compiled()
    loop(*arrays, found)
    return found


def assert_same(found: np.ndarray, wanted: np.ndarray) -> None:
    """To the last bit, but for what a NaN is made of."""
    assert found.dtype == wanted.dtype
    odd = wanted != wanted
    np.testing.assert_array_equal(found != found, odd)
    bits = f"u{wanted.dtype.itemsize}"
    np.testing.assert_array_equal(found[~odd].view(bits), wanted[~odd].view(bits))


def functions(*tables: Any) -> list[Any]:
    return list(dict.fromkeys(itertools.chain(*tables)))


CASES = [
    *itertools.product(functions(elements._FLOATS), FLOATS),
    *itertools.product(functions(elements._COMPARED), [*FLOATS, *INTEGERS, np.dtype(bool)]),
    *itertools.product(functions(elements._INTEGERS, elements._SIGNED), INTEGERS),
    *itertools.product(functions(elements._BOOLS), [np.dtype(bool)])]


@rows("function, dtype", CASES)
def test_ufuncs_give_what_numpy_gives(function: np.ufunc, dtype: np.dtype) -> None:
    given = numbers(dtype)
    if function.nin == 3:
        given = given[::5] if given.size > 99 else given[::2]
    arrays = [np.ascontiguousarray(x).reshape(-1) for x in np.meshgrid(*[given] * function.nin)]
    if function.nin == 3 and dtype.kind == "f":         # bounds are numbers
        arrays = [x[~np.isnan(arrays[1] + arrays[2])] for x in arrays]
    out = function.resolve_dtypes((*[dtype] * function.nin, None))[-1]
    element = element_of(function, [dtype] * function.nin, out)
    if element is None:                                 # of unsigned integers
        assert function in elements._SIGNED and dtype.kind == "u"
        return
    with np.errstate(all="ignore"):
        assert_same(computed(element, arrays, out), function(*arrays))


@pytest.mark.parametrize("function", elements.ROUNDED, ids=lambda f: f"{f.__module__}.{f.__name__}")
def test_numbers_are_rounded(function: Any) -> None:
    given = numbers(F32)
    if function is not elements.bfloat16.renewed:
        given = given[~np.isnan(given)]
    with np.errstate(all="ignore"):
        assert_same(computed(elements.ROUNDED[function], [given], F32), function(given))


@rows("given, to", [*itertools.product(KINDS, KINDS)])
def test_numbers_are_converted(given: np.dtype, to: np.dtype) -> None:
    element, x = cast_of(given, to), numbers(given)
    if element is None:
        assert given != F32 or to not in (F16, BF16)
        return
    with np.errstate(all="ignore"):
        assert_same(computed(element, [x], to), x.astype(to))


@rows("given, to", [
    (s, t) for s, t in itertools.product(KINDS, KINDS) if s.itemsize == t.itemsize])
def test_bits_are_looked_at(given: np.dtype, to: np.dtype) -> None:
    element, x = bits_of(given, to), numbers(given)
    if element is None:
        assert np.dtype(bool) in (given, to)
        return
    assert computed(element, [x], to).tobytes() == x.tobytes()


def test_every_bfloat16_is_what_ml_dtypes_rounds_to() -> None:
    bits = np.arange(1 << 16, dtype=np.uint32) << 16
    x = np.concatenate([bits | low for low in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]).view(F32)
    element = cast_of(F32, BF16)
    assert element is not None
    with np.errstate(all="ignore"):
        assert_same(computed(element, [x], BF16), x.astype(BF16))


def test_every_float16_is_numpys() -> None:
    x = np.arange(1 << 16, dtype=np.uint16).view(F16)
    up, down = cast_of(F16, F32), cast_of(F32, F16)
    assert up is not None and down is not None
    wide = computed(up, [x], F32)
    assert_same(wide, x.astype(F32))
    near = np.concatenate([np.nextafter(wide, t) for t in (-np.inf, np.inf)])
    with np.errstate(all="ignore"):
        assert_same(computed(down, [near.astype(F32)], F16), near.astype(F16))


@rows("columns", [1, 31, 64, 70])
@rows("dtype", [F32, BF16, F16, np.dtype(bool)])
def test_rows_columns_and_numbers_are_repeated(dtype: np.dtype, columns: int) -> None:
    rng = np.random.default_rng(0)
    x, row, column, number = ((rng.normal(size=s) * 3).astype(dtype) for s in (
        (5, columns), (1, columns), (5, 1), (1, 1)))
    which = rng.normal(size=(5, columns)) > 0
    loop = Loop(lambda w, x, r, c, n: (w.select(x, r), w.select(c, n)),
                " ".join(["i1", *[KINDS[dtype]] * 4]), " ".join([KINDS[dtype]] * 2),
                ["flat", "flat", ROW, COLUMN, NUMBER])
    assert loop.compiled()
    one, other = np.empty_like(x), np.empty_like(x)
    loop.over(5, columns, which, x, row, column, number, one, other)
    assert one.tobytes() == np.where(which, x, row).tobytes()
    assert other.tobytes() == np.where(which, column, number).tobytes()
