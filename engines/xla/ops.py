"""What stands for each op in a written program: an expression of JAX's functions.

Elementwise ops are functions of `jax.lax` of the same name, unless a table says otherwise. Where
operands and params are given in another way, a function here writes the call; ops of other rooms
are in `collectives.py`, `control.py` and `random_ops.py`.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.facts import IDENTITY
from ...ir.program import Equation
from ...ir.rules.rule import ELEMENTWISE
from .literals import dtype_text, keywords, plain, tuple_of

Texts = Sequence[str]
Params = dict[str, Any]
Writer = Callable[[Params, Texts, Equation], str]

# Functions of the same operands, without params; of elementwise ops, those that have another name.
PLAIN: dict[str, str] = {
    "and": "lax.bitwise_and", "or": "lax.bitwise_or", "xor": "lax.bitwise_xor",
    "not": "lax.bitwise_not", "add_any": "lax.add", "regularized_incomplete_beta": "lax.betainc",
    "trunc": "jnp.trunc", "mulhi": "high_product", "eq_to": "equal_in_order",
    "householder_product": "linalg.householder_product_p.bind"}

# The primitives of other ops, which take the same params.
BOUND: dict[str, str] = {
    **{name: f"lax.{name}_p" for name in (
        "le_to", "lt_to", "reduce_window_sum", "reduce_window_max", "reduce_window_min")},
    **{name: f"linalg.{name}_p" for name in (
        "hessenberg", "lu", "lu_pivots_to_permutation", "qr", "schur", "tridiagonal")}}


def _named_params(kind: str) -> Callable[[Any], str]:
    def text(numbers: Any) -> str:
        fields = ", ".join(f"{k}={plain(v)}" for k, v in numbers._asdict().items())
        return f"lax.{kind}({fields})"
    return text


_gather_numbers = _named_params("GatherDimensionNumbers")
_scatter_numbers = _named_params("ScatterDimensionNumbers")
_conv_numbers = _named_params("ConvDimensionNumbers")


def _precision(params: Params) -> str:
    def text(value: Any) -> str:
        if isinstance(value, tuple):
            return tuple_of(map(text, value))
        return f"lax.{type(value).__name__}.{value.name}"

    found = params.get("precision")
    out = "" if found is None else f", precision={text(found)}"
    wanted = params.get("preferred_element_type")
    return out if wanted is None else f"{out}, preferred_element_type={dtype_text(wanted)}"


def _dot(p: Params, x: Texts, e: Equation) -> str:
    return f"lax.dot_general({x[0]}, {x[1]}, {plain(p['dimension_numbers'])}{_precision(p)})"


def _ragged(p: Params, x: Texts, e: Equation) -> str:
    numbers = _named_params("RaggedDotDimensionNumbers")(p["ragged_dot_dimension_numbers"])
    return f"lax.ragged_dot_general({', '.join(x)}, {numbers}{_precision(p)})"


def _conv(p: Params, x: Texts, e: Equation) -> str:
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "feature_group_count",
             "batch_group_count")
    return (f"lax.conv_general_dilated({x[0]}, {x[1]}"
            f"{keywords((n, p[n]) for n in names)}"
            f", dimension_numbers={_conv_numbers(p['dimension_numbers'])}{_precision(p)})")


def _gather(p: Params, x: Texts, e: Equation) -> str:
    return (f"lax.gather({x[0]}, {x[1]}, {_gather_numbers(p['dimension_numbers'])}"
            f"{keywords((n, p[n]) for n in _GATHER)}, mode=lax.GatherScatterMode.{p['mode'].name})")


_GATHER = ("slice_sizes", "unique_indices", "indices_are_sorted", "fill_value")


def _scatter(p: Params, x: Texts, e: Equation) -> str:
    name = e.op.name.replace("-", "_")
    return (f"lax.{name}({', '.join(x)}, {_scatter_numbers(p['dimension_numbers'])}"
            f"{keywords((n, p[n]) for n in ('indices_are_sorted', 'unique_indices'))}"
            f", mode=lax.GatherScatterMode.{p['mode'].name})")


def _selecting(p: Params, x: Texts, e: Equation) -> str:
    rest = keywords((k, v) for k, v in p.items() if k != "select_prim")
    return f"lax.{e.op.name}_p.bind({x[0]}, {x[1]}, select_prim=lax.{p['select_prim']}_p{rest})"


def _over(name: str, *params: str) -> Writer:
    """A function of an operand and these params, by position."""
    def write(p: Params, x: Texts, e: Equation) -> str:
        return f"lax.{name}({', '.join((*x, *(plain(p[n]) for n in params)))})"
    return write


def _with_dtype(p: Params, x: Texts, e: Equation) -> str:
    return f"lax.{e.op.name}({x[0]}, {dtype_text(p['new_dtype'])})"


def _cumulative(p: Params, x: Texts, e: Equation) -> str:
    backward = ", reverse=True" if p["reverse"] else ""
    return f"lax.{e.op.name}({x[0]}, axis={p['axis']}{backward})"


def _position(p: Params, x: Texts, e: Equation) -> str:
    (axis,) = p["axes"]
    return f"lax.{e.op.name}({x[0]}, {axis}, {dtype_text(p['index_dtype'])})"


def _dynamic_slice(p: Params, x: Texts, e: Equation) -> str:
    return (f"lax.dynamic_slice({x[0]}, {tuple_of(x[1:])}, {plain(p['slice_sizes'])}, "
            "allow_negative_indices=False)")


def _dynamic_update(p: Params, x: Texts, e: Equation) -> str:
    return (f"lax.dynamic_update_slice({x[0]}, {x[1]}, {tuple_of(x[2:])}, "
            "allow_negative_indices=False)")


def _mul(p: Params, x: Texts, e: Equation) -> str:
    wanted = p.get("out_dtype")
    more = "" if wanted is None else f", out_dtype={dtype_text(wanted)}"
    return f"lax.mul({x[0]}, {x[1]}{more})"


def _gather_all(function: str) -> Writer:
    """Operands as a tuple, and the params by position."""
    def write(p: Params, x: Texts, e: Equation) -> str:
        return f"{function}({tuple_of(x)}, {', '.join(map(plain, p.values()))})"
    return write


def _reshape(p: Params, x: Texts, e: Equation) -> str:
    order = p.get("dimensions")
    return (f"lax.reshape({x[0]}, {plain(p['new_sizes'])}"
            f"{'' if order is None else ', ' + plain(order)})")


def _filled(p: Params, x: Texts, e: Equation) -> str:
    return f"jnp.zeros({plain(p['shape'])}, {dtype_text(p['dtype'])})"


def _triangular(p: Params, x: Texts, e: Equation) -> str:
    return f"linalg.triangular_solve_p.bind({', '.join(x)}{keywords(p.items())})"


def _eigh(p: Params, x: Texts, e: Equation) -> str:
    return (f"linalg.eigh_p.bind({x[0]}, lower={p['lower']}, sort_eigenvalues="
            f"{p['sort_eigenvalues']}, subset_by_index={plain(p['subset_by_index'])}, "
            "algorithm=None)")


def _svd(p: Params, x: Texts, e: Equation) -> str:
    return (f"linalg.svd_p.bind({x[0]}, full_matrices={p['full_matrices']}, compute_uv="
            f"{p['compute_uv']}, subset_by_index={plain(p['subset_by_index'])}, algorithm=None)")


def _eig(p: Params, x: Texts, e: Equation) -> str:
    return (f"linalg.eig({x[0]}, compute_left_eigenvectors={p['compute_left_eigenvectors']}, "
            f"compute_right_eigenvectors={p['compute_right_eigenvectors']})")


def _sort(p: Params, x: Texts, e: Equation) -> str:
    return f"lax.sort({tuple_of(x)}{keywords(p.items())})"


def _device_put(p: Params, x: Texts, e: Equation) -> str:
    return f"in_memory({x[0]}, {'Host' if p['memory_space'] == 'host' else 'Device'!r})"


WRITERS: dict[str, Writer] = {
    "mul": _mul, "dot_general": _dot, "ragged_dot_general": _ragged,
    "conv_general_dilated": _conv, "gather": _gather,
    **dict.fromkeys(("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min",
                     "scatter-max"), _scatter),
    "select_and_gather_add": _selecting, "select_and_scatter_add": _selecting,
    "fft": lambda p, x, e: (
        f"lax.fft({x[0]}, {p['fft_type'].name!r}, {plain(p['fft_lengths'])})"),
    **{name: _over(name, "axes") for name in (
        "reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or",
        "reduce_xor")},
    "argmax": _position, "argmin": _position,
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"), _cumulative),
    "convert_element_type": _with_dtype, "bitcast_convert_type": _with_dtype,
    "reduce_precision": _over("reduce_precision", "exponent_bits", "mantissa_bits"),
    "round": lambda p, x, e: f"lax.round({x[0]}, lax.RoundingMethod({int(p['rounding_method'])}))",
    "integer_pow": _over("integer_pow", "y"), "conj": _over("conj"),
    "iota": lambda p, x, e: (f"lax.broadcasted_iota({dtype_text(p['dtype'])}, "
                             f"{plain(p['shape'])}, {p['dimension']})"),
    "empty": _filled,
    "dynamic_slice": _dynamic_slice, "dynamic_update_slice": _dynamic_update,
    "concatenate": _gather_all("lax.concatenate"), "stack": _gather_all("jnp.stack"),
    "pad": _over("pad", "padding_config"), "reshape": _reshape,
    "broadcast_in_dim": _over("broadcast_in_dim", "shape", "broadcast_dimensions"),
    "transpose": _over("transpose", "permutation"), "squeeze": _over("squeeze", "dimensions"),
    "rev": _over("rev", "dimensions"), "tile": _over("tile", "reps"),
    "slice": _over("slice", "start_indices", "limit_indices", "strides"),
    "roll": lambda p, x, e: f"roll_rows({x[0]}, {p['dimension']}, {p['shift']})",
    "place": lambda p, x, e: (f"place_rows({x[0]}, {x[1]}, {p['dimension']}, {p['start']}, "
                              f"{p['limit']}, {p['low']})"),
    "device_put": _device_put,
    "cholesky": lambda p, x, e: f"jnp.tril(linalg.cholesky_p.bind({x[0]}))",
    "triangular_solve": _triangular,
    "tridiagonal_solve": lambda p, x, e: (
        f"linalg.tridiagonal_solve_p.bind({', '.join(x)}{keywords(p.items())})"),
    "floor_div": lambda p, x, e: f"jnp.floor_divide({x[0]}, {x[1]})",
}

# Of several results, as a sequence.
WRITERS_OF_SEVERAL: dict[str, Writer] = {
    "optimization_barrier": lambda p, x, e: f"lax.optimization_barrier({tuple_of(x)})",
    "shard_alike": lambda p, x, e: tuple_of(x),
    "split": _over("split", "sizes", "axis"),
    "unstack": _over("unstack", "axis"),
    "sort": _sort,
    "top_k": lambda p, x, e: f"lax.top_k({x[0]}, {p['k']}, axis={p['axis']})",
    "eigh": _eigh, "svd": _svd, "eig": _eig,
    "geqrf": lambda p, x, e: f"packed_qr({x[0]})",
}


def expression(e: Equation, x: Texts) -> str | None:
    """The source text of an equation with these operands; None if it is not supported.

    Which functions `jax.lax` has is known where JAX is imported, as it is before a program runs.
    """
    name, p = e.op.name, e.params
    if name in WRITERS:
        return WRITERS[name](p, x, e)
    if name in WRITERS_OF_SEVERAL:
        return WRITERS_OF_SEVERAL[name](p, x, e)
    if IDENTITY in e.op.facts:
        return x[0]
    if name in PLAIN:
        return f"{PLAIN[name]}({', '.join(x)})"
    if name in BOUND:
        return f"{BOUND[name]}.bind({', '.join(x)}{keywords(p.items())})"
    lax = sys.modules.get("jax.lax")
    if e.op.rule == ELEMENTWISE and (lax is None or hasattr(lax, name)):
        return f"lax.{name}({', '.join(x)})"
    return None


def unsupported_dtype(e: Equation) -> np.dtype | None:
    """A dtype of the equation that XLA does not support."""
    for a in (*e.invars, *e.outvars):
        dtype = a.aval.dtype
        if isinstance(dtype, np.dtype) and dtype.name.startswith("float6_"):
            return dtype
    return None
