"""`help`: how to read what the command prints, and what its words mean."""
from __future__ import annotations

import argparse
import functools
import inspect
from pathlib import Path

from ...ir.diagnostics import errors
from ...ir.inference.infer import infer
from ...ir.op import OPS, Op
from ...ir.support.environment import VARIABLES
from ...ir.support.spelling import none_such
from ...ir.values.typeof import typeof
from ..output import Output
from ..problems import Problem

FOLDER = Path(__file__).parent / "topics"
TOPICS = {
    "ir": "how to read a program: types, lines, collectives",
    "rules": "factor rules: how they are written, and what they say; `help OP` has those of an op",
    "budgets": "the file of `check --budget`",
    "warnings": "the kinds of waste that `explain` and `check --warnings` report",
    "errors": "the classes of errors; `help NAME` is the page of one",
    "environment": "the environment variables",
}


def add_options(sub: argparse.ArgumentParser) -> None:
    """The options of the command."""
    sub.add_argument("topic", nargs="?", metavar="TOPIC",
                     help=f"{', '.join(TOPICS)}, a command, the class of an error, or an op")


def help_(options: argparse.Namespace) -> None:
    """Print a topic, the help of a command, or the page of an error class or an op."""
    out = Output(options)
    text = page(options, out.width)
    if out.as_json:
        out.json({"topic": options.topic, "text": text})
    else:
        (out.markdown if text.startswith("# ") else out.text)(text)


def page(options: argparse.Namespace, columns: int) -> str:
    """The text of a topic. columns: the width of a command's help. Raises Problem for an unknown
    topic.
    """
    topic, commands = options.topic, options.commands
    if topic is None:
        width = max(map(len, (*TOPICS, *commands)))
        lines = ["shardtrace help TOPIC", "", *(f"  {name:<{width}}  {text}"
                                                 for name, text in TOPICS.items()), "",
                 "shardtrace help COMMAND", "", f"  {', '.join(commands)}"]
        return "\n".join(lines)
    if topic in commands:
        command = commands[topic]
        command.formatter_class = functools.partial(argparse.HelpFormatter, width=columns)
        return command.format_help().rstrip()
    if topic == "errors":
        return "\n".join(f"{name}: {inspect.getdoc(cls).splitlines()[0]}"     # type: ignore
                         for name, cls in error_classes().items())
    if topic == "environment":
        return "\n".join(f"{name}: {text}" for name, (_, text) in VARIABLES.items())
    if topic in TOPICS:
        return (FOLDER / f"{topic}.md").read_text().rstrip()
    found = error_page(topic) or op_page(topic)
    if found is None:
        raise Problem(none_such(topic, (*TOPICS, *commands, *error_classes(), *OPS),
                                "topic"))
    return found


def op_page(name: str) -> str | None:
    """The help page of an op, with its factor rules for some operand shapes; None if unknown."""
    op: Op | None = OPS.get(name)
    if op is None:
        return None
    lines = [f"{name}: {op.doc}"]
    rules = op_rules(op)
    if not rules:
        lines.append("  its rule depends on its params" if op.rule is not None else
                     "  it has no rule: it holds programs" if op.subprograms else
                     "  it has no rule: nothing of it is split, or it works on blocks")
    return "\n".join([*lines, *[f"  {rule}    {of}" for rule, of in rules.items()]])


def op_rules(op: Op) -> dict[str, str]:
    """The factor rules of an op's samples as texts, each with the operands that it is for."""
    rules: dict[str, str] = {}
    for sample in op.samples() if op.samples is not None and op.rule is not None else ():
        types = tuple([typeof(x) for x in sample.operands])
        results = infer(op, types, dict(sample.params))
        rule = op.factor_rule(tuple([t.shape for t in types]), tuple([t.shape for t in results]),
                              dict(sample.params))
        rules.setdefault(str(rule), ", ".join(t.str_short() for t in types))
    return rules or ({op.rule: "of any shapes"} if isinstance(op.rule, str) else {})


def error_classes() -> dict[str, type]:
    """The classes of errors, by name."""
    return {name: cls for name, cls in vars(errors).items() if isinstance(cls, type)
            and issubclass(cls, Exception) and cls.__doc__ and not name.startswith("_")}


def error_page(name: str) -> str | None:
    """The help page of an error class; None if there is no class of this name."""
    cls = error_classes().get(name)
    if cls is None:
        return None
    paragraphs = f"{name}: {inspect.getdoc(cls)}".rstrip().split("\n\n")
    return "\n\n".join(p if p.startswith(">>> ") else p.replace("\n", " ") for p in paragraphs)
