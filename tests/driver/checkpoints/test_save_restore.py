"""save and restore: every kind of leaf, onto other meshes, and what does not fit."""
from __future__ import annotations

import collections
import json
import os
import re
import typing

import numpy as np
import pytest
import safetensors.numpy

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.checkpoints import restore, save
from shardtrace.driver.checkpoints import blocks, folder
from shardtrace.ir.dtypes import ALL_DTYPES
from shardtrace.sharding import (
    AxisType,
    NamedSharding,
    SingleDeviceSharding,
)
from shardtrace.sharding import PartitionSpec as P


def _mesh(sizes=(4, 2), names=("x", "y"), **kwargs):
    return st.make_mesh(sizes, names, **kwargs)


def _put(value, spec, mesh=None):
    return st.device_put(value, NamedSharding(mesh or _mesh(), spec))


def _same(a, b):
    assert type(a) is type(b)
    if isinstance(a, st.Array):
        assert (a.aval, a.sharding, a.committed) == (b.aval, b.sharding, b.committed)
        assert a.value.tobytes() == b.value.tobytes()
    elif isinstance(a, np.ndarray | np.generic):
        assert (a.dtype, a.shape) == (b.dtype, b.shape) and a.tobytes() == b.tobytes()
    else:
        assert a == b or a != a


# -- round trips -----------------------------------------------------------------------------------

@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if d.itemsize < 8 or d == np.complex64],
                         ids=str)
@pytest.mark.parametrize("spec", [P(), P("x"), P("y", "x"), P(None, ("x", "y"))])
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, spec):
    bits = np.arange(8 * 8 * dtype.itemsize, dtype=np.uint8)
    value = bits.view(dtype).reshape(8, 8) if dtype.itemsize > 1 else (
        np.arange(64).reshape(8, 8) % 2).astype(dtype)
    x = _put(value, spec)
    save(tmp_path, x)
    _same(restore(tmp_path), x)


def test_64_bit_types_need_the_setting(tmp_path):
    with st.enable_x64():
        state = {"f": _put(np.arange(8.0), P("x")), "c": _put(np.arange(8) * 1j, P("x"))}
        save(tmp_path, state)
        _same(restore(tmp_path)["f"], state["f"])
        _same(restore(tmp_path)["c"], state["c"])
    with pytest.raises(ValueError, match=r"\['c'\] was saved as complex128\[8\], and 64-bit"):
        restore(tmp_path)
    host = restore(tmp_path, {"f": np.zeros(8), "c": np.zeros(8, complex)})
    assert host["c"].dtype == np.complex128


@pytest.mark.parametrize("leaf", [
    1, -(10**30), 2.5, float("inf"), float("nan"), 1 - 2j, True, False,
    np.arange(6).reshape(2, 3).T, np.float64(3), np.arange(12.0).reshape(3, 4)[:, 1:3],
    np.zeros((0, 2), np.int16), np.array("x" == "x")], ids=str)
def test_values_of_the_host_come_back_as_they_were(tmp_path, leaf):
    save(tmp_path, [leaf])
    (got,) = restore(tmp_path)
    _same(got, np.asarray(leaf) if isinstance(leaf, np.generic) else leaf)


@pytest.mark.parametrize("make", [
    lambda: jnp.float32(3), lambda: st.device_put(2.5), lambda: jnp.zeros((0, 4)),
    lambda: st.device_put(np.arange(3), st.devices()[5]), lambda: st.random.key(7),
    lambda: _put(st.random.split(st.random.key(0), 8), P("x")),
    lambda: st.random.PRNGKey(7), lambda: st.random.key(7, impl="rbg"),
    lambda: _put(st.random.split(st.random.key(0, impl="rbg"), 8), P("y")),
    lambda: _put(np.ones((8, 4), np.float32), P(("y", "x"))),
    lambda: _put(np.ones(8, np.float32), P("a"), _mesh((8,), ("a",), axis_types=(
        AxisType.Explicit,))),
    lambda: _put(np.ones(8, np.float32), P("a"), st.sharding.Mesh(
        np.array(st.devices()[::-1])[:4], ("a",))),
    lambda: st.device_put(np.ones(8), NamedSharding(_mesh(), P("x"), memory_kind="pinned_host")),
    lambda: st.jit(lambda v: v.T * 2)(_put(np.ones((8, 4), np.float32), P("x"))),
])
def test_arrays_come_back_with_type_and_place(tmp_path, make):
    x = make()
    save(tmp_path, (x, [x]))
    got = restore(tmp_path)
    _same(got[0], x)
    _same(got[1][0], x)


