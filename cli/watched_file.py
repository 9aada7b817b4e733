"""Running a Python file and watching which functions of shardtrace, or of JAX, it calls."""
from __future__ import annotations

import argparse
import ast
import contextlib
import importlib.util
import io
import linecache
import os
import runpy
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ..arrays.devices import device_count
from ..driver.execution.arguments import leaf_key
from ..driver.execution.call_capture import EagerCall, unwatched, watching
from ..driver.execution.programs import further
from ..driver.jit.stages import Traced
from ..ir.diagnostics.extras import is_installed
from ..ir.ops.communication.collective_kinds import each_collective
from ..ir.settings.context import STATE
from ..ir.support.caches import cached
from ..ir.support.lazy import lazy_import
from .guesses import identity
from .problems import FAILED, Problem, failure
from .targets import Found, FoundFunction, FoundProgram

_watching = lazy_import("..interop.jaxpr.watching", __package__)

_MOST = 24           # programs of one file
_AGAIN = 0.05        # seconds after which what should end a run, and did not, is tried again


class RunFinished(BaseException):
    """Ends a run of the user's file: what it calls has been seen."""


@cached(2)
def syntax_tree(source: str) -> ast.Module:
    """A text parsed, once for all that look at it. Raises SyntaxError or ValueError."""
    return ast.parse(source)


