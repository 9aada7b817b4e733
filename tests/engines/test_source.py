"""`as_jax_source`: a file that needs JAX alone, and gives what the program gives."""
from __future__ import annotations

import ast
import os
import subprocess
import sys

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax, nn, random
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

# Runs a file where shardtrace cannot be imported, on arrays of one archive, into another.
RUN_ALONE = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "shardtrace":
            raise ImportError("this file must not need shardtrace")
sys.meta_path.insert(0, Nothing())
import numpy as np
text = open(sys.argv[1]).read()
namespace = {"__name__": "program"}
exec(compile(text, sys.argv[1], "exec"), namespace)
given = np.load(sys.argv[2])
results = namespace["run"](*(given[k] for k in given.files))
np.savez(sys.argv[3], *map(np.asarray, results))
"""


@pytest.fixture
def alone(tmp_path):
    """Results of the file of a compiled function in a process of its own."""
    pytest.importorskip("jax")

    def run(compiled, *args):
        text = compiled.as_jax_source()
        ast.parse(text)
        assert "shardtrace" not in text.replace("by shardtrace;", "")
        (tmp_path / "program.py").write_text(text)
        (tmp_path / "run.py").write_text(RUN_ALONE)
        np.savez(tmp_path / "given.npz", *map(np.asarray, st.tree.leaves(args)))
        environment = {**os.environ, "JAX_PLATFORMS": "cpu",
                       "XLA_FLAGS": "--xla_force_host_platform_device_count=8"}
        done = subprocess.run(
            [sys.executable, "-I", str(tmp_path / "run.py"), str(tmp_path / "program.py"),
             str(tmp_path / "given.npz"), str(tmp_path / "found.npz")],
            env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        found = np.load(tmp_path / "found.npz")
        return [found[k] for k in found.files]
    return run


def test_a_training_step_runs_without_the_library(alone):
    mesh = st.make_mesh((2, 4), ("data", "model"))
    rng = np.random.default_rng(0)

    def put(value, *spec):
        return st.device_put(value.astype(np.float32), NamedSharding(mesh, P(*spec)))

    table = rng.standard_normal((200, 8)).astype(np.float32)         # captured

    def step(w, v, x, rows):
        def loss(w, v):
            h = nn.gelu(x @ w + jnp.asarray(table)[rows])
            return lax.scan(lambda c, r: (c + jnp.tanh(r @ v).sum(), None), 0.0, h)[0]

        value, (gw, gv) = st.value_and_grad(loss, (0, 1))(w, v)
        noise = random.normal(random.key(3), w.shape)
        return w - 0.1 * gw + noise, v - 0.1 * gv, value, jnp.roll(h_rows(x), 1, 0)

    def h_rows(x):
        return x[1:] - x[:-1]

    args = (put(rng.standard_normal((16, 8)), None, "model"), put(rng.standard_normal((8, 8)),
            "model"), put(rng.standard_normal((32, 16)), "data"), np.arange(32) * 5)
    compiled = st.jit(step).lower(*args).compile()
    for a, b in zip(alone(compiled, *args), st.tree.leaves(compiled(*args)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_each_statement_names_the_users_line(jax):
    mesh = st.make_mesh((8,), ("x",))
    x = st.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("x")))

    def f(x):
        total = x.sum()                    # a sum
        return jnp.tanh(total) * 2.0

    text = st.jit(f).lower(x).compile().as_jax_source()
    lines = [line for line in text.splitlines() if " = lax." in line]
    assert len(lines) >= 4
    assert all("# test_source.py:" in line for line in lines)
    assert any("total = lax.psum(" in line and "total = x.sum()" in line for line in lines)
    assert "in_specs = (P('x'),)" in text and "out_specs = (P(),)" in text
    assert "because" in text or "partial sums" in text


def test_names_are_names_of_python(jax):
    mesh = st.make_mesh((8,), ("x",))

    def f(tree, **lambda_):
        jax_ = tree["in"]["a-b"] + tree["np"]
        return {"out": jax_ * 2, "lax": lambda_["P"]}

    value = st.device_put(np.ones((8, 4), np.float32), NamedSharding(mesh, P("x")))
    args = {"in": {"a-b": value}, "np": value}
    compiled = st.jit(f).lower(args, P=value).compile(engine="jax")
    ast.parse(compiled.as_jax_source())
    np.testing.assert_array_equal(compiled(args, P=value)["out"], np.full((8, 4), 4.0))


def test_numbers_of_64_bits_and_narrow_ones_are_written_so(alone):
    mesh = st.make_mesh((8,), ("x",))
    with st.enable_x64(True):
        x = st.device_put(np.linspace(0, 1, 16), NamedSharding(mesh, P("x")))
        compiled = st.jit(lambda x: (x.sum() / 3, (x * 2).astype("bfloat16").astype("float32"),
                                     jnp.where(x > 0.5, np.inf, np.nan))).lower(x).compile()
        wanted = st.tree.leaves(compiled(x))
    for a, b in zip(alone(compiled, x), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_functions_of_the_host_are_left_to_be_supplied(jax):
    def f(x):
        st.debug.print("x is {}", x)
        return x

    text = st.jit(f).lower(np.ones(3, np.float32)).compile().as_jax_source()
    assert "callbacks = [\n    None,  # test_source.py:" in text
