"""The products and collectives that the values of rings amount to.

A ring's value is given as what each device adds up, or puts side by side, one term for each device
of the group (passing/followed.py). Tables say which device's blocks a device uses in which term:
where every device, or every block, occurs once, the terms are those of one collective.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.named_tuple import NamedTuple
from ...ir.op import Op
from ...ir.ops.arithmetic import add_p
from ...ir.ops.collective import all_gather_p, ppermute_p, psum_p, reduce_scatter_p
from ...ir.ops.identity import copy_p
from ...ir.ops.reshape import reshape_p
from ...ir.ops.shape import transpose_p
from ...ir.ops.slicing import slice_p
from ...ir.program import Atom, Equation, Var
from ...ir.types import ArrayType
from ..rewrites.equations import of_shape
from .followed import Block, Follower, Moved, Put, Sent, Sum, Term

Table = np.ndarray          # [terms, devices]


class Operand(NamedTuple):
    """An operand of all terms: on device d, in term i, of device `device[i, d]`; a block of
    `size` along `dim` from `start[i, d]` on, or all of it if `dim` is None."""
    root: Atom
    device: Table
    dim: int | None = None
    start: Table | None = None
    size: int = 0


class Raised:
    """Equations that compute what a ring that ends in `eqn` gives."""

    def __init__(self, follower: Follower, eqn: Equation) -> None:
        self.axes, self.count, self.here = follower.axes, follower.count, follower.here
        self.eqn = eqn
        self.eqns: list[Equation] = []

    def compute(self, out: Var, value: Any) -> bool:
        """Compute the value as `out`; False if no collective does."""
        if type(value) is Put:
            found = self._put_together(value, out.aval)
        elif type(value) in (Sum, Sent):
            found = self._summed(value, out.aval)
        elif type(value) is Moved:
            found = self._moved(value.root, value.source)
        else:
            found = value
        if found is not None:
            self._emit(copy_p, (found,), {}, out)
        return found is not None

    # -- what is written side by side --------------------------------------------------------------
    def _put_together(self, value: Any, aval: ArrayType) -> Atom | None:
        parts: list[Put] = []
        while type(value) is Put:
            parts.append(value)
            value = value.before
        dims = {(p.dim, p.term.aval.shape) for p in parts}
        if len(dims) != 1 or len(parts) != self.count:
            return None
        ((d, shape),) = dims
        place, rest = np.divmod(np.array([p.start for p in parts]), shape[d])
        if rest.any() or shape[d] * self.count != aval.shape[d] or not _each_once(place):
            return None
        operands = self._operands([(p.term, self.here) for p in parts])
        if operands is None:
            return None
        product, order = parts[0].term.product, parts[0].term.order
        if product is None:
            return self._side_by_side(operands[0], d, place)
        sizes = list(aval.shape)
        if order is not None:
            for size, k in zip(aval.shape, order, strict=True):
                sizes[k] = size
            d = order[d]
        k, dim = _free(product, d)
        other = operands[1 - k]
        if dim is None or other.dim is not None or not (other.device == self.here).all():
            return None
        whole = self._side_by_side(operands[k], dim, place)
        if whole is None:
            return None
        return self._ordered(self._product(
            product, [whole, other.root] if k == 0 else [other.root, whole], tuple(sizes)), order)

    def _side_by_side(self, x: Operand, d: int, place: Table) -> Atom | None:
        """The whole of what is at `place` along a dimension, in units of its size there."""
        if x.dim is None:
            return self._gathered(x.root, d) if (x.device == place).all() else None
        assert x.start is not None
        mine = (x.device == self.here).all() and x.dim == d
        return x.root if mine and (x.start == place * x.size).all() else None

    # -- sums --------------------------------------------------------------------------------------
    def _summed(self, value: Any, aval: ArrayType) -> Atom | None:
        if aval.dtype.kind not in "iufc" or aval.dtype.kind in "fc" and aval.dtype.itemsize < 4:
            return None
        base, terms = self._terms(value)
        groups: dict[Any, list[tuple[Term, np.ndarray]]] = {}
        for t, device in terms:
            groups.setdefault(_likeness(t), []).append((t, device))
        if base is not None:
            own = groups.get(_likeness(Term(None, (base[0],), aval)))
            if own is not None and len(own) == self.count - 1:
                own.append((Term(None, (base[0],), aval), base[1]))
                base = None
        total: Atom | None = None
        if base is not None:
            total = self._moved(*base)
        for group in groups.values():
            operands = self._operands(group) if len(group) == self.count else None
            if operands is None:
                return None
            product = group[0][0].product
            part = self._one_sum(product, operands,
                                 aval if product is None else product.outvars[0].aval)
            if part is None:
                return None
            part = self._ordered(part, group[0][0].order)
            total = part if total is None else self._emit(add_p, (total, part), {}, aval)
        return total

    def _terms(self, value: Any) -> tuple[tuple[Atom, np.ndarray] | None,
                                          list[tuple[Term, np.ndarray]]]:
        """What a sum begins with, and its terms: each with the device that contributes it, for
        each device that has the sum at last."""
        device, terms = self.here, []
        while True:
            if type(value) is Sum:
                terms.append((value.term, device))
                value = value.before
            elif type(value) is Sent:
                device = value.source[device]
                value = value.before
            elif type(value) is Term:
                return None, [*terms, (value, device)]
            elif type(value) is Moved:
                return (value.root, value.source[device]), terms
            elif type(value) is Block:
                return None, [*terms, (Term(None, (value,), self.eqn.outvars[0].aval), device)]
            else:
                return (value, device), terms

    def _one_sum(self, product: Equation | None, operands: Sequence[Operand], aval: ArrayType
                 ) -> Atom | None:
        """The sum of one term of each device, or of each block."""
        first = operands[0].device
        if all([(x.device == first).all() for x in operands]):
            return self._of_devices(product, operands, aval) if _each_once(first) else None
        if product is None:
            return None
        for k, x in enumerate(operands):            # a block of one, and the same of the group
            y = operands[1 - k]
            if (x.dim is None or y.dim is not None or not (x.device == self.here).all()
                    or not _each_once(y.device)):
                continue
            partner = _contracted(product, k, x.dim)
            if partner is None or y.root.aval.shape[partner] != x.size:
                continue
            blocks = self._blocks(x, y.device)
            if blocks is not None:
                both = [blocks, self._gathered(y.root, partner)]
                return self._product(product, both if k == 0 else both[::-1], aval.shape)
        return None

    def _of_devices(self, product: Equation | None, operands: Sequence[Operand], aval: ArrayType
                    ) -> Atom | None:
        """The sum of what all devices have, or of the blocks that they have for each."""
        cut = [k for k, x in enumerate(operands) if x.dim is not None]
        if not cut:
            roots = [x.root for x in operands]
            whole = roots[0] if product is None else self._product(product, roots, aval.shape)
            return self._emit(psum_p, (whole,), {"axes": self.axes, "axis_index_groups": None},
                              aval)
        if len(cut) != 1:
            return None
        (k,) = cut
        x = operands[k]
        start, cut_dim = x.start, x.dim
        assert start is not None and cut_dim is not None
        place = _place_of(start)
        if place is None or not (start == start[0]).all():
            return None
        blocks = self._blocks(x, np.broadcast_to(place, start.shape))
        if blocks is None:
            return None
        if product is None:
            whole, d = blocks, cut_dim
        else:
            roots = [x.root for x in operands]
            roots[k] = blocks
            out = _result_dim(product, k, cut_dim)
            if out is None:
                return None
            d = out
            shape = list(aval.shape)
            shape[d] *= self.count
            whole = self._product(product, roots, tuple(shape))
        part = self._emit(reduce_scatter_p, (whole,), {
            "axis_name": self.axes, "axis_size": self.count, "scatter_dimension": d, "tiled": True,
            "axis_index_groups": None}, aval)
        return self._moved(part, place)

    # -- operands ----------------------------------------------------------------------------------
    def _operands(self, terms: Sequence[tuple[Term, np.ndarray]]) -> list[Operand] | None:
        """The operands of terms that are alike; None if they are not."""
        if len({_likeness(t) for t, _ in terms}) != 1:
            return None
        found = []
        for k, x in enumerate(terms[0][0].operands):
            each = [(t.operands[k], device) for t, device in terms]
            if type(x) is Block:
                found.append(Operand(x.root, np.array([d for _, d in each]), x.dim,
                                     np.array([b.start[d] for b, d in each]), x.size))
            else:
                root = x.root if type(x) is Moved else x
                if type(root) is not Var:
                    return None
                found.append(Operand(root, np.array([
                    m.source[d] if type(m) is Moved else d for m, d in each])))
        return found

    def _blocks(self, x: Operand, place: Table) -> Atom | None:
        """All blocks side by side, the one at `place` 0 first; None if they do not lie so."""
        d, start = x.dim, x.start
        assert d is not None and start is not None
        shape = x.root.aval.shape
        first = int(start[place == 0][0])
        step = int(start[place == 1][0]) - first
        if (start != first + place * step).any() or step < x.size or step * self.count != shape[d]:
            return None
        if step == x.size:
            return x.root
        apart = (*shape[:d], self.count, step, *shape[d + 1:])
        cut = (*shape[:d], self.count, x.size, *shape[d + 1:])
        together = (*shape[:d], self.count * x.size, *shape[d + 1:])
        begin = [0] * len(apart)
        begin[d + 1] = first
        end = list(apart)
        end[d + 1] = first + x.size
        t = x.root.aval
        split = self._reshaped(x.root, apart)
        some = self._emit(slice_p, (split,), {
            "start_indices": tuple(begin), "limit_indices": tuple(end), "strides": None},
            of_shape(t, cut))
        return self._reshaped(some, together)

    # -- equations ---------------------------------------------------------------------------------
    def _emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any],
              out: Var | ArrayType) -> Var:
        var = out if isinstance(out, Var) else Var(out)
        self.eqns.append(Equation(op, operands, (var,), params, self.eqn.location))
        return var

    def _reshaped(self, x: Atom, shape: tuple[int, ...]) -> Atom:
        return self._emit(reshape_p, (x,), {"new_sizes": shape, "dimensions": None,
                                            "sharding": None}, of_shape(x.aval, shape))

    def _gathered(self, x: Atom, d: int) -> Atom:
        shape = list(x.aval.shape)
        shape[d] *= self.count
        return self._emit(all_gather_p, (x,), {
            "axis_name": self.axes, "axis_size": self.count, "all_gather_dimension": d,
            "tiled": True, "axis_index_groups": None}, of_shape(x.aval, tuple(shape)))

    def _moved(self, x: Atom, source: np.ndarray) -> Atom:
        """What device `source[d]` has, on device d."""
        if (source == self.here).all():
            return x
        perm = tuple([(int(s), d) for d, s in enumerate(source)])
        return self._emit(ppermute_p, (x,), {"axis_name": self.axes, "perm": perm}, x.aval)

    def _ordered(self, x: Atom, order: tuple[int, ...] | None) -> Atom:
        if order is None:
            return x
        shape = x.aval.shape
        return self._emit(transpose_p, (x,), {"permutation": order},
                          of_shape(x.aval, tuple([shape[d] for d in order])))

    def _product(self, product: Equation, operands: Sequence[Atom], shape: tuple[int, ...]) -> Var:
        return self._emit(product.op, operands, product.params,
                          of_shape(product.outvars[0].aval, shape))


def _likeness(t: Term) -> tuple:
    """What terms have in common whose sum is one product or collective."""
    return (None if t.product is None else t.product.use, t.order, *[
        (x.root, x.dim, x.size) if type(x) is Block else x.root if type(x) is Moved else x
        for x in t.operands])


def _each_once(devices: Table) -> bool:
    """Is every number in every column, once?"""
    return len(devices) == devices.shape[1] and bool(
        (np.sort(devices, axis=0) == np.arange(len(devices))[:, None]).all())


def _place_of(start: Table) -> np.ndarray | None:
    """The numbers, from the least on, of the blocks that begin there; None if two are one."""
    values, place = np.unique(start[0], return_inverse=True)
    return place.reshape(-1) if len(values) == start.shape[1] else None


# -- dimensions of products ------------------------------------------------------------------------

def _groups(product: Equation) -> tuple[Any, Any, list[list[int]]]:
    """Contracting and batch dimensions, and the free ones, of the two operands."""
    contracting, batch = product.params["dimension_numbers"]
    free = [[d for d in range(x.aval.ndim) if d not in contracting[k] and d not in batch[k]]
            for k, x in enumerate(product.invars)]
    return contracting, batch, free


def _free(product: Equation, out: int) -> tuple[int, int | None]:
    """The operand and its free dimension that a dimension of the result is; None if of both."""
    _, batch, free = _groups(product)
    place = out - len(batch[0])
    if place < 0:
        return 0, None
    k = 0 if place < len(free[0]) else 1
    return k, free[k][place - len(free[0]) * k]


def _result_dim(product: Equation, k: int, d: int) -> int | None:
    """Where in the result a free dimension of an operand is."""
    _, batch, free = _groups(product)
    return len(batch[0]) + len(free[0]) * k + free[k].index(d) if d in free[k] else None


def _contracted(product: Equation, k: int, d: int) -> int | None:
    """The other operand's dimension that a dimension of an operand is contracted with."""
    contracting = product.params["dimension_numbers"][0]
    return contracting[1 - k][contracting[k].index(d)] if d in contracting[k] else None
