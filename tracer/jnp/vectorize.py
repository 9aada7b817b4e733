"""`jnp.vectorize`: numpy's generalized ufuncs, by vmap.

A signature such as `(n,m),(m)->(n)` says how many trailing dimensions of each argument the function
sees (its core dimensions); the dimensions in front broadcast. Every one of them becomes a vmap over
the arguments that have it, so nothing is repeated that the function does not ask for.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ...ir.settings.context import config
from ...ir.source.wording import warn
from ...ir.support.lazy import lazy_import
from ..operands.callers import called_by_user
from ..operands.rank_promotion import shape_of
from ..staging.constants import as_array
from ..trees import tree

batching = lazy_import("..batching.vmap", __package__)

Core = tuple[str, ...]
_ARGUMENTS = r"\((?:\w+(?:,\w+)*)?\)(?:,\((?:\w+(?:,\w+)*)?\))*"


def vectorize(pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = frozenset(),
              signature: str | None = None) -> Callable[..., Any]:
    """A function that broadcasts `pyfunc`, written for single elements, over its arguments.

    excluded: positions and names of arguments that are passed on as they are; so are keyword
      arguments. signature: core dimensions such as `(n,m),(m)->(n)`; by default arguments have none
      and results are of any shape. Raises ValueError where shapes do not fit it.
    """
    if any(not isinstance(e, (str, int)) for e in excluded):
        raise TypeError("jax.numpy.vectorize can only exclude integer or string arguments, but "
                        f"excluded={excluded!r}")
    if any(isinstance(e, int) and e < 0 for e in excluded):
        raise ValueError(f"excluded={excluded!r} contains negative numbers")
    context = f"on vectorized function with excluded={excluded!r} and signature={signature!r}"

    @functools.wraps(pyfunc)
    def vectorized(*args: Any, **kwargs: Any) -> Any:
        fixed = [i in excluded or x is None for i, x in enumerate(args)]
        free = [as_array(x) for x, skip in zip(args, fixed, strict=True) if not skip]
        cores, results = ([()] * len(free), None) if signature is None else (
            _cores(signature, args, excluded, context))
        sizes: dict[str, int] = {}
        loops = [_loop_dims(shape_of(x), core, sizes, context)
                 for x, core in zip(free, cores, strict=True)]
        if len({len(s) for x, s in zip(free, loops, strict=True) if x.ndim}) > 1:
            _check_promotion(free, signature)

        def one(*elements: Any) -> Any:
            it = iter(elements)
            out = pyfunc(*(x if skip else next(it) for x, skip in zip(args, fixed, strict=True)),
                         **kwargs)
            if results is not None:
                _check_results(out, results, dict(sizes), context)
            return out

        return _over(one, free, loops)

    return vectorized


def _cores(signature: str, args: Sequence[Any], excluded: Collection[int | str], context: str
           ) -> tuple[list[Any], Any]:
    """The core dimensions of the arguments that are broadcast, and of the results."""
    cores, results = parse_signature(signature)
    missing = {i for i, x in enumerate(args) if x is None}
    if any(cores[i] for i in missing if i not in excluded and i < len(cores)):
        raise ValueError(f"Cannot pass None at locations {missing} with {signature=}")
    cores = [c for i, c in enumerate(cores) if i in excluded or i not in missing]
    count = sum(i not in missing and i not in excluded for i in range(len(args)))
    if count != len(cores):
        raise TypeError(f"wrong number of positional arguments: expected {len(cores)}, got "
                        f"{count} {context}")
    return cores, results


def _check_promotion(free: Sequence[Any], signature: str | None) -> None:
    """Warn, or raise ValueError, of ranks that differ, if the user wants that."""
    setting = config.jax_numpy_rank_promotion
    if setting == "allow" or not called_by_user():
        return
    message = (f"operands with shapes {[x.shape for x in free]} require rank promotion for "
               f"jnp.vectorize function with signature {signature}. Set the "
               "jax_numpy_rank_promotion config option to 'allow' to disable this message; "
               "for more information, see "
               "https://docs.jax.dev/en/latest/rank_promotion_warning.html.")
    if setting == "raise":
        raise ValueError(message)
    warn(message)


def parse_signature(signature: str) -> tuple[list[Core], list[Core]]:
    """Core dimensions of the arguments and of the results of `(n,m),(m)->(n)`."""
    if not re.fullmatch(f"{_ARGUMENTS}->{_ARGUMENTS}", signature):
        raise ValueError(f"not a valid gufunc signature: {signature}")
    left, right = ([tuple(re.findall(r"\w+", group)) for group in re.findall(r"\(.*?\)", side)]
                   for side in signature.split("->"))
    return left, right


def _loop_dims(shape: tuple[int, ...], core: Core, sizes: dict[str, int], context: str
               ) -> tuple[int, ...]:
    """The dimensions in front of the core ones, whose sizes are entered into `sizes`."""
    if len(shape) < len(core):
        raise ValueError(f"input with shape {shape} does not have enough dimensions for all core "
                         f"dimensions {core} {context}")
    split = len(shape) - len(core)
    _enter(core, shape[split:], sizes, context)
    return shape[:split]


def _enter(core: Core, shape: tuple[int, ...], sizes: dict[str, int], context: str) -> None:
    for name, n in zip(core, shape, strict=True):
        if sizes.setdefault(name, n) != n:
            raise ValueError(f"inconsistent size for core dimension {name!r}: {n} vs "
                             f"{sizes[name]} {context}")


def _check_results(out: Any, cores: Sequence[Core], sizes: dict[str, int], context: str) -> None:
    """Results must have the core dimensions of the signature; sizes that are new are entered."""
    if len(cores) > 1 and not isinstance(out, tuple):
        raise TypeError("output must be a tuple when multiple outputs are expected, got: "
                        f"{out!r}\n{context}")
    outs = out if isinstance(out, tuple) else (out,)
    if len(outs) != len(cores):
        raise TypeError(f"wrong number of output arguments: expected {len(cores)}, got {len(outs)} "
                        f"{context}")
    for x, core in zip(outs, cores, strict=True):
        shape = shape_of(x)
        if len(shape) != len(core):
            raise ValueError(f"output shape {shape} does not match core dimensions {core} "
                             f"{context}")
        _enter(core, shape, sizes, context)


def _over(f: Callable[..., Any], values: Sequence[Any], loops: Sequence[tuple[int, ...]]) -> Any:
    """`f` of the elements, over the broadcast loop dimensions: one vmap each, outermost last."""
    rank = max(map(len, loops), default=0)
    squeezed = [x[tuple(0 if n == 1 else slice(None) for n in loop)] if loop else x
                for x, loop in zip(values, loops, strict=True)]
    for place in range(1, rank + 1):                # counted from the innermost
        sizes = [loop[-place] if len(loop) >= place else 1 for loop in loops]
        if len({n for n in sizes if n != 1}) > 1:
            raise ValueError(f"Incompatible shapes for broadcasting: shapes={list(loops)}")
        f = batching.vmap(f, tuple(None if n == 1 else 0 for n in sizes),
                          axis_size=next((n for n in sizes if n != 1), 1))
    return tree.map(as_array, f(*squeezed)) if not rank else f(*squeezed)