def test_arbitrary_tilings_come_back(tmp_path):
    gspmd = pytest.importorskip("shardtrace.ir.shardings.gspmd")
    tiles = st.sharding.HloSharding.from_string("{devices=[2,2]0,3,1,2}")
    x = st.device_put(np.arange(16.0).reshape(4, 4), gspmd.GSPMDSharding(st.devices()[:4], tiles))
    save(tmp_path, x)
    _same(restore(tmp_path), x)


def test_containers_come_back(tmp_path):
    x = jnp.arange(3)
    state = {"b": [x, (x, None)], "a": {}, 3: (), "o": collections.OrderedDict(z=x, a=x)}
    state = {str(k): v for k, v in state.items()}
    save(tmp_path, state)
    got = restore(tmp_path)
    assert st.tree.structure(got) == st.tree.structure(state)
    assert list(got) == sorted(state) and list(got["o"]) == ["z", "a"]


class Pair(typing.NamedTuple):
    left: typing.Any
    right: typing.Any


def test_other_containers_need_like(tmp_path):
    save(tmp_path, {"p": Pair(jnp.arange(3), 2)})
    with pytest.raises(ValueError, match=r"has a .*Pair at \['p'\].*cannot be made again") as e:
        restore(tmp_path)
    assert "pass `like`" in str(e.value)
    got = restore(tmp_path, {"p": Pair(st.ShapeDtypeStruct((3,), np.int32), 0)})
    assert type(got["p"]) is Pair and got["p"].right == 2


def test_the_state_of_a_training_loop_continues(tmp_path):
    mesh = _mesh()

    @st.jit
    def step(state, x):
        w = state["w"] - 0.1 * st.grad(lambda w: ((x @ w) ** 2).mean())(state["w"])
        return {"w": w, "step": state["step"] + 1}

    state = {"w": _put(np.ones((8, 4), np.float32), P("x", "y"), mesh), "step": jnp.int32(0)}
    x = _put(np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32), P("y"), mesh)
    for _ in range(2):
        state = step(state, x)
    save(tmp_path, state)
    after = step(restore(tmp_path, like=state), x)
    again = step(state, x)
    np.testing.assert_array_equal(after["w"], again["w"])
    assert int(after["step"]) == 3


# -- onto other meshes -----------------------------------------------------------------------------

TARGETS = [
    lambda: NamedSharding(_mesh(), P("x", "y")),
    lambda: NamedSharding(_mesh((2, 4), ("a", "b")), P("b", "a")),
    lambda: NamedSharding(_mesh((8,), ("z",)), P(None, "z")),
    lambda: NamedSharding(_mesh((8,), ("z",)), P()),
    lambda: NamedSharding(_mesh((2,), ("z",), axis_types=(AxisType.Explicit,)), P("z")),
    lambda: SingleDeviceSharding(st.devices()[3]),
    lambda: st.devices()[6],
]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("saved", [P(), P("x", "y"), P(("y", "x")), P(None, "x")])
def test_an_array_is_restored_onto_another_mesh_and_spec(tmp_path, saved, target):
    value = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)
    save(tmp_path, {"w": _put(value, saved)})
    target = target()
    sharding = SingleDeviceSharding(target) if isinstance(target, st.Device) else target
    struct = st.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)
    for like in ({"w": target}, {"w": struct}, target, {"w": st.device_put(value, sharding)}):
        got = restore(tmp_path, like)["w"]
        assert got.sharding == sharding and got.committed
        np.testing.assert_array_equal(got, value)
        for shard in got.addressable_shards:
            np.testing.assert_array_equal(shard.data, value[shard.index])


