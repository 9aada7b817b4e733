"""What `tests/record/compositions.py` and `test_compositions.py` share: towers of transformations.

Each transformation turns a function of a vector into another one of the same shape, so that any
word over them is a program: `grad.scan.vmap` is the gradient of a scan of a vmap. Of the common
ones all words of three are tested, and words of two with those seldom seen. The number of the floor
goes into its constants, so that no two orders give the same numbers; results stay small, since a
loop of steep functions would only compare roundings. `shard_map` maps over the next mesh axis that
is not taken yet, with collectives of its own.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from ..paths import GOLDEN

TABLE = GOLDEN / "compositions.json"
TRANSFORMATIONS = ("grad", "vmap", "scan", "jit", "shard_map", "checkpoint", "cond")
SELDOM = ("jvp", "linearize", "vjp", "hessian", "fori_loop", "switch", "map", "custom_vjp",
          "custom_jvp", "policy", "named_vmap", "vmap_columns", "reverse_scan", "unchecked_map",
          "scattering_map", "associative_scan", "inlined", "while_loop")
WORDS = [".".join(word) for word in itertools.product(TRANSFORMATIONS, repeat=3)]
PAIRS = [".".join(word) for word in itertools.product(TRANSFORMATIONS + SELDOM, repeat=2)
         if not set(word) <= set(TRANSFORMATIONS)]
AXES = ("x", "y", "z")
MESHES = {                           # name: shape, kinds of the axes
    "auto": ((2, 2, 2), ("Auto",) * 3),
    "explicit": ((2, 2, 2), ("Explicit",) * 3),
    "mixed": ((4, 1, 2), ("Explicit", "Auto", "Auto")),
}
SIZE = 8

Fun = Callable[[Any], Any]


class Tower:
    """Programs built with one library: `jax` and `lax` are its modules, `spec` its P."""

    def __init__(self, jax: Any, jnp: Any, lax: Any, spec: Any) -> None:
        self.jax, self.jnp, self.lax, self.spec = jax, jnp, lax, spec

    def ground(self, x: Any) -> Any:
        jnp = self.jnp
        tilt = jnp.arange(x.shape[0], dtype=x.dtype)
        size, slope = jnp.sum(x * x), jnp.sum(tilt * x)
        return jnp.sin(x) * (1.0 + 0.1 * jnp.cos(size)) + 0.1 * jnp.exp(-x * x) * jnp.sin(slope)

    def build(self, word: str) -> Fun:
        """The function that the word names, its first transformation outermost."""
        names = word.split(".")
        axes = iter(AXES)
        taken = [next(axes) if name.endswith("_map") else None for name in names]
        f: Fun = self.ground
        for floor, (name, axis) in enumerate(reversed(list(zip(names, taken, strict=True)))):
            f = getattr(self, name)(f, axis or 1.0 + floor)
        return f

    def grad(self, f: Fun, floor: float) -> Fun:
        def total(x):
            weights = self.jnp.cos(floor + self.jnp.arange(x.shape[0], dtype=x.dtype))
            return self.jnp.sum(weights * f(x))
        return self.jax.grad(total)

    def vmap(self, f: Fun, floor: float) -> Fun:
        def mean(x):
            scales = self.jnp.array([0.5, 1.0, -0.7], x.dtype) / floor
            return self.jnp.mean(self.jax.vmap(f)(scales[:, None] * x), axis=0)
        return mean

    def scan(self, f: Fun, floor: float) -> Fun:
        def body(c, s):
            return 0.3 * f(c) + s * c, self.jnp.sum(c) * s

        def final(x):
            x, ys = self.lax.scan(body, x, self.jnp.array([0.5, -0.4], x.dtype) / floor)
            return x + 0.1 * self.jnp.sum(ys)
        return final

    def jit(self, f: Fun, floor: float) -> Fun:
        return self.jax.jit(lambda x: f(x) / floor)

    def checkpoint(self, f: Fun, floor: float) -> Fun:
        return self.jax.checkpoint(lambda x: self.jnp.tanh(f(x) / floor))

    def cond(self, f: Fun, floor: float) -> Fun:
        """The predicate is known when the program runs only, and is the same on all devices."""
        def choose(x):
            always = self.jnp.sum(0.0 * x) < 0.5
            first = self.lax.cond(always, f, lambda x: 2.0 * x, x)
            second = self.lax.cond(~always, f, lambda x: x * x / floor, x)
            return first + 0.2 * second
        return choose

    def shard_map(self, f: Fun, axis: str) -> Fun:
        def body(x):
            n = self.lax.axis_size(axis)
            shifted = self.lax.ppermute(x, axis, [(i, (i + 1) % n) for i in range(n)])
            mean = self.lax.pmean(self.jnp.sum(x), axis)
            index = self.lax.axis_index(axis).astype(x.dtype)
            return f(x) * (1.0 + 0.1 * mean) + 0.1 * shifted + 0.01 * index

        spec = self.spec(axis)
        return self.jax.shard_map(body, in_specs=spec, out_specs=spec, axis_names={axis})

    # -- seldom seen ------------------------------------------------------------------------------

    def jvp(self, f: Fun, floor: float) -> Fun:
        def sum_of_both(x):
            y, dy = self.jax.jvp(f, (x,), (self.jnp.cos(x) / floor,))
            return y + 0.5 * dy
        return sum_of_both

    def linearize(self, f: Fun, floor: float) -> Fun:
        def sum_of_all(x):
            y, push = self.jax.linearize(f, x)
            return y + 0.3 * push(x / floor) - 0.1 * push(self.jnp.ones_like(x))
        return sum_of_all

    def vjp(self, f: Fun, floor: float) -> Fun:
        def sum_of_both(x):
            y, pull = self.jax.vjp(f, x)
            return y + 0.2 * pull(y / floor)[0]
        return sum_of_both

    def hessian(self, f: Fun, floor: float) -> Fun:
        def product(x):
            def slope(x):
                return self.jax.grad(lambda x: self.jnp.sum(f(x)) / floor)(x)
            return self.jnp.sin(0.02 * self.jax.jvp(slope, (x,), (self.jnp.sin(x),))[1])
        return product

    def fori_loop(self, f: Fun, floor: float) -> Fun:
        def body(i, x):
            return 0.4 * f(x) + x / (i + floor).astype(x.dtype)
        return lambda x: self.lax.fori_loop(1, 3, body, x)

    def while_loop(self, f: Fun, floor: float) -> Fun:
        """A while loop has no derivative backwards: what it finds is taken for a constant."""
        def grown(x):
            def step(state):
                n, x = state
                return n + 1, 0.5 * f(x)
            _, end = self.lax.while_loop(lambda state: state[0] < 2, step, (0, x))
            return x / floor + self.lax.stop_gradient(end)

        return grown

    def switch(self, f: Fun, floor: float) -> Fun:
        def choose(x):
            index = 1 + (self.jnp.sum(0.0 * x) > 0.5).astype(self.jnp.int32)
            return self.lax.switch(index, [self.jnp.sin, f, self.jnp.cos], x) / floor
        return choose

    def map(self, f: Fun, floor: float) -> Fun:
        def total(x):
            rows = self.jnp.stack([x, -0.5 * x / floor])
            return self.jnp.sum(self.lax.map(f, rows), axis=0)
        return total

    def custom_vjp(self, f: Fun, floor: float) -> Fun:
        """The derivative is that of f, doubled."""
        g = self.jax.custom_vjp(f)

        def forward(x):
            y, pull = self.jax.vjp(f, x)
            return y, (pull, x)

        g.defvjp(forward, lambda kept, ct: (2.0 * kept[0](ct)[0] + 0.1 * kept[1],))
        return lambda x: g(x) / floor

    def custom_jvp(self, f: Fun, floor: float) -> Fun:
        g = self.jax.custom_jvp(f)

        @g.defjvp
        def rule(primals, tangents):
            y, dy = self.jax.jvp(f, primals, tangents)
            return y, 0.5 * dy + tangents[0]

        return lambda x: g(x) * floor

    def policy(self, f: Fun, floor: float) -> Fun:
        saved = self.jax.checkpoint_policies.everything_saveable
        return self.jax.checkpoint(lambda x: self.jnp.sin(f(x) * floor), policy=saved)

    def named_vmap(self, f: Fun, floor: float) -> Fun:
        name = f"rows{floor}"

        def centred(x):
            y = f(x)
            n = self.lax.axis_index(name).astype(x.dtype)
            return y - 0.5 * self.lax.pmean(y, name) + n * self.lax.psum(x, name)

        def mean(x):
            return self.jnp.mean(self.jax.vmap(centred, axis_name=name)(
                self.jnp.stack([x, 0.5 * x, x * x])), axis=0)
        return mean

    def vmap_columns(self, f: Fun, floor: float) -> Fun:
        def total(x):
            columns = self.jnp.stack([x, x * floor, -x], axis=1)
            return self.jax.vmap(f, in_axes=1, out_axes=1)(columns).sum(axis=1)
        return total

    def reverse_scan(self, f: Fun, floor: float) -> Fun:
        def body(c, s):
            c = 0.5 * f(c) + s[0]
            return c, (c * s[1], s[1])

        def stacked(x):
            xs = (self.jnp.stack([x, 0.1 * x, -x]), self.jnp.arange(3.0, dtype=x.dtype) / floor)
            c, (ys, _) = self.lax.scan(body, x, xs, reverse=True, unroll=2)
            return c + self.jnp.sum(ys, axis=0)
        return stacked

    def associative_scan(self, f: Fun, floor: float) -> Fun:
        def last(x):
            rows = self.jnp.stack([x, f(x), self.jnp.cos(x) / floor])
            return self.lax.associative_scan(lambda a, b: a * b + 0.1 * b, rows, axis=0)[-1]
        return last

    def inlined(self, f: Fun, floor: float) -> Fun:
        g = self.jax.jit(lambda x, n, scale: f(x) * scale + n, static_argnums=1, inline=True)
        return lambda x: g(x, 2, scale=floor)

    def unchecked_map(self, f: Fun, axis: str) -> Fun:
        def body(x):
            mean = self.lax.pmean(self.jnp.sum(x), axis)
            return f(x) + 0.1 * mean

        spec = self.spec(axis)
        return self.jax.shard_map(body, in_specs=spec, out_specs=spec, axis_names={axis},
                                  check_vma=False)

    def scattering_map(self, f: Fun, axis: str) -> Fun:
        """Works on the whole vector on each device, and gives each device its part of the sum."""
        def body(x):
            whole = self.lax.all_gather(x, axis, tiled=True)
            weight = 1.0 + self.lax.axis_index(axis).astype(x.dtype)
            return self.lax.psum_scatter(weight * f(whole), axis, tiled=True)

        spec = self.spec(axis)
        return self.jax.shard_map(body, in_specs=spec, out_specs=spec, axis_names={axis})


def argument() -> np.ndarray:
    return np.linspace(-0.8, 0.9, SIZE, dtype=np.float32)


def summary(result: Any) -> list[float]:
    """Two numbers in which every element and its place count."""
    values = np.asarray(result, np.float64)
    places = np.arange(values.size)
    return [float(values @ np.cos(0.3 + places)), float(values @ np.sin(1.7 * places + 1))]
