"""Signatures: the types of an equation's operands and results, one object for each such pair.

Every stage looks up what it knows of an equation by its use and these types. As a key a signature
is hashed by identity, where a pair of tuples would be hashed type by type each time.
"""
from __future__ import annotations

from .types import ArrayType

MOST = 20_000

Types = tuple[ArrayType, ...]


class Signature(tuple[Types, Types]):
    """(types of operands, types of results); made by `SIGNATURES` alone."""

    __slots__ = ()
    __hash__ = object.__hash__


class _Signatures(dict[tuple[Types, Types], Signature]):
    """The signature of each pair. After many others it may be another object, which stages look up
    as one that they do not know yet.
    """

    __slots__ = ()

    def __missing__(self, key: tuple[Types, Types]) -> Signature:
        if len(self) > MOST:
            self.clear()
        found = self[key] = Signature(key)
        return found


SIGNATURES = _Signatures()
