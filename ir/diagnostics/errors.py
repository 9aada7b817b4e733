"""Errors: JAX's classes and names, so that code that catches JAX's errors catches these.

The docstring of each class is its help page (`shardtrace help ShardingTypeError`): a program that
fails, why, and what to write instead. An error made from a `Diagnostic` carries it as
`.diagnostic`, for tools that want the data rather than the text.
"""

from __future__ import annotations

from typing import Any

from .tracer_errors import (
    ConcretizationTypeError,
    JAXIndexError,
    JAXTypeError,
    KeyReuseError,
    LeakedTracerError,
    NonConcreteBooleanIndexError,
    ShardtraceError,
    TracerArrayConversionError,
    TracerBoolConversionError,
    TracerIntegerConversionError,
    UnexpectedTracerError,
)

__all__ = [
    "AxisError",
    "ConcretizationTypeError",
    "DeletedArrayError",
    "DumpError",
    "DuplicateSpecError",
    "IndivisibleError",
    "InvalidInputException",
    "JAXIndexError",
    "JAXTypeError",
    "JaxRuntimeError",
    "KeyReuseError",
    "LeakedTracerError",
    "MemoryLimitError",
    "NonConcreteBooleanIndexError",
    "ProcessMismatchError",
    "ProgramSyntaxError",
    "ShardingTypeError",
    "ShardtraceError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TypePromotionError",
    "UnexpectedTracerError",
    "VerificationError",
]


class ShardingTypeError(ShardtraceError):
    """Operand types whose shardings do not go together over Explicit mesh axes.

    Fails: dimension 0 is split over X here and over Y there.

    >>> mesh = st.make_mesh((2, 4), ("X", "Y"), (st.sharding.AxisType.Explicit,) * 2)
    >>> x = st.device_put(np.ones((8, 4)), st.NamedSharding(mesh, P("X")))
    >>> w = st.device_put(np.ones((8, 4)), st.NamedSharding(mesh, P("Y")))
    >>> x + w
    Traceback (most recent call last):
    shardtrace.errors.ShardingTypeError: ...

    Cause: over Explicit axes the type of a result follows from the types of its operands alone.
    Where these leave a choice (which operand should move?) it is yours, not the compiler's.

    Fix: move one operand, or name the result's sharding where the function takes it.

    >>> st.typeof(x + st.reshard(w, st.NamedSharding(mesh, P("X"))))
    ShapedArray(float32[8@X,4])
    """


