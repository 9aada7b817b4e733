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
from ...ir.ops.arithmetic import add_p
from ...ir.ops.collective import psum_p, reduce_scatter_p
from ...ir.ops.identity import copy_p
from ...ir.ops.slicing import slice_p
from ...ir.program import Atom, Equation, Var
from ...ir.types import ArrayType
from ..rewrites.equations import of_shape
from .emitted import Emitter
from .product_dims import contracted_dim, free_dim, result_dim
from .travelling import Block, Moved, Put, Sent, Sum, Term

Table = np.ndarray          # [terms, devices]


class Operand(NamedTuple):
    """An operand of all terms: on device d, in term i, of device `device[i, d]`; a block of
    `size` along `dim` from `start[i, d]` on, or all of it if `dim` is None."""
    root: Atom
    device: Table
    dim: int | None = None
    start: Table | None = None
    size: int = 0


class Raised(Emitter):
    """Equations that compute what a ring that ends in `eqn` gives."""

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
        if found is None:
            return False
        self._emit(copy_p, (self._shaped(found, out.aval.shape),), {}, out)
        return True

    # -- what is written side by side --------------------------------------------------------------
    def _put_together(self, value: Any, aval: ArrayType) -> Atom | None:
        parts: list[Put] = []
        while type(value) is Put:
            parts.append(value)
            value = value.before
        dims = {(p.dim, p.term.aval.shape) for p in parts}
        if len(dims) != 1 or len(parts) < self.count:
            return None
        ((d, shape),) = dims
        place, rest = np.divmod(np.array([p.start for p in parts]), shape[d])
        if rest.any() or aval.shape[d] % shape[d]:
            return None
        if len(parts) != self.count or shape[d] * self.count != aval.shape[d] or (
                not _each_once(place)) or type(parts[0].term.operands[0]) in (Sum, Sent):
            return self._sum_of_parts(parts, place, aval)
        operands = self._operands([(p.term, self.here) for p in parts])
        if operands is None:
            return None
        product, order = parts[0].term.product, parts[0].term.order
        if product is None:
            return self._side_by_side(operands[0], d, place, aval, shape)
        sizes = list(aval.shape)
        if order is not None:
            for size, k in zip(aval.shape, order, strict=True):
                sizes[k] = size
            d = order[d]
        k, dim = free_dim(product, d)
        other = operands[1 - k]
        if dim is None or other.dim is not None or not (other.device == self.here).all():
            return None
        whole = self._side_by_side(operands[k], dim, place)
        if whole is None:
            return None
        return self._ordered(self._product(
            product, [whole, other.root] if k == 0 else [other.root, whole], tuple(sizes)), order)

    def _side_by_side(self, x: Operand, d: int, place: Table, aval: ArrayType | None = None,
                      shape: tuple[int, ...] = ()) -> Atom | None:
        """The whole of what is at `place` along a dimension, in units of its size there.

        aval, shape: of the whole and of one part, if they may have other dimensions of size 1.
        """
        if x.dim is None:
            if (x.device != place).any():
                return None
            return self._gathered(x.root if aval is None else self._shaped(x.root, shape), d)
        assert x.start is not None
        mine = (x.device == self.here).all() and x.dim == d and (
            aval is None or x.root.aval.shape == aval.shape)
        return x.root if mine and (x.start == place * x.size).all() else None

    # -- sums --------------------------------------------------------------------------------------
    def _sum_of_parts(self, parts: Sequence[Put], place: Table, aval: ArrayType) -> Atom | None:
        """The sum over all devices, of which each part was written where it is on all of them: a
        sum goes round for each part, and then the parts do.

        parts: the last first. place: of each where it was written, in units of its size.
        """
        d, size = parts[0].dim, parts[0].term.aval.shape[parts[0].dim]
        last = np.full((aval.shape[d] // size, self.count), -1)     # written, by place and device
        for i in range(len(parts) - 1, -1, -1):
            last[place[i], self.here] = i
        if last.min() < 0 or not _is_wide(aval):
            return None
        used, last = np.unique(last, return_inverse=True)
        last = last.reshape(-1, self.count)
        terms: list[tuple[Term, np.ndarray]] = []
        for i in used:
            term = parts[i].term
            base, more = self._terms(term.operands[0] if term.product is None else term)
            if base is not None or len(more) != self.count:
                return None
            terms += more
        operands = self._operands(terms)
        cut = [] if operands is None else [k for k, x in enumerate(operands) if x.dim is not None]
        if operands is None or len(cut) != 1:
            return None
        (k,) = cut
        if operands[k].size != size or not self._are_of_all(operands, k, last):
            return None
        (term, _), roots = terms[0], [x.root for x in operands]
        t, order = aval, term.order or tuple(range(aval.ndim))
        if term.product is None:
            if roots[k].aval.shape != aval.shape or operands[k].dim != d:
                return None
        else:
            t = of_shape(aval, tuple([aval.shape[order.index(e)] for e in range(aval.ndim)]))
            if result_dim(term.product, k, operands[k].dim) != order[d]:    # type: ignore[arg-type]
                return None
        return self._ordered(self._all_summed(term.product, roots, t), term.order)

    def _are_of_all(self, operands: Sequence[Operand], k: int, last: Table) -> bool:
        """Is what was written at each place a term of each device, with its block of the place?

        k: of the operand that is in blocks. last: which sum was written there last, on each device.
        """
        device, start = operands[k].device, operands[k].start
        assert start is not None
        each = (-1, self.count, self.count)                         # sums, terms, devices
        where = np.arange(len(last))[:, None, None] * operands[k].size
        return (all([(x.device == device).all() for x in operands])
                and bool((np.sort(device.reshape(each)[last, :, self.here]) == self.here).all())
                and bool((start.reshape(each)[last, :, self.here] == where).all()))

    def _summed(self, value: Any, aval: ArrayType) -> Atom | None:
        if not _is_wide(aval):
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
            moved = self._moved(*base)
            if moved is None:
                return None
            total = self._shaped(moved, aval.shape)
        for group in groups.values():
            operands = self._operands(group)
            if operands is None:
                return None
            product = group[0][0].product
            part = self._of_grid(product, operands) if len(group) != self.count else (
                self._one_sum(product, operands,
                              aval if product is None else product.outvars[0].aval))
            if part is None:
                return None
            part = self._shaped(self._ordered(part, group[0][0].order), aval.shape)
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
            partner = contracted_dim(product, k, x.dim)
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
            return self._all_summed(product, [x.root for x in operands], aval)
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
            shape = list(blocks.aval.shape)
            shape[d] //= self.count
            aval = of_shape(aval, tuple(shape))
        else:
            roots = [x.root for x in operands]
            roots[k] = blocks
            out = result_dim(product, k, cut_dim)
            if out is None:
                return None
            d = out
            whole_shape = list(aval.shape)
            whole_shape[d] *= self.count
            whole = self._product(product, roots, tuple(whole_shape))
        part = self._emit(reduce_scatter_p, (whole,), {
            "axis_name": self.axes, "axis_size": self.count, "scatter_dimension": d, "tiled": True,
            "axis_index_groups": None}, aval)
        return self._moved(part, place)

    def _of_grid(self, product: Equation | None, operands: Sequence[Operand]) -> Atom | None:
        """The sum of products of blocks that each device takes from its row and its column of
        devices, those at one place after the other."""
        lines = [self._line(x) for x in operands]
        if product is None or None in lines:
            return None
        (a, place), (b, other) = lines                              # type: ignore[misc]
        contracted = product.params["dimension_numbers"][0]
        if a == b or not contracted[0] or (place != other).any():
            return None
        both = [self._gathered(x.root, dims[0], k)
                for x, dims, k in zip(operands, contracted, (a, b), strict=True)]
        return self._product(product, both, product.outvars[0].aval.shape)

    def _line(self, x: Operand) -> tuple[int, Table] | None:
        """The number of the axis along which each device takes all that others have, once; and
        where that is in each term."""
        at = np.unravel_index(x.device, self.sizes)
        own = np.unravel_index(self.here, self.sizes)
        along = [k for k, (there, here) in enumerate(zip(at, own, strict=True))
                 if (there != here).any()]
        if x.dim is not None or len(along) != 1:
            return None
        (k,) = along
        each = np.arange(self.sizes[k])[:, None]
        same = len(x.device) == len(each) and bool((np.sort(at[k], axis=0) == each).all())
        return (k, at[k]) if same else None

    def _all_summed(self, product: Equation | None, roots: Sequence[Atom], aval: ArrayType) -> Atom:
        whole = self._shaped(roots[0], aval.shape) if product is None else (
            self._product(product, roots, aval.shape))
        return self._emit(psum_p, (whole,), {"axes": self.axes, "axis_index_groups": None}, aval)

    # -- operands ----------------------------------------------------------------------------------
    def _operands(self, terms: Sequence[tuple[Term, np.ndarray]]) -> list[Operand] | None:
        """The operands of terms that are alike; None if they are not."""
        if any([type(x) in (Sum, Sent) for t, _ in terms for x in t.operands]):
            return None
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


def _likeness(t: Term) -> tuple:
    """What terms have in common whose sum is one product or collective."""
    return (None if t.product is None else t.product.use, t.order, *[
        (x.root, x.dim, x.size) if type(x) is Block else x.root if type(x) is Moved else x
        for x in t.operands])


def _is_wide(aval: ArrayType) -> bool:
    """May sums of this type be taken in another order?"""
    kind = aval.dtype.kind
    return kind in "iufc" and (kind not in "fc" or aval.dtype.itemsize >= 4)


def _each_once(devices: Table) -> bool:
    """Is every number in every column, once?"""
    return len(devices) == devices.shape[1] and bool(
        (np.sort(devices, axis=0) == np.arange(len(devices))[:, None]).all())


def _place_of(start: Table) -> np.ndarray | None:
    """The numbers, from the least on, of the blocks that begin there; None if two are one."""
    values, place = np.unique(start[0], return_inverse=True)
    return place.reshape(-1) if len(values) == start.shape[1] else None
