"""Running a program over the devices of several processes, from the point of view of one of them.

All processes that own some of the devices call it together (arrays/processes/coordinator.py). Each
has traced and partitioned the program on its own, so they compare what they are about to run.

A program that needs nothing from other processes runs locally, even if its mesh spans all of them:
a jitted function of host values, without collectives and without requested result shardings
(`jnp.ones(4)` under a mesh of all processes), or an operation on replicated values, so that a
single process may print `100 * loss`.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...arrays.array import ArrayImpl
from ...arrays.processes.coordinator import (
    Call,
    Coordinator,
    GlobalProgram,
    GlobalValue,
    Parts,
    Slot,
    processes_of,
)
from ...arrays.storage import LocalBlocks, Storage, Stored
from ...ir.meshes.mesh import Mesh
from ...ir.meshes.process import process_identity
from ...ir.shardings.sharding import NamedSharding
from ...ir.source.location import capture
from ...ir.spec import PartitionSpec
from ...ir.support.lazy import lazy_import
from ...ir.support.named_tuple import NamedTuple
from .bound_program import BoundProgram

_text = lazy_import("...ir.text.print", __package__)

NOT_HELD = LocalBlocks({})


class Agreement(NamedTuple):
    """What an executable is to the processes: their group, what they compare, what it takes.

    slots: of arguments that are not committed. moves: whether it has collectives.
    """
    processes: tuple[int, ...]
    what: str
    parts: Parts
    slots: tuple[Slot, ...]
    program: GlobalProgram
    moves: bool


def run_together(executable: BoundProgram, coordinator: Coordinator, leaves: Sequence[Any],
                 stored: Sequence[Storage]) -> Sequence[Storage] | None:
    """The results that this process holds; None if it runs the program alone.

    stored: the values of the arguments `leaves`, as this process holds them.
    """
    mesh = executable.placement.mesh
    me = coordinator.identity
    if mesh is None:
        device = executable.placement.device
        is_held = device is None or device.process_index == me.index
        return None if is_held else [NOT_HELD] * len(executable.avals)
    if not mesh.is_multi_process:
        return None
    agreement = executable.agreements.get(me)
    if agreement is None:
        agreement = executable.agreements[me] = _agreement(executable, mesh)
    if me.index not in agreement.processes:
        return [NOT_HELD] * len(executable.avals)
    arguments = []
    is_local = not (executable.has_out_shardings or agreement.moves)
    for x, storage, slot in zip(leaves, stored, agreement.slots, strict=True):
        if isinstance(x, ArrayImpl) and x.committed:
            # What every process holds whole; that this one can read it would not do for the others.
            is_local = is_local and (x.is_fully_addressable or (
                executable.is_operation and x.is_fully_replicated))
            slot = Slot(x.sharding, x.aval.shape, x.aval.dtype)
        arguments.append(GlobalValue(storage, slot))
    if is_local:
        return executable.run_stored([
            Stored(x.value) if isinstance(x, ArrayImpl) and not x.is_fully_addressable else storage
            for x, storage in zip(leaves, stored, strict=True)])
    call = Call(agreement.what, agreement.parts, agreement.processes, capture())
    return coordinator.run(call, agreement.program, arguments)


def _agreement(executable: BoundProgram, mesh: Mesh) -> Agreement:
    """What all processes must agree on before they run an executable together, as texts to compare,
    and the program that they run.
    """
    partitioned = executable.partitioned
    traced, local = partitioned.traced, partitioned.local
    specs = [t.sharding.spec for t in local.global_in] or [PartitionSpec()] * len(traced.invars)
    slots = tuple(Slot(NamedSharding(mesh, spec), v.aval.shape, v.aval.dtype)
                  for spec, v in zip(specs, traced.invars, strict=True))
    arguments = "\n".join(
        f"{name} {v.aval.str_short(True)} {'' if spec is None else spec}" for name, v, spec in
        zip(traced.arg_names, traced.invars, executable.arg_specs, strict=False))
    results = "\n".join(f"{aval.str_short(True)} {getattr(s, 'spec', s)}" for aval, s in
                        zip(executable.avals, executable.shardings, strict=True))
    program = GlobalProgram(local, executable.placement.abstract_mesh, mesh.device_tuple,
                            executable.run_stored)
    kind = "operation" if executable.is_operation else "jitted function"
    return Agreement(
        processes_of(mesh.device_tuple), f"the {kind} `{traced.name}`",
        (("arguments", arguments), ("results", results),
         ("devices", f"{mesh} of {[d.id for d in mesh.device_tuple]}"),
         ("programs", _text.print_program(traced, locations=False, named=False))),
        slots, program, any(e.op.collective is not None for e in local.walk()))


def check_closure(consts: Sequence[Any]) -> None:
    """Raise RuntimeError for a captured array that this process cannot read."""
    if process_identity().count == 1:
        return
    for x in consts:
        if isinstance(x, ArrayImpl) and not x.is_readable:
            raise RuntimeError(
                "Closing over jax.Array that spans non-addressable (non process local) devices is "
                "not allowed. Please pass such arrays as arguments to the function. Got jax.Array: "
                f"{x.aval.update(sharding=None).str_short()}")
