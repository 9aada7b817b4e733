"""`ufunc`: a jnp function with numpy's methods (`jnp.add.reduce`, `.accumulate`, `.outer`, `.at`).

Calling it costs what calling the function costs. The methods use reductions, prefixes and scatters
where there is one for the function; otherwise they combine element by element along the dimension.
"""
from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from ....ir.api_boundary import bound_class, process_exception
from ....ir.dtypes import issubdtype
from ....ir.settings.context import config
from ....ir.source.location import PACKAGE
from ....ir.types import array_type
from ... import lax
from ...operands.broadcasting import to_type
from ...operands.dtype_promotion import check_arraylike, convert, dtype_name
from ...operands.rank_promotion import shape_of
from ...operands.shape_arguments import canonical_axes, canonical_axis
from ...staging.constants import as_array
from ...staging.staging import trace_to_program
from ...staging.tracer import Tracer

__all__ = ["ufunc"]


@bound_class
class ufunc:
    """A function of arrays that works elementwise.

    func: the function. nin, nout: numbers of operands and results. identity: neutral element of
    a binary one, or None. reduce, accumulate, at: functions that do these in one go.
    """

    __slots__ = ("__dict__", "_accumulate", "_apply", "_at", "_counts", "_identity", "_reduce")

    def __init__(self, func: Callable[..., Any], /, nin: int, nout: int, *,
                 name: str | None = None, nargs: int | None = None, identity: Any = None,
                 call: Callable[..., Any] | None = None,
                 reduce: Callable[..., Any] | None = None,
                 accumulate: Callable[..., Any] | None = None,
                 at: Callable[..., Any] | None = None, reduceat: Callable[..., Any] | None = None):
        self._apply = call or func
        self._counts, self._identity = (nin, nout, nargs or nin), identity
        self._reduce, self._accumulate, self._at = reduce, accumulate, at
        self.__name__ = self.__qualname__ = name or func.__name__
        self.__doc__ = func.__doc__
        self.__wrapped__ = self.__wrapped_function__ = func      # whose signature is shown

    def __call__(self, *args, out=None, where=None):
        try:
            if out is not None or where is not None:
                raise NotImplementedError(f"out and where arguments of {self}")
            if len(args) != self._counts[0]:
                raise TypeError(f"{self.__name__}() takes {self.nin} positional arguments but "
                                f"{len(args)} were given")
            return self._apply(*args)
        except Exception as error:
            process_exception(error, self, args)
            raise

    def __get__(self, instance: Any, owner: Any = None) -> ufunc:
        """Itself, also as an attribute of a class; what has this is shown as a function by help."""
        return self

    def __repr__(self) -> str:
        return f"<jnp.ufunc '{self.__name__}'>"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle functions of `shardtrace.numpy` by name, and copy others."""
        public = f"{PACKAGE}.numpy"
        if getattr(sys.modules.get(public), self.__name__, None) is self:
            self.__module__ = public
            return self.__name__
        return object.__reduce_ex__(self, protocol)

    def __hash__(self) -> int:
        return hash((self.__wrapped__, self._counts))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ufunc) and (self.__wrapped__, self._counts, self.identity) == (
            other.__wrapped__, other._counts, other.identity)

    _func = property(lambda self: self._apply)
    nin = property(lambda self: self._counts[0], doc="Number of operands.")
    nout = property(lambda self: self._counts[1], doc="Number of results.")
    nargs = property(lambda self: self._counts[2], doc="Number of operands, as in `jax.numpy`.")
    identity = property(lambda self: self._identity, doc="The neutral element, or None.")

    @property
    def ntypes(self) -> int:
        """Number of dtypes that the function can return."""
        return 1

    def _binary(self, method: str) -> None:
        if self.nin != 2:
            raise ValueError(f"{method} only supported for binary ufuncs")
        if self.nout != 1:
            raise ValueError(f"{method} only supported for functions returning a single value")

    def _scanned(self, x: Any, axis: int) -> tuple[Any, Any]:
        """All elements along a dimension combined, and (dimension 0) what the second, third, ...
        gave; in the dtype of the first combination."""
        first = lax.index_in_dim(x, 0, axis, keepdims=False)

        def step(y: Any, item: Any) -> tuple[Any, Any]:
            y = self._apply(y, item)
            return y, y

        rest = _moved(lax.slice_in_dim(x, 1, None, axis=axis), axis, 0)
        return lax.scan(step, first, rest)

    def reduce(self, a, axis=0, dtype=None, out=None, keepdims=False, initial=None, where=None):
        """All elements along a dimension (all of them for axis=None) combined into one."""
        check_arraylike(f"{self.__name__}.reduce", a)
        self._binary("reduce")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.reduce()")
        if where is not None:
            if self.identity is None and initial is None:
                raise ValueError(f"reduction operation {self.__name__!r} does not have an "
                                 "identity, so to use a where mask one has to specify "
                                 "'initial'.")
        if self._reduce is not None:
            extra = {} if dtype is None else {"dtype": dtype}
            given = {} if initial is None else {"initial": initial}
            masked = {} if where is None else {"where": where}
            return self._reduce(a, axis=axis, keepdims=keepdims, **extra, **given, **masked)
        shape = shape_of(a)
        axes = tuple(range(len(shape))) if axis is None else canonical_axes(axis, len(shape))
        others = [d for d in range(len(shape)) if d not in axes]
        left = tuple([shape[d] for d in others])

        def rows(x: Any) -> Any:
            """The combined dimensions as dimension 0, followed by the others."""
            x = lax.transpose(x, (*axes, *others))
            return x if len(axes) == 1 else lax.reshape(x, (
                math.prod([shape[d] for d in axes]), *left))

        x, begin = rows(as_array(a)), self.identity if initial is None else initial
        if begin is None:
            if not x.shape[0]:
                raise ValueError(f"zero-size array to reduction operation {self.__name__} which "
                                 "has no identity")
            begin, x = x[0], x[1:]
        if dtype is None:
            element = array_type((), x.dtype)
            dtype = trace_to_program(lambda x, y: [self._apply(x, y)], [element, element],
                                     name=self.__name__)[0].out_avals[0].dtype

        def step(found: Any, item: Any) -> tuple[Any, None]:
            value, used = item
            new = convert(self._apply(found, convert(value, dtype)), dtype)
            return new if used is None else lax.select(used, new, found), None

        used = None if where is None else rows(lax.broadcast_like(where, a))
        found, _ = lax.scan(step, to_type(convert(as_array(begin), dtype), left), (x, used))
        return lax.expand_dims(found, axes) if keepdims else found

    def accumulate(self, a, axis=0, dtype=None, out=None):
        """Along a dimension, each element combined with all before it."""
        check_arraylike(f"{self.__name__}.accumulate", a)
        self._binary("accumulate")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.accumulate()")
        if self._accumulate is not None:
            return self._accumulate(a, axis=axis, **({} if dtype is None else {"dtype": dtype}))
        x = a if dtype is None else lax.convert_element_type(a, dtype)
        axis = canonical_axis(axis, len(shape_of(x)))
        if not shape_of(x)[axis]:
            return x
        first = lax.slice_in_dim(x, 0, 1, axis=axis)
        rest = self._scanned(x, axis)[1]
        return lax.concatenate([first, _moved(rest, 0, axis)], axis)

    def outer(self, A, B, /):
        """The function of each pair of an element of A and one of B."""
        self._binary("outer")
        check_arraylike(f"{self.__name__}.outer", A, B)
        extra = len(shape_of(B))
        a = lax.expand_dims(A, tuple(range(len(shape_of(A)), len(shape_of(A)) + extra)))
        with config.override(jax_numpy_rank_promotion="allow"):       # that is what outer is
            return self._apply(a, B)

    def at(self, a, indices, b=None, /, *, inplace=True):
        """`a` with the function applied to the elements at `indices`, repeated ones repeatedly."""
        if inplace:
            raise NotImplementedError("JAX arrays are immutable: call "
                                      f"{self.__name__}.at(..., inplace=False) for a new array")
        if self.nin == 1:
            return lax_at(a, indices).apply(self._apply)
        if self._at is None:
            return self._at_one_by_one(lax.broadcast(a, ()), indices, b)
        return self._at(a, indices, b)

    def _at_one_by_one(self, a: Any, indices: Any, b: Any) -> Any:
        """`at` for a function without an update of its own: a scan over the indices, so that an
        element which is named twice changes twice.
        """
        shape = shape_of(a)
        size = int(np.prod(shape, dtype=np.int64))
        places = lax.reshape(lax.iota(np.int32, size), shape)[indices]
        b = lax.broadcast(b, ())
        b = lax.broadcast_to_rank(b, max(len(shape_of(b)), len(shape_of(places))))
        b = lax.broadcast_in_dim(b, shape_of(places), tuple(range(len(shape_of(b)))))
        count = int(np.prod(shape_of(places), dtype=np.int64))

        def step(flat: Any, item: Any) -> tuple[Any, None]:
            place, value = item
            new = self._apply(flat[place], value)
            return flat.at[place].set(lax.convert_element_type(new, a.dtype)), None

        flat, _ = lax.scan(step, lax.reshape(a, (size,)),
                           (lax.reshape(places, (count,)), lax.reshape(b, (count,))))
        return lax.reshape(flat, shape)

    def reduceat(self, a, indices, axis=0, dtype=None, out=None):
        """The reductions of the parts of a dimension that begin at `indices`."""
        self._binary("reduceat")
        if out is not None:
            raise NotImplementedError(f"out argument of {self.__name__}.reduceat()")
        axis = canonical_axis(axis, len(shape_of(a)))
        if shape_of(indices)[0] and not issubdtype(dtype_name(indices), np.integer):
            raise ValueError("indices must have an integer type")
        if isinstance(indices, Tracer) and indices._known() is None and indices.size:
            return self._reduceat_traced(a, indices, axis, dtype)
        starts = np.asarray(indices) if shape_of(indices)[0] else np.zeros(0, int)
        stops = [*starts[1:].tolist(), shape_of(a)[axis]]
        parts = [] if len(starts) else [lax.slice_in_dim(a, 0, 0, axis=axis)]
        for start, stop in zip(starts.tolist(), stops, strict=False):
            part = lax.slice_in_dim(a, start, max(stop, start + 1), axis=axis)
            parts.append(self.reduce(part, axis=axis, dtype=dtype, keepdims=True))
        return lax.concatenate(parts, axis)

    def _reduceat_traced(self, a: Any, starts: Any, axis: int, dtype: Any) -> Any:
        """All parts at once, along the dimension: each combines the elements that are its own."""
        x = _moved(a if dtype is None else lax.convert_element_type(a, dtype), axis, 0)
        size, rest = shape_of(x)[0], shape_of(x)[1:]
        stops = lax.concatenate([starts[1:], lax.full((1,), size, starts.dtype)], 0)
        wide = (shape_of(starts)[0], *(1 for _ in rest))
        starts, stops = lax.reshape(starts, wide), lax.reshape(stops, wide)
        first = x[lax.reshape(starts, wide[:1])]
        first = lax.convert_element_type(first, self._apply(first, first).dtype)

        def step(found: Any, item: Any) -> tuple[Any, None]:
            i, value = item
            inside = lax.bitwise_and(lax.gt(i, starts), lax.lt(i, stops))
            new = self._apply(found, lax.broadcast_in_dim(
                value, found.shape, tuple(range(1, found.ndim))))
            inside = lax.broadcast_in_dim(inside, found.shape, tuple(range(found.ndim)))
            return lax.select(inside, lax.convert_element_type(new, found.dtype), found), None

        found, _ = lax.scan(step, first, (lax.iota(starts.dtype, size), x))
        return _moved(found, 0, axis)


def _moved(x: Any, source: int, target: int) -> Any:
    """x with one dimension moved to another place."""
    order = [d for d in range(len(shape_of(x))) if d != source]
    order.insert(target, source)
    return lax.transpose(x, order) if order != sorted(order) else x


def lax_at(a: Any, indices: Any) -> Any:
    """The indexed-update helper of `a`."""
    return lax.broadcast(a, ()).at[indices]
