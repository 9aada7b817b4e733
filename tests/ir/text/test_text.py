"""The small texts of a program read back equal: types, meshes, params, scalars, constants."""
from __future__ import annotations

import enum
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest

from shardtrace.ir.dtypes import ALL_DTYPES, KEY_FRY, float0
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.meshes.device import AbstractDevice, Device
from shardtrace.ir.meshes.manual_state import ManualState
from shardtrace.ir.meshes.mesh import AbstractMesh, Mesh, empty_abstract_mesh
from shardtrace.ir.op import OPS
from shardtrace.ir.param_types import register_param_type
from shardtrace.ir.program import Level, Program, Var
from shardtrace.ir.shardings.sharding import NamedSharding, SingleDeviceSharding
from shardtrace.ir.spec import PartitionSpec as P
from shardtrace.ir.text.constants import MissingConstant, SeededArray, parse_scalar, scalar_text
from shardtrace.ir.text.parse import (
    load_program,
    parse_mesh,
    parse_params,
    parse_program,
    parse_type,
)
from shardtrace.ir.text.placeholders import NamedCallable, OpaqueValue
from shardtrace.ir.text.print import save_program
from shardtrace.ir.text.value_printer import Notation, mesh_text
from shardtrace.ir.types import array_type

from ...rows import rows
from .round_trips import F32, MESH, A, E, M, round_trip, t

MIXED = AbstractMesh((2, 4, 8), ("X", "Y", "Z"), (E, A, M))
ODD = AbstractMesh((2, 4, 2, 2), ("two words", 'a"b', 7, "é"), (E, E, E, E))


# -- types -----------------------------------------------------------------------------------------

TYPES = [
    ("f32[]", array_type((), F32), empty_abstract_mesh),
    ("~f32[]", array_type((), F32, True), empty_abstract_mesh),
    ("f32[64@X,4]", t((64, 4), ("X",)), MESH),
    ("f32[64@(X,Y),4]", t((64, 4), (("X", "Y"),)), MESH),
    ("f32[64@(Y,X),4]", t((64, 4), (("Y", "X"),)), MESH),
    ("f32[64@Y:(1)2,4]", t((64, 4), ("Y:(1)2",)), MESH),
    ("f32[64@(X,Y:(2)2),4]", t((64, 4), (("X", "Y:(2)2"),)), MESH),
    ("f32[8,4]{U:X}", t((8, 4), P(None, None, unreduced={"X"})), MESH),
    ("f32[8,4]{U:(X,Y)}", t((8, 4), P(unreduced={"X", "Y"})), MESH),
    ("f32[8@Y,4]{R:X}", t((8, 4), P("Y", reduced={"X"})), MESH),
    ("f32[8@X,4]{V:Z}", t((8, 4), ("X",), MIXED, manual=ManualState({"Z"})), MIXED),
    ("f32[8,4]{U:(X,Z)}", t((8, 4), P(unreduced={"X"}), MIXED, manual=ManualState((), {"Z"})),
     MIXED),
    ("bf16<host>[8]", t((8,), dtype=ml_dtypes.bfloat16, memory_space="host"), MESH),
    ("key<fry>[2@X]", t((2,), ("X",), dtype=KEY_FRY), MESH),
    ("key<fry><host>[2]", t((2,), dtype=KEY_FRY, memory_space="host"), MESH),
    ("float0[3]", array_type((3,), float0), empty_abstract_mesh),
    ('f32[8@"two words",4@"a\\"b",2@7,2@"é"]', t((8, 4, 2, 2), ("two words", 'a"b', 7, "é"), ODD),
     ODD),
    ("f32[4] on ()", array_type((4,), F32), MESH),
    ("f32[0,4]", t((0, 4)), MESH),
]


@rows("text, aval, mesh", TYPES)
def test_a_type_reads_back_as_the_same_object(text, aval, mesh):
    assert Notation(mesh).type(aval) == text
    assert parse_type(text, mesh) is aval


@rows("dtype", [*ALL_DTYPES, float0, KEY_FRY])
def test_every_dtype_has_a_type_text(dtype):
    aval = array_type((2,), dtype)
    assert parse_type(Notation(empty_abstract_mesh).type(aval)) is aval


