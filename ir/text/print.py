"""Programs as text: the inverse of ir/text/parse.py, rule by rule of grammar.lark.

    mesh (X=2, Y=4)

    program @layer(x: f32[64@X,4], w: f32[4,16]) -> f32[64@X,16] {
      h: f32[64@X,16] = dot_general[dimension_numbers=...] x w     # train.py:9:9-13
      return h
    }

Variables have the user's names where these are known: of parameters, and of values that were bound
to a name; others are called %a, %b, %c (ir/text/names.py). The same program always gives the same
text. Invalid programs print too, since the verifier shows them.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..kernels.key_data import storage_dtype
from ..meshes.device import Device
from ..meshes.mesh import AbstractMesh, AxisType, Mesh, empty_abstract_mesh
from ..op import Op, params_key
from ..passes import DONATED, NEXT_PASS, OBJECTIVE, SKIPPED_PASSES, LayoutConstraints, Requests
from ..program import Atom, Equation, Level, Literal, Program
from ..source.location import UNKNOWN
from ..support.collector import collector_paused
from ..support.lazy import lazy_import
from ..types import ArrayType
from .constants import Writer, array_of, constant_text, scalar_text, short_constant_text
from .folding import DEEPER, WIDTH, fold, fold_constant, foldings, with_remark
from .names import Names, given_name, name_variables
from .placeholders import quote
from .remarks import Files, because_text, brief_place, file_word, place_text
from .value_printer import Notation, exact, hidden_params, is_name, mesh_text

zipfile = lazy_import("zipfile")

LEGEND = "how to read this: shardtrace help ir"
_REMARK_COLUMN = 0.72    # of the width: comments of equations that are shorter are aligned


def print_program(program: Program, *, locations: bool = True, constant: Writer = constant_text,
                  width: int = WIDTH, brief: bool = False, named: bool = True) -> str:
    """The text of a program; `parse_program` gives an equal one.

    locations: with the comments that say where equations come from. constant: what stands after
    `=` of a constant, from its name, value and type. width: of a line, where it can be broken.
    brief: of equations only results, op, operands and line; this is to be read, not to be parsed.
    named: with the names that the user's code gives to values.
    """
    return _Printer(locations, constant, width, brief, named).text(program)


def save_program(program: Program, path: str | Path, comment: str = "") -> None:
    """Write a program to `path`, and its large constants to an `.npz` of that name beside it.

    comment: what the file begins with, without `#`; after that it says how to read the rest.
    """
    path = Path(path)
    arrays: dict[str, np.ndarray] = {}
    beside = path.with_suffix(".npz")

    def write(name: str, value: Any, aval: ArrayType) -> str:
        short = short_constant_text(value, aval)
        if short is not None:
            return short
        array = np.ascontiguousarray(array_of(value, aval))
        key = name
        while key in arrays:           # constants of nested programs have names of their own
            key += "_"
        arrays[key] = array.reshape(-1).view(np.uint8)   # npz knows numpy's own dtypes only
        return f"npz {quote(beside.name)}:{key}"

    text = print_program(program, constant=write)
    if arrays:
        with zipfile.ZipFile(beside, "w") as archive:      # as np.savez, with any name
            for key, array in arrays.items():
                with archive.open(f"{key}.npy", "w", force_zip64=True) as file:
                    np.lib.format.write_array(file, array, allow_pickle=False)
    heading = "".join(f"# {line}\n" for line in (*comment.splitlines(), LEGEND))
    path.write_text(heading + text, encoding="utf-8")


# -- the printer -----------------------------------------------------------------------------------

class _Printer:
    """Writes one text: what its programs share are the names of meshes, files and functions."""

    def __init__(self, locations: bool, constant: Writer, width: int = WIDTH,
                 brief: bool = False, named: bool = True) -> None:
        self.locations, self.constant = locations, constant
        self.width, self.brief, self.named = width, brief, named
        self.files = Files()
        self.constraints = LayoutConstraints(None, {})
        self.located = False

    def text(self, program: Program) -> str:
        """The headings (mesh, level, what passes still need to know), the program, and the files of
        its locations.
        """
        with collector_paused():
            notation = Notation(program.mesh)
            self.constraints = program.attributes.get(LayoutConstraints.KEY, self.constraints)
            self.located = any([e.location is not UNKNOWN for e in program.eqns])
            body = self.function(program, notation, "", "program ")
            heads = []
            if program.mesh is not empty_abstract_mesh:
                heads.append(f"mesh {mesh_text(program.mesh)}")
            heads += [f"mesh {name} = {mesh_text(m)}" for m, name in notation.meshes.items()]
            heads += [f"devices {mesh_text(m)}" for m in program.attributes.get("meshes", ())
                      if not _default_order(m)]
            if program.level is not Level.TRACED:
                heads.append(f"level {program.level.value}")
            if not self.brief:
                heads += self._demands(program)
            lines = [line for head in heads for line in fold(head, "", self.width)]
            if lines:
                lines.append("")
            lines += body
            files = [(file_word(label), path) for path, label in self.files.labels.items()
                     if path != label]
            if files and not self.brief:
                lines.append("")
                lines += [f"file {label} = {quote(path)}" for label, path in files]
            return "\n".join(lines) + "\n"

    def _demands(self, program: Program) -> list[str]:
        """What passes that are to come have to know."""
        requests = program.attributes.get(Requests.KEY)
        free = self.constraints.fixed is not None or (
            requests is not None and not {*requests.arguments, *requests.results} - {None})
        following = program.attributes.get(NEXT_PASS)
        return (["layouts free"] * free + [f"next {p}" for p in (following,) if p]
                + [f"without {p}" for p in program.attributes.get(SKIPPED_PASSES, ())]
                + [f"objective {name}" + f" on {quote(device)}" * bool(device)
                   + f" within {limit}" * bool(limit)
                   for name, device, limit in (
                       program.attributes.get(OBJECTIVE, ("", "", 0)),) if name])

    def function(self, program: Program, notation: Notation, indent: str, prefix: str
                 ) -> list[str]:
        """The lines of a program, nested ones included; `prefix` stands before its name."""
        names = name_variables(program, self.named)
        lines = self._signature(program, names, notation, indent, prefix)
        inner = indent + "  "
        for var, value in program.consts:
            name = names[var]
            text = self.constant(name.lstrip("%"), value, var.aval)
            head = f"const {name}: {notation.type(var.aval)} ="
            lines += fold_constant(head, text, inner, self.width)
        rows = [(self.equation(eqn, names, notation, program), *self._remark(eqn, program), eqn)
                for eqn in program.eqns]
        most = self.width * _REMARK_COLUMN - len(inner)
        column = len(inner) + max((len(t) for t, place, _, _ in rows if place and len(t) <= most),
                                  default=0)
        column = -(-(column + 2) // 4) * 4
        for text, place, reason, eqn in rows:
            lines += with_remark(foldings(text, inner, self.width, " \\"), place, reason,
                                 column, self.width)
            lines += self._blocks(eqn, notation, inner + "  ", program)
        results = ", ".join([self.atom(v, names, notation) for v in program.outvars])
        lines += fold(f"return {results}".rstrip(), inner, self.width)
        lines.append(indent + "}")
        return lines

    def _signature(self, program: Program, names: Names, notation: Notation, indent: str,
                   prefix: str) -> list[str]:
        """The lines up to the first equation: name, parameters and results, each with its type;
        after `<-` and `=>` the type of the whole value that it is a block of, or that is requested
        for it.
        """
        whole = Notation(frozen(program.mesh), notation)      # of global types
        offset = len(program.invars) - len(program.arg_names)
        given, requested = program.attributes.get(
            Requests.KEY, (program.global_in, program.global_out))
        donated = program.attributes.get(DONATED, ())
        parameters = []
        for i, var in enumerate(program.invars):
            name = names[var]
            path = program.arg_names[i - offset] if i >= offset else ""
            shown = f" {quote(path)}" if path and path != given_name(name) else ""
            text = f"{name}{shown}: {notation.type(var.aval)}"
            if i < len(given) and given[i] is not None:
                text += f" <- {whole.type(given[i])}"
            parameters.append(text + " donated" * (i < len(donated) and donated[i]))
        results = []
        paths = program.result_names
        if paths == tuple(f"[{i}]" for i in range(len(paths))):
            paths = ()                                        # says nothing
        for i, atom in enumerate(program.outvars):
            text = notation.type(atom.aval)
            if i < len(paths) and paths[i]:
                text += f" {quote(paths[i])}"
            if i < len(requested) and requested[i] is not None:
                text += f" => {whole.type(requested[i])}"
            results.append(text)
        name = program.name if is_name(program.name) else quote(program.name)
        head = f"{indent}{prefix}@{name}("
        tail = results[0] if len(results) == 1 else f"({', '.join(results)})"
        line = f"{head}{', '.join(parameters)}) -> {tail} {{"
        if len(line) <= self.width:
            return [line]
        deep = indent + DEEPER
        if len(results) > 1 and len(indent) + len(tail) + 8 > self.width:
            after = [f"{indent}) -> (", *self._one_a_line(results, deep), indent + ") {"]
        else:
            after = fold(f") -> {tail} {{", indent, self.width)
        return [head, *self._one_a_line(parameters, deep), *after]

    def _one_a_line(self, texts: Sequence[str], indent: str) -> list[str]:
        return [line for text in texts for line in fold(f"{text},", indent, self.width, "")]

    def equation(self, eqn: Equation, names: Names, notation: Notation, program: Program) -> str:
        """An equation's text, in one line."""
        text = ""
        if eqn.outvars:
            fixed = (not self.brief and self.constraints.fixed) or ()
            bound = [f"{names[v]}{'!' if v in fixed else ''}: {notation.type(v.aval)}"
                     for v in eqn.outvars]
            text = ", ".join(bound) + " = "
        text += eqn.op.name
        if not self.brief:
            text += self._params(eqn.op, eqn.params, notation)
        for atom in eqn.invars:
            text += " " + self.atom(atom, names, notation)
        return text

    def _remark(self, eqn: Equation, program: Program) -> tuple[str, str]:
        """What an equation's comment says: where it comes from, and why it exists."""
        if not self.locations:
            return "", ""
        if self.brief:
            return brief_place(eqn, self.files), ""
        return place_text(eqn, program.name, self.files, self.constraints.places,
                          self.located), because_text(eqn)

    def atom(self, atom: Atom, names: Names, notation: Notation) -> str:
        """An operand: a name, or `2.0:f32[]`; `2.0:f32` is on no mesh though the program is."""
        if not isinstance(atom, Literal):
            return names[atom]
        aval = atom.aval
        number = scalar_text(np.asarray(atom.val)[()], storage_dtype(aval.dtype))
        text = notation.type(aval)
        if text.endswith("[] on ()"):
            text = text[:-len("[] on ()")]
        return f"{number}:{text}"

    # -- params --------------------------------------------------------------------------------
    def _params(self, op: Op, params: dict[str, Any], notation: Notation) -> str:
        """The param list of an equation, written once for equal ones."""
        if not params:
            return "" if not hidden_params(op) else self._params_text(op, params, notation)
        try:
            key = (op, params_key(params), exact(params))
            text = notation.values.get(key)
        except TypeError:                    # not hashable: for the verifier to say
            return self._params_text(op, params, notation)
        if text is None:
            text = notation.values[key] = self._params_text(op, params, notation)
        return text

    def _params_text(self, op: Op, params: dict[str, Any], notation: Notation) -> str:
        """The param list, without hidden params at their usual values and without programs."""
        hidden = hidden_params(op)
        parts = []
        for name in sorted(params.keys() | hidden.keys()):
            if name not in params:
                parts.append(f"{name}=absent")
                continue
            value = params[name]
            if name in hidden and type(value) is type(hidden[name]) and value == hidden[name]:
                continue
            if _all_programs(value):
                continue                     # its blocks say it
            parts.append(f"{name}={notation.value(value)}")
        return f"[{', '.join(parts)}]" if parts else ""

    def _blocks(self, eqn: Equation, notation: Notation, indent: str, program: Program
                ) -> list[str]:
        """The programs in params, as blocks after their equation."""
        lines: list[str] = []
        for label, inner in programs_in(eqn.params):
            scope = ""
            own = notation
            if inner.mesh is not program.mesh:
                scope = f"mesh {mesh_text(inner.mesh)} "
                own = Notation(inner.mesh, notation)
            if inner.level is not program.level:
                scope += f"level {inner.level.value} "
            lines += self.function(inner, own, indent, f"{label} = {scope}")
        return lines


