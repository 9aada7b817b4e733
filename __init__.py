"""shardtrace: Python array programs whose types carry their sharding.

Where to begin: make a mesh, place arrays on it, jit a function of them, look at what became of it.

>>> import numpy as np
>>> import shardtrace as st
>>> import shardtrace.numpy as jnp
>>> from shardtrace.sharding import NamedSharding, PartitionSpec as P
>>> mesh = st.make_mesh((2, 4), ("data", "model"))
>>> x = st.device_put(np.ones((8, 16), np.float32), NamedSharding(mesh, P("data", "model")))
>>> w = st.device_put(np.ones((16, 32), np.float32), NamedSharding(mesh, P("model", None)))
>>> @st.jit
... def layer(x, w):
...     return jnp.tanh(x @ w)
>>> layer(x, w).sharding.spec
P('data',)
>>> [(c.kind, c.mesh_axes, c.received_bytes) for c in st.explain(layer)(x, w).collectives]
[('all-reduce', ('model',), 768)]

`print(layer.trace(x, w).jaxpr)` shows the typed program, `layer.lower(x, w).as_text()` has every
sharding resolved, and `.compile().as_text()` is the per-device program with its collectives.

Who decides how values are split is a property of each mesh axis (`sharding.AxisType`):
  Auto      the partitioner, from the inputs and from constraints; types do not show it
  Explicit  the types of values, op by op: `float32[32@x,64]`; `reshard` changes them
  Manual    you, inside `shard_map`, where code works on blocks and calls collectives
The docstrings of functions say what each mode means for them: `help(jnp.matmul)`.

Names are JAX's. In this module:
  running        jit, eval_shape, make_jaxpr, disable_jit, block_until_ready
  placing        make_mesh, set_mesh, device_put, reshard, devices, make_array_from_callback
  by device      shard_map, smap, pmap
  derivatives    grad, value_and_grad, vjp, jvp, linearize, jacfwd, jacrev, hessian, checkpoint
  batching       vmap
  looking        typeof, explain, whatif, debug, profile_phases
  planning       autoshard, freeze_plan, thaw_plan
and in its modules:
  numpy, scipy   array functions, with numpy's and scipy's names
  lax            loops, branches, collectives, and what the numpy functions are made of
  nn, random     activations, attention, initial values; random numbers from keys
  sharding       Mesh, PartitionSpec, NamedSharding, AxisType
  tree           functions over nested containers of arrays
  testing        assertions about communication, memory and equal results
  errors         every error, with its cause and its fix
  interop        functions and programs of real JAX, taken as they are
  checkpoints, distributed, stages, config, ...

Everything is loaded when first used.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

# public name -> (module, name there); modules are relative to the package
_NAMES: dict[str, tuple[str, str]] = {
    "Array": (".ir.values.array", "Array"),
    "AbstractDevice": (".ir.meshes.device", "AbstractDevice"),
    "Device": (".ir.meshes.device", "Device"),
    "NamedSharding": (".ir.shardings.sharding", "NamedSharding"),
    "P": (".ir.spec", "PartitionSpec"),
    "ShapeDtypeStruct": (".ir.values.shape_struct", "ShapeDtypeStruct"),
    "Shard": (".arrays.blocks", "Shard"),
    "ad": (".tracer.autodiff.pullback", "ad"),
    "autoshard": (".planning.autoshard", "autoshard"),
    "auto_axes": (".tracer.shardings.sharding_functions", "auto_axes"),
    "block_until_ready": (".arrays.transfer", "block_until_ready"),
    "checkpoint": (".tracer.autodiff.rematerialization.checkpoint", "checkpoint"),
    "checkpoint_policies": (".tracer.autodiff.rematerialization.checkpoint", "checkpoint_policies"),
    "config": (".ir.settings.context", "config"),
    "clear_caches": (".driver.caches", "clear_caches"),
    "copy_to_host_async": (".arrays.transfer", "copy_to_host_async"),
    "closure_convert": (".tracer.autodiff.custom.closures", "closure_convert"),
    "custom_gradient": (".tracer.autodiff.custom.closures", "custom_gradient"),
    "custom_jvp": (".tracer.autodiff.custom.custom_jvp", "custom_jvp"),
    "custom_vjp": (".tracer.autodiff.custom.custom_vjp", "custom_vjp"),
    "default_backend": (".arrays.devices", "default_backend"),
    "default_device": (".arrays.devices", "using_default_device"),
    "device_count": (".arrays.devices", "device_count"),
    "device_get": (".arrays.transfer", "device_get"),
    "device_put": (".driver.execution.transfer", "device_put"),
    "devices": (".arrays.devices", "devices"),
    "effects_barrier": (".tracer.host.callbacks", "effects_barrier"),
    "enable_x64": (".ir.settings.context", "enable_x64"),
    "eval_shape": (".driver", "eval_shape"),
    "explain": (".driver.analysis.explain", "explain"),
    "explicit_axes": (".tracer.shardings.sharding_functions", "explicit_axes"),
    "freeze_plan": (".driver.analysis.freeze", "freeze_plan"),
    "grad": (".tracer.autodiff.grad", "grad"),
    "hessian": (".tracer.jacobian", "hessian"),
    "host_count": (".arrays.devices", "process_count"),
    "host_ids": (".arrays.devices", "process_indices"),
    "host_id": (".arrays.devices", "process_index"),
    "jacfwd": (".tracer.jacobian", "jacfwd"),
    "jacobian": (".tracer.jacobian", "jacobian"),
    "jacrev": (".tracer.jacobian", "jacrev"),
    "jit": (".driver", "jit"),
    "jvp": (".tracer.autodiff.grad", "jvp"),
    "linear_transpose": (".tracer.autodiff.grad", "linear_transpose"),
    "linearize": (".tracer.autodiff.grad", "linearize"),
    "live_arrays": (".arrays.live", "live_arrays"),
    "local_device_count": (".arrays.devices", "local_device_count"),
    "local_devices": (".arrays.devices", "local_devices"),
    "make_array_from_callback": (".arrays.assembly", "make_array_from_callback"),
    "make_array_from_process_local_data": (
        ".arrays.assembly", "make_array_from_process_local_data"),
    "make_array_from_single_device_arrays": (
        ".arrays.assembly", "make_array_from_single_device_arrays"),
    "make_jaxpr": (".driver", "make_jaxpr"),
    "make_mesh": (".arrays.devices", "make_mesh"),
    "named_call": (".tracer.staging.name_scopes", "named_call"),
    "named_scope": (".tracer.staging.name_scopes", "named_scope"),
    "parse_program": (".ir.text.parse", "parse_program"),
    "pmap": (".driver.jit.pmap", "pmap"),
    "profile_phases": (".ir.settings.phases", "profile_phases"),
    "process_count": (".arrays.devices", "process_count"),
    "process_index": (".arrays.devices", "process_index"),
    "process_indices": (".arrays.devices", "process_indices"),
    "programs_equal": (".ir.fingerprint", "programs_equal"),
    "pure_callback": (".tracer.host.callbacks", "pure_callback"),
    "remat": (".tracer.autodiff.rematerialization.checkpoint", "checkpoint"),
    "reshard": (".tracer.shardings.sharding_functions", "reshard"),
    "set_mesh": (".tracer.shardings.mesh_context", "set_mesh"),
    "shard_map": (".tracer.shard_map.shard_map", "shard_map"),
    "smap": (".tracer.shard_map.shard_map", "smap"),
    "thaw_plan": (".driver.analysis.freeze", "thaw_plan"),
    "typeof": (".ir.values.typeof", "typeof"),
    "value_and_grad": (".tracer.autodiff.grad", "value_and_grad"),
    "whatif": (".driver.analysis.whatif", "whatif"),
    "vjp": (".tracer.autodiff.grad", "vjp"),
    "vmap": (".tracer.batching.vmap", "vmap"),
    "debug_nans": (".ir.settings.managers", "debug_nans"),
    "debug_infs": (".ir.settings.managers", "debug_infs"),
    "check_tracer_leaks": (".ir.settings.managers", "check_tracer_leaks"),
    "checking_leaks": (".ir.settings.managers", "checking_leaks"),
    "log_compiles": (".ir.settings.managers", "log_compiles"),
    "enable_checks": (".ir.settings.managers", "enable_checks"),
    "debug_key_reuse": (".ir.settings.managers", "debug_key_reuse"),
    "softmax_custom_jvp": (".ir.settings.managers", "softmax_custom_jvp"),
    "explain_cache_misses": (".ir.settings.managers", "explain_cache_misses"),
    "no_tracing": (".ir.settings.managers", "no_tracing"),
    "numpy_rank_promotion": (".ir.settings.managers", "numpy_rank_promotion"),
    "numpy_dtype_promotion": (".ir.settings.managers", "numpy_dtype_promotion"),
    "default_matmul_precision": (".ir.settings.managers", "default_matmul_precision"),
    "default_prng_impl": (".ir.settings.managers", "default_prng_impl"),
    "enable_custom_prng": (".ir.settings.managers", "enable_custom_prng"),
    "legacy_prng_key": (".ir.settings.managers", "legacy_prng_key"),
    "threefry_partitionable": (".ir.settings.managers", "threefry_partitionable"),
    "transfer_guard": (".ir.settings.managers", "transfer_guard"),
    "transfer_guard_host_to_device": (".ir.settings.managers", "transfer_guard_host_to_device"),
    "transfer_guard_device_to_device": (".ir.settings.managers", "transfer_guard_device_to_device"),
    "transfer_guard_device_to_host": (".ir.settings.managers", "transfer_guard_device_to_host"),
    "disable_jit": (".ir.settings.managers", "disable_jit"),
    "ensure_compile_time_eval": (".tracer.staging.compile_time", "ensure_compile_time_eval"),
    "float0": (".ir.dtypes", "float0"),
    "ds": (".tracer.references.elements", "ds"),
    **{name: (".tracer.references.ref", name) for name in (
        "Ref", "empty_ref", "free_ref", "freeze", "new_ref")},
}
_MODULES = ("ad_checkpoint", "checkpoints", "core", "custom_batching", "custom_derivatives",
            "debug", "distributed", "dlpack", "dtypes", "errors", "experimental", "extend",
            "flatten_util", "image", "interop", "lax", "memory", "nn", "numpy", "ops", "random",
            "ref", "runtime", "scipy", "sharding", "stages", "test_util", "testing", "tree",
            "tree_util", "typing")

__all__ = [*sorted(_NAMES), *_MODULES]
# What `%load_ext shardtrace` of IPython asks a module for.
_NAMES |= {name: (".studio.notebook", name)
           for name in ("load_ipython_extension", "unload_ipython_extension")}

if TYPE_CHECKING:
    __version__: str
    from . import ad_checkpoint as ad_checkpoint
    from . import checkpoints as checkpoints
    from . import core as core
    from . import custom_batching as custom_batching
    from . import custom_derivatives as custom_derivatives
    from . import debug as debug
    from . import distributed as distributed
    from . import dlpack as dlpack
    from . import dtypes as dtypes
    from . import errors as errors
    from . import experimental as experimental
    from . import extend as extend
    from . import flatten_util as flatten_util
    from . import image as image
    from . import interop as interop
    from . import lax as lax
    from . import memory as memory
    from . import nn as nn
    from . import numpy as numpy
    from . import ops as ops
    from . import random as random
    from . import ref as ref
    from . import runtime as runtime
    from . import scipy as scipy
    from . import sharding as sharding
    from . import stages as stages
    from . import test_util as test_util
    from . import testing as testing
    from . import tree as tree
    from . import tree_util as tree_util
    from .arrays.devices import device_count as device_count
    from .arrays.devices import devices as devices
    from .arrays.devices import local_device_count as local_device_count
    from .arrays.devices import make_mesh as make_mesh
    from .driver import eval_shape as eval_shape
    from .driver import make_jaxpr as make_jaxpr
    from .driver.analysis.explain import explain as explain
    from .driver.analysis.whatif import whatif as whatif
    from .driver.jit.jit import jit as jit
    from .driver.jit.pmap import pmap as pmap
    from .ir.meshes.device import Device as Device
    from .ir.settings.context import config as config
    from .ir.shardings.sharding import NamedSharding as NamedSharding
    from .ir.spec import P as P
    from .ir.values.array import Array as Array
    from .ir.values.shape_struct import ShapeDtypeStruct as ShapeDtypeStruct
    from .ir.values.typeof import typeof as typeof
    from .planning.autoshard import autoshard as autoshard
    from .tracer.autodiff.custom.closures import closure_convert as closure_convert
    from .tracer.autodiff.custom.closures import custom_gradient as custom_gradient
    from .tracer.autodiff.custom.custom_jvp import custom_jvp as custom_jvp
    from .tracer.autodiff.custom.custom_vjp import custom_vjp as custom_vjp
    from .tracer.autodiff.grad import grad as grad
    from .tracer.autodiff.grad import jvp as jvp
    from .tracer.autodiff.grad import linear_transpose as linear_transpose
    from .tracer.autodiff.grad import linearize as linearize
    from .tracer.autodiff.grad import value_and_grad as value_and_grad
    from .tracer.autodiff.grad import vjp as vjp
    from .tracer.autodiff.rematerialization.checkpoint import checkpoint as checkpoint
    from .tracer.autodiff.rematerialization.checkpoint import (
        checkpoint_policies as checkpoint_policies,
    )
    from .tracer.batching.vmap import vmap as vmap
    from .tracer.jacobian import hessian as hessian
    from .tracer.jacobian import jacfwd as jacfwd
    from .tracer.jacobian import jacobian as jacobian
    from .tracer.jacobian import jacrev as jacrev
    from .tracer.shard_map.shard_map import shard_map as shard_map
    from .tracer.shardings.mesh_context import set_mesh as set_mesh
    from .tracer.shardings.sharding_functions import reshard as reshard


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    try:
        module, attribute = _NAMES[name]
    except KeyError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    importlib.import_module(".driver", __name__)     # declares the ops and the default interpreter
    boundary = importlib.import_module(".ir.api_boundary", __name__)
    value = getattr(importlib.import_module(module, __name__), attribute)
    value = boundary.public(value, name, __name__, results=True)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
