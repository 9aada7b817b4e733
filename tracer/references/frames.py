"""Frames: which references a traced function reads and writes, and their values meanwhile.

A reference is a box with a value. A frame is the extent of a function that is traced or
transformed. Within it references from outside can be written to, and get their own values back when
the frame ends; the frame records which these are.
"""
from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from ...ir.diagnostics.diagnostic import fail
from ...ir.types import ArrayType
from ...ir.values.typeof import typeof
from ..staging.builder import Builder
from ..staging.staging import trace_to_program
from ..trees import tree


class Box:
    """The value of a reference. depth: how many frames are around the place where it was made.
    number: how many boxes there had been then."""

    __slots__ = ("__weakref__", "depth", "number", "value")
    made = 0

    def __init__(self, value: Any) -> None:
        self.value = value
        self.depth = len(_FRAMES.stack)
        self.number = Box.made = Box.made + 1
        BOXES.add(self)

    def read(self) -> Any:
        for passing in PASSED.stack:
            passing.check(self)
        for frame in _FRAMES.stack[self.depth:]:
            frame.note(self)
        return self.value

    def write(self, value: Any) -> None:
        """Write a value, and note in the frames in between that this box is written."""
        for passing in PASSED.stack:
            passing.check(self)
        for frame in _FRAMES.stack[self.depth:]:
            if frame.refuses:
                raise Written(frame)
            frame.note(self)
            if frame.builder is None:
                frame.written.setdefault(self, self.value)
        self.value = value


BOXES: Any = weakref.WeakSet()
"""All that are alive: where there are none (`BOXES.data` says it without a call), functions are not
looked at for references."""


class Frame:
    """The extent of a function, as a context manager.

    read: references from outside that it reads or writes. written: those that it writes, with
    what they held before. refuses: whether `Written` is raised instead. builder: of the trace for
    which references become arguments as they are found, after the others (see `arguments_first`).
    closed: whether it is an error to read or write one. has_rules: whether a function is called in
    it whose derivative rule has references (custom_vjp_rules.py).
    """

    __slots__ = ("bound", "builder", "closed", "has_rules", "read", "refuses", "written")

    def __init__(self, boxes: Sequence[Box] = (), values: Sequence[Any] = ()) -> None:
        self.read: dict[Box, None] = {}
        self.builder: Builder | None = None
        self.written: dict[Box, Any] = {}
        self.bound = list(zip(boxes, values, strict=True))
        self.refuses = self.closed = self.has_rules = False

    def __enter__(self) -> Self:
        stack = _FRAMES.stack
        stack.append(self)
        for i, (box, value) in enumerate(self.bound):
            self.bound[i] = box, (box.value, box.depth)
            box.value, box.depth = value, len(stack)
        return self

    def note(self, box: Box) -> None:
        """Record that a box from outside is read or written."""
        if self.closed:
            fail(RuntimeError, "A derivative rule reads or writes a reference from outside of the "
                 "`jit`, loop or `checkpoint` that it is a part of.", code="reference-in-rule",
                 notes=("the derivative of what is traced is a program of its own, made once; it "
                        "would hold the value of now",),
                 help="let the rule return the value, as a part of a gradient or of a residual, or "
                      "differentiate outside of the traced function")
        if self.builder is not None and box not in self.read:
            self.bound.append((box, (box.value, box.depth)))
            box.value = self.builder.argument(typeof(box.value))
            box.depth = _FRAMES.stack.index(self) + 1
        self.read.setdefault(box)

    def arguments_first(self) -> list[Any]:
        """What the references found hold now; as arguments of the trace they come first."""
        args, n = self.builder.args, len(self.read)         # type: ignore[union-attr]
        args[:] = [*args[len(args) - n:], *args[:len(args) - n]]
        return [box.value for box in self.read]

    def __exit__(self, *exc: object) -> None:
        for box, (value, depth) in reversed(self.bound):
            box.value, box.depth = value, depth
        for box, value in self.written.items():
            box.value = value
        _FRAMES.stack.pop()


@contextlib.contextmanager
def no_references() -> Iterator[None]:
    """A block that makes a program which shall hold no value of a reference from outside."""
    if not BOXES.data:
        yield
        return
    frame = Frame()
    frame.closed = True
    with frame:
        yield


class Written(BaseException):
    """A reference from outside of a frame would be written. No Exception: it is for `unwritten`."""

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        self.frame = frame


class _Stack(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []


_FRAMES, PASSED, TRACED_FOR = _Stack(), _Stack(), _Stack()
"""The frames around the place that runs, the functions there that stand-ins are passed to, and what
these functions are traced for."""


def all_frames() -> list[Frame]:
    return _FRAMES.stack


class traced_for:
    """A block in which functions are traced for `what`, as messages call it."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def __enter__(self) -> None:
        TRACED_FOR.stack.append(self.what)

    def __exit__(self, *exc: object) -> None:
        TRACED_FOR.stack.pop()


def traced_by() -> str:
    """What the function is traced for."""
    return TRACED_FOR.stack[-1] if TRACED_FOR.stack else "jit"


def unwritten(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[bool, Any]:
    """`(True, call(*args, **kwargs))`; or False, as soon as that would write a reference from
    outside. So what writes none is traced once, however deep it is nested.
    """
    frame = Frame()
    frame.refuses = True
    try:
        with frame:
            return True, call(*args, **kwargs)
    except Written as written:
        if written.frame is not frame:
            raise
        return False, None


def written_by(f: Callable[..., Any], *args: Any) -> list[Box]:
    """The references from outside that `f(*args)` writes. It is traced to find out.

    args: pytrees of arrays, or of types.
    """
    leaves, treedef = tree.flatten(args)
    with Frame() as frame:
        trace_to_program(lambda *values: _arrays(f(*tree.unflatten(treedef, values))),
                         [x if isinstance(x, ArrayType) else typeof(x) for x in leaves],
                         name="references")
    return list(frame.written)


def _arrays(results: Any) -> list[Any]:
    """The leaves that are arrays; other mistakes in results are reported elsewhere."""
    found = []
    for x in tree.leaves(results):
        try:
            typeof(x)
        except TypeError:
            continue
        found.append(x)
    return found


def running(f: Callable[..., Any], boxes: Sequence[Box]) -> Callable[..., Any]:
    """`f` as a function of the values of these references, too: (values, *args) -> (result, values
    afterwards)."""
    def pure(values: Sequence[Any], *args: Any) -> Any:
        with Frame(boxes, values):
            result = f(*args)
            return result, [box.value for box in boxes]

    pure.__name__ = getattr(f, "__name__", "body")
    return pure


def write_all(boxes: Sequence[Box], values: Sequence[Any]) -> None:
    for box, value in zip(boxes, values, strict=True):
        box.write(value)
