"""Checks for aliasing: a reference may be passed to a function only once, and not also closed over.

A function whose references are extra arguments and results would otherwise not see, under one name,
what it wrote under another, and one of the two values written back would be lost.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.control.loops_and_branches import item_type
from ...ir.values.typeof import typeof
from ..staging.signature import Arguments, function_name
from ..staging.staging import trace_to_program
from ..trees import tree
from .frames import PASSED, Box, Frame
from .ref import AnyRef, TransformedRef, inner_refs, references, refuse_result


def refuse_repeated(f: Callable[..., Any], what: str, given: Sequence[AnyRef], names: Sequence[str]
                    ) -> None:
    """Raise ValueError for a reference that is given twice. what: "jit", "scan", ..."""
    for i, ref in enumerate(given):
        for j in range(i):
            if given[j]._box is ref._box:
                fail(ValueError,
                     "only one reference to a mutable array may be passed as an argument to a "
                     f"function, but when tracing {function_name(f)} for {what} the mutable array "
                     f"reference of type {ref.whole} appeared at both {names[j]} and {names[i]}.",
                     code="repeated-ref", help="pass it once")


def named_references(f: Callable[..., Any], what: str, args: Sequence[Any],
                     kwargs: dict[str, Any] | None = None) -> dict[AnyRef, str]:
    """The references among the arguments of `f`, and what it calls them; each is passed once."""
    leaves = tree.leaves((tuple(args), kwargs or {}))
    places = references(leaves)
    if not places:
        return {}
    names = Arguments(f, None, None, None, None).leaf_names(args, kwargs or {})
    given = [leaves[i] for i in places]
    for i in places:
        if what == "vmap" and isinstance(leaves[i], TransformedRef):
            fail(TypeError, f"When tracing {function_name(f)} for vmap, TransformedRefs are not "
                 f"allowed, but got a TransformedRef with name {names[i]}.", code="mapped-ref",
                 help="pass the reference itself, and take its elements in the function")
    refuse_repeated(f, what, given, [names[i] for i in places])
    return dict(zip(given, [names[i] for i in places], strict=True))


def refuse_carried(f: Callable[..., Any], what: str, init: Any, xs: Any = None) -> None:
    """Raise the most specific error for `f(carry, ...)` where a carry holds references, which
    cannot be results.
    """
    leaves, treedef = tree.flatten(init)
    places = references(leaves)
    if not places:
        return
    given = named_references(f, what, (init,) if xs is None and what != "scan" else (init, xs))
    inner = iter(inner_refs([leaves[i][...] for i in places], list(given.values())))
    refs = {i: next(inner) for i in places}
    items, items_tree = tree.flatten(xs)
    others = [x for i, x in enumerate(leaves) if i not in refs]

    def run(*values: Any) -> list[Any]:
        rest = iter(values)
        carry = tree.unflatten(treedef, [refs[i] if i in refs else next(rest)
                                         for i in range(len(leaves))])
        result = f(carry, tree.unflatten(items_tree, list(rest))) if what == "scan" else f(carry)
        for x in tree.leaves(result):
            if isinstance(x, AnyRef):
                refuse_result(function_name(f), x, what)
        return []

    with passing(f, what, given), Frame():
        trace_to_program(run, [*map(typeof, others), *(item_type(typeof(
            x[...] if isinstance(x, AnyRef) else x)) for x in items)], name=function_name(f))
    ref, name = next(iter(given.items()))
    fail(TypeError, f"{what} body function carry input and carry output must have equal types, but "
         f"they differ: the input carry {name} is a reference of type {ref.whole}, and no result "
         "can be one", code="carried-ref", help="let the function close over the reference")


class passing:
    """While `f` runs on stand-ins for these references: it closes over none of them."""

    __slots__ = ("names", "what")

    def __init__(self, f: Callable[..., Any], what: str, given: dict[AnyRef, str]) -> None:
        self.what = f"{function_name(f)} for {what}"
        self.names: dict[Box, tuple[AnyRef, str]] = {r._box: (r, name) for r, name in given.items()}

    def __enter__(self) -> None:
        PASSED.stack.append(self)

    def __exit__(self, *exc: object) -> None:
        PASSED.stack.remove(self)

    def check(self, box: Box) -> None:
        """Raise ValueError for a reference that is read or written by another name."""
        if box in self.names:
            ref, name = self.names[box]
            fail(ValueError, f"when tracing {self.what}, a mutable array reference of type "
                 f"{ref.whole} was both closed over and passed as the argument {name}",
                 code="repeated-ref", help="use one of the two")
