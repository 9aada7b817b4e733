"""Every op on both executors against tests/references, and that against JAX where it is.

Operands are the op's samples; the same shapes with NaN, infinities, zeros of both signs, denormals
and the extremes of integers; and with dimensions of size 0 and 1.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.types import array_type

from ...comparisons import same_bits
from ...executors import EXECUTORS
from ...references import ops as references
from ...references.interpreter import COARSE

NAN, INF = np.nan, np.inf
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 1e-40, -1e-40, 1e15, INF, -INF, NAN]
INTEGERS = [0, 1, -1, 2, 3, 7, -7, 31, 33, "min", "max"]
JUDGED = sorted(references.REFERENCES | references.CHECKS)


def special(rng: np.random.Generator, like: np.ndarray) -> np.ndarray:
    """Elements that programs trip over, in the shape and dtype of `like`."""
    dtype, shape = like.dtype, like.shape
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        pool = [getattr(bounds, v) if isinstance(v, str) else v for v in INTEGERS]
        return rng.choice([v for v in pool if v >= bounds.min], shape).astype(dtype)
    if dtype.kind == "c":
        # What infinite complex numbers give depends on how products are written.
        return (rng.choice(FLOATS[2:7], shape) + 1j * rng.choice(FLOATS[:7], shape)).astype(dtype)
    return rng.choice(FLOATS, shape).astype(dtype)


def resized(name: str, operands: Any, params: dict[str, Any], size: int
            ) -> Iterator[tuple[list[np.ndarray], dict[str, Any]]]:
    """The sample with the dimensions of one factor at this size, where the op takes that."""
    op = OPS[name]
    types = tuple(array_type(x.shape, x.dtype) for x in operands)
    results = tuple(t.shape for t in infer(op, types, params))
    rule = op.factor_rule(tuple(t.shape for t in types), results, params)
    for f in range(len(rule.factors)):
        def cut(shapes: Any, dims: Any, f: int = f) -> list[tuple[int, ...]]:
            return [tuple(size if list(d) == [f] else n for n, d in zip(s, ds, strict=True))
                    for s, ds in zip(shapes, dims, strict=True)]
        given, wanted = cut([t.shape for t in types], rule.operands), cut(results, rule.results)
        try:
            local = params if op.resize is None else op.resize(params, tuple(given), tuple(wanted))
            infer(op, tuple(array_type(s, x.dtype) for s, x in zip(given, operands, strict=True)),
                  local)
        except (TypeError, ValueError, NotImplementedError):
            continue
        yield [np.resize(x, s).astype(x.dtype) for x, s in zip(operands, given, strict=True)], local


def uses(name: str) -> Iterator[tuple[list[np.ndarray], dict[str, Any]]]:
    rng = np.random.default_rng(len(name))
    for sample in OPS[name].samples():
        operands, params = [np.asarray(x) for x in sample.operands], dict(sample.params)
        yield operands, params
        if name in references.CHECKS:
            continue
        for _ in range(2):
            yield [x if i in ORDINARY.get(name, ()) else special(rng, x)
                   for i, x in enumerate(operands)], params
        for size in (0, 1):
            yield from resized(name, operands, params, size)


# Sums, whose order and whose first zero are not defined.
SUMS = ("dot_general", "ragged_dot_general", "fft", "conv_general_dilated", "reduce_window_sum",
        "cumlogsumexp", "lu", "solve", "triangular_solve", "tridiagonal_solve", "cholesky",
        "reduce_sum", "select_and_scatter_add", "reduce")
# The smaller and the larger of zeros of both signs may have either.
UNSIGNED = ("min", "max", "cummin", "cummax", "reduce_min", "reduce_max", "reduce_window_min",
            "reduce_window_max", "scatter-min", "scatter-max", "clamp")
# Operands that stay as they are: positions and sizes, what zeros of a padding are multiplied with,
# what is divided by, NaN that is compared, and series that have no value at 0.
ORDINARY = {"lu_pivots_to_permutation": (0,), "ragged_dot_general": (0, 1, 2),
            "solve": (0,), "triangular_solve": (0,),
            "conv_general_dilated": (1,), "tridiagonal_solve": (0, 1, 2, 3), "cholesky": (0,),
            "lu": (0,), "polygamma": (0, 1), "select_and_gather_add": (1,),
            "select_and_scatter_add": (1,)}


def outcome(name: str, operands: list[np.ndarray], params: dict[str, Any], executor: str
            ) -> list[np.ndarray]:
    op = OPS[name]
    with st.config.override(shardtrace_engine=executor, jax_enable_x64=True):
        out = st.jit(lambda *xs: op.bind(*xs, **params))(*operands)
    return [np.asarray(x) for x in (out if op.multiple_results else [out])]


def expected(name: str, operands: list[np.ndarray], params: dict[str, Any]) -> list[Any]:
    with np.errstate(all="ignore"):
        out = references.REFERENCES[name](*operands, **params)
    return out if OPS[name].multiple_results else [out]


def agree(got: np.ndarray, want: Any, name: str) -> None:
    """Equal; floats up to a few roundings, with the same NaNs, infinities and signs of zeros."""
    with np.errstate(all="ignore"):
        want = np.asarray(want)
        want = want.astype(got.dtype) if want.dtype != object or got.dtype.kind in "iu" else (
            np.array(want.tolist(), got.dtype))
    if same_bits(got, want):
        return
    assert got.shape == want.shape
    if got.dtype.kind not in "fc":
        np.testing.assert_array_equal(got, want)
        return
    summed = got.dtype.kind == "c" or name in SUMS
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, want, rtol=1e-4 if COARSE.get(name, 1) > 100 else 2e-5,
                                   atol=1e-5 if summed else 1e-44)
    if summed or name in UNSIGNED:
        return
    zeros = (got == 0) & (want == 0)
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))


def test_every_op_has_a_reference_or_a_reason() -> None:
    judged = {*references.REFERENCES, *references.CHECKS, *references.COLLECTIVES,
              *references.ELSEWHERE}
    assert judged == set(OPS)


@pytest.mark.parametrize("name", JUDGED)
def test_both_executors_agree_with_the_reference(name: str) -> None:
    for operands, params in uses(name):
        wanted = None if name in references.CHECKS else expected(name, operands, params)
        for executor in EXECUTORS:
            got = outcome(name, operands, params, executor)
            if wanted is None:
                references.CHECKS[name](operands, got, params)
                continue
            try:
                for a, b in zip(got, wanted, strict=True):
                    agree(a, b, name)
            except AssertionError as error:
                raise AssertionError(f"{executor}: {params} of {operands}") from error
