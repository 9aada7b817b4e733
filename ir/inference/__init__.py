"""From types of operands to types of results, and what each level demands of an equation."""
