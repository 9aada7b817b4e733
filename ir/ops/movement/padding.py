"""pad: inserts elements before, after and between those of an array; negative padding crops.

A padded dimension is a halo factor: blocks of the result need elements of neighbouring blocks.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import MAY_BE_NAN, REARRANGED, SPLICED, UNEVEN
from ...kernels.windows import Config, halo, pad_array, padding_of, spread_size
from ...op import OPS, Evaluator, LinearOperand, LocalizeContext, Sample, defop
from ...padded import Padded, PaddedContext, same_number, with_entry
from ...program import Literal
from ...rules.rule import FactorRule, make_rule
from ...types import ArrayType, Shape, array_type
from ..communication.halo_exchange import Rows, rows_needed, split_halos
from ..derivatives import batch_first, explicit_sharding, move_first, type_of
from ..elementwise.declaration import arange
from ..rules import batch_dim, call, cotangent_sharding, reject, resized_entries, rule_text


def _pad_infer(x: ArrayType, value: ArrayType, *, padding_config: Config) -> tuple:
    """Each dimension grows by its low, high and interior padding; the first two may be negative."""
    if x.dtype != value.dtype:
        reject(TypeError, [x, value], "pad operand and padding_value must be same dtype: got "
               f"{x.dtype} and {value.dtype}.", help="give a value of the operand's dtype")
    if value.ndim:
        reject(ValueError, [x, value],
               "padding_value must be a scalar; got np.shape(padding_value)="
               f"{value.shape}", help="give one number; `jnp.where` fills with several")
    if len(padding_config) != x.ndim:
        reject(ValueError, [x, value],
               "length of padding_config must equal the number of axes of operand, got "
               f"padding_config {padding_config} for operand shape {x.shape}",
               help=f"give (low, high, interior) for each of the {x.ndim} dimensions")
    if any(inner < 0 for _, _, inner in padding_config):
        reject(ValueError, [x, value],
               "interior padding in padding_config must be nonnegative, got "
               f"padding_config {padding_config}",
               help="give 0 or more; a slice with strides takes elements out")
    shape = tuple(lo + hi + (n + (n - 1) * inner if n else 0)
                  for n, (lo, hi, inner) in zip(x.shape, padding_config, strict=True))
    if any(n < 0 for n in shape):
        reject(ValueError, [x, value],
               f"Dimension size after padding is not at least 0, got result shape "
               f"{shape}, for padding_config {padding_config} and operand shape "
               f"{x.shape}", help="remove no more rows than there are")
    return shape, x.dtype


def within_blocks(config: tuple[int, int, int]) -> bool:
    """Does each element become `interior + 1` of the result, so that blocks are padded alike?"""
    low, high, inner = config
    return inner > 0 and low >= 0 and high >= 0 and low + high == inner


def _pad_rule(operands: tuple[Shape, ...], results: tuple[Shape, ...], *,
              padding_config: Config) -> FactorRule:
    """A padded dimension is a halo, or is split in two where padding lies within blocks: each
    element with the padding after it.
    """
    dims: list[Any] = [f"d{d}" for d in range(len(padding_config))]
    out, kinds, sizes = list(dims), [], {}
    for d, config in enumerate(padding_config):
        low, _, inner = config
        if within_blocks(config) and operands[0][d] > 0:
            out[d] = (f"d{d}", f"p{d}")
            sizes |= {f"d{d}": operands[0][d], f"p{d}": inner + 1}
            kinds.append(f"p{d}!:replicate")
        elif config != (0, 0, 0):
            kinds.append(f"d{d}:{halo(1, 1, (low, 0), spread=inner + 1)}")
    return make_rule(rule_text([dims, []], [out], kinds), operands, results, sizes)


def _pad_transpose(ct: Any, x: Any, value: Any, *, padding_config: Config) -> tuple:
    """The cotangent of x is cut out of ct; that of the value is the sum of all the rest."""
    ct_x = ct_value = None
    aval = type_of(ct)
    if isinstance(x, LinearOperand) or isinstance(value, LinearOperand):
        cut = tuple((-lo, -hi, 0) for lo, hi, _ in padding_config)
        ct_x = pad_p.bind(ct, np.zeros((), aval.dtype), padding_config=cut)
        if any(inner for _, _, inner in padding_config):
            shape = type_of(ct_x).shape
            ct_x = call("slice", ct_x, start_indices=(0,) * len(shape), limit_indices=shape,
                        strides=tuple(inner + 1 for _, _, inner in padding_config))
    if isinstance(value, LinearOperand):
        every = tuple(range(len(aval.shape)))
        wanted = cotangent_sharding(value.aval)
        ct_value = call("sub", call("reduce_sum", ct, axes=every, out_sharding=wanted),
                        call("reduce_sum", ct_x, axes=every, out_sharding=wanted))
    return ct_x if isinstance(x, LinearOperand) else None, ct_value


def _pad_batch(operands: Sequence[Any], dims: Sequence[int | None], size: int, *,
               padding_config: Config) -> tuple:
    """One more dimension without padding. Values of their own for each member are put where x is
    not, by a select.
    """
    x, value = operands
    config = ((0, 0, 0), *padding_config)
    if dims[1] is None:
        x = move_first(x, batch_dim(dims[:1]))
        return [pad_p.bind(x, value, padding_config=config)], [0]
    x, value = batch_first(operands, dims, size)
    aval = type_of(x)
    padded = pad_p.bind(x, np.zeros((), aval.dtype), padding_config=config)
    inside = call("broadcast_in_dim", np.asarray(True), shape=aval.shape, broadcast_dimensions=(),
                  sharding=explicit_sharding(aval))
    inside = pad_p.bind(inside, np.asarray(False), padding_config=config)
    out = type_of(padded)
    value = call("broadcast_in_dim", value, shape=out.shape, broadcast_dimensions=(0,),
                 sharding=explicit_sharding(out))
    return [call("select_n", inside, value, padded)], [0]


def _pad_padded(context: PaddedContext) -> list[Padded] | None:
    """`pad` of a padded operand: at the high end as much more as is wanted of the result. All that
    follows the last row has the value that is padded with, the operand's own padding included.
    Where rows in front were cut off and are padding, new ones stand in their place."""
    x, value = context.given
    result, (shape,) = context.result_types[0].shape, context.sizes
    if not isinstance(x.atom.aval.dtype, np.dtype):
        return None
    number = np.asarray(value.atom.val)[()] if isinstance(value.atom, Literal) else None
    config, fills = [], []
    for d, (low, high, inner) in enumerate(context.params["padding_config"]):
        first = x.lows[d] or 0
        if (low, high, inner) == (0, 0, 0):
            x = context.resized(x, d, max(shape[d], x.size(d)), x.lows[d])
            config.append((0, 0, 0))
            fills.append(x.fills[d])
            continue
        if first >= low >= 0 == inner and first > 0 <= high and number is not None and (
                first + x.shape[d] + high <= x.size(d)):
            x = context.masked(x, d, number)
            x = Padded(x.atom, with_entry(x.shape, d, result[d]), x.fills,
                       with_entry(x.lows, d, first - low))
            config.append((0, 0, 0))
            fills.append(number)
            continue
        x = context.resized(x, d, x.size(d))
        if high > inner:
            x = context.cut(x, d) if number is None else context.masked(x, d, number)
        own = x.size(d) + (x.size(d) - 1) * inner if x.size(d) else 0
        config.append((low, shape[d] - low - own, inner))
        known = high >= 0 and x.holds(d, number)
        fills.append(number if known else None)
    added = [d for d, sizes in enumerate(context.params["padding_config"]) if max(sizes) > 0]
    for d, fill in enumerate(fills):            # what is added stands in padding of the others, too
        if any([e != d for e in added]) and not same_number(fill, number):
            fills[d] = None
    atom = x.atom if not any(map(any, config)) else context.call(
        "pad", x.atom, value.atom, padding_config=tuple(config))
    return [Padded(atom, result, fills, x.lows)]


def _pad_localize(context: LocalizeContext) -> list[Any]:
    """A partial sum is padded on one device only: else the padding is added once per device. A
    split dimension gets its rows from neighbours, and the padding where there are none."""
    x, value = context.operands
    axes = context.result_types[0].mesh.sort_axes(context.result_types[0].unreduced)
    known_zero = isinstance(value, Literal) and not np.any(np.asarray(value.val))
    if axes and not known_zero:
        first = context.emit(OPS["eq"], [context.block_offset(axes, 1), _zero(np.int32)], {})
        zero = _zero(context.operand_types[1].dtype)
        value = context.emit(OPS["select_n"], [*first, zero, value], {})[0]
        known_zero = False
    config = list(context.params["padding_config"])
    cuts: list[tuple[Rows, int, int]] = []
    for d, split in split_halos(context).items():
        inner, count = config[d][2], context.local_result_shapes[0][d]
        rows = rows_needed(context, x, d, split)
        x = rows.x if known_zero else rows.masked(value, (0, context.operand_types[0].shape[d]))
        config[d] = (0, 0, 0)
        if inner:
            config[d] = (inner, count - spread_size(rows.count, inner + 1), inner)
            cuts.append((rows, d, count))
    if any(map(any, config)):
        (x,) = context.emit(pad_p, [x, value], {"padding_config": tuple(config)})
    for rows, d, count in cuts:
        x = rows.from_lead(x, d, count)
    return [x]


def _zero(dtype: Any) -> Literal:
    return Literal(np.zeros((), dtype)[()], array_type((), np.dtype(dtype)))


pad_p = defop(
    "pad",
    doc="padding_value before, after and between the elements: (low, high, interior) for each "
        "dimension; low and high may be negative.",
    infer=_pad_infer, rule=_pad_rule,
    explicit=lambda op, types, shapes, params: [resized_entries("padding", types[0], shapes[0])],
    pending=lambda op, types, params, unreduced, reduced: (unreduced[0], reduced[0]),
    linear=((0, 1),), jvp="linear", transpose=_pad_transpose, batch=_pad_batch,
    evaluate=Evaluator(pad_array, prepare=padding_of), arithmetic=False,
    facts=(REARRANGED, SPLICED, UNEVEN, MAY_BE_NAN),
    padded=_pad_padded, localize=_pad_localize,
    samples=lambda: [
        Sample((arange(2, 3), np.float32(7)), {"padding_config": ((1, 2, 0), (0, 1, 0))}),
        Sample((arange(3, 4), np.float32(7)), {"padding_config": ((0, 0, 2), (-1, -2, 0))}),
        Sample((arange(4,), np.float32(1)), {"padding_config": ((-3, 2, 1),)}),
        Sample((arange(4,), np.float32(1)), {"padding_config": ((3, -4, 1),)}),
    ])
