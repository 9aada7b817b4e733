"""Classes whose values stand in params of ops: dimension numbers, modes, options.

The text of a program names them: dataclasses and NamedTuples as `Name(field=value, ...)`, enums as
`Name.MEMBER`.
"""
from __future__ import annotations

import enum
from typing import Any

PARAM_TYPES: dict[str, type] = {}


def register_param_type(cls: Any) -> Any:
    """Allow values of `cls`, a dataclass, NamedTuple or Enum, as params. Works as decorator.

    Raises ValueError if another class of that name is known, TypeError for any other kind of class.
    """
    if not (issubclass(cls, enum.Enum) or hasattr(cls, "_fields")
            or "__match_args__" in vars(cls)):
        raise TypeError(f"{cls.__name__} is neither a dataclass, nor a NamedTuple, nor an Enum")
    if PARAM_TYPES.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"a param type called {cls.__name__} is registered already")
    return cls
