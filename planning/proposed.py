"""The proposal as data: specs of arguments and results, constraints on values inside, figures."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..ir.meshes.mesh import AbstractMesh, Mesh
from ..ir.program import Program
from ..ir.spec import PartitionSpec
from ..ir.support.named_tuple import NamedTuple
from ..partitioner.cost.figures import Figures
from ..partitioner.cost.topology import Topology
from ..report.advice.changes import Constrain
from .search import SearchResult


class Row(NamedTuple):
    """An argument or a result: its path, type (`bf16[8192,1024]`), spec, and bytes on a device.
    spec is None for a result that the partitioner lays out.
    """
    name: str
    type: str
    spec: PartitionSpec | None
    nbytes: int


class NamedPlan(NamedTuple):
    """A plan that has a name, with the figures of the best that was found of it; None where it is
    so far behind by the model (`cost`, seconds one after the other) that it was not tried.
    """
    name: str
    figures: Figures | None
    cost: float


class Proposed:
    """The data of a proposal.

    mesh: over which it is. in_shardings, out_shardings: trees of NamedShardings, as `jit` takes
    them (out_shardings has None where a result stays open). arguments, results: rows with path,
    type, spec and bytes a device. constraints: the values inside that are brought to a spec, with
    the line where. figures: seconds, memory and bytes, those that `explain` prints; time,
    peak_bytes, received_bytes: of these. bound: seconds that, by the model, every plan takes at
    least with computation and communication one after the other; gap: how far the plan's own sum is
    above it, as a share; both None where no bound is known. named: the plans that have names, the
    best first. tried: how many plans were partitioned. limit: bytes that a device may hold.
    donated: numbers of the arguments that are given up. meshes: the meshes that were compared, with
    the seconds of their best plans. limited: do its collectives have to be chosen under the limit?
    """

    def __init__(self, program: Program, mesh: Mesh | AbstractMesh, topology: Topology,
                 result: SearchResult, rows: tuple[Sequence[Row], Sequence[Row]],
                 constraints: Sequence[Constrain], trees: tuple[Any, Any],
                 tried: int, limit: int, donated: Sequence[int] = (),
                 meshes: Sequence[tuple[AbstractMesh, float]] = ()) -> None:
        best = result.best
        self.name, self.program = program.name, program
        self.mesh, self.topology, self.result = mesh, topology, result
        self.figures: Figures = best.figures
        self.arguments, self.results = tuple(rows[0]), tuple(rows[1])
        self.constraints = tuple(constraints)
        self.in_shardings, self.out_shardings = trees
        self.tried, self.meshes = tried, tuple(meshes)
        self.named = tuple([NamedPlan(r.name, r.trial.figures if r.trial else None, r.cost)
                            for r in result.rivals])
        self.limit, self.donated, self.limited = limit, tuple(donated), best.limited

    @property
    def time(self) -> float:
        """Seconds of a step, computation and communication overlapped."""
        return self.figures.time

    @property
    def peak_bytes(self) -> int:
        return self.figures.peak_bytes

    @property
    def received_bytes(self) -> int:
        return self.figures.received_bytes

    @property
    def bound(self) -> float | None:
        return self.result.bound

    @property
    def gap(self) -> float | None:
        if not self.bound:
            return None
        times = self.figures.times
        return max(0.0, (times.compute + times.communication) / self.bound - 1)

    @property
    def specs(self) -> dict[str, PartitionSpec | None]:
        """The spec of each argument by its path, and of results as `result[0]['w']`."""
        return {r.name: r.spec for r in (*self.arguments, *self.results)}