def test_a_spec_is_on_the_context_mesh(tmp_path):
    save(tmp_path, {"w": np.zeros((8, 8), np.float32)})
    mesh = _mesh((8,), ("z",))
    with st.set_mesh(mesh):
        assert restore(tmp_path, {"w": P("z")})["w"].sharding == NamedSharding(mesh, P("z"))
    with pytest.raises(ValueError, match="set a mesh"):
        restore(tmp_path, {"w": P("z")})


def test_the_result_of_eval_shape_is_a_like(tmp_path):
    mesh = _mesh(axis_types=(AxisType.Explicit,) * 2)
    save(tmp_path, {"w": np.ones((8, 8), np.float32)})
    with st.set_mesh(mesh):
        like = st.eval_shape(lambda: {"w": jnp.zeros((8, 8), out_sharding=P("x"))})
        assert restore(tmp_path, like)["w"].sharding == NamedSharding(mesh, P("x", None))
    with pytest.raises(ValueError, match=r"\['w'\] is to be restored with .* no devices"):
        restore(tmp_path, like)


def test_without_a_sharding_a_struct_means_as_it_was_saved(tmp_path):
    x = _put(np.ones((8, 8), np.float32), P("x"))
    save(tmp_path, x)
    _same(restore(tmp_path, st.ShapeDtypeStruct((8, 8), np.float32)), x)


def test_host_values_and_arrays_turn_into_one_another(tmp_path):
    save(tmp_path, {"a": np.arange(8, dtype=np.int32), "b": jnp.arange(8), "c": jnp.int32(3)})
    sharding = NamedSharding(_mesh(), P("x"))
    got = restore(tmp_path, {"a": sharding, "b": np.zeros(8, np.int32), "c": 0})
    assert got["a"].sharding == sharding
    assert type(got["b"]) is np.ndarray and got["c"] == 3 and type(got["c"]) is int


def test_one_sharding_may_stand_for_a_whole_subtree(tmp_path):
    save(tmp_path, {"params": {"w": jnp.ones((8, 2)), "b": [jnp.ones(8), jnp.ones(16)]}, "n": 1})
    sharding = NamedSharding(_mesh((8,), ("z",)), P("z"))
    got = restore(tmp_path, {"params": sharding, "n": 0})
    assert {x.sharding for x in st.tree.leaves(got["params"])} == {sharding}
    assert isinstance(got["params"]["b"], list) and got["n"] == 1


# -- what is read and written ----------------------------------------------------------------------

class _Counting:
    """Stands in for the library: counts what is taken from files."""

    def __init__(self, real):
        self.real, self.bytes = real, 0

    def safe_open(self, *args, **kwargs):
        counter, file = self, self.real.safe_open(*args, **kwargs)

        class Slice:
            def __init__(self, inner):
                self.inner = inner

            def __getitem__(self, where):
                data = self.inner[where]
                counter.bytes += data.nbytes
                return data

        class File:
            def __enter__(self):
                self.inner = file.__enter__()
                return self

            def __exit__(self, *exc):
                return file.__exit__(*exc)

            def get_slice(self, name):
                return Slice(self.inner.get_slice(name))

            def get_tensor(self, name):
                data = self.inner.get_tensor(name)
                counter.bytes += data.nbytes
                return data

        return File()


@pytest.fixture
def counting(monkeypatch):
    counter = _Counting(blocks.safetensors)
    monkeypatch.setattr(blocks, "safetensors", counter)
    return counter


