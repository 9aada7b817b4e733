"""A jitted function's arguments: which are static, donated, and what each is called.

Resolves `static_argnums`, `static_argnames` and their donated counterparts against the function's
signature once, and splits the arguments of a call by them.
"""
from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.types import ArrayType
from ...ir.values.array import Array
from ...ir.values.shape_struct import ShapeDtypeStruct
from ..trees import tree


def as_tuple(value: Any) -> tuple[Any, ...]:
    if value is None:
        return ()
    if isinstance(value, (int, str)):
        return (value,)
    return tuple(value)


class _Static(tuple):
    """Static arguments as part of a key: (number or name, value) of each. Exceptions from their
    `__eq__` are reported as JAX does.
    """

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        try:
            return tuple.__eq__(self, other)
        except Exception as e:
            kinds = [" and ".join([str(type(value)) for _, value in pair])
                     for pair in zip(self, other, strict=False)]        # type: ignore[call-overload]
            raise ValueError(
                "static arguments should be comparable using __eq__. The following error was "
                f"raised when comparing two objects of types {', '.join(kinds)}. The error was:\n"
                f"{type(e).__name__}: {e}") from e


class Arguments:
    """The static and donated parameters of a function, as JAX resolves them.

    names: of arrays by position, where the function itself does not say.
    Raises ValueError for numbers and names that the function does not have.
    """

    names: tuple[str, ...] = ()

    def __init__(self, f: Callable[..., Any], static_argnums: Any, static_argnames: Any,
                 donate_argnums: Any, donate_argnames: Any) -> None:
        if isinstance(f, staticmethod):
            raise TypeError(f"staticmethod arguments are not supported, got {f}")
        self._f = f
        self.static_nums, self.static_names = self._resolve(
            static_argnums, static_argnames, "static")
        self.donate_nums, self.donate_names = self._resolve(
            donate_argnums, donate_argnames, "donate")
        self.some_static = bool(self.static_nums or self.static_names)
        if not (self.some_static or self.donate_nums or self.donate_names):
            return
        names = {*self.static_names} & {*self.donate_names}
        if names:
            raise ValueError("static_argnames and donate_argnames cannot intersect. "
                             f"Argument names {names} appear in both "
                             "static_argnames and donate_argnames")
        both = set(self.static_nums) & set(self.donate_nums)
        if both:
            raise ValueError(f"static_argnums and donate_argnums cannot intersect. "
                             f"Argument numbers {both} appear in both")

    def _resolve(self, nums: Any, names: Any, kind: str) -> tuple[tuple[int, ...], frozenset[str]]:
        """The numbers and the names of the static or the donated arguments, as given by `nums` and
        `names`; where one of the two is given, the other is completed from the signature.
        """
        given_nums, given_names = as_tuple(nums), as_tuple(names)
        if not given_nums and not given_names:
            return (), frozenset()
        if self.signature is None:
            if given_names and nums is None:
                raise ValueError(f"Getting the signature of function {self._f} failed. Pass "
                                 f"{kind}_argnums instead of {kind}_argnames.")
            return given_nums, frozenset(given_names)
        parameters = list(self.signature.parameters.values())
        positional = [p for p in parameters
                      if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        var_positional = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        var_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters)
        count = len(positional)
        out_nums = []
        for n in given_nums:
            if not var_positional and not -count <= n < count:
                raise ValueError(f"Jitted function has {kind}_argnums={given_nums}, but only "
                                 f"accepts {count} positional arguments.")
            out_nums.append(n + count if n < 0 and not var_positional else n)
        known = {p.name for p in parameters}
        by_position = {p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY,
                                                                p.VAR_POSITIONAL)}
        if by_position & {*given_names}:
            raise ValueError(f"Jitted function has invalid argnames {by_position & {*given_names}} "
                             f"in {kind}_argnames. These are positional-only")
        unknown = set(given_names) - known
        if unknown and not var_keyword:
            raise ValueError(f"Jitted function has invalid argnames {unknown} in {kind}_argnames. "
                             "Function does not take these args.")
        out_names = set(given_names)
        if nums is not None and names is not None:      # both are given: neither is completed
            return tuple(sorted(out_nums)), frozenset(out_names)
        for i, p in enumerate(positional):      # a number stands for its name, and back
            if p.name in out_names and i not in out_nums:
                out_nums.append(i)
            elif i in out_nums and p.kind is p.POSITIONAL_OR_KEYWORD:
                out_names.add(p.name)
        return tuple(sorted(out_nums)), frozenset(out_names)

    def split(self, args: Sequence[Any], kwargs: dict[str, Any], hashable: bool = True
              ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[Any, ...]]:
        """(traced args, traced kwargs, static key). hashable: statics are checked to be so."""
        if not self.static_nums and not self.static_names:
            return tuple(args), kwargs, ()
        static = [(i, args[i]) for i in self.static_nums if i < len(args)]
        static += [(k, v) for k, v in sorted(kwargs.items()) if k in self.static_names]
        for _, value in static if hashable else ():
            try:
                hash(value)
            except TypeError as e:
                fail(ValueError,
                     "Non-hashable static arguments are not supported. An error occurred while "
                     f"trying to hash an object of type {type(value)}, {value}. The error was:\n"
                     f"TypeError: {e}\n", code="static-argument",
                     help="pass a tuple instead of a list, or an object with __hash__ and __eq__")
        taken = {i for i, _ in static if isinstance(i, int)}
        return (tuple(a for i, a in enumerate(args) if i not in taken),
                {k: v for k, v in kwargs.items() if k not in self.static_names}, _Static(static))

    def merge(self, args: Sequence[Any], kwargs: dict[str, Any], static: Iterable[Any]
              ) -> tuple[list[Any], dict[str, Any]]:
        """Undo `split`: the arguments to call the function with."""
        if not static:
            return list(args), kwargs
        full, merged = list(args), dict(kwargs)
        for key, value in static:
            if isinstance(key, int):
                full.insert(key, value)
            else:
                merged[key] = value
        return full, merged

    def donated(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[bool]:
        """For each leaf of the (traced) arguments: is it donated?"""
        if not self.donate_nums and not self.donate_names:
            return []
        kept = [i for i in range(len(args) + len(self.static_nums)) if i not in self.static_nums]
        flags: list[bool] = []
        for i, a in zip(kept, args, strict=False):
            flags += [i in self.donate_nums] * tree.structure(a).num_leaves
        for k in sorted(kwargs):
            flags += [k in self.donate_names] * tree.structure(kwargs[k]).num_leaves
        return flags

    @functools.cached_property
    def signature(self) -> inspect.Signature | None:
        """The signature of the function; None if it has none that can be found."""
        try:
            return inspect.signature(self._f)
        except (ValueError, TypeError):
            return None

    @functools.cached_property
    def positional_names(self) -> tuple[str, ...]:
        f = plain_function(self._f)
        if f is not None and not self.static_nums:
            return f.__code__.co_varnames[:f.__code__.co_argcount]
        if self.signature is None:
            return ()
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return tuple(p.name for i, p in enumerate(self.signature.parameters.values())
                     if p.kind in kinds and i not in self.static_nums)

    @functools.cached_property
    def rest_name(self) -> str:
        """What the function calls the positional arguments that have no name of their own."""
        f = plain_function(self._f)
        if f is not None and f.__code__.co_flags & inspect.CO_VARARGS:
            code = f.__code__
            return code.co_varnames[code.co_argcount + code.co_kwonlyargcount]
        parameters = self.signature.parameters.values() if self.signature is not None else ()
        return next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), "args")

    @functools.cached_property
    def keyword_names(self) -> frozenset[str]:
        """Keywords that the function has parameters for."""
        parameters = self.signature.parameters.values() if self.signature is not None else ()
        return frozenset(p.name for p in parameters if p.kind is not p.VAR_KEYWORD)

    @functools.cached_property
    def keywords_name(self) -> str:
        """What the function calls the keyword arguments that it has no parameter for."""
        parameters = self.signature.parameters.values() if self.signature is not None else ()
        return next((p.name for p in parameters if p.kind is p.VAR_KEYWORD), "kwargs")

    def names_by_position(self, count: int) -> tuple[str, ...]:
        """The `leaf_names` of so many arrays."""
        if self.names:
            return self.names
        f = self._f
        if type(f) is types.FunctionType and not f.__dict__ and not self.static_nums:
            code = f.__code__
            if count <= code.co_argcount:
                return code.co_varnames[:count]
        names = self.positional_names[:count]
        given = len(names)
        return names if given == count else (
            *names, *[f"{self.rest_name}[{i}]" for i in range(count - given)])

    def leaf_names(self, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[str, ...]:
        """A path for every leaf: `x`, `params['w']`, `args[2]`."""
        if self.names:
            return self.names
        if not kwargs:
            found = self._plain_names(args)
            if found is not None:
                return found
        out = []
        for (first, second, *rest), _ in tree.flatten_with_path((tuple(args), kwargs))[0]:
            if first.idx == 0:
                names, i = self.positional_names, second.idx
                base = names[i] if i < len(names) else f"{self.rest_name}[{i - len(names)}]"
            else:
                base = str(second.key)
                if base not in self.keyword_names:
                    base = f"{self.keywords_name}[{base!r}]"
            out.append(base + tree.keystr(rest))
        return tuple(out)

    def _plain_names(self, args: Sequence[Any]) -> tuple[str, ...] | None:
        """The leaves' names if arguments are arrays, or dicts, lists, tuples of such; else None."""
        out: list[str] = []
        names = self.positional_names
        for i, x in enumerate(args):
            base = names[i] if i < len(names) else f"{self.rest_name}[{i - len(names)}]"
            if not _enter_paths(base, x, out):
                return None
        return tuple(out)


def paths_of(x: Any, base: str = "") -> list[str]:
    """The path of every leaf of x, `base` in front: `['w'][0]`."""
    out: list[str] = []
    if _enter_paths(base, x, out):
        return out
    return [base + tree.keystr(path) for path, _ in tree.leaves_with_path(x)]


def result_paths(results: Any, count: int) -> list[str]:
    """The path of every leaf of what a function returned; none where positions say as much."""
    if type(results) in (tuple, list) and len(results) == count or count <= 1 and (
            isinstance(results, Array)):
        return []
    return paths_of(results)


def function_name(f: Any) -> str:
    """What messages call a function: its name, of a partial that of the function in it."""
    while isinstance(f, functools.partial):
        f = f.func
    return getattr(f, "__name__", type(f).__name__)


def plain_function(f: Any) -> types.FunctionType | None:
    """The function whose code object says the parameters of `f`, so that no signature has to be
    made: the innermost one that `f` wraps. None if there is no such function.
    """
    while type(f) is types.FunctionType:
        more = f.__dict__
        if not more:
            return f
        if "__signature__" in more:
            return None
        if "__wrapped__" not in more:
            return f
        f = more["__wrapped__"]
    return None


def _enter_paths(path: str, x: Any, out: list[str]) -> bool:
    """Append the path of every leaf of x; False where x holds a container of another kind."""
    if isinstance(x, (Array, np.ndarray, np.generic, ArrayType, ShapeDtypeStruct)):
        out.append(path)
        return True
    kind = type(x)
    if kind in (float, int, bool, complex):
        out.append(path)
        return True
    if kind is list or kind is tuple:
        return all([_enter_paths(f"{path}[{i}]", item, out) for i, item in enumerate(x)])
    if kind is dict:
        try:
            keys = sorted(x)
        except TypeError:
            return False
        return all([_enter_paths(f"{path}[{k!r}]", x[k], out) for k in keys])
    return x is None
