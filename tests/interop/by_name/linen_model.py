"""A flax.linen network: convolution, batch norm, dropout, attention, a TrainState of optax."""
import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class Model(nn.Module):
    @nn.compact
    def __call__(self, x, train):
        x = nn.Conv(4, (3, 3))(x)
        x = nn.BatchNorm(use_running_average=not train)(x)
        x = nn.max_pool(nn.relu(x), (2, 2), strides=(2, 2))
        x = x.reshape(x.shape[0], -1, 4)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
        x = nn.Dropout(0.2, deterministic=not train)(x.reshape(x.shape[0], -1))
        return nn.Dense(3)(x)


class State(train_state.TrainState):
    batch_stats: dict


x = jax.random.normal(jax.random.key(0), (8, 8, 8, 1))
y = jnp.arange(8) % 3
model = Model()
variables = model.init({"params": jax.random.key(1), "dropout": jax.random.key(2)}, x, train=False)
state = State.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(1e-2),
                     batch_stats=variables["batch_stats"])


@jax.jit
def step(state, key):
    def loss(params):
        logits, new = state.apply_fn(
            {"params": params, "batch_stats": state.batch_stats}, x, train=True,
            rngs={"dropout": key}, mutable=["batch_stats"])
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads).replace(batch_stats=new["batch_stats"]), value


for i in range(3):
    state, value = step(state, jax.random.fold_in(jax.random.key(3), i))
    print(float(value))


class Recurrent(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.RNN(nn.LSTMCell(8))(x)
        stack = nn.scan(Layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return nn.remat(nn.Dense)(4)(stack()(x, None)[0])


class Layer(nn.Module):
    @nn.compact
    def __call__(self, x, _):
        return nn.tanh(nn.Dense(8)(x)), None


recurrent = Recurrent()
out, params = recurrent.init_with_output(jax.random.key(4), jnp.ones((2, 5, 4)))
print(float(out.sum()), sum(p.size for p in jax.tree.leaves(params)))