class WatchedFile:
    """A Python file that was imported. names: what it defines; seen: the jitted functions that it
    called, one for each type of arguments; failed: why it did not run to its end; stopped: the
    seconds after which it was not let run on.
    """

    def __init__(self, path: Path, options: argparse.Namespace) -> None:
        if not path.exists():
            raise Problem(f"there is no Python file {path}")
        self.path, self.options = path, options
        self.seen: list[FoundFunction] = []
        self.failed: Problem | None = None
        self.problems: list[Problem] = []      # with functions of the file
        self.unfit: dict[str, list[str]] = {}  # example arguments, by function that they do not fit
        self.stopped = 0.0
        self._keys: set[Any] = set()
        self._ran: list[EagerCall] = []
        self.names: dict[str, Any] = {}
        self._load()

    def _load(self) -> None:
        """Import the file as a module of its own. What goes wrong matters only if nothing was seen.
        """
        name = _module_name(self.path)
        linecache.checkcache(str(self.path))      # a file of this name may have been another one
        spec = importlib.util.spec_from_file_location(name, self.path)
        if spec is None or spec.loader is None:
            raise Problem(f"{self.path} is no Python file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        loader = spec.loader

        self._run(lambda: loader.exec_module(module), f"importing {self.path}")
        self.names = vars(module)
        if self.failed is not None and not self.seen:
            raise self.failed

    def run_as_script(self) -> None:
        """Run the file as `python FILE.py` does, watching what it calls."""
        self._run(lambda: runpy.run_path(str(self.path), run_name="__main__"),
                  f"running {self.path}")

    @property
    def is_script(self) -> bool:
        """Does it have a part for `__name__ == "__main__"`?"""
        try:
            source = self.path.read_text()
            body = syntax_tree(source).body if "__name__" in source else []
        except (SyntaxError, ValueError):
            return False
        return any(isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
                   for node in body)

    def _run(self, run: Callable[[], Any], doing: str) -> None:
        """Run some of the user's code and watch what it calls, with its arguments in `sys.argv` and
        a limit of seconds. What goes wrong is stored in `failed` or `stopped`. doing: for messages.
        """
        saved = sys.argv, sys.path[:], (STATE.mesh, STATE.abstract_mesh)
        sys.argv = [str(self.path), *shlex.split(getattr(self.options, "argv", None) or "")]
        sys.path.insert(0, str(_package_root(self.path)))
        sys.path.insert(0, str(self.path.resolve().parent))
        limit = getattr(self.options, "seconds", None)
        if limit is None:
            limit = 120.0 if getattr(self.options, "jax", False) else 10.0
        said = io.StringIO()
        try:
            with _alarm(limit) as again, watching(lambda item: self._watch(item, again)):
                with contextlib.redirect_stdout(said), self._of_jax():
                    run()
        except RunFinished:
            self.stopped = limit
        except SystemExit as end:
            if end.code not in (None, 0):
                hint = "" if sys.argv[1:] else "; does it need arguments? give --argv '...'"
                self.failed = Problem(f"{doing} ended with exit status {end.code}{hint}", FAILED)
        except Exception as error:
            self.failed = failure(error, doing)
        finally:
            sys.argv, sys.path[:] = saved[0], saved[1]
            STATE.mesh, STATE.abstract_mesh = saved[2]

    def _of_jax(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the functions of real JAX are imported, if the file is written for it.
        """
        if not getattr(self.options, "jax", False):
            return contextlib.nullcontext()
        if not is_installed("jax"):
            raise Problem("--jax needs JAX, which is not installed: pip install 'shardtrace[jax]'")
        devices = f"--xla_force_host_platform_device_count={device_count()}"
        if "jax" not in sys.modules and devices.partition("=")[0] not in os.environ.get(
                "XLA_FLAGS", ""):
            os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {devices}".strip()
        return _watching.jax_functions_imported()

    def _watch(self, item: Traced | EagerCall, again: Callable[[], None]) -> None:
        """Note a call, once for each type of arguments. again: starts the limit of seconds anew."""
        leaves = item._leaves if isinstance(item, Traced) else item.leaves
        name = item.fun_name if isinstance(item, Traced) else item.program.name
        try:
            what = (identity(item._jitted), item._static) if isinstance(item, Traced) else (
                name, _line(item))
            key = (what, tuple(map(leaf_key, leaves)))
        except TypeError:
            key = (name, id(item))
        if key in self._keys:
            return
        self._keys.add(key)
        if isinstance(item, Traced):
            again()
            if len(self.seen) < _MOST:
                self.seen.append(FoundFunction(item, f"{self.path}:{name}", "as the file calls it",
                                               kept=self.options.verb == "run"))
                self.called_first(self.seen[-1])
                again()
        elif len(self._ran) < 4 * _MOST and (
                item.program.mesh.axis_names or item.program.attributes.get("meshes")
                or any(s is not None for s in item.specs)):
            self._ran.append(item)

    def called_first(self, function: FoundFunction) -> None:
        """Called before the first run of a function on arguments of this kind."""

    def operations(self) -> list[Found]:
        """What communicated outside of any jitted function."""
        found: list[Found] = []
        with unwatched():
            for ran in self._ran:
                try:
                    local = list(further(ran.program, ran.specs).values())[-1]
                except Exception:       # not a program by itself; the file has run it
                    continue
                if any(True for _ in each_collective(local)):
                    found.append(FoundProgram(ran.program, f"{self.path} (outside of jit)",
                                              ran.specs))
        return found


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[Callable[[], None]]:
    """Raise RunFinished after so many seconds; the function that is given begins them anew.

    Python drops what is raised within a finalizer: then it comes again.
    """
    usable = hasattr(signal, "setitimer") and (
        threading.current_thread() is threading.main_thread()) and seconds > 0
    if not usable:
        yield lambda: None
        return

    def over(*_: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, _AGAIN)
        raise RunFinished

    def dropped(what: Any) -> None:
        if not isinstance(what.exc_value, RunFinished):
            previous_hook(what)

    before = signal.signal(signal.SIGALRM, over)
    previous_hook, sys.unraisablehook = sys.unraisablehook, dropped
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield lambda: signal.setitimer(signal.ITIMER_REAL, seconds) and None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = previous_hook


def _package_root(path: Path) -> Path:
    """The folder from which the file is imported: the parent of its outermost package."""
    folder = path.resolve().parent
    while (folder / "__init__.py").exists() and folder.parent != folder:
        folder = folder.parent
    return folder


def _module_name(path: Path) -> str:
    """The file's name as a module: of its package, so that relative imports work; else its own."""
    parts = path.resolve().with_suffix("").relative_to(_package_root(path)).parts
    return f"_target_{path.stem}" if len(parts) == 1 else ".".join(parts)


def _line(ran: EagerCall) -> str:
    return str(ran.program.eqns[0].location) if ran.program.eqns else ""
