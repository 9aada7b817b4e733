"""Names, kinds and promotion of dtypes; the tables are compared with JAX's, entry by entry."""

import copy
import itertools
import pickle
import warnings

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir import dtypes
from shardtrace.ir.diagnostics.errors import TypePromotionError
from shardtrace.ir.dtypes import ALL_DTYPES, KEY_FRY, float0, prng_key

from ...rows import rows

SHORT_NAMES = [
    (bool, "bool"), (np.float32, "f32"), (np.float16, "f16"), (ml_dtypes.bfloat16, "bf16"),
    (np.int32, "i32"), (np.uint8, "u8"), (np.complex64, "c64"), (ml_dtypes.int4, "i4"),
    (ml_dtypes.uint2, "u2"), (ml_dtypes.float8_e4m3fn, "f8_e4m3fn"),
    (ml_dtypes.float4_e2m1fn, "f4_e2m1fn"), (ml_dtypes.float8_e8m0fnu, "f8_e8m0fnu"),
]


@pytest.mark.parametrize(("dtype", "name"), SHORT_NAMES)
def test_short_names_replace_the_kind_by_its_initial(dtype, name):
    assert dtypes.short_name(np.dtype(dtype)) == name


@rows("dtype", [*ALL_DTYPES, float0, KEY_FRY])
def test_names_and_parsing_are_inverse(dtype):
    assert dtypes.parse_short(dtypes.short_name(dtype)) == dtype
    assert dtypes.parse_long(dtypes.long_name(dtype)) == dtype


def test_names_are_unambiguous():
    everything = [*ALL_DTYPES, float0, KEY_FRY]
    assert len({dtypes.short_name(d) for d in everything}) == len(everything)


@pytest.mark.parametrize("name", ["f33", "float32", "", "key<foo>", "i"])
def test_an_unknown_short_name_is_an_error(name):
    with pytest.raises(ValueError, match="no dtype is called"):
        dtypes.parse_short(name)


def test_a_key_dtype_is_one_object_and_survives_copying():
    assert repr(KEY_FRY) == str(KEY_FRY) == KEY_FRY.name == "key<fry>"
    assert KEY_FRY.itemsize == 8 and KEY_FRY.base == np.uint32 and KEY_FRY.key_shape == (2,)
    assert dtypes.KeyDType("fry", (2,)) is KEY_FRY
    assert copy.deepcopy(KEY_FRY) is KEY_FRY
    assert pickle.loads(pickle.dumps(KEY_FRY)) is KEY_FRY
    with pytest.raises(AttributeError, match="cannot assign"):
        KEY_FRY.impl = "rbg"


def test_key_dtypes_are_extended_and_no_numbers():
    assert dtypes.issubdtype(KEY_FRY, prng_key)
    assert dtypes.issubdtype(KEY_FRY, dtypes.extended)
    assert dtypes.issubdtype(KEY_FRY, KEY_FRY)
    assert not dtypes.issubdtype(KEY_FRY, np.number)
    assert not dtypes.issubdtype(np.float32, prng_key)
    assert dtypes.is_extended(KEY_FRY) and not dtypes.is_extended(np.dtype("f4"))
    assert dtypes.canonicalize_dtype(KEY_FRY) is KEY_FRY
    assert dtypes.tangent_dtype(KEY_FRY) == float0


@pytest.mark.parametrize(("wide", "narrow"), [
    ("int64", "int32"), ("uint64", "uint32"), ("float64", "float32"), ("complex128", "complex64"),
    ("int8", "int8"), (float, "float32"), (int, "int32"), (complex, "complex64"),
])
def test_without_x64_wide_dtypes_are_cut_to_32_bits(wide, narrow):
    assert dtypes.canonicalize_dtype(wide) == np.dtype(narrow)
    assert dtypes.canonicalize_dtype(wide, True) == np.dtype(wide)


def test_canonicalize_refuses_what_is_no_dtype():
    with pytest.raises(TypeError, match="dtype 'foo' not understood"):
        dtypes.canonicalize_dtype("foo")


@pytest.mark.parametrize(("x", "expected"), [
    (True, ("bool", False)), (1, ("int32", True)), (1.0, ("float32", True)),
    (1j, ("complex64", True)), (np.float64(1), ("float32", False)),
    (np.ones(3, "int64"), ("int32", False)), (np.bool_(1), ("bool", False)),
    (np.ones(2, ml_dtypes.bfloat16), ("bfloat16", False)),
])
def test_dtype_of_a_value(x, expected):
    dtype, weak = dtypes.dtype_of(x)
    assert (str(dtype), weak) == expected


