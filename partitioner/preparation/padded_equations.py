"""Equations on padded operands: how to run an op whose dimensions have more rows than count.

`equation_on` runs an op by its factor rule. Along a pass-through factor the padding is simply
carried, by all operands at the same places. Along a reduction factor it is first filled with the
identity of the reduction (zeros for a sum). Along any other factor it is cut off first, unless the
op knows better (`Op.padded`, see ir/padded.py).
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.dtypes import is_extended
from ...ir.inference.infer import infer
from ...ir.meshes.mesh import empty_abstract_mesh
from ...ir.op import OPS, Op
from ...ir.ops.identities import identity
from ...ir.padded import Padded, same_number, with_entry
from ...ir.program import Atom, Equation, Literal, Var
from ...ir.reasons import COUNT, PADDED, Reason
from ...ir.rules.factor import PASS, REDUCE, SCAN
from ...ir.rules.rule import ELEMENTWISE, FactorRule
from ...ir.shardings.sharding import NamedSharding
from ...ir.types import ArrayType, Shape, array_type
from ..factors import major_factor


class Output:
    """The equations written so far. made: values that have been padded, masked or cut already.
    masks_always: as of a `Policy`.
    """

    def __init__(self, masks_always: bool = False) -> None:
        self.masks_always = masks_always
        self.eqns: list[Equation] = []
        self.made: dict[tuple, Atom] = {}
        self._makers: dict[Atom, Equation] = {}
        self._seen = 0

    def maker(self, atom: Atom) -> Equation | None:
        """The equation that makes a value, if one that was written does."""
        for eqn in self.eqns[self._seen:]:
            self._makers.update(dict.fromkeys(eqn.outvars, eqn))
        self._seen = len(self.eqns)
        return self._makers.get(atom)


def equation_on(eqn: Equation, operands: Sequence[Padded], sizes: Sequence[Shape], out: Output,
                kept: Sequence[int] = ()) -> list[Padded]:
    """Run an equation on these operands; appends what computes it and returns its results.

    sizes: the wanted shape of each result, which may come with less padding. kept: as for
    `PaddedContext`.
    """
    context = _Context(eqn, operands, sizes, out, kept)
    if eqn.op.effect or eqn.op.subprograms or eqn.op.evaluate is None:
        return context.as_it_is()
    if eqn.op.padded is not None:
        types = [*[x.atom.aval for x in operands], *context.result_types]
        found = None if any([is_extended(t.dtype) for t in types]) else eqn.op.padded(context)
        return context.as_it_is() if found is None else found
    return context.by_factors(context.given)


def filler(dtype: np.dtype) -> Any:
    """The value of padding where any will do."""
    return np.zeros((), dtype)[()]


def unpadded(x: Padded, eqn: Equation, out: Output) -> Padded:
    """The value with all padding cut off. eqn: the equation it is for."""
    context = _Context(eqn, (), (), out)
    for d in range(len(x.shape)):
        x = context.cut(x, d)
    return x


def with_sizes(x: Padded, sizes: Shape, eqn: Equation, out: Output) -> Padded:
    """The value padded or cut to these sizes, its own rows first. eqn: the equation it is for."""
    context = _Context(eqn, (), (), out)
    for d, size in enumerate(sizes):
        x = context.resized(x, d, size)
    return x


def laid_out(x: Padded, sharding: NamedSharding, eqn: Equation, out: Output) -> Padded:
    """The value under a constraint. eqn: the equation it is for."""
    context, params = _Context(eqn, (), (), out), {"sharding": sharding}
    return Padded(context.result("sharding_constraint", [x.atom], params), x.shape, x.fills, x.lows)


class _Context:
    """The `PaddedContext` of an equation."""

    def __init__(self, eqn: Equation, operands: Sequence[Padded], sizes: Sequence[Shape],
                 out: Output, kept: Sequence[int] = ()) -> None:
        self.eqn, self.given, self.sizes, self.out = eqn, tuple(operands), tuple(sizes), out
        self.params, self.kept = eqn.params, kept
        self.result_types = tuple([v.aval for v in eqn.outvars])

    @property
    def operands(self) -> Sequence[Padded]:
        return [x if not any(x.lows) else with_sizes(x, x.sizes, self.eqn, self.out)
                for x in self.given]

    @property
    def rule(self) -> FactorRule:
        return self.eqn.op.factor_rule(tuple([x.shape for x in self.given]),
                                       tuple([t.shape for t in self.result_types]), self.params)

    # -- building --------------------------------------------------------------------------------

    def append(self, op: Op, operands: Sequence[Atom], avals: Sequence[ArrayType],
               params: dict[str, Any], names: Sequence[str | None] = (), reason: Reason = ()
               ) -> tuple[Var, ...]:
        out = tuple([Var(t, names[i] if names else None) for i, t in enumerate(avals)])
        self.out.eqns.append(self.eqn.replace(op=op, invars=operands, outvars=out, params=params,
                                              reason=reason or self.eqn.reason))
        return out

    def result(self, name: str, operands: Sequence[Atom], params: dict[str, Any],
               reason: Reason = ()) -> Atom:
        """The result of an equation, appended."""
        given = tuple([a.aval for a in operands])
        mesh = next((t.mesh for t in given if not t.mesh.empty), empty_abstract_mesh)
        return self.append(OPS[name], operands, infer(OPS[name], given, params, mesh), params,
                           reason=reason)[0]

    def call(self, name: str, *operands: Atom, **params: Any) -> Atom:
        return self._made(name, operands, params)

    def _made(self, name: str, operands: Sequence[Atom], params: dict[str, Any], reason: Reason = ()
              ) -> Atom:
        """The result of an equation, appended unless an equal one was."""
        known = [(np.asarray(a.val).tobytes(), a.aval) if isinstance(a, Literal) else a
                 for a in operands]
        key = (name, *known, *params.items())
        if key not in self.out.made:
            self.out.made[key] = self.result(name, operands, params, reason)
        return self.out.made[key]

    def full(self, value: Any, like: ArrayType) -> Atom:
        """An array of one value for one reader; other readers may want another layout."""
        number = self.number(value, like)
        params = {"shape": like.shape, "broadcast_dimensions": (), "sharding": None}
        return self.result("broadcast_in_dim", [number], params) if like.shape else number

    def number(self, value: Any, like: ArrayType) -> Atom:
        return Literal(np.asarray(value).astype(like.dtype)[()], array_type(
            (), like.dtype, like.weak_type, memory_space=like.memory_space))

    # -- padding ---------------------------------------------------------------------------------

    def moved(self, x: Padded, d: int, start: int, size: int, fill: Any = 0) -> Atom:
        """Rows start to start + size of dimension d of x, which may lie before or after it: those
        are `fill`.
        """
        if (start, size) == (0, x.size(d)):
            return x.atom
        reason = self._padding(x, d, size)
        if 0 <= start <= start + size <= x.size(d):
            return self._rows(x, d, start, start + size, reason)
        config = [(0, 0, 0)] * len(x.shape)
        config[d] = (-start, size - (x.size(d) - start), 0)
        number = self.number(fill, x.atom.aval)
        return self._made("pad", [x.atom, number], {"padding_config": tuple(config)}, reason)

    def _rows(self, x: Padded, d: int, start: int, limit: int, reason: Reason) -> Atom:
        starts = with_entry((0,) * len(x.shape), d, start)
        return self._made("slice", [x.atom], {
            "start_indices": starts, "limit_indices": with_entry(x.sizes, d, limit),
            "strides": None},
            reason)

    def _padding(self, x: Padded, d: int, size: int) -> Reason:
        """The reason for moving rows of an operand: it, or the result, is padded."""
        n, name = x.shape[d], self.eqn.op.name
        for sizes, t in zip(self.sizes[:1], self.result_types, strict=False):
            if d < len(sizes) and sizes[d] == size:
                n = t.shape[d]
        return (PADDED(d, name, n, size),) if n != size else ()

    def masked(self, x: Padded, d: int, value: Any) -> Padded:
        return x if x.holds(d, value) else self._masked(x, d, value)

    def _masked(self, x: Padded, d: int, value: Any) -> Padded:
        """The value with this number for padding, whatever it holds there."""
        aval, low = x.atom.aval, x.lows[d] or 0
        end = low + x.shape[d]
        key = ("masked", x.atom, d, low, end, np.asarray(value).tobytes())
        placed = self.out.made.get(key)
        if placed is None:
            placed = self.out.made[key] = self._made("place", [x.atom, self.full(value, aval)], {
                "dimension": d, "start": low, "limit": end, "low": low},
                (COUNT(x.shape[d], x.size(d), d),))
        return Padded(placed, x.shape, with_entry(x.fills, d, value), with_entry(x.lows, d, low))

    def resized(self, x: Padded, d: int, size: int, low: int | None = 0) -> Padded:
        if x.size(d) == size and x.lows[d] in (low, None):
            return Padded(x.atom, x.shape, x.fills, with_entry(x.lows, d, low))
        first = x.lows[d] or 0
        low = first if low is None else low
        repeated = self._repeated(x, d, size)
        if repeated is not None:
            return Padded(repeated, x.shape, with_entry(x.fills, d, None),
                          with_entry(x.lows, d, low))
        known = x.fills[d] if x.is_padded(d) else None
        new = filler(x.atom.aval.dtype) if known is None else known     # masked rows stay masked
        fill = new if size > x.shape[d] and x.holds(d, new) else None
        return Padded(self.moved(x, d, first - low, size, new), x.shape,
                      with_entry(x.fills, d, fill), with_entry(x.lows, d, low))

    def _repeated(self, x: Padded, d: int, size: int) -> Atom | None:
        """A value that repeats another one along a dimension, repeated so often; None if it does
        not.
        """
        eqn = self.out.maker(x.atom)
        if eqn is None or eqn.op is not OPS["broadcast_in_dim"] or eqn.params["sharding"] or (
                d in eqn.params["broadcast_dimensions"]):
            return None
        return self._made(eqn.op.name, eqn.invars, {
            **eqn.params, "shape": with_entry(x.sizes, d, size)})

    def cut(self, x: Padded, d: int) -> Padded:
        if not x.is_padded(d):
            return x
        low, n = x.lows[d] or 0, x.shape[d]
        atom = self._rows(x, d, low, low + n, (COUNT(n, x.size(d), d),))
        return Padded(atom, x.shape, with_entry(x.fills, d, None), with_entry(x.lows, d, 0))

    # -- equations -------------------------------------------------------------------------------

    def as_it_is(self) -> list[Padded]:
        """The equation on unpadded operands."""
        operands = [unpadded(x, self.eqn, self.out).atom for x in self.given]
        self.out.eqns.append(self.eqn.replace(invars=operands))
        return [Padded(v, v.aval.shape) for v in self.eqn.outvars]

    def by_factors(self, operands: Sequence[Padded] | None = None, *,
                   params: dict[str, Any] | None = None, safe: Sequence[int] = (),
                   own: Sequence[int] = ()) -> list[Padded]:
        """As for `PaddedContext`. Operands are brought to one size along each factor, with the same
        rows in front; where the op would see padding, it is filled with a value without effect.
        """
        eqn, op = self.eqn, self.eqn.op
        operands = list(self.operands if operands is None else operands)
        params = self.params if params is None else params
        rule = self.rule
        sizes = self._factor_sizes(rule, operands, safe, own)
        lows = _factor_lows(rule, operands, sizes)
        equal = {f for f in sizes if self._has_equal_rows(rule, f, operands)}
        for i, dims in enumerate(rule.operands):
            for d, split in enumerate(dims):
                if len(split) == 1 and split[0] in own:
                    continue
                size = _size(operands[i].shape[d], split, rule, sizes)
                f, was_padded = major_factor(split, rule), operands[i].is_padded(d)
                operands[i] = self.resized(operands[i], d, size, lows.get(f, 0))
                if f in sizes and f not in safe:
                    value = _harmless(rule, f, params, operands[i].atom.aval.dtype, f in lows)
                    if value is not None:
                        masked = self._masked if was_padded and self.out.masks_always else (
                            self.masked)
                        operands[i] = masked(operands[i], d, value)
        shapes = []
        for t, dims, wanted in zip(self.result_types, rule.results, self.sizes, strict=True):
            shapes.append(tuple([
                w if len(split) == 1 and split[0] in own else _size(n, split, rule, sizes)
                for n, split, w in zip(t.shape, dims, wanted, strict=True)]))
        if op.resize is not None and shapes != [t.shape for t in self.result_types]:
            params = op.resize(params, tuple([x.sizes for x in operands]), tuple(shapes))
        if (params is self.params and shapes == [t.shape for t in self.result_types]):
            results = eqn.outvars
            self.out.eqns.append(eqn.replace(invars=[x.atom for x in operands]))
        else:
            results = self.append(op, [x.atom for x in operands],
                                  [t.update(shape=s) for t, s in zip(self.result_types, shapes,
                                                                     strict=True)], params,
                                  [v.name for v in eqn.outvars])
        return [Padded(v, t.shape, self._fills(rule, k, v, operands, params),
                       [None if f in equal else lows.get(f, 0)
                        for f in (major_factor(split, rule) for split in rule.results[k])])
                for k, (v, t) in enumerate(zip(results, self.result_types, strict=True))]

    def _factor_sizes(self, rule: FactorRule, operands: Sequence[Padded], safe: Sequence[int],
                      own: Sequence[int]) -> dict[int, int]:
        """The padded sizes of the factors along which the equation may run on padding."""
        found: dict[int, int] = {}
        tensors = [*zip(rule.operands, [x.shape for x in operands],
                        [x.sizes for x in operands], strict=True),
                   *zip(rule.results, [t.shape for t in self.result_types], self.sizes,
                        strict=True)]
        refused = {f for dims, _, _ in tensors for split in dims for f in split
                   if f != major_factor(split, rule)}
        for dims, shape, sizes in tensors:
            for split, n, size in zip(dims, shape, sizes, strict=True):
                if size == n or (len(split) == 1 and split[0] in own):
                    continue
                f = major_factor(split, rule)
                if f < 0 or f in refused or not (f in safe or self._takes(rule, f, operands)):
                    continue
                rest = n // rule.factors[f].size
                found[f] = max(found.get(f, 0), -(-size // rest))
        return found

    def _takes(self, rule: FactorRule, f: int, operands: Sequence[Padded]) -> bool:
        """May the operands be padded along this factor?"""
        factor = rule.factors[f]
        types = [*[x.atom.aval for x in operands], *self.result_types]
        for i, (dims, t) in enumerate(zip(rule.operands + rule.results, types, strict=True)):
            if any([f in split for split in dims]):
                if not isinstance(t.dtype, np.dtype):
                    return False
                if (factor.kind in (REDUCE, SCAN) and i < len(operands)
                        and identity(factor.operator, t.dtype) is None):
                    return False
        return factor.kind == PASS and not factor.blocked or factor.kind in (REDUCE, SCAN)

    def _has_equal_rows(self, rule: FactorRule, f: int, operands: Sequence[Padded]) -> bool:
        """Are all rows of results along a factor that passes through equal?"""
        given = [x.is_padded(d) and x.lows[d] is None
                 for x, dims in zip(operands, rule.operands, strict=True)
                 for d, split in enumerate(dims) if f in split]
        return rule.factors[f].kind == PASS and all(given) and (
            bool(given) or self.eqn.op is OPS["broadcast_in_dim"])

    def _fills(self, rule: FactorRule, k: int, result: Var, operands: Sequence[Padded],
               params: dict[str, Any]) -> tuple[Any, ...]:
        """What is known of the padding of a result: one number, or nothing."""
        op, dims = self.eqn.op, rule.results[k]
        fills: list[Any] = [None] * len(dims)
        for d, split in enumerate(dims):
            if result.aval.shape[d] == self.result_types[k].shape[d]:
                continue
            given = [_number_along(x, dims, split) for x, dims in
                     zip(operands, rule.operands, strict=True)]
            if not given or any([g is None for g in given]):
                continue
            if op.rule == ELEMENTWISE and not op.multiple_results:
                with np.errstate(all="ignore"):
                    value = op.evaluate(0, *map(np.asarray, given), **params)   # type: ignore[misc]
                fills[d] = np.asarray(value).astype(result.aval.dtype)[()]
            elif (len(given) == 1 and operands[0].atom.aval.dtype == result.aval.dtype
                  and (not op.arithmetic or _keeps(rule, given[0]))):
                fills[d] = given[0]
        return tuple(fills)


def _size(n: int, split: Sequence[int], rule: FactorRule, sizes: dict[int, int]) -> int:
    """The padded size of a dimension of n rows, from the sizes of its factors."""
    for f in split:
        if f in sizes:
            n = n // rule.factors[f].size * sizes[f]
    return n


def _factor_lows(rule: FactorRule, operands: Sequence[Padded], sizes: dict[int, int]
                 ) -> dict[int, int]:
    """How many rows of padding come first along the factors with these padded sizes, where there
    are any: as many as in the first operand that is padded. None do along a factor of which a
    dimension has others beside it.
    """
    found: dict[int, int] = {}
    for x, dims in zip(operands, rule.operands, strict=True):
        for d, split in enumerate(dims):
            low = x.lows[d]
            if len(split) == 1 and split[0] in sizes and x.is_padded(d) and low is not None:
                found.setdefault(split[0], low)
    beside = {f for dims in (*rule.operands, *rule.results) for split in dims if len(split) > 1
              for f in split}
    return {f: low for f, low in found.items() if low and f not in beside}


def _harmless(rule: FactorRule, f: int, params: dict[str, Any], dtype: np.dtype, in_front: bool
              ) -> Any:
    """The value of padding that has no effect along a factor; None if there is none, or any will
    do. in_front: some of it comes before the first row.
    """
    factor = rule.factors[f]
    if factor.kind == REDUCE or (factor.kind == SCAN and (in_front or params.get("reverse"))):
        return identity(factor.operator, dtype)
    return None


def _keeps(rule: FactorRule, number: Any) -> bool:
    """Is the reduction of copies of this number the number itself?"""
    return any([f.kind == REDUCE and f.operator in ("sum", "prod", "max", "min", "and", "or")
                and same_number(number, identity(f.operator, number.dtype)) for f in rule.factors])


def _number_along(x: Padded, dims: Sequence[Sequence[int]], split: Sequence[int]) -> Any:
    """The number that fills the padding of an operand along all dimensions with these factors."""
    if isinstance(x.atom, Literal):
        return np.asarray(x.atom.val)[()]
    for d, own in enumerate(dims):
        if own and own[0] == split[0]:
            return x.fills[d] if x.is_padded(d) else None
    return None
