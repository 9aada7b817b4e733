"""Ground floor: what a program is. Imports nothing from the other folders.

    types, spec          the type of a value: dtype, shape, and how it is split over mesh axes
    op, facts            what an op declares; op_instance: an op with the params of an equation
    program, verify      equations, the four levels of programs, and the check of their promises
    reasons              why there are equations that the user did not write, as data and in words
    passes               how passes are declared and run; what they tell each other
    padded               dimensions that a mesh does not divide
    api_boundary         what every public function does about errors
    meshes/              meshes, their axes, devices and processes; values inside of shard_map
    rules/               factor rules: which dimensions of an op go together
    shardings/           the forms in which a sharding is given
    dtypes/              dtypes and promotion
    values/, trees/      arrays and their types as users hand them over; containers of them
    settings/            configuration, and what is current in a thread
    inference/           from types of operands to types of results
    ops/                 the declaration of every op, by kind
    kernels/             numeric algorithms on numpy arrays, which evaluators of ops call
    rewriting/           rewrites declared as shape and replacement, and what applies them
    text/                programs as text and back
    source/              places in the user's source, and how messages name things there
    diagnostics/         errors and their explanations
    support/             caches, lazy imports, records, buffers

Importing it registers the op declarations with `OPS` and the printer with `Program`; both load when
first needed.
"""
from __future__ import annotations

from .op import OPS
from .program import WRITERS
from .support.lazy import lazy_import

_dialect = lazy_import(".ops.dialect", __name__)
_print = lazy_import(".text.print", __name__)
_lambda_text = lazy_import(".text.lambda_text", __name__)
_rows = lazy_import(".text.rows", __name__)


def _declare_all() -> None:
    _dialect.OPS            # noqa: B018 - which imports it


OPS.declare_all = _declare_all
WRITERS["text"] = lambda program: _print.print_program(program)
WRITERS["types"] = lambda types, mesh: _print.type_texts(types, mesh)
WRITERS["jax"] = lambda program, **how: _lambda_text.lambda_text(program, **how)
WRITERS["html"] = lambda text: _rows.program_html(text)
