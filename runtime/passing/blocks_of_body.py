"""Equations of a loop's body, written once for the blocks that all its iterations have."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.mesh import AbstractMesh
from ...ir.op import OPS
from ...ir.ops.emitting import literal
from ...ir.program import Atom, Equation, Var
from ...ir.types import array_type, unsharded
from ..rewrites.equations import of_shape

MOST = 1 << 22          # elements, of all devices together, of what all blocks make
_ELEMENTWISE = frozenset({
    "abs", "add", "add_any", "and", "convert_element_type", "copy", "cos", "div", "eq", "exp",
    "exp2", "ge", "gt", "integer_pow", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul",
    "ne", "neg", "not", "or", "pvary", "rem", "rsqrt", "select_n", "sign", "sin", "sqrt", "square",
    "sub", "tanh"})
_REDUCTIONS = frozenset({"reduce_max", "reduce_min", "reduce_sum"})


class Unknown(Exception):
    """The loop is left as it is."""


class BlockBody:
    """The body for `count` blocks that go `step` devices further in each iteration.

    A value that depends on blocks, or on the number of the iteration that has the block, has a
    dimension more, which is in `at` with what the value is: the blocks in the order of the devices
    that they come from. early: values that are folded over all blocks as they are made, and how.
    """

    def __init__(self, location: Any, axes: tuple[str, ...], count: int, step: int,
                 mesh: AbstractMesh) -> None:
        self.location, self.axes, self.count, self.mesh = location, axes, count, mesh
        self.back = pow(step, -1, count)
        self.eqns: list[Equation] = []
        self.at: dict[Atom, tuple[Atom, int | None]] = {}
        self.travelling: dict[Atom, Atom] = {}
        self.early: dict[Atom, str] = {}
        self.folded: set[Atom] = set()          # of them, those that are

    # -- what the body is given --------------------------------------------------------------------
    def enter(self, var: Var, atom: Atom) -> None:
        """A parameter that is alike in all iterations."""
        self.at[var] = atom, None

    def travels(self, var: Var, atom: Atom) -> None:
        """A parameter that is each block once."""
        self.travelling[var] = atom

    def counts(self, var: Var, start: Atom | None, step: int) -> Atom:
        """A parameter that grows by `step` from `start`, or 0, on; what it is after the loop."""
        t, dtype = var.aval, var.aval.dtype
        x = self._number(dtype)
        if step != 1:
            x = self._emit("mul", (x, literal(step, dtype)), {}, x.aval)
        if start is not None:
            x = self._emit("add", (x, start), {}, x.aval)
        self.at[var] = x, 0
        end = literal(step * self.count, dtype)
        return end if start is None else self._emit("add", (start, end), {}, t)

    def _number(self, dtype: np.dtype) -> Atom:
        """In which iteration a device has the block of each device."""
        n = self.count
        t = array_type((n,), dtype, False, unsharded(1, self.mesh))
        here = of_shape(t, ())
        me: Atom = self._emit("axis_index", (), {"axis_name": self.axes, "varying": True},
                              array_type((), np.dtype(np.int32), False, unsharded(0, self.mesh)))
        if dtype != np.int32:
            me = self._emit("convert_element_type", (me,), {
                "new_dtype": dtype, "weak_type": False, "sharding": None}, here)
        mine = self._emit("mul", (me, literal(self.back, dtype)), {}, here)
        block = self._emit("iota", (), {"dtype": dtype, "shape": (n,), "dimension": 0,
                                        "sharding": None}, t)
        back = self._emit("mul", (block, literal(n - self.back, dtype)), {}, t)
        both = self._emit("add", (back, mine), {}, t)
        return self._emit("rem", (both, literal(n, dtype)), {}, t)

    # -- what it gives -----------------------------------------------------------------------------
    def whole(self, atom: Atom) -> Atom:
        """A value that does not depend on blocks."""
        found, place = self._get(atom)
        if place is not None:
            raise Unknown
        return found

    def finish(self, results: Sequence[Atom], outvars: Sequence[Var]) -> list[Equation]:
        for x, v in zip(results, outvars, strict=True):
            self._emit("copy", (x,), {}, v)
        return self.eqns

    def folded_value(self, atom: Atom, how: str) -> Atom:
        """A value folded over all blocks, for another equation; itself if it is alike for all."""
        x, place = self._get(atom)
        if place is None:
            return atom
        folded = Var(atom.aval)
        self._fold(folded, x, place, how)
        return folded

    def _fold(self, var: Var, x: Atom, place: int, how: str) -> None:
        shape = (*x.aval.shape[:place], *x.aval.shape[place + 1:])
        self.at[var] = self._reduced(how, x, (place,), shape), None

    # -- equations ---------------------------------------------------------------------------------
    def write(self, e: Equation) -> None:
        """Append an equation of the body, for all blocks where it depends on them."""
        name = e.op.name
        if name == "dot_general":
            self._product(e)
        else:
            given = [self._get(a) for a in e.invars]
            if all([place is None for _, place in given]):
                if e.op.subprograms or e.op.effect or e.op.collective is not None:
                    raise Unknown
                out = [Var(v.aval) for v in e.outvars]
                self.eqns.append(e.on([x for x, _ in given], out))
                self.at.update({v: (x, None) for v, x in zip(e.outvars, out, strict=True)})
            elif name in _ELEMENTWISE:
                self._elementwise(e, given)
            elif name in _REDUCTIONS:
                self._reduction(e, *given[0])                           # type: ignore[arg-type]
            elif name == "transpose":
                self._transposed(e, *given[0])                          # type: ignore[arg-type]
            elif name in ("slice", "squeeze"):
                self._cut(e, *given[0])                                 # type: ignore[arg-type]
            elif name == "broadcast_in_dim" and len(given) == 1:
                self._repeated(e, *given[0])                            # type: ignore[arg-type]
            else:
                raise Unknown
        out = e.outvars[0]
        if out in self.early and out not in self.folded:
            x, place = self.at[out]
            if place is not None:
                self._fold(out, x, place, self.early[out])
            elif self.early[out] == "reduce_sum":
                raise Unknown               # what is alike for all blocks counts once for each

    def _elementwise(self, e: Equation, given: Sequence[tuple[Atom, int | None]]) -> None:
        t = e.outvars[0].aval
        rank = t.ndim
        places = [p for x, p in given if p is not None and x.aval.ndim == rank + 1]
        to = places[0] if places else 0
        shape = (*t.shape[:to], self.count, *t.shape[to:])
        operands = []
        for atom, (x, p) in zip(e.invars, given, strict=True):
            own = atom.aval.shape
            if p is None:
                if own:
                    x = self._reshaped(x, (*own[:to], 1, *own[to:]))
            elif not own and rank:
                x = self._reshaped(x, (*[1] * to, self.count, *[1] * (rank - to)))
            elif p != to:
                order = [d for d in range(rank + 1) if d != p]
                order.insert(to, p)
                x = self._emit("transpose", (x,), {"permutation": tuple(order)},
                               of_shape(x.aval, tuple([x.aval.shape[d] for d in order])))
            if e.op.name == "select_n" and x.aval.shape and x.aval.shape != shape:
                x = self._emit("broadcast_in_dim", (x,), {
                    "shape": shape, "broadcast_dimensions": tuple(range(rank + 1)),
                    "sharding": None}, of_shape(x.aval, shape))
            operands.append(x)
        self._bind(e, operands, e.params, shape, to)

    def _reduction(self, e: Equation, x: Atom, place: int) -> None:
        axes, t = e.params["axes"], e.outvars[0].aval
        moved = tuple([a + (a >= place) for a in axes])
        if self.early.get(e.outvars[0]) == e.op.name:
            self.folded.add(e.outvars[0])
            self.at[e.outvars[0]] = self._reduced(
                e.op.name, x, tuple(sorted((*moved, place))), t.shape, e.params), None
            return
        to = place - sum([a < place for a in axes])
        self._bind(e, (x,), {**e.params, "axes": moved},
                   (*t.shape[:to], self.count, *t.shape[to:]), to)

    def _transposed(self, e: Equation, x: Atom, place: int) -> None:
        order = [d + (d >= place) for d in e.params["permutation"]]
        t = e.outvars[0].aval
        old = e.params["permutation"]
        to = old.index(place) if place < len(old) else len(old)
        order.insert(to, place)
        self._bind(e, (x,), {**e.params, "permutation": tuple(order)},
                   (*t.shape[:to], self.count, *t.shape[to:]), to)

    def _cut(self, e: Equation, x: Atom, place: int) -> None:
        """Parts along dimensions, or without some of size 1."""
        params, t, to = dict(e.params), e.outvars[0].aval, place
        if e.op.name == "squeeze":
            dims = params["dimensions"]
            params["dimensions"] = tuple([d + (d >= place) for d in dims])
            to -= sum([d < place for d in dims])
        else:
            for name, whole in (("start_indices", 0), ("limit_indices", self.count),
                                ("strides", 1)):
                if params[name] is not None:
                    params[name] = (*params[name][:place], whole, *params[name][place:])
        self._bind(e, (x,), params, (*t.shape[:to], self.count, *t.shape[to:]), to)

    def _repeated(self, e: Equation, x: Atom, place: int) -> None:
        dims, t = e.params["broadcast_dimensions"], e.outvars[0].aval
        to = dims[place] if place < len(dims) else t.ndim if dims else 0
        shape = (*t.shape[:to], self.count, *t.shape[to:])
        moved = [d + (d >= to) for d in dims]
        moved.insert(place, to)
        self._bind(e, (x,), {**e.params, "shape": shape, "broadcast_dimensions": tuple(moved)},
                   shape, to)

    def _product(self, e: Equation) -> None:
        contracted, batch = e.params["dimension_numbers"]
        ndim = [a.aval.ndim for a in e.invars]
        free = [[d for d in range(n) if d not in contracted[k] and d not in batch[k]]
                for k, n in enumerate(ndim)]
        given: list[tuple[Atom, int | None]] = []
        for k, a in enumerate(e.invars):
            other = e.invars[1 - k]
            beside = other in self.travelling or other in self.at and self.at[other][1] is not None
            likely = contracted[k] if beside else free[k]
            given.append(self._get(a, likely[0] if likely else 0))
        places = [p for _, p in given]
        numbers = [[tuple([d + (p is not None and d >= p) for d in dims[k]])
                    for k, p in enumerate(places)] for dims in (contracted, batch)]
        out, t = e.outvars[0], e.outvars[0].aval
        shape, to = t.shape, None
        if None not in places:
            early = self.early.get(out) == "reduce_sum"
            which = 0 if early else 1
            numbers[which] = [(p, *numbers[which][k])                   # type: ignore[misc]
                              for k, p in enumerate(places)]
            if early:
                self.folded.add(out)
            else:
                to, shape = 0, (self.count, *shape)
        elif places != [None, None]:
            k = 0 if places[0] is not None else 1
            place = places[k]
            to = len(batch[0]) + len(free[0]) * k + sum([
                d < place for d in free[k]])                            # type: ignore[operator]
            shape = (*shape[:to], self.count, *shape[to:])
        params = {**e.params, "dimension_numbers": (tuple(numbers[0]), tuple(numbers[1]))}
        self._bind(e, [x for x, _ in given], params, shape, to)

    # -- values ------------------------------------------------------------------------------------
    def _get(self, atom: Atom, place: int = 0) -> tuple[Atom, int | None]:
        """A value and its dimension of blocks, which is new at `place` for what travels."""
        if atom in self.travelling and atom not in self.at:
            x = self.travelling[atom]
            t = x.aval
            shape = (*t.shape[:place], self.count, *t.shape[place:])
            self.at[atom] = self._emit("all_gather", (x,), {
                "axis_name": self.axes, "axis_size": self.count, "all_gather_dimension": place,
                "tiled": False, "axis_index_groups": None}, of_shape(t, shape)), place
        return self.at.get(atom, (atom, None))

    def _reduced(self, how: str, x: Atom, axes: tuple[int, ...], shape: tuple[int, ...],
                 params: dict[str, Any] | None = None) -> Atom:
        return self._emit(how, (x,), {**(params or {}), "axes": axes},
                          of_shape(x.aval, shape))

    def _reshaped(self, x: Atom, shape: tuple[int, ...]) -> Atom:
        return self._emit("reshape", (x,), {"new_sizes": shape, "dimensions": None,
                                            "sharding": None}, of_shape(x.aval, shape))

    def _bind(self, e: Equation, operands: Sequence[Atom], params: dict[str, Any],
              shape: tuple[int, ...], place: int | None) -> None:
        out = Var(of_shape(e.outvars[0].aval, shape))
        if place is not None and out.aval.size * self.mesh.size > MOST:
            raise Unknown
        self.eqns.append(Equation(e.op, operands, (out,), params, e.location))
        self.at[e.outvars[0]] = out, place

    def _emit(self, name: str, operands: Sequence[Atom], params: dict[str, Any],
              out: Any) -> Var:
        var = out if isinstance(out, Var) else Var(out)
        self.eqns.append(Equation(OPS[name], operands, (var,), params, self.location))
        return var
