"""The driver: the only code that sees tracer, partitioner and runtime together.

    jit/           jit, its arguments and stages, and functions like it
    execution/     from a traced program to results; the default interpreter, which runs an op
                   outside of any trace, is execution/eager.py
    checkpoints/   saving pytrees of arrays, and restoring them onto any mesh
    analysis/      questions that need no run: explain, whatif, budgets, equivalence, reduction

Importing it gives arrays their operators and methods.
"""
from ..ir.support.collector import collector_paused
from ..ir.support.lazy import lazy_import

with collector_paused():             # what modules are made of stays
    from ..ir.api_boundary import bound_class
    from ..ir.meshes.mesh import AbstractMesh, Mesh
    from ..ir.shardings.sharding import NamedSharding, SingleDeviceSharding
    from ..ir.spec import PartitionSpec
    from ..ir.values.shape_struct import ShapeDtypeStruct
    from ..tracer.advice import advisers
    from ..tracer.arrays import array_methods
    from . import progress_bars
    from .analysis import fix_prices
    from .execution import eager
    from .jit.jit import eval_shape, jit, make_jaxpr
    from .jit.stages import EXPLAINERS, Compiled, Lowered, Traced

_explain = lazy_import(".analysis.explain", __name__)

EXPLAINERS.append(lambda stage, *how, **more: _explain.explain_stage(stage, *how, **more))
eager.install()
advisers.install()
fix_prices.install()
progress_bars.install()
for _cls in (AbstractMesh, Mesh, NamedSharding, PartitionSpec, ShapeDtypeStruct,
             SingleDeviceSharding):
    bound_class(_cls)

__all__ = [
    "Compiled", "Lowered", "Traced", "array_methods", "eval_shape", "jit", "make_jaxpr",
]
