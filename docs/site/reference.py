"""The reference, made from what the package says of itself: names, ops, passes, errors, settings.

`pages()` gives Markdown by path. Written here rather than taken from mkdocstrings, which reads
sources: most public functions stand in none, since families are declared by one call each and
modules load their names when these are first used.
"""
from __future__ import annotations

import argparse
import functools
import importlib
import inspect
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from docstrings import as_markdown, called, escaped

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def public_modules() -> list[str]:
    """`shardtrace` and every module below it that is imported by name."""
    api = ROOT / "api"
    found = (path.parent.relative_to(api).parts for path in api.rglob("__init__.py"))
    return ["shardtrace", *sorted(".".join(("shardtrace", *parts)) for parts in found if parts)]


def public_names(module: str) -> Iterator[tuple[str, Any]]:
    """The names that a module offers, without the modules below it."""
    home = importlib.import_module(module)
    for name in sorted(getattr(home, "__all__", ()), key=str.lower):
        thing = getattr(home, name)
        if not inspect.ismodule(thing):
            yield name, thing


def pages() -> dict[str, str]:
    """Markdown by path below docs/."""
    first: dict[int, str] = {}
    found = {f"reference/api/{name}.md": _module(name, first) for name in public_modules()}
    found["reference/index.md"] = _index()
    made: dict[str, Callable[[], str]] = {
        "ops": _ops, "passes": _passes, "errors": _errors, "settings": _settings,
        "command": _command, "grammar": _grammar}
    return found | {f"reference/{name}.md": make() for name, make in made.items()}


def _summary(thing: Any) -> str:
    return escaped((inspect.getdoc(thing) or "").split("\n\n")[0].replace("\n", " "))


def _index() -> str:
    rows = "\n".join(f"| [`{name}`](api/{name}.md) | {_summary(importlib.import_module(name))} |"
                     for name in public_modules())
    return ("# Reference\n\nEvery public name, made from its docstring; so are the pages on "
            "[ops](ops.md), [passes](passes.md), [errors](errors.md), [settings](settings.md), the "
            "[options of the command](command.md) and the [grammar of programs](grammar.md).\n\n"
            f"| module | holds |\n| --- | --- |\n{rows}\n\n"
            + contents(f"api/{name}" for name in public_modules()))


def contents(pages: Iterable[str]) -> str:
    """What leads to pages that stand in no menu of their own."""
    return "\n".join(("", "```{toctree}", ":hidden:", "", *pages, "```", ""))


def _module(module: str, first: dict[int, str]) -> str:
    """The page of a module. first: the full name of each thing that has its place already."""
    home = importlib.import_module(module)
    parts = [f"# `{module}`", as_markdown(home.__doc__ or "")]
    for name, thing in public_names(module):
        parts.append(f"## `{name}`")
        full = f"{module}.{name}"
        doc = inspect.getdoc(thing) if callable(thing) else None
        if not doc:
            what = "A constant: " if not callable(thing) else "Taken as it is from "
            shown = thing.__module__.partition(".")[0] if callable(thing) else repr(thing)
            parts.append(f"{what}`{shown}`.")
        elif (known := first.setdefault(id(thing), full)) != full:
            where, _, target = known.rpartition(".")
            parts.append(f"The same as [`{known}`]({where}.md#{target.lower()}).")
        else:
            parts += [f"```python\n{called(name, thing)}\n```", as_markdown(doc)]
            parts += _methods(thing) if inspect.isclass(thing) else ()
            parts += differences().get(name, ())
    return "\n\n".join(parts) + "\n"


@functools.cache
def differences() -> dict[str, list[str]]:
    """What docs/differences.md says of each name that a row of its tables begins with."""
    found: dict[str, list[str]] = {}
    text = (ROOT / "docs" / "differences.md").read_text()
    for row in re.findall(r"^\| (?!what|subject|---)(.*) \|$", text, re.MULTILINE):
        without_links = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", row)
        case, jax, here, *_ = re.split(r" (?<!\\)\| ?", without_links)
        said = f"**Otherwise than in JAX.** {case}. In JAX: {jax or 'otherwise'}. Here: {here}."
        for span in re.findall(r"`([^`]*)`", case.partition(":")[0]):
            for name in {n.rpartition(".")[2] for n in re.findall(r"[A-Za-z_][\w.]*", span)}:
                found.setdefault(name, []).append(said)
    return found


def _methods(cls: type) -> Iterator[str]:
    for name, value in sorted(vars(cls).items()):
        if name.startswith("_") or not (inspect.isroutine(value) or isinstance(value, property)):
            continue
        doc = inspect.getdoc(getattr(cls, name))
        if doc:
            shown = name if isinstance(value, property) else called(name, getattr(cls, name))
            yield f"```python\n{shown}\n```\n\n{as_markdown(doc)}"


