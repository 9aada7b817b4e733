"""Filters tracebacks and adds source locations at public functions.

Public functions and methods go through `api_function`: an exception is processed once, as it passes
into the user's code. One without a diagnostic (a plain `raise TypeError(...)`, or Python's own
complaint about an argument) gets the location of the call, its arguments, and advice. The traceback
keeps only the user's frames, unless `jax_traceback_filtering` is "off". A `try` costs nothing as
long as nothing is raised.
"""
from __future__ import annotations

import functools
import inspect
import sys
import weakref
from collections.abc import Callable
from types import FrameType, FunctionType, TracebackType
from typing import Any, TypeVar

from .diagnostics.diagnostic import ADVISERS, Diagnostic, Remedy
from .diagnostics.usual_mistakes import advice
from .settings.context import STATE, config, put_back
from .source.location import PACKAGE, STANDS_BETWEEN, Location
from .source.wording import in_names_of
from .support.immutable import replace
from .values.array import Array

# Libraries that the package calls: their frames below ours say nothing of the user's program.
_CALLED = frozenset({"numpy", "scipy", "lark", "networkx", "rich", "ml_dtypes", "inspect", "copy",
                     "weakref", "dataclasses", "enum", "collections", "abc", "typing", "operator"})
# Their message is not their only argument, or they are not about a mistake.
_AS_THEY_ARE = (StopIteration, StopAsyncIteration, OSError, ImportError, SyntaxError, UnicodeError,
                MemoryError, RecursionError, Warning)
_Class = TypeVar("_Class", bound=type)
_MADE: weakref.WeakSet[Any] = weakref.WeakSet()          # what `api_function` made
_BOUNDED: dict[Callable[..., Any], Callable[..., Any]] = {}
_SPECIAL = frozenset(f"__{name}__" for name in (
    "call", "enter", "getitem", "array", "bool", "int", "float", "complex", "index", "hash",
    "format", "reduce", "dlpack", "iter", "len", "setitem", "delitem"))
_ARRAY_FUNCTIONS = f"{PACKAGE}.tracer.jnp."
_LONGEST = 60
_FILTERED = ("For simplicity, the traceback is without frames of the package; "
             "JAX_TRACEBACK_FILTERING=off shows them.")
_DONE = "_passed_boundary"
SIGNS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%",
         "divmod": "divmod", "pow": "**", "matmul": "@", "and": "&", "or": "|", "xor": "^",
         "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
         "ge": ">="}


class UnfilteredStackTrace(Exception):
    """The whole traceback of an exception, as its cause, where "remove_frames" was asked for."""


def api_function(f: Callable[..., Any], results: bool = False) -> Callable[..., Any]:
    """`f`, whose exceptions pass the boundary. results: what it returns is a function, bounded too.

    Anything that is not a function of the package is given back as it is.
    """
    if (type(f) is not FunctionType or not _of_package(f.__globals__)
            or "process_exception" in f.__code__.co_names            # it looks after that itself
            or f in _MADE):
        return f
    found = None if results else _BOUNDED.get(f)
    if found is not None:
        return found
    if results:
        def call(*args: Any, **kwargs: Any) -> Any:
            state = STATE.__dict__
            before = state.copy() if state["interpreter"] is None else None
            try:
                return api_function(f(*args, **kwargs))
            except BaseException as error:
                process_exception(error, f, args, kwargs, before)
                raise
    else:
        def call(*args: Any, **kwargs: Any) -> Any:
            state = STATE.__dict__
            before = state.copy() if state["interpreter"] is None else None
            try:
                return f(*args, **kwargs)
            except BaseException as error:
                converted = _as_arrays(f, args, kwargs)
                if converted is not None:
                    return api_function(f)(*converted[0], **converted[1])
                process_exception(error, f, args, kwargs, before)
                raise
    functools.update_wrapper(call, f)
    made: Any = call
    made.__wrapped__, made.inner_function = getattr(f, "__wrapped__", f), f     # the user's; ours
    _MADE.add(call)
    if not results and f.__closure__ is None:
        _BOUNDED[f] = call
    return call


def _as_arrays(f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
               ) -> tuple[list[Any], dict[str, Any]] | None:
    """The arguments of a function of `jax.numpy` with arrays for objects that convert to such (by
    `__jax_array__`); None where there are none, or it is another function."""
    if not (f.__module__ or "").startswith(_ARRAY_FUNCTIONS):
        return None
    found = False

    def one(x: Any) -> Any:
        nonlocal found
        if type(x) in (list, tuple):
            return type(x)(map(one, x))
        convert = None if isinstance(x, (Array, type)) else getattr(x, "__jax_array__", None)
        if convert is None:
            return x
        found = True
        return convert()

    converted = [one(x) for x in args], {name: one(x) for name, x in kwargs.items()}
    return converted if found else None


def inner(value: Any) -> Any:
    """The function behind a public name; anything else as it is."""
    return value.inner_function if type(value) is FunctionType and value in _MADE else value


