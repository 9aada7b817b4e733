"""Immutable records are frozen dataclasses to all who ask."""
from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle

import pytest

from shardtrace.ir.support.immutable import immutable, replace


@immutable
class Point:
    x: int
    y: float = 2.0
    name: str = ""


@dataclasses.dataclass(frozen=True)
class Same:
    x: int
    y: float = 2.0
    name: str = ""


Same.__qualname__ = "Point"
Same.__init__.__qualname__ = "Point.__init__"


@immutable
class Alone:
    value: object

    def __str__(self) -> str:
        return "alone"


@immutable
class Checked:
    size: int

    def __post_init__(self) -> None:
        if self.size < 0:
            raise ValueError("sizes are not negative")

    def __hash__(self) -> int:
        return 7


def test_fields_are_given_in_order_or_by_name() -> None:
    for args, kwargs in [((1, 3.0, "a"), {}), ((1, 3.0), {"name": "a"}), ((1,), {}),
                         ((), {"name": "b", "x": 4}), ((1,), {"y": 0.5})]:
        point, same = Point(*args, **kwargs), Same(*args, **kwargs)
        assert (point.x, point.y, point.name) == (same.x, same.y, same.name)
        assert repr(point) == repr(same) and hash(point) == hash(same)


@pytest.mark.parametrize(("args", "kwargs"), [
    ((), {}), ((1, 2, "", 4), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((), {"y": 1.0})])
def test_wrong_arguments_are_told_as_dataclasses_tell_them(args: tuple, kwargs: dict) -> None:
    with pytest.raises(TypeError) as told:
        Point(*args, **kwargs)
    with pytest.raises(TypeError) as expected:
        Same(*args, **kwargs)
    assert str(told.value) == str(expected.value)


def test_values_compare_and_hash_by_their_fields() -> None:
    assert Point(1) == Point(1) and Point(1) != Point(2) and Point(1) != Same(1)
    assert len({Point(1), Point(1), Point(2)}) == 2
    nan = float("nan")
    assert Alone(nan) == Alone(nan)              # as tuples of the fields compare
    assert hash(Alone(3)) == hash((3,)) and hash(Checked(1)) == 7


def test_values_do_not_change() -> None:
    point = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2                              # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x                              # type: ignore[misc]
    assert replace(point, y=4.0) == Point(1, 4.0) == dataclasses.replace(point, y=4.0)
    with pytest.raises(TypeError, match="unexpected keyword"):
        replace(point, z=1)


def test_what_dataclasses_and_inspect_know() -> None:
    assert dataclasses.is_dataclass(Point) and dataclasses.asdict(Point(1)) == dataclasses.asdict(
        Same(1))
    assert [f.name for f in dataclasses.fields(Point)] == ["x", "y", "name"]
    assert inspect.signature(Point) == inspect.signature(Same)
    match Point(5):
        case Point(x, y):
            assert (x, y) == (5, 2.0)


def test_copies_and_pickles() -> None:
    point = Point(1, name="p")
    assert copy.copy(point) == copy.deepcopy(point) == pickle.loads(pickle.dumps(point)) == point


def test_own_methods_stay() -> None:
    assert str(Alone(1)) == "alone" and repr(Alone(1)) == "Alone(value=1)"
    with pytest.raises(ValueError, match="not negative"):
        Checked(-1)
