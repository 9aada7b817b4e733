"""The references that users hold, and the functions of `jax.ref`.

    ref = new_ref(x);  ref[0] = 1.0;  ref[...] += 1;  y = ref[...];  freeze(ref)

Elements are read and written with the index syntax of arrays; a write must have the dtype and the
shape of what it replaces.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np

from ...ir.diagnostics.diagnostic import fail
from ...ir.op import OPS
from ...ir.ops.elementwise.convert import convert_element_type_p
from ...ir.source.location import Location, capture
from ...ir.types import ArrayType, array_type
from ...ir.values.array import Array
from ...ir.values.typeof import typeof
from .elements import fitting, index_of, is_all
from .frames import Box, traced_by

_KINDS = (None, "no_grad_no_remat")


class AbstractRef:
    """The type of a reference: that of the arrays that it holds, `inner_aval`."""

    __slots__ = ("inner_aval",)

    def __init__(self, inner_aval: ArrayType) -> None:
        self.inner_aval = inner_aval

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner_aval, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractRef) and self.inner_aval is other.inner_aval

    def __hash__(self) -> int:
        return hash((AbstractRef, self.inner_aval))

    def str_short(self, short_dtypes: bool = False, **_: Any) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short()


class AnyRef:
    """What references and views of their elements have in common: `_box` and `origin` are those of
    the reference."""

    __slots__ = ()
    _box: Box
    origin: Location | str

    def _value(self) -> Any:
        raise NotImplementedError

    def _store(self, value: Any) -> None:
        raise NotImplementedError

    def __getitem__(self, idx: Any) -> Any:
        return self._value()[index_of(self.shape, idx)]

    def __setitem__(self, idx: Any, value: Any) -> None:
        old, idx = self._value(), index_of(self.shape, idx)
        part = old[idx]
        value = _written(value, part, old)
        if part.shape == old.shape and is_all(idx):
            self._store(value)
        else:
            self._store(old.at[idx].set(value))

    def get(self, idx: Any = ...) -> Any:
        return self[idx]

    def set(self, value: Any, *, idx: Any = ...) -> None:
        self[idx] = value

    def swap(self, value: Any, *, idx: Any = ...) -> Any:
        old = self[idx]
        self[idx] = value
        return old

    def addupdate(self, value: Any, *, idx: Any = ...) -> None:
        """Add `value` to the elements at an index."""
        old, idx = self._value(), index_of(self.shape, idx)
        self._store(old.at[idx].add(_written(value, old[idx], old, broadcast=True)))

    @property
    def at(self) -> _Views:
        """`ref.at[idx]` is a reference to the elements at this index."""
        return _Views(self)

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value().shape

    @property
    def dtype(self) -> Any:
        return self._value().dtype

    @property
    def aval(self) -> AbstractRef:
        return AbstractRef(typeof(self._value()))

    @property
    def sharding(self) -> Any:
        return self._value().sharding

    @property
    def format(self) -> Any:
        return self._value().format

    @property
    def committed(self) -> bool:
        return self._value().committed

    def refuse_result(self, function: str) -> NoReturn:
        refuse_result(function, self)

    @property
    def whole(self) -> AbstractRef:
        """The type of the reference itself, for messages."""
        return AbstractRef(typeof(self._box.value))

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]


class Ref(AnyRef):
    """A reference to an array, made by `new_ref`. aval: its type. refs: the box with its value.

    It can be an argument of jitted functions and of bodies of loops, or be closed over by them, by
    branches and by functions under `vmap`, `grad` and `checkpoint`. It cannot be returned.
    """

    __slots__ = ("_box", "_gone", "origin")

    def __init__(self, aval: AbstractRef | None, refs: Box) -> None:
        self._box, self._gone = refs, False
        self.origin: Location | str = ""             # where it was made, or the argument's name

    def _value(self) -> Any:
        self._check()
        return self._box.read()

    def _store(self, value: Any) -> None:
        self._check()
        self._box.write(value)

    def _check(self) -> None:
        if self._gone:
            fail(RuntimeError, "This reference has no value any more.", code="frozen-ref",
                 notes=("it was frozen or freed, or is one inside of a function that has "
                        "returned, such as the derivative rule of a `custom_vjp` finds it",),
                 help="use the array that `freeze` returned")

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        if self._gone:
            return "Ref(frozen)"
        value = self._box.value
        text = repr(value)
        return text.replace("Array", "Ref", 1) if text.startswith("Array") else f"Ref({text})"


class TransformedRef(AnyRef):
    """A reference to elements of another one, `ref.at[idx]`. Passed to a function it is one to an
    array of these elements there."""

    __slots__ = ("_idx", "ref")

    def __init__(self, ref: AnyRef, idx: Any) -> None:
        self.ref, self._idx = ref, idx

    @property
    def _box(self) -> Box:      # type: ignore[override]
        return self.ref._box

    @property
    def origin(self) -> Location | str:     # type: ignore[override]
        return self.ref.origin

    def _value(self) -> Any:
        return self.ref[self._idx]

    def _store(self, value: Any) -> None:
        self.ref[self._idx] = value

    def __repr__(self) -> str:
        return f"TransformedRef({self.ref!r}, {self._idx!r})"


class _Views:
    __slots__ = ("_ref",)

    def __init__(self, ref: AnyRef) -> None:
        self._ref = ref

    def __getitem__(self, idx: Any) -> TransformedRef:
        return TransformedRef(self._ref, idx)


def _written(value: Any, part: Any, whole: Any, broadcast: bool = False) -> Any:
    if isinstance(value, AnyRef):
        raise TypeError(f"{value!r} is a reference: write its value, `ref[...]`")
    return fitting(value, part, whole.shape, broadcast)


# -- the functions of jax.ref ----------------------------------------------------------------------

def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A reference that holds `init_val`, an array or number, at first.

    kind: "no_grad_no_remat" for one that derivatives and recomputation leave alone; it makes no
    difference here. memory_space: where the value is.

    Sharding
      Auto: the value keeps its sharding until it is written.
      Explicit: a write must have the sharding of what it replaces.
      Manual: inside `shard_map`, a reference holds each device's block.

    >>> ref = st.new_ref(jnp.zeros(3))
    >>> ref[0] = 1.0
    >>> ref[...] += 1
    >>> ref
    Ref([2., 1., 1.], dtype=float32)
    """
    if isinstance(init_val, AnyRef):
        raise TypeError("new_ref takes an array, not a reference; read it first: `ref[...]`")
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of reference: {kind!r}; there are {_KINDS}")
    try:
        t = typeof(init_val)
    except TypeError:
        raise TypeError("Error interpreting argument to new_ref as a JAX value. The problematic "
                        f"value is of type {type(init_val)} and was passed to new_ref at position "
                        "0.") from None
    if not isinstance(init_val, Array):
        init_val = convert_element_type_p.bind(init_val, new_dtype=t.dtype, weak_type=t.weak_type,
                                               sharding=None)
    ref = Ref(None, Box(init_val))
    ref.origin = capture()
    return ref


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A reference to an array of this type (with `shape` and `dtype`), all zeros."""
    t = array_type(tuple(ty.shape), np.dtype(ty.dtype))
    return new_ref(OPS["broadcast_in_dim"].bind(
        np.zeros((), t.dtype)[()], shape=t.shape, broadcast_dimensions=(), sharding=None),
        memory_space=memory_space)


def freeze(ref: Ref) -> Any:
    """The value of a reference, which becomes invalid.

    >>> st.freeze(st.new_ref(jnp.arange(3)))
    Array([0, 1, 2], dtype=int32)
    """
    value = ref[...]
    free_ref(ref)
    return value


def free_ref(ref: Ref) -> None:
    """Release the value of a reference, which has none afterwards. Reading it then raises
    RuntimeError, and so does freeing it once more."""
    _checked(ref)._check()
    ref._gone = True


def get(ref: Any, idx: Any = None) -> Any:
    """`ref[idx]`; the whole array without an index.

    >>> st.ref.get(st.new_ref(jnp.arange(5)), slice(1, 3))
    Array([1, 2], dtype=int32)
    """
    return _slots(ref)[... if idx is None else idx]


def set(ref: Any, idx: Any, value: Any) -> None:
    """`ref[idx] = value`.

    >>> ref = st.new_ref(jnp.zeros(3))
    >>> st.ref.set(ref, 1, 10.0)
    >>> ref
    Ref([ 0., 10.,  0.], dtype=float32)
    """
    _slots(ref)[... if idx is None else idx] = value


def swap(ref: Any, idx: Any, value: Any, _function_name: str = "ref_swap") -> Any:
    """`ref[idx] = value`; what was there before.

    >>> st.ref.swap(st.new_ref(jnp.arange(3)), 1, 10)
    Array(1, dtype=int32)
    """
    return _slots(ref).swap(value, idx=... if idx is None else idx)


def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add `x` to the elements at `idx`.

    >>> ref = st.new_ref(jnp.arange(3))
    >>> st.ref.addupdate(ref, 1, 10)
    >>> ref
    Ref([ 0, 11,  2], dtype=int32)
    """
    _slots(ref).addupdate(x, idx=... if idx is None else idx)


