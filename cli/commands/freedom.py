"""`freedom`: which dimensions can be split together, who decided them, what each is worth."""
from __future__ import annotations

import argparse

from ..output import Output
from ..select import one
from .explain import explained


def freedom(options: argparse.Namespace) -> None:
    """Print the freedom map of a target."""
    found = one(options.target, options)
    with found.context():
        e = explained(found, options)
        e.suggest_seconds = options.suggest_seconds
        made = e.freedom()
        text = str(made)
    out = Output(options)
    if out.as_json:
        out.json(made.to_dict())
    else:
        out.text(text)
