"""`jax.extend.linear_util`: functions wrapped by a stack of transformations."""
from ...wrapped_functions import WrappedFun, transformation, transformation2, wrap_init

__all__ = ["WrappedFun", "transformation", "transformation2", "wrap_init"]
