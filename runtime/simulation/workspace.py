"""The planner's values: the slot and layout of each, and its conversions to other layouts.

A value has one primary form, in which it was computed. Conversions are calls of the plan, made when
an equation first needs them and then reused: most are views, and a copy is made at most once.
"""
from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...arrays.axes import MeshAtoms
from ...ir.dtypes import is_narrow_float
from ...ir.facts import REPEATS
from ...ir.kernels.key_data import storage_dtype
from ...ir.program import Equation, Var
from ...ir.support.caches import cached
from ...ir.types import ArrayType
from ..layout import Atoms, Dims, Layout, Reshaped, Shape, label_sizes, rearrangement
from ..numerics import F32
from ..plans.plan import PlanBuilder

Function = Callable[..., Any]


class Kind:
    """What layout decisions depend on; one object for each aval, layout and uniform dimensions.

    dtype: of its arrays. atoms: over which it differs. is_number: whether it is an array all of
    whose elements are equal, on all devices. steps: what leads to each other form.
    """

    __slots__ = ("atoms", "dtype", "is_number", "steps")

    def __init__(self, dtype: np.dtype, atoms: frozenset[str], is_number: bool) -> None:
        self.dtype = dtype
        self.atoms = atoms
        self.is_number = is_number
        self.steps: dict[tuple, tuple[Function, ...]] = {}


@cached(4096, "storage dtypes and leading axes of values")
def kind_of(aval: ArrayType, layout: Layout, uniform: tuple[bool, ...]) -> Kind:
    atoms = frozenset(layout.atoms)
    return Kind(storage_dtype(aval.dtype), atoms,
                uniform != () and False not in uniform and not atoms and 0 not in aval.shape)


class Value:
    """A per-device value in a plan.

    aval: its local type. layout, slot: the form in which it was computed. uniform: for each
    dimension, whether all elements along it are equal, so that it can be lengthened for free.
    forms: the slots of other forms, by the request for them. kind: one object for its type, layout
    and uniform dimensions.
    """

    __slots__ = ("aval", "forms", "kind", "layout", "slot", "uniform")

    def __init__(self, aval: ArrayType, layout: Layout, slot: int,
                 uniform: tuple[bool, ...] = (), kind: Kind | None = None) -> None:
        self.aval = aval
        self.layout = layout
        self.slot = slot
        self.uniform = uniform or (False,) * len(aval.shape)
        self.forms: dict[Any, Any] = {}
        self.kind = kind or kind_of(aval, layout, self.uniform)

    def with_type(self, aval: ArrayType) -> Value:
        """The arrays of this value as a value of another type with the same local shape."""
        new = Value(aval, self.layout, self.slot, self.uniform)
        new.forms = self.forms
        return new

    @property
    def dims(self) -> Dims:
        return self.layout.dims


