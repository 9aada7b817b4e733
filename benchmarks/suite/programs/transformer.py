"""Attention, a transformer block forward and in training, 24 layers scanned and unrolled."""
from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..library import CUBE, GRID, Placed, normal, program, weight
from . import plain
from .elementwise import layer_norm

# How the weights of a block are split, with the data over X and the heads over Y.
SPECS: dict[str, tuple[Any, ...]] = {
    "n1": (None,), "q": (None, "Y", None), "k": (None, "Y", None), "v": (None, "Y", None),
    "o": ("Y", None, None), "n2": (None,), "up": (None, "Y"), "down": ("Y", None)}


def weights(rng: np.random.Generator, d: int, heads: int, layers: int = 0) -> dict[str, Placed]:
    """Of a block, or of a stack of `layers` blocks: a leading dimension more."""
    c = d // heads
    shapes = {"n1": (d,), "q": (d, heads, c), "k": (d, heads, c), "v": (d, heads, c),
              "o": (heads, c, d), "n2": (d,), "up": (d, 4 * d), "down": (4 * d, d)}
    out = {}
    for name, shape in shapes.items():
        fan = {"down": 4 * d}.get(name, d)
        lead = (layers,) if layers else ()
        value = (1 + normal(rng, *lead, *shape, scale=0.1) if name in ("n1", "n2") else
                 normal(rng, *lead, *shape, scale=1 / math.sqrt(fan)))
        out[name] = Placed(value.astype(np.float32), (None,) * len(lead) + SPECS[name])
    return out


def attention(lib: Any, q: Any, k: Any, v: Any) -> Any:
    """[b, h, t, c] each."""
    scores = lib.jnp.einsum("bhtc,bhsc->bhts", q, k) * (1 / math.sqrt(q.shape[-1]))
    return lib.jnp.einsum("bhts,bhsc->bhtc", lib.nn.softmax(scores), v)


def block(lib: Any, w: Any, x: Any) -> Any:
    """[b, t, d] to the same; pre-norm, gelu."""
    n = layer_norm(lib, x, w["n1"])
    q, k, v = (lib.jnp.einsum("btd,dhc->bhtc", n, w[name]) for name in "qkv")
    mixed = attention(lib, q, k, v)
    y = x + lib.einsum("bhtc,hcd->btd", mixed, w["o"], spec=("X", None, None))
    hidden = lib.nn.gelu(layer_norm(lib, y, w["n2"]) @ w["up"])
    return y + lib.einsum("btf,fd->btd", hidden, w["down"], spec=("X", None, None))


@program("attention forward", GRID, True, lambda rng: tuple(
    Placed(normal(rng, 4, 8, 256, 64), ("X", "Y")) for _ in range(3)),
    plain=lambda q, k, v: plain.attention(q, k, v)[0])
def _attention(lib: Any) -> Any:
    return lambda q, k, v: attention(lib, q, k, v)


@program("transformer block forward, auto", GRID, False, lambda rng: (
    weights(rng, 256, 8), Placed(normal(rng, 8, 128, 256), ("X",))),
    plain=lambda w, x: plain.block(w, x)[0], equal=1e-4)
def _block_forward(lib: Any) -> Any:
    return lambda w, x: block(lib, w, x)


def _block_step_plain(w: Any, x: Any) -> Any:
    z, kept = plain.block(w, x)
    return plain.block_grad(w, kept, np.float32(2 / z.size) * z)


def _block_step(lib: Any) -> Any:
    return lib.root.grad(lambda w, x: (block(lib, w, x) ** 2).mean(), (0, 1))


for _mesh, _explicit, _what in ((GRID, True, ""), (CUBE, False, ", auto")):
    program(f"transformer block forward and backward{_what}", _mesh, _explicit, lambda rng: (
        weights(rng, 256, 8), Placed(normal(rng, 8, 128, 256), ("X",))), plain=_block_step_plain,
        equal=1e-3)(_block_step)


def _layers_plain(w: Any, x: Any) -> Any:
    stacked = isinstance(w, dict)
    at = [{k: v[i] for k, v in w.items()} for i in range(len(w["n1"]))] if stacked else w
    kept = []
    for layer in at:
        x, k = plain.block(layer, x)
        kept.append(k)
    dx = np.float32(2 / x.size) * x
    out: list[Any] = [None] * len(at)
    for i in reversed(range(len(at))):
        g, dx = plain.block_grad(at[i], kept[i], dx)
        out[i] = {name: at[i][name] - np.float32(0.01) * g[name] for name in g}
    return {k: np.stack([o[k] for o in out]) for k in w} if stacked else out


def _layers(lib: Any, scanned: bool) -> Any:
    def loss(w: Any, x: Any) -> Any:
        if scanned:
            x, _ = lib.lax.scan(lambda x, layer: (block(lib, layer, x), None), x, w)
        else:
            for layer in w:
                x = block(lib, layer, x)
        return (x ** 2).mean()

    def update(w: Any, g: Any) -> Any:
        return {name: w[name] - 0.01 * g[name] for name in w}

    def f(w: Any, x: Any) -> Any:
        g = lib.root.grad(loss)(w, x)
        return update(w, g) if scanned else [update(*wg) for wg in zip(w, g, strict=True)]
    return f


@program("24 layers step, scanned", GRID, True, lambda rng: (
    weights(rng, 64, 4, 24), Placed(normal(rng, 8, 64, 64), ("X",))), plain=_layers_plain,
    equal=1e-3)
def _scanned(lib: Any) -> Any:
    return _layers(lib, scanned=True)


@program("24 layers step, unrolled, auto", GRID, False, lambda rng: (
    [weights(rng, 64, 4) for _ in range(24)], Placed(normal(rng, 8, 64, 64), ("X",))),
    plain=_layers_plain, equal=1e-3)
def _unrolled(lib: Any) -> Any:
    return _layers(lib, scanned=False)


@program("examples mapped", CUBE, True, lambda rng: (
    Placed(normal(rng, 64, 128, 32), (("X", "Y"),)), Placed(normal(rng, 64, 32), (("X", "Y"),)),
    Placed(weight(rng, 32, 32), ())),
    plain=lambda memory, query, w: _mapped_plain(memory, query, w), equal=1e-4)
def _mapped(lib: Any) -> Any:
    """One query over its memory, for each example."""
    def one(memory: Any, query: Any, w: Any) -> Any:
        return lib.nn.softmax(memory @ (query @ w)) @ memory
    return lib.root.vmap(one, (0, 0, None))


def _mapped_plain(memory: Any, query: Any, w: Any) -> Any:
    scores = memory @ (query @ w)[:, :, None]
    return (memory.swapaxes(1, 2) @ plain.softmax(scores, 1))[:, :, 0]
