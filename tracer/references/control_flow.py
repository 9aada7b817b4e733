"""Loops and branches whose functions read and write references.

What a body writes becomes a further part of the carry, and what a branch writes a further result of
all of them, so the loop or branch itself sees functions of arrays. Each decorator wraps the public
function, and does nothing if there are no references.
"""
from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...ir.ops.control.loops_and_branches import item_type
from ...ir.values.typeof import typeof
from ..trees import tree
from .frames import (
    BOXES,
    TRACED_FOR,
    running,
    traced_for,
    unwritten,
    write_all,
    written_by,
)
from .passing import named_references, passing, refuse_carried
from .ref import AnyRef, inner_refs, last_values, references


def scans(scan: Callable[..., Any]) -> Callable[..., Any]:
    """`scan(f, init, xs, ...)`: a reference among `xs` is one to the item in `f`."""
    @functools.wraps(scan)
    def wrapped(f: Any, init: Any, xs: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not BOXES.data or not callable(f):
            TRACED_FOR.stack.append("scan")
            try:
                return scan(f, init, xs, *args, **kwargs)
            finally:
                TRACED_FOR.stack.pop()
        refuse_carried(f, "scan", init, xs)
        leaves, xs_tree = tree.flatten(xs)
        places = references(leaves)
        if not places:
            with traced_for("scan"):
                done, result = unwritten(scan, f, init, xs, *args, **kwargs)
            if done:
                return result
        given = [leaves[i] for i in places]
        passed = passing(f, "scan", named_references(f, "scan", (init, xs)))
        arrays = [x[...] if isinstance(x, AnyRef) else x for x in leaves]

        def step(carry: Any, given: Any) -> Any:
            items = [*given]
            refs = inner_refs([items[i] for i in places])
            for i, ref in zip(places, refs, strict=True):
                items[i] = ref
            with passed:
                pair: Any = f(carry, tree.unflatten(xs_tree, items))
            carry, y = pair
            return carry, (y, last_values(refs))

        boxes = written_by(step, init, [item_type(typeof(x)) for x in arrays])
        pure = running(step, boxes)

        def body(carry: Any, items: Any) -> Any:
            (own, y), values = pure(carry[1], carry[0], items)
            return (own, values), y

        (last, values), (ys, items) = scan(body, (init, [b.read() for b in boxes]), arrays, *args,
                                           **kwargs)
        write_all(boxes, values)
        for ref, value in zip(given, items, strict=True):
            ref[...] = value
        return last, ys

    return wrapped


def while_loops(while_loop: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps `while_loop`: the boxes that the body writes are carried along."""
    @functools.wraps(while_loop)
    def wrapped(cond_fun: Any, body_fun: Any, init_val: Any) -> Any:
        if not BOXES.data or not callable(body_fun):
            TRACED_FOR.stack.append("while_body")
            try:
                return while_loop(cond_fun, body_fun, init_val)
            finally:
                TRACED_FOR.stack.pop()
        refuse_carried(body_fun, "while_body", init_val)
        with traced_for("while_body"):
            done, result = unwritten(while_loop, cond_fun, body_fun, init_val)
        if done:
            return result
        boxes = written_by(body_fun, init_val)
        test, body = running(cond_fun, boxes), running(body_fun, boxes)
        last, values = while_loop(lambda carry: test(carry[1], carry[0])[0],
                                  lambda carry: body(carry[1], carry[0]),
                                  (init_val, [b.read() for b in boxes]))
        write_all(boxes, values)
        return last

    return wrapped


def branching(choose: Callable[..., Any]) -> Callable[..., Any]:
    """`choose(..., branches, names, operands)`: what any of the branches writes, all give."""
    @functools.wraps(choose)
    def wrapped(what: Any, chosen: Any, index: Any, branches: Any, names: Any, operands: Any
                ) -> Any:
        if not BOXES.data:
            TRACED_FOR.stack.append(what)
            try:
                return choose(what, chosen, index, branches, names, operands)
            finally:
                TRACED_FOR.stack.pop()
        leaves, treedef = tree.flatten(operands)
        places = references(leaves)
        if places:
            fixed = {i: leaves[i] for i in places}
            for f in branches:
                named_references(f, what, operands)
            branches = [with_fixed(f, treedef, fixed) for f in branches]
            operands = tuple(x for i, x in enumerate(leaves) if i not in fixed)
        with traced_for(what):
            done, result = unwritten(choose, what, chosen, index, branches, names, operands)
        if done:
            return result
        boxes: dict[Any, None] = {}
        for f in branches:
            boxes.update(dict.fromkeys(written_by(f, *operands)))
        pure = [running(f, list(boxes)) for f in branches]
        result, values = choose(what, chosen, index, tuple(pure), names,
                                ([b.read() for b in boxes], *operands))
        write_all(list(boxes), values)
        return result

    return wrapped


def with_fixed(f: Callable[..., Any], treedef: Any, fixed: dict[int, Any]) -> Callable[..., Any]:
    """`f` as a function of the leaves of its arguments but for these."""
    @functools.wraps(f)
    def moved(*rest: Any) -> Any:
        left = iter(rest)
        return f(*tree.unflatten(treedef, [fixed[i] if i in fixed else next(left)
                                           for i in range(treedef.num_leaves)]))

    return moved
