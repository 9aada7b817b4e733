"""The engines behind one seam, and what the jax engine does with each feature of a program."""
from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.engines.engine import ENGINES
from shardtrace.ir.settings.context import config
from shardtrace.sharding import NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..paths import ROOT
from .conftest import ALL, X, put

# -- how an engine is chosen ----------------------------------------------------------------------

def test_the_engine_is_a_setting_and_an_option(mesh):
    x = put(mesh, X, "x")
    wanted = np.tanh(X)
    for engine in ALL:
        with config.override(engine=engine):
            np.testing.assert_allclose(st.jit(jnp.tanh)(x), wanted, rtol=1e-6)
        compiled = st.jit(jnp.tanh).lower(x).compile(engine=engine)
        np.testing.assert_allclose(compiled(x), wanted, rtol=1e-6)


def test_executor_is_an_older_name_of_the_setting():
    with config.override(shardtrace_executor="per_device"):
        assert config.engine == config.executor == "per_device"


def test_an_engine_that_there_is_not():
    lowered = st.jit(jnp.tanh).lower(X)
    with pytest.raises(ValueError, match="no engine called `jaxx`; did you mean `jax`"):
        lowered.compile(engine="jaxx")
    with pytest.raises(ValueError, match="enum value must be in"):
        config.update("engine", "jaxx")
    with pytest.raises(ValueError, match="unpartitioned, on one device of the jax engine"):
        lowered.compile(engine="jax", devices=2)


@pytest.mark.parametrize(("engine", "package"), [("jax", "JAX"), ("mpi", "mpi4py")])
def test_an_engine_whose_package_is_missing_says_what_to_install(engine, package, monkeypatch):
    monkeypatch.setitem(sys.modules, {"JAX": "jax"}.get(package, package), None)
    compiled = st.jit(lambda x: jnp.tanh(x) * 3).lower(X).compile(engine=engine)
    with pytest.raises(ModuleNotFoundError, match=f"the {engine} engine needs {package}, which is "
                       f"not installed(.|\n)*pip install 'shardtrace.{engine}.'"):
        compiled(X)


def test_the_environment_says_which():
    program = "import shardtrace as st; print(st.config.engine)"
    found = [subprocess.run([sys.executable, "-c", program], env={**os.environ, **more}, text=True,
                            capture_output=True, cwd=ROOT / "tests")
             for more in ({"SHARDTRACE_ENGINE": "per_device"}, {"SHARDTRACE_ENGINE": "mlx"})]
    assert found[0].stdout == "per_device\n"
    assert "what runs programs: simulated, per_device, jax or mpi" in found[1].stderr


def test_the_core_does_not_import_jax():
    program = ("import sys, shardtrace as st, numpy as np; f = st.jit(lambda x: x + 1)\n"
               "f(np.ones(8)); f.lower(np.ones(8)).compile().as_jax_source()\n"
               "print([m for m in sys.modules if m.split('.')[0] in ('jax', 'jaxlib')])")
    found = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                           cwd=ROOT / "tests")
    assert found.stdout == "[]\n", found.stderr


def test_operations_outside_of_jit_stay_with_the_simulation(mesh):
    with config.override(engine="jax"):
        y = put(mesh, X, "x") + 1
    np.testing.assert_array_equal(y, X + 1)


def run_without_flags(program):
    """What a program does in a process where nobody has asked JAX for devices."""
    pytest.importorskip("jax")
    environment = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    return subprocess.run([sys.executable, "-c", program], text=True, capture_output=True,
                          env=environment, cwd=ROOT / "tests")


def test_too_few_devices_say_what_to_set():
    program = ("import jax; jax.devices()\nimport shardtrace as st, numpy as np\n"
               "mesh = st.make_mesh((8,), ('x',))\n"
               "x = st.device_put(np.ones(8), st.NamedSharding(mesh, st.P('x')))\n"
               "f = st.jit(lambda x: x.sum())\n"
               "print(f.lower(x).compile(engine='jax', devices=1)(x))\n"
               "f.lower(x).compile(engine='jax')(x)")
    found = run_without_flags(program)
    assert found.stdout == "8.0\n"
    assert "the program is for 8 devices, and JAX has 1" in found.stderr
    assert "XLA_FLAGS=--xla_force_host_platform_device_count=8" in found.stderr


