"""StableHLO with Shardy's annotations, both ways: what JAX lowers is read, what is written is read
back, and what is wrong is named with its line."""
from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as stnp
from shardtrace import interop
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding
from shardtrace.sharding import PartitionSpec as P

from ..executors import EXECUTORS
from ..real_jax import real_jax
from .jax_calls import calls
from .models import message_passing, mixture_of_experts, transformer
from .programs import agree, equations

jax = real_jax()
CALLS = calls(jax)
# Custom calls of LAPACK's that have no op here or several, and of functions of the host.
UNREADABLE = {"approx_top_k", "eig", "schur", "hessenberg", "tridiagonal", "pure_callback",
              "io_callback", "debug_callback", "debug_print"}


def words(x: Any) -> np.ndarray:
    """The values of an array, of keys their words."""
    is_key = jax.dtypes.issubdtype(getattr(x, "dtype", np.int32), jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(x) if is_key else x, None if hasattr(x, "dtype") else (
        jax.numpy.result_type(x)))


@pytest.mark.parametrize("name", [
    name if i % 4 == 0 else pytest.param(name, marks=pytest.mark.slow)
    for i, name in enumerate(name for name in CALLS if name not in UNREADABLE)])
def test_what_jax_lowers_gives_the_values_of_jax(name: str) -> None:
    f, args = CALLS[name]
    wanted = jax.tree.leaves(jax.jit(f)(*args))
    read = interop.from_stablehlo(jax.jit(f, keep_unused=True).lower(*args).as_text())
    for found, want in zip(read(*map(words, jax.tree.leaves(args))), wanted, strict=True):
        agree(np.asarray(found), words(want))


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_custom_calls_that_are_not_known_are_named(name: str) -> None:
    f, args = CALLS[name]
    read = interop.from_stablehlo(jax.jit(f).lower(*args).as_text())
    with pytest.raises(NotImplementedError, match="nothing here for the custom call"):
        read.trace()


@pytest.mark.parametrize("model", [transformer, mixture_of_experts, message_passing],
                         ids=lambda m: m.__name__)
def test_a_training_step_has_its_lines_and_values(model: Any) -> None:
    step, args = model()
    wanted = jax.tree.leaves(step(*args))
    read = interop.from_stablehlo(step.lower(*args).as_text(debug_info=True))
    leaves = [np.asarray(x) for x in jax.tree.leaves(args)]
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            for a, b in zip(read(*leaves), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)
    known = [e for e in equations(read.trace().jaxpr) if e.location.file]
    own = [e for e in known if "/interop/models" in e.location.file]
    assert len(own) > 0.9 * len(known)


# -- written and read back -------------------------------------------------------------------------

def constrained(mesh: Any) -> Any:
    def region(block: Any) -> Any:
        return block - st.lax.pmean(block.mean(), "data")

    def step(x: Any, w: Any) -> Any:
        h = st.lax.with_sharding_constraint(
            stnp.tanh(x @ w), NamedSharding(mesh, P("data", P.UNCONSTRAINED)))
        h = st.shard_map(region, mesh=mesh, in_specs=P("data"), out_specs=P("data"),
                         axis_names={"data"})(h)
        carry, rows = st.lax.scan(lambda c, row: (c + row, c * row), h[0], h)
        return carry, st.lax.cond(carry.sum() > 0, lambda r: r, lambda r: -r, rows).sort(0)
    return step


def typed(mesh: Any) -> Any:
    def step(x: Any, w: Any) -> Any:
        h = stnp.matmul(x, w, out_sharding=P("data", "model"))
        return (h * h).sum(0), st.reshard(h, P("data"))
    return step


def arguments(mesh: Any) -> tuple[Any, Any]:
    rng = np.random.RandomState(0)
    x, w = (rng.randn(*shape).astype(np.float32) for shape in ((8, 16), (16, 12)))
    return (st.device_put(x, NamedSharding(mesh, P("data"))),
            st.device_put(w, NamedSharding(mesh, P(None, "model"))))


def meshed(kind: AxisType) -> Any:
    return st.make_mesh((2, 4), ("data", "model"), axis_types=(kind, kind))


