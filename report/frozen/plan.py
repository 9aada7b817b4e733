"""A frozen plan: a file of decisions, its text, and its differences from another plan.

The file is JSON with a line for each decision, so that version control shows what changed.
"""
from __future__ import annotations

import collections
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...ir.passes import OBJECTIVE
from ...ir.source.location import UNKNOWN
from ...ir.support.immutable import immutable
from ...partitioner.collectives import collectives
from ...partitioner.pipeline import Partitioned
from ..words import quantity
from .decisions import Decision, Key, decisions
from .fitting import parsed_spec

SCHEMA = 1
_SHOWN = 12          # decisions of each kind that a difference lists


@immutable
class FrozenPlan:
    """What was decided in a partition of the function `name`.

    mesh: sizes by axis. decisions: layouts of arguments, results and values, and operands that are
    brought elsewhere. exchanged: "all-gather over model: return h @ w2" -> bytes that a
    device receives. received_bytes: of all. objective: what the plan was judged by, as texts of
    programs say it, by which what has no decision is decided. partial: whether it has only some
    decisions, beside which all else is planned as without it.
    """
    name: str
    mesh: dict[str, int]
    decisions: tuple[Decision, ...]
    exchanged: dict[str, int]
    objective: str = "time"
    partial: bool = False

    @classmethod
    def of_rows(cls, rows: Sequence[Mapping[str, Any]]) -> FrozenPlan:
        """A partial plan, of decisions as they stand in a file. Raises ValueError for other rows.
        """
        try:
            return cls("", {}, _decisions(rows), {}, partial=True)
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"a decision of the plan: {type(problem).__name__}: {problem}"
                             ) from None

    @classmethod
    def of(cls, partitioned: Partitioned) -> FrozenPlan:
        """The plan of a partition."""
        exchanged: dict[str, int] = {}
        for r in collectives(partitioned.local):
            line = r.source.source_line().strip()
            what = f"{r.kind} over {', '.join(map(str, r.mesh_axes))}"
            what += f": {line}" if line else ""
            exchanged[what] = exchanged.get(what, 0) + r.total
        mesh = {str(a): n for a, n in partitioned.mesh.shape.items()}
        objective, _, _ = partitioned.local.attributes.get(OBJECTIVE, (cls.objective, "", 0))
        return cls(partitioned.traced.name, mesh, tuple(decisions(partitioned)), exchanged,
                   objective)

    @property
    def received_bytes(self) -> int:
        return sum(self.exchanged.values())

    # -- files -------------------------------------------------------------------------------------

    def save(self, path: Any) -> None:
        """Write the plan to a file."""
        Path(path).write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: Any) -> FrozenPlan:
        """The plan in a file. Raises ValueError, with the position, for a file that has none."""
        try:
            return cls.from_json(Path(path).read_text(encoding="utf-8"))
        except ValueError as problem:
            raise ValueError(f"{path} is no frozen plan: {problem}") from None

    def to_json(self) -> str:
        rows = ",\n  ".join(json.dumps(row_of_decision(d)) for d in self.decisions)
        moved = ",\n  ".join(json.dumps({"what": k, "bytes": n}) for k, n in self.exchanged.items())
        return (f'{{"plan": {SCHEMA}, "function": {json.dumps(self.name)}, '
                f'"mesh": {json.dumps(self.mesh)}, "objective": {json.dumps(self.objective)},\n'
                f' "decisions": [\n  {rows}\n ],\n'
                f' "exchanged": [\n  {moved}\n ]}}\n')

    @classmethod
    def from_json(cls, text: str) -> FrozenPlan:
        """The plan that a file states; ValueError says what is wrong with it."""
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("plan") != SCHEMA:
            raise ValueError(f"it does not begin with \"plan\": {SCHEMA}")
        try:
            return cls(str(data["function"]), {str(a): int(n) for a, n in data["mesh"].items()},
                       _decisions(data["decisions"]),
                       {str(r["what"]): int(r["bytes"]) for r in data["exchanged"]},
                       str(data.get("objective", cls.objective)))
        except (KeyError, TypeError, AttributeError) as problem:
            raise ValueError(f"{type(problem).__name__}: {problem}") from None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"function": self.name, "mesh": dict(self.mesh), "objective": self.objective,
                "decisions": [row_of_decision(d) for d in self.decisions],
                "exchanged": dict(self.exchanged)}

    # -- differences -------------------------------------------------------------------------------

    def compared(self, other: FrozenPlan, unfit: Mapping[Key, str] | None = None) -> PlanDifference:
        """The differences of another plan for the function. unfit: decisions that were not kept,
        with the reason.
        """
        unfit = unfit or {}
        now, then = ({d.key: d for d in p.decisions} for p in (other, self))
        gone = tuple([d for k, d in then.items() if k not in now and k not in unfit])
        misfits = tuple([(then[k], why) for k, why in unfit.items()])
        if self.partial:        # a value may be computed in one layout and brought to the other
            return PlanDifference(self, other, misfits, gone, (), ())
        changed = tuple([(d, now[k]) for k, d in then.items()
                         if k in now and k not in unfit and now[k].spec != d.spec])
        new = tuple([d for k, d in now.items() if k not in then])
        return PlanDifference(self, other, misfits, gone, changed, new)


