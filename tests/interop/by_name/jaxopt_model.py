"""Solvers of jaxopt on least squares, three steps each, and a gradient through one."""
import jax
import jax.numpy as jnp
import jaxopt

x = jax.random.normal(jax.random.key(0), (32, 5))
y = x @ jnp.arange(1.0, 6.0) + 0.1 * jax.random.normal(jax.random.key(1), (32,))


def squares(w, x, y):
    return 0.5 * jnp.mean((x @ w - y) ** 2)


start = jnp.zeros(5)
solvers = {
    "gradient": jaxopt.GradientDescent(squares, maxiter=3),
    "lbfgs": jaxopt.LBFGS(squares, maxiter=3),
    "nonlinear_cg": jaxopt.NonlinearCG(squares, maxiter=3),
    "bfgs": jaxopt.BFGS(squares, maxiter=3),
    "gauss_newton": jaxopt.GaussNewton(lambda w, x, y: x @ w - y, maxiter=3),
}
for name, solver in solvers.items():
    state, w = solver.init_state(start, x=x, y=y), start
    for _ in range(3):
        w, state = solver.update(w, state, x=x, y=y)
        print(name, float(squares(w, x, y)))
lasso = jaxopt.ProximalGradient(squares, jaxopt.prox.prox_lasso, maxiter=3)
print("lasso", float(squares(lasso.run(start, hyperparams_prox=0.1, x=x, y=y).params, x, y)))
ridge = jaxopt.LBFGS(lambda w, l2, x, y: squares(w, x, y) + 0.5 * l2 * jnp.sum(w ** 2), maxiter=20)


def outer(l2):
    return squares(ridge.run(start, l2=l2, x=x[:16], y=y[:16]).params, x[16:], y[16:])


print("outer", float(jax.grad(outer)(0.1)))
