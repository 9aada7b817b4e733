"""Preparation for propagation: calls are inlined, constraints restated on one mesh, and equations
rewritten in forms that partition better.
"""
