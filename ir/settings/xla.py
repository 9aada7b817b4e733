"""Settings of JAX that say how XLA compiles, keeps what it compiled, logs, and checks itself.

Programs make them, so they are taken and kept; nothing is compiled here, and nothing reads them.
"""
from __future__ import annotations

from typing import Any

COMPILE_OPTIONS = frozenset({"exec_time_optimization_effort", "memory_fitting_effort",
                             "memory_fitting_level", "optimization_level"})
"""XLA's `compiler_options` of one function, besides those that begin with `xla_`."""
SETTINGS: dict[str, Any] = {
    "jax_compilation_cache_dir": None,
    "jax_compilation_cache_expect_pgle": False,
    "jax_compilation_cache_include_metadata_in_key": False,
    "jax_compilation_cache_max_size": -1,
    "jax_compiler_enable_remat_pass": True,
    "jax_cpu_collectives_implementation": "gloo",
    "jax_cpu_enable_async_dispatch": True,
    "jax_debug_key_reuse": False,
    "jax_debug_log_modules": "",
    "jax_distributed_debug": False,
    "jax_dump_ir_modes": "stablehlo",
    "jax_dump_ir_to": "",
    "jax_enable_checks": False,
    "jax_enable_compilation_cache": True,
    "jax_enable_pgle": False,
    "jax_exec_time_optimization_effort": 0.0,
    "jax_explain_cache_misses": False,
    "jax_hlo_source_file_canonicalization_regex": None,
    "jax_include_debug_info_in_dumps": True,
    "jax_include_full_tracebacks_in_locations": True,
    "jax_logging_level": "NOTSET",
    "jax_memory_fitting_effort": 0.0,
    "jax_memory_fitting_level": "O2",
    "jax_mock_gpu_topology": "",
    "jax_optimization_level": "UNKNOWN",
    "jax_persistent_cache_enable_xla_caches": "xla_gpu_per_fusion_autotune_cache_dir",
    "jax_persistent_cache_min_compile_time_secs": 1.0,
    "jax_persistent_cache_min_entry_size_bytes": 0,
    "jax_pgle_profiling_runs": 3,
    "jax_platform_name": "",
    "jax_raise_persistent_cache_errors": False,
    "jax_share_binary_between_hosts": False,
    "jax_traceback_in_locations_limit": 100,
    "jax_use_shardy_partitioner": True,
    "jax_softmax_custom_jvp": False,
}
