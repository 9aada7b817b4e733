"""Programs whose sizes inside do not divide the mesh: after a slice, a pad, a concatenation.

What goes in and comes out divides, as JAX asks. Losses over shifted sequences, tokens put before
split ones, convolutions without padding, vocabularies of odd sizes, reductions and orders of
slices, loops over rows that are left over; forward and backward.
"""
from __future__ import annotations

from typing import Any

from .programs import CASES, GRID, LINE, case, simple

_BEFORE = len(CASES)
NHWC = ("NHWC", "HWIO", "NHWC")


def picked(jax: Any, jnp: Any, scores: Any, labels: Any) -> Any:
    """The mean of minus the log of the labels' shares."""
    logs = jax.nn.log_softmax(scores, -1)
    return -jnp.take_along_axis(logs, labels[..., None], -1).mean()


# -- shifted sequences ----------------------------------------------------------------------------
def next_token(jax: Any, jnp: Any) -> Any:
    return lambda h, w, ids: picked(jax, jnp, h[:, :-1] @ w, ids[:, 1:])


_tokens = (((4, 256, 64), (None, "x")), ((64, 512), ()), ((4, 256), (None, "x"), "int32", 512))


@case("next-token loss, sequence split", LINE, *_tokens, out=())
def _next_token(jax, jnp, lax, P):
    return next_token(jax, jnp)


@case("next-token loss, sequence split, gradient", LINE, *_tokens, out=((None, "x"), ()))
def _next_token_gradient(jax, jnp, lax, P):
    return jax.grad(next_token(jax, jnp), (0, 1))


@case("next-token loss, batch x sequence, gradient of a table", GRID, ((512, 64), ()),
      ((8, 128), ("x", "y"), "int32", 512), out=())
def _tied(jax, jnp, lax, P):
    def loss(table, ids):
        h = jnp.tanh(table[ids])
        return picked(jax, jnp, h[:, :-1] @ table.T, ids[:, 1:])
    return jax.grad(loss)


@case("next-token loss, data x tensor", GRID, ((8, 128, 64), ("x", None)), ((64, 512), (None, "y")),
      ((8, 128), ("x",), "int32", 512), out=())
def _next_token_tensor(jax, jnp, lax, P):
    return next_token(jax, jnp)


simple("rows but the first, times a matrix", LINE, "jnp.tanh(a[1:] @ b).sum(0)",
       ((1024, 64), ("x",)), ((64, 256), ()), out=())
simple("rows but the first, gradient of the matrix", LINE,
       "jax.grad(lambda w: (jnp.tanh(a[1:] @ w) ** 2).sum())(b)", ((1024, 64), ("x",)),
       ((64, 256), ()), out=())
simple("rows times the rows before", LINE, "jnp.einsum('td,te->de', a[1:], a[:-1])",
       ((1024, 64), ("x",)), out=())
simple("rows times the rows before, gradient", LINE,
       "jax.grad(lambda t: (jnp.einsum('td,te->de', t[1:], t[:-1]) ** 2).sum())(a)",
       ((1024, 64), ("x",)), out=("x",))
simple("rows but the first, two layers of tensor parallelism", GRID,
       "(jax.nn.relu(a[1:] @ b) @ c).mean(0)", ((512, 128), ("x",)), ((128, 512), (None, "y")),
       ((512, 128), ("y",)), out=())
simple("queries of the rows before", LINE,
       "(jax.nn.softmax(a[1:] @ b[:-1].T / 8, -1) @ b[:-1]).sum(0)", ((256, 64), ("x",)),
       ((256, 64), ("x",)), out=())

# -- tokens and rows that are added ---------------------------------------------------------------
_class = (((1, 128), ()), ((4, 256, 128), (None, "x")), ((128, 512), ()), ((512, 128), ()))


def class_token(jax: Any, jnp: Any) -> Any:
    def f(token: Any, x: Any, w1: Any, w2: Any) -> Any:
        y = jnp.concatenate([jnp.broadcast_to(token, (4, 1, 128)), x], 1)
        return y + jax.nn.relu(y @ w1) @ w2
    return f


@case("a class token before split tokens", LINE, *_class, out=((), (None, "x")))
def _class_token(jax, jnp, lax, P):
    def f(*a):
        y = class_token(jax, jnp)(*a)
        return y[:, 0], y[:, 1:]
    return f


@case("a class token before split tokens, gradient", LINE, *_class, out=((), (None, "x"), (), ()))
def _class_token_gradient(jax, jnp, lax, P):
    return jax.grad(lambda *a: (class_token(jax, jnp)(*a) ** 2).mean(), (0, 1, 2, 3))


@case("attention of a class token", LINE, ((1, 128), ()), ((4, 256, 128), (None, "x")),
      ((128, 128), ()), ((128, 128), ()), out=())
