"""The fast path of a call: from the form of its arguments straight to the plan.

On the slow path, the arguments of a call are flattened and typed, and its executable is looked up.
The result is stored under a key that is much cheaper to make. The key has everything that the
look-up depends on: the containers, with the keys of dictionaries in order; the `ArrayKey` of each
array; dtype and shape of each numpy array; the class of each number.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, is_not, itemgetter
from typing import Any

import numpy as np

from ...arrays.array import ARRAYS, ArrayImpl
from ...arrays.processes import coordinator
from ...ir.meshes.mesh import ENTERED
from ...ir.meshes.process import THREAD
from ...ir.settings.context import config, usual_context
from ...ir.support.caches import tables
from ...ir.support.named_tuple import NamedTuple
from ...ir.values.typeof import canonical_value, type_of_constant
from ...tracer.staging.signature import Arguments
from ...tracer.trees import tree

KEY, WHOLE = attrgetter("_key"), attrgetter("_whole")
_PYTHON = frozenset({bool, int, float, complex})
_NUMBERS = _PYTHON | {kind for kind in np.sctypeDict.values() if issubclass(kind, np.generic)}

Leaves = Sequence[Any]
Run = Callable[[Sequence[np.ndarray]], list[ArrayImpl]]

_CALLS = tables("driver.jit.fast_calls.CallCache", "what runs for calls that look alike",
                1024)
MISS = object()
"""What a call has to go the long way for."""


class _HasNoKey(Exception):
    """An argument has no key; the slow path reports what is wrong with it."""


class _Call(NamedTuple):
    """What the fast path knows of one kind of call.

    order: of the leaves, from that in which they were found; None: the same. to_data: for each
    leaf what gives its data; None where all are arrays. donated: which ones are.
    """
    order: Callable[[Leaves], Leaves] | None
    to_data: Sequence[Callable[[Any], Any]] | None
    run: Run
    donated: Sequence[int]
    rebuild: Callable[[list[ArrayImpl]], Any]


class CallCache:
    """The calls of one function that are known.

    arguments: says which are static, and part of the key as they are.
    """

    __slots__ = ("_known", "_static_names", "_static_nums")

    def __init__(self, arguments: Arguments | None = None) -> None:
        self._known: dict[Any, _Call] = _CALLS()
        self._static_nums = frozenset(arguments.static_nums if arguments is not None else ())
        self._static_names = arguments.static_names if arguments is not None else frozenset()

    def clear(self) -> None:
        self._known.clear()

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call; MISS where nothing is known of it, and nothing was done."""
        state = usual_context()
        if state is None or coordinator.THREAD.coordinator is not None:
            return MISS
        try:
            if self._static_nums or kwargs:
                leaves: Leaves = []
                keys = self._look_at(args, kwargs, leaves)
            else:
                try:
                    keys, leaves = tuple(map(KEY, args)), args
                except AttributeError:
                    leaves = []
                    keys = tuple([_look_at(x, leaves) for x in args])
            found = self._known.get((keys, state["mesh"], state["abstract_mesh"], ENTERED.meshes,
                                     config._call_key, THREAD.identity))
            if found is None:
                return MISS
            order, to_data, run, donated, rebuild = found
            if order is not None:
                leaves = order(leaves)
            if to_data is None:
                data = list(map(WHOLE, leaves))
            else:
                data = [f(x) for f, x in zip(to_data, leaves, strict=True)]
        except Exception:       # of arguments without a key, or that cannot be compared
            return MISS
        if donated and len({*map(id, leaves)}) < len(leaves):
            return MISS                     # one that is donated may be read as another argument
        results = run(data)
        for i in donated:
            leaves[i].delete()
        return rebuild(results)

    def _look_at(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: list[Any]) -> Any:
        nums, names = self._static_nums, self._static_names
        keys = tuple([x if i in nums else _look_at(x, leaves) for i, x in enumerate(args)])
        if kwargs:
            return (*keys, tuple([(name, x if name in names else _look_at(x, leaves))
                                  for name, x in kwargs.items()]))
        return keys

    def insert(self, args: tuple[Any, ...], kwargs: dict[str, Any], leaves: Leaves,
               run: Run, donated: Sequence[int], rebuild: Callable[[list[ArrayImpl]], Any]) -> None:
        """Let calls that look like this one go the quick way.

        args, kwargs: of the call. leaves: of those that are not static, as they were flattened.
        """
        state = usual_context()
        found: Any = args
        arrays = ARRAYS.issuperset(map(type, leaves))
        if arrays and not kwargs and not self._static_nums and ARRAYS.issuperset(map(type, args)):
            keys: Any = tuple([x.key for x in args])
        else:
            found = []
            try:
                keys = self._look_at(args, kwargs, found)
            except (_HasNoKey, RecursionError):
                return
        if state is None or coordinator.THREAD.coordinator is not None or len(found) != len(leaves):
            return
        order = None
        if any(map(is_not, found, leaves)) or len({*map(id, found)}) < len(found):
            kept = [x for i, x in enumerate(args) if i not in self._static_nums]
            order = _order((kept, {k: x for k, x in kwargs.items()
                                   if k not in self._static_names}))
            if any(map(is_not, leaves, order(found) if order else found)):
                return
        to_data = None if arrays else [_to_data(x) for x in leaves]
        self._known[keys, state["mesh"], state["abstract_mesh"], ENTERED.meshes, config._call_key,
                    THREAD.identity] = _Call(order, to_data, run, donated, rebuild)


