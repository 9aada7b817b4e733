"""What the fuzzer writes around functions: loops, branches, derivatives, batches and shard_map.

Each function takes a scope, makes the functions that it needs with `s.body`, and gives an
expression that uses them, or None where the scope holds nothing that it could take.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .statements import floating, ranked, real, whole_number

Wrapper = Callable[[Any], str | None]
BODIES: dict[str, list[Wrapper]] = {"loops": [], "derivatives": [], "batches": [], "calls": [],
                                    "shard_map": []}


def wrapper(kind: str, weight: int = 1) -> Callable[[Wrapper], Wrapper]:
    def enter(f: Wrapper) -> Wrapper:
        BODIES[kind].extend([f] * weight)
        return f
    return enter


def some(s: Any, count: int, condition: Callable[[Any], bool] = lambda v: True) -> list[str] | None:
    found = [s.pick(condition) for _ in range(count)]
    return None if None in found else list(dict.fromkeys(found))


# -- loops and branches ---------------------------------------------------------------------

@wrapper("loops", 4)
def scan(s: Any) -> str | None:
    carry, xs = s.pick(), s.pick(lambda v: v.ndim and 0 < v.shape[0] <= 8)
    if xs is None or s.chance(0.2):
        f = s.body(2, lambda inner, p: f"{inner.alike(p[0])}, None", known=1)
        return f"lax.scan({f}, {carry}, None, length={s.choice([1, 2, 3])})[0]"
    f = s.body(2, lambda inner, p: f"{inner.alike(p[0])}, {inner.newest()}")
    more = s.choice(["", "", ", reverse=True", ", unroll=2"])
    return f"lax.scan({f}, {carry}, {xs}{more})"


@wrapper("loops")
def grouped_scan(s: Any) -> str | None:
    """Two carries, two inputs."""
    carry, xs = some(s, 2), s.pick(lambda v: v.ndim and 0 < v.shape[0] <= 8)
    if not carry or xs is None:
        return None
    n = s[xs].shape[0]
    ys = s.pick(lambda v: v.ndim and v.shape[0] == n)
    a, b = carry[0], carry[-1]
    f = s.body(4, lambda inner, p: f"({inner.alike(p[0])}, {inner.alike(p[1])}), "
               f"({inner.newest()}, {inner.newest()})")
    return (f"lax.scan(lambda c, v: {f}(*c, *v), ({a}, {b}), ({xs}, {ys}))")


@wrapper("loops", 2)
def fori_loop(s: Any) -> str | None:
    carry = s.pick()
    f = s.body(2, lambda inner, p: inner.alike(p[1]))
    count = s.pick(lambda v: v.ndim == 0 and v.dtype == "int32")
    upper = f"jnp.clip({count}, 0, 3)" if count and s.chance(0.5) else s.choice(["0", "1", "3"])
    return f"lax.fori_loop(0, {upper}, {f}, {carry})"


@wrapper("loops", 2)
def while_loop(s: Any) -> str | None:
    carry = s.pick()
    f = s.body(1, lambda inner, p: inner.alike(p[0]))
    x = s.pick(real)
    limit = (f"jnp.sum({x} > 0) % 4" if x and s.chance(0.5) else str(s.rng.randint(0, 3)))
    return (f"lax.while_loop(lambda c: c[0] < {limit}, lambda c: (c[0] + 1, {f}(c[1])), "
            f"(0, {carry}))[1]")


def predicate(s: Any) -> str:
    x = s.pick(real)
    return s.choice([f"jnp.sum({x}) > 0", f"jnp.any({x} > 1)", f"{x}.ravel()[0] < 0.3"]
                    ) if x else "jnp.bool_(True)"


@wrapper("loops", 3)
def cond(s: Any) -> str | None:
    x = s.pick()
    f = s.body(1, lambda inner, p: inner.alike(p[0]))
    g = s.body(1, lambda inner, p: inner.alike(p[0]))
    return f"lax.cond({predicate(s)}, {f}, {g}, {x})"


@wrapper("loops")
def switch(s: Any) -> str | None:
    x, i = s.pick(), s.pick(lambda v: whole_number(v) and v.ndim == 0)
    fs = [s.body(1, lambda inner, p: inner.alike(p[0])) for _ in range(3)]
    y = s.pick(ranked(1))
    index = i or (f"jnp.argmax({y}) % 4" if y else "1")
    return f"lax.switch({index}, [{', '.join(fs)}], {x})"


@wrapper("loops")
def mapped(s: Any) -> str | None:
    xs = s.pick(lambda v: v.ndim and 0 < v.shape[0] <= 8)
    f = s.body(1, lambda inner, p: inner.newest())
    more = s.choice(["", "", ", batch_size=2"])
    return xs and f"lax.map({f}, {xs}{more})"


@wrapper("loops")
def associative_scan(s: Any) -> str | None:
    xs = s.pick(lambda v: v.ndim and 0 < v.shape[0] <= 8 and v.dtype != bool)
    more = s.choice(["", ", reverse=True"])
    return xs and f"lax.associative_scan({s.choice(['jnp.add', 'jnp.maximum'])}, {xs}{more})"


# -- calls ----------------------------------------------------------------------------------

@wrapper("calls", 4)
def call(s: Any) -> str | None:
    xs = some(s, s.rng.randint(1, 2))
    f = s.body(len(xs or ()), lambda inner, p: inner.some_results())
    how = s.choice(["jax.jit", "jax.checkpoint", "jax.remat", "with_vjp", "with_jvp",
                    "jax.named_call", "functools.partial(jax.jit, inline=True)",
                    "functools.partial(jax.jit, donate_argnums=0)",
                    "functools.partial(jax.checkpoint, policy=jax.checkpoint_policies"
                    ".dots_saveable)", "functools.partial(jax.checkpoint, prevent_cse=False)"])
    return xs and f"{how}({f})({', '.join(xs)})"


# -- derivatives ----------------------------------------------------------------------------

@wrapper("derivatives", 5)
def gradient(s: Any) -> str | None:
    xs = some(s, s.rng.randint(1, 3), floating)
    if not xs:
        return None
    f = s.body(len(xs), lambda inner, p: inner.some_results())
    if s.chance(0.3):
        f = f"{s.choice(['jax.checkpoint', 'jax.jit', 'with_vjp', 'with_jvp'])}({f})"
    numbers = tuple(range(len(xs)))
    name = s.choice(["jax.grad", "jax.grad", "jax.value_and_grad"])
    return f"{name}(lambda *v: total({f}(*v)), argnums={numbers})({', '.join(xs)})"


@wrapper("derivatives", 2)
def forward(s: Any) -> str | None:
    xs = some(s, s.rng.randint(1, 2), floating)
    if not xs:
        return None
    f = s.body(len(xs), lambda inner, p: inner.newest(floating))
    given = "(" + "".join(f"{x}, " for x in xs) + ")"
    return s.choice([f"jax.jvp({f}, {given}, {given})",
                     f"jax.linearize({f}, *{given})[1](*{given})",
                     f"jax.vjp({f}, *{given})[1](jnp.ones_like({f}(*{given})))"])


@wrapper("derivatives")
def jacobian(s: Any) -> str | None:
    x = s.pick(lambda v: floating(v) and v.size <= 6)
    f = s.body(1, lambda inner, p: inner.newest(lambda v: floating(v) and v.size <= 12))
    return x and s.choice([f"jax.jacfwd({f})({x})", f"jax.jacrev({f})({x})",
                           f"jax.hessian(lambda v: total({f}(v)))({x})"])


@wrapper("derivatives", 2)
def gradient_of_a_loop(s: Any) -> str | None:
    x = s.pick(floating)
    xs = s.pick(lambda v: v.ndim and 0 < v.shape[0] <= 8 and floating(v))
    if x is None or xs is None:
        return None
    f = s.body(2, lambda inner, p: f"{inner.alike(p[0])}, {inner.newest()}")
    return (f"jax.grad(lambda v, w: total(lax.scan({f}, v, w)), argnums=(0, 1))({x}, {xs})")


# -- batches --------------------------------------------------------------------------------

@wrapper("batches", 4)
def vmap(s: Any) -> str | None:
    x = s.pick(ranked(1))
    if x is None:
        return None
    d = s.rng.randrange(s[x].ndim)
    n = s[x].shape[d]
    y = s.pick(lambda v: v.ndim and n in v.shape)
    if y and s.chance(0.7):
        e = s.choice([k for k, m in enumerate(s[y].shape) if m == n])
    else:
        y, e = s.pick(), None
    f = s.body(2, lambda inner, p: inner.newest())
    out = s.choice([0, 0, -1])
    return f"jax.vmap({f}, in_axes=({d}, {e}), out_axes={out})({x}, {y})"


@wrapper("batches")
def batched_gradient(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.size and floating(v))
    f = s.body(1, lambda inner, p: inner.newest())
    return x and f"jax.vmap(jax.grad(lambda v: total({f}(v))))({x})"


@wrapper("batches")
def batched_sum(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.size and v.dtype != bool)
    f = s.body(1, lambda inner, p: inner.newest(lambda v: v.dtype != bool))
    return x and f"jax.vmap(lambda v: {f}(v) + lax.psum({f}(v), 'i'), axis_name='i')({x})"


@wrapper("batches")
def batched_loop(s: Any) -> str | None:
    x = s.pick(lambda v: v.ndim and v.size and real(v))
    f = s.body(1, lambda inner, p: inner.alike(p[0]))
    return x and s.choice([
        f"jax.vmap(lambda v: lax.cond(jnp.sum(v) > 0, {f}, lambda u: u, v))({x})",
        f"jax.vmap(lambda v: lax.fori_loop(0, jnp.count_nonzero(v) % 3, lambda i, u: {f}(u), v))"
        f"({x})"])


# -- shard_map ------------------------------------------------------------------------------

@wrapper("shard_map", 5)
def shard_map(s: Any) -> str | None:
    axes = s.open_axes()
    if not axes:
        return None
    if s.writer.kind == "partly manual" or s.manual or s.chance(0.3):
        axes = s.rng.sample(axes, s.rng.randint(1, len(axes)))
    xs = [s.pick() for _ in range(s.rng.randint(1, 3))]
    specs = [s.spec(s[x].shape, axes=axes) or "P()" for x in xs]
    checked = s.chance(0.85)
    outs: list[str] = []
    f = s.body(len(xs), lambda inner, p: leaving(inner, outs, axes, checked), manual=axes)
    given, shown = f"in_specs=({', '.join(specs)},)", ", ".join(xs)
    more = f"axis_names={{{', '.join(map(repr, axes))}}}" + ("" if checked else ", check_vma=False")
    # What leaves is known when the body has been written.
    s.evaluate(f"jax.shard_map(lambda *v: ({f}(*v), ())[1], {given}, out_specs=(), {more})"
               f"({shown})")
    inner = f"jax.shard_map({f}, {given}, out_specs={outs[0]}, {more})"
    numbers = tuple(k for k, x in enumerate(xs) if floating(s[x]))
    if numbers and s.chance(0.25):
        return f"jax.grad(lambda *v: total({inner}(*v)), argnums={numbers})({shown})"
    return f"{inner}({shown})"


def leaving(inner: Any, outs: list[str], axes: list[str], checked: bool) -> str:
    """Results of a body, and into `outs` the specs with which they can leave it."""
    results, specs = [], []
    for name in dict.fromkeys([inner.newest(), inner.newest()]):
        value = inner[name]
        varying = [a for a in axes if not checked or a in inner.varying(name)]
        if value.ndim == 0 and varying:
            if value.dtype == bool:
                name = f"{name}.astype('int32')"
            name, varying = f"lax.psum({name}, {tuple(varying)})", []
        elif inner.chance(0.2) and value.dtype != bool and varying:
            name, varying = f"lax.psum({name}, {tuple(varying)})", []
        dims: list[list[str]] = [[] for _ in range(value.ndim)]
        for a in varying:
            inner.choice(dims).append(a)
        results.append(name)
        specs.append(inner.spec_text(dims))
    outs.append(f"({', '.join(specs)})" if len(specs) > 1 else specs[0])
    return ", ".join(results)

