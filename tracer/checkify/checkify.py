"""checkify: turns a function into one that also returns the error it would raise."""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..autodiff.custom.common import function_name
from ..autodiff.differentiate import finished, named_meshes
from ..staging.staging import trace_to_program
from ..trees import tree
from . import check as _check  # noqa: F401 - the rule of `check` under vmap
from .errors import Error, ErrorCategory, user_checks
from .nested import with_checks


def checkify(f: Callable[..., Any], errors: Iterable[ErrorCategory] = user_checks
             ) -> Callable[..., tuple[Error, Any]]:
    """A function that gives (error, what `f` gives): checks become a value instead of exceptions.

    errors: what is looked at, of `user_checks` (those that `f` makes by `check`), `nan_checks`,
    `div_checks`, `index_checks`, or several: `float_checks`, `automatic_checks`, `all_checks`, or
    their union. The result may be jitted, mapped and differentiated; errors in loops, branches,
    jitted functions and regions of `shard_map` (of each place there) are found.

    Sharding
      Auto, Explicit: an error is one value for all devices.
      Manual: outside of the region there is one for each place along its axes.

    >>> from shardtrace.experimental import checkify
    >>> f = st.jit(checkify.checkify(lambda x, i: x[i] / 2, errors=checkify.index_checks))
    >>> f(jnp.arange(3.0), 5)[0].get()[:65]
    'out-of-bounds indexing for array of shape (3,): index 5 is out of'
    """
    enabled = frozenset(errors)

    @functools.wraps(f)
    def checked_fun(*args: Any, **kwargs: Any) -> tuple[Error, Any]:
        trees: list[Any] = []

        def flat() -> list[Any]:
            leaves, out_tree = tree.flatten(f(*args, **kwargs))
            trees.append(out_tree)
            return leaves

        program, captured = trace_to_program(flat, (), name=function_name(f))
        with named_meshes(program.attributes["meshes"]):
            error, results = with_checks(program, enabled, captured)
            error = error.with_values(map(finished, error.leaves))
            return error, tree.unflatten(trees[-1], map(finished, results))

    return checked_fun
