"""Record what JAX makes of the measured programs, for tests/benchmarks/test_partition_programs.py.

    ORACLE -m tests.record.partition_programs          ORACLE: a Python with jax 0.10.2

Per program of benchmarks/partition_programs.py and partition_models.py: the exchanges of XLA's
per-device program, its operations and peak memory, and the specs of results that are left open.
"""
from __future__ import annotations

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
from ..paths import GOLDEN, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import collectives

if __name__ == "__main__":
    found = {}
    for case in collectives.CASES:
        found[case.name] = {**collectives.xla_record(case),
                            "specs": collectives.open_specs(case, "jax")}
    rows = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in found.items()]
    (GOLDEN / "partition_programs.json").write_text(
        "{\n" + ",\n".join(rows) + "\n}\n")
    print(len(rows), "programs")
