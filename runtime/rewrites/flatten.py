"""A program without calls: equations of called programs stand where the call stood."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...ir.caches import cached
from ...ir.named_tuple import NamedTuple
from ...ir.op import Op
from ...ir.program import Atom, Equation, Literal, Program, Var

# Ops that mean "do what this program says", whatever they mean to derivatives and batching.
CALLS = frozenset({"jit", "pjit", "closed_call", "core_call", "checkpoint", "remat",
                   "custom_jvp_call", "custom_vjp_call", "custom_linear_solve", "composite"})


# Ops for which programs are looked through before they are planned (runtime/rewrites/lean.py).
_ARRANGED = frozenset({"ceil", "dynamic_update_slice", "pad", "place", "rem", "scan"})


class _Facts(NamedTuple):
    """What is asked of the ops of a program. calls: whether there are calls among them; others:
    see `FlatProgram`."""
    calls: bool
    telling: frozenset[Op]
    arranged: bool


@cached(1024, "what sets of ops do to the shapes of arrays")
def _facts(ops: frozenset[Op]) -> _Facts:
    names = {op.name for op in ops}
    return _Facts(not names.isdisjoint(CALLS),
                  frozenset([op for op in ops if op.collective is not None or op.effect
                             or op.subprograms or op.name == "axis_index"]),
                  not names.isdisjoint(_ARRANGED))


class FlatProgram:
    """invars and results of the program, all its equations in order, and all its constants.

    ops: of its equations. telling: the ops whose equations may tell devices apart, or bring
    together what they have. arranged: whether there are ops for whose sake equations may be
    arranged in another way. (Programs that equations
    hold are not looked into.)
    """

    __slots__ = ("arranged", "consts", "eqns", "invars", "ops", "outvars", "program", "telling")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.invars = program.invars
        self.consts: list[tuple[Var, Any]] = []
        self.eqns: list[Equation] = []
        ops = program.ops
        if _facts(ops).calls:
            self.outvars: Sequence[Atom] = self._inline(program, program.invars)
            ops = frozenset([eqn.op for eqn in self.eqns])
        else:
            self.consts.extend(program.consts)
            self.eqns.extend(program.eqns)
            self.outvars = program.outvars
        self._of(ops)

    def rewrite(self, eqns: list[Equation]) -> None:
        """Replace the equations by others that give the same results."""
        self.eqns = eqns
        self._of(frozenset([eqn.op for eqn in eqns]))

    def _of(self, ops: frozenset[Op]) -> None:
        self.ops = ops
        _, self.telling, self.arranged = _facts(ops)

    def _inline(self, program: Program, arguments: Sequence[Atom]) -> list[Atom]:
        """Append the equations of `program` on these arguments; its results."""
        at: dict[Var, Atom] = dict(zip(program.invars, arguments, strict=True))
        for var, value in program.consts:
            at[var] = fresh = Var(var.aval, var.name)
            self.consts.append((fresh, value))

        def resolve(atom: Atom) -> Atom:
            return atom if isinstance(atom, Literal) else at[atom]

        for eqn in program.eqns:
            operands = [resolve(a) for a in eqn.invars]
            if eqn.op.name in CALLS:
                (name,) = eqn.op.subprograms[:1]
                results = self._inline(eqn.params[name], operands)
                at.update(zip(eqn.outvars, results, strict=True))
                continue
            out = [Var(v.aval, v.name) for v in eqn.outvars]
            at.update(zip(eqn.outvars, out, strict=True))
            self.eqns.append(Equation(eqn.op, operands, out, eqn.params, eqn.location, eqn.reason))
        return [resolve(a) for a in program.outvars]


def every_equation(eqns: Iterable[Equation]) -> Iterator[Equation]:
    """The equations, and those of the programs that they hold."""
    for eqn in eqns:
        yield eqn
        for name in eqn.op.subprograms:
            held = eqn.params[name]
            for program in held if isinstance(held, tuple) else (held,):
                yield from every_equation(program.eqns)


def needed(eqns: Sequence[Equation], outvars: Iterable[Any]) -> list[Equation]:
    """The equations without those whose results nobody reads and that nobody hears of."""
    read = set(outvars)
    kept = []
    for eqn in reversed(eqns):
        if not read.isdisjoint(eqn.outvars) or eqn.effects:
            kept.append(eqn)
            read.update(eqn.invars)
    kept.reverse()
    return kept
