"""Primitives by their names in `jax.extend.core.primitives`: the op `add` is `add_p`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.primitives import primitives_of as _primitives_of

__all__: list[str] = []
__getattr__ = _primitives_of("shardtrace.extend.core.primitives")
