"""Record again what JAX finds in the functions of tests/tracer/checkify/cases.py.

    ORACLE -m tests.record.checkify            ORACLE: a Python with jax 0.10.2
"""
from __future__ import annotations

import json
import os

import numpy as np

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

from ..paths import GOLDEN
from ..tracer.checkify.cases import cases

if __name__ == "__main__":
    import jax
    from jax.experimental import checkify

    jax.config.update("jax_platforms", "cpu")
    found = {name: [x if isinstance(x, str) or x is None else np.asarray(x, np.float64).tolist()
                    for x in case()] for name, case in cases(jax, checkify).items()}
    (GOLDEN / "checkify.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(len(found), "cases")
