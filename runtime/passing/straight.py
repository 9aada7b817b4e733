"""Bodies of loops that shift an array of one row a device, as the partitioner leaves them, brought
to the form of stages (passing/stages.py).

`roll(state, 1, 0)` or `concatenate([x[None], state[:-1]])` of a dimension that is split becomes an
exchange of neighbours, with masks of the rows that a device has; and the last row of all, which is
a result, an exchange of its own. Here masks that are alike in all their elements become scalars,
exchanges there and back an exchange of neighbours, and what only goes to results goes there as the
device that made it has it.
"""
from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ...ir.named_tuple import NamedTuple
from ...ir.op import OPS
from ...ir.ops.collective import ppermute_p
from ...ir.ops.emitting import literal
from ...ir.ops.indexing import GatherScatterMode
from ...ir.program import Atom, Equation, Var
from ...ir.types import ArrayType
from ..axes import axis_names
from ..rewrites.equations import is_blank, of_shape, repeating
from ..rewrites.flatten import FlatProgram, needed
from .carries import SAME
from .followed import COUNTING
from .lifted import LIFTS, Lifted, dim_of_operand, taking

_SHAPES = SAME | {"slice"}
_CLIPPED = (GatherScatterMode.CLIP, GatherScatterMode.PROMISE_IN_BOUNDS)


class Exchanged(NamedTuple):
    """Rows of several devices along dimension `dim`, of which each device has its part of dimension
    `part`.

    rows: (value, device) of each, None for zeros. size: of the rows of a device.
    """
    rows: tuple[tuple[Atom, int] | None, ...]
    dim: int
    part: int
    size: int


class Straight(NamedTuple):
    """A body, and which of its results are `Lifted`, by number; provided that these numbers are
    the same `everywhere`, on all devices."""
    flat: FlatProgram
    lifted: dict[int, Lifted]
    everywhere: list[Atom]


def straightened(flat: FlatProgram, nc: int, nk: int, axis: str, devices: int) -> Straight:
    """The body of a loop with `nc` constants that carries `nk` values, for stages along an axis."""
    wide: dict[int, Lifted] = {}
    while True:
        body = _Body(flat, axis, devices)
        for i, x in wide.items():
            body.lifted[flat.invars[nc + i]] = x
        for e in flat.eqns:
            body.write(e)
        carried = {v: i for i, v in enumerate(flat.invars[nc:nc + nk])}
        more = {carried[v]: x for v, x in body.asked.items()
                if v in carried and carried[v] not in wide}
        if not more:
            return body.finish(nc, nk, wide)
        wide.update(more)


