"""Record what XLA's compiler plans: python -m tests.record.memory, with JAX and eight devices.

    XLA_FLAGS=--xla_force_host_platform_device_count=8 JAX_PLATFORMS=cpu python ...
"""
import json

import jax
import numpy as np

from ..partitioner.cost.memory_programs import PROGRAMS
from ..paths import GOLDEN

mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
found = {"jax": jax.__version__, "mesh": [2, 4], "programs": {}}
for name, (make, args, donated) in PROGRAMS.items():
    structs = [jax.ShapeDtypeStruct(shape, np.dtype(rest[0] if rest else "float32"),
                                    sharding=jax.NamedSharding(mesh, jax.P(*spec)))
               for shape, spec, *rest in args]
    with jax.set_mesh(mesh):
        compiled = jax.jit(make(jax), donate_argnums=donated).lower(*structs).compile()
    m = compiled.memory_analysis()
    found["programs"][name] = {
        "argument": m.argument_size_in_bytes, "output": m.output_size_in_bytes,
        "temp": m.temp_size_in_bytes, "alias": m.alias_size_in_bytes}
(GOLDEN / "xla_memory.json").write_text(json.dumps(found, indent=1) + "\n")
