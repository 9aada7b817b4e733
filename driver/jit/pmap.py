"""pmap: one call of a function on each device, over a dimension of its arguments.

A thin layer over `shard_map` and `jit`: a mesh of one axis as long as the mapped dimension, a body
that takes the mapped dimension (of size 1 on each device) away and puts it back, and results that
are ordinary sharded arrays. Arguments, results and messages are those of `jax.pmap` (0.10.2).
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from ...arrays.array import ArrayImpl
from ...arrays.assembly import (
    make_array_from_process_local_data,
    make_array_from_single_device_arrays,
)
from ...arrays.devices import devices as all_devices
from ...arrays.devices import local_devices, process_count
from ...ir.api_boundary import bound_class
from ...ir.diagnostics.diagnostic import fail
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import Mesh
from ...ir.settings.context import STATE
from ...ir.shardings.base_sharding import indivisible
from ...ir.shardings.sharding import NamedSharding
from ...ir.spec import PartitionSpec
from ...ir.support.named_tuple import NamedTuple
from ...tracer import lax
from ...tracer.shard_map.shard_map import shard_map
from ...tracer.staging.signature import as_tuple
from ...tracer.trees import tree
from .jit import jit

_UNNAMED = "_internal_pmap_axis_name"


def pmap(fun: Callable[..., Any], axis_name: Hashable = None, *, in_axes: Any = 0,
         out_axes: Any = 0, static_broadcasted_argnums: int | Iterable[int] = (),
         devices: Sequence[Device] | None = None, backend: str | None = None,
         axis_size: int | None = None, donate_argnums: int | Iterable[int] = ()
         ) -> Callable[..., Any]:
    """The older way to run `fun` on several devices at once; new programs use `shard_map`.

    fun: sees one slice of each mapped argument; collectives over `axis_name` may be used in it.
    in_axes: for each positional argument the dimension that is mapped, or None for an argument that
      every device has whole; or a tree prefix of the arguments. Keyword arguments are mapped over
      dimension 0.
    out_axes: where the mapped dimension goes in each result; None takes the first device's value.
    static_broadcasted_argnums: positional arguments that are part of the program; hashable.
    devices: where to run; by default the first of all devices, as many as the mapped size.
    axis_size: the mapped size, over all processes. donate_argnums: arguments whose buffers results
      may take.

    With several processes each gives and gets its own part of the mapped dimension.
    Raises ValueError where sizes do not fit the devices, and TypeError for axes that are no ints.

    >>> total = pmap(lambda x: x / st.lax.psum(x, "i"), axis_name="i")(np.arange(4.0))
    >>> total, total.sharding.spec
    (Array([0.        , 0.16666667, 0.33333334, 0.5       ], dtype=float32), P('i',))
    """
    if devices is not None and not len(devices):
        raise ValueError("'devices' argument to pmap must be non-empty, or None.")
    if not callable(fun):
        raise TypeError(f"Expected a callable value, got {fun}")
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if not all(type(a) is int for a in tree.leaves(axes)):
            raise TypeError(f"pmap {name} must be an int, None, or (nested) container with those "
                            f"types as leaves, but got {axes}.")
    mapped = _Mapped(fun, _UNNAMED if axis_name is None else axis_name, in_axes, out_axes,
                     as_tuple(static_broadcasted_argnums),
                     None if devices is None else tuple(devices), backend, axis_size,
                     as_tuple(donate_argnums))

    @functools.wraps(fun)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return mapped(*args, **kwargs)

    wrapped.lower = mapped.lower  # type: ignore[attr-defined]
    return wrapped


class _Compiled(NamedTuple):
    """The jitted function of flat arguments, with the mesh it runs on and its specs; and that of
    positional arguments as they are given, for those who want its stages."""
    run: Any
    whole: Any
    mesh: Mesh
    in_specs: tuple[PartitionSpec, ...]


@bound_class
class _Mapped:
    """A function that was given to `pmap`, with what was made of it for each kind of call."""

    def __init__(self, fun: Callable[..., Any], axis_name: Hashable, in_axes: Any, out_axes: Any,
                 static: tuple[int, ...], devices: tuple[Device, ...] | None, backend: str | None,
                 axis_size: int | None, donated: tuple[int, ...]) -> None:
        self._fun, self._axis_name = fun, axis_name
        self._in_axes, self._out_axes = in_axes, out_axes
        self._static, self._donated = static, donated
        self._devices, self._backend, self._axis_size = devices, backend, axis_size
        self._compiled: dict[Any, _Compiled] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        compiled, leaves = self._prepared(args, kwargs)
        several = process_count() > 1 and STATE.interpreter is None
        if several:
            leaves = [_global(x, NamedSharding(compiled.mesh, spec))
                      for x, spec in zip(leaves, compiled.in_specs, strict=True)]
        out = compiled.run(*leaves)
        return tree.map(_local, out) if several else out

    def lower(self, *args: Any, **kwargs: Any) -> Any:
        compiled, leaves = self._prepared(args, kwargs)
        if kwargs:                      # which have no shardings of their own
            return compiled.run.lower(*leaves)
        return compiled.whole.lower(*[a for i, a in enumerate(args) if i not in self._static])

    def _prepared(self, args: tuple[Any, ...], kwargs: dict[str, Any]
                  ) -> tuple[_Compiled, list[Any]]:
        """(What was compiled for calls such as this one, its flat arguments)."""
        static = self._static_values(args)
        dynamic = tuple([a for i, a in enumerate(args) if i not in self._static])
        leaves, in_tree = tree.flatten((dynamic, kwargs))
        axes = self._flat_in_axes(dynamic, kwargs, len(leaves))
        size = _mapped_size(leaves, axes)
        inside = STATE.interpreter is not None
        chosen = self._mesh_devices(size, inside)
        mesh = Mesh(np.array(chosen, dtype=object), (self._axis_name,))
        if STATE.abstract_mesh.manual_axes:
            fail(ValueError, f"The context mesh {STATE.abstract_mesh} should match the mesh passed "
                 f"to shard_map {mesh}", code="nested-pmap",
                 label="a pmap inside of a pmap or a shard_map would need devices of its own",
                 help="use one shard_map over a mesh with an axis for each of them")
        key = (in_tree, static, axes, chosen, inside)
        compiled = self._compiled.get(key)
        if process_count() == 1:
            _check_sizes(leaves, axes, mesh)
        if compiled is None:
            compiled = self._compiled[key] = self._compile(in_tree, static, axes, mesh, inside,
                                                           len(args))
        return compiled, leaves

    def _static_values(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The static arguments, which must be passed by position and be hashable."""
        static = self._static
        if static and max(static) >= len(args):
            raise ValueError(
                f"pmapped function has static_broadcasted_argnums={static} but was called with "
                f"only {len(args)} positional argument{'s' if len(args) > 1 else ''}. All static "
                "broadcasted arguments must be passed positionally.")
        for i in static:
            try:
                hash(args[i])
            except TypeError:
                name = getattr(self._fun, "__name__", str(self._fun))
                raise ValueError(
                    "Non-hashable static arguments are not supported, as this can lead to "
                    f"unexpected cache-misses. Static argument (index {i}) of type "
                    f"{type(args[i])} for function {name} is non-hashable.") from None
        return tuple([args[i] for i in static])

    def _flat_in_axes(self, args: tuple[Any, ...], kwargs: dict[str, Any], count: int
                      ) -> tuple[int | None, ...]:
        """For each leaf the dimension that is mapped; arguments passed by keyword map dimension 0.
        """
        prefix = self._in_axes
        if isinstance(prefix, list):
            prefix = tuple(prefix)
        if self._static and isinstance(prefix, tuple):
            prefix = tuple([a for i, a in enumerate(prefix) if i not in self._static])
        try:
            axes = tree.broadcast_prefix(prefix, args, None, "pmap in_axes[0]")
        except tree.PrefixError as e:
            raise ValueError(
                f"{e}\n\nThe 'full pytree' here is the tuple of arguments passed positionally to "
                "the pmapped function, and the value of `in_axes` must be a tree prefix of that "
                "tuple. But it was not a prefix." + ("" if args or not kwargs else (
                    "\n\nArguments were passed by keyword here, of which `in_axes` does not speak: "
                    "each argument passed by keyword is mapped over its dimension 0."))
            ) from None
        return (*axes, *(0,) * (count - len(axes)))

    def _mesh_devices(self, size: int, inside: bool) -> tuple[Device, ...]:
        """The devices of a call that maps a dimension of this size; those of all processes, outside
        of other traces.
        """
        processes = process_count()
        if processes == 1 and self._axis_size not in (None, size):
            raise ValueError(f"Specified axis_size {self._axis_size} doesn't match received "
                             f"axis_size {size}.")
        if processes > 1 and inside:
            return tuple(local_devices(backend=self._backend)[:size])
        if self._devices is not None:
            found = self._devices
        elif processes > 1:
            found = tuple([d for p in range(processes) for d in local_devices(p, self._backend)])
        else:
            found = tuple(all_devices(self._backend))
        return found[:size * processes if self._axis_size is None else self._axis_size]

    def _compile(self, in_tree: Any, static: tuple[Any, ...], axes: tuple[int | None, ...],
                 mesh: Mesh, inside: bool, count: int) -> _Compiled:
        """The function as a `shard_map` over the devices, jitted: for flat arguments, and for those
        of the user's structure. axes: which dimension of each leaf is mapped. count: of positional
        arguments.
        """
        name, fun, out_axes = self._axis_name, self._fun, self._out_axes
        statics = dict(zip(self._static, static, strict=True))

        def spec(axis: int | None) -> PartitionSpec:
            return PartitionSpec() if axis is None else PartitionSpec(*(None,) * axis, name)

        def body(*flat_args: Any) -> Any:
            slices = [x if a is None else lax.squeeze(x, [a])
                      for x, a in zip(flat_args, axes, strict=True)]
            args, kwargs = tree.unflatten(in_tree, slices)
            rest = iter(args)
            given = [statics[i] if i in statics else next(rest) for i in range(count)]
            out, out_tree = tree.flatten(fun(*given, **kwargs))
            placed = tree.broadcast_prefix(out_axes, tree.unflatten(out_tree, out), None,
                                           "pmap out_axes")
            return tree.unflatten(out_tree, [
                x if a is None else lax.expand_dims(x, [a]) for x, a in
                zip(out, placed, strict=True)])

        body.__name__ = getattr(fun, "__name__", type(fun).__name__)
        in_specs = tuple([spec(a) for a in axes])
        out_specs = _mapped_tree(spec, out_axes)
        run = shard_map(body, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False,
                        axis_names={name})
        shardings = [NamedSharding(mesh, s) for s in in_specs]
        positional: Any = tree.unflatten(in_tree, shardings)[0]
        requested = ({}, {}) if inside else [{
            "in_shardings": of_arguments, "out_shardings": _mapped_tree(
                lambda a: NamedSharding(mesh, spec(a)), out_axes)}
            for of_arguments in (tuple(shardings), positional)]
        dynamic = [i for i in range(count) if i not in self._static]

        def whole(*flat_args: Any) -> Any:
            return run(*tree.leaves(flat_args))

        whole.__name__ = body.__name__
        return _Compiled(
            jit(run, donate_argnums=self._donated_leaves(in_tree), **requested[0]),
            jit(whole, donate_argnums=[k for k, i in enumerate(dynamic) if i in self._donated],
                **requested[1]), mesh, in_specs)

    def _donated_leaves(self, in_tree: Any) -> tuple[int, ...]:
        """Numbers of the flat arguments that belong to donated positional ones."""
        given = set(self._donated)
        args, _ = tree.unflatten(in_tree, list(range(in_tree.num_leaves)))
        numbers = [i for i in range(len(args) + len(self._static)) if i not in self._static]
        return tuple([leaf for number, arg in zip(numbers, args, strict=True) if number in given
                      for leaf in tree.leaves(arg)])