def frozen(mesh: AbstractMesh) -> AbstractMesh:
    """The mesh with all axes Explicit: the mesh of the global types of a per-device program."""
    if not mesh.axis_names:
        return mesh
    return mesh.update(axis_types=(AxisType.Explicit,) * len(mesh.axis_names))


def _default_order(mesh: Mesh) -> bool:
    return all(d is Device(i) for i, d in enumerate(mesh.device_tuple))


def _all_programs(value: Any) -> bool:
    return isinstance(value, Program) or (
        type(value) is tuple and bool(value) and all(isinstance(v, Program) for v in value))


def programs_in(params: dict[str, Any]) -> Iterator[tuple[str, Program]]:
    """Programs in params, each with its path: `jaxpr`, `branches.0`."""
    for name in sorted(params):
        value = params[name]
        if isinstance(value, (Program, tuple)):
            yield from _programs_at(name, value)


def _programs_at(path: str, value: Any) -> Iterator[tuple[str, Program]]:
    if isinstance(value, Program):
        yield path, value
    elif type(value) is tuple:
        for i, item in enumerate(value):
            yield from _programs_at(f"{path}.{i}", item)


def equation_excerpt(program: Program, index: int) -> list[str]:
    """The lines of a program about equation `index`, which is marked; len(eqns) is `return`."""
    printer = _Printer(False, constant_text)
    names, notation = name_variables(program), Notation(program.mesh)
    lines: list[str] = []
    around, width = 2, len(str(len(program.eqns)))
    for i in range(max(0, index - around), min(len(program.eqns), index + around + 1)):
        text = printer.equation(program.eqns[i], names, notation, program)
        mark = ">" if i == index else " "
        lines.append(f"{mark} {i:>{width}}  {text}")
    if index + around >= len(program.eqns):
        results = ", ".join([printer.atom(v, names, notation) for v in program.outvars])
        mark = ">" if index == len(program.eqns) else " "
        lines.append(f"{mark} {'':>{width}}  return {results}".rstrip())
    return lines


def type_texts(avals: Sequence[ArrayType], mesh: AbstractMesh) -> str:
    """Types as a program on `mesh` writes them, for messages."""
    return ", ".join(map(Notation(mesh).type, avals)) or "nothing"
