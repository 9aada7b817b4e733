"""A flax.nnx network: modules with state, nnx.jit, nnx.value_and_grad, nnx.Optimizer."""
import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Block(nnx.Module):
    def __init__(self, width, *, rngs):
        self.norm = nnx.LayerNorm(width, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(2, width, decode=False, rngs=rngs)
        self.up = nnx.Linear(width, 16, rngs=rngs)
        self.down = nnx.Linear(16, width, rngs=rngs)
        self.dropout = nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.dropout(self.down(nnx.gelu(self.up(x))))


class Model(nnx.Module):
    def __init__(self, *, rngs):
        self.embed = nnx.Embed(16, 8, rngs=rngs)
        self.blocks = nnx.List([Block(8, rngs=rngs) for _ in range(2)])
        self.norm = nnx.BatchNorm(8, rngs=rngs)
        self.head = nnx.Linear(8, 16, rngs=rngs)

    def __call__(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(model, tokens):
    logits = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


@nnx.jit
def step(model, optimizer, tokens):
    value, grads = nnx.value_and_grad(loss)(model, tokens)
    optimizer.update(model, grads)
    return value


model = Model(rngs=nnx.Rngs(0))
optimizer = nnx.Optimizer(model, optax.adamw(1e-2), wrt=nnx.Param)
tokens = jax.random.randint(jax.random.key(1), (4, 9), 0, 16)
for _ in range(3):
    print(float(step(model, optimizer, tokens)))
model.eval()
print(float(jnp.mean(model(tokens))))
graph, state = nnx.split(model, nnx.Param, ...)[:2]
print(sum(leaf.size for leaf in jax.tree.leaves(state)))