def _look_at(x: Any, leaves: Any) -> Any:
    """The key of an argument, whose leaves are appended."""
    kind = type(x)
    if kind is ArrayImpl:
        leaves.append(x)
        return x.key
    if kind is dict:
        return _several(kind, tuple(x), x.values(), leaves)
    if kind is tuple or kind is list:
        return _several(kind, len(x), x, leaves)
    if kind is np.ndarray:
        leaves.append(x)
        return x.dtype, x.shape
    if kind in _NUMBERS:
        leaves.append(x)
        return kind
    if x is None:
        return None
    inside, treedef = tree.flatten(x)
    if treedef.is_leaf():
        raise _HasNoKey
    return _several(kind, treedef, inside, leaves)


def _several(kind: Any, shape: Any, children: Iterable[Any], leaves: list[Any]) -> Any:
    try:
        keys = tuple(map(KEY, children))
    except AttributeError:
        return kind, shape, tuple([_look_at(x, leaves) for x in children])
    leaves.extend(children)
    return kind, shape, keys


def _order(arguments: Any) -> Callable[[Leaves], Leaves] | None:
    """From the order in which `_look_at` finds leaves to that of `tree.flatten`."""
    count = 0

    def numbered(x: Any) -> Any:
        nonlocal count
        kind = type(x)
        if kind is dict:
            return {k: numbered(v) for k, v in x.items()}
        if kind is list or kind is tuple:
            return [numbered(v) for v in x]
        if kind is ArrayImpl or kind is np.ndarray or kind in _NUMBERS:
            count += 1
            return count - 1
        inside = tree.flatten(x)[0]          # one leaf, none, or those of a registered class
        count += len(inside)
        return list(range(count - len(inside), count))

    order = tree.flatten(numbered(arguments))[0]
    return None if order == list(range(count)) else itemgetter(*order)


def _to_data(x: Any) -> Callable[[Any], Any]:
    """What gives the data of arguments that look like `x`, or raises AttributeError (of an array
    that was deleted or is not in one piece) or OverflowError."""
    kind = type(x)
    if kind is ArrayImpl:
        return WHOLE
    dtype = type_of_constant(x).dtype
    if kind in _PYTHON:
        return lambda x: np.array(x, dtype)
    if kind is np.ndarray and x.dtype == dtype:
        return np.asarray
    return canonical_value