MESHES = [
    ("(X=2, Y=4)", MESH),
    ("(X=2, Y=4 auto, Z=8 manual)", MIXED),
    ("()", empty_abstract_mesh),
    ('("two words"=2, "a\\"b"=4, 7=2, "é"=2)', ODD),
    ("(X:(1)2=2, X:(2)2=2)", AbstractMesh((2, 2), ("X:(1)2", "X:(2)2"), (E, E))),
    ("(X=2) of cpu", AbstractMesh((2,), ("X",), E, abstract_device=AbstractDevice(
        "cpu", None, "cpu"))),
    ('(X=2) of tpu "TPU v5p" cores 2', AbstractMesh((2,), ("X",), E, abstract_device=AbstractDevice(
        "TPU v5p", 2, "tpu"))),
    ("(X=2, Y=2 auto) at (3, 1, 0, 2)",
     Mesh(np.array([[Device(3), Device(1)], [Device(0), Device(2)]]), ("X", "Y"), (E, A))),
    ("(X=1) at (device(9, process_index=1, platform='tpu', device_kind='TPU v4', "
     "local_hardware_id=1, memory_kinds=('device',)),)",
     Mesh(np.array([Device(9, 1, "tpu", "TPU v4", 1, ("device",))]), ("X",), (E,))),
]


@pytest.mark.parametrize(("text", "mesh"), MESHES, ids=[row[0] for row in MESHES])
def test_a_mesh_reads_back_as_the_same_object(text, mesh):
    assert mesh_text(mesh) == text
    assert parse_mesh(text) is mesh


# -- params ----------------------------------------------------------------------------------------

@register_param_type
class Direction(enum.Enum):
    UP = 1
    DOWN = 2


@register_param_type
class Window(NamedTuple):
    sizes: tuple[int, ...]
    direction: Direction = Direction.UP


def top_level_function(x):
    return x


CONCRETE = Mesh(np.array([Device(1), Device(0)]), ("X",), (E,))
VALUES = [
    ("None", None), ("True", True), ("3", 3), ("-3", -3), ("0.1", 0.1), ("-0.0", -0.0),
    ("1e-320", 1e-320), ("inf", float("inf")), ("-inf", float("-inf")), ("1.0+2.0j", 1 + 2j),
    ("'it'", "it"), ('"it\'s"', "it's"), ("'[a, \"b\"]\\n'", '[a, "b"]\n'), ("'é'", "é"),
    ("()", ()), ("(1,)", (1,)), ("((1, 2), ((), 'x'))", ((1, 2), ((), "x"))),
    ("{}", frozenset()), ("{'X', 'Y'}", frozenset(("Y", "X"))), ("{1, 2}", frozenset((2, 1))),
    ("f32", F32), ("bf16", np.dtype(ml_dtypes.bfloat16)), ("bool", np.dtype(bool)),
    ("key<fry>", KEY_FRY), ("f32(0.1)", np.float32(0.1)), ("i32(-3)", np.int32(-3)),
    ("bool(True)", np.True_), ("f64(0.1)", np.float64(0.1)),
    ("c64(1.0-2.0j)", np.complex64(1 - 2j)),
    ("f32(0x7fc00001)", np.frombuffer(b"\x01\x00\xc0\x7f", np.float32)[0]),
    ("P()", P()), ("P('X', None, ('X', 'Y'))", P("X", None, ("X", "Y"))),
    ("P(UNCONSTRAINED, 'X')", P(P.UNCONSTRAINED, "X")),
    ("P('X', unreduced={'Y'}, reduced={'Z'})", P("X", unreduced={"Y"}, reduced={"Z"})),
    ("sharding P('X')", NamedSharding(MESH, P("X"))),
    ("sharding P('X') in pinned_host", NamedSharding(MESH, P("X"), memory_kind="pinned_host")),
    ("sharding P('X') on ()", None),
    ("sharding P('X') on mesh (X=2) at (1, 0) in device", NamedSharding(CONCRETE, P("X"))),
    ("sharding device(1) in device", SingleDeviceSharding(Device(1))),
    ("mesh (X=2, Y=4)", MESH), ("mesh (X=2) at (1, 0)", CONCRETE), ("device(2)", Device(2)),
    ("manual", ManualState()), ("manual{V:(X,Y), U:Z}", ManualState({"X", "Y"}, {"Z"})),
    ("f32[8@X,4]{U:Y}", t((8, 4), P("X", unreduced={"Y"}))), ("(~i32[],)", (array_type(
        (), "int32", True, NamedSharding(MESH, P())),)),
    ("Direction.DOWN", Direction.DOWN), ("AxisType.Auto", A), ("Level.LOCAL", Level.LOCAL),
    ("Window(sizes=(1, 2), direction=Direction.UP)", Window((1, 2))),
    ('@op("add")', OPS["add"]),
]
VALUES = [row for row in VALUES if row[0] != "sharding P('X') on ()"]


