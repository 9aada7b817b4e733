"""Reads the parts of a line: types, meshes, params (the lower rules of grammar.lark).

Each method is called by the parser when the rule of its name has been read, with the values of the
rule's parts; no tree is built. ir/text/value_printer.py writes what is read here.
"""
from __future__ import annotations

import enum
import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..diagnostics.diagnostic import clipped
from ..dtypes import parse_short
from ..meshes.device import AbstractDevice, Device
from ..meshes.manual_state import NOT_MANUAL, ManualState
from ..meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ..op import OPS
from ..param_types import PARAM_TYPES
from ..shardings.sharding import NamedSharding, SingleDeviceSharding, named_sharding_abstract
from ..spec import UNCONSTRAINED, PartitionSpec, parse_axis, spec_from_entries
from ..support.spelling import close_match
from ..types import ArrayType, array_type
from .constants import parse_scalar
from .placeholders import NamedCallable, OpaqueValue
from .syntax import Mistake
from .value_printer import unquote

MOST_DEVICES = 1 << 20
LARGEST = (1 << 63) - 1    # of a dimension

ABSENT = object()          # a param that `op.infer` names but the equation does not have
HOLE = object()            # a program, which follows as a block
_WORDS = {"None": None, "True": True, "False": False, "inf": float("inf"), "nan": float("nan"),
          "UNCONSTRAINED": UNCONSTRAINED, "absent": ABSENT}
_AXIS_TYPES = {"auto": AxisType.Auto, "manual": AxisType.Manual, "explicit": AxisType.Explicit}
_SETS = {"V": "varying", "U": "unreduced", "R": "reduced"}


class Bits(str):
    """A number given by its bits, `0x7fc00001`."""

    __slots__ = ()


