"""Record again what JAX gives for the uses in tests/golden/weak_transforms.txt, for tests/tracer.

    ORACLE -m tests.record.weak_transforms          ORACLE: a Python with jax 0.10.2
"""
from __future__ import annotations

from ..tracer.operands import weak_transforms, weak_types
from .weak_types import weak

if __name__ == "__main__":
    library = weak_types.Library.of("jax", weak)
    rows = [(expression, way, weak_transforms.answer(library, expression, way))
            for expression, ways in weak_transforms.read().items() for way in ways]
    weak_transforms.TABLE.write_text("".join("\t".join(row) + "\n" for row in rows))
    print(len(rows), "uses")
