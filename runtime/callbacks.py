"""Host callbacks of the simulated executor (for the per-device one: runtime/per_device/control.py).

The function gets arrays on one device, copies that it may keep, and runs outside of the thread's
current trace and mesh. In a manual region every place along the region's axes makes a call with its
own blocks, in mesh order; places that a predicate excludes do not call. Results must have the
declared shapes and dtypes.
"""
from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..arrays.array import ArrayImpl
from ..arrays.axes import MeshAtoms
from ..arrays.devices import local_devices
from ..arrays.storage import Stored, frozen
from ..ir.diagnostics.errors import JaxRuntimeError
from ..ir.dtypes import canonicalize_dtype
from ..ir.kernels.key_data import storage_dtype
from ..ir.meshes.mesh import empty_abstract_mesh, empty_mesh
from ..ir.op import Op
from ..ir.ops.control.callback import call_arguments, format_fields
from ..ir.program import Equation
from ..ir.settings.context import STATE, x64_enabled
from ..ir.shardings.sharding import SingleDeviceSharding
from ..ir.source.wording import as_the_user_says
from ..ir.support.lazy import lazy_import
from ..ir.support.scopes import override
from ..ir.text.placeholders import NamedCallable, OpaqueValue
from ..ir.trees.pytree import flatten
from ..ir.types import ArrayType, array_type
from ..ir.values.array import Array
from .layout import Layout

logging = lazy_import("logging")
string = lazy_import("string")
traceback = lazy_import("traceback")

Params = dict[str, Any]
_WARNINGS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


# -- one call --------------------------------------------------------------------------------------

class host_context:
    """Runs a block outside of every trace and mesh, as if in a thread of its own.

    It is no generator: one that an interrupt leaves behind would restore numpy's settings when it
    is collected, after the enclosing run has restored the user's.
    """

    __slots__ = ("_errors", "_scope")

    def __enter__(self) -> None:
        self._errors: Any = None
        self._scope = override(
            STATE, abstract_mesh=empty_abstract_mesh, mesh=empty_mesh, interpreter=None,
            eager_arguments=None, eager_meshes=(), check_vma=True, on_equation=[],
            named_axes=(), mapped_mesh_axes=frozenset(), spmd_axes=frozenset())
        self._scope.__enter__()
        self._errors = np.geterr()
        np.seterr(**_WARNINGS)          # type: ignore[arg-type]

    def __exit__(self, *exception: object) -> None:
        if self._errors is not None:
            np.seterr(**self._errors)
        self._scope.__exit__(*exception)


def host_array(block: Any, aval: ArrayType, device: Any, weak_type: bool = False) -> ArrayImpl:
    """A block as the function gets it: an array of its own, on one device."""
    own = array_type(block.shape, aval.dtype, weak_type)
    data = np.array(block, storage_dtype(aval.dtype))
    return ArrayImpl(own, SingleDeviceSharding(device), Stored(frozen(data)), True)


def printed(args: Sequence[Any], kwargs: dict[str, Any], params: Params) -> str:
    """The text that `debug_print` prints."""
    fmt = params["fmt"]
    for _ in format_fields(fmt):          # raises for a field that reaches into an argument
        pass
    if not fmt or next(iter(string.Formatter().parse(fmt)))[1] is None:
        return " ".join((fmt, *map(str, args)))
    with np.printoptions(**dict(params["np_printoptions"])):
        return fmt.format(*args, **kwargs)


def act(op: Op, params: Params, operands: Sequence[Any]) -> Any:
    """Call the function of a callback equation on arrays; returns what it returns."""
    if isinstance(params["in_tree"], OpaqueValue) or any(
            isinstance(x, OpaqueValue) for _, x in params["static_args"]):
        raise NameError(f"`{op.name}` was read from text, which does not have its arguments that "
                        f"are no arrays: {params['in_tree']!r}, {params['static_args']!r}")
    args, kwargs = call_arguments(operands, params)
    if "fmt" not in params:
        return params["callback"](*args, **kwargs)
    text = printed(args, kwargs, params)
    if params["log"]:
        logging.getLogger("shardtrace.debug").info("%s", text)
    else:
        sys.stdout.write(text + "\n")
    return None


