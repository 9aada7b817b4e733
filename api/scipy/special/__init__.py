"""The special functions that programs on sharding import from `jax.scipy.special`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.tracer.nn import log_softmax, logsumexp, softmax
from shardtrace.tracer.nn import sigmoid as expit

__all__ = ["expit", "log_softmax", "logsumexp", "softmax"]
