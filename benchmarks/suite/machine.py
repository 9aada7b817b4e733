"""Where figures were measured: the processor and the versions."""
from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_features__ as CPU_FEATURES  # type: ignore


def machine(pythons: Mapping[str, str]) -> dict[str, str]:
    """Processor and its vector instructions, cores, memory, system, Python and the versions of the
    libraries."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    found = {"processor": _processor(), "vector instructions": _vectors(),
             "cores": str(len(os.sched_getaffinity(0))),
             "memory": f"{memory:.0f} GiB",
             "system": f"{platform.system()} {platform.machine()}",
             "BLAS threads": os.environ.get("OPENBLAS_NUM_THREADS", "one a core"),
             "Python": platform.python_version()}
    for library, python in pythons.items():
        script = f"import importlib.metadata as m; print(m.version({library!r}))"
        run = subprocess.run([python, "-c", script], capture_output=True, text=True)
        found[library] = run.stdout.strip() or "the sources here"
    return found


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def _vectors() -> str:
    """The widest that numpy found for its loops."""
    return next((name for name in ("AVX512F", "AVX2", "SVE", "NEON") if CPU_FEATURES.get(name)),
                "unknown")
