"""A headless Chromium that shows one page, spoken to over its debugging pipe."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)


class Browser:
    """complaints: errors of the page's scripts, and what it logged or was refused."""

    def __init__(self, to: int, back: int) -> None:
        self._to, self._back, self._rest = to, back, b""
        self._number, self._session = 0, None
        self.complaints: list[Any] = []

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        said = {"id": self._number, "method": method, "params": params}
        if self._session:
            said["sessionId"] = self._session
        os.write(self._to, json.dumps(said).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._back, 1 << 16)
            assert read, "the browser has ended"
            self._rest += read
        text, _, self._rest = self._rest.partition(b"\0")
        message = json.loads(text)
        if message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled",
                                     "Log.entryAdded"):
            self.complaints.append(message["params"])
        return message

    def show(self, path: Path, width: int = 1280, height: int = 800, dark: bool = False) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target,
                                  flatten=True)["sessionId"]
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.navigate", url=path.as_uri())
        while not self.value("document.documentElement?.dataset.ready"):
            time.sleep(0.02)

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page, once it is known."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True,
                           returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, name: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name,
                      windowsVirtualKeyCode=code)


@contextlib.contextmanager
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None
    (read_there, write_here), (read_here, write_there) = os.pipe(), os.pipe()
    as_three_and_four = f'exec "$0" "$@" 3<&{read_there} 4>&{write_there}'
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            ["bash", "-c", as_three_and_four, CHROMIUM, "--headless", "--no-sandbox",
             "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}",
             "--no-first-run"],
            pass_fds=(read_there, write_there), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(read_there)
        os.close(write_there)
        page = Browser(write_here, read_here)
        try:
            yield page
        finally:
            with contextlib.suppress(AssertionError, OSError):
                page._session = None
                page.call("Browser.close")
            process.terminate()
            process.wait(20)
            os.close(write_here)
            os.close(read_here)
