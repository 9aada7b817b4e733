"""custom_vjp: a function with a reverse derivative that the user wrote.

    @custom_vjp
    def f(x): ...

    f.defvjp(fwd, bwd)       # fwd(x) -> (f(x), residuals); bwd(residuals, ct) -> (ct of x,)

The call is one equation, `custom_vjp_call`. Differentiated, `fwd` runs at once and the tangents are
an equation `custom_lin` that nothing can do but transpose, by calling `bwd`. Messages are JAX's.
"""
from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ....ir.api_boundary import bound_class
from ....ir.diagnostics.errors import UnexpectedTracerError
from ....ir.dtypes import issubdtype
from ....ir.ops.control.custom import custom_lin_p, custom_vjp_call_p
from ....ir.ops.derivatives import cotangent_type, has_tangent
from ....ir.settings.context import STATE, config, x64_enabled
from ....ir.source.wording import mismatch
from ....ir.types import ArrayType, same_type
from ....ir.values.typeof import typeof
from ...references import transformations
from ...staging.compile_time import runs_eagerly
from ...staging.signature import function_name
from ...staging.tracer import Tracer
from ...trees import tree
from ..call_rules import register
from ..checks import tangent_type
from ..recording import Recording
from ..replay import Scalar, user_code
from ..transpose import zero_cotangent
from .closed_values import closed_values, standing_for, stood_for, with_unused
from .common import (
    SymbolicZero,
    as_called,
    call_program,
    fixed_positions,
    forward_rules,
    named_as,
    positional,
    refuse_closed_over,
    run_known,
    shapes_text,
    split_arguments,
    untouched,
)
from .custom_jvp import inline_split, inline_transpose


@dataclasses.dataclass
class CustomVJPPrimal:
    """An argument of a `fwd` rule with symbolic_zeros: its value, and whether it is moved."""
    value: Any
    perturbed: bool


def custom_vjp_primal_tree_values(tree_of_primals: Any) -> Any:
    """The values in what a `fwd` rule with symbolic_zeros is given, a pytree of CustomVJPPrimal.

    >>> from shardtrace.custom_derivatives import CustomVJPPrimal, custom_vjp_primal_tree_values
    >>> custom_vjp_primal_tree_values({"x": CustomVJPPrimal(2.0, True)})
    {'x': 2.0}
    """
    def value(leaf: Any) -> Any:
        if type(leaf) is not CustomVJPPrimal:
            raise TypeError(f"unexpected leaf type {type(leaf)}")
        return leaf.value

    return tree.map(value, tree_of_primals)


