"""What programs take on one device, compared with what the cost model says.

    python benchmarks/device_times.py                          # on JAX's first device
    python benchmarks/device_times.py --hardware h100 -k norm --json OUT

Needs JAX with that device. Each program runs by the engine `jax`, its arrays lie on the device, and
calls follow each other without waiting, so that what starting a call takes does not count where a
program takes longer than that. The model counts peak rates; devices reach about 0.8 of these.
`tests/golden/` has what was measured on an H100 and an H200 (h100_times.json, h200_times.json).
"""
from __future__ import annotations

import argparse
import importlib
import json
import math
import pathlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.engines.xla.engine import XLAProgram
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

MESH = st.make_mesh((1,), ("d",))
CALLS, ROUNDS = 20, 5
F32, BF16, I32 = np.dtype(np.float32), np.dtype(jnp.bfloat16), np.dtype(np.int32)
PROGRAMS: dict[str, tuple[Callable, Callable[[], Any]]] = {}
# bound by arithmetic, or by accesses in no order, which the model leaves out
OTHERWISE = frozenset(("sines, a chain of 20", "rows sorted", "running sums", "normal numbers",
                       "dropout and gelu", "heat equation, 20 steps"))


def struct(*shape: int, dtype: Any = F32) -> st.ShapeDtypeStruct:
    return st.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P()))


def half(*shape: int) -> st.ShapeDtypeStruct:
    return struct(*shape, dtype=BF16)


def program(name: str, *args: Any) -> Callable[[Callable], Callable]:
    def add(f: Callable) -> Callable:
        PROGRAMS[name] = f, args
        return f
    return add


@program("product, bfloat16", half(8192, 8192), half(8192, 8192))
@program("product, float32", struct(4096, 4096), struct(4096, 4096))
def product(a, b):
    return a @ b


@program("products of 4,096 128x128", half(4096, 128, 128), half(4096, 128, 128))
def products(a, b):
    return jnp.einsum("bij,bjk->bik", a, b)


@program("product, bias, relu", half(16384, 4096), half(4096, 4096), half(4096))
def layer(x, w, b):
    return nn.relu(x @ w + b)


@program("perceptron, a step", half(8192, 4096), half(4096, 16384), half(16384, 4096))
def perceptron_step(x, w1, w2):
    def loss(ws):
        return (jnp.tanh(x @ ws[0]) @ ws[1]).astype(F32).var()
    value, slopes = st.value_and_grad(loss)((w1, w2))
    return value, [w - 0.1 * g for w, g in zip((w1, w2), slopes, strict=True)]


@program("gated perceptron, gradient", half(8192, 2048), half(2048, 8192), half(2048, 8192),
         half(8192, 2048))
def gated(x, a, b, c):
    def loss(a, b, c):
        return ((nn.silu(x @ a) * (x @ b)) @ c).astype(F32).mean()
    return st.grad(loss, argnums=(0, 1, 2))(a, b, c)


@program("layer norm, gradient", struct(16384, 4096), struct(4096))
def layer_norm(x, scale):
    def norm(x, scale):
        centred = x - x.mean(-1, keepdims=True)
        return centred * lax.rsqrt((centred ** 2).mean(-1, keepdims=True) + 1e-6) * scale
    y, pull = st.vjp(norm, x, scale)
    return y, pull(y)


@program("rms norm, product", half(16384, 4096), half(4096), half(4096, 4096))
def rms_norm(x, scale, w):
    h = x.astype(F32)
    h = h * lax.rsqrt((h * h).mean(-1, keepdims=True) + 1e-6)
    return (h.astype(x.dtype) * scale) @ w


@program("group norm", struct(64, 1024, 1024))
def group_norm(x):
    y = x.reshape(x.shape[0], -1, 32, x.shape[-1] // 32)
    mean, var = y.mean((1, 3), keepdims=True), y.var((1, 3), keepdims=True)
    return ((y - mean) * lax.rsqrt(var + 1e-5)).reshape(x.shape)


@program("columns standardised", struct(65536, 2048))
def standardised(x):
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


@program("moments of rows", struct(32768, 4096))
def moments(x):
    return x.mean(-1), x.var(-1), x.max(-1)


@program("cosine of rows", struct(65536, 1024), struct(65536, 1024))
def cosine(a, b):
    return (a * b).sum(-1) / (jnp.linalg.norm(a, axis=-1) * jnp.linalg.norm(b, axis=-1))


@program("softmax", struct(16384, 8192))
def softmax(x):
    return nn.softmax(x)


@program("log softmax", struct(16384, 8192))
def log_softmax(x):
    return nn.log_softmax(x)


@program("masked softmax", struct(16384, 4096), struct(16384, 4096, dtype=np.dtype(bool)))
def masked_softmax(x, mask):
    return nn.softmax(jnp.where(mask, x, -jnp.inf))


@program("attention", *[half(8, 2048, 16, 128)] * 3)
def attention(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores), v)


