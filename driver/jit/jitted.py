"""A jitted function: traced once per argument types, partitioned once per placements, then run.

A call goes through the stages that users can also take one by one (stages.py), and keeps the last
by the types and placements of the arguments. Inside of a trace it is one call equation.
"""
from __future__ import annotations

import _thread
import functools
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any

from ...arrays.array import ArrayImpl
from ...arrays.transfer import put
from ...ir.api_boundary import bound_class, process_exception
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import entered_mesh
from ...ir.meshes.process import THREAD
from ...ir.ops.control.call import jit_p
from ...ir.passes import DONATED
from ...ir.program import Program
from ...ir.settings.context import STATE, call_settings, config, jit_disabled, trace_settings
from ...ir.settings.phases import phase
from ...ir.source.location import SCOPES
from ...ir.source.wording import warn
from ...ir.support.caches import tables
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options
from ...partitioner.stages import with_attribute
from ...tracer.autodiff.replay import evaluate
from ...tracer.host.debug import observing
from ...tracer.references.custom_vjp_rules import refuse_traced_rule
from ...tracer.references.frames import BOXES, Frame
from ...tracer.references.ref import references
from ...tracer.staging.bound_names import number_names
from ...tracer.staging.builder import current_builder, record_mesh
from ...tracer.staging.name_scopes import without_scopes
from ...tracer.staging.signature import function_name
from ...tracer.staging.staging import trace_to_program
from ...tracer.staging.tracer import Tracer
from ...tracer.trees import tree
from ..execution.arguments import leaf_keys
from ..execution.call_capture import WATCH
from ..execution.executable import Executable
from ..execution.guards import guard_move
from ..execution.placement import ArgumentPlacement
from .argument_checks import (
    abstract,
    check_values,
    other_type,
    qualified_name,
    refuse_metadata,
    run_in_python,
)
from .boundary import Boundary
from .fast_calls import MISS, CallCache
from .flat_function import FlatFunction
from .on_references import on_arguments, on_closed
from .requested_shardings import checked_options
from .shared_traces import CLAIMS, done_by_another, traces_of, wake
from .stages import Lowered, Traced

_EXECUTABLES = tables("driver.jit.jitted.Jitted._executables",
                      "partitioned programs of one function", 1024)
Found = tuple[Program, Any, list[Any]]


