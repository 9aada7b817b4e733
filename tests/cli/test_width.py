"""No line of any command is wider than the terminal; files do not depend on it.

Words that cannot be broken, such as a long path, may stand out: a line is too long if it could
have been broken at a blank.
"""
import re

import pytest

from shardtrace.cli.main import main
from shardtrace.ir.fingerprint import programs_equal
from shardtrace.ir.source.prose import plain_table, wrapped
from shardtrace.ir.text.parse import load_program, parse_program

TEN_LINES = """
x, w = put((8, 16), "X", "Y"), put((16, 32), "Y", None)


@st.jit
def layer(x, w):
    return jnp.tanh(x @ w)


layer(x, w)
"""
TRANSFORMER = """
import shardtrace
WIDTH = 32
params = {"token_embedding": put((64, WIDTH), None, "Y"), "blocks": [
    {"attention": {name: put((WIDTH, WIDTH), None, "Y") for name in ("query", "key", "value")},
     "output_projection": put((WIDTH, WIDTH), "Y", None),
     "feed_forward": {"up": put((WIDTH, 4 * WIDTH), None, "Y"),
                      "down": put((4 * WIDTH, WIDTH), "Y", None)}} for _ in range(2)]}
tokens = st.device_put(np.zeros((4, 8), np.int32), NamedSharding(mesh, P("X", None)))


def loss(params, tokens):
    h = params["token_embedding"][tokens]
    for block in params["blocks"]:
        weights = block["attention"]
        query, key, value = (jnp.einsum("btd,de->bte", h, weights[name]) for name in weights)
        scores = shardtrace.nn.softmax(jnp.einsum("bqd,bkd->bqk", query, key))
        h = h + jnp.einsum("bqk,bkd->bqd", scores, value) @ block["output_projection"]
        h = h + shardtrace.nn.relu(h @ block["feed_forward"]["up"]) @ block["feed_forward"]["down"]
    return shardtrace.nn.logsumexp(h @ params["token_embedding"].T).mean()


@st.jit
def train_step_of_a_transformer(params, tokens):
    value, gradients = st.value_and_grad(loss)(params, tokens)
    return value, st.tree.map(lambda p, g: p - 0.001 * g, params, gradients)


train_step_of_a_transformer(params, tokens)
"""
EXPERTS = """
tokens, router = put((64, 16), ("X", "Y"), None), put((16, 8))
up, down = put((8, 16, 32), "Y", None, None), put((8, 32, 16), "Y", None, None)


@st.jit
def experts(tokens, router, up, down):
    chosen = st.nn.one_hot(jnp.argmax(tokens @ router, -1), 8)
    sent = jnp.einsum("te,td->etd", chosen, tokens)
    hidden = st.nn.relu(jnp.einsum("etd,edf->etf", sent, up))
    return jnp.einsum("te,etf,efd->td", chosen, hidden, down)


experts(tokens, router, up, down)
"""
PIPELINE = """
stages, batch = put((2, 16, 16), "X", None, None), put((4, 8, 16))


@st.jit
def pipeline(stages, batch):
    def body(weights, batch):
        def step(carry, x):
            held = jnp.where(st.lax.axis_index("X") == 0, x, carry)
            out = jnp.tanh(held @ weights[0])
            return st.lax.ppermute(out, "X", [(0, 1), (1, 0)]), out
        first = st.lax.pcast(jnp.zeros_like(batch[0]), ("X",), to="varying")
        return st.lax.scan(step, first, batch)[1][None]
    return st.shard_map(body, mesh=mesh, in_specs=(P("X"), P()), out_specs=P("X"))(stages, batch)


pipeline(stages, batch)
"""
LOOP = """
w, x = put((12, 32, 32), None, None, "Y"), put((8, 32), "X", None)


@st.jit
def layers(w, x):
    return st.lax.scan(lambda x, w: (jnp.tanh(x @ w), x.sum()), x, w)


layers(w, x)
"""
LITERALS = """
table = np.arange(60, dtype=np.float32).reshape(6, 10)


@st.jit
def looked_up(x):
    rows = jnp.concatenate([x[i:i + 1] * i for i in range(16)])
    return rows + table.sum(), table[:, :4] * rows[:6, :4]


looked_up(put((16, 8), "X", None))
"""
PROGRAMS = {"ten_lines": TEN_LINES, "transformer": TRANSFORMER, "experts": EXPERTS,
            "pipeline": PIPELINE, "loop": LOOP, "literals": LITERALS}
