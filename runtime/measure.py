"""Measured traffic: runs a program device by device and counts every message.

`compiled.collectives()` computes traffic from types; `measure` counts it in the per-device
executor, in which a device sees another's data only through the wire (per_device/wire.py). The two
list the same exchanges in the same order, and must agree.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays.storage import Stored
from ..ir.kernels.key_data import storage_dtype
from ..ir.program import Equation, Program
from ..ir.source.location import Location
from ..ir.support.immutable import immutable
from ..ir.support.lazy import lazy_import

_kinds = lazy_import("..ir.ops.communication.collective_kinds", __package__)
_perdevice = lazy_import(".per_device.executor", __package__)


@immutable
class Measured:
    """What one collective of a program moved, all its runs together.

    received: [devices] bytes that each device received, in mesh order. runs: how often it ran.
    """
    kind: str
    received: np.ndarray
    runs: int
    source: Location
    equation: Equation

    @property
    def busiest(self) -> int:
        """Bytes received by the device that received most."""
        return int(self.received.max(initial=0))


def measure(compiled: Any, *args: Any, **kwargs: Any) -> list[Measured]:
    """Run a compiled program device by device: the bytes each device received, by collective.

    compiled: what `jax.jit(f).lower(...).compile()` gives, and arguments for it; or a LOCAL program
    and whole values of its parameters. The list has the order of `compiled.collectives()`. Raises
    TypeError for arguments that the program was not compiled for.

    >>> from shardtrace.runtime import measure
    >>> mesh = st.make_mesh((8,), ("x",))
    >>> x = st.device_put(np.ones((16, 4), np.float32), st.NamedSharding(mesh, P("x")))
    >>> compiled = st.jit(lambda a: a.sum(0)).lower(x).compile()
    >>> [(m.kind, m.busiest) for m in measure(compiled, x)]
    [('all-reduce', 28)]
    >>> [(c.kind, c.received_bytes) for c in compiled.collectives()]
    [('all-reduce', 28)]
    """
    program, stored = program_and_arguments(compiled, args, kwargs)
    run = _perdevice.PerDeviceRun(program, program.mesh)
    run(stored)
    return [Measured(e.kind, np.sum(received, 0) if received else np.zeros(len(run.own), np.int64),
                     len(received) // len(e.equation.invars), e.equation.location, e.equation)
            for e in _kinds.each_collective(program)
            for received in [run.traffic.get(e.equation, ())]]


def program_and_arguments(compiled: Any, args: Sequence[Any], kwargs: dict[str, Any]
                          ) -> tuple[Program, list[Stored]]:
    """The LOCAL program of a compiled function, and its arguments in stored form; or this program
    itself and whole values of its parameters.
    """
    if not isinstance(compiled, Program):
        return compiled.program, compiled.stored_arguments(*args, **kwargs)
    types = compiled.global_in or compiled.in_avals
    if len(args) != len(types):
        raise TypeError(f"the program takes {len(types)} arguments, and {len(args)} were given")
    return compiled, [v if isinstance(v, Stored) else Stored(np.asarray(v, storage_dtype(t.dtype)))
                      for v, t in zip(args, types, strict=True)]