def _mapped_tree(f: Callable[[Any], Any], axes: Any) -> Any:
    leaves, treedef = tree.flatten(axes, lambda a: a is None)
    return tree.unflatten(treedef, [f(a) for a in leaves])


def _mapped_size(leaves: Sequence[Any], axes: Sequence[int | None]) -> int:
    for x, axis in zip(leaves, axes, strict=True):
        if axis is not None and hasattr(x, "shape"):
            if axis >= len(x.shape):
                fail(IndexError, f"tuple index out of range: pmap maps dimension {axis} of a value "
                     f"of shape {tuple(x.shape)}", code="mapped-dimension",
                     help="give in_axes a dimension that the argument has")
            return int(x.shape[axis])
    raise ValueError("pmap requires at least one argument with a mapped axis.")


def _check_sizes(leaves: Sequence[Any], axes: Sequence[int | None], mesh: Mesh) -> None:
    """Every mapped dimension has one element a device."""
    for x, axis in zip(leaves, axes, strict=True):
        shape = tuple(getattr(x, "shape", ()))
        if axis is None or axis >= len(shape) or axis < 0 or shape[axis] == mesh.size:
            continue
        spec = PartitionSpec(*(None,) * axis, *mesh.axis_names)
        if shape[axis] % mesh.size:
            factors = [mesh.size if d == axis else 1 for d in range(len(shape))]
            indivisible(NamedSharding(mesh, spec), axis, shape, factors)
        block = tuple([n // mesh.size if d == axis else n for d, n in enumerate(shape)])
        fail(ValueError, "cannot select an axis to squeeze out which has size not equal to one, "
             f"got shape={block} and dimensions=({axis},)", code="mapped-size",
             label=f"dimension {axis} of shape {shape} is mapped over {mesh.size} devices",
             help="all mapped dimensions have one size, at most the number of devices; reshape to "
                  "(devices, rest), and map the rest with vmap")


# -- several processes -----------------------------------------------------------------------------

def _global(x: Any, sharding: NamedSharding) -> Any:
    """The array of all processes of which `x` is this process's part."""
    if isinstance(x, ArrayImpl) and not x.is_fully_addressable:
        return x
    return make_array_from_process_local_data(sharding, np.asarray(x))


def _local(x: ArrayImpl) -> ArrayImpl:
    """What this process holds of a result, as an array on its own devices."""
    if x.is_fully_addressable:
        return x
    sharding = x.sharding
    assert isinstance(sharding, NamedSharding) and isinstance(sharding.mesh, Mesh)
    local = NamedSharding(sharding.mesh.local_mesh, sharding.spec)
    blocks = [s.data for s in x.addressable_shards]
    shape = tuple([n * k for n, k in zip(blocks[0].shape, local.dim_factors(x.ndim), strict=True)])
    return make_array_from_single_device_arrays(shape, local, blocks)
