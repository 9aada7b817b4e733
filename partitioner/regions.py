"""Ops that hold programs: which values inside and outside share a layout.

`scan`, `while` and `cond` run programs over whole values: the operand, the body's parameter, the
body's result and the op's result are one value. `region_of` says this once per op, as groups of
variables that propagation, choice and lowering read. `shard_map`, whose body sees blocks, is
handled by passes of its own.
"""
from __future__ import annotations

from collections.abc import Callable

from ..ir.program import Atom, Equation, Program
from ..ir.support.caches import cached
from ..ir.support.named_tuple import NamedTuple


class Slot(NamedTuple):
    """One value of a region: where it enters, what the programs call it, where it comes out.

    operand, result: position among the equation's operands and results, or -1. inputs, outputs:
    (program, position) among the parameters and results of the region's programs. stacked: outside
    it has one more dimension in front, over which the region iterates.
    """
    operand: int = -1
    inputs: tuple[tuple[int, int], ...] = ()
    outputs: tuple[tuple[int, int], ...] = ()
    result: int = -1
    stacked: bool = False


class Region(NamedTuple):
    """programs: (param, place in it or -1 where it is one program, program); slots: its values."""
    programs: tuple[tuple[str, int, Program], ...]
    slots: tuple[Slot, ...]

    def body_atoms(self, slot: Slot) -> tuple[Atom, ...]:
        """What the programs call the value: their parameters, then their results."""
        programs = self.programs
        return (*[programs[p][2].invars[i] for p, i in slot.inputs],
                *[programs[p][2].outvars[i] for p, i in slot.outputs])


def _scan(eqn: Equation) -> Region:
    body: Program = eqn.params["jaxpr"]
    return Region((("jaxpr", -1, body),), _scan_slots(
        eqn.params["num_consts"], eqn.params["num_carry"], len(eqn.invars), len(eqn.outvars)))


@cached(1024, "what goes where in a scan")
def _scan_slots(consts: int, carry: int, operands: int, results: int) -> tuple[Slot, ...]:
    slots = [Slot(i, ((0, i),)) for i in range(consts)]
    slots += [Slot(consts + k, ((0, consts + k),), ((0, k),), k) for k in range(carry)]
    slots += [Slot(i, ((0, i),), stacked=True) for i in range(consts + carry, operands)]
    slots += [Slot(-1, (), ((0, k),), k, stacked=True) for k in range(carry, results)]
    return tuple(slots)


def _while(eqn: Equation) -> Region:
    cond: Program = eqn.params["cond_jaxpr"]
    body: Program = eqn.params["body_jaxpr"]
    return Region((("cond_jaxpr", -1, cond), ("body_jaxpr", -1, body)), _while_slots(
        eqn.params["cond_nconsts"], eqn.params["body_nconsts"], len(eqn.outvars)))


@cached(1024, "what goes where in a while loop")
def _while_slots(nc: int, nb: int, results: int) -> tuple[Slot, ...]:
    slots = [Slot(i, ((0, i),)) for i in range(nc)]
    slots += [Slot(nc + i, ((1, i),)) for i in range(nb)]
    slots += [Slot(nc + nb + k, ((1, nb + k), (0, nc + k)), ((1, k),), k) for k in range(results)]
    return tuple(slots)


def _cond(eqn: Equation) -> Region:
    branches: tuple[Program, ...] = eqn.params["branches"]
    return Region(tuple([("branches", i, b) for i, b in enumerate(branches)]), _cond_slots(
        len(branches), len(eqn.invars) - 1, len(eqn.outvars)))


@cached(1024, "what goes where in a cond")
def _cond_slots(branches: int, operands: int, results: int) -> tuple[Slot, ...]:
    every = range(branches)
    slots = [Slot(1 + k, tuple([(b, k) for b in every])) for k in range(operands)]
    slots += [Slot(-1, (), tuple([(b, k) for b in every]), k) for k in range(results)]
    return tuple(slots)


REGIONS: dict[str, Callable[[Equation], Region]] = {
    "scan": _scan, "while": _while, "cond": _cond}


UNKNOWN_TRIPS = 8
"""How often the body of a `while` is taken to run, where it matters."""


def trips_of(eqn: Equation) -> int:
    """How often the programs of a scan, while or cond run, as far as that is known."""
    if eqn.op.name == "scan":
        return int(eqn.params["length"])
    return UNKNOWN_TRIPS if eqn.op.name == "while" else 1


def has_region(eqn: Equation) -> bool:
    return eqn.op.name in REGIONS


def region_of(eqn: Equation) -> Region:
    """What is what in a scan, while or cond."""
    return REGIONS[eqn.op.name](eqn)


def with_programs(params: dict, programs: dict[tuple[str, int], Program]) -> dict:
    """Params with the programs at (param, place) replaced."""
    out = dict(params)
    for (name, place), program in programs.items():
        if place < 0:
            out[name] = program
        else:
            held = list(out[name])
            held[place] = program
            out[name] = tuple(held)
    return out
