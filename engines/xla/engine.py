"""Runs a LOCAL program on JAX's devices: one function under `jax.jit`, its collectives as written.

Executing the text that `source.py` writes defines the function; XLA compiles it on the first call.
"""
from __future__ import annotations

import linecache
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ...arrays.storage import DeviceBlocks, Stored
from ...ir.diagnostics.diagnostic import fail
from ...ir.diagnostics.errors import JaxRuntimeError
from ...ir.diagnostics.extras import need_jax
from ...ir.meshes.mesh import AbstractMesh
from ...ir.program import Level, Program
from ...ir.settings.context import config
from ...ir.support.caches import cached
from ...ir.support.lazy import lazy_import
from .host_calls import SharedCall
from .source import Source, needs_x64
from .transfer import dtype_in_jax, from_jax, padded_shape, to_jax

jax = lazy_import("jax")
_FLAG = "--xla_force_host_platform_device_count"


def check_devices(count: int) -> None:
    """Raise RuntimeError where JAX has fewer devices. Where nothing else has asked JAX for devices
    yet, the CPU is made to have as many as are simulated."""
    need_jax("the jax engine")
    have = jax.device_count()
    if have < count:
        fail(RuntimeError, f"the program is for {count} devices, and JAX has {have}",
             code="engine-devices",
             help=f"set XLA_FLAGS={_FLAG}={count} in the environment before JAX is imported, or "
                  f"call jax.config.update('jax_num_cpu_devices', {count}) before its first use; "
                  "or run the program unpartitioned: `compile(engine=\"jax\", devices=1)`")


def ask_for_devices(count: int) -> None:
    """Ask for as many virtual devices of the CPU as are simulated, and this many at least, if JAX
    is not imported yet and nobody else has asked."""
    if "jax" not in sys.modules and _FLAG not in os.environ.get("XLA_FLAGS", ""):
        try:
            jax.config.update("jax_num_cpu_devices", max(count, config.jax_num_cpu_devices))
        except (ModuleNotFoundError, RuntimeError, AttributeError):
            pass                                # `check_devices` says what is wrong


class XLAProgram:
    """A program on JAX's devices.

    source: its text. step: the function of whole arrays, not jitted. sharding: of each argument.
    trusts_types: that copies are equal where types do not vary.
    """

    def __init__(self, program: Program, mesh: AbstractMesh | None,
                 devices: Sequence[int] = ()) -> None:
        count = 1 if mesh is None else mesh.size
        ask_for_devices(count)
        check_devices(count)
        if mesh is not None and program.level is not Level.LOCAL:
            fail(ValueError, f"an engine runs LOCAL programs; `{program.name}` is "
                 f"{program.level.value.upper()}", code="engine-level",
                 help="partition it first, by `partition(program).local`")
        self.program = program
        self.trusts_types = True
        self.types = program.global_in or program.in_avals
        self.result_types = program.global_out or program.out_avals
        self.blocks = DeviceBlocks(mesh or AbstractMesh((), ()))
        writer = Source(program, mesh)
        self.source = writer.text(devices)
        self.calls = [SharedCall(e) for e in writer.calls]
        self.namespace = executed(self.source, {
            "constants": writer.constants, "callbacks": self.calls})
        self.step: Callable[..., Any] = self.namespace["step"]
        self.jitted = jax.jit(self.step)
        one = None if writer.sizes else jax.sharding.SingleDeviceSharding(jax.devices()[0])
        self.sharding = [s or one for s in writer.argument_shardings(self.namespace)]

    def settings(self) -> AbstractContextManager:
        """Under which JAX traces and runs the program."""
        return enabled_x64(self.program)

    def place(self, arguments: Sequence[Stored]) -> list[Any]:
        """Arrays of JAX's of whole values."""
        return [to_jax(x, t, v.aval, s, self.blocks) for x, t, v, s in
                zip(arguments, self.types, self.program.invars, self.sharding, strict=True)]

    def run(self, placed: Sequence[Any], function: Callable[..., Any] | None = None
            ) -> Sequence[Any]:
        """Results as arrays of JAX's. function: the program jitted, by default without donation."""
        for call in self.calls:
            call.begin()
        try:
            found = (function or self.jitted)(*placed)
            if self.calls:
                jax.block_until_ready(found)
                jax.effects_barrier()
        except Exception as problem:
            for call in self.calls:
                call.check()
            if type(problem).__name__ in ("XlaRuntimeError", "JaxRuntimeError"):
                raise JaxRuntimeError(str(problem)) from problem
            raise
        for call in self.calls:
            call.check()
        return found

    def fetch(self, results: Sequence[Any]) -> list[Stored]:
        """Whole values of results."""
        return [from_jax(x, t, v.aval, self.blocks, self.trusts_types) for x, t, v in
                zip(results, self.result_types, self.program.outvars, strict=True)]

    def __call__(self, arguments: Sequence[Stored]) -> list[Stored]:
        with self.settings():
            return self.fetch(self.run(self.place(arguments)))

    def call(self, arrays: Sequence[Any]) -> list[Any]:
        """Run the program on JAX's arrays, which are moved where their sharding differs; donated
        ones are given up.
        """
        with self.settings():
            placed = [jax.device_put(x, s) for x, s in zip(arrays, self.sharding, strict=True)]
            return list(self.run(placed, self.namespace["run"]))

    def compiled(self) -> Any:
        """What XLA makes of it: JAX's compiled function of placed arrays."""
        with self.settings():
            shapes = [jax.ShapeDtypeStruct(*_jax_type(t, v.aval, self.blocks), sharding=s)
                      for t, v, s in zip(self.types, self.program.invars, self.sharding,
                                         strict=True)]
            return self.jitted.lower(*shapes).compile()

    def hlo(self) -> str:
        """XLA's optimised program of one device."""
        return self.compiled().as_text()


def enabled_x64(program: Program) -> AbstractContextManager:
    """JAX's 64-bit dtypes, for a program that has such."""
    return jax.enable_x64(True) if needs_x64(program) else nullcontext()


def _jax_type(t: Any, local: Any, blocks: DeviceBlocks) -> tuple[Any, Any]:
    return padded_shape(t, local, blocks), dtype_in_jax(t)


@cached(256, "numbers of written programs")
def _number(text: str) -> int:
    return hash(text) & 0xFFFFFFFF


def executed(text: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """The names that the text of a program defines. Errors inside of it show its lines."""
    name = f"<program for JAX {_number(text):08x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    exec(compile(text, name, "exec", dont_inherit=True), namespace)
    return namespace
