"""Sets of numbers beside numpy's, of few elements, which are compared, and of many, which are
searched for."""
from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import shardtrace.numpy as jnp
from shardtrace.tracer.jnp.indexing import sets

KINDS = ["int32", "uint8", "bool", "float32", "float16"]
numbers = some.lists(some.sampled_from([0, 1, 2, 3, 100, np.nan]), max_size=8)


def array(values: list[float], kind: str) -> np.ndarray:
    if "float" not in kind:
        values = [0 if v != v else v for v in values]
    return np.array(values, np.float64).astype(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pairs", [0, 1 << 20], ids=["searched", "compared"])
@given(a=numbers, b=numbers)
def test_sets_are_those_of_numpy(kind: str, pairs: int, a: list[float], b: list[float]) -> None:
    x, y = array(a, kind), array(b, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sets, "_MOST_PAIRS", pairs)
        np.testing.assert_array_equal(jnp.isin(x.reshape(-1, 1), y), np.isin(x.reshape(-1, 1), y))
        np.testing.assert_array_equal(jnp.isin(x, y, invert=True, method="sort"),
                                      np.isin(x, y, invert=True))
        np.testing.assert_array_equal(jnp.setdiff1d(x, y), np.setdiff1d(x, y))
        found = jnp.intersect1d(x, y, return_indices=True)
    for own, theirs in zip(found, np.intersect1d(x, y, return_indices=True), strict=True):
        np.testing.assert_array_equal(own, theirs)


def test_many_elements_take_no_memory_for_all_pairs() -> None:
    many = np.arange(300_000)
    assert int(jnp.isin(many, many[::3]).sum()) == 100_000
    values, at, there = jnp.intersect1d(many, many[::-2], return_indices=True)
    np.testing.assert_array_equal(values, many[1::2])
    np.testing.assert_array_equal(at, values)
    np.testing.assert_array_equal(many[::-2][np.asarray(there)], values)


def test_the_least_common_element_fills_up_beside_nan() -> None:
    x, y = jnp.array([np.nan, 1.5, 0.5]), jnp.array([1.5, np.nan])
    assert jnp.intersect1d(x, y, size=3).tolist() == [1.5, 1.5, 1.5]
