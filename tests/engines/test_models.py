"""The models of examples/ on engines: they lose what they lose under JAX."""
from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import shardtrace as st

from ..paths import GOLDEN
from ..real_jax import real_jax
from ..user_files import example_module
from .conftest import ON_RANKS

LOSSES: dict[str, list[float]] = json.loads((GOLDEN / "examples.json").read_text())
QUICK = ("mlp",)
STEPS = 3


@pytest.mark.every_engine
@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in LOSSES])
def test_losses_are_those_of_jax(name: str, jax: Any) -> None:
    with st.config.override(engine="mpi" if ON_RANKS else "jax"):
        losses = example_module(name).main(steps=STEPS)
    np.testing.assert_allclose(losses, LOSSES[name][:STEPS], rtol=5e-6)


def test_the_example_of_the_engine(capsys: pytest.CaptureFixture[str]) -> None:
    real_jax()
    losses = example_module("engines/engine_xla").main(steps=4)
    said = capsys.readouterr().out
    assert losses[-1] < losses[0] and f"on XLA {losses[-1]:.5f}" in said
    assert "jax.shard_map(train_step" in said
