"""A partitioned program that is called with arrays and returns arrays."""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np

from ...arrays.array import ARRAYS, ArrayImpl
from ...arrays.keys import ArrayKey, array_key
from ...arrays.processes.coordinator import current_coordinator
from ...arrays.results import all_held
from ...arrays.results import results as made_arrays
from ...arrays.storage import Stored, memory_of, new_stored, without_alias
from ...engines.engine import ENGINES
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...ir.dtypes import float0
from ...ir.meshes.device import Device
from ...ir.program import Program
from ...ir.settings.context import config
from ...ir.settings.managers import transfer_guarded
from ...ir.shardings.formats import Layout
from ...ir.shardings.sharding import Sharding
from ...ir.support.spelling import none_such
from ...ir.types import ArrayType
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options
from ...runtime.numerics import silently
from ...runtime.plans.plan import TIMED
from ...runtime.simulation.executor import Simulated
from .arguments import host_memory, stored_value
from .bound_program import BoundProgram
from .checked_values import bad_value, report, watched
from .guards import guard_arguments
from .multiprocess import check_closure, run_together
from .placement import ArgumentPlacement
from .result_shardings import sharding_as_result

Description = tuple[ArrayType, Any, ArrayKey]


class Executable(BoundProgram):
    """A bound program that takes arrays and wraps its results."""

    __slots__ = ("_described", "layouts", "without_numbers")

    def __init__(self, program: Program, args: Sequence[ArgumentPlacement],
                 out_shardings: Sequence[Any],
                 others: Sequence[Sharding] = (), options: Options = DEFAULT_OPTIONS,
                 is_operation: bool = False, who: str = "",
                 layouts: Sequence[Layout | None] = ()) -> None:
        if program.consts:
            check_closure([value for _, value in program.consts])
        super().__init__(program, args, out_shardings, others, options, is_operation, who)
        self._described: list[Description] | None = None
        self.layouts = layouts                         # of results that are not row-major
        self.without_numbers: list[int] = []      # results of float0, once it ran

    def on_devices(self, devices: tuple[Device, ...]) -> Self:
        found = super().on_devices(devices)
        if found is not self:
            found._described = None
        return found

    def __call__(self, leaves: Sequence[Any]) -> list[ArrayImpl]:
        if transfer_guarded():
            guard_arguments(leaves)
        mesh = self.placement.mesh
        ours = ARRAYS.issuperset(map(type, leaves))
        values = ([new_stored((x._whole, ())) for x in leaves] if ours and all_held(leaves) else
                  [stored_value(x, mesh) for x in leaves])
        coordinator = current_coordinator()
        results = None if coordinator is None else run_together(self, coordinator, leaves, values)
        if results is None:
            results = self.run_stored(values)
        theirs = None if ours else host_memory(leaves, values)
        if theirs:
            results = [x._replace(data=without_alias(x.data, theirs)) if type(x) is Stored else x
                       for x in results]
        described = self._described
        if described is None:
            described = self._described = self._describe()
        if self.forwarded:
            described = self._with_forwarded(described, leaves)
        out = made_arrays(described, results, self.committed)
        for i in self.without_numbers:
            out[i] = np.zeros(self.avals[i].shape, float0)      # type: ignore[call-overload]
        for i, layout in enumerate(self.layouts):
            if layout is not None:
                out[i] = out[i].with_layout(layout)
        kinds = watched()
        if kinds:
            kind = bad_value(out, kinds)
            if kind is not None:
                report(self.partitioned.traced, leaves, kind, kinds, self.placement.mesh,
                       self.is_operation)
        return out

    def donated(self, leaves: Sequence[Any], gives: Sequence[bool],
                names: Callable[[], Sequence[str]]) -> tuple[list[int], list[str]]:
        """Which leaves give their buffers to results, and the types of those that no result can
        use.

        gives: for each leaf, whether it may. names: of the leaves, for messages. Raises
        JaxRuntimeError where one that does is passed to the call twice.
        """
        spare = [(t.shape, t.dtype) for t in self.avals]
        gone: list[int] = []
        others: list[int] = []
        for i, (x, may) in enumerate(zip(leaves, gives, strict=True)):
            if not may or not self.used[i] or not isinstance(x, ArrayImpl):
                continue
            if (x.aval.shape, x.aval.dtype) in spare:
                spare.remove((x.aval.shape, x.aval.dtype))
                gone.append(i)
            else:
                others.append(i)
        sizes = [math.prod(shape) for shape, _ in spare]      # a result of another shape, then
        unusable = []
        for i in others:
            size = leaves[i].aval.size
            if size in sizes:
                sizes.remove(size)
                gone.append(i)
            else:
                unusable.append(str(leaves[i].aval))
        if len({*map(id, leaves)}) < len(leaves):
            self._refuse_donated_twice(leaves, gone, names())
        return gone, unusable

    def _refuse_donated_twice(self, leaves: Sequence[Any], gone: Sequence[int],
                              names: Sequence[str]) -> None:
        """Refuse an array that is donated and passed once more, where the other use is read as
        well. gone: the places of donated leaves.
        """
        for i in gone:
            for j, x in enumerate(leaves):
                if x is not leaves[i] or j == i or not self.used[j]:
                    continue
                what = ("donate the same buffer twice in" if j in gone else
                        "use a buffer that was previously donated in the same call to" if i < j
                        else "donate a buffer which is also used by the same call to")
                fail(JaxRuntimeError, f"Attempt to {what} Execute(): `{names[i]}` and "
                     f"`{names[j]}` are one array", code="donated-twice",
                     because=("a result may be written into the buffer of a donated argument "
                              "while the other is still to be read",),
                     help=f"pass a copy for `{names[i]}` (`jnp.copy`), or do not donate it")

    def fast_path(self, leaves: Sequence[Any]
                  ) -> Callable[[Sequence[np.ndarray]], list[ArrayImpl]] | None:
        """The call for arguments like `leaves` as a function of their data, where nothing but
        running is left to do: every argument and result is one array for all devices. None where
        results are not, or before the first run.
        """
        run = self._run
        if (type(run) is not Simulated or not run.usual.is_whole or any(self.layouts)
                or self.without_numbers):
            return None
        described: Sequence[Description] = self._described or self._describe()
        if self.forwarded:
            described = self._with_forwarded(described, leaves)
        plan, committed = run.usual.plan, self.committed
        places = [i for i, x in enumerate(leaves) if isinstance(x, np.ndarray)]

        def results(data: Sequence[np.ndarray]) -> list[ArrayImpl]:
            function = plan.function
            if function is None or TIMED.recorder is not None:
                function = plan.step
            found = silently(function, data)
            if places:
                theirs = {memory_of(data[i]) for i in places}
                found = [without_alias(x, theirs) for x in found]
            return made_arrays(described, found, committed)
        return results

    def _describe(self) -> list[Description]:
        """For each result its type, sharding, and key as an argument of the next computation."""
        known: dict[tuple[ArrayType, int], Description] = {}
        out = []
        self.without_numbers = [i for i, t in enumerate(self.avals) if t.dtype == float0]
        for aval, s in zip(self.avals, self.shardings, strict=True):
            found = known.get((aval, id(s)))
            if found is None:
                found = known[aval, id(s)] = (
                    aval, s, array_key(aval, s if self.committed else None))
            out.append(found)
        return out

    def _with_forwarded(self, described: Sequence[Description], leaves: Sequence[Any]
                        ) -> list[Description]:
        """Results that are arguments passed through have the sharding that the argument was given
        with.
        """
        out = list(described)
        for i, source in self.forwarded:
            x, (aval, sharding, _) = leaves[source], out[i]
            if isinstance(x, ArrayImpl) and x.committed and x.sharding.is_equivalent_to(
                    sharding, aval.ndim):
                sharding = sharding_as_result(x)
                out[i] = x.aval, sharding, array_key(x.aval, sharding if self.committed else None)
        return out


def on_engine(executable: Executable, engine: str | None, devices: int | None) -> Executable:
    """The computation on this engine (None: the one that the configuration says).

    devices: None for those of its mesh, 1 for the unpartitioned program on one. Raises ValueError
    for an unknown engine, or one that cannot do that.
    """
    name: str = engine or config.read("shardtrace_engine")
    if name not in ENGINES:
        fail(ValueError, none_such(name, list(ENGINES), "engine called"), code="engine")
    if devices is None:
        return executable.on_engine(name)
    if devices != 1 or name != "jax":
        fail(ValueError, f"devices={devices} with engine={name!r}: a program runs on the devices "
             "of its mesh, or, unpartitioned, on one device of the jax engine", code="engine",
             help='leave devices out, or write engine="jax", devices=1')
    pending = [t for t in executable.partitioned.traced.out_avals if t.unreduced]
    if pending:
        fail(ValueError, f"a result is a pending sum, {pending[0]}, which one device does not have",
             code="engine", help="finish the sum, or leave devices out")
    return executable.on_engine(name, whole=True)
