"""What the values of a program are on each device, as far as blocks only travel.

Blocks that `ppermute` sends on, parts of arrays that each device takes at an index of its own, and
sums and arrays that are made of them, are followed symbolically; integers that are known, such as
a device's place or a loop's counter, are numbers. Loops of known length are followed iteration by
iteration, but for what they count, which is computed for all iterations at once.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from math import prod
from typing import Any

import numpy as np

from ...ir.ops.arithmetic import add_p
from ...ir.ops.collective import ppermute_p, psum_invariant_p, psum_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.types import ArrayType
from ..axes import axis_names
from ..rewrites.equations import makes_zeros
from ..rewrites.flatten import FlatProgram
from .places import added, resized, scattered, sliced, updated
from .travelling import ZEROS, Block, Chosen, Items, Moved, Sent, Sum, Term, number

# Ops that are evaluated where their operands are known integers.
COUNTING = frozenset({
    "add", "and", "clamp", "convert_element_type", "div", "eq", "ge", "gt", "le", "lt", "max",
    "min", "mul", "ne", "neg", "not", "or", "rem", "select_n", "sign", "sub"})


Values = dict[Var, Any]
Way = Callable[["Follower", Equation, list[Any]], Any] | None

SUMS = frozenset({psum_invariant_p, psum_p})
_PASSING = SUMS | {ppermute_p}


class Follower:
    """Follows equations for a group of `count` devices along `axes`, of these sizes.

    Values are an Atom (what a device itself has of it), one of the classes above, an array of known
    integers (one for each device, or one for all), or None for all others.
    reads: values that the program reads. program: gives that of a loop without calls.
    """

    def __init__(self, axes: tuple[str, ...], sizes: tuple[int, ...], reads: Set[Any],
                 program: Callable[[Program], FlatProgram]) -> None:
        self.axes, self.sizes, self.reads, self.program = axes, sizes, reads, program
        self.count = prod(sizes)
        self.here = np.arange(self.count)
        self.literals: dict[Literal, Any] = {}      # what each is: a number, where it is known

    def places(self, axes: tuple[str, ...]) -> np.ndarray | None:
        """Where each device is along some of the axes; None if others are asked for."""
        if axes == self.axes:
            return self.here
        if not set(axes) <= set(self.axes):
            return None
        at = np.unravel_index(self.here, self.sizes)
        own = [self.axes.index(a) for a in axes]
        return np.ravel_multi_index([at[k] for k in own], [self.sizes[k] for k in own])

    def devices(self, axes: tuple[str, ...], there: np.ndarray) -> np.ndarray:
        """The device that each device finds where `there` says along some of the axes."""
        if axes == self.axes:
            return there
        at = list(np.unravel_index(self.here, self.sizes))
        own = [self.axes.index(a) for a in axes]
        for k, place in zip(own, np.unravel_index(there, [self.sizes[k] for k in own]),
                            strict=True):
            at[k] = place
        return np.ravel_multi_index(at, self.sizes)

    def follow(self, ways: Sequence[tuple[Equation, Way]], at: Values, inside: bool) -> None:
        """Enter what the results of equations are. ways: see `ways_of`. inside: of a loop, whose
        own values nobody can ask for after it."""
        value = self.value
        for eqn, way in ways:
            if way is None:
                self._scan(eqn, at, inside)
                continue
            found = way(self, eqn, [at[a] if a in at else value(a, at, inside)
                                    for a in eqn.invars])
            if found is not None:
                at[eqn.outvars[0]] = found

    def value(self, atom: Atom, at: Mapping[Var, Any], inside: bool = False) -> Any:
        if type(atom) is Literal:
            if atom not in self.literals:
                known = number(atom)
                self.literals[atom] = atom if known is None else known
            return self.literals[atom]
        if atom in at:
            return at[atom]             # type: ignore[index]
        return None if inside else atom

    def _scan(self, eqn: Equation, at: Values, inside: bool) -> None:
        """Enter the results of a loop; nothing if there is one that is read and not followed."""
        params = eqn.params
        nc, nk, length = params["num_consts"], params["num_carry"], params["length"]
        flat = self.program(params["jaxpr"])
        if not 1 < length <= self.count or flat.ops.isdisjoint(_PASSING):
            return
        given = [self.value(a, at, inside) for a in eqn.invars]
        consts, carry, items = given[:nc], given[nc:nc + nk], given[nc + nk:]
        wanted = [i for i, v in enumerate(eqn.outvars) if v in self.reads]
        stacks: dict[int, list[Any]] = {i: [None] * length for i in wanted if i >= nk}
        steady: Values = {v: x for v, x in zip(flat.invars, consts, strict=False) if x is not None}
        fixed, rest = map(ways_of, _apart(flat.eqns, flat.invars[nc:]))
        self.follow(fixed, steady, True)
        order = range(length - 1, -1, -1) if params["reverse"] else range(length)
        counts = _Counts(self, steady, order)
        counts.begin(flat, nc, carry, items)
        rest = counts.without(rest, flat.outvars)
        for i in order:
            here = [x.values[i] if type(x) is Items else None for x in items]
            values = counts.always.copy()
            values.update({v: x for v, x in zip(flat.invars[nc:], (*carry, *here), strict=True)
                           if x is not None})
            values.update([(v, x[i]) for v, x in counts.read])
            self.follow(rest, values, True)
            results = [self.value(a, values, True) for a in flat.outvars]
            if any([results[k] is None for k in wanted]):
                return
            carry = results[:nk]
            for k, stack in stacks.items():
                stack[i] = results[k]
        for k in wanted:
            at[eqn.outvars[k]] = carry[k] if k < nk else Items(stacks[k])


class _Counts:
    """The integers that are known in all iterations of a loop, computed for all of them at once.

    numbers: one for each iteration and device, iterations major, as if all were devices. read:
    those that iterations read, as [iteration, device]; always: what else they read that does not
    change.
    """

    def __init__(self, follower: Follower, steady: Mapping[Any, Any], order: range) -> None:
        self.follower, self.steady, self.order = follower, steady, order
        self.numbers: dict[Any, np.ndarray] = {}
        self.read: list[tuple[Var, np.ndarray]] = []
        self.always: Values = {}

    def begin(self, flat: FlatProgram, nc: int, carry: Sequence[Any], items: Sequence[Any]) -> None:
        """Enter the counters, to which each iteration adds the same, and what is iterated over."""
        places = np.arange(self.order.start, self.order.stop, self.order.step)[:, None]
        made = {e.outvars[0]: e for e in flat.eqns if e.op is add_p}
        for v, x, out in zip(flat.invars[nc:], carry, flat.outvars, strict=False):
            eqn = made.get(out)                                     # type: ignore[call-overload]
            if type(x) is np.ndarray and x.dtype.kind in "iu" and eqn and v in eqn.invars:
                a, b = eqn.invars
                step = self.steady.get(b if a is v else a) if a is not b else None
                if step is None:
                    step = number(b if a is v else a)
                if type(step) is np.ndarray and step.dtype == x.dtype:
                    self._enter(v, x + places.astype(x.dtype) * step)
        for v, x in zip(flat.invars[nc + len(carry):], items, strict=True):
            if type(x) is Items and all([type(n) is np.ndarray for n in x.values]):
                self._enter(v, x.values)

    def _enter(self, v: Var, numbers: Sequence[np.ndarray] | np.ndarray) -> None:
        """numbers: of each iteration, for each device or for all."""
        whole = np.empty((len(self.order), self.follower.count), numbers[0].dtype)
        for row, here in zip(whole, numbers, strict=True):
            row[:] = here
        self.numbers[v] = whole.reshape(-1)

    def without(self, ways: Sequence[tuple[Equation, Way]], outvars: Sequence[Atom]
                ) -> Sequence[tuple[Equation, Way]]:
        """The equations but those that can be computed for all iterations; these are."""
        numbers = self.numbers
        left: list[tuple[Equation, Way]] = []
        for eqn, way in ways:
            found = None
            if way in _OF_NUMBERS:
                given = [numbers[a] if a in numbers else self._always(a)    # type: ignore[index]
                         for a in eqn.invars]
                if all([x is not None for x in given]):
                    found = way(self.follower, eqn, given)              # type: ignore[misc]
            if type(found) is np.ndarray:
                numbers[eqn.outvars[0]] = found
            else:
                left.append((eqn, way))
        shape, steady = (len(self.order), self.follower.count), self.steady
        for v in {*outvars}.union(*[eqn.invars for eqn, _ in left]):
            if v in numbers:
                self.read.append((v, numbers[v].reshape(shape)))        # type: ignore[arg-type]
            elif v in steady:
                self.always[v] = steady[v]                              # type: ignore[index]
        return left

    def _always(self, atom: Atom) -> np.ndarray | None:
        """What is known and alike in all iterations."""
        found = number(self.steady.get(atom, atom))     # type: ignore[call-overload]
        if found is None or len(found) == 1:
            return found
        return np.concatenate((found,) * len(self.order))


def _apart(eqns: Sequence[Equation], changing: Sequence[Var]
           ) -> tuple[list[Equation], list[Equation]]:
    """The equations that do not read what changes from iteration to iteration, and those that do.
    """
    seen: set[Any] = set(changing)
    fixed: list[Equation] = []
    rest: list[Equation] = []
    for eqn in eqns:
        if seen.isdisjoint(eqn.invars):
            fixed.append(eqn)
        else:
            rest.append(eqn)
            seen.update(eqn.outvars)
    return fixed, rest


def ways_of(eqns: Sequence[Equation]) -> list[tuple[Equation, Way]]:
    """The equations that can be followed, each with what does it; None for loops."""
    found: list[tuple[Equation, Way]] = []
    for eqn in eqns:
        name = eqn.op.name
        if name == "scan":
            found.append((eqn, None))
        elif name in _WAYS:
            found.append((eqn, _WAYS[name]))
        elif name in COUNTING and _counts(eqn.outvars[0].aval):
            found.append((eqn, _counted))
    return found


def _counts(aval: ArrayType) -> bool:
    """May it be the type of an integer that is known?"""
    return aval.size == 1 and aval.dtype.kind in "iub"


# -- equations by op -------------------------------------------------------------------------------

def _counted(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    numbers = [x if type(x) is np.ndarray else number(x) for x in values]
    for x in numbers:
        if x is None:
            return None
    return eqn.op.evaluate(1, *numbers, **eqn.params)


def _place(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    places = f.places(axis_names(eqn.params["axis_name"]))
    return None if places is None else places.astype(eqn.outvars[0].aval.dtype)


def _iota(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    aval = eqn.outvars[0].aval
    if len(aval.shape) != 1 or aval.shape[0] > f.count or aval.dtype.kind not in "iu":
        return None
    return Items(list(np.arange(aval.shape[0]).astype(aval.dtype)[:, None]))


def _same(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    return values[0]


def _broadcast(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    if makes_zeros(eqn) and eqn.outvars[0].aval.shape:
        return ZEROS
    return resized(f, eqn, values)


def _transposed(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    (x,) = values
    if type(x) is not Term or x.product is None:
        return None
    order = eqn.params["permutation"]
    if x.order is not None:
        order = tuple([x.order[d] for d in order])
    return x._replace(order=order, aval=eqn.outvars[0].aval)


def _permuted(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    axes, perm = eqn.params["axis_name"], eqn.params["perm"]
    places = f.places(axes)
    if places is None or len(perm) != places.max() + 1:
        return None
    source = np.empty(len(perm), np.int64)
    for s, d in perm:
        source[d] = s
    source = f.devices(axes, source[places])
    (x,) = values
    if type(x) is Var:
        return Moved(x, source)
    if x is ZEROS:
        return x
    if type(x) is Moved:
        return Moved(x.root, x.source[source])
    return Sent(x, source) if type(x) in (Block, Term, Sum, Sent) else None


def _chosen(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    """A known integer; or a value on some devices and zeros on others."""
    which, *cases = values
    if _counts(eqn.outvars[0].aval):
        return _counted(f, eqn, values)
    case = number(which)
    if case is None or eqn.invars[0].aval.shape or len(cases) != 2 or (
            not any([x is ZEROS for x in cases])):
        return None
    k = 0 if cases[1] is ZEROS else 1
    if type(cases[k]) not in (Var, Moved):
        return None
    return Chosen(cases[k], np.broadcast_to(case.astype(np.int64) == k, f.count))


def _from_one(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    """What one device of each group has, the others giving zeros to the sum."""
    (x,) = values
    axes = axis_names(eqn.params["axes"])
    places = f.places(axes) if type(x) is Chosen else None
    if places is None or eqn.params.get("axis_index_groups") is not None:
        return None
    members = np.array([f.devices(axes, np.full(f.count, n)) for n in range(places.max() + 1)])
    giving = x.where[members]
    if (giving.sum(0) != 1).any():
        return None
    source = members[giving.argmax(0), f.here]
    return Moved(x.value, source) if type(x.value) is Var else (
        Moved(x.value.root, x.value.source[source]))


def _multiplied(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    if all([_is_operand(x, a.aval) for x, a in zip(values, eqn.invars, strict=True)]):
        return Term(eqn, tuple(values), eqn.outvars[0].aval)
    return None


def _is_operand(x: Any, aval: ArrayType) -> bool:
    """Is the value blocks of a value, in the shape that they have there?"""
    if type(x) is Block:
        shape = x.root.aval.shape
        return aval.shape == (*shape[:x.dim], x.size, *shape[x.dim + 1:])
    return type(x) is Var or type(x) is Moved and aval.shape == x.root.aval.shape


def _added(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    out = eqn.outvars[0].aval
    if not out.shape and out.dtype.kind in "iub":
        return _counted(f, eqn, values)
    if any([x.aval.shape != out.shape for x in eqn.invars]):
        return None
    a, b = values
    return added(a, b, out)


_WAYS: dict[str, Any] = {
    "add": _added, "add_any": _added, "axis_index": _place, "broadcast_in_dim": _broadcast,
    "copy": _same, "dot_general": _multiplied, "dynamic_slice": sliced,
    "dynamic_update_slice": updated, "iota": _iota, "ppermute": _permuted, "psum": _from_one,
    "psum_invariant": _from_one, "pvary": _same,
    "reshape": resized, "scatter": scattered, "scatter-add": scattered,
    "select_n": _chosen, "squeeze": resized, "transpose": _transposed}
_OF_NUMBERS = frozenset({_added, _broadcast, _chosen, _counted, _same, resized})
