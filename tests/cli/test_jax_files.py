"""`--jax`: files that are written for real JAX, which the command imports instead of running."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

TRAIN = '''
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
RAN = []


def loss(params, x):
    h = jax.nn.gelu(x @ params["up"])
    return jnp.mean((h @ params["down"] - x) ** 2)


@functools.partial(jax.jit, static_argnums=2, donate_argnums=0)
def step(params, x, n):
    jax.debug.callback(lambda: RAN.append(n))
    grads = jax.grad(loss)(params, x)
    return jax.tree.map(lambda p, g: p - 0.1 * g / n, params, grads)


def put(shape, *spec):
    return jax.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


def main():
    params = {"up": put((64, 256), None, "model"), "down": put((256, 64), "model", None)}
    for _ in range(3):
        params = step(params, put((32, 64), "data"), 2)
    assert params["up"].shape == (64, 256) and not params["up"].any() and not RAN


if __name__ == "__main__":
    main()
'''


@pytest.fixture
def command(tmp_path: Any) -> Any:
    """Runs the command in a process of its own, where JAX has the devices that it wants."""
    pytest.importorskip("jax")
    (tmp_path / "train.py").write_text(TRAIN)
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"JAX_PLATFORMS": "cpu"}

    def run(*args: str, status: int = 0) -> str:
        done = subprocess.run([sys.executable, "-m", "shardtrace", *args, "--width", "100"],
                              cwd=tmp_path, env=env, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        return done.stdout
    return run


def test_a_file_is_explained_as_it_is(command: Any) -> None:
    found = command("explain", "--jax", "train.py")
    assert "train.py: 1 program" in found
    assert "step(params['down']: f32[256@model,64], params['up']: f32[64,256@model]" in found
    line = TRAIN.splitlines().index('    return jnp.mean((h @ params["down"] - x) ** 2)') + 1
    assert re.search(rf"all-reduce over model .*\n   --> train.py:{line}:\d+ in `loss`", found)


def test_functions_take_their_arguments_from_options(command: Any) -> None:
    found = command("partition", "--jax", "train.py:loss", "--mesh", "data=2,model=4",
                    "--arg", "params['up']=f32[64,256@model]",
                    "--arg", "params['down']=f32[256@model,64]", "--arg", "x=f32[32@data,64]")
    assert "program @loss(" in found and "all-reduce over model" in found


def test_the_plan_of_xla_is_one_command_away(command: Any) -> None:
    assert "time -> xla: step" in command("diff", "--jax", "--objective", "xla", "train.py:step")


def test_without_jax_the_option_says_what_to_install(tmp_path: Any) -> None:
    (tmp_path / "train.py").write_text("x = 1\n")
    block = "import sys; sys.modules['jax'] = None\nfrom shardtrace.cli.main import main\n"
    done = subprocess.run(
        [sys.executable, "-c", f"{block}sys.exit(main(['explain', '--jax', 'train.py']))"],
        cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'shardtrace[jax]'" in done.stderr


def test_the_plan_is_set_beside_what_xla_did(command: Any) -> None:
    """XLA makes the same two all-reduces of this step, at the same line."""
    found = json.loads(command("diff", "--jax", "--xla", "train.py", "--json"))
    line = TRAIN.splitlines().index('    return jnp.mean((h @ params["down"] - x) ** 2)') + 1
    assert not found["differs"] and found["ours"]["kinds"] == ["all-reduce"]
    (row,) = found["lines"]
    assert row["line"] == f"train.py:{line}" and row["ours"] == row["xla"]
    assert row["xla"]["collectives"] == 2


def test_functions_of_shardtrace_are_compiled_by_xla_as_well(command: Any, tmp_path: Any) -> None:
    (tmp_path / "attend.py").write_text(ATTEND)
    found = command("diff", "--xla", "attend.py", status=1)
    assert re.search(r"attend.py:14 +1 all-gather .* 2 collective-permute +\d.*\n +all-gather",
                     found)


ATTEND = '''
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("data", "model"))
rows = NamedSharding(mesh, P("data"))


@st.jit
def attend(q, k, v):
    # the keys are gathered, then the values
    s = q @ k.T
    e = jnp.exp(s - s.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)) @ v


attend(*[st.device_put(np.ones((64, 128), np.float32), rows)] * 3)
'''
