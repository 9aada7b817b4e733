"""Immutable records: `dataclasses.dataclass(frozen=True)` whose methods are not compiled anew.

A dataclass writes the source of six methods and compiles it, half a millisecond a class, when its
module loads. The methods of a record are the same functions for all of them, and what `dataclasses`
and `inspect` need is computed on demand.
"""
from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

from .caches import cached

__all__ = ["immutable", "replace"]

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def immutable(cls: type[_T]) -> type[_T]:
    """Make a class one of immutable values whose fields are its annotations.

    It is built from them in order or by name, compares, hashes and prints by them, and is a frozen
    dataclass to all who ask. Methods of its own stay. Defaults are plain values.
    """
    own = cls.__dict__
    names = tuple(cls.__annotations__)
    get = attrgetter(*names)
    methods: dict[str, Any] = {
        "__init__": _initializer(cls, names), "__repr__": _repr, "__eq__": _equal,
        "__hash__": _hash, "__setattr__": _no_set, "__delattr__": _no_delete,
        "__match_args__": names,
        "_values": property(get if len(names) > 1 else lambda x: (get(x),)),
        **{name: _Described(name) for name in (
            "__dataclass_fields__", "__dataclass_params__", "__signature__")},
    }
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def replace(value: _T, **changes: Any) -> _T:
    """A record like this one but for some fields."""
    return type(value)(**{**vars(value), **changes})


def _initializer(cls: type, names: tuple[str, ...]) -> Callable[..., None]:
    """The `__init__` of a record with these fields. A call that does not fit is handed to a real
    dataclass of the same fields, which says what is wrong.
    """
    count = len(names)
    defaults = {name: cls.__dict__[name] for name in names if name in cls.__dict__}
    check = getattr(cls, "__post_init__", None)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        if len(args) != count or kwargs:
            given = dict(zip(names, args, strict=False))
            values = {**defaults, **given, **kwargs}
            if len(args) > count or given.keys() & kwargs or values.keys() != set(names):
                _dataclass_of(cls)(*args, **kwargs)             # says what is wrong
            args = tuple(map(values.__getitem__, names))
        self.__dict__.update(zip(names, args, strict=True))
        if check is not None:
            check(self)

    return __init__


def _repr(self: Any) -> str:
    fields = (f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({', '.join(fields)})"


def _equal(self: Any, other: Any) -> bool:
    return self._values == other._values if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(self._values)


def _no_set(self: Any, name: str, value: Any) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


class _Described:
    """What the dataclass of a record has under a name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, value: object, cls: type) -> Any:
        if self.name != "__signature__":
            return getattr(_dataclass_of(cls), self.name)
        if value is not None:                   # of the class, not of what calls its values
            raise AttributeError(self.name)
        return inspect.signature(_dataclass_of(cls))


@cached(1024)
def _dataclass_of(cls: type) -> type:
    """The frozen dataclass with the fields of a record."""
    own = cls.__dict__
    fields = ("__annotations__", "__module__", *own["__match_args__"])
    return dataclasses.dataclass(frozen=True)(
        type(cls.__name__, (), {name: own[name] for name in fields if name in own}
             | {"__qualname__": cls.__qualname__}))
