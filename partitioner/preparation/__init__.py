"""Before propagation: calls disappear, constraints come to one mesh, and what is better partitioned
in another form is written in it.
"""
