"""Imports heavy modules on first use.

No function of the package imports anything, with one exception: this helper. `lazy_import` returns
an object that stands for the module and imports it at the first attribute access, so that `import
shardtrace` stays quick although parts of it need scipy, lark or networkx. `lazy_names` does the
same for the names that a package gathers from its modules.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["LazyModule", "lazy_import", "lazy_names", "lazy_pattern", "load_all"]


class LazyModule(ModuleType):
    """Stands in for a module until one of its attributes is asked for.

    Attributes are looked up in the module each time, so that a patched or reloaded one is seen.
    """

    _module: ModuleType | None = None

    def __getattr__(self, attribute: str) -> Any:
        # Called only for names that a module object does not have by itself.
        module = self._module
        if module is None:
            if attribute.startswith("__") and attribute.endswith("__"):
                # Introspection (inspect, copy, doctest) must not trigger the import.
                raise AttributeError(f"{self!r} has no attribute {attribute!r}")
            module = self._load()
        return getattr(module, attribute)

    def _load(self) -> ModuleType:
        module = importlib.import_module(self.__name__)
        self.__dict__["_module"] = module
        return module

    def __dir__(self) -> list[str]:
        return dir(self._module or self._load())

    def __repr__(self) -> str:
        return f"<lazy module {self.__name__!r}>"


def lazy_import(name: str, package: str | None = None) -> Any:
    """A stand-in for the module `name` (dotted; relative to `package` where it begins with a dot),
    imported at its first use.

    >>> special = lazy_import("scipy.special")   # nothing is imported
    >>> special.erf(0.0)                         # scipy.special is imported here
    0.0

    A missing module is reported when it is used, as `ModuleNotFoundError`.
    """
    if not name or (name.startswith(".") and not package):
        raise ValueError(f"lazy_import needs an absolute module name, got {name!r}")
    return LazyModule(importlib.util.resolve_name(name, package))


_pkgutil = lazy_import("pkgutil")


def load_all(package: ModuleType) -> None:
    """Import every module of a package: for a process whose copies should have nothing to load."""
    for module in _pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        importlib.import_module(module.name)


class _LazyPattern:
    """Stands in for a pattern until one of its attributes is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._given = text, flags

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(re.compile(*self._given), attribute)
        self.__dict__[attribute] = value
        return value


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """`re.compile`, at the first use: to compile a pattern takes as long as to import a module.

    >>> lazy_pattern(r"[a-z]+").findall("ab, c")
    ['ab', 'c']
    """
    return _LazyPattern(text, flags)        # type: ignore[return-value]


def lazy_names(package: str, modules: Mapping[str, Iterable[str]],
               transform: Callable[[Any, str, str], Any] = lambda value, *_: value
               ) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package, some modules of which load when first asked for.

    modules: by the names of these modules (in the package, or with dots where they are elsewhere),
    the names in them that the package has too. transform: what the package has for a value of
    theirs, given its name, too, and the package.
    """
    owners = {name: module for module, names in modules.items() for name in names}

    def __getattr__(name: str) -> Any:
        if name in modules:
            return importlib.import_module(f".{name}", package)
        if name not in owners:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        owner = owners[name]
        value = transform(getattr(importlib.import_module(
            owner if "." in owner else f".{owner}", package), name), name, package)
        setattr(sys.modules[package], name, value)
        return value

    def __dir__() -> list[str]:
        return sorted({*vars(sys.modules[package]), *(m for m in modules if "." not in m), *owners})

    return __getattr__, __dir__
