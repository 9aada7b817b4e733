"""Tables shared by the parts of a view: files with their lines, places, types and texts."""
from __future__ import annotations

import linecache
import os
from collections.abc import Hashable
from typing import Any

from ...ir.source.location import Location
from ...ir.types import ArrayType

LONGEST = 2_000          # lines up to which a file is shown whole
_AROUND = 8              # lines shown around what is used of a longer one


class Numbered(dict[Hashable, int]):
    """Numbers for things, in the order of their first appearance."""

    def __missing__(self, key: Hashable) -> int:
        number = self[key] = len(self)
        return number


class Tables:
    """The files, places and types to which the data of one explanation refers by number."""

    def __init__(self) -> None:
        self.known: dict[tuple, int] = {}
        self.places: list[list[Any]] = []
        self.types = Numbered()
        self.paths = Numbered()
        self._of_path: dict[str, Location] = {}
        self._texts: dict[tuple, str] = {}

    def place(self, where: Location) -> int:
        """The number of a place; -1 for an unknown one."""
        number = self.known.get(where.key)
        if number is None:
            number = -1
            if where.line > 0:
                number = len(self.places)
                self._of_path.setdefault(where.file, where)
                self.places.append([self.paths[where.file], where.line, where.column,
                                    where.end_line, where.end_column, where.function,
                                    where.transform])
            self.known[where.key] = number
        return number

    def text(self, where: Location) -> str:
        """The source text of a place."""
        found = self._texts.get(where.key)
        if found is None:
            found = self._texts[where.key] = where.text()
        return found

    def type(self, aval: ArrayType) -> int:
        return self.types[aval]

    def files(self) -> list[dict[str, Any]]:
        """The files with their available lines; long ones from the first line that is used."""
        used: dict[int, list[int]] = {}
        for file, line, *_ in self.places:
            used.setdefault(file, []).append(line)
        found = []
        for path, number in self.paths.items():
            assert isinstance(path, str)
            at = self._of_path[path]
            lines = linecache.getlines(path) if at.source_line() else []
            first, last = 1, len(lines)
            if last > LONGEST:
                first = max(1, min(used[number]) - _AROUND)
                last = min(last, max(used[number]) + _AROUND)
            found.append({"name": os.path.basename(path), "path": path, "first": first,
                          "lines": [line.rstrip("\r\n") for line in lines[first - 1:last]]})
        return found

    def type_data(self) -> list[dict[str, Any]]:
        """Each type: its text, sizes, the mesh axes of each dimension, and what is on a device."""
        return [{"text": t.str_short(True), "shape": list(t.shape),
                 "axes": [[str(a) for a in axes] for axes in t.entries],
                 "block": list(t.local_shape()), "unreduced": sorted(map(str, t.unreduced))}
                for t in self.types if isinstance(t, ArrayType)]