@immutable
class PlanDifference:
    """Where a plan and a later partition disagree.

    unfit: decisions that are impossible in the program as it is now, with the reason. gone: those
    about something it no longer has. changed: (decision then, decision now). new: decisions about
    something that was not there. `fits` is whether all of the plan is kept.
    """
    before: FrozenPlan
    after: FrozenPlan
    unfit: tuple[tuple[Decision, str], ...]
    gone: tuple[Decision, ...]
    changed: tuple[tuple[Decision, Decision], ...]
    new: tuple[Decision, ...]

    @property
    def fits(self) -> bool:
        return not (self.unfit or self.gone or self.changed)

    def __str__(self) -> str:
        lost = len(self.unfit) + len(self.gone) + len(self.changed)
        total = len(self.before.decisions)
        lines = [f"{self.after.name}: {total - lost} of {total} decisions are kept"]
        if self.before.mesh != self.after.mesh and not self.before.partial:
            lines.append(f"  mesh {_sizes(self.after.mesh)}, frozen on {_sizes(self.before.mesh)}")
        lines += _first_few("does not fit", [f"{described(d)} as {d.spec}: {why}"
                                             for d, why in self.unfit])
        lines += _first_few("gone", [f"{described(d)}, {d.spec}" for d in self.gone])
        lines += _first_few("otherwise", [f"{described(d)} is {now.spec}, frozen as {d.spec}"
                                          for d, now in self.changed])
        lines += _first_few("new", [f"{described(d)}, decided as {d.spec}" for d in self.new])
        before, after = self.before.exchanged, self.after.exchanged
        if self.before.partial or (
                self.fits and self.before.received_bytes == self.after.received_bytes):
            before = after      # a kept exchange may count for the line that reads its result
        now, then = (quantity(p.received_bytes, "B") for p in (self.after, self.before))
        lines.append(f"received per device: {now}" + (
            "" if before == after else f", when frozen {then}"))
        lines += [f"  - {k}: {quantity(n, 'B')}" for k, n in before.items() if after.get(k) != n]
        lines += [f"  + {k}: {quantity(n, 'B')}" for k, n in after.items() if before.get(k) != n]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"function": self.after.name, "fits": self.fits,
                "unfit": [{**row_of_decision(d), "why": why} for d, why in self.unfit],
                "gone": [row_of_decision(d) for d in self.gone],
                "changed": [{**row_of_decision(d), "now": now.spec} for d, now in self.changed],
                "new": [row_of_decision(d) for d in self.new],
                "received_bytes": {"then": self.before.received_bytes,
                                   "now": self.after.received_bytes}}


