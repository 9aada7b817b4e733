"""Functions made of several ops, whose equations are remembered by the types of their arguments.

`memoized` is for functions of jnp, nn and lax that look at nothing but their arguments, the context
mesh and the settings that tracing depends on. What they record while a function is traced is kept;
for arguments of the same types, and the same numbers, axes and flags, it is recorded again. Nested
programs have the location where they were traced, so a function that records some is remembered for
each calling line apart. Outside of traces, and where an argument cannot be identified by its type,
functions run as they are.
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from types import EllipsisType
from typing import Any, TypeVar

import numpy as np

from ...ir.dtypes import issubdtype
from ...ir.op import Op
from ...ir.settings.context import STATE, config
from ...ir.source.location import Location
from ...ir.spec import PartitionSpec
from ...ir.support.caches import Bounded, cached, module_table
from ...ir.types import ArrayType
from .builder import Builder
from .steps import MISS, marks, owner_of, steps_since
from .tracer import Tracer

F = TypeVar("F", bound=Callable[..., Any])
BUILDERS: set[type] = {Builder}            # whose `process` only records
MAPPED: dict[type, Callable[..., Any]] = {}     # for builders of a mapped axis: what is done there
_PLAIN = frozenset((int, str, type(None), EllipsisType, PartitionSpec, Op))
_FLAGS = ((bool, 0), (bool, 1))            # True is no 1
_BY_PLACE = object()                       # what is recorded depends on where, too


class Known(Bounded[Any, Any]):
    """What is known of calls, by key: MISS when one is seen for the first time, as steps are worth
    making for what comes again; None from then on, until there are steps.
    """

    def __missing__(self, key: Any) -> Any:
        self[key] = None
        return MISS


def memoized(f: F) -> F:
    """A decorator; see this module's docstring."""
    table = module_table(f"{f.__module__.partition('.')[2]}.{f.__qualname__}",
                         "equations that it records, by types", 4096, Known)

    @functools.wraps(f)
    def remembering(*args: Any, **kwargs: Any) -> Any:
        state = STATE
        builder: Any = state.interpreter
        kind = type(builder)
        if kind in MAPPED:
            return MAPPED[kind](table, f, args, kwargs)
        if kind not in BUILDERS or state.overrides or state.on_equation \
                or state.named_axes or state.mapped_mesh_axes or not state.check_vma:
            return f(*args, **kwargs)
        parts: list[Any] = [state.abstract_mesh, config._key]
        given: list[Tracer] = []
        if not add_to_key(args, parts, given):
            return f(*args, **kwargs)
        if kwargs:
            parts += kwargs
            if not add_to_key(kwargs.values(), parts, given):
                return f(*args, **kwargs)
        if len(given) > 1 and len({x.variable for x in given}) < len(given):
            variables = [x.variable for x in given]
            parts.append(tuple([variables.index(v) for v in variables]))
        key = tuple(parts)
        found, place = table[key], None
        if found is _BY_PLACE:
            place = builder.location or builder.watch.place()
            key = key, place.key, owner_of("memoized")
            found = table[key]
        if found is MISS:
            return f(*args, **kwargs)
        if found is not None:
            steps, several, _ = found
            results = steps.repeat((builder,), given,
                                   place or builder.location or builder.watch.place())
            return tuple(results) if several else results[0]
        before = marks((builder,))
        result = f(*args, **kwargs)
        several = type(result) is tuple
        if not may_warn([x.aval for x in given]) and (builder.location is not None or all(
                [type(e.location) is Location for e in builder.eqns[before[0][0]:]])):
            values = result if several else (result,)
            steps = steps_since(before, (builder,), given, values, programs=place is not None)
            if steps is not None:
                table[key] = steps, several, place      # which the key's numbers are alive with
            elif place is None and steps_since(before, (builder,), given, values, programs=True):
                table[key] = _BY_PLACE
        return result

    return remembering          # type: ignore[return-value]


def add_to_key(values: Iterable[Any], parts: list[Any], given: list[Tracer]) -> bool:
    """Append to a key what distinguishes arguments, traced ones also to `given`; False if nothing
    hashable does.
    """
    for x in values:
        kind = type(x)
        if kind is Tracer:
            given.append(x)
            parts.append(x.aval)
        elif kind in _PLAIN:
            parts.append(x)
        elif kind is bool:
            parts.append(_FLAGS[x])
        elif kind is float:
            parts.append((kind, x.hex()))
        elif kind is tuple or kind is list:
            parts.append((kind, len(x)))
            if not add_to_key(x, parts, given):
                return False
        elif kind is slice:
            parts.append(kind)
            if not add_to_key((x.start, x.stop, x.step), parts, given):
                return False
        elif (kind is np.dtype or isinstance(x, type)) and _is_narrow(x):
            parts.append(x)
        else:
            return False
    return True


@cached(256)
def _is_narrow(dtype: Any) -> bool:
    """Is it a dtype that is kept as it is, without a warning, whether x64 is on or not?"""
    try:
        return np.dtype(dtype).itemsize <= 4
    except TypeError:
        return False


def may_warn(types: Sequence[ArrayType]) -> bool:
    """May operations on values of these types warn, each time that they are done?"""
    return config.read("jax_numpy_rank_promotion") != "allow" or any(
        [issubdtype(t.dtype, np.complexfloating) for t in types])
