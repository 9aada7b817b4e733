"""Vector quantisation, as in `jax.scipy.cluster.vq`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.scipy.cluster import vq

__all__ = ["vq"]
_bound_names(globals())
