"""Towers of transformations, in all orders, give what they give under JAX.

`compositions.py` builds the programs, and JAX's values were recorded by
`tests/record/compositions.py`. Where JAX itself gives up on a program, shardtrace may refuse it
too, or else must give the value that JAX finds on the Auto mesh of the same shape.
"""
from __future__ import annotations

import json
import random

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.errors import ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..rows import rows
from . import compositions

GOLDEN: dict[str, dict[str, list[float] | None]] = json.loads(compositions.TABLE.read_text())
TOWER = compositions.Tower(st, jnp, lax, P)
SEED, SLICE = 7, 20


def mesh_of(name: str) -> st.sharding.Mesh:
    shape, kinds = compositions.MESHES[name]
    return st.make_mesh(shape, compositions.AXES,
                        axis_types=tuple(getattr(AxisType, kind) for kind in kinds))


def check(word: str, mesh_name: str, executor: str) -> None:
    mesh = mesh_of(mesh_name)
    x = st.device_put(compositions.argument(), NamedSharding(mesh, P("x")))
    expected = GOLDEN[mesh_name][word]
    try:
        with st.set_mesh(mesh), st.config.override(shardtrace_engine=executor):
            result = st.jit(TOWER.build(word))(x)
    except (ShardingTypeError, TypeError):
        assert expected is None, "JAX accepts this program"
        return
    if expected is None:
        expected = GOLDEN["auto"][word] if mesh_name != "mixed" else None
    if expected is not None:
        error = np.subtract(compositions.summary(result), expected)
        assert np.linalg.norm(error) <= 1e-5 + 2e-4 * np.linalg.norm(expected)


def chosen() -> list[tuple[str, str, str]]:
    """A slice of all cases that is the same in every run."""
    rng = random.Random(SEED)
    words = rng.sample(compositions.WORDS, SLICE) + rng.sample(compositions.PAIRS, SLICE)
    return [(word, mesh, executor) for i, word in enumerate(words)
            for mesh in compositions.MESHES
            for executor in (("simulated", "per_device") if i % 3 == 0 else ("simulated",))]


@rows("word, mesh_name, executor", chosen())
def test_tower_gives_what_jax_gives(word: str, mesh_name: str, executor: str) -> None:
    check(word, mesh_name, executor)


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["simulated", "per_device"])
@pytest.mark.parametrize("mesh_name", compositions.MESHES)
@pytest.mark.parametrize("first", compositions.TRANSFORMATIONS + compositions.SELDOM)
def test_all_towers_give_what_jax_gives(first: str, mesh_name: str, executor: str) -> None:
    for word in compositions.WORDS + compositions.PAIRS:
        if word.startswith(first + "."):
            try:
                check(word, mesh_name, executor)
            except Exception as error:
                error.add_note(f"in {word} on the mesh {mesh_name!r}")
                raise


def test_jax_gave_a_value_for_nearly_every_tower() -> None:
    for values in GOLDEN.values():
        assert len(values) == len(compositions.WORDS + compositions.PAIRS)
        assert sum(v is None for v in values.values()) < 0.1 * len(values)