COMMANDS = {
    "explain": ("explain", "--suggest", 0), "table": ("explain", "--table", "--suggest", 0),
    "trace": ("trace",), "brief": ("trace", "--brief"), "partition": ("partition",),
    "show": ("show",), "collectives": ("collectives",), "check": ("check", "--warnings"),
    "run": ("run",), "values": ("run", "--values", "--most", 20), "profile": ("run", "--profile")}


def too_wide(text, width):
    """The lines that are too wide though they could have been broken."""
    return [line for line in text.split("\n") if len(line) > width
            and len(line.split()) > 1 and not re.match(r'file \S+ = "', line)]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_wider_than_the_terminal(name, command, write, said, monkeypatch):
    path = write(PROGRAMS[name])
    verb, *options = COMMANDS[command]
    for width in (80, 100, 160) if name == "ten_lines" else (80,):
        monkeypatch.setenv("COLUMNS", str(width))
        _, out, err = said(verb, path, *options, "--no-progress", columns=None)
        assert out.strip()
        assert not too_wide(out + err, width)


@pytest.mark.parametrize("name", PROGRAMS)
def test_differences_causes_and_reductions_fit_the_terminal(name, write, said, monkeypatch):
    path = write(PROGRAMS[name])
    other = path.with_name("other.py")
    one = PROGRAMS[name]
    other.write_text(path.read_text().replace(one, one.replace('"Y"', '"X"', 1)))
    value = "params.token_embedding" if name == "transformer" else "result"
    for arguments in (("diff", path, other), ("why", path, value),
                      ("reduce", path, "--collective", "all-reduce", "--most", 60)):
        monkeypatch.setenv("COLUMNS", "80")
        _, out, err = said(*arguments, "--no-progress", columns=None)
        assert (out + err).strip()
        assert not too_wide(out + err, 80), arguments


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("arguments", [(), ("explain",), ("check",), ("run",), ("diff",)])
def test_help_and_wrong_use_fit_the_terminal(arguments, width, monkeypatch, capsys):
    for words in ((*arguments, "--help"), (*arguments, "--no-such-option", "x", "y", "z")):
        monkeypatch.setenv("COLUMNS", str(width))
        main(list(words))
        printed = "".join(capsys.readouterr())
        assert not [line for line in too_wide(printed, width) if "{" not in line], words


def test_eighty_columns_where_there_is_no_terminal_and_as_many_as_are_asked_for(
        write, said, monkeypatch):
    path = write(EXPERTS)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert not too_wide(said("explain", path, columns=None)[1], 80)
    text = said("explain", path, "--width", 140, columns=None)[1]
    assert 100 < max(map(len, text.split("\n"))) <= 140


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_printed_for_a_width_is_the_program(name, write, said, tmp_path, monkeypatch):
    path = write(PROGRAMS[name])
    texts = []
    for width in (60, 80, 160):
        monkeypatch.setenv("COLUMNS", str(width))
        for verb in ("trace", "partition"):
            file = tmp_path / f"{verb}{width}.st"
            assert said(verb, path, "-o", file, columns=None)[0] == 0
            printed = said(verb, path, columns=None)[1]
            if verb == "trace":
                texts.append(file.read_text())
            if "sha256" not in printed:
                assert programs_equal(parse_program(printed), load_program(file))
    assert len(set(texts)) == 1                      # files know nothing of the terminal


def test_a_source_line_that_is_too_long_is_shown_about_its_caret():
    code = "x = " + "f(" * 40 + "here" + ")" * 40
    caret = " " * code.index("here") + "^^^^"
    shown = wrapped(f"   7 | {code}\n     | {caret}", 60).split("\n")
    assert max(map(len, shown)) <= 60
    at = shown[1].index("^")
    assert shown[0][at:at + 4] == "here" and shown[0].startswith("   7 | …")


def test_what_is_said_of_a_caret_goes_below_it_where_there_is_no_room():
    code = "y = here(x)"
    shown = wrapped(f"   7 | {code}\n     |     ^^^^ f32[8,16] is split over 'model' there", 40)
    assert shown.split("\n") == [
        "   7 | y = here(x)", "     |     ^^^^", "     | f32[8,16] is split over 'model'",
        "     | there"]


def test_a_table_without_room_drops_what_matters_least():
    rows = [("time", "share", "op"), ("1 us", "100%", "dot_general")]
    assert plain_table(rows, 80, drop=(1,)).split("\n")[1] == "1 us  100%   dot_general"
    assert plain_table(rows, 20, drop=(1,)).split("\n")[1] == "1 us  dot_general"
