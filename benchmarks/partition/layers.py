"""Products and models as they are written for tensor parallelism, at several sizes.

Row- and column-parallel products with Explicit axes and Auto ones; transformer steps of data x
tensor, recomputed layers, attention, energies of all pairs, mixtures of experts and optimisers, up
to sizes at which communication and computation are those of practice. Large ones are only planned.
"""
from __future__ import annotations

from typing import Any

from .models import block, weights
from .programs import GRID, LINE, case, simple

# rows, inner and outer size of a product
SIZES = {"tiny": (16, 64, 128), "small": (128, 256, 512), "medium": (1024, 1024, 4096),
         "large": (8192, 4096, 16384), "huge": (65536, 8192, 32768)}

for _size, (_b, _d, _f) in SIZES.items():
    for _explicit, _kind in ((True, "Explicit"), (False, "Auto")):
        _asked = ", out_sharding=P('x', None)" if _explicit else ""
        simple(f"row-parallel product, {_size}, {_kind}", GRID, f"jnp.matmul(a, b{_asked})",
               ((_b, _d), ("x", "y")), ((_d, _f), ("y", None)), out=("x",), explicit=_explicit)
        simple(f"column-parallel product, {_size}, {_kind}", GRID, "jnp.matmul(a, b)",
               ((_b, _d), ("x", None)), ((_d, _f), (None, "y")), out=("x", "y"),
               explicit=_explicit)
    simple(f"both products of a layer, {_size}", LINE, "jax.nn.relu(a @ b) @ c", ((_b, _d), ()),
           ((_d, _f), (None, "x")), ((_f, _d), ("x",)), out=())


