"""Computing intermediate values again instead of keeping them, as in `jax.ad_checkpoint`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.autodiff.rematerialization.checkpoint import (
    checkpoint,
    checkpoint_name,
    checkpoint_policies,
)
from shardtrace.tracer.autodiff.rematerialization.saved_residuals import print_saved_residuals

__all__ = ["checkpoint", "checkpoint_name", "checkpoint_policies", "print_saved_residuals"]
_bound_names(globals(), "checkpoint")
