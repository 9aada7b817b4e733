"""What XLA did: the collectives of compiled HLO text, by line, with bytes, times and loop counts.

read.py reads the text, one line after another, and those that matter by the grammar hlo.lark;
report.py gives each collective its costs and prints the table; plan_comparison.py has them next to
those of our plan.
"""
