"""Narrow floats, special functions, random numbers, sums by segments, batches of small matrices."""
from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from scipy import special

from ..library import GRID, LINE, Placed, normal, program, weight
from . import plain

DRAWN = math.inf                # numpy draws other numbers: only shapes are compared
F32 = np.float32


def narrow(rng: np.random.Generator, dtype: Any, *shape: int) -> np.ndarray:
    """Of a narrow float, standard normal; plain numpy has the same values in float32."""
    return normal(rng, *shape).astype(dtype)


def _mixed(lib: Any, x: Any, y: Any) -> Any:
    """Ten elementwise operations, two of them expensive."""
    x = lib.jnp.maximum(x * y + 1, 0) * 0.5 - y
    return lib.jnp.tanh(x) * y + lib.jnp.exp(-x * x)


@program("bfloat16, elementwise on 1M", GRID, True, lambda rng: tuple(
    Placed(narrow(rng, ml_dtypes.bfloat16, 1024, 1024), ("X", "Y")) for _ in range(2)), equal=0.02)
def _bf16(lib: Any) -> Any:
    return lambda x, y: _mixed(lib, x, y)


@program("float16, elementwise on 1M", GRID, True, lambda rng: tuple(
    Placed(narrow(rng, np.float16, 1024, 1024), ("X", "Y")) for _ in range(2)), equal=0.005)
def _f16(lib: Any) -> Any:
    return lambda x, y: _mixed(lib, x, y)


@program("bfloat16, two adds on 256K", LINE, False, lambda rng: tuple(
    Placed(narrow(rng, ml_dtypes.bfloat16, 512, 512), ("X",)) for _ in range(2)), equal=0.02)
def _bf16_add(lib: Any) -> Any:
    return lambda x, y: (x + y) + y


@program("bfloat16, mlp forward", GRID, False, lambda rng: (
    Placed(narrow(rng, ml_dtypes.bfloat16, 256, 512), ("X",)),
    Placed(weight(rng, 512, 1024).astype(ml_dtypes.bfloat16), (None, "Y")),
    Placed(weight(rng, 1024, 512).astype(ml_dtypes.bfloat16), ("Y",))), equal=0.03)
def _bf16_mlp(lib: Any) -> Any:
    return lambda x, w1, w2: lib.nn.relu(x @ w1) @ w2


def _gelu_plain(x: Any, b: Any) -> Any:
    x = x + b
    return x * (F32(0.5) * (1 + special.erf(x * F32(math.sqrt(0.5)))))


@program("gelu, exact, on 1M", LINE, False, lambda rng: (
    Placed(normal(rng, 1024, 1024), ("X",)), Placed(normal(rng, 1024), (None,))), plain=_gelu_plain)
def _gelu(lib: Any) -> Any:
    return lambda x, b: lib.nn.gelu(x + b, approximate=False)


def _special_plain(x: Any) -> Any:
    y = special.erf(x) + special.expit(x) * np.log1p(np.abs(x))
    return y * np.expm1(-np.abs(x)) + np.logaddexp(x, 0)


@program("erf, sigmoid, softplus on 512K", LINE, False, lambda rng: (
    Placed(normal(rng, 1024, 512), ("X",)),), plain=_special_plain)
def _special(lib: Any) -> Any:
    jnp = lib.jnp

    def f(x: Any) -> Any:
        y = lib.lax.erf(x) + lib.nn.sigmoid(x) * jnp.log1p(jnp.abs(x))
        return y * jnp.expm1(-jnp.abs(x)) + lib.nn.softplus(x)
    return f


def _periodic_plain(x: Any) -> Any:
    return np.sin(x) * np.cos(F32(2) * x) + np.arctan2(x, 1 + x * x) + np.abs(x) ** F32(1.5)


@program("sin, cos, atan2, pow on 512K", LINE, False, lambda rng: (
    Placed(normal(rng, 1024, 512), ("X",)),), plain=_periodic_plain)
def _periodic(lib: Any) -> Any:
    jnp = lib.jnp
    return lambda x: (jnp.sin(x) * jnp.cos(2 * x) + jnp.arctan2(x, 1 + x * x)
                      + jnp.abs(x) ** 1.5)


def _rows(rng: np.random.Generator, rows: int, width: int, places: int) -> tuple:
    return (Placed(normal(rng, rows, width), (None, None)),
            Placed(rng.integers(0, places, rows).astype(np.int32), (None,)))


