"""What is current in a thread: mesh, interpreter, settings of `with` blocks."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ..meshes.mesh import AbstractMesh, Mesh, empty_abstract_mesh, empty_mesh


class Interpreter(Protocol):
    """Executes ops (ir/op.py): builds a program, or computes."""

    def process(self, op: Any, operands: Sequence[Any], params: dict[str, Any]) -> list[Any]: ...


# What a thread's phases are recorded by from its beginning; ir/settings/phases.py sets another for
# SHARDTRACE_PROFILE.
NEW_PHASES: list[Callable[[], Any]] = [lambda: None]


class ThreadState(threading.local):
    """What is current in this thread.

    abstract_mesh: the context mesh as types see it (axes may be switched to Auto or Manual).
    mesh: the concrete context mesh (empty where none is set).
    interpreter: who executes `op.bind`; None means the default, which runs the op at once.
    check_vma: whether types track over which Manual axes a value varies.
    overrides: configuration values of this thread's `with` blocks.
    on_equation: observers of traces (tracer/host/debug.py).
    on_stage: observers of partitions, called with a stage's name and what it leaves as soon as that
      is there; of plans that are compared, with the stages of each.
    eager_meshes: concrete meshes on which ops run at once may live besides those of their operands,
      while a transformation outside of jit is under way.
    named_axes: (name, size) of the vmapped axes that collectives can name, innermost last.
    mapped_mesh_axes: the Explicit mesh axes that split the dimensions that vmaps map over.
    spmd_axes: the axes that vmaps were given as `spmd_axis_name`.
    stand_ins: what variables of traces that have ended stand for, while a rule of a custom
      derivative runs that closes over them (tracer/autodiff/custom/closed_values.py).
    numbers_read: literals whose values were looked at, where somebody wants to know (a list).
    phases: who records where time goes, if anybody does (ir/settings/phases.py).
    """

    def __init__(self) -> None:
        self.abstract_mesh: AbstractMesh = empty_abstract_mesh
        self.mesh: Mesh = empty_mesh
        self.interpreter: Interpreter | None = None
        self.overrides: dict[str, Any] = {}
        self.override_entries: tuple[dict[str, Any], ...] = ()   # one of each block
        self.eager_arguments: Any = None   # of the call that is traced to be run at once
        self.check_vma: bool = True        # False inside shard_map(..., check_vma=False)
        self.on_equation: list[Any] = []
        self.on_stage: list[Any] = []
        self.eager_meshes: tuple[Mesh, ...] = ()
        self.named_axes: tuple[tuple[Any, int], ...] = ()
        self.mapped_mesh_axes: frozenset[str] = frozenset()
        self.spmd_axes: frozenset[str] = frozenset()
        self.stand_ins: dict[Any, Any] = {}
        self.numbers_read: list[Any] | None = None
        self.phases: Any = NEW_PHASES[0]()


STATE = ThreadState()
