"""jit: trace once per argument types, partition, run.

    f.trace(*args)            -> Traced     .jaxpr: the program as the user typed it
     .lower()                 -> Lowered    .as_text(): every sharding resolved, still global
     .compile()               -> Compiled   .as_text(): the per-device program and its collectives
     (*args)                                runs it

A call of a jitted function goes through the same three stages and caches the last on the types and
placements of the arguments. Inside of a trace it is one call equation.
"""
from __future__ import annotations

import functools
import inspect
import math
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..ir.array import Array
from ..ir.context import STATE, call_settings, config, jit_disabled, trace_settings
from ..ir.device import Device
from ..ir.diagnostic import error, fail
from ..ir.formats import Format, Layout, kept_layout
from ..ir.mesh import entered_mesh
from ..ir.ops.call import jit_p
from ..ir.phases import phase
from ..ir.process import process_identity
from ..ir.program import Program
from ..ir.shape_struct import ShapeDtypeStruct
from ..ir.sharding import Sharding, SingleDeviceSharding
from ..ir.types import ArrayType
from ..runtime.array import ArrayImpl
from ..runtime.placement import Placed
from ..runtime.transfer import put
from ..tracer import tree
from ..tracer.autodiff.replay import evaluate
from ..tracer.debug import observing
from ..tracer.name_scopes import named_scopes
from ..tracer.signature import Arguments
from ..tracer.staging import current_builder, record_mesh, trace_to_program
from ..tracer.tracer import Tracer, typeof
from .asked_shardings import (
    check_asked,
    check_fits,
    check_one_process,
    check_positional,
    checked_device,
    constrained,
    is_sharding,
    resolved,
)
from .calls import MISS, QuickCalls
from .executable import DEFAULT_OPTIONS, Executable, leaf_keys, placed_sharding
from .seen import WATCH
from .stages import Lowered, Traced

_LOCK = threading.Lock()
_ONE = tree.structure(0)         # of an array that is all


def _argument_type(x: Any, function: Any, name: str) -> ArrayType:
    try:
        return typeof(x)
    except TypeError:
        raise error(
            TypeError,
            f"Error interpreting argument to {function} as an abstract array. The problematic "
            f"value is of type {type(x)} and was passed to the function at path {name}.\n"
            "This typically means that a jit-wrapped function was called with a non-array "
            "argument, and this argument was not marked as static using the static_argnums or "
            "static_argnames parameters of jax.jit.", code="not-an-array",
            help=f"mark `{name}` static: `jit(f, static_argnames={name!r})`") from None



