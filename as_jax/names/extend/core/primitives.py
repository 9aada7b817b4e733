"""Calls that no function of JAX makes any more, as keys of tables."""
from . import Primitive

__all__ = ["call_p", "closed_call_p"]
call_p = Primitive("call")
closed_call_p = Primitive("closed_call")
