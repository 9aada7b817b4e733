"""in_shardings and out_shardings: layouts requested for a jitted function's arguments and results.

Both are tree prefixes. Here they are matched with the leaves of a call, checked against types and
placements, and turned into constraints if the call is inside another trace.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...ir.diagnostics.diagnostic import error, fail
from ...ir.program import Equation, Program, Var
from ...ir.rewriting.inline import inline
from ...ir.rules.factor import PASS
from ...ir.shardings.formats import AutoLayout, Format, Layout, reported_layout
from ...ir.shardings.sharding import Sharding
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ...tracer.staging.signature import Arguments
from ...tracer.trees import tree
from ..execution.arguments import placed_sharding
from .requested_shardings import (
    check_fits,
    check_one_process,
    check_positional,
    constrained,
    is_sharding,
    resolved,
)


class Boundary:
    """in_shardings and out_shardings of a function. api: what users called it by, for messages."""

    def __init__(self, in_shardings: Any, out_shardings: Any, arguments: Arguments,
                 api: str = "jit") -> None:
        self.in_shardings, self.out_shardings = in_shardings, out_shardings
        self.arguments, self.api = arguments, api
        self.asks = in_shardings is not None or out_shardings is not None

    def check(self) -> None:
        """Raises where there is no mesh for a sharding that was asked for."""
        for requested, where in ((self.in_shardings, "in_shardings"),
                                 (self.out_shardings, "out_shardings")):
            for sharding in () if requested is None else tree.leaves(requested, is_sharding):
                resolved(sharding, where, self.api)

    def constrained_arguments(self, leaves: list[Any], in_tree: Any) -> list[Any]:
        """Arguments inside a trace, each constrained to its sharding in in_shardings."""
        args, kwargs = tree.unflatten(in_tree, leaves)
        self.check_kwargs(kwargs)
        names = self.arguments.leaf_names(args, kwargs)

        def check(sharding: Sharding, x: Any, i: int) -> None:
            check_fits(sharding, typeof(x), f"arguments with pytree key path {names[i]}")

        return constrained(leaves, self.argument_prefix(args), "in_shardings", self.api, check)

    def constrained_results(self, results: Sequence[Any], out_tree: Any) -> list[Any]:
        """Results inside a trace, each constrained to its sharding in out_shardings."""
        def check(sharding: Sharding, x: Any, i: int) -> None:
            check_fits(sharding, typeof(x), f"outputs with pytree key path {_result(i, results)}")

        return constrained(results, self._out_prefix(results, out_tree), "out_shardings",
                           self.api, check)

    def result_layouts(self, program: Program, out_tree: Any) -> list[Layout | None]:
        """The layout that out_shardings asks for, for each result; [] if it asks for none."""
        if self.out_shardings is None or not any(
                isinstance(f, Format) for f in tree.leaves(self.out_shardings, is_sharding)):
            return []
        example = tree.unflatten(out_tree, list(program.outvars))
        requested = tree.broadcast_prefix(self.out_shardings, example, is_sharding)
        found: list[Any] = [f.layout if isinstance(f, Format) else None for f in requested]
        if any(isinstance(layout, AutoLayout) for layout in found):
            chosen = auto_layouts(program)
            found = [c if isinstance(layout, AutoLayout) else layout
                     for layout, c in zip(found, chosen, strict=True)]
        return found

    def argument_shardings(self, leaves: Sequence[Any], in_tree: Any, program: Program
                 ) -> list[Sharding | None]:
        """The sharding of each argument: what in_shardings says, else its own.

        ValueError where a committed argument has another one, layout or memory than was asked.
        """
        own = [placed_sharding(x) for x in leaves]
        if self.in_shardings is None:
            return own
        args, _ = tree.unflatten(in_tree, leaves)
        wanted = self.argument_prefix(args)
        out: list[Sharding | None] = []
        for requested, has, v, name, x in zip(wanted, own, program.invars, program.arg_names,
                                              leaves, strict=True):
            sharding = resolved(requested, "in_shardings", self.api)
            if isinstance(requested, Format):
                _check_layout(requested.layout, x, v.aval)
            if sharding is None:
                out.append(has)
                continue
            if isinstance(x, np.ndarray) and not sharding.is_fully_replicated:
                check_one_process(v.aval)
            check_fits(sharding, v.aval, f"arguments with pytree key path {name}")
            if has is not None and has.is_concrete and has.memory_kind != sharding.memory_kind:
                raise error(
                    ValueError, "Memory kinds passed to jax.jit does not match memory kind on the "
                    f"respective arg. Got jit memory kind: {sharding.memory_kind}, arg memory "
                    f"kind: {has.memory_kind} for arg type: {v.aval.update(sharding=None)}",
                    code="in-memory", help="move the argument with `device_put`")
            if has is not None and has.tiling(v.aval.ndim) != sharding.tiling(v.aval.ndim):
                raise error(
                    ValueError, "Sharding passed to jit does not match the sharding on the "
                    f"respective arg. Got jit sharding: {sharding},\narg sharding: {has} for arg "
                    f"type: {v.aval.update(sharding=None)}", code="in-sharding",
                    help="move the argument with `device_put`, or leave in_shardings out")
            out.append(sharding)
        return out

    def result_shardings(self, program: Program, out_tree: Any) -> list[Sharding | None]:
        """The sharding that out_shardings asks for, for each result."""
        if self.out_shardings is None:
            return [None] * len(program.outvars)
        wanted = self._out_prefix(program.outvars, out_tree)
        out = []
        for i, (requested, v) in enumerate(zip(wanted, program.outvars, strict=True)):
            sharding = resolved(requested, "out_shardings", self.api)
            if sharding is not None:
                name = _result(i, wanted)
                check_fits(sharding, v.aval, f"outputs with pytree key path {name}")
            out.append(sharding)
        return out

    def check_donated_layouts(self, program: Program, in_tree: Any, out_tree: Any,
                              donated: Sequence[bool], shardings: Sequence[Sharding | None],
                              result_shardings: Sequence[Sharding | None]) -> None:
        """Raises where a result takes the buffer of a donated argument, as it has its type and is
        split as it, and the layout of just one of the two is to be chosen."""
        def automatic(requested: Any) -> bool:
            return isinstance(requested, Format) and isinstance(requested.layout, AutoLayout)

        if not any(automatic(f) for f in tree.leaves((self.in_shardings, self.out_shardings),
                                                     is_sharding)):
            return
        args, _ = tree.unflatten(in_tree, list(program.invars))
        given = [None] * len(program.invars) if self.in_shardings is None else (
            self.argument_prefix(args))
        requested = [None] * len(program.outvars) if self.out_shardings is None else (
            self._out_prefix(program.outvars, out_tree))

        def kind(v: Any, s: Sharding | None) -> tuple[Any, ...]:
            whole = s is None or s.is_fully_replicated
            return v.aval.shape, v.aval.dtype, None if whole else s

        spare = [(kind(v, s), automatic(f)) for v, f, s, d in zip(
            program.invars, given, shardings, donated, strict=True) if d]
        for v, f, s in zip(program.outvars, requested, result_shardings, strict=True):
            taken = next((x for x in spare if x[0] == kind(v, s)), None)
            if taken is None:
                continue
            spare.remove(taken)
            chosen = taken[1]
            if chosen is not automatic(f):
                what, other = ("Input", "output") if chosen else ("Output", "input")
                was = ["None", "AUTO"]
                raise error(
                    ValueError, f"Input layout being donated was {was[chosen]} while output "
                    f"layout was {was[not chosen]}. Did you mean to set the **{other} layout** "
                    "to **Layout.AUTO**?", code="donated-layout",
                    notes=(f"{what} layouts that are AUTO are chosen, and a result in the buffer "
                           "of an argument has its layout",),
                    help=f"let the {other} have Layout.AUTO too, or do not donate")

    def argument_prefix(self, args: Any) -> list[Any]:
        """The entry of in_shardings for each leaf of the arguments."""
        prefix = tuple(self.in_shardings) if type(self.in_shardings) is list else (
            self.in_shardings)
        check_positional(prefix, tuple(args))
        return tree.broadcast_prefix(prefix, tuple(args), is_sharding, "pjit in_shardings")

    def _out_prefix(self, results: Sequence[Any], out_tree: Any) -> list[Any]:
        """The entry of out_shardings for each leaf of the result."""
        example = tree.unflatten(out_tree, list(results))
        try:
            return tree.broadcast_prefix(
                self.out_shardings, example, is_sharding, "pjit out_shardings")
        except tree.PrefixError:
            found = tree.prefix_mismatches(self.out_shardings, example, is_sharding,
                                           "pjit out_shardings")
            details = "\n".join(found)
            raise ValueError(f"Mismatch details ({len(found)} found):\n{details}") from None

    def check_kwargs(self, kwargs: dict[str, Any]) -> None:
        """Raise ValueError for keyword arguments with in_shardings, which are positional."""
        if kwargs and self.in_shardings is not None:
            raise ValueError("pjit does not support kwargs when in_shardings is specified.")


def _check_layout(layout: Any, x: Any, aval: ArrayType) -> None:
    """Raise unless the argument has the memory layout that in_shardings asks for."""
    if isinstance(layout, Layout):
        layout.check_compatible_aval(aval.shape)
    if layout is None or not isinstance(x, ArrayImpl) or not x.committed:
        return
    own = x.format.layout
    if not isinstance(layout, Layout) or reported_layout(layout) != own:
        fail(ValueError, "Layout passed to jit does not match the layout on the respective arg. "
             f"Got jit layout: {layout},\narg layout: {own} for arg type: "
             f"{aval.update(sharding=None)}.",
             code="in-layout", help="move the argument to that `Format` with `device_put`")


def _result(i: int, results: Sequence[Any]) -> str:
    return "result" if len(results) == 1 else f"result[{i}]"


# -- what `Layout.AUTO` stands for: the layout of a result for which nothing is moved --------------
# Arguments lie row-major. An equation that only permutes, drops or passes on the dimensions of its
# operands leaves elements in the order in which they came; what such equations make of the
# arguments is where a result lies if nobody asked. After what XLA's layout assignment chooses (JAX
# 0.10.2, CPU).

Order = tuple[int, ...]


def auto_layouts(program: Program) -> list[Layout | None]:
    """The layout of each result of a traced program; None where it is row-major.

    >>> program = st.make_jaxpr(lambda x: (x.T + 1, x * 2, x @ x.T))(np.ones((2, 3)))
    >>> [layout and layout.major_to_minor for layout in auto_layouts(program)]
    [(1, 0), None, None]
    """
    program = inline(program)
    orders: dict[Var, Order] = {}                  # of values that do not lie row-major
    for eqn in program.eqns:
        if any(v.aval.ndim > 1 for v in eqn.outvars) and not eqn.op.subprograms:
            orders.update(_orders(eqn, orders))
    return [Layout(orders[v]) if v in orders else None for v in program.outvars]


def _order(v: object, orders: dict[Var, Order]) -> Order:
    return orders.get(v) or tuple(range(v.aval.ndim))       # type: ignore[attr-defined,call-overload]


def _orders(eqn: Equation, orders: dict[Var, Order]) -> dict[Var, Order]:
    """The order of dimensions in memory of the results of an equation."""
    rule, out = eqn.instance.rule(*eqn.types), {}
    for v, dims in zip(eqn.outvars, rule.results, strict=True):
        factors = [f for dim in dims for f in dim]
        if len(factors) != len(dims) or any(rule.factors[f].kind != PASS for f in factors):
            continue
        found = set()
        for x, theirs in zip(eqn.invars, rule.operands, strict=True):
            order = [f for d in _order(x, orders) for f in theirs[d] if f in factors]
            if order:
                found.add(tuple([factors.index(f) for f in order]))
        order = found.pop() if len(found) == 1 else ()
        if len(order) == len(dims) and order != tuple(range(len(dims))):
            out[v] = order
    return out
