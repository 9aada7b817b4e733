"""Layers and their derivatives by hand in numpy, float32 throughout: what programs are held to.

Each `..._grad` takes what the forward function kept and the derivative by its result.
"""
from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray


def relu(x: Array) -> Array:
    return np.maximum(x, 0)


def gelu(x: Array) -> Array:
    """The tanh form."""
    return np.float32(0.5) * x * (1 + np.tanh(np.float32(0.7978845608) * (
        x + np.float32(0.044715) * (x * x * x))))


def gelu_grad(x: Array, dy: Array) -> Array:
    c, k = np.float32(0.7978845608), np.float32(0.044715)
    t = np.tanh(c * (x + k * x * x * x))
    return dy * (np.float32(0.5) * (1 + t) + np.float32(0.5) * x * (1 - t * t) * c * (
        1 + 3 * k * x * x))


def softmax(x: Array, axis: int = -1) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def softmax_grad(p: Array, dp: Array) -> Array:
    return p * (dp - (dp * p).sum(-1, keepdims=True))


def layer_norm(x: Array, scale: Array) -> tuple[Array, tuple[Array, Array]]:
    """Over the last dimension. Also what the derivative needs."""
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(1e-5))
    normal = centred * inverse
    return normal * scale, (normal, inverse)


def layer_norm_grad(kept: tuple[Array, Array], scale: Array, dy: Array) -> tuple[Array, Array]:
    """Derivatives by x and by scale."""
    normal, inverse = kept
    dn = dy * scale
    dx = inverse * (dn - dn.mean(-1, keepdims=True)
                    - normal * (dn * normal).mean(-1, keepdims=True))
    return dx, (dy * normal).reshape(-1, dy.shape[-1]).sum(0)


def attention(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    """[b, h, t, c] each; the mix, and the weights."""
    p = softmax(q @ k.swapaxes(-1, -2) * np.float32(1 / np.sqrt(q.shape[-1])))
    return p @ v, p


def attention_grad(q: Array, k: Array, v: Array, p: Array, do: Array
                   ) -> tuple[Array, Array, Array]:
    ds = softmax_grad(p, do @ v.swapaxes(-1, -2)) * np.float32(1 / np.sqrt(q.shape[-1]))
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ do


def _heads(x: Array, heads: int) -> Array:
    b, t, d = x.shape
    return x.reshape(b, t, heads, d // heads).transpose(0, 2, 1, 3)


def _joined(x: Array) -> Array:
    b, h, t, c = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, t, h * c)


def block(w: dict[str, Array], x: Array) -> tuple[Array, Any]:
    """A transformer block on [b, t, d]; weights as in transformer.py. Also what it keeps."""
    d, heads, c = w["q"].shape
    n1, kept1 = layer_norm(x, w["n1"])
    q, k, v = (_heads(n1 @ w[name].reshape(d, -1), heads) for name in "qkv")
    mixed, p = attention(q, k, v)
    joined = _joined(mixed)
    y = x + joined @ w["o"].reshape(-1, d)
    n2, kept2 = layer_norm(y, w["n2"])
    hidden = n2 @ w["up"]
    active = gelu(hidden)
    return y + active @ w["down"], (n1, kept1, q, k, v, p, joined, n2, kept2, hidden, active)


def block_grad(w: dict[str, Array], kept: Any, dz: Array) -> tuple[dict[str, Array], Array]:
    """Derivatives by the weights and by x."""
    n1, kept1, q, k, v, p, joined, n2, kept2, hidden, active = kept
    d, heads, _ = w["q"].shape
    g: dict[str, Array] = {}
    rows = dz.reshape(-1, d)
    g["down"] = active.reshape(rows.shape[0], -1).T @ rows
    dh = gelu_grad(hidden, dz @ w["down"].T)
    g["up"] = n2.reshape(-1, d).T @ dh.reshape(rows.shape[0], -1)
    dy, g["n2"] = layer_norm_grad(kept2, w["n2"], dh @ w["up"].T)
    dy = dy + dz
    rows = dy.reshape(-1, d)
    g["o"] = (joined.reshape(rows.shape[0], -1).T @ rows).reshape(w["o"].shape)
    dm = _heads(dy @ w["o"].reshape(-1, d).T, heads)
    dn = np.zeros_like(dy)
    for name, dq in zip("qkv", attention_grad(q, k, v, p, dm), strict=True):
        joined_dq = _joined(dq)
        g[name] = (n1.reshape(-1, d).T @ joined_dq.reshape(-1, joined_dq.shape[-1])
                   ).reshape(w[name].shape)
        dn += joined_dq @ w[name].reshape(d, -1).T
    dx, g["n1"] = layer_norm_grad(kept1, w["n1"], dn)
    return g, dx + dy


def mlp_step(w1: Array, w2: Array, x: Array, y: Array) -> tuple[Array, Array]:
    """One step of gradient descent on the mean square of `tanh(x @ w1) @ w2 - y`."""
    h = np.tanh(x @ w1)
    dz = (h @ w2 - y) * np.float32(2 / y.size)
    dh = (dz @ w2.T) * (1 - h * h)
    return w1 - np.float32(0.1) * (x.T @ dh), w2 - np.float32(0.1) * (h.T @ dz)
