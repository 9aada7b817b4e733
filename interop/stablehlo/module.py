"""`from_stablehlo`: a StableHLO text as a jitted function of shardtrace."""
from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...engines.xla.engine import check_devices
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.extras import need_jax
from ...ir.meshes.mesh import AbstractMesh, Mesh
from ...ir.settings.context import enable_x64
from ...ir.support.lazy import lazy_import
from ...ir.values.shape_struct import ShapeDtypeStruct
from ..imported import Imported
from ..jax_values import mesh_of as mesh_like
from . import custom_calls, ops, regions  # noqa: F401  (they enter their rules)
from .attributes import python_of, shape_and_dtype
from .meshes import GSPMD, auto_mesh, cut, mesh_of_tilings, parts_in
from .replay import Replay
from .shardy import result, sizes_of, stated

ir = lazy_import("jaxlib.mlir.ir")
jax_mlir = lazy_import("jax.interpreters.mlir")
jax, jaxlib = lazy_import("jax"), lazy_import("jaxlib._jax")
compiler = lazy_import("jax._src.compiler")


def from_stablehlo(text: str | Path, *, mesh: Mesh | AbstractMesh | None = None) -> Imported:
    """The program of a text of StableHLO, as a jitted function of shardtrace.

    text: what `jax.jit(f).lower(...).as_text()` gives, or another exporter; or the path of a file.
      Its `sdy.mesh`, `sdy.sharding` and `sdy.manual_computation` become mesh, shardings and
      shard_map; axes are Auto. An axis of which it uses parts is one for each (`x_0`, `x_1`).
      Tilings of GSPMD are specs on the coarsest mesh that has them all (axes a, b, ...).
      With `as_text(debug_info=True)` equations stand at the user's lines.
    mesh: instead of the text's, with the same axis names; of any sizes.
    The function takes the arguments of the text's `@main`, one after the other, and gives the list
    of its results. Raises ImportError where JAX is not installed, ValueError for what is no
    StableHLO, and NotImplementedError, with the line, for an operation that is not known here;
    `interop.register` makes it known.

    >>> from shardtrace.interop import from_stablehlo
    >>> step = from_stablehlo('''
    ...     sdy.mesh @mesh = <["x"=8]>
    ...     func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
    ...                     %b: tensor<16x4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    ...         -> tensor<8x4xf32> {
    ...       %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    ...         : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
    ...       return %c : tensor<8x4xf32>
    ...     }''')
    >>> [(c.kind, c.mesh_axes) for c in st.explain(step)().collectives]
    [('all-reduce', ('x',))]
    """
    need_jax("from_stablehlo")
    ours = None if mesh is None else mesh_like(mesh)
    source = (Module(text.read_text(encoding="utf-8"), ours, str(text.parent))
              if isinstance(text, Path) else Module(text, ours))
    return Imported(source, source.leaves, source.results, ours)


def _parsed(text: str) -> Any:
    """The module of this text, in the context that is entered."""
    try:
        return ir.Module.parse(text)
    except ir.MLIRError as error:
        where = str(error).partition("\n")[2].strip() or str(error)
        fail(ValueError, f"from_stablehlo: the text cannot be parsed: {where}",
             code="stablehlo-syntax",
             help="give it StableHLO as text, as `lowered.as_text()` prints it")


class Module:
    """A parsed text: what `Imported` asks of a source.

    leaves: what stands for its arguments, with their shardings. shardings, results: what else was
    said of these and of results, which is nothing.
    """

    def __init__(self, text: str, mesh: Mesh | AbstractMesh | None, folder: str = "") -> None:
        self._folder = folder
        self._context = jax_mlir.make_ir_context()
        with self._context:
            self._module = _parsed(text)
            self._functions: dict[str, Any] = {}
            sizes: dict[str, dict[str, int]] = {}
            for op in self._module.body.operations:
                name = op.operation.name
                if name == "func.func":
                    self._functions[python_of(op.attributes["sym_name"])] = op
                elif name == "sdy.mesh":
                    sizes[python_of(op.attributes["sym_name"])] = sizes_of(op)
            self._parts = parts_in(text, sizes.values())
            given = mesh if mesh is None or not self._parts else auto_mesh(
                *cut(mesh.shape, self._parts))
            self._meshes: dict[str, Any] = {
                name: given if given and axes else auto_mesh(*cut(axes, self._parts))
                for name, axes in sizes.items()}
            tilings = mesh_of_tilings(text, mesh)
            if tilings is not None:
                self._meshes[GSPMD] = tilings
            main = self._functions.get("main")
            if main is None:
                fail(ValueError, "from_stablehlo: the module has no function @main",
                     code="stablehlo-syntax",
                     help="it has " + (", ".join(map("@{}".format, self._functions)) or "none"))
            self._main = main
            arguments = main.regions[0].blocks[0].arguments
            self.names = tuple([_name(a, i) for i, a in enumerate(arguments)])
            said = main.attributes["arg_attrs"] if "arg_attrs" in main.attributes else [
                {}] * len(self.names)
            replay = self._replay()
            self.leaves = [_struct(replay, a, attributes)
                            for a, attributes in zip(arguments, said, strict=True)]
            self.donated = tuple([i for i, attributes in enumerate(said)
                                  if "tf.aliasing_output" in attributes
                                  or "jax.buffer_donor" in attributes])
            self.shardings: list[Any] = [None] * len(self.leaves)
            self.results: list[Any] = [None] * len(main.type.results)
        name = python_of(self._module.operation.attributes["sym_name"]) if (
            "sym_name" in self._module.operation.attributes) else "main"
        self.name = name.removeprefix("jit_")
        self.in_tree: Any = None
        self.out_tree: Any = None
        self.origin: Any = None

    def _replay(self) -> Replay:
        return Replay(self._functions, self._meshes, self._parts, self._folder)

    def hlo(self, structs: Sequence[ShapeDtypeStruct], results: Sequence[Any]) -> str:
        """The HLO that XLA compiles the text to, with the shardings in it."""
        count = max([m.size for m in self._meshes.values()], default=1)
        check_devices(count)
        devices = jax.devices()[:count]
        options = compiler.get_compile_options(num_replicas=1, num_partitions=count)
        with self._context:
            made = devices[0].client.compile_and_load(
                str(self._module).encode(), jaxlib.DeviceList(tuple(devices)), options)
        return made.hlo_modules()[0].to_string()

    def replayed(self, leaves: Sequence[Any], mesh: Any) -> list[Any]:
        """The results for arguments of ours, under our tracing."""
        with self._context, enable_x64():        # dtypes are those of the text
            replay = self._replay()
            results = replay.call("main", leaves)
            if "res_attrs" not in self._main.attributes:
                return results
            return [result(replay, x, a)
                    for x, a in zip(results, self._main.attributes["res_attrs"], strict=True)]


def _name(argument: Any, i: int) -> str:
    """`x`, of `loc("x")`."""
    said = str(argument.location)
    found = said.removeprefix('loc("').removesuffix('")')
    return found if len(found) == len(said) - 7 and '"' not in found else f"a{i}"


def _struct(replay: Replay, argument: Any, attributes: Any) -> ShapeDtypeStruct:
    shape, dtype = shape_and_dtype(argument.type)
    return ShapeDtypeStruct(shape, dtype, sharding=stated(replay, attributes, len(shape)))
