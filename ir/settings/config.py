"""Settings: Config, with JAX's names, and its overrides for a `with` block."""
from __future__ import annotations

import contextlib
import os
from typing import Any

from ..source.wording import warn
from ..support import environment
from .thread_state import STATE
from .xla import SETTINGS


class Config:
    """Named settings with JAX's names; unknown names raise AttributeError, as in JAX.

    jax_num_cpu_devices: simulated devices (default 8, SHARDTRACE_NUM_DEVICES, or XLA_FLAGS).
    jax_enable_x64: keep 64-bit types (default off).
    jax_explicit_x64_dtypes: "warn" about 64-bit types asked for while these are off, or "error".
    default_axis_types: "auto" or "explicit", what make_mesh gives without axis_types.
    jax_traceback_filtering: which frames tracebacks show (JAX_TRACEBACK_FILTERING). "auto": the
      user's alone, with a note that says so where the exception is the user's, too;
      "quiet_remove_frames": always with that note; "remove_frames": the user's,
      with the whole traceback as the cause; "tracebackhide": all, the package's marked for pytest
      and IPython; "off": all.
    shardtrace_debug: from SHARDTRACE_DEBUG; "trace" prints every value as it is traced.
    shardtrace_dump: from SHARDTRACE_DUMP; a directory for every stage's text.
    shardtrace_check: run the verifier after every pass (default on, SHARDTRACE_CHECK=0: off).
    shardtrace_skip: from SHARDTRACE_SKIP; names of passes to leave out (ir/passes.py), with commas.
    shardtrace_objective: what plans are judged by (SHARDTRACE_OBJECTIVE): "time", "bytes",
      "memory", or "xla" for the plan that XLA makes.
    shardtrace_hardware: whose time, such as "h100", or a Hardware (SHARDTRACE_HARDWARE).
    shardtrace_memory_limit: bytes that a device may hold, 0 for any (SHARDTRACE_MEMORY_LIMIT).
    shardtrace_allow_excess_precision: hold what a fused group computes in bfloat16 or float16 as
      float32 until it leaves the group, which XLA calls `xla_allow_excess_precision` (default on,
      SHARDTRACE_ALLOW_EXCESS_PRECISION=0: off, every result is rounded).
    shardtrace_process_timeout: seconds to wait for a process that never started (default 30).
    shardtrace_progress: progress bars on a terminal for what takes over two seconds (default on,
      SHARDTRACE_PROGRESS=0: off).
    jax_captured_constants_warn_bytes: of arrays that a jitted function captures, from which it is
      warned of (JAX_CAPTURED_CONSTANTS_WARN_BYTES; -1: never).
    jax_random_seed_offset: added to every seed.
    jax_default_device: where uncommitted arrays are made (None: the first device).

    JAX's settings of how XLA compiles, caches and logs (`jax_compilation_cache_dir`, ...) is
    taken and kept, and has no effect.

    Flags of JAX's change to one array type are still taken, with a DeprecationWarning:
    jax_array: always on; turning it off raises ValueError.
    jax_parallel_functions_output_gda: results of `experimental.pjit.pjit` are GlobalDeviceArrays.
    """

    _DEFAULTS: dict[str, Any] = {
        "jax_num_cpu_devices": 1,
        "jax_enable_x64": False,
        "jax_explicit_x64_dtypes": "warn",
        "jax_threefry_partitionable": True,
        "jax_numpy_rank_promotion": "allow",
        "jax_numpy_dtype_promotion": "standard",
        "jax_default_matmul_precision": None,
        "jax_default_prng_impl": "threefry2x32",
        "jax_random_seed_offset": 0,
        "jax_high_dynamic_range_gumbel": False,
        "jax_enable_custom_prng": False,
        "jax_legacy_prng_key": "allow",
        "jax_debug_nans": False,
        "jax_debug_infs": False,
        "jax_disable_jit": False,
        "jax_check_tracer_leaks": False,
        "jax_check_static_indices": False,
        "jax_disable_bwd_checks": False,
        "jax_log_compiles": False,
        "jax_captured_constants_warn_bytes": 2_000_000_000,
        "jax_no_tracing": False,
        "jax_transfer_guard": None,
        "jax_transfer_guard_host_to_device": None,
        "jax_transfer_guard_device_to_device": None,
        "jax_transfer_guard_device_to_host": None,
        "jax_traceback_filtering": "auto",
        "jax_platforms": None,
        "jax_default_device": None,
        "default_axis_types": "auto",
        "shardtrace_debug": "",
        "shardtrace_dump": "",
        "shardtrace_check": True,
        "shardtrace_skip": "",
        "shardtrace_objective": "time",
        "shardtrace_hardware": "v5p",
        "shardtrace_memory_limit": 0,
        "shardtrace_engine": "simulated",
        "shardtrace_allow_excess_precision": True,
        "shardtrace_process_timeout": 30.0,
        "shardtrace_progress": True,
        **SETTINGS,
        "jax_array": True,
        "jax_parallel_functions_output_gda": False,
    }
    # Tracing depends on these: what is cached of a trace is kept under their values.
    _TRACED = ("jax_enable_x64", "jax_explicit_x64_dtypes", "jax_threefry_partitionable",
               "jax_numpy_rank_promotion", "jax_numpy_dtype_promotion",
               "jax_default_matmul_precision", "jax_default_prng_impl", "jax_random_seed_offset",
               "jax_high_dynamic_range_gumbel", "jax_enable_custom_prng", "jax_legacy_prng_key",
               "jax_disable_jit", "jax_check_static_indices")
    # Calls depend on these and on those.
    _CALLED = ("shardtrace_engine", "shardtrace_allow_excess_precision", "jax_default_device")
    _GUARDS = ("allow", "log", "disallow", "log_explicit", "disallow_explicit")
    _CHOICES: dict[str, tuple[str | None, ...]] = {
        "jax_explicit_x64_dtypes": ("warn", "error", "allow"),
        "jax_numpy_rank_promotion": ("allow", "warn", "raise"),
        "jax_numpy_dtype_promotion": ("standard", "strict"),
        "jax_legacy_prng_key": ("allow", "warn", "error"),
        "default_axis_types": ("auto", "explicit"),
        "shardtrace_engine": environment.ENGINES,
        "shardtrace_objective": environment.OBJECTIVES,
        "jax_default_prng_impl": ("threefry2x32", "threefry4x32", "rbg", "unsafe_rbg",
                                  "philox2x32", "philox4x32"),
        "jax_traceback_filtering": ("off", "tracebackhide", "remove_frames",
                                    "quiet_remove_frames", "auto"),
        "jax_transfer_guard": (None, *_GUARDS),
        "jax_transfer_guard_host_to_device": (None, *_GUARDS),
        "jax_transfer_guard_device_to_device": (None, *_GUARDS),
        "jax_transfer_guard_device_to_host": (None, *_GUARDS),
        "jax_default_matmul_precision": (
            None, "default", "high", "highest", "bfloat16", "tensorfloat32", "float32",
            "ANY_F8_ANY_F8_F32", "ANY_F8_ANY_F8_F32_FAST_ACCUM", "ANY_F8_ANY_F8_ANY",
            "ANY_F8_ANY_F8_ANY_FAST_ACCUM", "F16_F16_F16", "F16_F16_F32", "BF16_BF16_BF16",
            "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6", "BF16_BF16_F32_X9",
            "TF32_TF32_F32", "TF32_TF32_F32_X3", "F32_F32_F32", "F64_F64_F64"),
    }
    _OLDER: dict[str, str] = {"executor": "shardtrace_engine",
                              "shardtrace_executor": "shardtrace_engine"}
    _DEPRECATED: dict[str, str] = {
        "jax_array": "jax_array is always on: every array is a jax.Array. Remove this line.",
        "jax_parallel_functions_output_gda":
            "jax_parallel_functions_output_gda is deprecated: results are jax.Arrays that know "
            "their shards. Remove this line, and write `addressable_shards` and "
            "`addressable_data(i)` for `local_shards` and `local_data(i)`.",
    }

    unwatched: bool
    """Whether no setting, those of a `with` block aside, refuses traces or looks at them."""

    def __init__(self) -> None:
        environment.check(os.environ)
        values = dict(self._DEFAULTS)
        values["jax_num_cpu_devices"] = environment.device_count()
        values["jax_enable_x64"] = os.environ.get("JAX_ENABLE_X64", "0").lower() not in (
            "0", "", "false", "off", "no")
        values["jax_traceback_filtering"] = os.environ.get("JAX_TRACEBACK_FILTERING", "auto")
        values["jax_captured_constants_warn_bytes"] = int(os.environ.get(
            "JAX_CAPTURED_CONSTANTS_WARN_BYTES",
            str(values["jax_captured_constants_warn_bytes"])))
        values["shardtrace_debug"] = environment.read("SHARDTRACE_DEBUG", "")
        values["shardtrace_dump"] = environment.read("SHARDTRACE_DUMP", "")
        values["shardtrace_check"] = environment.read("SHARDTRACE_CHECK", True)
        values["shardtrace_skip"] = environment.read("SHARDTRACE_SKIP", "")
        for name in ("engine", "objective", "hardware", "memory_limit", "allow_excess_precision"):
            values[f"shardtrace_{name}"] = environment.read(
                f"SHARDTRACE_{name.upper()}", values[f"shardtrace_{name}"])
        values["shardtrace_progress"] = environment.read("SHARDTRACE_PROGRESS", True)
        object.__setattr__(self, "_values", values)
        self._renew_key()

    def _known(self, name: str) -> str:
        name = self._OLDER.get(name, name)
        if name not in self._values:
            for prefix in ("jax_", "shardtrace_"):
                if prefix + name in self._values:
                    return prefix + name
            raise AttributeError(f"Unrecognized config option: {name}")
        return name

    def update(self, name: str, value: Any) -> None:
        """Set the process-wide default of `name`; raises AttributeError if it is unknown."""
        name = self._known(name)
        self._check(name, value)
        self._values[name] = value
        self._renew_key()

    def _renew_key(self) -> None:
        """Compute again what depends on several settings: the keys of traces and calls, and whether
        the usual fast paths apply.
        """
        values = self._values
        object.__setattr__(self, "_key", tuple(values[n] for n in self._TRACED))
        object.__setattr__(self, "_call_key", (self._key, *[values[n] for n in self._CALLED]))
        object.__setattr__(self, "_guarded", any(
            v is not None for n, v in values.items() if n.startswith("jax_transfer_guard")))
        object.__setattr__(self, "unwatched", not any(
            values[n] for n in ("jax_no_tracing", "jax_check_tracer_leaks", "shardtrace_debug")))
        object.__setattr__(self, "_usual", not self._guarded and not any(
            values[n] for n in ("jax_disable_jit", "jax_debug_nans", "jax_debug_infs")))

    def _check(self, name: str, value: Any) -> None:
        """Raise ValueError for a value that is not to choose from; warn about a flag of older
        programs, and refuse to bring back what is gone."""
        choices = self._CHOICES.get(name)
        if choices is not None and value not in choices:
            named = [c for c in choices if c is not None]
            optional = "None or in" if None in choices else "in"
            raise ValueError(f"new enum value must be {optional} {named}, got {value} of type "
                             f"{type(value)}.")
        advice = self._DEPRECATED.get(name)
        if advice is None:
            return
        if name == "jax_array" and not value:
            raise ValueError(
                "jax.config.jax_array cannot be disabled: DeviceArray, ShardedDeviceArray and "
                "GlobalDeviceArray are one type, and there is no other implementation to fall back "
                "to. What was a GlobalDeviceArray is an array with a NamedSharding; "
                "`shardtrace.experimental.global_device_array` keeps its interface.")
        warn(advice, DeprecationWarning)

    @property
    def x64_enabled(self) -> bool:
        """Whether 64 bits are enabled in this thread."""
        return self.read("jax_enable_x64")

    def read(self, name: str) -> Any:
        """The value of the setting whose whole name is `name` in this thread."""
        overrides = STATE.overrides
        return overrides[name] if overrides and name in overrides else self._values[name]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name not in self._values:
            name = self._known(name)
        overrides = STATE.overrides
        return overrides[name] if name in overrides else self._values[name]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"use config.update({name!r}, value)")

    def override(self, **values: Any) -> Override:
        """Change settings for this thread within a `with` block."""
        return Override(values)


