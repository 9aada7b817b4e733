"""Numeric algorithms on numpy arrays: what evaluators of ops call. They know nothing of meshes.

    elementwise/    narrow floats, special functions, selections
    matrices/       contractions, convolutions as products, decompositions
    generators/     random bits, and samples that are drawn by rejection

At the root is what moves and orders elements: slices, windows, rows, sorting, reductions of rows.
"""
