"""Symbolic traces of evaluators: the numpy calls that one makes, found by running it on symbols.

The executor evaluates large arrays in blocks (runtime/plans/blocked.py) and writes plans out
as source (runtime/plans/generated.py). For both it must know which elementwise calls and reductions
an op consists of, without a table of ops. So the evaluator is called with `Symbol`s, which record
in order the ufuncs, selections, casts and reshapes applied to them. Anything else done to a symbol
ends the recording, and the op is evaluated as a whole.

Input: a function, and shapes and dtypes of its operands. Output: a `Recording`, whose steps make
the same calls on the same numbers as the function itself.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NoReturn

import numpy as np

from ...ir.support.named_tuple import NamedTuple
from ...ir.types import Shape

Function = Callable[..., Any]

CALL, REDUCE, WHERE, CAST, BITS = "call", "reduce", "where", "cast", "bits"
LOOP, MEMORY = "loop", "memory"         # a compiled loop, and memory that one writes besides
RESHAPE, REPEAT, TRANSPOSE, INDEX = "reshape", "repeat", "transpose", "index"
VIEWS = frozenset({RESHAPE, REPEAT, TRANSPOSE, INDEX, BITS})
# Reductions whose result does not depend on the dtype that numpy would choose by itself.
_EXTREMES = frozenset({np.maximum, np.minimum, np.bitwise_and, np.bitwise_or, np.bitwise_xor})
_WEAK = (int, float, complex)      # Python numbers take the other operand's dtype, as in numpy


NOT_ASKED = object()


class Step(NamedTuple):
    """One numpy call. operands: numbers of values, or 0-dimensional constants.

    function: a ufunc (CALL, REDUCE), the permutation of a TRANSPOSE, the slices of an INDEX. axes:
    the dimensions over which a REDUCE goes.
    """
    kind: str
    function: Any
    operands: tuple[Any, ...]
    result: int
    axes: tuple[int, ...] = ()


class Recording(NamedTuple):
    """The numpy calls of a function.

    operands: how many it has. values: shape and dtype of each value, the operands first. result:
    the number of the value that is returned.
    """
    operands: int
    values: tuple[tuple[Shape, np.dtype], ...]
    steps: tuple[Step, ...]
    result: int

    @property
    def is_view(self) -> bool:
        """Is nothing computed, so that the result is a view?"""
        return all(s.kind in VIEWS for s in self.steps)

    @property
    def ends_in_call(self) -> bool:
        """Does the last step, a ufunc, make the result, so that it can write to given memory?"""
        return bool(self.steps) and self.steps[-1].kind == CALL and (
            self.steps[-1].result == self.result)


class Kernel:
    """How a call computes its one result; what plans ask before they evaluate it in blocks.

    function: of the operand arrays. shapes, dtypes: of the operands, then of the result. elements:
    of the largest array. sizes: bytes of each. cut: filled in by runtime/plans/tiling.py. orders:
    kernels that give the result's dimensions in other orders, filled in by runtime/plans/passes.py.
    permutes: whether there can be such. changes: whether it can write over its first operand.
    fresh: whether the result is a new array, filled in by runtime/plans/in_place.py.
    """

    __slots__ = ("_known", "_recording", "changes", "cut", "dtypes", "elements", "fresh",
                 "function", "orders", "permutes", "shapes", "sizes")

    def __init__(self, function: Function, shapes: Sequence[Shape], dtypes: Sequence[np.dtype]
                 ) -> None:
        self.function = function
        self.shapes = tuple(shapes)
        self.dtypes = tuple(dtypes)
        self.elements = 0
        sizes = []
        for shape, t in zip(self.shapes, self.dtypes, strict=True):
            count = 1
            for n in shape:
                count *= n
            if count > self.elements:
                self.elements = count
            sizes.append(count * t.itemsize)
        self.sizes = tuple(sizes)
        self.changes = self.permutes = False
        if type(function) is FunctionType:
            self.changes = hasattr(function, "over")
            self.permutes = hasattr(function, "permuted")
        self.orders: dict[tuple[int, ...], Kernel | None] = {}
        self.cut: Any = NOT_ASKED
        self.fresh: bool | None = None
        self._known = False
        self._recording: Recording | None = None

    @property
    def recording(self) -> Recording | None:
        """The numpy calls; None if the function makes anything else."""
        if not self._known:
            self._recording = record(self.function, self.shapes, self.dtypes)
            self._known = True
        return self._recording

    def set_recording(self, recording: Recording) -> None:
        """Give the numpy calls of a function that is never called itself."""
        self._recording, self._known = recording, True


def record(function: Function, shapes: Sequence[Shape], dtypes: Sequence[np.dtype]
           ) -> Recording | None:
    """The calls of a function of arrays; the last shape and dtype are those of its result."""
    if isinstance(function, np.ufunc):      # which gives these, as who chose it made sure
        count = len(shapes) - 1
        return Recording(count, tuple(zip(shapes, dtypes, strict=True)),
                         (Step(CALL, function, tuple(range(count)), count),), count)
    if hasattr(function, "permuted"):       # a product
        return None
    tape = _Tape()
    symbols = [tape.value(s, t) for s, t in zip(shapes[:-1], dtypes[:-1], strict=True)]
    try:
        out = function(*symbols)
    except Exception:      # whatever the function tried: it is not made of such calls
        return None
    if type(out) is not Symbol or out.shape != shapes[-1] or out.dtype != dtypes[-1]:
        return None
    return Recording(len(symbols), tuple(tape.values), tuple(tape.steps), out.index)


class _NotRecordable(Exception):
    pass


def _refuse(*args: Any, **kwargs: Any) -> NoReturn:
    raise _NotRecordable


class _Tape:
    """The values and steps so far."""

    def __init__(self) -> None:
        self.values: list[tuple[Shape, np.dtype]] = []
        self.steps: list[Step] = []

    def value(self, shape: Sequence[int], dtype: np.dtype) -> Symbol:
        self.values.append((tuple(shape), dtype))
        return Symbol(self, len(self.values) - 1, tuple(shape), dtype)

    def step(self, kind: str, function: Any, operands: Sequence[Any], shape: Sequence[int],
             dtype: np.dtype, axes: tuple[int, ...] = ()) -> Symbol:
        out = self.value(shape, dtype)
        self.steps.append(Step(kind, function, tuple(map(_operand, operands)), out.index, axes))
        return out


def _operand(x: Any) -> Any:
    """A symbol's number, or a constant of rank 0 (numbers of Python are weak, as in numpy)."""
    if isinstance(x, Symbol):
        return x.index
    if type(x) in _WEAK:
        return _Weak(x)
    x = np.asarray(x)
    if x.ndim:
        raise _NotRecordable
    return x


