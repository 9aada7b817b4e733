"""Programs on the ranks of an MPI job."""
from __future__ import annotations

import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Sequence

import pytest

from ..paths import ROOT

# More ranks than processors, also as root; a rank that waits leaves the processor to the others.
_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1", "SHARDTRACE_NUM_DEVICES": "8",
    # by memory that they share, which is found sooner than what else could be used
    "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,sm"}


def mpiexec(count: int, *program: str, timeout: float = 300, cwd: pathlib.Path = ROOT / "tests"
            ) -> subprocess.CompletedProcess[str]:
    """What `mpiexec -n count python program` gives; the test is skipped where there is no MPI."""
    beside = pathlib.Path(sys.executable).with_name("mpiexec")
    launcher = str(beside) if beside.exists() else shutil.which("mpiexec")
    if importlib.util.find_spec("mpi4py") is None or launcher is None:
        pytest.skip("needs mpi4py and mpiexec")
    command = [launcher, "-n", str(count), sys.executable, *program]
    with subprocess.Popen(command, env={**os.environ, **_SETTINGS}, cwd=cwd, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        try:
            out, err = job.communicate(timeout=timeout)
        except BaseException:
            job.terminate()              # which ends the ranks, too
            raise
    return subprocess.CompletedProcess(command, job.returncode, out, err)


def run(count: int, text: str, arguments: Sequence[str] = ()) -> str:
    """What a program printed that ends well on all ranks."""
    done = mpiexec(count, "-c", text, *arguments)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-8000:]
    return done.stdout
