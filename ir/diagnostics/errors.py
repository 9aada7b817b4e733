"""Errors: JAX's classes and names, so that code that catches JAX's errors catches these.

The docstring of each class is its help page (`shardtrace explain ShardingTypeError`): a program
that fails, why, and what to write instead. An error made from a `Diagnostic` carries it as
`.diagnostic`, for tools that want the data rather than the text.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConcretizationTypeError",
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


class ShardtraceError(Exception):
    """Base of every error class of this package, beside the built-in class that it also is.

    `except ShardtraceError` catches what the package itself found wrong with a program; the
    built-in bases (ValueError, TypeError, IndexError) are those of JAX's classes.
    """

    diagnostic: Any = None
    """The `Diagnostic` that this error was made from, or None."""


# --------------------------------------------------------------------------- sharding


class ShardingTypeError(ShardtraceError):
    """Operand types whose shardings do not go together over Explicit mesh axes.

    Fails::

        x: f32[8@X,4];  w: f32[8@Y,4]
        x + w                        # dimension 0 is split over X here and over Y there

    Cause: over Explicit axes the type of a result follows from the types of its operands alone.
    Where these leave a choice (which operand should move?) it is yours, not the compiler's.

    Fix: move one operand, or name the result's sharding where the function takes it::

        x + reshard(w, P("X", None))
        jnp.einsum("ij,jk->ik", x, w, out_sharding=P("X", None))
    """


class DuplicateSpecError(ShardtraceError):
    """A spec that uses one mesh axis twice.

    Fails::

        NamedSharding(mesh, P("X", "X"))

    Cause: a device has one coordinate along X, so X can split at most one dimension. The same
    holds for an axis and a part of it, as in `P("X", "X:(1)2")`.

    Fix: split one of the dimensions over another axis, or leave it whole::

        NamedSharding(mesh, P("X", "Y"))
    """

    def __init__(self, message: str, mesh: Any = None, pspec: Any = None) -> None:
        super().__init__(message)
        self.message = message
        self.mesh = mesh
        self.pspec = pspec


class IndivisibleError(ShardtraceError, ValueError):
    """A dimension whose size its mesh axes do not divide.

    Fails, on a mesh with X=4::

        NamedSharding(mesh, P("X")).shard_shape((6,))

    Cause: each of the 4 devices along X would hold 1.5 elements.

    Fix: pad the dimension to a multiple of 4, split another dimension, or leave it whole.

    dimension, size, parts: which dimension, of how many elements, over how many devices; advice:
    the fix in words.
    """
    dimension = size = parts = 0
    advice = ""


# --------------------------------------------------------------------------- tracers


class JAXTypeError(ShardtraceError, TypeError):
    """The base class of the TypeErrors that tracing raises, such as for a tracer as a bool."""


class JAXIndexError(ShardtraceError, IndexError):
    """The base class of the IndexErrors that tracing raises, such as for a mask as an index."""


class ConcretizationTypeError(JAXTypeError):
    """A concrete value is needed where there is only a traced one.

    Fails::

        @jit
        def f(x, n):
            return x.reshape(n, -1)      # a shape must be known while tracing

    Cause: under `jit` an argument is a tracer: it has a type, but no value.

    Fix: mark the argument static, or derive the number from shapes::

        f = jit(f, static_argnums=1)
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value used as the condition of `if`, `while`, `and`, `or` or `not`.

    Fails::

        @jit
        def f(x):
            if x > 0:
                return x
            return -x

    Cause: Python must choose a branch while tracing, when `x > 0` has no value.

    Fix: compute both and select, or stage the choice::

        return jnp.where(x > 0, x, -x)
        return lax.cond(x > 0, lambda x: x, lambda x: -x, x)
    """


class TracerIntegerConversionError(JAXTypeError):
    """A traced value used as a Python integer, say as an index of a list.

    Fails::

        @jit
        def f(i):
            return [10, 20, 30][i]

    Cause: a Python list asks its index for an int while tracing.

    Fix: index an array instead, or make `i` a static argument::

        return jnp.array([10, 20, 30])[i]
    """


class TracerArrayConversionError(JAXTypeError):
    """A traced value given to numpy.

    Fails::

        @jit
        def f(x):
            return np.sin(x)

    Cause: numpy needs the numbers, and while tracing there are none.

    Fix: use `shardtrace.numpy`, whose functions are recorded into the program; or call out of
    the program with `pure_callback`.
    """


class NonConcreteBooleanIndexError(JAXIndexError):
    """Indexing with a traced boolean mask.

    Fails::

        @jit
        def positive(x):
            return x[x > 0]

    Cause: the shape of the result would depend on values, and shapes must be known while tracing.

    Fix: keep the shape and mask the values, or give the size::

        jnp.where(x > 0, x, 0)
        x[jnp.nonzero(x > 0, size=4, fill_value=-1)]
    """


class UnexpectedTracerError(JAXTypeError):
    """A traced value used after the trace that made it has ended.

    Fails::

        kept = []

        @jit
        def f(x):
            kept.append(x)
            return x

        f(1.0)
        kept[0] + 1

    Cause: a side effect carried the tracer out of its function.

    Fix: return the value, or pass it on as an argument.
    """


class LeakedTracerError(ShardtraceError):
    """A tracer is still referenced after its trace ended, found by `checking_leaks`.

    Cause and fix are those of `UnexpectedTracerError`; this check finds the leak where it is
    made, before it does harm.
    """


class KeyReuseError(JAXTypeError):
    """A random key consumed twice, found by the key-reuse check.

    Fails::

        a = random.normal(key, (4,))
        b = random.normal(key, (4,))         # the same numbers again

    Fix::

        key_a, key_b = random.split(key)
    """


class InvalidInputException(ShardtraceError, TypeError):
    """An argument that is no array, such as a string or an object, where an array is needed.

    Fails::

        jit(lambda x: x)("text")

    Fix: pass numbers or arrays, mark the argument static, or register its class as a pytree.
    """


class TypePromotionError(ShardtraceError, ValueError):
    """Dtypes without a common dtype that they convert to implicitly.

    Fails::

        jnp.ones(3, "float8_e4m3fn") + jnp.ones(3, "float16")

    Cause: 4- to 8-bit floats and 1- to 4-bit integers never convert implicitly.

    Fix: say which dtype is meant: `x.astype("float16") + y`.
    """


# --------------------------------------------------------------------------- processes


class ProcessMismatchError(ShardtraceError, RuntimeError):
    """Processes that do not make the same calls on global arrays.

    Fails, with several processes::

        if process_index() == 0:
            print(x.sum())               # x is sharded over all processes: all must compute it

    Cause: a computation on a global array, a transfer of one, or a function of `multihost_utils`
    is one call of all processes that own some of its devices. The message says where each of them
    is: waiting elsewhere, ended, or never started.

    Fix: make the call in every process, and let one of them use the result::

        total = x.sum()
        if process_index() == 0:
            print(total)
    """


# --------------------------------------------------------------------------- programs


class ProgramSyntaxError(ShardtraceError, ValueError):
    """Text that is not a program, with line, column and what was expected there.

    Cause: an edited dump, most often a missing bracket or a name used before it is bound.

    Fix: compare with the form in `ir/text/grammar.lark`, or with a fresh dump of the same stage.
    """

    filename: str = ""
    line: int = 0
    """Line and column of the mistake, from 1."""
    column: int = 0


class VerificationError(ShardtraceError, ValueError):
    """A program that breaks a rule of its level, found by the verifier.

    Cause: an edited dump, or a pass that made a wrong equation; the message names both the
    equation and the rule.

    Fix: for an edited dump, correct the type or the equation; otherwise report it with the dump
    of the stage before (`SHARDTRACE_DUMP`).
    """


class AxisError(ValueError, IndexError):
    """A dimension that an array does not have. JAX raises ValueError or IndexError, by function.

    Cause: an axis number that is not below the number of dimensions, often after a reduction or
    under `vmap`, where a mapped dimension is not counted.

    Fix: take a number from `-x.ndim` to `x.ndim - 1`, or keep dimensions with `keepdims=True`.
    """


class DeletedArrayError(RuntimeError, ValueError):
    """An array whose memory was given away. JAX raises ValueError where it is passed to a jitted
    function, RuntimeError elsewhere.

    Cause: `delete()` was called on it, or it was passed to a function with `donate_argnums`.

    Fix: use the result of that call from there on (`state = step(state)`), or do not donate it.
    """


class DumpError(ShardtraceError, OSError):
    """Programs cannot be written into the folder that SHARDTRACE_DUMP names.

    Cause: it is a file, or may not be written, or the disk is full; the message quotes the system.

    Fix: name a folder that can be made or written, or leave the variable out.
    """


class JaxRuntimeError(ShardtraceError, RuntimeError):
    """A compiled program failed while it ran, for instance in a function of the host.

    Cause: `pure_callback`, `io_callback` or `debug.callback` called a Python function that raised
    an exception, or returned arrays of other shapes and dtypes than were declared.

    Fix: the message quotes the exception; declare what the function returns with
    `ShapeDtypeStruct`, and convert its results, for example `np.asarray(y, np.float32)`.
    """


class MemoryLimitError(JaxRuntimeError):
    """A program for which no plan was found that needs as little memory as is asked for.

    Fails, where a device may hold 64 kB and half of the argument alone is 128 kB::

        f = jit(lambda x: x.sum(), compiler_options={"memory_limit": 64e3})
        f(device_put(ones((256, 256)), NamedSharding(make_mesh((2,), ("x",)), P("x"))))

    Cause: arguments, results and values between them that a device holds at once are more than
    `memory_limit`, in every plan that was tried. The message names the least that was found, the
    line where it is held, and the largest values there.

    Fix: split the largest of them over more mesh axes, donate arguments that are not needed later
    (`donate_argnums`), or let values be computed again instead of kept (`checkpoint`).
    """


# Tracebacks and pickles call them by their public name.
for _public in [x for x in globals().values() if isinstance(x, type) and x.__module__ == __name__]:
    _public.__module__ = f"{__name__.partition('.')[0]}.errors"
