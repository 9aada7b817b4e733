"""Multi-layer perceptrons under the usual layouts, an embedding, a convolution, experts."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import GRID, LINE, Placed, normal, program, weight
from . import plain

B, D, F = 512, 512, 1024


def _arguments(*specs: Any) -> Any:
    """w1, w2, x, y, each with its spec."""
    def make(rng: np.random.Generator) -> tuple:
        values = weight(rng, D, F), weight(rng, F, D), normal(rng, B, D), normal(rng, B, D)
        return tuple(map(Placed, values, specs))
    return make


@program("mlp forward, tensor parallel", GRID, True, lambda rng: (
    Placed(normal(rng, B, D), ("X",)), Placed(weight(rng, D, F), (None, "Y")),
    Placed(weight(rng, F, D), ("Y", None))), wide={"X": 16, "Y": 32})
def _forward(lib: Any) -> Any:
    return lambda x, w1, w2: lib.dot(lib.nn.gelu(x @ w1), w2, "X", None)


@program("mlp forward, 4 layers, auto", LINE, False, lambda rng: (
    Placed(normal(rng, B, D), ("X",)), [Placed(weight(rng, D, D), (None, None)) for _ in range(4)],
    [Placed(normal(rng, D), (None,)) for _ in range(4)]), wide={"X": 512})
def _deep(lib: Any) -> Any:
    def f(x: Any, ws: Any, bs: Any) -> Any:
        for w, b in zip(ws, bs, strict=True):
            x = lib.nn.relu(x @ w + b)
        return x
    return f


def step(lib: Any, gathered: bool = False) -> Any:
    """One step of gradient descent; gathered: weights are made whole first (FSDP)."""
    def loss(ws: Any, x: Any, y: Any) -> Any:
        w1, w2 = ws
        if gathered:
            w1, w2 = lib.reshard(w1, None, None), lib.reshard(w2, None, None)
        out = lib.dot(lib.jnp.tanh(x @ w1), w2, "X", None)
        return ((out - y) ** 2).mean()

    def f(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        g1, g2 = lib.root.grad(loss)((w1, w2), x, y)
        return w1 - 0.1 * g1, w2 - 0.1 * g2
    return f


@program("mlp step, data parallel", LINE, True, _arguments((), (), ("X",), ("X",)),
         plain=plain.mlp_step, wide={"X": 512})
def _dp(lib: Any) -> Any:
    return step(lib)


@program("mlp step, fsdp", LINE, True, _arguments(("X",), ("X",), ("X",), ("X",)),
         plain=plain.mlp_step, wide={"X": 512})
def _fsdp(lib: Any) -> Any:
    return step(lib, gathered=True)


@program("mlp step, data x tensor", GRID, True,
         _arguments((None, "Y"), ("Y", None), ("X",), ("X",)), plain=plain.mlp_step,
         wide={"X": 16, "Y": 32})
def _dp_tp(lib: Any) -> Any:
    return step(lib)


@program("mlp step, data x tensor, auto", GRID, False,
         _arguments((None, "Y"), ("Y", None), ("X",), ("X",)), plain=plain.mlp_step,
         wide={"X": 16, "Y": 32})
def _dp_tp_auto(lib: Any) -> Any:
    return step(lib)


def _embedding_plain(table: Any, w: Any, tokens: Any) -> Any:
    rows = table[tokens]
    dz = np.float32(2 / (rows.shape[0] * rows.shape[1] * w.shape[1])) * (rows @ w)
    dtable = np.zeros_like(table)
    np.add.at(dtable, tokens.reshape(-1), (dz @ w.T).reshape(-1, table.shape[1]))
    return dtable, rows.reshape(-1, table.shape[1]).T @ dz.reshape(-1, w.shape[1])


@program("embedding and its gradient", LINE, False, lambda rng: (
    Placed(normal(rng, 4096, 256), (None, None)), Placed(weight(rng, 256, 256), (None, None)),
    Placed(rng.integers(0, 4096, (32, 64)).astype(np.int32), ("X",))), plain=_embedding_plain,
    equal=1e-4)
def _embedding(lib: Any) -> Any:
    def loss(table: Any, w: Any, tokens: Any) -> Any:
        return ((table[tokens] @ w) ** 2).mean()
    return lib.root.grad(loss, (0, 1))


def _conv(x: Any, w: Any) -> Any:
    """3 x 3, channels last, padded to the same size: nine products."""
    n, h, v, c = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    out = np.zeros((n, h, v, w.shape[-1]), x.dtype)
    for i in range(3):
        for j in range(3):
            out += padded[:, i:i + h, j:j + v] @ w[i, j]
    return out


def _conv_plain(x: Any, w1: Any, w2: Any) -> Any:
    x = plain.relu(_conv(x, w1))
    return plain.relu(_conv(x, w2)).mean((1, 2))


@program("convolutions", LINE, False, lambda rng: (
    Placed(normal(rng, 16, 32, 32, 16), ("X",)), Placed(weight(rng, 3, 3, 16, 32), ()),
    Placed(weight(rng, 3, 3, 32, 32), ())), plain=_conv_plain, equal=1e-4)
def _convolutions(lib: Any) -> Any:
    def f(x: Any, w1: Any, w2: Any) -> Any:
        for w in (w1, w2):
            x = lib.nn.relu(lib.lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x.mean((1, 2))
    return f


def _experts_plain(x: Any, router: Any, up: Any, down: Any) -> Any:
    gates = plain.softmax(x @ router)
    gates = np.where(gates >= gates.max(-1, keepdims=True), gates, np.float32(0))
    taken = gates.T[:, :, None] * x
    return (plain.relu(taken @ up) @ down).sum(0)


@program("experts, dense dispatch", GRID, False, lambda rng: (
    Placed(normal(rng, 512, 256), ("X",)), Placed(weight(rng, 256, 8), ()),
    Placed(weight(rng, 8, 256, 512), ("Y",)), Placed(weight(rng, 8, 512, 256), ("Y",))),
    plain=_experts_plain, equal=1e-4)
def _experts(lib: Any) -> Any:
    def f(x: Any, router: Any, up: Any, down: Any) -> Any:
        gates = lib.nn.softmax(x @ router)
        gates = lib.jnp.where(gates >= gates.max(-1, keepdims=True), gates, 0)
        taken = lib.einsum("te,td->etd", gates, x, spec=("Y", "X", None))
        hidden = lib.nn.relu(lib.einsum("etd,edf->etf", taken, up, spec=("Y", "X", None)))
        out = lib.einsum("etf,efd->etd", hidden, down, spec=("Y", "X", None))
        return out.sum(0)
    return f
