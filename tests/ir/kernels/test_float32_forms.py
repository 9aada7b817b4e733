"""Float32 forms of special functions are as exact as they say, and right at the ends."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import special

from shardtrace.ir.kernels.elementwise import float32_forms

TINY = np.logspace(-37, 0, 20_001).astype(np.float32)
WIDE = np.linspace(-12, 12, 400_001).astype(np.float32)
POSITIVE = np.logspace(-3, 37, 20_001).astype(np.float32)


@pytest.mark.parametrize(("name", "exact", "x", "ulps"), [
    ("erf", special.erf, np.concatenate([WIDE, TINY, -TINY]), 6.5),
    ("erfc", special.erfc, WIDE[WIDE < 1], 8.5),
    ("log1p", np.log1p, np.concatenate([WIDE[WIDE > -1], TINY, -TINY[:-1], POSITIVE]), 5),
    ("expm1", np.expm1, np.concatenate([WIDE, TINY, -TINY]), 5)])
def test_a_form_is_off_by_no_more_than_it_says(name: str, exact: Any, x: np.ndarray, ulps: float
                                               ) -> None:
    with np.errstate(all="ignore"):
        found = getattr(float32_forms, name)(x)
    wanted = exact(x.astype(np.float64))
    assert found.dtype == np.float32
    off = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert off.max() <= ulps


def test_small_values_of_erfc_are_right_to_six_digits() -> None:
    x = WIDE[(WIDE > 1) & (WIDE < 9)]
    np.testing.assert_allclose(float32_forms.erfc(x), special.erfc(x.astype(np.float64)), rtol=5e-6)


@pytest.mark.parametrize(("name", "values"), [
    ("erf", [(np.inf, 1), (-np.inf, -1), (0.0, 0.0), (-0.0, -0.0), (np.nan, np.nan)]),
    ("erfc", [(np.inf, 0.0), (-np.inf, 2), (0.0, 1), (np.nan, np.nan)]),
    ("log1p", [(np.inf, np.inf), (-1, -np.inf), (-2, np.nan), (-np.inf, np.nan), (0.0, 0.0),
               (-0.0, -0.0), (np.nan, np.nan)]),
    ("expm1", [(np.inf, np.inf), (-np.inf, -1), (0.0, 0.0), (-0.0, -0.0), (100, np.inf),
               (np.nan, np.nan)])])
def test_ends_are_those_of_the_function(name: str, values: list[tuple[float, float]]) -> None:
    x, wanted = np.array(values, np.float32).T
    with np.errstate(all="ignore"):
        found = getattr(float32_forms, name)(x)
    np.testing.assert_array_equal(found, wanted)
    assert (np.signbit(found) == np.signbit(wanted))[wanted == 0].all()


@pytest.mark.parametrize(("name", "low", "high"), [("exp", -80, 80), ("log", 1e-3, 1e3)])
def test_few_numbers_are_as_exact_as_float32_is(name: str, low: float, high: float) -> None:
    function = float32_forms.in_float64_if_few(getattr(np, name))
    x = np.random.default_rng(0).uniform(low, high, (400, float32_forms.FEW)).astype(np.float32)
    wanted = getattr(np, name)(x.astype(np.float64))
    found = np.stack([function(row) for row in x])
    assert found.dtype == np.float32
    off = np.abs(found - wanted) / np.spacing(np.abs(wanted).astype(np.float32))
    assert off.max() <= 0.501
    np.testing.assert_array_equal(function(x), getattr(np, name)(x))       # which are many
    for other in (np.float64, np.complex64):
        assert function(x[0].astype(other)).dtype == other


def test_overflow_is_infinite_as_for_many_numbers() -> None:
    x = np.array([89, -104, np.inf, -np.inf, np.nan], np.float32)
    with np.errstate(all="ignore"):
        found = float32_forms.in_float64_if_few(np.exp)(x)
    np.testing.assert_array_equal(found, np.array([np.inf, 0, np.inf, 0, np.nan], np.float32))
