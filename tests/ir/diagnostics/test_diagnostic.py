"""Locations and diagnostics: the caret stands under the user's expression."""
import pytest

from shardtrace.ir.diagnostics.diagnostic import Label, error, fail
from shardtrace.ir.source.location import Location, capture, is_ours


def here(x):
    return capture()


def test_capture_finds_this_expression():
    location = here(1 + 2)
    assert location.function == "here"       # tests are not part of the package
    assert location.text() == "capture()"


def test_modules_of_the_package_are_ours_by_name_not_by_path():
    assert is_ours("shardtrace") and is_ours("shardtrace.ir.types")
    assert not is_ours("shardtraced") and not is_ours("tests.ir") and not is_ours("__main__")


def test_a_location_remembers_the_transformation():
    location = capture().under("transpose")
    assert location.transform == "transpose"
    assert location.under("jvp").transform == "jvp(transpose)"


def test_rendered_error_has_message_place_caret_and_help(tmp_path):
    source = tmp_path / "train.py"
    source.write_text("def layer(x, w, b):\n    h = x @ w\n    return h + b.T\n")
    at = Location.at(str(source), 3, 11, 3, 18, "layer")
    other = Location.at(str(source), 2, 8, 2, 13, "layer")
    e = error(ValueError, "operands disagree", code="conflict", location=at, label="over X and Y",
              others=(Label(other, "f32[64@X,16]"),), because=("X: from x",),
              help="write\n    h + reshard(b.T, P('X', None))")
    assert str(e).splitlines() == [
        "operands disagree",
        " --> train.py:3:12 in `layer`",
        "  |",
        "2 |     h = x @ w",
        "  |         ----- f32[64@X,16]",
        "3 |     return h + b.T",
        "  |            ^^^^^^^ over X and Y",
        "  |",
        "  = because: X: from x",
        "  = help: write",
        "              h + reshard(b.T, P('X', None))",
    ]
    assert e.diagnostic.code == "conflict"


def test_no_carets_stand_below_a_line_that_is_not_at_hand():
    at = Location.at("-", 4, 10)
    assert str(error(ValueError, "no such op", location=at, help="register it")).splitlines() == [
        "no such op", " --> -:4:11", "  = help: register it"]
    labelled = error(ValueError, "no such op", location=at, label="the op")
    assert " |           ^ the op" in str(labelled)


def test_fail_raises_the_class_it_is_given():
    with pytest.raises(KeyError) as caught:
        fail(KeyError, "no such thing")
    assert caught.value.diagnostic.message == "no such thing"