@bound_class
class custom_vjp:
    """A function whose reverse derivative is given by hand (`f.defvjp(fwd, bwd)`).

    fwd(*args) returns (result, residuals); bwd(residuals, cotangent) returns a tuple with a
    cotangent for each argument, or None for zero. nondiff_argnums: arguments that are no arrays;
    bwd gets them in front of the residuals. Forward mode raises TypeError.

    Sharding
      Auto, Explicit: the rules are traced like any code; over Explicit axes a cotangent must have
        its argument's type.
      Manual: arguments and cotangents are each device's blocks. The cotangent of an argument that
        does not vary over an axis must not vary either (`lax.psum`).

    >>> @st.custom_vjp
    ... def clipped(x):
    ...     return x
    >>> clipped.defvjp(lambda x: (x, None), lambda _, ct: (jnp.clip(ct, -1, 1),))
    >>> st.grad(lambda x: 5.0 * clipped(x))(2.0)
    Array(1., dtype=float32, weak_type=True)
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = (),
                 nondiff_argnames: Sequence[str] = ()) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = fixed_positions(fun, nondiff_argnums, nondiff_argnames)
        self.fwd: Callable[..., Any] | None = None
        self.bwd: Callable[..., Any] | None = None
        self.symbolic_zeros = False

    __getattr__ = forward_rules

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any],
               symbolic_zeros: bool = False, optimize_remat: bool = False) -> None:
        """Set `fwd(*args) -> (out, residuals)` and `bwd(*nondiff, residuals, ct) -> cts`.

        bwd gives a tuple with the cotangent of each argument, None where it is zero.
        """
        self.fwd, self.bwd, self.symbolic_zeros = fwd, bwd, symbolic_zeros

    @transformations.with_rules
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = function_name(self.fun)
        if self.fwd is None or self.bwd is None:
            raise AttributeError(f"No VJP defined for custom_vjp function {name} using defvjp.")
        args = positional(self.fun, args, kwargs, "custom_vjp")
        moving, fixed, merge = split_arguments(args, self.nondiff_argnums)
        for x in fixed:
            _refuse_tracers(x)
        leaves, treedef = tree.flatten(tuple(moving))
        if runs_eagerly(leaves):
            return self.fun(*args)
        program, captured, out_tree = call_program(
            lambda *values: self.fun(*merge(values)), leaves, treedef, name)
        closed = closed_values(self.fwd, self.bwd, fixed)
        # As in JAX, derivatives of what is traced here and now see `fwd` alone, not `fun`.
        is_eager = _records(STATE.interpreter)
        rule = _FlatRule(is_eager, self.fwd, self.bwd, merge, fixed, name, treedef, out_tree,
                         [typeof(x) for x in leaves], program.out_avals, closed)
        outs = custom_vjp_call_p.bind(
            *captured, *closed, *leaves, call_jaxpr=with_unused(program, len(captured), closed),
            fwd_jaxpr_thunk=rule, bwd=rule.backward, num_consts=len(captured) + len(closed),
            symbolic_zeros=self.symbolic_zeros)
        return tree.unflatten(out_tree, outs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


def _records(interpreter: Any) -> bool:
    """Whether the current trace is recorded for a derivative, perhaps one example of several."""
    while interpreter is not None and not isinstance(interpreter, Recording):
        interpreter = getattr(interpreter, "outer", None)
    return interpreter is not None


def _refuse_tracers(x: Any) -> None:
    if any(isinstance(leaf, Tracer) for leaf in tree.leaves(x)):
        raise UnexpectedTracerError(
            "Found a JAX Tracer object passed as an argument to a custom_vjp function in a "
            "position indicated by nondiff_argnums as non-differentiable. Tracers cannot be passed "
            "as non-differentiable arguments to custom_vjp functions; instead, nondiff_argnums "
            "should only be used for arguments that can't be or contain JAX tracers, e.g. "
            "function-valued arguments. In particular, array-valued arguments should typically not "
            "be indicated as nondiff_argnums.")


class _FlatRule:
    """The user's two functions, on flat values, with JAX's checks of what they return.

    Calling it is `fwd`: (primals, moved, closed) -> results, residuals; moved: which have a
    tangent. closed: the values that the two close over, None where these have tangents.
    """

    __name__: str

    def __init__(self, is_eager: bool, fwd: Callable[..., Any], bwd: Callable[..., Any],
                 merge: Callable[[Sequence[Any]], list[Any]], fixed: Sequence[Any], name: str,
                 in_tree: Any, out_tree: Any, in_types: Sequence[ArrayType],
                 out_types: Sequence[ArrayType], closed: Sequence[Any]) -> None:
        named_as(self, fwd)
        self.closed, self.x64 = closed, x64_enabled()
        self.is_eager = is_eager
        self.fwd, self.bwd, self.name = fwd, functools.partial(bwd, *fixed), name
        self.merge, self.in_tree, self.out_tree = merge, in_tree, out_tree
        self.in_types, self.out_types = tuple(in_types), tuple(out_types)
        self.backward = _FlatBackward(self, bwd)

    def __call__(self, primals: Sequence[Any], moved: Sequence[bool], symbolic: bool,
                 closed: Sequence[Any]) -> tuple[list[Any], list[Any], Any]:
        with standing_for(self.closed, closed), as_called(self):
            outs, res, res_tree = self._run(primals, moved, symbolic)
            known = tuple(x is not None for x in closed)
            return (stood_for(outs), stood_for(res) + [x for x in closed if x is not None],
                    (res_tree, known))

    def _run(self, primals: Sequence[Any], moved: Sequence[bool], symbolic: bool
             ) -> tuple[list[Any], list[Any], Any]:
        """Call the user's `fwd` on pytrees: (results, residuals, tree of these), with the results
        checked against the function's.
        """
        given = ([CustomVJPPrimal(x, m) for x, m in zip(primals, moved, strict=True)]
                 if symbolic else primals)
        pair = self.fwd(*self.merge(tree.unflatten(self.in_tree, given)))
        name, out = self.name, "primal output"
        start = (f"Custom VJP fwd rule {self.__name__} for function {name} must produce a pair "
                 f"(list or tuple of length two) where the first element represents the {out} ")
        residuals = ("second element represents residuals (i.e. values stored from the forward "
                     "pass for use on the backward pass), but instead ")
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"{start}(equal to those of the custom_vjp-decorated function {name}) "
                            f"and the {residuals}of a pair the fwd rule {self.__name__} produced "
                            f"{pair}.")
        outs, out_tree = tree.flatten(pair[0])
        res, res_tree = tree.flatten(pair[1])
        types = [typeof(x) for x in outs]
        what = None
        if out_tree != self.out_tree:
            what, end = "container/pytree structure", "."
        elif not all(map(same_type, types, self.out_types)):
            what, end = "shapes/dtypes", ""
        if what is not None:
            of = " of" if not end else ""
            raise TypeError(
                f"{start}(equal to the output of the custom_vjp-decorated function {name}) and the "
                f"{residuals}the fwd rule output's first element had {what}{of}:\n"
                f"    {shapes_text(out_tree, types)}\nwhile the custom_vjp-decorated function "
                f"{name} had output {what}{of}:\n"
                f"    {shapes_text(self.out_tree, self.out_types)}{end}")
        return outs, res, res_tree


class _FlatBackward:
    """`bwd` on flat values: (residuals, their tree, cotangents) -> cotangents, None where zero."""

    def __init__(self, rule: _FlatRule, bwd: Callable[..., Any]) -> None:
        named_as(self, bwd)
        self.rule = rule

    def __call__(self, residuals: Sequence[Any], res_tree: Any, cts: Sequence[Any]) -> list[Any]:
        rule, (res_tree, known) = self.rule, res_tree
        count = len(residuals) - sum(known)
        kept = iter(residuals[count:])
        with (standing_for(rule.closed, [next(kept) if k else None for k in known]),
              as_called(rule)):
            return stood_for(self._run(residuals[:count], res_tree, cts))

    def _run(self, residuals: Sequence[Any], res_tree: Any, cts: Sequence[Any]) -> list[Any]:
        """Call the user's `bwd` on pytrees, and check that there is a cotangent for each argument,
        of its type.
        """
        rule = self.rule
        residuals = [bool(x) if type(x) is Scalar and x.aval.dtype == np.bool_ else x
                     for x in residuals]         # Python's choices by them are made while tracing
        answer = rule.bwd(tree.unflatten(res_tree, residuals), tree.unflatten(rule.out_tree, cts))
        example = tree.unflatten(rule.in_tree, [_Leaf(t) for t in rule.in_types])
        if isinstance(answer, list) and len(answer) == len(example):
            answer = tuple(answer)
        found: list[Any] = []
        try:
            if not isinstance(answer, tuple) or len(answer) != len(example):
                raise ValueError
            for ct, like in zip(answer, example, strict=True):
                found += _aligned(ct, like)
        except ValueError:
            raise TypeError(
                "Custom VJP bwd rule must produce an output with the same container (pytree) "
                "structure as the args tuple of the primal function, and in particular must "
                "produce a tuple of length equal to the number of arguments to the primal "
                f"function, but got bwd output structure {tree.structure(answer)} for primal input "
                f"structure {rule.in_tree}.") from None
        paths = [tree.keystr(p) for p, _ in tree.leaves_with_path(example)]
        return [_checked(ct, t, path)
                for ct, t, path in zip(found, rule.in_types, paths, strict=True)]


class _Leaf:
    """Stands for an argument in a pytree of them."""

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval


def _aligned(ct: Any, like: Any) -> list[Any]:
    """The cotangent's leaves, one for each of the argument's; None for a subtree that has none."""
    count = len(tree.leaves(like))
    if ct is None or isinstance(ct, SymbolicZero):
        return [ct] * count

    def is_leaf(x: Any) -> bool:
        return x is None or isinstance(x, SymbolicZero)

    flat, treedef = tree.flatten(ct, is_leaf)
    parts = treedef.flatten_up_to(like) if treedef != tree.structure(like) else tree.leaves(like)
    out: list[Any] = []
    for x, part in zip(flat, parts, strict=True):
        inside = len(tree.leaves(part))
        if inside != 1 and x is not None:
            raise ValueError
        out += [x] * inside
    if len(out) != count:
        raise ValueError
    return out


def _checked(ct: Any, t: ArrayType, path: str) -> Any:
    """A cotangent that `bwd` returned, or None for zero; refused if it is not of its argument's
    type. path: of the argument, for the message.
    """
    if ct is None or not has_tangent(t.dtype):
        return None
    if isinstance(ct, SymbolicZero):
        if ct.shape != t.shape:
            raise ValueError(
                "Custom VJP bwd rule must produce a SymbolicZero with the same type as the args "
                f"tuple of the primal function, but at output{path} it is of type "
                f"{ct.aval.str_short()} for an input of type {t.str_short()}. Consider just "
                "returning a None here instead.")
        return None
    want, have = cotangent_type(t), typeof(ct)
    # As in JAX, a cotangent may be of another floating dtype than its argument.
    if not config.jax_disable_bwd_checks and not same_type(want, have) and not (
            issubdtype(have.dtype, np.inexact) and same_type(want.update(dtype=have.dtype), have)):
        raise ValueError(
            "Custom VJP bwd rule must produce an output with the same type as the args tuple of "
            f"the primal function, but at output{path} the bwd rule produced an output of type "
            f"{have.str_short()} corresponding to an input of type {t.str_short()}"
            f"{mismatch(have, want)}")
    return ct


# -- the rules of the equations --------------------------------------------------------------------

def _jvp(operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
         ) -> tuple[list[Any], list[Any]]:
    """`fwd` run at once, and a `custom_lin` equation of the tangents, which transposing replaces by
    `bwd`. Untouched if no operand has a tangent.
    """
    count, rule = params["num_consts"], params["fwd_jaxpr_thunk"]
    first = count - len(getattr(rule, "closed", ()))
    if all(t is None for t in (*tangents[:first], *tangents[count:])):
        return untouched(custom_vjp_call_p, operands, params)
    if not rule.is_eager or all(t is None for t in tangents[count:]):
        refuse_closed_over(tangents[:first], "custom_vjp", "custom VJP rule")
    closed = [x if t is None else None
              for x, t in zip(operands[first:count], tangents[first:count], strict=True)]
    moved = tuple(t is not None for t in tangents[count:])
    trees: list[Any] = []

    def run(*primals: Any) -> list[Any]:
        outs, res, res_tree = rule(primals, moved, params["symbolic_zeros"], closed)
        trees.append((len(outs), res_tree))
        return [*outs, *res]

    values = run_known(run, operands[count:], rule)
    n, res_tree = trees[-1]
    outs, res = values[:n], values[n:]
    types = tuple(typeof(x) for x in outs)
    floats = tuple(has_tangent(t.dtype) for t in types)
    found = iter(custom_lin_p.bind(
        *res, *(t for t in tangents[count:] if t is not None), num_res=len(res), res_tree=res_tree,
        bwd=params["bwd"], moved=moved, symbolic_zeros=params["symbolic_zeros"], out_types=types,
        out_avals=tuple(t for t, f in zip(types, floats, strict=True) if f)))
    return outs, [next(found) if f else None for f in floats]


def _lin_transpose(cts: Sequence[Any], operands: Sequence[Any], params: dict[str, Any]
                   ) -> list[Any]:
    """Call `bwd` on residuals and cotangents, with zeros for those that are missing."""
    given = iter(cts)
    filled = []
    for t in params["out_types"]:
        ct = next(given) if has_tangent(t.dtype) else None
        if ct is None:
            ct = (SymbolicZero(tangent_type(cotangent_type(t))) if params["symbolic_zeros"] else
                  zero_cotangent(t))
        filled.append(ct)
    count = params["num_res"]
    with user_code(params["bwd"]):
        found = params["bwd"](operands[:count], params["res_tree"], filled)
    return [None] * count + [ct for ct, m in zip(found, params["moved"], strict=True) if m]


def _lin_jvp(operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]) -> Any:
    raise TypeError("can't apply forward-mode autodiff (jvp) to a custom_vjp function.")


register("custom_vjp_call", jvp=_jvp, split=inline_split, transpose=inline_transpose)
register("custom_lin", jvp=_lin_jvp, transpose=_lin_transpose)
