"""Optimizers of optax on a linear model: schedules, clipping, masks, accumulation, line search."""
import jax
import jax.numpy as jnp
import optax

x = jax.random.normal(jax.random.key(0), (32, 8))
y = jnp.argmax(x @ jax.random.normal(jax.random.key(1), (8, 4)), axis=1)
start = {"w": jax.random.normal(jax.random.key(2), (8, 4)) / 3, "b": jnp.zeros(4)}


def loss(params):
    logits = x @ params["w"] + params["b"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()


rate = optax.warmup_cosine_decay_schedule(0.0, 0.1, 2, 10)
optimizers = {
    "sgd": optax.sgd(0.1, momentum=0.9, nesterov=True),
    "adamw": optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate)),
    "masked": optax.chain(optax.add_decayed_weights(1e-2, mask={"w": True, "b": False}),
                          optax.rmsprop(0.01)),
    "lion": optax.lion(0.01),
    "adafactor": optax.adafactor(0.1),
    "lamb": optax.lamb(0.1),
    "sm3": optax.sm3(0.1),
    "accumulated": optax.MultiSteps(optax.adam(0.1), every_k_schedule=2),
    "injected": optax.inject_hyperparams(optax.adam)(learning_rate=rate),
    "parts": optax.multi_transform({"a": optax.sgd(0.1), "f": optax.set_to_zero()},
                                   {"w": "a", "b": "f"}),
    "lbfgs": optax.lbfgs(),
    "ema": optax.chain(optax.adam(0.1), optax.ema(0.9)),
    "schedule_free": optax.contrib.schedule_free_adamw(0.1),
    "muon": optax.contrib.muon(0.1),
}
for name, optimizer in optimizers.items():
    params, state = start, optimizer.init(start)

    @jax.jit
    def step(params, state, optimizer=optimizer):
        value, grads = jax.value_and_grad(loss)(params)
        updates, state = optimizer.update(
            grads, state, params, **({"value": value, "grad": grads, "value_fn": loss}
                                     if isinstance(optimizer, optax.GradientTransformationExtraArgs)
                                     else {}))
        return optax.apply_updates(params, updates), state, value

    for _ in range(3):
        params, state, value = step(params, state)
        print(name, float(value))
