"""What messages print as a change of the user's code is one: typed into the file it works.

The test reads the printed text alone, and edits the file as its reader would: it knows nothing of
how changes are found.
"""
from __future__ import annotations

import pytest

from ...mistakes.printed_help import changes, code_in_words, edited
from ...user_files import user_file, user_module
from .failing_programs import programs

PROGRAMS = dict(programs())
# What helps is another program, or cannot be tried: described in words.
IN_WORDS = {
    "fori, Explicit", "private", "vmap", "walrus", "helper called", "reshard shadowed",
    "inspec", "out", "rank", "unbound",
    "static deep", "static list", "static int", "static range", "static if", "static method",
    "reshard nomesh", "setitem field", "jit static two", "in shardings P", "bitand", "int grad",
    "bool", "float()", "dot mismatch", "mask"}


def outcome(path, source):
    """The exception that a program ends with, None if it runs; and its file."""
    file = user_file(path, source)
    try:
        with user_module(file):
            return None, file.name
    except Exception as error:
        return error, file.name


@pytest.mark.parametrize("name", PROGRAMS)
def test_printed_changes_run(name, tmp_path):
    source = PROGRAMS[name]
    error, file = outcome(tmp_path, source)
    assert error is not None
    message = str(error)
    shown = changes(message)
    assert bool(shown) is not ({name, name.partition(",")[0]} & IN_WORDS), message
    assert not code_in_words(message, source)
    for head, block in shown:
        again, _ = outcome(tmp_path, edited(source, message, file, head, block))
        assert again is None, f"{message}\n\nchanged, it ends with:\n{again}"


def test_equal_code_of_two_files_is_told_apart(tmp_path):
    source = PROGRAMS["add, no mesh"]
    for _ in range(2):
        error, file = outcome(tmp_path, source)
        assert f"--> {file}:" in str(error)


def test_what_has_no_source_is_told_in_words():
    names = {"__name__": "typed"}
    with pytest.raises(Exception) as caught:
        exec(PROGRAMS["add, no mesh"], names)
    assert not changes(str(caught.value)) and " = help: " in str(caught.value)


def test_trials_print_nothing_and_leave_globals_alone(tmp_path, capsys):
    source = PROGRAMS["add, no mesh"].replace(
        "def f(a, b):\n", "def f(a, b):\n    global n\n    n += 1\n    print('traced')\n", 1)
    error, _ = outcome(tmp_path, source.replace("import dataclasses", "import dataclasses\nn = 0"))
    assert changes(str(error)) and capsys.readouterr().out == "traced\n"
