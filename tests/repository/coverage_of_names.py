"""What `make_coverage.py`, `test_coverage.py` and tests/record/names.py share: names, reasons."""
from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
import types
from typing import Any

from ..paths import DOCS, GOLDEN, ROOT

TABLE = GOLDEN / "public_names.txt"
DOCUMENT = DOCS / "coverage.md"

# "" is the package itself. Those of FULL hold what array programs are written with.
FULL = ("numpy", "numpy.linalg", "numpy.fft", "lax", "lax.linalg", "nn", "nn.initializers",
        "random", "ops", "ref", "tree", "tree_util", "sharding", "flatten_util",
        "scipy.sparse.linalg")
MODULES = ("", *FULL, "scipy.cluster.vq", "scipy.fft", "scipy.integrate", "scipy.interpolate",
           "scipy.linalg", "scipy.ndimage", "scipy.optimize", "scipy.signal",
           "scipy.spatial.transform", "scipy.special", "scipy.stats", "ad_checkpoint",
           "custom_batching", "custom_derivatives", "debug", "dtypes", "errors", "test_util",
           "typing")

OTHERS = GOLDEN / "public_modules.txt"
_COMPILER = "a hook of XLA or its runtime, of which there is none below"
_TOKEN = "tokens order side effects inside of XLA; here effects run in the order of the program"
_INTERNAL = "machinery of JAX's own transformations"
_DEPRECATED = "deprecated in JAX"
_EXPORT = "programs are saved as text (`program.as_text()`) or with `checkpoints`, not StableHLO"

# Modules that are out of scope, with all below them.
OUTSIDE: dict[str, str] = {
    "cloud_tpu_init": "prepares a TPU machine", "collect_profile": "profiles hardware",
    "experimental.array_serialization": "arrays are saved by `checkpoints`",
    "experimental.buffer_callback": "buffers of a device are handed to Python as they are",
    "experimental.colocated_python": "Python on the hosts of a device",
    "experimental.compilation_cache": "nothing is compiled that could be kept",
    "experimental.compute_on": "there is one kind of device",
    "experimental.control_deps": "orders instructions of XLA",
    "experimental.fused": "asks XLA to fuse", "experimental.jax2tf": "for TensorFlow",
    "experimental.key_reuse": "reuse of keys is not looked for",
    "experimental.mosaic": "kernels for one kind of hardware",
    "experimental.pallas": "kernels for one kind of hardware",
    "experimental.profiler": "profiles hardware", "experimental.rnn": "calls cuDNN",
    "experimental.roofline": "see `st.explain` and `cost`",
    "experimental.scheduling_groups": "orders instructions of XLA",
    "experimental.serialize_executable": "there are no executables of XLA; programs are text",
    "experimental.sparse": "sparse arrays of JAX's own formats are not partitioned",
    "experimental.source_mapper": "maps XLA's texts to lines; programs here show them",
    "experimental.topologies": "a mesh may be abstract",
    "experimental.transfer": "copies between processes by a protocol of XLA's",
    "experimental.xla_metadata": "annotations for XLA", "export": _EXPORT,
    "extend.backend": _COMPILER, "extend.ifrt_programs": _COMPILER, "extend.lowering": _COMPILER,
    "extend.mlir": _COMPILER, "extend.pallas": "kernels for one kind of hardware",
    "extend.sharding": _COMPILER, "extend.xla": _COMPILER,
    "ffi": "calls foreign code inside of XLA; use `pure_callback`",
    "experimental.random": "experiments with other generators",
    "interpreters.batching": _INTERNAL, "interpreters.pxla": _INTERNAL, "lib": _COMPILER,
    "profiler": "profiles hardware; see `st.explain` and `cost`",
    "tools": "converts texts of XLA",
}

