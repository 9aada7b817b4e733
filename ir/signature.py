"""Signatures: the types of an equation's operands and results, one object for each such pair.

Every stage looks up what it knows of an equation by its use and these types. As a key a signature
is hashed by identity, where a pair of tuples would be hashed type by type each time.
"""
from __future__ import annotations

from .types import ArrayType

MOST = 20_000

Types = tuple[ArrayType, ...]


class Signature(tuple[Types, Types]):
    """(types of operands, types of results); made by `signature` alone."""

    __slots__ = ()
    __hash__ = object.__hash__


_known: dict[tuple[Types, Types], Signature] = {}


def signature(operands: Types, results: Types) -> Signature:
    """The one of these types. After many others it may be another object, which is looked up anew.
    """
    key = operands, results
    found = _known.get(key)
    if found is None:
        if len(_known) > MOST:
            _known.clear()
        found = _known.setdefault(key, Signature(key))
    return found


def forget_signatures() -> None:
    """Start afresh: equations that are alive keep theirs."""
    _known.clear()
