"""Haiku: transform_with_state, batch norm, attention, an LSTM over time, random keys."""
import haiku as hk
import jax
import jax.numpy as jnp
import optax


def forward(x, train):
    x = hk.Conv1D(8, 3)(x)
    x = hk.BatchNorm(True, True, 0.9)(x, train)
    x = jax.nn.relu(x)
    x = hk.dropout(hk.next_rng_key(), 0.1, x) if train else x
    x = x + hk.MultiHeadAttention(2, 4, w_init=hk.initializers.VarianceScaling(1.0))(x, x, x)
    lstm = hk.LSTM(8)
    out, _ = hk.dynamic_unroll(lstm, x, lstm.initial_state(x.shape[0]), time_major=False)
    return hk.nets.MLP([16, 3])(hk.LayerNorm(-1, True, True)(out[:, -1]))


model = hk.transform_with_state(forward)
x = jax.random.normal(jax.random.key(0), (8, 6, 4))
y = jax.nn.one_hot(jnp.arange(8) % 3, 3)
params, state = model.init(jax.random.key(1), x, True)
optimizer = optax.adam(1e-2)
opt_state = optimizer.init(params)


@jax.jit
def step(params, state, opt_state, key):
    def loss(params):
        logits, new = model.apply(params, state, key, x, True)
        return optax.softmax_cross_entropy(logits, y).mean(), new

    (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
    updates, opt_state = optimizer.update(grads, opt_state)
    return optax.apply_updates(params, updates), new, opt_state, value


for i in range(3):
    params, state, opt_state, value = step(params, state, opt_state, jax.random.key(i))
    print(float(value))
print(hk.data_structures.tree_size(params))