@program("grouped attention, gradient", half(4, 2048, 2048), half(2048, 2048), half(2048, 512),
         half(2048, 512))
def grouped_attention(x, wq, wk, wv):
    b, t, _ = x.shape

    def loss(wq, wk, wv):
        q = (x @ wq).reshape(b, t, 4, 4, -1)
        k, v = (x @ wk).reshape(b, t, 4, -1), (x @ wv).reshape(b, t, 4, -1)
        scores = jnp.einsum("btghd,bsgd->bghts", q, k).astype(F32) / np.sqrt(q.shape[-1])
        scores = jnp.where(jnp.tril(jnp.ones((t, t), bool)), scores, -1e9)
        mixed = jnp.einsum("bghts,bsgd->btghd", nn.softmax(scores).astype(x.dtype), v)
        return (mixed.astype(F32) ** 2).mean()
    return st.grad(loss, argnums=(0, 1, 2))(wq, wk, wv)


@program("decoding step", half(64, 32, 128), half(64, 2048, 32, 128), half(64, 2048, 32, 128),
         struct(64, dtype=I32))
def decoding(q, k, v, length):
    scores = jnp.einsum("bhd,bthd->bht", q, k).astype(F32) / np.sqrt(128)
    inside = jnp.arange(k.shape[1])[None, None] < length[:, None, None]
    probs = nn.softmax(jnp.where(inside, scores, -1e9))
    return jnp.einsum("bht,bthd->bhd", probs.astype(v.dtype), v)


@program("rotary positions", struct(16384, 16, 128), struct(16384, 1, 64), struct(16384, 1, 64))
def rotary(x, cos, sin):
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, b * cos + a * sin], -1)


@program("transformer block, a step", half(8, 2048, 2048),
         {"up": half(2048, 8192), "down": half(8192, 2048),
          **{n: half(2048, 2048) for n in "qkvo"}})
