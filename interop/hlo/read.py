"""Read HLO text: the collectives of each computation, and what calls what how often."""
from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...ir.support.lazy import lazy_import
from ..files import is_library

lark = lazy_import("lark")

KINDS = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
         "collective-broadcast", "ragged-all-to-all")
_CALLS = ("while", "conditional", "call", "fusion", "async-start", "custom-call")
_WANTED = re.compile(rf" (?:(?:{'|'.join(KINDS)})(?:-start)?|{'|'.join(_CALLS)})\(")
_COMPUTATION = re.compile(r"(ENTRY )?%?([\w.\-]+) .*\{\s*$|(ENTRY )?%?([\w.\-]+) \{\s*$")
_CALLED = re.compile(r"(?:calls|to_apply|called_computations)=\{?%?([\w.\-]+)")
_CONSTANT = re.compile(r" = [su](?:32|64)\[\](?:\{\})? constant\((\d+)\)")
_TRIPS = re.compile(r'known_trip_count\\*":\{\\*"n\\*":\\*"(\d+)')
_ARRAY = re.compile(r"([a-z]+)(\d*)[a-z0-9]*\[([\d,<=]*)\]")
_ROW = re.compile(r'(\d+) (?:"(.*)"|\{(.*)\})\s*$')
_FIELD = re.compile(r'(\w+)=(?:"((?:\\.|[^"\\])*)"|(\d+))')
_TABLES = ("FileNames", "FunctionNames", "FileLocations", "StackFrames")
_MOST = 4_000_000               # characters of a line


class HloError(ValueError):
    """A text that is no HLO, or a part of it that cannot be read. Its message has the line."""


@dataclass(frozen=True)
class Place:
    """Where an instruction comes from, as its metadata says: file, line, function, and the scopes
    and transformations in front of the operation."""
    file: str = ""
    line: int = 0
    function: str = ""
    scope: str = ""


@dataclass(frozen=True)
class Exchange:
    """A collective as it stands. kind: one of KINDS. size: devices of a group; groups: the first of
    them; pairs: of a permutation. result: bytes of one device's result; arrays: how many there are.
    """
    name: str
    kind: str
    size: int
    group: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...]
    result: int
    arrays: int
    place: Place
    is_async: bool


@dataclass
class Computation:
    """exchanges: of its own. calls: (called computation, how often; 0 where nobody says; "" or the
    kind of call that a branch is). constants: whole numbers that stand in it.
    """
    name: str
    exchanges: list[Exchange] = field(default_factory=list)
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    constants: list[int] = field(default_factory=list)


@dataclass
class Module:
    """name; devices: how many run it; entry: the computation that begins; computations by name."""
    name: str
    devices: int
    entry: str = ""
    computations: dict[str, Computation] = field(default_factory=dict)


def read(lines: Iterable[str]) -> Module:
    """The module of a text, given by lines. Raises HloError where it is none."""
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        reader.take(number, line)
    return reader.end()


