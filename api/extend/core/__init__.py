"""Programs and their parts by their names in `jax.extend.core`."""
from shardtrace.ir.op import Op as Primitive
from shardtrace.ir.program import Equation as JaxprEqn
from shardtrace.ir.program import Literal, Var
from shardtrace.ir.program import Program as ClosedJaxpr
from shardtrace.ir.program import Program as Jaxpr
from shardtrace.tracer.evaluation import jaxpr_as_fun

from shardtrace.extend.core import primitives  # isort: skip

__all__ = ["ClosedJaxpr", "Jaxpr", "JaxprEqn", "Literal", "Primitive", "Var", "jaxpr_as_fun",
           "primitives"]
