"""JAX is an extra: what needs it says so where it is missing."""
from __future__ import annotations

import importlib.util
import sys

from ..ir.diagnostics.diagnostic import fail


def is_installed() -> bool:
    """Can JAX be imported?"""
    return "jax" in sys.modules and sys.modules["jax"] is not None or (
        "jax" not in sys.modules and importlib.util.find_spec("jax") is not None)


def need_jax(what: str) -> None:
    """ImportError where JAX is not installed. what: needs it."""
    if not is_installed():
        fail(ImportError, f"{what} needs JAX, which is not installed", code="no-jax",
             help="install it with the package: pip install 'shardtrace[jax]'")
