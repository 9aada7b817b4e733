"""What XLA's program exchanges, beside the LOCAL program that it was given.

Of each kind of collective and the mesh axes that it is over: bytes of one device's operands, all
collectives of the kind together, since XLA may join several into one. Of permutations, which
exchanges of rows and tiles are made of, the bytes that all devices send to others.
"""
from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.ir.ops.communication.retiling import coordinates, place, tile_pieces
from shardtrace.ir.ops.communication.row_exchange_plan import sources
from shardtrace.ir.program import Equation, Program
from shardtrace.ir.spec import axis_factor

from ..paths import module_of_benchmarks

hlo = module_of_benchmarks("hlo")

PERMUTED = ("collective-permute", ())
Exchanged = Counter[tuple[str, tuple[str, ...]]]


def _pieces_sent(e: Equation, devices: int) -> int:
    """Bytes of rows or tiles that all devices together get from others, by counting elements."""
    x, p = e.invars[0].aval, e.params
    if e.op.name == "exchange_rows":
        size = p["axis_size"]
        owner, where = sources(size, p["parts"], p["wanted"])
        row = x.local_nbytes // max(x.shape[p["dimension"]], 1)
        # a row that a device puts in two places is sent to it once
        count = sum(len({(int(o), int(w)) for o, w in zip(owner[i], where[i], strict=True)
                         if o not in (i, -1)}) for i in range(size))
        return count * row * (devices // size)
    if e.op.name == "retile":
        size = dict(zip(p["axes"], p["axis_sizes"], strict=True))
        members = math.prod(size.values())
        count = 0
        for i in range(members):
            at = coordinates(i, p["axes"], size)
            for there, where, _ in tile_pieces(x.shape, p["source"], p["target"], p["axes"], size,
                                               at):
                if place(p["axes"], there, size) != i:
                    count += math.prod([s.stop - s.start for s in where])
        return count * x.dtype.itemsize * (devices // members)
    size = math.prod(map(x.mesh.axis_size, e.op.collective.axes(p)))
    whole = sum([a.aval.local_nbytes for a in e.invars])
    return sum(a != b for a, b in p["perm"]) * whole * (devices // size)


def _leaving(e: Equation) -> set[str]:
    """The mesh axes that cut a dimension before a retile and do not go on to."""
    return {axis_factor(a, e.invars[0].aval.mesh.shape)[0] for have, want in zip(
        e.params["source"], e.params["target"], strict=True) for a in have if a not in want}


def planned(program: Program) -> Exchanged:
    """What a LOCAL program exchanges."""
    found: Exchanged = Counter()
    shape = program.mesh.shape
    for use in each_collective(program):
        e = use.equation
        if e.op.name == "retile" and use.kind == "all-to-all":
            axes = _leaving(e)
            key = use.kind, tuple(a for a in shape if a in axes)
            found[key] += use.count * e.invars[0].aval.local_nbytes
            continue
        if e.op.name in ("exchange_rows", "retile") or use.kind == PERMUTED[0]:
            found[PERMUTED] += use.count * _pieces_sent(e, program.mesh.size)
            continue
        axes = {axis_factor(a, shape)[0] for a in use.mesh_axes}
        key = use.kind, tuple(a for a in shape if a in axes and shape[a] > 1)
        found[key] += use.count * use.operand_bytes
    return Counter({k: n for k, n in found.items() if n and (k is PERMUTED or k[1])})


def exchanged(text: str, mesh: dict[str, int]) -> Exchanged:
    """What XLA's optimised program exchanges."""
    found: Exchanged = Counter()
    for times, kind, axes, _, size in _program(text, mesh).exchanges:
        if kind != "collective-permute":
            found[kind, tuple(axes)] += times * size
    for times, line in _permutes(text):
        pairs = re.findall(r"\{(\d+),(\d+)\}", line.split("source_target_pairs=")[-1])
        found[PERMUTED] += times * hlo._bytes(line.split("=", 1)[1].split("collective")[0]) * sum(
            a != b for a, b in pairs)
    return Counter({k: n for k, n in found.items() if n})


def _program(text: str, mesh: dict[str, int]) -> Any:
    return hlo.xla_program(text, mesh)


def _permutes(text: str) -> list[tuple[int, str]]:
    """The lines of permutations, and how often each runs."""
    bodies: dict[str, list[str]] = {}
    entry = current = ""
    for line in text.split("\n"):
        head = re.match(r"(ENTRY )?%?([\w.\-]+) (\(.*)?\{?.*\{$", line)
        if head and not line.startswith(" "):
            current = head[2]
            bodies[current] = []
            entry = current if head[1] else entry
        elif current:
            bodies[current].append(line)
    found: list[tuple[int, str]] = []
    left = [(entry, 1)]
    while left:
        name, times = left.pop()
        for line in bodies.get(name, ()):
            if re.search(r" collective-permute(-start)?\(", line):
                found.append((times, line))
            elif " while(" in line:
                trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
                body = re.search(r"body=%?([\w.\-]+)", line)
                left.append((body[1], times * (int(trips[1]) if trips else 1)))  # type: ignore
            elif re.search(r" (call|conditional)\(", line):
                inside = r"(?:to_apply|calls|branch_computations)=\{?%?([\w.\-]+)"
                left += [(inner, times) for inner in re.findall(inside, line)]
    return found


def summary(found: Exchanged) -> dict[str, int]:
    return {f"{kind} over {','.join(axes) or 'pairs'}": n for (kind, axes), n in
            sorted(found.items())}


def assert_nothing_added(program: Program, text: str, *, all_there: bool = True) -> None:
    """XLA's program exchanges what the LOCAL program does, or a part of it if not `all_there`."""
    ours, theirs = planned(program), exchanged(text, dict(program.mesh.shape))
    if all_there:
        assert summary(theirs) == summary(ours)
    else:
        assert not theirs - ours, f"{summary(theirs)} is more than {summary(ours)}"


