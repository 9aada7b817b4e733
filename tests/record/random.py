"""Record random numbers that JAX draws into tests/golden/random.json, for tests/tracer/test_random.

    ORACLE -m tests.record.random          ORACLE: a Python with jax 0.10.2

Each case is an expression over `random`, `jnp`, `np`, `initializers` and a key `k`, the dtype and
shape of its result, its values, and the relative error that is allowed: none for what is made of
bits and for normal numbers, a few units in the last place where a logarithm or a sum comes between.
"""
from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np
from jax import random
from jax.nn import initializers

from ..paths import GOLDEN

EXACT = [
    "random.key_data(k)",
    "random.PRNGKey(7)",
    "random.PRNGKey(-3)",
    "random.PRNGKey(2**40 + 5)",
    "random.split(random.PRNGKey(1), 4)",
    "random.key_data(random.split(k))",
    "random.key_data(random.split(k, (2, 3)))",
    "random.key_data(random.fold_in(k, 123))",
    "random.key_data(random.fold_in(k, np.int32(-1)))",
    "random.fold_in(random.PRNGKey(1), 9)",
    "random.bits(k, (3, 5))",
    "random.bits(k, (7,), 'uint8')",
    "random.bits(k, (7,), 'uint16')",
    "random.bits(random.PRNGKey(3), ())",
    "random.randint(k, (12,), 0, 10)",
    "random.randint(k, (12,), -5, 2**31 - 1)",
    "random.randint(k, (6,), -100, 100, 'int8')",
    "random.randint(k, (6,), 0, 256, 'uint8')",
    "random.randint(k, (4, 3), jnp.arange(3), jnp.arange(3) + 5)",
    "random.randint(k, (3,), 5, 5)",
    "random.bernoulli(k, 0.3, (4, 6))",
    "random.bernoulli(k, jnp.array([0.1, 0.5, 0.9]))",
    "random.bernoulli(k, 0.3, (8,), mode='high')",
    "random.rademacher(k, (10,))",
    "random.rademacher(k, (4,), 'float32')",
    "random.permutation(k, 11)",
    "random.permutation(k, jnp.arange(12).reshape(4, 3))",
    "random.permutation(k, jnp.arange(12).reshape(4, 3), axis=1, independent=True)",
    "random.choice(k, 10, (5,))",
    "random.choice(k, 10, (5,), replace=False)",
    "random.choice(k, jnp.arange(8) * 10, (2, 3))",
    "random.choice(k, jnp.arange(12).reshape(4, 3), (2,), axis=1)",
    "random.choice(k, 4, (9,), p=jnp.array([0.1, 0.2, 0.3, 0.4]))",
    "random.choice(k, 4, (3,), replace=False, p=jnp.array([0.1, 0.2, 0.3, 0.4]))",
    "random.categorical(k, jnp.log(jnp.array([[0.1, 0.9], [0.6, 0.4]])), shape=(5, 2))",
    "random.categorical(k, jnp.zeros((3, 4)), axis=0)",
    "random.categorical(k, jnp.arange(5.0), shape=(3,), replace=False)",
    "random.geometric(k, 0.3, (9,))",
    "random.uniform(k, (3, 5))",
    "random.uniform(k, ())",
    "random.uniform(random.split(k)[1], (4,), minval=-2.0, maxval=6.0)",
    "random.uniform(k, (5,), 'bfloat16')",
    "random.uniform(k, (5,), 'float16')",
    "random.normal(k, (3, 7))",
    "random.normal(k, ())",
    "random.normal(random.PRNGKey(42), (1000,))[::50]",
    "random.normal(k, (6,), 'bfloat16')",
    "random.poisson(k, 3.0, (8,))",
    "random.poisson(k, jnp.array([0.0, 0.5, 9.0, 50.0, 1000.0]))",
    "random.binomial(k, 10, 0.3, (8,))",
    "random.binomial(k, 1000, jnp.array([0.1, 0.5, 0.9]))",
    "random.multinomial(k, 20, jnp.array([0.2, 0.3, 0.5]))",
]
CLOSE = [
    "random.normal(k, (4,), 'float16')",
    "random.normal(k, (4,), 'complex64')",
    "random.truncated_normal(k, -1.0, 2.0, (6,))",
    "random.truncated_normal(k, jnp.array([0.0, 1.0]), 3.0)",
    "random.lognormal(k, 0.5, (5,))",
    "random.maxwell(k, (4,))",
    "random.double_sided_maxwell(k, 1.0, 2.0, (4,))",
    "random.rayleigh(k, 2.0, (4,))",
    "random.wald(k, 1.5, (5,))",
    "random.exponential(k, (6,))",
    "random.laplace(k, (6,))",
    "random.logistic(k, (6,))",
    "random.cauchy(k, (6,))",
    "random.pareto(k, 2.5, (5,))",
    "random.weibull_min(k, 2.0, 1.5, (5,))",
    "random.triangular(k, 0.0, 1.0, 3.0, (6,))",
    "random.gumbel(k, (6,))",
    "random.gumbel(k, (6,), mode='high')",
    "random.gumbel(k, (6,), mode='highest')",
    "random.gamma(k, 2.5, (6,))",
    "random.gamma(k, jnp.array([0.05, 0.5, 1.0, 7.0, 300.0]))",
    "random.loggamma(k, jnp.array([0.001, 0.5, 3.0]))",
    "random.beta(k, 2.0, 3.0, (5,))",
    "random.dirichlet(k, jnp.array([0.5, 1.0, 2.0]), (3,))",
    "random.chisquare(k, 4.0, (5,))",
    "random.t(k, 5.0, (5,))",
    "random.f(k, 4.0, 6.0, (5,))",
    "random.generalized_normal(k, 1.5, (5,))",
    "random.ball(k, 3, shape=(4,))",
    "random.orthogonal(k, 3)",
    "random.orthogonal(k, 4, (2,), m=2)",
    "random.multivariate_normal(k, jnp.arange(2.0), jnp.array([[2.0, 0.5], [0.5, 1.0]]), (3,))",
    "initializers.uniform()(k, (3, 2))",
    "initializers.normal(0.1)(k, (3, 2))",
    "initializers.truncated_normal()(k, (3, 2))",
    "initializers.constant(3.5)(k, (2,))",
    "initializers.glorot_uniform()(k, (3, 4))",
    "initializers.glorot_normal()(k, (3, 4))",
    "initializers.lecun_normal()(k, (3, 4))",
    "initializers.he_uniform(in_axis=0, out_axis=2, batch_axis=1)(k, (3, 2, 4))",
    "initializers.he_normal()(k, (2, 2, 3, 4))",
    "initializers.variance_scaling(1.0, 'fan_geo_avg', 'normal')(k, (3, 4))",
    "initializers.variance_scaling(1.0, 'fan_in', 'uniform')(k, (3, 4), 'complex64')",
    "initializers.variance_scaling(1.0, 'fan_in', 'truncated_normal')(k, (3, 4), 'complex64')",
    "initializers.orthogonal()(k, (4, 3))",
    "initializers.delta_orthogonal()(k, (3, 2, 4))",
]


def plain(value: jax.Array) -> list:
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return [plain(array.real), plain(array.imag)]
    return array.astype(np.float64 if array.dtype.kind not in "iub" else array.dtype).tolist()


def case(expression: str, tolerance: float) -> dict:
    scope = {"random": random, "jnp": jnp, "np": np, "initializers": initializers,
             "k": random.key(2024)}
    value = eval(expression, scope)
    return {"expression": expression, "dtype": str(value.dtype), "shape": list(value.shape),
            "rtol": tolerance, "values": plain(value)}


if __name__ == "__main__":
    cases = [case(e, 0.0) for e in EXACT] + [case(e, 2e-6) for e in CLOSE]
    lines = ",\n".join(json.dumps(c) for c in cases)
    target = GOLDEN / "random.json"
    target.write_text(f'{{"jax": "{jax.__version__}", "cases": [\n{lines}\n]}}\n')
    print(f"{len(cases)} cases in {target}")