def _slots(ref: Any) -> AnyRef:
    if not isinstance(ref, AnyRef):
        raise ValueError(f"Can only call this on a `Ref`, got {type(ref).__name__}: {ref}.")
    return ref


def _checked(ref: Any) -> Ref:
    if not isinstance(ref, Ref):
        raise TypeError(f"expected a reference, got {type(ref).__name__}")
    return ref


def refuse_result(what: str, ref: AnyRef, traced_for: str = "") -> NoReturn:
    """References cannot be returned by what is traced."""
    origin = ref.origin
    from_where = "" if not origin else (
        f"\n\nThe returned mutable array was passed in as the argument {origin}."
        if isinstance(origin, str) else
        f"\n\nThe returned mutable array was created on line {origin}.")
    fail(ValueError, f"function {what} traced for {traced_for or traced_by()} returned a mutable "
         f"array reference of type {ref.whole}, but mutable array "
         f"references cannot be returned.{from_where}",
         code="returned-ref", help="return its value, which `freeze` and an index give")


def references(leaves: Sequence[Any]) -> list[int]:
    """The positions of references among the leaves of arguments."""
    return [i for i, x in enumerate(leaves) if isinstance(x, AnyRef)]


def inner_refs(values: Sequence[Any], names: Sequence[str] = ()) -> list[Ref]:
    """References for the values of others, for the extent of a function that has these as
    arguments of these names."""
    refs = [Ref(None, Box(x)) for x in values]
    for ref, name in zip(refs, names, strict=False):
        ref.origin = name
    return refs


def last_values(refs: Sequence[Ref]) -> list[Any]:
    """What such references hold in the end. They are of no use afterwards."""
    return [freeze(ref) for ref in refs]