@pytest.mark.parametrize(("kind", "make"), [(AxisType.Auto, constrained),
                                            (AxisType.Explicit, typed)], ids=["auto", "explicit"])
def test_a_program_comes_back_with_its_values(kind: AxisType, make: Any) -> None:
    mesh = meshed(kind)
    with st.set_mesh(mesh):
        step, args = st.jit(make(mesh)), arguments(mesh)
        wanted, lowered = step(*args), step.lower(*args)
        texts = {"traced": lowered.as_stablehlo(),
                 "per device": lowered.compile().as_stablehlo()}
    assert '["data"=2, "model"=4]' in texts["traced"]
    for text in texts.values():
        read = interop.from_stablehlo(text)
        assert read.args[0].sharding.spec == P("data", None)
        for found, want in zip(read(*map(np.asarray, args)), wanted, strict=True):
            np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_the_per_device_program_has_the_collectives_of_the_partition() -> None:
    mesh = meshed(AxisType.Auto)
    compiled = st.jit(constrained(mesh)).lower(*arguments(mesh)).compile()
    text = compiled.as_stablehlo()
    ours = [c.kind.replace("-", "_") for c in compiled.collectives()]
    for kind in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "collective_permute"):
        assert text.count(f'"stablehlo.{kind}"') == ours.count(kind), kind
    read = interop.from_stablehlo(text)
    again = st.explain(read)().collectives
    assert sorted((c.kind, c.mesh_axes) for c in again) == sorted(
        (c.kind, c.mesh_axes) for c in compiled.collectives())


def test_xla_compiles_what_is_written() -> None:
    """By its own partitioner, for eight devices, from the text alone."""
    mesh = meshed(AxisType.Auto)
    args = arguments(mesh)
    text = st.jit(constrained(mesh)).lower(*args).as_stablehlo()
    devices = jax.devices()[:8]
    if len(devices) < 8:
        pytest.skip("JAX has fewer than 8 devices")
    module = pytest.importorskip("jaxlib._jax")
    options = jax._src.compiler.get_compile_options(num_replicas=1, num_partitions=8)
    made = devices[0].client.compile_and_load(
        text.encode(), module.DeviceList(tuple(devices)), options)
    assert "all-reduce" in made.hlo_modules()[0].to_string()


def test_a_mesh_of_devices_that_are_not_there_is_lowered() -> None:
    mesh = AbstractMesh((1024, 4), ("data", "model"))
    x = st.ShapeDtypeStruct((4096, 8), np.float32, sharding=NamedSharding(mesh, P("data")))
    text = st.jit(lambda x: (x @ x.T).sum()).lower(x).as_stablehlo()
    assert 'sdy.mesh @mesh = <["data"=1024, "model"=4]>' in text
    assert interop.from_stablehlo(text).args[0].sharding.mesh.size == 4096


# -- collectives by hand ---------------------------------------------------------------------------

def region(body: str, result: str, rows: int = 2) -> str:
    return f"""
    sdy.mesh @mesh = <["x"=2, "y"=4]>
    func.func @main(%a: tensor<16x3xf32>) -> tensor<{result}xf32> {{
      %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x", "y"}}, {{}}]>]
          out_shardings=[<@mesh, [{{"x", "y"}}, {{}}]>] manual_axes={{"x", "y"}}
          (%b: tensor<{rows}x3xf32>) {{
        {body}
      }} : (tensor<16x3xf32>) -> tensor<{result}xf32>
      return %0 : tensor<{result}xf32>
    }}"""


def combined(name: str, groups: str, shape: str, op: str, more: str = "", out: str = "") -> str:
    out = out or shape
    return f"""%c = "stablehlo.{name}"(%b) <{{replica_groups = dense<{groups}>
            : tensor<GROUPSxi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>,
            use_global_device_ids{more}}}> ({{
        ^bb0(%p: tensor<f32>, %q: tensor<f32>):
          %r = stablehlo.{op} %p, %q : tensor<f32>
          stablehlo.return %r : tensor<f32>
        }}) : (tensor<{shape}xf32>) -> tensor<{out}xf32>
        sdy.return %c : tensor<{out}xf32>"""


