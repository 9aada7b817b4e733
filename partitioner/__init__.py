"""Global program to per-device program. Imports `ir` only.

`pipeline.py` partitions a program: the passes of `passes.py` in order, by stages (`stages.py`,
`dumps.py`), and of several whole plans one (`plans.py`, `trial_plans.py`). What XLA's plans do
otherwise than ours stands in `policy.py`. A folder holds a stage, or what a stage is decided by:

    preparation     calls inlined, constraints on one mesh          traced -> inlined
    propagation     open dimensions get mesh axes                   inlined -> resolved
    cost            what a plan costs on hardware: time, memory     (for choice, and for reports)
    choice          which strategy each equation takes, by cost     (decides for resharding)
    redistribution  the collectives between two layouts             (plans for lowering)
    resharding      layout changes become `reshard` equations       resolved -> resharded
    lowering        blocks and collectives instead of whole values  resharded -> local
    optimization    collectives merged, hoisted, dropped            local -> optimized

The docstrings of propagation, choice, resharding, redistribution and lowering carry one program
through: a matmul whose contracting dimension is sharded (row-parallel), followed by a relu.
"""
