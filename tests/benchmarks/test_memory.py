"""A run allocates about what plain numpy does: counted in one process that runs nothing else.

What other tests have left, in caches and for the garbage collector, would be counted otherwise.
"""
from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest

from ..paths import ROOT, module_of_benchmarks

BOUNDS = {
    "chain of 20 on 4M floats": 1.0, "mlp forward, tensor parallel": 1.0,
    "mlp step, data parallel": 1.0, "mlp step, data x tensor, auto": 1.03,
    "layer norm and its gradient": 1.1, "attention forward": 1.0,
    "transformer block forward and backward": 0.9, "shard_map, chain of all_to_all": 1.1,
    "chain of reshards": 1.0, "recurrence, its gradient": 1.35, "convolutions": 1.0,
    "sorts and running sums": 1.15, "embedding and its gradient": 1.0,
    "experts, dense dispatch": 0.9, "24 layers step, scanned": 1.15,
    "24 layers step, unrolled, auto": 1.15}


def _some_layers(arguments: tuple[Any, Any]) -> tuple[Any, Any]:
    w, x = arguments
    if isinstance(w, list):
        return w[:4], x
    return {name: v._replace(value=v.value[:4]) for name, v in w.items()}, x


def _allocated() -> dict[str, tuple[int, int]]:
    """By program, the peak bytes of shardtrace and of numpy."""
    suite, library, worker = (module_of_benchmarks(name) for name in (
        "suite", "suite.library", "suite.worker"))
    found = {}
    for name in BOUNDS:
        p = suite.names()[name]
        if name.startswith("24 layers"):        # four of them
            p = dataclasses.replace(p, arguments=lambda rng, whole=p.arguments: _some_layers(
                whole(rng)))
        plain = worker.Worker("numpy", p).allocated(runs=1)
        lib = library.Library("shardtrace", p.mesh, p.explicit)
        with lib.context():
            found[name] = worker.Worker("shardtrace", p, lib=lib).allocated(runs=3), plain
    return found


@pytest.fixture(scope="module")
def allocated() -> dict[str, tuple[int, int]]:
    run = subprocess.run(
        [sys.executable, "-c", "import json; from tests.benchmarks import test_memory as t; "
         "print(json.dumps(t._allocated()))"], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", BOUNDS)
def test_a_run_allocates_no_more_than_plain_numpy(
        name: str, allocated: dict[str, tuple[int, int]]) -> None:
    own, plain = allocated[name]
    assert own <= BOUNDS[name] * plain, f"{own:,} bytes, numpy {plain:,}"
