"""Per-thread context: the current mesh, the current interpreter, and the configuration.

Everything that a trace depends on besides its arguments lives in `STATE` (thread_state.py), one
object a thread, so that two threads never see each other's mesh or half-built program.
`config.update` sets defaults for the process, as in JAX; `config.override(...)` changes them for
this thread and a `with` block (config.py).
"""
from __future__ import annotations

from typing import Any

from ..meshes.mesh import AbstractMesh, Mesh
from ..support.collector import end_pauses
from ..support.scopes import override
from .config import config as config
from .thread_state import STATE as STATE
from .thread_state import Interpreter as Interpreter


def x64_enabled() -> bool:
    overrides = STATE.overrides
    if overrides and "jax_enable_x64" in overrides:
        return overrides["jax_enable_x64"]
    return config._values["jax_enable_x64"]


def trace_settings() -> tuple[Any, ...]:
    """The values of all settings that tracing depends on, to be part of the key of a cache."""
    overrides = STATE.overrides
    if not overrides:
        return config._key
    return tuple(overrides[n] if n in overrides else v
                 for n, v in zip(config._TRACED, config._key, strict=True))


def call_settings() -> tuple[Any, ...]:
    """The values of all settings that a call of a jitted function depends on, as one key."""
    if not STATE.overrides:
        return config._call_key
    return trace_settings(), *[config.read(n) for n in config._CALLED]


def usual_context() -> dict[str, Any] | None:
    """What `STATE` holds in this thread, if all that a call of a jitted function has to do is run:
    nothing is traced or timed, and no setting asks to look at what runs, or to refuse it."""
    state = STATE.__dict__
    if (state["interpreter"] is None and not state["overrides"] and state["phases"] is None
            and config._usual):
        return state
    return None


def jit_disabled() -> bool:
    """Whether functions run op by op in Python (`disable_jit`)."""
    overrides = STATE.overrides
    if overrides and "jax_disable_jit" in overrides:
        return overrides["jax_disable_jit"]
    return config._values["jax_disable_jit"]


class abstract_mesh_context:
    """Make `mesh` the context mesh that types see, within a `with` block."""

    __slots__ = ("mesh", "saved")

    def __init__(self, mesh: AbstractMesh) -> None:
        self.mesh = mesh

    def __enter__(self) -> None:
        self.saved, STATE.abstract_mesh = STATE.abstract_mesh, self.mesh

    def __exit__(self, *exc: object) -> None:
        STATE.abstract_mesh = self.saved


def mesh_context(mesh: Mesh, gives: Any = None) -> override:
    """Make a concrete mesh current, within a `with` block. gives: what `as` names."""
    return override(STATE, gives, mesh=mesh, abstract_mesh=mesh.abstract_mesh)


class interpreter_context:
    """Let `interpreter` execute every `op.bind` of this thread within a `with` block."""

    __slots__ = ("interpreter", "saved")

    def __init__(self, interpreter: Any) -> None:
        self.interpreter = interpreter

    def __enter__(self) -> None:
        self.saved, STATE.interpreter = STATE.interpreter, self.interpreter

    def __exit__(self, *exc: object) -> None:
        STATE.interpreter = self.saved


def put_back(before: dict[str, Any]) -> None:
    """Let `STATE` be as it was before a call that an interrupt has ended. before: what it held."""
    STATE.__dict__.update(before)
    if STATE.phases is not None:
        STATE.phases.interrupted()
    end_pauses()


def enable_x64(new_val: bool = True) -> Any:
    """A context manager: keep 64-bit types (or not) in this thread."""
    return config.override(jax_enable_x64=new_val)
