"""Transformations of functions that read and write references.

What a function writes becomes an extra result, so that a derivative, a batch or a `checkpoint` sees
a function of arrays. Each decorator wraps the public function, and does nothing if there are no
references.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.values.typeof import typeof
from ..staging.signature import function_name
from ..staging.tracer import Tracer
from ..trees import tree
from .control_flow import with_fixed
from .custom_vjp_rules import in_python, note_rule, runs_in_python
from .frames import (
    BOXES,
    TRACED_FOR,
    Box,
    Frame,
    running,
    traced_for,
    unwritten,
    write_all,
    written_by,
)
from .passing import named_references
from .ref import AnyRef, inner_refs, last_values, references, refuse_result


def differentiating(transform: Callable[..., Any], of_arguments: bool = True
                    ) -> Callable[..., Any]:
    """`transform(f, *args, has_aux=False, ...)`, whose result has the auxiliary data last: what
    `f` writes is such. of_arguments: whether `args` are those of `f`."""
    @functools.wraps(transform)
    def wrapped(fun: Any, *args: Any, has_aux: bool = False, **kwargs: Any) -> Any:
        if not BOXES.data or not callable(fun):
            return transform(fun, *args, has_aux=has_aux, **kwargs)
        given = named_references(fun, transform.__name__, args) if of_arguments else {}
        if given:
            *answer, (aux, values) = wrapped(
                _of_values(fun, has_aux, args, given), *tree.map(_content, args), has_aux=True,
                **kwargs)
            for ref, value in zip(given, values, strict=True):
                ref[...] = value
            return (*answer, aux) if has_aux else tuple(answer)
        boxes: list[Any] = []
        *answer, (aux, values) = in_python(transform, _auxiliary(fun, has_aux, boxes), *args,
                                           has_aux=True, **kwargs)
        write_all(boxes, values)
        return (*answer, aux) if has_aux else tuple(answer)

    return wrapped


def _content(x: Any) -> Any:
    return x[...] if isinstance(x, AnyRef) else x


def _of_values(fun: Callable[..., Any], has_aux: bool, args: Any, given: dict[AnyRef, str]
               ) -> Callable[..., Any]:
    """`fun` as a function of what the references among its arguments hold, with what they hold
    afterwards in its auxiliary data."""
    treedef = tree.structure(args)
    places = references(tree.leaves(args))

    @functools.wraps(fun, updated=())
    def pure(*values: Any) -> Any:
        leaves = tree.leaves(values)
        refs = inner_refs([leaves[i] for i in places], list(given.values()))
        for i, ref in zip(places, refs, strict=True):
            leaves[i] = ref
        result, aux = fun(*tree.unflatten(treedef, leaves)), None
        if has_aux:
            result, aux = result
        return result, (aux, last_values(refs))

    return pure


def with_gradients(value_and_grad: Callable[..., Any]) -> Callable[..., Any]:
    """`value_and_grad(f, ..., has_aux=False, ...)`, a function."""
    @functools.wraps(value_and_grad)
    def wrapped(fun: Any, argnums: Any = 0, has_aux: bool = False, *rest: Any, **kwargs: Any
                ) -> Any:
        derived = value_and_grad(fun, argnums, has_aux, *rest, **kwargs)

        @functools.wraps(derived)
        def value_and_grad_f(*args: Any, **named: Any) -> Any:
            if not BOXES.data:
                return derived(*args, **named)
            boxes: list[Any] = []
            pure = value_and_grad(_auxiliary(fun, has_aux, boxes), argnums, True, *rest, **kwargs)
            (value, (aux, values)), g = in_python(pure, *args, **named)
            write_all(boxes, values)
            return ((value, aux) if has_aux else value), g

        value_and_grad_f.__wrapped__ = fun      # type: ignore[attr-defined]
        return value_and_grad_f

    return wrapped


def _auxiliary(fun: Callable[..., Any], has_aux: bool, boxes: list[Any]) -> Callable[..., Any]:
    """`fun`, with what it writes in its auxiliary data; `boxes` then holds which these are."""
    @functools.wraps(fun, updated=())
    def pure(*args: Any, **kwargs: Any) -> Any:
        with Frame() as frame:
            result, aux = fun(*args, **kwargs), None
            if has_aux:
                if not isinstance(result, (tuple, list)) or len(result) != 2:
                    return result               # which is refused as it is
                result, aux = result
            boxes[:] = frame.written
            return result, (aux, [box.value for box in boxes])

    return pure


class OutAxesWithReferences(tuple):
    """`out_axes` of what `mapped` maps: those that the user gave, and those of references."""


def mapped(vmap_call: Callable[..., Any]) -> Callable[..., Any]:
    """`vmap_call(fun, args, kwargs, in_axes, out_axes, ...)`: references are mapped as arrays are,
    and what is closed over is one for all examples."""
    @functools.wraps(vmap_call)
    def wrapped(fun: Any, args: Any, kwargs: Any, in_axes: Any, out_axes: Any, *rest: Any) -> Any:
        if not BOXES.data:
            return vmap_call(fun, args, kwargs, in_axes, out_axes, *rest)
        leaves, treedef = tree.flatten((args, kwargs))
        places = references(leaves)
        dims = _dims(in_axes, args, kwargs) if places else []
        named_references(fun, "vmap", args, kwargs)
        boxes: list[Any] = []

        def pure(*inner_args: Any, **inner_kwargs: Any) -> Any:
            with Frame() as frame:
                refs = []
                if places:
                    values = tree.leaves((inner_args, inner_kwargs))
                    refs = inner_refs([values[i] for i in places])
                    for i, ref in zip(places, refs, strict=True):
                        values[i] = ref
                    inner_args, inner_kwargs = tree.unflatten(treedef, values)
                result = fun(*inner_args, **inner_kwargs)
                boxes[:] = frame.written
                _refuse_mapped(boxes)
                return result, last_values(refs), [b.value for b in boxes]

        given = [leaves[i] for i in places]
        if places:
            args, kwargs = tree.unflatten(treedef, [
                x[...] if isinstance(x, AnyRef) else x for x in leaves])
        pure.__name__ = getattr(fun, "__name__", type(fun).__name__)
        pure.__wrapped__ = fun                      # type: ignore[attr-defined] - its parameters
        own = [dims[i] for i in places]
        result, values, closed = vmap_call(pure, args, kwargs, in_axes,
                                           OutAxesWithReferences((out_axes, own, None)), *rest)
        for ref, value in zip(given, values, strict=True):
            ref[...] = value
        write_all(boxes, closed)
        return result

    return wrapped


def _refuse_mapped(boxes: Sequence[Box]) -> None:
    """A reference from outside cannot hold what differs from example to example."""
    for box in boxes:
        value = box.value
        if isinstance(value, Tracer) and getattr(value.variable, "dim", None) is not None:
            fail(ValueError, "performing a set/swap operation with vmapped value on an unbatched "
                 f"array reference of type Ref{{{typeof(value).str_short()}}}. Move the array "
                 "reference to be an argument to the vmapped function?", code="mapped-ref",
                 help="pass the reference, with one more dimension, as an argument")


def _dims(in_axes: Any, args: Any, kwargs: Any) -> list[Any]:
    """The mapped dimension of each leaf of the arguments."""
    own = ([in_axes] * len(tree.leaves(args)) if in_axes is None or isinstance(in_axes, int)
           else tree.broadcast_prefix(in_axes, args, name="vmap in_axes"))
    return [*own, *[0] * len(tree.leaves(kwargs))]


def recomputed(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call(fun, prevent_cse, policy, *args)`, which traces `fun(*args)` as one equation."""
    @functools.wraps(call)
    def wrapped(fun: Callable[..., Any], prevent_cse: bool, policy: Any, *args: Any) -> Any:
        if not BOXES.data:
            TRACED_FOR.stack.append("checkpoint / remat")
            try:
                return call(fun, prevent_cse, policy, *args)
            finally:
                TRACED_FOR.stack.pop()
        if runs_in_python():
            return fun(*args)
        leaves, treedef = tree.flatten(args)
        fixed = {i: leaves[i] for i in references(leaves)}
        if fixed:
            fun = with_fixed(fun, treedef, fixed)
            fun.__dict__.pop("traces", None)            # those are of the function of arrays
            args = tuple(x for i, x in enumerate(leaves) if i not in fixed)
        with traced_for("checkpoint / remat"):
            done, result = unwritten(call, fun, prevent_cse, policy, *args)
        if done:
            return result
        boxes = written_by(fun, *args)
        result, values = call(running(fun, boxes), prevent_cse, policy, [b.read() for b in boxes],
                              *args)
        write_all(boxes, values)
        return result

    return wrapped


