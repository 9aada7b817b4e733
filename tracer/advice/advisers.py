"""Adds advice to sharding errors; advice.py itself loads with the first of them."""
from __future__ import annotations

from ...ir.diagnostics.diagnostic import ADVISERS, Diagnostic
from ...ir.support.lazy import lazy_import

_advice = lazy_import(".advice", __package__)


def advise(cls: type[Exception], diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic of a sharding error, with paths and changes; of any other, as it is."""
    return _advice.advise(cls, diagnostic)


def install() -> None:
    """Let sharding errors be advised."""
    if advise not in ADVISERS:
        ADVISERS.append(advise)
