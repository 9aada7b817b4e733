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
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ..ir.context import STATE, config, x64_enabled
from ..ir.device import Device
from ..ir.diagnostic import error, fail
from ..ir.errors import IndivisibleError
from ..ir.mesh import entered_mesh
from ..ir.ops.call import jit_p
from ..ir.program import Program
from ..ir.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ..ir.spec import PartitionSpec
from ..ir.types import ArrayType
from ..runtime.array import ArrayImpl
from ..runtime.placement import Placed
from ..tracer import tree
from ..tracer.debug import observing
from ..tracer.signature import Arguments
from ..tracer.staging import current_builder, trace_to_program
from ..tracer.tracer import Tracer, typeof
from .executable import Executable, leaf_key, placed_sharding
from .stages import Lowered, Traced


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



def _is_sharding(x: Any) -> bool:
    return x is None or isinstance(x, (Sharding, PartitionSpec))


class Jitted:
    """A jitted function; see `jit`."""

    def __init__(self, f: Callable[..., Any], in_shardings: Any, out_shardings: Any,
                 arguments: Arguments, inline: bool, keep_unused: bool) -> None:
        functools.update_wrapper(self, f)
        self._f = f
        self._in_shardings, self._out_shardings = in_shardings, out_shardings
        self.arguments = arguments
        self.inline, self.keep_unused = inline, keep_unused
        self._traces: dict[Any, Any] = {}
        self._executables: dict[Any, Any] = {}

    # -- calling -----------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        traced_args, traced_kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten((traced_args, traced_kwargs))
        if STATE.interpreter is not None:
            return self._call_inside(leaves, in_tree, static)
        self._check_kwargs(traced_kwargs)
        try:
            key = (in_tree, static, tuple(map(leaf_key, leaves)), STATE.mesh,
                   STATE.abstract_mesh, x64_enabled(), config.shardtrace_executor,
                   config.jax_default_device)
            found = self._executables.get(key)
        except TypeError:
            found = key = None      # a leaf that is no array: the traced call reports it
        if found is None:
            program, out_tree, captured = self._trace(leaves, in_tree, static)
            executable = self._executable(program, leaves, in_tree, out_tree)
            found = (executable, out_tree)
            if key is not None:
                self._executables[key] = found
        executable, out_tree = found
        results = executable(leaves)
        if self.arguments.donate_nums or self.arguments.donate_names:
            self._donate(traced_args, traced_kwargs, leaves, results)
        return tree.unflatten(out_tree, results)

    def _call_inside(self, leaves: list[Any], in_tree: Any, static: tuple[Any, ...]) -> Any:
        """Inside of a trace: one call equation."""
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        results = jit_p.bind(*captured, *leaves, name=program.name, jaxpr=program,
                                  inline=self.inline)
        return tree.unflatten(out_tree, results)

    # -- tracing -----------------------------------------------------------------------------
    def _trace(self, leaves: Sequence[Any], in_tree: Any, static: tuple[Any, ...]
               ) -> tuple[Program, Any, list[Any]]:
        args, kwargs = tree.unflatten(in_tree, leaves)
        names: tuple[str, ...] | None = None
        types = []
        for i, x in enumerate(leaves):
            try:
                types.append(typeof(x))
            except TypeError:
                names = names or self.arguments.leaf_names(args, kwargs)
                types.append(_argument_type(x, self._f, names[i]))
        outer = current_builder()
        key = (in_tree, static, tuple(types), STATE.abstract_mesh, x64_enabled(),
               STATE.named_axes, STATE.mapped_mesh_axes, STATE.check_vma)
        if outer is not None and key not in self._traces:
            key = (*key, "nested")
        found = self._traces.get(key)
        if found is not None:
            return found
        names = names or self.arguments.leaf_names(args, kwargs)
        trees: list[Any] = []

        def flat(*tracers: Any) -> list[Any]:
            inner_args, inner_kwargs = tree.unflatten(in_tree, tracers)
            inner_args, inner_kwargs = self.arguments.merge(inner_args, inner_kwargs, static)
            results = self._f(*inner_args, **inner_kwargs)
            out, out_tree = tree.flatten(results)
            trees.append(out_tree)
            self._check_results(out)
            return out

        with observing():
            program, captured = trace_to_program(
                flat, types, name=_function_name(self._f), arg_names=names)
        found = (program, trees[-1], captured)
        if not any(isinstance(x, Tracer) for x in captured):
            self._traces[key] = found
        return found

    def _check_results(self, results: Sequence[Any]) -> None:
        for x in results:
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
        args = [Placed(n, v.aval, s) for n, v, s in
                zip(program.arg_names, program.invars, given, strict=True)]
        others = [s for s in asked if s is not None]
        return Executable(program, args, asked, others)

    def _given_in_shardings(self, leaves: Sequence[Any], in_tree: Any, program: Program
                            ) -> list[Sharding | None]:
        own = [placed_sharding(x) for x in leaves]
        if self._in_shardings is None:
            return own
        args, _ = tree.unflatten(in_tree, leaves)
        prefix = self._in_shardings
        if isinstance(prefix, list):
            prefix = tuple(prefix)
        if isinstance(prefix, tuple) and len(prefix) != len(args):
            raise ValueError(
                "pjit in_shardings specification must be a tree prefix of the positional arguments "
                "tuple. In particular, pjit in_shardings must either be a Sharding, a "
                "PartitionSpec, or a tuple of length equal to the number of positional arguments. "
                f"But pjit in_shardings is the wrong length: got a tuple or list of length "
                f"{len(prefix)} for an args tuple of length {len(args)}.")
        wanted = tree.broadcast_prefix(prefix, tuple(args), _is_sharding, "pjit in_shardings")
        out: list[Sharding | None] = []
        for asked, has, v, name in zip(wanted, own, program.invars, program.arg_names,
                                       strict=True):
            if asked is None:
                out.append(has)
                continue
            sharding = _canonical(asked, "in_shardings")
            _check_fits(sharding, v.aval, f"arguments with pytree key path {name}")
            if has is not None and not has.is_equivalent_to(sharding, v.aval.ndim):
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
        example = tree.unflatten(out_tree, list(program.outvars))
        try:
            wanted = tree.broadcast_prefix(
                self._out_shardings, example, _is_sharding, "pjit out_shardings")
        except tree.PrefixError as e:
            raise ValueError(f"Mismatch details (1 found):\n{e}") from None
        out = []
        for i, (asked, v) in enumerate(zip(wanted, program.outvars, strict=True)):
            sharding = None if asked is None else _canonical(asked, "out_shardings")
            if sharding is not None:
                name = "result" if len(wanted) == 1 else f"result[{i}]"
                _check_fits(sharding, v.aval, f"outputs with pytree key path {name}")
            out.append(sharding)
        return out

    def _check_kwargs(self, kwargs: dict[str, Any]) -> None:
        if kwargs and self._in_shardings is not None:
            raise ValueError("pjit does not support kwargs when in_shardings is specified.")

    def _donate(self, args: Any, kwargs: Any, leaves: Sequence[Any], results: Sequence[Any]
                ) -> None:
        spare = [(r.aval.shape, r.aval.dtype) for r in results]
        unusable = []
        for x, given in zip(leaves, self.arguments.donated(args, kwargs), strict=True):
            if not given or not isinstance(x, ArrayImpl):
                continue
            if (x.aval.shape, x.aval.dtype) in spare:
                spare.remove((x.aval.shape, x.aval.dtype))
                x.delete()
            else:
                unusable.append(str(x.aval))
        if unusable:
            warnings.warn(f"Some donated buffers were not usable: {', '.join(unusable)}.\nSee an "
                          "explanation at https://docs.jax.dev/en/latest/faq.html#buffer-donation.",
                          stacklevel=3)

    # -- ahead of time -------------------------------------------------------------------------
    def trace(self, *args: Any, **kwargs: Any) -> Traced:
        """Trace without running: arguments may be arrays or ShapeDtypeStructs."""
        args, kwargs, static = self.arguments.split(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        program, out_tree, captured = self._trace(leaves, in_tree, static)
        return Traced(self, program, in_tree, out_tree, leaves, captured)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered:
        return self.trace(*args, **kwargs).lower()

    def eval_shape(self, *args: Any, **kwargs: Any) -> Any:
        return self.trace(*args, **kwargs).out_info

    def clear_cache(self) -> None:
        self._traces.clear()
        self._executables.clear()

    def _cache_size(self) -> int:
        return len(self._executables)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jitted {_function_name(self._f)}>"


def _function_name(f: Any) -> str:
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def _canonical(sharding: Any, where: str) -> Sharding:
    if isinstance(sharding, PartitionSpec):
        mesh = STATE.mesh if STATE.mesh.axis_names else entered_mesh()
        if mesh.empty:
            raise RuntimeError(
                "jit requires a non-empty mesh in context if you are passing `PartitionSpec`s to "
                f"{where}. You can define a context mesh via `jax.set_mesh(mesh)`. Alternatively, "
                f"provide `Sharding`s to {where} and then the mesh context manager is not "
                "required.")
        return NamedSharding(mesh, sharding)
    if isinstance(sharding, Device):
        return SingleDeviceSharding(sharding)
    if not isinstance(sharding, Sharding):
        raise TypeError(f"{where} leaf specifications are expected to be PartitionSpec instances "
                        f"or None, but got {sharding}")
    return sharding


def _check_fits(sharding: Sharding, aval: ArrayType, what: str) -> None:
    try:
        sharding.check_compatible_aval(aval.shape)
    except ValueError as e:
        raise ValueError(f"One of pjit {what} is incompatible with its sharding annotation "
                         f"{sharding}: {e}") from None
    try:
        sharding.shard_shape(aval.shape)
    except IndivisibleError as e:
        raise IndivisibleError(f"One of pjit {what} was given the sharding of {sharding}, which "
                               f"implies that the global size of its dimension should be divisible "
                               f"by the number of its parts, but it is not: {e}") from None


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
    if device is not None:
        out_shardings = in_shardings = SingleDeviceSharding(device)
    arguments = Arguments(fun, static_argnums, static_argnames, donate_argnums, donate_argnames)
    return Jitted(fun, in_shardings, out_shardings, arguments, inline, keep_unused)


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
