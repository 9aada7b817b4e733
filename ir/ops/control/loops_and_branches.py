"""`scan`, `while` and `cond`: programs run several times, or one of several.

The operands are values that the programs close over, then carries, then what is iterated over. The
types of the results are those of the programs' results; what a loop carries has one type from its
start to its end. A predicate may differ between the devices of a shard_map: then its loop runs
until no device is left, and its results vary over all that the predicate varies over.
Names and params are those of JAX's primitives.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...facts import BRANCHES
from ...op import defop
from ...program import Equation, Program
from ...shardings.sharding import named_sharding_abstract
from ...spec import spec_from_entries
from ...support.caches import cached, in_memo
from ...types import ArrayType, same_type
from ..rules import no_rule, states_of
from .loop_operands import WhileOperands, scan_operands, while_operands
from .region import Region, Slot

Types = Sequence[ArrayType]


@in_memo
def stacked_type(t: ArrayType, length: int) -> ArrayType:
    """The type of `length` values of type `t`, one after the other along a new first dimension."""
    sharding = named_sharding_abstract(
        t.mesh, spec_from_entries(((), *t.entries), t.spec.unreduced, t.spec.reduced))
    return t.update(shape=(length, *t.shape), sharding=sharding)


@in_memo
def item_type(t: ArrayType) -> ArrayType:
    """The type of `x[i]` for an `x` of type `t`, whose first dimension is whole."""
    sharding = named_sharding_abstract(
        t.mesh, spec_from_entries(t.entries[1:], t.spec.unreduced, t.spec.reduced))
    return t.update(shape=t.shape[1:], sharding=sharding)


def _check(op: str, what: str, given: Types, taken: Types) -> None:
    if len(given) != len(taken) or not all(map(same_type, given, taken)):
        texts = [", ".join(t.str_short(True) for t in ts) for ts in (taken, given)]
        raise TypeError(f"`{op}`: {what} has types ({texts[0]}), but ({texts[1]}) is given")


def _infer_scan(*types: ArrayType, jaxpr: Program, length: int, reverse: bool, num_consts: int,
                num_carry: int, unroll: int = 1) -> list[ArrayType]:
    split = num_consts + num_carry      # as `ScanOperands`, which each trace would have to call
    wanted = jaxpr.in_avals
    for x in types[split:]:
        if not x.shape or x.shape[0] != length:
            raise TypeError(f"`scan` over {length} items is given {x.str_short(True)}")
    given = (*types[:split], *map(item_type, types[split:]))
    _check("scan", "what the body takes", given, wanted)
    results = jaxpr.out_avals
    _check("scan", "the carry", results[:num_carry], wanted[num_consts:split])
    return [*results[:num_carry], *[stacked_type(t, length) for t in results[num_carry:]]]


def _infer_while(*types: ArrayType, cond_jaxpr: Program, body_jaxpr: Program, cond_nconsts: int,
                 body_nconsts: int) -> list[ArrayType]:
    tests, bodies, carry = WhileOperands(cond_nconsts, body_nconsts).split(types)
    _check("while", "what the test takes", (*tests, *carry), cond_jaxpr.in_avals)
    _check("while", "what the body takes", (*bodies, *carry), body_jaxpr.in_avals)
    results = list(body_jaxpr.out_avals)
    _check("while", "the carry", results, carry)
    tests = cond_jaxpr.out_avals
    if len(tests) != 1 or tests[0].shape or tests[0].dtype != np.bool_:
        shown = ", ".join(t.str_short(True) for t in tests)
        raise TypeError(f"the test of `while` gives one truth value, not ({shown})")
    return results


def _infer_cond(index: ArrayType, *types: ArrayType, branches: tuple[Program, ...]
                ) -> list[ArrayType]:
    if index.shape or index.dtype != np.int32:
        raise TypeError(f"`cond` chooses by an int32 scalar, not {index.str_short(True)}")
    if not branches:
        raise TypeError("`cond` has no branches to choose from")
    for branch in branches:
        _check("cond", "what a branch takes", types, branch.in_avals)
        _check("cond", "what the first branch gives", branch.out_avals, branches[0].out_avals)
    return list(branches[0].out_avals)


def _scan_region(eqn: Equation) -> Region:
    body: Program = eqn.params["jaxpr"]
    return Region((("jaxpr", -1, body),), _scan_slots(
        *scan_operands(eqn.params), len(eqn.invars), len(eqn.outvars)), eqn.params["length"])


@cached(1024, "what goes where in a scan")
def _scan_slots(consts: int, carry: int, operands: int, results: int) -> tuple[Slot, ...]:
    slots = [Slot(i, ((0, i),)) for i in range(consts)]
    slots += [Slot(consts + k, ((0, consts + k),), ((0, k),), k) for k in range(carry)]
    slots += [Slot(i, ((0, i),), stacked=True) for i in range(consts + carry, operands)]
    slots += [Slot(-1, (), ((0, k),), k, stacked=True) for k in range(carry, results)]
    return tuple(slots)


def _while_region(eqn: Equation) -> Region:
    cond: Program = eqn.params["cond_jaxpr"]
    body: Program = eqn.params["body_jaxpr"]
    return Region((("cond_jaxpr", -1, cond), ("body_jaxpr", -1, body)), _while_slots(
        *while_operands(eqn.params), len(eqn.outvars)), None, (0, 0))


@cached(1024, "what goes where in a while loop")
def _while_slots(nc: int, nb: int, results: int) -> tuple[Slot, ...]:
    slots = [Slot(i, ((0, i),)) for i in range(nc)]
    slots += [Slot(nc + i, ((1, i),)) for i in range(nb)]
    slots += [Slot(nc + nb + k, ((1, nb + k), (0, nc + k)), ((1, k),), k) for k in range(results)]
    return tuple(slots)


def _cond_region(eqn: Equation) -> Region:
    branches: tuple[Program, ...] = eqn.params["branches"]
    return Region(tuple([("branches", i, b) for i, b in enumerate(branches)]), _cond_slots(
        len(branches), len(eqn.invars) - 1, len(eqn.outvars)), predicate=(-1, 0))


@cached(1024, "what goes where in a cond")
def _cond_slots(branches: int, operands: int, results: int) -> tuple[Slot, ...]:
    every = range(branches)
    slots = [Slot(1 + k, tuple([(b, k) for b in every])) for k in range(operands)]
    slots += [Slot(-1, (), tuple([(b, k) for b in every]), k) for k in range(results)]
    return tuple(slots)


_RULE = no_rule("loops and branches have no factor rule: layouts pass through their programs")

scan_p = defop(
    "scan",
    doc="Run `jaxpr` `length` times, last item first if `reverse`. Operands: `num_consts` values "
        "that it closes over, `num_carry` carries, then arrays of which each run gets one item "
        "along the first dimension. Results: the last carries, then what the runs gave besides, "
        "stacked. `unroll` is a hint for compilers.",
    infer=_infer_scan, multiple_results=True, subprograms=("jaxpr",),
    region=_scan_region, rule=_RULE, manual=states_of("jaxpr"))

while_p = defop(
    "while",
    doc="Run `body_jaxpr` on the carries as long as `cond_jaxpr` of them is true. Operands: "
        "`cond_nconsts` values that the test closes over, `body_nconsts` for the body, carries.",
    infer=_infer_while, multiple_results=True, subprograms=("cond_jaxpr", "body_jaxpr"),
    region=_while_region, rule=_RULE, manual=states_of("body_jaxpr"))

cond_p = defop(
    "cond",
    doc="Run the one of the `branches` that the first operand numbers, on the other operands; a "
        "number out of range means the nearest branch.",
    infer=_infer_cond, multiple_results=True, subprograms=("branches",),
    region=_cond_region, rule=_RULE, manual=states_of("branches"), facts=(BRANCHES,))

REGIONS = frozenset(op.name for op in (scan_p, while_p, cond_p))
"""Ops whose programs share values with what is around them."""
