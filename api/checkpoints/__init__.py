"""Arrays to files and back: `save` and `restore`; see docs/checkpoints.md.

Not to be taken for `checkpoint`, which is JAX's name for recomputing in the backward pass.
"""
from shardtrace.driver.checkpoints.save_restore import restore, save
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["restore", "save"]
_bound_names(globals())
