"""Texts that need a Python of their own, in copies of one process that has imported what all do."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

Run = Callable[[str], tuple[int, str, str]]

_COPIES = """
for line in sys.stdin:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as complaints:
        child = os.fork()
        if not child:
            os.dup2(out.fileno(), 1)
            os.dup2(complaints.fileno(), 2)
            status = 0
            try:
                exec(json.loads(line), {"__name__": "__main__"})
            except BaseException:
                sys.excepthook(*sys.exc_info())
                status = 1
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
        said = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]
        for file in (out, complaints):
            file.seek(0)
            said.append(file.read().decode())
    print(json.dumps(said), flush=True)
"""


@contextlib.contextmanager
def copies(first: str) -> Iterator[Run]:
    """Runs a text in a process that has run `first` alone: its exit status, output, complaints.

    To start Python and to import takes longer than most texts; where processes cannot be copied,
    each starts anew.
    """
    command = [sys.executable, "-W", "ignore", "-c"]

    def alone(text: str) -> tuple[int, str, str]:
        done = subprocess.run([*command, f"{first}\n{text}"], capture_output=True, text=True)
        return done.returncode, done.stdout, done.stderr

    if not hasattr(os, "fork"):
        yield alone
        return
    with subprocess.Popen([*command, f"import json, os, sys, tempfile\n{first}\n{_COPIES}"],
                          text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        def copied(text: str) -> tuple[int, str, str]:
            assert process.stdin is not None and process.stdout is not None
            process.stdin.write(json.dumps(text) + "\n")
            process.stdin.flush()
            return tuple(json.loads(process.stdout.readline()))
        yield copied
