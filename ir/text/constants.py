"""Constants in the text of a program: small ones inline, large ones beside it, all bit-exact.

    const a: f32[2,2] = [[1.0, 2.0], [3.0, 4.0]]   every element, up to 64 of them
    const b: f32[4096,64] = full 0.0               one element, repeated
    const c: bf16[32,32] = zlib "eJzt..."          the bytes, compressed
    const d: f32[1024,64] = npz "layer.npz":d      in a file beside the text (save_program)
    const e: f32[8,8] = seed 7                     normal numbers of that seed
    const f: f32[512,512] = sha256 "9f86d0..."     left out: give it to parse_program

The last form is what str() writes for a large array. The program can be read, checked, partitioned
and printed without it; using the value raises an error that says which name to supply.
"""
from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..dtypes import float0, short_name
from ..kernels.key_data import storage_dtype
from ..support.lazy import lazy_import, lazy_pattern
from ..types import ArrayType, Shape
from .placeholders import MissingConstant, quote

base64 = lazy_import("base64")
hashlib = lazy_import("hashlib")

IN_SIGHT = 64            # elements written one by one
LARGEST_IN_TEXT = 1 << 28    # bytes that compressed ones may come to
IN_TEXT = 6_000          # characters of compressed bytes

Writer = Callable[[str, Any, ArrayType], str]     # name, value, type -> what stands after `=`
_ELEMENT = lazy_pattern(r"[^\[\],\s]+")


class SeededArray:
    """Normal numbers made from a seed, within about [-8, 8]: `seed 7` in a program's text.

    The same on every machine, and made when they are first read.
    """

    __slots__ = ("_numbers", "dtype", "seed", "shape")

    def __init__(self, seed: int, shape: Shape, dtype: Any) -> None:
        self.seed, self.shape, self.dtype = seed, tuple(shape), np.dtype(dtype)
        self._numbers: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if self._numbers is None:
            drawn = np.random.Generator(np.random.PCG64(self.seed)).standard_normal(self.shape)
            self._numbers = _frozen(np.asarray(drawn).astype(self.dtype))
        return np.array(self._numbers, dtype or self.dtype, copy=copy)


def stored_form(aval: ArrayType) -> tuple[Shape, np.dtype]:
    """Shape and dtype of the numpy array that holds a constant (keys: ir/kernels/key_data.py)."""
    return aval.shape, storage_dtype(aval.dtype)


def array_of(value: Any, aval: ArrayType) -> np.ndarray:
    """The value of a constant as numpy, in the form that its type says."""
    shape, dtype = stored_form(aval)
    array = np.asarray(getattr(value, "value", value))     # key arrays refuse np.asarray
    if array.dtype != dtype or array.shape != shape:
        raise ValueError(f"a constant of type {aval.str_short(True)} holds an array of "
                         f"{array.dtype}{list(array.shape)}")
    return array


# -- writing ---------------------------------------------------------------------------------------

def constant_text(name: str, value: Any, aval: ArrayType) -> str:
    """What stands after `=`: the elements, the bytes, or for large arrays the hash.

    An array that does not fit its type, or that this process cannot read, is left out as well.
    """
    try:
        short = short_constant_text(value, aval)
        if short is not None:
            return short
        array = array_of(value, aval)
    except (ValueError, TypeError, RuntimeError):
        return 'sha256 ""'
    data = base64.b85encode(zlib.compress(_bytes(array), 9)).decode()
    if len(data) <= IN_TEXT:
        return f"zlib {quote(data)}"
    return f"sha256 {quote(digest(array))}"


def short_constant_text(value: Any, aval: ArrayType) -> str | None:
    """The text of a constant that has a short one, else None."""
    if isinstance(value, MissingConstant):
        return f"sha256 {quote(value.digest)}"
    if isinstance(value, SeededArray):
        return f"seed {value.seed}"
    array = array_of(value, aval)
    dtype = array.dtype
    if array.size == 0:
        return "full 0"
    if array.size <= IN_SIGHT and not (array.size > 8 and _all_equal(array)):
        return _nested([scalar_text(x, dtype) for x in array.ravel()], array.shape)
    if _all_equal(array):
        return f"full {scalar_text(array[(0,) * array.ndim], dtype)}"
    return None