def test_where_nobody_asked_jax_for_devices_there_are_enough():
    program = ("import shardtrace as st, numpy as np\n"
               "mesh = st.make_mesh((8,), ('x',))\n"
               "x = st.device_put(np.ones(8), st.NamedSharding(mesh, st.P('x')))\n"
               "print(st.jit(lambda x: x.sum()).lower(x).compile(engine='jax')(x))")
    found = run_without_flags(program)
    assert found.stdout == "8.0\n", found.stderr


# -- arrays ---------------------------------------------------------------------------------------

def test_results_go_back_without_a_copy(mesh):
    step = st.jit(lambda x: x * 2).lower(put(mesh, X, "x")).compile(engine="jax")
    loaded = step.runtime_executable()
    y = step(put(mesh, X, "x"))
    program = loaded._run
    (placed,) = program.place(step.stored_arguments(y))
    (again,) = program.place(step.stored_arguments(y))
    assert placed is again                            # the array that the first call made
    np.testing.assert_array_equal(step(y), X * 4)


def test_as_jax_takes_and_gives_its_arrays(mesh, jax):
    x, w = put(mesh, X, "x"), put(mesh, X.T, None, "y")
    compiled = st.jit(lambda v: {"y": v["x"] @ v["w"], "s": v["x"].sum()}).lower(
        {"x": x, "w": w}).compile()
    f = compiled.as_jax()
    found = f({"x": jax.numpy.asarray(X), "w": jax.numpy.asarray(X.T)})
    assert isinstance(found["y"], jax.Array) and len(found["y"].sharding.device_set) == 8
    assert tuple(found["y"].sharding.spec) == ("x", "y")
    np.testing.assert_allclose(found["y"], X @ X.T, rtol=1e-5)
    np.testing.assert_allclose(found["s"], X.sum(), rtol=1e-5)
    with pytest.raises(TypeError, match="compiled with input pytree"):
        f(jax.numpy.asarray(X))


def test_as_jax_gives_up_what_is_donated(mesh, jax):
    compiled = st.jit(lambda x: x + 1, donate_argnums=0).lower(put(mesh, X, "x")).compile()
    sharding = jax.sharding.NamedSharding(
        jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y")),
        jax.sharding.PartitionSpec("x"))
    given = jax.device_put(X, sharding)
    np.testing.assert_array_equal(compiled.as_jax()(given), X + 1)
    assert given.is_deleted()


def test_donated_arrays_are_given_up_here_too(mesh):
    x = put(mesh, X, "x")
    with config.override(engine="jax"):
        y = st.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, X + 1)


def test_partial_sums_leave_as_each_device_has_them(jax):
    mesh = st.make_mesh((4, 2), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)
    x, w = put(mesh, X, None, "y"), put(mesh, X.T, "y")
    f = st.jit(lambda x, w: jnp.einsum("ij,jk->ik", x, w, out_sharding=P(unreduced={"y"})))
    with st.set_mesh(mesh):
        lowered = f.lower(x, w)
    found = [lowered.compile(engine=e)(x, w) for e in ALL]
    for y in found:
        assert y.sharding.spec.unreduced == {"y"}
        for a, b in zip(y.addressable_shards, found[0].addressable_shards, strict=True):
            np.testing.assert_allclose(a.data, b.data, rtol=1e-5, atol=1e-5)


def test_devices_in_another_order(jax):
    devices = np.array(st.devices()[:8])[::-1].reshape(4, 2)
    mesh = st.sharding.Mesh(devices, ("x", "y"))
    x = put(mesh, X, "x", "y")
    compiled = st.jit(lambda x: x.sum(0)).lower(x).compile(engine="jax")
    np.testing.assert_allclose(compiled(x), X.sum(0), rtol=1e-5)
    assert "[jax.devices()[i] for i in [7, 6, 5, 4, 3, 2, 1, 0]]" in compiled.as_jax_source()


