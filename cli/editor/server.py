"""The language server: it answers an editor from what the worker found in a file as it was saved.

A worker process (worker.py) examines a file when it is opened and when it is saved: first for what
is known at once, then for waste and what would avoid it. While the user types, findings move with
their lines, and disappear from lines that change.
"""
from __future__ import annotations

import asyncio
import contextlib
import difflib
import importlib.metadata
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.uris import to_fs_path

_DEBOUNCE = 0.005        # seconds that a file is let alone before it is looked at
_SOURCE = "shardtrace"


class FileFindings:
    """What was found in a file, and the lines that it had then. running: the file is still being
    executed; until then, lines without a finding show those from before.
    """

    def __init__(self, found: dict[str, Any], lines: list[str], before: FileFindings | None = None
                 ) -> None:
        self.found, self.lines, self.before, self.running = found, lines, before, True
        if before is not None:
            before.before = None
        self.reasons = asyncio.Event()       # they are known, or will not be
        self.advice: list[dict[str, Any]] = []
        self._now: tuple[list[str], dict[int, int]] = (lines, {})

    def line_now(self, line: int, lines: list[str]) -> int | None:
        """The current number of a line of the file as it was analysed; None if it was changed."""
        if lines is not self._now[0] and lines != self._now[0]:
            matcher = difflib.SequenceMatcher(None, self.lines, lines, autojunk=False)
            self._now = lines, {a + k: b + k for a, b, n in matcher.get_matching_blocks()
                                for k in range(n)}
        elif lines == self.lines:
            return line
        return self._now[1].get(line)

    def items(self, name: str, lines: list[str]) -> Iterator[tuple[lsp.Range, dict[str, Any]]]:
        """The findings of a kind, at their positions in these lines."""
        for item in self.advice if name == "advice" else self.found.get(name, ()):
            at = item.get("at") or [item.get("line"), 0]
            now = self.range_now(item.get("range") or [*at, *at], lines)
            if now is not None:
                yield now, item

    def range_now(self, where: list[int], lines: list[str]) -> lsp.Range | None:
        start, end = self.line_now(where[0], lines), self.line_now(where[2], lines)
        return None if start is None or end is None else lsp.Range(
            lsp.Position(start, where[1]), lsp.Position(end, where[3]))


