"""What a program costs, as JAX's stages report it: `cost_analysis` and `memory_analysis`.

The counts are those of partitioner/cost/work.py and partitioner/cost/memory/, under JAX's names:
`flops` and `transcendentals` together are the operations of an explanation, and the peak is its
peak. A lowered program is still over whole arrays, a compiled one is that of one device.
"""
from __future__ import annotations

from collections.abc import Sequence

from ...ir.program import Program
from ...ir.support.immutable import immutable
from ...partitioner.cost.memory import memory
from ...partitioner.cost.work import accessed_bytes, program_work


@immutable
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
    sizes = [v.aval.local_nbytes if k else 0 for v, k in zip(program.invars, kept, strict=True)]
    unused = sum(v.aval.local_nbytes for v in program.invars) - sum(sizes)
    arguments = sum(sizes)
    results = sum(v.aval.local_nbytes for v in program.outvars)
    spare = [v.aval.local_nbytes for v in program.outvars]
    alias = 0
    for n, given in zip(sizes, donated, strict=False):
        if given and n in spare:
            spare.remove(n)
            alias += n
    peak = max(memory(program, donated).peak_bytes - unused, arguments + results - alias)
    return CompiledMemoryStats(
        argument_size_in_bytes=arguments, output_size_in_bytes=results, alias_size_in_bytes=alias,
        temp_size_in_bytes=peak - (arguments + results - alias), peak_memory_in_bytes=peak)


def cost_figures(program: Program) -> dict[str, float]:
    """`flops`, `transcendentals` (elements) and `bytes accessed`, of one run of a program.

    Bytes are of equations as they stand: XLA, which fuses some of them, reports fewer.
    """
    work = program_work(program)
    return {"flops": float(work.flops), "transcendentals": float(work.transcendentals),
            "bytes accessed": float(accessed_bytes(program))}
