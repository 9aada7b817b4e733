"""Programs as text, and back: what `print.py` writes, `parse.py` reads to an equal program.

The rules are in grammar.lark; `value_printer.py` writes and `value_parser.py` reads names, types
and params; `lambda_text.py` is JAX's notation, which is only written.
"""
