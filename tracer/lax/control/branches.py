"""cond and switch: one of several functions, chosen by a value.

All branches are traced, with the same operands, and become programs of one equation; values that
any of them closes over are operands of all. Names, signatures and messages are JAX's, but for two
things: the results vary over all that the predicate varies over, and the cast that a message
proposes is the one that helps.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.ops.control.loops_and_branches import cond_p
from ....ir.settings.context import jit_disabled
from ....ir.values.array import Array
from ....ir.values.typeof import typeof
from ...operands.dtype_promotion import dtype_name
from ...operands.rank_promotion import shape_of
from ...operands.scalars import LEVEL
from ...references import control_flow
from ...shardings.sharding_functions import traced_or_run
from ...trees import tree
from .. import elementwise
from ..conversion import convert_element_type
from .bodies import (
    Body,
    forwarded,
    hands_on,
    trace_body,
    with_common_captures,
    with_results,
)
from .carry import check_branches
from .in_python import STAGED, known

__all__ = ["cond", "switch"]
_ABSENT = object()


def cond(pred, true_fun, false_fun, *operands, operand=_ABSENT):
    """`true_fun(*operands)` if `pred` is true, else `false_fun(*operands)`; only one of them runs.

    pred: a scalar; numbers are true where they are not 0. Both functions are traced and must give
    results of the same types, else TypeError. operand: the only operand, as a keyword. An older
    form gives each function an operand: `cond(pred, true_operand, true_fun, false_operand,
    false_fun)`.

    Sharding
      Auto: both branches get one layout of the operands, and give one of the results.
      Explicit: the branches' results must have the same sharding, else TypeError.
      Manual: each device goes by its own predicate; the result varies over the axes it varies over.

    >>> st.lax.cond(True, lambda x: x + 1, lambda x: x - 1, 5)
    Array(6, dtype=int32, weak_type=True)
    """
    if len(operands) == 2 and callable(false_fun) and callable(operands[1]):
        taken, (other, not_taken) = false_fun, operands
        return cond(pred, lambda x, y: taken(x), lambda x, y: not_taken(y), true_fun, other)
    if not (callable(true_fun) and callable(false_fun)):
        raise TypeError("lax.cond: true_fun and false_fun arguments should be callable.")
    operands = _operands(operands, operand)
    if pred is None:
        raise TypeError("cond predicate is None")
    if isinstance(pred, (Sequence, dict)):
        raise TypeError(f"Pred must be a scalar, got {pred} of type {type(pred)}.")
    if not isinstance(pred, Array) and np.ndim(pred) or shape_of(pred):
        raise TypeError(f"Pred must be a scalar, got {pred} of shape {tuple(shape_of(pred))}.")
    try:
        dtype = dtype_name(pred)
    except TypeError:
        raise TypeError(f"Pred type must be either boolean or number, got {pred}.") from None
    level = LEVEL.get(dtype)
    number = level in (1, 2)             # integers and floats
    if level != 0 and not number:
        raise TypeError(f"Pred type must be either boolean or number, got {dtype}.")

    if jit_disabled() and (value := known(pred)) is not STAGED:
        return (true_fun if value else false_fun)(*operands)

    def index(value: Any) -> Any:
        if not isinstance(value, Array):
            return np.int32(bool(value))
        if number:
            value = elementwise.ne(value, np.zeros((), dtype)[()])
        return convert_element_type(value, np.int32)

    return _switch("cond", pred, index, (false_fun, true_fun), ("true_fun", "false_fun"), operands)


def switch(index, branches, *operands, operand=_ABSENT):
    """`branches[index](*operands)`: one of several functions, chosen while the program runs.

    index: an integer scalar; out of range it means the nearest branch. All branches are traced.
    Raises TypeError where the index is no integer scalar or the branches differ in the types of
    their results, and ValueError without branches.

    Sharding
      Auto: all branches get one layout of the operands, and give one of the results.
      Explicit: the branches' results must have the same sharding, else TypeError.
      Manual: each device goes by its own index; the result varies over the axes it varies over.

    >>> st.lax.switch(1, [lambda x: x, lambda x: -x, lambda x: x * x], 3.0)
    Array(-3., dtype=float32, weak_type=True)
    """
    if not all(map(callable, branches)):
        raise TypeError("lax.switch: branches argument should be a sequence of callables.")
    operands = _operands(operands, operand)
    if not isinstance(index, Array) and np.ndim(index) or shape_of(index):
        raise TypeError(f"Branch index must be scalar, got {index} of shape "
                        f"{tuple(shape_of(index))}.")
    try:
        dtype = dtype_name(index)
    except TypeError:
        raise TypeError(f"Index type must be an integer, got {index}.") from None
    if LEVEL.get(dtype) != 1:
        raise TypeError(f"Index type must be an integer, got {index} as {dtype}")
    branches = tuple(branches)
    if not branches:
        raise ValueError("Empty branch sequence")
    if len(branches) == 1:
        return branches[0](*operands)
    last = len(branches) - 1
    if jit_disabled() and (value := known(index)) is not STAGED:
        return branches[min(max(int(value), 0), last)](*operands)

    def number(value: Any) -> Any:
        if not isinstance(value, Array):
            return np.int32(min(max(int(value), 0), last))
        value = convert_element_type(value, np.int32)
        return elementwise.clamp(np.int32(0), value, np.int32(last))

    return _switch("switch", index, number, branches, (), operands)


def _operands(operands: tuple[Any, ...], operand: Any) -> tuple[Any, ...]:
    if operand is _ABSENT:
        return operands
    if operands:
        raise TypeError("if 'operand' keyword is passed then no positional operands can be "
                        f"passed, got operand={operand!r} and positional operands {operands}")
    return (operand,)


@control_flow.branching
def _switch(what: str, chosen: Any, index: Callable[[Any], Any],
            branches: tuple[Callable[..., Any], ...], names: tuple[str, ...],
            operands: tuple[Any, ...]) -> Any:
    """Trace the branches, check that their results agree in type, and bind a `cond` equation. what:
    the public function; index: from the chosen value to the number of a branch.
    """
    leaves, in_tree = tree.flatten(operands)
    trees: list[tree.PyTreeDef] = []

    def run(value: Any, *values: Any) -> list[Any]:
        place = index(value)
        types = [typeof(x) for x in values]
        # Each is traced once, and in `cond` true_fun first.
        each = {id(b): b for b in (branches if what != "cond" else reversed(branches))}
        found = {i: trace_body(b, in_tree, types) for i, b in each.items()}
        bodies = [found[id(b)] for b in branches]
        _check(what, names, branches, bodies)
        deciding = typeof(place).varying
        if deciding and any(deciding - t.varying for t in bodies[0].program.out_avals):
            bodies = [trace_body(b, in_tree, types, deciding) for b in branches]
        trees.append(bodies[0].out_tree)
        return _bind(place, bodies, list(values))

    if isinstance(chosen, Array):
        results = traced_or_run(what, run, chosen, *leaves)
    else:                                   # known while tracing: a number in the program
        results = traced_or_run(what, lambda *values: run(chosen, *values), *leaves)
    return tree.unflatten(trees[-1], results)


def _check(what: str, names: tuple[str, ...], branches: Sequence[Callable[..., Any]],
           bodies: Sequence[Body]) -> None:
    """Every branch against the first; in `cond`, the true one against the false one."""
    for i in range(1, len(branches)):
        pair = (1, 0) if what == "cond" else (0, i)
        called = names if what == "cond" else ("branch 0", f"branch{i}")
        check_branches(what, (called[0], called[1]), [branches[j] for j in pair],
                       [bodies[j].out_tree for j in pair],
                       [bodies[j].program.out_avals for j in pair],
                       [bodies[j].program for j in pair])


def _bind(place: Any, bodies: Sequence[Body], values: list[Any]) -> list[Any]:
    """Bind a `cond` equation. A result that is the same operand in every branch is that operand,
    and if all are, there is no equation.
    """
    programs, captured = with_common_captures(bodies)
    operands = [*captured, *values]
    if not all(map(hands_on, programs)):
        return cond_p.bind(place, *operands, branches=tuple(programs))
    kept: list[int | None] = []              # results that are the same operand in every branch
    for places in zip(*map(forwarded, programs), strict=True):
        same = len(set(places)) == 1 and places[0] is not None
        kept.append(places[0] if same else None)
    programs = [with_results(p, [i is None for i in kept]) for p in programs]
    if all(i is not None for i in kept) and not any(p.effects for p in programs):
        return [operands[i] for i in kept if i is not None]
    results = iter(cond_p.bind(place, *operands, branches=tuple(programs)))
    return [next(results) if i is None else operands[i] for i in kept]