@pytest.mark.parametrize("spec", [P(), P("x"), P("y", "x"), P(None, ("x", "y"))])
def test_a_process_that_owns_all_devices_reads_every_byte_once(tmp_path, counting, spec):
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    save(tmp_path, _put(value, P("x", "y")))
    np.testing.assert_array_equal(restore(tmp_path, NamedSharding(_mesh(), spec)), value)
    assert counting.bytes == value.nbytes


def test_only_what_like_asks_for_is_read(tmp_path, counting):
    value = np.arange(64, dtype=np.float32).reshape(8, 8)
    save(tmp_path, {"w": _put(value, P("x")), "n": 3})
    index = blocks.BlockReader(os.path.join(tmp_path, "shards-000001"))
    leaf = _leaf(tmp_path, 1)
    with index as reader:
        part = reader.part(leaf, (3, 2), (2, 5))     # of two stored blocks
    np.testing.assert_array_equal(part, value[3:5, 2:7])
    assert counting.bytes == 2 * 5 * 4


def _leaf(path, number):
    return folder.require_index(str(path)).leaves[number]


def test_copies_are_written_once(tmp_path):
    value = np.arange(1 << 14, dtype=np.float32)
    save(tmp_path / "copies", _put(value, P()))
    save(tmp_path / "blocks", _put(value, P(("x", "y"))))
    save(tmp_path / "half", _put(value, P("y")))
    for name in ("copies", "blocks", "half"):
        (file,) = (tmp_path / name / "shards-000001").iterdir()
        assert value.nbytes < file.stat().st_size < value.nbytes + 2000


def test_the_files_are_safetensors_with_blocks_by_key_path(tmp_path):
    save(tmp_path, {"w": _put(np.arange(8.0), P("y")), "b": jnp.bfloat16(2)})
    held = safetensors.numpy.load_file(tmp_path / "shards-000001" / "process-0.safetensors")
    assert sorted(held) == ["['b']", "['w']@0", "['w']@4"]
    np.testing.assert_array_equal(held["['w']@4"], [4, 5, 6, 7])


def test_the_index_says_what_there_is(tmp_path):
    save(tmp_path, {"w": _put(np.ones((8, 4), np.float32), P("x", None))})
    index = json.loads((tmp_path / "index.json").read_text())
    (leaf,) = index["leaves"]
    assert (leaf["path"], leaf["dtype"], leaf["shape"]) == ("['w']", "float32", [8, 4])
    assert [b["start"] for b in leaf["blocks"]] == [[0, 0], [2, 0], [4, 0], [6, 0]]
    (sharding,) = index["shardings"]
    assert sharding["axis_sizes"] == [4, 2] and sharding["spec"] == [["x"], []]


# -- what does not fit -----------------------------------------------------------------------------

def _struct(shape, dtype=np.float32):
    return st.ShapeDtypeStruct(shape, dtype)


@pytest.mark.parametrize(("like", "kind", "message"), [
    ({"w": _struct((8, 4)), "n": 0}, ValueError,
     r"only in the checkpoint: \['b'\]\[0\]: float32\[4\]$"),
    ({"w": _struct((8, 4)), "b": [_struct((4,))], "n": 0, "m": _struct((2,))}, ValueError,
     r"only in `like`: \['m'\]: float32\[2\]$"),
    ({"w": _struct((8, 4)), "b": _struct((4,)), "n": 0}, ValueError,
     r"only in the checkpoint: \['b'\]\[0\]: float32\[4\]; only in `like`: \['b'\]: float32\[4\]"),
    ({"w": _struct((8, 5)), "b": [_struct((4,))], "n": 0}, ValueError,
     r"\['w'\] was saved as float32\[8,4\], and `like` asks for float32\[8,5\]"),
    ({"w": _struct((8, 4), jnp.bfloat16), "b": [_struct((4,))], "n": 0}, ValueError,
     r"\['w'\] was saved as float32\[8,4\], and `like` asks for bfloat16\[8,4\]"),
    ({"w": _struct((8, 4)), "b": [_struct((4,))], "n": _struct(())}, ValueError,
     r"\['n'\] was saved as the Python number 3, and `like` asks for float32\[\]"),
    ({"w": _struct((8, 4)), "b": [_struct((4,))], "n": 1.5}, ValueError, "asks for float"),
    ({"w": "here", "b": [_struct((4,))], "n": 0}, TypeError, r"<class 'str'> at \['w'\]"),
    ({"w": _struct((8, 4)), "b": ["there"], "n": 0}, TypeError, r"<class 'str'> at \['b'\]\[0\]"),
])
def test_a_like_that_does_not_fit_names_the_key_path(tmp_path, like, kind, message):
    save(tmp_path, {"w": jnp.ones((8, 4)), "b": [jnp.ones(4)], "n": 3})
    with pytest.raises(kind) as e:
        restore(tmp_path, like)
    first = str(e.value).splitlines()[0]
    assert re.search(message, first), first
    assert "help:" in str(e.value)


