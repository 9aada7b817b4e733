"""Reduce a program to the smallest one that still shows a property, by delta debugging.

A candidate is the program with some of its results, equations, specs or sizes removed. The result
of a removed equation becomes a parameter with the same layout, or is replaced by an operand of the
same type. A candidate is accepted if `shows` confirms that it still has the property. Larger cuts
are tried before smaller ones, until nothing more can be removed. Source: Zeller, Hildebrandt,
"Simplifying and isolating failure-inducing input", IEEE TSE 2002.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...ir.diagnostics.errors import ShardtraceError
from ...ir.program import Atom, Equation, Level, Program, Var
from ...ir.rewriting.retyped import Retyped
from ...ir.rewriting.unread import without_unread
from ...ir.spec import PartitionSpec, spec_from_entries
from ...ir.support.immutable import immutable, replace
from ...ir.support.progress import steps
from ...ir.types import ArrayType
from ...report.reasons.value_paths import inner_programs
from ..execution.programs import further
from .applied_changes import inlined

_REFUSED = (ShardtraceError, ValueError, TypeError, KeyError, AssertionError, IndexError)


@immutable
class Case:
    """A program, and how the parameters of a TRACED one are split (None: open)."""
    program: Program
    specs: tuple[PartitionSpec | None, ...]


@immutable
class Reduced:
    """What is left of a program. tried: candidates that were looked at."""
    before: Case
    after: Case
    tried: int

    @property
    def removed(self) -> int:
        """Equations that are gone, those in loops and branches counted too."""
        return count_equations(self.before.program) - count_equations(self.after.program)


def count_equations(program: Program) -> int:
    """Equations of a program and of those that it holds."""
    return sum(1 + sum(count_equations(p) for _, p in inner_programs(e, n))
               for n, e in enumerate(program.eqns))


def reduce_program(program: Program, specs: Sequence[PartitionSpec | None],
                   shows: Callable[[Case], bool], most: int = 2000) -> Reduced:
    """The smallest case found for which `shows` holds, in at most `most` trials.

    Raises ValueError where it does not hold for the program itself.

    >>> program = st.make_jaxpr(lambda a: (jnp.sin(a) + jnp.cos(a), jnp.tan(a)))(np.ones(4))
    >>> has_cos = lambda case: any(e.op.name == "cos" for e in case.program.eqns)
    >>> found = reduce_program(program, (None,), has_cos)
    >>> [e.op.name for e in found.after.program.eqns], found.removed
    (['cos'], 3)
    """
    given = list(specs) or [None] * len(program.invars)
    before = Case(program, tuple(given))
    with steps("reducing", most) as work:
        search = _Search(shows, most, work.advance)
        if not search.holds(before):
            raise ValueError("the program does not show it in the first place")
        case = before
        if program.level is Level.TRACED:
            flat = replace(before, program=inlined(program))
            case = flat if search.holds(flat) else before
        while not search.done:
            now = case
            for shrink in (_results, _ends, _equations, _bypasses, _inside, _specs, _sizes):
                now = shrink(search, now)
            if now is case:
                break
            case = now
    return Reduced(before, case, search.tried)


class _Search:
    """The cases tried so far. shows: does a case still show the fault? most: how many may be tried.
    on_step: called before each.
    """
    def __init__(self, shows: Callable[[Case], bool], most: int, on_step: Callable[[], None]
                 ) -> None:
        self.shows, self.most, self.on_step = shows, most, on_step
        self.tried = 0

    @property
    def done(self) -> bool:
        return self.tried >= self.most

    def holds(self, case: Case | None) -> bool:
        if case is None or self.done:
            return False
        self.tried += 1
        self.on_step()
        return self.shows(case)

    def without(self, case: Case, count: Callable[[Case], int],
                drop: Callable[[Case, set[int]], Case | None]) -> Case:
        """The case with as many of its `count` parts dropped as can be, large pieces first."""
        size = max(1, count(case) // 2)
        while not self.done:
            at, dropped = 0, False
            while at < count(case) and not self.done:
                smaller = drop(case, set(range(at, min(at + size, count(case)))))
                if smaller is not None and self.holds(smaller):
                    case, dropped = smaller, True
                else:
                    at += size
            if size == 1 and not dropped:
                break
            size = max(1, size // 2)
        return case


# -- what is taken away ----------------------------------------------------------------------------

def _results(search: _Search, case: Case) -> Case:
    """Drop results of the program."""
    def drop(case: Case, gone: set[int]) -> Case | None:
        p = case.program
        if len(gone) >= len(p.outvars):
            return None
        keep = [i for i in range(len(p.outvars)) if i not in gone]
        return _cleaned(replace(case, program=_with(
            p, outvars=[p.outvars[i] for i in keep],
            global_out=[p.global_out[i] for i in keep] if p.global_out else (),
            result_names=[p.result_names[i] for i in keep] if len(p.result_names) == len(
                p.outvars) else ())))

    return search.without(case, lambda c: len(c.program.outvars), drop)


def _ends(search: _Search, case: Case) -> Case:
    """The first equations alone, with what the last of them gives as the results."""
    def ended(n: int) -> Case | None:
        p = case.program
        if p.level is Level.LOCAL or not p.eqns[n].outvars:
            return None
        return _cleaned(replace(case, program=_with(
            p, outvars=p.eqns[n].outvars, eqns=p.eqns[:n + 1], result_names=())))

    low, high, best = 0, len(case.program.eqns) - 1, case
    while low < high and not search.done:
        middle = (low + high) // 2
        smaller = ended(middle)
        if smaller is not None and search.holds(smaller):
            best, high = smaller, middle
        else:
            low = middle + 1
    return best


def _equations(search: _Search, case: Case) -> Case:
    """Equations whose results become parameters."""
    def drop(case: Case, gone: set[int]) -> Case | None:
        p = case.program
        if p.level is Level.LOCAL and any(v.aval.varying for i in gone
                                          for v in p.eqns[i].outvars):
            return None             # of which whole value this would be a block is not known
        layouts = _layouts(case)
        eqns = [e for i, e in enumerate(p.eqns) if i not in gone]
        used = {a for e in eqns for a in e.invars} | set(p.outvars)
        new = [v for i in sorted(gone) for v in p.eqns[i].outvars if v in used]
        names = [*p.arg_names, *(v.name or "" for v in new)] if p.arg_names else ()
        return _cleaned(Case(
            _with(p, eqns=eqns, invars=[*p.invars, *new], arg_names=names,
                  global_in=[*p.global_in, *(v.aval for v in new)] if p.global_in else ()),
            (*case.specs, *(layouts.get(v) for v in new))))

    return search.without(case, lambda c: len(c.program.eqns), drop)


def _bypasses(search: _Search, case: Case) -> Case:
    """Equations whose result is replaced by an operand of the same type."""
    i = len(case.program.eqns) - 1
    while i >= 0 and not search.done:
        for smaller in _bypassed(case.program, i):
            cleaned = _cleaned(replace(case, program=smaller))
            if search.holds(cleaned):
                case = cleaned
                break
        i = min(i, len(case.program.eqns)) - 1
    return case


def _bypassed(p: Program, i: int) -> Iterator[Program]:
    """The program without equation i: its result replaced by each operand of the same type in turn.
    """
    eqn = p.eqns[i]
    if len(eqn.outvars) != 1:
        return
    out = eqn.outvars[0]
    for a in eqn.invars:
        if isinstance(a, Var) and a.aval is out.aval:
            same: dict[Atom, Atom] = {out: a}
            eqns = [e.replace(invars=tuple(same.get(x, x) for x in e.invars))
                    for k, e in enumerate(p.eqns) if k != i]
            yield _with(p, eqns=eqns, outvars=[same.get(v, v) for v in p.outvars])


def _inside(search: _Search, case: Case) -> Case:
    """Equations in loops and branches, bypassed; what becomes unread there goes, too."""
    for n in range(len(case.program.eqns)):
        for step, _ in inner_programs(case.program.eqns[n], n):
            k = 0
            while not search.done:
                p = case.program
                inner = _held(p.eqns[n], step)
                if k >= len(inner.eqns):
                    break
                for smaller in _bypassed(inner, len(inner.eqns) - 1 - k):
                    new = replace(case, program=_replaced(p, n, step, _live(smaller)))
                    if search.holds(new):
                        case = new
                        break
                else:
                    k += 1
    return case


def _specs(search: _Search, case: Case) -> Case:
    """Parameters that need not be split."""
    if case.program.level is not Level.TRACED:
        return case

    for new in (None, PartitionSpec()):            # left open, else whole
        def drop(case: Case, gone: set[int], new: Any = new) -> Case | None:
            if all(case.specs[i] is None or case.specs[i] == new for i in gone):
                return None
            return replace(case, specs=tuple(
                new if i in gone and s is not None else s for i, s in enumerate(case.specs)))

        case = search.without(case, lambda c: len(c.specs), drop)
    for i, spec in enumerate(case.specs):          # then axis by axis
        entries = list(spec.padded(case.program.invars[i].aval.ndim).entries) if spec else []
        for d, axes in enumerate(entries):
            for axis in axes:
                less = [*entries[:d], tuple(a for a in entries[d] if a != axis), *entries[d + 1:]]
                if not any(less):
                    continue
                new = replace(case, specs=(*case.specs[:i], spec_from_entries(tuple(less)),
                                           *case.specs[i + 1:]))
                if search.holds(new):
                    case, entries = new, less
    return case


def _sizes(search: _Search, case: Case) -> Case:
    """Shrink dimensions, each wherever its size occurs: to the least that the mesh allows, or by
    half.
    """
    if case.program.level is not Level.TRACED:
        return case
    tried: set[tuple[int, int]] = set()
    devices = math.prod(case.program.mesh.axis_sizes or (1,))
    for n in sorted(_all_sizes(case.program), reverse=True):
        smaller = sorted({m for m in (1, 2, 3, devices, 2 * devices, n // 8, n // 4, n // 2)
                          if 0 < m < n})
        for m in smaller:
            if (n, m) in tried or search.done:
                continue
            tried.add((n, m))
            try:
                new = _resized(case, n, m)
            except _REFUSED:
                continue
            if search.holds(new):
                case = new
                break
    return case


# -- pieces ----------------------------------------------------------------------------------------

def _with(p: Program, **changes: Any) -> Program:
    """A program with these fields, of whose attributes only the meshes stay."""
    kept = {k: v for k, v in p.attributes.items() if k == "meshes"}
    return p.replace(attributes=kept, **{k: tuple(v) for k, v in changes.items()})


def _live(p: Program) -> Program:
    """Without unread equations."""
    eqns = without_unread(p.eqns, p.outvars)
    return p if eqns is p.eqns else _with(p, eqns=eqns)


def _cleaned(case: Case) -> Case:
    """Without unread equations, parameters and constants; one parameter stays."""
    p = _live(case.program)
    used = {a for e in p.eqns for a in e.invars} | set(p.outvars)
    keep = [i for i, v in enumerate(p.invars) if v in used]
    offset = len(p.invars) - len(p.arg_names)
    specs = case.specs or (None,) * len(p.invars)
    names = [p.arg_names[i - offset] for i in keep if i >= offset] if offset >= 0 else ()
    return Case(_with(p, invars=[p.invars[i] for i in keep], arg_names=names,
                      global_in=[p.global_in[i] for i in keep] if p.global_in else (),
                      consts=[c for c in p.consts if c[0] in used]),
                tuple(specs[i] for i in keep))


def _held(eqn: Equation, step: tuple[int, str, int]) -> Program:
    held = eqn.params[step[1]]
    return held if step[2] < 0 else held[step[2]]


def _replaced(p: Program, n: int, step: tuple[int, str, int], inner: Program) -> Program:
    eqn = p.eqns[n]
    held = eqn.params[step[1]]
    value = inner if step[2] < 0 else (*held[:step[2]], inner, *held[step[2] + 1:])
    eqns = list(p.eqns)
    eqns[n] = eqn.replace(params={**eqn.params, step[1]: value})
    return _with(p, eqns=eqns)


def _layouts(case: Case) -> dict[Var, PartitionSpec | None]:
    """How propagation lays out the values of a TRACED program; {} where it is refused."""
    if case.program.level is not Level.TRACED:
        return {}
    try:
        resolved = further(case.program, case.specs)["resolved"]
    except _REFUSED:
        return {}
    found: dict[Var, PartitionSpec | None] = {}
    later = list(resolved.eqns)
    at = 0
    for eqn in case.program.eqns:
        where = next((k for k in range(at, len(later)) if later[k].op is eqn.op
                      and later[k].location is eqn.location), None)
        if where is None:
            continue
        at = where + 1
        for var, resolved_var in zip(eqn.outvars, later[where].outvars, strict=True):
            spec = resolved_var.aval.spec
            if not spec.unreduced and not any(":" in str(a) for a in spec.axes()):
                found[var] = spec_from_entries(resolved_var.aval.entries)
    return found


def _all_sizes(p: Program) -> set[int]:
    found = {n for v in p.invars for n in v.aval.shape}
    for n, e in enumerate(p.eqns):
        found |= {k for v in e.outvars for k in v.aval.shape}
        for _, inner in inner_programs(e, n):
            found |= _all_sizes(inner)
    return {n for n in found if n > 1}


def _resized(case: Case, n: int, m: int) -> Case:
    """The case with every dimension of size n, and every such number in params, of size m."""
    return replace(case, program=_Resized(n, m).program(case.program))


class _Resized(Retyped):
    """Programs with the number n, as a size or in params, replaced by m."""
    def __init__(self, n: int, m: int) -> None:
        super().__init__()
        self.n, self.m = n, m

    def program(self, program: Program) -> Program:
        if any(self.n in v.aval.shape for v, _ in program.consts):
            raise ValueError("a captured array has its size")
        return super().program(_with(program))

    def type(self, aval: ArrayType) -> ArrayType:
        return aval.update(shape=self.param(aval.shape)) if self.n in aval.shape else aval

    def params(self, eqn: Equation) -> dict[str, Any]:
        return {k: self.param(v) for k, v in eqn.params.items()}

    def param(self, value: Any) -> Any:
        if isinstance(value, Program):
            return self.program(value)
        if type(value) is int:
            return self.m if value == self.n else value
        return tuple(map(self.param, value)) if type(value) is tuple else value
