"""Record again what JAX gives for the uses in tests/golden/weak_types.txt, for tests/tracer.

    ORACLE -m tests.record.weak_types          ORACLE: a Python with jax 0.10.2
"""
from __future__ import annotations

import jax.numpy as jnp
from jax._src.lax.lax import _convert_element_type

from ..tracer.operands import weak_types


def weak(x):
    """The array x, weakly typed."""
    return _convert_element_type(jnp.asarray(x), weak_type=True)


if __name__ == "__main__":
    library = weak_types.Library.of("jax", weak)
    rows = weak_types.read()
    weak_types.TABLE.write_text("".join(
        "\t".join([expression, *(f"{use}:{weak_types.answer(library, expression, use)}"
                                 for use in uses)]) + "\n" for expression, uses in rows.items()))
    print(len(rows), "expressions")