def _class_attention(jax, jnp, lax, P):
    def f(token, x, wk, wv):
        y = jnp.concatenate([jnp.broadcast_to(token, (4, 1, 128)), x], 1)
        s = jnp.einsum("bd,btd->bt", y[:, 0], y @ wk) / 11
        return jnp.einsum("bt,btd->bd", jax.nn.softmax(s, -1), y @ wv)
    return f


simple("padded rows times a matrix", LINE, "(jnp.pad(a, ((3, 2), (0, 0))) @ b).max(0)",
       ((512, 64), ("x",)), ((64, 256), ()), out=())
simple("padded rows times a matrix, cropped", LINE,
       "jnp.tanh(jnp.pad(a, ((3, 2), (0, 0))) @ b)[3:-2]", ((512, 64), ("x",)), ((64, 256), ()),
       out=("x",))
simple("padded rows, gradient of the matrix", LINE,
       "jax.grad(lambda w: jnp.tanh(jnp.pad(a, ((1, 0), (0, 0))) @ w + 1).sum())(b)",
       ((512, 64), ("x",)), ((64, 256), ()), out=())
simple("contracted over padded rows", LINE,
       "jnp.pad(a, ((0, 3), (0, 0))).T @ jnp.pad(b, ((3, 0), (0, 0)))", ((512, 64), ("x",)),
       ((512, 128), ("x",)), out=())
simple("uneven pieces side by side", LINE, "jnp.concatenate([a[:61], b[5:], c[2:]])",
       ((64, 128), ("x",)), ((128, 128), ("x",)), ((64, 128), ("x",)), out=())
simple("uneven pieces, times a matrix", LINE,
       "jnp.tanh(jnp.concatenate([a[:-3], b[6:]]) @ c).sum(0)",
       ((512, 64), ("x",)), ((256, 64), ("x",)), ((64, 256), ()), out=())

# -- convolutions and windows without padding -----------------------------------------------------
simple("convolution without padding, rows split", LINE,
       f"lax.conv_general_dilated(a, b, (1, 1), 'VALID', dimension_numbers={NHWC}).mean((1, 2))",
       ((4, 64, 32, 16), (None, "x")), ((3, 3, 16, 32), ()), out=())
simple("convolution without padding, gradient of the kernel", LINE,
       "jax.grad(lambda k: (lax.conv_general_dilated(a, k, (1, 1), 'VALID', "
       f"dimension_numbers={NHWC}) ** 2).sum())(b)", ((4, 64, 32, 16), (None, "x")),
       ((3, 3, 16, 32), ()), out=())
simple("convolution without padding, gradient of the image", LINE,
       "jax.grad(lambda x: (lax.conv_general_dilated(x, b, (1, 1), 'VALID', "
       f"dimension_numbers={NHWC}) ** 2).sum())(a)", ((4, 64, 32, 16), (None, "x")),
       ((3, 3, 16, 32), ()), out=(None, "x"))


@case("two convolutions without padding, rows and batch split", GRID,
      ((4, 64, 32, 8), ("x", "y")), ((3, 3, 8, 16), ()), ((5, 5, 16, 16), ()), out=())
def _convolutions(jax, jnp, lax, P):
    def f(x, a, b):
        for w in (a, b):
            x = jax.nn.relu(lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC))
        return x.max((0, 1, 2))
    return f


simple("convolution in time with stride 2", LINE,
       "lax.conv_general_dilated(a, b, (2,), 'VALID', dimension_numbers=('NWC', 'WIO', 'NWC'))"
       ".sum(1)", ((4, 1024, 32), (None, "x")), ((5, 32, 64), ()), out=())
simple("averages of three rows", LINE,
       "(lax.reduce_window(a, 0., lax.add, (3, 1), (1, 1), 'VALID') / 3).max(0)",
       ((512, 128), ("x",)), out=())

# -- vocabularies ---------------------------------------------------------------------------------
WORDS = 50257
_table = ((50264, 32), ("x",))
simple("greatest score among 50,257 words", LINE, f"(b @ a[:{WORDS}].T).max(-1)", _table,
       ((32, 32), ()), out=())
simple("likeliest among 50,257 words", LINE, f"jnp.argmax(b @ a[:{WORDS}].T, -1)", _table,
       ((32, 32), ()), out=())
simple("embedding of 50,257 words", LINE, f"a[:{WORDS}][b]", _table,
       ((256,), (), "int32", WORDS), out=())


def words_loss(jax: Any, jnp: Any) -> Any:
    return lambda table, h, ids: picked(jax, jnp, h @ table[:WORDS].T, ids)


@case("loss over 50,257 words", LINE, _table, ((32, 32), ()), ((32,), (), "int32", WORDS), out=())
def _words(jax, jnp, lax, P):
    return words_loss(jax, jnp)


