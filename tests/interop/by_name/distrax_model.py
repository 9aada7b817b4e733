"""Distributions and bijectors of distrax: a flow fitted by maximum likelihood, a divergence."""
import distrax
import jax
import jax.numpy as jnp

x = 2.0 + 0.5 * jax.random.normal(jax.random.key(0), (64, 2))


def flow(params):
    base = distrax.MultivariateNormalDiag(jnp.zeros(2), jnp.ones(2))
    bijector = distrax.Block(distrax.ScalarAffine(params["shift"], jnp.exp(params["scale"])), 1)
    return distrax.Transformed(base, bijector)


def loss(params):
    mixture = distrax.Categorical(logits=params["logits"])
    uniform = distrax.Categorical(logits=jnp.zeros(3))
    return -flow(params).log_prob(x).mean() + mixture.kl_divergence(uniform)


params = {"shift": jnp.zeros(2), "scale": jnp.zeros(2), "logits": jnp.array([1.0, 0.0, -1.0])}
step = jax.jit(jax.value_and_grad(loss))
for _ in range(3):
    value, grads = step(params)
    params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
    print(float(value))
samples, log_prob = flow(params).sample_and_log_prob(seed=jax.random.key(1), sample_shape=(4,))
print(float(samples.sum()), float(log_prob.sum()))
print(float(distrax.Normal(0.0, 2.0).entropy()), float(distrax.Bernoulli(probs=0.3).mean()))
