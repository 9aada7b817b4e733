"""A proposal as text and as plain data: the tables of specs and of plans, and the code to paste."""
from __future__ import annotations

import pprint
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..ir.settings.context import config
from ..ir.shardings.sharding import NamedSharding
from ..ir.source.prose import plain_table, wrapped
from ..ir.source.wording import duration
from ..ir.spec import PartitionSpec
from ..partitioner.cost.figures import Figures
from ..report.advice.changes import Constrain, pattern_of, row_of
from ..report.frozen.decisions import decisions_of
from ..report.frozen.plan import rows_of_decisions
from ..report.words import quantity, spec_text
from ..tracer.trees import tree
from .proposal_data import ProposalData, Row

SHOWN = 12                 # plans that have names
_LINE = 96                 # characters of a line of code


def figures_line(f: Figures) -> str:
    """The figures of a plan in one line."""
    return (f"{duration(f.time)} a step, {quantity(f.peak_bytes, 'B')} at the peak, "
            f"{quantity(f.received_bytes, 'B')} received per device")


def report(p: ProposalData, width: int = 100) -> str:
    """Everything, as text. Prose is wrapped; tables and code are not."""
    times, device = p.figures.times, p.topology.hardware
    lines = [f"{p.name} on {p.topology}, {mesh_text(p.mesh)}",
             f"  time of a step: {duration(times.step)} (computation {duration(times.compute)}, "
             f"communication {duration(times.communication)}, of which {duration(times.exposed)} "
             "exposed)",
             f"  peak memory: {quantity(p.peak_bytes, 'B')} of {quantity(device.memory, 'B')} "
             f"(arguments {quantity(p.figures.memory.argument_bytes, 'B')})",
             f"  received per device: {quantity(p.received_bytes, 'B')}",
             f"  {bound_text(p)}"]
    lines += [f"  mesh {mesh_text(mesh)}: {duration(time)}" for mesh, time in p.meshes]
    if all(r.spec is None or not r.spec.axes() for r in p.arguments):
        lines.append("  no argument is split: exchanges would take longer than they save at these "
                     "sizes")
    head = wrapped("\n".join(lines), width).splitlines()
    tables = table(["argument", "type", "spec", "a device"], spec_rows(p.arguments))
    results = spec_rows([r for r in p.results if r.spec is not None])
    if results:
        tables += ["", *table(["result", "type", "spec", "a device"], results)]
    inside = []
    if p.constraints:
        inside = ["", "  inside", *wrapped("\n".join(
            dict.fromkeys([f"    {constraint_text(c)}" for c in p.constraints])),
            width).splitlines()]
    plans = table(["plan", "time", "peak", "received", ""], named_rows(p))
    return "\n".join([*head, "", *tables, *inside, "", *plans, "", code(p)])


def bound_text(p: ProposalData) -> str:
    """How far the plan is from the bound of the model, without promising more."""
    count = f"{p.tried} plan{'' if p.tried == 1 else 's'} tried"
    if p.result.every:
        count += ", every layout of the arguments among them"
    if p.bound is None or p.gap is None:
        return count
    times = p.figures.times
    total, least = times.compute + times.communication, duration(p.bound)
    if total < p.bound * (1 - 1e-3):
        return (f"one after the other, computation and communication take {duration(total)}; the "
                f"model, which prices every exchange by itself, has {least} as the least; {count}")
    return (f"one after the other, computation and communication take {duration(total)}; by the "
            f"model no plan takes less than {least}: {p.gap:.1%} above the bound; {count}")


def mesh_text(mesh: Any) -> str:
    """`data=512, model=8`."""
    return ", ".join(f"{a}={n}" for a, n in mesh.shape.items())


def named_rows(p: ProposalData) -> list[tuple[str, ...]]:
    found = [("this plan", *_columns(p.figures), "")]
    for other in [n for n in p.named if n.figures is not None][:SHOWN]:
        assert other.figures is not None
        note = f"{other.figures.time / max(p.time, 1e-18):.2f}x"
        if other.figures.peak_bytes > p.limit >= p.peak_bytes:
            note += ", does not fit"
        found.append((other.name, *_columns(other.figures), note))
    # of those that were not tried rather one job for all axes than mixtures
    untried = sorted([n for n in p.named if n.figures is None],
                     key=lambda n: (" x " in n.name, n.cost))
    found += [(n.name, duration(n.cost), "", "", "by the model, not tried")
              for n in untried[:max(0, SHOWN - len(found) + 1)]]
    return found


