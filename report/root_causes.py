"""Root causes: the arguments or lines that brought the axes of many collectives.

Each collective has roots: the annotations from which its axes come, and what requested it. The root
with most bytes is named first, with all its collectives (of several with nearly as many bytes, the
one whose own value is moved or wanted); then the root of most of the remaining ones, and so on.
Bytes that no way of running the operation avoids count half. Everything written on one line is one
root. Arguments in one row of a table of specs, such as the `wo` of all layers, are one root; those
laid out unlike others (advice/layouts/freedoms.py), or unlike most of their row, are suspect, and
count for more.
"""
from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from ..ir.facts import VIEW
from ..ir.op import OPS
from ..ir.reasons import SPLITS_FURTHER, reason_text
from ..ir.rules.rule import ELEMENTWISE
from ..ir.source.location import Location
from ..ir.source.wording import duration
from ..partitioner.pipeline import Partitioned
from .advice.changes import (
    Argument,
    Change,
    Constrain,
    Respec,
    Result,
    forms_of,
    pattern_of,
    row_of,
    unlike_siblings,
)
from .advice.code.changes import Rewritten
from .advice.interleaving.change import Interleave
from .advice.layouts.freedoms import Freedoms
from .advice.trials import key_of
from .equal_collectives import grouped
from .explained_collective import ExplainedCollective
from .reasons.calls import line_of
from .reasons.causes import Asked, Hold, Path, where, whole_axes
from .words import quantity, spec_text

_SUSPECT = 8             # times the bytes, or seconds, that those of a suspect argument count
_NEEDED = 0.5            # of bytes and seconds of what no way of running its op does without
_NEARLY = 0.8            # of the bytes of the root that has most: as good a cause
_MUCH = 4                # times the seconds of what can be avoided that cannot be overlooked


@dataclass
class Annotation:
    """What a root cause is: arguments in one row, by position; or all that is at a place, of which
    some is asked of results.
    """
    arguments: set[int] = field(default_factory=set)
    place: tuple[str, int] = ("", 0)         # file and line
    results: set[int] = field(default_factory=set)

    def is_of(self, said: Path | Hold | Asked) -> bool:
        """Does a path begin at it, does it hold a value, or did it ask for something?"""
        at = said.location if isinstance(said, Asked) else said.root_location
        if isinstance(said, Path) and said.argument >= 0:
            return said.argument in self.arguments
        return bool(at.line) and (at.file, at.line) == self.place


@dataclass(frozen=True)
class RootCause:
    """An annotation, and the collectives, or parts of them, that are there because of it: the
    costliest group of equal ones first, of those that are about its own value, and those that no op
    does without last. text: what it is, "`ws[*]['o']` as P(None, 'model')"; "" where none is known.
    """
    text: str
    groups: tuple[tuple[ExplainedCollective, ...], ...]
    annotation: Annotation = field(default_factory=Annotation, compare=False)

    @property
    def collectives(self) -> tuple[ExplainedCollective, ...]:
        return tuple([c for group in self.groups for c in group])

    @property
    def count(self) -> int:
        """How many collectives it has; parts of one count once."""
        return len({id(c.exchange or c.record) for c in self.collectives})

    @property
    def received_bytes(self) -> int:
        """Over all runs of its collectives."""
        return sum(c.total_bytes for c in self.collectives)

    @property
    def time(self) -> float:
        """Seconds of its collectives, as if each were alone."""
        return sum(c.total_time for c in self.collectives)

    def described(self, total: int) -> str:
        """In a sentence. total: bytes that the program receives."""
        n = self.count
        return (f"{self.text or 'no annotation'}: {n} collective{'s' if n != 1 else ''}, "
                f"{quantity(self.received_bytes, 'B')} of {quantity(total, 'B')}, "
                f"{duration(self.time)}")

    def to_dict(self) -> dict[str, Any]:
        return {"text": self.text, "collectives": self.count,
                "received_bytes": self.received_bytes, "time": self.time}