def bound_class(cls: _Class) -> _Class:
    """The class, with what users call of it bounded; a decorator."""
    return _bind(cls, _SPECIAL | {"__init__", "__new__"})


def bound_methods(cls: _Class) -> _Class:
    """As `bound_class`, for a class whose instances the package makes, not the user."""
    return _bind(cls, _SPECIAL)


def _bind(cls: _Class, special: frozenset[str]) -> _Class:
    """Make the public methods of a class, and the special ones that are named, API functions."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_") and name not in special:
            continue
        if type(method) is FunctionType:
            setattr(cls, name, api_function(method))
        elif isinstance(method, (staticmethod, classmethod)):
            kind, inner = type(method), method.__func__
            setattr(cls, name, kind(api_function(inner)))
    return cls


def bound_names(names: dict[str, Any], *makers: str) -> None:
    """Bound the functions among the globals of a public module, where pickles then find them.

    makers: those that return functions, which are bounded, too.
    """
    for name, value in names.items():
        if type(value) is FunctionType and not name.startswith("_"):
            names[name] = public(value, name, names["__name__"], name in makers)


def public(value: Any, name: str, module: str, results: bool = False) -> Any:
    """`api_function(value, results)` as it is called in a public module, for pickles."""
    made = api_function(value, results)
    if not results and made is not value:
        _BOUNDED[value] = made                   # one function by all of its public names
    if made is not value and made.__qualname__ == name:
        made.__module__ = module
    return made


def _of_package(names: dict[str, Any]) -> bool:
    module = names.get("__name__", "")
    return module == PACKAGE or module.startswith(f"{PACKAGE}.")


def process_exception(error: BaseException, f: Any = None, args: tuple[Any, ...] = (),
                      kwargs: dict[str, Any] | None = None,
                      before: dict[str, Any] | None = None) -> None:
    """Told by a public function (whose caller is two frames up) what it is about to raise.

    f, args, kwargs: what was called, to be shown. before: what `STATE` held where nothing was being
    traced: an interrupt leaves it so.
    """
    if not isinstance(error, Exception):
        if before is not None:
            put_back(before)
        return
    caller = sys._getframe(2)
    if STANDS_BETWEEN[caller.f_globals.get("__name__", "")]:
        return                                       # still inside
    trace = error.__traceback__
    kept, hidden = _split(trace)
    if hidden and hidden[-1] is _last(trace) and not isinstance(error, _AS_THEY_ARE):
        _complete(error, caller, f, args, kwargs or {})
    _filter(error, trace, kept, hidden)


# -- a place, a cause and a way out for what has none -------------------------------------------

def _complete(error: Exception, caller: FrameType, f: Any, args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> None:
    """Give the exception a diagnostic as `fail` does, or fill in what its own leaves out."""
    diagnostic = getattr(error, "diagnostic", None)
    message = str(error)
    if diagnostic is not None:
        if _DONE in error.__dict__ or diagnostic.render() != message:
            return
    else:
        plain = len(error.args) == 1 and error.args[0] == message
        diagnostic = Diagnostic(message if plain else type(error).__name__,
                                location=Location(caller.f_code, caller.f_lasti))
    diagnostic = _completed(diagnostic, message, f, args, kwargs)
    if any(isinstance(text, Remedy) for text in diagnostic.help):
        for adviser in ADVISERS:
            diagnostic = adviser(type(error), diagnostic)
    diagnostic = _in_users_names(diagnostic, caller)
    text = diagnostic.render()
    if len(error.args) == 1 and error.args[0] == message:
        error.args = (text,)
    else:
        error.add_note(text.partition("\n")[2])
    error.diagnostic = diagnostic  # type: ignore[attr-defined]
    error.__dict__[_DONE] = True


def _completed(diagnostic: Diagnostic, message: str, f: Any, args: tuple[Any, ...],
               kwargs: dict[str, Any]) -> Diagnostic:
    """A diagnostic with a reason and help, where it lacks them: by its message, or else by the
    call.
    """
    explained = diagnostic.because or diagnostic.notes or diagnostic.label
    if explained and diagnostic.help:
        return diagnostic
    because, help = advice(message)
    if not because and f is not None and _has_operands(f, args, kwargs):
        because = (f"it was called as `{shown_call(f, args, kwargs)}`",)
    return replace(diagnostic, because=diagnostic.because if explained else because,
                   help=diagnostic.help or help or (_general_help(f),))


def _in_users_names(diagnostic: Diagnostic, caller: FrameType) -> Diagnostic:
    """With the package and its numpy module called as the user's module calls them."""
    spoken = in_names_of(caller.f_globals)
    return replace(diagnostic, message=spoken(diagnostic.message),
                   because=tuple(map(spoken, diagnostic.because)),
                   notes=tuple(map(spoken, diagnostic.notes)),
                   help=tuple(map(spoken, diagnostic.help)))


