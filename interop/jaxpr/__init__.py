"""JAX's programs (jaxprs), traced again equation by equation.

from_jax.py makes the function that a user gets (interop/imported.py); equations.py replays a jaxpr
under our tracing, most equations by the op of the same name, control.py those that hold programs,
special_primitives.py those that differ otherwise. locations.py translates the places in the user's
source, and `interop/jax_values.py` types, shardings, meshes and params; watching.py records what
JAX traces elsewhere.
Nothing is differentiated or batched here: what comes in is traced, gradients included.
"""
