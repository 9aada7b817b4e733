"""The per-device executor: every device runs the program with buffers of its own.

It exists to check the simulated executor. Devices run the program in lockstep, one equation at a
time, each calling the op's evaluator on its own blocks; data from other devices arrives over a wire
(wire.py), by the algorithms that hardware uses (exchanges.py). The two executors share evaluators
and nothing else, and must agree up to the order of sums. More devices take more time here.

A process among several runs the devices that it owns, over a wire to the others. An exchange is
then in flight while equations run that do not read its result.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ...arrays.axes import linear_index, mesh_atoms
from ...arrays.storage import Buffers, DeviceBlocks, Stored
from ...ir.facts import POSITION
from ...ir.kernels.key_data import storage_dtype
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.variadic import split_variadic
from ...ir.program import Atom, Equation, Program, Var
from ..masks import split_collective
from ..numerics import as_declared, evaluator
from . import exchanges
from .control import CONTROL, run_callback
from .wire import Flight, LocalWire, Wire, even_out

COMBINE = {"sum": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply,
           "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


class PendingResult:
    """A result on its way. flight: its exchange. made: makes the blocks once that has ended."""

    __slots__ = ("_blocks", "eqn", "flight", "made")

    def __init__(self, eqn: Equation, flight: Flight, made: Callable[[], Buffers]) -> None:
        self.eqn, self.flight, self.made = eqn, flight, made
        self._blocks: Buffers | None = None

    def blocks(self) -> Buffers:
        """The blocks, after waiting for them."""
        if self._blocks is None:
            with _noting(self.eqn):
                self.flight.advance(True)
            self._blocks = self.made()
        return self._blocks


@contextlib.contextmanager
def _noting(eqn: Equation) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while running `{eqn.op.name}` of {eqn.location}")
        raise


class PerDeviceRun(DeviceBlocks):
    """Runs a LOCAL program device by device.

    traffic: for each collective, for each time that the latest run ran it and each operand, the
    bytes that each device received, in mesh order. own: numbers of the devices of this process, by
    default all. wire: makes the wire for an operand of an equation, given its number and the bytes
    of an element. active: the devices that are running; fewer than `own` in a loop or branch whose
    predicate differs. splits: the equation with that predicate. timing: a context manager around
    each equation, for profiles.
    """

    timing: Callable[..., AbstractContextManager] = contextlib.nullcontext

    def __init__(self, local: Program, mesh: AbstractMesh, own: Iterable[int] | None = None,
                 wire: Callable[[Equation, int, int], Wire] | None = None) -> None:
        super().__init__(mesh)
        self.program = local
        count = len(self.coordinates)
        self.own = dict.fromkeys(range(count) if own is None else own)
        self.wire = wire or (lambda eqn, number, itemsize: LocalWire(count, itemsize))
        self._groups: dict[tuple[str, ...], list[list[int]]] = {}
        self._parts: dict[Equation, tuple[Equation, ...]] = {}
        self._begin()

    def _begin(self) -> None:
        self.traffic: dict[Equation, list[np.ndarray]] = {}
        self.active = self.own
        self.splits: Equation | None = None

    def __call__(self, arguments: Sequence[Stored]) -> list[Stored]:
        program = self.program
        types = program.global_in or program.in_avals
        results = self.on_blocks([self.scatter(x, t, v.aval) for x, t, v in
                                  zip(arguments, types, program.invars, strict=True)])
        types = program.global_out or program.out_avals
        return [self.assemble(b, t.sharding.spec.padded(t.ndim), t.shape) for b, t in
                zip(results, types, strict=True)]

    def on_blocks(self, blocks: Sequence[Buffers]) -> list[Buffers]:
        """Run on blocks of the local devices."""
        self._begin()
        with np.errstate(all="ignore"):
            return self.run(self.program, blocks)

    # -- equations -----------------------------------------------------------------------------
    def run(self, program: Program, arguments: Sequence[Buffers]) -> list[Buffers]:
        """The results of a program on these blocks."""
        at: dict[Var, Buffers | PendingResult] = dict(zip(program.invars, arguments, strict=True))
        in_flight: list[PendingResult] = []
        for var, value in program.consts:
            data = np.asarray(getattr(value, "value", value), storage_dtype(var.aval.dtype))
            at[var] = [np.array(data) for _ in self.coordinates]
        last = {v: i for i, eqn in enumerate(program.eqns) for v in eqn.invars}
        last.update(dict.fromkeys(program.outvars, len(program.eqns)))
        for i, eqn in enumerate(program.eqns):
            if in_flight:
                in_flight = [x for x in in_flight if not x.flight.advance(False)]
            operands = [self.read(at, v) for v in eqn.invars]
            with _noting(eqn), self.timing((eqn,)):
                results = self.equation(eqn, operands)
            at.update(zip(eqn.outvars, results, strict=True))
            in_flight += [x for x in results if type(x) is PendingResult]
            for v in eqn.invars:
                if last[v] == i:
                    at.pop(v, None)                                     # type: ignore
        for x in in_flight:
            x.blocks()
        return [self.read(at, v) for v in program.outvars]

    def read(self, at: dict[Var, Buffers | PendingResult], atom: Atom) -> Buffers:
        if isinstance(atom, Var):
            found = at[atom]
            return found.blocks() if type(found) is PendingResult else found  # type: ignore[return-value]
        data = np.asarray(atom.val, storage_dtype(atom.aval.dtype))
        return [data] * len(self.coordinates)

    def equation(self, eqn: Equation, operands: Sequence[Buffers]
                 ) -> Sequence[Buffers | PendingResult]:
        """Run an equation on all active devices: the buffers of each result, None where a device is
        not active.
        """
        op = eqn.op
        if POSITION in op.facts:
            dtype = storage_dtype(eqn.outvars[0].aval.dtype)
            return [[np.asarray(linear_index(self.mesh, eqn.axes, at), dtype)
                     for at in self.coordinates]]
        if op.effect:
            return run_callback(self, eqn, operands)
        if op.collective is not None:
            return [self.collective(one, x, eqn, k) for k, (one, x) in enumerate(
                zip(self.parts(eqn), operands, strict=True))]
        if op.subprograms and op.evaluate is None:
            return self.control(eqn, operands)
        types = [v.aval for v in eqn.outvars]
        shapes = [t.shape for t in types]
        operand_types = [a.aval for a in eqn.invars]
        function = evaluator(op, 0, eqn.params, [storage_dtype(t.dtype) for t in operand_types],
                             [storage_dtype(t.dtype) for t in types], shapes,
                             [t.shape for t in operand_types])
        done = {d: function(*(x[d] for x in operands)) for d in self.active}
        devices = range(len(self.coordinates))
        if op.multiple_results:
            return [[np.asarray(done[d][k]) if d in done else None for d in devices]
                    for k in range(len(types))]
        return [[np.asarray(done[d]) if d in done else None for d in devices]]

    def control(self, eqn: Equation, operands: Sequence[Buffers]) -> list[Buffers]:
        """Run an equation that holds programs: a loop, a branch, or a call."""
        strategy = CONTROL.get(eqn.op.name)
        if strategy is not None:
            return strategy(self, eqn, operands)
        programs = eqn.params[eqn.op.subprograms[0]]
        if isinstance(programs, Program) and len(programs.invars) == len(operands):
            return self.run(programs, operands)
        raise TypeError(f"`{eqn.op.name}` of {eqn.location} cannot be executed: the per-device "
                        "executor has no strategy for it")

    # -- collectives ---------------------------------------------------------------------------
    def parts(self, eqn: Equation) -> tuple[Equation, ...]:
        """The exchanges of single operands that an equation is."""
        found = self._parts.get(eqn)
        if found is None:
            found = self._parts[eqn] = tuple(split_variadic(eqn))
        return found

    def groups(self, names: Sequence[str]) -> list[list[int]]:
        """The replica groups along these axes: device numbers, the first axis varying slowest."""
        known = self._groups.get(tuple(names))
        if known is None:
            atoms = mesh_atoms(self.mesh, names)
            known = self._groups[tuple(names)] = atoms.groups(atoms.of_all(names)).tolist()
        return known

    def collective(self, eqn: Equation, blocks: Buffers, whole: Equation, number: int
                   ) -> Buffers | PendingResult:
        """Exchange the blocks of one operand, of this number in the whole equation."""
        op, params = eqn.op, dict(eqn.params)
        assert op.collective is not None
        (out,) = eqn.outvars
        dtype = storage_dtype(out.aval.dtype)
        parts = params.pop("axis_index_groups", None)
        results: list[Any] = [None] * len(blocks)
        members: list[list[int]] = []
        for group in self.groups(eqn.axes):
            for some in [group] if parts is None else [[group[i] for i in p] for p in parts]:
                here = [d for d in some if d in self.active]
                if op.collective.local:
                    for d in here:
                        results[d] = exchanges.own_block(some.index(d), blocks[d], len(some),
                                                         params["dimension"])
                    continue
                away = [d for d in some if d in self.own and d not in self.active]
                if here and away:
                    assert self.splits is not None
                    raise split_collective(whole, self.splits, here, away)
                if here:
                    members.append(some)
        wire = self.wire(whole, number, eqn.invars[0].aval.dtype.itemsize)
        flight = Flight(wire, [
            self.exchange(eqn, params, some, {d: blocks[d] for d in some if d in self.active},
                          dtype) for some in members], storage_dtype(eqn.invars[0].aval.dtype))
        self.traffic.setdefault(whole, []).append(wire.received)

        def made() -> Buffers:
            for d, block in flight.results.items():
                results[d] = block
            if op.collective.kind == "all-reduce":
                for some in members:
                    even_out(wire.received, some)
            return [b if b is None else as_declared(b, dtype, out.aval.shape, op) for b in results]

        return made() if flight.advance(False) else PendingResult(whole, flight, made)

    def exchange(self, eqn: Equation, params: dict[str, Any], group: list[int],
                 blocks: exchanges.Blocks, dtype: np.dtype) -> exchanges.Exchange:
        """The exchange of one replica group, not yet started. dtype: of its results."""
        collective = eqn.op.collective
        assert collective is not None
        combine: Any = COMBINE.get(collective.reduces)
        if combine is np.add and dtype == np.bool_:
            combine = np.logical_or
        if collective.kind == "reduce-scatter":
            return exchanges.reduce_scatter(group, blocks, combine, dtype, tiled=params["tiled"],
                                            dim=params["scatter_dimension"])
        if combine is not None:
            return exchanges.all_reduce(group, blocks, combine, dtype)
        function = exchanges.EXCHANGES.get(collective.kind)
        if function is not None:
            return function(group, blocks, **params)
        assert collective.evaluate is not None, f"{eqn.op.name} has an exchange of its own"
        return exchanges.declared(group, blocks, collective.evaluate, params,
                                  eqn.op.arithmetic)


compile_per_device = PerDeviceRun
"""A LOCAL program as a function from stored arguments to stored results; it has `.traffic`."""