@rows("text, value", VALUES)
def test_a_param_reads_back_equal_and_of_the_same_type(text, value):
    assert Notation(MESH).value(value) == text
    read = parse_params(f"[p={text}]", MESH)["p"]
    assert type(read) is type(value)
    if isinstance(value, np.generic):
        assert read.tobytes() == value.tobytes()
    else:
        assert read == value
        assert isinstance(value, frozenset) or repr(read) == repr(value)      # -0.0 is not 0.0


def test_a_python_function_becomes_its_name_which_equals_it():
    text = Notation(MESH).value(top_level_function)
    read = parse_params(f"[f={text}]")["f"]
    assert text.endswith('test_text:top_level_function")')
    assert isinstance(read, NamedCallable)
    assert read == top_level_function and top_level_function == read
    assert read != round_trip
    with pytest.raises(NameError, match="top_level_function"):
        read(1)


def test_two_functions_of_one_name_are_told_apart():
    f, g = (lambda x: x), (lambda x: -x)
    g.__qualname__ = f.__qualname__
    notation = Notation(MESH)
    texts = [notation.value(h) for h in (f, g, f)]
    assert texts[0] == texts[2] != texts[1]
    assert texts[1].endswith('#2")')


def test_supplied_functions_take_the_place_of_names():
    name = f"{__name__}:top_level_function"
    program = parse_program(
        "program @f(x: f32[]) -> f32[] {\n"
        f'  y: f32[] = sin[f=@python("{name}")] x\n  return y\n}}',
        callables={name: top_level_function})
    assert program.eqns[0].params["f"] is top_level_function


def test_an_object_without_text_becomes_what_prints_alike():
    value = object()
    text = Notation(MESH).value(value)
    read = parse_params(f"[f={text}]")["f"]
    assert text == '@value("<object object>")'
    assert isinstance(read, OpaqueValue) and read == value


# -- scalars and constants -------------------------------------------------------------------------

@rows("dtype", [*ALL_DTYPES])
def test_scalars_are_bit_exact_whatever_their_bits(dtype):
    rng = np.random.default_rng(0)
    raw = rng.integers(0, 256, (300, dtype.itemsize), dtype=np.uint8)
    if dtype.kind == "b":
        raw &= 1
    values = raw.view(dtype).ravel()
    if "int" in dtype.name:
        values = values.astype(dtype)         # narrow integers use only some of their bits
    for value in values:
        text = scalar_text(value, dtype)
        expected = np.asarray(value)
        if "int" in dtype.name:
            expected = np.asarray(int(value)).astype(dtype)
        assert parse_scalar(text, dtype).tobytes() == expected.tobytes(), text


@pytest.mark.parametrize(("value", "dtype", "text"), [
    (0.1, "float32", "0.1"), (0.1, "float64", "0.1"), (1e10, "float32", "1e+10"),
    (float("nan"), "float32", "nan"), (float("-inf"), "float16", "-inf"), (-0.0, "float32", "-0.0"),
    (1.0, ml_dtypes.bfloat16, "1.0"), (0.1, ml_dtypes.bfloat16, "0.100098"),
    (3, "int8", "3"), (True, "bool", "True"), (1 + 2j, "complex64", "1.0+2.0j"),
    (complex(-0.0, -0.0), "complex64", "-0.0-0.0j"), (2**63, "uint64", str(2**63)),
])
def test_scalars_are_written_as_short_as_they_can_be(value, dtype, text):
    dtype = np.dtype(dtype)
    assert scalar_text(dtype.type(value), dtype) == text


def constant_program(value, aval=None, name="c0"):
    aval = array_type(value.shape, value.dtype) if aval is None else aval
    var = Var(aval, name)
    return Program("f", [], [], [var], consts=[(var, value)])


