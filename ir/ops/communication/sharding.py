"""`reshard` and `sharding_constraint`: the ops that concern only a value's sharding.

`reshard` moves a value to another spec: the one place where a program asks for bytes to be moved.
Over Explicit axes it decides the type; it is also how a value enters and leaves a region in which
axes have become Auto or Explicit (`auto_axes`, `explicit_axes`), and how the partitioner writes
down every change of spec that an equation needs. `sharding_constraint` is the hint of Auto mode:
the type stays, propagation takes the stated dimensions as fixed. Rules and messages are JAX's.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...diagnostics.diagnostic import fail
from ...facts import IDENTITY, LAYOUT, UNEVEN
from ...inference.unreduced import is_pending, refuse_pending
from ...meshes.manual_state import ManualState
from ...meshes.mesh import AbstractMesh, AxisType, empty_abstract_mesh
from ...op import Collective, Op, Sample, defop
from ...settings.context import STATE
from ...shardings.sharding import NamedSharding, named_sharding_abstract
from ...source.location import capture
from ...spec import UNCONSTRAINED, PartitionSpec, spec_from_entries
from ...types import ArrayType

# -- what users pass ------------------------------------------------------------------------------


def explicit_sharding(sharding: Any, api_name: str, check_mesh: bool = True
                      ) -> NamedSharding | None:
    """A user's `out_sharding` as NamedSharding over an abstract mesh whose axes are Explicit.

    A spec is taken on the context mesh. None, and shardings on an empty mesh, give None. Raises
    TypeError for other objects; ValueError without a context mesh, for another mesh than the
    context's (if `check_mesh`), and for axes that are Auto or Manual.
    """
    if sharding is None or (isinstance(sharding, NamedSharding) and sharding.mesh.empty):
        return None
    if not isinstance(sharding, (NamedSharding, PartitionSpec)):
        raise TypeError(
            f"`out_sharding` argument of {api_name} only supports instances of `NamedSharding` or "
            f"`PartitionSpec`. Got {sharding} of type: {type(sharding)}")
    if isinstance(sharding, NamedSharding) and sharding.memory_kind not in (None, "device"):
        fail(ValueError, "sharding with memory_kind is not allowed. Please use `jax.device_put` to "
             f"transfer to different memory spaces. Got sharding={sharding}", code="memory-kind",
             help="leave memory_kind out here, and `device_put` the result")
    context = STATE.abstract_mesh
    if isinstance(sharding, PartitionSpec):
        if context.empty:
            raise ValueError(
                "Using PartitionSpec when you are not under a mesh context is not allowed. Please "
                "pass a NamedSharding instance or enter into a mesh context via `jax.set_mesh`. "
                f"Got {sharding}")
        sharding = NamedSharding(context, sharding)
    else:
        mesh = sharding.mesh.abstract_mesh
        both_auto = mesh.are_all_axes_auto and context.are_all_axes_auto
        if check_mesh and not both_auto and not context.empty and mesh is not context:
            raise ValueError(
                f"Context mesh {context} should match the mesh of sharding {mesh} passed to "
                f"{api_name}. This error occurs at source:  {capture()}")
        if mesh is not sharding.mesh:
            sharding = named_sharding_abstract(mesh, sharding.spec)
    spec, mesh = sharding.spec, sharding.mesh
    for name in (*spec.axes(), *sorted(spec.unreduced, key=str), *sorted(spec.reduced, key=str)):
        kind = mesh.axis_type(name)
        if kind is not AxisType.Explicit:
            fail(ValueError,
                 f"PartitionSpec passed to {api_name} cannot contain axis names that are of type "
                 f"Auto or Manual. Got PartitionSpec: {spec} with axis name: {name} of type: "
                 f"{kind}. This error occurs at source:  {capture()}",
                 code="axis-not-explicit",
                 help="over Auto axes use `with_sharding_constraint`" if kind is AxisType.Auto
                 else "inside shard_map move data with collectives such as `jax.lax.all_gather`")
    return sharding


# -- reshard --------------------------------------------------------------------------------------

def _reshard_infer(x: ArrayType, *, dst_sharding: NamedSharding, **inside: tuple[str, ...]
                   ) -> ArrayType:
    if not isinstance(dst_sharding, NamedSharding) or dst_sharding.mesh is empty_abstract_mesh:
        raise ValueError("Reshard should only be used with out_shardings which are non-None and "
                         f"have a non-empty mesh. Got sharding {dst_sharding}.")
    return x.update(sharding=dst_sharding)


def _reshard_transpose(ct: Any, x: Any, *, dst_sharding: NamedSharding) -> list[Any]:
    back = x.aval.sharding
    if back.mesh.empty:      # a value that knew of no mesh: its cotangent is whole on this one
        back = dst_sharding.update(spec=spec_from_entries(((),) * x.aval.ndim))
    back = named_sharding_abstract(back.mesh.abstract_mesh, back.spec.to_ct_spec())
    return [reshard_p.bind(ct, dst_sharding=back)]


def _identity(lead: int, x: Any, **params: Any) -> Any:
    return x


def _no_samples() -> list[Sample]:
    return []     # its params speak of a mesh: tests/partitioner holds its tests


reshard_p = defop(
    "reshard", doc="The same value, laid out as `dst_sharding` says. The partitioner says of some "
    "`inside` of which groups of devices, by their axes, they happen.",
    infer=_reshard_infer, rule="... -> ...", explicit="follow", pending="carry",
    linear=[(0,)], jvp="linear", transpose=_reshard_transpose,
    evaluate=_identity, arithmetic=False, facts=(IDENTITY, LAYOUT),
    samples=_no_samples)


# -- sharding_constraint --------------------------------------------------------------------------

def check_constraint(x: ArrayType, sharding: NamedSharding) -> None:
    """Raise unless `with_sharding_constraint(x, sharding)` is right for a value of this type.

    On a mesh that is all Explicit it is an assertion about the type (AssertionError); elsewhere
    the spec may name Auto axes only (ValueError), and may not be longer than the rank.
    """
    mesh, spec = sharding.mesh, sharding.spec
    if len(spec) > x.ndim and any(e is UNCONSTRAINED or e for e in spec.entries[x.ndim:]):
        hint = " For scalars the PartitionSpec should be P()" if x.ndim == 0 else ""
        fail(ValueError,
             "One of with_sharding_constraint arguments is incompatible with its sharding "
             f"annotation {sharding}: Sharding {sharding} is only valid for values of rank at "
             f"least {len(spec)}, but was applied to a value of rank {x.ndim}.{hint}",
             code="spec-too-long", label=f"this is {x.str_short(True)}",
             help=f"leave out the last {len(spec) - x.ndim} of the spec, or write P()")
    if mesh.are_all_axes_explicit:
        if is_pending(x):
            refuse_pending("with_sharding_constraint", [x], iterated=True)
        wanted = spec.padded(x.ndim)
        for have, want in zip(x.entries, wanted.entries, strict=True):
            if want is not UNCONSTRAINED and have != want:
                fail(AssertionError,
                     "`with_sharding_constraint` acts as an assert when all axes of mesh are of "
                     f"type `Explicit`. The array sharding: {x.spec} did not match the sharding "
                     f"provided: {wanted}. Please use `jax.sharding.reshard` to shard your input "
                     "to the sharding you want.",
                     code="constraint-mismatch", label=f"this is {x.str_short(True)}",
                     help=f"bring it to {wanted} with `reshard`")
        return
    for entry in spec.entries:
        if entry is UNCONSTRAINED:
            continue
        for axis in entry:
            if mesh.axis_type(axis) is not AxisType.Auto:
                fail(ValueError,
                     "The spec of NamedSharding passed to with_sharding_constraint can only refer "
                     f"to Auto axes of the mesh. Got spec={spec} and mesh={mesh}. You probably "
                     "meant to use `reshard` API?",
                     code="axis-not-auto", label=f"{axis} is {mesh.axis_type(axis)}",
                     help="bring the value to this spec with `reshard`")


def _constraint_infer(x: ArrayType, *, sharding: NamedSharding, **more: Any) -> ArrayType:
    check_constraint(x, sharding)
    mesh = sharding.mesh
    if not isinstance(mesh, AbstractMesh) or mesh is x.mesh:
        return x
    return x.update(sharding=named_sharding_abstract(mesh, x.spec))


def _constraint_transpose(ct: Any, x: Any, **params: Any) -> list[Any]:
    return [sharding_constraint_p.bind(ct, **params)]


sharding_constraint_p = defop(
    "sharding_constraint",
    doc="The same value; over Auto axes its layout is fixed to `sharding`, but for the dimensions "
        "that are UNCONSTRAINED. `priority` (0 if it is not there) says when it spreads, "
        "`unreduced` over which axes it stays an unfinished sum (of a plan that is kept).",
    infer=_constraint_infer, rule="... -> ...", explicit="follow", pending="carry",
    linear=[(0,)], jvp="linear", transpose=_constraint_transpose,
    evaluate=_identity, arithmetic=False, facts=(IDENTITY, LAYOUT, UNEVEN),
    samples=_no_samples)


# -- assume_invarying -----------------------------------------------------------------------------

def _forget(op: Op, types: Sequence[ArrayType], params: dict[str, Any]) -> list[ManualState]:
    m = types[0].manual
    return [ManualState(m.varying - frozenset(params["axes"]), m.unreduced, m.reduced)]


def _first_block(x: Any, lead: int, size: int, **params: Any) -> Any:
    return x[(slice(None),) * (lead - 1) + (slice(0, 1),)]


assume_invarying_p = defop(
    "assume_invarying",
    doc="The value counts as the same on all members of the group; member 0's is taken. Stands "
        "where an out_spec of shard_map claims replication that nothing proves (check_vma=False).",
    infer=lambda x, *, axes: (x.shape, x.dtype), rule="... -> ...", manual=_forget,
    arithmetic=False, facts=(IDENTITY,),
    collective=Collective(lambda params: params["axes"], _first_block, lambda t, n, params: 0,
                          "", invariant=True),
    samples=_no_samples)