def test_dtype_of_a_value_with_an_aval_keeps_it_as_it_is():
    class Aval:
        weak_type = True

    class Value:
        dtype = np.dtype("float64")
        aval = Aval()

    assert dtypes.dtype_of(Value()) == (np.dtype("float64"), True)


@pytest.mark.parametrize("x", ["text", np.array(["a"]), np.array([object()]), object()])
def test_dtype_of_what_is_no_array_is_a_type_error(x):
    with pytest.raises(TypeError):
        dtypes.dtype_of(x)


def test_narrow_floats_are_computed_in_float32():
    narrow = [d for d in ALL_DTYPES if dtypes.is_narrow_float(d)]
    assert {str(d) for d in narrow} >= {"bfloat16", "float16", "float8_e4m3fn", "float8_e5m2"}
    assert all(dtypes.issubdtype(d, np.floating) and d.itemsize < 4 for d in narrow)
    assert all(dtypes.compute_dtype(d) == np.float32 for d in narrow)
    others = set(ALL_DTYPES) - set(narrow)
    assert all(dtypes.compute_dtype(d) is d for d in others)


def test_tangents_of_integers_are_float0():
    assert dtypes.tangent_dtype(np.dtype("int32")) == float0
    assert dtypes.tangent_dtype(np.dtype(bool)) == float0
    assert dtypes.tangent_dtype(np.dtype(ml_dtypes.bfloat16)) == ml_dtypes.bfloat16


def test_user_dtypes_are_checked_and_cut():
    assert dtypes.check_user_dtype("float64") == (np.dtype("float32"), True)
    assert dtypes.check_user_dtype("float64", True) == (np.dtype("float64"), False)
    assert dtypes.check_user_dtype(float) == (np.dtype("float32"), False)
    with pytest.raises(TypeError, match="JAX only supports number, bool, and string dtypes"):
        dtypes.check_user_dtype(object, fun_name="zeros")
    with pytest.raises(TypeError, match="is not a valid JAX array type"):
        dtypes.check_valid_dtype(np.dtype(object))


def test_promotion_of_keys():
    assert dtypes.promote_types(KEY_FRY, KEY_FRY) is KEY_FRY
    with pytest.raises(TypePromotionError):
        dtypes.promote_types(KEY_FRY, "float32")
    assert dtypes.lattice_result_type([(KEY_FRY, False), (KEY_FRY, False)]) == (KEY_FRY, False)


def test_result_type_does_not_depend_on_the_order_of_operands():
    strong = [np.dtype(d) for d in ("bool", "uint8", "int16", "uint32", "int32", "float16",
                                    ml_dtypes.bfloat16, "float32", "complex64")]
    operands = [(d, weak) for d in strong for weak in (False, True)]
    for triple in itertools.combinations(operands, 3):
        results = {dtypes.lattice_result_type(p) for p in itertools.permutations(triple)}
        assert len(results) == 1, triple


@pytest.mark.parametrize(("operands", "expected"), [
    ([("float32", True), ("bfloat16", False)], ("bfloat16", False)),
    ([("int32", True), ("uint8", False)], ("uint8", False)),
    ([("float32", True), ("int8", False)], ("float32", True)),
    ([("complex64", True), ("float32", False)], ("complex64", False)),
    ([("int16", True), ("int16", True)], ("int16", True)),
    ([("bool", False), ("int32", True)], ("int32", True)),
    ([("uint32", False), ("int32", False)], ("int32", False)),
])
def test_weak_operands_follow_strong_ones(operands, expected):
    pairs = [(np.dtype(getattr(ml_dtypes, name, name)), weak) for name, weak in operands]
    dtype, weak = dtypes.lattice_result_type(pairs)
    assert (str(dtype), weak) == expected


# --------------------------------------------------------------------------- against JAX


def _outcome(f):
    try:
        return f()
    except Exception as error:
        return type(error).__name__


@pytest.fixture
def jax_dtypes(request):
    jax = pytest.importorskip("jax")
    from jax._src import dtypes as jax_dtypes
    with jax.enable_x64(getattr(request, "param", False)):
        yield jax_dtypes


@pytest.mark.parametrize(("jax_dtypes", "x64"), [(False, False), (True, True)],
                         indirect=["jax_dtypes"])