# -- transformer steps ----------------------------------------------------------------------------
def step(depth: int, remat: bool = False) -> Any:
    """Loss and gradient of layers in a row, and a step down; weights of a kind are one array."""
    def make(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
        layer = block(jax, jnp, lax)
        layer = jax.checkpoint(layer) if remat else layer

        def loss(p: Any, x: Any) -> Any:
            if depth > 2:
                return (lax.scan(lambda c, q: (layer(q, c), None), x, p)[0] ** 2).mean()
            for i in range(depth):
                x = layer(jax.tree.map(lambda w, i=i: w[i], p), x)
            return (x ** 2).mean()

        def f(*a: Any) -> Any:
            g = jax.grad(loss)(a[:8], a[8])
            return tuple(w - 0.01 * d for w, d in zip(a[:8], g, strict=True))
        return f
    return make


def stacked(depth: int, d: int, f: int, column: Any, row: Any) -> list[Any]:
    return [((depth, *shape), (None, *spec)) for shape, spec in weights(d, f, column, row)]


def transformer(name: str, depth: int, d: int, x: Any, column: Any, row: Any,
                remat: bool = False) -> None:
    ws = stacked(depth, d, 4 * d, column, row)
    case(name, GRID, *ws, x, out=tuple(spec for _, spec in ws))(step(depth, remat))


_tensor, _both = ((None, "y"), ("y",)), (("x", "y"), ("y", "x"))
transformer("two layers' step, data x tensor", 2, 64, ((8, 32, 64), ("x",)), *_tensor)
transformer("two layers' step, fsdp x tensor", 2, 64, ((8, 32, 64), ("x",)), *_both)
transformer("two layers' step, sequence x tensor", 2, 64, ((8, 32, 64), ("x", "y")), *_tensor)
transformer("two layers' step, data x tensor, large", 2, 2048, ((16, 1024, 2048), ("x",)), *_tensor)
transformer("two layers' step, fsdp x tensor, large", 2, 2048, ((16, 1024, 2048), ("x",)), *_both)
transformer("four layers' scan, data x tensor, large", 4, 2048, ((16, 1024, 2048), ("x",)),
            *_tensor)
transformer("four layers' scan recomputed, data x tensor", 4, 64, ((8, 32, 64), ("x",)), *_tensor,
            remat=True)
transformer("four layers' scan recomputed, fsdp x tensor, large", 4, 2048,
            ((16, 1024, 2048), ("x",)), *_both, remat=True)


# -- recomputed loops -----------------------------------------------------------------------------
def remat_scan(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def loss(ws: Any, x: Any) -> Any:
        body = jax.checkpoint(lambda c, w: (c + jnp.tanh(c @ w[0]) @ w[1], None))
        return (lax.scan(body, x, ws)[0] ** 2).mean()
    return lambda a, b, x: jax.grad(loss)((a, b), x)


for _size, (_b, _d) in {"small": (128, 128), "large": (16384, 2048)}.items():
    for _name, _first, _second, _rows in (
            ("tensor parallel", (None, None, "y"), (None, "y"), ("x",)),
            ("fsdp", (None, ("x", "y")), (None, ("x", "y")), (("x", "y"),))):
        case(f"recomputed scan of layers, {_name}, {_size}", GRID, ((4, _d, 4 * _d), _first),
             ((4, 4 * _d, _d), _second), ((_b, _d), _rows), out=(_first, _second))(remat_scan)


# -- attention and pairs --------------------------------------------------------------------------
def heads(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(q: Any, k: Any, v: Any) -> Any:
        s = jnp.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
        causal = jnp.arange(s.shape[-1])[:, None] >= jnp.arange(s.shape[-1])[None]
        return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(causal, s, -1e9), -1), v)
    return f


for _size, (_b, _t, _h, _d) in {"small": (4, 64, 8, 16), "large": (8, 2048, 16, 128)}.items():
    _x = (_b, _t, _h, _d)
    for _name, _spec in (("heads split", ("x", None, "y")), ("time split", ("x", "y"))):
        case(f"causal attention, {_name}, {_size}", GRID, *[(_x, _spec)] * 3, out=_spec)(heads)


def energy(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(r: Any) -> Any:
        d = ((r[:, None] - r[None]) ** 2).sum(-1) + 1
        return (1 / d ** 3 - 1 / d).sum()
    return f


for _size, _n in {"small": 256, "large": 4096}.items():
    case(f"energy of all pairs, {_size}", LINE, ((_n, 3), ("x",)), out=())(energy)
    case(f"forces of all pairs, {_size}", LINE, ((_n, 3), ("x",)), out=("x",))(
        lambda jax, jnp, lax, P: jax.grad(energy(jax, jnp, lax, P)))
simple("products of all pairs, normalised", LINE,
       "jax.nn.softmax(a @ a.T / 8, -1).max(0)", ((512, 64), ("x",)), out=("x",))


# -- experts --------------------------------------------------------------------------------------
def experts(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(x: Any, router: Any, w1: Any, w2: Any) -> Any:
        groups, n, _ = x.shape
        e = router.shape[-1]
        gates = jax.nn.softmax(x @ router, -1)
        mask = jax.nn.one_hot(jnp.argmax(gates, -1), e)
        slots = jax.nn.one_hot(jnp.cumsum(mask, 1) * mask - 1, 2 * n // e)
        sent = jnp.einsum("gtec,gtd->egcd", slots, x)
        done = jnp.einsum("egcf,efd->egcd", jax.nn.relu(jnp.einsum("egcd,edf->egcf", sent, w1)), w2)
        return jnp.einsum("gtec,egcd,gte->gtd", slots, done, gates)
    return f


for _size, (_n, _d) in {"small": (32, 32), "large": (1024, 1024)}.items():
    _shapes = (((8, _n, _d), ("x",)), ((_d, 8), ()), ((8, _d, 4 * _d), ("x",)),
               ((8, 4 * _d, _d), ("x",)))
    case(f"experts and groups of tokens, {_size}", LINE, *_shapes, out=("x",))(experts)
    case(f"experts and groups of tokens, gradient, {_size}", LINE, *_shapes,
         out=(("x",), ("x",)))(
        lambda jax, jnp, lax, P: lambda x, r, a, b: jax.grad(
            lambda p: (experts(jax, jnp, lax, P)(x, r, *p) ** 2).mean())((a, b)))


# -- optimisers -----------------------------------------------------------------------------------
def adam(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
    def f(w1: Any, w2: Any, m1: Any, m2: Any, v1: Any, v2: Any, x: Any, y: Any) -> Any:
        def loss(p: Any) -> Any:
            return ((jnp.tanh(x @ p[0]) @ p[1] - y) ** 2).mean()
        new = []
        for w, g, m, v in zip((w1, w2), jax.grad(loss)((w1, w2)), (m1, m2), (v1, v2), strict=True):
            m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
            new.append((w - 0.01 * m / (jnp.sqrt(v) + 1e-8), m, v))
        return tuple(t[i] for i in range(3) for t in new)
    return f


for _size, (_b, _d) in {"small": (128, 128), "large": (16384, 4096)}.items():
    for _name, _first, _second, _rows in (
            ("data parallel", (), (), (("x", "y"),)),
            ("states split", ("x", "y"), ("y", "x"), ("x",))):
        case(f"adam's step, {_name}, {_size}", GRID,
             *[((_d, 2 * _d), _first), ((2 * _d, _d), _second)] * 3, ((_b, _d), _rows),
             ((_b, _d), _rows), out=(_first, _second) * 3)(adam)
