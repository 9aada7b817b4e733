"""Drawings of the pages, made of what the package itself says: sharded values, steps, imports.

A page asks for one by a comment, `<!-- drawing: holdings(x) -->`: an expression in the names of the
page's own program and of this file. Lines and text have the colour of the page's text and blocks
are of middle brightness, so that a drawing reads on light and on dark pages.
"""
from __future__ import annotations

import ast
import contextlib
import html
import io
import itertools
import linecache
import math
import pathlib
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import networkx as nx
import numpy as np

from shardtrace.arrays.visualize import sharding_svg
from shardtrace.driver.jit.jit import jit
from shardtrace.ir.program import Program
from shardtrace.partitioner.passes import PIPELINE
from shardtrace.runtime.per_device.executor import PendingResult, PerDeviceRun

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LINE = "stroke='currentColor' fill='none'"
_BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```$|^<!-- drawing: (?P<expression>[^\n]*) -->$",
                    re.MULTILINE | re.DOTALL)
FAINT = "opacity='.7' font-size='10'"


def drawn(page: str) -> str:
    """A page with its drawings in the place of the comments that ask for them."""
    if "<!-- drawing: " not in page:
        return page
    names = {**globals(), "__name__": "page"}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        program = pathlib.Path(folder) / "page.py"

        def block(match: re.Match[str]) -> str:
            if match["expression"]:
                return eval(match["expression"], names)
            program.write_text("\n" * page[:match.start()].count("\n") + match["code"])
            linecache.checkcache(str(program))
            exec(compile(program.read_text(), str(program), "exec"), names)
            return match[0]

        return _BLOCK.sub(block, page)


def figure(width: float, height: float, parts: Iterable[str], said: str) -> str:
    """The markup of a drawing. said: what it shows, for those who hear the page."""
    return (f"<figure><svg xmlns='http://www.w3.org/2000/svg' role='img' width='{width:.0f}' "
            f"height='{height:.0f}' viewBox='0 0 {width:.0f} {height:.0f}' font-size='12' "
            f"font-family='monospace' fill='currentColor' style='max-width:100%;height:auto'>"
            f"<title>{html.escape(said)}</title><defs><marker id='tip' markerWidth='8' "
            "markerUnits='userSpaceOnUse' "
            "markerHeight='8' refX='7' refY='4' orient='auto'><path d='M0,1 L7,4 L0,7' "
            "fill='currentColor'/></marker><pattern id='part' width='5' height='5' "
            "patternUnits='userSpaceOnUse' patternTransform='rotate(45)'><rect width='2' "
            f"height='5' fill='#fff' opacity='.55'/></pattern></defs>{''.join(parts)}</svg>"
            "</figure>")


def text(x: float, y: float, said: Any, more: str = "") -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' {more}>{html.escape(str(said))}</text>"


def rect(x: float, y: float, w: float, h: float, more: str) -> str:
    return f"<rect x='{x:.1f}' y='{y:.1f}' width='{w:.1f}' height='{h:.1f}' {more}/>"


def colour(part: float) -> str:
    """Of a number from 0 to 1: neighbours can be distinguished, and white is read on each."""
    return f"hsl({(210 + 300 * part) % 360:.0f},45%,48%)"


# -- which device holds what -----------------------------------------------------------------------


def holdings(*values: Any) -> str:
    """The devices of the mesh, each with the part that it holds, of each value."""
    return _below([_Value(value).drawn() for value in values])


def exchanges(value: Any, *functions: Any) -> str:
    """What each device holds of a value, and of it after each exchange of functions that move it.

    The program of each is run, device by device, on the numbers of the elements: what arrives says
    which element it is. Where devices have partial sums, each adds its share, and a run on ones
    tells how much of the sum there is.
    """
    found = []
    for function in functions:
        start = _Value(value, function)
        found.append(start.drawn())
        numbers, ones = (start.run(base) for base in (
            np.arange(math.prod(value.shape), dtype=np.float32), np.ones(value.size, np.float32)))
        for (name, blocks), (_, shares) in zip(numbers, ones, strict=True):
            masks = [np.isin(np.arange(value.size), np.rint(block / share)).reshape(value.shape)
                     for block, share in zip(blocks, shares, strict=True)]
            found.append(start.drawn(name, masks, bool(shares[0].flat[0] < 1)))
    return _below(found)


def stored(x: Any) -> str:
    """An array as the simulation has it: one array, in which the blocks of all devices lie."""
    return f"<figure>{sharding_svg(x.shape, x.sharding)}</figure>"


class _Watched(PerDeviceRun):
    """Runs a program and keeps the blocks of all devices after each exchange."""

    def __init__(self, program: Program, mesh: Any) -> None:
        super().__init__(program, mesh)
        self.seen: list[tuple[str, list[np.ndarray]]] = []

    def equation(self, eqn: Any, operands: Any) -> Any:
        results = super().equation(eqn, operands)
        if eqn.op.collective is not None and eqn.op.name != "pvary":
            found = results[0]
            blocks = found.blocks() if isinstance(found, PendingResult) else found
            comment = f"{eqn.op.name}, a block is {eqn.outvars[0].aval.str_short(True)}"
            self.seen.append((comment, list(map(np.array, blocks))))
        return results


class _Value:
    """An array, or a ShapeDtypeStruct, as an argument of a function."""

    def __init__(self, value: Any, function: Any = lambda x: x) -> None:
        self.program = jit(function).lower(value).compile().program
        self.type, self.block = self.program.global_in[0], self.program.invars[0].aval
        self.mesh = value.sharding.mesh.abstract_mesh
        self.devices = PerDeviceRun(self.program, self.mesh)
        self.slices = [self.devices.slices(self.type.entries, self.block.shape, at)
                       for at in self.devices.coordinates]
        self.pending = self.type.sharding.spec.unreduced

    def run(self, elements: np.ndarray) -> list[tuple[str, list[np.ndarray]]]:
        devices = math.prod(map(self.mesh.axis_size, self.pending))
        share = elements.reshape(self.type.shape) / devices
        watched = _Watched(self.program, self.mesh)
        watched.on_blocks([[share[s] for s in self.slices]])
        return watched.seen

    def drawn(self, title: str = "", masks: Sequence[np.ndarray] = (), partial: bool = False
              ) -> tuple[float, float, str]:
        """(width, height, drawing) of the mesh with the elements that each device holds marked."""
        if not masks:
            title, partial = self.type.str_short(True), bool(self.pending)
            masks = [np.zeros(self.type.shape, bool) for _ in self.slices]
            for mask, where in zip(masks, self.slices, strict=True):
                mask[where] = True
        names, sizes = self.mesh.axis_names, self.mesh.axis_sizes
        columns = sizes[-1]
        tall, wide = self.type.shape if len(self.type.shape) == 2 else (1, masks[0].size)
        scale = 64 / max(tall, wide)
        w, h = wide * scale, max(tall * scale, 10)
        step_x, step_y, left, top = max(w, 56) + 16, h + 26, 64 * (len(sizes) > 1), 44
        parts = [text(0, 14, title, "font-weight='bold'")]
        parts += [text(left + c * step_x, top - 8, f"{names[-1]} = {c}", FAINT)
                  for c in range(columns)]
        for number, mask in enumerate(masks):
            row, column = divmod(number, columns)
            x, y = left + column * step_x, top + row * step_y
            if not column and left:
                parts.append(text(0, y + h / 2 + 4, f"{names[0]} = {row}", FAINT))
            for i, j, m, n in _runs(mask.reshape(tall, wide)):
                box = x + j * scale, y + i * h / tall, n * scale, m * h / tall
                parts.append(rect(*box, f"fill='{colour(int(mask.argmax()) / mask.size)}'"))
                parts += [rect(*box, "fill='url(#part)'")] * partial
            parts.append(rect(x, y, w, h, f"{LINE} opacity='.5'"))
            parts.append(text(x, y + h + 12, f"device {number}", FAINT))
        rows = len(masks) // columns
        return left + columns * step_x, top + rows * step_y + 6, "".join(parts)


def _runs(mask: np.ndarray) -> Iterator[tuple[int, int, int, int]]:
    """What is marked as rectangles: (row, column, rows, columns)."""
    row = 0
    for _, equal in itertools.groupby(map(bytes, mask)):
        count, column = len(list(equal)), 0
        for marked, run in itertools.groupby(mask[row]):
            n = len(list(run))
            if marked:
                yield row, column, count, n
            column += n
        row += count


def _below(drawn: Sequence[tuple[float, float, str]]) -> str:
    """Drawings below one another."""
    parts, y = [], 0.0
    for _, h, markup in drawn:
        parts.append(f"<g transform='translate(0,{y:.0f})'>{markup}</g>")
        y += h
    return figure(max(max(w for w, _, _ in drawn), 560), y, parts, "what each device holds")


# -- where axes come from --------------------------------------------------------------------------


def propagated(explanation: Any) -> str:
    """The values of a program with their dimensions; an arrow for each axis that a step brought."""
    p = explanation.propagation()
    kinds = {a.value: (a.type, "written") for a in p.annotations}
    kinds |= {s.value: (s.type, f"step {s.number}: {s.op}") for s in p.steps}
    rows = {value: 48 * i for i, value in enumerate(kinds)}
    left = 24 + 7.3 * max(map(len, kinds))
    boxes: dict[tuple[str, int], float] = {}
    drawn, arrows = [], []
    for value, (kind, why) in kinds.items():
        x, y = left, rows[value]
        drawn.append(text(0, y + 17, value))
        for d, dim in enumerate(_dims(kind)):
            w, axis = max(7.3 * len(dim) + 14, 60), dim.partition("@")[2]
            drawn += [rect(x, y, w, 26, f"fill='{_hue(axis)}'" if axis else LINE),
                      text(x + w / 2, y + 17, dim, "text-anchor='middle'"
                           + " fill='#fff'" * bool(axis))]
            boxes[value, d] = x + w / 2
            x += w + 40
        drawn.append(text(x - 24, y + 17, why, FAINT))
    for step in p.steps:
        for d, axis, source, k in step.gained:
            if (source, k) in boxes:
                up = rows[step.value] < rows[source]
                start, end = (-2, 28) if up else (28, -2)
                arrows.append(
                    f"<line x1='{boxes[source, k]:.0f}' y1='{rows[source] + start}' "
                    f"x2='{boxes[step.value, d]:.0f}' y2='{rows[step.value] + end}' "
                    f"stroke='{_hue(axis)}' stroke-width='2' marker-end='url(#tip)'/>")
    return figure(max(boxes.values()) + 220, 48 * len(rows) - 20, [*arrows, *drawn],
                  "which dimension each axis came from")


def _hue(axis: str) -> str:
    return colour(sum(map(ord, axis)) % 97 / 97)


def _dims(kind: str) -> list[str]:
    """`8@data`, `16` of `f32[8@data,16]`."""
    return re.findall(r"(?:\([^)]*\)|[^,])+", kind.partition("[")[2].partition("]")[0])


# -- the package -----------------------------------------------------------------------------------


def stages(compiled: Any) -> str:
    """The stages of one program: equations and exchanges of each, and the passes before it."""
    found, parts, wide = list(compiled.stages.items()), [], 116
    passes = {name: [p.name for p in PIPELINE if p.stage == name and p.plans != "xla"]
              for name, _ in found}
    for i, (name, program) in enumerate(found):
        x = i * (wide + 20)
        count = sum(bool(e.op.collective and e.op.collective.kind) for e in program.eqns)
        parts += [rect(x, 0, wide, 66, LINE), text(x + 8, 20, name, "font-weight='bold'"),
                  text(x + 8, 40, f"{len(program.eqns)} equations", "font-size='10'"),
                  text(x + 8, 56, f"{count} collectives", "font-size='10'")]
        parts += [text(x + 8, 84 + 14 * k, step, FAINT) for k, step in enumerate(passes[name])]
        if i:
            parts.append(f"<path d='M{x - 20},33 L{x},33' {LINE} marker-end='url(#tip)'/>")
    return figure(len(found) * (wide + 20) - 20, 84 + 14 * max(map(len, passes.values())), parts,
                  "the stages: " + ", ".join(name for name, _ in found))


def folders() -> str:
    """The folders of the package, each above those that it imports, read from its imports."""
    names = sorted({path.parent.name for path in ROOT.glob("*/__init__.py")} | {"api"}
                   - {"tests", "benchmarks"})
    graph = nx.DiGraph()
    graph.add_nodes_from(names)
    for name in names:
        for path in (ROOT / name).rglob("*.py"):
            up = len(path.relative_to(ROOT).parts)
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom) and node.module:
                    to = f"{'shardtrace.' * (node.level == up)}{node.module}.".split(".")
                    if to[0] == "shardtrace" and to[1] in names and to[1] != name:
                        graph.add_edge(name, to[1])
    floors = list(nx.topological_generations(graph.reverse()))
    graph = nx.transitive_reduction(graph)
    wide, high = 104, 64
    place = {name: ((i + .5) * 560 / len(floor), (len(floors) - 1 - f) * high)
             for f, floor in enumerate(floors) for i, name in enumerate(sorted(floor))}
    parts = [f"<path d='M{place[a][0]:.0f},{place[a][1] + 28:.0f} L{place[b][0]:.0f},"
             f"{place[b][1] - 1:.0f}' {LINE} opacity='.6' marker-end='url(#tip)'/>"
             for a, b in sorted(graph.edges)]
    for name, (x, y) in place.items():
        parts += [rect(x - wide / 2, y, wide, 28, f"fill='{colour(y / high / len(floors))}'"),
                  text(x, y + 19, name, "fill='#fff' text-anchor='middle'")]
    return figure(560, len(floors) * high - 30, parts, "which folder imports which")
