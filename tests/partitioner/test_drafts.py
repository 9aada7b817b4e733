"""Drafts: programs that are partitioned only to be judged by what they cost."""
from __future__ import annotations

import itertools
from collections import defaultdict
from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.program import Program
from shardtrace.ir.support.caches import forget
from shardtrace.partitioner import stages
from shardtrace.partitioner.pipeline import Options, partition
from shardtrace.sharding import AbstractMesh
from shardtrace.sharding import PartitionSpec as P

MESH = AbstractMesh((4, 2), ("data", "model"))


SPECS = (P("model"), P(None, "model"))


def trained(count: int) -> Program:
    """A step of gradient descent of so many layers."""
    def step(layers, x):
        def loss(layers):
            h = x
            for p in layers:
                h = h + jnp.tanh(h @ p["up"]) @ p["down"]
            return (h * h).mean()
        return st.tree.map(lambda p, g: p - 0.1 * g, layers, st.grad(loss)(layers))

    def struct(*shape: int) -> st.ShapeDtypeStruct:
        return st.ShapeDtypeStruct(shape, np.float32)

    layers = [{"up": struct(512, 2048), "down": struct(2048, 512)}] * count
    return st.jit(step).trace(layers, struct(1024, 512)).jaxpr


def test_a_draft_is_the_program_that_is_run() -> None:
    """Another plan than the usual one is taken here, and a draft of it need not be made again."""
    traced, specs = trained(3), [*SPECS * 3, P("data", "model")]
    made, draft = [partition(traced, mesh=MESH, in_shardings=specs, options=Options(
        objective="time", draft=is_draft)) for is_draft in (False, True)]
    assert made.taken != made.objective
    assert draft.taken == made.taken and programs_equal(draft.local, made.local)


def test_a_variant_is_partitioned_after_others_as_from_nothing() -> None:
    """Each differs from the first in one spec; nothing that others leave in caches counts."""
    traced, base = trained(2), [*SPECS * 2, P("data", "model")]
    variants = [base] + [[*base[:i], spec, *base[i + 1:]] for i in range(len(base)) for spec in (
        P(), P(("data", "model")), P(None, "data"))]
    options = Options(objective="time", draft=True)

    def texts(fresh: bool) -> list[str]:
        made = []
        for specs in variants:
            if fresh:
                forget()
            found = partition(traced, mesh=MESH, in_shardings=specs, options=options)
            made.append(str(found.local))
        return made

    after_others, by_itself = texts(False), texts(True)
    assert after_others == by_itself and len({*by_itself}) > len(base)


def test_drafts_that_choose_alike_are_lowered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program is laid out for all that split arguments further, and no two that are made of it,
    or of another, are equal where they are lowered.
    """
    run, given = stages.run_pass, defaultdict(list)

    def noted(step: Any, program: Program, request: Any, dump: Any = None) -> Program:
        given[step.name, request.objective.name].append((program, request))
        return run(step, program, request, dump)
    monkeypatch.setattr(stages, "run_pass", noted)
    partition(trained(1), mesh=MESH, in_shardings=[*SPECS, P(("data", "model"))],
              options=Options(objective="time", draft=True))
    laid_out = [request.objective.idle for _, request in given["propagate", "time"]]
    assert len(laid_out) == len({*laid_out})
    lowered = [program for program, _ in given["localize", "time"]]
    assert 1 < len(lowered) < len(given["insert-reshards", "time"])
    assert not any([programs_equal(a, b) for a, b in itertools.combinations(lowered, 2)])
