"""Derivatives: transformations of programs, made of what the ops declare.

    recording.py   run a function once and keep its equations, and the values where they are known
    replay.py      bind the equations of a program again, in the current interpreter
    forward.py     tangents along with values; the part that needs no tangent split off
    split.py       a program cut in two by which operands are known; reach.py tells who needs what
    transpose.py   a linear program backward, from cotangents of results to those of operands
    rules.py       what ops that hold programs add to these: calls.py, regions.py, *loops.py,
                   branches.py, custom_*.py
    grad.py        what users call: grad, vjp, jvp, linearize; checkpoint.py

Reverse mode is forward mode, split into what is known now and what is linear in the tangents,
followed by transposition (Radul et al., "You Only Linearize Once", 2022); no op has a vjp.
"""
