"""Where rows of parts may be interleaved: a value is concatenated, or passed, along a dimension of
which a part is read by itself later.

Each slice, split, or reshape that reads parts is followed back through equations that compute rows
each by itself, to the equation that joins parts of these sizes or to an argument.
"""
from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import accumulate

from ....ir.ops.control.loop_operands import scan_operands
from ....ir.program import Atom, Equation, Literal, Program, Var
from ....ir.rules.factor import PASS
from ....ir.source.location import UNKNOWN, Location
from ....ir.support.named_tuple import NamedTuple
from ...reasons.causes import where
from ...reasons.value_paths import inner_programs
from .row_order import rule_of

_STEPS = 200            # values that are looked at for one reader of parts
_PARTS = 16             # parts of a dimension, at most


class Seed(NamedTuple):
    """A value that consists of parts. maker: the equation that joins them, None for an argument.
    counts, group: as in `Interleave`; near: the places of that equation and of those that read
    parts; cut: where a reshape reads all parts, if one does.
    """
    value: Var
    maker: Equation | None
    dim: int
    group: int
    counts: tuple[int, ...]
    near: frozenset[tuple]
    cut: Location = UNKNOWN


def seeds(program: Program) -> list[Seed]:
    """The values whose parts are read separately, each once for each dimension."""
    made: dict[Atom, Equation] = {}
    outside: dict[Atom, tuple[Atom, int]] = {}
    readers: list[tuple[Var, int, tuple[Fraction, ...], Equation]] = []
    _collect(program, made, outside, readers)
    cuts: dict[tuple[Var, int, int], set[Fraction]] = {}
    near: dict[tuple[Var, int, int], set[tuple]] = {}
    reshaped: dict[tuple[Var, int, int], Location] = {}
    turns = Counter([(value, d, where(reader.location)) for value, d, _, reader in readers])
    for value, d, at, reader in readers:
        is_reshape = reader.op.name == "reshape"
        if value not in made and value not in outside and not is_reshape and (
                turns[value, d, where(reader.location)] == 1):
            continue                    # whoever reads one part of it may be given that
        for key in _back(value, d, made, outside):
            cuts.setdefault(key, set()).update(at)
            near.setdefault(key, set()).add(where(reader.location))
            if is_reshape:
                reshaped.setdefault(key, reader.location)
    given = {*program.invars}
    found = []
    for (v, d, group), at in cuts.items():
        maker, n = made.get(v), v.aval.shape[d]
        if maker is None and v not in given:
            continue
        if maker is not None:
            at = {Fraction(e, n) for e in accumulate(a.aval.shape[d] for a in maker.invars)}
            near[v, d, group].add(where(maker.location))
        counts = _counts(sorted({*at, Fraction(0), Fraction(1)}), n, group)
        if counts is not None:
            found.append(Seed(v, maker, d, group, counts, frozenset(near[v, d, group]),
                              reshaped.get((v, d, group), UNKNOWN)))
    return found


def _counts(cuts: Sequence[Fraction], n: int, group: int) -> tuple[int, ...] | None:
    """How many groups of each part stand together; None if they do not fit."""
    sizes = [(b - a) * n / group for a, b in zip(cuts, cuts[1:], strict=False)]
    if not 2 <= len(sizes) <= _PARTS or any(s.denominator != 1 for s in sizes):
        return None
    whole = [int(s) for s in sizes]
    unit = math.gcd(*whole)
    return tuple([s // unit for s in whole]) if unit > 1 else None


def _collect(program: Program, made: dict[Atom, Equation], outside: dict[Atom, tuple[Atom, int]],
             readers: list) -> None:
    """Enter the equations of a program and of the loops in it, and what reads parts."""
    for n, eqn in enumerate(program.eqns):
        made.update(dict.fromkeys(eqn.outvars, eqn))
        readers += _cuts(eqn)
        for _, inner in inner_programs(eqn, n):
            if eqn.op.name == "scan":
                pairs = [*zip(inner.invars, eqn.invars, strict=True)]
                consts, _, items = scan_operands(eqn.params).split(pairs)
                outside.update([(v, (a, 0)) for v, a in consts])
                outside.update([(v, (a, 1)) for v, a in items])
            if "in_specs" not in eqn.params:
                _collect(inner, made, outside, readers)


def _cuts(eqn: Equation) -> Iterator[tuple[Var, int, tuple[Fraction, ...], Equation]]:
    """(value, dimension, where it is cut as parts of its size, equation) of what one reads."""
    name, params = eqn.op.name, eqn.params
    if name not in ("slice", "split", "reshape") or not isinstance(eqn.invars[0], Var):
        return
    x = eqn.invars[0]
    shape, result = x.aval.shape, eqn.outvars[0].aval.shape
    if name == "slice" and (params["strides"] is None or {*params["strides"]} == {1}):
        for d, (a, b) in enumerate(zip(params["start_indices"], params["limit_indices"],
                                       strict=True)):
            if b - a != shape[d]:
                yield x, d, (Fraction(a, shape[d]), Fraction(b, shape[d])), eqn
    elif name == "split":
        d = params["axis"]
        ends = accumulate(params["sizes"])
        yield x, d, tuple([Fraction(e, shape[d]) for e in ends]), eqn
    elif name == "reshape" and len(result) > len(shape):
        d = next((d for d, n in enumerate(shape) if n != result[d]), len(shape))
        if d < len(shape) and 1 < result[d] <= _PARTS and not shape[d] % result[d]:
            yield x, d, tuple([Fraction(i, result[d]) for i in range(result[d])]), eqn


def _back(value: Var, d: int, made: dict[Atom, Equation], outside: dict[Atom, tuple[Atom, int]]
          ) -> Iterator[tuple[Var, int, int]]:
    """The values that a dimension of a value comes from: what is joined, parameters; with that
    dimension of theirs, and the rows that belong together there.
    """
    seen: set[tuple[Atom, int, int]] = set()
    waiting: list[tuple[Atom, int, int]] = [(value, d, 1)]
    while waiting and len(seen) < _STEPS:
        a, d, group = waiting.pop()
        if (a, d, group) in seen or isinstance(a, Literal):
            continue
        seen.add((a, d, group))
        eqn = made.get(a)
        if eqn is None:
            if a in outside:
                outer, shift = outside[a]
                waiting.append((outer, d + shift, group))
            else:
                yield a, d, group
            continue
        if eqn.op.name == "concatenate" and eqn.params["dimension"] == d:
            yield a, d, group
            continue
        rule = rule_of(eqn)
        own = rule.results[eqn.outvars.index(a)][d] if rule is not None else ()
        if rule is None or not own or rule.factors[own[0]].kind != PASS or (
                rule.factors[own[0]].blocked):
            continue
        sizes = [f.size for f in rule.factors]
        tail = math.prod(sizes[f] for f in own[1:])
        if group % tail and tail % group:
            continue
        inner = max(1, group // tail)            # groups may be larger than the reader needs
        for x, dims in zip(eqn.invars, rule.operands, strict=True):
            waiting += [(x, k, inner * math.prod(sizes[f] for f in at[1:]))
                        for k, at in enumerate(dims) if at[:1] == own[:1]]
