"""Programs that one rewrite of the executor's is for: what users write, and numpy by hand."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import LINE, Placed, normal, program, weight

F32 = np.float32


@program("rows of a split table looked up", LINE, False, lambda rng: (
    Placed(normal(rng, 32_768, 128), ("X",)),
    Placed(rng.integers(0, 32_768, 4096).astype(np.int32), ())))
def _lookup(lib: Any) -> Any:
    return lambda table, at: lib.jnp.take(table, at, axis=0)


@program("rows at clipped places", LINE, False, lambda rng: (
    Placed(normal(rng, 8192, 8), ()),
    Placed(rng.integers(-500, 9000, 65_536).astype(np.int32), ())))
def _clipped(lib: Any) -> Any:
    return lambda table, at: table[lib.jnp.clip(at, 0, 8191)]


@program("integers divided, rounded down", LINE, False, lambda rng: (
    Placed(rng.integers(-9000, 9000, (1024, 1024)).astype(np.int32), ("X",)),))
def _divided(lib: Any) -> Any:
    return lambda x: x // 7


def _cached_plain(cache: Any, new: Any, valid: Any) -> Any:
    cache = cache.copy()
    for i in range(len(new)):
        if valid[i]:
            cache[i] = new[i]
    return cache


@program("a cache written where steps are valid", LINE, False, lambda rng: (
    Placed(normal(rng, 256, 1024), ()), Placed(normal(rng, 256, 1024), ()),
    Placed(rng.integers(0, 2, 256).astype(np.bool_), ())), plain=_cached_plain)
def _cached(lib: Any) -> Any:
    jnp, lax = lib.jnp, lib.lax

    def f(cache: Any, new: Any, valid: Any) -> Any:
        def step(i: Any, cache: Any) -> Any:
            return jnp.where(valid[i], lax.dynamic_update_index_in_dim(cache, new[i], i, 0), cache)
        return lax.fori_loop(0, 256, step, cache)
    return f


def _layers_plain(x: Any, w: Any) -> Any:
    kept = [x]
    for i in range(len(w)):
        kept.append(np.tanh(kept[-1] @ w[i]))
    dw, dx = np.empty_like(w), np.ones_like(x)
    for i in reversed(range(len(w))):
        dy = dx * (1 - kept[i + 1] * kept[i + 1])
        dw[i] = kept[i].T @ dy
        dx = dy @ w[i].T
    return dw


@program("32 layers taken by index, their gradient", LINE, False, lambda rng: (
    Placed(normal(rng, 64, 64), ()), Placed(weight(rng, 32, 64, 64), ())), plain=_layers_plain,
    equal=1e-3)
def _layers(lib: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        for i in range(32):
            x = lib.jnp.tanh(x @ w[i])
        return x.sum()
    gradient = lib.root.grad(loss)
    return lambda x, w: gradient(w, x)


@program("running maxima, associative scan", LINE, False, lambda rng: (
    Placed(normal(rng, 262_144), ()),), plain=np.maximum.accumulate)
def _maxima(lib: Any) -> Any:
    return lambda x: lib.lax.associative_scan(lib.jnp.maximum, x)


def _kalman_plain(y: Any, transition: Any, noise: Any) -> Any:
    n, size = y.shape[1], len(transition)
    x, p = np.zeros((n, size), F32), np.tile(np.eye(size, dtype=F32), (n, 1, 1))
    out = np.empty((len(y), n, size), F32)
    for i in range(len(y)):
        x, p = x @ transition.T, transition @ p @ transition.T + noise
        s = p[:, :2, :2] + np.eye(2, dtype=F32)
        gain = np.linalg.solve(s, p[:, :2]).swapaxes(1, 2)
        x = x + (gain @ (y[i] - x[:, :2])[..., None])[..., 0]
        p = p - gain @ p[:, :2]
        out[i] = x
    return out


@program("kalman filter, 50 steps of 64 series", LINE, False, lambda rng: (
    Placed(normal(rng, 50, 64, 2), ()), Placed(weight(rng, 4, 4), ()),
    Placed(0.1 * np.eye(4, dtype=F32), ())), plain=_kalman_plain, equal=1e-3)
def _kalman(lib: Any) -> Any:
    jnp = lib.jnp

    def f(y: Any, transition: Any, noise: Any) -> Any:
        def step(carry: Any, seen: Any) -> Any:
            x, p = carry
            x, p = x @ transition.T, transition @ p @ transition.T + noise
            s = p[:, :2, :2] + jnp.eye(2)
            gain = jnp.linalg.solve(s, p[:, :2]).swapaxes(1, 2)
            x = x + (gain @ (seen - x[:, :2])[..., None])[..., 0]
            return (x, p - gain @ p[:, :2]), x
        start = jnp.zeros((64, 4)), jnp.tile(jnp.eye(4), (64, 1, 1))
        return lib.lax.scan(step, start, y)[1]
    return f


def _eliminated_plain(a: Any) -> Any:
    a = a.copy()
    for i in range(len(a)):
        row = a[i] / a[i, i]
        factors = a[:, i].copy()
        factors[i] = 0
        a -= factors[:, None] * row
        a[i] = row
    return a


@program("gaussian elimination of 64 rows", LINE, False, lambda rng: (
    Placed(normal(rng, 64, 65) + 16 * np.eye(64, 65, dtype=F32), ()),), plain=_eliminated_plain,
    equal=1e-3)
def _eliminated(lib: Any) -> Any:
    def step(i: Any, a: Any) -> Any:
        row = a[i] / a[i, i]
        a = a - a[:, i].at[i].set(0)[:, None] * row
        return a.at[i].set(row)
    return lambda a: lib.lax.fori_loop(0, 64, step, a)


def _sgd_plain(w: Any, x: Any, y: Any) -> Any:
    w = w.copy()
    for i in range(len(x)):
        error = x[i] @ w - y[i]
        w -= F32(0.1) * (x[i].T @ error * F32(2 / len(error)))
    return w


@program("64 steps of gradient descent, scanned", LINE, False, lambda rng: (
    Placed(normal(rng, 16), ()), Placed(normal(rng, 64, 8, 16), ()),
    Placed(normal(rng, 64, 8), ())), plain=_sgd_plain, equal=1e-3)
def _sgd(lib: Any) -> Any:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return ((x @ w - y) ** 2).mean()

    def step(w: Any, batch: Any) -> Any:
        return w - 0.1 * lib.root.grad(loss)(w, *batch), None
    return lambda w, x, y: lib.lax.scan(step, w, (x, y))[0]


def _pooled_plain(x: Any) -> Any:
    b, h, w, c = x.shape
    sums = x.reshape(b, h // 2, 2, w // 2, 2, c).sum((2, 4))
    return np.repeat(np.repeat(2 * sums, 2, 1), 2, 2)


@program("sums over windows, their gradient", LINE, False, lambda rng: (
    Placed(normal(rng, 8, 64, 64, 16), ("X",)),), plain=_pooled_plain)
def _pooled(lib: Any) -> Any:
    def loss(x: Any) -> Any:
        sums = lib.lax.reduce_window(x, 0., lib.lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return (sums * sums).sum()
    return lib.root.grad(loss)


def _gru_plain(h: Any, x: Any, w: Any, u: Any) -> Any:
    """Gradients of the sum of the last state by both weights."""
    steps = []
    for seen in x:
        z = 1 / (1 + np.exp(-(seen @ w[0] + h @ u[0])))
        c = np.tanh(seen @ w[1] + h @ u[1])
        steps.append((seen, h, z, c))
        h = z * h + (1 - z) * c
    dw, du, dh = np.zeros_like(w), np.zeros_like(u), np.ones_like(h)
    for seen, before, z, c in reversed(steps):
        dz, dc = dh * (before - c) * z * (1 - z), dh * (1 - z) * (1 - c * c)
        dw[0] += seen.T @ dz
        dw[1] += seen.T @ dc
        du[0] += before.T @ dz
        du[1] += before.T @ dc
        dh = dh * z + dz @ u[0].T + dc @ u[1].T
    return dw, du


@program("gated recurrence, its gradient", LINE, False, lambda rng: (
    Placed(normal(rng, 16, 128), ()), Placed(normal(rng, 32, 16, 128), ()),
    Placed(weight(rng, 2, 128, 128), ()), Placed(weight(rng, 2, 128, 128), ())),
    plain=_gru_plain, equal=1e-3)
def _gru(lib: Any) -> Any:
    def loss(w: Any, u: Any, h: Any, x: Any) -> Any:
        def step(h: Any, seen: Any) -> Any:
            z = lib.nn.sigmoid(seen @ w[0] + h @ u[0])
            return z * h + (1 - z) * lib.jnp.tanh(seen @ w[1] + h @ u[1]), None
        return lib.lax.scan(step, h, x)[0].sum()
    gradient = lib.root.grad(loss, argnums=(0, 1))
    return lambda h, x, w, u: gradient(w, u, h, x)
