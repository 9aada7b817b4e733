"""custom_vmap: a function with a batching rule written by the user.

    @custom_vmap
    def f(x, y): ...

    @f.def_vmap
    def rule(axis_size, in_batched, xs, ys):
        return results, out_batched

The call is a `custom_jvp_call` whose rule has a `batch` besides the derivative. The derivative of f
is again such a function, of values and tangents, whose rule is the derivative of the user's rule.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.api_boundary import bound_class
from ...ir.diagnostics.diagnostic import fail
from ...ir.ops.control.custom import custom_jvp_call_p
from ...ir.ops.derivatives import has_tangent
from ...ir.settings.context import STATE
from ...ir.values.typeof import typeof
from .. import lax
from ..autodiff.custom.common import ONE, call_program, forward_rules, function_name, positional
from ..autodiff.forward import zero_tangent
from ..autodiff.grad import jvp
from ..trees import tree
from .interpreter import map_flat
from .rules import Batched, MappedAxis, move_dim


@bound_class
class custom_vmap:
    """A function whose behaviour under `vmap` is given by `f.def_vmap`.

    The rule gets the size of the mapped axis, for each argument a tree of bools that say which
    leaves are mapped (those along their first dimension), and the arguments; it returns the results
    and a tree of bools that say which of them are mapped, along their first dimension. Elsewhere
    the function is what it computes. Derivatives in forward mode are those of the function, and of
    the rule where they are mapped; in reverse mode, those of the rule where `grad` is around the
    `vmap`, and those of the function where it is inside.

    >>> @st.custom_batching.custom_vmap
    ... def f(x):
    ...     return x + 1
    >>> @f.def_vmap
    ... def rule(axis_size, in_batched, xs):
    ...     return xs + 100, in_batched[0]
    >>> f(1.0), st.vmap(f)(jnp.zeros(2))
    (2.0, Array([100., 100.], dtype=float32))
    """

    def __init__(self, fun: Callable[..., Any]) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.vmap_rule: Callable[..., Any] | None = None

    def def_vmap(self, vmap_rule: Callable[..., Any]) -> Callable[..., Any]:
        """Set the rule: `rule(axis_size, in_batched, *args) -> (results, out_batched)`."""
        self.vmap_rule = vmap_rule
        return vmap_rule

    __getattr__ = forward_rules

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        name = function_name(self.fun)
        if self.vmap_rule is None:
            fail(AttributeError, f"No batching rule defined for custom_vmap function {name} using "
                                 "def_vmap",
                 help="give it one, by `def_vmap`")
        args = positional(self.fun, args, kwargs, "custom_vmap")
        if STATE.interpreter is None:
            return self.fun(*args)
        leaves, treedef = tree.flatten_tuple(args)
        program, captured, out_tree = call_program(self.fun, leaves, treedef, name)
        rule = _Rule(self.fun, self.vmap_rule, treedef, out_tree, name)
        outs = custom_jvp_call_p.bind(
            *captured, *leaves, call_jaxpr=program, jvp_jaxpr_fun=rule, num_consts=len(captured),
            symbolic_zeros=False)
        return outs[0] if out_tree is ONE else tree.unflatten(out_tree, outs)


class _Rule:
    """Derivative and batching of a call, on flat values."""

    closed: Sequence[Any] = ()

    def __init__(self, fun: Callable[..., Any], vmap_rule: Callable[..., Any], in_tree: Any,
                 out_tree: Any, name: str) -> None:
        self.fun, self.vmap_rule = fun, vmap_rule
        self.in_tree, self.out_tree = in_tree, out_tree
        self.__name__ = name

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any], closed: Sequence[Any] = ()
                 ) -> list[Any]:
        """Results, then their tangents."""
        def moved(values: Any, directions: Any) -> Any:
            return jvp(self.fun, values, directions)

        derivative = custom_vmap(moved)
        derivative.def_vmap(self._derivative_rule)
        outs = derivative(tree.unflatten(self.in_tree, primals),
                          tree.unflatten(self.in_tree, tangents))
        pairs = [tree.leaves(out) for out in outs]
        return [*pairs[0], *(t if has_tangent(typeof(x).dtype) else zero_tangent(typeof(x))
                             for x, t in zip(*pairs, strict=True))]

    def _derivative_rule(self, axis_size: int, in_batched: Any, values: Any, directions: Any
                         ) -> Any:
        """The batching rule of the derivative. The user's rule takes a value and its tangent, both
        mapped or neither.
        """
        batched, moving = (tree.leaves(b) for b in in_batched)
        both = [b and m for b, m in zip(batched, moving, strict=True)]
        whole = any(both)
        mapped = [b or m for b, m in zip(batched, moving, strict=True)] if whole else both
        args_batched = list(tree.unflatten(self.in_tree, mapped))
        known: list[Any] = []

        def results(*args: Any) -> Any:
            out, out_batched = self.vmap_rule(axis_size, args_batched, *args)
            known.append(out_batched)
            return out

        def flat(*leaves: Any) -> list[Any]:
            half = len(leaves) // 2
            outs = jvp(results, tree.unflatten(self.in_tree, leaves[:half]),
                       tree.unflatten(self.in_tree, leaves[half:]))
            trees.append(tree.structure(outs[0]))
            return tree.leaves(outs)

        trees: list[Any] = []
        leaves = [*tree.leaves(values), *tree.leaves(directions)]
        flags = [*batched, *moving]
        if whole:
            leaves = [x if f or not either or not has_tangent(typeof(x).dtype)
                      else lax.broadcast(x, (axis_size,))
                      for x, f, either in zip(leaves, flags, mapped * 2, strict=True)]
            outs, dims = flat(*leaves), tree.leaves(known[-1]) * 2
        else:                               # mapped over what is mapped of them
            pairs = map_flat(MappedAxis(axis_size), flat,
                             [(x, 0 if f else None) for x, f in zip(leaves, flags,
                                                                    strict=True)])
            outs = [x if d is None else move_dim(x, d, 0) for x, d in pairs]
            dims = [d is not None for _, d in pairs]
        half = len(outs) // 2
        return tuple(tuple(tree.unflatten(trees[-1], part) for part in (of[:half], of[half:]))
                     for of in (outs, dims))

    def batch(self, axis: MappedAxis, operands: Sequence[Any], dims: Sequence[int | None]
              ) -> Batched:
        """The user's rule: results, and the mapped dimension of each."""
        batched = [d is not None for d in dims]
        values = [x if d is None else move_dim(x, d, 0)
                  for x, d in zip(operands, dims, strict=True)]
        pair = self.vmap_rule(axis.size, list(tree.unflatten(self.in_tree, batched)),
                              *tree.unflatten(self.in_tree, values))
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"the batching rule of the custom_vmap function {self.__name__} must "
                            f"return (results, out_batched), got {pair}")
        outs, out_tree = tree.flatten(pair[0])
        flags, flag_tree = tree.flatten(pair[1])
        if out_tree != flag_tree:
            raise ValueError(
                "structure of output value and output batching specification returned by custom "
                f"vmap rule ({function_name(self.vmap_rule)}) do not match: "
                f"{out_tree} and {flag_tree}, of the custom_vmap function {self.__name__}")
        wanted = tree.structure(0) if self.out_tree is ONE else self.out_tree
        if out_tree != wanted:
            raise ValueError(
                "structure of output returned by custom vmap rule "
                f"({function_name(self.vmap_rule)}) does not match that of "
                f"original custom-vmapped function: {out_tree} and {wanted}, of "
                f"{self.__name__}")
        return outs, [0 if flag else None for flag in flags]


def sequential_vmap(f):
    """A function that `vmap` calls for one example after the other, by `lax.map`.

    >>> f = st.custom_batching.sequential_vmap(lambda x: x * 2)
    >>> st.vmap(f)(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    f = custom_vmap(f)

    def rule(axis_size: int, in_batched: Any, *args: Any) -> Any:
        leaves, treedef = tree.flatten(list(args))
        batched = tree.leaves(in_batched)
        mapped = [x for x, b in zip(leaves, batched, strict=True) if b]

        def one(values: Any) -> Any:
            it = iter(values)
            return f(*tree.unflatten(treedef, [
                next(it) if b else x for x, b in zip(leaves, batched, strict=True)]))

        out = lax.map(one, mapped)
        return out, tree.map(lambda _: True, out)

    f.def_vmap(rule)
    return f
