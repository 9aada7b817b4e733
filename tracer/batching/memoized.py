"""Memoized functions of several ops (tracer/staging/memoized.py) under a mapped axis.

For arguments of the same types, mapped along the same dimensions, the equations that such a
function recorded around the vmap are recorded again, as rule_memo.py does for single ops.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.settings.context import STATE, config
from ...ir.source.location import capture
from ..staging.memoized import BUILDERS, MAPPED, Known, add_to_key, may_warn
from ..staging.steps import MISS, Steps, marks, owner_of, steps_since
from ..staging.tracer import Tracer
from .interpreter import BatchedVar, VmapBuilder


def _inputs(builder: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> tuple[tuple[Any, ...], list[Tracer], list[Any]] | None:
    """(key of a call, the tracers among its arguments, what these are around the vmap); None where
    nothing is remembered of such a call.
    """
    parts: list[Any] = [owner_of(builder.axis), STATE.abstract_mesh, config._key, *kwargs]
    given: list[Tracer] = []
    if not add_to_key((*args, *kwargs.values()), parts, given):
        return None
    values: list[Any] = []
    mapped = False
    for x in given:
        value = x
        if x.builder is builder:
            var: Any = x.variable
            value = var.value
            parts.append(var.dim)
            mapped = mapped or var.dim is not None
        if type(value) is not Tracer or value.builder is not builder.parent:
            return None
        parts.append(value.aval)
        values.append(value)
    if not mapped:                         # its equations are no batched ones
        return None
    variables = [x.variable for x in values]
    if len({*variables}) < len(variables):
        parts.append(tuple([variables.index(v) for v in variables]))
    return tuple(parts), given, values


def _mapped(table: Known, f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
            ) -> Any:
    """`f(*args, **kwargs)`, whose table this is."""
    state = STATE
    builder: Any = state.interpreter
    parent = builder.parent
    if parent is not builder.outer or type(parent) not in BUILDERS or builder.casting \
            or state.overrides or state.on_equation:
        return f(*args, **kwargs)
    inputs = _inputs(builder, args, kwargs)
    if inputs is None:
        return f(*args, **kwargs)
    key, given, values = inputs
    found = table[key]
    if found is MISS:
        return f(*args, **kwargs)
    place = builder.location or capture()
    if found is not None:
        steps, kinds, several = found
        results = [x if kind is None else
                   Tracer(builder, BatchedVar(kind[0], x, kind[1], op=kind[2], location=place))
                   for x, kind in zip(steps.repeat((parent,), values, place.under("batch")), kinds,
                                      strict=True)]
        return tuple(results) if several else results[0]
    before = marks((parent,))
    result = f(*args, **kwargs)
    several = type(result) is tuple
    results = list(result) if several else [result]
    at = place.under("batch").key
    if not may_warn([x.aval for x in given]) and all(
            [e.location.key == at for e in parent.eqns[before[0][0]:]]):
        steps = _steps(builder, before, values, results)
        if steps is not None:
            table[key] = *steps, several
    return result


def _steps(builder: VmapBuilder, before: list[tuple[int, ...]], values: list[Any],
           results: list[Any]) -> tuple[Steps, list[Any]] | None:
    """What was recorded around the vmap, and of each result what its variable says of it."""
    outer, kinds = [], []
    for x in results:
        kind = None
        if type(x) is not Tracer:
            return None
        if x.builder is builder:
            var: Any = x.variable
            kind, x = (x.aval, var.dim, var.op), var.value
        outer.append(x)
        kinds.append(kind)
    parent: Any = builder.parent
    steps = steps_since(before, (parent,), values, outer)
    return None if steps is None else (steps, kinds)


MAPPED[VmapBuilder] = _mapped
