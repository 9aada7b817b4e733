"""The models of examples/ lose what they lose under JAX, step by step, in both executors.

JAX's losses were recorded by tests/record/examples.py, so these tests need no jax.
"""
from __future__ import annotations

import json
import re
import runpy
from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ..paths import DOCS, EXAMPLES, GOLDEN
from ..user_files import example_module

SOURCES = {
    path.stem: path for path in sorted(EXAMPLES.glob("*.py"))
    if path.stem not in ("sharding_tour", "llama70b_on_4096", "uneven_loss",     # train nothing
                         "autoshard")                                        # tests/planning
}
LOSSES: dict[str, list[float]] = json.loads((GOLDEN / "examples.json").read_text())
STEPS_PER_DEVICE = 2            # the second loss is that of what the first step has changed


def test_every_model_has_recorded_losses() -> None:
    assert sorted(LOSSES) == sorted(SOURCES)


@pytest.mark.parametrize("name", SOURCES)
def test_losses_are_those_of_jax(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    losses = example_module(name).main()
    np.testing.assert_allclose(losses, LOSSES[name], rtol=5e-5)
    assert np.mean(losses[-3:]) < losses[0], "the model does not learn"
    assert f"{losses[-1]:.5f}" in capsys.readouterr().out


@pytest.mark.parametrize("name", SOURCES)
def test_losses_on_separate_devices_are_those_of_jax(name: str) -> None:
    with st.config.override(shardtrace_engine="per_device"):
        losses = example_module(name).main(steps=STEPS_PER_DEVICE)
    np.testing.assert_allclose(losses, LOSSES[name][:STEPS_PER_DEVICE], rtol=5e-5)


@pytest.mark.parametrize("name", SOURCES)
def test_only_imports_name_the_library(name: str) -> None:
    lines = [line for line in SOURCES[name].read_text().splitlines() if "shardtrace" in line]
    assert lines and all(re.match(r"(from|import) shardtrace\b", line) for line in lines)


def test_the_page_of_examples_lists_them_all() -> None:
    page = (EXAMPLES / "README.md").read_text()
    assert set(re.findall(r"\(([\w/]+)\.py\)", page)) == {
        *SOURCES, "autoshard", "sharding_tour", "llama70b_on_4096", "uneven_loss",
        "engines/engine_xla", "engines/train_mpi"}


def test_a_sequence_that_does_not_divide_is_not_gathered(capsys: Any) -> None:
    runpy.run_path(str(DOCS.parent / "examples" / "uneven_loss.py"))
    *_, said = capsys.readouterr().out.splitlines()
    assert said == "received per device: 33,309,647 bytes without padding, 23 with it"


def test_both_kinds_of_mesh_are_shown() -> None:
    sources = [path.read_text() for path in SOURCES.values()]
    for kind in ("AxisType.Auto", "AxisType.Explicit"):
        assert sum(kind in source for source in sources) >= 4
