"""OpSharding: the fields of a sharding as XLA's protocol has them, and its text form.

Programs that were written against XLA fill the record in by hand; `HloSharding.from_proto` makes a
value of it. The text is the one that XLA prints.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

from ..support.lazy import lazy_pattern

__all__ = ["OpSharding", "OpShardingType", "read_op_sharding"]


class OpShardingType(enum.IntEnum):
    """The kinds of sharding, and of groups of devices that share a tile."""

    REPLICATED = 0
    MAXIMAL = 1
    TUPLE = 2
    OTHER = 3
    MANUAL = 4
    UNKNOWN = 5
    UNREDUCED = 6


@dataclass(eq=True)
class OpSharding:
    """The fields of a sharding as XLA's protocol has them; all may be set one by one.

    type: one of `OpSharding.Type`. tile_assignment_dimensions: tiles a dimension, then the sizes
    of the groups. Devices: `tile_assignment_devices`, or `iota_reshape_dims` and
    `iota_transpose_perm`. The last dimensions are groups of the types `last_tile_dims`, or one of
    replicas if `replicate_on_last_tile_dim`. `HloSharding.from_proto` reads it.

    >>> op = OpSharding(type=OpSharding.Type.OTHER)
    >>> op.tile_assignment_dimensions, op.tile_assignment_devices = [2, 2], [0, 2, 1, 3]
    >>> st.sharding.HloSharding.from_proto(op)
    {devices=[2,2]0,2,1,3}
    """

    Type: ClassVar[Any] = OpShardingType

    type: OpShardingType = OpShardingType.REPLICATED
    tile_assignment_dimensions: Sequence[int] = field(default_factory=list)
    tile_assignment_devices: Sequence[int] = field(default_factory=list)
    iota_reshape_dims: Sequence[int] = field(default_factory=list)
    iota_transpose_perm: Sequence[int] = field(default_factory=list)
    replicate_on_last_tile_dim: bool = False
    last_tile_dims: Sequence[OpShardingType] = field(default_factory=list)
    tuple_shardings: Sequence[OpSharding] = field(default_factory=list)

    def clone(self) -> OpSharding:
        """A copy that shares nothing with this record."""
        return copy.deepcopy(self)


# --------------------------------------------------------------------------- reading

_WORDS = {kind.name.lower(): kind for kind in (
    OpShardingType.REPLICATED, OpShardingType.MANUAL, OpShardingType.UNKNOWN,
    OpShardingType.UNREDUCED)}
_GROUPS = ("manual", "unreduced", "replicated")
_NUMBERS = r"\d+(?:\s*,\s*\d+)*"
_DEVICES = lazy_pattern(
    rf"\{{\s*devices=\[({_NUMBERS})\]\s*(?:<=\[({_NUMBERS})\](?:T\(({_NUMBERS})\))?|({_NUMBERS}))"
    r"(?:\s+(last_tile_dim_replicate)|\s+last_tile_dims=\{([a-z_,\s]*)\})?"
    r"(?:\s+metadata=\{[^}]*\})?\s*\}")
_WORD = lazy_pattern(r"\{\s*(?:(\w+)|maximal device=(\d+))\s*\}")


def _numbers(text: str | None) -> list[int]:
    return [int(n) for n in text.split(",")] if text else []


def _refuse(text: str, at: int, wanted: str) -> NoReturn:
    raise ValueError(f"cannot read a sharding: expected {wanted} at character {at + 1}\n"
                     f"  {text}\n  {' ' * at}^")


def read_op_sharding(text: str) -> OpSharding:
    """The record of a text such as `{devices=[2,4]<=[8]}`.

    Raises ValueError that shows where the text cannot be read.
    """
    found, end = _parse(text, 0)
    if text[end:].strip():
        _refuse(text, end, "the end")
    return found


def _parse(text: str, at: int) -> tuple[OpSharding, int]:
    """The sharding that begins at `at`, and where it ends."""
    found = _DEVICES.match(text, at)
    if found:
        dims, reshape, perm, listed, replicas, groups = found.groups()
        names = [name.strip() for name in groups.split(",")] if groups else []
        return OpSharding(
            OpShardingType.OTHER, _numbers(dims), _numbers(listed), _numbers(reshape),
            _numbers(perm), bool(replicas), [_group(text, name) for name in names]), found.end()
    found = _WORD.match(text, at)
    if found and found[2]:
        return OpSharding(OpShardingType.MAXIMAL, [1], [int(found[2])]), found.end()
    if found:
        if found[1] not in _WORDS:
            _refuse(text, found.start(1), f"one of {', '.join(sorted(_WORDS))}")
        return OpSharding(_WORDS[found[1]]), found.end()
    if not text.startswith("{", at):
        _refuse(text, at, "'{'")
    elements: list[OpSharding] = []
    at = _skip(text, at + 1)
    while not text.startswith("}", at):
        if elements:
            if not text.startswith(",", at):
                _refuse(text, at, "',' or '}'")
            at = _skip(text, at + 1)
        if not text.startswith("{", at):
            _refuse(text, at, "a word, `devices=[...]`, or '{'")
        element, at = _parse(text, at)
        elements.append(element)
        at = _skip(text, at)
    return OpSharding(OpShardingType.TUPLE, tuple_shardings=elements), at + 1


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _group(text: str, name: str) -> OpShardingType:
    if name not in _GROUPS:
        _refuse(text, text.index("last_tile_dims"), f"groups {', '.join(_GROUPS)}")
    return OpShardingType[name.upper()]
