"""Settings as the context managers that JAX has for them: `with debug_nans(True): ...`.

Each stands for an entry of `config` (config.py): called with a value it is a `with` block
for this thread, `.value` is what holds now, and `config.update("jax_debug_nans", True)` sets it for
all.
"""
from __future__ import annotations

from typing import Any

from .context import STATE, config

_TRUE = object()
_GUARDS = ("jax_transfer_guard", "jax_transfer_guard_host_to_device",
           "jax_transfer_guard_device_to_device")


class Setting:
    """One setting. Called without a value, a flag is turned on. with_it: others that a block sets
    as well."""

    def __init__(self, name: str, doc: str, with_it: tuple[str, ...] = ()) -> None:
        self.name, self.__doc__, self.with_it = name, doc, with_it

    @property
    def value(self) -> Any:
        """The value in this thread."""
        return config.read(self.name)

    def __call__(self, new_val: Any = _TRUE) -> Any:
        """A context manager that sets the value; raises ValueError for one not to choose from."""
        if new_val is _TRUE:
            if not isinstance(self.value, bool):
                raise TypeError(f"Context manager for {self.name} requires a value, got none")
            new_val = True
        config._check(self.name, new_val)
        return config.override(**dict.fromkeys((self.name, *self.with_it), new_val))

    def __repr__(self) -> str:
        return f"<setting {self.name}={self.value!r}>"


debug_nans = Setting(
    "jax_debug_nans", "Whether to raise FloatingPointError at the op that makes a NaN.")
debug_infs = Setting(
    "jax_debug_infs", "Whether to raise FloatingPointError at the op that makes an infinity.")
check_tracer_leaks = Setting(
    "jax_check_tracer_leaks", "Raise where a traced value outlives the function that was traced.")
enable_checks = Setting(
    "jax_enable_checks", "No effect: programs are always verified, unless SHARDTRACE_CHECK=0.")
debug_key_reuse = Setting(
    "jax_debug_key_reuse", "No effect: nothing checks whether a random key is used twice.")
softmax_custom_jvp = Setting(
    "jax_softmax_custom_jvp",
    "No effect: softmax always has a derivative of its own, as it has in JAX by default.")
explain_cache_misses = Setting(
    "jax_explain_cache_misses",
    "No effect: `log_compiles` tells which functions are traced, and when.")
log_compiles = Setting(
    "jax_log_compiles", "Whether to log each function when it is traced and compiled.")
no_tracing = Setting(
    "jax_no_tracing", "Whether to raise RuntimeError where a function would be traced anew.")
numpy_rank_promotion = Setting(
    "jax_numpy_rank_promotion", "'allow', 'warn' about or 'raise' on operands of different ranks.")
numpy_dtype_promotion = Setting(
    "jax_numpy_dtype_promotion",
    "'standard', or 'strict', which refuses operands of different dtypes.")
default_matmul_precision = Setting(
    "jax_default_matmul_precision",
    "The precision of products that name none: 'default', 'high' or 'highest'.")
default_prng_impl = Setting(
    "jax_default_prng_impl", "The generator of random keys that name none, such as 'threefry2x32'.")
enable_custom_prng = Setting(
    "jax_enable_custom_prng", "Whether `random.PRNGKey` gives typed keys, as `random.key` does.")
legacy_prng_key = Setting(
    "jax_legacy_prng_key", "What to do where a raw uint32 key is used: 'allow', 'warn' or 'error'.")
threefry_partitionable = Setting(
    "jax_threefry_partitionable",
    "Whether each random number depends on its own position alone, not on the shape.")
transfer_guard = Setting(
    "jax_transfer_guard", "'allow', 'log' or 'disallow' implicit transfers; '..._explicit' all.",
    _GUARDS[1:])
transfer_guard_host_to_device = Setting(
    "jax_transfer_guard_host_to_device",
    "As `transfer_guard`, for values of the host that are moved to a device.")
transfer_guard_device_to_device = Setting(
    "jax_transfer_guard_device_to_device",
    "As `transfer_guard`, for values that are moved from one device to another.")
transfer_guard_device_to_host = Setting(
    "jax_transfer_guard_device_to_host", "As transfer_guard, for values read by the host; arrays "
    "of CPUs are read where they are, so it never applies.")


def disable_jit(disable: bool = True) -> Any:
    """A context manager in which jitted functions, loops and branches run op by op in Python."""
    return config.override(jax_disable_jit=disable)


def checking_leaks() -> Any:
    """A context manager that looks for leaked tracers: `check_tracer_leaks(True)`."""
    return check_tracer_leaks(True)


def transfer_guarded() -> bool:
    """Whether some guard is set."""
    return bool(STATE.overrides) or config._guarded


def transfer_allowed(direction: str, explicit: bool) -> str:
    """'allow', 'log' or 'disallow': the verdict of the guards on a transfer.

    direction: "host_to_device" or "device_to_device". explicit: asked for by `device_put`.
    """
    if not transfer_guarded():
        return "allow"
    level = config.read(f"jax_transfer_guard_{direction}") or config.read("jax_transfer_guard")
    if level is None or level == "allow":
        return "allow"
    if explicit:
        return level.removesuffix("_explicit") if level.endswith("_explicit") else "allow"
    return level.removesuffix("_explicit")
