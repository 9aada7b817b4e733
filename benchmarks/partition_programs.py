"""Programs whose communication is measured: what each moves, and the least known.

A program is a function of a library (`jax` or `shardtrace`, and its numpy) that gives a function,
its arguments' shapes and specs, and the specs asked of its results (None: left open). All mesh axes
are Auto. `best` is the number of bytes that each device receives under the cheapest plan known, by
ring algorithms; None where it is not known.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Spec = tuple[Any, ...]
Argument = tuple[tuple[int, ...], Spec] | tuple[tuple[int, ...], Spec, str]


@dataclass(frozen=True)
class Case:
    """mesh: axis sizes, by name. make(jax, jnp, lax, P) -> the function."""
    name: str
    mesh: dict[str, int]
    make: Callable[..., Callable[..., Any]]
    args: tuple[Argument, ...]
    out: Any = None
    best: int | None = None


CASES: list[Case] = []
LINE = {"x": 8}
GRID = {"x": 2, "y": 4}
CUBE = {"x": 2, "y": 2, "z": 2}


def case(name: str, mesh: dict[str, int], *args: Argument, out: Any = None,
         best: int | None = None) -> Callable[[Callable[..., Any]], None]:
    def add(make: Callable[..., Callable[..., Any]]) -> None:
        CASES.append(Case(name, mesh, make, args, out, best))
    return add


def simple(name: str, mesh: dict[str, int], text: str, *args: Argument, out: Any = None,
           best: int | None = None) -> None:
    """A case whose function is one expression of its arguments a, b, c, ..."""
    names = "abcdefgh"[:len(args)]

    def make(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
        scope = {"jax": jax, "jnp": jnp, "lax": lax, "P": P}
        return eval(f"lambda {', '.join(names)}: {text}", scope)
    CASES.append(Case(name, mesh, make, args, out, best))


def mlp_step(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(ws: Any, x: Any, y: Any) -> Any:
        w1, w2 = ws
        return jnp.mean((jnp.tanh(x @ w1) @ w2 - y) ** 2)

    def step(w1: Any, w2: Any, x: Any, y: Any) -> Any:
        g1, g2 = jax.grad(loss)((w1, w2), x, y)
        return w1 - 0.1 * g1, w2 - 0.1 * g2
    return step


# -- matrix products and layers -------------------------------------------------------------------
simple("mlp forward, tensor parallel", LINE, "jax.nn.relu(a @ b) @ c", ((128, 256), ()),
       ((256, 1024), (None, "x")), ((1024, 256), ("x", None)), out=(), best=229376)
simple("mlp forward, tensor and sequence parallel", LINE, "jax.nn.relu(a @ b) @ c",
       ((128, 256), ("x",)), ((256, 1024), (None, "x")), ((1024, 256), ("x", None)), out=("x",),
       best=229376)
case("mlp step, data parallel", LINE, ((256, 1024), ()), ((1024, 256), ()), ((64, 256), ("x",)),
     ((64, 256), ("x",)), out=((), ()), best=3670016)(mlp_step)
case("mlp step, fsdp, activations left free", LINE, ((128, 512), ("x",)), ((512, 128), ("x",)),
     ((128, 128), ("x",)), ((128, 128), ("x",)), out=(("x",), ("x",)), best=917504)(mlp_step)
case("mlp step, data x tensor", GRID, ((128, 512), (None, "y")), ((512, 128), ("y", None)),
     ((128, 128), ("x",)), ((128, 128), ("x",)), out=((None, "y"), ("y", None)))(mlp_step)
case("mlp step, fsdp x tensor", GRID, ((128, 512), ("x", "y")), ((512, 128), ("y", "x")),
     ((128, 128), ("x",)), ((128, 128), ("x",)), out=(("x", "y"), ("y", "x")))(mlp_step)
simple("two free dimensions on one axis", LINE, "a @ b", ((64, 1024), ("x",)),
       ((1024, 1024), ("x",)), out=("x",), best=258048)
simple("contracted over a shared axis", LINE, "a @ b", ((512, 128), (None, "x")),
       ((128, 512), ("x", None)), out=(), best=1835008)
simple("the same, result split", LINE, "a @ b", ((512, 128), (None, "x")),
       ((128, 512), ("x", None)), out=("x",), best=917504)
simple("sum of two partial products", LINE, "a @ b + c @ d", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), ((256, 128), (None, "x")), ((128, 256), ("x",)), out=(), best=458752)
simple("matmul in 3d", CUBE, "a @ b", ((64, 64), ("x", "y")), ((64, 64), ("y", "z")),
       out=("x", "z"), best=4096)
simple("gram matrix over one axis", LINE, "a.T @ a", ((256, 128), ("x",)), out=("x",), best=57344)


@case("attention, data x heads", GRID, ((8, 64, 128), ("x",)), ((3, 128, 4, 32), (None, None, "y")),
      ((4, 32, 128), ("y",)), out=("x",), best=196608)
def _attention(jax, jnp, lax, P):
    def f(x, w, o):
        q, k, v = jnp.einsum("btd,ndhk->nbhtk", x, w)
        p = jax.nn.softmax(jnp.einsum("bhtk,bhsk->bhts", q, k), -1)
        return jnp.einsum("bhts,bhsk,hkd->btd", p, v, o)
    return f


@case("attention, queries sharded", LINE, ((256, 32), ("x",)), ((256, 32), ("x",)),
      ((256, 32), ("x",)), out=("x",), best=57344)
def _attention_queries(jax, jnp, lax, P):
    return lambda q, k, v: jax.nn.softmax(q @ k.T, -1) @ v


@case("decode step, cache sharded over time", LINE, ((4, 32), ()), ((4, 256, 32), (None, "x")),
      ((4, 256, 32), (None, "x")), out=())
def _decode(jax, jnp, lax, P):
    def f(q, k, v):
        s = jnp.einsum("hd,htd->ht", q, k)
        m = s.max(-1, keepdims=True)
        e = jnp.exp(s - m)
        return jnp.einsum("ht,htd->hd", e, v) / e.sum(-1, keepdims=True)
    return f


# -- normalisation, losses ------------------------------------------------------------------------
simple("softmax along the sharded dimension", LINE, "jax.nn.softmax(a, -1)",
       ((256, 1024), (None, "x")), out=(None, "x"), best=3584)


@case("layer norm, features on y", GRID, ((128, 256), ("x", "y")), out=("x", "y"))
def _layer_norm(jax, jnp, lax, P):
    def f(x):
        m = x.mean(-1, keepdims=True)
        return (x - m) * lax.rsqrt(((x - m) ** 2).mean(-1, keepdims=True) + 1e-5)
    return f


@case("cross entropy, vocabulary on y", GRID, ((256, 1024), ("x", "y")), ((256,), ("x",), "int32"),
      out=())
def _cross_entropy(jax, jnp, lax, P):
    def f(logits, labels):
        picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
        return (jax.nn.logsumexp(logits, -1) - picked).mean()
    return f


# -- embeddings -----------------------------------------------------------------------------------
simple("embedding, vocabulary on y", GRID, "a[b]", ((1024, 128), ("y",)), ((256,), ("x",), "int32"),
       out=("x",), best=98304)
simple("embedding, vocabulary and ids on one axis", LINE, "a[b]", ((1024, 64), ("x",)),
       ((512,), ("x",), "int32"), out=("x",), best=116480)
simple("embedding gradient, data parallel", LINE,
       "jax.grad(lambda t: (t[b] * c).sum())(a)", ((1024, 64), ()), ((512,), ("x",), "int32"),
       ((512, 64), ("x",)), out=(), best=116480)
simple("embedding gradient, vocabulary on y", GRID, "jnp.zeros_like(a).at[b].add(c)",
       ((1024, 128), ("y",)), ((256,), (), "int32"), ((256, 128), ()), out=("y",), best=0)
simple("take along axis, rows sharded", LINE, "jnp.take_along_axis(a, b, 1)", ((64, 128), ("x",)),
       ((64, 4), ("x",), "int32"), out=("x",), best=0)

# -- moving rows ----------------------------------------------------------------------------------
simple("roll by one row", LINE, "jnp.roll(a, 1, 0)", ((64, 128), ("x",)), out=("x",), best=512)
simple("token shift by concatenate", LINE, "jnp.concatenate([jnp.zeros((1, 128)), a[:-1]])",
       ((64, 128), ("x",)), out=("x",), best=512)
simple("three-point stencil", LINE,
       "jnp.concatenate([jnp.zeros((1, 128)), a[:-1]]) + a + "
       "jnp.concatenate([a[1:], jnp.zeros((1, 128))])", ((64, 128), ("x",)), out=("x",), best=1024)
simple("difference of neighbours", LINE, "jnp.pad(a[1:] - a[:-1], ((0, 1), (0, 0)))",
       ((64, 128), ("x",)), out=("x",), best=512)
simple("pad four rows each side", LINE, "jnp.pad(a, ((4, 4), (0, 0)))", ((64, 96), ("x",)),
       out=("x",), best=1536)
simple("first half resharded", LINE, "a[:64]", ((128, 64), ("x",)), out=("x",), best=2048)
simple("concatenate along the sharded dimension", LINE, "jnp.concatenate([a, b])",
       ((64, 128), ("x",)), ((64, 128), ("x",)), out=("x",), best=8192)
simple("flip", LINE, "a[::-1]", ((64, 128), ("x",)), out=("x",), best=4096)
simple("repeat", LINE, "jnp.repeat(a, 4, 0)", ((64, 128), ("x",)), out=("x",), best=0)
simple("split a fused projection in 2", GRID, "jnp.split(a @ b, 2, 1)", ((256, 64), ("x",)),
       ((64, 1024), (None, "y")), out=(("x", "y"), ("x", "y")))
simple("convolution 3x3, rows sharded", LINE,
       "lax.conv_general_dilated(a, b, (1, 1), 'SAME', "
       "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))", ((1, 64, 64, 32), (None, "x")),
       ((3, 3, 32, 32), ()), out=(None, "x"), best=16384)
simple("dynamic slice along a sharded dimension", LINE, "lax.dynamic_slice_in_dim(a, b, 1, 0)",
       ((64, 128), ("x",)), ((), (), "int32"), out=(), best=896)
simple("cache update", LINE, "lax.dynamic_update_slice_in_dim(a, b, c, 0)", ((64, 128), ("x",)),
       ((1, 128), ()), ((), (), "int32"), out=("x",), best=0)
simple("static update", LINE, "a.at[0:3].set(b)", ((64, 128), ("x",)), ((3, 128), ()), out=("x",),
       best=0)
simple("causal mask", LINE, "jnp.tril(a)", ((128, 128), ("x",)), out=("x",), best=0)

# -- scans and order ------------------------------------------------------------------------------
simple("cumsum along sharded rows", LINE, "jnp.cumsum(a, 0)", ((64, 128), ("x",)), out=("x",),
       best=3584)
simple("argmax along the sharded dimension", LINE, "jnp.argmax(a, 1)", ((64, 1024), (None, "x")),
       out=(), best=3584)
simple("sort, other dimension free", LINE, "jnp.sort(a, 0)", ((1024, 256), ("x",)), out=("x",),
       best=229376)
simple("sort of a vector", LINE, "jnp.sort(a)", ((65536,), ("x",)), out=("x",), best=28672)
simple("top-k along the sharded dimension", LINE, "lax.top_k(a, 4)[0]", ((64, 1024), (None, "x")),
       out=(), best=14336)
simple("fft of rows and columns", LINE, "jnp.fft.fft2(a)", ((128, 128), ("x",), "complex64"),
       out=("x",), best=28672)

# -- reshapes and redistribution ------------------------------------------------------------------
simple("reshape 24 to 6x4 over 8", LINE, "a.reshape(6, 4, 32)", ((24, 32), ("x",)), out=(),
       best=2688)
simple("reshape merge", LINE, "a.reshape(512, 32)", ((64, 8, 32), ("x",)), out=("x",), best=0)
simple("transpose, P(x,y) to P(x,y)", GRID, "a.T", ((256, 256), ("x", "y")), out=("x", "y"),
       best=32768)
simple("P(x) to P(-,(x,y))", GRID, "a * 1", ((256, 128), ("x",)), out=(None, ("x", "y")),
       best=16384)
simple("P(x,y) to P(y,x)", GRID, "a * 1", ((256, 256), ("x", "y")), out=("y", "x"), best=32768)
simple("P(x,y) to P((y,x),-)", GRID, "a * 1", ((256, 256), ("x", "y")), out=(("y", "x"),),
       best=32768)
simple("P(x,-,y) to P(-,(y,x),-)", GRID, "a * 1", ((16, 16, 64), ("x", None, "y")),
       out=(None, ("y", "x"), None), best=None)


@case("chain of four reshards", GRID, ((256, 256), ("x", "y")), out=("y", "x"), best=32768)
def _chain(jax, jnp, lax, P):
    def f(a):
        for spec in (P("y", "x"), P(("x", "y"), None), P(None, ("x", "y")), P("y", "x")):
            a = lax.with_sharding_constraint(a, spec)
        return a
    return f


# -- loops ----------------------------------------------------------------------------------------
@case("scan over layers, column parallel", LINE, ((64, 512), ()),
      ((4, 512, 512), (None, None, "x")), out=(), best=None)
def _scan_columns(jax, jnp, lax, P):
    return lambda x, ws: lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0]


@case("scan over layers, fsdp", LINE, ((64, 128), ("x",)), ((4, 128, 128), (None, "x")),
      out=("x",), best=229376)
def _scan_fsdp(jax, jnp, lax, P):
    return lambda x, ws: lax.scan(lambda c, w: (jnp.tanh(c @ w), None), x, ws)[0]


@case("scan over microbatches, one gradient", LINE, ((128, 128), ()),
      ((4, 64, 128), (None, "x")), out=(), best=114688)
def _microbatches(jax, jnp, lax, P):
    def f(w, xs):
        def body(total, x):
            return total + jax.grad(lambda w: jnp.tanh(x @ w).sum())(w), None
        return lax.scan(body, jnp.zeros_like(w), xs)[0]
    return f


@case("scan with an invariant weight", LINE, ((64, 128), ("x",)), ((128, 128), ("x",)),
      out=("x",), best=57344)
def _invariant(jax, jnp, lax, P):
    return lambda x, w: lax.scan(lambda c, _: (jnp.tanh(c @ w), None), x, None, length=4)[0]


@case("mixture of experts by einsum", LINE, ((256, 64), ("x",)), ((64, 8), ()),
      ((8, 64, 64), ("x",)), out=("x",), best=None)
def _experts(jax, jnp, lax, P):
    def f(x, router, w):
        gate = jax.nn.softmax(x @ router, -1)
        slots = jax.nn.one_hot(jnp.arange(256) % 8, 8)[:, :, None] \
            * jax.nn.one_hot(jnp.arange(256) // 8, 32)[:, None, :]
        sent = jnp.einsum("td,tec->ecd", x, slots)
        done = jnp.tanh(jnp.einsum("ecd,edf->ecf", sent, w))
        return jnp.einsum("ecd,tec,te->td", done, slots, gate)
    return f