def test_a_sharding_that_does_not_divide_names_the_key_path(tmp_path):
    save(tmp_path, {"w": jnp.ones((6, 4))})
    with pytest.raises(st.errors.IndivisibleError, match=r"\['w'\], saved as float32\[6,4\]"):
        restore(tmp_path, {"w": NamedSharding(_mesh(), P("x"))})
    with pytest.raises(ValueError, match=r"\['w'\].*only valid for values of rank at least 3"):
        restore(tmp_path, {"w": NamedSharding(_mesh(), P(None, None, "x"))})


def test_devices_that_are_not_there_are_named(tmp_path):
    save(tmp_path, {"w": _put(np.ones(8, np.float32), P("x"))})
    with st.config.override(jax_num_cpu_devices=4):
        with pytest.raises(ValueError, match=r"\['w'\] was saved with the sharding NamedSharding\("
                           r"mesh=Mesh\('x': 4, 'y': 2\), spec=P\('x',\)\), which cannot") as e:
            restore(tmp_path)
        assert "there are 4 devices, and none with ids [4, 5, 6, 7]" in str(e.value)
        here = NamedSharding(_mesh((4,), ("z",)), P("z"))
        assert restore(tmp_path, here)["w"].sharding == here


@pytest.mark.parametrize(("leaf", "message"), [
    ("text", r"\['a'\] is of type <class 'str'>"),
    (object(), r"\['a'\] is of type <class 'object'>"),
    (_struct((2,)), r"\['a'\] is of type .*ShapeDtypeStruct"),
    (np.array(["t"]), r"\['a'\] has dtype <U1"),
])
def test_what_is_no_array_is_refused_before_anything_is_written(tmp_path, leaf, message):
    with pytest.raises(TypeError, match=message):
        save(tmp_path / "new", {"a": leaf})
    assert not (tmp_path / "new").exists()


def test_a_traced_value_is_refused(tmp_path):
    with pytest.raises(TypeError, match="which is not a valid JAX type"):
        st.jit(lambda v: save(tmp_path / "new", v))(jnp.ones(3))


def test_partial_sums_and_deleted_arrays_are_refused(tmp_path):
    mesh = _mesh(axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        pending = st.jit(lambda a, b: jnp.einsum("ij,jk->ik", a, b, out_sharding=P(
            unreduced={"x"})))(_put(np.ones((4, 8)), P(None, "x"), mesh),
                               _put(np.ones((8, 4)), P("x"), mesh))
    with pytest.raises(NotImplementedError, match=r"\['a'\] is a partial sum.*`reshard`"):
        save(tmp_path, {"a": pending})
    gone = jnp.ones(3)
    gone.delete()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        save(tmp_path, [gone])


def test_random_keys_do_not_become_numpy(tmp_path):
    save(tmp_path, st.random.key(1))
    with pytest.raises(ValueError, match="was saved as key<fry>"):
        restore(tmp_path, np.zeros((), np.uint32))
