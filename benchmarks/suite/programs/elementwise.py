"""Elementwise programs, layer norms, losses and optimizers: memory bound, no matrix products."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import CUBE, GRID, LINE, Placed, normal, program
from . import plain


@program("add one", LINE, True, lambda rng: (Placed(normal(rng, 1024, 1024), ("X",)),),
         wide={"X": 512})
def _add_one(lib: Any) -> Any:
    return lambda x: x + 1


def chain(lib: Any, n: int) -> Any:
    """n operations, every fifth an expensive one; values stay near one for a `y` of `steady`."""
    def f(x: Any, y: Any) -> Any:
        for _ in range(n // 5):
            x = lib.jnp.maximum(lib.jnp.tanh(x * y), 0.25) + y
            x = x * 0.5
        return x
    return f


def steady(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 from 0.5 to 0.9: products of them with what is added stay bounded."""
    return rng.uniform(0.5, 0.9, shape).astype(np.float32)


@program("chain of 20 on 4M floats", GRID, True, lambda rng: (
    Placed(normal(rng, 2048, 2048), ("X", "Y")), Placed(steady(rng, 2048, 2048), ("X", "Y"))),
    wide={"X": 16, "Y": 32})
def _chain(lib: Any) -> Any:
    return chain(lib, 20)


@program("chain with transcendentals, 1M floats", CUBE, False, lambda rng: (
    Placed(normal(rng, 1024, 1024), ("X", ("Y", "Z"))), Placed(normal(rng, 1024), (("Y", "Z"),))),
    wide={"X": 8, "Y": 8, "Z": 8})
def _transcendental(lib: Any) -> Any:
    jnp = lib.jnp

    def f(x: Any, b: Any) -> Any:
        for _ in range(3):
            x = jnp.tanh(x + b) * jnp.exp(-x * x)
            x = jnp.where(x > 0.1, x, 0.1 * x) + jnp.sqrt(jnp.abs(x))
        return x
    return f


@program("10,000 flat equations", LINE, True, lambda rng: (
    Placed(normal(rng, 8, 8), ("X",)), Placed(steady(rng, 8, 8), ("X",))))
def _flat(lib: Any) -> Any:
    return chain(lib, 10_000)


def _norm_plain(x: Any, scale: Any, bias: Any) -> Any:
    out, kept = plain.layer_norm(x, scale)
    out = out + bias
    dout = np.float32(2 / out.size) * out
    dx, dscale = plain.layer_norm_grad(kept, scale, dout)
    return dx, dscale, dout.sum(0)


def layer_norm(lib: Any, x: Any, scale: Any) -> Any:
    """Over the last dimension, without bias."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / lib.jnp.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5) * scale


@program("layer norm and its gradient", LINE, True, lambda rng: (
    Placed(normal(rng, 2048, 512), ("X",)), Placed(normal(rng, 512), ()),
    Placed(normal(rng, 512), ())), plain=_norm_plain, wide={"X": 512}, equal=1e-4)
def _layer_norm(lib: Any) -> Any:
    def loss(x: Any, scale: Any, bias: Any) -> Any:
        return ((layer_norm(lib, x, scale) + bias) ** 2).mean()
    return lib.root.grad(loss, (0, 1, 2))


def _cross_entropy_plain(logits: Any, labels: Any) -> Any:
    top = logits.max(-1, keepdims=True)
    e = np.exp(logits - top)
    total = e.sum(-1, keepdims=True)
    rows = np.arange(len(labels))
    loss = (np.log(total[:, 0]) + top[:, 0] - logits[rows, labels]).mean()
    grad = e / total
    grad[rows, labels] -= 1
    return loss, grad * np.float32(1 / len(labels))


@program("softmax cross entropy and its gradient", LINE, False, lambda rng: (
    Placed(normal(rng, 1024, 2048), ("X",)),
    Placed(rng.integers(0, 2048, 1024).astype(np.int32), ("X",))), plain=_cross_entropy_plain,
    wide={"X": 512})
def _cross_entropy(lib: Any) -> Any:
    def loss(logits: Any, labels: Any) -> Any:
        picked = lib.nn.one_hot(labels, logits.shape[-1]) * lib.nn.log_softmax(logits)
        return -picked.sum(-1).mean()
    return lib.root.value_and_grad(loss)


def adam_arguments(rng: np.random.Generator, count: int, shape: tuple[int, int]) -> tuple:
    """Parameters, gradients and the two moments, `count` leaves each."""
    def leaves(positive: bool) -> dict[str, Placed]:
        out = {}
        for i in range(count):
            value = normal(rng, *shape, scale=0.1)
            out[f"w{i:03}"] = Placed(np.abs(value) if positive else value, ("X",))
        return out
    return tuple(leaves(positive) for positive in (False, False, False, True))


@program("adam over 4 x 25 leaves", LINE, True, lambda rng: adam_arguments(rng, 25, (128, 256)))
def _adam(lib: Any) -> Any:
    jnp = lib.jnp

    def one(w: Any, g: Any, m: Any, v: Any) -> tuple[Any, Any, Any]:
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        return w - 0.001 * m / (jnp.sqrt(v) + 1e-8), m, v

    def step(w: Any, g: Any, m: Any, v: Any) -> Any:
        out = {k: one(w[k], g[k], m[k], v[k]) for k in w}
        return tuple({k: x[i] for k, x in out.items()} for i in range(3))
    return step