class _Weak(NamedTuple):
    """A Python number among operands; an `int` there is the number of a value."""
    value: int | float | complex


def constant(operand: Any) -> Any:
    """The constant for an operand that is not a value."""
    return operand.value if type(operand) is _Weak else operand


class Symbol(np.lib.mixins.NDArrayOperatorsMixin):
    """An array of which only shape and dtype are known."""

    __slots__ = ("dtype", "index", "shape", "tape")

    def __init__(self, tape: _Tape, index: int, shape: Shape, dtype: np.dtype) -> None:
        self.tape = tape
        self.index = index
        self.shape = shape
        self.dtype = dtype

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def astype(self, dtype: Any, copy: bool = True) -> Symbol:
        dtype = np.dtype(dtype)
        if dtype == self.dtype:
            return self
        if self.dtype.kind == "c" and dtype.kind != "c":        # numpy warns
            raise _NotRecordable
        return self.tape.step(CAST, None, (self,), self.shape, dtype)

    def view(self, dtype: Any) -> Symbol:
        dtype = np.dtype(dtype)
        if dtype.itemsize != self.dtype.itemsize or dtype.names or self.dtype.names:
            raise _NotRecordable
        return self.tape.step(BITS, None, (self,), self.shape, dtype)

    def reshape(self, *shape: Any) -> Symbol:
        if len(shape) == 1 and isinstance(shape[0], (tuple, list)):
            shape = tuple(shape[0])
        if math.prod(shape) != self.size or -1 in shape:
            raise _NotRecordable
        if shape == self.shape:
            return self
        return self.tape.step(RESHAPE, None, (self,), shape, self.dtype)

    def transpose(self, *order: Any) -> Symbol:
        if len(order) == 1 and isinstance(order[0], (tuple, list)):
            order = tuple(order[0])
        if sorted(order) != list(range(self.ndim)):
            raise _NotRecordable
        if order == tuple(range(self.ndim)):
            return self
        return self.tape.step(TRANSPOSE, tuple(order), (self,), [self.shape[d] for d in order],
                              self.dtype)

    def __getitem__(self, index: Any) -> Symbol:
        if type(index) is not tuple or len(index) != self.ndim or not all(
                type(i) is slice for i in index):
            raise _NotRecordable
        shape = [len(range(*i.indices(n))) for i, n in zip(index, self.shape, strict=True)]
        return self.tape.step(INDEX, index, (self,), shape, self.dtype)

    def squeeze(self, axis: tuple[int, ...]) -> Symbol:
        return self.reshape(tuple(n for d, n in enumerate(self.shape) if d not in axis))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Symbol:
        if method == "__call__" and not kwargs and ufunc.nout == 1 and ufunc.signature is None:
            return self._call(ufunc, inputs)
        if method == "reduce" and inputs[0] is self and len(inputs) == 1:
            return self._reduce(ufunc, **kwargs)
        raise _NotRecordable

    def _call(self, ufunc: np.ufunc, inputs: Sequence[Any]) -> Symbol:
        kinds = tuple(type(x) if type(x) in _WEAK else x.dtype for x in inputs)
        dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
        shape = np.broadcast_shapes(*(() if type(x) in _WEAK else x.shape for x in inputs))
        return self.tape.step(CALL, ufunc, inputs, shape, dtype)

    def _reduce(self, ufunc: np.ufunc, axis: Any = 0, dtype: Any = None, keepdims: bool = False,
                **kwargs: Any) -> Symbol:
        axes = tuple(axis) if isinstance(axis, tuple) else (axis,)
        known = ufunc in _EXTREMES if dtype is None else np.dtype(dtype) == self.dtype
        if kwargs or keepdims or not known or not axes or not all(
                isinstance(a, int) and 0 <= a < self.ndim for a in axes):
            raise _NotRecordable
        shape = tuple(n for d, n in enumerate(self.shape) if d not in axes)
        return self.tape.step(REDUCE, ufunc, (self,), shape, self.dtype, axes)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Symbol:
        """Record the functions of numpy that are no ufuncs and that evaluators call on symbols."""
        if kwargs:
            raise _NotRecordable
        if function is np.broadcast_to:
            x, shape = args
            shape = tuple(shape)
            if shape == self.shape:
                return self
            if np.broadcast_shapes(self.shape, shape) != shape or len(shape) != self.ndim:
                raise _NotRecordable
            return self.tape.step(REPEAT, None, (self,), shape, self.dtype)
        if hasattr(function, "elementwise") and self.dtype == np.float32:
            return self.tape.step(CALL, function, args, self.shape, self.dtype)
        if function is np.where and len(args) == 3:
            which, x, y = args
            dtypes = {v.dtype for v in (x, y)}
            if len(dtypes) != 1 or which.dtype != np.bool_:
                raise _NotRecordable
            shape = np.broadcast_shapes(*(v.shape for v in args))
            return self.tape.step(WHERE, None, args, shape, x.dtype)
        raise _NotRecordable

    __array__ = __bool__ = __float__ = __int__ = __index__ = __iter__ = _refuse