# Why a name is missing: by module and name, or for all names of a kind by a prefix or suffix.
REASONS: dict[str, dict[str, str]] = {
    "": {
        "api_util": _INTERNAL, "interpreters": _INTERNAL,
        "lib": _INTERNAL, "make_user_context": _INTERNAL,
        "allow_f16_reductions": _COMPILER, "array_garbage_collection_guard": _COMPILER,
        "thread_guard": _COMPILER, "no_execution": _COMPILER,
        "jax2tf_associative_scan_reductions": "for TensorFlow",
        "auto_pcast": "casts to varying are always inserted, as in JAX by default",
        "remove_size_one_mesh_axis_from_type": "off, as in JAX by default",
        "export": _EXPORT,
        "ffi": "calls foreign code inside of XLA; use `pure_callback`",
        "monitoring": _COMPILER, "profiler": "profiles hardware; see `st.explain` and `cost`",
        "print_environment_info": _COMPILER,
        "fwd_and_bwd": "experimental; use `vjp`", "version": "see `__version__`",
    },
    "lax": {
        "after_all": _TOKEN, "create_token": _TOKEN, "precv": _TOKEN, "psend": _TOKEN,
        "dce_sink": _COMPILER,
        "rng_uniform": "draws from a hidden state of the device; use `random.uniform`",
        "after_all_p": _TOKEN, "create_token_p": _TOKEN, "dce_sink_p": _COMPILER,
        "rng_uniform_p": "see rng_uniform",
        "approx_top_k_p": "`approx_max_k` is exact here, a `top_k`",
        "ragged_all_to_all_p": "`ragged_all_to_all` is composed of other collectives",
        "reduce_window_p": "windows with reducers of one's own are composed",
        "select_and_scatter_p": "with functions of one's own it is composed",
    },
    "lax.linalg": {
        "cholesky_update_p": "composed of others", "ormqr_p": "composed of others",
        "symmetric_product_p": "composed of others",
    },
    "tree_util": {"default_registry": "the registry belongs to this package's own tree library"},
    "custom_derivatives": {
        "linear_call": "`custom_linear_solve` or `custom_vjp` say the same",
        "remat_opt_p": _INTERNAL,
    },
    "ad_checkpoint": {
        "Offloadable": "memory is one", "Recompute": _INTERNAL, "Saveable": _INTERNAL,
    },
    "debug": {
        "DebugEffect": _INTERNAL, "OrderedDebugEffect": _INTERNAL,
    },
    "errors": {
        "InconclusiveDimensionOperation": "shapes are numbers; there are no symbolic dimensions",
        "JaxprTypeError": "programs are checked by the verifier, with errors of its own",
    },
}

# For what is missing of modules of which only a part is here.
OTHERWISE = {
    "scipy.special": "not met in programs on sharding so far",
}


def kind_of(name: str, value: Any) -> str:
    if name.endswith("_p"):
        return "primitive"
    if inspect.ismodule(value):
        return "module"
    if isinstance(value, type):
        return "class"
    return "function" if callable(value) else "value"


def public_names(package: str, module: str) -> list[tuple[str, str]]:
    """(name, kind) of what users find in a module, sorted."""
    holder = importlib.import_module(f"{package}.{module}" if module else package)
    found = []
    for name in sorted(dir(holder)):
        if name.startswith("_"):
            continue
        with contextlib.suppress(AttributeError):
            found.append((name, kind_of(name, getattr(holder, name))))
    return found


def recorded() -> dict[str, list[tuple[str, str]]]:
    """JAX's names by module."""
    out: dict[str, list[tuple[str, str]]] = {}
    for row in TABLE.read_text().splitlines():
        module, name, kind = row.split("\t")
        out.setdefault(module, []).append((name, kind))
    return out


def all_modules(package: str) -> list[str]:
    """The public modules of a package, found in its folders, without its own name."""
    root = importlib.import_module(package)
    found = [m.name.partition(".")[2] for m in pkgutil.walk_packages(
        root.__path__, f"{package}.", onerror=lambda name: None)]
    return sorted(name for name in found if not any(p.startswith("_") for p in name.split(".")))


def defined_names(package: str, module: str) -> list[str]:
    """What a module offers: its `__all__`, or the functions and classes that it defines; those of
    the package that it imports, where it defines none."""
    try:
        holder = importlib.import_module(f"{package}.{module}")
    except ImportError:                 # of something that is not installed
        return []
    if hasattr(holder, "__all__"):
        return sorted(name for name in holder.__all__ if not name.startswith("_"))
    found = {name: str(value.__module__) for name, value in vars(holder).items()
             if not name.startswith("_") and isinstance(value, types.FunctionType | type)}
    own = [name for name, origin in found.items() if origin == holder.__name__]
    return sorted(own or [name for name, origin in found.items() if origin.startswith(package)])


