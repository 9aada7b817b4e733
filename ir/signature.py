"""Signatures: the types of an equation's operands and results, one object for each such pair.

Every stage looks up what it knows of an equation by its use and these types. As a key a signature
is hashed by identity, where a pair of tuples would be hashed type by type each time.
"""
from __future__ import annotations

from .support.caches import Bounded, module_table
from .types import ArrayType

Types = tuple[ArrayType, ...]


class Signature(tuple[Types, Types]):
    """(types of operands, types of results); made by `SIGNATURES` alone."""

    __slots__ = ()
    __hash__ = object.__hash__


class _Signatures(Bounded[tuple[Types, Types], Signature]):
    """The signature of each pair. After many others it may be another object, which stages look up
    as one that they do not know yet.
    """

    __slots__ = ()

    def __missing__(self, key: tuple[Types, Types]) -> Signature:
        found = self[key] = Signature(key)
        return found


SIGNATURES = module_table("ir.signature.SIGNATURES", "types of operands and results", 8192,
                          _Signatures)
