"""What jit is asked for: shardings, checked when it is called, resolved when the function is; and
options of compilation.

A PartitionSpec waits for the mesh of the call; `ON_CONTEXT_MESH` is pjit's None, which is "the same
on all devices" of that mesh if there is one, and open otherwise. Messages are JAX's (0.10.2).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...arrays.devices import local_devices
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import DuplicateSpecError, IndivisibleError, JaxRuntimeError
from ...ir.meshes.device import Device
from ...ir.meshes.mesh import entered_mesh
from ...ir.meshes.process import process_identity
from ...ir.settings.context import STATE
from ...ir.settings.xla import COMPILE_OPTIONS
from ...ir.shardings.base_sharding import indivisible
from ...ir.shardings.formats import AutoLayout, Format, Layout
from ...ir.shardings.sharding import NamedSharding, Sharding, SingleDeviceSharding
from ...ir.source.wording import warn
from ...ir.spec import UNCONSTRAINED, PartitionSpec, axes_overlap
from ...ir.types import ArrayType
from ...partitioner.cost.prices import Objective
from ...partitioner.pipeline import DEFAULT_OPTIONS, Options
from ...tracer import lax
from ...tracer.staging.call_places import placed
from ...tracer.trees import tree


class OnContextMesh:
    """The type of `ON_CONTEXT_MESH`."""

    __slots__ = ()


ON_CONTEXT_MESH: Any = OnContextMesh()


def is_sharding(x: Any) -> bool:
    """A leaf of the trees that jit is given."""
    return x is None or isinstance(x, (Sharding, PartitionSpec, Format, OnContextMesh))


def check_asked(shardings: Any, where: str) -> None:
    """Raise for what can never be right in `where` (`in_shardings`), whatever the arguments are.

    TypeError for a leaf that is no sharding, ValueError for an empty mesh or an unconstrained
    dimension, DuplicateSpecError for a spec that names an axis twice.
    """
    what = f"{where} leaf specifications"
    for entry in tree.leaves(shardings, is_sharding):
        if isinstance(entry, Format):
            entry = entry.sharding
        if entry is None or isinstance(entry, (Device, OnContextMesh)):
            continue
        if isinstance(entry, NamedSharding) and entry.mesh.empty:
            fail(ValueError, f"One of {what} got an empty NamedSharding: {entry} which is not "
                 "allowed.", code="empty-mesh", help="make the mesh with `make_mesh`")
        spec = entry.spec if isinstance(entry, NamedSharding) else entry
        if isinstance(spec, PartitionSpec):
            if UNCONSTRAINED in spec.entries:
                fail(ValueError, "Unconstrained dims are not allowed when passed to "
                     f"{where}: {entry}", code="unconstrained",
                     help="leave the whole argument open with None, or constrain it inside the "
                          "function with `with_sharding_constraint`")
            _check_unique(spec, where)
        elif isinstance(entry, (Layout, AutoLayout)):
            fail(ValueError, "`jax.jit` does not accept device-local layouts directly. Create a "
                 "`Format` instance wrapping this device-local layout and pass that to `jit` "
                 f"instead. Got {entry}", code="layout-alone")
        elif not isinstance(entry, Sharding):
            fail(TypeError, f"{what} are expected to be PartitionSpec instances or None, but got "
                 f"{entry}", code="not-a-sharding",
                 help="write a PartitionSpec, a NamedSharding, or None for the partitioner's "
                      "choice")


def _check_unique(spec: PartitionSpec, where: str) -> None:
    """Refuse a spec that splits two dimensions over one axis."""
    seen: list[Any] = []
    for entry in spec.entries:
        for axis in entry:
            if any(axes_overlap(axis, other) for other in seen):
                fail(DuplicateSpecError, f"A single {where} specification can map every mesh axis "
                     f"to at most one positional dimension, but {spec} has duplicate entries for "
                     f"`{axis}`", code="duplicate-axis",
                     notes=("a device has one coordinate along an axis, so the axis can split one "
                            "dimension",),
                     help="split one of the dimensions over another axis, or leave it whole (None)")
            seen.append(axis)


def resolved(requested: Any, where: str, api: str) -> Sharding | None:
    """The sharding of a leaf for this call; None where the choice is open."""
    if isinstance(requested, Format):
        requested = requested.sharding
    if requested is None or isinstance(requested, Sharding):
        return requested
    if isinstance(requested, Device):
        return SingleDeviceSharding(requested)
    mesh = STATE.mesh
    if mesh.empty and api == "pjit":        # `jit` does not look at the mesh of `with mesh:`
        mesh = entered_mesh()
    if isinstance(requested, OnContextMesh):
        return None if mesh.empty else NamedSharding(mesh, PartitionSpec())
    if not isinstance(requested, PartitionSpec):
        raise TypeError(f"{where} leaf specifications are expected to be PartitionSpec instances "
                        f"or None, but got {requested}")
    if mesh.empty:
        raise RuntimeError(
            f"{api} requires a non-empty mesh in context if you are passing `PartitionSpec`s to "
            f"{where}. You can define a context mesh via `jax.set_mesh(mesh)`. Alternatively, "
            f"provide `Sharding`s to {where} and then the mesh context manager is not "
            "required.")
    return NamedSharding(mesh, requested)


def check_positional(prefix: Any, args: tuple[Any, ...]) -> None:
    """Raise ValueError unless `in_shardings` is one sharding or has one entry an argument."""
    if is_sharding(prefix) or isinstance(prefix, Device):
        return
    message = (
        "pjit in_shardings specification must be a tree prefix of the positional arguments tuple. "
        "In particular, pjit in_shardings must either be a Sharding, a PartitionSpec, or a tuple "
        "of length equal to the number of positional arguments.")
    if type(prefix) is not tuple:
        message += f" But pjit in_shardings is not a tuple: got {type(prefix)} instead."
    elif len(prefix) != len(args):
        message += (" But pjit in_shardings is the wrong length: got a tuple or list of length "
                    f"{len(prefix)} for an args tuple of length {len(args)}.")
    else:
        return
    if len(args) == 1:
        try:
            tree.broadcast_prefix((prefix,), args, is_sharding)
        except tree.PrefixError:
            pass
        else:
            message += (" Given the corresponding argument being passed, it looks like pjit "
                        "in_shardings might need to be wrapped in a singleton tuple.")
    raise ValueError(message)


def constrained(values: Sequence[Any], requested: Sequence[Any], where: str, api: str,
                check: Callable[[Sharding, Any, int], None]) -> list[Any]:
    """Values inside of a trace as the shardings of a nested jit ask: a constraint on Auto axes.

    Over Explicit and Manual axes the types say where values are, and nested shardings say nothing.
    check: raises where a sharding does not fit a value.
    """
    out = []
    for i, (x, leaf) in enumerate(zip(values, requested, strict=True)):
        sharding = resolved(leaf, where, api)
        if sharding is not None:
            check(sharding, x, i)
            context = STATE.abstract_mesh
            if (isinstance(sharding, NamedSharding) and sharding.mesh.are_all_axes_auto
                    and (context.empty or context.are_all_axes_auto)):
                with placed():
                    x = lax.with_sharding_constraint(x, sharding)
        out.append(x)
    return out


# -- what does not fit -----------------------------------------------------------------------------

def check_fits(sharding: Sharding, aval: ArrayType, what: str) -> None:
    """Refuse a sharding that has too many entries for a shape, or does not divide it. what: the
    value, in words.
    """
    try:
        sharding.check_compatible_aval(aval.shape)
    except ValueError as e:
        raise ValueError(f"One of pjit {what} is incompatible with its sharding annotation "
                         f"{sharding}: {e}") from None
    try:
        sharding.shard_shape(aval.shape)
    except IndivisibleError as e:
        indivisible(sharding, e.dimension, aval.shape, e.factors,
                    [f"this is asked of one of the {what}"])


def check_one_process(aval: ArrayType) -> None:
    """Raise ValueError if there are several processes, each with numpy data of its own."""
    if process_identity().count > 1:
        raise ValueError(
            "Passing non-trivial shardings for numpy inputs is not allowed. To fix this error, "
            "either specify a replicated sharding explicitly or use "
            "`jax.make_array_from_process_local_data(...)` to convert your host local numpy inputs "
            "to a jax.Array which you can pass to jit. If the numpy input is the same on each "
            "process, then you can use `jax.make_array_from_callback(...) to create a `jax.Array` "
            f"which you can pass to jit. Got arg type: {aval.update(sharding=None).str_short()}")


def checked_device(device: Device | None, backend: str | None, in_shardings: Any,
                   out_shardings: Any) -> Device:
    """The device that the deprecated arguments of jit name; they go with no other placement."""
    warn("backend and device argument on jit is deprecated. You can use "
         "`jax.device_put(..., jax.local_devices(backend=\"cpu\")[0])` on the inputs to "
         "the jitted function to get the same behavior.", DeprecationWarning)
    if device is not None and backend is not None:
        raise ValueError("can't specify both a device and a backend for jit, got "
                         f"device={device} and backend={backend}")
    for name, given in (("in_shardings", in_shardings), ("out_shardings", out_shardings)):
        if given is not None:
            raise ValueError("If backend or device is specified on jit, then "
                             f"{name} should not be specified.")
    return device if device is not None else local_devices(backend=backend)[0]


# -- compiler_options: what a plan is judged by; XLA's change nothing ------------------------------

# a compiler option -> the field of an objective
_OPTIONS = {"objective": "name", "hardware": "hardware", "memory_limit": "memory_limit"}


def checked_options(compiler_options: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """The options. Raises JaxRuntimeError for one that is neither ours nor XLA's."""
    for name in compiler_options or ():
        if name not in _OPTIONS and name not in COMPILE_OPTIONS and not name.startswith("xla_"):
            fail(JaxRuntimeError, f"No such compile option: {name!r}", code="compile-option",
                 help=f"options are {', '.join(map(repr, _OPTIONS))}; those of XLA are taken and "
                      "change nothing")
    return compiler_options or {}


def planning_options(compiler_options: Mapping[str, Any] | None) -> Options:
    """The options of the partitioner. Raises ValueError for an unknown objective or device.

    Unknown names are found when a function is compiled (`checked_options`).
    """
    if not compiler_options:
        return DEFAULT_OPTIONS
    requested = {name: compiler_options[name] for name in _OPTIONS
                 if compiler_options.get(name) is not None}
    if not requested:
        return DEFAULT_OPTIONS
    checked = Objective.of(*map(requested.get, _OPTIONS, Objective.of()))._asdict()
    return DEFAULT_OPTIONS._replace(**{name: checked[_OPTIONS[name]] for name in requested})