X = np.arange(48, dtype=np.float32).reshape(16, 3) % 7 - 2
BLOCKS = X.reshape(2, 4, 2, 3)


def over(function: Any, axis: int) -> np.ndarray:
    return np.broadcast_to(function(BLOCKS, axis=axis, keepdims=True), BLOCKS.shape).reshape(16, 3)


HAND: dict[str, tuple[str, np.ndarray]] = {
    "sum over y": (combined("all_reduce", "[[0,1,2,3],[4,5,6,7]]", "2x3", "add"), over(np.sum, 1)),
    "maximum over x": (combined("all_reduce", "[[0,4],[1,5],[2,6],[3,7]]", "2x3", "maximum"),
                       over(np.max, 0)),
    "sum over a part of y": (combined("all_reduce", "[[0,1,2,3],[4,5,6,7]]", "2x3", "add").replace(
        "dense<[[0,1,2,3],[4,5,6,7]]>\n            : tensor<GROUPSxi64>",
        '#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = '
        '[#stablehlo.axis_ref<name = "y", sub_axis_info = (2)2>]>'),
        np.repeat(X.reshape(4, 2, 2, 3).sum(1)[:, None], 2, 1).reshape(16, 3)),
    "sum over y, by name": (combined("all_reduce", "[[0,1,2,3],[4,5,6,7]]", "2x3", "add").replace(
        "dense<[[0,1,2,3],[4,5,6,7]]>\n            : tensor<GROUPSxi64>",
        "#stablehlo.replica_group_mesh_axes<mesh = @mesh, axes = [#stablehlo.axis_ref<name = y>]>"
        .replace("= y", '= "y"')), over(np.sum, 1)),
    "product over x": (combined("all_reduce", "[[0,4],[1,5],[2,6],[3,7]]", "2x3", "multiply"),
                       over(np.prod, 0)),
    "sum over halves of y": (combined("all_reduce", "[[0,1],[2,3],[4,5],[6,7]]", "2x3", "add"),
                             np.broadcast_to(BLOCKS.reshape(2, 2, 2, 2, 3).sum(2, keepdims=True),
                                             (2, 2, 2, 2, 3)).reshape(16, 3)),
    "reduce_scatter over x": (
        combined("reduce_scatter", "[[0,4],[1,5],[2,6],[3,7]]", "2x3", "add",
                 ", scatter_dimension = 0 : i64", "1x3"),
        BLOCKS.sum(0).transpose(1, 0, 2).reshape(8, 3)),
    "permute along y": (
        """%c = "stablehlo.collective_permute"(%b) <{source_target_pairs =
            dense<[[0,1],[1,2],[2,3],[3,0],[4,5],[5,6],[6,7],[7,4]]> : tensor<8x2xi64>,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}>
            : (tensor<2x3xf32>) -> tensor<2x3xf32>
        sdy.return %c : tensor<2x3xf32>""", np.roll(BLOCKS, 1, 1).reshape(16, 3)),
    "gather over x": (
        """%c = "stablehlo.all_gather"(%b) <{all_gather_dim = 1 : i64, replica_groups =
            dense<[[0,4],[1,5],[2,6],[3,7]]> : tensor<4x2xi64>, use_global_device_ids,
            channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}>
            : (tensor<2x3xf32>) -> tensor<2x6xf32>
        sdy.return %c : tensor<2x6xf32>""",
        np.broadcast_to(np.concatenate([BLOCKS[0], BLOCKS[1]], -1), (2, 4, 2, 6)).reshape(16, 6)),
    "exchange over x": (
        """%c = "stablehlo.all_to_all"(%b) <{split_dimension = 0 : i64, concat_dimension = 1 : i64,
            split_count = 2 : i64, replica_groups = dense<[[0,4],[1,5],[2,6],[3,7]]>
            : tensor<4x2xi64>, channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>}>
            : (tensor<2x3xf32>) -> tensor<1x6xf32>
        sdy.return %c : tensor<1x6xf32>""",
        BLOCKS.transpose(2, 1, 0, 3).reshape(8, 6)),
}


