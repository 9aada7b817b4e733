"""Named tuples are those of `typing`, but for annotations that stay text."""
from __future__ import annotations

import pickle
import typing

from shardtrace.ir.support.named_tuple import NamedTuple


class Pair(NamedTuple):
    """Two things."""
    first: int
    second: dict[str, int] | None = None

    @property
    def swapped(self) -> tuple[typing.Any, int]:
        return self.second, self.first

    @classmethod
    def of(cls, first: int) -> Pair:
        return cls(first, {})


class Typing(typing.NamedTuple):
    first: int
    second: dict[str, int] | None = None


class Nothing(NamedTuple):
    pass


def test_it_is_what_typing_makes() -> None:
    assert Pair(1) == Typing(1) == (1, None) and Pair(1)._asdict() == Typing(1)._asdict()
    assert Pair._fields == Typing._fields and Pair._field_defaults == Typing._field_defaults
    assert typing.get_type_hints(Pair) == typing.get_type_hints(Typing)
    assert Pair.__mro__[1:] == (tuple, object) and not hasattr(Pair(1), "__dict__")
    assert repr(Pair(1)) == "Pair(first=1, second=None)" and Pair.__doc__ == "Two things."
    assert Nothing() == ()


def test_methods_and_pickles() -> None:
    assert Pair(1).swapped == (None, 1) and Pair.of(3) == Pair(first=3, second={})
    assert type(pickle.loads(pickle.dumps(Pair(2)))) is Pair
    assert Pair(1)._replace(first=2) == Pair(2)
