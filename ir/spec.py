"""PartitionSpec: how the dimensions of an array are split over mesh axes.

A spec is interned and immutable, so two equal specs are one object and all that is derived from a
spec (its entries, its padded forms) is computed once. Inside the compiler every dimension is a
tuple of axis names, major first: `spec.entries`. A name may also be a sub-axis; see `axes`.

The notation and the messages are those of `jax.sharding.PartitionSpec` (0.10.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from .meshes.axes import AxisName, axes_overlap, axis_factor, axis_size, format_sub_axis, parse_axis
from .support.interning import Immutable, InternTable
from .support.lazy import lazy_import

_html = lazy_import(".support.html", __package__)
_placement_html = lazy_import(".meshes.placement_html", __package__)

__all__ = [
    "UNCONSTRAINED", "AxisName", "Entry", "P", "PartitionSpec", "Unconstrained", "axes_overlap",
    "axis_factor", "axis_size", "format_sub_axis", "parse_axis", "spec_from_entries",
]

_EMPTY: frozenset = frozenset()


class Unconstrained:
    """The type of `P.UNCONSTRAINED`: a dimension whose sharding the partitioner may choose."""

    __slots__ = ()

    def __new__(cls) -> Unconstrained:
        return UNCONSTRAINED

    def __repr__(self) -> str:
        return "UNCONSTRAINED"

    def __reduce__(self) -> tuple:
        return (Unconstrained, ())


UNCONSTRAINED: Any = object.__new__(Unconstrained)

Entry = tuple[AxisName, ...]  # or UNCONSTRAINED in its place


def _canonical_partition(partition: Any) -> Any:
    """JAX's form of one entry: `('x',)` is `'x'`, `()` is None, a list is a tuple."""
    if partition is None or partition is UNCONSTRAINED or isinstance(partition, str):
        return partition
    if isinstance(partition, (tuple, list)):
        for name in partition:
            if isinstance(name, (tuple, list)):
                raise ValueError(
                    "A tuple inside PartitionSpec cannot contain a nested tuple. "
                    f"Got partition: {partition!r} and the nested tuple: {name!r}"
                )
        if not partition:
            return None
        return partition[0] if len(partition) == 1 else tuple(partition)
    return partition


def _entry(partition: Any) -> Entry:
    if partition is None:
        return ()
    if partition is UNCONSTRAINED or type(partition) is tuple:
        return partition
    return (partition,)


def _as_frozenset(axes: Any, which: str) -> frozenset:
    if isinstance(axes, frozenset):
        return axes
    if not isinstance(axes, set):
        raise TypeError(
            f"{which} argument of PartitionSpec should of type `frozenset` or `set`. "
            f"Got type {axes}"
        )
    return frozenset(axes)


def _check_sets(partitions: tuple, unreduced: frozenset, reduced: frozenset) -> None:
    """Refuse unreduced and reduced axes that overlap with each other or with those of dimensions.
    """
    for which, axes in (("unreduced", unreduced), ("reduced", reduced)):
        if None in axes:
            raise ValueError(
                f"{which} cannot contain None. All elements in {which} should refer to the mesh "
                "axes."
            )
    if unreduced & reduced:
        raise ValueError(
            "`unreduced` and `reduced` argument to PartitionSpec cannot overlap. Got unreduced: "
            f"{_show_frozenset(unreduced)} and reduced: {_show_frozenset(reduced)}"
        )
    used = {name for p in partitions for name in (p if isinstance(p, tuple) else (p,))}
    for which, axes in (("unreduced", unreduced), ("reduced", reduced)):
        if used & axes:
            raise ValueError(
                f"partitions cannot overlap with {which} axes passed to PartitionSpec. Got "
                f"partitions: {partitions} and {which} axes: {_show_frozenset(axes)}"
            )


def _sorted_axes(axes: Iterable[AxisName]) -> list[AxisName]:
    return sorted(axes, key=lambda name: (str(name), type(name).__name__))


def _show_set(axes: frozenset) -> str:
    return "{" + ", ".join(repr(name) for name in _sorted_axes(axes)) + "}"


def _show_frozenset(axes: frozenset) -> str:
    return f"frozenset({_show_set(axes)})" if axes else "frozenset()"


_TABLE: InternTable[Any] = InternTable()
_known = _TABLE.data.get


