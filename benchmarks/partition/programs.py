"""Programs whose communication is measured: what each moves, and the least known.

A program is a function of a library (`jax` or `shardtrace`, and its numpy) that gives a function,
its arguments' shapes and specs (and dtype; of integers how many there are), and the specs asked of
its results (None: left open). Mesh axes are Auto, or all Explicit. `best` is the number of bytes
that each device receives under the cheapest plan known, by ring algorithms; None where it is not
known.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Spec = tuple[Any, ...]
Argument = (tuple[tuple[int, ...], Spec] | tuple[tuple[int, ...], Spec, str]
            | tuple[tuple[int, ...], Spec, str, int])


@dataclass(frozen=True)
class Case:
    """mesh: axis sizes, by name. make(jax, jnp, lax, P) -> the function. text: its source, of one
    that was drawn.
    """
    name: str
    mesh: dict[str, int]
    make: Callable[..., Callable[..., Any]]
    args: tuple[Argument, ...]
    out: Any = None
    best: int | None = None
    explicit: bool = False
    text: str = ""


CASES: list[Case] = []
LINE = {"x": 8}
GRID = {"x": 2, "y": 4}
CUBE = {"x": 2, "y": 2, "z": 2}


def case(name: str, mesh: dict[str, int], *args: Argument, out: Any = None, best: int | None = None,
         explicit: bool = False) -> Callable[[Callable[..., Any]], None]:
    def add(make: Callable[..., Callable[..., Any]]) -> None:
        CASES.append(Case(name, mesh, make, args, out, best, explicit))
    return add


def simple(name: str, mesh: dict[str, int], text: str, *args: Argument, out: Any = None,
           best: int | None = None, explicit: bool = False) -> None:
    """A case whose function is one expression of its arguments a, b, c, ..."""
    names = "abcdefgh"[:len(args)]

    def make(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
        scope = {"jax": jax, "jnp": jnp, "lax": lax, "P": P}
        return eval(f"lambda {', '.join(names)}: {text}", scope)
    CASES.append(Case(name, mesh, make, args, out, best, explicit))


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
simple("sum of three partial products", LINE, "a @ b + c @ d + e @ f", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), ((256, 128), (None, "x")), ((128, 256), ("x",)),
       ((256, 128), (None, "x")), ((128, 256), ("x",)), out=(), best=458752)
simple("residual and two partial products", LINE, "e + 2 * (a @ b) - c @ d",
       ((256, 128), (None, "x")), ((128, 256), ("x",)), ((256, 128), (None, "x")),
       ((128, 256), ("x",)), ((256, 256), ()), out=(), best=458752)
simple("partial product, summed", LINE, "(a @ b).sum(0)", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), out=(), best=1792)
simple("partial product, weighted mean", LINE, "(c * (a @ b)).mean()", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), ((256, 256), ()), out=(), best=7)
simple("partial product, sliced", LINE, "(a @ b).T[:, :16]", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), out=(), best=28672)
simple("partial product, times a narrow matrix", LINE, "a @ b @ c", ((256, 128), (None, "x")),
       ((128, 256), ("x",)), ((256, 8), ()), out=(), best=14336)
simple("gathered, then rounded", LINE,
       "lax.with_sharding_constraint(a, P()).astype(jnp.bfloat16)", ((256, 128), ("x",)), out=(),
       best=57344)
simple("widened, then gathered", LINE, "a.astype(jnp.float32)", ((256, 128), ("x",), "bfloat16"),
       out=(), best=57344)
simple("parallel branches of a layer", LINE, "a + jnp.tanh(a @ b) @ c + jnp.sin(a @ d) @ e",
       ((64, 128), ()), ((128, 512), (None, "x")), ((512, 128), ("x",)),
       ((128, 512), (None, "x")), ((512, 128), ("x",)), out=(), best=57344)
simple("gradient of a parameter used twice", LINE,
       "jax.grad(lambda w: jnp.tanh(b @ w).sum() + jnp.sin(c @ w).sum())(a)", ((128, 128), ()),
       ((256, 128), ("x",)), ((256, 128), ("x",)), out=(), best=114688)
simple("gated layer, tensor and sequence parallel", LINE, "(jax.nn.silu(a @ b) * (a @ c)) @ d",
       ((512, 256), ("x",)), ((256, 1024), (None, "x")), ((256, 1024), (None, "x")),
       ((1024, 256), ("x", None)), out=("x",), best=917504)
simple("rows times a table of one-hot rows", LINE, "jax.nn.one_hot(b, 1024) @ a",
       ((1024, 64), ("x",)), ((512,), ("x",), "int32"), out=("x",), best=44800)
simple("experts over one axis, rows of each over it too", LINE, "jnp.einsum('ecd,edf->ecf', a, b)",
       ((8, 32, 64), (None, "x")), ((8, 64, 128), ("x",)), out=(None, "x"), best=21504)
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
simple("mean square difference of neighbours", LINE, "((a[1:] - a[:-1]) ** 2).mean()",
       ((64, 128), ("x",)), out=(), best=519)
simple("cumsum along sharded rows, whole", LINE, "jnp.cumsum(a, 0)", ((64, 128), ("x",)), out=(),
       best=28672)
simple("pad four rows each side", LINE, "jnp.pad(a, ((4, 4), (0, 0)))", ((64, 96), ("x",)),
       out=("x",), best=1152)
simple("first half resharded", LINE, "a[:64]", ((128, 64), ("x",)), out=("x",), best=2048)
simple("concatenate along the sharded dimension", LINE, "jnp.concatenate([a, b])",
       ((64, 128), ("x",)), ((64, 128), ("x",)), out=("x",), best=8192)
simple("flip", LINE, "a[::-1]", ((64, 128), ("x",)), out=("x",), best=4096)
simple("repeat", LINE, "jnp.repeat(a, 4, 0)", ((64, 128), ("x",)), out=("x",), best=0)
simple("split a fused projection in 2", GRID, "tuple(jnp.split(a @ b, 2, 1))", ((256, 64), ("x",)),
       ((64, 1024), (None, "y")), out=(("x", "y"), ("x", "y")), best=131072)
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

simple("concatenate three sizes", LINE, "jnp.concatenate([a, b, c])", ((64, 128), ("x",)),
       ((128, 128), ("x",)), ((64, 128), ("x",)), out=("x",), best=16384)
simple("split a fused projection in 3", GRID, "tuple(jnp.split(a @ b, 3, 1))", ((256, 64), ("x",)),
       ((64, 1536), (None, "y")), out=(("x", "y"),) * 3, best=131072)
simple("window at an odd row", LINE, "a[3:67]", ((128, 64), ("x",)), out=("x",), best=2048)
simple("every other row, backwards", LINE, "a[::-2]", ((128, 64), ("x",)), out=("x",), best=2048)
simple("cropped on both sides", LINE, "lax.pad(a, 0., ((-4, -4, 0), (0, 0, 0)))",
       ((64, 96), ("x",)), out=("x",), best=1152)
simple("zeros between rows", LINE, "lax.pad(a, 0., ((0, 1, 1), (0, 0, 0)))", ((64, 96), ("x",)),
       out=("x",), best=0)
simple("edges repeated", LINE, "jnp.pad(a, ((4, 4), (0, 0)), mode='edge')", ((64, 96), ("x",)),
       out=("x",))
simple("difference with a first row", LINE, "jnp.diff(a, axis=0, prepend=0.)", ((64, 128), ("x",)),
       out=("x",), best=512)
simple("five-point stencil of a padded grid", GRID,
       "(lambda p: p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * a)"
       "(jnp.pad(a, 1))", ((64, 64), ("x", "y")), out=("x", "y"), best=384)
simple("roll over two axes", GRID, "jnp.roll(a, (3, 5), (0, 1))", ((64, 128), ("x", "y")),
       out=("x", "y"), best=1024)
simple("flip of both dimensions", GRID, "a[::-1, ::-1]", ((64, 128), ("x", "y")), out=("x", "y"),
       best=4096)
simple("rows 5 to 37 set", LINE, "a.at[5:37].set(b)", ((64, 128), ("x",)), ((32, 128), ()),
       out=("x",), best=0)
simple("a box set", GRID, "a.at[3:9, 5:70].set(b)", ((64, 128), ("x", "y")), ((6, 65), ()),
       out=("x", "y"), best=0)
simple("windows at several rows", LINE,
       "jax.vmap(lambda i: lax.dynamic_slice_in_dim(a, i, 4, 0))(b)", ((64, 128), ("x",)),
       ((4,), (), "int32"), out=())
simple("convolution with stride 2", LINE,
       "lax.conv_general_dilated(a, b, (2, 2), 'SAME', "
       "dimension_numbers=('NHWC', 'HWIO', 'NHWC'))", ((1, 64, 64, 16), (None, "x")),
       ((3, 3, 16, 16), ()), out=(None, "x"), best=4096)
simple("transposed convolution", LINE, "lax.conv_transpose(a, b, (2, 2), 'SAME')",
       ((1, 64, 64, 16), (None, "x")), ((3, 3, 16, 16), ()), out=(None, "x"), best=4096)
simple("gradient of a kernel, rows sharded", LINE,
       "jax.grad(lambda b: (lax.conv_general_dilated(a, b, (1, 1), 'SAME', "
       "dimension_numbers=('NHWC', 'HWIO', 'NHWC')) ** 2).sum())(b)",
       ((1, 64, 64, 16), (None, "x")), ((3, 3, 16, 16), ()), out=(), best=24320)
simple("gradient of a maximum pooling", LINE,
       "jax.grad(lambda t: (lax.reduce_window(t, -jnp.inf, lax.max, (2, 1), (2, 1), 'VALID') ** 2)"
       ".sum())(a)", ((64, 96), ("x",)), out=("x",), best=0)

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
simple("associative scan", LINE, "lax.associative_scan(jnp.add, a)", ((64, 128), ("x",)),
       out=("x",))
simple("linear recurrence", LINE,
       "lax.associative_scan(lambda u, v: (u[0] * v[0], u[1] * v[0] + v[1]), (a, b))[1]",
       ((64, 128), ("x",)), ((64, 128), ("x",)), out=("x",))
simple("cumulative maximum from the end", LINE, "lax.cummax(a, 0, reverse=True)",
       ((64, 128), ("x",)), out=("x",), best=3584)
simple("product along the sharded dimension", LINE, "jnp.prod(a, 0)", ((64, 128), ("x",)), out=(),
       best=896)
simple("positions in order", LINE, "jnp.argsort(a)", ((65536,), ("x",)), out=("x",))
simple("median of a vector", LINE, "jnp.median(a)", ((65536,), ("x",)), out=())
simple("fft of a cube", GRID, "jnp.fft.fftn(a)", ((32, 32, 32), ("x", "y"), "complex64"),
       out=("x", "y"), best=57344)
simple("fft, result split otherwise", LINE, "jnp.fft.fft2(a)", ((128, 128), ("x",), "complex64"),
       out=(None, "x"), best=14336)

# -- reshapes and redistribution ------------------------------------------------------------------
simple("reshape 24 to 6x4 over 8", LINE, "a.reshape(6, 4, 32)", ((24, 32), ("x",)), out=(),
       best=2688)
simple("reshape merge", LINE, "a.reshape(512, 32)", ((64, 8, 32), ("x",)), out=("x",), best=0)
simple("transpose, P(x,y) to P(x,y)", GRID, "a.T", ((256, 256), ("x", "y")), out=("x", "y"),
       best=32768)
simple("P(x) to P(-,(x,y))", GRID, "a * 1", ((256, 128), ("x",)), out=(None, ("x", "y")),
       best=8192)
simple("P(x,y) to P(y,x)", GRID, "a * 1", ((256, 256), ("x", "y")), out=("y", "x"), best=32768)
simple("P(x,y) to P((y,x),-)", GRID, "a * 1", ((256, 256), ("x", "y")), out=(("y", "x"),),
       best=32768)
simple("P(x,-,y) to P(-,(y,x),-)", GRID, "a * 1", ((16, 16, 64), ("x", None, "y")),
       out=(None, ("y", "x"), None), best=7168)
simple("P((x,y),-) to P(-,x)", GRID, "a * 1", ((256, 256), (("x", "y"),)), out=(None, "x"),
       best=114688)
simple("rotation of two axes and a new one", CUBE, "a * 1", ((16, 16, 64), ("x", "y", None)),
       out=("z", "x", "y"), best=8192)
simple("reshape 64 to 4x16 and back", LINE, "jnp.sin(a.reshape(4, 16, 64)).reshape(64, 64)",
       ((64, 64), ("x",)), out=("x",), best=0)
simple("reshape 64 to 4x16, resharded", LINE, "a.reshape(4, 16, 64)", ((64, 64), ("x",)),
       out=(None, "x"), best=2048)


@case("chain of four reshards", GRID, ((256, 256), ("x", "y")), out=("y", "x"), best=32768)
def _chain(jax, jnp, lax, P):
    def f(a):
        for spec in (P("y", "x"), P(("x", "y"), None), P(None, ("x", "y")), P("y", "x")):
            a = lax.with_sharding_constraint(a, spec)
        return a
    return f


# -- loops ----------------------------------------------------------------------------------------
@case("scan over layers, column parallel", LINE, ((64, 512), ()),
      ((4, 512, 512), (None, None, "x")), out=(), best=458752)
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


def gradient(jax: Any, jnp: Any) -> Any:
    return jax.grad(lambda w, x: jnp.tanh(x @ w).sum())


@case("microbatches, gradients of a tree", LINE, ((128, 128), ()), ((128, 64), ()),
      ((4, 64, 128), (None, "x")), out=((), ()), best=172032)
def _microbatches_tree(jax, jnp, lax, P):
    def f(w, v, xs):
        def body(total, x):
            g = jax.grad(lambda p: (jnp.tanh(x @ p[0]) @ p[1]).sum())((w, v))
            return jax.tree.map(lambda a, b: a + 0.25 * b, total, g), None
        return lax.scan(body, (jnp.zeros_like(w), jnp.zeros_like(v)), xs)[0]
    return f


@case("microbatches, losses and gradient", LINE, ((128, 128), ()), ((4, 64, 128), (None, "x")),
      out=((), ()), best=114695)
def _microbatches_losses(jax, jnp, lax, P):
    def f(w, xs):
        def body(carry, x):
            loss, g = jax.value_and_grad(lambda w: jnp.tanh(x @ w).mean())(w)
            return (carry[0] + loss, carry[1] + g), None
        return lax.scan(body, (0., jnp.zeros_like(w)), xs)[0]
    return f


@case("microbatches by fori_loop", LINE, ((128, 128), ()), ((4, 64, 128), (None, "x")), out=(),
      best=114688)
def _microbatches_fori(jax, jnp, lax, P):
    g = gradient(jax, jnp)
    return lambda w, xs: lax.fori_loop(0, 4, lambda i, t: t + g(w, xs[i]), jnp.zeros_like(w))


@case("microbatches of microbatches", LINE, ((128, 128), ()),
      ((2, 4, 64, 128), (None, None, "x")), out=(), best=114688)
def _microbatches_nested(jax, jnp, lax, P):
    g = gradient(jax, jnp)

    def f(w, xs):
        def outer(total, some):
            return lax.scan(lambda t, x: (t + g(w, x), None), total, some)[0], None
        return lax.scan(outer, jnp.zeros_like(w), xs)[0]
    return f


@case("gradient of a scan", LINE, ((128, 128), ()), ((4, 64, 128), (None, "x")), out=(),
      best=114688)
def _gradient_of_scan(jax, jnp, lax, P):
    return jax.grad(lambda w, xs: lax.scan(
        lambda c, x: (c + jnp.tanh(x @ w).sum(), None), 0., xs)[0])


@case("layers with one weight, gradient", LINE, ((128, 128), ()), ((64, 128), ("x",)), out=(),
      best=114688)
def _shared_layers(jax, jnp, lax, P):
    return jax.grad(lambda w, x: lax.scan(
        lambda c, _: (jnp.tanh(c @ w), None), x, None, length=4)[0].sum())


@case("loop with an invariant weight", LINE, ((64, 128), ("x",)), ((128, 128), ("x",)),
      out=("x",), best=57344)
def _invariant_loop(jax, jnp, lax, P):
    return lambda x, w: lax.fori_loop(0, 10, lambda i, c: jnp.tanh(c @ w), x)


def pipeline(shift: str) -> Any:
    """Eight stages in a row; what the last one gives in each of 16 ticks is collected."""
    def make(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
        def f(ws: Any, xs: Any) -> Any:
            def tick(buffer: Any, t: Any) -> Any:
                x = xs[jnp.minimum(t, 8)]
                if shift == "roll":
                    buffer = jnp.roll(buffer, 1, 0).at[0].set(x)
                else:
                    buffer = jnp.concatenate([x[None], buffer[:-1]])
                buffer = jax.vmap(lambda w, x: jnp.tanh(x @ w))(ws, buffer)
                return buffer, buffer[-1]
            return lax.scan(tick, jnp.zeros((8, 16, 128)), jnp.arange(16))[1]
        return f
    return make


for _shift in ("roll", "concatenate"):      # best: 16 permutes, and 16 results to every device
    case(f"pipeline by {_shift}", LINE, ((8, 128, 128), ("x",)), ((9, 16, 128), ()), out=(),
         best=262144)(pipeline(_shift))


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
