"""Values as Python source that only needs numpy, ml_dtypes and JAX; and the text of the helpers."""
from __future__ import annotations

import ast
import base64
import enum
import functools
import keyword
import pathlib
import re
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from ...ir.spec import UNCONSTRAINED


def dtype_text(dtype: Any) -> str:
    """A dtype as an attribute of `jnp`."""
    name = np.dtype(dtype).name
    return "jnp.bool_" if name == "bool" else f"jnp.{name}"


def scalar(value: Any, dtype: np.dtype) -> str:
    """A number of this dtype, bit for bit; of a complex NaN only that it is one."""
    value = np.asarray(value, dtype)[()]
    if dtype.kind == "b":
        return f"np.bool_({bool(value)})"
    if dtype.kind in "iu":
        return f"np.{dtype.name}({int(value)})"
    if dtype.kind == "c":
        parts = [repr(x) if np.isfinite(x) else f'float("{x}")'
                 for x in (float(value.real), float(value.imag))]
        return f"np.{dtype.name}(complex({', '.join(parts)}))"
    module = "np" if dtype.kind == "f" and dtype.isbuiltin == 1 else "ml_dtypes"
    if np.issubdtype(dtype, np.integer) or dtype.name.startswith(("int", "uint")):
        return f"{module}.{dtype.name}({int(value)})"
    number = float(value)
    if np.isnan(number) and value.tobytes() != dtype.type("nan").tobytes():    # as top_k asks
        bits = int.from_bytes(value.tobytes(), "little")
        return f"np.uint{8 * dtype.itemsize}({bits:#x}).view({module}.{dtype.name})"
    text = repr(number) if np.isfinite(number) else f'"{number}"'
    return f"{module}.{dtype.name}({text})"


def plain(value: Any) -> str:
    """A param made of numbers, texts, None, dtypes, tuples of these, and the enumerations and
    dimension numbers that `jax.lax` has, too.
    """
    if isinstance(value, enum.Enum):
        return f"lax.{type(value).__name__}.{value.name}"
    if hasattr(value, "_fields"):
        return f"lax.{type(value).__name__}({keywords(value._asdict().items()).removeprefix(', ')})"
    if isinstance(value, tuple | list):
        inner = ", ".join(map(plain, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, float | np.floating) and not np.isfinite(value):
        return f'float("{float(value)}")'
    if value is None or isinstance(value, bool | str | float):
        return repr(value)
    if isinstance(value, np.bool_):
        return repr(bool(value))
    if isinstance(value, int | np.integer):
        return repr(int(value))
    if isinstance(value, np.floating):
        return repr(float(value))
    if isinstance(value, np.dtype):
        return dtype_text(value)
    raise TypeError(f"{value!r} has no text here")


def keywords(params: Iterable[tuple[str, Any]]) -> str:
    """`, name=value` for each."""
    return "".join(f", {name}={plain(value)}" for name, value in params)


def tuple_of(texts: Iterable[str]) -> str:
    """Texts of values as the text of a tuple."""
    texts = list(texts)
    return f"({texts[0]},)" if len(texts) == 1 else f"({', '.join(texts)})"


def spec_text(entries: Iterable[Any]) -> str:
    """What splits each dimension, as a PartitionSpec: names of axes, None, or UNCONSTRAINED."""
    texts = ["P.UNCONSTRAINED" if e is UNCONSTRAINED else
             repr(e[0]) if e and len(e) == 1 else repr(e) if e else "None" for e in entries]
    return f"P({', '.join(texts)})"


def identifier(name: str | None) -> str:
    """A name of Python's that resembles this one; '' if none does."""
    found = re.sub(r"\W+", "_", name or "", flags=re.ASCII).strip("_")
    if not found or found[0].isdigit() or keyword.iskeyword(found):
        found = f"_{found}" if found else ""
    return found.lstrip("_") if found.startswith("__") else found


def table(values: np.ndarray) -> str:
    """A small array of integers."""
    return f"np.array({values.tolist()}, np.int32)"


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
