"""What kind of change it is, seen from one collective: of what is behind it, over other axes, of
how much.
"""
from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.spec import PartitionSpec
from ..reasons.causes import Cause, where
from ..words import spec_text
from .candidates import Candidates
from .changes import Argument, Change, Constrain, Respec, Result

IDLE, OTHERS = "idle", "others"


class Kinds:
    """Tells changes apart for the collective of a cause. over_others: those that give a value other
    axes of the mesh than the collective runs over.
    """

    def __init__(self, candidates: Candidates, cause: Cause, over_others: frozenset[Change]
                 ) -> None:
        self.candidates, self.over_others = candidates, over_others
        asked = [cause.move.location] if cause.move is not None else []
        if cause.asked_by is not None:
            asked.append(cause.asked_by.location)
        holds = [h.root_location for h in cause.holds]
        self.askers = {where(at)[:-1] for at in (*asked, *holds) if at.line}
        self.asked = cause.asked_by is not None
        self.wanted = "" if cause.move is None else spec_text(
            cause.move.outvars[0].aval.sharding.spec)
        self.idle = {*map(str, candidates.mesh.axis_names)}.difference(
            *map(_axes, candidates.partitioned.in_specs))
        self.moved = {i for i in range(len(candidates.inlined.outvars))
                      if self.asked and candidates.as_made(i, cause) is not None}
        # what asked for it rather than what its axes come from
        written = self.moved or any(made is not None and where(made.location)[:-1] in self.askers
                                    for made in map(candidates.maker.get, candidates.laid_out))
        self.roots = set() if self.asked and written else {
            p.tensors[-1] for p in cause.paths if p.tensors}
        self.askers |= {where(p.root_location)[:-1] for p in cause.paths
                        if p.root_location.line and self.roots}

    def over(self, changes: Sequence[Change]) -> str:
        """Does one of the changes split a value over other axes: OTHERS, "" if not; IDLE if these
        split no argument as it is, so that something should be over them.
        """
        specs = [getattr(c, "spec", None) or PartitionSpec()
                 for c in self.over_others.intersection(changes)]
        # what the collective is to bring about is no other matter
        new = {a for spec in specs if spec_text(spec) != self.wanted for a in _axes(spec)}
        if not new:
            return ""
        return IDLE if new & self.idle else OTHERS

    def splits(self, changes: Sequence[Change]) -> bool:
        """Does one split an argument over axes over which it was not?"""
        return any(_axes(c.spec) - _axes(self.candidates.partitioned.in_specs[c.index])
                   for c in changes if isinstance(c, Argument))

    def size(self, changes: Sequence[Change]) -> int:
        """How many bytes the arguments and results have that are laid out otherwise."""
        program = self.candidates.inlined
        types = [(program.invars if isinstance(c, Argument) else program.outvars)[c.index].aval
                 for c in changes if isinstance(c, Argument | Result)]
        return sum(math.prod(t.shape) * t.dtype.itemsize for t in types)

    def direct(self, changes: Sequence[Change]) -> bool:
        """Is one of them of what the collective comes from, or asked for it, or of the code?"""
        return any(map(self.is_direct, changes))

    def is_direct(self, change: Change) -> bool:
        """Is it of what the collective comes from, or what asked for it, or of the code?"""
        if isinstance(change, Argument):
            var = self.candidates.inlined.invars[change.index]
            return self.candidates.graph_tensor(var) in self.roots
        if isinstance(change, Respec):
            return where(change.location)[:-1] in self.askers
        if isinstance(change, Result):
            return change.was != spec_text(change.spec) and change.index in self.moved
        return not isinstance(change, Constrain)


def _axes(spec: PartitionSpec) -> set[str]:
    return {str(a) for e in spec.padded(len(spec)).entries for a in e}