def with_rules(call: Callable[..., Any]) -> Callable[..., Any]:
    """`call(rule, *args)` of a `custom_vjp` function: references among the arguments are closed
    over by the function and its rules, and may be residuals."""
    @functools.wraps(call)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        places = references(args) if BOXES.data else []
        if not places or self.fwd is None:
            return call(self, *args, **kwargs)
        note_rule()
        closed = _ClosedRule(self, args, places)
        named_references(self.fun, "custom_vjp", args, kwargs)

        def fun(*rest: Any) -> Any:
            return closed.fun(rest)

        fun.__name__ = getattr(self.fun, "__name__", "fun")
        pure = type(self)(fun, [i - sum(j < i for j in places) for i in self.nondiff_argnums])
        pure.fwd, pure.bwd, pure.symbolic_zeros = closed.fwd, closed.bwd, self.symbolic_zeros
        return call(pure, *[x for i, x in enumerate(args) if i not in closed.fixed], **kwargs)

    return wrapped


class _ClosedRule:
    """A `custom_vjp` function and its rules, with the references among the arguments closed over.

    fixed: these, by position. treedef, refs: of the residuals, the tree and the references.
    """

    def __init__(self, rule: Any, args: tuple[Any, ...], places: Sequence[int]) -> None:
        self.rule, self.count = rule, len(args)
        self.fixed = {i: args[i] for i in places}
        self.treedef: Any = None
        self.refs: dict[int, Any] = {}

    def merged(self, rest: Sequence[Any]) -> list[Any]:
        """All arguments, from those that are no references."""
        left = iter(rest)
        return [self.fixed[i] if i in self.fixed else next(left) for i in range(self.count)]

    def fun(self, rest: Sequence[Any]) -> Any:
        result = self.rule.fun(*self.merged(rest))
        for x in tree.leaves(result):
            if isinstance(x, AnyRef):
                refuse_result(function_name(self.rule.fun), x, "custom_vjp")
        return result

    def fwd(self, *rest: Any) -> Any:
        """The user's `fwd` without references: those among its residuals are kept here."""
        before = Box.made
        out, residuals = self.rule.fwd(*self.merged(rest))
        leaves, self.treedef = tree.flatten(residuals)
        for x in tree.leaves((out, leaves)):
            if isinstance(x, AnyRef) and x._box.number > before:
                refuse_result(f"{function_name(self.rule.fwd)}, the custom_vjp fwd function of "
                              f"{function_name(self.rule.fun)},", x, "custom_vjp")
        self.refs = {i: leaves[i] for i in references(leaves)}
        return out, [x for x in leaves if not isinstance(x, AnyRef)]

    def bwd(self, *given: Any) -> Any:
        *nondiff, arrays, ct = given
        left = iter(arrays)
        residuals = tree.unflatten(self.treedef, [self.refs[i] if i in self.refs else next(left)
                                                  for i in range(self.treedef.num_leaves)])
        cts = self.rule.bwd(*nondiff, residuals, ct)
        moving = [i for i in range(self.count) if i not in self.rule.nondiff_argnums]
        return tuple(x for i, x in zip(moving, cts, strict=True) if i not in self.fixed)
