"""Programs drawn at random, in the form of programs.py.

A program is a chain of what models are made of (products, norms, attention, lookups, loops, shifts,
experts, reductions), at times its gradient. Layouts of arguments and results are drawn over one to
three mesh axes: each axis has a use (data, weights as well, features, anything), which most arrays
follow. A seed and a number give the same program on every machine.
"""
from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

from .programs import CUBE, GRID, LINE, Argument, Case, Spec

MESHES = (LINE, GRID, GRID, CUBE)
LONGEST = 5                     # links of a chain
# the dimensions that an axis may split, by its use: of activations, of weights
USES = {"data": ((0,), ()), "data, and weights": ((0,), (0, 1, 2)), "sequence": ((1,), ()),
        "features": ((-1,), (-1, -2)), "anything": ((0, 1, 2), (0, 1, 2))}
FOLLOWED = 0.8                  # how often an array follows the uses


def drawn(seed: int, count: int) -> list[Case]:
    """So many programs."""
    return [_Writer(random.Random(f"{seed}/{k}")).case(f"random {seed}/{k}") for k in range(count)]


class _Writer:
    """Writes one program: what is computed last is `h`, of the shape `shape`."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.mesh = rng.choice(MESHES)
        self.uses = {axis: USES[rng.choice(list(USES))] for axis in self.mesh}
        self.args: list[Argument] = []
        self.weights: list[str] = []
        self.lines: list[str] = []
        self.batch, self.width = rng.choice((16, 64, 256)), rng.choice((64, 256, 1024))
        self.length = rng.choice((0, 16, 128))
        self.shape: tuple[int, ...] = ()

    def case(self, name: str) -> Case:
        """The program."""
        self._begin()
        for _ in range(self.rng.randint(1, LONGEST)):
            links = LINKS_OF_ROWS if len(self.shape) == 2 else LINKS_OF_SEQUENCES
            link = self.rng.choice(links)
            if link in ENDS and self.rng.random() < 0.6:
                continue
            link(self)
            if link in ENDS:
                break
        out: tuple[Spec, ...] = (self._spec(self.shape),)
        rng, names = self.rng, [f"a{k}" for k in range(len(self.args))]
        derived = rng.sample(self.weights, min(len(self.weights), rng.randint(1, 3)))
        lines = [f"def f({', '.join(names)}):", *(f"    {line}" for line in self.lines)]
        if derived and rng.random() < 0.4:
            lines += ["    return jnp.mean(h * h)"]
            at = tuple(sorted(names.index(n) for n in derived))
            out = tuple(self.args[k][1] for k in at)
            lines += [f"f = jax.grad(f, {at})"]
        else:
            lines += ["    return (h,)"]
        text = "\n".join(lines)

        def make(jax: Any, jnp: Any, lax: Any, P: Any) -> Any:
            scope = {"jax": jax, "jnp": jnp, "lax": lax, "P": P}
            exec(text, scope)
            return scope["f"]
        return Case(name, self.mesh, make, tuple(self.args), out, text=text)

    # -- arguments --------------------------------------------------------------------------------
    def _spec(self, shape: Sequence[int], weight: bool = False) -> Spec:
        """A layout: each axis on a dimension that it divides, or on none."""
        parts: list[list[str]] = [[] for _ in shape]
        follows = self.rng.random() < FOLLOWED
        for axis in self.rng.sample(list(self.mesh), len(self.mesh)):
            use = self.uses[axis] if follows else USES["anything"]
            uses = {d % len(shape) for d in use[weight] if -len(shape) <= d < len(shape)}
            fits = [d for d in sorted(uses) if shape[d] % (
                self.mesh[axis] * math.prod(self.mesh[a] for a in parts[d])) == 0]
            if fits and self.rng.random() < (0.9 if follows else 0.7):
                parts[self.rng.choice(fits)].append(axis)
        return tuple(p[0] if len(p) == 1 else tuple(p) or None for p in parts)

    def _named(self, argument: Argument) -> str:
        self.args.append(argument)
        return f"a{len(self.args) - 1}"

    def array(self, *shape: int) -> str:
        """A new argument of floats."""
        return self._named((shape, self._spec(shape)))

    def weight(self, *shape: int) -> str:
        """A new argument that gradients may be taken of."""
        self.weights.append(self._named((shape, self._spec(shape, weight=True))))
        return self.weights[-1]

    def indices(self, bound: int, *shape: int) -> str:
        """A new argument of integers below a bound."""
        return self._named((shape, self._spec(shape), "int32", bound))

    # -- statements -------------------------------------------------------------------------------
    def add(self, *lines: str) -> None:
        self.lines += lines

    def to(self, line: str, *shape: int) -> None:
        """`h` becomes this, of this shape."""
        self.lines.append(f"h = {line}")
        self.shape = shape

    def _begin(self) -> None:
        rows = (self.batch, self.length) if self.length else (self.batch,)
        if self.rng.random() < 0.25:
            vocabulary = self.rng.choice((512, 4096))
            self.to(f"{self.weight(vocabulary, self.width)}[{self.indices(vocabulary, *rows)}]",
                    *rows, self.width)
        else:
            self.to(self.array(*rows, self.width), *rows, self.width)


def _product(w: _Writer) -> None:
    *rows, d = w.shape
    n = w.rng.choice((d, d // 2, 2 * d, 4 * d))
    bias = f" + {w.weight(n)}" if w.rng.random() < 0.4 else ""
    w.to(f"h @ {w.weight(d, n)}{bias}", *rows, n)


def _feed_forward(w: _Writer) -> None:
    d, n = w.shape[-1], w.rng.choice((2, 4)) * w.shape[-1]
    act = w.rng.choice(("jax.nn.relu", "jnp.tanh", "jax.nn.gelu"))
    gate = f" * (h @ {w.weight(d, n)})" if w.rng.random() < 0.3 else ""
    kept = w.rng.choice(("", "h + "))
    w.to(f"{kept}({act}(h @ {w.weight(d, n)}){gate}) @ {w.weight(n, d)}", *w.shape)


def _norm(w: _Writer) -> None:
    d = w.shape[-1]
    if w.rng.random() < 0.5:
        w.to(f"h * lax.rsqrt(jnp.mean(h * h, -1, keepdims=True) + 1e-6) * {w.weight(d)}", *w.shape)
    else:
        w.add("c = h - jnp.mean(h, -1, keepdims=True)")
        w.to(f"c * lax.rsqrt(jnp.mean(c * c, -1, keepdims=True) + 1e-6) * {w.weight(d)} "
             f"+ {w.weight(d)}", *w.shape)


def _batch_norm(w: _Writer) -> None:
    w.add("c = h - jnp.mean(h, 0)")
    w.to("c / jnp.sqrt(jnp.mean(c * c, 0) + 1e-5)", *w.shape)


def _softmax(w: _Writer) -> None:
    name = w.rng.choice(("softmax", "log_softmax"))
    w.to(f"jax.nn.{name}(h, axis={w.rng.randrange(len(w.shape))})", *w.shape)


def _attention(w: _Writer) -> None:
    b, s, d = w.shape
    heads = w.rng.choice((4, 8))
    for name in "qkv":
        w.add(f"{name} = (h @ {w.weight(d, d)}).reshape({b}, {s}, {heads}, {d // heads})")
    w.add(f"p = jnp.einsum('bqhd,bkhd->bhqk', q, k) / {math.sqrt(d // heads):.4f}")
    if w.rng.random() < 0.5:
        w.add(f"p = jnp.where(jnp.tril(jnp.ones(({s}, {s}), bool)), p, -1e9)")
    kept = w.rng.choice(("", "h + "))
    w.to(f"{kept}jnp.einsum('bhqk,bkhd->bqhd', jax.nn.softmax(p, -1), v).reshape({b}, {s}, {d}) "
         f"@ {w.weight(d, d)}", b, s, d)


def _layers(w: _Writer) -> None:
    d, n = w.shape[-1], w.rng.choice((2, 4, 8))
    w.to(f"lax.scan(lambda h, w: (h + jnp.tanh(h @ w), None), h, {w.weight(n, d, d)})[0]", *w.shape)


def _recurrence(w: _Writer) -> None:
    b, s, d = w.shape
    u = w.weight(d, d)
    w.add(f"step = lambda c, x: (jnp.tanh(c @ {u} + x),) * 2")
    w.to(f"jnp.swapaxes(lax.scan(step, jnp.zeros(({b}, {d})), jnp.swapaxes(h, 0, 1))[1], 0, 1)",
         b, s, d)


def _decay(w: _Writer) -> None:
    w.to("jnp.cumsum(h, 1) * 0.1", *w.shape)


def _shift(w: _Writer) -> None:
    b, s, d = w.shape
    if w.rng.random() < 0.5:
        w.to("h + jnp.pad(h[:, :-1], ((0, 0), (1, 0), (0, 0)))", b, s, d)
    else:
        w.to("h[:, 1:] - h[:, :-1]", b, s - 1, d)


def _every_second(w: _Writer) -> None:
    b, s, d = w.shape
    w.to("h[:, ::2]", b, (s + 1) // 2, d)


def _window(w: _Writer) -> None:
    b, s, d = w.shape
    w.to(f"lax.dynamic_slice_in_dim(h, {w.indices(s // 2)}, {s // 2}, 1)", b, s // 2, d)


def _class_token(w: _Writer) -> None:
    b, s, d = w.shape
    w.to(f"jnp.concatenate([jnp.broadcast_to({w.weight(d)}, ({b}, 1, {d})), h], 1)", b, s + 1, d)


def _join(w: _Writer) -> None:
    *rows, d = w.shape
    w.to(f"jnp.concatenate([h, {w.array(*rows, d)}], -1)", *rows, 2 * d)


def _halves(w: _Writer) -> None:
    *rows, d = w.shape
    w.to(f"h[..., :{d // 2}] * jax.nn.sigmoid(h[..., {d // 2}:])", *rows, d // 2)


def _residual(w: _Writer) -> None:
    w.to(f"h {w.rng.choice('+*')} {w.array(*w.shape)}", *w.shape)


def _transpose(w: _Writer) -> None:
    if len(w.shape) == 2:
        w.to("h.T", *w.shape[::-1])
    else:
        b, s, d = w.shape
        w.to("jnp.swapaxes(h, 0, 1)", s, b, d)


def _flatten(w: _Writer) -> None:
    b, s, d = w.shape
    w.to(f"h.reshape({b * s}, {d})", b * s, d)


def _pool(w: _Writer) -> None:
    b, _, d = w.shape
    w.to(f"jnp.{w.rng.choice(('mean', 'max', 'sum'))}(h, 1)", b, d)


def _last(w: _Writer) -> None:
    b, _, d = w.shape
    w.to("h[:, -1]", b, d)


def _split_rows(w: _Writer) -> None:
    b, d = w.shape
    n = w.rng.choice((4, 8))
    if b % n == 0:
        w.to(f"h.reshape({n}, {b // n}, {d})", n, b // n, d)


def _experts(w: _Writer) -> None:
    (*rows, d), e = w.shape, 8
    w.add(f"g = jax.nn.softmax(h @ {w.weight(d, e)}, -1)")
    w.add(f"t = jnp.einsum('...d,edf->...ef', h, {w.weight(e, d, d)})")
    w.to(f"jnp.einsum('...e,...ef,efd->...d', g, jax.nn.relu(t), {w.weight(e, d, d)})", *rows, d)


def _routed(w: _Writer) -> None:
    (b, d), e = w.shape, 8
    w.add(f"v, i = lax.top_k(h @ {w.weight(d, e)}, 2)")
    w.add(f"m = jnp.sum(jax.nn.one_hot(i, {e}) * jax.nn.softmax(v)[..., None], 1)")
    w.to(f"jnp.einsum('be,bf,efd->bd', m, h, {w.weight(e, d, d)})", b, d)


def _all_pairs(w: _Writer) -> None:
    b, d = w.shape
    w.add("n = h / jnp.sqrt(jnp.sum(h * h, -1, keepdims=True) + 1e-6)")
    w.to("n @ n.T", b, b)


def _segments(w: _Writer) -> None:
    b, d = w.shape
    n = w.rng.choice((16, 64))
    w.to(f"jax.ops.segment_sum(h, {w.indices(n, b)}, {n})", n, d)


def _picked(w: _Writer) -> None:
    b, d = w.shape
    n = w.rng.choice((b, 2 * b))
    w.to(f"h[{w.indices(b, n)}]", n, d)


def _order(w: _Writer) -> None:
    w.to(f"jnp.sort(h, {w.rng.randrange(2)})", *w.shape)


def _best(w: _Writer) -> None:
    b, d = w.shape
    w.to("lax.top_k(h, 8)[0]", b, 8)


def _head(w: _Writer) -> None:
    *rows, d = w.shape
    n = w.rng.choice((512, 4096))
    w.add(f"l = jax.nn.log_softmax(h @ {w.weight(d, n)})")
    w.to(f"jnp.take_along_axis(l, {w.indices(n, *rows)}[..., None], -1)[..., 0]", *rows)


def _reduction(w: _Writer) -> None:
    d = w.rng.randrange(len(w.shape))
    name = w.rng.choice(("sum", "mean", "max", "var", "argmax"))
    w.to(f"jnp.{name}(h, {d})" + ".astype('float32')" * (name == "argmax"),
         *w.shape[:d], *w.shape[d + 1:])


def _clip(w: _Writer) -> None:
    w.to("h * jnp.minimum(1.0, 1.0 / jnp.sqrt(jnp.sum(h * h)))", *w.shape)


ENDS = (_head, _reduction, _best)
_BOTH = (_product, _product, _feed_forward, _feed_forward, _norm, _batch_norm, _softmax, _layers,
         _join, _halves, _residual, _transpose, _experts, _head, _reduction, _clip)
LINKS_OF_ROWS = (*_BOTH, _split_rows, _routed, _all_pairs, _segments, _picked, _order, _best)
LINKS_OF_SEQUENCES = (*_BOTH, _attention, _attention, _recurrence, _decay, _shift, _every_second,
                      _window, _class_token, _flatten, _pool, _last)
