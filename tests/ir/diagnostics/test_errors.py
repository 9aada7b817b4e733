"""Error classes: JAX's names and built-in bases, and a help page on each."""

import pickle

import pytest

from shardtrace.ir.diagnostics import errors

from ...rows import rows

CLASSES = [getattr(errors, name) for name in errors.__all__]
# JAX raises one built-in class or the other, by function: each of these is both, and no more.
BUILT_IN = (errors.AxisError, errors.DeletedArrayError)


@rows("error", CLASSES)
def test_every_error_has_a_help_page_and_room_for_a_diagnostic(error):
    assert error in BUILT_IN or issubclass(error, errors.ShardtraceError)
    assert error.__doc__ and getattr(error("message"), "diagnostic", None) is None
    assert str(error("message")) == "message"


@pytest.mark.parametrize(("error", "base"), [
    (errors.IndivisibleError, ValueError), (errors.ConcretizationTypeError, TypeError),
    (errors.TracerBoolConversionError, errors.ConcretizationTypeError),
    (errors.TracerIntegerConversionError, TypeError), (errors.ProgramSyntaxError, ValueError),
    (errors.TracerArrayConversionError, TypeError), (errors.VerificationError, ValueError),
    (errors.NonConcreteBooleanIndexError, IndexError), (errors.TypePromotionError, ValueError),
])
def test_errors_are_caught_by_the_built_in_classes(error, base):
    assert issubclass(error, base)


@pytest.mark.parametrize("error", [errors.ShardingTypeError, errors.DuplicateSpecError])
def test_sharding_errors_are_neither_type_nor_value_errors(error):
    assert not issubclass(error, (TypeError, ValueError))


def test_a_duplicate_spec_error_says_which_spec():
    error = errors.DuplicateSpecError("message", mesh="mesh", pspec="spec")
    assert (error.message, error.mesh, error.pspec) == ("message", "mesh", "spec")
    assert str(pickle.loads(pickle.dumps(error))) == "message"


def test_bases_are_those_of_jax():
    jax = pytest.importorskip("jax")
    builtins = (TypeError, ValueError, IndexError)
    for error in CLASSES:
        theirs = getattr(jax.errors, error.__name__, None)
        if theirs is not None:
            ours = [issubclass(error, base) for base in builtins]
            assert ours == [issubclass(theirs, base) for base in builtins], error