class Values:
    """Rules of types, meshes and params.

    mesh: of types that do not say `on`. meshes: those named in the heading. base: offset of the
    small text that is being read, for the positions of mistakes.
    """

    mesh: AbstractMesh
    meshes: dict[str, AbstractMesh]
    callables: Mapping[str, Callable[..., Any]]
    base: int

    def mistake(self, message: str, token: Any, help: str = "", label: str = "") -> Mistake:
        """A mistake at a token of the text being read (if it is one)."""
        start = self.base + (getattr(token, "start_pos", None) or 0)
        return Mistake(message, start, len(token) if isinstance(token, str) else 1, label=label,
                       help=help)

    # -- types -----------------------------------------------------------------------------------
    def dtype(self, parts: list) -> list:
        return parts                             # words, still tokens: `key`, `fry`

    def _dtype(self, words: list) -> tuple[Any, list]:
        """The dtype that the words begin with, and the words left over (a memory space)."""
        count = 2 if words[0] == "key" and len(words) > 1 else 1
        name = f"key<{words[1]}>" if count == 2 else str(words[0])
        try:
            return parse_short(name), words[count:]
        except ValueError:
            short = {"float": "f", "int": "i", "uint": "u", "complex": "c"}
            stem = name.rstrip("0123456789")
            help = f"write it `{short[stem]}{name[len(stem):]}`" if stem in short else close_match(
                name, ("f16", "f32", "f64", "bf16", "i32", "i64", "u32", "bool", "c64"))
            raise self.mistake(f"no dtype is called `{name}`", words[0], help) from None

    def axis(self, parts: list) -> Any:
        token = parts[0]
        if token.type == "STRING":
            return unquote(token)
        return int(token) if token.type == "NUMBER" else token

    def single_axis(self, parts: list) -> tuple:
        return (parts[0],)

    def axis_list(self, parts: list) -> tuple:
        return tuple(parts)

    def dim(self, parts: list) -> tuple[int, tuple]:
        size = int(parts[0])
        if not 0 <= size <= LARGEST:
            raise self.mistake(f"no dimension has {clipped(str(size), 40)} elements", parts[0])
        return size, parts[1] if len(parts) > 1 else ()

    def part(self, parts: list) -> tuple[Any, tuple]:
        if parts[0] not in _SETS:
            raise self.mistake(f"`{parts[0]}` names no set of axes", parts[0],
                               "V is varying, U is unreduced, R is reduced")
        return parts[0], parts[1]

    def state(self, parts: list) -> dict[str, tuple]:
        return {_SETS[letter]: axes for letter, axes in parts}

    def where_named(self, parts: list) -> AbstractMesh:
        mesh = self.meshes.get(parts[0])
        if mesh is None:
            raise self.mistake(f"no mesh is called `{parts[0]}`", parts[0],
                               f"name it in the heading: `mesh {parts[0]} = (X=2, Y=4)`")
        return mesh

    def where_none(self, parts: list) -> AbstractMesh:
        return empty_abstract_mesh

    def where(self, parts: list) -> AbstractMesh | Mesh:
        return parts[0]

    def type(self, parts: list) -> ArrayType:
        """A type, `f32[8@X,4]{U:Y}`. Axes in braces belong to its spec if Explicit, else to its
        Manual state.
        """
        weak = getattr(parts[0], "type", "") == "WEAK"
        words = parts[1] if weak else parts[0]
        mesh, sets, shape, entries = self.mesh, {}, [], []
        for part in parts[2 if weak else 1:]:
            if type(part) is tuple:
                shape.append(part[0])
                entries.append(part[1])
            elif type(part) is dict:
                sets = part
            else:
                mesh = part
        dtype, space = self._dtype(words)
        for axes in (*entries, *sets.values()):
            for axis in axes:
                self._check_axis(axis, mesh)
        entries = tuple(tuple(map(_plain, axes)) for axes in entries)
        in_spec: dict[str, frozenset] = {}
        manual: dict[str, frozenset] = {}
        for name, axes in sets.items():
            axes = tuple(map(_plain, axes))
            in_spec[name] = frozenset(a for a in axes if mesh.axis_type(a) is AxisType.Explicit)
            manual[name] = frozenset(axes) - in_spec[name]
        if in_spec.pop("varying", None):
            raise self.mistake("a value varies over Manual axes only", words[0],
                               "an Explicit axis stands in a dimension: `f32[8@X]`")
        spec = spec_from_entries(entries, **in_spec)
        return array_type(tuple(shape), dtype, weak, named_sharding_abstract(mesh, spec),
                          ManualState(**manual) if manual else NOT_MANUAL,
                          str(space[0]) if space else "device")

    def _check_axis(self, axis: Any, mesh: AbstractMesh) -> None:
        if axis in mesh.shape or parse_axis(axis)[0] in mesh.shape:
            return
        names = [str(a) for a in mesh.axis_names]
        raise self.mistake(
            f"the mesh has no axis `{axis}`", axis,
            close_match(str(axis), names) or (f"its axes are {', '.join(names)}" if names else
                                              "state the mesh first: `mesh (X=2, Y=4)`"))

    # -- meshes ----------------------------------------------------------------------------------
    def mesh_axis(self, parts: list) -> list:
        if len(parts) == 3 and parts[2] not in _AXIS_TYPES:
            raise self.mistake(f"`{parts[2]}` is no kind of axis", parts[2],
                               "write auto or manual, or nothing for Explicit")
        return parts

    def of(self, parts: list) -> AbstractDevice:
        platform, kind, cores = str(parts[0]), str(parts[0]), None
        for token in parts[1:]:
            if token.type == "STRING":
                kind = unquote(token)
            else:
                cores = int(token)
        return AbstractDevice(kind, cores, platform)

    def new_mesh(self, parts: list) -> AbstractMesh | Mesh:
        """A mesh, `(X=2, Y=4 auto) of cpu`: with its devices if they are listed, else an abstract
        one.
        """
        axes = [p for p in parts if type(p) is list]
        device = next((p for p in parts if isinstance(p, AbstractDevice)), None)
        devices = next((p for p in parts if type(p) is tuple), None)
        names = tuple(_plain(a[0]) for a in axes)
        sizes = tuple(int(a[1]) for a in axes)
        for (name, *_), size in zip(axes, sizes, strict=True):
            if size < 1:
                raise self.mistake(f"axis `{name}` of the mesh has size {size}", name,
                                   "an axis has one device or more")
        if math.prod(sizes) > MOST_DEVICES:
            raise self.mistake(f"a mesh has at most {MOST_DEVICES:,} devices", axes[0][0])
        kinds = tuple(_AXIS_TYPES[a[2]] if len(a) == 3 else AxisType.Explicit for a in axes)
        for i, name in enumerate(names):
            if name in names[:i]:
                raise self.mistake(f"the mesh names axis `{name}` twice", axes[i][0])
        if devices is None:
            return AbstractMesh(sizes, names, kinds, abstract_device=device)
        grid = np.empty(len(devices), dtype=object)
        grid[:] = [Device(d) if isinstance(d, int) else d for d in devices]
        return Mesh(grid.reshape(sizes), names, kinds)

    # -- values ----------------------------------------------------------------------------------
    def params(self, parts: list) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for token, value in parts:
            if token in out:
                raise self.mistake(f"param `{token}` is given twice", token)
            out[str(token)] = value
        return out

    def param(self, parts: list) -> tuple[Any, Any]:
        return parts[0], parts[1]

    def number(self, parts: list) -> Any:
        text = str(parts[0])
        if "x" in text:
            return Bits(text)
        if text.endswith("j"):
            return complex(text)
        digits = text[1:] if text[0] in "+-" else text
        return int(text) if digits.isdigit() else float(text)

    def string(self, parts: list) -> str:
        return unquote(parts[0])

    def word(self, parts: list) -> Any:
        words = parts[0]
        if len(words) == 1 and words[0] in _WORDS:
            return _WORDS[words[0]]
        dtype, rest = self._dtype(words)
        if rest:
            raise self.mistake(f"`<{rest[0]}>` is not part of a dtype", rest[0])
        return dtype

    def member(self, parts: list) -> Any:
        cls = self._class(parts[0])
        if not issubclass(cls, enum.Enum) or parts[1] not in cls.__members__:
            raise self.mistake(f"{cls.__name__} has no member `{parts[1]}`", parts[1])
        return cls[parts[1]]

    def _class(self, token: Any) -> type:
        cls = PARAM_TYPES.get(token)
        if cls is None:
            raise self.mistake(f"no class of params is called `{token}`", token,
                               close_match(token, PARAM_TYPES))
        return cls

    def argument(self, parts: list) -> tuple[str | None, Any]:
        return (None, parts[0]) if len(parts) == 1 else (str(parts[0]), parts[1])

    def call(self, parts: list) -> Any:
        """`Name(...)` in a param: a class of params, one of a few constructors, or a scalar of the
        dtype `Name`.
        """
        name, arguments = parts[0], parts[1:]
        values = [v for key, v in arguments if key is None]
        named = {key: v for key, v in arguments if key is not None}
        make = _CALLS.get(name)
        if make is not None:
            return make(*values, **named)
        if name in PARAM_TYPES:
            return self._class(name)(*values, **named)
        try:
            dtype = parse_short(name)
        except ValueError:
            raise self.mistake(f"no class of params is called `{name}`", name,
                               close_match(name, (*PARAM_TYPES, *_CALLS))) from None
        (value,) = values
        return parse_scalar(value if isinstance(value, Bits) else repr(value), dtype)

    def tuple_of(self, parts: list) -> tuple:
        return tuple(parts)

    def set_of(self, parts: list) -> frozenset:
        return frozenset(parts)

    def hole(self, parts: list) -> Any:
        return HOLE

    def manual(self, parts: list) -> ManualState:
        sets = parts[0] if parts else {}
        return ManualState(**{name: frozenset(map(_plain, axes)) for name, axes in sets.items()})

    def mesh_value(self, parts: list) -> AbstractMesh | Mesh:
        return parts[0]

    def sharding(self, parts: list) -> NamedSharding | SingleDeviceSharding:
        memory = next((str(p) for p in parts if getattr(p, "type", "") == "WORD"), None)
        if isinstance(parts[0], Device):
            return SingleDeviceSharding(parts[0], memory_kind=memory)
        mesh = next((p for p in parts if isinstance(p, (AbstractMesh, Mesh))), self.mesh)
        return NamedSharding(mesh, parts[0], memory_kind=memory)

    def reference(self, parts: list) -> Any:
        """`@python("module:name")`, `@op("name")` or `@value("repr")`."""
        kind, text = parts[0], unquote(parts[1])
        if kind == "python":
            return self.callables.get(text) or NamedCallable(text)
        if kind == "value":
            return OpaqueValue(text)
        if kind == "op" and text not in OPS:
            raise self.mistake(f"no op is called `{text}`", parts[1], close_match(text, OPS))
        if kind == "op":
            return OPS[text]
        raise self.mistake(f"cannot read `@{kind}({parts[1]})`", kind,
                           "references are @python, @op and @value")


def _plain(axis: Any) -> Any:
    return axis if type(axis) is int else str(axis)


def _float(bits: Bits) -> float:
    return struct.unpack(">d", bytes.fromhex(bits[2:]))[0]


def _complex(bits: Bits) -> complex:
    return complex(parse_scalar(bits, np.dtype(np.complex128)))


_CALLS: dict[str, Callable[..., Any]] = {
    "P": PartitionSpec, "float": _float, "complex": _complex, "device": Device,
}
