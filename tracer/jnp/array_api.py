"""The array API standard's questions about a module of array functions: version and capabilities.
"""
from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.dtypes import canonicalize_dtype
from ...ir.dtypes.kinds import KINDS
from ...ir.settings.context import x64_enabled

__all__ = ["__array_api_version__", "__array_namespace_info__"]
__array_api_version__ = "2024.12"
_OF_STANDARD = {"bool", "int8", "int16", "int32", "uint8", "uint16", "uint32", "float32",
                "complex64"}
_WIDE = {"int64", "uint64", "float64", "complex128"}


class ArrayNamespaceInfo:
    """The answers to the questions of the standard; see `__array_namespace_info__`."""

    def capabilities(self) -> dict[str, Any]:
        """Positions by truth values and sizes that depend on data exist, but not when traced."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 64}

    def default_device(self) -> None:
        return None                     # arrays are not bound to one

    def devices(self) -> list[Any]:
        return [None, *DEVICES[0]()]

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype]:
        names = {"real floating": "float64", "complex floating": "complex128",
                 "integral": "int64", "indexing": "int64"}
        return {kind: canonicalize_dtype(np.dtype(name), x64_enabled())
                for kind, name in names.items()}

    def dtypes(self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
               ) -> dict[str, np.dtype]:
        """The dtypes of the standard that arrays can have, by name, of one kind or several."""
        known = _OF_STANDARD | _WIDE if x64_enabled() else _OF_STANDARD
        kinds = ("numeric", "bool") if kind is None else kind if isinstance(kind, tuple) else (
            kind,)
        return {d.name: d for one in kinds for d in sorted(KINDS[one], key=str) if d.name in known}


DEVICES: list[Any] = [lambda: []]
"""What lists the devices; the public module of numpy functions puts it here."""


def __array_namespace_info__() -> ArrayNamespaceInfo:
    """What the module can do, in the terms of the array API standard.

    >>> jnp.__array_namespace_info__().default_dtypes()["real floating"]
    dtype('float32')
    """
    return ArrayNamespaceInfo()
