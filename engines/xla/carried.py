"""Helper functions and constants that are embedded in generated source."""
from __future__ import annotations

import ast
import base64
import functools
import pathlib
import re
import zlib

import numpy as np

from .literals import dtype_text

_INLINE = 64                # elements of a captured array that is written as a list


def array_text(x: np.ndarray) -> str:
    """An array as an expression: a list where it is small, else its bytes."""
    if x.size <= _INLINE and x.dtype.kind in "biuf" and x.dtype.isbuiltin == 1 and np.isfinite(
            x).all():
        return f"np.array({x.tolist()}, {dtype_text(x.dtype).replace('jnp', 'np', 1)})"
    packed = base64.b85encode(zlib.compress(np.ascontiguousarray(x).tobytes())).decode()
    dtype = (f"np.{x.dtype.name}" if x.dtype.isbuiltin == 1 else f"ml_dtypes.{x.dtype.name}")
    return (f"np.frombuffer(zlib.decompress(base64.b85decode({packed!r})), "
            f"{dtype.replace('np.bool', 'np.bool_')}).reshape({x.shape})")


@functools.cache
def helpers() -> dict[str, str]:
    """The functions of helpers.py, as text."""
    text = pathlib.Path(__file__).with_name("helpers.py").read_text()
    lines = text.split("\n")
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = "\n".join(lines[node.lineno - 1:node.end_lineno])
    return found


def called_helpers(text: str) -> list[str]:
    """The functions that a text calls, those that these call among them, in order."""
    found: dict[str, str] = {}
    left = [text]
    while left:
        here = left.pop()
        for name, helper in helpers().items():
            if name not in found and re.search(rf"\b{name}\(", here):
                found[name] = helper
                left.append(helper)
    return [found[name] for name in helpers() if name in found]
