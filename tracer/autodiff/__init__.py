"""Derivatives: transformations of programs, made of what the ops declare.

    recording.py   run a function once and keep its equations, and the values where they are known
    replay.py      bind the equations of a program again, in the current interpreter
    forward.py     tangents along with values; the part that needs no tangent split off
    partial_eval.py a program cut in two by which operands are known; dependence.py: which results
                   depend on which operands
    transpose.py   a linear program backward, from cotangents of results to those of operands
    call_rules.py  the registry of rules of ops that hold programs, which nested/ and custom/ enter
    nested/        the same for equations that hold programs: calls, loops, branches, regions
    custom/        functions that come with derivatives of their own: custom_jvp, custom_vjp
    grad.py        what users call: grad, vjp, jvp, linearize
    rematerialization/ checkpoint, and what its policies save

Reverse mode is forward mode, split into what is known now and what is linear in the tangents,
followed by transposition (Radul et al., "You Only Linearize Once", 2022); no op has a vjp.
"""
