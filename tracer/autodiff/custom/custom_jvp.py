"""custom_jvp: a function with a forward derivative that the user wrote.

    @custom_jvp
    def f(x, y): ...

    @f.defjvp
    def f_jvp(primals, tangents):
        return primal_out, tangent_out      # linear in the tangents

The call is one equation, `custom_jvp_call`. Reverse mode transposes what the rule does to tangents.
Messages are JAX's.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ....ir.api_boundary import bound_class
from ....ir.ops.control.custom import custom_jvp_call_p
from ....ir.ops.derivatives import has_tangent
from ....ir.settings.context import STATE, x64_enabled
from ....ir.source.location import Location, capture, is_ours
from ....ir.support.caches import module_table
from ....ir.types import ArrayType, same_type
from ....ir.values.typeof import typeof
from ... import lax
from ...staging.compile_time import runs_eagerly
from ...staging.memoized import BUILDERS, may_warn, memoized
from ...staging.signature import function_name
from ...staging.steps import owner_of
from ...trees import tree
from ..call_rules import register
from ..forward import zero_tangent
from ..transpose import backward, is_linear
from .closed_values import closed_values, standing_for, stood_for, with_unused
from .common import (
    ONE,
    SymbolicZero,
    as_called,
    call_program,
    fixed_positions,
    forward_rules,
    named_as,
    positional,
    refuse_closed_over,
    run_rule,
    shapes_text,
    split_arguments,
    untouched,
)


@bound_class
class custom_jvp:
    """A function whose derivative is given by hand, by a rule of forward mode (`f.defjvp`).

    The rule gets (primals, tangents) and returns (result, tangent of the result); reverse mode
    uses it too. nondiff_argnums: arguments handed to the rule as they are, in front of primals
    and tangents.

    Sharding
      Auto, Explicit: the rule is traced like any code; over Explicit axes the tangent must have the
        result's type.
      Manual: primals and tangents are each device's blocks.

    >>> @st.custom_jvp
    ... def f(x):
    ...     return jnp.abs(x)
    >>> @f.defjvp
    ... def rule(primals, tangents):
    ...     (x,), (t,) = primals, tangents
    ...     return f(x), jnp.sign(x) * t
    >>> st.grad(f)(-2.0)
    Array(-1., dtype=float32, weak_type=True)
    """

    def __init__(self, fun: Callable[..., Any], nondiff_argnums: Sequence[int] = (),
                 nondiff_argnames: Sequence[str] = ()) -> None:
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.nondiff_argnums = fixed_positions(fun, nondiff_argnums, nondiff_argnames)
        self.jvp: Callable[..., Any] | None = None
        self.symbolic_zeros = False
        self._known: dict[Any, tuple[Any, ...]] | None = None     # for functions of ours alone,
        self._remembering: Callable[..., Any] | None = None       # as is this
        if not self.nondiff_argnums and is_ours(getattr(fun, "__module__", None) or ""):
            self._known = module_table(f"{fun.__module__.partition('.')[2]}.{fun.__qualname__}.jvp",
                                       "derivatives, by place and types", 4096)
            self._remembering = memoized(functools.wraps(fun)(
                lambda *args, **kwargs: self._bound(*args, **kwargs)))

    __getattr__ = forward_rules

    def defjvp(self, jvp: Callable[..., Any], symbolic_zeros: bool = False) -> Callable[..., Any]:
        """Set the rule: `jvp(*nondiff, primals, tangents) -> (primal_out, tangent_out)`."""
        self.jvp, self.symbolic_zeros = jvp, symbolic_zeros
        return jvp

    def defjvps(self, *jvps: Callable[..., Any] | None) -> None:
        """One rule per argument, `jvp(tangent, primal_out, *primals)`, or None for a zero."""
        if self.nondiff_argnums:
            raise TypeError("Can't use ``defjvps`` with ``nondiff_argnums``.")

        def jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            out = self(*primals)
            terms = [rule(t, out, *primals) for t, rule in zip(tangents, jvps, strict=True)
                     if rule is not None]
            if not terms:
                return out, tree.map(zero_tangent, out)
            total = terms[0]
            for term in terms[1:]:
                total = tree.map(lambda a, b: lax.add(a, b), total, term)
            return out, total

        self.defjvp(jvp)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._remembering or self._bound)(*args, **kwargs)

    def _bound(self, *args: Any, **kwargs: Any) -> Any:
        """The call as one equation with the program of the function and the rule as params. Outside
        of any trace, where no argument needs it, the function is just called.
        """
        name = function_name(self.fun)
        jvp = self.jvp
        if jvp is None:
            raise AttributeError(
                f"No JVP defined for custom_jvp function {name} using defjvp.")
        args = positional(self.fun, args, kwargs, "custom_jvp")
        if STATE.interpreter is None:
            return self.fun(*args)
        moving, fixed, merge = split_arguments(args, self.nondiff_argnums)
        leaves, treedef = tree.flatten_tuple(tuple(moving))
        if runs_eagerly(leaves):
            return self.fun(*args)

        # of a function of ours within a derivative: what it is the derivative of
        within = None if self._known is None else getattr(STATE.interpreter, "location", None)

        def run(*values: Any) -> Any:
            if within is not None:
                STATE.interpreter.location = within         # type: ignore[union-attr]
            return self.fun(*merge(values))

        def traced() -> tuple[Any, ...]:
            program, captured, out_tree = call_program(run, leaves, treedef, name)
            closed = [] if self._known is not None else closed_values(jvp, self.fun, fixed)
            rule = _FlatRule(jvp, fixed, name, treedef, out_tree, program.out_avals, closed)
            return with_unused(program, len(captured), closed), captured, out_tree, rule

        program, captured, out_tree, rule = (
            traced() if self._known is None else
            self._known_here(within or capture(), leaves, treedef, traced))
        outs = custom_jvp_call_p.bind(
            *captured, *rule.closed, *leaves, call_jaxpr=program, jvp_jaxpr_fun=rule,
            num_consts=len(captured) + len(rule.closed), symbolic_zeros=self.symbolic_zeros)
        return outs[0] if out_tree is ONE else tree.unflatten(out_tree, outs)

    def _known_here(self, place: Location, leaves: Sequence[Any], treedef: Any,
                    traced: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """`traced()`, which is asked once for each place that calls this with such types."""
        interpreter, known = STATE.interpreter, self._known
        if known is None or STATE.on_equation or type(interpreter) not in BUILDERS or getattr(
                interpreter, "concrete", False):
            return traced()
        types = [typeof(x) for x in leaves]
        if may_warn(types):
            return traced()
        key = (place.key, place.transform, owner_of("custom_jvp"), STATE.abstract_mesh, treedef,
               self.jvp, *types)
        found = known.get(key)
        if found is None:
            found = (*traced(), place)             # the key names what the place keeps alive
            if not found[1]:                       # nothing is captured
                known[key] = found
        return found[:4]

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)


class _FlatRule:
    """The user's rule, on flat values: (primals, tangents) -> (results, tangents), checked.

    Tangents may be `SymbolicZero`. closed: the values that it closes over, None where these have
    tangents.
    """

    __name__: str

    def __init__(self, jvp: Callable[..., Any], fixed: Sequence[Any], name: str, in_tree: Any,
                 out_tree: Any, out_types: Sequence[ArrayType], closed: Sequence[Any]) -> None:
        named_as(self, jvp)
        self.closed, self.x64 = closed, x64_enabled()
        self.jvp, self.name = functools.partial(jvp, *fixed), name
        self.in_tree, self.out_tree, self.out_types = in_tree, out_tree, tuple(out_types)

    def __call__(self, primals: Sequence[Any], tangents: Sequence[Any], closed: Sequence[Any] = ()
                 ) -> list[Any]:
        with standing_for(self.closed, closed), as_called(self):
            return stood_for(self._run(primals, tangents))

    def _run(self, primals: Sequence[Any], tangents: Sequence[Any]) -> list[Any]:
        """Call the user's rule on pytrees, and check that tangents are of the types of results."""
        pair = self.jvp(tree.unflatten(self.in_tree, primals),
                        tree.unflatten(self.in_tree, tangents))
        rule = f"Custom JVP rule {self.__name__} for function {self.name}"
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError(f"{rule} must produce a pair (list or tuple of length two) "
                            f"representing primal and tangent outputs, but got {pair}.")
        outs, out_tree = tree.flatten(pair[0])
        out_tangents, tangent_tree = tree.flatten(pair[1], lambda x: isinstance(x, SymbolicZero))
        if out_tree != tangent_tree:
            raise TypeError(f"{rule} must produce primal and tangent outputs with equal container "
                            f"(pytree) structures, but got {out_tree} and {tangent_tree} "
                            "respectively.")
        types = [typeof(x) for x in outs]
        self._check_results(rule, out_tree, types)
        _check_tangents(types, [x.aval if isinstance(x, SymbolicZero) else typeof(x)
                                for x in out_tangents])
        return [*outs, *out_tangents]

    def _check_results(self, rule: str, out_tree: Any, types: Sequence[ArrayType]) -> None:
        """Refuse a rule whose results have another structure or other types than the function's."""
        start = (f"{rule} must produce a pair (list or tuple of length two) where the first "
                 "element represents the primal output (equal in value to the output of the "
                 f"custom_jvp-decorated function {self.name}, and in particular ")
        if out_tree != self.out_tree:
            raise TypeError(
                f"{start}of the same container/pytree structure), but instead the JVP rule "
                "output's first element had container/pytree structure:\n"
                f"    {shapes_text(out_tree, types)}\nwhile the custom_jvp-decorated function "
                f"{self.name} had output container/pytree structure:\n"
                f"    {shapes_text(self.out_tree, self.out_types)}.")
        if not all(map(same_type, types, self.out_types)):
            raise TypeError(
                f"{start}with leaves of the same shape/dtype), but instead the JVP rule output's "
                f"first element had shapes/dtypes of:\n    {shapes_text(out_tree, types)}\nwhile "
                f"the custom_jvp-decorated function {self.name} had output shapes/dtypes of:\n"
                f"    {shapes_text(self.out_tree, self.out_types)}")


