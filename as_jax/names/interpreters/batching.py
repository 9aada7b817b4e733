"""Batching rules of a library's own primitives."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["axis_primitive_batchers", "fancy_primitive_batchers", "not_mapped",
           "primitive_batchers"]
primitive_batchers: dict[Any, Callable[..., Any]] = {}
axis_primitive_batchers: dict[Any, Callable[..., Any]] = {}
fancy_primitive_batchers = axis_primitive_batchers
not_mapped = None
