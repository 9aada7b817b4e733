"""Formats: in which order the elements of a block lie in memory, next to the sharding.

In simulation a layout changes no value and no cost; it is kept on the array and given back, so that
programs that set layouts run and compare them. Names, forms and messages are those of
`jax.experimental.layout` (0.10.2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .base_sharding import Sharding

__all__ = ["AutoLayout", "Format", "Layout", "default_layout"]


class AutoLayout:
    """The type of `Layout.AUTO`: the compiler may choose."""

    __slots__ = ()

    def __new__(cls) -> AutoLayout:
        return _AUTO

    def __repr__(self) -> str:
        return "AUTO"

    def __reduce__(self) -> tuple:
        return AutoLayout, ()


_AUTO: Any = object.__new__(AutoLayout)


class Layout:
    """The order of dimensions in memory, slowest first, and tiles within it.

    major_to_minor: the dimensions, one each. tiling: sizes of tiles, outermost first, or None
    where the device decides. sub_byte_element_size_in_bits: of elements of less than a byte.

    >>> Layout((1, 0)) == Layout([1, 0]), Layout((1, 0))
    (True, Layout(major_to_minor=(1, 0), tiling=None, sub_byte_element_size_in_bits=0))
    """

    __slots__ = ("major_to_minor", "sub_byte_element_size_in_bits", "tiling")

    AUTO = _AUTO

    def __init__(self, major_to_minor: Iterable[int],
                 tiling: Iterable[Iterable[int]] | None = None,
                 sub_byte_element_size_in_bits: int = 0) -> None:
        self.major_to_minor = tuple(major_to_minor)
        self.tiling = None if tiling is None else tuple([tuple(t) for t in tiling])
        self.sub_byte_element_size_in_bits = sub_byte_element_size_in_bits

    def update(self, **changes: Any) -> Layout:
        """This layout with some parts replaced."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        fields.update(changes)
        return Layout(**fields)

    def check_compatible_aval(self, aval_shape: tuple[int, ...]) -> None:
        """Raise ValueError unless the layout is for values of this rank."""
        if len(self.major_to_minor) != len(aval_shape):
            raise ValueError(
                "Length of major_to_minor and the rank of the value should match. Got "
                f"major_to_minor={self.major_to_minor} and shape={aval_shape}")

    def _key(self) -> tuple:
        return self.major_to_minor, self.tiling, self.sub_byte_element_size_in_bits

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Layout) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return (f"Layout(major_to_minor={self.major_to_minor}, tiling={self.tiling}, "
                f"sub_byte_element_size_in_bits={self.sub_byte_element_size_in_bits})")


class Format:
    """A layout and a sharding; either may be None, "as it comes".

    Raises ValueError for a layout without a sharding, TypeError for other objects.

    >>> x = jnp.ones((2, 3))
    >>> y = st.device_put(x, Format(Layout((1, 0)), x.sharding))
    >>> y.format.layout.major_to_minor, x.format.layout.major_to_minor
    ((1, 0), (0, 1))
    """

    __slots__ = ("layout", "sharding")

    def __init__(self, layout: Layout | AutoLayout | None = None, sharding: Sharding | None = None
                 ) -> None:
        if isinstance(layout, Layout) and sharding is None:
            raise ValueError(
                f"Sharding has to be concrete when layout is of type {type(layout)}. Please pass a "
                "`jax.sharding.NamedSharding` or `jax.sharding.SingleDeviceSharding` to the "
                f"sharding argument. Got sharding {sharding}")
        if layout is not None and not isinstance(layout, (Layout, AutoLayout)):
            raise TypeError(
                "Invalid value received for the layout argument. Expected values are `None`, "
                f"`Layout.AUTO` or an instance of `Layout`. Got {layout} of type {type(layout)}")
        if sharding is not None and not isinstance(sharding, Sharding):
            raise TypeError(
                "Invalid value received for the sharding argument. Expected values are `None` or "
                f"an instance of `jax.Sharding`. Got {sharding} of type {type(sharding)}")
        self.layout = layout
        self.sharding = sharding

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Format) and (self.layout, self.sharding) == (
            other.layout, other.sharding)

    def __hash__(self) -> int:
        return hash((self.layout, self.sharding))

    def __repr__(self) -> str:
        return f"Format(layout={self.layout}, sharding={self.sharding})"


def default_layout(ndim: int) -> Layout:
    """Row-major, the default."""
    return Layout(tuple(range(ndim)), ())


def reported_layout(layout: Layout) -> Layout:
    """A layout as an array of it reports it: what the device was left to decide is no tiling."""
    return layout.update(tiling=()) if layout.tiling is None else layout