@bound_class
class Jitted:
    """A jitted function, made by `jit`; called, it runs.

    `.trace`, `.lower` and `.eval_shape` are its stages; `isinstance(f, stages.Wrapped)` is True.
    """

    def __init__(self, f: Callable[..., Any], boundary: Boundary, inline: bool, keep_unused: bool,
                 device: Device | None = None, options: dict[str, Any] | None = None,
                 judged: Options = DEFAULT_OPTIONS) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._boundary = boundary
        self.arguments = boundary.arguments
        self.inline, self.keep_unused = inline, keep_unused
        self._device, self._options = device, options
        self._partition_options = judged
        self._traces = traces_of(f, boundary.arguments)
        self._executables: dict[Any, Any] = _EXECUTABLES()
        self._quick = CallCache(boundary.arguments)
        self.on_values: dict[Any, Jitted] = {}       # functions of what references hold
        self.known: Found | None = None              # what the next trace gives, if traced before
        JITTED.add(self)

    @property
    def _settings(self) -> tuple[Any, ...]:
        """The arguments of `jit` besides the boundary."""
        return self.inline, self.keep_unused, self._device, self._options, self._partition_options

    def _rejit(self, f: Callable[..., Any], boundary: Boundary) -> Jitted:
        """Another function, jitted as this one is."""
        return Jitted(f, boundary, *self._settings)

    def judged_by(self, **options: Any) -> Jitted:
        """This function with its plan judged by other options of the partitioner."""
        return Jitted(self._f, self._boundary, self.inline, self.keep_unused, self._device,
                      self._options, self._partition_options._replace(**options))

    # -- calling -----------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        before = None
        try:
            result = self._quick(args, kwargs)
            if result is MISS:
                state = STATE.__dict__
                before = state.copy() if state["interpreter"] is None else None
                result = self._call(args, kwargs)
            return result
        except BaseException as error:
            if isinstance(error, FloatingPointError):
                try:
                    run_in_python(self._f, args, kwargs)
                except ArithmeticError as found:
                    process_exception(found, self, args, kwargs, before)
                    raise
            process_exception(error, self, args, kwargs, before)
            raise

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call that no fast path knows: flatten, find or make the executable, run it, and
        rebuild the results. A call that has been made before is entered into the fast path.
        """
        if jit_disabled():
            return self._f(*args, **kwargs)
        traced_args, traced_kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten_call(traced_args, traced_kwargs)
        if BOXES.data and references(leaves):
            return on_arguments(self, leaves, in_tree, static)(leaves)
        if STATE.interpreter is not None:
            return self._call_inside(leaves, in_tree, static)
        if kwargs:
            self._boundary.check_kwargs(traced_kwargs)
        if self._device is not None:
            leaves = self._on_device(leaves)
        key, found = self._look_up(leaves, in_tree, static)
        known = found is not None
        if found is None:
            check_values(self.arguments, leaves, traced_args, traced_kwargs)
            program, out_tree, captured = self._trace(leaves, in_tree, static)
            if program.memo.get("references"):
                return on_closed(self, (program, out_tree, captured), leaves, in_tree, static)(
                    leaves)
            if WATCH.watcher is not None:
                WATCH.watcher(Traced(self, program, in_tree, out_tree, leaves, captured, static))
            executable = self._executable(program, leaves, in_tree, out_tree)
            found = (executable, tree.rebuilder(out_tree))
            if key is not None:
                self._executables[key] = found
        executable, rebuild = found
        deleted: Sequence[int] = ()
        unusable: Sequence[str] = ()
        arguments = self.arguments
        if arguments.donate_nums or arguments.donate_names:
            deleted, unusable = executable.donated(
                leaves, arguments.donated(traced_args, traced_kwargs),
                lambda: arguments.leaf_names(traced_args, traced_kwargs))
        results = executable(leaves)
        for i in deleted:
            leaves[i].delete()
        if unusable:
            warn(f"Some donated buffers were not usable: {', '.join(unusable)}.\nA result takes "
                 "the buffer of a donated argument that is as large.")
        elif known and self._device is None:
            run = executable.fast_path(leaves)
            if run is not None:
                self._quick.insert(args, kwargs, leaves, run, deleted, rebuild)
        return rebuild(results)

    def _look_up(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
                 ) -> tuple[Any, Any]:
        """The key of a call in the table of executables, None for one without, and its entry."""
        state, key = STATE, None
        try:
            key = (in_tree, static, leaf_keys(leaves), state.mesh, state.abstract_mesh,
                   entered_mesh(), call_settings(), THREAD.identity)
            return key, self._executables.get(key)
        except (TypeError, OverflowError):
            return None, None       # a leaf is not an array: tracing reports it
        except ValueError as error:
            if key is None or static:
                raise
            refuse_metadata(error)

    def _call_inside(self, leaves: list[Any], in_tree: Any, static: tuple[Any, ...]) -> Any:
        """Inside of a trace: one call equation."""
        if self._options and current_builder() is not None:
            raise ValueError("`compiler_options` can only be passed to top-level `jax.jit`. Got "
                             f"compiler_options={self._options} specified on a nested jit with "
                             f"name: {function_name(self._f)}")
        if self._boundary.in_shardings is not None:
            leaves = self._boundary.constrained_arguments(leaves, in_tree)
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        if program.memo.get("rules on references"):
            refuse_traced_rule()
        if program.memo.get("references"):
            return on_closed(self, (program, out_tree, captured), leaves, in_tree, static)(leaves)
        for mesh in program.attributes.get("meshes", ()):
            record_mesh(mesh)                    # traced before, perhaps: named here all the same
        if self.inline:
            results = evaluate(program, [*captured, *leaves])
        else:
            results = jit_p.bind(*captured, *leaves, name=program.name, jaxpr=program, inline=False)
        if self._boundary.out_shardings is not None:
            results = self._boundary.constrained_results(results, out_tree)
        return tree.unflatten(out_tree, results)

    def _on_device(self, leaves: list[Any]) -> list[Any]:
        """The arguments, moved to the device that jit was given."""
        if STATE.mesh.axis_names:
            raise ValueError("Mesh context manager should not be used with jit when backend or "
                             "device is also specified as an argument to jit.")
        for x in leaves:
            if isinstance(x, ArrayImpl):
                guard_move(x, x.devices() != {self._device}, self._device, explicit=False)
        return [put(x, self._device) if isinstance(x, ArrayImpl) else x for x in leaves]

    # -- tracing -----------------------------------------------------------------------------
    def _trace(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]) -> Found:
        """The program of a call, the structure of its result, and what it captures."""
        avals = []
        for i, x in enumerate(leaves):
            try:
                avals.append(x.aval if isinstance(x, Array) else
                             x if isinstance(x, ArrayType) else abstract(x))
            except (TypeError, OverflowError) as error:
                avals.append(other_type(self._f, self.arguments, leaves, i, in_tree, error))
        state = STATE
        settings = (state.abstract_mesh, entered_mesh(), trace_settings(), state.named_axes,
                    state.mapped_mesh_axes, state.check_vma, THREAD.identity)
        key: tuple[Any, ...] = (in_tree, static, *avals, settings)
        traces = self._traces
        found = None
        if state.interpreter is not None and current_builder() is not None:
            # a program of its own, with what it captures
            outermost, key = key, (*key, "nested")
            if traces:
                found = traces.get(key) or traces.get(outermost)
        elif traces:
            found = traces.get(key) or traces.get((*key, "nested"))
            if found is not None and found[2]:      # what it captures is a parameter there
                found = traces.get(key)
        if found is not None:
            return found
        if self.known is not None:
            found, self.known = self.known, None
            if not any(isinstance(x, Tracer) for x in found[2]):
                traces[key] = found
            return found
        # The hash is enough: who waits for the trace of another key looks for its own afterwards.
        claim, mark = (_thread.get_ident(), sys._getframe(), []), (id(traces), hash(key))
        owns_claim = CLAIMS.setdefault(mark, claim) is claim
        if owns_claim:
            found = traces.get(key)         # by a thread that was done since this one looked
        else:
            found = done_by_another(traces, key, mark, claim)
            owns_claim = CLAIMS.get(mark) is claim
        try:
            return found or self._trace_anew(key, avals, leaves, in_tree, static)
        finally:
            if owns_claim:
                CLAIMS.pop(mark, None)
                if claim[2]:
                    wake(claim)
            del claim       # it holds this frame, which holds it, and all that callers have

    def _trace_anew(self, key: tuple[Any, ...], avals: Sequence[ArrayType], leaves: Sequence[Any],
                    in_tree: Any, static: tuple[Any, ...]) -> Found:
        """Trace the function; its program is kept if it captures nothing of an outer trace."""
        state, name = STATE, function_name(self._f)
        unwatched = config.unwatched and not state.overrides
        if not unwatched and config.read("jax_no_tracing"):
            raise RuntimeError(f"re-tracing function {name} for `{self._boundary.api}`, but "
                               "'no_tracing' is set")
        frame = None if unwatched and not BOXES.data else Frame()
        flat = FlatFunction(self._f, self.arguments, leaves, in_tree, static, frame)
        names = flat.arg_names
        if frame is None and state.phases is None and not SCOPES.path:
            program, captured = trace_to_program(flat, avals, name=name, arg_names=names)
        else:
            with phase("trace") as timed, observing(), without_scopes(), frame or Frame():
                program, captured = trace_to_program(flat, avals, name=name, arg_names=names)
                timed.equations = len(program.eqns)
            if frame is not None and frame.has_rules:
                program.memo["rules on references"] = True
            if frame is not None and frame.read:
                program.memo["references"] = tuple(frame.read)
                program.arg_names = (*(f"ref[{i}]" for i in range(len(frame.read))), *names)
        number_names(program)
        program.result_names = tuple(flat.paths)
        found = (program, flat.out_tree, captured)
        if not captured or not any(isinstance(x, Tracer) for x in captured):
            self._traces[key] = found
        return found

    def _executable(self, program: Program, leaves: Sequence[Any], in_tree: Any,
                    out_tree: Any) -> Executable:
        """The program, with shardings of arguments and results, partitioned for its devices."""
        checked_options(self._options)
        gives: tuple[bool, ...] = ()
        if self.arguments.donate_nums or self.arguments.donate_names:
            gives = tuple(self.arguments.donated(*tree.unflatten(in_tree, list(program.invars))))
            program = with_attribute(program, DONATED, gives)
        given = self._boundary.argument_shardings(leaves, in_tree, program)
        requested = self._boundary.result_shardings(program, out_tree)
        if gives:
            self._boundary.check_donated_layouts(program, in_tree, out_tree, gives, given,
                                                 requested)
        used = set(program.outvars).union(*[eqn.invars for eqn in program.eqns])
        args = [ArgumentPlacement(n, v.aval, s, self.keep_unused or v in used) for n, v, s in
                zip(program.arg_names, program.invars, given, strict=True)]
        others = [s for s in requested if s is not None]
        return Executable(program, args, requested, others, self._partition_options,
                          who=qualified_name(self._f),
                          layouts=self._boundary.result_layouts(program, out_tree))

    # -- ahead of time -------------------------------------------------------------------------
    @property
    def origin(self) -> Callable[..., Any]:
        """The function that the user wrote."""
        return self._f

    def traced_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `trace` as the traced function itself takes them."""
        return args, kwargs

    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace without running: arguments may be arrays or ShapeDtypeStructs."""
        static: tuple[Any, ...] = ()
        if self.arguments.some_static:
            args, kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten_call(args, kwargs)
        if self._boundary.asks:
            self._boundary.check()
        if BOXES.data and references(leaves):
            return on_arguments(self, leaves, in_tree, static).trace(leaves)  # type: ignore
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        if program.memo.get("references"):
            return on_closed(self, (program, out_tree, captured), leaves, in_tree, static).trace(
                leaves)         # type: ignore
        traced = Traced(self, program, in_tree, out_tree, leaves, captured, static)
        if WATCH.watcher is not None:
            WATCH.watcher(traced)
        return traced

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        self._traces.clear()
        self._executables.clear()
        self._quick.clear()

    def _cache_size(self) -> int:
        return len(self._executables)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        try:
            return f"<PjitFunction of {self._f!r}>"
        except Exception:                       # whatever the `repr` of a function of a user's does
            return "<PjitFunction>"


JITTED: weakref.WeakSet[Jitted] = weakref.WeakSet()
"""All jitted functions that are still in use."""