@case("loss over 50,257 words, gradient", LINE, _table, ((32, 32), ()),
      ((32,), (), "int32", WORDS), out=(("x",), ()))
def _words_gradient(jax, jnp, lax, P):
    return jax.grad(words_loss(jax, jnp), (0, 1))


@case("loss over 50,257 words, split by a constraint", LINE, ((WORDS, 32), ()), ((32, 32), ()),
      ((32,), (), "int32", WORDS), out=())
def _words_constrained(jax, jnp, lax, P):
    return lambda table, h, ids: picked(
        jax, jnp, h @ lax.with_sharding_constraint(table, P("x", None)).T, ids)


@case("classes that do not divide, gradient", LINE, ((64, 16), (None, "x")), ((256, 64), ()),
      ((256,), (), "int32", 10), out=(None, "x"))
def _classes(jax, jnp, lax, P):
    return jax.grad(lambda w, h, ids: picked(jax, jnp, h @ w[:, :10], ids))


# -- reductions and orders of slices --------------------------------------------------------------
simple("sum of a slice of rows", LINE, "(a[3:] ** 2).sum(0)", ((512, 128), ("x",)), out=())
simple("sum of a slice", LINE, "a[3:61].sum(0)", ((64, 128), ("x",)), out=(), best=896)
simple("mean of the inner points", GRID, "jnp.abs(a[1:-1, 1:-1]).mean() + a[1:-1, 1:-1].max()",
       ((512, 256), ("x", "y")), out=())
simple("mean and variance of a slice", LINE, "(a[:1000].mean(0), a[:1000].var(0))",
       ((1024, 128), ("x",)), out=((), ()))
simple("greatest of a slice, gradient", LINE, "jax.grad(lambda t: t[1:].max(0).sum())(a)",
       ((512, 128), ("x",)), out=("x",))
simple("softmax over a slice", LINE, "(jax.nn.softmax(a[1:], 0) * b[:-1]).sum(0)",
       ((512, 128), ("x",)), ((512, 128), ("x",)), out=())
simple("running sum of a slice", LINE, "jnp.pad(jnp.cumsum(a[1:], 0), ((1, 0), (0, 0)))",
       ((512, 128), ("x",)), out=("x",))
simple("order of a slice", LINE, "jnp.sort(a[5:], 0)[:4]", ((512, 128), ("x",)), out=())
simple("place of the greatest of a slice", LINE, "jnp.argmax(a[1:], 0)", ((512, 128), ("x",)),
       out=())
simple("normalised slice times a matrix", LINE,
       "(lambda t: ((t - t.mean(0)) / (t.std(0) + 1e-3)) @ b)(a[:1000]).max(0)",
       ((1024, 64), ("x",)), ((64, 256), ()), out=())

# -- loops and boundaries -------------------------------------------------------------------------
_deep = (((1024, 64), ("x",)), ((4, 64, 64), ()))


def layers(jnp: Any, lax: Any) -> Any:
    return lambda x, ws: (lax.scan(lambda c, w: (jnp.tanh(c @ w) + c, None), x[1:], ws)[0]
                          ** 2).mean()


@case("layers over uneven rows", LINE, *_deep, out=())
def _layers(jax, jnp, lax, P):
    return layers(jnp, lax)


@case("layers over uneven rows, gradient", LINE, *_deep, out=(("x",), ()))
def _layers_gradient(jax, jnp, lax, P):
    return jax.grad(layers(jnp, lax), (0, 1))


@case("scan over uneven steps", LINE, ((64, 16, 64), ("x",)), ((64, 64), ()), out=())
def _steps(jax, jnp, lax, P):
    return lambda xs, w: lax.scan(lambda c, x: (jnp.tanh(c @ w) + x, None),
                                  jnp.zeros((16, 64)), xs[1:])[0]


@case("ten heat steps inside a fixed boundary", GRID, ((64, 128), ("x", "y")), out=("x", "y"))
def _heat(jax, jnp, lax, P):
    def step(_, a):
        inner = a[2:, 1:-1] + a[:-2, 1:-1] + a[1:-1, 2:] + a[1:-1, :-2]
        return a.at[1:-1, 1:-1].set(inner / 4)
    return lambda a: lax.fori_loop(0, 10, step, a)


simple("energy of differences in both directions", GRID,
       "((a[1:] - a[:-1]) ** 2).sum() + ((a[:, 1:] - a[:, :-1]) ** 2).sum()",
       ((256, 256), ("x", "y")), out=())
simple("differences times a matrix", LINE, "(jnp.diff(a, axis=0) @ b).max(0)",
       ((512, 64), ("x",)), ((64, 256), ()), out=())

NAMES = frozenset(c.name for c in CASES[_BEFORE:])
