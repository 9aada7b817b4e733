"""Uses of functions by weakly typed operands: what `test_weak_types.py` and its recorder share.

A line of tests/golden/weak_types.txt has an expression over jnp, lax, jax and the operands below,
and what its uses give, separated by tabs. A use is `operands:results`: a `1` for each operand that
is weak and a `0` for others in the order of `OPERANDS`, or `py` where all are Python numbers; `d`
behind it means the gradient of the sum by the first operand. Results are dtypes, `~` before weak.
"""
from __future__ import annotations

import importlib
import re
import warnings
from typing import Any, NamedTuple

import numpy as np

from ...paths import GOLDEN

TABLE = GOLDEN / "weak_types.txt"
MODULES = ("lax", "lax.linalg", "nn", "random", "ops", "image", *(f"scipy.{name}" for name in (
    "cluster.vq", "fft", "integrate", "interpolate", "linalg", "ndimage", "optimize", "signal",
    "sparse.linalg", "spatial.transform", "special", "stats")))
_rng = np.random.RandomState(0)


def _random(*shape: int, dtype: str = "f4") -> np.ndarray:
    return _rng.randn(*shape).astype(dtype)


OPERANDS: dict[str, Any] = {
    "f": _random(4, 4), "g": _random(4, 4),
    "i": _rng.randint(0, 4, (4, 4)).astype("i4"), "j": _rng.randint(1, 4, (4, 4)).astype("i4"),
    "c": _random(4, 4, dtype="c8"),
    "v": np.sort(_rng.rand(4)).astype("f4"), "u": np.sort(_rng.rand(4)).astype("f4"),
    "vi": _rng.randint(0, 4, 4).astype("i4"), "t": _random(2, 4, 4),
    "s": np.float32(0.7), "r": np.float32(0.3), "k": np.int32(2), "l": np.int32(3),
    "b": _rng.rand(4, 4) > 0.5, "d": np.eye(4, dtype="f4") * 3}
PYTHON = {"f": 1.5, "i": 2, "c": 1 + 2j, "b": True}
_USES = {n: re.compile(rf"(?<![\w.'\"]){n}(?!\w|=[^=]|'|\")") for n in OPERANDS}


class Library(NamedTuple):
    """What is called: the modules, and how a weak array is made of a numpy one."""

    jax: Any
    numpy: Any
    weak: Any

    @classmethod
    def of(cls, name: str, weak: Any) -> Library:
        """The library whose package is `name`, all its modules imported."""
        for module in MODULES:
            try:
                importlib.import_module(f"{name}.{module}")
            except ImportError:
                assert name != "jax", module
        return cls(importlib.import_module(name), importlib.import_module(f"{name}.numpy"), weak)

    def names(self) -> dict[str, Any]:
        """What an expression may name."""
        return {"jax": self.jax, "jnp": self.numpy, "lax": self.jax.lax,
                "K": self.jax.random.key(0)}


def read() -> dict[str, dict[str, str]]:
    """The table: for each expression its uses with their results."""
    lines = (line.split("\t") for line in TABLE.read_text().splitlines())
    return {first: dict(use.split(":") for use in rest) for first, *rest in lines}


def _leaves(x: Any) -> list[Any]:
    if isinstance(x, dict):
        return [leaf for k in sorted(x) for leaf in _leaves(x[k])]
    if isinstance(x, (tuple, list)):
        return [leaf for y in x for leaf in _leaves(y)]
    return [] if x is None else [x]


def _named(x: Any) -> str:
    if not hasattr(x, "dtype"):
        return type(x).__name__
    text = str(x.dtype).replace("float", "f").replace("int", "i").replace("complex", "c")
    return ("~" if getattr(x, "weak_type", False) else "") + text


def answer(library: Library, expression: str, use: str, traced: bool = True) -> str:
    """The dtypes of what `use` of `expression` gives; not traced: computed eagerly."""
    operands = [n for n, found in _USES.items() if found.search(expression)]
    f = eval(f"lambda {', '.join(operands)}: {expression}", library.names())
    if use == "py":
        numbers = [PYTHON[OPERANDS[n].dtype.kind] for n in operands]
        values, call = [], lambda: f(*numbers)
    else:
        values, call = [library.weak(OPERANDS[n]) if w == "1" else library.numpy.asarray(
            OPERANDS[n]) for n, w in zip(operands, use, strict=False)], f
    if use.endswith("d"):
        call = library.jax.grad(lambda *args: sum(
            library.numpy.sum(library.numpy.real(x)) for x in _leaves(f(*args))
            if hasattr(x, "dtype") and library.numpy.issubdtype(x.dtype, np.inexact)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = library.jax.eval_shape(call, *values) if traced else call(*values)
    return dtypes_of(found)


def dtypes_of(tree: Any) -> str:
    """The dtypes of the leaves, `~` before weak ones."""
    return " ".join(map(_named, _leaves(tree)))
