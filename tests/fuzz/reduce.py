"""Smaller programs that fail in the same way: statements, specs and axes are taken away."""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .text import Arg, Body, Case, Statement, pruned, with_names

MOST = 300                                  # candidates that are tried


def reduced(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The smallest case found that still fails; the case itself if it does not fail again."""
    tried = 0
    again = True
    while again:
        again = False
        for candidate in smaller(case):
            tried += 1
            if tried > MOST:
                return case
            if fails(candidate):
                case, again = candidate, True
                break
    return case


def smaller(case: Case) -> Iterator[Case]:
    """Candidates with one thing less, those that take away much first."""
    names = re.findall(r"\w+", case.body.result)
    if len(names) > 1:
        for n in names:
            body = case.body.copy()
            body.result = f"({n},)"
            yield tidy(case, pruned(body))
    for i, s in reversed(list(enumerate(case.body.statements))):
        yield from simpler_statement(case, i, s)
    for depth, inner in enumerate(case.body.all()):
        for i in range(len(inner.statements)) if depth else ():
            body = case.body.copy()
            held = list(body.all())[depth]
            gone = held.statements.pop(i)
            for old in gone.outs:
                for new in held.params:
                    for s in held.statements[i:]:
                        s.renamed(old, new)
                    held.result = with_names(held.result, {old: new}.get)
            yield tidy(case, pruned(body))
    for k, a in enumerate(case.args):
        if any(a.entries):
            yield replaced(case, k, a._replace(entries=tuple(() for _ in a.shape)))
        if isinstance(a.how, tuple) and a.how[0] in ("special", "normal"):
            yield replaced(case, k, a._replace(how=a.how[1]))
    if "Explicit" in case.axis_types:
        yield case._replace(axis_types=("Auto",) * len(case.sizes))
    last = ("x", "y", "z")[len(case.sizes) - 1]
    if len(case.sizes) > 1 and f"'{last}'" not in case.text():
        yield case._replace(sizes=case.sizes[:-1], axis_types=case.axis_types[:-1])


def replaced(case: Case, k: int, arg: Arg) -> Case:
    return case._replace(args=(*case.args[:k], arg, *case.args[k + 1:]))


def tidy(case: Case, body: Body) -> Case:
    """Without the arguments that nobody uses, but for the first."""
    text = "\n".join(body.lines()[1:])
    kept = [a for a in case.args if re.search(rf"\b{a.name}\b", text)] or [case.args[0]]
    body.params = [a.name for a in kept]
    return case._replace(body=body, args=tuple(kept))


def simpler_statement(case: Case, i: int, s: Statement) -> Iterator[Case]:
    """What it gives is an argument, or another value of the same type."""
    types: dict[str, object] = {a.name: (a.shape, a.dtype) for a in case.args}
    for before in case.body.statements[:i]:
        types.update(zip(before.outs, before.types, strict=True))
    body = case.body.copy()
    del body.statements[i]
    args = list(case.args)
    for k, (n, (shape, dtype)) in enumerate(zip(s.outs, s.types, strict=True)):
        if dtype.startswith("key"):
            return
        args.append(Arg(n, dtype, shape, tuple(() for _ in shape), k + 1))
    yield tidy(case._replace(args=tuple(args)), pruned(body))
    if len(s.outs) == 1:
        for other, t in types.items():
            if t == s.types[0]:
                body = case.body.copy()
                del body.statements[i]
                for later in body.statements[i:]:
                    later.renamed(s.outs[0], other)
                body.result = with_names(body.result, {s.outs[0]: other}.get)
                yield tidy(case, pruned(body))
                return
