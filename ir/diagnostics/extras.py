"""Optional dependencies: code that needs one says how to install it where it is missing."""
from __future__ import annotations

import importlib.util
import sys

from .diagnostic import fail


def is_installed(package: str) -> bool:
    """Can a package be imported?"""
    return (sys.modules[package] is not None if package in sys.modules
            else importlib.util.find_spec(package) is not None)


def need(package: str, extra: str, what: str, name: str = "") -> None:
    """ModuleNotFoundError where a package of an extra is not installed. what: needs it."""
    if not is_installed(package):
        fail(ModuleNotFoundError, f"{what} needs {name or package}, which is not installed",
             code=f"no-{extra}",
             help=f"install it with the package: pip install 'shardtrace[{extra}]'")


def need_jax(what: str) -> None:
    """ModuleNotFoundError without JAX, or with shardtrace.as_jax in its place. what: needs it."""
    need("jax", "jax", what, "JAX")
    if hasattr(sys.modules.get("jax"), "__stands_for__"):
        fail(ModuleNotFoundError, f"{what} needs JAX, whose name shardtrace has taken",
             code="no-jax", help="run it in a process that does not import shardtrace.as_jax")
