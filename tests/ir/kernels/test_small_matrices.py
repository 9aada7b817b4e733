"""Many small matrices at once have the results that LAPACK gives each of them alone."""
from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from scipy import linalg

from shardtrace.ir.kernels.matrices import gemm, small_matrices
from shardtrace.ir.kernels.matrices import linalg as stacked

from ...rows import rows

RNG = np.random.default_rng(3)


def random(dtype: str, *shape: int) -> np.ndarray:
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if dtype in "FD" else x).astype(dtype)


@rows("dtype", "fdFD")
@rows("shape", [(5, 5), (4, 6), (7, 3), (1, 1)])
def test_factors_and_pivots_are_those_of_lapack(dtype: str, shape: tuple[int, int]) -> None:
    a = random(dtype, 3, 20, *shape)
    a[1, 4] = 0                                     # singular
    a[2, 5, -1] = a[2, 5, 0]
    packed, pivots, _ = stacked.lu(0, a)
    assert packed.dtype == a.dtype
    for place in np.ndindex(3, 20):
        getrf, = linalg.get_lapack_funcs(("getrf",), (a,))
        wanted, rows, _ = getrf(a[place])
        np.testing.assert_array_equal(pivots[place], rows)
        np.testing.assert_allclose(packed[place], wanted, rtol=1e-4, atol=2e-5)


@rows("dtype", "fdFD")
@rows("spec, a, b", [
    ("nij,njk->nik", (2000, 3, 3), (2000, 3, 3)), ("nij,nj->ni", (9000, 4, 4), (9000, 4)),
    ("abji,abjk->abik", (40, 50, 2, 3), (40, 50, 2, 4)),
    ("nij,nkj->kin", (1500, 1, 4), (1500, 3, 4))])
def test_products_of_stacks_are_those_of_each(spec: str, a: tuple[int, ...], b: tuple[int, ...],
                                              dtype: str) -> None:
    x, y = random(dtype, *a), random(dtype, *b)
    operands, out = spec.split("->")
    left, right = operands.split(",")
    product = gemm.prepared(a, left, b, right, out, x.dtype)
    assert product is not None
    np.testing.assert_allclose(product(x, y), np.einsum(spec, x, y), rtol=1e-4, atol=1e-5)


