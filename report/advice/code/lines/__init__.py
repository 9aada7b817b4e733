"""How the user's lines read, and how they are written with a change made.

    statements     where an expression stands, what may be written there, and how
    expressions    values as the user calls them where an equation is written
    helper_calls   calls of a helper that lays a value out
    loop_lines     a loop whose steps no longer exchange, and the exchange behind it
    replacements   what a rewrite puts in place of an expression, by the calls of calls.py
"""
