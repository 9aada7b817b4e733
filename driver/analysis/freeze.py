"""`freeze_plan` and `thaw_plan`: keep what a partition decided, and report what no longer fits."""
from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.passes import OBJECTIVE
from ...ir.program import Program
from ...report.frozen.decisions import Key
from ...report.frozen.fitting import fitted
from ...report.frozen.plan import FrozenPlan, PlanDifference
from ..jit.boundary import Boundary
from ..jit.jit import jit
from ..jit.jitted import Jitted
from ..jit.stages import Compiled, Lowered


def freeze_plan(fun: Callable[..., Any]) -> Callable[..., FrozenPlan]:
    """A function that partitions `fun`, jitted or not, for arguments, arrays or ShapeDtypeStructs,
    and gives what was decided: a plan that `thaw_plan` keeps, and that `save` writes into a file.

    Decisions are about arguments, results, values, and operands that are brought elsewhere for one
    equation. Each is named by the user's source (function, line, op), so that it is found again
    when lines have moved.

    Sharding
      Auto: all that propagation and the planner have chosen is in the plan.
      Explicit: types have decided; the plan has them, to be compared with.
      Manual: the body of a `shard_map` is the user's; what goes in and comes out is in the plan.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> plan = st.freeze_plan(lambda a: jnp.tanh(a).sum(0))(a)
    >>> for d in plan.decisions:
    ...     print(d.key.kind, d.key.op, d.type, d.spec)
    argument  f32[8,64] P('x')
    result  f32[64] P()
    value tanh f32[8,64] P('x')
    value reduce_sum f32[64] P(unreduced={'x'})
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)

    @functools.wraps(jitted._f)
    def frozen(*args: Any, **kwargs: Any) -> FrozenPlan:
        return FrozenPlan.of(jitted.lower(*args, **kwargs)._executable.partitioned)

    return frozen


def thaw_plan(fun: Callable[..., Any], plan: Any) -> Thawed:
    """The jitted function `fun`, of which each partition keeps the decisions of a plan.

    plan: a `FrozenPlan`, or the path of a file with one; or a list of a few decisions, as
      `autoshard` writes them ({"kind": "value", "op": ..., "line": ..., "spec": "P('x')"}), which
      constrain values while all else is planned. A row with a list of numbers as its "nth" is a
      decision for each, as of equal layers.
    What the function has no more, or cannot have, is left to the partitioner; its method
    `difference(*args)` reports that, and what has no decision yet. The function computes what it
    did. Raises ValueError for a file that is no plan, and for rows that are no decisions.

    Sharding
      Auto: values are constrained to what the plan says; what is new is propagated.
      Explicit: types decide, and `difference` compares them with the plan.
      Manual: the body of a `shard_map` is as it was.

    >>> mesh = st.make_mesh((8,), ("x",))
    >>> a = st.ShapeDtypeStruct((8, 64), np.float32, sharding=st.NamedSharding(mesh, P("x")))
    >>> f = lambda a: jnp.tanh(a).sum(0)
    >>> st.thaw_plan(f, st.freeze_plan(f)(a)).difference(a).fits
    True
    """
    jitted = fun if isinstance(fun, Jitted) else jit(fun)
    if isinstance(plan, list | tuple):
        plan = FrozenPlan.of_rows(plan)
    return Thawed(jitted, plan if isinstance(plan, FrozenPlan) else FrozenPlan.load(plan))


class Thawed(Jitted):
    """A jitted function that keeps a plan."""

    def __init__(self, base: Jitted, plan: FrozenPlan) -> None:
        super().__init__(base._f, base._boundary, *base._settings)
        self._base, self.plan = base, plan
        self._traces = {}           # its own: the function itself has no constraints
        self._unfit: dict[int, dict[Key, str]] = {}

    def _rejit(self, f: Callable[..., Any], boundary: Boundary) -> Thawed:
        return Thawed(super()._rejit(f, boundary), self.plan)

    def _trace(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
               ) -> tuple[Program, Any, list[Any]]:
        """The program that the function traces to, with the plan's decisions as constraints. What
        does not fit it is kept in `_unfit`.
        """
        program, out_tree, captured = self._base._trace(leaves, in_tree, static)
        found = self._traces.get(id(program))
        if found is None:
            if captured:
                fail(ValueError, f"the plan of `{self.plan.name}` is for a function that is called "
                     "outside of any trace", code="plan-inside",
                     help="thaw the outermost jitted function")
            executable = self._base._executable(program, leaves, in_tree, out_tree)
            new, unfit = fitted(executable.partitioned.stages["inlined"], self.plan.decisions,
                                executable.placement.mesh or executable.placement.abstract_mesh,
                                self.plan.partial)
            if not self.plan.partial:
                new.attributes[OBJECTIVE] = self.plan.objective, "", 0
            new.arg_names, new.result_names = program.arg_names, program.result_names
            self._unfit[id(new)] = unfit
            found = self._traces[id(program)] = (new, out_tree, captured), program
        return found[0]

    def difference(self, *args: Any, **kwargs: Any) -> PlanDifference:
        """Which parts of the plan do not hold for these arguments, why, and what is decided anew.
        """
        return self.difference_of(self.lower(*args, **kwargs))

    def difference_of(self, lowered: Lowered | Compiled) -> PlanDifference:
        """As `difference`, of the function's stage for certain arguments."""
        now = FrozenPlan.of(lowered._executable.partitioned)
        return self.plan.compared(now, self._unfit[id(lowered.jaxpr)])
