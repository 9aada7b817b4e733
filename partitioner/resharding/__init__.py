"""Where layouts change: `reshards.py` writes the changes as equations, the others move them to
where they cost less.
"""
