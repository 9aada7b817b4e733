"""Attention written with einops: rearrange, reduce, repeat and einsum inside jit and grad."""
import jax
import jax.numpy as jnp
from einops import einsum, pack, rearrange, reduce, repeat, unpack


def attention(params, x):
    q, k, v = rearrange(x @ params["qkv"], "b t (n h d) -> n b h t d", n=3, h=2)
    weights = jax.nn.softmax(einsum(q, k, "b h t d, b h s d -> b h t s") / 2.0, axis=-1)
    out = rearrange(einsum(weights, v, "b h t s, b h s d -> b h t d"), "b h t d -> b t (h d)")
    return out @ params["out"]


def loss(params, x):
    token = repeat(params["token"], "d -> b 1 d", b=x.shape[0])
    packed, shapes = pack([token, x], "b * d")
    first, rest = unpack(attention(params, packed), shapes, "b * d")
    return jnp.mean(reduce(rest, "b t d -> b d", "mean") ** 2) + jnp.mean((first - 1) ** 2)


keys = jax.random.split(jax.random.key(0), 3)
params = {"qkv": jax.random.normal(keys[0], (8, 24)) / 3, "token": jnp.ones(8),
          "out": jax.random.normal(keys[1], (8, 8)) / 3}
x = jax.random.normal(keys[2], (4, 6, 8))
step = jax.jit(jax.value_and_grad(loss))
for _ in range(3):
    value, grads = step(params, x)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    print(float(value))