def block_step(x, w):
    b, t, d = x.shape

    def loss(w):
        scale = lax.rsqrt((x.astype(F32) ** 2).mean(-1, keepdims=True) + 1e-6)
        h = x * scale.astype(x.dtype)
        q, k, v = [(h @ w[n]).reshape(b, t, 8, d // 8) for n in "qkv"]
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, k).astype(F32) / np.sqrt(d // 8)
        mixed = jnp.einsum("bhqk,bkhd->bqhd", nn.softmax(scores).astype(x.dtype), v)
        y = x + mixed.reshape(b, t, d) @ w["o"]
        return ((y + nn.gelu(y @ w["up"]) @ w["down"]).astype(F32) ** 2).mean()
    return st.value_and_grad(loss)(w)


@program("experts, dense", half(4096, 1024), half(1024, 8), half(8, 1024, 4096),
         half(8, 4096, 1024))
def experts(x, gate, wi, wo):
    probs = nn.softmax((x @ gate).astype(F32)).astype(x.dtype)
    h = nn.silu(jnp.einsum("td,edf->tef", x, wi))
    return jnp.einsum("tef,efd,te->td", h, wo, probs)


@program("cross entropy, gradient", half(8192, 2048), half(2048, 50304), struct(8192, dtype=I32))
def cross_entropy(x, w, labels):
    def loss(w):
        logp = nn.log_softmax((x @ w).astype(F32))
        return -jnp.take_along_axis(logp, labels[:, None], 1).mean()
    return st.value_and_grad(loss)(w)


@program("embedding, gradient", struct(50304, 1024), struct(16384, dtype=I32))
def embedding(table, ids):
    return st.grad(lambda t: (t[ids] ** 2).mean())(table)


@program("rows of a table", struct(65536, 1024), struct(131072, dtype=I32))
def rows(table, ids):
    return table[ids]


@program("layers, scanned", half(4096, 2048), half(24, 2048, 2048))
def scanned(x, ws):
    return lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, ws)[0]


@program("layers, scanned and checkpointed, gradient", half(8192, 2048), half(12, 2048, 2048))
def checkpointed(x, ws):
    def loss(ws):
        body = st.checkpoint(lambda h, w: (nn.gelu(h @ w), None))
        return (lax.scan(body, x, ws)[0].astype(F32) ** 2).mean()
    return st.grad(loss)(ws)


@program("lstm, 64 steps", half(64, 4096, 1024), half(1024, 8192), half(2048, 8192))
def lstm(x, w, u):
    def body(carry, xt):
        h, s = carry
        i, f, o, g = jnp.split(xt @ w + h @ u, 4, axis=-1)
        s = nn.sigmoid(f) * s + nn.sigmoid(i) * jnp.tanh(g)
        return (nn.sigmoid(o) * jnp.tanh(s), s), None
    zeros = jnp.zeros((x.shape[1], u.shape[0]), x.dtype)
    return lax.scan(body, (zeros, zeros), x)[0][0]


@program("convolution, relu", half(64, 64, 64, 256), half(3, 3, 256, 256))
def convolution(x, k):
    return nn.relu(_convolved(x, k))


@program("convolution, batch norm, a step", half(32, 64, 64, 256), half(3, 3, 256, 256),
         struct(256))
def batch_norm(x, k, scale):
    def loss(k, scale):
        y = _convolved(x, k).astype(F32)
        mean, var = y.mean((0, 1, 2)), y.var((0, 1, 2))
        return (nn.relu((y - mean) * lax.rsqrt(var + 1e-5) * scale) ** 2).mean()
    return st.value_and_grad(loss, argnums=(0, 1))(k, scale)


def _convolved(x, k):
    return lax.conv_general_dilated(x, k, (1, 1), "SAME",
                                    dimension_numbers=("NHWC", "HWIO", "NHWC"))


@program("adam", *[struct(8192, 8192)] * 4)
def adam(p, g, m, v):
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return p - 1e-3 * m / (jnp.sqrt(v) + 1e-8), m, v


@program("clipped by norm", [struct(4096, 8192)] * 4, [struct(4096, 8192)] * 4)
def clipped(ws, gs):
    norm = jnp.sqrt(sum((g ** 2).sum() for g in gs))
    return [w - 0.1 * g * jnp.minimum(1, 1 / norm) for w, g in zip(ws, gs, strict=True)]


@program("transposed", struct(8192, 8192))
def transposed(x):
    return x.T + 1


@program("largest of rows", struct(16384, 8192))
def largest(x):
    return x.argmax(-1)


@program("sines, a chain of 20", struct(8192, 8192))
def sines(x):
    for _ in range(10):
        x = jnp.sin(x) * 1.1 + 0.3
    return x


@program("rows sorted", struct(4096, 8192))
def rows_sorted(x):
    return jnp.sort(x, axis=-1)


@program("running sums", struct(8192, 8192))
def running_sums(x):
    return jnp.cumsum(x, axis=0)


@program("normal numbers", random.key(0))
def normal(key):
    return random.normal(key, (4096, 4096))


@program("dropout and gelu", random.key(0), struct(8192, 8192))
def dropout(key, x):
    return jnp.where(random.bernoulli(key, 0.9, x.shape), nn.gelu(x) / 0.9, 0)


@program("heat equation, 20 steps", struct(8192, 8192))
def heat(x):
    def step(_, x):
        around = sum(jnp.roll(x, by, d) for by in (1, -1) for d in (0, 1))
        return x + 0.1 * (around - 4 * x)
    return lax.fori_loop(0, 20, step, x)


def modelled(name: str, hardware: str) -> float:
    """Seconds of a program by the cost model."""
    f, args = PROGRAMS[name]
    return st.explain(f, hardware=hardware)(*args).time


def measured(name: str) -> float:
    """Seconds of a program on JAX's first device, the least of several means."""
    jax = importlib.import_module("jax")
    f, args = PROGRAMS[name]
    compiled = st.jit(f).lower(*args).compile()
    loaded = XLAProgram(compiled.program, compiled.runtime_executable().placement.abstract_mesh)
    run, key = loaded.compiled(), jax.random.key(0)
    given = [jax.device_put(_numbers(jax, key, x), s)
             for x, s in zip(st.tree.leaves(args), loaded.sharding, strict=True)]
    return seconds_of_a_call(jax, run, given)


def seconds_of_a_call(jax: Any, run: Callable, given: list[Any]) -> float:
    """Seconds of a call among others that do not wait for it, the least of several means."""
    for _ in range(3):
        results = run(*given)
    means = []
    for _ in range(ROUNDS):
        jax.block_until_ready(results)
        start = time.perf_counter()
        for _ in range(CALLS):
            results = run(*given)
        jax.block_until_ready(results)
        means.append((time.perf_counter() - start) / CALLS)
    return min(means)


def _numbers(jax: Any, key: Any, x: Any) -> Any:
    """Random numbers of a type; a key for a key."""
    if isinstance(x, st.Array):
        return key
    if x.dtype == bool:
        return jax.random.bernoulli(key, 0.5, x.shape)
    if x.dtype == I32:
        return jax.random.randint(key, x.shape, 0, 50_000)       # rows, or words
    return jax.random.uniform(key, x.shape, x.dtype, 0.01, 0.1)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--hardware", default="h100", help="for whose time (default h100)")
    parser.add_argument("-k", default="", help="only programs whose name has this")
    parser.add_argument("--json", metavar="FILE", help="write the seconds measured")
    options = parser.parse_args()
    found, parts = {}, []
    print(f"{'program':46} {'modelled':>10} {'measured':>10} {'model / measured':>17}")
    for name in PROGRAMS:
        if options.k not in name:
            continue
        found[name], model = measured(name), modelled(name, options.hardware)
        parts.append(model / found[name])
        print(f"{name:46} {model * 1e3:7.3f} ms {found[name] * 1e3:7.3f} ms {parts[-1]:17.2f}",
              flush=True)
    mean = math.exp(statistics.fmean(map(math.log, parts)))
    print(f"model / measured: {mean:.2f} (geometric mean), {min(parts):.2f} to {max(parts):.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
