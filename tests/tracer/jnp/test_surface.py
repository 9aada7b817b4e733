"""2400 expressions of numpy, lax and nn give what JAX gives: types, values, equations, errors.

What JAX gives is in tests/golden/surface.txt, see `surface.py`.
"""
from __future__ import annotations

import re
import warnings
from typing import Any

import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn
from shardtrace.ir.program import Literal, Program

from . import surface

LINES = surface.lines()
CHUNK = 120
ENVIRONMENT = {"jnp": jnp, "lax": lax, "nn": nn, "np": surface.np, "linalg": lax.linalg}


@pytest.fixture(scope="module")
def arrays() -> dict[str, Any]:
    return {n: jnp.asarray(x) for n, x in surface.operands().items()}


def equations(program: Program, known: set[Any], names: list[str]) -> list[bool]:
    """Names of the equations as `tests/record/surface.py` lists them."""
    def constant(atom: Any) -> bool:
        return isinstance(atom, Literal) or atom in known

    for eqn in program.eqns:
        inputs = [constant(a) for a in eqn.invars]
        inner = eqn.params.get("jaxpr") if eqn.op.name == "jit" else eqn.params.get("call_jaxpr")
        if inner is not None:
            held = {v for v, c in zip(inner.invars, inputs, strict=True) if c}
            known.update(v for v, c in zip(eqn.outvars, equations(inner, held, names), strict=True)
                         if c)
        elif inputs and all(inputs) and all(v.aval.shape == () for v in eqn.outvars):
            known.update(eqn.outvars)
        else:
            names.append(eqn.op.name)
    return [constant(a) for a in program.outvars]


def in_jax(message: str) -> str:
    """A message, which calls the package by its name or as it was imported, in JAX's names."""
    return re.sub(r"\b(?:st|shardtrace)\.", "jax.", re.sub(r"\bjnp\.", "jax.numpy.", message))


def difference(line: surface.Line, arrays: dict[str, Any]) -> str | None:
    """What is different from the line, None if nothing is."""
    operands = [arrays[n] for n in surface.operands_of(line.expression)]
    f = surface.function_of(line.expression, ENVIRONMENT)
    try:
        program = st.make_jaxpr(f)(*operands).jaxpr
        results = surface.leaves(f(*operands))
    except Exception as error:
        kinds = [f"!{kind.__name__}" for kind in type(error).__mro__]
        if line.types in kinds and in_jax(line.numbers) in in_jax(" ".join(str(error).split("\n"))):
            return None
        return f"raises {type(error).__name__}: {str(error).splitlines()[0]}"
    if line.types.startswith("!"):
        return f"does not raise {line.types[1:]}"
    types = " ".join(("~" if v.aval.weak_type else "") + v.aval.str_short(True)
                     for v in program.outvars)
    if types != line.types:
        return f"is of type {types}"
    if line.numbers:
        tolerance = 3e-2 if "bf16" in types or "f16" in types else 1e-3
        for x, text in zip(results, line.numbers.split("; "), strict=True):
            if not surface.agree(x, text, tolerance):
                return f"has numbers {surface.printed(x)}"
    if line.equations != "*":
        names: list[str] = []
        equations(program, set(), names)
        if " ".join(names).replace("-", "_") != line.equations.replace("-", "_"):
            return f"consists of {' '.join(names)}"
    return None


@pytest.mark.parametrize("start", range(0, len(LINES), CHUNK))
def test_expressions_give_what_they_give_in_jax(start, arrays):
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in LINES[start:start + CHUNK]:
            found = difference(line, arrays)
            if found is not None:
                wrong.append(f"{line.expression} {found}; in JAX: {' | '.join(line[1:])}")
    assert not wrong, "\n".join(wrong)


def test_the_table_is_recorded():
    assert [line.expression for line in LINES if not line.types] == []