def _make(partitions: tuple, unreduced: frozenset, reduced: frozenset,
          entries: tuple[Entry, ...] | None = None) -> PartitionSpec:
    """Canonical parts to the one spec that has them."""
    key = (partitions, unreduced, reduced)
    spec = _TABLE.get(key)
    if spec is not None:
        return spec
    if unreduced or reduced:
        _check_sets(partitions, unreduced, reduced)
    spec = object.__new__(PartitionSpec)
    put = object.__setattr__
    put(spec, "partitions", partitions)
    put(spec, "unreduced", unreduced)
    put(spec, "reduced", reduced)
    put(spec, "entries", tuple([_entry(p) for p in partitions]) if entries is None else entries)
    put(spec, "_padded", {})
    put(spec, "_axes", None)
    return _TABLE.add(key, spec)


class PartitionSpec(Immutable):
    """How each dimension of an array is split over mesh axes: `P('X', None, ('Y', 'Z'))`.

    Positional arguments are, dimension by dimension: None (not split), an axis name, a tuple or
    list of names (major first), or `P.UNCONSTRAINED`. The sets `unreduced` and `reduced` name axes
    over which the value is a partial sum, or whose cotangent is.

    Specs are interned: equality is identity, and structural (`P('x') != P('x', None)`). A spec is
    not a tuple. Names are not checked here but where the spec meets a mesh (`NamedSharding`).

    Over Auto axes a spec is a wish that constraints, `jit` and `device_put` fulfil; over Explicit
    axes it is part of the type; over Manual axes it is written in shard_map's in_specs and
    out_specs only.

    >>> from shardtrace.sharding import PartitionSpec as P
    >>> P("x", None, ("y", "z")), P(["x"]) == P("x"), P("x", unreduced={"y"})
    (P('x', None, ('y', 'z')), True, P('x', unreduced={'y'}))
    """

    __slots__ = ("__weakref__", "_axes", "_padded", "entries", "partitions", "reduced",
                 "unreduced")

    partitions: tuple
    """One item a dimension, as JAX keeps it: None, a name, a tuple of names, or UNCONSTRAINED."""
    entries: tuple[Entry, ...]
    """One item a dimension, always a tuple of names (or the UNCONSTRAINED marker)."""
    unreduced: frozenset
    reduced: frozenset

    UNCONSTRAINED = UNCONSTRAINED

    def __new__(
        cls, *partitions: Any, unreduced: Any = _EMPTY, reduced: Any = _EMPTY
    ) -> PartitionSpec:
        try:
            spec = _TABLE.get((partitions, unreduced, reduced))
        except TypeError:  # not hashable: a list or set among the arguments
            spec = None
        if spec is not None:
            return spec
        return _make(
            tuple([_canonical_partition(p) for p in partitions]),
            _as_frozenset(unreduced, "unreduced"),
            _as_frozenset(reduced, "reduced"),
        )

    def __init_subclass__(cls, **kwargs: Any) -> None:
        raise TypeError("Subclassing `jax.P` is prohibited.")

    def __reduce__(self) -> tuple:
        return _unpickle, (self.partitions, self.unreduced, self.reduced)

    def __repr__(self) -> str:
        parts = [repr(p) for p in self.partitions]
        trailing = "," if len(parts) == 1 and not (self.unreduced or self.reduced) else ""
        if self.unreduced:
            parts.append(f"unreduced={_show_set(self.unreduced)}")
        if self.reduced:
            parts.append(f"reduced={_show_set(self.reduced)}")
        return f"P({', '.join(parts)}{trailing})"

    def _repr_html_(self) -> str:
        return _html.page(_placement_html.spec_html(self.entries, self.unreduced, self.reduced))

    # -- the sequence of partitions

    def __len__(self) -> int:
        return len(self.partitions)

    def __getitem__(self, index: Any) -> Any:
        if self.unreduced or self.reduced:
            raise ValueError(
                "Using pspec[...] is dangerous when PartitionSpec has non-empty "
                "unreduced/reduced set. Please use spec.partitions[...]"
            )
        return self.partitions[index]

    def __iter__(self) -> Iterator[Any]:
        if self.unreduced or self.reduced:
            raise ValueError(
                "Using *pspec is dangerous when PartitionSpec has non-empty unreduced/reduced "
                "set. Please use *spec.partitions"
            )
        return iter(self.partitions)

    def index(self, value: Any) -> int:
        """First dimension whose partition is `value` (canonicalized); ValueError if none is."""
        return self.partitions.index(_canonical_partition(value))

    def count(self, value: Any) -> int:
        """Number of dimensions whose partition is `value` (canonicalized)."""
        return self.partitions.count(_canonical_partition(value))

    def __add__(self, other: Any) -> PartitionSpec:
        if isinstance(other, PartitionSpec):
            return _make(
                self.partitions + other.partitions,
                self.unreduced | other.unreduced,
                self.reduced | other.reduced,
            )
        if not isinstance(other, tuple):
            return NotImplemented
        self._refuse_tuple(other, "__add__")
        return PartitionSpec(*self.partitions, *other)

    def __radd__(self, other: Any) -> PartitionSpec:
        if not isinstance(other, tuple):
            return NotImplemented
        self._refuse_tuple(other, "__radd__")
        return PartitionSpec(*other, *self.partitions)

    def _refuse_tuple(self, other: tuple, method: str) -> None:
        for which in ("unreduced", "reduced"):
            if getattr(self, which):
                raise TypeError(
                    f"other {other} cannot be of instance `tuple` when self {self} has {which} "
                    f"in `{method}` of PartitionSpec."
                )

    # -- derived specs

    def update(
        self, partitions: Iterable | None = None, unreduced: Any = None, reduced: Any = None
    ) -> PartitionSpec:
        """This spec with some parts replaced; None leaves a part as it is."""
        return PartitionSpec(
            *(self.partitions if partitions is None else partitions),
            unreduced=self.unreduced if unreduced is None else unreduced,
            reduced=self.reduced if reduced is None else reduced,
        )

    def padded(self, ndim: int) -> PartitionSpec:
        """This spec with exactly `ndim` dimensions: padded with None, or cut if the rest is None.

        Raises ValueError if a dimension beyond `ndim` is split.
        """
        have = len(self.partitions)
        if have == ndim:
            return self
        spec = self._padded.get(ndim)
        if spec is None:
            if have < ndim:
                partitions = self.partitions + (None,) * (ndim - have)
            elif all(p is None for p in self.partitions[ndim:]):
                partitions = self.partitions[:ndim]
            else:
                hint = " For scalars the PartitionSpec should be P()" if ndim == 0 else ""
                raise ValueError(
                    f"PartitionSpec {self} is only valid for values of rank at least {have}, but "
                    f"was applied to a value of rank {ndim}.{hint}"
                )
            spec = _make(partitions, self.unreduced, self.reduced)
            self._padded[ndim] = spec
        return spec

    def axes(self) -> tuple[AxisName, ...]:
        """All axes that split a dimension, in order of dimensions, major first."""
        axes = self._axes
        if axes is None:
            axes = ()
            for entry in self.entries:
                if entry and entry is not UNCONSTRAINED:
                    axes += entry
            object.__setattr__(self, "_axes", axes)
        return axes

    def to_tangent_spec(self) -> PartitionSpec:
        """Spec of a tangent of a value with this spec: the same."""
        return self

    def to_ct_spec(self) -> PartitionSpec:
        """Spec of a cotangent of a value with this spec: reduced and unreduced change places."""
        if not self.unreduced and not self.reduced:
            return self
        return _make(self.partitions, self.reduced, self.unreduced)


P = PartitionSpec


def _unpickle(partitions: tuple, unreduced: frozenset, reduced: frozenset) -> PartitionSpec:
    return PartitionSpec(*partitions, unreduced=unreduced, reduced=reduced)


def spec_from_entries(
    entries: Iterable[Entry], unreduced: frozenset = _EMPTY, reduced: frozenset = _EMPTY
) -> PartitionSpec:
    """The spec with these entries, each a tuple of names or UNCONSTRAINED: inverse of `.entries`.

    The quick way for compiler code: entries are trusted to be canonical tuples of names.
    """
    entries = tuple(entries)
    key = (entries, unreduced, reduced)
    known = _known(key)
    if known is not None:
        spec = known()
        if spec is not None:
            return spec
    if entries:
        partitions = tuple([
            entry if entry is UNCONSTRAINED or len(entry) > 1 else (entry[0] if entry else None)
            for entry in entries
        ])
    else:
        partitions = ()
    # Known by its entries too from now on. No other spec has them as partitions, since () and
    # 1-tuples are never canonical.
    return _TABLE.add(key, _make(partitions, unreduced, reduced, entries))