class Roots:
    """The roots of the collectives of one program.

    of: for each collective (by id) the texts of its roots, and whether they are of what it is about
    itself. An exchange that the user wrote is there because of its line, not of what reaches it in
    parts.
    """

    def __init__(self, collectives: Sequence[ExplainedCollective], partitioned: Partitioned,
                 freedoms: Freedoms | None = None) -> None:
        self.collectives = collectives
        self.rows = rows = _Rows(partitioned, freedoms, collectives)
        self.of: dict[int, dict[str, bool]] = {}
        before: dict[str, list[str]] = {}
        for c in collectives:       # axes that a choice brought: from the exchange before over them
            axes, own = whole_axes(c.mesh_axes), list(rows.roots(c))
            self.of[id(c)] = {text: direct for text, direct, _ in sorted(
                own, key=lambda r: r[1])} or {
                    text: False for a in axes for text in before.get(a, ())}
            before |= {a: some for a in axes if (some := [r for r, _, over in own if a in over])}
        for c in collectives:
            if c.cause.move is None and c.cause.asked_by is not None:
                self.of[id(c)] = {text: direct for text, direct in self.of[id(c)].items()
                                  if text in rows.asked}


def root_causes(known: Roots, changes: Sequence[Change] = (),
                about: ExplainedCollective | None = None) -> list[RootCause]:
    """The root causes, that with the costliest collectives first; an argument that is laid out
    unlike others rather than these. changes: what of the program is known to save most if it is
    changed, a root cause before all others; about: the collective that they are for. A line of
    code, or a constraint, that is changed, or what shapes a value that is to be constrained, or
    cuts it into parts, is one of this, if no line asked for it.
    """
    collectives, rows = known.collectives, known.rows
    roots = {key: {**texts} for key, texts in known.of.items()}
    changed = rows.changed(changes)
    if all(isinstance(c, Rewritten) for c in changes):      # its line may exchange something else
        near = {at for c in changes for site in c.sites for at in site.near}   # type: ignore
        changed &= {text for c in collectives if where(c.source) in near for text in roots[id(c)]}
    own = {*roots.get(id(about), ())}
    if about is not None and about.cause.asked_by is not None and (
            not changed or changed.isdisjoint(own | rows.asked)
            and all(isinstance(c, Rewritten) for c in changes)):
        changed = own
    elif about is not None and not changed:
        cuts = [at for c in changes if (at := _cut_at(c)) is not None]
        lines = {rows.placed(_expression(at), at): at for at in [*cuts, *[
            c.location for c in changes if isinstance(c, Rewritten | Respec) and c.location.line
            or isinstance(c, Constrain) and _is_view(c, about)]]}
        changed |= lines.keys()
        cut = {text for text, at in lines.items() if at in cuts}
        for c in collectives:
            if (key_of(c.record), c.mesh_axes) == (key_of(about.record), about.mesh_axes):
                roots[id(c)].update(dict.fromkeys(lines, True))
            roots[id(c)].update({text: True for text in cut if any(
                where(at) == where(lines[text]) for path in c.cause.paths
                for _, at in path.steps)})
    elif about is not None and (_is_lacked(changes, about) or changed.isdisjoint(
            itertools.chain.from_iterable(roots.values()))):
        for c in collectives:           # changed arguments that no axis comes from: what they lack
            if (key_of(c.record), c.mesh_axes) == (key_of(about.record), about.mesh_axes):
                roots[id(c)].update({text: True for text in rows.annotations if text in changed})
    left = list(collectives)
    found: list[RootCause] = []
    while left:
        weights: dict[str, float] = {}
        direct: dict[str, float] = {}
        for c in left:
            for root, is_direct in roots[id(c)].items():
                weight = (c.total_bytes + 1) * _weight(c) * (
                    _SUSPECT if is_direct and root in rows.suspect else 1)
                weights[root] = weights.get(root, 0) + weight
                direct[root] = direct.get(root, 0) + weight * is_direct
        most = max(weights.values(), default=0)
        named = [root for root in weights if root in changed]
        best = max(named or [root for root in weights if weights[root] >= _NEARLY * most],
                   key=lambda root: (direct[root], weights[root], root in rows.asked), default="")
        its = [c for c in left if best in roots[id(c)]] if best else left
        its_annotation = rows.annotations.get(best, Annotation())
        groups = sorted(grouped(its), key=_order(
            its, [c for c in its if roots[id(c)].get(best)], its_annotation,
            about if best in changed else None))
        found.append(RootCause(best, tuple(map(tuple, groups)),
                               its_annotation))
        left = [c for c in left if best not in roots[id(c)]] if best else []
    return sorted(found, key=lambda r: (r.text not in changed, (
        _SUSPECT if r.text in rows.suspect else 1) * -max(
            sum(c.total_time * _weight(c) for c in group) for group in r.groups)))