class DuplicateSpecError(ShardtraceError):
    """A spec that uses one mesh axis twice.

    Fails:

    >>> mesh = st.make_mesh((4, 2), ("X", "Y"))
    >>> st.NamedSharding(mesh, P("X", "X"))
    Traceback (most recent call last):
    shardtrace.errors.DuplicateSpecError: ...

    Cause: a device has one coordinate along X, so X can split at most one dimension. The same
    holds for an axis and a part of it, as in `P("X", "X:(1)2")`.

    Fix: split one of the dimensions over another axis, or leave it whole.

    >>> st.NamedSharding(mesh, P("X", "Y")).spec
    P('X', 'Y')
    """

    def __init__(self, message: str, mesh: Any = None, pspec: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.mesh = mesh
        self.pspec = pspec


class IndivisibleError(ShardtraceError, ValueError):
    """A dimension whose size its mesh axes do not divide.

    Fails: each of the 4 devices along X would hold 1.5 elements.

    >>> mesh = st.make_mesh((4, 2), ("X", "Y"))
    >>> st.NamedSharding(mesh, P("X")).shard_shape((6,))
    Traceback (most recent call last):
    shardtrace.errors.IndivisibleError: ...

    Cause: an array that is placed has blocks of one size.

    Fix: split the dimension over another axis, pad it to a multiple of 4, or leave it whole.

    >>> st.NamedSharding(mesh, P("Y")).shard_shape((6,))
    (3,)

    dimension, size, parts: which dimension, of how many elements, over how many devices; factors:
    over how many each dimension is split; advice: the fix in words.
    """
    dimension = size = parts = 0
    factors: tuple[int, ...] = ()
    advice = ""


# --------------------------------------------------------------------------- tracers


class InvalidInputException(ShardtraceError, TypeError):
    """An object that is not an array, such as a string, where an array is to be placed on a device.

    Fails:

    >>> st.device_put({"width": 3.0, "unit": "metre"})
    Traceback (most recent call last):
    shardtrace.errors.InvalidInputException: ...

    Fix: place numbers and arrays alone, or register the class of the object as a pytree.

    >>> st.device_put({"width": 3.0})
    {'width': Array(3., dtype=float32...)}
    """


class TypePromotionError(ShardtraceError, ValueError):
    """Dtypes without a common dtype that they convert to implicitly.

    Fails:

    >>> x, y = jnp.ones(3, "float8_e4m3fn"), jnp.ones(3, "float16")
    >>> x + y
    Traceback (most recent call last):
    shardtrace.errors.TypePromotionError: ...

    Cause: 4- to 8-bit floats and 1- to 4-bit integers never convert implicitly.

    Fix: say which dtype is meant.

    >>> x.astype("float16") + y
    Array([2., 2., 2.], dtype=float16)
    """


# --------------------------------------------------------------------------- processes


class ProcessMismatchError(ShardtraceError, RuntimeError):
    """Processes that do not make the same calls on global arrays.

    Fails: `x` is sharded over all processes, so all must compute the sum.

    >>> def program():
    ...     mesh = st.make_mesh((8,), ("x",))
    ...     x = st.device_put(np.arange(8.0), st.NamedSharding(mesh, P("x")))
    ...     return float(x.sum()) if st.process_index() == 0 else None
    >>> st.distributed.run_processes(program, 2)
    Traceback (most recent call last):
    shardtrace.errors.ProcessMismatchError: ...

    Cause: a computation on a global array, a transfer of one, or a function of `multihost_utils`
    is one call of all processes that own some of its devices. The message says where each of them
    is: waiting elsewhere, ended, or never started.

    Fix: make the call in every process, and let one of them use the result.

    >>> def program():
    ...     mesh = st.make_mesh((8,), ("x",))
    ...     x = st.device_put(np.arange(8.0), st.NamedSharding(mesh, P("x")))
    ...     total = x.sum()
    ...     return float(total) if st.process_index() == 0 else None
    >>> st.distributed.run_processes(program, 2)
    [28.0, None]
    """


# --------------------------------------------------------------------------- programs


class ProgramSyntaxError(ShardtraceError, ValueError):
    """Text that is not a program, with line, column and what was expected there.

    Fails:

    >>> st.parse_program("program @f(x: f32[4) -> f32[4] {\\n  return x\\n}")
    Traceback (most recent call last):
    shardtrace.errors.ProgramSyntaxError: a type is expected here...

    Cause: an edited dump, most often a missing bracket or a name used before it is bound.

    Fix: compare with the form in `ir/text/grammar.lark`, or with a fresh dump of the same stage.

    >>> st.parse_program("program @f(x: f32[4]) -> f32[4] {\\n  return x\\n}").name
    'f'
    """

    filename: str = ""
    line: int = 0
    """Line and column of the mistake, from 1."""
    column: int = 0


class VerificationError(ShardtraceError, ValueError):
    """A program that breaks a rule of its level, found by the verifier.

    Fails: the verifier runs after every pass, and on the files that commands are given.

    >>> from shardtrace.ir.verify import verify
    >>> text = \"\"\"program @f(x: f32[4]) -> f32[5] {
    ...   y: f32[5] = tanh x
    ...   return y
    ... }\"\"\"
    >>> verify(st.parse_program(text))
    Traceback (most recent call last):
    shardtrace.errors.VerificationError: ...

    Cause: an edited dump, or a pass that made a wrong equation; the message names both the
    equation and the rule.

    Fix: for an edited dump, correct the type or the equation; otherwise report it with the dump
    of the stage before (`SHARDTRACE_DUMP`).

    >>> verify(st.parse_program(text.replace("f32[5]", "f32[4]")))
    """


class AxisError(ValueError, IndexError):
    """A dimension that an array does not have. JAX raises ValueError or IndexError, by function.

    Fails:

    >>> x = jnp.ones((2, 3))
    >>> x.sum(0).max(1)
    Traceback (most recent call last):
    shardtrace.errors.AxisError: ...

    Cause: an axis number that is not below the number of dimensions, often after a reduction or
    under `vmap`, where a mapped dimension is not counted.

    Fix: take a number from `-x.ndim` to `x.ndim - 1`, or keep dimensions with `keepdims=True`.

    >>> x.sum(0, keepdims=True).max(1)
    Array([2.], dtype=float32)
    """


class DeletedArrayError(RuntimeError, ValueError):
    """An array whose memory was given away. JAX raises ValueError where it is passed to a jitted
    function, RuntimeError elsewhere.

    Fails:

    >>> step = st.jit(lambda state: state + 1, donate_argnums=0)
    >>> state = jnp.zeros(3)
    >>> new = step(state)
    >>> state + new
    Traceback (most recent call last):
    shardtrace.errors.DeletedArrayError: ...

    Cause: `delete()` was called on it, or it was passed to a function with `donate_argnums`.

    Fix: use the result of that call from there on, or do not donate it.

    >>> state = jnp.zeros(3)
    >>> state = step(state)
    >>> state + 1
    Array([2., 2., 2.], dtype=float32)
    """


class DumpError(ShardtraceError, OSError):
    """Programs cannot be written into the folder that SHARDTRACE_DUMP names.

    Fails:

    >>> with st.config.override(shardtrace_dump="/dev/null/dumps"):
    ...     y = st.jit(lambda x: x + 1)(1.0)
    Traceback (most recent call last):
    shardtrace.errors.DumpError: ...

    Cause: it is a file, or may not be written, or the disk is full; the message quotes the system.

    Fix: name a folder that can be made or written, or leave the variable out.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with st.config.override(shardtrace_dump=folder):
    ...     y = st.jit(lambda x: x + 2)(1.0)
    """


class JaxRuntimeError(ShardtraceError, RuntimeError):
    """A compiled program failed while it ran, for instance in a function of the host.

    Fails:

    >>> number = st.ShapeDtypeStruct((), np.float32)
    >>> def call(host):
    ...     return st.jit(lambda x: st.pure_callback(host, number, x))(1.0)
    >>> call(lambda x: x.missing)
    Traceback (most recent call last):
    shardtrace.errors.JaxRuntimeError: ...

    Cause: `pure_callback`, `io_callback` or `debug.callback` called a Python function that raised
    an exception, or returned arrays of other shapes and dtypes than were declared.

    Fix: the message quotes the exception; declare what the function returns with
    `ShapeDtypeStruct`, and convert its results.

    >>> float(call(lambda x: np.float32(x * 2)))
    2.0
    """


class MemoryLimitError(JaxRuntimeError):
    """No plan was found for a program within the memory limit that was given.

    Fails: a device may hold 64 kB, and half of the argument alone is 128 kB.

    >>> def place(count):
    ...     rows = st.NamedSharding(st.make_mesh((count,), ("x",)), P("x"))
    ...     return st.device_put(np.ones((256, 256), np.float32), rows)
    >>> total = st.jit(lambda x: x.sum(), compiler_options={"memory_limit": 64e3})
    >>> total(place(2))
    Traceback (most recent call last):
    shardtrace.errors.MemoryLimitError: ...

    Cause: arguments, results and values between them that a device holds at once are more than
    `memory_limit`, in every plan that was tried. The message names the least that was found, the
    line where it is held, and the largest values there.

    Fix: split the largest of them over more mesh axes, donate arguments that are not needed later
    (`donate_argnums`), or let values be computed again instead of kept (`checkpoint`).

    >>> float(total(place(8)))
    65536.0
    """


# Tracebacks and pickles call them by their public name.
for _public in [x for x in globals().values() if isinstance(x, type)
                and x.__module__.rpartition(".")[0] == __package__]:
    _public.__module__ = f"{__name__.partition('.')[0]}.errors"
