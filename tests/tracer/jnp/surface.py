"""What `tests/record/surface.py` and `test_surface.py` share: operands, and the lines of the table.

A line of tests/golden/surface.txt has four columns, separated by tabs:

    expression      over jnp, lax, nn, np, functools and the operands below
    types           of the results as JAX prints them, `~` for weak ones; or `!` and an exception
    numbers         sums of the results with fixed weights, counts of nan and infinities; or the
                    start of the exception's text; empty where results are not unique
    equations       names of the primitives, without calls and scalar constants; `*` for any
"""
from __future__ import annotations

import re
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ...paths import GOLDEN

TABLE = GOLDEN / "surface.txt"
NAMES = "f g i j b c u h t v vi s w k p q r ng".split()
_USES = [(n, re.compile(rf"(?<![\w.'\"]){n}(?!\w|=[^=]|'|\")")) for n in NAMES]
# Signs of vectors, or the choice among equals, are the library's.
NOT_UNIQUE = re.compile(r"linalg\.(eig\(|eigh|svd\(|qr|schur|householder)")


class Line(NamedTuple):
    """One row of the table."""

    expression: str
    types: str = ""
    numbers: str = ""
    equations: str = ""


def lines() -> list[Line]:
    """The rows of the table; those not recorded yet have nothing but the expression."""
    return [Line(*row.split("\t")) for row in TABLE.read_text().splitlines() if row]


def operands_of(expression: str) -> list[str]:
    """The operands that an expression is about."""
    return [n for n, use in _USES if use.search(expression)]


def operands() -> dict[str, Any]:
    """numpy operands: floats f g t v s p q r, integers i j u vi k, b bool, c complex, h bfloat16.

    `w` is a Python number, which becomes a weakly typed array; ng has nan and infinity.
    """
    rng = np.random.RandomState(0)
    f = (rng.randn(4, 4) * 1.5).astype("f4")
    g = rng.randn(4, 4).astype("f4")
    i = rng.randint(-5, 9, (4, 4)).astype("i4")
    j = rng.randint(1, 6, (4, 4)).astype("i4")
    b = rng.rand(4, 4) > 0.5
    c = (rng.randn(4, 4) + 1j * rng.randn(4, 4)).astype("c8")
    u = rng.randint(0, 200, (4, 4)).astype("u1")
    h = rng.randn(4, 4).astype(ml_dtypes.bfloat16)
    t = rng.randn(2, 4, 4).astype("f4")
    v = np.sort(rng.randn(4)).astype("f4")
    vi = rng.randint(0, 4, 4).astype("i4")
    p = rng.randn(3, 4, 4).astype("f4")
    q = rng.randn(1, 4, 4).astype("f4")
    r = rng.randn(2, 3, 4, 4).astype("f4")
    ng = np.array([[1, np.nan, 3], [np.inf, -2, 0]], "f4")
    return {"f": f, "g": g, "i": i, "j": j, "b": b, "c": c, "u": u, "h": h, "t": t, "v": v,
            "vi": vi, "s": np.float32(1.7), "w": 1.0, "k": np.int32(2), "p": p, "q": q, "r": r,
            "ng": ng}


def function_of(expression: str, environment: dict[str, Any]) -> Any:
    """The expression as a function of its operands."""
    return eval(f"lambda {', '.join(operands_of(expression))}: {expression}", environment)


def leaves(x: Any) -> list[Any]:
    """What a result consists of, containers taken apart."""
    if isinstance(x, (tuple, list)):
        return [leaf for y in x for leaf in leaves(y)]
    return [x]


def sums(value: Any) -> tuple[np.ndarray, float]:
    """Five numbers that tell a result: counts of nan, inf, -inf, a weighted sum; and a scale."""
    x = np.asarray(value)
    if x.dtype.kind == "V":
        x = x.astype(np.float32)
    x = x.astype(np.complex128).ravel()
    finite = np.isfinite(x)
    counts = [np.isnan(x).sum(), (x.real == np.inf).sum(), (x.real == -np.inf).sum()]
    x = np.where(finite, x, 0)
    weights = np.cos(1.0 + np.arange(x.size))
    total = (x * weights).sum()
    return np.array([*counts, total.real, total.imag]), float(np.abs(x).sum())


def printed(value: Any) -> str:
    """`sums` as text, without trailing zeros."""
    numbers, _ = sums(value)
    texts = [f"{n:.6g}" for n in numbers]
    while len(texts) > 1 and texts[-1] in ("0", "-0"):
        texts.pop()
    return " ".join(texts)


def agree(value: Any, text: str, tolerance: float) -> bool:
    """Whether a result has the numbers that were printed."""
    numbers, scale = sums(value)
    want = np.zeros(5)
    kept = [float(n) for n in text.split()]
    want[:len(kept)] = kept
    return bool((numbers[:3] == want[:3]).all()
                and np.abs(numbers - want).max() <= tolerance * (1 + scale))
