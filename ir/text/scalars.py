"""One element of an array as text, bit-exact: 0.1, -inf, 1.0+2.0j, True, 0x7fc00001.

A number is the shortest decimal that reads back to the same bits in its dtype; where there is none
(NaN payloads), its bits in hexadecimal. That it reads back is checked as it is written.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import float0, short_name


def scalar_text(value: Any, dtype: np.dtype) -> str:
    """One element of an array of that dtype: the shortest text that reads back to its bits."""
    if dtype == float0:
        return "False"
    kind = dtype.kind
    if kind == "b":
        return "True" if value else "False"
    if kind in "iu" or short_name(dtype)[0] in "iu":
        return str(int(value))
    scalar = dtype.type(value)
    bits = scalar.tobytes()
    for text in _decimal_texts(scalar, kind):
        try:
            if parse_scalar(text, dtype).tobytes() == bits:
                return text
        except (ValueError, OverflowError):
            pass                       # e.g. "nan" for a format without NaN
    return hex_text(bits)


def hex_text(data: bytes) -> str:
    """The bits of a number in memory as a hexadecimal number: `0x7fc00001`."""
    return "0x" + data[::-1].hex()


def _decimal_texts(scalar: Any, kind: str) -> list[str]:
    if kind == "c":
        imaginary = str(scalar.imag)
        sign = "" if imaginary[0] in "+-" else "+"
        return [f"{scalar.real!s}{sign}{imaginary}j"]
    short, full = str(scalar), repr(float(scalar))
    return [short, full] if _has_point(short) else [full]


def _has_point(text: str) -> bool:
    return "." in text or "n" in text or "e" in text


def parse_scalar(text: str, dtype: np.dtype) -> Any:
    """A numpy scalar from its text: inverse of `scalar_text`. Raises ValueError."""
    if dtype == float0:
        return np.zeros((), float0)[()]
    if text.startswith("0x"):
        data = int(text, 16).to_bytes(dtype.itemsize, "little")
        return np.frombuffer(data, dtype)[0]
    kind = dtype.kind
    if kind == "b":
        if text not in ("True", "False"):
            raise ValueError(f"a bool is True or False, not {text}")
        return np.bool_(text == "True")
    if kind in "iu" or short_name(dtype)[0] in "iu":
        number = int(text)
        try:
            scalar = dtype.type(number)
        except OverflowError:
            scalar = None
        if scalar is None or int(scalar) != number:
            raise ValueError(f"{number} does not fit in {short_name(dtype)}")
        return scalar
    with np.errstate(over="ignore"):
        return dtype.type(complex(text) if kind == "c" else float(text))
