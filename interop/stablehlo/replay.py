"""StableHLO replayed under our tracing, operation by operation."""
from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.source.location import Location, ParsedLocation
from ...ir.support.caches import cached
from ...ir.support.registry import Registry
from ...ir.values.typeof import typeof
from ..files import is_library
from ..registered import REGISTERED
from ..rules import Rule, traced_at
from .attributes import python_of, shape_and_dtype

rule = Registry()
"""What stands for operations, by their names; for custom calls, by their targets'."""
_FRAME = re.compile(r'(?:"([^"]+)"\()?"((?:[^"\\]|\\.)+)":(\d+):(\d+)(?: to (\d*):(\d+))?')


class Replay:
    """Replays the operations of a module.

    functions, meshes: by name. parts: of axes of the text that are several of a mesh (meshes.py).
    folder: of the text, "" where it is not in a file. manual: the axes
    that are, where the replay is. place: the location of what has none.
    """

    def __init__(self, functions: dict[str, Any], meshes: dict[str, Mesh | AbstractMesh],
                 parts: Mapping[str, tuple[tuple[str, int, int], ...]], folder: str = "") -> None:
        self.functions, self.meshes, self.folder = functions, meshes, folder
        self.parts = parts
        self.manual: tuple[str, ...] = ()
        self.place: Location | None = None
        self._env: dict[Any, Any] = {}

    def call(self, name: str, operands: Sequence[Any]) -> list[Any]:
        """The results of a function of the module."""
        return self.block(self.functions[name].regions[0].blocks[0], operands)

    def region(self, region: Any, operands: Sequence[Any] = ()) -> list[Any]:
        """The results of a region; what it reads from outside is known."""
        return self.block(region.blocks[0], operands)

    def function(self, region: Any) -> Callable[..., list[Any]]:
        """A region as a function."""
        return lambda *operands: self.region(region, operands)

    def block(self, block: Any, operands: Sequence[Any]) -> list[Any]:
        """What a block returns for these operands, its operations replayed in order."""
        env = self._env
        env.update(zip(block.arguments, operands, strict=True))
        for op in block.operations:
            operation = op.operation
            given = [env[v] for v in operation.operands]
            if operation.name in ("func.return", "stablehlo.return", "sdy.return"):
                return given
            env.update(zip(operation.results, self.operation(operation, given), strict=True))
        return []

    def operation(self, op: Any, operands: list[Any]) -> Sequence[Any]:
        """The results of an operation, recorded at its location in the user's source."""
        outer = self.place
        self.place = place = location_of(op.location, self.folder) or outer
        try:
            with traced_at(place):
                found = self._rule(op)(self, op, operands)
        finally:
            self.place = outer
        found = found if isinstance(found, list | tuple) else [found]
        for value, x in zip(op.results, found, strict=True):
            _check(op, value, x, place)
        return found

    def _rule(self, op: Any) -> Rule:
        """What replays an operation: a rule that the user registered, or ours; a custom call goes
        by its target.
        """
        name = op.name
        if name == "stablehlo.custom_call":
            name = python_of(op.attributes["call_target_name"])
        if name in REGISTERED:
            return _registered(name)
        if name in rule:
            return rule[name]
        shapes = ", ".join(str(v.type) for v in op.operands)
        what = "custom call" if op.name == "stablehlo.custom_call" else "operation"
        fail(NotImplementedError,
             f"from_stablehlo: there is nothing here for the {what} {name!r} of ({shapes})",
             code="unknown-operation", location=self.place,
             help=f"`shardtrace.interop.register({name!r})` says what it computes, by functions of "
                  "shardtrace")


def _registered(name: str) -> Rule:
    return lambda replay, op, operands: REGISTERED[name](
        *operands, **{a: python_of(op.attributes[a]) for a in op.attributes
                      if a not in ("call_target_name", "sdy.sharding")})


def _check(op: Any, value: Any, x: Any, place: Location | None) -> None:
    """A rule must give what the operation's type says, inside of manual regions too."""
    shape, dtype = shape_and_dtype(value.type)
    t = typeof(x)
    if t.shape != shape or t.dtype != dtype:
        fail(TypeError, f"from_stablehlo: {op.name} gave {t}, where the text says {value.type}",
             code="stablehlo-type", location=place,
             help="the text contradicts itself at this operation: correct its type")


def location_of(location: Any, folder: str) -> Location | None:
    """The innermost frame of the user's own source in a location of MLIR. folder: of the text."""
    return _location(str(location), folder)


@cached(16384, "places in the source of StableHLO")
def _location(text: str, folder: str) -> Location | None:
    """The location in a text of StableHLO: the innermost frame that is not of a library, else the
    innermost.
    """
    first = None
    for function, file, line, column, end_line, end_column in _FRAME.findall(text):
        found = ParsedLocation.at(file, int(line), int(column), int(end_line or line),
                                  int(end_column or column), function or "<module>")
        found.folder = folder
        if not is_library(file):
            return found
        first = first or found
    return first