def _all_equal(array: np.ndarray) -> bool:
    size = array.dtype.itemsize
    if size == 0 or not any(array.strides):
        return True
    data = np.frombuffer(_bytes(array), np.uint8).reshape(-1, size)
    return bool((data == data[0]).all())


def _bytes(array: np.ndarray) -> bytes:
    return np.ascontiguousarray(array).tobytes()


def digest(array: np.ndarray) -> str:
    """Content hash of an array: of its bytes, row by row."""
    return hashlib.sha256(_bytes(array)).hexdigest()[:32]


def _nested(texts: list[str], shape: Shape) -> str:
    for n in reversed(shape):
        texts = ["[" + ", ".join(texts[i:i + n]) + "]" for i in range(0, len(texts), n)]
    return texts[0]


# -- reading ---------------------------------------------------------------------------------------
# Each takes the text after the keyword and raises ValueError where it does not fit the type.

def read_elements(text: str, aval: ArrayType) -> np.ndarray:
    """Every element, in nested brackets."""
    shape, dtype = stored_form(aval)
    texts = _ELEMENT.findall(text)
    if len(texts) != math.prod(shape):
        raise ValueError(f"{len(texts)} numbers for the type {aval.str_short(True)}")
    if "".join(_nested(["0"] * len(texts), shape).split()) != "".join(
            _ELEMENT.sub("0", text).split()):
        raise ValueError(f"the brackets do not fit the type {aval.str_short(True)}")
    array = np.empty(len(texts), dtype)
    for i, item in enumerate(texts):
        array[i] = parse_scalar(item, dtype)
    return _frozen(array.reshape(shape))


def read_full(text: str, aval: ArrayType) -> np.ndarray:
    """One element for all."""
    shape, dtype = stored_form(aval)
    if 0 in shape:
        return _frozen(np.zeros(shape, dtype))
    element = np.empty((), dtype)
    element[...] = parse_scalar(text, dtype)
    if math.prod(shape) <= IN_SIGHT:
        return _frozen(np.full(shape, element, dtype))
    return np.broadcast_to(element, shape)       # one element, whatever the shape


def read_zlib(text: str, aval: ArrayType) -> np.ndarray:
    """Compressed bytes."""
    try:
        wanted = math.prod(aval.shape) * stored_form(aval)[1].itemsize
        if wanted > LARGEST_IN_TEXT:
            raise ValueError(f"no text holds the {wanted:,} bytes of {aval.str_short(True)}")
        data = zlib.decompressobj().decompress(base64.b85decode(text), wanted + 1)
    except zlib.error as error:
        raise ValueError(f"the compressed bytes are damaged: {error}") from error
    return from_bytes(data, aval)


def from_bytes(data: bytes, aval: ArrayType) -> np.ndarray:
    """An array from the bytes of its elements, row by row."""
    shape, dtype = stored_form(aval)
    if len(data) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{len(data)} bytes for the type {aval.str_short(True)}")
    return _frozen(np.frombuffer(data, dtype).reshape(shape))


def read_seed(text: str, aval: ArrayType) -> SeededArray:
    """Normal numbers, not made yet."""
    if not text.isdigit():
        raise ValueError(f"a seed is a number, not {text}")
    return SeededArray(int(text), *stored_form(aval))


def _frozen(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


def supplied(name: str, text: str, aval: ArrayType, constants: Any) -> Any:
    """The array that the caller supplies for a hash, by the constant's name or by the hash."""
    for key in (name, text):
        if key in constants:
            array = array_of(constants[key], aval)
            if digest(array) != text:
                raise ValueError(f"the array supplied for {name} is not the one that the program "
                                 f"was written with (content hash {digest(array)}, not {text})")
            return array
    return MissingConstant(name, aval, text)


# -- one element: 0.1, -inf, 1.0+2.0j, True, 0x7fc00001 --------------------------------------------
# A number is the shortest decimal that reads back to the same bits in its dtype; where there is
# none (NaN payloads), its bits in hexadecimal. That it reads back is checked as it is written.

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
