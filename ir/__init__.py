"""Ground floor: what a program is. Imports nothing from the other folders.

Here are types, meshes, programs, the rules of typing and the verifier; ops/ has every op,
shardings/ the forms in which a sharding is given, text/ printing and parsing (by grammar.lark),
generators/ the bits of random numbers.
"""
