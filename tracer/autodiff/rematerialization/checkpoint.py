"""checkpoint (remat): saves a function's inputs for its derivative, and recomputes the rest.

The derivative of a `checkpoint` equation is a `checkpoint` of the derivative. When it is split, the
known part computes results only, and the linear part gets the known operands and recomputes what it
needs of the known part; a policy may name intermediate values to save after all. Policies are
called as JAX's are, `policy(op, *operand_types, **params) -> bool`.
"""
from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ....ir.diagnostics.diagnostic import fail
from ....ir.op import OPS, Op
from ....ir.ops.control.custom import checkpoint_p, name_p
from ....ir.program import Atom, Equation, Program, Var
from ....ir.settings.context import STATE
from ....ir.source.location import SCOPES, capture
from ....ir.support.caches import in_memo, tables
from ....ir.support.immutable import immutable
from ....ir.values.typeof import typeof
from ... import sharding_notes
from ...references import transformations
from ...references.frames import BOXES, Frame
from ...staging.builder import record_mesh
from ...staging.signature import Arguments
from ...staging.steps import owner_of
from ...staging.tracer import Tracer
from ...trees import tree
from ..call_rules import PartialEvaluation, register
from ..nested.calls import call_jvp, call_transpose
from ..partial_eval import Split, compute_again, split_program, without_dead_equations
from ..replay import evaluate, flat_program, live_equations, stage
from .saved_values import Policy, split_by_policy, used, without_calls

_TRACES = tables("tracer.autodiff.checkpoint._TRACES", "traced programs of one function", 256)


# -- policies --------------------------------------------------------------------------------------

def everything_saveable(*_: Any, **__: Any) -> bool:
    """Keep every value, as without checkpoint."""
    return True


def nothing_saveable(*_: Any, **__: Any) -> bool:
    """Keep no value: the default."""
    return False


@immutable
class _Dots:
    without_batch: bool = False

    def __call__(self, op: Op, *_: Any, **params: Any) -> bool:
        if op.name == "dot_general":
            return not self.without_batch or not any(params["dimension_numbers"][1])
        return op.name == "conv_general_dilated" and not self.without_batch


@immutable
class _Names:
    names: frozenset[str]
    keep: bool

    def __call__(self, op: Op, *_: Any, **params: Any) -> bool:
        return op is name_p and (params["name"] in self.names) == self.keep


class checkpoint_policies:
    """What `policy=` may be: functions (op, *operand types, **params) -> keep the results?"""

    everything_saveable = staticmethod(everything_saveable)
    nothing_saveable = staticmethod(nothing_saveable)
    dots_saveable = checkpoint_dots = _Dots()
    dots_with_no_batch_dims_saveable = checkpoint_dots_with_no_batch_dims = _Dots(True)

    @staticmethod
    def save_only_these_names(*names_which_can_be_saved: str) -> Policy:
        """Keep the values that `checkpoint_name` gave one of these names."""
        return _Names(frozenset(names_which_can_be_saved), True)

    @staticmethod
    def save_any_names_but_these(*names_not_to_save: str) -> Policy:
        """Keep the named values, but for these names."""
        return _Names(frozenset(names_not_to_save), False)

    @staticmethod
    def save_anything_except_these_names(*names_not_to_save: str) -> Policy:
        """Keep every value, named or not, as JAX's policy of this name does."""
        return everything_saveable

    @staticmethod
    def offload_dot_with_no_batch_dims(offload_src: str, offload_dst: str) -> Policy:
        """Keep what `dots_with_no_batch_dims_saveable` keeps. JAX moves it from the one memory to
        the other meanwhile; here it stays where it is computed.
        """
        return checkpoint_policies.dots_with_no_batch_dims_saveable

    @staticmethod
    def save_and_offload_only_these_names(
            *, names_which_can_be_saved: Iterable[str], names_which_can_be_offloaded: Iterable[str],
            offload_src: str, offload_dst: str) -> Policy:
        """Keep the values with these names. JAX moves the second ones from the one memory to the
        other meanwhile; here they stay where they are computed.
        Raises ValueError for a name that is in both.
        """
        saved, moved = set(names_which_can_be_saved), set(names_which_can_be_offloaded)
        if saved & moved:
            raise ValueError(
                "The names should be exclusive and should not intersect in "
                "`names_which_can_be_saved` and `names_which_can_be_offloaded`. Got "
                f"names_which_can_be_saved={saved}, names_which_can_be_offloaded={moved} and the "
                f"intersection={saved & moved}")
        return _Names(frozenset(saved | moved), True)

    @staticmethod
    def save_from_both_policies(policy_1: Policy, policy_2: Policy) -> Policy:
        """Keep what either keeps. Raises ValueError if one does not answer with a bool."""
        def both(op: Op, *types: Any, **params: Any) -> bool:
            a, b = policy_1(op, *types, **params), policy_2(op, *types, **params)
            if not (isinstance(a, bool) and isinstance(b, bool)):
                raise ValueError(
                    "The return value of the policies should be a boolean. Got:"
                    f" {a} and {b}. Please write a custom policy function directly,"
                    " rather than using this helper function.")
            return a or b
        return both


