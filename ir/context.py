"""Per-thread context: the current mesh, the current interpreter, and the configuration.

Everything that a trace depends on besides its arguments lives in `STATE`, one object a thread, so
that two threads never see each other's mesh or half-built program. `config.update` sets defaults
for the process, as in JAX; `config.override(...)` changes them for this thread and a `with` block.
"""
from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import TYPE_CHECKING, Any

from .mesh import AbstractMesh, Mesh, empty_abstract_mesh, empty_mesh

if TYPE_CHECKING:
    from .op import Interpreter


class ThreadState(threading.local):
    """What is current in this thread.

    abstract_mesh: the context mesh as types see it (axes may be switched to Auto or Manual).
    mesh: the concrete context mesh (empty where none is set).
    interpreter: who executes `op.bind`; None means the default, which runs the op at once.
    check_vma: whether types track over which Manual axes a value varies.
    overrides: configuration values of this thread's `with` blocks.
    on_equation: observers of traces (tracer/debug.py).
    eager_meshes: concrete meshes on which ops run at once may live besides those of their operands,
      while a transformation outside of jit is under way.
    named_axes: (name, size) of the vmapped axes that collectives can name, innermost last.
    mapped_mesh_axes: the Explicit mesh axes that split the dimensions that vmaps map over.
    """

    def __init__(self) -> None:
        self.abstract_mesh: AbstractMesh = empty_abstract_mesh
        self.mesh: Mesh = empty_mesh
        self.interpreter: Interpreter | None = None
        self.overrides: dict[str, Any] = {}
        self.eager_arguments: Any = None   # of the call that is traced to be run at once
        self.check_vma: bool = True        # False inside shard_map(..., check_vma=False)
        self.on_equation: list[Any] = []
        self.eager_meshes: tuple[Mesh, ...] = ()
        self.named_axes: tuple[tuple[Any, int], ...] = ()
        self.mapped_mesh_axes: frozenset[str] = frozenset()


STATE = ThreadState()


def _env_flag(name: str, default: bool) -> bool:
    text = os.environ.get(name)
    return default if text is None else text.lower() not in ("0", "", "false", "off", "no")


def _device_count() -> int:
    """Devices to simulate: SHARDTRACE_NUM_DEVICES, or what XLA_FLAGS asks XLA for, or 8."""
    flags = os.environ.get("XLA_FLAGS", "")
    flag = re.search(r"--xla_force_host_platform_device_count=(\d+)", flags)
    return int(os.environ.get("SHARDTRACE_NUM_DEVICES") or (flag[1] if flag else 8))


class Config:
    """Named settings with JAX's names; unknown names raise AttributeError, as in JAX.

    jax_num_cpu_devices: simulated devices (default 8, SHARDTRACE_NUM_DEVICES, or XLA_FLAGS).
    jax_enable_x64: keep 64-bit types (default off).
    default_axis_types: "auto" or "explicit", what make_mesh gives without axis_types.
    shardtrace_debug: from SHARDTRACE_DEBUG; "trace" prints every value as it is traced.
    shardtrace_dump: from SHARDTRACE_DUMP; a directory for every stage's text.
    shardtrace_check: run the verifier after every pass (default on, SHARDTRACE_CHECK=0: off).
    shardtrace_num_processes: simulated processes; each owns jax_num_cpu_devices devices.
    jax_default_device: where uncommitted arrays are made (None: the first device).
    """

    _DEFAULTS: dict[str, Any] = {
        "jax_num_cpu_devices": 1,
        "jax_enable_x64": False,
        "jax_threefry_partitionable": True,
        "jax_numpy_rank_promotion": "allow",
        "jax_numpy_dtype_promotion": "standard",
        "jax_default_matmul_precision": None,
        "jax_debug_nans": False,
        "jax_traceback_filtering": "auto",
        "jax_platforms": None,
        "jax_default_device": None,
        "default_axis_types": "auto",
        "shardtrace_debug": "",
        "shardtrace_dump": "",
        "shardtrace_check": True,
        "shardtrace_executor": "simulated",
        "shardtrace_num_processes": 1,
    }

    def __init__(self) -> None:
        values = dict(self._DEFAULTS)
        values["jax_num_cpu_devices"] = _device_count()
        values["jax_enable_x64"] = _env_flag("JAX_ENABLE_X64", False)
        values["shardtrace_debug"] = os.environ.get("SHARDTRACE_DEBUG", "")
        values["shardtrace_dump"] = os.environ.get("SHARDTRACE_DUMP", "")
        values["shardtrace_check"] = _env_flag("SHARDTRACE_CHECK", True)
        object.__setattr__(self, "_values", values)
        object.__setattr__(self, "_listeners", {})

    def _known(self, name: str) -> str:
        if name not in self._values:
            for prefix in ("jax_", "shardtrace_"):
                if prefix + name in self._values:
                    return prefix + name
            raise AttributeError(f"Unrecognized config option: {name}")
        return name

    def update(self, name: str, value: Any) -> None:
        """Set the process-wide default of `name`; raises AttributeError if it is unknown."""
        name = self._known(name)
        for listener in self._listeners.get(name, ()):
            listener(value)
        self._values[name] = value

    def on_update(self, name: str, listener: Any) -> None:
        """Call `listener(value)` before each update of `name`; it may raise to refuse it."""
        self._listeners.setdefault(name, []).append(listener)

    def read(self, name: str) -> Any:
        """The value of `name` in this thread."""
        return self.__getattr__(name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        name = self._known(name)
        overrides = STATE.overrides
        return overrides[name] if name in overrides else self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"use config.update({name!r}, value)")

    @contextlib.contextmanager
    def override(self, **values: Any):
        """Change settings for this thread within a `with` block."""
        saved = STATE.overrides
        STATE.overrides = {**saved, **{self._known(k): v for k, v in values.items()}}
        try:
            yield
        finally:
            STATE.overrides = saved


config = Config()


def x64_enabled() -> bool:
    overrides = STATE.overrides
    if overrides and "jax_enable_x64" in overrides:
        return overrides["jax_enable_x64"]
    return config._values["jax_enable_x64"]


@contextlib.contextmanager
def abstract_mesh_context(mesh: AbstractMesh):
    """Make `mesh` the context mesh that types see, within a `with` block."""
    saved = STATE.abstract_mesh
    STATE.abstract_mesh = mesh
    try:
        yield
    finally:
        STATE.abstract_mesh = saved


@contextlib.contextmanager
def mesh_context(mesh: Mesh):
    """Make a concrete mesh current, within a `with` block."""
    saved, saved_abstract = STATE.mesh, STATE.abstract_mesh
    STATE.mesh, STATE.abstract_mesh = mesh, mesh.abstract_mesh
    try:
        yield
    finally:
        STATE.mesh, STATE.abstract_mesh = saved, saved_abstract


@contextlib.contextmanager
def interpreter_context(interpreter: Any):
    """Let `interpreter` execute every `op.bind` of this thread within a `with` block."""
    saved = STATE.interpreter
    STATE.interpreter = interpreter
    try:
        yield
    finally:
        STATE.interpreter = saved


def enable_x64(new_val: bool = True) -> Any:
    """A context manager: keep 64-bit types (or not) in this thread."""
    return config.override(jax_enable_x64=new_val)
