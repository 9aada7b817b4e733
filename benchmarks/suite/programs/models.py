"""What users write: layers, steps and simulations that are programs of their own."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import LINE, Placed, normal, program, weight
from . import plain
from .elementwise import layer_norm

F32 = np.float32


@program("layer norm, forward", LINE, False, lambda rng: (
    Placed(normal(rng, 2048, 512), ("X",)), Placed(normal(rng, 512), (None,)),
    Placed(normal(rng, 512), (None,))), plain=lambda x, s, b: plain.layer_norm(x, s)[0] + b)
def _layer_norm(lib: Any) -> Any:
    return lambda x, scale, bias: layer_norm(lib, x, scale) + bias


def _rotary_plain(x: Any, scale: Any) -> Any:
    x = x / np.sqrt((x * x).mean(-1, keepdims=True) + F32(1e-6)) * scale
    half = x.shape[-1] // 2
    angle = (np.arange(x.shape[1], dtype=F32)[:, None]
             * F32(10_000) ** (-np.arange(half, dtype=F32) / F32(half)))
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angle) - b * np.sin(angle),
                           b * np.cos(angle) + a * np.sin(angle)], -1)


@program("rms norm and rotary positions", LINE, False, lambda rng: (
    Placed(normal(rng, 16, 256, 128), ("X",)), Placed(normal(rng, 128), (None,))),
    plain=_rotary_plain, equal=1e-4)
def _rotary(lib: Any) -> Any:
    jnp = lib.jnp

    def f(x: Any, scale: Any) -> Any:
        x = x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale
        half = x.shape[-1] // 2
        angle = (jnp.arange(x.shape[1], dtype=jnp.float32)[:, None]
                 * 10_000.0 ** (-jnp.arange(half, dtype=jnp.float32) / half))
        a, b = x[..., :half], x[..., half:]
        return jnp.concatenate([a * jnp.cos(angle) - b * jnp.sin(angle),
                                b * jnp.cos(angle) + a * jnp.sin(angle)], -1)
    return f


def _windows(x: np.ndarray, k: int) -> np.ndarray:
    """[n, h, w, c] padded -> [n, h, w, k * k * c]."""
    p = k // 2
    padded = np.pad(x, ((0, 0), (p, p), (p, p), (0, 0)))
    h, w = x.shape[1:3]
    return np.concatenate([padded[:, i:i + h, j:j + w] for i in range(k) for j in range(k)], -1)


def _pooled(x: np.ndarray) -> np.ndarray:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def _convnet_plain(w: Any, x: Any, labels: Any) -> Any:
    """The step by hand: products over windows."""
    kept = []
    for name in ("c1", "c2"):
        k = w[name].shape[0]
        cols = _windows(x, k)
        hidden = cols @ w[name].reshape(-1, w[name].shape[-1])
        active = plain.relu(hidden)
        out = _pooled(active)
        kept.append((name, x, cols, hidden, active, out))
        x = out
    flat = x.reshape(len(x), -1)
    logits = flat @ w["d"]
    p = plain.softmax(logits)
    rows = np.arange(len(labels))
    p[rows, labels] -= 1
    dlogits = p / F32(len(labels))
    g = {"d": flat.T @ dlogits}
    dx = (dlogits @ w["d"].T).reshape(x.shape)
    for name, before, cols, hidden, active, out in reversed(kept):
        up = np.repeat(np.repeat(out, 2, 1), 2, 2)
        da = np.where((active == up) & (hidden > 0), np.repeat(np.repeat(dx, 2, 1), 2, 2), F32(0))
        k, _, c, o = w[name].shape
        rows_ = da.reshape(-1, o)
        g[name] = (cols.reshape(len(rows_), -1).T @ rows_).reshape(w[name].shape)
        if name == "c2":
            dcols = (rows_ @ w[name].reshape(-1, o).T).reshape(cols.shape)
            n, h, wd, _ = before.shape
            q = k // 2
            dpad = np.zeros((n, h + 2 * q, wd + 2 * q, c), F32)
            for i in range(k):
                for j in range(k):
                    at = (i * k + j) * c
                    dpad[:, i:i + h, j:j + wd] += dcols[..., at:at + c]
            dx = dpad[:, q:q + h, q:q + wd]
    return {name: w[name] - F32(0.1) * g[name] for name in w}


@program("convnet, a training step", LINE, False, lambda rng: (
    {"c1": Placed(normal(rng, 3, 3, 3, 16, scale=0.2), (None,) * 4),
     "c2": Placed(normal(rng, 3, 3, 16, 32, scale=0.1), (None,) * 4),
     "d": Placed(weight(rng, 8 * 8 * 32, 10), (None, None))},
    Placed(normal(rng, 32, 32, 32, 3), ("X",)),
    Placed(rng.integers(0, 10, 32).astype(np.int32), ("X",))), plain=_convnet_plain, equal=1e-3)
def _convnet(lib: Any) -> Any:
    def convolved(x: Any, k: Any) -> Any:
        x = lib.lax.conv_general_dilated(x, k, (1, 1), "SAME",
                                         dimension_numbers=("NHWC", "HWIO", "NHWC"))
        return lib.lax.reduce_window(lib.nn.relu(x), -np.inf, lib.lax.max, (1, 2, 2, 1),
                                     (1, 2, 2, 1), "VALID")

    def loss(w: Any, x: Any, labels: Any) -> Any:
        x = convolved(convolved(x, w["c1"]), w["c2"])
        logits = x.reshape(x.shape[0], -1) @ w["d"]
        return -(lib.nn.log_softmax(logits) * lib.nn.one_hot(labels, 10)).sum(-1).mean()

    def step(w: Any, x: Any, labels: Any) -> Any:
        g = lib.root.grad(loss)(w, x, labels)
        return {name: w[name] - 0.1 * g[name] for name in w}
    return step


def _lstm_plain(xs: Any, w: Any, u: Any) -> Any:
    n = u.shape[0]
    h = c = np.zeros((xs.shape[1], n), F32)
    for x in xs:
        z = x @ w + h @ u
        i, f, o = (F32(0.5) * (1 + np.tanh(F32(0.5) * z[:, k * n:(k + 1) * n])) for k in range(3))
        c = f * c + i * np.tanh(z[:, 3 * n:])
        h = o * np.tanh(c)
    return h


@program("lstm, 32 steps", LINE, False, lambda rng: (
    Placed(normal(rng, 32, 32, 64), (None, "X")), Placed(weight(rng, 64, 256), (None, None)),
    Placed(weight(rng, 64, 256), (None, None))), plain=_lstm_plain, equal=1e-4)
def _lstm(lib: Any) -> Any:
    jnp = lib.jnp

    def f(xs: Any, w: Any, u: Any) -> Any:
        n = u.shape[0]

        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            z = x @ w + h @ u
            i, f, o = (lib.nn.sigmoid(z[:, k * n:(k + 1) * n]) for k in range(3))
            c = f * c + i * jnp.tanh(z[:, 3 * n:])
            return (o * jnp.tanh(c), c), None
        zero = jnp.zeros((xs.shape[1], n), xs.dtype)
        return lib.lax.scan(cell, (zero, zero), xs)[0][0]
    return f


def _k_means_plain(x: Any, centres: Any) -> Any:
    far = (x * x).sum(1)[:, None] - 2 * x @ centres.T + (centres * centres).sum(1)
    at = far.argmin(1)
    sums = np.zeros_like(centres)
    np.add.at(sums, at, x)
    return sums / np.maximum(np.bincount(at, minlength=len(centres)), 1).astype(F32)[:, None]


@program("k-means, a step", LINE, False, lambda rng: (
    Placed(normal(rng, 8192, 16), ("X",)), Placed(normal(rng, 64, 16), (None, None))),
    plain=_k_means_plain, equal=1e-4)
def _k_means(lib: Any) -> Any:
    jnp, ops = lib.jnp, lib.root.ops

    def f(x: Any, centres: Any) -> Any:
        far = (x * x).sum(1)[:, None] - 2 * x @ centres.T + (centres * centres).sum(1)
        at = far.argmin(1)
        count = ops.segment_sum(jnp.ones(len(x), x.dtype), at, len(centres))
        return ops.segment_sum(x, at, len(centres)) / jnp.maximum(count, 1)[:, None]
    return f


def _heat_plain(u: Any) -> Any:
    for _ in range(20):
        u = u + F32(0.1) * (np.roll(u, 1, 0) + np.roll(u, -1, 0) + np.roll(u, 1, 1)
                            + np.roll(u, -1, 1) - 4 * u)
    return u


@program("heat equation, 20 steps", LINE, False, lambda rng: (
    Placed(normal(rng, 512, 512), ("X",)),), plain=_heat_plain, equal=1e-4)
def _heat(lib: Any) -> Any:
    roll = lib.jnp.roll

    def f(u: Any) -> Any:
        return lib.lax.fori_loop(0, 20, lambda _, u: u + 0.1 * (
            roll(u, 1, 0) + roll(u, -1, 0) + roll(u, 1, 1) + roll(u, -1, 1) - 4 * u), u)
    return f


def _gradients_plain(a: Any, b: Any) -> Any:
    x = np.zeros_like(b)
    r = p = b
    rs = r @ r
    for _ in range(25):
        ap = a @ p
        alpha = rs / (p @ ap)
        x, r = x + alpha * p, r - alpha * ap
        new = r @ r
        p, rs = r + (new / rs) * p, new
    return x


def _system(rng: np.random.Generator) -> tuple:
    a = normal(rng, 512, 512)
    return (Placed(a @ a.T / 512 + np.eye(512, dtype=F32), ("X",)),
            Placed(normal(rng, 512), (None,)))


@program("conjugate gradients, 25 steps", LINE, False, _system, plain=_gradients_plain, equal=1e-3)
def _gradients(lib: Any) -> Any:
    def f(a: Any, b: Any) -> Any:
        def step(_: Any, s: Any) -> Any:
            x, r, p, rs = s
            ap = a @ p
            alpha = rs / (p @ ap)
            x, r = x + alpha * p, r - alpha * ap
            new = r @ r
            return x, r, r + (new / rs) * p, new
        return lib.lax.fori_loop(0, 25, step, (lib.jnp.zeros_like(b), b, b, b @ b))[0]
    return f


def _filtered_plain(x: Any, k: Any) -> Any:
    return np.fft.irfft(np.fft.rfft(x, axis=-1) * np.fft.rfft(k), n=x.shape[-1]).astype(F32)


@program("filter by transforms", LINE, False, lambda rng: (
    Placed(normal(rng, 128, 4096), ("X",)), Placed(normal(rng, 4096), (None,))),
    plain=_filtered_plain, equal=1e-4)
def _filtered(lib: Any) -> Any:
    fft = lib.jnp.fft
    return lambda x, k: fft.irfft(fft.rfft(x) * fft.rfft(k), n=x.shape[-1])
