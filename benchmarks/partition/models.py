"""Models and training steps whose communication is measured, besides the programs of one idea each.

Transformer blocks, mixtures of experts, convolutions, recurrences and optimisers, forward and
backward, under the usual layouts of data, parameters, tensors and sequences. No best plan is known
for most; XLA's is the mark.
"""
from __future__ import annotations

from typing import Any

from .programs import CUBE, GRID, LINE, case


def norm(jnp: Any, lax: Any, x: Any, scale: Any) -> Any:
    mean = x.mean(-1, keepdims=True)
    var = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(var + 1e-5) * scale


def attention(jax: Any, jnp: Any, x: Any, wq: Any, wk: Any, wv: Any, wo: Any, heads: int,
              kv_heads: int | None = None, causal: bool = True) -> Any:
    kv_heads = kv_heads or heads
    b, t, d = x.shape
    n = wq.shape[1] // heads
    q = (x @ wq).reshape(b, t, kv_heads, heads // kv_heads, n)
    k, v = ((x @ w).reshape(b, t, kv_heads, n) for w in (wk, wv))
    s = jnp.einsum("bqhgd,bkhd->bhgqk", q, k) / n ** 0.5
    if causal:
        mask = jnp.arange(t)[:, None] >= jnp.arange(t)[None, :]
        s = jnp.where(mask, s, -1e9)
    o = jnp.einsum("bhgqk,bkhd->bqhgd", jax.nn.softmax(s, -1), v)
    return o.reshape(b, t, heads * n) @ wo


def block(jax: Any, jnp: Any, lax: Any, heads: int = 8, kv_heads: int | None = None) -> Any:
    def f(p: Any, x: Any) -> Any:
        wq, wk, wv, wo, w1, w2, n1, n2 = p
        x = x + attention(jax, jnp, norm(jnp, lax, x, n1), wq, wk, wv, wo, heads, kv_heads)
        return x + jax.nn.gelu(norm(jnp, lax, x, n2) @ w1) @ w2
    return f


def weights(d: int, f: int, column: Any, row: Any, kv: int | None = None) -> tuple:
    kv = kv or d
    return (((d, d), column), ((d, kv), column), ((d, kv), column), ((d, d), row),
            ((d, f), column), ((f, d), row), ((d,), ()), ((d,), ()))


LAYOUTS = {
    "data parallel": ((), ()), "fsdp": (("x",), ("x",)), "tensor parallel": ((None, "y"), ("y",)),
    "fsdp x tensor": (("x", "y"), ("y", "x")),
}

for _name, (_column, _row) in LAYOUTS.items():
    _mesh = LINE if _name in ("data parallel", "fsdp") else GRID
    _args = weights(64, 256, _column, _row)

    @case(f"block forward, {_name}", _mesh, *_args, ((8, 32, 64), ("x",)), out=("x",))
    def _block_forward(jax, jnp, lax, P):
        return lambda *a: block(jax, jnp, lax)(a[:8], a[8])

    @case(f"block gradient, {_name}", _mesh, *_args, ((8, 32, 64), ("x",)),
          out=tuple(spec for _, spec in _args))
    def _block_gradient(jax, jnp, lax, P):
        f = block(jax, jnp, lax)
        return lambda *a: jax.grad(lambda p, x: (f(p, x) ** 2).mean())(a[:8], a[8])


@case("block gradient, grouped queries", GRID, *weights(64, 256, (None, "y"), ("y",), 32),
      ((8, 32, 64), ("x",)), out=tuple(s for _, s in weights(64, 256, (None, "y"), ("y",), 32)))
def _grouped(jax, jnp, lax, P):
    f = block(jax, jnp, lax, 8, 4)
    return lambda *a: jax.grad(lambda p, x: (f(p, x) ** 2).mean())(a[:8], a[8])


@case("block forward, sequence parallel", GRID, *weights(64, 256, (None, "y"), ("y",)),
      ((8, 32, 64), ("x", "y")), out=("x", "y"))
def _sequence(jax, jnp, lax, P):
    return lambda *a: block(jax, jnp, lax)(a[:8], a[8])


@case("block gradient, sequence parallel", GRID, *weights(64, 256, (None, "y"), ("y",)),
      ((8, 32, 64), ("x", "y")), out=tuple(s for _, s in weights(64, 256, (None, "y"), ("y",))))
def _sequence_gradient(jax, jnp, lax, P):
    inner = block(jax, jnp, lax)

    def loss(p, x):
        y = inner(p, x)
        return (y ** 2).mean()
    return lambda *a: jax.grad(loss)(a[:8], a[8])


@case("block gradient, checkpointed", GRID, *weights(64, 256, ("x", "y"), ("y", "x")),
      ((8, 32, 64), ("x",)), out=tuple(s for _, s in weights(64, 256, ("x", "y"), ("y", "x"))))
def _checkpointed(jax, jnp, lax, P):
    f = jax.checkpoint(block(jax, jnp, lax))
    return lambda *a: jax.grad(lambda p, x: (f(p, x) ** 2).mean())(a[:8], a[8])


@case("three layers in a scan, gradient, fsdp", LINE,
      *[((3, *s), (None, *spec)) for s, spec in weights(64, 256, ("x",), ("x",))],
      ((8, 16, 64), ("x",)), out=tuple((None, *s) for _, s in weights(64, 256, ("x",), ("x",))))
def _layers(jax, jnp, lax, P):
    f = block(jax, jnp, lax)

    def loss(p, x):
        return (lax.scan(lambda c, q: (f(q, c), None), x, p)[0] ** 2).mean()
    return lambda *a: jax.grad(loss)(a[:8], a[8])


@case("three layers in a scan, gradient, tensor parallel", GRID,
      *[((3, *s), (None, *spec)) for s, spec in weights(64, 256, (None, "y"), ("y",))],
      ((8, 16, 64), ("x",)),
      out=tuple((None, *s) for _, s in weights(64, 256, (None, "y"), ("y",))))
def _layers_tensor(jax, jnp, lax, P):
    return _layers_of(jax, jnp, lax)


def _layers_of(jax: Any, jnp: Any, lax: Any) -> Any:
    f = block(jax, jnp, lax)

    def loss(p: Any, x: Any) -> Any:
        return (lax.scan(lambda c, q: (f(q, c), None), x, p)[0] ** 2).mean()
    return lambda *a: jax.grad(loss)(a[:8], a[8])


@case("language model loss and gradient", GRID, ((512, 64), ("y",)), ((64, 256), (None, "y")),
      ((256, 64), ("y",)), ((8, 32), ("x",), "int32"), ((8, 32), ("x",), "int32"),
      out=(("y",), (None, "y"), ("y",)))
def _language(jax, jnp, lax, P):
    def loss(p, ids, labels):
        table, w1, w2 = p
        x = table[ids]
        x = x + jax.nn.relu(x @ w1) @ w2
        logits = x @ table.T
        logp = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logp, labels[..., None], -1).mean()
    return lambda a, b, c, i, t: jax.grad(loss)((a, b, c), i, t)


