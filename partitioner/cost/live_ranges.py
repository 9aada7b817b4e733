"""Live ranges: from which equation to which a program holds each of its buffers.

Parameters are held throughout, unless they are free to be written over; results from where they are
made. A fused value has no buffer. An elementwise result takes the buffer of an operand that ends
there, as does what a loop carries.
"""
from __future__ import annotations

from collections.abc import Set
from itertools import accumulate

from ...ir.program import Equation, Literal, Program, Var
from .assignment import Span
from .buffers import WRITTEN, Buffers, buffers, in_place, is_copied, operand_bytes

GIVEN = -1                      # the number of what made a parameter


class Buffer(Span):
    """given: whether it is a parameter's. values: what it holds in turn, each with the number of
    the equation that makes it.
    """

    __slots__ = ("given", "values")

    def __init__(self, v: Var, made: int, end: int) -> None:
        super().__init__(v.aval.local_nbytes, max(made, 0), end)
        self.given, self.values = made == GIVEN, [(made, v)]

    def value_at(self, i: int) -> tuple[int, Var]:
        """What it holds while equation i runs, and what made that."""
        return next(value for value in reversed(self.values) if value[0] <= i)


class LiveRanges:
    """The buffers of a program, in the order in which they are made.

    free: parameters whose buffers end with their last use. For each equation, live: the bytes of
    all buffers that are held while it runs; scratch: bytes that it needs then, besides these and
    the programs that it holds.
    """

    def __init__(self, program: Program, free: Set[Var] = frozenset()) -> None:
        self.program = program
        held = buffers(program, WRITTEN)
        last, moved = _last_uses(program, held)
        self.buffers: list[Buffer] = []
        self.scratch: list[int] = []
        count = len(program.eqns)
        of: dict[Var, Buffer] = {}
        for v in (*program.invars, *program.constvars):
            if v not in free:
                last[v] = count
            of[v] = Buffer(v, GIVEN, last.get(v, 0))
        self.buffers += of.values()
        ending: dict[int, list[Var]] = {}
        for v, i in last.items():
            if i < count:
                ending.setdefault(i, []).append(v)
        for i, eqn in enumerate(program.eqns):
            self.scratch.append(_copied(eqn, i, held, last, of))
            made = [v for v in eqn.outvars if v not in held.fused and v not in held.root]
            if eqn.op.subprograms or in_place(eqn, held.kinds[i].elementwise):
                ends = [u for u in ending.get(i, ()) if u in of and (u, i) not in moved]
                for v in made:
                    taken = next((u for u in ends if of[u].nbytes == v.aval.local_nbytes), None)
                    if taken is not None:
                        ends.remove(taken)
                        of[v] = of[taken]
                        of[v].end = last.get(v, i)
                        of[v].values.append((i, v))
            for v in made:
                if v not in of:
                    of[v] = Buffer(v, i, last.get(v, i))
                    self.buffers.append(of[v])
        for a in program.outvars:
            made_for = of.get(held.of(a))           # type: ignore[arg-type]
            if made_for is not None:
                made_for.result = True
        change = [0] * (count + 2)
        for b in self.buffers:
            change[b.start] += b.nbytes
            change[b.end + 1] -= b.nbytes
        self.live = list(accumulate(change[:count]))

    def held_at(self, i: int) -> list[tuple[Var, Equation | None]]:
        """The values that are held while equation i runs, in the order in which they are made, each
        with the equation that makes it. i: `GIVEN` for before all of them.
        """
        found = sorted([b.value_at(i) for b in self.buffers if b.start <= max(i, 0) <= b.end
                        and (i > GIVEN or b.given)], key=lambda value: value[0])
        return [(v, None if at == GIVEN else self.program.eqns[at]) for at, v in found]


def _copied(eqn: Equation, i: int, held: Buffers, last: dict[Var, int], of: dict[Var, Buffer]
            ) -> int:
    """Bytes of operands that are copied and read later, and of an op's scratch space."""
    copied = [held.of(a) for n, a in enumerate(eqn.invars) if is_copied(eqn, n)]
    found = sum(v.aval.local_nbytes for v in copied if v in of and last[v] > i)
    if eqn.op.cost.scratch is not None:
        found += eqn.op.cost.scratch(*operand_bytes(eqn), eqn.types[0], eqn.params)
    return found


def _last_uses(program: Program, held: Buffers) -> tuple[dict[Var, int], set[tuple[Var, int]]]:
    """(last equation that reads each buffer, directly or in a fusion; the pairs (buffer, equation)
    in which elements go to other positions).
    """
    end, root, fused = len(program.eqns), held.root, held.fused
    last: dict[Var, int] = {}
    moved: set[tuple[Var, int]] = set()
    for a in program.outvars:
        source = held.of(a)
        if source is not None:
            last[source] = end
    for i in reversed(range(end)):
        eqn, at, moves = program.eqns[i], i, held.kinds[i].rearranged
        if eqn.outvars:
            v = eqn.outvars[0]
            if v in root:
                continue
            if v in fused and len(eqn.outvars) == 1:
                at = last.get(v, i)
                moves = moves or (v, at) in moved
        for a in eqn.invars:
            if type(a) is Literal:
                continue
            source = root.get(a, a)          # type: ignore[call-overload]
            if moves:
                moved.add((source, at))
            if last.get(source, -1) < at:
                last[source] = at
    return last, moved