def _added(count: int, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    out = np.zeros((count, *rows.shape[1:]), rows.dtype)
    np.add.at(out, at, rows)
    return out


@program("segment_sum of 20,000 rows", LINE, False, lambda rng: _rows(rng, 20_000, 64, 500),
         plain=lambda x, at: _added(500, at, x))
def _segment_sum(lib: Any) -> Any:
    return lambda x, at: lib.root.ops.segment_sum(x, at, 500)


@program("rows scattered and added", LINE, False, lambda rng: (
    Placed(normal(rng, 4096, 64), (None, None)), *_rows(rng, 8192, 64, 4096)),
    plain=lambda table, x, at: table + _added(4096, at, x))
def _scatter_add(lib: Any) -> Any:
    return lambda table, x, at: table.at[at].add(x)


def _numbers_plain(x: Any, at: Any) -> Any:
    return np.bincount(at, x, 1000).astype(np.float32)


@program("segment_sum of 200,000 numbers", LINE, False, lambda rng: (
    Placed(normal(rng, 200_000), (None,)),
    Placed(rng.integers(0, 1000, 200_000).astype(np.int32), (None,))), plain=_numbers_plain,
    equal=1e-4)
def _segment_numbers(lib: Any) -> Any:
    return lambda x, at: lib.root.ops.segment_sum(x, at, 1000)


def _embedding_plain(table: Any, at: Any, target: Any) -> Any:
    return _added(len(table), at, F32(2 / target.size) * (table[at] - target))


@program("embedding, gradient of the table", LINE, False, lambda rng: (
    Placed(normal(rng, 8192, 128), (None, None)),
    Placed(rng.integers(0, 8192, 4096).astype(np.int32), (None,)),
    Placed(normal(rng, 4096, 128), (None, None))), plain=_embedding_plain)
def _embedding_gradient(lib: Any) -> Any:
    return lib.root.grad(lambda table, at, target: ((table[at] - target) ** 2).mean())


def _graph_plain(x: Any, w: Any, senders: Any, receivers: Any) -> Any:
    sums = _added(len(x), receivers, (x @ w)[senders])
    degree = np.maximum(np.bincount(receivers, minlength=len(x)), 1).astype(F32)
    return plain.relu(sums / degree[:, None])


@program("messages over a graph", LINE, False, lambda rng: (
    Placed(normal(rng, 2048, 64), (None, None)), Placed(weight(rng, 64, 64), (None, None)),
    *(Placed(rng.integers(0, 2048, 16_384).astype(np.int32), (None,)) for _ in range(2))),
    plain=_graph_plain)
def _graph(lib: Any) -> Any:
    jnp, ops = lib.jnp, lib.root.ops

    def f(x: Any, w: Any, senders: Any, receivers: Any) -> Any:
        sums = ops.segment_sum((x @ w)[senders], receivers, x.shape[0])
        degree = ops.segment_sum(jnp.ones(len(senders), x.dtype), receivers, x.shape[0])
        return lib.nn.relu(sums / jnp.maximum(degree, 1)[:, None])
    return f


def _seeded(rng: np.random.Generator) -> tuple:
    return (Placed(np.array(7, np.uint32), ()),)


@program("random, 1M bits", LINE, False, _seeded, equal=DRAWN, plain=lambda seed: np.random.
         default_rng(int(seed)).integers(0, 1 << 32, 1 << 20, np.uint32))
def _bits(lib: Any) -> Any:
    return lambda seed: lib.random.bits(lib.random.key(seed), (1 << 20,))


@program("random, 1M uniform", LINE, False, _seeded, equal=DRAWN, plain=lambda seed: np.random.
         default_rng(int(seed)).random(1 << 20, np.float32))
def _uniform(lib: Any) -> Any:
    return lambda seed: lib.random.uniform(lib.random.key(seed), (1 << 20,))


@program("random, 1M normal", LINE, False, _seeded, equal=DRAWN, plain=lambda seed: np.random.
         default_rng(int(seed)).standard_normal(1 << 20, np.float32))
def _normal(lib: Any) -> Any:
    return lambda seed: lib.random.normal(lib.random.key(seed), (1 << 20,))


def _dropout_plain(x: Any, seed: Any) -> Any:
    keep = np.random.default_rng(int(seed)).random(x.shape, np.float32) < F32(0.9)
    return np.where(keep, x / F32(0.9), F32(0))


@program("dropout on 1M", LINE, False, lambda rng: (
    Placed(normal(rng, 1024, 1024), ("X",)), *_seeded(rng)), equal=DRAWN, plain=_dropout_plain)
def _dropout(lib: Any) -> Any:
    def f(x: Any, seed: Any) -> Any:
        keep = lib.random.bernoulli(lib.random.key(seed), 0.9, x.shape)
        return lib.jnp.where(keep, x / 0.9, 0.0)
    return f


def _positive(rng: np.random.Generator, count: int, n: int) -> np.ndarray:
    a = normal(rng, count, n, n)
    return a @ a.swapaxes(-1, -2) + n * np.eye(n, dtype=np.float32)


def _kernels_plain(a: Any, b: Any) -> Any:
    return (np.linalg.solve(a, b[..., None])[..., 0], np.linalg.cholesky(a), np.linalg.inv(a),
            np.linalg.det(a))


@program("solve, cholesky, inv, det of 2,048 8x8", LINE, False, lambda rng: (
    Placed(_positive(rng, 2048, 8), ("X",)), Placed(normal(rng, 2048, 8), ("X",))),
    plain=_kernels_plain, equal=1e-3)
def _small_matrices(lib: Any) -> Any:
    linalg = lib.jnp.linalg
    return lambda a, b: (linalg.solve(a, b[..., None])[..., 0], linalg.cholesky(a), linalg.inv(a),
                         linalg.det(a))


@program("eigenvalues of 2,048 3x3", LINE, False, lambda rng: (
    Placed(_positive(rng, 2048, 3), ("X",)),), plain=np.linalg.eigvalsh, equal=1e-4)
def _eigenvalues(lib: Any) -> Any:
    return lambda a: lib.jnp.linalg.eigvalsh(a)         # itself, it is a function jitted before


@program("products of 8,192 8x8", LINE, False, lambda rng: tuple(
    Placed(normal(rng, 8192, 8, 8), ("X",)) for _ in range(2)))
def _small_products(lib: Any) -> Any:
    return lambda a, b: a @ b @ a
