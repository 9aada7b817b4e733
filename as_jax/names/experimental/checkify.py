"""Checks of values. Where they are known they are made; the transformation itself is not here."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.diagnostics.diagnostic import fail
from ....tracer.staging.tracer import Tracer

__all__ = ["Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check",
           "check_error", "checkify", "div_checks", "float_checks", "index_checks", "nan_checks",
           "user_checks"]


class JaxRuntimeError(ValueError):
    """A check that failed."""


class Error:
    """The first failed check of a run, if there is one."""


class ErrorCategory:
    """A kind of check."""


class _NaN(ErrorCategory):
    pass


class _Index(ErrorCategory):
    pass


class _Division(ErrorCategory):
    pass


class _User(ErrorCategory):
    pass


nan_checks = frozenset({_NaN})
index_checks = frozenset({_Index})
div_checks = frozenset({_Division})
user_checks = frozenset({_User})
float_checks = nan_checks | div_checks
automatic_checks = float_checks | index_checks
all_checks = automatic_checks | user_checks


def _refuse(what: str) -> None:
    fail(NotImplementedError, f"{what} needs the transformation `checkify`, which shardtrace does "
                              "not have",
         help="`jax.debug.callback` can look at a value within a jitted function, and "
              "`jax.debug_nans(True)` finds NaN")


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise JaxRuntimeError with `msg`, formatted, unless `pred` holds everywhere."""
    if isinstance(pred, Tracer):
        _refuse("a check of a traced value")
    if not np.all(np.asarray(pred)):
        raise JaxRuntimeError(msg.format(*fmt_args, **fmt_kwargs))


def check_error(error: Error) -> None:
    """Raise what an `Error` holds."""
    _refuse("`check_error`")


def checkify(f: Callable[..., Any], errors: frozenset[type] = user_checks) -> Callable[..., Any]:
    """The transformation of a function into one that returns its failed check: refused."""
    _refuse("`checkify`")
    return f
