"""Sharding rules put together from objects, as `custom_partitioning` of JAX takes them.

Each is read as the text that says the same: `SdyShardingRule.text` gives its own.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.api_boundary import bound_class

BATCHING = "…"
"""In front of the factors of an operand or result: any number of leading dimensions."""


class _Factors(tuple):
    """Factors in order, written as arguments."""

    def __new__(cls, *factors: Any) -> _Factors:
        for factor in factors:
            cls._check(factor)
        return super().__new__(cls, factors)

    @classmethod
    def _check(cls, factor: Any) -> None:
        if not isinstance(factor, (str, CompoundFactor)):
            raise ValueError("Each element of ArrayMapping must be a str or CompoundFactor, but "
                             f"got {type(factor)}")


class CompoundFactor(_Factors):
    """The factors that make up one dimension, two or more, major first.

    >>> from shardtrace.experimental.custom_partitioning import CompoundFactor
    >>> CompoundFactor("a", "b")
    ('a', 'b')
    """

    def __new__(cls, *factors: str) -> CompoundFactor:
        if len(factors) < 2:
            raise ValueError("A compound factor should contain at least two factors")
        return super().__new__(cls, *factors)       # type: ignore[return-value]

    @classmethod
    def _check(cls, factor: Any) -> None:
        if not isinstance(factor, str):
            raise ValueError(f"Each element of CompoundFactor must be a str, but got "
                             f"{type(factor)}")
        if factor.startswith(BATCHING):
            raise ValueError("Ellipsis can't be used in a compound factor")


class ArrayMapping(_Factors):
    """The factor of each dimension of an operand or result: a name or a `CompoundFactor`; first
    maybe `BATCHING`.

    >>> from shardtrace.experimental.custom_partitioning import BATCHING, ArrayMapping
    >>> ArrayMapping(BATCHING, "i")
    ('…', 'i')
    """


@bound_class
class SdyShardingRule:
    """A sharding rule by its parts: an ArrayMapping for each operand and for each result, the
    kinds of some factors, and the sizes of those that make up no dimension alone.

    >>> from shardtrace.experimental.custom_partitioning import ArrayMapping, SdyShardingRule
    >>> SdyShardingRule((ArrayMapping("i", "k"),), (ArrayMapping("i"),), reduction_factors=("k",))
    SdyShardingRule(i k -> i | k:sum)
    """

    def __init__(self, operand_mappings: Sequence[Any], result_mappings: Sequence[Any], *,
                 reduction_factors: tuple[str, ...] = (),
                 need_replication_factors: tuple[str, ...] = (),
                 permutation_factors: tuple[str, ...] = (), **factor_sizes: int) -> None:
        self.operand_mappings, self.result_mappings = operand_mappings, result_mappings
        self.reduction_factors = reduction_factors
        self.need_replication_factors = need_replication_factors
        self.permutation_factors = permutation_factors
        self.factor_sizes = factor_sizes
        whole: set[str] = set()
        parts: set[str] = set()
        for dims in (*operand_mappings, *result_mappings):
            for dim in dims:
                (whole if isinstance(dim, str) else parts).update(
                    (dim,) if isinstance(dim, str) else dim)
        for factor in factor_sizes:
            if factor not in whole | parts:
                raise ValueError(f"Factor {factor} is not used in the rule, but size is provided")
            if factor in whole:
                raise ValueError(f"Factor {factor} represents a whole dimension; do not specify "
                                 "its size")
        for factor in sorted(parts - whole - {*factor_sizes}):
            raise ValueError(f"Factor {factor} is only used in compound factors; must specify its "
                             "size")
        for factor, _ in self._kinds():
            if factor not in whole | parts:
                raise ValueError(f"Factor {factor} of a kind of its own is not used in the rule")

    def _kinds(self) -> list[tuple[str, str]]:
        return [(factor, kind) for factors, kind in (
            (self.reduction_factors, "sum"), (self.need_replication_factors, "replicate"),
            (self.permutation_factors, "halo")) for factor in factors]

    def text(self) -> str:
        """The rule in the notation of factor rules."""
        sides = [", ".join([" ".join(map(_dim, dims)) for dims in mappings])
                 for mappings in (self.operand_mappings, self.result_mappings)]
        kinds = " ".join(f"{factor}:{kind}" for factor, kind in self._kinds())
        return " -> ".join(sides) + (f" | {kinds}" if kinds else "")

    def __repr__(self) -> str:
        return f"SdyShardingRule({self.text()})"

    def __str__(self) -> str:
        return (f"SdyShardingRule({self.operand_mappings}, {self.result_mappings}, "
                f"{self.factor_sizes})")


def _dim(dim: Any) -> str:
    if not isinstance(dim, str):
        return f"({' '.join(dim)})"
    return dim.replace(BATCHING, "...")