class Worker:
    """The process that analyses files, one after the other. seconds: its time limit for one."""

    def __init__(self, seconds: float, hardware: str | None) -> None:
        self.seconds, self.hardware = seconds, hardware
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self._number = 0                     # of the last question

    async def ask(self, path: str, advise: bool = False) -> AsyncIterator[dict[str, Any]]:
        """Yield what the worker finds, as it comes. A caller may stop iterating early; the next one
        skips the rest of that answer.
        """
        async with self._turn:
            process = await self._started()
            self._number += 1
            request = {"number": self._number, "path": path, "seconds": self.seconds,
                       "hardware": self.hardware, "advise": advise}
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(json.dumps(request).encode() + b"\n")
                await process.stdin.drain()
                while True:
                    line = await asyncio.wait_for(process.stdout.readline(), 3 * self.seconds + 15)
                    found = json.loads(line)
                    if found.pop("number") == request["number"]:
                        if not found:
                            return
                        yield found
            except (TimeoutError, OSError, ValueError) as problem:     # it hangs, or has ended
                self.stop()
                yield {"problems": [{"range": [0, 0, 0, 0], "severity": 1, "code": "",
                                     "fixes": [], "message": f"shardtrace: no answer: {problem}"}]}

    async def _started(self) -> asyncio.subprocess.Process:
        """The process, started if there is none; it has loaded everything when this returns."""
        process = self._process
        if process is None or process.returncode is not None:
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "shardtrace", "lsp", "--worker",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL, limit=1 << 28, start_new_session=True,
                # nobody waits in an editor for the verifier after each pass
                env={"SHARDTRACE_CHECK": "0", **os.environ})
            assert process.stdout is not None
            await process.stdout.readline()  # it is warm
        return process

    async def warm(self) -> None:
        async with self._turn:
            await self._started()

    async def end(self) -> None:
        process = self._process
        self.stop()
        if process is not None:
            await process.wait()

    def stop(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                if hasattr(os, "killpg"):    # and the copy of it that runs a file
                    os.killpg(self._process.pid, signal.SIGKILL)
                else:
                    self._process.kill()
        self._process = None


class Server(LanguageServer):
    """looked: by address of the document. adviser: a worker for what takes longer, so that a file
    that is saved meanwhile does not wait.
    """

    def __init__(self) -> None:
        super().__init__(_SOURCE, importlib.metadata.version("shardtrace"))
        self.looked: dict[str, FileFindings] = {}
        self.worker, self.adviser = Worker(10.0, None), Worker(10.0, None)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def look(self, uri: str) -> None:
        """Analyse a file; an analysis of it that is still running is cancelled."""
        before = self._tasks.get(uri)
        if before is not None:
            before.cancel()
        self._tasks[uri] = asyncio.ensure_future(self._look(uri))

    async def _look(self, uri: str) -> None:
        """Examine a file, and publish what is found as it arrives: first the findings, then their
        reasons and advice, unless the file was saved again meanwhile.
        """
        await asyncio.sleep(_DEBOUNCE)
        path = to_fs_path(uri)
        if path is None or not Path(path).is_file():
            return
        lines = Path(path).read_text(encoding="utf-8", errors="replace").split("\n")
        looked: FileFindings | None = None
        try:
            async for found in self.worker.ask(path):
                running = found.pop("running", False)
                if looked is None:
                    looked = self.looked[uri] = FileFindings(found, lines, self.looked.get(uri))
                else:                        # the same with more, or with its reasons
                    looked.found |= found
                if looked.running and not running:
                    looked.running, looked.before = False, None
                    self.publish(uri)
                self._refresh()
        finally:
            if looked is not None:
                looked.reasons.set()
        if looked is not None and (looked.found.get("hints") or looked.found.get("lenses")):
            async for more in self.adviser.ask(path, True):
                if "advice" not in more or self.looked.get(uri) is not looked:
                    continue                 # it took too long, or there is something newer
                looked.advice = more["advice"]
                if more["problems"] != looked.found["problems"]:
                    looked.found["problems"] = more["problems"]
                    self.publish(uri)

    def _refresh(self) -> None:
        """Ask the editor to request hints and lenses again, if it supports that."""
        features = self.client_capabilities.workspace
        if features is not None and features.inlay_hint and features.inlay_hint.refresh_support:
            self.workspace_inlay_hint_refresh(None)
        if features is not None and features.code_lens and features.code_lens.refresh_support:
            self.workspace_code_lens_refresh(None)

    async def reasons(self, uri: str) -> None:
        """Wait until the reasons of findings in a file are known, unless it is still running."""
        if uri in self.looked and not self.looked[uri].running:
            await self.looked[uri].reasons.wait()

    def publish(self, uri: str) -> None:
        found = self.looked[uri].found
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, [
            lsp.Diagnostic(
                range_of(p["range"]), p["message"], lsp.DiagnosticSeverity(p["severity"]),
                p["code"] or None, source=_SOURCE, data=n)
            for n, p in enumerate(found.get("problems", ()))]))

    def at(self, uri: str, name: str) -> list[tuple[lsp.Range, dict[str, Any]]]:
        """The findings of a kind, at their current positions."""
        looked = self.looked.get(uri)
        if looked is None:
            return []
        lines = self.workspace.get_text_document(uri).source.split("\n")
        found = list(looked.items(name, lines))
        if looked.before is not None:
            known = {now.start.line for now, _ in found}
            found += [(now, item) for now, item in looked.before.items(name, lines)
                      if now.start.line not in known]
        return found


def range_of(where: list[int]) -> lsp.Range:
    """The range from [line, column, line, column]."""
    return lsp.Range(lsp.Position(*where[:2]), lsp.Position(*where[2:]))