def described(d: Decision) -> str:
    """The subject of a decision in words: "`h` of line 15: h = jnp.tanh(x @ w1)"."""
    k = d.key
    if k.kind == "argument":
        return f"argument `{k.name}` {d.type}"
    if k.kind == "result":
        return f"result {k.name} {d.type}".replace("  ", " ")
    name = f"`{d.name}`" if d.name else f"the result of `{k.op}`"
    if k.kind == "operand":
        name = f"{f'`{d.name}`' if d.name else 'operand ' + str(k.index)}, brought to `{k.op}`"
        if k.op == "return":
            name += f" of the body of `{_around(k)}`"
    elif k.kind == "parameter":
        name = f"`{d.name}`" if d.name else f"parameter {k.index}"
        name += f" in the body of `{_around(k)}`"
    via = f", {k.via}" if k.via else ""
    at = f" at line {d.location.line}" if d.location.line else ""
    return f"{name} {d.type}".rstrip() + f"{via}{at}" + (f": {k.line}" if k.line else "")


def _around(key: Key) -> str:
    """The op in whose body the decision's subject is."""
    return key.path.rpartition("/")[2].partition(".")[0]


def _first_few(word: str, texts: Sequence[str]) -> list[str]:
    counts = collections.Counter(texts)         # those of equal layers are said once
    shown = [text if n == 1 else f"{text} ({n} times)" for text, n in counts.items()]
    more = [f"  {word}: {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else []
    return [f"  {word}: {text}" for text in shown[:_SHOWN]] + more


def _sizes(mesh: Mapping[str, int]) -> str:
    return ", ".join(f"{a}={n}" for a, n in mesh.items()) or "none"


_DEFAULTS = Key("")._asdict()
_LAID_OUT = ("kind", "name", "op", "line", "function", "via", "path", "index", "nth")


def row_of_decision(d: Decision) -> dict[str, Any]:
    """A decision as plain data, without defaults."""
    key = d.key._asdict()
    row: dict[str, Any] = {"kind": d.key.kind, **({"value": d.name} if d.name else {}),
                           **({"type": d.type} if d.type else {}), "spec": d.spec}
    if d.before:
        row["before"] = d.before
    row |= {k: key[k] for k in _LAID_OUT[1:] if key[k] != _DEFAULTS[k]}
    return row


def rows_of_decisions(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    """Decisions as plain data, in which those that only their number tells apart, as of equal
    layers, are one row with a list of numbers.
    """
    alike: dict[Decision, list[Decision]] = {}
    for d in decisions:
        alike.setdefault(d._replace(key=d.key._replace(nth=0), name="", location=UNKNOWN),
                         []).append(d)
    return [row_of_decision(all_[0]) if len(all_) == 1 else
            {**row_of_decision(one), "nth": [d.key.nth for d in all_]}
            for one, all_ in alike.items()]


def _decisions(rows: Iterable[Mapping[str, Any]]) -> tuple[Decision, ...]:
    """The decisions of rows; one with a list of numbers is several (`rows_of_decisions`)."""
    return tuple([_decision(one) for row in rows for one in (
        [{**row, "nth": n} for n in row["nth"]] if type(row.get("nth")) is list else [row])])


def _decision(row: Mapping[str, Any]) -> Decision:
    key = {k: row[k] for k in _LAID_OUT if k in row}
    unknown = [k for k, v in key.items() if type(v) is not type(_DEFAULTS[k])]
    if unknown or key.get("kind") not in ("argument", "result", "value", "parameter", "operand"):
        raise ValueError(f"a decision with {unknown[0] if unknown else 'kind'} "
                         f"{row.get(unknown[0] if unknown else 'kind')!r}")
    parsed_spec(row["spec"])
    return Decision(Key(**key), str(row.get("value", "")), str(row.get("type", "")), row["spec"],
                    str(row.get("before", "")))

