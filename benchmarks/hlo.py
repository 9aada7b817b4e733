"""What XLA's optimised program of one device exchanges and computes, read from its text.

Bodies of loops count as often as they run. A product is a `dot` or a convolution, with its
operations and the bytes of its operands and result.
"""
from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

DEVICES = 8
_SIZES = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "s64": 8,
          "u64": 8, "f64": 8, "c64": 8}
_SHAPE = re.compile(r"([a-z]+\d*)\[([\d,]*)\]")
_LINE = re.compile(r"\s*(ROOT )?%?([\w.\-]+) = (.*?) ([a-z\-]+)\((.*?)\)")
KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute")
# one operation an element, as XLA counts them
_ELEMENTWISE = frozenset((
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "negate", "abs", "sign", "and",
    "or", "xor", "not", "compare", "select", "convert", "clamp", "floor", "ceil", "remainder",
    "round-nearest-even", "is-finite"))
_PRODUCTS = ("dot", "convolution")
_THROUGH = ("bitcast", "copy", "transpose", "reshape", "convert")
_FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "partition-id",
         "replica-id", "after-all")

# (how often, kind, mesh axes, members of a group, bytes of one device's operand)
Exchange = tuple[int, str, list[str], int, int]


@dataclass
class Found:
    """exchanges: as they stand. products: (operations, bytes) -> how often. repeated: operations in
    loops, but for those of one step.
    """
    exchanges: list[Exchange] = field(default_factory=list)
    products: Counter[tuple[int, int]] = field(default_factory=Counter)
    repeated: int = 0

    def moved(self) -> tuple[int, int]:
        """By which branches compare: bytes exchanged, and operations."""
        return (sum(times * size for times, _, _, _, size in self.exchanges),
                sum(times * flops for (flops, _), times in self.products.items()))


@dataclass(frozen=True)
class Instruction:
    """A line of a computation. result: its type. kind: the opcode. operands: names. text: the line.
    """
    root: bool
    name: str
    result: str
    kind: str
    operands: list[str]
    text: str


def _dims(text: str) -> list[int]:
    match = _SHAPE.search(text)
    return [int(n) for n in match[2].split(",")] if match and match[2] else []


def _elements(dims: str) -> int:
    return math.prod(map(int, dims.split(","))) if dims else 1


def _bytes(text: str) -> int:
    return sum(_SIZES.get(t, 4) * _elements(dims) for t, dims in _SHAPE.findall(text))


