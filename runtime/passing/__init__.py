"""Programs whose devices pass on what they made, executed as what they compute.

Rings of products, and of sums chunk by chunk, are one product and one collective (rings.py), what a
ring folds block by block is folded at once (folds.py; steps that no loop has, unrolled.py), loops
of stages run stage by stage (pipelines.py), also if they are written out (alike.py) or shift the
rows of an array that is split (straight.py). Types, dumps, costs and the per-device executor keep
to what was written.
"""
