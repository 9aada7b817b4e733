"""Memory traffic by kernels: by hand, and by what programs took on an H100 and an H200.

The times are recorded in golden/h100_times.json and golden/h200_times.json (`python
benchmarks/device_times.py --json FILE` on such a device).
"""
from __future__ import annotations

import importlib
import json
import sys

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn
from shardtrace.partitioner.cost.kernels import kernels, moved_bytes

from ...paths import GOLDEN, ROOT
from ...rows import rows

sys.path.insert(0, str(ROOT / "benchmarks"))
device_times = importlib.import_module("device_times")
PAGE = (ROOT / "docs" / "cost-model.md").read_text()
RECORDED = {kind: json.loads((GOLDEN / f"{kind}_times.json").read_text())
            for kind in ("h100", "h200")}
ROWS = st.ShapeDtypeStruct((512, 1024), np.float32)


def passes(f, *args, keeps_rows=False):
    """How often the bytes of one operand go through memory, small values aside."""
    program = st.jit(f).lower(*args).compile().program
    return round(sum(moved_bytes(program, keeps_rows).values()) / (4 * args[0].size), 1)


def test_a_chain_of_elementwise_equations_reads_once_and_writes_once() -> None:
    assert passes(lambda x: jnp.tanh(jnp.sin(x) + 1) * 2, ROWS) == 2


def test_what_a_kernel_makes_is_not_read_again_and_what_several_read_is_read_once() -> None:
    def adam(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v
    assert passes(adam, ROWS, ROWS, ROWS, ROWS) == 7            # four are read, three written
    assert passes(lambda x: (x.max(), x.min(), (x * x).sum()), ROWS) == 1


def test_what_waits_for_another_kernel_reads_again() -> None:
    assert passes(lambda x: x - x.sum(0), ROWS) == 3
    assert passes(lambda x: x / jnp.linalg.norm(x), ROWS) == 3


def test_rows_stay_at_hand_on_switched_devices_alone() -> None:
    assert passes(nn.softmax, ROWS) == 5
    assert passes(nn.softmax, ROWS, keeps_rows=True) == 2
    columns = passes(lambda x: nn.softmax(x, axis=0), ROWS)
    assert columns == passes(lambda x: nn.softmax(x, axis=0), ROWS, keeps_rows=True) == 5


def test_rows_that_are_a_result_too_are_written() -> None:
    def both(x):
        e = jnp.exp(x - x.max(-1, keepdims=True))
        return e / e.sum(-1, keepdims=True), e
    assert passes(both, ROWS, keeps_rows=True) == 3


def test_moved_elements_are_read_with_the_others() -> None:
    assert passes(lambda x: sum(jnp.roll(x, n, 0) for n in (1, -1, 2, -2)), ROWS) == 2
    assert passes(lambda x: x.T + 1, ROWS) == 2


def count(f, *args, keeps_rows=False):
    """How many kernels a program takes."""
    return len(kernels(st.jit(f).lower(*args).compile().program, keeps_rows).first)


def test_kernels_are_counted() -> None:
    def adam(p, g, m, v):
        m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
        return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v
    assert count(lambda x: jnp.tanh(jnp.sin(x) + 1) * 2, ROWS) == 1
    assert count(adam, ROWS, ROWS, ROWS, ROWS) == 1
    assert count(lambda a, b: (adam(*a), adam(*b)), [ROWS] * 4, [ROWS] * 4) == 2
    assert count(lambda x, w: nn.relu(x @ w + 1), ROWS, ROWS.update(shape=(1024, 64))) == 2
    assert count(nn.softmax, ROWS) == 3 and count(nn.softmax, ROWS, keeps_rows=True) == 1
    assert count(lambda x: x.reshape(-1), ROWS) == 0


def test_a_kernel_takes_what_starting_it_takes_on_gpus() -> None:
    def steps(x):
        return st.lax.fori_loop(0, 1000, lambda i, x: x * 0.5 + 1, x)
    few = st.ShapeDtypeStruct((64,), np.float32)
    assert st.explain(steps, "h200")(few).time == pytest.approx(1000 * 1.4e-6, rel=0.01)
    assert st.explain(steps, "v5p")(few).time < 1e-6


@rows("name", RECORDED["h100"])
def test_times_are_those_of_an_h100_and_an_h200(name) -> None:
    """The model knows peak rates; it says 0.58 to 1.39 of what programs take. What is bound by
    arithmetic or by the order of accesses takes longer than that."""
    models = {kind: device_times.modelled(name, kind) for kind in RECORDED}
    parts = {kind: model / RECORDED[kind][name] for kind, model in models.items()}
    times = f"{models['h100'] * 1e3:.3g} | {RECORDED['h100'][name] * 1e3:.3g}"
    assert f"| {name} | {times} | {parts['h100']:.2f} | {parts['h200']:.2f} |" in PAGE
    if name in device_times.OTHERWISE:
        assert max(parts.values()) < 0.62
    else:
        assert 0.57 < min(parts.values()) and max(parts.values()) < 1.4
