"""Before propagation: calls are inlined, constraints are brought to one mesh, and equations are
rewritten in forms that partition better.
"""
