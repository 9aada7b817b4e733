"""JAX's programs (jaxprs), traced again equation by equation.

from_jax.py makes the function that a user gets (interop/imported.py); equations.py replays a jaxpr
under our tracing, most equations by the op of the same name, control.py those that hold programs,
special.py those that differ otherwise. values.py translates types, shardings, meshes and params,
locations.py the places in the user's source; watching.py records what JAX traces elsewhere.
Nothing is differentiated or batched here: what comes in is traced, gradients included.
"""