def group_of(line: str) -> list[int]:
    """The devices of the first replica group; of a permutation those of its pairs."""
    devices = np.arange(DEVICES)
    match = re.search(r"replica_groups=\{\{([\d,]+)\}", line)
    if match:
        return [int(i) for i in match[1].split(",")]
    match = re.search(r"replica_groups=\[(\d+),(\d+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", line)
    if match:
        order = devices.reshape([int(n) for n in match[3].split(",")])
        if match[4]:
            order = order.transpose([int(n) for n in match[4].split(",")])
        return order.reshape(int(match[1]), int(match[2]))[0].tolist()
    match = re.search(r"replica_groups=mesh\[(.*?)\].*?\{(.*?)\}", line)
    if match:                                   # the axes of a group, whole or in part
        order = re.search(r"device_ids=\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)", line)
        if order:
            devices = devices.reshape([int(n) for n in order[1].split(",")])
            if order[2]:
                devices = devices.transpose([int(n) for n in order[2].split(",")])
        parts = {name: (int(before or 1), int(size or 0)) for name, before, size in
                 re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", match[2])}
        sizes: list[int] = []
        free: list[int | slice] = []
        for name, n in re.findall(r"'(\w+)'=(\d+)", match[1]):
            before, size = parts.get(name, (int(n), 1))
            size = size or int(n)
            sizes += [before, size, int(n) // (before * size)]
            free += [0, slice(None), 0]
        return devices.reshape(sizes)[tuple(free)].ravel().tolist()
    return sorted({int(i) for pair in _pairs(line) for i in pair})


def _pairs(line: str) -> list[tuple[str, str]]:
    return re.findall(r"\{(\d+),(\d+)\}", line.split("source_target_pairs=")[-1])


def axes_of(line: str, mesh: dict[str, int]) -> list[str]:
    """The mesh axes along which the members of a group differ."""
    sizes = tuple(mesh.values())
    pairs = _pairs(line) if "source_target_pairs" in line else [(i, group_of(line)[0])
                                                                for i in group_of(line)]
    places = [(np.unravel_index(int(i), sizes), np.unravel_index(int(j), sizes)) for i, j in pairs]
    return [name for d, name in enumerate(mesh) if any(a[d] != b[d] for a, b in places)]


Bodies = dict[str, list[Instruction]]


def parse(text: str) -> tuple[Bodies, str]:
    """The computations of an optimised HLO module by name, and the name of that which begins."""
    bodies: Bodies = {}
    entry = current = ""
    for line in text.split("\n"):
        head = re.match(r"(ENTRY )?%?([\w.\-]+) (\(.*)?\{?.*\{$", line)
        match = _LINE.match(line)
        if head and not line.startswith(" "):
            current = head[2]
            bodies[current] = []
            entry = current if head[1] else entry
        elif current and match:
            bodies[current].append(Instruction(
                bool(match[1]), match[2], match[3], match[4].removesuffix("-start"),
                re.findall(r"%([\w.\-]+)", match[5]), line))
    return {name: _synchronous(lines) for name, lines in bodies.items()}, entry


def xla_program(text: str, mesh: dict[str, int]) -> Found:
    """What an optimised HLO module of one device exchanges and computes; of branches, the one that
    exchanges most.
    """
    bodies, entry = parse(text)
    types = {name: {i.name: i.result for i in lines} for name, lines in bodies.items()}

    def found_in(computation: str) -> Found:
        found = Found()
        for times, body, i in executed(bodies, computation, costliest):
            if i.kind in KINDS:
                found.exchanges += _exchange(i, bodies, body, mesh, times)
            elif i.kind not in _FREE and not i.kind.endswith("-done"):
                _compute(found, bodies, bodies[body], i, types[body], times)
        return found

    def costliest(branches: list[str]) -> list[str]:
        return [max(branches, key=lambda branch: found_in(branch).moved())]
    return found_in(entry)


def executed(bodies: Bodies, computation: str,
             taken: Callable[[list[str]], list[str]] = list, times: int = 1
             ) -> Iterator[tuple[int, str, Instruction]]:
    """All that a computation runs, loops and branches included: how often, the computation where it
    stands, the instruction. taken: of a conditional's branches those that count, by default all.
    """
    for i in bodies.get(computation, ()):
        trips, called = _runs(i)
        for inner in taken(called) if i.kind == "conditional" else called:
            yield from executed(bodies, inner, taken, times * trips)
        if not called:
            yield times, computation, i


def _synchronous(lines: list[Instruction]) -> list[Instruction]:
    """Exchanges that begin and end apart, with the result and the name of their end."""
    ends = {i.operands[0]: i for i in lines if i.kind.endswith("-done") and i.operands}
    return [replace(i, name=ends[i.name].name, result=ends[i.name].result)
            if i.name in ends else i for i in lines]


def _compute(found: Found, bodies: Bodies, lines: list[Instruction], i: Instruction,
             results: dict[str, str], times: int) -> None:
    """What an instruction computes, among the lines of a computation and the types of these."""
    fused = _called(bodies, i)
    products = [(j, _product_flops(j, fused)) for j in fused if j.kind in _PRODUCTS]
    if len(products) > 1:       # by the compiler of CPUs; others compute them one after the other
        results = results | {j.name: j.result for j in fused}
    else:
        products = [(i, products[0][1] if products else _product_flops(i, lines))]
    found.repeated += (times - 1) * (sum(flops for _, flops in products)
                                     + _element_flops(bodies, fused or [i], results))
    for j, flops in products:
        if flops:
            size = _bytes(j.result) + sum(_bytes(results.get(o, "")) for o in j.operands)
            found.products[flops, size] += times


def _runs(i: Instruction) -> tuple[int, list[str]]:
    """How often an instruction runs computations, and which: a loop its body, a conditional one of
    several.
    """
    if i.kind == "while":
        trips = re.search(r'"known_trip_count":\{"n":"(\d+)"', i.text)
        return int(trips[1]) if trips else 1, re.findall(r"body=%?([\w.\-]+)", i.text)
    if i.kind not in ("call", "conditional"):
        return 1, []
    listed = re.findall(r"(?:to_apply|calls|branch_computations|(?:true|false)_computation)="
                        r"(\{.*?\}|%?[\w.\-]+)", i.text)
    return 1, [name for names in listed for name in re.findall(r"[\w.\-]+", names)]


def _called(bodies: Bodies, i: Instruction) -> list[Instruction]:
    """The instructions of a fusion."""
    match = re.search(r"calls=%?([\w.\-]+)", i.text)
    return bodies.get(match[1], []) if match and i.kind == "fusion" else []


def _element_flops(bodies: Bodies, lines: list[Instruction],
                   results: dict[str, str]) -> int:
    """Operations of elementwise work and reductions. results: types of operands from outside."""
    results = results | {i.name: i.result for i in lines}
    made = sum(math.prod(_dims(i.result)) for i in lines if i.kind in _ELEMENTWISE)
    return made + sum(_steps(bodies, i) * (math.prod(_dims(results[i.operands[0]]))
                                           - math.prod(_dims(i.result)))
                      for i in lines if i.kind == "reduce")


def _steps(bodies: Bodies, i: Instruction) -> int:
    """Operations by which a reduction takes in one element: of a position, nine."""
    match = re.search(r"to_apply=%?([\w.\-]+)", i.text)
    return sum(j.kind not in ("parameter", "tuple") for j in bodies[match[1]]) if match else 1


def _product_flops(i: Instruction, lines: list[Instruction]) -> int:
    """Operations of a product, 0 of everything else; windows count as if nothing were padded."""
    if i.kind not in _PRODUCTS:
        return 0
    shapes = {j.name: _dims(j.result) for j in lines}
    first, second = (shapes[o] for o in i.operands[:2])
    made = 2 * math.prod(_dims(i.result))
    if i.kind == "dot":
        contracted = re.search(r"lhs_contracting_dims=\{([\d,]*)\}", i.text)
        places = contracted[1].split(",") if contracted and contracted[1] else []
        return made * math.prod(first[int(d)] for d in places)
    labels = re.search(r"dim_labels=\w+_(\w+)->", i.text)
    spread = re.search(r"lhs_dilate=([\dx]+)", i.text)
    zeros = math.prod(map(int, spread[1].split("x"))) if spread else 1
    weights = math.prod(n for n, d in zip(second, labels[1], strict=True) if d != "o") \
        if labels else 0
    return made * weights // zeros


def cut_parts(bodies: Bodies, body: str, i: Instruction) -> list[bool]:
    """Of each operand of an all-reduce: is all that is read of its sum the own block of a device?
    Then it becomes a reduce-scatter on other devices; CPUs have none. body: where it stands.
    """
    members = len(group_of(i.text))
    return [_is_cut(bodies, body, i.name, _elements(dims) // members, k)
            for k, (_, dims) in enumerate(_SHAPE.findall(i.result))]


def _is_cut(bodies: Bodies, body: str, name: str, block: int, element: int = -1,
            outside: tuple[str, str] | None = None) -> bool:
    """Is all that is read of a value the own block of each device, of so many elements?
    outside: the body and name of the fusion that this is the body of.
    """
    users = [i for i in bodies[body] if name in i.operands]
    if users and users[0].kind == "get-tuple-element":
        users = [i for i in users if f"index={element}" in re.split(r"[,\s]", i.text)]
        return bool(users) and all(_is_cut(bodies, body, i.name, block) for i in users)
    return bool(users) and all(_cuts(bodies, body, i, name, block, outside) for i in users)


def _cuts(bodies: Bodies, body: str, user: Instruction, name: str, block: int,
          outside: tuple[str, str] | None) -> bool:
    if user.kind == "dynamic-slice":
        return user.operands[0] == name and block == math.prod(_dims(user.result))
    if user.kind in _THROUGH:
        if user.root:
            return outside is not None and _is_cut(bodies, *outside, block)
        return _is_cut(bodies, body, user.name, block, outside=outside)
    inner = re.search(r"calls=%?([\w.\-]+)", user.text)
    if user.kind != "fusion" or inner is None:
        return False
    mine = [k for k, operand in enumerate(user.operands) if operand == name]
    parameters = [i for i in bodies[inner[1]] if i.kind == "parameter"
                  and int(re.findall(r"parameter\((\d+)\)", i.text)[0]) in mine]
    return all(_is_cut(bodies, inner[1], i.name, block, outside=(body, user.name))
               for i in parameters)


def _exchange(i: Instruction, bodies: Bodies, body: str,
              mesh: dict[str, int], times: int) -> list[Exchange]:
    kind, n, size = i.kind, len(group_of(i.text)), _bytes(i.result)
    if kind == "all-gather":
        size //= n
    elif kind == "reduce-scatter":
        size *= n
    elif kind == "all-reduce" and all(cut_parts(bodies, body, i)):
        kind = "reduce-scatter"
    elif kind == "collective-permute" and all(a == b for a, b in _pairs(i.text)):
        return []
    axes = axes_of(i.text, mesh)
    if kind == "collective-permute":            # whose group is whoever the axes connect
        n = math.prod(mesh[a] for a in axes)
    return [(times, kind, axes, n, size)]
