"""Programs that were partitioned lately.

A function that is jitted in a loop, `lax.scan` of a lambda outside of jit, or a cell of a notebook
that runs again is traced anew each time, to the same program from the same lines: it is found here,
with its plan, instead of being partitioned once more.
"""
from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from ..ir.context import config
from ..ir.fingerprint import fingerprint
from ..ir.mesh import AbstractMesh
from ..ir.program import Program
from ..partitioner.graph import warnings_given
from ..partitioner.pipeline import Options, Partitioned, partition

MOST_EQUATIONS = 50_000     # of all kept programs together; some 2 kB each
SMALLEST = 100              # as what a smaller program counts

_lock = threading.Lock()
_kept: OrderedDict[tuple, tuple[Partitioned, int]] = OrderedDict()
_equations = [0]


def partitioned(program: Program, *, mesh: AbstractMesh, in_shardings: tuple, out_shardings: tuple,
                options: Options) -> Partitioned:
    """`partition(...)`, or what it gave for a program that cannot be told from this one."""
    def make() -> Partitioned:
        return partition(program, mesh=mesh, in_shardings=in_shardings,
                         out_shardings=out_shardings, options=options)
    if config.shardtrace_dump:
        return make()
    own = fingerprint(program)
    if own is None:
        return make()
    key = (own, mesh, in_shardings, out_shardings, options, config.shardtrace_check)
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
            return found[0]
    warned = warnings_given()
    made = make()
    if warnings_given() == warned:          # a warning is due each time
        _keep(key, made)
    return made


def _keep(key: tuple, made: Partitioned) -> None:
    count = max(SMALLEST, len(made.local.eqns))
    if count > MOST_EQUATIONS:
        return
    with _lock:
        if key in _kept:
            return
        _kept[key] = made, count
        _equations[0] += count
        while _equations[0] > MOST_EQUATIONS:
            _, (_, dropped) = _kept.popitem(last=False)
            _equations[0] -= dropped


def forget_recent() -> None:
    """Forget all of them."""
    with _lock:
        _kept.clear()
        _equations[0] = 0


def planned(program: Program, mesh: AbstractMesh, compiler: Callable[[Program, AbstractMesh], Any]
            ) -> Any:
    """`compiler(program, mesh)`, kept with the LOCAL program; what it gives has no state."""
    key = ("planned", compiler, mesh)
    found = program.memo.get(key)
    if found is None:
        found = program.memo[key] = compiler(program, mesh)
    return found
