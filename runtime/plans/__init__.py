"""Plans: a program as a straight line of numpy calls.

`plan.py` makes one and runs it; `generated.py` writes one that runs often as a Python function.
Before that it is a draft (`draft.py`) that goes through the passes of `passes.py`, which gives
products the order in which their results are read: `tiled_fusion.py` fuses calls on large arrays,
which `blocked.py` evaluates and `registers.py` writes out for a block, `constants.py` folds
constants, `in_place.py` finds results in place. The plan of `tanh(x @ w) + b` over slots:

    v3 = matmul(v0, v1)             # x [16, 8], w [8, 4], on all devices at once
    v4 = tanh(v3)                   # v3 ends here
    v5 = add(v4, v2)                # b [1, 4]
"""
