"""What is wrong with the arguments that a file has for its function is said at their line."""
import pytest

from .conftest import line_of

F = """
@st.jit
def f(a, b):                 # the function
    return a @ b
"""
FITS = 'struct((8, 16), "X")'


@pytest.mark.parametrize("given", [
    "args = struct((7, 16), 'X'), struct((16, 8))                # culprit",
    "args = (                                                    # culprit\n"
    "    struct((7, 16), 'X'),\n    struct((16, 8)))",
    "def example_args():                                         # culprit\n"
    "    return struct((7, 16), 'X'), struct((16, 8))",
    "__shardtrace_args__ = {'f': (struct((7, 16), 'X'), struct((16, 8)))}    # culprit",
    "a, b = struct((7, 16), 'X'), struct((16, 8))\n",
], ids=["args", "several lines", "a function", "declared", "variables"])
@pytest.mark.parametrize("function", ["", ":f"])
def test_a_dimension_that_does_not_divide(write, said, given, function):
    path = write(F + given)
    status, out, err = said("explain", f"{path}{function}")
    line = line_of(path, "# culprit" if "culprit" in given else "# the function")
    assert status == 3 and "dimension 0 of size 7" in out + err
    assert f"model.py:{line}:" in out + err and "conftest.py" not in out + err
    assert "Traced.lower" not in out + err


def test_arguments_on_the_command_line_are_the_functions(write, said):
    path = write(F)
    status, _, err = said("explain", f"{path}:f", "--args", f"({FITS}, object())")
    assert status == 3 and f"model.py:{line_of(path, '# the function')}:5" in err
    assert "^" in err and "conftest.py" not in err


@pytest.mark.parametrize("given, why", [
    (f"args = ({FITS},)", "missing a required argument: 'b'"),
    (f"args = ({FITS}, {FITS}, 3)", "too many positional arguments"),
    (f"args = ({FITS}, object())", "`b` is a `object`"),
    (f"args = ({FITS}, dict(w=[1, 'x']))", "`b['w'][1]` is a `str`"),
    (f"__shardtrace_args__ = dict(f=({FITS}, 'x'))", "`b` is a `str`"),
    ("# shardtrace: f(f32[8@X,16])", "missing a required argument: 'b'"),
])
@pytest.mark.parametrize("function", ["", ":f"])
def test_arguments_that_do_not_fit(write, said, given, why, function):
    path = write(f"{F}\n{given}     # culprit" if given[0] != "#" else f"{F}\n{given}")
    line = line_of(path, "# culprit" if given[0] != "#" else "# shardtrace")
    status, out, err = said("explain", f"{path}{function}")
    assert status == 2 and f"model.py:{line}: " in out + err and why in out + err
