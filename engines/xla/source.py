"""A LOCAL program as the text of a Python program that only needs JAX.

Every equation becomes one statement, followed by the user's line as a comment; values keep the
user's names. The function of one device has the name of the program, `step` is that function under
`shard_map`, and `run` is the jitted `step`. The engine executes this text, and users can keep it.
"""
from __future__ import annotations

import contextlib
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ...arrays.axes import mesh_atoms
from ...ir.diagnostics.diagnostic import fail
from ...ir.dtypes import is_extended
from ...ir.facts import IDENTITY, POSITION
from ...ir.kernels.key_data import key_words, storage_dtype
from ...ir.meshes.mesh import AbstractMesh
from ...ir.ops.communication.variadic import split_variadic
from ...ir.ops.control.custom import CALLS
from ...ir.passes import DONATED
from ...ir.program import Atom, Equation, Program, Var
from ...ir.reasons import reason_text
from ...ir.source.location import Location
from ...ir.types import ArrayType
from ...runtime.simulation.executor import used_axes
from .collectives import exchange
from .control import CONTROL, callback
from .literals import array_text, called_helpers, helpers, identifier, scalar, spec_text, tuple_of
from .ops import expression, generator, unsupported_dtype

_MODULES = {
    "jax": "import jax", "jnp": "import jax.numpy as jnp", "ml_dtypes": "import ml_dtypes",
    "np": "import numpy as np", "lax": "from jax import lax",
    "primitives": "from jax.extend.core import primitives", "linalg": "from jax.lax import linalg"}
_SHARDING = {"AbstractMesh": "AbstractMesh", "Mesh": "Mesh", "NamedSharding": "NamedSharding",
             "P": "PartitionSpec as P"}
_RESERVED = frozenset(_MODULES) | frozenset(_SHARDING) | {
    "mesh", "step", "run", "constants", "callbacks", "in_specs", "out_specs", "base64", "zlib"}
_MOST_TEXT = 64             # characters of a user's line