class Workspace:
    """A plan under construction: the value of each variable so far, and the equation."""

    def __init__(self, atoms: MeshAtoms) -> None:
        self.atoms = atoms
        self.plan = PlanBuilder()
        self.at: dict[Var, Value] = {}
        self.eqn: Equation | None = None

    def call(self, function: Function, *slots: int) -> int:
        return self.plan.call(function, slots, self.eqn)

    def bind(self, var: Var, layout: Layout, slot: int, uniform: tuple[bool, ...] = ()) -> None:
        """Make the array in `slot` the value of a variable."""
        self.at[var] = Value(var.aval, layout, slot, uniform)

    def bind_several(self, eqn: Equation, function: Function, slots: Sequence[int],
                     layouts: Sequence[Layout]) -> None:
        """Append a call that returns all results of an equation, in these layouts."""
        results = self.plan.call_several(function, slots, len(layouts), eqn)
        for var, layout, slot in zip(eqn.outvars, layouts, results, strict=True):
            self.bind(var, layout, slot)

    def in_layouts(self, values: Sequence[Value], layouts: Sequence[Layout]) -> list[int]:
        """The slots of the values, each in its layout."""
        return [self.view(x, t.stack, t.split) for x, t in zip(values, layouts, strict=True)]

    def sizes(self, value: Value, dims: Sequence[Sequence[Any]],
              more: dict[Any, int] | None = None) -> tuple[tuple[Any, int], ...]:
        """Sizes of the labels in `dims`; numbers are dimensions of `value`."""
        return label_sizes(dims, value.aval.shape, self.atoms.size, more)

    # -- forms ---------------------------------------------------------------------------------
    def view(self, value: Value, stack: Atoms, split: tuple[Atoms, ...] | None,
             lead: Atoms | None = None, pad: int = 0) -> int:
        """The slot of the value with these axes stacked and in place.

        split: None for the number that all elements are, instead of an array of the value's rank.
        lead: all leading dimensions wanted; those not in `stack` get size 1. pad: how many
        dimensions of size 1 to append, for a scalar among arrays.
        """
        lead = stack if lead is None else lead
        layout = value.layout
        if lead == layout.stack and split == layout.split and not pad:
            return value.slot
        key = (stack, split, lead, pad)
        if key in value.forms:
            return value.forms[key]
        if split is None:
            slot = self._number(value, len(lead) + pad if pad else 0)
        else:
            known, place = value.kind.steps, (self.atoms.owner, *key)
            steps = known.get(place)
            if steps is None:
                here = set(stack)
                want = (*[(a,) if a in here else () for a in lead],
                        *Layout((), split).dims, *((),) * pad)
                steps = known[place] = self.steps(value, want)
            slot = value.slot
            for function in steps:
                slot = self.call(function, slot)
        value.forms[key] = slot
        return slot

    def _number(self, value: Value, rank: int) -> int:
        """The slot of the number that all elements of a value are, as an array of this rank."""
        slot = self._scalar(value)
        return self.call(Reshaped((1,) * rank), slot) if rank else slot

    def _scalar(self, value: Value) -> int:
        """The slot of that number: what the value repeats, or its first element."""
        calls = self.plan.calls

        def made(i: int) -> int:
            while i >= 0 and not calls[i].outputs:      # of a call of the host
                i -= 1
            return calls[i].outputs[0] if i >= 0 else -1

        i = bisect.bisect_left(range(len(calls)), value.slot, key=made)
        if i < len(calls) and calls[i].outputs == (value.slot,):
            eqn, kernel = calls[i].eqn, calls[i].kernel
            if eqn is not None and REPEATS in eqn.op.facts and kernel is not None and (
                    kernel.shapes[0] == ()):
                return calls[i].inputs[0]
        first = (0,) * len(value.aval.shape)
        return self.call(lambda x: x[(*first, ...)], value.slot)

    def rearranged(self, value: Value, want: Dims,
                   more: dict[Any, int] | None = None, have: Dims | None = None) -> int:
        """The slot of the value's array with dimensions `want` (see `layout.rearrangement`)."""
        slot = value.slot
        for function in self.steps(value, want, more, have):
            slot = self.call(function, slot)
        return slot

    def steps(self, value: Value, want: Dims, more: dict[Any, int] | None = None,
              have: Dims | None = None) -> tuple[Function, ...]:
        """The functions that bring the value's array to dimensions `want`."""
        have = value.dims if have is None else have
        found: list[Function] = []
        before, target = {x for d in have for x in d}, {x for d in want for x in d}
        grown = [d for d, flat in enumerate(value.uniform)
                 if flat and any(x not in before for w in want if d in w for x in w)]
        if grown and target >= before:
            at = len(value.layout.stack)
            index = (slice(None),) * at + tuple(
                slice(0, 1) if d in grown else slice(None) for d in range(len(value.uniform)))
            found.append(lambda x: x[index])
            have = tuple(tuple(x for x in d if x not in grown) for d in have)
        function = rearrangement(have, want, self.sizes(value, (*have, *want), more))
        return (*found, function) if function is not None else tuple(found)

    # -- combining over devices ----------------------------------------------------------------
    def summed(self, value: Value, axes: frozenset[str], operator: str = "sum") -> Value:
        """The value combined over those of `axes` over which it is not yet."""
        left = axes - value.layout.summed
        if not left:
            return value
        key = ("summed", axes, operator)
        found = value.forms.get(key)
        if found is None:
            found = value.forms[key] = self._combined(value, axes, operator)
        return found

    def _combined(self, value: Value, axes: frozenset[str], operator: str) -> Value:
        """The value combined over these mesh axes. Along axes over which it is not stacked all
        devices hold the same, whose sum is a multiple.
        """
        layout = value.layout
        left = axes - layout.summed
        there = layout.atoms & left
        times = self.atoms.count(left - there) if operator == "sum" else 1
        have = value.dims
        flat = [x for d in have for x in d]
        rest = tuple(tuple(x for x in d if x not in there) for d in have)
        remaining = tuple(d for d, before in zip(rest, have, strict=True) if d or not before)
        size = dict(self.sizes(value, have))
        full = tuple(size[x] for x in flat)
        gone = tuple(i for i, x in enumerate(flat) if x in there)
        final = tuple(math.prod([size[x] for x in d]) for d in remaining)
        function = _reduction(operator, storage_dtype(value.aval.dtype), full, gone, final, times)
        slot = value.slot if function is None else self.call(function, value.slot)
        return Value(value.aval, layout.without(there)._replace(summed=layout.summed | left), slot,
                     value.uniform)


_UFUNCS = {"sum": np.add, "max": np.maximum, "min": np.minimum}


def _reduction(operator: str, dtype: np.dtype, full: Shape, gone: tuple[int, ...],
               final: Shape, times: int) -> Function | None:
    """A function that reduces dimensions `gone` and multiplies by `times`; None if neither."""
    ufunc = _UFUNCS[operator]
    if dtype == np.bool_:
        ufunc, times = (np.logical_and if operator == "min" else np.logical_or), 1
    if not gone and times == 1:
        return None
    wide = F32 if is_narrow_float(dtype) else dtype
    factor = np.asarray(times).astype(wide)

    def reduce(x: Any) -> Any:
        x = x.astype(wide, copy=False)
        if gone:
            x = ufunc.reduce(x.reshape(full), axis=gone, dtype=wide)
        if times != 1:
            x = x * factor
        return x.astype(dtype, copy=False).reshape(final)

    return reduce
