"""Runs programs of whole values on the ranks of an MPI job, and turns its ranks into processes."""
from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...arrays.processes.coordinator import Call, set_default_coordinator
from ...arrays.processes.simulated import deal_devices
from ...arrays.storage import Stored
from ...ir.meshes.mesh import AbstractMesh
from ...ir.meshes.process import ProcessIdentity
from ...ir.program import Program
from ...ir.source.location import capture
from ...ir.support.lazy import lazy_import
from .coordinator import RankCoordinator
from .link import link
from .values import decode, encode
from .wire import RankRun

_text = lazy_import("...ir.text.print", __package__)


class MPIProgram:
    """A LOCAL program whose devices are dealt out to the ranks; all of them call it with the same
    values, and get the whole results."""

    def __init__(self, local: Program, mesh: AbstractMesh) -> None:
        self.link = link()
        self.program, self.mesh = local, mesh
        count = math.prod(mesh.axis_sizes)
        working = min(self.link.size, count)
        self.ranks = [d * working // count for d in range(count)]
        text = _text.print_program(local, locations=False, named=False)
        self.what = f"the program `{local.name}`", (("programs", text),)
        self._run: RankRun | None = None

    def __call__(self, arguments: Sequence[Stored]) -> list[Stored]:
        link, program = self.link, self.program
        call = Call(*self.what, tuple(range(link.size)), capture())
        with link.lock:
            run = self._run
            if run is None:
                link.agree(call)()
                run = self._run = RankRun(link, program, self.mesh, self.ranks)
                run.connect()
            types = program.global_in or program.in_avals
            results = run.run_together(call, lambda: [
                run.scatter(x, t, v.aval) for x, t, v in
                zip(arguments, types, program.invars, strict=True)])
            held = link.swap(call.processes, encode([
                [blocks[d] for d in run.own] for blocks in results]), call)
        given = [iter(zip(*decode(data), strict=True)) if len(data) else iter(()) for data in held]
        by_device: list[Any] = [next(given[r]) for r in self.ranks] if results else []
        types = program.global_out or program.out_avals
        return [run.assemble(list(blocks), t.sharding.spec.padded(t.ndim), t.shape)
                for blocks, t in zip(zip(*by_device, strict=True), types, strict=True)]


def begin(timeout: float) -> RankCoordinator | None:
    """Make every rank a process; its coordinator, None where there is one rank.

    timeout: seconds to wait for a rank that computes while others wait.
    """
    here = link()
    here.patience = timeout
    if here.size == 1:
        return None
    owners = deal_devices(here.size)
    coordinator = RankCoordinator(here, ProcessIdentity(here.rank, owners))
    set_default_coordinator(coordinator)
    return coordinator

