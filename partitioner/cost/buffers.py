"""Which values of a per-device program are buffers in memory, and which are aliases or fused.

A compiler fuses elementwise operations: a value that only one of them, or a reduction, reads is
computed where it is needed. Reshapes, casts of varying sets and the like alias a buffer. Both are
decided here once per program, for memory traffic and for peak memory.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from ...ir.facts import PERMUTED
from ...ir.ops.elementwise.arithmetic import max_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.support.caches import in_memo
from ...ir.support.named_tuple import NamedTuple
from .fusion import fused_values
from .kinds import Kind, kind_of, reads_as_stored, reads_in_parts, reads_transposed
from .reduction_kernels import is_split, reduction_kernels


class Buffers(NamedTuple):
    """root: value -> the value whose buffer it uses. fused: values that are never written to
    memory. kinds: of the equations. beside: values that never take the buffer of an operand, as
    their kernel reads it more than once. again: as of fusions (fusion.py).
    """
    root: dict[Var, Var]
    fused: set[Var]
    kinds: list[Kind]
    beside: set[Var]
    again: set[tuple[Var, int]]

    def of(self, atom: Atom) -> Var | None:
        """The value whose buffer this is; None for a scalar literal."""
        return None if isinstance(atom, Literal) else self.root.get(atom, atom)


KEY, WRITTEN = "report-buffers", "report-written"


@in_memo
def buffers(program: Program, key: str = KEY) -> Buffers:
    """The buffers of a LOCAL program (without those of nested programs). key: WRITTEN if kernels
    are those of XLA's compiler of CPUs, of reductions before all others (reduction_kernels.py,
    fusion.py).
    """
    reductions_first = key == WRITTEN
    eqns = program.eqns
    kinds = [kind_of(eqn) for eqn in eqns]
    if reductions_first:
        kinds = [kind._replace(bitcast=True) if kind.alone else kind for kind in kinds]
    out = Buffers(root := {}, set(), kinds, set(), set())
    readers: dict[Atom, list[int]] = {}
    for i, eqn in enumerate(eqns):
        if kinds[i].bitcast:
            for a, v in zip(eqn.invars, eqn.outvars, strict=True):
                source = out.of(a)
                if source is not None and a.aval.local_nbytes == v.aval.local_nbytes:
                    root[v] = source
        elif eqn.op is max_p and type(eqn.invars[0]) is Literal and eqn.invars[0].val == -np.inf \
                and isinstance(eqn.invars[1], Var):
            root[eqn.outvars[0]] = root.get(eqn.invars[1], eqn.invars[1])    # softmax begins so
        if not eqn.outvars or eqn.outvars[0] in root:
            continue
        for a in dict.fromkeys(eqn.invars) if len(eqn.invars) > 1 else eqn.invars:
            if type(a) is not Literal:
                readers.setdefault(root.get(a, a), []).append(i)     # type: ignore[call-overload]
    results = {out.of(a) for a in program.outvars}
    reads = [kind.reads for kind in kinds]
    makers: dict[Atom, Equation] | None = {
        eqn.outvars[0]: eqn for eqn in eqns if len(eqn.outvars) == 1} if reductions_first else None
    for i, eqn in enumerate(eqns):
        if PERMUTED in eqn.op.facts and _is_alias(
                eqn, out, eqns, readers, makers, results):
            source = out.of(eqn.invars[0])
            assert source is not None
            root[eqn.outvars[0]], reads[i] = root.get(source, source), False
    for v, source in root.items():
        root[v] = root.get(source, source)
    generated = _generated(out, eqns)
    if reductions_first:
        kernel, inside, written = reduction_kernels(eqns, kinds, root, readers, results)
        out.fused.update(inside)
        out.beside.update(written)
        reads = [read and i not in kernel and not (kind.reduction and is_split(eqn, kind))
                 and not reads_in_parts(eqn)
                 for i, (eqn, kind, read) in enumerate(zip(eqns, kinds, reads, strict=True))]
        values, again = fused_values(eqns, kinds, readers, reads, results,
                                     {*root, *inside, *written}, generated)
        out.fused.update(values)
        out.again.update(again)
    else:
        _fuse(out, eqns, readers, reads, results.union(root), generated)
    return out


def _generated(out: Buffers, eqns: Sequence[Equation]) -> set[Atom | None]:
    """The values that are made from what is no array, or from what else is."""
    found = set[Atom | None]()
    for eqn, kind in zip(eqns, out.kinds, strict=True):
        if kind.generated or kind.rearranged and all([
                not a.aval.shape or out.of(a) in found for a in eqn.invars]):
            found.update(eqn.outvars)
    return found


def _fuse(out: Buffers, eqns: Sequence[Equation], readers: Mapping[Atom, list[int]],
          reads: Sequence[bool], apart: Set[Atom | None], generated: Set[Atom | None]) -> None:
    """Add the values that are fused into the one equation that reads them, and what is generated.

    reads: whether each equation can read such values. apart: values that are not fused.
    """
    for eqn, kind in zip(eqns, out.kinds, strict=True):
        if not kind.elementwise or eqn.outvars[0] in apart:
            continue
        v = eqn.outvars[0]
        uses = readers.get(v, [])
        if v in generated and all([out.kinds[j].reads for j in uses]) or (
                len({*uses}) <= 1 and all([reads[j] for j in uses])):
            out.fused.add(v)


def _is_alias(eqn: Equation, out: Buffers, eqns: Sequence[Equation],
              readers: Mapping[Atom, list[int]], makers: Mapping[Atom, Equation] | None,
              results: Set[Atom | None]) -> bool:
    """Does a transpose leave its operand where it lies? A product writes it in the new order, or
    products that read it read it in the old one. makers: None where what counts is time.
    """
    source, v, order = out.of(eqn.invars[0]), eqn.outvars[0], eqn.params["permutation"]
    if source is None:
        return False
    maker, uses = makers.get(source) if makers else None, readers.get(v, ())
    if maker is not None and eqn.invars[0].aval.shape == source.aval.shape and (
            len(readers[source]) == 1 and source not in results
            and reads_as_stored(maker, len(maker.invars), order)):
        return True
    lies, reads = [*np.argsort(order)], reads_transposed if makers is None else reads_as_stored
    return v not in results and bool(uses) and all(
        a.aval.shape == v.aval.shape and reads(eqns[j], n, lies)
        for j in uses for n, a in enumerate(eqns[j].invars) if out.of(a) is v)