@case("mixture of experts, top 1, gradient", LINE, ((64, 8), ()), ((8, 64, 128), ("x",)),
      ((8, 128, 64), ("x",)), ((256, 64), ("x",)), out=((), ("x",), ("x",)))
def _moe(jax, jnp, lax, P):
    def loss(p, x):
        router, w1, w2 = p
        gates = jax.nn.softmax(x @ router, -1)
        mask = jax.nn.one_hot(jnp.argmax(gates, -1), 8)
        place = jnp.cumsum(mask, 0) * mask - 1
        slots = jax.nn.one_hot(place, 64)
        sent = jnp.einsum("tec,td->ecd", slots, x)
        done = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, w1)), w2)
        return (jnp.einsum("tec,ecd,te->td", slots, done, gates) ** 2).mean()
    return lambda r, a, b, x: jax.grad(loss)((r, a, b), x)


@case("mixture of experts, data x experts x tensor", CUBE, ((64, 4), ()),
      ((4, 64, 128), ("y", None, "z")), ((4, 128, 64), ("y", "z")), ((256, 64), (("x", "y"),)),
      out=(("x", "y"),))
def _moe_cube(jax, jnp, lax, P):
    def f(router, w1, w2, x):
        gates = jax.nn.softmax(x @ router, -1)
        mask = jax.nn.one_hot(jnp.argmax(gates, -1), 4)
        slots = jax.nn.one_hot(jnp.cumsum(mask, 0) * mask - 1, 128)
        sent = jnp.einsum("tec,td->ecd", slots, x)
        done = jnp.einsum("ecf,efd->ecd", jax.nn.relu(jnp.einsum("ecd,edf->ecf", sent, w1)), w2)
        return jnp.einsum("tec,ecd,te->td", slots, done, gates)
    return f


@case("convolutions, data parallel, gradient", LINE, ((16, 16, 16, 4), ("x",)), ((3, 3, 4, 16), ()),
      ((3, 3, 16, 16), ()), ((16, 10), ()), out=((), (), ()))
