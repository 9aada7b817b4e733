"""Record what JAX makes of the programs of tests/golden/typed_programs.jsonl.

    ORACLE -m tests.record.typed_programs          ORACLE: a Python with jax 0.10.2

To add a case, add a line without `result`, and record.
"""
from __future__ import annotations

import json
import os
import warnings

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
warnings.simplefilter("ignore")

from ..tracer import typed_programs  # noqa: E402 - the devices are chosen before

lines = []
for case in typed_programs.cases():
    result = typed_programs.trace("jax", case)
    error = result.get("raised")
    if error is not None:
        result = {"error": type(error).__name__, "phrase": typed_programs.phrase(str(error))}
    lines.append(json.dumps({**case, "result": result}))
typed_programs.PATH.write_text("\n".join(lines) + "\n")
