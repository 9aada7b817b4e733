"""Writes the parts of a line: names, scalars, types, meshes, params.

    f32[8@(X,Y),4]{U:Z}     a type          (X=2, Y=4 auto) of cpu     a mesh
    0.1, -inf, 0x7fc00001   scalars         dims=(1, 0), dtype=f32     params

Everything written here is read back to an equal value by the rules of the same names in
grammar.lark (ir/text/parse.py, ir/text/value_parser.py). Scalars are bit-exact: the shortest
decimal that reads back to the same bits, else the bits in hexadecimal (NaN payloads). Classes that
ops use in params are made known in ir/op.py; functions are written as
`@python("module:name")`, and stay names when read back.
"""
from __future__ import annotations

import ast
import enum
import inspect
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import ExtendedDType, short_name
from ..meshes.device import Device
from ..meshes.manual_state import ManualState
from ..meshes.memory import DEVICE
from ..meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ..op import Op
from ..param_types import PARAM_TYPES, register_param_type
from ..program import Level, Program
from ..shardings.sharding import NamedSharding, SingleDeviceSharding
from ..spec import UNCONSTRAINED, PartitionSpec
from ..support.caches import cached
from ..support.lazy import lazy_pattern
from ..types import ArrayType
from .constants import hex_text, scalar_text
from .placeholders import NamedCallable, OpaqueValue, callable_name, opaque_text, quote

_AXIS = lazy_pattern(r"[A-Za-z_]\w*(?::\(\d+\)\d+)*")
_NAME = lazy_pattern(r"[A-Za-z_]\w*(\.\w+)*")

# Words that a variable cannot be called, since they begin a line or follow a type.
RESERVED = frozenset(("const", "devices", "file", "level", "mesh", "on", "program", "return"))


def is_name(text: str) -> bool:
    """Can `text` be the name of a variable in a program?"""
    return _NAME.fullmatch(text) is not None and text.isascii() and text not in RESERVED


def unquote(text: str) -> str:
    """The string that `quote` or repr wrote."""
    try:
        return ast.literal_eval(text)
    except SyntaxError as error:
        raise ValueError(f"{error.msg.partition(': ')[0]}: no string is written so") from None


register_param_type(AxisType)
register_param_type(Level)


# -- meshes and types ------------------------------------------------------------------------------

def axis_text(axis: Any) -> str:
    """The name of a mesh axis, in quotes unless it is an identifier."""
    if isinstance(axis, str):
        return axis if _AXIS.fullmatch(axis) and axis.isascii() else quote(axis)
    if isinstance(axis, int):
        return str(axis)
    return quote(opaque_text(axis))


def axes_text(axes: tuple) -> str:
    """`X`, or `(X,Y)`, major first."""
    return axis_text(axes[0]) if len(axes) == 1 else f"({','.join(map(axis_text, axes))})"


_AXIS_TYPE_WORD = {AxisType.Explicit: "", AxisType.Auto: " auto", AxisType.Manual: " manual"}


def mesh_text(mesh: AbstractMesh | Mesh) -> str:
    """`(X=2, Y=4 auto) of cpu`: axes that are not Explicit say so; the devices, if known."""
    axes = zip(mesh.axis_names, mesh.axis_sizes, mesh.axis_types, strict=True)
    text = "(" + ", ".join(f"{axis_text(a)}={n}{_AXIS_TYPE_WORD[t]}" for a, n, t in axes) + ")"
    if isinstance(mesh, Mesh):
        return f"{text} at {tuple_text([_device_text(d) for d in mesh.device_tuple])}"
    device = mesh.abstract_device
    if device is not None:
        text += f" of {device.platform}"
        if device.device_kind != device.platform:
            text += f" {quote(device.device_kind)}"
        if device.num_cores is not None:
            text += f" cores {device.num_cores}"
    return text


def _device_text(device: Device) -> str:
    if device is Device(device.id):
        return str(device.id)
    fields = ("process_index", "platform", "device_kind", "local_hardware_id", "memory_kinds")
    values = device.__reduce__()[1][1:]       # as it was made: not whose it is for the caller
    parts = [f"{name}={_plain_text(v)}" for name, v in zip(fields, values, strict=True)]
    return f"device({device.id}, {', '.join(parts)})"


