"""The programs whose speed is measured, by family; plain.py has their layers by hand in numpy."""
from . import collective, dispatch, elementwise, loops, mlp, models, numeric, rewrites, transformer

FAMILIES = (elementwise, mlp, transformer, loops, collective, dispatch, numeric, models, rewrites)