class _Body:
    """The equations of a body, written anew as what they come to.

    same: values that are others. scalars: values that are one number in all their elements. asked:
    parameters that should have been `Lifted`.
    """

    def __init__(self, flat: FlatProgram, axis: str, devices: int) -> None:
        self.flat, self.axis, self.devices = flat, axis, devices
        self.eqns: list[Equation] = []
        self.made: dict[Atom, Equation] = {}
        self.same: dict[Atom, Atom] = {}
        self.scalars: dict[Atom, Atom] = {}
        self.exchanged: dict[Atom, Exchanged] = {}
        self.lifted: dict[Atom, Lifted] = {}
        self.asked: dict[Atom, Lifted] = {}
        self.shared: dict[Atom, list[Atom]] = {}    # numbers that a lifted value is computed with

    def finish(self, nc: int, nk: int, wide: Mapping[int, Lifted]) -> Straight:
        flat = copy.copy(self.flat)
        outs = [self.same.get(a, a) for a in flat.outvars]
        found: dict[int, Lifted] = {}
        for i, a in enumerate(self.flat.outvars):
            x = self._as_lifted(a)
            if x is not None and (i >= nk or i in wide and wide[i][1:] == x[1:]):
                found[i] = x
                outs[i] = x.whole
        params = [*flat.invars]
        for i, x in wide.items():
            params[nc + i] = x.whole                # type: ignore[call-overload]
        eqns = needed(self.eqns, outs)
        narrow = {self.flat.invars[nc + i] for i in wide}
        if not found.keys() >= wide.keys() or not narrow.isdisjoint(outs) or any(
                [not narrow.isdisjoint(e.invars) for e in eqns]):
            return Straight(self.flat, {}, [])
        flat.invars, flat.outvars = tuple(params), outs
        flat.rewrite(eqns)
        made = {v for e in eqns for v in e.outvars}
        return Straight(flat, found, [a for v, numbers in self.shared.items() if v in made
                                      for a in numbers])

    # -- equations ---------------------------------------------------------------------------------
    def write(self, e: Equation) -> None:
        """Append an equation, and what else its results are."""
        if not self.same.keys().isdisjoint(e.invars):
            e = e.on([self.same.get(a, a) for a in e.invars], e.outvars)
        name = e.op.name
        way = _WAYS.get(name)
        if way is not None and way(self, e):
            return
        if len(e.outvars) == 1:
            self._scalar(e)
            if name == "select_n" and e.invars[0].aval.shape and e.invars[0] in self.scalars:
                e = e.on((self.scalars[e.invars[0]], *e.invars[1:]), e.outvars)
            self._lift(e)
        self._append(e)

    def _append(self, e: Equation) -> None:
        self.eqns.append(e)
        for v in e.outvars:
            self.made[v] = e

    def emit(self, op: str, invars: Sequence[Atom], params: Mapping[str, Any], var: Var) -> Var:
        self._append(Equation(OPS[op], invars, (var,), dict(params)))
        return var

    def filled(self, value: int, t: ArrayType) -> Var:
        """An array of one number."""
        var = Var(t)
        self._append(repeating(literal(value, t.dtype), var))
        return var

    def zeros(self, atom: Atom) -> bool:
        return is_blank(atom, self.made.get)

    # -- scalars -----------------------------------------------------------------------------------
    def _number(self, atom: Atom) -> Atom | None:
        if atom in self.scalars:
            return self.scalars[atom]
        if atom.aval.dtype.kind not in "iub" or atom.aval.size != 1:
            return None
        if atom.aval.shape and atom not in self.made:
            found = self.emit("reshape", (atom,), {"new_sizes": (), "dimensions": None,
                                                   "sharding": None}, Var(of_shape(atom.aval, ())))
            self.scalars[atom] = found
            return found
        return None if atom.aval.shape else atom

    def _scalar(self, e: Equation) -> None:
        """Enter the one number that the result is, if it is."""
        (out,), name = e.outvars, e.op.name
        t = out.aval
        if not t.shape or t.dtype.kind not in "iub":
            return
        if name == "iota":
            if t.shape[e.params["dimension"]] == 1:
                self.scalars[out] = literal(0, t.dtype)
        elif name in _SHAPES:
            found = self._number(e.invars[0])
            if found is not None:
                self.scalars[out] = found
        elif name in COUNTING:
            numbers = [self._number(a) for a in e.invars]
            if not any([x is None for x in numbers]):
                self.scalars[out] = new = Var(of_shape(t, ()))
                self._append(e.on(numbers, (new,)))      # type: ignore[arg-type]

    # -- parts of what one device has --------------------------------------------------------------
    def _as_lifted(self, atom: Atom) -> Lifted | None:
        x = self.exchanged.get(atom)
        if x is not None and len(x.rows) == 1 and x.rows[0] is not None:
            return Lifted(*x.rows[0], x.part)
        return self.lifted.get(atom)

    def _lift(self, e: Equation) -> None:
        """Enter the result as a part of what a device has, if an operand is such."""
        given = [self._as_lifted(a) for a in e.invars]
        first = next((x for x in given if x is not None), None)
        way = LIFTS.get(e.op.name)
        if first is None or way is None:
            return
        (out,) = e.outvars
        placed = way(e, given)
        if placed is None:
            return
        whole, part, numbers = [*e.invars], placed, []
        for i, (a, x) in enumerate(zip(e.invars, given, strict=True)):
            if x is not None:
                if x.device != first.device:
                    return
                whole[i] = x.whole
            elif i in taking(e):
                d = dim_of_operand(e, i, part)
                t = self._wide(a.aval, d)
                if self.zeros(a) and a.aval.shape:
                    whole[i] = self.filled(0, t)
                else:
                    self._ask(a, first.device, d)
                    return
            else:
                numbers.append(a)
        params = e.params
        if "shape" in params:
            params = {**params, "shape": self._wide(out.aval, part).shape}
        elif "slice_sizes" in params:
            sizes = list(params["slice_sizes"])
            sizes[part] *= self.devices
            params = {**params, "slice_sizes": tuple(sizes)}
        var = self.emit(e.op.name, whole, params, Var(self._wide(out.aval, part)))
        self.lifted[out] = Lifted(var, first.device, part)
        self.shared[var] = numbers

    def _ask(self, atom: Atom, device: int, part: int) -> None:
        """Note that it should be `Lifted`, or what it is taken from."""
        made = self.made.get(atom)
        if made is not None and made.op.name == "dynamic_slice" and (
                atom.aval.shape[part] == made.invars[0].aval.shape[part]):
            atom = made.invars[0]
        self.asked[atom] = Lifted(Var(self._wide(atom.aval, part)), device, part)

    def _wide(self, t: Any, d: int) -> Any:
        shape = list(t.shape)
        shape[d] *= self.devices
        return of_shape(t, tuple(shape))

    # -- exchanges ---------------------------------------------------------------------------------
    def along(self, names: Any) -> bool:
        return axis_names(names) == (self.axis,)