@pytest.mark.parametrize("name", HAND)
def test_collectives_of_a_region_are_over_mesh_axes(name: str) -> None:
    body, wanted = HAND[name]
    groups = body.partition("dense<")[2].partition(">")[0]
    rows = "x".join(map(str, np.array(eval(groups or "[]")).shape))
    read = interop.from_stablehlo(region(body.replace("GROUPS", rows),
                                         "x".join(map(str, wanted.shape))))
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            np.testing.assert_array_equal(read(X)[0], wanted)


# -- meshes that are not stated as they are used ---------------------------------------------------

WEIGHTS = np.linspace(-1, 1, 8 * 32, dtype=np.float32).reshape(8, 32)
INPUTS = np.linspace(-1, 1, 16 * 8, dtype=np.float32).reshape(16, 8)
# what JAX 0.10.2 prints with jax_use_shardy_partitioner off, for a mesh of (2, 4) devices
GSPMD = """module @jit_f attributes {mhlo.num_partitions = 8 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(
      %arg0: tensor<16x8xf32> {mhlo.sharding = "{devices=[2,4]<=[8]}"},
      %arg1: tensor<8x32xf32>
        {mhlo.sharding = "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}"})
      -> (tensor<16x32xf32> {jax.result_info = "result",
        mhlo.sharding = "{devices=[1,4,2]<=[2,4]T(1,0) last_tile_dim_replicate}"}) {
    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [1] x [0]
      : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
    %1 = stablehlo.custom_call @Sharding(%0) {backend_config = "",
      mhlo.sharding = "{devices=[8,1]<=[2,4]T(1,0)}"} : (tensor<16x32xf32>) -> tensor<16x32xf32>
    %2 = stablehlo.tanh %1 : tensor<16x32xf32>
    %3 = stablehlo.custom_call @Sharding(%2) {backend_config = "unspecified_dims=[0]",
      mhlo.sharding = "{devices=[1,2,4]<=[8] last_tile_dim_replicate}"}
      : (tensor<16x32xf32>) -> tensor<16x32xf32>
    return %3 : tensor<16x32xf32>
  }
}"""


@pytest.mark.parametrize("mesh", [None, "other names"])
def test_tilings_of_gspmd_are_specs_on_a_mesh_that_has_them_all(mesh: str | None) -> None:
    x, y = ("a", "b") if mesh is None else ("p", "q")
    read = interop.from_stablehlo(
        GSPMD, mesh=None if mesh is None else st.make_mesh((2, 4), ("p", "q")))
    assert [s.spec for s in read.lower().compile().input_shardings[0]] == [P(x, y), P(y, None)]
    constraints = [e.params["sharding"].spec for e in read.trace().jaxpr.eqns
                   if e.op.name == "sharding_constraint"]
    assert constraints == [P((y, x), None), P(P.UNCONSTRAINED, x), P(None, y)]
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            (found,) = read(INPUTS, WEIGHTS)
        assert found.sharding.spec == P(None, y)
        np.testing.assert_allclose(found, np.tanh(INPUTS @ WEIGHTS), rtol=1e-5, atol=1e-6)


PARTS = """sdy.mesh @mesh = <["x"=8]>
    func.func @main(
        %a: tensor<16x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)2}, {"x":(2)4}]>},
        %b: tensor<8x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x":(2)4}, {}]>})
        -> (tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>}) {
      %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
        : (tensor<16x8xf32>, tensor<8x32xf32>) -> tensor<16x32xf32>
      return %c : tensor<16x32xf32>
    }"""


def test_parts_of_an_axis_are_axes() -> None:
    read = interop.from_stablehlo(PARTS)
    compiled = read.lower().compile()
    assert [s.spec for s in compiled.input_shardings[0]] == [P("x_0", "x_1"), P("x_1", None)]
    assert [(c.kind, c.mesh_axes) for c in compiled.collectives()] == [
        ("reduce-scatter", ("x_1",))]
    for executor in EXECUTORS:
        with st.config.override(shardtrace_engine=executor):
            (found,) = read(INPUTS, WEIGHTS)
        assert found.sharding.shard_shape((16, 32)) == (2, 32)
        np.testing.assert_allclose(found, INPUTS @ WEIGHTS, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="uses parts of the mesh axis 'x'"):
        interop.from_stablehlo(PARTS, mesh=st.make_mesh((4,), ("x",)))


