"""Functions that transformations wrap one by one."""
from ...wrapped_functions import WrappedFun, transformation, transformation2, wrap_init

__all__ = ["WrappedFun", "transformation", "transformation2", "wrap_init"]