def _weight(c: ExplainedCollective) -> float:
    """What its bytes and seconds count."""
    return _NEEDED if c.reason_kind == "needed" else 1


def _order(collectives: Sequence[ExplainedCollective], direct: Sequence[ExplainedCollective],
           annotation: Annotation, about: ExplainedCollective | None
           ) -> Callable[..., tuple[bool, bool, bool, bool]]:
    """Which of equal collectives come last: those that no op does without, unless only they are of
    the root's own value, before these what the root is only indirectly behind, and before these
    what it does not ask for itself; but not what takes much longer than what comes before it.
    about: what comes first of all.
    """
    most, most_own = [max((c.total_time for c in some if c.reason_kind != "needed"), default=0.0)
                      for some in (collectives, direct)]
    own = {id(c) for c in direct}

    def key(group: Sequence[ExplainedCollective]) -> tuple[bool, bool, bool, bool]:
        seconds, is_own = group[0].total_time, any(id(c) in own for c in group)
        return (not any(c is about for c in group),
                group[0].reason_kind == "needed" and seconds < _MUCH * (
                    most_own if is_own else most),
                not is_own or seconds * _MUCH < most,
                not any(c.cause.asked_by is not None and annotation.is_of(c.cause.asked_by)
                        for c in group))
    return key


def _is_view(change: Constrain, about: ExplainedCollective) -> bool:
    """Is it a constraint on what only shapes a value anew, through which the axes of a collective
    come? They are on that dimension because of the shape.
    """
    return any(name in OPS and VIEW in OPS[name].facts and where(at) == where(change.location)
               for path in about.cause.paths for name, at in path.steps)


def _cut_at(change: Change) -> Location | None:
    """Where a reshape cuts rows into parts whose order a change is of; None of another one. It is
    because of how they are cut that a device does not have rows of each part.
    """
    return change.location if isinstance(change, Interleave) and change.arguments and (
        change.location.line) else None


def _is_lacked(changes: Sequence[Change], about: ExplainedCollective) -> bool:
    """Do changes only add axes of a collective to those that arguments have?"""
    axes = whole_axes(about.mesh_axes)
    return all(isinstance(c, Argument) and c.before is not None
               and {*c.before.axes()} <= {*c.spec.axes()}
               and bool(axes & ({*c.spec.axes()} - {*c.before.axes()})) for c in changes)


def _expression(at: Location) -> str:
    """What is written at a place, in backquotes."""
    return f"`{at.text() or at.source_line().strip()}`"


def _numbered(texts: Sequence[str]) -> str:
    """`in_specs[*]` of a `shard_map` for texts that begin alike but for a number; "" for others."""
    starts = [text.partition(", ")[0] for text in texts]
    return pattern_of(starts) if len({re.sub(r"\d+", "", start) for start in starts}) == 1 else ""


def _keeps_layout(name: str) -> bool:
    """Is what this op makes laid out as its operand is, element by element?"""
    op = OPS.get(name)
    return op is not None and op.rule == ELEMENTWISE


