"""Record again what JAX gives for the uses in tests/golden/weak_collectives.txt, for tests/tracer.

    ORACLE -m tests.record.weak_collectives          ORACLE: a Python with jax 0.10.2
"""
from __future__ import annotations

import jax

from ..tracer.operands import weak_types
from ..tracer.shard_map import weak_collectives
from .weak_types import weak

if __name__ == "__main__":
    jax.config.update("jax_num_cpu_devices", 4)
    library = weak_types.Library.of("jax", weak)
    rows = [(way, name, weak_collectives.answer(library, way, name))
            for way in weak_collectives.WAYS for name in weak_collectives.COLLECTIVES]
    weak_collectives.TABLE.write_text("".join("\t".join(row) + "\n" for row in rows))
    print(len(rows), "uses")
