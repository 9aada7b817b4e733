"""Equations of which a ring's collectives and products are made, appended one by one."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.op import Op
from ...ir.ops.collective import all_gather_p, ppermute_p
from ...ir.ops.reshape import reshape_p
from ...ir.ops.shape import transpose_p
from ...ir.program import Atom, Equation, Var
from ...ir.types import ArrayType
from ..rewrites.equations import of_shape
from .followed import Follower


class Emitter:
    """Equations in the place of `eqn`, for the devices that are followed."""

    def __init__(self, follower: Follower, eqn: Equation) -> None:
        self.axes, self.count, self.here = follower.axes, follower.count, follower.here
        self.sizes = follower.sizes
        self.eqn = eqn
        self.eqns: list[Equation] = []

    def _emit(self, op: Op, operands: Sequence[Atom], params: dict[str, Any],
              out: Var | ArrayType) -> Var:
        var = out if isinstance(out, Var) else Var(out)
        self.eqns.append(Equation(op, operands, (var,), params, self.eqn.location))
        return var

    def _reshaped(self, x: Atom, shape: tuple[int, ...]) -> Atom:
        return self._emit(reshape_p, (x,), {"new_sizes": shape, "dimensions": None,
                                            "sharding": None}, of_shape(x.aval, shape))

    def _shaped(self, x: Atom, shape: tuple[int, ...]) -> Atom:
        """The value with other dimensions of size 1."""
        return x if x.aval.shape == shape else self._reshaped(x, shape)

    def _gathered(self, x: Atom, d: int, axis: int | None = None) -> Atom:
        """The whole along a dimension, of what all devices have or those along one axis."""
        axes, count = (self.axes, self.count) if axis is None else (
            (self.axes[axis],), self.sizes[axis])
        shape = list(x.aval.shape)
        shape[d] *= count
        return self._emit(all_gather_p, (x,), {
            "axis_name": axes, "axis_size": count, "all_gather_dimension": d,
            "tiled": True, "axis_index_groups": None}, of_shape(x.aval, tuple(shape)))

    def _moved(self, x: Atom, source: np.ndarray) -> Atom | None:
        """What device `source[d]` has, on device d; None if one's is on several."""
        if (source == self.here).all():
            return x
        if len(set(source.tolist())) != self.count:
            return None
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
