"""Types and attributes of MLIR as Python's, numpy's and ours."""
from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.support.lazy import lazy_import

ir = lazy_import("jaxlib.mlir.ir")

_DTYPES = {"i1": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64",
           "complex<f32>": "complex64", "complex<f64>": "complex128"}
_DTYPES.update({f"i{n}": f"int{n}" for n in (2, 4, 8, 16, 32, 64)})
_DTYPES.update({f"{sign}i{n}": f"{'u' if sign == 'u' else ''}int{n}" for n in (2, 4, 8, 16, 32, 64)
                for sign in "us"})
_NUMBER = re.compile(r"\(([^,()]+),([^,()]+)\)|([^\s,\[\]()]+)")


def dtype_of(element: Any) -> np.dtype:
    """The dtype of an element type such as `bf16` or `f8E4M3FN`."""
    text = str(element)
    name = _DTYPES.get(text) or f"float{text[1:].lower().replace('e', '_e', 1)}"
    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        fail(TypeError, f"from_stablehlo: elements of type {text} have no dtype in numpy or "
             "ml_dtypes", code="stablehlo-type",
             help="convert them in the program that is exported")


def shape_and_dtype(t: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype of a tensor type, whose sizes must be static."""
    text = str(t)
    if not text.startswith("tensor<"):
        fail(TypeError, f"from_stablehlo: a value has the type {text}, which is not a tensor",
             code="stablehlo-type", help="export a program whose values are all tensors")
    ranked = ir.RankedTensorType(t)
    if not ranked.has_static_shape:
        fail(TypeError, f"from_stablehlo: the sizes of {text} are not all known",
             code="stablehlo-type", help="export the program for fixed sizes")
    return tuple(ranked.shape), dtype_of(ranked.element_type)


def constant_of(op: Any) -> np.ndarray:
    """The value of a `stablehlo.constant`."""
    shape, dtype = shape_and_dtype(op.results[0].type)
    if dtype.kind in "biu" and dtype.itemsize * 8 >= 8 and not _narrow(dtype) or dtype in (
            np.float16, np.float32, np.float64):
        return np.array(op.attributes["value"]).astype(dtype, copy=False).reshape(shape)
    # jaxlib gives no array of the others: read what it prints.
    text = op.get_asm(large_elements_limit=None, large_resource_limit=None)
    literal = text[text.index("dense<") + 6:text.rindex("> : tensor<")]
    if literal.startswith('"'):
        data = bytes.fromhex(literal.strip('"')[2:])
        return np.frombuffer(data, dtype).reshape(shape)
    found = [complex(float(re_), float(im)) if re_ else _number(text, dtype)
             for re_, im, text in _NUMBER.findall(literal)]
    values = np.array(found).astype(dtype)
    return np.broadcast_to(values.reshape(()), shape) if values.size == 1 else values.reshape(shape)


def _narrow(dtype: np.dtype) -> bool:
    """Are there fewer than eight bits to a number?"""
    return dtype.name in ("int2", "int4", "uint2", "uint4")


def _number(text: str, dtype: np.dtype) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if text.startswith("0x") and dtype.kind not in "iu" and not _narrow(dtype):   # its bits
        width = dtype.itemsize
        return np.frombuffer(int(text, 16).to_bytes(width, "little"), dtype)[0]
    return int(text, 0) if _narrow(dtype) else float(text)


def python_of(attribute: Any) -> Any:
    """An attribute as a Python value; its text if it has none."""
    kind = type(attribute).__name__
    if kind in ("DenseI64ArrayAttr", "DenseI32ArrayAttr", "DenseBoolArrayAttr"):
        return tuple(attribute)
    if kind in ("BoolAttr", "IntegerAttr", "FloatAttr", "StringAttr"):
        return attribute.value
    if kind == "FlatSymbolRefAttr":
        return attribute.value
    if kind in ("DenseIntElementsAttr", "DenseFPElementsAttr"):
        return np.array(attribute)
    if kind == "ArrayAttr":
        return tuple([python_of(a) for a in attribute])
    if kind == "DictAttr":
        return {a.name: python_of(a.attr) for a in attribute}
    return str(attribute)


def word_of(attribute: Any) -> str:
    """`LT` of `#stablehlo<comparison_direction LT>`."""
    return str(attribute).rstrip(">").rpartition(" ")[2]
