"""Ops that change no value: copies, barriers, transfers, and `stop_gradient`."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...facts import CHEAP, IDENTITY
from ...op import Sample, defop
from ...rules.factor import Factor
from ...rules.rule import FactorRule
from ...shardings.normalized import insert_dim, unsharded
from ...shardings.sharding import NamedSharding
from ...types import ArrayType, Shape
from .declaration import values


def _one_sample() -> list[Sample]:
    return [Sample((values((4, 6), np.float32, -3, 3),))]


copy_p = defop(
    "copy", doc="x, in memory of its own where that can be seen.",
    infer=lambda x: (x.shape, x.dtype), rule="... -> ...", pending="carry",
    linear=((0,),), jvp="linear", transpose=lambda ct, x: [copy_p.bind(ct)],
    evaluate=lambda lead, x: x.copy(), arithmetic=False, facts=(IDENTITY, CHEAP),
    samples=_one_sample)

stage_p = defop(
    "stage", doc="x, as a value of the program that is being traced.",
    infer=lambda x: (x.shape, x.dtype), rule="... -> ...", pending="carry",
    linear=((0,),), jvp="linear", transpose=lambda ct, x: [stage_p.bind(ct)],
    evaluate=lambda lead, x: x, arithmetic=False, facts=(IDENTITY,),
    samples=_one_sample)


def _placed(x: ArrayType, *, memory_space: str, **devices: Any) -> ArrayType:
    sharding = devices.get("sharding")
    if sharding is None:
        return x.update(memory_space=memory_space)
    if not isinstance(sharding, NamedSharding):
        sharding = unsharded(x.ndim)
    return x.update(memory_space=memory_space, sharding=sharding)


def _placed_transpose(ct: Any, x: Any, *, memory_space: str, **devices: Any) -> list[Any]:
    if devices:
        if devices["source"] is None:       # a number or numpy array, which was on no device
            return [ct]
        devices = {"sharding": devices["source"], "source": devices["sharding"]}
    return [device_put_p.bind(ct, memory_space=x.aval.memory_space.value, **devices)]


def _placed_batch(operands: Sequence[Any], dims: Sequence[Any], size: int, **params: Any
                  ) -> tuple[list[Any], list[Any]]:
    (x,), (d,) = operands, dims
    for name in ("sharding", "source"):
        if isinstance(params.get(name), NamedSharding):
            params[name] = insert_dim(params[name], np.ndim(x) - 1, d, ())
    return [device_put_p.bind(x, **params)], [d]


device_put_p = defop(
    "device_put", doc="x, in device or in host memory. What runs at once may go to other devices, "
                      "`sharding` (from `source`).",
    infer=_placed, rule="... -> ...", pending="carry",
    linear=((0,),), jvp="linear", transpose=_placed_transpose, batch=_placed_batch,
    evaluate=lambda lead, x, **params: x, arithmetic=False, facts=(IDENTITY,),
    jax="in_memory",
    samples=lambda: [Sample((values((4, 6), np.float32, -3, 3),), {"memory_space": "host"})])

stop_gradient_p = defop(
    "stop_gradient", doc="x, as a constant to derivatives.",
    infer=lambda x: (x.shape, x.dtype), rule="... -> ...", pending="carry",
    linear=((0,),), jvp="zero",
    evaluate=lambda lead, x: x, arithmetic=False, facts=(IDENTITY, CHEAP),
    samples=_one_sample)


def _separate_factors(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...]
                      ) -> FactorRule:
    factors: list[Factor] = []
    maps = []
    for i, shape in enumerate(operand_shapes):
        maps.append(tuple((len(factors) + d,) for d in range(len(shape))))
        factors += [Factor(f"x{i}_{d}", n) for d, n in enumerate(shape)]
    return FactorRule(tuple(maps), tuple(maps), tuple(factors))


def _through_barrier(values: Sequence[Any]) -> list[Any]:
    """Tangents or cotangents through a barrier of their own; None stays None."""
    results = iter(barrier_p.bind(*[v for v in values if v is not None]))
    return [None if v is None else next(results) for v in values]


barrier_p = optimization_barrier_p = defop(
    "optimization_barrier",
    doc="Its operands, which no pass may compute twice, move across the barrier or fold.",
    # Operands keep their whole types, pending sums included, each independently of the others.
    infer=lambda *types: list(types), multiple_results=True, rule=_separate_factors,
    pending="carry", manual=lambda op, types, params: [t.manual for t in types],
    linear="all",
    jvp=lambda operands, tangents: (barrier_p.bind(*operands), _through_barrier(tangents)),
    transpose=lambda cts, *operands: _through_barrier(cts),
    batch=lambda operands, dims, size: (barrier_p.bind(*operands), list(dims)),
    evaluate=lambda lead, *arrays: list(arrays), arithmetic=False, facts=(IDENTITY,),
    jax="lax.optimization_barrier(*)",
    samples=lambda: [Sample((values((4, 6), np.float32, -3, 3), values((2,), np.int32, -9, 9)),
                            grad=False)])


# -- one layout for two values ---------------------------------------------------------------------

def _alike(operand_shapes: tuple[Shape, ...], result_shapes: tuple[Shape, ...]) -> FactorRule:
    dims = tuple((d,) for d in range(len(operand_shapes[0])))
    return FactorRule((dims, dims), (dims, dims),
                      tuple(Factor(f"x{d}", n) for d, n in enumerate(operand_shapes[0])))


def _alike_jvp(operands: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    out = shard_alike_p.bind(*operands)
    return out, _alike_tangents(tangents)


def _alike_tangents(tangents: Sequence[Any]) -> list[Any]:
    if any(t is None for t in tangents):
        return list(tangents)
    return shard_alike_p.bind(*tangents)


shard_alike_p = defop(
    "shard_alike", doc="Its two operands, of one shape, in one layout.",
    infer=lambda x, y: [x, y], multiple_results=True, rule=_alike,
    pending="carry", manual=lambda op, types, params: [t.manual for t in types],
    linear="all", jvp=_alike_jvp, transpose=lambda cts, x, y: _alike_tangents(cts),
    evaluate=lambda lead, x, y: [x, y], arithmetic=False, facts=(IDENTITY,),
    samples=lambda: [Sample((values((4, 6), np.float32, -3, 3), values((4, 6), np.int32, -9, 9)),
                            grad=False)])