class Jitted:
    """A jitted function; see `jit`."""

    def __init__(self, f: Callable[..., Any], in_shardings: Any, out_shardings: Any,
                 arguments: Arguments, inline: bool, keep_unused: bool,
                 device: Device | None = None, options: dict[str, Any] | None = None) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        self.arguments = arguments
        self.inline, self.keep_unused = inline, keep_unused
        self._device, self._options = device, options
        self._api = "jit"        # what users called this by
        self._partition_options = DEFAULT_OPTIONS
        self._traces = _traces_of(f, arguments)
        self._executables: dict[Any, Any] = {}
        self._quick = QuickCalls(arguments)
        JITTED.add(self)

    # -- calling -----------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        result = self._quick(args, kwargs)
        return self._call(args, kwargs) if result is MISS else result

    def _call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if jit_disabled():
            return self._f(*args, **kwargs)
        traced_args, traced_kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten_call(traced_args, traced_kwargs)
        state = STATE
        if state.interpreter is not None:
            return self._call_inside(leaves, in_tree, static)
        if kwargs:
            self._check_kwargs(traced_kwargs)
        if self._device is not None:
            leaves = self._on_device(leaves)
        try:
            key = (in_tree, static, leaf_keys(leaves), state.mesh, state.abstract_mesh,
                   entered_mesh(), call_settings(), process_identity())
            found = self._executables.get(key)
        except TypeError:
            found = key = None      # a leaf that is no array: the traced call reports it
        known = found is not None
        if found is None:
            self._check_values(leaves, traced_args, traced_kwargs)
            program, out_tree, captured = self._trace(leaves, in_tree, static)
            if WATCH.watcher is not None:
                WATCH.watcher(Traced(self, program, in_tree, out_tree, leaves, captured, static))
            executable = self._executable(program, leaves, in_tree, out_tree)
            found = (executable, tree.rebuilder(out_tree))
            if key is not None:
                self._executables[key] = found
        executable, rebuild = found
        results = executable(leaves)
        gone, unusable = self._donated(traced_args, traced_kwargs, leaves, results)
        for i in gone:
            leaves[i].delete()
        if unusable:
            warnings.warn(f"Some donated buffers were not usable: {', '.join(unusable)}.\nSee an "
                          "explanation at https://docs.jax.dev/en/latest/faq.html#buffer-donation.",
                          stacklevel=3)
        elif known and self._device is None:
            run = executable.on_data(leaves)
            if run is not None:
                self._quick.learn(args, kwargs, leaves, run, gone, rebuild)
        return rebuild(results)

    def _call_inside(self, leaves: list[Any], in_tree: Any, static: tuple[Any, ...]) -> Any:
        """Inside of a trace: one call equation."""
        if self._options and current_builder() is not None:
            raise ValueError("`compiler_options` can only be passed to top-level `jax.jit`. Got "
                             f"compiler_options={self._options} specified on a nested jit with "
                             f"name: {_function_name(self._f)}")
        if self._in_shardings is not None:
            leaves = self._constrained_arguments(leaves, in_tree)
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        for mesh in program.memo.get("meshes", ()):
            record_mesh(mesh)                    # traced before, perhaps: named here all the same
        if self.inline:
            results = evaluate(program, [*captured, *leaves])
        else:
            results = jit_p.bind(*captured, *leaves, name=program.name, jaxpr=program, inline=False)
        if self._out_shardings is not None:
            results = self._constrained_results(results, out_tree)
        return tree.unflatten(out_tree, results)

    def _constrained_arguments(self, leaves: list[Any], in_tree: Any) -> list[Any]:
        args, kwargs = tree.unflatten(in_tree, leaves)
        self._check_kwargs(kwargs)
        names = self.arguments.leaf_names(args, kwargs)

        def check(sharding: Sharding, x: Any, i: int) -> None:
            check_fits(sharding, typeof(x), f"arguments with pytree key path {names[i]}")

        return constrained(leaves, self._in_prefix(args), "in_shardings", self._api, check)

    def _constrained_results(self, results: Sequence[Any], out_tree: Any) -> list[Any]:
        def check(sharding: Sharding, x: Any, i: int) -> None:
            check_fits(sharding, typeof(x), f"outputs with pytree key path {_result(i, results)}")

        return constrained(results, self._out_prefix(results, out_tree), "out_shardings",
                           self._api, check)

    def _on_device(self, leaves: list[Any]) -> list[Any]:
        """The arguments on the device that jit was given, wherever they are."""
        if STATE.mesh.axis_names:
            raise ValueError("Mesh context manager should not be used with jit when backend or "
                             "device is also specified as an argument to jit.")
        return [put(x, self._device) if isinstance(x, ArrayImpl) else x for x in leaves]

    def _check_values(self, leaves: Sequence[Any], args: Any, kwargs: Any) -> None:
        """Raise TypeError for an argument that has a type but no value."""
        for i, x in enumerate(leaves):
            if isinstance(x, (ShapeDtypeStruct, ArrayType)):
                name = self.arguments.leaf_names(args, kwargs)[i]
                aval = x if isinstance(x, ArrayType) else x.aval
                fail(TypeError, f"Argument '{name}' of shape {aval.str_short()} of type {type(x)} "
                     "is not a valid JAX type.", code="not-an-array",
                     help="call `.lower(...)` or `.eval_shape(...)` with types, the function with "
                          "arrays")

    # -- tracing -----------------------------------------------------------------------------
    def _trace(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
               ) -> tuple[Program, Any, list[Any]]:
        avals = []
        for i, x in enumerate(leaves):
            try:
                avals.append(x.aval if isinstance(x, Array) else
                             x if isinstance(x, ArrayType) else typeof(x))
            except TypeError:
                names = self.arguments.leaf_names(*tree.unflatten(in_tree, leaves))
                avals.append(_argument_type(x, self._f, names[i]))
        state = STATE
        settings = (state.abstract_mesh, entered_mesh(), trace_settings(), state.named_axes,
                    state.mapped_mesh_axes, state.check_vma, process_identity())
        key: tuple[Any, ...] = (in_tree, static, *avals, settings)
        found = None
        if current_builder() is not None:        # a program of its own, with what it captures
            outermost, key = key, (*key, "nested")
            found = self._traces.get(key) or self._traces.get(outermost)
        else:
            found = self._traces.get(key)
        if found is not None:
            return found
        plain = in_tree is tree.structure_of_arrays(len(leaves)) and not static
        names = self.arguments.names_by_position(len(leaves)) if plain else (
            self.arguments.leaf_names(*tree.unflatten(in_tree, leaves)))
        if config.read("jax_no_tracing"):
            raise RuntimeError(f"re-tracing function {_function_name(self._f)} for `{self._api}`, "
                               "but 'no_tracing' is set")
        trees: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            if plain:
                results = self._f(*tracers)
            else:
                inner_args, inner_kwargs = tree.unflatten(in_tree, tracers)
                inner_args, inner_kwargs = self.arguments.merge(inner_args, inner_kwargs, static)
                results = self._f(*inner_args, **inner_kwargs)
            if type(results) is Tracer:
                trees.append(_ONE)
                return [results]
            out, out_tree = tree.flatten(results)
            trees.append(out_tree)
            self._check_results(out)
            return out

        with phase("trace") as timed, observing(), named_scopes():
            program, captured = trace_to_program(
                flat, avals, name=_function_name(self._f), arg_names=names)
            timed.equations = len(program.eqns)
        found = (program, trees[-1], captured)
        if not any(isinstance(x, Tracer) for x in captured):
            self._traces[key] = found
        return found

    def _check_results(self, results: Sequence[Any]) -> None:
        for x in results:
            if type(x) is Tracer:
                continue
            try:
                typeof(x)
            except TypeError:
                code = getattr(self._f, "__code__", None)
                where = f" at {code.co_filename}:{code.co_firstlineno}" if code else ""
                fail(TypeError, f"function {_function_name(self._f)}{where} traced for jit "
                     f"returned a value of type {type(x)}, which is not a valid JAX type",
                     code="not-an-array", help="return arrays, or pytrees of arrays, only")

    def _executable(self, program: Program, leaves: Sequence[Any], in_tree: Any,
                    out_tree: Any) -> Executable:
        given = self._given_in_shardings(leaves, in_tree, program)
        asked = self._asked_out_shardings(program, out_tree)
        used = {v for eqn in program.eqns for v in eqn.invars} | {*program.outvars}
        args = [Placed(n, v.aval, s, self.keep_unused or v in used) for n, v, s in
                zip(program.arg_names, program.invars, given, strict=True)]
        others = [s for s in asked if s is not None]
        executable = Executable(program, args, asked, others, self._partition_options,
                                who=_qualified_name(self._f))
        executable.layouts = self._asked_layouts(program, out_tree)
        return executable

    def _asked_layouts(self, program: Program, out_tree: Any) -> list[Layout | None]:
        """The layout that out_shardings asks for, for each result; [] if it names none."""
        if not any(isinstance(f, Format) for f in tree.leaves(self._out_shardings, is_sharding)):
            return []
        example = tree.unflatten(out_tree, list(program.outvars))
        asked = tree.broadcast_prefix(self._out_shardings, example, is_sharding)
        found = [f.layout if isinstance(f, Format) else None for f in asked]
        return [layout if isinstance(layout, Layout) else None for layout in found]

    def _given_in_shardings(self, leaves: Sequence[Any], in_tree: Any, program: Program
                            ) -> list[Sharding | None]:
        own = [placed_sharding(x) for x in leaves]
        if self._in_shardings is None:
            return own
        args, _ = tree.unflatten(in_tree, leaves)
        wanted = self._in_prefix(args)
        out: list[Sharding | None] = []
        for asked, has, v, name, x in zip(wanted, own, program.invars, program.arg_names, leaves,
                                          strict=True):
            sharding = resolved(asked, "in_shardings", self._api)
            if sharding is None:
                out.append(has)
                continue
            if isinstance(x, np.ndarray) and not sharding.is_fully_replicated:
                check_one_process(v.aval)
            check_fits(sharding, v.aval, f"arguments with pytree key path {name}")
            if isinstance(asked, Format):
                _check_layout(asked.layout, x, v.aval)
            if has is not None and has.is_concrete and has.memory_kind != sharding.memory_kind:
                raise error(
                    ValueError, "Memory kinds passed to jax.jit does not match memory kind on the "
                    f"respective arg. Got jit memory kind: {sharding.memory_kind}, arg memory "
                    f"kind: {has.memory_kind} for arg type: {v.aval.update(sharding=None)}",
                    code="in-memory", help="move the argument with `device_put`")
            if has is not None and has.tiling(v.aval.ndim) != sharding.tiling(v.aval.ndim):
                raise error(
                    ValueError, "Sharding passed to jit does not match the sharding on the "
                    f"respective arg. Got jit sharding: {sharding},\narg sharding: {has} for arg "
                    f"type: {v.aval.update(sharding=None)}", code="in-sharding",
                    help="move the argument with `device_put`, or leave in_shardings out")
            out.append(sharding)
        return out

    def _asked_out_shardings(self, program: Program, out_tree: Any) -> list[Sharding | None]:
        if self._out_shardings is None:
            return [None] * len(program.outvars)
        wanted = self._out_prefix(program.outvars, out_tree)
        out = []
        for i, (asked, v) in enumerate(zip(wanted, program.outvars, strict=True)):
            sharding = resolved(asked, "out_shardings", self._api)
            if sharding is not None:
                name = _result(i, wanted)
                check_fits(sharding, v.aval, f"outputs with pytree key path {name}")
            out.append(sharding)
        return out

    def _in_prefix(self, args: Any) -> list[Any]:
        """What in_shardings says of each leaf of the arguments."""
        prefix = tuple(self._in_shardings) if type(self._in_shardings) is list else (
            self._in_shardings)
        check_positional(prefix, tuple(args))
        return tree.broadcast_prefix(prefix, tuple(args), is_sharding, "pjit in_shardings")

    def _out_prefix(self, results: Sequence[Any], out_tree: Any) -> list[Any]:
        """What out_shardings says of each leaf of the result."""
        example = tree.unflatten(out_tree, list(results))
        try:
            return tree.broadcast_prefix(
                self._out_shardings, example, is_sharding, "pjit out_shardings")
        except tree.PrefixError:
            found = tree.prefix_mismatches(self._out_shardings, example, is_sharding,
                                           "pjit out_shardings")
            details = "\n".join(found)
            raise ValueError(f"Mismatch details ({len(found)} found):\n{details}") from None

    def _check_kwargs(self, kwargs: dict[str, Any]) -> None:
        if kwargs and self._in_shardings is not None:
            raise ValueError("pjit does not support kwargs when in_shardings is specified.")

    def _donated(self, args: Any, kwargs: Any, leaves: Sequence[Any], results: Sequence[Any]
                 ) -> tuple[list[int], list[str]]:
        """Which leaves give their buffers to results, and the types of those that nobody can use.
        """
        gone: list[int] = []
        if not self.arguments.donate_nums and not self.arguments.donate_names:
            return gone, []
        spare = [(r.aval.shape, r.aval.dtype) for r in results]
        others: list[int] = []
        given = self.arguments.donated(args, kwargs)
        for i, (x, donated) in enumerate(zip(leaves, given, strict=True)):
            if not donated or not isinstance(x, ArrayImpl):
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
        return gone, unusable

    # -- ahead of time -------------------------------------------------------------------------
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace without running: arguments may be arrays or ShapeDtypeStructs."""
        args, kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten_call(args, kwargs)
        if self._in_shardings is not None or self._out_shardings is not None:
            self._check_shardings()
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        traced = Traced(self, program, in_tree, out_tree, leaves, captured, static)
        if WATCH.watcher is not None:
            WATCH.watcher(traced)
        return traced

    def _check_shardings(self) -> None:
        """Raises where there is no mesh for a sharding that was asked for."""
        for asked, where in ((self._in_shardings, "in_shardings"),
                             (self._out_shardings, "out_shardings")):
            for sharding in () if asked is None else tree.leaves(asked, is_sharding):
                resolved(sharding, where, self._api)

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
        return f"<jitted {_function_name(self._f)}>"


# A function is one program however often it is jitted. What a trace holds rarely leads back
# to the function; where it does, `clear_caches` ends it.
_SHARED_TRACES: weakref.WeakKeyDictionary[Any, dict[Any, dict[Any, Any]]] = (
    weakref.WeakKeyDictionary())


def _traces_of(f: Callable[..., Any], arguments: Arguments) -> dict[Any, Any]:
    """The traces of a function, which all its jitted forms with these static arguments share."""
    if type(f) is not types.FunctionType:
        return {}
    with _LOCK:
        of_function = _SHARED_TRACES.setdefault(f, {})
        return of_function.setdefault((arguments.static_nums, arguments.static_names), {})


def _function_name(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def _qualified_name(f: Any) -> str:
    """What messages call a function: its name with where it is defined, else its repr."""
    return getattr(f, "__qualname__", None) or str(f)


def _check_layout(layout: Any, x: Any, aval: ArrayType) -> None:
    """Raise unless the argument lies in memory as in_shardings says."""
    if isinstance(layout, Layout):
        layout.check_compatible_aval(aval.shape)
    if layout is None or not isinstance(x, ArrayImpl) or not x.committed:
        return
    own = x.format.layout
    if not isinstance(layout, Layout) or kept_layout(layout) != own:
        fail(ValueError, "Layout passed to jit does not match the layout on the respective arg. "
             f"Got jit layout: {layout},\narg layout: {own} for arg type: "
             f"{aval.update(sharding=None)}.",
             code="in-layout", help="move the argument with `device_put(x, Format(...))`")


def _result(i: int, results: Sequence[Any]) -> str:
    return "result" if len(results) == 1 else f"result[{i}]"


def jit(fun: Callable[..., Any] | None = None, /, *, in_shardings: Any = None,
        out_shardings: Any = None, static_argnums: Any = None, static_argnames: Any = None,
        donate_argnums: Any = None, donate_argnames: Any = None, keep_unused: bool = False,
        device: Device | None = None, backend: str | None = None, inline: bool = False,
        compiler_options: dict[str, Any] | None = None) -> Any:
    """A function that traces `fun` once per argument types, partitions it, and runs it.

    in_shardings, out_shardings: a Sharding, a PartitionSpec (under a context mesh), None, or a tree
      prefix of the positional arguments or of the result.
    static_argnums, static_argnames: arguments that are part of the program; hashable.
    donate_argnums, donate_argnames: arguments whose buffers results may take.
    The result has `.trace`, `.lower`, `.eval_shape`; see this module's docstring.
    Raises ValueError where committed arguments, shardings and the meshes named inside are not on
    the same devices, and IndivisibleError where a sharding does not divide an argument or result.

    >>> rows = st.NamedSharding(st.make_mesh((4, 2), ("x", "y")), P("x"))
    >>> f = st.jit(lambda v: v * 2, in_shardings=rows, donate_argnums=0)
    >>> f(jnp.arange(8)).sharding.spec
    P('x',)
    """
    if fun is None:
        return functools.partial(
            jit, in_shardings=in_shardings, out_shardings=out_shardings,
            static_argnums=static_argnums, static_argnames=static_argnames,
            donate_argnums=donate_argnums, donate_argnames=donate_argnames,
            keep_unused=keep_unused, device=device, backend=backend, inline=inline,
            compiler_options=compiler_options)
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    if inspect.isgeneratorfunction(fun):
        raise TypeError(f"Expected a function, got a generator function: {fun}")
    if device is not None or backend is not None:
        device = checked_device(device, backend, in_shardings, out_shardings)
        out_shardings = in_shardings = SingleDeviceSharding(device)
    if in_shardings is not None:
        check_asked(in_shardings, "in_shardings")
    if out_shardings is not None:
        check_asked(out_shardings, "out_shardings")
    arguments = Arguments(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Jitted(fun, in_shardings, out_shardings, arguments, inline, keep_unused, device,
                  compiler_options)


JITTED: weakref.WeakSet[Jitted] = weakref.WeakSet()
"""All jitted functions that are still in use."""


def eval_shape(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Shapes, dtypes and shardings of `fun(*args, **kwargs)`, without computing it."""
    return jit(fun).eval_shape(*args, **kwargs)


def make_jaxpr(fun: Callable[..., Any], static_argnums: Any = (), axis_env: Any = None,
               return_shape: bool = False) -> Callable[..., Any]:
    """A function that returns the traced program of `fun` for given arguments."""
    jitted = jit(fun, static_argnums=static_argnums)

    @functools.wraps(fun)
    def traced(*args: Any, **kwargs: Any) -> Any:
        result = jitted.trace(*args, **kwargs)
        return (result.jaxpr, result.out_info) if return_shape else result.jaxpr

    return traced