def _columns(f: Figures) -> tuple[str, str, str]:
    return duration(f.time), quantity(f.peak_bytes, "B"), quantity(f.received_bytes, "B")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned columns. Lines are indented so that they are not wrapped."""
    return [f"  {line}" for line in plain_table((head, *rows), 0).splitlines()]


def spec_rows(rows: Sequence[Row]) -> list[tuple[str, str, str, str]]:
    """(names, type, spec, bytes on a device) by rows of the pytree. Leaves that differ only in
    numbers, or in the argument that they belong to, share a row.
    """
    found: dict[tuple[str, str, str], list[Row]] = {}
    for r in rows:
        spec = spec_text(r.spec) if r.spec is not None else "open"
        base, suffix = _parted(r.name)
        shape = r.type[r.type.find("["):]
        found.setdefault((row_of("x" + suffix) if suffix else base, shape, spec), []).append(r)
    out = []
    for (_, _, spec), own in found.items():
        bases = list(dict.fromkeys(_parted(r.name)[0] for r in own))
        first = [r.name for r in own if _parted(r.name)[0] == bases[0]]
        name = pattern_of(first) if len(first) > 1 else first[0]
        if len(bases) > 1:
            name += ", " + ", ".join(bases[1:])
        types = list(dict.fromkeys(r.type for r in own))
        out.append((name, ", ".join([types[0], *(t.partition("[")[0] for t in types[1:])]), spec,
                    quantity(sum(r.nbytes for r in own), "B")))
    return out


def _parted(name: str) -> tuple[str, str]:
    """The argument, or the number of a result, and the path inside of it."""
    base = re.match(r"(result\[\d*\]?)?[^[.]*", name)
    assert base is not None
    return base.group(), name[base.end():]


def constraint_text(c: Constrain) -> str:
    """`h` to P('data') after train.py:12: h = x @ w"""
    where = c.location
    line = where.source_line().strip()
    at = f"{where}: {line}" if line else str(where)
    if c.places[0].equation < 0:
        name = f"`{c.name}`" if c.name else "what is carried"
        return f"{name} to {spec_text(c.spec)} where the body begins of the loop at {at}"
    return f"{_value_text(c)} to {spec_text(c.spec)} after {at}"


def _value_text(c: Constrain) -> str:
    """A value inside: its name, or the expression that it is of, or of whose derivative."""
    text = c.location.text()
    if c.name or not text:
        return f"`{c.name}`" if c.name else "the result"
    made = c.location.transform
    return f"the {made} of `{text}`" if "transpose" in made else f"`{text}`"


def code(p: ProposalData) -> str:
    """The jitted function with its specs. Equal trees of specs are written once."""
    axes = tuple(map(str, p.mesh.axis_names))
    lines = [f"mesh = jax.make_mesh({tuple(p.mesh.axis_sizes)!r}, {axes!r}, "
             f"axis_types=(AxisType.Auto,) * {len(axes)})",
             "placed = functools.partial(jax.tree.map, lambda spec: NamedSharding(mesh, spec))"]
    known: dict[str, _Written] = {}                     # by what stands there without names

    def written(value: Any, name: str) -> str:
        """The text of a tree of specs: its name, where it is written in a line of its own."""
        return named(tree.map(lambda s: s if s is None else _Written(spec_text(s)), value,
                              is_leaf=lambda s: s is None or isinstance(s, PartitionSpec)), name)

    def named(value: Any, name: str) -> str:
        full = repr(value)
        if full not in known and len(full) > 40:
            while repeated := _repeated(value, known):
                named(repeated[1], repeated[0] or name + "_part")
            short = tree.map(lambda part: known.get(repr(part), part), value,
                             is_leaf=lambda part: part is None or repr(part) in known)
            taken = [one.text for one in known.values()]
            while f"{name}_specs" in taken:
                name += "_"
            known[full] = _Written(f"{name}_specs")
            lines.append(f"{name}_specs = {_shown(short, len(name) + 9)}")
        return repr(known.get(full, value))

    def tupled(parts: Sequence[str]) -> str:
        return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"

    args, _ = _specs(p.in_shardings)
    heads = list(dict.fromkeys(_parted(r.name)[0] for r in p.arguments))
    flat = len(args) == len(p.arguments) and any(_parted(r.name)[1] for r in p.arguments)
    if flat:                     # an imported function: the structure is that of its arguments
        leaves = [s if s is None else _Written(spec_text(s)) for s in args]
        lines.append(f"specs = {_shown(leaves, len('specs = '))}     # one a leaf, in order")
        ins = "jax.tree.unflatten(jax.tree.structure(args), specs)"
    else:
        if len(heads) != len(args) or not all(map(str.isidentifier, heads)):
            heads = [f"argument_{i}" for i in range(len(args))]
        ins = tupled([written(a, head) for a, head in zip(args, heads, strict=True)])
    results, outs = _specs(p.out_shardings), ""
    if any(r.spec is not None for r in p.results) and not flat:
        parts = (tupled([written(r, f"result_{i}") for i, r in enumerate(results)])
                 if type(results) is tuple else written(results, "result"))
        outs = f",\n    out_shardings=placed({parts})"
    donated = f", donate_argnums={p.donated!r}" if p.donated else ""
    options: dict[str, Any] = {}
    if p.topology.hardware.key != config.read("shardtrace_hardware"):
        options["hardware"] = p.topology.hardware.key
    if p.limited:
        options["memory_limit"] = p.limit
    if options:
        donated += f",\n    compiler_options={options}"
    lines.append(f"{p.name} = jax.jit({p.name}, in_shardings=placed({ins}){outs}{donated})")
    rows = rows_of_decisions(decisions_of(p.program, p.constraints))
    if rows:
        shown = "".join([f"\n    {row!r}," for row in rows])
        lines.append(f"{p.name} = jax.thaw_plan({p.name}, [{shown}\n])")
    return "\n".join([*lines, *_lines_inside(p)])


def _lines_inside(p: ProposalData) -> list[str]:
    """The constraints inside, as comments that say which lines of the code would make them."""
    inside = []
    forward = {(c.location.place, c.spec) for c in p.constraints
               if "transpose" not in c.location.transform}
    for c in p.constraints:
        name, text, begins = c.name or "x", c.location.text(), c.places[0].equation < 0
        place = f"{'at the start of the body of' if begins else 'after'} {c.location}"
        if not c.name and text and not begins:
            if "transpose" in c.location.transform:     # no line of the user's makes it
                if (c.location.place, c.spec) in forward:
                    continue                            # the constraint has it, too
                inside.append(f"# {_value_text(c)} at {c.location} to {spec_text(c.spec)}: only by "
                              f"`thaw_plan`, since it has no line")
                continue
            name, place = text, f"at {c.location}, around the expression"
        made = f"jax.lax.with_sharding_constraint({name}, NamedSharding(mesh, {spec_text(c.spec)}))"
        inside.append(f"# {place}:\n#     {made if name == text else f'{name} = {made}'}")
    if inside:
        inside.insert(0, "# what is thawed, as lines of the code itself:")
    return list(dict.fromkeys(inside))                  # a loop and its gradient are one line


def _specs(shardings: Any) -> Any:
    return tree.map(lambda s: s.spec if isinstance(s, NamedSharding) else s, shardings,
                    is_leaf=lambda s: s is None or isinstance(s, NamedSharding))


def _repeated(value: Any, known: Mapping[str, _Written]) -> tuple[str, Any] | None:
    """The largest tree of several lines that a tree has more than once, with the key under which it
    is first ("" if that is no name); None if there is none. known: those that have names.
    """
    found: dict[str, list[tuple[str, Any]]] = {}

    def seen(part: Any) -> bool:
        if repr(part) in known:
            return True
        for key, child in part.items() if isinstance(part, dict) else enumerate(
                part) if isinstance(part, list | tuple) else ():
            name = key if isinstance(key, str) and key.isidentifier() else ""
            found.setdefault(repr(child), []).append((name, child))
        return False

    tree.map(lambda leaf: leaf, value, is_leaf=seen)
    again = [text for text, parts in found.items()
             if len(parts) > 1 and len(text) > _LINE and text not in known]
    return found[max(again, key=len)][0] if again else None


class _Written:
    """A spec, or the name of a tree of specs, as it is written."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(value: Any, indent: int) -> str:
    """A tree as it is written, its later lines indented."""
    shown = pprint.pformat(value, width=_LINE - indent, sort_dicts=False)
    return shown.replace("\n", "\n" + " " * indent)