def _all_to_all(b: _Body, e: Equation) -> bool:
    """Rows of all devices; or the rows of each again, if they are such."""
    (x,), (out,), p = e.invars, e.outvars, e.params
    if not b.along(p["axis_name"]) or not p["tiled"] or p.get("axis_index_groups"):
        return False
    split, concat = p["split_axis"], p["concat_axis"]
    rows = b.exchanged.get(x)
    if rows is None:
        if split != concat and x.aval.shape[concat]:
            b.exchanged[out] = Exchanged(tuple([(x, d) for d in range(b.devices)]), concat, split,
                                         x.aval.shape[concat])
        return False
    if (rows.dim, rows.part) != (split, concat) or len(rows.rows) != b.devices:
        return False
    perm = tuple([(r[1], d) for d, r in enumerate(rows.rows) if r is not None])
    sources = {id(r[0]): r[0] for r in rows.rows if r is not None}
    if len(sources) != 1 or len({k for k, _ in perm}) != len(perm):
        return False
    (source,) = sources.values()
    b._append(Equation(ppermute_p, (source,), (out,), {"axis_name": (b.axis,), "perm": perm},
                       e.location, e.reason))
    return True


def _sliced(b: _Body, e: Equation) -> bool:
    (x,), (out,), p = e.invars, e.outvars, e.params
    if x.aval.shape == out.aval.shape:
        b.same[out] = x
        return True
    rows = b.exchanged.get(x)
    if rows is not None and _only(x, out, rows.dim) and (
            p["strides"] is None or set(p["strides"]) == {1}):
        low, n = p["start_indices"][rows.dim], out.aval.shape[rows.dim]
        if low % rows.size == n % rows.size == 0:
            low //= rows.size
            b.exchanged[out] = rows._replace(rows=rows.rows[low:low + n // rows.size])
    return False


def _padded(b: _Body, e: Equation) -> bool:
    x, fill = e.invars
    rows = b.exchanged.get(x)
    if rows is not None and b.zeros(fill):
        config = e.params["padding_config"]
        low, high, inside = config[rows.dim]
        if not inside and low >= 0 and high >= 0 and low % rows.size == high % rows.size == 0 and (
                not any([any(c) for d, c in enumerate(config) if d != rows.dim])):
            b.exchanged[e.outvars[0]] = rows._replace(rows=(
                (None,) * (low // rows.size) + rows.rows + (None,) * (high // rows.size)))
    return False


def _rolled(b: _Body, e: Equation) -> bool:
    rows = b.exchanged.get(e.invars[0])
    shift = e.params["shift"]
    if rows is not None and e.params["dimension"] == rows.dim and shift % rows.size == 0:
        n = len(rows.rows)
        by = shift // rows.size % n
        b.exchanged[e.outvars[0]] = rows._replace(rows=rows.rows[n - by:] + rows.rows[:n - by])
    return False


def _joined(b: _Body, e: Equation) -> bool:
    given = [b.exchanged.get(a) for a in e.invars]
    first = next((x for x in given if x is not None), None)
    if first is None or e.params["dimension"] != first.dim:
        return False
    rows: tuple = ()
    for a, x in zip(e.invars, given, strict=True):
        if x is None:
            n = a.aval.shape[first.dim]
            if not b.zeros(a) or n % first.size:
                return False
            rows += (None,) * (n // first.size)
        elif x[1:] != first[1:]:
            return False
        else:
            rows += x.rows
    b.exchanged[e.outvars[0]] = first._replace(rows=rows)
    return False


def _own_rows(b: _Body, e: Equation) -> bool:
    """A device's own rows of what was padded: its operand on one device, zeros on others."""
    (x,), (out,), d = e.invars, e.outvars, e.params["dimension"]
    made = b.made.get(x)
    if made is None or made.op.name != "pad" or not b.along(e.params["axes"]):
        return False
    (part, fill), config = made.invars, made.params["padding_config"]
    low, high, inside = config[d]
    n = out.aval.shape[d]
    if part.aval.shape != out.aval.shape or inside or low < 0 or low % n or not b.zeros(fill) or (
            any([any(c) for k, c in enumerate(config) if k != d])):
        return False
    t = e.outvars[0].aval
    i32, boolean = np.dtype(np.int32), np.dtype(bool)
    here = of_shape(literal(0, i32).aval, ())
    me = b.emit("axis_index", (), {"axis_name": (b.axis,), "varying": True}, Var(here))
    mine = b.emit("eq", (me, literal(low // n, i32)), {}, Var(literal(False, boolean).aval))
    zeros = b.filled(0, of_shape(t, t.shape))
    b._append(Equation(OPS["select_n"], (mine, zeros, part), (out,), {}, e.location, e.reason))
    return True


def _gathered(b: _Body, e: Equation) -> bool:
    """The operand, if a gather takes all of it at any index."""
    x, (out,), p = e.invars[0], e.outvars, e.params
    if (p["slice_sizes"] == x.aval.shape == out.aval.shape and p["mode"] in _CLIPPED
            and not p["dimension_numbers"].operand_batching_dims):
        b.same[out] = x
        return True
    return False


def _only(x: Atom, out: Var, dim: int) -> bool:
    """Does the result differ in shape along this dimension alone?"""
    a, b = x.aval.shape, out.aval.shape
    return a[:dim] == b[:dim] and a[dim + 1:] == b[dim + 1:]


_WAYS: dict[str, Callable[[_Body, Equation], bool]] = {
    "all_slice": _own_rows, "all_to_all": _all_to_all, "concatenate": _joined,
    "gather": _gathered, "pad": _padded, "roll": _rolled, "slice": _sliced}
