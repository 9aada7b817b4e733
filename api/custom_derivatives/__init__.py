"""Functions with derivatives of their own, as in `jax.custom_derivatives`."""
from shardtrace import driver as _driver  # noqa: F401 - declares the ops and how they run
from shardtrace.ir.api_boundary import bound_names as _bound_names
from shardtrace.tracer.autodiff.custom.closures import closure_convert, custom_gradient
from shardtrace.tracer.autodiff.custom.common import SymbolicZero, zero_from_primal
from shardtrace.tracer.autodiff.custom.custom_jvp import custom_jvp
from shardtrace.tracer.autodiff.custom.custom_vjp import (
    CustomVJPPrimal,
    custom_vjp,
    custom_vjp_primal_tree_values,
)
from shardtrace.tracer.primitives import primitives_of as _primitives_of

__all__ = ["CustomVJPPrimal", "SymbolicZero", "closure_convert", "custom_gradient", "custom_jvp",
           "custom_vjp", "custom_vjp_primal_tree_values", "zero_from_primal"]
__getattr__ = _primitives_of("shardtrace.custom_derivatives")
_bound_names(globals())
