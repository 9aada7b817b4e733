"""Which engine runs a compiled function (engines/engine.py)."""
from __future__ import annotations

from ...engines.engine import ENGINES
from ...ir.diagnostics.diagnostic import fail
from ...ir.settings.context import config
from ...ir.support.spelling import none_such
from .executable import Executable


def on_engine(executable: Executable, engine: str | None, devices: int | None) -> Executable:
    """The computation on this engine (None: the one that the configuration says).

    devices: None for those of its mesh, 1 for the unpartitioned program on one. Raises ValueError
    for an engine that there is not, or that cannot do that.
    """
    name: str = engine or config.read("shardtrace_engine")
    if name not in ENGINES:
        fail(ValueError, none_such(name, list(ENGINES), "engine called"), code="engine")
    if devices is None:
        return executable.on_engine(name)
    if devices != 1 or name != "jax":
        fail(ValueError, f"devices={devices} with engine={name!r}: a program runs on the devices "
             "of its mesh, or, unpartitioned, on one device of the jax engine", code="engine",
             help='leave devices out, or write engine="jax", devices=1')
    pending = [t for t in executable.partitioned.stages["traced"].out_avals if t.unreduced]
    if pending:
        fail(ValueError, f"a result is a pending sum, {pending[0]}, which one device does not have",
             code="engine", help="finish the sum, or leave devices out")
    return executable.on_engine(name, whole=True)
