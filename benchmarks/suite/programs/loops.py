"""Loops: recurrences, long counted loops, a loop whose condition needs a collective, sorts."""
from __future__ import annotations

from typing import Any

import numpy as np

from ..library import CUBE, LINE, Placed, normal, program, weight
from .elementwise import steady


def _rnn_arguments(rng: np.random.Generator) -> tuple:
    return (Placed(normal(rng, 64, 64, 128), (None, "X")), Placed(weight(rng, 128, 128), ()),
            Placed(weight(rng, 128, 128), ()))


def _rnn(lib: Any, xs: Any, w: Any, u: Any) -> Any:
    def cell(h: Any, x: Any) -> Any:
        h = lib.jnp.tanh(h @ w + x @ u)
        return h, h
    return lib.lax.scan(cell, lib.jnp.zeros_like(xs[0]), xs)[1]


def _rnn_plain(xs: Any, w: Any, u: Any) -> Any:
    h, out = np.zeros_like(xs[0]), []
    for x in xs:
        h = np.tanh(h @ w + x @ u)
        out.append(h)
    return np.stack(out)


def _rnn_grad_plain(xs: Any, w: Any, u: Any) -> Any:
    out = _rnn_plain(xs, w, u)
    douts = np.float32(2 / out.size) * out
    dw, du, dh = np.zeros_like(w), np.zeros_like(u), np.zeros_like(xs[0])
    for t in reversed(range(len(xs))):
        dz = (dh + douts[t]) * (1 - out[t] * out[t])
        if t:
            dw += out[t - 1].T @ dz
        du += xs[t].T @ dz
        dh = dz @ w.T
    return dw, du


@program("recurrence, scanned", LINE, True, _rnn_arguments, plain=_rnn_plain)
def _recurrence(lib: Any) -> Any:
    return lambda xs, w, u: _rnn(lib, xs, w, u)


@program("recurrence, its gradient", LINE, True, _rnn_arguments, plain=_rnn_grad_plain, equal=1e-4)
def _recurrence_grad(lib: Any) -> Any:
    return lib.root.grad(lambda xs, w, u: (_rnn(lib, xs, w, u) ** 2).mean(), (1, 2))


def _thousand_plain(x: Any, y: Any) -> Any:
    for _ in range(1000):
        x = np.maximum(x * y, np.float32(0.5) * y) - np.float32(0.25)
    return x


@program("1,000 iterations on 4K floats", LINE, True, lambda rng: (
    Placed(normal(rng, 4096), ("X",)), Placed(steady(rng, 4096), ("X",))), plain=_thousand_plain,
    wide={"X": 512})
def _thousand(lib: Any) -> Any:
    def f(x: Any, y: Any) -> Any:
        return lib.lax.fori_loop(
            0, 1000, lambda i, x: lib.jnp.maximum(x * y, 0.5 * y) - 0.25, x)
    return f


def _until_plain(x: Any) -> Any:
    n = 0
    while (x * x).sum() > 1:
        x = x * np.float32(0.97)
        n += 1
    return x, np.int32(n)


@program("while with a sum in its condition", LINE, False, lambda rng: (
    Placed(normal(rng, 64, 256), ("X",)),), plain=_until_plain)
def _until(lib: Any) -> Any:
    def f(x: Any) -> Any:
        return lib.lax.while_loop(lambda c: (c[0] * c[0]).sum() > 1,
                                  lambda c: (c[0] * 0.97, c[1] + 1), (x, 0))
    return f


@program("sorts and running sums", CUBE, True, lambda rng: (
    Placed(normal(rng, 512, 1024), (("X", "Y"), None)),))
def _sorts(lib: Any) -> Any:
    def f(x: Any) -> Any:
        return lib.jnp.cumsum(lib.jnp.sort(x, axis=1), axis=1), lib.jnp.argmax(x, axis=1)
    return f