class Source:
    """Writes a program. After `text()`, constants: the captured arrays; calls: the equations that
    call the host, in the order of `callbacks`.

    mesh: None to write a program of whole values, for one device. abstract: on a mesh of no
    devices, to be lowered.
    """

    def __init__(self, program: Program, mesh: AbstractMesh | None, abstract: bool = False) -> None:
        self.program, self._abstract = program, abstract
        self.constants: list[np.ndarray] = []
        self.calls: list[Equation] = []
        self._names: dict[Var, str] = {}
        self._used: set[str] = set(_RESERVED) | set(helpers())
        self._counts: dict[str, int] = {}
        self._lines: list[str] = []
        self._places: dict[int, Location] = {}         # of lines, by their number in the function
        self._depth = 1
        self._unnamed = 0
        self._tables: dict[str, str] = {}
        self._token = "np.int32(0)"
        self.sizes: dict[str, int] = {}
        self._atoms = None
        if mesh is not None and mesh.axis_names:
            self._atoms = mesh_atoms(mesh, used_axes(program, ()))
            one = {a: 1 for a, n in mesh.shape.items() if n == 1}
            self.sizes = {_axis(a): n for a, n in {**self._atoms.size, **one}.items()}

    # -- mesh axes -----------------------------------------------------------------------------
    def axis_names(self, names: Any) -> tuple[str, ...]:
        """The axes of JAX's mesh that these axes, or parts of axes, are."""
        names = tuple(names) if isinstance(names, tuple | list) else (names,)
        if self._atoms is None:
            fail(ValueError, "a program for one device communicates over the mesh axes "
                 f"{', '.join(map(str, names))}", code="no-axes",
                 help="load it with the mesh that has these axes")
        out: list[str] = []
        for name in names:
            found = self._atoms.of(name)
            out += [_axis(a) for a in found] or [n for n in (_axis(name),) if n in self.sizes]
        return tuple(out)

    def axes(self, names: Any) -> str:
        """`axis_names` as text: a tuple of strings."""
        found = self.axis_names(names) if names else ()
        return tuple_of([repr(a) for a in found])

    def all_axes(self) -> str:
        return tuple_of([repr(a) for a in self.sizes])

    def spec(self, t: ArrayType) -> tuple:
        """What splits each dimension of a value of this type."""
        return tuple([self.axis_names(axes) if axes else () for axes in t.entries])

    # -- names ---------------------------------------------------------------------------------
    def fresh(self, wish: str) -> str:
        """A name that nothing has yet."""
        base = identifier(wish) or self._letter()
        name = base
        while name in self._used:
            self._counts[base] = number = self._counts.get(base, 0) + 1
            name = f"{base}_{number}"
        self._used.add(name)
        return name

    def _letter(self) -> str:
        """The next of a, b, c, ..., aa, ab, ..."""
        while True:
            self._unnamed += 1
            number, text = self._unnamed, ""
            while number:
                number, digit = divmod(number - 1, 26)
                text = chr(ord("a") + digit) + text
            if text not in self._used and not keyword.iskeyword(text):
                return text

    def name(self, var: Var) -> str:
        """The name of a variable, given to it now."""
        found = self._names[var] = self.fresh(var.name or "")
        return found

    def bind(self, variables: Iterable[Var]) -> list[str]:
        return [self.name(v) for v in variables]

    def alias(self, variables: Sequence[Var], texts: Sequence[str]) -> None:
        """Variables that are what these texts say."""
        self._names.update(zip(variables, texts, strict=True))

    def read(self, atom: Atom) -> str:
        if isinstance(atom, Var):
            return self._names[atom]
        dtype = atom.aval.dtype
        if is_extended(dtype):
            return self._captured(atom.val, atom.aval)
        return scalar(atom.val, np.dtype(dtype))

    def constant(self, text: str, wish: str) -> str:
        """The name of a table that stands before the function."""
        found = self._tables.get(text)
        if found is None:
            found = self._tables[text] = self.fresh(wish)
        return found

    def callback(self, e: Equation) -> str:
        self.calls.append(e)
        return f"callbacks[{len(self.calls) - 1}]"

    def last_call(self) -> str:
        return self._token

    def called(self, token: str) -> None:
        self._token = token

    def _captured(self, value: Any, aval: ArrayType) -> str:
        data = np.asarray(getattr(value, "value", value), storage_dtype(aval.dtype))
        if is_extended(aval.dtype):
            self.constants.append(key_words(data))
            return (f"jax.random.wrap_key_data(constants[{len(self.constants) - 1}], "
                    f"impl={generator(aval.dtype)!r})")
        self.constants.append(data)
        return f"constants[{len(self.constants) - 1}]"

    # -- statements ----------------------------------------------------------------------------
    def line(self, text: str, e: Equation | None = None) -> None:
        """Append a line of text; of an equation with its reason, if it is a collective, and its
        place.
        """
        indent = "    " * self._depth
        remark = ""
        if e is not None:
            if e.op.collective is not None and e.reason:
                self._lines.append(f"{indent}# {' '.join(reason_text(e.reason).split())}")
            remark = _remark(e.location)
        self._lines.append(f"{indent}{text}{remark}")
        if e is not None:
            self._places[len(self._lines)] = e.location

    def assign(self, e: Equation, text: str) -> None:
        names = self.bind(e.outvars)
        if not e.op.multiple_results:
            self.line(f"{names[0]} = {text}", e)
        elif names:
            self.line(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {text}", e)
        else:
            self.line(text, e)

    @contextlib.contextmanager
    def function(self, name: str, parameters: Sequence[str]) -> Iterator[None]:
        """What is written inside is the body of this function."""
        self.line(f"def {name}({', '.join(parameters)}):")
        self._depth += 1
        token, self._token = self._token, "np.int32(0)"
        yield
        self._token = token
        self._depth -= 1

    def body(self, program: Program) -> list[str]:
        """Write the equations of a program; the texts of its results."""
        for var, value in program.consts:
            self._names[var] = self._captured(value, var.aval)
        for e in program.eqns:
            self._equation(e)
        return [self.read(a) for a in program.outvars]

    def _equation(self, e: Equation) -> None:
        """Write one equation: a call inline, control flow as functions, any other op as one
        statement.
        """
        name = e.op.name
        x = [self.read(a) for a in e.invars]
        if name in CALLS:
            inner: Program = e.params[e.op.subprograms[0]]
            self.alias(inner.invars, x)
            self.alias(e.outvars, self.body(inner))
            return
        if name in CONTROL:
            CONTROL[name](self, e, x)
            return
        if e.op.effect:
            callback(self, e, x)
            return
        dtype = unsupported_dtype(e)
        if dtype is not None:
            fail(TypeError, f"XLA does not support {dtype}, the dtype of an operand or result of "
                 f"`{name}`", code="engine-dtype", location=e.location,
                 help="convert it to a wider dtype, or run it on the simulated engine: "
                      "`compile(engine=\"simulated\")`")
        text = self._expression(e, x)
        if text is None:
            fail(NotImplementedError, f"the jax engine has no function for `{name}`",
                 code="engine-op", location=e.location,
                 help="run it on the simulated engine: `compile(engine=\"simulated\")`")
        if text == (x[0] if x else None) and not e.op.multiple_results:
            self.alias(e.outvars, [text])          # the value itself, under another type
            return
        self.assign(e, text)

    def _expression(self, e: Equation, x: list[str]) -> str | None:
        if POSITION in e.op.facts:
            return f"lax.axis_index({self.axes(e.params['axis_name'])})"
        if e.op.collective is not None and IDENTITY not in e.op.facts:
            each = [self._exchange(one, a) for one, a in zip(split_variadic(e), x, strict=True)]
            return None if None in each else ", ".join(map(str, each))      # XLA joins them again
        return expression(e, x)

    def _exchange(self, e: Equation, x: str) -> str | None:
        dtype = e.invars[0].aval.dtype
        if not e.outvars[0].aval.local_size and not is_extended(dtype):   # XLA exchanges no nothing
            return f"jnp.zeros({e.outvars[0].aval.local_shape()}, {x}.dtype)"
        if not is_extended(dtype):
            return exchange(self, e, x)
        words = exchange(self, e, f"jax.random.key_data({x})")
        return f"jax.random.wrap_key_data({words}, impl={generator(dtype)!r})"

    # -- the whole -----------------------------------------------------------------------------
    def text(self, devices: Sequence[int] = ()) -> str:
        """The text. devices: the numbers of JAX's devices in the order of the mesh, where these are
        not the first."""
        program = self.program
        offset = len(program.invars) - len(program.arg_names)
        for i, var in enumerate(program.invars):
            given = program.arg_names[i - offset] if i >= offset else None
            self._names[var] = self.fresh(var.name or given or f"argument{i}")
        parameters = [self._names[v] for v in program.invars]
        name = self.fresh(identifier(program.name) or "program")
        self.line(f"return {tuple_of(self.body(program))}")
        self._head = f"def {name}({', '.join(parameters)}):"
        function = "\n".join([self._head, *self._lines])
        tables = [f"{known} = {text}" for text, known in self._tables.items()]
        placed = self._placed(name, devices)
        body = "\n".join([*tables, *([""] if tables else []), "", function, "", "", *placed])
        carried = called_helpers(body)
        imports = self._imports("\n".join([*carried, body]))
        if carried:
            imports += "\nfrom typing import Any\n\nArray = jax.Array"
        parts = [imports, *carried, body]
        return "\n\n\n".join(parts) + "\n"

    def _imports(self, text: str) -> str:
        """The imports that a text needs, by the names that it uses."""
        def uses(name: str) -> bool:
            return re.search(rf"(?<!\.)\b{name}\b", text) is not None

        wanted = [line for name, line in _MODULES.items() if uses(name)]
        of_sharding = [named for name, named in _SHARDING.items() if uses(name)]
        if of_sharding:
            wanted.append(f"from jax.sharding import {', '.join(of_sharding)}")
        if "jax.extend.random" in text:
            wanted.append("import jax.extend.random")
        if "jax.experimental" in text:
            wanted.append("import jax.experimental")
        plain = sorted(w for w in wanted if w.startswith("import"))
        return "\n".join([*plain, *(w for w in wanted if not w.startswith("import"))])

    def _placed(self, name: str, devices: Sequence[int]) -> list[str]:
        """The lines that put the function `name` on devices: mesh, specs, `shard_map` and `jit`."""
        program = self.program
        donated = [i for i, gives in enumerate(program.attributes.get(DONATED) or ()) if gives]
        donate = f", donate_argnums={tuple_of(map(str, donated))}" if donated else ""
        if not self.sizes:
            return [f"step = {name}", f"run = jax.jit(step{donate})"]
        ins = [self._spec_text(t) for t in program.global_in or program.in_avals]
        outs = [self._spec_text(t) for t in program.global_out or program.out_avals]
        return [f"mesh = {self._mesh(devices)}",
                f"in_specs = {tuple_of(ins)}", f"out_specs = {tuple_of(outs)}",
                f"step = jax.shard_map({name}, mesh=mesh, in_specs=in_specs, "
                "out_specs=out_specs, check_vma=False)",
                f"run = jax.jit(step{donate})"]

    def _mesh(self, devices: Sequence[int]) -> str:
        shape, names = tuple(self.sizes.values()), tuple(self.sizes)
        if self._abstract:
            return f"AbstractMesh({shape}, {names})"
        count = int(np.prod(shape))
        chosen = (f"[jax.devices()[i] for i in {list(devices)}]" if devices and
                  tuple(devices) != tuple(range(count)) else f"jax.devices()[:{count}]")
        return f"Mesh(np.array({chosen}).reshape({shape}), {names})"

    def argument_shardings(self, namespace: dict[str, Any]) -> list[Any]:
        """The arguments' shardings, in the names that the text defined; None for one device."""
        if not self.sizes:
            return [None] * len(self.program.invars)
        jax = namespace["jax"]
        return [jax.sharding.NamedSharding(namespace["mesh"], s) for s in namespace["in_specs"]]

    def _spec_text(self, t: ArrayType) -> str:
        entries = list(self.spec(t))
        while entries and not entries[-1]:
            entries.pop()
        return spec_text(entries)

    def places(self, text: str) -> dict[int, Location]:
        """By the numbers of the text's lines, where the equations stand that they are about."""
        first = text.split("\n").index(self._head) + 1
        return {first + i: place for i, place in self._places.items()}

    def file(self, devices: Sequence[int] = ()) -> str:
        """The text as a file of its own: with what it is, and the arrays that it captures."""
        text = self.text(devices)
        program = self.program
        types = program.global_in or program.in_avals
        count = int(np.prod(list(self.sizes.values()) or [1]))
        about = [f'"""`{program.name}`, partitioned for {count} device'
                 f"{'s' if count > 1 else ''} by shardtrace; it needs JAX alone.", "",
                 "run(" + ", ".join(f"{self._names[v]}: {t.str_short(True)}" for v, t in
                                    zip(program.invars, types, strict=True)) + ")", ""]
        if count > 1:
            about += ["On one machine without accelerators, start Python with",
                      f"XLA_FLAGS=--xla_force_host_platform_device_count={count}", ""]
        about += ['"""', ""]
        imports, _, rest = text.partition("\n\n\n")
        more = []
        if needs_x64(program):
            more.append('jax.config.update("jax_enable_x64", True)')
        if self.constants:
            texts = [array_text(x) for x in self.constants]
            more.append("constants = [\n" + "".join(f"    {text},\n" for text in texts) + "]")
            if any("base64" in text for text in texts):
                imports = f"import base64\n{imports}\nimport zlib"
            if "import ml_dtypes" not in imports and "ml_dtypes" in more[-1]:
                imports = f"import ml_dtypes\n{imports}"
            if "import numpy" not in imports:
                imports = f"{imports}\nimport numpy as np"
        if self.calls:
            more.append("# Functions of the host, to be supplied: each is called with the device's "
                        "number along the\n# axes that it is called for, that along the others, a "
                        "number, and arrays; it gives a number,\n# then arrays.\ncallbacks = [\n"
                        + "".join(f"    None,{_remark(e.location)}\n" for e in self.calls) + "]")
        return "\n".join([*about, imports, *more]) + f"\n\n\n{rest}"


def needs_x64(program: Program) -> bool:
    """Does some value have 64 bits in a dtype that JAX narrows by default?"""
    atoms = [a for e in program.walk() for a in (*e.invars, *e.outvars)]
    types = [a.aval for a in (*program.invars, *program.outvars, *program.constvars, *atoms)]
    return any(isinstance(t.dtype, np.dtype) and (
        t.dtype.itemsize == 8 and t.dtype.kind in "iuf" or t.dtype.itemsize == 16)
        for t in types)


def _axis(name: str) -> str:
    """The name of an axis, or of a part of one, in JAX's mesh."""
    return re.sub(r"\W+", "_", str(name)).strip("_") if ":" in str(name) else str(name)


def _remark(location: Location) -> str:
    if not location.known or not location.line:
        return ""
    text = location.source_line().strip()
    if len(text) > _MOST_TEXT:
        text = text[:_MOST_TEXT - 3] + "..."
    by = f" ({location.transform})" if location.transform else ""
    return f"  # {location.short_file}:{location.line}{by}: {text}".rstrip(": ")
