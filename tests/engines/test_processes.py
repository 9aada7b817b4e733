"""Two processes of JAX with four devices each run one partitioned program, over the loopback."""
from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from ..paths import ROOT

MODEL = '''
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("data", "model"))
rng = np.random.default_rng(0)

def put(shape, *spec):
    value = rng.standard_normal(shape).astype(np.float32)
    return st.device_put(value, NamedSharding(mesh, P(*spec)))

x, w, v = put((16, 8), "data"), put((8, 16), None, "model"), put((16, 4), "model")

def loss(w, v):
    y = jnp.tanh(x @ w) @ v
    return ((y[1:] - y[:-1]) ** 2).mean()

step = st.jit(lambda w, v: (loss(w, v), *(p - 0.1 * g for p, g in zip(
    (w, v), st.grad(loss, (0, 1))(w, v)))))
'''
START = '''
import sys
import jax
jax.distributed.initialize(f"localhost:{sys.argv[1]}", 2, int(sys.argv[2]))
assert jax.device_count() == 8 and jax.local_device_count() == 4
'''
TRAIN = '''
compiled = step.lower(w, v).compile(engine="jax")
for _ in range(3):
    value, w, v = compiled(w, v)
    print("loss", float(value))
found = compiled.as_jax()(np.asarray(w), np.asarray(v))
assert not found[1].is_fully_addressable and len(found[1].addressable_shards) == 4
print("loss", float(found[0]))
'''


def _losses_here() -> list[float]:
    names: dict[str, Any] = {}
    exec(MODEL, names)
    w, v, losses = names["w"], names["v"], []
    for _ in range(4):
        value, w, v = names["step"](w, v)
        losses.append(float(value))
    return losses


def test_two_processes_run_one_program() -> None:
    pytest.importorskip("jax")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "SHARDTRACE_NUM_DEVICES": "8",
                   "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    processes = [subprocess.Popen(
        [sys.executable, "-c", START + MODEL + TRAIN, str(port), str(i)], env=environment,
        cwd=ROOT / "tests", text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for i in range(2)]
    try:
        said = [p.communicate(timeout=120) for p in processes]
    finally:
        for p in processes:
            p.kill()
    wanted = _losses_here()
    for p, (out, problem) in zip(processes, said, strict=True):
        assert p.returncode == 0, problem[-2000:]
        losses = [float(line.split()[1]) for line in out.splitlines() if line.startswith("loss")]
        np.testing.assert_allclose(losses, wanted, rtol=1e-5)
