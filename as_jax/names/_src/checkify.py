"""What `jax.experimental.checkify` has, with the classes of errors."""
from __future__ import annotations

from typing import Any

from ....tracer.checkify import errors as _errors
from ....tracer.checkify.check import check, check_error, debug_check
from ....tracer.checkify.checkify import checkify

_ERRORS = (
    "BatchedError", "DivisionByZeroError", "Error", "ErrorCategory", "ErrorEffect",
    "FailedCheckError", "JaxException", "JaxRuntimeError", "NaNError", "OOBError", "all_checks",
    "automatic_checks", "div_checks", "float_checks", "index_checks", "init_error", "nan_checks",
    "user_checks")
__all__ = ["Out", "check", "check_error", "checkify", "debug_check", *_ERRORS]
globals().update({name: getattr(_errors, name) for name in _ERRORS})
Out = Any