def checkpoint_name(x: Any, name: str) -> Any:
    """`x`, a pytree of arrays, called `name` for the policies of `checkpoint`: keep it, or not.

    >>> from shardtrace.ad_checkpoint import checkpoint_name
    >>> f = lambda x: jnp.sin(checkpoint_name(jnp.sin(x), "inner"))
    >>> policy = st.checkpoint_policies.save_only_these_names("inner")
    >>> st.grad(st.checkpoint(f, policy=policy))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    return tree.map(lambda leaf: name_p.bind(leaf, name=name), x)


# -- the function ----------------------------------------------------------------------------------

@sharding_notes.transformed
def checkpoint(fun: Callable[..., Any] | None = None, *, prevent_cse: bool = True,
               policy: Policy | None = None, static_argnums: Any = (),
               static_argnames: str | Iterable[str] = (), concrete: bool = False) -> Any:
    """`fun`, whose derivative computes intermediate values again instead of keeping them.

    policy: which values to keep after all, see `checkpoint_policies`. prevent_cse: let no pass
    undo it by seeing that they are computed twice. static_argnums, static_argnames: arguments
    that are no arrays. The results and derivatives are those of `fun`.

    >>> st.grad(st.checkpoint(lambda x: jnp.sin(jnp.sin(x))))(0.0)
    Array(1., dtype=float32, weak_type=True)
    """
    if fun is None:
        return functools.partial(checkpoint, prevent_cse=prevent_cse, policy=policy,
                                 static_argnums=static_argnums, static_argnames=static_argnames)
    if concrete:
        raise NotImplementedError("The 'concrete' option to jax.checkpoint is not supported: use "
                                  "static_argnums")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    arguments = Arguments(fun, static_argnums, static_argnames, (), ())
    traces = _TRACES()

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        moving, moving_kwargs, static = arguments.split(args, kwargs, hashable=False)

        @functools.wraps(fun)
        def moved(inner: Any, inner_kwargs: Any) -> Any:
            full, named = arguments.merge(inner, inner_kwargs, static)
            return fun(*full, **named)

        moved.traces = traces, static           # type: ignore[attr-defined]
        return _call(moved, prevent_cse, policy, moving, moving_kwargs)

    return wrapped


@transformations.recomputed
def _call(fun: Callable[..., Any], prevent_cse: bool, policy: Policy | None, *args: Any) -> Any:
    """One equation that computes `fun(*args)`."""
    leaves, treedef = tree.flatten(args)
    types = [typeof(x) for x in leaves]
    traces, static = getattr(fun, "traces", ({}, ()))
    key: Any = (treedef, static, *types, STATE.abstract_mesh, owner_of("checkpoint"))
    try:
        found = traces.get(key)
    except TypeError:                           # static arguments that cannot be told apart
        found = key = None
    if found is None:
        with Frame() if BOXES.data else contextlib.nullcontext() as frame:
            found = flat_program(fun, types, treedef)
        if not (key is None or frame and frame.read or STATE.on_equation or SCOPES.path or any(
                [isinstance(x, Tracer) for x in found[1]])):
            traces[key] = found
    program, captured, out_tree = found
    for mesh in program.attributes.get("meshes", ()):
        record_mesh(mesh)                       # traced before, perhaps: named here all the same
    outs = checkpoint_p.bind(*captured, *leaves, jaxpr=program, prevent_cse=prevent_cse,
                             differentiated=False, policy=policy)
    return tree.unflatten(out_tree, outs)


# -- the rules of the equation ---------------------------------------------------------------------

def _split(evaluation: PartialEvaluation, operands: Sequence[Any], params: dict[str, Any]
           ) -> list[Any]:
    """Known results now, keeping what the policy says; the rest computes what it needs again."""
    unknown = tuple(evaluation.is_unknown(x) for x in operands)
    policy = params["policy"] or nothing_saveable
    program: Program = params["jaxpr"]
    io = sorted(e for e in program.effects if "io" in e.split())
    if io:
        fail(NotImplementedError, "Effects not supported in partial-eval of `checkpoint`/`remat`: "
             f"{io}", code="effect-in-checkpoint",
             help="call `io_callback` outside of the function that is computed again")
    if params["policy"] is not None and policy is not nothing_saveable:
        program = without_calls(program)
    plan = _recomputation(program, unknown, policy)
    known = [x for x, u in zip(operands, unknown, strict=True) if not u]
    results = evaluate(plan.known, known)
    residuals = [known[i] if kind == "operand" else results[i] for kind, i in plan.residuals]
    waiting: list[Any] = []
    if any(plan.out_unknown):
        waiting = evaluation.linear.process(
            checkpoint_p, [*residuals, *(x for x, u in zip(operands, unknown, strict=True) if u)],
            {**params, "jaxpr": plan.linear, "differentiated": True})
    first, second = iter(results), iter(waiting)
    return [next(second) if u else next(first) for u in plan.out_unknown]


@in_memo
def _recomputation(program: Program, unknown: tuple[bool, ...], policy: Policy) -> Split:
    """As `split_program`, with the equations that make residuals moved to the second part.

    What stays a residual: known operands, and results of equations that the policy saves.
    """
    if policy is nothing_saveable:
        found = compute_again(program, unknown)
        if found is not None:
            return found
    split = split_program(program, unknown)
    known, linear = split.known, split.linear
    count = sum(not u for u in split.out_unknown)
    wanted: list[Atom] = [known.invars[i] if kind == "operand" else known.outvars[i]
                          for kind, i in split.residuals]
    saved = split_by_policy(known, wanted, policy)
    redo, read = saved.recompute, used(saved.recompute)
    positions = [i for i, v in enumerate(known.invars) if v in read]
    first = without_dead_equations(saved.first.replace(
        outvars=[*known.outvars[:count], *saved.values]))
    redo = redo.replace(invars=[*(redo.invars[i] for i in positions),
                                *redo.invars[len(known.invars):]], arg_names=())
    tail = linear.in_avals[len(wanted):]

    def run(*args: Any) -> list[Any]:
        residuals = evaluate(redo, args[:len(redo.invars)])
        return evaluate(linear, [*residuals, *args[len(redo.invars):]])

    second = stage(run, [*redo.in_avals, *tail], linear)
    places = (*(("operand", i) for i in positions),
              *(("result", count + i) for i in range(len(saved.values))))
    return Split(first, second, split.out_unknown, places)


def _through_barrier(program: Program, count: int, params: dict[str, Any]) -> Program:
    """The program with its first `count` operands passed through an optimization barrier, for
    params that ask for one.

    What is computed from them again is then no common subexpression of the first computation.
    """
    if not count or not params["prevent_cse"]:
        return program
    found = program.memo.get("barrier")
    if found is None:
        results = program.invars[:count]
        given = [Var(v.aval) for v in results]
        barrier = Equation(OPS["optimization_barrier"], given, results, {}, capture())
        found = program.memo["barrier"] = program.replace(
            invars=[*given, *program.invars[count:]],
            eqns=[barrier, *live_equations(program.eqns, program.outvars)])
    return found


register("checkpoint", jvp=functools.partial(call_jvp, checkpoint_p), split=_split,
         transpose=functools.partial(call_transpose, checkpoint_p, changed=_through_barrier))
