"""What a program costs, as JAX's stages report it: `cost_analysis` and `memory_analysis`.

Figures are of equations as they stand: XLA, which fuses some of them, reports fewer bytes accessed
for a compiled program. The body of a `scan` counts once per step, of a `while` once; of branches
the dearest counts. A lowered program is still over whole arrays, a compiled one is one device's.
"""
from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..ir.program import Equation, Level, Program
from ..ir.types import ArrayType
from ..partitioner.cost import block_bytes, peak_bytes
from ..partitioner.factors import rule_info

# Counted apart from other arithmetic, as processors compute them on units of their own.
TRANSCENDENTAL = frozenset((
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "cos", "cosh", "digamma",
    "erf", "erfc", "erf_inv", "exp", "exp2", "expm1", "lgamma", "log", "log1p", "logistic", "pow",
    "rsqrt", "sin", "sinh", "sqrt", "tan", "tanh"))


@dataclass(frozen=True)
class CompiledMemoryStats:
    """Bytes that one device needs: of `memory_analysis()`.

    temp: at the peak, beyond arguments and results. alias: of donated arguments whose memory
    results may take. Nothing is generated or kept on the host, so those figures are 0.
    """

    generated_code_size_in_bytes: int = 0
    argument_size_in_bytes: int = 0
    output_size_in_bytes: int = 0
    alias_size_in_bytes: int = 0
    temp_size_in_bytes: int = 0
    peak_memory_in_bytes: int = 0
    host_generated_code_size_in_bytes: int = 0
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0


def memory_stats(program: Program, kept: Sequence[bool], donated: Sequence[bool]
                 ) -> CompiledMemoryStats:
    """The figures of a LOCAL program. kept, donated: per argument, whether it is."""
    sizes = [block_bytes(v.aval) if k else 0 for v, k in zip(program.invars, kept, strict=True)]
    unused = sum(block_bytes(v.aval) for v in program.invars) - sum(sizes)
    arguments = sum(sizes)
    results = sum(block_bytes(v.aval) for v in program.outvars)
    peak = max(peak_bytes(program) - unused, arguments)
    spare = [block_bytes(v.aval) for v in program.outvars]
    alias = 0
    for n, given in zip(sizes, donated, strict=False):
        if given and n in spare:
            spare.remove(n)
            alias += n
    peak = max(peak, arguments + results - alias)
    return CompiledMemoryStats(
        argument_size_in_bytes=arguments, output_size_in_bytes=results, alias_size_in_bytes=alias,
        temp_size_in_bytes=max(0, peak - arguments - results + alias), peak_memory_in_bytes=peak)


def cost_figures(program: Program) -> dict[str, float]:
    """`flops`, `transcendentals` (elements) and `bytes accessed`, of one run of a program."""
    size = _block_size if program.level is Level.LOCAL else _whole_size
    flops, transcendentals, accessed = _program_figures(program, size)
    return {"flops": float(flops), "transcendentals": float(transcendentals),
            "bytes accessed": float(accessed)}


_Figures = tuple[int, int, int]


def _whole_size(aval: ArrayType) -> int:
    return math.prod(aval.shape)


def _block_size(aval: ArrayType) -> int:
    return math.prod(aval.local_shape())


def _program_figures(program: Program, size: Callable[[ArrayType], int]) -> _Figures:
    flops = transcendentals = accessed = 0
    for eqn in program.eqns:
        own = _nested_figures(eqn, size) if eqn.op.subprograms else _figures(eqn, size)
        flops, transcendentals, accessed = (
            flops + own[0], transcendentals + own[1], accessed + own[2])
    return flops, transcendentals, accessed


def _nested_figures(eqn: Equation, size: Callable[[ArrayType], int]) -> _Figures:
    trips = int(eqn.params.get("length", 1) or 1)
    total = (0, 0, 0)
    for name in eqn.op.subprograms:
        held = eqn.params[name]
        inner = [_program_figures(p, size if p.level is not Level.LOCAL else _block_size)
                 for p in (held if isinstance(held, tuple) else (held,))
                 if isinstance(p, Program)]
        if inner:
            most = max(inner)
            total = (total[0] + most[0], total[1] + most[1], total[2] + most[2])
    return total[0] * trips, total[1] * trips, total[2] * trips


def _figures(eqn: Equation, size: Callable[[ArrayType], int]) -> _Figures:
    operands = [a.aval for a in eqn.invars]
    results = [v.aval for v in eqn.outvars]
    accessed = sum(size(t) * t.dtype.itemsize for t in (*operands, *results))
    made = sum(map(size, results))
    if not eqn.op.arithmetic or eqn.op.collective is not None:
        return 0, 0, accessed
    if eqn.op.name in TRANSCENDENTAL:
        return 0, made, accessed
    return _operations(eqn, operands, results, size), 0, accessed


def _operations(eqn: Equation, operands: Sequence[ArrayType], results: Sequence[ArrayType],
                size: Callable[[ArrayType], int]) -> int:
    """Two for each index of all factors of a product; else one for each element that is met."""
    made = sum(map(size, results))
    read = max(map(size, operands), default=0)
    rule = eqn.op.factor_rule(tuple(t.shape for t in operands), tuple(t.shape for t in results),
                              eqn.params)
    info = rule_info(rule)
    if info.is_product:
        summed = 2 * math.prod(f.size for f in info.factors)
        whole = math.prod(results[0].shape)
        return summed * made // max(whole, 1)
    return read - made if read > made else made