# -- functions of the host ------------------------------------------------------------------------

@pytest.mark.parametrize("engine", ALL)
def test_functions_of_the_host_are_called_once_for_whole_values(engine, mesh, capsys):
    seen = []

    def f(x):
        st.debug.print("sum {}", x.sum())
        y = st.pure_callback(lambda v: np.asarray(v) * 2, st.ShapeDtypeStruct((16, 8), x.dtype), x)
        z = st.experimental.io_callback(
            lambda v: seen.append(np.shape(v)) or np.float32(len(seen)),
            st.ShapeDtypeStruct((), np.float32), x, ordered=True)
        return y + z

    compiled = st.jit(f).lower(put(mesh, X, "x")).compile(engine=engine)
    for call in (1, 2):
        np.testing.assert_allclose(compiled(put(mesh, X, "x")), X * 2 + call, rtol=1e-6)
    st.effects_barrier()
    assert seen == [(16, 8)] * 2
    assert capsys.readouterr().out.count("sum ") == 2


def test_in_a_region_they_are_called_for_each_place(mesh):
    seen = []

    def f(x):
        st.debug.callback(lambda i, v: seen.append((int(i), np.shape(v))), lax.axis_index("x"), x)
        return x

    with st.set_mesh(mesh):
        g = st.jit(st.shard_map(f, in_specs=P("x"), out_specs=P("x"), axis_names={"x"}))
        g.lower(put(mesh, X, "x")).compile(engine="jax")(put(mesh, X, "x"))
    assert sorted(seen) == [(i, (4, 8)) for i in range(4)]


def test_what_they_raise_is_raised(mesh):
    def fails(v):
        raise KeyError("nothing there")

    f = st.jit(lambda x: st.pure_callback(fails, st.ShapeDtypeStruct((), np.float32), x))
    with pytest.raises(st.errors.JaxRuntimeError, match="nothing there"):
        f.lower(put(mesh, X, "x")).compile(engine="jax")(put(mesh, X, "x"))


# -- what it refuses ------------------------------------------------------------------------------

def test_an_exchange_that_only_some_devices_come_to(mesh):
    def f(x):
        return lax.cond(lax.axis_index("x") == 0, lambda x: lax.psum(x, "x"),
                        lambda x: x, x)

    with st.set_mesh(mesh):
        g = st.jit(st.shard_map(f, in_specs=P("x"), out_specs=P("x"), axis_names={"x"},
                                check_vma=False))
        compiled = g.lower(put(mesh, X, "x")).compile(engine="jax")
        with pytest.raises(ValueError, match="devices would wait for others that do not come"):
            compiled(put(mesh, X, "x"))


def test_an_elementwise_op_that_jax_has_no_function_of(mesh, jax, monkeypatch):
    monkeypatch.delattr(jax.lax, "tan")
    x = put(mesh, X, "x")
    compiled = st.jit(lambda x: lax.fori_loop(0, 2, lambda _, x: lax.tan(x), x)).lower(x).compile(
        engine="jax")
    with pytest.raises(NotImplementedError, match="no function for `tan`") as error:
        compiled(x)
    assert error.value.diagnostic.code == "engine-op"


# -- one device -----------------------------------------------------------------------------------

def test_the_unpartitioned_program_on_one_device(mesh):
    def f(x, w):
        y = lax.with_sharding_constraint(jnp.tanh(x @ w), NamedSharding(mesh, P("x", "y")))
        return y, lax.scan(lambda c, r: (c + r, r.sum()), w[0], w)

    x, w = put(mesh, X, "x"), put(mesh, X.T, None, "y")
    lowered = st.jit(f).lower(x, w)
    whole = lowered.compile(engine="jax", devices=1)
    for a, b in zip(st.tree.leaves(whole(x, w)), st.tree.leaves(lowered.compile()(x, w)),
                    strict=True):
        assert a.sharding == b.sharding
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    assert "shard_map" not in whole.as_jax_source() and "psum" not in whole.as_jax_source()


def test_engines_are_those_that_can_be_chosen():
    assert tuple(ENGINES) == config._CHOICES["shardtrace_engine"]


