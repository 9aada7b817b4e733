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
    """A named plan, with the figures of the best version found; None where the model puts it so far
    behind (`cost`, seconds without overlap) that it was not tried.
    """
    name: str
    figures: Figures | None
    cost: float


class ProposalData:
    """The data of a proposal.

    mesh: the mesh of the plan. in_shardings, out_shardings: trees of NamedShardings, as `jit` takes
    them (None in out_shardings where a result stays open). arguments, results: rows with path,
    type, spec and bytes on a device. constraints: values inside that are constrained to a spec,
    with their lines. figures: the seconds, memory and bytes that `explain` prints; time,
    peak_bytes, received_bytes: taken from these. bound: seconds that every plan takes at least, by
    the model and without overlap of computation and communication; gap: how far the plan's own sum
    is above the bound, as a share; both None where no bound is known. named: the named plans, the
    best first. tried: how many plans were partitioned. limit: bytes that a device may hold.
    donated: numbers of the donated arguments. meshes: the meshes that were compared, with the
    seconds of their best plans. limited: whether its collectives must be chosen under the limit.
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
