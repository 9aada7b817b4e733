"""Op instances: an op with its params, one object per distinct pair.

Every stage memoises facts about equations by (op, params, types). A program of thousands of
equations has only a handful of distinct keys, but building and hashing one takes time, once per
stage and equation. So an equation looks up its instance once (`Equation.instance`) and passes it on
to equations derived from it. Tables on the instance are keyed by types alone, which are interned
and hash by identity. The types of operands and results together are interned as the *signature*, so
that a lookup does not hash type by type.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from .dtypes import is_extended
from .op import Op
from .rules.rule import FactorRule
from .support.caches import Bounded, module_table, tables
from .support.interning import Uncopied
from .types import ArrayType

_RULES = tables("ir.op_instance.OpInstance.rules",
                "the factor rules of an op with its params, by types", 4096)
_OWNERS = tables("ir.op_instance.OpInstance.tables",
                 "who keeps a table in an op with its params", 64)
_TABLES = tables("ir.op_instance.OpInstance.table",
                 "what a stage knows of an op with its params, by types", 4096)


class OpInstance(Uncopied):
    """An op with params. key: of the params; identity: equal for equal op and params. tables: by
    owner, what is known of the instance, by types. by_shape: whether shapes, dtypes and weakness of
    the results depend only on those of the operands.
    """

    __slots__ = ("by_shape", "identity", "key", "op", "params", "rules", "tables")

    def __init__(self, op: Op, params: dict[str, Any], key: tuple) -> None:
        self.op = op
        self.params = params
        self.key = key
        self.identity: Any = self
        self.rules: dict[Any, FactorRule] = _RULES()
        self.tables: dict[Any, dict] = _OWNERS()
        self.by_shape = not (op.subprograms or op.manual or op.collective) and (
            not op.sharding_param or op.sharding_param not in params
            or params[op.sharding_param] is None)

    def table(self, owner: Any) -> dict:
        """What `owner` (a level, a function, ...) knows of this instance.

        Callers put only what follows from the op, the params and their own key.
        """
        tables = self.tables
        found = tables.get(owner)
        if found is None:
            tables[owner] = found = _TABLES()
        return found

    def rule(self, operands: tuple, results: tuple) -> FactorRule:
        """The factor rule of an equation with operands and results of these types."""
        key, rules = (operands, results), self.rules
        if key in rules:
            return rules[key]
        found = self.op.factor_rule(
            tuple([t.shape for t in operands]), tuple([t.shape for t in results]), self.params)
        if any([is_extended(t.dtype) for t in results]):
            found = found.without_sums()
        rules[key] = found
        return found

    def __repr__(self) -> str:
        return f"{self.op.name}{self.params}"

    def __reduce__(self):
        return instance_of, (self.op, self.params)


def instance_of(op: Op, params: dict[str, Any]) -> OpInstance:
    """The instance of `op` with these params. Raises TypeError if one of them cannot be hashed."""
    key = tuple(params.items())              # params_key
    instances = op.instances
    found = instances.get(key)
    if found is None:
        found = OpInstance(op, params, key)
        # What cannot be told apart by equality (0.0 and -0.0) or is large is not kept.
        if not op.subprograms and not (params and _some_loose(params.values())):
            instances[key] = found
        else:
            hash(key)
            found.identity = (op, key)
    return found


_PLAIN = frozenset((str, int, bool, type(None)))


def _some_loose(values: Iterable[Any]) -> bool:
    for x in values:
        if x.__class__ not in _PLAIN:
            if isinstance(x, tuple):
                if x and _some_loose(x):
                    return True
            elif isinstance(x, (float, complex, np.inexact)):
                return True
    return False


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


SIGNATURES = module_table("ir.op_instance.SIGNATURES", "types of operands and results", 8192,
                          _Signatures)
