"""Preparation for the plan that XLA makes: programs as JAX writes and lowers them, in the order in
which XLA visits them.
"""
