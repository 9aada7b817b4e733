"""Packages that are extras: what needs one says so where it is missing."""
from __future__ import annotations

import importlib.util
import sys

from .diagnostic import fail


def is_installed(package: str) -> bool:
    """Can a package be imported?"""
    return (sys.modules[package] is not None if package in sys.modules
            else importlib.util.find_spec(package) is not None)


def need_jax(what: str) -> None:
    """ModuleNotFoundError without JAX, or with shardtrace.as_jax in its place. what: needs it."""
    if not is_installed("jax"):
        fail(ModuleNotFoundError, f"{what} needs JAX, which is not installed", code="no-jax",
             help="install it with the package: pip install 'shardtrace[jax]'")
    if hasattr(sys.modules.get("jax"), "__stands_for__"):
        fail(ModuleNotFoundError, f"{what} needs JAX, whose name shardtrace has taken",
             code="no-jax", help="run it in a process that does not import shardtrace.as_jax")
