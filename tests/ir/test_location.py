"""Locations: the user's line, and the name that a value is given there."""
from __future__ import annotations

import linecache

from shardtrace.ir import location


def test_names_are_those_of_the_text_as_it_is_now(tmp_path):
    file = tmp_path / "user.py"
    for name in ("first", "second"):
        text = f"def f(capture):\n    {name} = capture()\n    return {name}\n"
        file.write_text(text)
        linecache.checkcache(str(file))
        scope: dict = {}
        exec(compile(text, str(file), "exec"), scope)
        assert scope["f"](location.capture).assigned_name() == name
