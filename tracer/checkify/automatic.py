"""Checks that checkify adds on its own: NaN, division by zero, positions out of bounds.

A rule binds the equation and adds to the error. Ops say whether NaN is looked for in their results
(`MAY_BE_NAN`); the checked ops are those that JAX checks.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.facts import MAY_BE_NAN
from ...ir.op import Op
from ...ir.program import Equation
from ...ir.spec import PartitionSpec
from ...ir.support.registry import Registry
from ...ir.values.typeof import typeof
from ..autodiff.replay import Scalar, process
from ..jnp.elementwise.logic import isnan
from ..jnp.manipulation.joining import stack
from ..jnp.reductions.reduce import any as any_of
from ..shardings.sharding_functions import reshard
from .errors import DivisionByZeroError, Error, JaxException, NaNError, OOBError, failure

Enabled = frozenset[type[JaxException]]

rule = Registry()
"""op name -> (error, enabled, operands, equation) -> (error, results)."""


def rule_of(op: Op) -> Callable[..., tuple[Error, list[Any]]] | None:
    """The rule for equations of an op; None where nothing is checked."""
    return rule.get(op.name) or (_nan if MAY_BE_NAN in op.facts else None)


def _look(error: Error, pred: Any, error_type: type[JaxException], details: tuple,
          eqn: Equation, shown: Any = None) -> Error:
    return error.then(failure(pred, error_type, details, eqn.location, shown))


def _without_nan(error: Error, enabled: Enabled, eqn: Equation, results: Sequence[Any]) -> Error:
    if NaNError not in enabled:
        return error
    for x in results:
        t = typeof(x)
        if issubdtype(t.dtype, np.inexact) and not t.spec.unreduced:
            error = _look(error, any_of(isnan(x)), NaNError, (eqn.op.name,), eqn)
    return error


def _nan(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation
         ) -> tuple[Error, list[Any]]:
    results = process(eqn.op, operands, eqn.params)
    return _without_nan(error, enabled, eqn, results), results


@rule("div", "floor_div")
def _quotient(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation
              ) -> tuple[Error, list[Any]]:
    divisor = operands[1]
    if DivisionByZeroError in enabled and not (type(divisor) is Scalar and divisor.value):
        error = _look(error, any_of(divisor == 0), DivisionByZeroError, (), eqn)
    return _nan(error, enabled, operands, eqn)


# -- positions -------------------------------------------------------------------------------------

def _inside(error: Error, eqn: Equation, shape: tuple[int, ...],
            columns: Sequence[tuple[int, Any, int]]) -> Error:
    """Look at positions. columns: for each dimension that is indexed its number, arrays of
    positions, all of one shape, and the largest one."""
    if not columns:
        return error
    positions = [x for _, x, _ in columns]
    outside = stack([(x < 0) | (x > min(most, np.iinfo(typeof(x).dtype).max))
                     for x, (_, _, most) in zip(positions, columns, strict=True)], -1).reshape(-1)
    at = outside.argmax()
    column = at % len(columns)
    axis, size = _choose(column, [d for d, _, _ in columns]), _choose(
        column, [shape[d] for d, _, _ in columns])
    index = stack(positions, -1).reshape(-1)[at]
    shown = stack([index.astype(np.int32), axis, size])
    return _look(error, any_of(outside), OOBError, (eqn.op.name, shape), eqn, shown)


def _choose(which: Any, numbers: Sequence[int]) -> Any:
    """The one of some numbers that `which` counts; without an array of constants."""
    total: Any = 0
    for i, n in enumerate(numbers):
        total = total + (which == i) * np.int32(n)
    return total


def _whole(x: Any) -> Any:
    """Positions, on every device: the first of all that are wrong is looked for."""
    t = typeof(x)
    return reshard(x, PartitionSpec(*[None] * t.ndim)) if any(t.entries) else x


def _columns(dims: Sequence[int], positions: Any, most: Sequence[int]
             ) -> list[tuple[int, Any, int]]:
    positions = _whole(positions)
    return [(d, positions[..., j], n) for j, (d, n) in enumerate(zip(dims, most, strict=True))]


@rule("dynamic_slice", "dynamic_update_slice")
def _window(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation
            ) -> tuple[Error, list[Any]]:
    """The window is inside the operand: starts are at most size - window."""
    results = process(eqn.op, operands, eqn.params)
    if OOBError in enabled:
        shape = typeof(operands[0]).shape
        update = eqn.op.name == "dynamic_update_slice"
        sizes = typeof(operands[1]).shape if update else eqn.params["slice_sizes"]
        error = _inside(error, eqn, shape, [
            (d, x, n - k) for d, (x, n, k) in enumerate(
                zip(operands[1 + update:], shape, sizes, strict=True))])
    return error, results


@rule("gather")
def _gather(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation
            ) -> tuple[Error, list[Any]]:
    results = process(eqn.op, operands, eqn.params)
    if OOBError in enabled:
        shape, sizes = typeof(operands[0]).shape, eqn.params["slice_sizes"]
        dims = eqn.params["dimension_numbers"].start_index_map
        error = _inside(error, eqn, shape, _columns(
            dims, operands[1], [shape[d] - sizes[d] for d in dims]))
    return error, results


@rule("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
def _scatter(error: Error, enabled: Enabled, operands: Sequence[Any], eqn: Equation
             ) -> tuple[Error, list[Any]]:
    """Windows are inside the operand, and the result has no NaN."""
    results = process(eqn.op, operands, eqn.params)
    if OOBError not in enabled:
        return error, results
    shape, updates = typeof(operands[0]).shape, typeof(operands[2]).shape
    numbers = eqn.params["dimension_numbers"]
    single = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    window = iter(numbers.update_window_dims)
    sizes = [1 if d in single else updates[next(window)] for d in range(len(shape))]
    dims = numbers.scatter_dims_to_operand_dims
    error = _inside(error, eqn, shape, _columns(
        dims, operands[1], [shape[d] - sizes[d] for d in dims]))
    return _without_nan(error, enabled, eqn, results), results
