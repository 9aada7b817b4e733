"""Functions of each element: arithmetic, powers, logic, bits, rounding."""
