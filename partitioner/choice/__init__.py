"""What is decided where an equation may run in several ways: the ways, their prices, and which of
them fit together best along the dataflow (`lookahead.py`).
"""