# -- what is not taken -----------------------------------------------------------------------------

def module(body: str, result: str = "tensor<3xf32>") -> str:
    return f"""func.func @main(%x: tensor<3xf32>) -> {result} {{
      {body}
    }}"""


@pytest.mark.parametrize(("text", "error", "message"), [
    ("what is this", ValueError, "cannot be parsed"),
    ("func.func @other() { return }", ValueError, "no function @main"),
    (module("""%y = stablehlo.custom_call @mystery(%x) : (tensor<3xf32>) -> tensor<3xf32>
      return %y : tensor<3xf32>"""), NotImplementedError, "custom call 'mystery'"),
    (module("""%y = stablehlo.custom_call @SPMDFullToShardShape(%x)
        {mhlo.sharding = "{manual}"} : (tensor<3xf32>) -> tensor<3xf32>
      return %y : tensor<3xf32>"""), NotImplementedError, "a manual region of GSPMD"),
    (module("""%y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{devices=[2]<=[2]}"}
        : (tensor<3xf32>) -> tensor<3xf32>
      %z = stablehlo.custom_call @Sharding(%y) {mhlo.sharding = "{devices=[4]0,3,1,2}"}
        : (tensor<3xf32>) -> tensor<3xf32>
      return %z : tensor<3xf32>"""), NotImplementedError, "no mesh has all of the text's"),
    ("""func.func @main(%x: tensor<?xf32>) -> tensor<?xf32> { return %x : tensor<?xf32> }""",
     TypeError, "not all known"),
    ("""sdy.mesh @mesh = <["x"=36]>
    func.func @main(%x: tensor<36x36xf32>
                    {sdy.sharding = #sdy.sharding<@mesh, [{"x":(1)4}, {}]>}) -> (tensor<36x36xf32>
                    {sdy.sharding = #sdy.sharding<@mesh, [{"x":(6)6}, {}]>}) {
      return %x : tensor<36x36xf32> }""", NotImplementedError, "'x' overlap"),
    (module("""%y = "stablehlo.all_reduce"(%x) <{replica_groups = dense<[[0, 1]]>
        : tensor<1x2xi64>}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %r = stablehlo.add %p, %q : tensor<f32>
        stablehlo.return %r : tensor<f32>
      }) : (tensor<3xf32>) -> tensor<3xf32>
      return %y : tensor<3xf32>"""), ValueError, "outside of a sdy.manual_computation"),
    (module("""%y = "stablehlo.sort"(%x) <{dimension = 0 : i64, is_stable = true}> ({
      ^bb0(%p: tensor<f32>, %q: tensor<f32>):
        %n = stablehlo.negate %p : tensor<f32>
        %m = stablehlo.negate %q : tensor<f32>
        %r = stablehlo.compare LT, %n, %m : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %r : tensor<i1>
      }) : (tensor<3xf32>) -> tensor<3xf32>
      return %y : tensor<3xf32>"""), NotImplementedError, "a sort by another comparison"),
])
def test_what_cannot_be_read_says_why(text: str, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        interop.from_stablehlo(text).trace()


def test_no_file_is_shown_that_a_text_names_elsewhere(tmp_path: Any, monkeypatch: Any) -> None:
    (tmp_path / "secret").write_text("the secret\n")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "own.py").write_text("y = mystery(x)\n")
    monkeypatch.chdir(tmp_path / "here")
    text = module("""%y = stablehlo.custom_call @mystery(%x) : (tensor<3xf32>) -> tensor<3xf32>
        loc("FILE":1:0 to :10)
      return %y : tensor<3xf32>""")
    for file, shown in (("../secret", False), (f"{tmp_path}/secret", False), ("own.py", True)):
        with pytest.raises(NotImplementedError) as caught:
            interop.from_stablehlo(text.replace("FILE", file)).trace()
        assert ("the secret" in str(caught.value), "y = mystery(x)" in str(caught.value)) == (
            False, shown)


