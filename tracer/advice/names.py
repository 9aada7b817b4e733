"""How the user's code refers to what a suggested change needs: functions, specs, the mesh.

A name is taken from the scope of the changed text. If there is none, an import is added, under a
name that the file does not use.
"""
from __future__ import annotations

import functools
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ...ir.api_boundary import inner
from ...ir.inference.explicit import spec_entry
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.source.location import PACKAGE
from ...ir.types import Entries

_ALIASES = {"numpy": "jnp"}          # as modules are imported by most


class Names:
    """The names that can be used at a place: `scope`, by name. lines: of the file."""

    def __init__(self, scope: Mapping[str, Any], lines: Sequence[str]) -> None:
        self.scope, self.lines = scope, lines
        self.imported: dict[str, Any] = {}       # what the imports of changes bring
        self._known: dict[str, tuple[str, tuple[str, ...]]] = {}

    def of(self, dotted: str) -> tuple[str, tuple[str, ...]]:
        """How the code names `reshard`, `lax.pcast`, ... of the package, and the import if it does
        not."""
        if dotted not in self._known:
            self._known[dotted] = self._found(dotted)
        return self._known[dotted]

    def _found(self, dotted: str) -> tuple[str, tuple[str, ...]]:
        """How the code can write `dotted`, and the import lines that it lacks: a name of the scope
        for the thing itself, then through a module that the scope has, else by a new import.
        """
        module, _, name = dotted.rpartition(".")
        home = sys.modules[f"{PACKAGE}.{module}" if module else PACKAGE]
        wanted = inner(getattr(home, name))
        for known, value in self.scope.items():
            if inner(value) is wanted and known.isidentifier():
                return known, ()
        modules = {known: value for known, value in self.scope.items() if inspect.ismodule(value)
                   and value.__name__.partition(".")[0] == PACKAGE}
        for known, value in modules.items():
            if inner(getattr(value, name, None)) is wanted:
                return f"{known}.{name}", ()
        for known, value in modules.items():
            if value.__name__ == PACKAGE:
                return f"{known}.{dotted}", ()
        if not module:
            name = self._free(name)
            self.imported[name] = getattr(home, dotted)
            how = dotted if name == dotted else f"{dotted} as {name}"
            return name, (f"from {PACKAGE} import {how}",)
        alias = self._free(_ALIASES.get(module, module))
        self.imported[alias] = home
        how = module if alias == module else f"{module} as {alias}"
        line = f"import {PACKAGE}.{how}" if module in _ALIASES else f"from {PACKAGE} import {how}"
        return f"{alias}.{name}", (line,)

    def _free(self, name: str) -> str:
        """The name, or one like it that the file does not use."""
        while name in self.scope or re.search(rf"\b{name}\b", self._text):
            name += "_"
        return name

    @functools.cached_property
    def _text(self) -> str:
        return "\n".join(self.lines)

    def mesh(self, wanted: AbstractMesh | None = None) -> str | None:
        """An expression for a mesh that is in scope, or an attribute of what is: that one, or any.
        """
        for holder, text in ((self.scope, "{}"), *self._attributes()):
            for name, value in holder.items():
                if isinstance(value, Mesh) and isinstance(name, str) and name.isidentifier() and (
                        wanted is None or value.abstract_mesh == wanted):
                    return text.format(name)
        return None

    def _attributes(self) -> list[tuple[Mapping[str, Any], str]]:
        """Attributes of objects in scope, as (the attributes, how they are written, such as
        `self.{}`).
        """
        found = []
        for name, value in self.scope.items():
            try:
                own = object.__getattribute__(value, "__dict__")      # runs no code of the user's
            except AttributeError:
                continue
            if type(own) is dict and name.isidentifier() and not name.startswith("__") and not (
                    inspect.ismodule(value) and value.__name__.partition(".")[0] == PACKAGE):
                found.append((own, f"{name}.{{}}"))
        return found

    def spec(self, entries: Entries) -> tuple[str, tuple[str, ...]]:
        """`P('x', None)`, and the import that it needs."""
        name, imports = self.of("P")
        return f"{name}({', '.join(repr(spec_entry(e)) for e in entries)})", imports
