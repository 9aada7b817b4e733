"""Programs as text, and back: what `print.py` writes, `parse.py` reads to an equal program.

The rules are in ir/grammar.lark; `pieces.py` and `values.py` are names, types and params, written
and read; `lambda_text.py` is JAX's notation, which is only written.
"""