def _ops() -> str:
    from shardtrace.ir.op import OPS

    importlib.import_module("shardtrace.ir.ops.dialect")        # declares all
    lines = ["# Ops", "", "What equations of programs may be, from the declarations that all "
             "stages read (`ir/ops/`). The factor rule, shown for the op's first sample where it "
             "depends on shapes, says which dimensions are one: propagation gives its factors mesh "
             "axes, and lowering takes what it needs to exchange from it.", ""]
    for name, op in sorted(OPS.items()):
        lines += [f"## `{name}`", "", escaped(op.doc), ""]
        lines += [*(f"- {row}" for row in _op_rows(op)), ""]
    return "\n".join(lines)


def _op_rows(op: Any) -> Iterator[str]:
    rule = _rule(op)
    if rule:
        yield f"factor rule: {rule}"
    if isinstance(op.explicit, str):
        yield f"Explicit axes: {op.explicit}"
    if op.collective is not None and op.collective.kind:
        yield f"exchange between devices: {op.collective.kind}"
    if op.linear:
        yield "linear" + (" in all operands" if op.linear == "all" else "")
    if op.jvp is None:
        yield "no derivative"
    if op.subprograms:
        yield "holds programs: " + ", ".join(f"`{name}`" for name in op.subprograms)
    if op.facts:
        yield "facts: " + ", ".join(f"`{fact}`" for fact in sorted(op.facts))


def _rule(op: Any) -> str:
    """The factor rule as text: as declared, or that of the first sample with its operands."""
    from shardtrace.cli.commands.help import op_rules

    if isinstance(op.rule, str):
        return f"`{op.rule}`"
    return next((f"`{rule}`, of operands {of}" for rule, of in op_rules(op).items()), "")


def _passes() -> str:
    from shardtrace.partitioner import passes as partitioner
    from shardtrace.runtime.plans import passes as plans
    from shardtrace.runtime.rewrites import pipeline

    lists = (("From the traced to the per-device program", partitioner.PIPELINE),
             ("Before the simulated executor plans it", pipeline.EXECUTION),
             ("Over the calls of its plan", plans.PLANNED))
    parts = ["# Passes", "In their order. `SHARDTRACE_DUMP=folder` writes the program after each "
             "stage, `--time-passes` prints their times, and those that may be left out "
             "(`SHARDTRACE_SKIP=name`) are marked."]
    for title, steps in lists:
        rows = "\n".join(f"| `{step.name}` | {escaped(step.doc)} | "
                         f"{'yes' if step.may_be_skipped else ''} |" for step in steps)
        parts.append(f"## {title}\n\n| pass | afterwards | may be left out |\n"
                     f"| --- | --- | --- |\n{rows}")
    return "\n\n".join(parts) + "\n"


def _errors() -> str:
    from shardtrace import errors

    parts = ["# Errors", "What each means, a program that raises it, and what to write instead. "
             "The tests run both. `shardtrace help NAME` prints the same."]
    for name, cls in public_names(errors.__name__):
        if inspect.isclass(cls) and issubclass(cls, BaseException):
            bases = ", ".join(f"`{base.__name__}`" for base in cls.__mro__[1:]
                              if base is not object and base is not BaseException)
            help_page = as_markdown(inspect.getdoc(cls) or "")
            parts.append(f"## `{name}`\n\nis also: {bases}\n\n{help_page}")
    return "\n\n".join(parts) + "\n"


def _settings() -> str:
    from shardtrace import config
    from shardtrace.ir.support.environment import VARIABLES

    variables = "\n".join(f"| `{name}` | {escaped(doc)} |"
                          for name, (_, doc) in sorted(VARIABLES.items()))
    settings = as_markdown(inspect.getdoc(type(config)) or "")
    return ("# Settings\n\n## Environment variables\n\n| variable | value |\n| --- | --- |\n"
            f"{variables}\n\n## `shardtrace.config`\n\n{settings}\n")


def _command() -> str:
    from shardtrace.cli.parser import make_parser

    parser = make_parser()
    (verbs,) = (action for action in parser._actions
                if isinstance(action, argparse._SubParsersAction))
    parts = ["# Options of the command", "[Command line](../cli.md) shows each at work."]
    for name, sub in {"": parser, **verbs.choices}.items():
        sub.formatter_class = _Formatter
        parts.append(f"## `{' '.join(('shardtrace', name)).strip()}`\n\n"
                     f"```text\n{sub.format_help().strip()}\n```")
    return "\n\n".join(parts) + "\n"


class _Formatter(argparse.HelpFormatter):
    """Lines of one width, whatever the terminal."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=88)


def _grammar() -> str:
    text = (ROOT / "ir" / "text" / "grammar.lark").read_text()
    return ("# Grammar of programs\n\nThe grammar by which `parse_program` and the command read "
            "`.st` files, in [Lark](https://lark-parser.readthedocs.io)'s notation. "
            "[How to read a program](../ir.md) explains it, [programs in files](../st_files.md) "
            f"goes by example.\n\n```text\n{text}\n```\n")