@rows("left, lower, transposed, unit", list(itertools.product((False, True), repeat=4)))
def test_triangles_are_solved_from_every_side(left: bool, lower: bool, transposed: bool,
                                              unit: bool) -> None:
    a = random("D", 40, 6, 6) + 3 * np.eye(6)
    b = random("D", 40, 6, 2) if left else random("D", 40, 2, 6)
    x = stacked.triangular_solve(0, a, b, left_side=left, lower=lower, transpose_a=transposed,
                                 conjugate_a=False, unit_diagonal=unit)
    t = np.tril(a) if lower else np.triu(a)
    if unit:
        t[:, np.arange(6), np.arange(6)] = 1
    t = t.swapaxes(1, 2) if transposed else t
    np.testing.assert_allclose(t @ x if left else x @ t, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("dtype", "fdFD")
@pytest.mark.parametrize("size", [1, 2, 5])
def test_cholesky_factors_are_those_of_lapack_and_nan_where_there_is_none(dtype: str, size: int
                                                                          ) -> None:
    a = random(dtype, 3, 20, size, size)
    a = a @ a.swapaxes(-1, -2).conj() + np.eye(size, dtype=dtype)
    a += np.triu(random(dtype, size, size), 1)          # is not read
    wanted = np.linalg.cholesky(a)
    for place, value in (((1, 4), -1), ((2, 0), 0), ((2, 7), np.nan)):
        a[place][-1, -1] = value
        wanted[place] = np.nan
    with np.errstate(invalid="ignore"):                 # as where programs run
        found = stacked.cholesky(0, a)
    assert found.dtype == a.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("count", [1024, 1040, 1500])
def test_rows_of_a_stack_are_not_in_the_same_lines_of_the_cache(count: int) -> None:
    a = random("f", count, 8, 8)
    packed, pivots, _ = stacked.lu(0, a)
    other, rows, _ = stacked.lu(0, a[:200])
    np.testing.assert_array_equal(packed[:200], other)
    np.testing.assert_array_equal(pivots[:200], rows)
    assert small_matrices._stack_last(a).strides[1] % 128


def test_few_or_large_matrices_are_left_to_lapack() -> None:
    assert small_matrices.is_small(np.ones((16, 8, 8)))
    assert not small_matrices.is_small(np.ones((15, 8, 8)))
    assert not small_matrices.is_small(np.ones((1000, 33, 33)))
    assert not small_matrices.is_small(np.ones((1000, 0, 0)))
    assert small_matrices.is_small(np.ones((1000, 12, 12), np.float32))
    assert not small_matrices.is_small(np.ones((1000, 12, 12)))
    assert small_matrices.is_solved(np.ones((1000, 16, 16)), np.ones((1000, 16, 1)))
    assert not small_matrices.is_solved(np.ones((1000, 17, 17)), np.ones((1000, 17, 1)))
    assert small_matrices.is_factored(np.ones((192, 8, 8)))
    assert not small_matrices.is_factored(np.ones((191, 8, 8)))
    assert not small_matrices.is_factored(np.ones((1000, 17, 17), np.float32))


@rows("dtype", "fdFD")
@rows("shape", [(5, 4), (4, 5), (30, 30), (0, 3), (3, 0)])
def test_few_or_large_matrices_are_factored_as_by_scipy(dtype: str, shape: tuple[int, int]) -> None:
    a = random(dtype, 2, 3, *shape)
    kept = a.copy()
    packed, pivots, _ = stacked.lu(0, a)
    assert packed.dtype == a.dtype and packed.shape == a.shape
    assert pivots.shape == (2, 3, min(shape)) and pivots.dtype == np.int32
    for place in np.ndindex(2, 3) if a.size else ():
        wanted, rows = linalg.lu_factor(a[place]) if shape[0] == shape[1] else (
            linalg.get_lapack_funcs("getrf", (a,))(a[place])[:2])
        np.testing.assert_array_equal(packed[place], wanted)
        np.testing.assert_array_equal(pivots[place], rows)
    np.testing.assert_array_equal(a, kept)


def test_what_numpy_calls_lapack_for_is_left_to_it_but_where_very_many_are_tiny() -> None:
    assert small_matrices.is_tiny(np.ones((512, 4, 4)))
    assert not small_matrices.is_tiny(np.ones((511, 4, 4)))
    assert not small_matrices.is_tiny(np.ones((10_000, 8, 8)))
    a = random("f", 2048, 8, 8)
    a = a @ a.swapaxes(-1, -2) + np.eye(8, dtype="f")
    assert small_matrices.is_tiny(a)
    np.testing.assert_allclose(stacked.cholesky(0, a), np.linalg.cholesky(a), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize(("size", "dtype"), [(4, "f4"), (3, "i4"), (3, "e")])
def test_products_that_numpy_is_as_fast_with_are_left_to_it(size: int, dtype: str) -> None:
    assert not small_matrices.are_factors((5000, size, size), (5000, size, size), np.dtype(dtype))
    assert small_matrices.are_factors((5000, 3, 3), (5000, 3, 3), np.dtype("f4"))


@rows("name", ["cholesky", "eigh", "eigvalsh", "inv", "qr", "svd"])
def test_long_stacks_that_are_shared_among_threads_have_the_results_of_each(
        name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "share_count", lambda work: 3)
    g = random("f", 2, 301, 5, 5)
    a, function = g @ g.swapaxes(-1, -2) + 5 * np.eye(5, dtype="f"), getattr(np.linalg, name)

    def listed(found: Any) -> list[np.ndarray]:
        return [found] if isinstance(found, np.ndarray) else list(found)
    for found, wanted in zip(listed(stacked.by_numpy(function, a)), listed(function(a)),
                             strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_a_matrix_without_a_factor_does_not_spoil_a_long_stack(
        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stacked, "share_count", lambda work: 3)
    a = np.tile(np.eye(40, dtype="f"), (50, 1, 1))
    a[33] = -1
    found = stacked.cholesky(0, a)
    assert np.isnan(found[33][0, 0])
    np.testing.assert_array_equal(np.delete(found, 33, 0), np.delete(a, 33, 0))
