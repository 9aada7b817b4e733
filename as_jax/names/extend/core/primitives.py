"""Primitives that JAX no longer binds, but that libraries still use as keys of their tables."""
from . import Primitive

__all__ = ["call_p", "closed_call_p"]
call_p = Primitive("call")
closed_call_p = Primitive("closed_call")
