"""Methods other than transformers whose communication is measured.

Clustering, chains of labels, dilated and nested convolutions, tables of recommenders, routing by
the experts, caches in pages, optimisers and regressions that take matrices apart: with gradients,
loops and sizes that do not divide, as in their usual codes.
"""
from __future__ import annotations

from typing import Any

from .programs import GRID, LINE, case, simple

simple("four rows at an index, of eight over both axes", GRID,
       "lax.dynamic_slice_in_dim(a, b, 4, 1)", ((64, 8, 512), (None, ("y", "x"))),
       ((), (), "int32", 5), out=(None, "x"))
simple("tied embedding, gradient", GRID,
       "jax.grad(lambda t: jax.nn.log_softmax(jnp.tanh(t[b]) @ t.T, -1)[:, 0].mean())(a)",
       ((1024, 64), ("y",)), ((256,), ("x",), "int32", 1024), out=("y",))


# -- clusters and labels --------------------------------------------------------------------------
@case("means of clusters, ten iterations", LINE, ((2048, 16), ("x",)), ((32, 16), ()), out=())
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(x: Any, c: Any) -> Any:
        def body(_: Any, c: Any) -> Any:
            near = ((x[:, None] - c[None]) ** 2).sum(-1).argmin(-1)
            count = jax.ops.segment_sum(jnp.ones(2048), near, 32)
            return jax.ops.segment_sum(x, near, 32) / jnp.maximum(count, 1)[:, None]
        return lax.fori_loop(0, 10, body, c)
    return f


@case("rows and columns normalised by turns", GRID, ((512, 512), ("x", "y")), out=("x", "y"))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def body(_: Any, c: Any) -> Any:
        c = c - jax.nn.logsumexp(c, 1, keepdims=True)
        return c - jax.nn.logsumexp(c, 0, keepdims=True)
    return lambda c: jnp.exp(lax.fori_loop(0, 20, body, c))


@case("chain of labels, time split, gradient", GRID, ((32, 64, 16), ("y", "x")), ((16, 16), ()),
      ((32, 64), (None, "x"), "int32", 16), out=(("y", "x"), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(scores: Any, between: Any, labels: Any) -> Any:
        def body(total: Any, score: Any) -> Any:
            return jax.nn.logsumexp(total[:, :, None] + between, 1) + score, None
        total = lax.scan(body, scores[0], scores[1:])[0]
        own = jnp.take_along_axis(scores, labels[..., None], 2)[..., 0].sum(0)
        own = own + between[labels[:-1], labels[1:]].sum(0)
        return (jax.nn.logsumexp(total, -1) - own).mean()
    return jax.grad(loss, (0, 1))


# -- convolutions ---------------------------------------------------------------------------------
@case("dilated pairs of steps, time split, gradient", GRID, ((4, 256, 32), ("x", "y")),
      ((3, 64, 32), ()), ((32, 64), ()), out=((), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(p: Any, x: Any) -> Any:
        for i in range(3):
            d = 2 ** i
            pairs = jnp.concatenate([x[:, :-d], x[:, d:]], -1)
            x = x[:, d:] + jnp.tanh(pairs @ p[0][i])
        return ((x @ p[1]).mean((0, 1)) ** 2).sum()
    return lambda x, a, b: jax.grad(loss)((a, b), x)


@case("down, across and up, rows split, gradient", GRID, ((4, 64, 64, 8), ("x", "y")),
      ((3, 3, 8, 16), ()), ((3, 3, 16, 16), ()), ((3, 3, 24, 8), ()), out=((), (), ()))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def convolve(x: Any, w: Any, stride: int = 1) -> Any:
        return lax.conv_general_dilated(x, w, (stride, stride), "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def loss(p: Any, x: Any) -> Any:
        a, b, c = p
        y = jax.nn.relu(convolve(jax.nn.relu(convolve(x, a, 2)), b))
        y = jnp.repeat(jnp.repeat(y, 2, 1), 2, 2)
        return (convolve(jnp.concatenate([x, y], -1), c) ** 2).mean()
    return lambda x, *p: jax.grad(loss)(p, x)


# -- tables, experts, pages -----------------------------------------------------------------------
@case("tables of a recommender, rows split", LINE, ((8, 1024, 32), (None, "x")),
      ((256, 8), ("x",), "int32", 1024), ((256, 16), ("x",)), ((16, 32), ()), ((81, 1), ()),
      out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(tables: Any, ids: Any, dense: Any, a: Any, b: Any) -> Any:
        rows = jnp.stack([tables[i][ids[:, i]] for i in range(8)], 1)
        every = jnp.concatenate([jax.nn.relu(dense @ a)[:, None], rows], 1)
        pairs = jnp.einsum("bid,bjd->bij", every, every).reshape(-1, 81)
        return jax.nn.sigmoid(pairs @ b)
    return f


@case("experts choose their tokens", LINE, ((512, 64), ("x",)), ((64, 8), ()), ((8, 64, 64),
      ("x",)), out=("x",))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(x: Any, router: Any, w: Any) -> Any:
        gates, ids = lax.top_k(jax.nn.softmax(x @ router, -1).T, 64)
        y = jnp.einsum("ecd,edf->ecf", x[ids], w) * gates[..., None]
        return jnp.zeros_like(x).at[ids.reshape(-1)].add(y.reshape(-1, 64))
    return f


@case("a cache in pages, heads split", LINE, ((8, 8, 32), (None, "x")),
      ((128, 16, 8, 32), (None, None, "x")), ((8, 8), (), "int32", 128), out=(None, "x"))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(q: Any, pages: Any, table: Any) -> Any:
        k = pages[table].reshape(8, 128, 8, 32)
        scores = jax.nn.softmax(jnp.einsum("bhd,bkhd->bhk", q, k), -1)
        return jnp.einsum("bhk,bkhd->bhd", scores, k)
    return f


# -- matrices taken apart -------------------------------------------------------------------------
@case("momentum made orthogonal", GRID, *[((256, 1024), ("x", "y"))] * 3,
      out=(("x", "y"), ("x", "y")))
def _(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(w: Any, m: Any, g: Any) -> Any:
        m = 0.95 * m + g
        z = m / jnp.sqrt((m * m).sum())
        for _ in range(3):
            a = z @ z.T
            z = 3.44 * z + (-4.77 * a + 2.03 * a @ a) @ z
        return w - 0.02 * z, m
    return f


simple("mean of a Gaussian process, points split", LINE,
       "(lambda k: k(c, a) @ jnp.linalg.solve(k(a, a) + jnp.eye(256), b))"
       "(lambda x, y: jnp.exp(-((x[:, None] - y[None]) ** 2).sum(-1)))", ((256, 3), ("x",)),
       ((256,), ("x",)), ((64, 3), ("x",)), out=("x",))
simple("regression on the three steps before", LINE,
       "(lambda f: jnp.linalg.solve(f.T @ f + jnp.eye(9), f.T @ a[3:]))"
       "(jnp.concatenate([a[2:-1], a[1:-2], a[:-3]], 1))", ((512, 3), ("x",)), out=())
