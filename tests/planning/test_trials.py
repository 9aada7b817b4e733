"""Trials of plans: each is partitioned and judged as it would be by itself."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.program import Program
from shardtrace.ir.support.caches import forget
from shardtrace.partitioner.pipeline import Options, Partitioned, partition
from shardtrace.planning import trials
from shardtrace.sharding import AbstractMesh

from .models import shape, trained


def layers(params: Any, x: Any, y: Any) -> Any:
    def layer(h: Any, p: Any) -> tuple[Any, None]:
        return h + jnp.tanh(h @ p["up"]) @ p["down"], None
    return jnp.mean((st.lax.scan(layer, x, params)[0] - y) ** 2)


def test_a_plan_is_partitioned_after_others_as_from_nothing(monkeypatch: pytest.MonkeyPatch
                                                            ) -> None:
    made: list[tuple[Program, dict[str, Any], Options, list[bool], str]] = []

    def noted(program: Program, *, options: Options, **asked: Any) -> Partitioned:
        answers: list[bool] = []
        judge: Callable[[Program], bool] | None = options.worthwhile

        def worthwhile(local: Program) -> bool:
            answers.append(judge is None or judge(local))
            return answers[-1]

        found = partition(program, options=options._replace(worthwhile=worthwhile), **asked)
        made.append((program, asked, options, answers, str(found.local)))
        return found

    monkeypatch.setattr(trials, "partition", noted)
    params = {"up": shape(3, 64, 256), "down": shape(3, 256, 64)}
    st.autoshard(trained(layers), params, shape(128, 64), shape(128, 64),
                 mesh=AbstractMesh((16, 2), ("data", "model")), hardware="h100")
    monkeypatch.undo()
    assert any(answers == [True] for _, _, _, answers, _ in made)
    for program, asked, options, answers, text in made[::max(1, len(made) // 12)]:
        forget()
        again = partition(program, options=options._replace(
            worthwhile=lambda _, said=answers: said[0]), **asked)
        assert str(again.local) == text
