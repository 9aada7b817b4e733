"""What the values of a program are on each device, as far as blocks only travel.

Blocks that `ppermute` sends on, parts of arrays that each device takes at an index of its own, and
sums and arrays that are made of them, are followed symbolically; integers that are known, such as
a device's place or a loop's counter, are numbers. Loops of known length are followed iteration by
iteration, but for what they count, which is computed for all iterations at once.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import numpy as np

from ...ir.named_tuple import NamedTuple
from ...ir.ops.arithmetic import add_p
from ...ir.ops.collective import ppermute_p
from ...ir.program import Atom, Equation, Literal, Program, Var
from ...ir.types import ArrayType
from ..rewrites.equations import makes_zeros
from ..rewrites.flatten import FlatProgram

# Ops that are evaluated where their operands are known integers.
COUNTING = frozenset({
    "add", "and", "clamp", "convert_element_type", "div", "eq", "ge", "gt", "le", "lt", "max",
    "min", "mul", "ne", "neg", "not", "or", "rem", "select_n", "sign", "sub"})


class Moved(NamedTuple):
    """Device d has what device `source[d]` has of `root`."""
    root: Atom
    source: np.ndarray


class Block(NamedTuple):
    """Device d has, of its own `root`, `size` along a dimension, from `start[d]` on."""
    root: Atom
    dim: int
    start: np.ndarray
    size: int


class Zeros(NamedTuple):
    """Zeros, on all devices."""


class Items(NamedTuple):
    """What the iterations of a loop give, or what it iterates over."""
    values: Sequence[Any]


class Term(NamedTuple):
    """What is added up or put together: the product of two operands, or one operand as it is.

    product: an equation that makes such a product; None for no product. order: in which it has the
    dimensions of the product; None for their own.
    """
    product: Equation | None
    operands: tuple[Any, ...]
    aval: ArrayType
    order: tuple[int, ...] | None = None


class Sum(NamedTuple):
    """before + term. before: None for nothing."""
    before: Any
    term: Term


class Sent(NamedTuple):
    """Device d has the sum that device `source[d]` has."""
    before: Any
    source: np.ndarray


class Put(NamedTuple):
    """before, where device d has written the term along a dimension from `start[d]` on.

    blank: nothing but zeros was there before the first such term. added: the term was added to what
    was there.
    """
    before: Any
    term: Term
    dim: int
    start: np.ndarray
    blank: bool
    added: bool = False


Values = dict[Var, Any]
Way = Callable[["Follower", Equation, list[Any]], Any] | None
ZEROS = Zeros()
FURTHEST = 64           # parts that are looked through for what has been written last


class Follower:
    """Follows equations for a group of `count` devices along `axes`.

    Values are an Atom (what a device itself has of it), one of the classes above, an array of known
    integers (one for each device, or one for all), or None for all others.
    reads: values that the program reads. program: gives that of a loop without calls.
    """

    def __init__(self, axes: tuple[str, ...], count: int, reads: Set[Any],
                 program: Callable[[Program], FlatProgram]) -> None:
        self.axes, self.count, self.reads, self.program = axes, count, reads, program
        self.here = np.arange(count)
        self.literals: dict[Literal, Any] = {}      # what each is: a number, where it is known

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
        if not 1 < length <= self.count or ppermute_p not in flat.ops:
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


def number(value: Any) -> np.ndarray | None:
    """Known integers, one for each device or one for all."""
    if type(value) is np.ndarray:
        return value
    if type(value) is Literal and not value.aval.shape and value.aval.dtype.kind in "iub":
        return np.array([value.val])
    return None


def term(value: Any, aval: ArrayType) -> Term | None:
    """The value as something to add up; None if it is not one."""
    if type(value) is Term:
        return value
    if isinstance(value, (Var, Moved, Block, Zeros)):
        return Term(None, (value,), aval)
    return None


# -- equations by op -------------------------------------------------------------------------------

def _counted(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    numbers = [x if type(x) is np.ndarray else number(x) for x in values]
    for x in numbers:
        if x is None:
            return None
    return eqn.op.evaluate(1, *numbers, **eqn.params)


def _place(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    name = eqn.params["axis_name"]
    axes = name if isinstance(name, tuple) else (name,)
    return f.here.astype(eqn.outvars[0].aval.dtype) if axes == f.axes else None


def _iota(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    aval = eqn.outvars[0].aval
    if len(aval.shape) != 1 or aval.shape[0] > f.count or aval.dtype.kind not in "iu":
        return None
    return Items(list(np.arange(aval.shape[0]).astype(aval.dtype)[:, None]))


def _same(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    return values[0]


def _one_number(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    """Integers keep their value in other shapes of one element."""
    return number(values[0]) if eqn.outvars[0].aval.size == 1 else None


def _broadcast(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    if makes_zeros(eqn) and eqn.outvars[0].aval.shape:
        return ZEROS
    return _one_number(f, eqn, values)


def _transposed(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    (x,) = values
    if type(x) is not Term or x.product is None:
        return None
    order = eqn.params["permutation"]
    if x.order is not None:
        order = tuple([x.order[d] for d in order])
    return x._replace(order=order, aval=eqn.outvars[0].aval)


def _permuted(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    params = eqn.params
    if params["axis_name"] != f.axes or len(params["perm"]) != f.count:
        return None
    source = np.empty(f.count, np.int64)
    for s, d in params["perm"]:
        source[d] = s
    (x,) = values
    if type(x) is Var:
        return Moved(x, source)
    if x is ZEROS:
        return x
    if type(x) is Moved:
        return Moved(x.root, x.source[source])
    return Sent(x, source) if type(x) in (Block, Term, Sum, Sent) else None


def _sliced(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    x, *starts = values
    shape, sizes = eqn.invars[0].aval.shape, eqn.params["slice_sizes"]
    if x is ZEROS or shape == sizes:
        return x
    found = _one_place(f, shape, sizes, starts) if type(x) in (Var, Put) else None
    if found is None:
        return None
    d, start = found
    for _ in range(FURTHEST):
        if type(x) is not Put:
            break
        size = x.term.aval.shape[d]
        if x.dim != d or size != sizes[d] or x.added:
            return None
        if (x.start == start).all():
            return x.term if x.term.product is not None else x.term.operands[0]
        if (abs(x.start - start) < size).any():
            return None
        x = x.before
    return x if x is ZEROS else Block(x, d, start, sizes[d]) if type(x) is Var else None


def _updated(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    before, written, *starts = values
    part = term(written, eqn.invars[1].aval)
    if part is None or type(before) not in (Var, Put, Zeros):
        return None
    found = _one_place(f, eqn.outvars[0].aval.shape, part.aval.shape, starts)
    if found is None:
        return None
    d, start = found
    return Put(before, part, d, start, before is ZEROS or (
        type(before) is Put and before.blank))


def _one_place(f: Follower, shape: Sequence[int], sizes: Sequence[int], starts: Sequence[Any]
               ) -> tuple[int, np.ndarray] | None:
    """The one dimension that a block is a part of, and where in it the block of each device begins.
    """
    dims = [d for d, (n, m) in enumerate(zip(shape, sizes, strict=True)) if n != m]
    if len(dims) != 1:
        return None
    (d,) = dims
    start = number(starts[d])
    if start is None:
        return None
    start = np.minimum(np.maximum(start.astype(np.int64), 0), shape[d] - sizes[d])
    return d, start if len(start) == f.count else start.repeat(f.count)


def _multiplied(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    if all([isinstance(x, (Var, Moved, Block)) for x in values]):
        return Term(eqn, tuple(values), eqn.outvars[0].aval)
    return None


def _added(f: Follower, eqn: Equation, values: list[Any]) -> Any:
    out = eqn.outvars[0].aval
    if not out.shape and out.dtype.kind in "iub":
        return _counted(f, eqn, values)
    a, b = values
    if a is None or b is None:
        return None
    if a is ZEROS or b is ZEROS:
        return b if a is ZEROS else a
    if type(a) is Put and type(b) is Put:
        if a.before is ZEROS:
            a, b = b, a
        return Put(a, b.term, b.dim, b.start, True, True) if (
            a.blank and b.before is ZEROS) else None
    if type(b) in (Sum, Sent) or type(a) in (Moved, Block) and type(b) is Var:
        a, b = b, a
    if type(a) is Var and type(b) is Var:
        return None
    if any([x.aval.shape != out.shape for x in eqn.invars]):
        return None
    more = term(b, out)
    if more is None or type(a) not in (Var, Term, Moved, Block, Sum, Sent):
        return None
    return Sum(a, more)


_WAYS: dict[str, Any] = {
    "add": _added, "add_any": _added, "axis_index": _place, "broadcast_in_dim": _broadcast,
    "copy": _same, "dot_general": _multiplied, "dynamic_slice": _sliced,
    "dynamic_update_slice": _updated, "iota": _iota, "ppermute": _permuted, "pvary": _same,
    "reshape": _one_number, "squeeze": _one_number, "transpose": _transposed}
_OF_NUMBERS = frozenset({_added, _broadcast, _counted, _one_number, _same})
