"""What every op means, in plain numpy: the judge of evaluators and executors.

`REFERENCES` has a function for each op, of numpy arrays and the op's params, written from the op's
definition: loops, explicit sums and float64, no BLAS (which takes 0 times infinity as 0 where it
scales), and nothing of the package. Floats come in their own dtype; results may be wider, and are
rounded to the result's dtype before they are compared. `CHECKS` has a property of the results where
many are right, such as eigenvectors of any length. `ELSEWHERE` says what judges the other ops.
"""
from __future__ import annotations

from shardtrace.ir.ops.communication.variadic import VARIADIC

from .checks import CHECKS
from .elements import ELEMENTS, SAME, Reference
from .shapes import SHAPES
from .sums import COLLECTIVES, PRODUCTS, REDUCTIONS

__all__ = ["CHECKS", "COLLECTIVES", "ELSEWHERE", "REFERENCES"]

REFERENCES: dict[str, Reference] = {
    **ELEMENTS, **REDUCTIONS, **PRODUCTS, **SHAPES, **{name: lambda x, **params: x
                                                       for name in SAME}}

BITS = "JAX's bits, recorded in tests/golden/random.json"
PROGRAMS = "has a program as a param; tests/tracer compare it with what JAX gives for programs"
TYPES = "changes a type alone; tests/tracer/shard_map/test_shard_map.py"
HOST = "calls Python; tests/tracer/host/test_callbacks.py"
LAYOUT = "changes where a value lies alone; tests/partitioner/redistribution/test_redistribute.py"
ELSEWHERE: dict[str, str] = {
    **{name: BITS for name in (
        "random_bits", "random_bits_block", "random_clone", "random_fold_in", "random_gamma",
        "random_gamma_each", "random_gamma_grad", "random_seed", "random_split",
        "random_split_block", "random_unwrap", "random_wrap", "rng_bit_generator",
        "rng_bit_generator_block")},
    **{name: PROGRAMS for name in (
        "checkpoint", "composite", "cond", "custom_jvp_call", "custom_lin", "custom_linear_solve",
        "custom_partitioning", "custom_vjp_call", "jit", "scan", "shard_map", "while")},
    **{name: TYPES for name in ("assume_invarying", "axis_index", "preduced", "pvary",
                                "reduced_vary_cast_p", "vary_unreduced_cast_p")},
    **{name: HOST for name in ("debug_callback", "debug_print", "inspect_sharding", "io_callback",
                           "pure_callback")},
    **{name: LAYOUT for name in ("reshard", "sharding_constraint")},
    **{op.name: "several exchanges at once; tests/runtime/both_executors/test_variadic.py"
       for op in VARIADIC.values()},
    "check": "gives nothing; tests/tracer/checkify/test_checkify.py",
    "retile": "tests/ir/ops/communication/test_retiling.py",
    "exchange_rows": "tests/ir/ops/communication/test_row_exchange.py",
    "igamma_grad_a": "JAX's values, tests/ir/ops/test_against_jax.py"}