class _Rows:
    """The annotations of one program, as its user calls them."""

    def __init__(self, partitioned: Partitioned, freedoms: Freedoms | None,
                 collectives: Sequence[ExplainedCollective]) -> None:
        asked = [c.cause.asked_by for c in collectives]
        self.files = {c.source.file for c in collectives}
        names = partitioned.resolved.arg_names
        by_form = forms_of(partitioned)
        self.text: dict[int, str] = {}                     # of an argument
        self.further = {reason_text((SPLITS_FURTHER(f"argument `{name}`"),)): i
                        for i, name in enumerate(names)}   # that the planner splits further
        self.annotations: dict[str, Annotation] = {}       # by text
        for (_, _, spec), row in by_form.items():
            text = f"`{pattern_of([names[i] for i in row])}` as {spec}"
            self.text.update(dict.fromkeys(row, text))
            self.annotations.setdefault(text, Annotation()).arguments.update(row)
        self.at: dict[tuple, str] = {}
        said: dict[tuple, dict[str, Asked]] = {}        # what asks for something, by place
        for one in filter(None, asked):
            if one.location.line:
                said.setdefault((one.location.file, one.location.line), {})[one.text] = one
        for place, ones in said.items():
            (text, one), *others = ones.items()
            if others:                  # several expressions of one line: as what that is shown
                text = _numbered([*ones]) or f"`{one.location.source_line().strip()}`"
            self.at[place] = f"{text} at {line_of(one.location, self.files)}"
        given = freedoms.given if freedoms is not None else {}
        self.result_of = {one.tensor: ~i for i, one in given.items() if i < 0}
        called = dict(enumerate(partitioned.traced.result_names))
        texts = {one.result: one.text for one in filter(None, asked) if one.result >= 0}
        for i in self.result_of.values():
            name = called.get(i) or (f"[{i}]" if len(partitioned.out_specs) > 1 else "")
            texts[i] = (f"`out_shardings`, {spec_text(partitioned.out_specs[i])} for "
                        f"{f'result {name}' if name else 'the result'}")
        table: dict[tuple, dict[int, str]] = {}         # results of one row, asked for alike
        for i, text in texts.items():
            _, _, name = text.partition(" for result ")
            if name and partitioned.out_specs:      # a plan from its text has none
                table.setdefault((partitioned.out_specs[i], row_of(name)), {})[i] = name
        self.results = texts | {
            i: f"{texts[i].partition(' for result ')[0]} for result {pattern_of([*row.values()])}"
            for row in table.values() for i in row}
        self.asked: set[str] = set()
        unlike = freedoms.unlike if freedoms is not None else frozenset()
        self.suspect = {(self.text if i >= 0 else self.results).get(i if i >= 0 else ~i, "")
                        for i in (*unlike, *unlike_siblings(by_form))} - {""}

    def roots(self, c: ExplainedCollective) -> Iterator[tuple[str, bool, Set[str]]]:
        """The texts of the roots of a collective, whether they are of what it is about itself, and
        which of its axes they bring.
        """
        cause, axes = c.cause, whole_axes(c.mesh_axes)
        if cause.asked_by is not None:
            asked = cause.asked_by
            text = self.annotated(asked.result, asked.text, asked.location)
            self.asked.add(text)
            yield text, True, axes
        for path in cause.paths:
            if over := axes & whole_axes([path.axis]):
                own = path.wanted or all(_keeps_layout(name) for name, _ in path.steps)
                result = self.result_of.get(path.tensors[-1], -1) if path.tensors else -1
                argument = self.further.get(path.root, path.argument)
                yield self.text.get(argument) or self.annotated(
                    result, path.root, path.root_location), own, over
        for hold in cause.holds:
            result = self.result_of.get(hold.tensor, -1)
            text = hold.root
            if text == "`with_sharding_constraint`" and hold.root_location.text():
                text = _expression(hold.root_location)
            yield self.annotated(result, text, hold.root_location), True, axes

    def annotated(self, result: int, text: str, at: Location) -> str:
        """What is written at a place, or asks for a result, by its number, if that is none of -1.
        """
        text = self.results.get(result) or self.placed(text, at)
        self.annotations.setdefault(text, Annotation())
        if result >= 0:
            self.annotations[text].results.add(result)
        return text

    def changed(self, changes: Sequence[Change]) -> set[str]:
        """The texts of the roots, of those that were seen, that changes are of."""
        found: set[str] = set()
        for c in changes:
            if isinstance(c, Argument):
                found.add(self.text.get(c.index, ""))
            elif isinstance(c, Interleave) and c.arguments and not c.location.line:
                found |= {self.text.get(i, "") for i in c.arguments}
            elif isinstance(c, Result):
                found |= {root for root in self.annotations
                          if c.index in self.annotations[root].results}
            elif not isinstance(c, Constrain):
                found.add(self.at.get((c.location.file, c.location.line), ""))
        return found - {""}

    def placed(self, text: str, at: Location) -> str:
        """What is written at a place: all that is at one line is one root."""
        place = (at.file, at.line) if at.line else ("", 0)
        if at.line:
            text = self.at.setdefault(place, f"{text} at {line_of(at, self.files)}")
        self.annotations.setdefault(text, Annotation(place=place))
        return text
