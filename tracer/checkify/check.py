"""The user's checks: `check`, `debug_check`, and `check_error`."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ir.ops.control.check import check_p
from ...ir.source.location import capture
from ...ir.values.array import Array
from ..batching.rules import Batched, Dims, MappedAxis, rule, to_dim
from ..trees import tree
from .errors import Error, FailedCheckError, failure


def check(pred: Any, msg: str, *fmt_args: Any, debug: bool = False, **fmt_kwargs: Any) -> None:
    """Raise JaxRuntimeError unless `pred`, a truth value, holds.

    msg: the message, formatted with the other arguments, which are pytrees of arrays. Within what
    is traced the check has to be made a value by `checkify`. debug: see `debug_check`.
    Raises TypeError for other arguments; a program in which it is left raises ValueError.

    >>> from shardtrace.experimental import checkify
    >>> def f(x):
    ...     checkify.check(x > 0, "{x} is not positive", x=x)
    ...     return 1 / x
    >>> err, y = st.jit(checkify.checkify(f))(-2.0)
    >>> err.get()
    '-2.0 is not positive (`check` failed)'
    """
    name = "debug_check" if debug else "check"
    if not (isinstance(pred, bool | np.bool_) or isinstance(pred, Array) and pred.shape == ()
            and pred.dtype == np.bool_):
        raise TypeError(f"{name} takes a scalar pred as argument, got {pred}")
    for x in tree.leaves((fmt_args, fmt_kwargs)):
        if not isinstance(x, Array | np.ndarray):
            raise TypeError("Formatting arguments to checkify.check need to be PyTrees of arrays, "
                            f"but got {x!r} of type {type(x)}.")
    failed = np.bool_(not pred) if isinstance(pred, bool | np.bool_) else ~pred
    _bind(failure(failed, FailedCheckError, (msg,), capture(), (fmt_args, fmt_kwargs)), debug)


def debug_check(pred: Any, msg: str, *fmt_args: Any, **fmt_kwargs: Any) -> None:
    """As `check`, but only for functions that `checkify` transforms: elsewhere it is not made.

    >>> from shardtrace.experimental import checkify
    >>> def f(x):
    ...     checkify.debug_check(x != 0, "cannot be zero!")
    ...     return x
    >>> int(f(0))
    0
    >>> checkify.checkify(f)(0)[0].get()
    'cannot be zero! (`check` failed)'
    """
    check(pred, msg, *fmt_args, debug=True, **fmt_kwargs)


def check_error(error: Error) -> None:
    """Raise JaxRuntimeError with what an `Error` holds; the inverse of `checkify`.

    As `check` it is for what is not traced, or is transformed by `checkify` again.

    >>> from shardtrace.experimental import checkify
    >>> err, _ = st.jit(checkify.checkify(lambda x: checkify.check(x > 0, "no")))(0.0)
    >>> checkify.checkify(lambda: checkify.check_error(err))()[0].get()
    'no (`check` failed)'
    """
    if not isinstance(error, Error):
        raise TypeError(f"check_error takes an Error as argument, got type {type(error)} instead.")
    _bind(error.one(), False)


def _bind(error: Error, debug: bool) -> None:
    leaves, structure = tree.flatten(error)
    check_p.bind(*leaves, tree=structure, debug=debug)


def raise_now(operands: Sequence[Any], params: dict[str, Any]) -> None:
    """What a check does where its operands are known."""
    if not params["debug"]:
        tree.unflatten(params["tree"], operands).throw()


@rule("check")
def _batch(axis: MappedAxis, operands: Sequence[Any], dims: Dims, types: Sequence[Any],
           **params: Any) -> Batched:
    """One check for all indices, of the last that fails."""
    error: Error = tree.unflatten(params["tree"], operands)
    mapped = iter(dims)
    found = {}
    for kind in sorted(error._found):
        values = error._found[kind]
        places = [next(mapped) for _ in values]
        if any(d is not None for d in places):
            values = tuple([to_dim(x, d, 0, axis) for x, d in zip(values, places, strict=True)])
        found[kind] = values
    _bind(Error(found, error._metadata).one(), params["debug"])
    return [], []
