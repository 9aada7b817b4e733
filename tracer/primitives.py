"""Primitives under the names that modules of JAX give them: `lax.add_p` is the op `add`.

An op is a primitive in JAX's sense: `eqn.primitive is lax.add_p`, and `lax.add_p.bind(x, y)`.
"""
from __future__ import annotations

from collections.abc import Callable

from ..ir.op import Op
from ..ir.support.lazy import lazy_import

_dialect = lazy_import("..ir.ops.dialect", __package__)

_OTHER_NAMES = {"linear_solve_p": "custom_linear_solve"}


def primitives_of(module: str) -> Callable[[str], Op]:
    """The `__getattr__` of a public module: `name_p` is the op `name`."""
    def __getattr__(name: str) -> Op:
        if name.endswith("_p") and not name.startswith("_"):
            stem = name[:-2]
            for candidate in (_OTHER_NAMES.get(name, stem), stem, stem.replace("_", "-", 1)):
                if candidate in _dialect.OPS:
                    return _dialect.OPS[candidate]
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return __getattr__