def outside(module: str) -> str | None:
    """The entry of OUTSIDE that a module is, or is below."""
    return next((m for m in OUTSIDE if f"{module}.".startswith(f"{m}.")), None)


def other_modules() -> dict[str, list[str]]:
    """Recorded: JAX's public modules besides MODULES, with what they offer."""
    rows = (row.split("\t") for row in OTHERS.read_text().splitlines())
    return {module: names.split(",") if names else [] for module, names in rows}


@functools.cache
def offered() -> dict[str, list[str]]:
    """Of the other modules' names those that are here, or that a program finds under the name
    `jax`. In a process of its own: the stand-ins change settings when they are imported."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", "import json; from tests.repository import "
         "coverage_of_names as c; print(json.dumps(c.look_up(c.other_modules())))"],
        cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(run.stdout)


def look_up(modules: dict[str, list[str]]) -> dict[str, list[str]]:
    """The names of these that are in shardtrace's modules or in the stand-ins of as_jax."""
    found: dict[str, list[str]] = {}
    for module, names in modules.items():
        holders = []
        for holder in (f"shardtrace.{module}", f"shardtrace.as_jax.names.{module}"):
            with contextlib.suppress(ImportError):
                holders.append(importlib.import_module(holder))
        found[module] = [n for n in names if any(hasattr(h, n) for h in holders)]
    return found


def present(module: str, name: str) -> bool:
    """Whether the name is here."""
    try:
        holder = importlib.import_module(f"shardtrace.{module}" if module else "shardtrace")
    except ImportError:
        return False
    return hasattr(holder, name)


def missing(module: str) -> list[str]:
    """The names of JAX's module that are not here."""
    return [name for name, _ in recorded()[module] if not present(module, name)]


def reason(module: str, name: str) -> str:
    """Why a name is missing; KeyError where nobody said."""
    known = REASONS.get(module, {})
    return OTHERWISE[module] if name not in known and module in OTHERWISE else known[name]


def share(module: str) -> tuple[int, int]:
    """(names that are here, names there are), without primitives."""
    names = [name for name, kind in recorded()[module] if kind != "primitive"]
    return sum(present(module, name) for name in names), len(names)


def document() -> str:
    """The text of docs/coverage.md."""
    lines = [
        "# Which of JAX's names are here", "",
        "Written by `python -m tests.repository.make_coverage` from the public names of JAX "
        "0.10.2;", "a test keeps it current. A name that is here has JAX's signature and is tested "
        "against its values.", "",
        "| module | here | of | percent | primitives (`*_p`) |", "| --- | --- | --- | --- | --- |"]
    for module in MODULES:
        here, count = share(module)
        primitives = [n for n, kind in recorded()[module] if kind == "primitive"]
        ours = sum(present(module, n) for n in primitives)
        text = f"{ours} of {len(primitives)}" if primitives else ""
        lines.append(f"| `{'jax' + ('.' + module if module else '')}` | {here} | {count} | "
                     f"{100 * here // max(count, 1)} | {text} |")
    lines += ["", "The other public modules, of which the functions and classes count. Some are "
              "here only where a program", "imports them as `jax` ([interop.md](interop.md"
              "#by-name)).", "", "| module | here | of | percent |", "| --- | --- | --- | --- |"]
    known = other_modules()
    for module, names in known.items():
        if names and outside(module) is None:
            here = len(offered()[module])
            lines.append(f"| `jax.{module}` | {here} | {len(names)} | "
                         f"{100 * here // len(names)} |")
    lines += ["", "Out of scope, with all modules below them:", "", "| module | modules | reason |",
              "| --- | --- | --- |"]
    for module, why in sorted(OUTSIDE.items()):
        count = sum(outside(m) == module for m in known)
        lines.append(f"| `jax.{module}` | {count} | {why} |")
    lines += ["", "## What is missing, and why", ""]
    for module in MODULES:
        names = missing(module)
        if not names:
            continue
        lines += [f"### `jax{'.' + module if module else ''}`", "", "| name | reason |",
                  "| --- | --- |"]
        by_reason: dict[str, list[str]] = {}
        for name in names:
            by_reason.setdefault(reason(module, name), []).append(name)
        lines += [f"| {', '.join(f'`{n}`' for n in group)} | {why} |"
                  for why, group in by_reason.items()]
        lines.append("")
    return "\n".join(lines)
