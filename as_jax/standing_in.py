"""The import of `jax` and of its modules, answered with shardtrace's.

A stand-in `jax.X` has the names of up to two modules: of `shardtrace.as_jax.names.X`, what only
programs of JAX ask for, and of `shardtrace.X`, a public module. Which stand-ins there are is read
from the package when one is imported.
"""
from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from ..ir.diagnostics.diagnostic import fail
from ..ir.settings.context import config

PACKAGE = __name__.partition(".")[0]
# Public modules of shardtrace that JAX has none like. All others at its root are JAX's, or inner.
_OWN = frozenset({"checkpoints", "interop", "runtime"})
# Private modules of JAX of which a public one, of another name, says the same.
_SAME = {"_src.api": "", "_src.lax.lax": "lax"}
# What JAX 0.10.2 says of names that it has no longer.
_REMOVED = {
    "jax.core.get_aval": "jax.core.get_aval was deprecated in JAX v0.8.2 and removed in JAX "
                         "v0.10.0; use jax.typeof instead.",
    "jax.lax.pvary": "jax.lax.pvary was deprecated in JAX v0.8.2 and removed in JAX v0.10.0; use "
                     "`jax.lax.pcast(..., to='varying')",
    "jax.numpy.fix": "jax.numpy.fix was deprecated in JAX v0.9.0, and will be removed in JAX "
                     "v0.10.0. Use jax.numpy.trunc instead.",
    **{f"jax.{name}": f"jax.{name} is deprecated; use jax.device_put instead. See "
                      "https://docs.jax.dev/en/latest/migrate_pmap.html#drop-in-replacements for a "
                      "drop-in replacement."
       for name in ("device_put_replicated", "device_put_sharded")},
}


class StandIn(ModuleType):
    """A module under JAX's name. What shardtrace has is looked up when it is first asked for."""

    __stands_for__: str

    def __init__(self, name: str, sources: list[ModuleType]) -> None:
        super().__init__(name, sources[-1].__doc__)
        self.__file__ = sources[-1].__file__        # "cannot import name ... from 'jax' (FILE)"
        self.__stands_for__ = sources[-1].__name__
        self.__sources = sources
        for source in sources:
            if source.__name__.startswith(f"{PACKAGE}.as_jax."):
                self.__dict__.update((key, getattr(source, key)) for key in source.__all__)

    def __getattr__(self, name: str) -> Any:
        if name == "__all__":
            return [key for key in self.__dir__() if not key.startswith("__")]
        inner = f"{self.__name__}.{name}"
        if not name.startswith("_") or name.startswith("__array_"):      # of the array API
            if sources_of(inner):
                return importlib.import_module(inner)
            value = getattr(self.__sources[-1], name, self)
            if value is not self and not isinstance(value, ModuleType):
                self.__dict__[name] = value
                return value
        said = _REMOVED.get(inner) or (f"module {self.__name__!r} has no attribute {name!r}: "
                                       f"{PACKAGE} stands in for jax here, and does not have it")
        raise AttributeError(said, name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({key for source in self.__sources for key in source.__all__} - _OWN)


def sources_of(name: str) -> list[str]:
    """The modules whose names `name`, of JAX, has here."""
    path = name.split(".")[1:]
    same = _SAME.get(".".join(path))
    if same is not None:
        return [f"{PACKAGE}.{same}".rstrip(".")]
    public = path[1:] if path[:1] == ["_src"] else path     # `jax._src.core` is `jax.core`
    known = importlib.import_module(PACKAGE).__all__
    inner = path and (not public or public[0] in _OWN or public[0] not in known)
    names = [".".join([f"{PACKAGE}.as_jax.names", *path]), ".".join([PACKAGE, *public])]
    found = [module for module in names[:1 if inner else 2] if _exists(module)]
    return found or ([names[1]] if _distribution(public) else [])


def _distribution(path: list[str]) -> type | None:
    """`scipy.stats.norm` and others, modules of JAX, are classes here."""
    if path[:2] != ["scipy", "stats"] or len(path) != 3:
        return None
    return getattr(importlib.import_module(f"{PACKAGE}.scipy.stats"), path[2], None)


def _exists(module: str) -> bool:
    if module in sys.modules:
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:                     # nor the one that it would be in
        return False


class _Finder:
    """Finds and loads stand-ins: one object in `sys.meta_path`, before all others."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.partition(".")[0] != "jax":
            return None
        sources = sources_of(name)
        if not sources:
            raise ModuleNotFoundError(f"No module named {name!r}: {PACKAGE} stands in for jax "
                                      "here, and does not have it", name=name)
        return ModuleSpec(name, self, loader_state=sources, is_package=True)  # type: ignore

    def create_module(self, spec: ModuleSpec) -> StandIn | None:
        if _distribution(spec.name.split(".")[1:]):
            return None                             # `exec_module` has what it is
        return StandIn(spec.name, [importlib.import_module(name) for name in spec.loader_state])

    def exec_module(self, module: ModuleType) -> None:
        distribution = _distribution(module.__name__.split(".")[1:])
        if distribution is not None:
            sys.modules[module.__name__] = distribution     # type: ignore[assignment]


def stand_in() -> None:
    """From now on, `jax` is shardtrace. ImportError where JAX is loaded."""
    loaded = sys.modules.get("jax")
    if isinstance(loaded, StandIn):
        return
    if loaded is not None:
        fail(ImportError, f"jax is loaded already, from {getattr(loaded, '__file__', '?')}",
             because=("shardtrace.as_jax stands in for the modules of jax, for all that use them "
                      "or for none",),
             help="import shardtrace.as_jax before anything that imports jax, or run the program "
                  "with `python -m shardtrace.as_jax`")
    sys.modules.pop("jax", None)                    # None there would forbid the import
    sys.meta_path.insert(0, _Finder())              # type: ignore[arg-type]
    config.update("default_axis_types", "explicit")
    importlib.import_module("jax")
