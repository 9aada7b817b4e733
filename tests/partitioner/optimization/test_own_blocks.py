"""Own rows of scans: windows of the rows before them where those take less, as in XLA."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardtrace as st
from shardtrace import lax
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ...executors import EXECUTORS
from ...rows import rows


def _step(f: Callable[..., Any], shape: tuple[int, ...], spec: P, dtype: str = "float32") -> Any:
    """(the jitted function, by the objective "xla", with values laid out as its result is)"""
    mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    values = np.random.default_rng(0).integers(-9, 9, shape).astype(dtype)
    step = st.jit(f, out_shardings=NamedSharding(mesh, spec),
                  compiler_options={"objective": "xla"})
    return step, values, st.device_put(values, NamedSharding(mesh, spec))


@rows("dtype", ["float32", "int32"])
@rows("reverse", [False, True])
@rows("scan", [lax.cumsum, lax.cummax, lax.cummin])
@rows("executor", EXECUTORS)
def test_few_own_rows_of_a_scan_are_windows(scan: Callable[..., Any], reverse: bool, dtype: str,
                                            executor: str) -> None:
    def f(x: Any) -> Any:
        return scan(x, axis=1, reverse=reverse)

    with st.config.override(shardtrace_engine=executor):
        step, values, split = _step(f, (3, 64), P(None, ("y", "x")), dtype)
        np.testing.assert_array_equal(step(split), st.jit(f)(values))
    names = step.lower(split).compile().explain().partitioned.local.op_names
    assert f"reduce_window_{scan.__name__[3:]}" in names and scan.__name__ not in names


@rows("f, shape, spec", [
    (lambda x: lax.cumsum(x, axis=0), (1024, 3), P(("x", "y"))),      # longer windows than blocks
    (lambda x: lax.cumprod(x, axis=0), (64, 3), P(("x", "y"))),       # no windows of products
    (lambda x: lax.cumsum(x, axis=0), (64, 8), P(None, "y"))])        # rows are whole
def test_other_scans_stay(f: Callable[..., Any], shape: tuple[int, ...], spec: P) -> None:
    step, values, split = _step(f, shape, spec)
    np.testing.assert_allclose(step(split), st.jit(f)(values), rtol=1e-6)
    names = step.lower(split).compile().explain().partitioned.local.op_names
    assert names & {"cumsum", "cumprod"} and "reduce_window_sum" not in names


def test_own_rows_of_a_scan_have_the_operations_of_xla() -> None:
    """8 rows of 128 windows of 64, 63 additions each; one or two for the place of the rows."""
    step, _, split = _step(lambda x: lax.cumsum(x, axis=0), (64, 128), P(("x", "y")))
    flops = step.lower(split).compile().cost_analysis()["flops"]
    assert flops == pytest.approx(8 * 128 * 63, abs=2)
