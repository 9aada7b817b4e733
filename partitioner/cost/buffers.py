"""Which values of a per-device program are buffers in memory, and which are aliases or fused.

A compiler fuses elementwise operations: a value that only one of them, or a reduction, reads is
computed where it is needed. Reshapes, casts of varying sets and the like alias a buffer. Both are
decided here once per program, for memory traffic and for peak memory.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.facts import BITCAST, EXACT, GENERATED, IN_PLACE, PERMUTED, READS_FUSED, REARRANGED
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.rules.factor import PASS, REDUCE
from ...ir.support.named_tuple import NamedTuple
from ..factors import RuleInfo, rule_info

T = TypeVar("T")


def by_types(f: Callable[[Equation], T]) -> Callable[[Equation], T]:
    """A decorator: computed once for all equations of equal op, params and types, in all programs.
    """
    def found(eqn: Equation) -> T:
        types = eqn.known_types or eqn.types
        try:
            return eqn.instance.tables[f][types]
        except KeyError:
            made = eqn.instance.table(f)[types] = f(eqn)
            return made
    found.__doc__ = f.__doc__
    return found


def info_of(eqn: Equation) -> RuleInfo:
    """The factors of an equation on blocks."""
    return rule_info(eqn.instance.rule(*eqn.types))


def is_elementwise(eqn: Equation) -> bool:
    """Can it be fused into its readers?"""
    facts = eqn.op.facts
    if GENERATED in facts or REARRANGED in facts or not eqn.op.arithmetic and EXACT in facts:
        return True
    if eqn.op.subprograms or eqn.op.collective or eqn.op.effect or len(eqn.outvars) != 1:
        return False
    if not eqn.op.arithmetic:
        return False
    info = info_of(eqn)
    shape = eqn.outvars[0].aval.shape
    return not info.is_product and all(f.kind == PASS for f in info.factors) and all(
        not a.aval.shape or (len(a.aval.shape) == len(shape)
                             and all(n in (1, m) for n, m in zip(a.aval.shape, shape,
                                                                 strict=True)))
        for a in eqn.invars)


def is_reduction(eqn: Equation) -> bool:
    """Does it read its operands element by element, and return fewer elements?"""
    if eqn.op.subprograms or eqn.op.collective or not eqn.op.arithmetic:
        return False
    info = info_of(eqn)
    return not info.is_product and info.operands >= 1 and all(
        f.kind in (PASS, REDUCE) for f in info.factors)


class Kind(NamedTuple):
    """How an equation takes part in fusions. reads: it can read values that are never written to
    memory.
    """
    elementwise: bool
    reduction: bool
    reads: bool
    bitcast: bool
    generated: bool
    rearranged: bool


@by_types
def kind_of(eqn: Equation) -> Kind:
    elementwise, reduction, facts = is_elementwise(eqn), is_reduction(eqn), eqn.op.facts
    return Kind(elementwise, reduction, elementwise or reduction or READS_FUSED in facts,
                BITCAST in facts, GENERATED in facts, REARRANGED in facts)


class Buffers(NamedTuple):
    """root: value -> the value whose buffer it uses. fused: values that are never written to
    memory. kinds: of the equations.
    """
    root: dict[Var, Var]
    fused: set[Var]
    kinds: list[Kind]

    def of(self, atom: Atom) -> Var | None:
        """The value whose buffer this is; None for a scalar literal."""
        return None if isinstance(atom, Literal) else self.root.get(atom, atom)


KEY, WRITTEN = "report-buffers", "report-written"


def buffers(program: Program, key: str = KEY) -> Buffers:
    """The buffers of a LOCAL program (without those of nested programs). key: WRITTEN if reductions
    read masked operands from memory.
    """
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = _buffers(program, key == WRITTEN)
    return found


def _buffers(program: Program, masks_are_written: bool) -> Buffers:
    eqns = program.eqns
    kinds = [kind_of(eqn) for eqn in eqns]
    out = Buffers(root := {}, set(), kinds)
    readers: dict[Atom, list[int]] = {}
    for i, eqn in enumerate(eqns):
        if kinds[i].bitcast:
            for a, v in zip(eqn.invars, eqn.outvars, strict=True):
                source = out.of(a)
                if source is not None and a.aval.local_nbytes == v.aval.local_nbytes:
                    root[v] = source
        if not eqn.outvars or eqn.outvars[0] in root:
            continue
        for a in dict.fromkeys(eqn.invars) if len(eqn.invars) > 1 else eqn.invars:
            if type(a) is not Literal:
                readers.setdefault(root.get(a, a), []).append(i)     # type: ignore[call-overload]
    results = {out.of(a) for a in program.outvars}
    reads = [kind.reads for kind in kinds]
    for i, eqn in enumerate(eqns):
        source = out.of(eqn.invars[0]) if PERMUTED in eqn.op.facts else None
        if source is None:
            continue
        v, order = eqn.outvars[0], eqn.params["permutation"]
        uses = readers.get(v, [])
        if v not in results and uses and all(
                eqns[j].op.cost.as_stored is not None and reads_as_stored(eqns[j], n, order)
                for j in uses for n, a in enumerate(eqns[j].invars) if a is v):
            root[v], reads[i] = source, False
    for i, eqn in enumerate(eqns):
        if not kinds[i].elementwise:
            continue
        v = eqn.outvars[0]
        if v in results or v in root:
            continue
        uses = readers.get(v, [])
        if (len(uses) <= 1 or kinds[i].generated) and all([reads[j] for j in uses]):
            out.fused.add(v)
    if masks_are_written:
        makers: dict[Atom, Equation] = {v: eqn for eqn in eqns for v in eqn.outvars
                                        if v in out.fused}
        for eqn, kind in zip(eqns, kinds, strict=True):
            if kind.reduction and not kind.elementwise:
                _write(eqn, makers, out)
    return out


def _write(eqn: Equation, makers: dict[Atom, Equation], out: Buffers) -> None:
    """Mark as written the operands that a reduction does not compute itself: it fuses arithmetic of
    floats alone.
    """
    whole = _of_floats(eqn)
    for a in eqn.invars:
        maker = makers.get(a)
        if maker is None or GENERATED in maker.op.facts:
            continue
        if whole and _of_floats(maker) and REARRANGED not in maker.op.facts:
            _write(maker, makers, out)
        else:
            out.fused.discard(maker.outvars[0])


def _of_floats(eqn: Equation) -> bool:
    return all([issubdtype(a.aval.dtype, np.floating) for a in (*eqn.invars, *eqn.outvars)])


def reads_as_stored(eqn: Equation, n: int, order: Sequence[int]) -> bool:
    """Does it read operand n without a copy from a buffer whose dimension order[d] is d of n?"""
    asks = eqn.op.cost.as_stored
    return asks is None or asks(n, eqn.invars[n].aval, eqn.params, order)


def is_copied(eqn: Equation, n: int) -> bool:
    """Does it need a copy of operand n in another memory order?"""
    return not reads_as_stored(eqn, n, range(len(eqn.invars[n].aval.shape)))


def operand_bytes(eqn: Equation) -> tuple[list[int], list[int]]:
    """The bytes of one device's blocks of the operands, and of the results."""
    return [a.aval.local_nbytes for a in eqn.invars], [v.aval.local_nbytes for v in eqn.outvars]


def in_place(eqn: Equation, elementwise: bool) -> bool:
    """May the result take the buffer of an operand that nothing reads later?"""
    facts = eqn.op.facts
    return (elementwise and GENERATED not in facts) or IN_PLACE in facts
