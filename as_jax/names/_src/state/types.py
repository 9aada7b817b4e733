"""The types of mutable references."""
from .....tracer.references.ref import AbstractRef

__all__ = ["AbstractRef"]
