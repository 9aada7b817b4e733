"""Equinox: transformer blocks trained with optax, then a convolution, a GRU, a batch norm."""
import equinox as eqx
import jax
import jax.numpy as jnp
import optax


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    mlp: eqx.nn.MLP
    dropout: eqx.nn.Dropout

    def __init__(self, width, key):
        a, b = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(2, width, key=a)
        self.norm = eqx.nn.LayerNorm(width)
        self.mlp = eqx.nn.MLP(width, width, 16, 1, activation=jax.nn.gelu, key=b)
        self.dropout = eqx.nn.Dropout(0.1)

    def __call__(self, x, key):
        h = jax.vmap(self.norm)(x)
        x = x + self.dropout(self.attention(h, h, h), key=key)
        return x + jax.vmap(self.mlp)(x)


class Model(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 4)
        self.embed = eqx.nn.Embedding(16, 8, key=keys[0])
        self.blocks = [Block(8, keys[1]), Block(8, keys[2])]
        self.head = eqx.nn.Linear(8, 16, key=keys[3])

    def __call__(self, tokens, key):
        x = jax.vmap(self.embed)(tokens)
        for block, k in zip(self.blocks, jax.random.split(key, len(self.blocks)), strict=True):
            x = block(x, k)
        return jax.vmap(self.head)(x)


@eqx.filter_value_and_grad
def loss(model, tokens, key):
    logits = jax.vmap(model)(tokens[:, :-1], jax.random.split(key, tokens.shape[0]))
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@eqx.filter_jit
def step(model, state, tokens, key):
    value, grads = loss(model, tokens, key)
    updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
    return eqx.apply_updates(model, updates), state, value


model = Model(jax.random.key(0))
optimizer = optax.adamw(1e-2)
state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
tokens = jax.random.randint(jax.random.key(1), (4, 9), 0, 16)
for i in range(3):
    model, state, value = step(model, state, tokens, jax.random.key(i))
    print(float(value))
model = eqx.tree_at(lambda m: m.head.bias, model, jnp.zeros(16))
inference = eqx.nn.inference_mode(model)
print(float(jnp.mean(jax.vmap(lambda t: inference(t, jax.random.key(0)))(tokens))))

conv = eqx.nn.Sequential([eqx.nn.Conv2d(1, 2, 3, key=jax.random.key(2)), eqx.nn.Lambda(jax.nn.relu),
                          eqx.nn.MaxPool2d(2, 2), eqx.nn.Lambda(jnp.ravel),
                          eqx.nn.Linear(18, 1, key=jax.random.key(3))])
print(float(conv(jnp.linspace(0, 1, 64).reshape(1, 8, 8))[0]))
cell = eqx.nn.GRUCell(4, 8, key=jax.random.key(4))
h, _ = jax.lax.scan(lambda h, x: (cell(x, h), None), jnp.zeros(8), jnp.ones((5, 4)))
print(float(h.sum()))
norm, bn_state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, "batch", mode="batch")
out, bn_state = jax.vmap(norm, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(
    jax.random.normal(jax.random.key(5), (8, 4)), bn_state)
print(float(jnp.std(out)))