CONSTANTS = [
    ("[[1.0, 2.0], [3.0, 4.0]]", np.array([[1, 2], [3, 4]], np.float32)),
    ("[0.1, nan, 0x7fc00001, -inf, -0.0]", np.concatenate([
        np.array([0.1, np.nan], np.float32), np.array([0x7FC00001], np.uint32).view(np.float32),
        np.array([-np.inf, -0.0], np.float32)])),
    ("1.5", np.array(1.5, np.float32)),
    ("full 0", np.zeros((0, 3), np.float32)),
    ("full 0.0", np.zeros((40, 3), np.float32)),
    ("full -0.0", -np.zeros((40, 3), ml_dtypes.bfloat16)),
    ("[[True, False]]", np.array([[True, False]])),
    ("[1.0+2.0j, 0.0-1.0j]", np.array([1 + 2j, complex(0, -1)], np.complex64)),
    ("[1, -8]", np.array([1, -8], ml_dtypes.int4)),
    ("zlib", np.arange(400, dtype=np.float32).reshape(20, 20)),
    ("zlib", np.arange(100, dtype=np.float32).astype(ml_dtypes.float8_e4m3fn)),
    ("seed 7", SeededArray(7, (4, 5), np.float32)),
    ("[False, False, False]", np.zeros((3,), float0)),
]


@pytest.mark.parametrize(("text", "value"), CONSTANTS, ids=[row[0] for row in CONSTANTS])
def test_constants_in_the_text_are_bit_exact(text, value):
    program = constant_program(value)
    assert f"] = {text}" in str(program)
    again = round_trip(program).consts[0][1]
    assert again.dtype == value.dtype and not np.asarray(again).flags.writeable


def test_a_key_constant_is_a_number_a_key():
    aval = array_type((2,), KEY_FRY)
    program = constant_program(np.array([1 << 32, 5], np.uint64), aval)
    assert "const c0: key<fry>[2] = [4294967296, 5]" in str(program)
    round_trip(program)


def test_a_constant_that_does_not_fit_its_type_prints_all_the_same():
    program = constant_program(np.zeros(3), array_type((4,), F32))
    assert 'const c0: f32[4] = sha256 ""' in str(program)


def test_a_seeded_constant_is_normal():
    value = np.asarray(SeededArray(3, (1000,), np.float32))
    assert abs(float(value.mean())) < 0.2 and 0.8 < float(value.std()) < 1.2


def test_a_seeded_constant_is_made_when_it_is_read():
    text = ("program @f() -> f32[%s] {\n  const a: f32[%s] = seed 7\n  b: f32[%s] = add a a\n"
            "  return b\n}\n")
    program = parse_program(text.replace("%s", "1048576,1048576"))
    assert "seed 7" in str(program) and program.consts[0][1].nbytes == 1 << 42
    program = parse_program(text.replace("%s", "3,4"))
    numbers = np.random.Generator(np.random.PCG64(7)).standard_normal((3, 4)).astype(np.float32)
    np.testing.assert_array_equal(program.consts[0][1], numbers)


def test_a_large_constant_is_left_out_of_str_and_asked_for_by_name():
    value = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    program = constant_program(value, name="w")
    text = str(program)
    assert len(text) < 300 and "sha256" in text
    round_trip(program, constants={"w": value})
    without = parse_program(text)
    assert isinstance(without.consts[0][1], MissingConstant)
    assert str(without) == text
    with pytest.raises(LookupError, match=r"constant w \(f32\[200,200\]\)"):
        np.asarray(without.consts[0][1])


def test_another_array_than_the_one_left_out_is_refused():
    value = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)
    text = str(constant_program(value, name="w"))
    with pytest.raises(ValueError, match="not the one"):
        parse_program(text, constants={"w": value + 1})


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16, ml_dtypes.int4, "bool"], ids=str)
def test_a_saved_program_keeps_its_arrays_beside_it(tmp_path, dtype):
    value = (np.random.default_rng(0).standard_normal((90, 100)) * 4).astype("int8").astype(dtype)
    program = constant_program(value, name="w")
    save_program(program, tmp_path / "layer.st")
    assert 'npz "layer.npz":w' in (tmp_path / "layer.st").read_text()
    assert programs_equal(load_program(tmp_path / "layer.st"), program)
    small = constant_program(np.ones(3, np.float32))
    save_program(small, tmp_path / "small.st", "after trace, 1.3 ms")
    assert (tmp_path / "small.st").read_text().startswith(
        "# after trace, 1.3 ms\n# how to read this: shardtrace help ir\nprogram @f")
    assert not (tmp_path / "small.npz").exists()
    assert programs_equal(load_program(tmp_path / "small.st"), small)


def test_an_archive_outside_the_folder_is_not_read(tmp_path):
    (tmp_path / "evil.st").write_text(
        'program @f() -> f32[2] {\n  const c: f32[2] = npz "../other.npz":c\n  return c\n}\n')
    with pytest.raises(ValueError, match="folder of the program"):
        load_program(tmp_path / "evil.st")