def shown_call(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """`f32[2,3].reshape(4, 4)`: a call, arrays by their types."""
    name = getattr(f, "__name__", type(f).__name__)
    operands = [_shown(x) for x in args]
    bare = name.strip("_")
    if name == "__getitem__":
        return f"{operands[0]}[{', '.join(operands[1:])}]"
    if name.startswith("__") and len(operands) == 2:
        sign = SIGNS.get(bare) or SIGNS.get(bare.removeprefix("r"))
        if sign:
            return f"{operands[0]} {sign} {operands[1]}"
    operands += [f"{key}={_shown(x)}" for key, x in kwargs.items()]
    if name == "__call__" and operands:
        return f"{operands[0]}({', '.join(operands[1:])})"
    if _is_method(f) and operands:
        return f"{operands[0]}.{name}({', '.join(operands[1:])})"
    return f"{name}({', '.join(operands)})"


def _has_operands(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does a call show more than the name of what is called?"""
    return bool(kwargs or args[_is_method(f):] or any(isinstance(x, Array) for x in args))


def _is_method(f: Any) -> bool:
    code = getattr(f, "__code__", None)
    return code is not None and code.co_varnames[:1] == ("self",)


def _shown(x: Any) -> str:
    """An argument as a message shows it, in a few words: the type of an array, a constant or a
    short container as it is written, the name of a class or function, else the class.
    """
    if isinstance(x, Array):
        aval: Any = getattr(x, "aval", None)
        return aval.str_short(True) if hasattr(aval, "str_short") else type(x).__name__
    if type(x) in (list, tuple):
        inner = ", ".join(map(_shown, x[:4])) + (", ..." if len(x) > 4 else "")
        text = f"[{inner}]" if type(x) is list else f"({inner}{',' if len(x) == 1 else ''})"
    elif isinstance(x, type) or callable(x):
        text = getattr(x, "__name__", type(x).__name__)
    elif hasattr(x, "shape") and hasattr(x, "dtype"):
        return f"{type(x).__name__} {x.dtype}{list(x.shape)}"
    elif x is None or isinstance(x, (bool, int, float, complex, str, bytes, slice, type(...))):
        text = repr(x)
    else:
        text = type(x).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST - 3]}..."


def _general_help(f: Any) -> str:
    """What to look at where nothing better is known: the parameters of the function."""
    try:
        names = [name for name in inspect.signature(f).parameters if name != "self"]
    except (TypeError, ValueError):
        names = []
    name = getattr(f, "__name__", type(f).__name__)
    if not names or name.startswith(("_", "<")):
        return "check what this call is given against the documentation of what it calls"
    shown = ", ".join(f"`{n}`" for n in names)
    return f"`{name}` takes {shown}; its docstring describes them"


# -- tracebacks --------------------------------------------------------------------------------

def _split(trace: TracebackType | None
           ) -> tuple[list[TracebackType], list[TracebackType]]:
    """The entries of a traceback that are the user's, and those that are not."""
    kept: list[TracebackType] = []
    hidden: list[TracebackType] = []
    below = False
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__") or ""
        below = STANDS_BETWEEN[module] or below and module.partition(".")[0] in _CALLED
        (hidden if below else kept).append(trace)
        trace = trace.tb_next
    return kept, hidden


def _last(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace


def _mode() -> str:
    mode = config.read("jax_traceback_filtering")
    return "quiet_remove_frames" if mode in (None, "auto") else mode


def _filter(error: Exception, trace: TracebackType | None, kept: list[TracebackType],
            hidden: list[TracebackType]) -> None:
    """Hide the package's frames from a traceback, in the way that `jax_traceback_filtering` says.
    trace: all entries; kept: those of the user; hidden: those of the package.
    """
    mode = _mode()
    if mode == "off":
        return
    if mode == "tracebackhide":
        for entry in hidden:
            entry.tb_frame.f_locals["__tracebackhide__"] = True
        return
    if mode == "remove_frames" and hidden and not isinstance(error.__cause__, UnfilteredStackTrace):
        cause = UnfilteredStackTrace(
            "The stack trace below excludes the frames of the package; its whole is this one.")
        cause.__cause__ = error.__cause__
        error.__cause__ = cause.with_traceback(trace)
    elif mode == "quiet_remove_frames" and hidden and _FILTERED not in getattr(
            error, "__notes__", ()) and (
            not hasattr(error, "diagnostic") and hidden[-1] is not _last(trace) or
            config.read("jax_traceback_filtering") == mode):
        error.add_note(_FILTERED)
    error.__traceback__ = _linked_traceback(kept)
    _drop_contexts(error)


def _linked_traceback(entries: list[TracebackType]) -> TracebackType | None:
    trace = None
    for entry in reversed(entries):
        trace = TracebackType(trace, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return trace


def _drop_contexts(error: BaseException) -> None:
    """Forget the exceptions of our own that this one came up while handling; filter the others."""
    seen: set[int] = set()
    while error.__cause__ is None and error.__context__ is not None and id(error) not in seen:
        seen.add(id(error))
        context = error.__context__
        kept, hidden = _split(context.__traceback__)
        if hidden and hidden[-1] is _last(context.__traceback__):
            error.__context__ = context.__context__          # raised by us, and handled
        else:
            context.__traceback__ = _linked_traceback(kept)
            error = context
