"""A regression in numpyro: three steps of SVI with an automatic guide, and a short NUTS chain."""
import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import MCMC, NUTS, SVI, Predictive, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

x = jax.random.normal(jax.random.key(0), (32, 3))
y = x @ jnp.array([1.0, -2.0, 0.5]) + 0.1 * jax.random.normal(jax.random.key(1), (32,))


def model(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([3]).to_event(1))
    sigma = numpyro.sample("sigma", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ w, sigma), obs=y)


guide = AutoNormal(model)
svi = SVI(model, guide, numpyro.optim.Adam(0.1), Trace_ELBO())
state = svi.init(jax.random.PRNGKey(2), x, y)
for _ in range(3):
    state, value = jax.jit(svi.update)(state, x, y)
    print(float(value))
chain = MCMC(NUTS(model), num_warmup=5, num_samples=5, progress_bar=False)
chain.run(jax.random.PRNGKey(3), x, y)
print(chain.get_samples()["w"].shape)
print(Predictive(model, chain.get_samples())(jax.random.PRNGKey(4), x)["y"].shape)
