"""The ops of random keys: numbers, blocks of them, device dimensions, types and rules."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardtrace.ir.dtypes import KEY_FRY
from shardtrace.ir.inference.infer import infer
from shardtrace.ir.kernels.elementwise import float32_functions as single
from shardtrace.ir.kernels.generators import threefry
from shardtrace.ir.kernels.generators.gamma import gamma_numbers, normal_numbers, uniform_numbers
from shardtrace.ir.kernels.key_data import KEY_STORAGE, key_words, pack_keys, storage_dtype
from shardtrace.ir.meshes.mesh import AbstractMesh, AxisType
from shardtrace.ir.ops.dialect import OPS
from shardtrace.ir.shardings.sharding import NamedSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.types import ArrayType, array_type

U32 = np.dtype(np.uint32)
KEY = threefry.seed(np.array(0, np.int32))
KEYS = threefry.split(KEY, (3,))


def evaluate(name: str, lead: int, *arrays: Any, **params: Any) -> Any:
    return OPS[name].evaluate(lead, *arrays, **params)


# -- threefry --------------------------------------------------------------------------------------

@pytest.mark.parametrize("key, count, expected", [
    # The known answers that the authors of the hash publish for 20 rounds.
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
])
def test_threefry_gives_the_published_answers(key: tuple, count: tuple, expected: tuple) -> None:
    words = [np.array([x], U32) for x in (*key, *count)]
    first, second = threefry.threefry2x32(*words)
    assert (int(first[0]), int(second[0])) == expected


def test_the_hash_is_the_same_in_pieces_and_for_many_keys(monkeypatch: Any) -> None:
    whole = threefry.random_bits(KEYS, 32, (5, 7))
    monkeypatch.setattr(threefry, "_PIECE", 8)
    np.testing.assert_array_equal(threefry.random_bits(KEYS, 32, (5, 7)), whole)
    for i in range(3):
        np.testing.assert_array_equal(threefry.random_bits(KEYS[i], 32, (5, 7)), whole[i])


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_bits_are_the_two_words_of_the_hash_of_the_position(width: int) -> None:
    zero = np.zeros(1, U32)
    first, second = threefry.threefry2x32(zero, zero, zero, np.arange(5, dtype=U32))
    bits = evaluate("random_bits", 0, KEY, bit_width=width, shape=(5,))
    assert bits.dtype == f"uint{width}"
    for i, word in enumerate(bits.tolist()):
        a, b = int(first[i]), int(second[i])
        assert word == ((a << 32) | b if width == 64 else (a ^ b) % 2**width)


@pytest.mark.parametrize("seed, words", [
    (np.int32(0), [0, 0]), (np.int32(-1), [0, 0xFFFFFFFF]), (np.uint8(9), [0, 9]),
    (np.int64(2**40 + 5), [256, 5]), (np.int64(-3), [0xFFFFFFFF, 0xFFFFFFFD]),
])
def test_a_seed_fills_the_two_words(seed: np.generic, words: list[int]) -> None:
    assert key_words(threefry.seed(np.asarray(seed))).tolist() == words


def test_words_and_keys_convert_into_each_other() -> None:
    words = np.arange(12, dtype=U32).reshape(2, 3, 2) * U32.type(0x10000001)
    np.testing.assert_array_equal(key_words(pack_keys(words)), words)
    assert storage_dtype(KEY_FRY) == KEY_STORAGE and storage_dtype(U32) == U32


def test_one_key_and_no_dimensions_give_scalars() -> None:
    assert evaluate("random_bits", 0, KEY, bit_width=32, shape=()).shape == ()
    assert evaluate("random_fold_in", 0, KEY, np.asarray(np.uint32(3))).shape == ()
    assert evaluate("random_split", 0, KEY, shape=()).shape == ()


# -- blocks ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, params", [
    ("random_bits", {"bit_width": 32}), ("random_bits", {"bit_width": 64}),
    ("random_bits", {"bit_width": 8}), ("random_split", {}),
])
def test_a_block_is_a_block_of_the_whole(name: str, params: dict[str, Any]) -> None:
    whole = evaluate(name, 0, KEYS, shape=(6, 8), **params)
    for row, column in ((0, 0), (2, 4), (4, 0)):
        block = evaluate(f"{name}_block", 0, KEYS, np.int32(row), np.int32(column), shape=(2, 4),
                         whole=(6, 8), dims=(0, 1), **params)
        np.testing.assert_array_equal(block, whole[:, row:row + 2, column:column + 4])


@pytest.mark.parametrize("name, params", [("random_bits", {"bit_width": 32}),
                                          ("random_split", {})])
def test_all_devices_make_their_blocks_at_once(name: str, params: dict[str, Any]) -> None:
    whole = evaluate(name, 0, KEY, shape=(6, 8), **params)
    rows = np.array([[0], [3]], np.int32)             # device dimensions of sizes 2 and 1
    columns = np.array([[0, 2, 4, 6]], np.int32)      # and 1 and 4
    blocks = evaluate(f"{name}_block", 2, KEY.reshape(1, 1), rows, columns, shape=(3, 2),
                      whole=(6, 8), dims=(0, 1), **params)
    assert blocks.shape == (2, 4, 3, 2)
    for x in range(2):
        for y in range(4):
            np.testing.assert_array_equal(blocks[x, y], whole[3 * x:3 * x + 3, 2 * y:2 * y + 2])


def test_a_block_of_one_split_dimension_with_batched_keys() -> None:
    whole = evaluate("random_bits", 0, KEYS, shape=(4, 6), bit_width=32)
    blocks = evaluate("random_bits_block", 1, KEYS[None], np.array([0, 3], np.int32), shape=(4, 3),
                      whole=(4, 6), dims=(1,), bit_width=32)
    assert blocks.shape == (2, 3, 4, 3)
    np.testing.assert_array_equal(np.concatenate(list(blocks), axis=-1), whole)


def test_positions_beyond_32_bits_use_the_high_word() -> None:
    high, low = threefry.counters((2,), (2**33,), (2**32 + 1,))
    assert high.tolist() == [1, 1] and low.tolist() == [1, 2]


# -- device dimensions -----------------------------------------------------------------------------

def _cases() -> list[tuple[str, Sequence[np.ndarray], dict[str, Any]]]:
    keys = threefry.split(KEY, (2, 3))
    words = key_words(keys)
    data = np.arange(6, dtype=U32).reshape(2, 3)
    return [
        ("random_bits", [keys], {"bit_width": 32, "shape": (4,)}),
        ("random_bits", [keys], {"bit_width": 16, "shape": (3,), "partitionable": False}),
        ("random_split", [keys], {"shape": (2, 2)}),
        ("random_split", [keys], {"shape": (3,), "partitionable": False}),
        ("random_wrap", [words], {"impl": "fry"}),
        ("random_unwrap", [keys], {}),
        ("random_clone", [keys], {}),
        ("random_fold_in", [keys, data], {}),
        ("random_seed", [data.astype(np.int32)], {"impl": "fry"}),
        ("random_gamma", [keys, np.linspace(0.2, 4, 30, dtype=np.float32).reshape(2, 3, 5)],
         {"log_space": False}),
        ("random_gamma_each", [keys, np.linspace(0.2, 4, 6, dtype=np.float32).reshape(2, 3)],
         {"log_space": True}),
    ]


@pytest.mark.parametrize("name, arrays, params", _cases())
def test_device_dimensions_do_what_a_loop_over_devices_does(
        name: str, arrays: Sequence[np.ndarray], params: dict[str, Any]) -> None:
    together = evaluate(name, 1, *arrays, **params)
    for device in range(2):
        alone = evaluate(name, 0, *(x[device] for x in arrays), **params)
        np.testing.assert_array_equal(together[device], alone)


def test_the_hash_op_pads_ranks_behind_the_device_dimensions() -> None:
    key = np.array([[1], [2]], U32)[:, 0]             # rank 0, one device dimension of size 2
    counts = np.arange(3, dtype=U32)[None]
    first, second = evaluate("threefry2x32", 1, key, key, counts, counts)
    for device in range(2):
        alone = evaluate("threefry2x32", 0, key[device], key[device], counts[0], counts[0])
        np.testing.assert_array_equal([first[device], second[device]], alone)


# -- float32 functions and gamma numbers -----------------------------------------------------------

@pytest.mark.parametrize("function, reference, low, high", [
    (single.log, np.log, 1e-30, 1e30), (single.log, np.log, 0.5, 2),
    (single.log1p, np.log1p, -1, 9), (single.log1p, np.log1p, -1e-6, 1e-6),
])
def test_logarithms_are_right_to_two_units(function: Any, reference: Any, low: float, high: float
                                           ) -> None:
    x = np.linspace(low, high, 20_001)[1:-1].astype(np.float32)
    np.testing.assert_allclose(function(x), reference(x.astype(np.float64)), rtol=2.5e-7,
                               atol=1e-45)


def test_float32_functions_at_the_ends_of_their_domains() -> None:
    odd = np.array([0, -1, np.inf, np.nan, 1e-40], np.float32)
    np.testing.assert_allclose(single.log(odd), [-np.inf, np.nan, np.inf, np.nan, -92.103],
                               rtol=1e-3)
    np.testing.assert_array_equal(single.erf_inv(np.array([1, -1, 2, 0], np.float32)),
                                  [np.inf, -np.inf, np.nan, 0])
    assert single.erf_inv(np.float32(0.5)).shape == ()


def test_scalar_draws_are_those_of_arrays_of_one_element() -> None:
    bits = threefry.random_bits(KEYS, 32, ())
    expected = ((bits >> np.uint32(9)) | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    np.testing.assert_array_equal(uniform_numbers(KEYS, np.dtype(np.float32)), expected)
    assert normal_numbers(KEYS, np.dtype(np.float64)).dtype == np.float64


@pytest.mark.parametrize("a", [0.3, 1.0, 4.5])
def test_gamma_numbers_have_mean_and_variance_a(a: float) -> None:
    keys = threefry.split(KEY, (20_000,))
    x = gamma_numbers(keys, np.full(1, a, np.float32), False)
    assert x.shape == (20_000,) and x.dtype == np.float32
    assert abs(x.mean() - a) < 4 * np.sqrt(a / 20_000)
    assert abs(x.var() / a - 1) < 0.1
    logs = gamma_numbers(keys, np.full(1, a, np.float32), True)
    np.testing.assert_allclose(np.exp(logs), x, rtol=1e-4)


def test_gamma_gradient_is_that_of_the_inverse_distribution() -> None:
    special = pytest.importorskip("scipy.special")
    a, u = np.meshgrid([0.2, 0.9, 3.0, 40.0], [0.05, 0.5, 0.99])
    x = special.gammaincinv(a, u)
    numeric = (special.gammaincinv(a * 1.0001, u) - special.gammaincinv(a * 0.9999, u)) / (2e-4 * a)
    grad = evaluate("random_gamma_grad", 0, a, x)
    np.testing.assert_allclose(grad, numeric, rtol=1e-4)


# -- types and rules -------------------------------------------------------------------------------

MESH = AbstractMesh((2, 4), ("X", "Y"), (AxisType.Explicit,) * 2)


def typed(shape: tuple[int, ...], dtype: Any, *spec: Any) -> ArrayType:
    return array_type(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


@pytest.mark.parametrize("name, types, params, expected", [
    ("random_seed", [typed((8,), np.dtype("int32"), "X")], {"impl": "fry"}, "key<fry>[8@X]"),
    ("random_unwrap", [typed((8,), KEY_FRY, "X")], {}, "u32[8@X,2]"),
    ("random_wrap", [typed((8, 2), U32, "X")], {"impl": "fry"}, "key<fry>[8@X]"),
    ("random_bits", [typed((8,), KEY_FRY, "Y")], {"bit_width": 16, "shape": (3,)}, "u16[8@Y,3]"),
    ("random_split", [typed((8,), KEY_FRY, "X")], {"shape": (2, 3)}, "key<fry>[8@X,2,3]"),
    ("random_split", [typed((), KEY_FRY)], {"shape": (2,)}, "key<fry>[2]"),
    ("random_fold_in", [typed((8,), KEY_FRY, "X"), typed((8,), U32)], {}, "key<fry>[8@X]"),
    ("random_gamma", [typed((), KEY_FRY), typed((8, 4), np.dtype("float32"), "X", "Y")],
     {"log_space": False}, "f32[8@X,4@Y]"),
])
def test_random_ops_keep_the_sharding_of_keys_in_their_result_types(
        name: str, types: list[ArrayType], params: dict[str, Any], expected: str) -> None:
    result, = infer(OPS[name], tuple(types), params, MESH)
    assert result.str_short(True) == expected and not result.weak_type


@pytest.mark.parametrize("name, types, params, message", [
    ("random_bits", [typed((2,), U32)], {"bit_width": 32, "shape": ()}, "takes key array operand"),
    ("random_bits", [typed((), KEY_FRY)], {"bit_width": 7, "shape": ()}, "8-, 16-, 32- or 64-bit"),
    ("random_unwrap", [typed((2,), U32)], {}, "random_unwrap takes key array operand"),
    ("random_wrap", [typed((4,), U32)], {"impl": "fry"}, "to end with (2,); got shape=(4,)"),
    ("random_wrap", [typed((2,), np.dtype("int32"))], {"impl": "fry"}, "key_data.dtype = uint32"),
    ("random_seed", [typed((), np.dtype("float32"))], {"impl": "fry"}, "must be an integer"),
    ("threefry2x32", [typed((), np.dtype("int32"))] * 4, {}, "must have uint32 type"),
])
def test_wrong_operands_are_errors(name: str, types: list[ArrayType], params: dict[str, Any],
                                   message: str) -> None:
    with pytest.raises(TypeError, match=message.replace("(", r"\(").replace(")", r"\)")):
        infer(OPS[name], tuple(types), params, MESH)


@pytest.mark.parametrize("name, operands, result, params, expected", [
    ("random_bits", ((3,),), (3, 4, 2), {"bit_width": 32, "shape": (4, 2)}, "b -> b s0 s1"),
    ("random_bits", ((),), (4,), {"bit_width": 32, "shape": (4,), "partitionable": False},
     "-> s0 | s0!:replicate"),
    ("random_split", ((3,),), (3, 2), {"shape": (2,)}, "b -> b s0"),
    ("random_gamma", ((3,), (3, 5)), (3, 5), {"log_space": False}, "d0, d0 d1 -> d0 d1"),
    ("random_unwrap", ((3,),), (3, 2), {}, "b -> b w | w!:replicate"),
])
def test_random_ops_have_these_factor_rules(
        name: str, operands: tuple, result: tuple, params: dict[str, Any], expected: str) -> None:
    rule = OPS[name].factor_rule(operands, (result,), params)
    left, right = str(rule).strip(), expected.strip()
    assert left.replace("  ", " ") == right or left == right


def test_resizing_bits_to_a_block_is_refused() -> None:
    resize = OPS["random_bits"].resize
    params = {"bit_width": 32, "shape": (8,)}
    assert resize(params, [(2,)], [(2, 8)]) == params
    with pytest.raises(ValueError, match="localize"):
        resize(params, [()], [(4,)])
