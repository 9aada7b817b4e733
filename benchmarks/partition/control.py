"""Programs with branches and loops whose course the data decides.

Layers that are skipped or dropped, updates of which one is chosen, iterations until they converge,
decoding, and long scans. What a branch exchanges is paid where it is taken, what a loop exchanges
in every iteration.
"""
from __future__ import annotations

from typing import Any

from .programs import GRID, LINE, case

COLUMN, ROW = (None, "y"), ("y",)


def residual_layer(jax: Any, lax: Any) -> Any:
    """A normalised layer of two products, added to what it takes."""
    def layer(x: Any, a: Any, b: Any) -> Any:
        h = x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x + jax.nn.gelu(h @ a) @ b
    return layer


# -- layers that do not always run ----------------------------------------------------------------
def skipped(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    layer = residual_layer(jax, lax)
    return lambda a, b, x, p: lax.cond(p > 0, lambda x: layer(x, a, b), lambda x: x, x)


def skipped_gradient(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    forward = skipped(jax, jnp, lax, P)
    return jax.grad(lambda a, b, x, p: (forward(a, b, x, p) ** 2).mean(), (0, 1))


def dropped_gradient(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    """Of layers in a scan, of which a predicate for each says whether it runs."""
    layer = residual_layer(jax, lax)

    def loss(a: Any, b: Any, x: Any, keep: Any) -> Any:
        def body(x: Any, part: Any) -> Any:
            a, b, keep = part
            return lax.cond(keep > 0, lambda x: layer(x, a, b), lambda x: x, x), None
        return (lax.scan(body, x, (a, b, keep))[0] ** 2).mean()
    return jax.grad(loss, (0, 1))


for _size, (_n, _d) in {"small": (128, 256), "large": (8192, 2048)}.items():
    _x, _a, _b = ((_n, _d), ("x",)), ((_d, 4 * _d), COLUMN), ((4 * _d, _d), ROW)
    case(f"layer skipped by a branch, {_size}", GRID, _a, _b, _x, ((), ()), out=("x",))(skipped)
    case(f"layer skipped by a branch, gradient, {_size}", GRID, _a, _b, _x, ((), ()),
         out=(COLUMN, ROW))(skipped_gradient)
    case(f"layers dropped in a scan, gradient, {_size}", GRID, ((3, *_a[0]), (None, *COLUMN)),
         ((3, *_b[0]), (None, *ROW)), _x, ((3,), ()),
         out=((None, *COLUMN), (None, *ROW)))(dropped_gradient)


@case("one of three products", GRID, ((256, 256), COLUMN), ((256, 256), ROW), ((256, 256), ()),
      ((128, 256), ("x",)), ((), (), "int32"), out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    return lambda a, b, c, x, i: jnp.tanh(
        lax.switch(i, [lambda x: x @ a, lambda x: x @ b, lambda x: x @ c], x))


@case("a second layer where the first is unsure", GRID, ((256, 1024), COLUMN), ((1024, 256), ROW),
      ((256, 1000), COLUMN), ((16, 32, 256), ("x",)), out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(a: Any, b: Any, head: Any, x: Any) -> Any:
        y = x + jax.nn.gelu(x @ a) @ b
        sure = jax.nn.softmax(y.mean(1) @ head, -1).max(-1).mean()
        return lax.cond(sure > 0.5, lambda y: y, lambda y: y + jax.nn.gelu(y @ a) @ b,
                        y).mean(1) @ head
    return f


@case("a branch per row, mapped", LINE, ((64, 256), ("x",)), ((256, 512), ()), ((64,), ("x",)),
      out=())
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(x: Any, w: Any, p: Any) -> Any:
        return jax.vmap(lambda r, q: lax.cond(q > 0, lambda r: jnp.tanh(r @ w),
                                              lambda r: 0.5 * (r @ w), r))(x, p).sum()
    return f


# -- updates of which one is chosen ---------------------------------------------------------------
@case("update left out where a gradient is not finite", GRID, ((512, 512), ("x", "y")),
      ((512, 512), ("x", "y")), ((64, 512), ("x",)), ((), ()), out=(("x", "y"), ("x", "y"), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(w: Any, m: Any, x: Any, scale: Any) -> Any:
        g = jax.grad(lambda w: ((x @ w) ** 2).mean() * scale)(w) / scale
        fine, mean = jnp.isfinite(g).all(), 0.9 * m + 0.1 * g
        w, m = lax.cond(fine, lambda: (w - 1e-3 * mean, mean), lambda: (w, m))
        return w, m, jnp.where(fine, scale * 2, scale / 2)
    return f


@case("two optimisers by turns, fsdp", LINE, ((512, 512), ("x",)), ((512, 512), ("x",)),
      ((64, 512), ("x",)), ((), (), "int32"), out=(("x",), ("x",)))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def adaptive(w: Any, m: Any, g: Any) -> Any:
        m = 0.9 * m + 0.1 * g * g
        return w - g * lax.rsqrt(m + 1e-8), m

    def f(w: Any, m: Any, x: Any, i: Any) -> Any:
        g = jax.grad(lambda w: ((x @ w) ** 2).mean())(w)
        return lax.cond(i % 2 == 0, adaptive, lambda w, m, g: (w - 0.1 * g, m), w, m, g)
    return f


# -- until it converges ---------------------------------------------------------------------------
@case("greatest eigenvalue by iteration, rows split", LINE, ((1024, 1024), ("x",)), ((1024,), ()),
      out=((), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(a: Any, v: Any) -> Any:
        def body(state: Any) -> Any:
            v, _, i = state
            w = a @ v
            norm = jnp.sqrt((w * w).sum())
            return w / norm, norm, i + 1
        return lax.while_loop(lambda s: s[2] < 20, body, (v, jnp.float32(0), 0))[:2]
    return f


@case("conjugate gradients, columns split", LINE, ((1024, 1024), (None, "x")), ((1024,), ("x",)),
      out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(a: Any, b: Any) -> Any:
        def body(state: Any) -> Any:
            x, r, p, old, i = state
            q = p + 1e-3 * (a @ p)
            step = old / (p * q).sum()
            x, r = x + step * p, r - step * q
            new = (r * r).sum()
            return x, r, r + new / old * p, new, i + 1
        start = (jnp.zeros_like(b), b, b, (b * b).sum(), 0)
        return lax.while_loop(lambda s: (s[4] < 6) & (s[3] > 1e-6), body, start)[0]
    return f


@case("fixed boundary by iteration, rows split", LINE, ((512, 256), ("x",)), out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def body(i: Any, u: Any) -> Any:
        return u.at[1:-1, 1:-1].set((u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]) / 4)
    return lambda u: lax.fori_loop(0, 10, body, u)


# -- decoding -------------------------------------------------------------------------------------
@case("eight tokens into a cache by heads", GRID, ((8, 64, 16, 16), ("x", None, "y")),
      ((256, 256), COLUMN), ((256, 256), ROW), ((8, 256), ("x",)), out=(("x",), ("x", None, "y")))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(cache: Any, wk: Any, wo: Any, h: Any) -> Any:
        def token(state: Any, t: Any) -> Any:
            h, cache = state
            k = (h @ wk).reshape(8, 16, 16)
            cache = lax.dynamic_update_slice(cache, k[:, None], (0, t, 0, 0))
            weight = jax.nn.softmax(jnp.einsum("bhd,bthd->bht", k, cache), -1)
            return (h + jnp.einsum("bht,bthd->bhd", weight, cache).reshape(8, 256) @ wo,
                    cache), None
        return lax.scan(token, (h, cache), jnp.arange(8))[0]
    return f


@case("beam search, caches follow their beams", LINE, ((8, 4, 32, 64), ("x",)),
      ((8, 4, 1024), ("x",)), ((8, 4), ("x",)), out=(("x",), ("x",), ("x",)))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(cache: Any, logits: Any, scores: Any) -> Any:
        total = (scores[..., None] + jax.nn.log_softmax(logits, -1)).reshape(8, -1)
        best, at = lax.top_k(total, 4)
        return best, at % 1024, jnp.take_along_axis(cache, (at // 1024)[:, :, None, None], 1)
    return f


@case("accepted prefix of drafted tokens, vocabulary split", LINE,
      *[((16, 8, 4096), (None, None, "x"))] * 2, ((16, 8), (), "int32", 4096), ((16, 8), ()),
      out=((), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(draft: Any, target: Any, tokens: Any, u: Any) -> Any:
        p, q = jax.nn.log_softmax(target, -1), jax.nn.log_softmax(draft, -1)
        ratio = jnp.take_along_axis(p - q, tokens[..., None], -1)[..., 0]
        accepted = (jnp.log(jnp.abs(u)) < ratio).astype(jnp.int32)
        return (jnp.cumprod(accepted, 1).sum(1),
                jnp.argmax(jnp.maximum(jnp.exp(p) - jnp.exp(q), 0), -1))
    return f


# -- long scans -----------------------------------------------------------------------------------
@case("selective state space, channels split, gradient", GRID, ((8, 64, 256), ("x", None, "y")),
      *[((256, 16), ROW)] * 3, ((256,), ROW), out=(ROW, ROW, ROW, ROW))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(a: Any, b: Any, c: Any, d: Any, x: Any) -> Any:
        def step(h: Any, part: Any) -> Any:
            x, dt, b, c = part
            h = jnp.exp(-dt[..., None] * jnp.exp(a)) * h + (dt * x)[..., None] * b[:, None]
            return h, (h * c[:, None]).sum(-1)
        parts = (x, jax.nn.softplus(x * d), x @ b, x @ c)
        y = lax.scan(step, jnp.zeros((8, 256, 16)), tuple(jnp.moveaxis(v, 1, 0) for v in parts))[1]
        return (y * y).mean()
    return lambda x, *p: jax.grad(loss, (0, 1, 2, 3))(*p, x)


@case("linear attention by chunks, heads split, gradient", GRID,
      *[((4, 8, 32, 4, 32), ("x", None, None, "y"))] * 3,
      out=tuple([("x", None, None, "y")] * 3))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(q: Any, k: Any, v: Any) -> Any:
        mask = jnp.tril(jnp.ones((32, 32)))

        def step(state: Any, part: Any) -> Any:
            q, k, v = part
            inside = jnp.einsum("bihd,bjhd->bhij", q, k) * mask
            out = (jnp.einsum("bihd,bhde->bihe", q, state)
                   + jnp.einsum("bhij,bjhe->bihe", inside, v))
            return 0.9 * state + jnp.einsum("bjhd,bjhe->bhde", k, v), out
        parts = tuple(jnp.moveaxis(t, 1, 0) for t in (q, k, v))
        return (lax.scan(step, jnp.zeros((4, 4, 32, 32)), parts)[1] ** 2).mean()
    return jax.grad(loss, (0, 1, 2))
