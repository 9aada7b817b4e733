"""Training steps that are written for JAX: plain, and of its libraries. Each model gives its step,
and arguments."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..real_jax import real_jax

jax = real_jax()
jnp = jax.numpy
KEY = jax.random.key(0)
MODELS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {}


def model(f: Callable[[], tuple[Any, tuple[Any, ...]]]) -> Any:
    MODELS[f.__name__] = f
    return f


def descent(loss: Any) -> Any:
    def step(params: Any, *batch: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, slopes), value
    return jax.jit(step)


def normal(*shape: int) -> Any:
    """Drawn by numpy: JAX compiles a program for each shape, which takes longer than the tests."""
    return jnp.asarray(np.random.default_rng(len(shape)).standard_normal(shape, np.float32) / 4)


# -- plain JAX ------------------------------------------------------------------------------------

@model
def transformer() -> tuple[Any, tuple[Any, ...]]:
    def block(x: Any, w: Any) -> Any:
        h = jax.nn.standardize(x)
        q, k, v = (jnp.einsum("btd,dhk->bthk", h, w[name]) for name in "qkv")
        x = x + jnp.einsum("bthk,hkd->btd", jax.nn.dot_product_attention(
            q, k, v, is_causal=True), w["o"])
        return x + jax.nn.gelu(jax.nn.standardize(x) @ w["up"]) @ w["down"], None

    def loss(p: Any, tokens: Any) -> Any:
        x, _ = jax.lax.scan(jax.checkpoint(block), p["embed"][tokens], p["layers"])
        logits = jax.nn.log_softmax(x @ p["embed"].T)
        return -jnp.take_along_axis(logits[:, :-1], tokens[:, 1:, None], 2).mean()

    layers = {**{name: normal(2, 16, 2, 8) for name in "qkv"}, "o": normal(2, 2, 8, 16),
              "up": normal(2, 16, 64), "down": normal(2, 64, 16)}
    tokens = jax.random.randint(KEY, (8, 12), 0, 32)
    return descent(loss), ({"embed": normal(32, 16), "layers": layers}, tokens)


@model
def mixture_of_experts() -> tuple[Any, tuple[Any, ...]]:
    def loss(p: Any, x: Any) -> Any:
        weights, chosen = jax.lax.top_k(jax.nn.softmax(x @ p["router"]), 2)
        gates = (jax.nn.one_hot(chosen, 4) * weights[..., None]).sum(1)
        place = jnp.where(gates > 0, jnp.cumsum(gates > 0, 0) - 1, -1)
        sent = jax.nn.one_hot(place, 16)
        h = jax.nn.relu(jnp.einsum("td,tec,edf->ecf", x, sent, p["up"]))
        y = jnp.einsum("ecf,efd,tec,te->td", h, p["down"], sent, gates)
        return ((y - x) ** 2).mean()

    return descent(loss), ({"router": normal(16, 4), "up": normal(4, 16, 32),
                            "down": normal(4, 32, 16)}, normal(32, 16))


@model
def message_passing() -> tuple[Any, tuple[Any, ...]]:
    def loss(p: Any, x: Any, source: Any, target: Any) -> Any:
        h = x @ p["in"]
        h = jax.nn.relu(h + jax.ops.segment_sum(h[source], target, 24))
        return (jax.ops.segment_max((h @ p["out"])[source], target, 24).clip(-5, 5) ** 2).mean()

    edges = jax.random.randint(KEY, (2, 64), 0, 24)
    return descent(loss), ({"in": normal(8, 16), "out": normal(16, 4)}, normal(24, 8), *edges)


@model
def perceptron() -> tuple[Any, tuple[Any, ...]]:
    def loss(p: Any, x: Any, labels: Any) -> Any:
        for layer in p[:-1]:
            x = jax.nn.silu(x @ layer["w"] + layer["b"])
        logits = x @ p[-1]["w"] + p[-1]["b"]
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 4)).sum(-1).mean()

    params = [{"w": normal(m, n), "b": jnp.zeros(n)} for m, n in ((8, 32), (32, 32), (32, 4))]
    return descent(loss), (params, normal(16, 8), jax.random.randint(KEY, (16,), 0, 4))


def convolved(x: Any, w: Any, strides: tuple[int, int] = (1, 1)) -> Any:
    return jax.lax.conv_general_dilated(x, w, strides, "SAME",
                                        dimension_numbers=("NHWC", "HWIO", "NHWC"))


@model
def convolutions() -> tuple[Any, tuple[Any, ...]]:
    def loss(p: Any, x: Any, labels: Any) -> Any:
        x = jax.nn.relu(convolved(x, p["first"]))
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(convolved(x, p["second"], (2, 2)))
        logits = x.mean((1, 2)) @ p["out"]
        return (jax.nn.logsumexp(logits, -1) - logits[jnp.arange(8), labels]).mean()

    return descent(loss), ({"first": normal(3, 3, 3, 8), "second": normal(3, 3, 8, 8),
                            "out": normal(8, 4)},
                           normal(8, 8, 8, 3), jax.random.randint(KEY, (8,), 0, 4))


@model
def long_short_term_memory() -> tuple[Any, tuple[Any, ...]]:
    def loss(p: Any, xs: Any, ys: Any) -> Any:
        def cell(carry: Any, x: Any) -> Any:
            h, c = carry
            i, f, o, g = jnp.split(x @ p["w"] + h @ p["u"] + p["b"], 4, axis=-1)
            c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        start = jnp.zeros((xs.shape[1], 16))
        _, hs = jax.lax.scan(cell, (start, start), xs, unroll=2)
        return ((hs @ p["out"] - ys) ** 2).mean()

    return descent(loss), ({"w": normal(4, 64), "u": normal(16, 64), "b": jnp.zeros(64),
                            "out": normal(16, 2)}, normal(6, 8, 4), normal(6, 8, 2))


@model
def diffusion() -> tuple[Any, tuple[Any, ...]]:
    """A U-Net that predicts the noise: two resolutions, skip connections, a time embedding."""
    def groups(x: Any) -> Any:
        parts = x.reshape(*x.shape[:-1], 2, -1)
        mean, var = (f(parts, axis=(1, 2, 4), keepdims=True) for f in (jnp.mean, jnp.var))
        return ((parts - mean) * jax.lax.rsqrt(var + 1e-5)).reshape(x.shape)

    def block(p: Any, x: Any, t: Any) -> Any:
        h = convolved(jax.nn.silu(groups(x)), p["in"]) + (t @ p["t"])[:, None, None]
        return x @ p["skip"] + convolved(jax.nn.silu(groups(h)), p["out"])

    def attended(p: Any, x: Any) -> Any:
        q, k, v = jnp.split(groups(x).reshape(x.shape[0], -1, x.shape[-1]) @ p, 3, -1)
        scores = jax.nn.softmax(jnp.einsum("bqc,bkc->bqk", q, k) / 4)
        return x + (scores @ v).reshape(x.shape)

    def loss(p: Any, images: Any, key: Any) -> Any:
        kt, kn = jax.random.split(key)
        t = jax.random.uniform(kt, images.shape[:1])
        noise = jax.random.normal(kn, images.shape)
        level = t[:, None, None, None]
        x = jnp.sqrt(1 - level) * images + jnp.sqrt(level) * noise
        rates = jnp.exp(-jnp.arange(4.0))
        t = jnp.concatenate([jnp.sin(t[:, None] * rates), jnp.cos(t[:, None] * rates)], -1)
        wide = block(p["down"], convolved(x, p["first"]), t)
        low = attended(p["attention"], block(p["middle"], convolved(wide, p["shrink"], (2, 2)), t))
        up = jax.image.resize(low, wide.shape, "nearest")
        found = convolved(block(p["up"], jnp.concatenate([up, wide], -1), t), p["last"])
        return ((found - noise) ** 2).mean()

    def of_block(m: int, n: int) -> Any:
        return {"in": normal(3, 3, m, n), "out": normal(3, 3, n, n), "t": normal(8, n),
                "skip": normal(m, n)}

    params = {"first": normal(3, 3, 3, 8), "down": of_block(8, 8), "shrink": normal(3, 3, 8, 8),
              "middle": of_block(8, 8), "attention": normal(8, 24), "up": of_block(16, 8),
              "last": normal(3, 3, 8, 3)}
    return descent(loss), (params, normal(8, 8, 8, 3), jax.random.key(3))


# -- libraries ------------------------------------------------------------------------------------

@model
def flax_linen() -> tuple[Any, tuple[Any, ...]]:
    nn, optax = pytest.importorskip("flax.linen"), pytest.importorskip("optax")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x: Any, t: Any, train: bool = True) -> Any:
            h = nn.swish(nn.GroupNorm(4)(nn.Conv(16, (3, 3))(x)) + nn.Dense(16)(t)[:, None, None])
            h = nn.max_pool(h, (2, 2), strides=(2, 2))
            h = jax.image.resize(h, (*x.shape[:-1], 16), "nearest")
            h = nn.Dropout(0.1, deterministic=not train)(h)
            h = nn.Conv(3, (3, 3))(nn.BatchNorm(use_running_average=not train)(h))
            return h + nn.Dense(3)(nn.RNN(nn.LSTMCell(8))(x.reshape(len(x), -1, 3))).reshape(
                x.shape)

    net, x, t = Net(), normal(8, 8, 8, 3), normal(8, 4)
    variables = jax.jit(net.init)({"params": KEY, "dropout": KEY}, x, t)
    rule = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(0.1, momentum=0.9))

    def step(variables: Any, slots: Any, x: Any, t: Any, key: Any) -> Any:
        def loss(params: Any) -> Any:
            y, new = net.apply({**variables, "params": params}, x, t, rngs={"dropout": key},
                               mutable=["batch_stats"])
            return ((y - x) ** 2).mean(), new
        (value, new), slopes = jax.value_and_grad(loss, has_aux=True)(variables["params"])
        updates, slots = rule.update(slopes, slots)
        return {"params": optax.apply_updates(variables["params"], updates), **new}, slots, value
    return jax.jit(step), (variables, rule.init(variables["params"]), x, t, KEY)


@model
def flax_nnx() -> tuple[Any, tuple[Any, ...]]:
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self) -> None:
            rngs = nnx.Rngs(0)
            self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 16, rngs=rngs)
            self.norm = nnx.LayerNorm(32, rngs=rngs)

        def __call__(self, x: Any) -> Any:
            return self.down(nnx.relu(self.norm(self.up(x))))

    form, state = nnx.split(Net())
    return descent(lambda state, x: (nnx.merge(form, state)(x) ** 2).mean()), (state, normal(8, 16))


@model
def equinox() -> tuple[Any, tuple[Any, ...]]:
    eqx, optax = pytest.importorskip("equinox"), pytest.importorskip("optax")

    class Block(eqx.Module):
        norm: Any
        attention: Any
        mlp: Any

        def __call__(self, x: Any) -> Any:
            h = jax.vmap(self.norm)(x)
            x = x + self.attention(h, h, h)
            return x + jax.vmap(self.mlp)(x)

    block = Block(eqx.nn.LayerNorm(32), eqx.nn.MultiheadAttention(4, 32, key=KEY),
                  eqx.nn.MLP(32, 32, 64, 2, activation=jax.nn.gelu, key=KEY))
    rule = optax.sgd(0.1)

    @eqx.filter_jit
    def step(block: Any, slots: Any, x: Any) -> Any:
        value, slopes = eqx.filter_value_and_grad(
            lambda block: (jax.vmap(block)(x) ** 2).mean())(block)
        updates, slots = rule.update(slopes, slots, block)
        return eqx.filter(eqx.apply_updates(block, updates), eqx.is_array), slots, value
    return step, (block, rule.init(eqx.filter(block, eqx.is_array)), normal(8, 12, 32))


@model
def haiku() -> tuple[Any, tuple[Any, ...]]:
    hk = pytest.importorskip("haiku")
    net = hk.without_apply_rng(hk.transform(
        lambda x: hk.nets.MLP([32, 32, 4])(hk.Flatten()(x))))
    x = normal(8, 4, 4)
    return descent(lambda p, x: (net.apply(p, x) ** 2).mean()), (jax.jit(net.init)(KEY, x), x)
