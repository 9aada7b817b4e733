"""What jitted functions, compiled ones and programs say of themselves and refuse, beside JAX."""
from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest

import shardtrace as st
from tests.real_jax import real_jax


class NoSignature:
    @property
    def __signature__(self):
        raise TypeError("no signature")

    def __call__(self, *args):
        return None


class NoRepr:
    def __call__(self):
        return None

    def __repr__(self):
        raise ValueError("no repr")


def compiled(m: ModuleType):
    return m.jit(lambda x: x + 4).lower(1.0).compile()


LARGE = 2 ** 100
REFUSED = {
    "compiled, jitted": lambda m: m.jit(lambda x: compiled(m)(x))(1.0),
    "compiled, differentiated": lambda m: m.grad(lambda x: compiled(m)(x))(1.0),
    "compiled, mapped": lambda m: m.vmap(lambda x: compiled(m)(x))(np.ones(3, np.float32)),
    "no signature": lambda m: m.jit(NoSignature(), donate_argnames="a")(1.0),
    "large argument": lambda m: m.jit(lambda x: x)(2 ** 31),
    "large argument within": lambda m: m.jit(lambda a, *, y: a)(1, y={"k": [2 ** 31]}),
    "large integers": lambda m: m.numpy.multiply(LARGE, 3.0),
    "a large integer": lambda m: m.numpy.sin(LARGE),
    "large, beside a float": lambda m: m.numpy.maximum(2.5, 2 ** 40),
    "large branch": lambda m: m.numpy.where(True, LARGE, 1.0),
    "text": lambda m: m.lax.add(m.numpy.array(7), "hello"),
    "array of text": lambda m: m.lax.add(m.numpy.array(7), np.array("hello")),
    "text of one operand": lambda m: m.lax.sin("hello"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_is_refused_in_the_words_of_jax(name):
    jax = real_jax()
    errors = []
    for m in (st, jax):
        with pytest.raises((TypeError, ValueError, OverflowError)) as e:
            REFUSED[name](m)
        words = str(e.value).split("\n")[0].split("Detected")[0].split(" at 0x")[0]
        errors.append((type(e.value), words.replace(": Got", ", ").split(", ")[0]))
    assert errors[0] == errors[1]


def test_a_large_number_fills_an_array_of_floats():
    jax = real_jax()
    for m in (st, jax):
        assert float(m.numpy.full((2,), LARGE, np.float32)[0]) == np.float32(LARGE)


def test_jitted_functions_and_programs_have_the_names_that_jax_gives_them():
    jax = real_jax()

    def foo(x):
        return x

    for m in (st, jax):
        assert repr(m.jit(foo)) == f"<PjitFunction of {foo!r}>"
        assert repr(m.jit(NoRepr())) == "<PjitFunction>"
        assert m.make_jaxpr(foo).__name__ == "make_jaxpr(foo)"
        assert m.make_jaxpr(foo).__qualname__ == f"make_jaxpr({foo.__qualname__})"


def test_a_leaked_value_is_said_to_be_made_where():
    jax = real_jax()

    def leak(m: ModuleType):
        kept = []
        m.jit(lambda x: kept.append(x + 1))(1.0)
        return kept[0] + 1

    for m in (st, jax):
        with pytest.raises(m.errors.UnexpectedTracerError, match=r"was created on line"):
            leak(m)


def test_debug_nans_runs_a_function_of_numbers_again_in_python():
    """As JAX does: the arithmetic of Python says what is wrong with them, and not with arrays."""
    jax = real_jax()

    def quotient(x):
        return 0.0 / x

    for m in (st, jax):
        f = m.jit(quotient)
        f(2.0)
        with m.debug_nans(True):
            for call in (f, m.jit(lambda x, f=f: f(x) + 1)):
                with pytest.raises(ZeroDivisionError, match="float division by zero") as e:
                    call(0.0)
                assert e.traceback[-1].name == "quotient"
            with pytest.raises(FloatingPointError):
                f(m.numpy.zeros(()))


@pytest.mark.parametrize("name", ["fft", "irfft", "hfft", "ihfft"])
def test_transforms_of_one_dimension_refuse_several_by_their_own_names(name):
    for m in (st, real_jax()):
        with pytest.raises(ValueError, match=rf"fft\.{name} does not support multiple axes\. "
                                             rf"Please use .*\.fft\.{name}n"):
            getattr(m.numpy.fft, name)(np.ones((2, 3)), axis=[0, 1])


@pytest.mark.parametrize("children", [(1, 2, 3), [(1,), 2], None, (1, 2)], ids=str)
def test_a_node_that_is_taken_apart_wrongly_is_refused_in_the_words_of_jax(children):
    words = []
    for m in (st, real_jax()):
        node = type("Node", (), {})
        m.tree_util.register_pytree_node(node, lambda x: children, lambda aux, xs: aux)
        with pytest.raises(ValueError, match="The to_iterable function for a custom") as e:
            m.tree_util.tree_leaves(node())
        words.append(str(e.value).split("\n")[0])
    assert words[0] == words[1]


@pytest.mark.parametrize("outer, inner", [("disallow", "allow"), ("allow", "disallow")])
@pytest.mark.parametrize("first", ["transfer_guard", "transfer_guard_host_to_device"])
@pytest.mark.parametrize("second", ["transfer_guard", "transfer_guard_host_to_device"])
def test_the_innermost_guard_counts(first, second, outer, inner):
    def allowed(m: ModuleType) -> bool:
        with getattr(m, first)(outer), getattr(m, second)(inner):
            try:
                m.numpy.add(np.ones(3), np.ones(3))
            except Exception as e:
                assert "Disallowed host-to-device transfer" in str(e)
                return False
            return True

    assert allowed(st) is allowed(real_jax()) is (inner == "allow")
