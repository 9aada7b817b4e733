"""Memoised derivative rules: equations of the same kind are differentiated once.

What a rule binds depends on the op and its params, on the types of its operands (on the values of
numbers that the rule reads), on which operands are the same value, and on the context. If all of
that is as before, the same equations are recorded again, and neither the rule nor inference runs.
Rules that use anything else (programs, constants, meshes) are not memoised.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.op import LinearOperand
from ...ir.program import Equation
from ...ir.settings.context import STATE
from ...ir.source.location import Location
from ...ir.support.caches import module_table
from ..staging.builder import Builder
from ..staging.steps import MISS, marks, owner_of, reads, steps_since
from ..staging.tracer import Tracer
from .replay import Scalar

# By the classes of a rule's operands: whether any is a number; _NEVER where nothing is remembered.
_NUMBERS = module_table("tracer.autodiff.rule_memo._NUMBERS",
                        "whether numbers are among what a rule is given, by classes", 4096)
_NEVER = object()
_ONCE = object()             # in place of the steps of what was seen once
_READ = object()             # the same of rules that look at the values of numbers


def _has_numbers(kinds: tuple[type, ...]) -> Any:
    if not {*kinds} <= {Tracer, Scalar, LinearOperand, type(None)}:
        return _NEVER
    return Scalar in kinds


def _with_values(key: tuple[Any, ...], given: Sequence[Any]) -> tuple[Any, ...]:
    return *key, *[x.value.tobytes() for x in given if type(x) is Scalar]


class RuleMemo:
    """The steps of one kind of rule in the current context, as these builders record them.

    builders: one for all; or one for known values, then one for what waits for others.
    """

    __slots__ = ("builders", "last", "owner")

    def __init__(self, kind: str, builders: tuple[Builder, ...]) -> None:
        self.builders = builders
        self.last = builders[-1] if len(builders) > 1 else None
        self.owner = owner_of(kind)

    def apply(self, eqn: Equation, given: Sequence[Any], location: Location,
              rule: Callable[[], Sequence[Any]]) -> Sequence[Any]:
        """What `rule()` gives for an equation, where this is what it is given."""
        place = self.place(eqn, given)
        if place is None:
            return rule()
        table, key = place
        steps = table.get(key, MISS)
        if steps is _READ:
            key = _with_values(key, given)
            steps = table.get(key, MISS)
        if steps is MISS or steps is _ONCE:    # steps are worth making for what comes often
            table[key] = _ONCE if steps is MISS else None
            return rule()
        if steps is not None:
            return steps.repeat(self.builders, given, location)
        before = marks(self.builders)
        with reads() as read:
            results = rule()
        steps = steps_since(before, self.builders, given, results, Scalar)
        if steps is not None:
            if key is place[1] and not {x.literal for x in given if type(x) is Scalar
                                        }.isdisjoint(read):
                table[key], key = _READ, _with_values(key, given)
            table[key] = steps
        return results

    def place(self, eqn: Equation, given: Sequence[Any]) -> tuple[dict[Any, Any], Any] | None:
        """The table and the key of an equation's steps, where its rule is given this; None where
        they are not remembered."""
        op = eqn.op
        if op.subprograms or op.effect:
            return None
        kinds = tuple(map(type, given))
        numbers = _NUMBERS.get(kinds)
        if numbers is None:
            numbers = _NUMBERS[kinds] = _has_numbers(kinds)
        if numbers is _NEVER:
            return None
        variables = [x.variable if type(x) is Tracer else x.literal for x in given
                     if type(x) is Tracer or type(x) is Scalar]
        key = [STATE.abstract_mesh, kinds, *[x.aval for x in given if x is not None]]
        if len({*variables}) < len(variables):
            key += [variables.index(v) for v in variables]
        last = self.last
        if last is not None:
            key += [x.builder is last for x in given if type(x) is Tracer]
        if numbers and not all([isinstance(x.literal.val, np.generic)
                                for x in given if type(x) is Scalar]):
            return None
        try:
            instance = eqn.instance
        except TypeError:
            return None                            # a param cannot be hashed
        if instance.identity is not instance:
            return None                            # not one object for all that are equal
        return instance.tables.get(self.owner) or instance.table(self.owner), tuple(key)


def rule_memo(kind: str, builders: Any) -> RuleMemo | None:
    """For rules under `builders`, one or a tuple; None where something else runs them, or somebody
    watches equations being made."""
    several = builders if type(builders) is tuple else (builders,)
    if type(several[0]) is not Builder or STATE.on_equation:
        return None
    return RuleMemo(kind, several)
