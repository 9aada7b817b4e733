"""Ground floor: what a program is. Imports nothing from the other folders.

    types, mesh, spec    the type of a value: dtype, shape, and how it is split over mesh axes
    op, rule             what an op declares; factor rules say which dimensions go together
    program, verify      equations, the four levels of programs, and the check of their promises
    context              what is current in a thread: mesh, interpreter, configuration
    dtypes/              dtypes and promotion
    shardings/           the forms in which a sharding is given
    inference/           from types of operands to types of results
    ops/                 the declaration of every op, by kind
    kernels/             numeric algorithms on numpy arrays, which evaluators of ops call
    rewriting/           rewrites declared as shape and replacement, and what applies them
    text/                programs as text and back
    diagnostics/         errors, and places in the user's source
    support/             caches, lazy imports, records, buffers
"""
