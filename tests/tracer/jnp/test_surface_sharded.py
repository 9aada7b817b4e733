"""The expressions of tests/golden/surface.txt on sharded operands: the numbers stay the same.

On Auto meshes each of them runs; on Explicit meshes those that are well typed do.
"""
from __future__ import annotations

import warnings

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.diagnostics.errors import DuplicateSpecError, ShardingTypeError
from shardtrace.sharding import AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from . import surface

CHUNK = 300
ENVIRONMENT = {"jnp": jnp, "lax": lax, "nn": nn, "np": surface.np, "linalg": lax.linalg}
LINES = [line for line in surface.lines()
         if line.numbers and not line.types.startswith("!")
         and surface.operands_of(line.expression)]
SPECS = {"v": P("x"), "vi": P("x"), "t": P("x", None, "y"), "p": P(None, "x", "y"),
         "q": P(None, "x", "y"), "r": P("x", None, None, "y")}


pytestmark = pytest.mark.usefixtures("eight_devices")


def placed(kind):
    """The operands on a mesh of 2 by 2, and the mesh."""
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(kind, kind))
    arrays = {}
    for name, x in surface.operands().items():
        x = jnp.asarray(x)
        spec = SPECS.get(name, P("x", "y") if x.shape == (4, 4) else P())
        arrays[name] = st.device_put(x, NamedSharding(mesh, spec))
    return arrays, mesh


def wrong_numbers(line, arrays):
    f = surface.function_of(line.expression, ENVIRONMENT)
    results = surface.leaves(st.jit(f)(*(arrays[n] for n in surface.operands_of(line.expression))))
    tolerance = 3e-2 if "f16" in line.types else 1e-3
    return not all(surface.agree(x, text, tolerance)
                   for x, text in zip(results, line.numbers.split("; "), strict=True))


@pytest.mark.parametrize("start", range(0, len(LINES), CHUNK))
def test_sharded_operands_change_no_number(start):
    arrays, _ = placed(AxisType.Auto)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wrong = [line.expression for line in LINES[start:start + CHUNK]
                 if wrong_numbers(line, arrays)]
    assert not wrong


@pytest.mark.parametrize("start", range(0, len(LINES), CHUNK))
def test_what_is_well_typed_gives_the_same_numbers(start):
    arrays, mesh = placed(AxisType.Explicit)
    wrong, typed = [], 0
    with warnings.catch_warnings(), st.set_mesh(mesh):
        warnings.simplefilter("ignore")
        for line in LINES[start:start + CHUNK]:
            try:
                if wrong_numbers(line, arrays):
                    wrong.append(line.expression)
                typed += 1
            except (DuplicateSpecError, ShardingTypeError, ValueError):
                pass
    assert not wrong
    assert typed > CHUNK // 4 or len(LINES) - start < CHUNK
