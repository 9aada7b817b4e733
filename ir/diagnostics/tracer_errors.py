"""The base class of all errors, and errors about tracers: values with a type and no number yet."""

from __future__ import annotations

from typing import Any


class ShardtraceError(Exception):
    """Base of every error class of this package; each derives from a built-in class, too.

    `except ShardtraceError` catches what the package itself found wrong with a program; the
    built-in bases (ValueError, TypeError, IndexError) are those of JAX's classes.

    >>> try:
    ...     st.jit(lambda x: 1 if x else 2)(3)
    ... except st.errors.ShardtraceError as error:
    ...     print(type(error).__name__, isinstance(error, TypeError))
    TracerBoolConversionError True
    """

    diagnostic: Any = None
    """The `Diagnostic` that this error was made from, or None."""


# --------------------------------------------------------------------------- sharding


class JAXTypeError(ShardtraceError, TypeError):
    """The base class of the TypeErrors that tracing raises, such as for a tracer as a bool.

    >>> try:
    ...     st.jit(lambda x: 1 if x else 2)(3)
    ... except st.errors.JAXTypeError as error:
    ...     print(type(error).__name__)
    TracerBoolConversionError
    """


class JAXIndexError(ShardtraceError, IndexError):
    """The base class of the IndexErrors that tracing raises, such as for a mask as an index.

    >>> try:
    ...     st.jit(lambda x: x[x > 0])(np.ones(3))
    ... except st.errors.JAXIndexError as error:
    ...     print(type(error).__name__)
    NonConcreteBooleanIndexError
    """


class ConcretizationTypeError(JAXTypeError):
    """A concrete value is needed where there is only a traced one.

    Fails: a number of elements is a shape, and must be known while tracing.

    >>> st.jit(lambda n: jnp.arange(n))(3)
    Traceback (most recent call last):
    shardtrace.errors.ConcretizationTypeError: ...

    Cause: under `jit` an argument is a tracer: it has a type, but no value.

    Fix: mark the argument static, or derive the number from shapes.

    >>> st.jit(lambda n: jnp.arange(n), static_argnums=0)(3)
    Array([0, 1, 2], dtype=int32)
    """


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value used as the condition of `if`, `while`, `and`, `or` or `not`.

    Fails:

    >>> @st.jit
    ... def size(x):
    ...     if x > 0:
    ...         return x
    ...     return -x
    >>> size(-2.0)
    Traceback (most recent call last):
    shardtrace.errors.TracerBoolConversionError: ...

    Cause: Python must choose a branch while tracing, when `x > 0` has no value.

    Fix: compute both and select, or stage the choice.

    >>> float(st.jit(lambda x: jnp.where(x > 0, x, -x))(-2.0))
    2.0
    >>> @st.jit
    ... def size(x):
    ...     return st.lax.cond(x > 0, lambda x: x, lambda x: -x, x)
    >>> float(size(-2.0))
    2.0
    """


class TracerIntegerConversionError(JAXTypeError):
    """A traced value used as a Python integer, say as an index of a list.

    Fails:

    >>> st.jit(lambda i: [10, 20, 30][i])(1)
    Traceback (most recent call last):
    shardtrace.errors.TracerIntegerConversionError: ...

    Cause: a Python list asks its index for an int while tracing.

    Fix: index an array instead, or make `i` a static argument.

    >>> int(st.jit(lambda i: jnp.array([10, 20, 30])[i])(1))
    20
    """


class TracerArrayConversionError(JAXTypeError):
    """A traced value given to numpy.

    Fails:

    >>> st.jit(lambda x: np.asarray(x))(0.0)
    Traceback (most recent call last):
    shardtrace.errors.TracerArrayConversionError: ...

    Cause: numpy needs the numbers, and while tracing there are none.

    Fix: use `shardtrace.numpy`, whose functions are recorded into the program; or call out of
    the program with `pure_callback`.

    >>> float(st.jit(lambda x: jnp.asarray(x))(0.0))
    0.0
    """


class NonConcreteBooleanIndexError(JAXIndexError):
    """Indexing with a traced boolean mask.

    Fails:

    >>> x = np.array([3, -1, 2])
    >>> st.jit(lambda x: x[x > 0])(x)
    Traceback (most recent call last):
    shardtrace.errors.NonConcreteBooleanIndexError: ...

    Cause: the shape of the result would depend on values, and shapes must be known while tracing.

    Fix: keep the shape and mask the values, or give the size.

    >>> st.jit(lambda x: jnp.where(x > 0, x, 0))(x)
    Array([3, 0, 2], dtype=int32)
    >>> st.jit(lambda x: x[jnp.nonzero(x > 0, size=2)])(x)
    Array([3, 2], dtype=int32)
    """


class UnexpectedTracerError(JAXTypeError):
    """A traced value used after the trace that made it has ended.

    Fails:

    >>> kept = []
    >>> @st.jit
    ... def f(x):
    ...     kept.append(x * 2)
    ...     return x
    >>> y = f(1.0)
    >>> kept[0] + y
    Traceback (most recent call last):
    shardtrace.errors.UnexpectedTracerError: ...

    Cause: a side effect carried the tracer out of its function.

    Fix: return the value, or pass it on as an argument.

    >>> y, doubled = st.jit(lambda x: (x, x * 2))(1.0)
    >>> float(doubled + y)
    3.0
    """


class LeakedTracerError(ShardtraceError):
    """A tracer is still referenced after its trace ended, found by `checking_leaks`.

    Fails:

    >>> kept = []
    >>> with st.checking_leaks():
    ...     y = st.jit(lambda x: kept.append(x))(1.0)
    Traceback (most recent call last):
    shardtrace.errors.LeakedTracerError: ...

    Cause: that of `UnexpectedTracerError`; this check finds the leak where it is made, before
    it does harm.

    Fix: return the value.

    >>> with st.checking_leaks():
    ...     y = st.jit(lambda x: x)(1.0)
    """


class KeyReuseError(JAXTypeError):
    """JAX's error for a random key that is consumed twice.

    The check is not there, so nothing raises it: the same key gives the same numbers again.

    >>> key = st.random.key(0)
    >>> bool((st.random.normal(key, 4) == st.random.normal(key, 4)).all())
    True

    Fix:

    >>> one, two = st.random.split(key)
    >>> bool((st.random.normal(one, 4) == st.random.normal(two, 4)).any())
    False
    """