def _convolutions(jax, jnp, lax, P):
    def loss(p, x):
        for w in p[:2]:
            x = jax.nn.relu(lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return (jax.nn.log_softmax(x.mean((1, 2)) @ p[2]) ** 2).mean()
    return lambda x, a, b, c: jax.grad(loss)((a, b, c), x)


@case("convolutions, rows and batch split", GRID, ((8, 32, 16, 4), ("x", "y")),
      ((3, 3, 4, 8), ()), ((3, 3, 8, 8), ()), out=("x", "y"))
def _spatial(jax, jnp, lax, P):
    def f(x, a, b):
        for w in (a, b):
            x = jax.nn.relu(lax.conv_general_dilated(
                x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x
    return f


@case("recurrence over time, gradient", GRID, ((64, 64), (None, "y")), ((64, 64), ("y",)),
      ((8, 8, 64), (None, "x")), out=((None, "y"), ("y",)))
def _recurrence(jax, jnp, lax, P):
    def loss(p, xs):
        a, b = p

        def tick(h, x):
            h = jnp.tanh(h @ a) @ b + x
            return h, h
        return (lax.scan(tick, jnp.zeros((8, 64)), xs)[1] ** 2).mean()
    return lambda a, b, xs: jax.grad(loss)((a, b), xs)


@case("gates of a recurrence, tensor parallel", LINE, ((64, 256), (None, "x")),
      ((64, 256), (None, "x")), ((12, 16, 64), ()), out=())
def _gates(jax, jnp, lax, P):
    def f(w, u, xs):
        def tick(c, x):
            h, s = c
            i, o, g, k = jnp.split(x @ w + h @ u, 4, -1)
            s = jax.nn.sigmoid(k) * s + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(s)
            return (h, s), None
        return lax.scan(tick, (jnp.zeros((16, 64)), jnp.zeros((16, 64))), xs)[0][0]
    return f


@case("adam step, states split", LINE, *[((128, 128), ("x",))] * 3, ((128, 128), ()),
      ((64, 128), ("x",)), out=(("x",), ("x",), ()))
def _adam(jax, jnp, lax, P):
    def step(m, v, w32, w, x):
        g = jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)
        m = 0.9 * m + 0.1 * g
        v = 0.99 * v + 0.01 * g * g
        return m, v, w32 - 0.01 * m / (jnp.sqrt(v) + 1e-8)
    return step


@case("gradient clipped by its norm", GRID, ((128, 256), ("x", "y")), ((256, 128), ("y", "x")),
      ((64, 128), ("x",)), out=(("x", "y"), ("y", "x")))
def _clipped(jax, jnp, lax, P):
    def step(a, b, x):
        g = jax.grad(lambda p: (jnp.tanh(x @ p[0]) @ p[1]).sum())((a, b))
        size = jnp.sqrt(sum((t * t).sum() for t in g))
        return tuple(w - t / jnp.maximum(size, 1.0) for w, t in zip((a, b), g, strict=True))
    return step


@case("einsum network of four factors", CUBE, ((32, 64), ("x", "y")),
      ((64, 16, 32), ("y", None, "z")), ((32, 16, 64), ("z", None, "x")), ((64, 8), ("x",)),
      out=("x",))
def _einsums(jax, jnp, lax, P):
    return lambda a, b, c, d: jnp.einsum("ij,jkl,lkm,mn->in", a, b, c, d)


@case("cross attention, keys and values split over time", GRID, ((8, 16, 64), ("x",)),
      ((8, 128, 64), ("x", "y")), ((64, 64), ()), ((64, 64), ()), out=("x",))
def _cross(jax, jnp, lax, P):
    def f(x, memory, wk, wv):
        s = jnp.einsum("bqd,bkd->bqk", x, memory @ wk)
        return jnp.einsum("bqk,bkd->bqd", jax.nn.softmax(s, -1), memory @ wv)
    return f


@case("both branches end with a sum", LINE, ((), (), "bool"), ((64, 128), (None, "x")),
      ((128, 64), ("x",)), ((64, 128), (None, "x")), out=())
def _branches(jax, jnp, lax, P):
    return lambda c, x, w, y: lax.cond(c, lambda: x @ w, lambda: y @ w).sum(0)


@case("values behind one barrier", GRID, ((64, 128), ("x", "y")), ((128, 64), ("y", "x")),
      ((64, 64), (("x", "y"),)), out=(("x", "y"), ("y", "x"), (("x", "y"),)))
def _barrier(jax, jnp, lax, P):
    def f(a, b, c):
        a, b, c = lax.optimization_barrier((a * 2, b + 1, c - 1))
        return a + 1, b * 2, c * 3
    return f