def _check_tangents(types: Sequence[ArrayType], tangents: Sequence[ArrayType]) -> None:
    """Raise JAX's TypeError unless every tangent has the type of its value."""
    wanted = [t if has_tangent(t.dtype) else typeof(zero_tangent(t)) for t in types]
    if all(map(same_type, wanted, tangents)):
        return
    start = ("Custom JVP rule must produce primal and tangent outputs with corresponding shapes "
             "and dtypes")
    if len(types) == 1:
        raise TypeError(f"{start}. Expected {wanted[0].str_short()} (tangent type of "
                        f"{types[0].str_short()}) but got {tangents[0].str_short()}.")
    lines = [f"  primal {p.str_short()} with tangent {t.str_short()}, expecting tangent {w}"
             for p, w, t in zip(types, wanted, tangents, strict=True) if not same_type(w, t)]
    raise TypeError(f"{start}, but got:\n" + "\n".join(lines))


# -- the rules of the equation ---------------------------------------------------------------------

def _jvp(operands: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]
         ) -> tuple[list[Any], list[Any]]:
    """The rule run on primals and tangents; operands without a tangent get a zero, or a
    `SymbolicZero` if the user asked for these. Untouched if no operand has a tangent.
    """
    count, rule = params["num_consts"], params["jvp_jaxpr_fun"]
    first = count - len(getattr(rule, "closed", ()))
    if all(t is None for t in (*tangents[:first], *tangents[count:])):
        return untouched(custom_jvp_call_p, operands, params)
    refuse_closed_over(tangents[:first], "custom_jvp", "custom JVP rule")
    primals, moving = list(operands[count:]), list(tangents[count:])
    n, given = len(primals), [t for t in moving if t is not None]
    closed = [x if t is None else None
              for x, t in zip(operands[first:count], tangents[first:count], strict=True)]

    zero: list[bool] = []           # which results are `SymbolicZero`

    def run(*values: Any) -> list[Any]:
        it = iter(values[n:])
        filled = [next(it) if t is not None else
                  SymbolicZero(typeof(x)) if params["symbolic_zeros"] else zero_tangent(x)
                  for x, t in zip(values, moving, strict=False)]
        results = rule(values[:n], filled, closed)
        zero[:] = [isinstance(x, SymbolicZero) for x in results]
        return [x for x in results if not isinstance(x, SymbolicZero)]

    found = iter(run_rule(run, [*primals, *given], rule))
    outs = [None if z else next(found) for z in zero]
    half = len(outs) // 2
    return outs[:half], outs[half:]


def inline_transpose(cts: Sequence[Any], operands: Sequence[Any], params: dict[str, Any]
                     ) -> list[Any]:
    """The transpose of a call as that of the program that it calls."""
    return backward(params["call_jaxpr"], [None if is_linear(x) else x for x in operands], cts)


def inline_split(evaluation: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The split of a call as that of its program's equations."""
    return evaluation.run(params["call_jaxpr"], operands)


register("custom_jvp_call", jvp=_jvp, split=inline_split, transpose=inline_transpose)

