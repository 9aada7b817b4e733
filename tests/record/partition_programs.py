"""Record what JAX makes of the measured programs, for tests/benchmarks/test_partition_programs.py.

    ORACLE -m tests.record.partition_programs [PART]        ORACLE: a Python with jax 0.10.2

Per program of benchmarks/partition/ (with PART: whose name has it): the exchanges of XLA's
per-device program, its products, operations and memory, the specs of results that are left open,
and what small programs give on one device.
"""
from __future__ import annotations

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
from ..benchmarks.program_values import is_run, whole
from ..paths import GOLDEN, ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import collectives

RECORD = GOLDEN / "partition_programs.json"

if __name__ == "__main__":
    part = sys.argv[1] if len(sys.argv) > 1 else ""
    known = json.loads(RECORD.read_text()) if part else {}
    for case in collectives.CASES:
        if part in case.name:
            known[case.name] = {**collectives.xla_record(case),
                                "specs": collectives.open_specs(case, "jax"),
                                **({"values": whole(case)} if is_run(case) else {})}
    rows = [f"{json.dumps(c.name)}: {json.dumps(known[c.name])}" for c in collectives.CASES
            if c.name in known]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    print(len(rows), "programs")
