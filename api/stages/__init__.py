"""What a jitted function is before it runs: `jit(f).trace(x).lower().compile()`."""
from shardtrace.driver.jit.jitted import Jitted as Wrapped
from shardtrace.driver.jit.stage_info import ArgInfo
from shardtrace.driver.jit.stages import Compiled, Lowered, Traced
from shardtrace.ir.api_boundary import bound_names as _bound_names

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
_bound_names(globals())