class _Reader:
    """Reads a module line by line. current: the computation that the next line is in. tables: of
    files, functions and frames, which locations refer to by number; table: the one being read.
    """

    def __init__(self) -> None:
        self.module: Module | None = None
        self.current: Computation | None = None
        self.tables: dict[str, dict[int, Any]] = {name: {} for name in _TABLES}
        self.table = ""
        self.grammar: Any = None

    def take(self, number: int, line: str) -> None:
        """One line more."""
        if len(line) > _MOST:
            raise HloError(f"line {number}: longer than {_MOST:,} characters")
        if self.current is not None:
            if line.startswith("}"):
                self.current = None
            elif _WANTED.search(line):
                self.instruction(number, line)
            elif found := _CONSTANT.search(line):
                self.current.constants.append(int(found[1]))
            return
        text = line.strip()
        if text.startswith("HloModule"):
            if self.module is not None:
                raise HloError(f"line {number}: a second module begins; give one file a module")
            self.module = _header(text)
        elif text in _TABLES:
            self.table = text
        elif self.table and (row := _ROW.match(text)):
            self.tables[self.table][int(row[1])] = row[2] if row[2] is not None else {
                key: int(n) for key, _, n in _FIELD.findall(row[3])}
        elif text and (found := _COMPUTATION.match(line)):
            self.table = ""
            if self.module is None:
                raise HloError(f"line {number}: a computation begins, and no HloModule before it")
            name = found[2] or found[4]
            self.current = self.module.computations[name] = Computation(name)
            if found[1] or found[3]:
                self.module.entry = name

    def end(self) -> Module:
        """The module, when all lines were taken."""
        module = self.module
        if module is None:
            raise HloError("this is no HLO text: no line begins with HloModule")
        if not module.computations:
            raise HloError(f"module {module.name} has no computations; as XLA writes it, each is "
                           "a name, a brace, and lines of instructions")
        if not module.entry:
            module.entry = next(reversed(module.computations))
        return module

    def instruction(self, number: int, line: str) -> None:
        """An instruction that exchanges something, or calls a computation."""
        assert self.current is not None and self.module is not None
        try:
            name, shape, opcode, attributes = self.parsed(line)
        except lark.exceptions.LarkError as error:
            raise HloError(f"line {number}: cannot read the instruction: "
                           f"{line.strip()[:120]}") from error
        kind = opcode.removesuffix("-start")
        if kind in KINDS:
            self.current.exchanges.append(self.exchange(name, kind, shape, opcode, attributes))
        if opcode == "while":
            trips = _TRIPS.search(line)
            body, condition = (_name(attributes.get(key, "")) for key in ("body", "condition"))
            self.current.calls.append((body, trips[1] if trips else f"?{condition}", ""))
            self.current.calls.append((condition, trips[1] if trips else f"?{condition}", ""))
        elif opcode == "conditional":
            branches = attributes.get("branch_computations", "").strip("{}").split(",")
            branches += [attributes.get(f"{key}_computation", "") for key in ("true", "false")]
            self.current.calls += [(_name(b), "1", "branch") for b in branches if b.strip()]
        elif opcode in _CALLS:
            found = _CALLED.search(line)
            if found:
                self.current.calls.append((found[1], "1", ""))

    def parsed(self, line: str) -> tuple[str, str, str, dict[str, str]]:
        """(name, shape, opcode, attributes) of a line, as texts."""
        if self.grammar is None:
            self.grammar = lark.Lark.open("hlo.lark", rel_to=__file__, parser="lalr",
                                          start="instruction", propagate_positions=True)
        tree = self.grammar.parse(line)
        attributes = {}
        for part in tree.find_data("attribute"):
            key, value = part.children
            attributes[str(key)] = line[value.meta.start_pos:value.meta.end_pos]
        shape = tree.children[1].meta
        opcode = next(t for t in tree.children if getattr(t, "type", "") == "OPCODE")
        return str(tree.children[0]).lstrip("%"), line[shape.start_pos:shape.end_pos], str(
            opcode), attributes

    def exchange(self, name: str, kind: str, shape: str, opcode: str, attributes: dict[str, str]
                 ) -> Exchange:
        """A collective, of its result's shape and attributes."""
        assert self.module is not None
        arrays = [_bytes(*a) for a in _ARRAY.findall(shape)]
        is_async = opcode.endswith("-start")
        if is_async and kind == "collective-permute":
            arrays = arrays[1:2]                # (operand, result, contexts)
        elif is_async and kind != "all-reduce" and len(arrays) > 1:
            arrays = arrays[len(arrays) // 2:]  # (operands, results)
        pairs = tuple([(int(a), int(b)) for a, b in re.findall(
            r"\{(\d+),(\d+)\}", attributes.get("source_target_pairs", ""))])
        group = (tuple(sorted({i for pair in pairs for i in pair})) if pairs else
                 first_group(attributes.get("replica_groups", "{}"), self.module.devices,
                             attributes.get("device_ids", "")))
        return Exchange(name, kind, len(group), group, pairs, sum(arrays), len(arrays),
                        self.place(attributes.get("metadata", "")), is_async)

    def place(self, metadata: str) -> Place:
        """What the metadata of an instruction says."""
        found = {key: text or n for key, text, n in _FIELD.findall(metadata)}
        scope = found.get("op_name", "")
        if "source_file" in found:
            return Place(found["source_file"], int(found.get("source_line", 0)), "", scope)
        frames = list(itertools.islice(self.frames(int(found.get("stack_frame_id", 0))), 200))
        own = [f for f in frames if not is_library(f[0])] or frames
        return Place(*own[0], scope) if own else Place(scope=scope)

    def frames(self, n: int) -> Iterator[tuple[str, int, str]]:
        """(file, line, function) of a stack frame and of those that called it. A frame whose parent
        has the same number is the outermost."""
        names, functions, places, frames = (self.tables[t] for t in _TABLES)
        while n in frames:
            place = places.get(frames[n].get("file_location_id"), {})
            yield (names.get(place.get("file_name_id"), ""), place.get("line", 0),
                   functions.get(place.get("function_name_id"), ""))
            parent = frames[n].get("parent_frame_id", n)
            n = -1 if parent == n else parent


def _header(text: str) -> Module:
    name = text.split()[1].rstrip(",") if len(text.split()) > 1 else "module"
    counts = [int(m[1]) if (m := re.search(rf"{key}=(\d+)", text)) else 1
              for key in ("num_partitions", "replica_count")]
    return Module(name, counts[0] * counts[1])


def _name(text: str) -> str:
    return text.strip().lstrip("%")


def _bytes(kind: str, bits: str, dims: str) -> int:
    """Bytes of `f32[8,<=16]`; of tokens none."""
    if kind in ("token", "opaque"):
        return 0
    size = 8 if kind == "pred" else int(bits or 32)
    for n in dims.replace("<=", "").split(","):
        size *= int(n or 1)
    return -(-size // 8)


_GROUPS = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_DEVICES = re.compile(r"\(\[([\d,]+)\](?:T\(([\d,]+)\))?\)")
_AXIS = re.compile(r"'([^']+)'(?:=(\d+))?(?::\((\d+)\)(\d+))?")


def first_group(text: str, devices: int, order_of_mesh: str = "") -> tuple[int, ...]:
    """The devices of the first replica group, in each of the notations of XLA.

    `{{0,1},{2,3}}` lists them, and `{}` means all; `[2,4]<=[4,2]T(1,0)` reshapes and transposes
    0, 1, 2, ...; `mesh['x'=2,'y'=4] {'y'}` names axes of a mesh, `'y':(2)2` a part of one: of size
    2, after a part of size 2. order_of_mesh: `([4,2]T(1,0)) {'y'}`, where a mesh has its devices
    in another order, and the axes follow that.
    """
    if found := _GROUPS.match(text.strip()):
        shape, over = ([int(n) for n in found[k].split(",")] for k in (1, 2))
        order = [int(d) for d in found[3].split(",")] if found[3] else list(range(len(over)))
        return tuple(itertools.islice(_transposed(over, order), shape[-1]))
    if text.lstrip().startswith("mesh["):
        axes, _, named = text.partition("]")
        named = (order_of_mesh or named).rpartition("{")[2]
        sizes, names, wanted = [], [], []
        parts = {m[1]: (int(m[3]), int(m[4])) for m in _AXIS.finditer(named) if m[3]}
        for m in _AXIS.finditer(axes):
            n = int(m[2])
            before, size = parts.get(m[1], (1, n))
            for k, is_wanted in ((before, False), (size, True), (n // (before * size), False)):
                names.append(m[1])
                sizes.append(k)
                wanted.append(is_wanted and f"'{m[1]}'" in named)
        order = (*[i for i, w in enumerate(wanted) if not w], *[
            i for i, w in enumerate(wanted) if w])
        count = 1
        for n, w in zip(sizes, wanted, strict=True):
            count *= n if w else 1
        ids = itertools.islice(_transposed(sizes, order), count)
        if not (other := _DEVICES.match(order_of_mesh)):
            return tuple(ids)
        over = [int(n) for n in other[1].split(",")]
        base = [*_transposed(over, [int(d) for d in other[2].split(",")] if other[2] else
                             range(len(over)))]
        return tuple([base[i] for i in ids])
    listed = re.match(r"\{\{([\d,\s]*)\}", text.strip())
    if listed and listed[1].strip():
        return tuple(map(int, listed[1].split(",")))
    return tuple(range(devices))


def _transposed(sizes: Sequence[int], order: Sequence[int]) -> Iterator[int]:
    """0, 1, 2, ... as an array of these sizes, read with its dimensions in another order."""
    strides = [1] * len(sizes)
    for d in range(len(sizes) - 2, -1, -1):
        strides[d] = strides[d + 1] * sizes[d + 1]
    for at in itertools.product(*[range(sizes[d]) for d in order]):
        yield sum(i * strides[d] for i, d in zip(at, order, strict=True))