class HostCall:
    """A callback equation as a function of blocks."""

    __slots__ = ("device", "op", "params", "results", "types")

    def __init__(self, eqn: Equation) -> None:
        self.op = eqn.op
        defaults = {"in_tree": None, "keywords": (), "static_args": (), "np_printoptions": (),
                    "log": False}
        self.params: Params = {**defaults, **eqn.params}
        self.types = [a.aval for a in eqn.invars]
        self.results = [v.aval for v in eqn.outvars]
        self.device = local_devices()[0]

    def __call__(self, blocks: Sequence[Any]) -> list[np.ndarray]:
        """Results for these blocks. Raises JaxRuntimeError where the function fails."""
        function = self.params.get("callback")
        operands = [host_array(x, t, self.device)
                    for x, t in zip(blocks, self.types, strict=True)]
        with host_context():
            if isinstance(function, NamedCallable):
                function()                     # an error that names the function
            try:
                returned = act(self.op, self.params, operands)
                return self.checked(returned) if self.op.effect != "debug" else []
            except (Exception, SystemExit) as problem:      # one that leaves, too, as in JAX
                called = self.op.name.replace("debug_", "debug.")
                said, _ = as_the_user_says(f"jax.{called} failed")
                logging.getLogger("shardtrace.callback").error(said, exc_info=problem)
                text = "".join(traceback.format_exception(problem)).rstrip()
                raise JaxRuntimeError(
                    f"INTERNAL: CpuCallback error calling callback: {text}") from problem

    def checked(self, returned: Any) -> list[np.ndarray]:
        """The returned values as arrays. Raises unless they have the declared shapes and dtypes."""
        values, wanted = flatten(returned)[0], self.results
        if len(values) != len(wanted):
            raise RuntimeError("Mismatched number of outputs from callback. Expected: "
                               f"{len(wanted)}, Actual: {len(values)}")
        out = []
        for i, (value, t) in enumerate(zip(values, wanted, strict=True)):
            have: Any = value.dtype if isinstance(value, Array) else None
            if isinstance(value, ArrayImpl) and have == t.dtype:
                data = value.value                  # of random keys, too
            else:
                data = np.asarray(value)
                have = canonicalize_dtype(data.dtype, x64_enabled())
                data = data.astype(have, copy=False)
            shape = np.shape(value)
            if shape != t.shape:
                raise RuntimeError(f"Incorrect output shape for return value #{i}: Expected: "
                                   f"{t.shape}, Actual: {shape}")
            if have != t.dtype:
                raise RuntimeError(f"Incorrect output dtype for return value #{i}: Expected: "
                                   f"{t.dtype}, Actual: {have}")
            out.append(np.array(data, storage_dtype(t.dtype)))
        return out


def call_now(op: Op, params: Params, operands: Sequence[Any], types: Sequence[ArrayType]) -> None:
    """Call a debug callback outside of every trace; its exceptions reach the caller."""
    device = local_devices()[0]
    arrays = [host_array(x.value if isinstance(x, ArrayImpl) else np.asarray(x), t, device,
                         t.weak_type)
              for x, t in zip(operands, types, strict=True)]
    with host_context():
        act(op, params, arrays)


# -- the simulated executor ------------------------------------------------------------------------

def plan_callback(p: Any, eqn: Equation) -> None:
    """Append a callback: one call for each place along its axes, with the blocks there."""
    atoms = p.atoms
    places = atoms.sort(atoms.of_all(eqn.axes))
    operands = [p.value_of(a) for a in eqn.invars]
    stacks, slots = [], []
    if p.mask is not None:
        stacks.append(p.mask.layout.stack)
        slots.append(p.mask.slot)
    for x in operands:
        stack = atoms.sort(x.layout.atoms)
        stacks.append(stack)
        slots.append(p.view(x, stack, ((),) * x.aval.ndim))
    types = [v.aval for v in eqn.outvars]
    function = _each_place(HostCall(eqn), places, stacks, p.mask is not None, types, atoms)
    p.bind_several(eqn, function, slots, [Layout(places, ((),) * t.ndim) for t in types])


def _each_place(call: HostCall, places: tuple[str, ...], stacks: Sequence[tuple[str, ...]],
                masked: bool, types: Sequence[ArrayType], atoms: MeshAtoms) -> Callable[..., list]:
    """A function of stacked arrays that calls back at each place of the mesh axes over which they
    differ. stacks: the axes of the leading dimensions of each; masked: the first says where.
    """
    sizes = atoms.sizes(places)
    wanted = [(sizes + t.shape, storage_dtype(t.dtype)) for t in types]

    def run(*arrays: Any) -> list[np.ndarray]:
        results = [np.zeros(shape, dtype) for shape, dtype in wanted]
        for place in np.ndindex(*sizes):
            at = dict(zip(places, place, strict=True))
            here = [x[tuple(at.get(a, 0) for a in stack)]
                    for x, stack in zip(arrays, stacks, strict=True)]
            if masked and not here.pop(0):
                continue
            for result, value in zip(results, call(here), strict=True):
                result[place] = value
        return results

    return run