class Override(contextlib.ContextDecorator):
    """Settings of this thread for a `with` block, which takes back its own and no other's.

    What an interrupt left between the two, or as they are called, is taken back when the object
    goes.
    """

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._entered: list[dict[str, Any]] = []

    def _recreate_cm(self) -> Override:
        return Override(self._values)

    def __enter__(self) -> None:
        given = {config._known(k): v for k, v in self._values.items()}
        for k, v in given.items():
            config._check(k, v)
        depth = len(self._entered)
        try:
            self._entered.append(given)
            _set_overrides((*STATE.override_entries, given))
        except BaseException:               # an interrupt: the block is not entered
            self._leave(depth)
            raise

    def __exit__(self, *exc: object) -> None:
        depth = None
        try:
            depth = len(self._entered) - 1
            self._leave(depth)
        except BaseException:               # an interrupt may have cut the first short
            self._leave(len(self._entered) - 1 if depth is None else depth)
            raise

    def _leave(self, depth: int) -> None:
        """Take back what was entered at this depth and above."""
        gone = set(map(id, self._entered[depth:]))
        _set_overrides(tuple([e for e in STATE.override_entries if id(e) not in gone]))
        del self._entered[depth:]

    def __del__(self) -> None:
        if getattr(self, "_entered", None):          # none where __init__ did not finish
            self._leave(0)


def _set_overrides(entries: tuple[dict[str, Any], ...]) -> None:
    """Let these be the settings of the thread's blocks; a later one hides an earlier."""
    STATE.override_entries = entries
    STATE.overrides = {k: v for entry in entries for k, v in entry.items()}


config = Config()
