"""Types and tracers by their names in `jax.core`: `isinstance(typeof(x), ShapedArray)`."""
from shardtrace.ir.diagnostics.errors import ShardingTypeError
from shardtrace.ir.types import ArrayType as AbstractValue
from shardtrace.ir.types import ArrayType as ShapedArray
from shardtrace.ir.values.typeof import typeof
from shardtrace.tracer.evaluation import eval_jaxpr
from shardtrace.tracer.staging.tracer import Tracer

__all__ = ["AbstractValue", "ShapedArray", "ShardingTypeError", "Tracer", "eval_jaxpr", "typeof"]