def _plain_text(value: Any) -> str:
    if isinstance(value, tuple):
        return tuple_text([_plain_text(v) for v in value])
    return repr(value)


def tuple_text(parts: list[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


class Notation:
    """What the text of one program takes for granted, and what it has named so far.

    mesh: of all types that do not say `on`. meshes: other meshes -> their names in the heading,
    shared by the whole text. callables: name -> the distinct functions of that name.
    """

    __slots__ = ("callables", "meshes", "mesh", "types", "values")

    def __init__(self, mesh: AbstractMesh, around: Notation | None = None) -> None:
        self.mesh = mesh
        self.meshes: dict[AbstractMesh, str] = {} if around is None else around.meshes
        self.callables: dict[str, list[Any]] = {} if around is None else around.callables
        self.types: dict[ArrayType, str] = {}
        self.values: dict[Any, str] = {}     # texts of whole param lists

    def type(self, aval: ArrayType) -> str:
        """The text of a type."""
        text = self.types.get(aval)
        if text is None:
            text = self.types[aval] = _type_text(aval) + self.on(aval.mesh)
        return text

    def on(self, mesh: AbstractMesh) -> str:
        """` on m1`: which mesh, where it is not the program's own."""
        if mesh is self.mesh:
            return ""
        if mesh is empty_abstract_mesh:
            return " on ()"
        name = self.meshes.get(mesh)
        if name is None:
            name = self.meshes[mesh] = f"m{len(self.meshes) + 1}"
        return f" on {name}"

    def value(self, value: Any) -> str:
        """The text of a param's value; programs in it are `{...}`."""
        kind = type(value)
        if value is None or kind is bool or kind is int:
            return repr(value)
        if kind is tuple:
            return tuple_text([self.value(v) for v in value])
        if kind is str:
            return repr(value)
        write = _WRITERS.get(kind)
        if write is None:
            write = next((w for c, w in _WRITERS.items() if isinstance(value, c)), _other_text)
        return write(value, self)


def _type_text(aval: ArrayType) -> str:
    """A type, `f32[8@X,4]{U:Y}`."""
    dtype, mesh = aval.dtype, aval.mesh
    dims = ",".join([f"{n}@{axes_text(axes)}" if axes else str(n)
                     for n, axes in zip(aval.shape, aval.entries, strict=True)])
    weak = "~" if aval.weak_type else ""
    space = "" if aval.memory_space is DEVICE else f"<{aval.memory_space.value}>"
    parts = [f"{letter}:{axes_text(_in_mesh_order(mesh, axes))}" for letter, axes
             in (("V", aval.varying), ("U", aval.unreduced), ("R", aval.reduced)) if axes]
    state = "{" + ", ".join(parts) + "}" if parts else ""
    return f"{weak}{short_name(dtype)}{space}[{dims}]{state}"


def _in_mesh_order(mesh: AbstractMesh, axes: frozenset) -> tuple:
    try:
        return mesh.sort_axes(axes)
    except (KeyError, ValueError):      # an axis that the mesh lacks: for the verifier to say
        return tuple(sorted(axes, key=str))


# -- values of params ------------------------------------------------------------------------------

def _float_text(value: float, _: Notation) -> str:
    text = repr(value)
    bits = struct.pack("<d", value)
    return text if struct.pack("<d", float(text)) == bits else f"float({hex_text(bits)})"


def _complex_text(value: complex, _: Notation) -> str:
    text = scalar_text(value, np.dtype(np.complex128))
    return f"complex({text})" if text.startswith("0x") else text


def _array_text(value: Any, _: Notation) -> str:
    return f"{short_name(value.dtype)}({scalar_text(value, value.dtype)})"


def _set_text(value: frozenset, notation: Notation) -> str:
    return "{" + ", ".join(sorted(map(notation.value, value))) + "}"


def _spec_text(spec: PartitionSpec, notation: Notation) -> str:
    parts = [notation.value(p) for p in spec.partitions]
    for name in ("unreduced", "reduced"):
        axes = getattr(spec, name)
        if axes:
            parts.append(f"{name}={_set_text(axes, notation)}")
    return f"P({', '.join(parts)})"


def _sharding_text(value: NamedSharding, notation: Notation) -> str:
    mesh = value.mesh
    on = f" on mesh {mesh_text(mesh)}" if isinstance(mesh, Mesh) else notation.on(mesh)
    memory = "" if value.memory_kind is None else f" in {value.memory_kind}"
    return f"sharding {_spec_text(value.spec, notation)}{on}{memory}"


def _single_text(value: SingleDeviceSharding, _: Notation) -> str:
    device = _device_text(value.device)
    device = device if device.startswith("device") else f"device({device})"
    return f"sharding {device} in {value.memory_kind}"


def _manual_text(value: ManualState, _: Notation) -> str:
    parts = [f"{letter}:{axes_text(tuple(sorted(axes, key=str)))}" for letter, axes
             in (("V", value.varying), ("U", value.unreduced), ("R", value.reduced)) if axes]
    return "manual{" + ", ".join(parts) + "}" if parts else "manual"


def _other_text(value: Any, notation: Notation) -> str:
    """The text of a param that is no scalar, dtype, type, mesh or sharding: an enum or class of
    params, a function by name, or an opaque value.
    """
    cls = type(value)
    if PARAM_TYPES.get(cls.__name__) is cls:
        if isinstance(value, enum.Enum):
            return f"{cls.__name__}.{value.name}"
        names = getattr(cls, "_fields", None) or cls.__match_args__
        parts = [f"{name}={notation.value(getattr(value, name))}" for name in names]
        return f"{cls.__name__}({', '.join(parts)})"
    if isinstance(value, tuple):
        return tuple_text([notation.value(v) for v in value])
    if isinstance(value, (NamedCallable, OpaqueValue)):
        return repr(value)
    if callable(value):
        name = callable_name(value)
        known = notation.callables.setdefault(name, [])
        index = next((i for i, f in enumerate(known) if f is value), len(known))
        if index == len(known):
            known.append(value)
        return f"@python({quote(name if index == 0 else f'{name}#{index + 1}')})"
    return f"@value({quote(opaque_text(value))})"


_WRITERS: dict[type, Callable[[Any, Notation], str]] = {
    np.dtype: lambda value, _: short_name(value),
    ExtendedDType: lambda value, _: short_name(value),
    np.generic: _array_text,           # before float: np.float64 is one
    float: _float_text,
    complex: _complex_text,
    frozenset: _set_text,
    PartitionSpec: _spec_text,
    type(UNCONSTRAINED): lambda value, _: "UNCONSTRAINED",
    NamedSharding: _sharding_text,
    SingleDeviceSharding: _single_text,
    AbstractMesh: lambda value, _: f"mesh {mesh_text(value)}",
    Mesh: lambda value, _: f"mesh {mesh_text(value)}",
    Device: lambda value, _: f"device({value.id})" if value is Device(value.id)
    else _device_text(value),
    ManualState: _manual_text,
    ArrayType: lambda value, notation: notation.type(value),
    Program: lambda value, _: "{...}",
    Op: lambda value, _: f"@op({quote(value.name)})",
}


def exact(value: Any) -> Any:
    """A key that distinguishes equal values of different text: 1, True and 1.0; 0.0 and -0.0."""
    kind = type(value)
    if isinstance(value, (tuple, frozenset)):
        return kind, *map(exact, value)
    if kind is dict:
        return tuple(map(exact, value.values()))
    if isinstance(value, (float, complex, np.generic)):
        return kind, repr(value)
    return kind


@cached(1024)
def hidden_params(op: Op) -> dict[str, Any]:
    """Params that need no text while they have these values: those that `op.infer` names.

    The value is the default it gives them, else None. The parser fills in what is missing.
    """
    try:
        parameters = inspect.signature(op.infer).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {p.name: None if p.default is p.empty else p.default
            for p in parameters if p.kind is p.KEYWORD_ONLY}