def test_an_unknown_operation_can_be_registered() -> None:
    interop.register("twice", lambda x, **attributes: x * 2)
    read = interop.from_stablehlo(module("""%y = stablehlo.custom_call @twice(%x)
        : (tensor<3xf32>) -> tensor<3xf32>
      return %y : tensor<3xf32>"""))
    np.testing.assert_array_equal(read(np.ones(3, np.float32))[0], [2.0, 2.0, 2.0])


@pytest.mark.parametrize(("literal", "kind", "wanted"), [
    ("[1.0, 2.5]", "2xbf16", [1.0, 2.5]), ("1.5", "3xbf16", [1.5] * 3),
    ("[true, false]", "2xi1", [True, False]), ("[-1, 3]", "2xi4", [-1, 3]),
    ("[(1.0,2.0),(3.0,-1.0)]", "2xcomplex<f32>", [1 + 2j, 3 - 1j]),
    ("[0x7FC0, 0xFF80]", "2xbf16", [np.nan, -np.inf]), ("[0.5, 1.0]", "2xf8E4M3FN", [0.5, 1.0]),
    ('"0x0000803F00000040"', "2xf32", [1.0, 2.0]), ("", "0xf32", []), ("7", "ui8", 7),
    ("(1.0,-2.0)", "complex<f32>", 1 - 2j), ("1.5", "bf16", 1.5), ("-3", "i4", -3)])
def test_constants_of_every_kind(literal: str, kind: str, wanted: Any) -> None:
    """bfloat16 and narrower, complex: what jaxlib gives no arrays of."""
    read = interop.from_stablehlo(f"""func.func @main() -> tensor<{kind}> {{
      %c = stablehlo.constant dense<{literal}> : tensor<{kind}>
      return %c : tensor<{kind}>
    }}""")
    found = np.asarray(read()[0])
    np.testing.assert_array_equal(found.astype(np.complex128), np.array(wanted, np.complex128))


@pytest.mark.parametrize("mesh", [None, st.make_mesh((4,), ("x",))])
def test_arguments_on_no_mesh_go_with_those_that_are_on_one(mesh: Any) -> None:
    read = interop.from_stablehlo("""sdy.mesh @mesh = <["x"=4]>
    sdy.mesh @empty_mesh = <[]>
    func.func @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>},
                    %n: tensor<f32> {sdy.sharding = #sdy.sharding<@empty_mesh, []>})
        -> tensor<8xf32> {
      %0 = stablehlo.broadcast_in_dim %n, dims = [] : (tensor<f32>) -> tensor<8xf32>
      %1 = stablehlo.multiply %x, %0 : tensor<8xf32>
      return %1 : tensor<8xf32>
    }""", mesh=mesh)
    found, = read(np.arange(8, dtype=np.float32), np.float32(3))
    assert found.sharding.spec == P("x")
    np.testing.assert_array_equal(found, 3 * np.arange(8))


def test_a_loop_that_counts_has_a_known_number_of_steps() -> None:
    read = interop.from_stablehlo(module("""%zero = stablehlo.constant dense<0> : tensor<i32>
      %r:2 = stablehlo.while(%i = %zero, %c = %x) : tensor<i32>, tensor<3xf32>
      cond {
        %end = stablehlo.constant dense<7> : tensor<i32>
        %t = stablehlo.compare LT, %i, %end : (tensor<i32>, tensor<i32>) -> tensor<i1>
        stablehlo.return %t : tensor<i1>
      } do {
        %two = stablehlo.constant dense<2> : tensor<i32>
        %n = stablehlo.add %i, %two : tensor<i32>
        %d = stablehlo.add %c, %c : tensor<3xf32>
        stablehlo.return %n, %d : tensor<i32>, tensor<3xf32>
      }
      return %r#1 : tensor<3xf32>"""))
    assert [e.params["length"] for e in equations(read.trace().jaxpr) if e.op.name == "scan"] == [4]
    np.testing.assert_array_equal(read(np.ones(3, np.float32))[0], [16.0] * 3)
