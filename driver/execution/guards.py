"""Transfers that a `transfer_guard` logs or refuses: host values passed to a computation.

Data is simulated and nothing moves; what a guard sees is what would move.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...ir.settings.managers import transfer_allowed
from ...ir.support.lazy import lazy_import
from ...ir.values.array import Array
from ...ir.values.typeof import typeof

logging = lazy_import("logging")


def guard_arguments(leaves: Sequence[Any]) -> None:
    """Log or refuse arguments of a computation that are not arrays yet, as the guard says."""
    verdict = transfer_allowed("host_to_device", explicit=False)
    if verdict != "allow":
        for x in leaves:
            if not isinstance(x, Array):
                _act(verdict, "host-to-device", x)


def guard_move(x: Any, moved: bool, to: Any = None, explicit: bool = True) -> None:
    """Log or refuse, as the guard says, the transfer of a value that `device_put` places.

    moved: it is an array that changes devices. explicit: whether the user asked for that.
    """
    if isinstance(x, Array) and not moved:
        return
    direction = "device_to_device" if isinstance(x, Array) else "host_to_device"
    verdict = transfer_allowed(direction, explicit=explicit)
    if verdict != "allow":
        _act(verdict, direction.replace("_", "-"), x, to)


def _act(verdict: str, direction: str, x: Any, to: Any = None) -> None:
    text = f"{direction} transfer: aval={typeof(x)!r}"
    if to is not None:
        text += f", dst_sharding={to}"
    if verdict == "log":
        logging.getLogger("shardtrace.transfers").warning(text)
    else:
        fail(JaxRuntimeError, f"INVALID_ARGUMENT: Disallowed {text}", code="transfer-guard",
             help="move it with `device_put`, or allow it with `transfer_guard`")