def test_promotion_of_every_pair_is_jax_s(jax_dtypes, x64):
    nodes = [*ALL_DTYPES, int, float, complex]
    for a, b in itertools.product(nodes, repeat=2):
        ours = _outcome(lambda a=a, b=b: dtypes.promote_types(a, b, x64))
        theirs = _outcome(lambda a=a, b=b: jax_dtypes.promote_types(a, b))
        assert ours == theirs, (a, b)


class _Weak:
    """What JAX takes for a weakly typed array of this dtype."""

    def __init__(self, dtype, weak):
        self.dtype = dtype
        self.aval = self
        self.weak_type = weak


@pytest.mark.parametrize(("jax_dtypes", "x64"), [(False, False), (True, True)],
                         indirect=["jax_dtypes"])
def test_result_type_of_every_pair_with_weak_flags_is_jax_s(jax_dtypes, x64):
    usable = [d for d in ALL_DTYPES if x64 or dtypes.canonicalize_dtype(d) == d]
    operands = [(d, weak) for d in usable for weak in (False, True)]
    for a, b in itertools.product(operands, repeat=2):
        ours = _outcome(lambda a=a, b=b: dtypes.lattice_result_type([a, b], x64))
        theirs = _outcome(
            lambda a=a, b=b: jax_dtypes.lattice_result_type(_Weak(*a), _Weak(*b)))
        assert ours == theirs, (a, b)


@pytest.mark.parametrize(("jax_dtypes", "x64"), [(False, False), (True, True)],
                         indirect=["jax_dtypes"])
def test_result_type_of_values_and_names_is_jax_s(jax_dtypes, x64):
    values = [True, 1, 1.0, 1j, "float16", "int8", np.float32, float, int, None, np.int64(3),
              np.ones(2, "float64"), np.dtype("uint32"), ml_dtypes.bfloat16, bool]
    for a, b in itertools.product(values, repeat=2):
        ours = _outcome(lambda a=a, b=b: dtypes.result_type(a, b, x64=x64))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # JAX says that it cuts int64 to 32 bits
            theirs = _outcome(
                lambda a=a, b=b: jax_dtypes.result_type(a, b, return_weak_type_flag=True))
        assert ours == theirs, (a, b)


def test_messages_of_failed_promotions_are_jax_s(jax_dtypes):
    for a, b in [("float8_e4m3fn", "float16"), ("int4", "int8"), ("float4_e2m1fn", "bfloat16"),
                 ("float6_e2m3fn", "float32"), ("uint2", "int8")]:
        a, b = (np.dtype(getattr(ml_dtypes, name, name)) for name in (a, b))
        with pytest.raises(ValueError) as theirs:
            jax_dtypes.promote_types(a, b)
        with pytest.raises(TypePromotionError) as ours:
            dtypes.promote_types(a, b)
        assert str(ours.value).split(")", 1)[1] == str(theirs.value).split(")", 1)[1]


def test_kinds_of_every_dtype_are_jax_s(jax_dtypes):
    kinds = [np.generic, np.number, np.integer, np.signedinteger, np.unsignedinteger, np.inexact,
             np.floating, np.complexfloating, np.bool_, np.float32, float, int, bool, complex]
    for a, b in itertools.product([*ALL_DTYPES, *kinds], [*ALL_DTYPES, *kinds]):
        assert dtypes.issubdtype(a, b) == jax_dtypes.issubdtype(a, b), (a, b)
    names = ["bool", "signed integer", "unsigned integer", "integral", "real floating",
             "complex floating", "numeric", "float32", ("bool", "integral")]
    for a, kind in itertools.product(ALL_DTYPES, names):
        assert dtypes.isdtype(a, kind) == jax_dtypes.isdtype(a, kind), (a, kind)


@pytest.mark.parametrize("function", [
    "to_inexact_dtype", "to_numeric_dtype", "to_floating_dtype", "to_complex_dtype",
    "itemsize_bits", "canonicalize_dtype",
])
def test_conversions_of_every_dtype_are_jax_s(jax_dtypes, function):
    for dtype in ALL_DTYPES:
        ours = _outcome(lambda d=dtype: getattr(dtypes, function)(d))
        theirs = _outcome(lambda d=dtype: getattr(jax_dtypes, function)(d))
        assert ours == theirs, dtype


def test_short_names_of_every_dtype_are_jax_s(jax_dtypes):
    for dtype in ALL_DTYPES:
        assert dtypes.short_name(dtype) == jax_dtypes.short_dtype_name(dtype)