def as_dict(p: ProposalData) -> dict[str, Any]:
    """A proposal as plain data."""
    def figures(f: Figures | None) -> dict[str, Any] | None:
        return None if f is None else {
            "time": f.time, "compute": f.times.compute, "communication": f.times.communication,
            "peak_bytes": f.peak_bytes, "received_bytes": f.received_bytes, "flops": f.flops}

    def rows(some: Sequence[Row]) -> list[dict[str, Any]]:
        return [{"name": r.name, "type": r.type, "nbytes": r.nbytes,
                 "spec": None if r.spec is None else spec_text(r.spec)} for r in some]

    return {"name": p.name, "mesh": {str(a): n for a, n in p.mesh.shape.items()},
            "hardware": p.topology.hardware.key, "figures": figures(p.figures), "bound": p.bound,
            "gap": p.gap, "tried": p.tried, "arguments": rows(p.arguments),
            "results": rows(p.results),
            "constraints": [{"name": c.name, "spec": spec_text(c.spec), "file": c.location.file,
                             "line": c.location.line} for c in p.constraints],
            "named": [{"name": n.name, "cost": n.cost, "figures": figures(n.figures)}
                      for n in p.named],
            "meshes": [{"mesh": {str(a): n for a, n in m.shape.items()}, "time": t}
                       for m, t in p.meshes],
            "code": code(p)}
