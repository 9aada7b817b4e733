"""The language server as an editor sees it: a real client, a real process, files that it has not
seen."""
from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import sys
import textwrap
import time

import pytest

from shardtrace.cli.editor.targets import Names
from shardtrace.cli.editor.worker import answer, answers, learn, look
from shardtrace.cli.isolated import Isolated
from shardtrace.driver.execution.programs import further
from shardtrace.ir.diagnostics.diagnostic import _first_import
from shardtrace.ir.ops.communication.collective_kinds import each_collective
from shardtrace.ir.support.lazy import lazy_import
from shardtrace.ir.text.parse import parse_program

if missing := [name for name in ("pygls", "pytest_lsp") if importlib.util.find_spec(name) is None]:
    pytest.skip(f"without {missing[0]}", allow_module_level=True)
pytest_lsp, lsp = lazy_import("pytest_lsp"), lazy_import("lsprotocol.types")     # 2 s

# Longer than anything takes on a busy machine; what hangs is ended by pytest's own limit.
PATIENCE = 200.0
HEAD = """\
import numpy as np
import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace.sharding import AxisType, AbstractMesh, NamedSharding, PartitionSpec as P

mesh = st.make_mesh((2, 4), ("data", "model"))


def put(shape, *spec):
    return st.device_put(np.ones(shape, np.float32), NamedSharding(mesh, P(*spec)))


"""
LAYER = """\
@st.jit
def layer(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


if __name__ == "__main__":
    layer(put((64, 256), "data"), put((256, 256), None, "model"), put((256, 256), None, "model"))
"""


class Editor:
    """A client with a file open."""

    def __init__(self, client, path) -> None:
        self.client, self.path, self.uri = client, path, path.as_uri()
        self.version = 0
        self.document = lsp.TextDocumentIdentifier(self.uri)

    @property
    def lines(self):
        return self.path.read_text().split("\n")

    def at(self, text, within=""):
        """The position of a text in the first line that has it, or `within`."""
        line = next(i for i, t in enumerate(self.lines) if (within or text) in t)
        return lsp.Position(line, self.lines[line].index(text))

    async def open(self):
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(
            lsp.TextDocumentItem(self.uri, "python", 0, self.path.read_text())))
        await self.looked_at()

    async def looked_at(self):
        await asyncio.wait_for(self.client.wait_for_notification(
            lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS), PATIENCE)
        return list(self.client.diagnostics[self.uri])

    def type(self, text):
        self.version += 1
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(
            lsp.VersionedTextDocumentIdentifier(self.version, self.uri),
            [lsp.TextDocumentContentChangeWholeDocument(text)]))

    async def save(self, text):
        self.type(text)
        self.path.write_text(text)
        self.client.text_document_did_save(lsp.DidSaveTextDocumentParams(self.document))
        return await self.looked_at()

    async def hints(self):
        """By line and column."""
        whole = lsp.Range(lsp.Position(0, 0), lsp.Position(len(self.lines), 0))
        found = await self.client.text_document_inlay_hint_async(
            lsp.InlayHintParams(self.document, whole))
        return {(h.position.line, h.position.character): h.label for h in found}

    async def lenses(self):
        found = await self.client.text_document_code_lens_async(lsp.CodeLensParams(self.document))
        return [(lens.range.start.line, lens.command.title) for lens in found]

    async def hover(self, at):
        found = await self.client.text_document_hover_async(lsp.HoverParams(self.document, at))
        return found.contents.value if found else ""

    async def causes(self, at):
        return await self.client.text_document_definition_async(
            lsp.DefinitionParams(self.document, at))

    async def actions(self, at):
        return await self.client.text_document_code_action_async(lsp.CodeActionParams(
            self.document, lsp.Range(at, at), lsp.CodeActionContext([])))

    def edited(self, action):
        """The text with a code action's edits made."""
        lines = self.lines
        edits = action.edit.changes[self.uri]
        for e in sorted(edits, key=lambda e: -e.range.start.line):
            start, end = e.range.start, e.range.end
            head, tail = lines[start.line][:start.character], lines[end.line][end.character:]
            lines[start.line:end.line + 1] = (head + e.new_text + tail).split("\n")
        return "\n".join(lines)


@contextlib.asynccontextmanager
async def connected(root, options=None):
    """A client of a server of its own."""
    client = pytest_lsp.make_test_lsp_client()
    await client.start_io(sys.executable, "-m", "shardtrace", "lsp")
    try:
        await client.initialize_session(lsp.InitializeParams(
            capabilities=lsp.ClientCapabilities(), root_uri=root.as_uri(),
            initialization_options=options))
        yield client
    finally:
        await client.shutdown_session()
        await client.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """The loop and the client of the server that most sessions are held with, one by one: to start
    a server and its workers takes longer than a session.
    """
    with asyncio.Runner() as runner:
        connection = connected(tmp_path_factory.getbasetemp(), {"seconds": PATIENCE})
        yield runner, runner.run(connection.__aenter__())
        runner.run(connection.__aexit__(None, None, None))


@pytest.fixture
def edit(tmp_path, request):
    """Run a session of an editor on a file of this text. options: those of a server of its own."""
    def run(text, session, options=None):
        path = tmp_path / "train.py"
        path.write_text(text)

        async def edited(client):
            editor = Editor(client, path)
            await editor.open()
            try:
                await session(editor)
            finally:
                client.text_document_did_close(lsp.DidCloseTextDocumentParams(editor.document))

        async def alone():
            async with connected(tmp_path, options) as client:
                await edited(client)

        if options:
            asyncio.run(asyncio.wait_for(alone(), PATIENCE))
        else:
            runner, client = request.getfixturevalue("shared")
            runner.run(asyncio.wait_for(edited(client), PATIENCE))
    return run


def test_types_collectives_reasons_and_causes_stand_at_their_lines(edit) -> None:
    async def session(editor):
        hints = await editor.hints()
        h, x = editor.at("h = jnp"), editor.at("x, w1", "def layer")
        assert hints[h.line, h.character + 1] == ": f32[64@data,256@model]"
        assert hints[x.line, x.character + 1] == ": f32[64@data,256]"
        end = editor.at("return h @ w2").line
        assert await editor.lenses() == [(end, "all-gather model 24.6 kB, 2.14 us")]
        assert "`w1`" in await editor.hover(h) and "on a device `[32, 64]`" in await editor.hover(h)
        product = editor.at("h @ w2")
        said = await editor.hover(product)
        assert "**all-gather over model (4 devices): 24.6 kB" in said
        assert "takes dimension 1" in said
        found = sorted(t.range.start for t in await editor.causes(product))
        assert found == [x, editor.at("w1", "def layer"), editor.at("w2", "def layer")]
        assert list(editor.client.diagnostics[editor.uri]) == []
    edit(HEAD + LAYER, session)


def test_what_was_found_moves_with_its_lines_and_leaves_those_that_change(edit) -> None:
    async def session(editor):
        h = editor.at("h = jnp")
        text = editor.path.read_text()
        editor.type("# a line above\n" + text)
        hints = await editor.hints()
        assert hints[h.line + 1, h.character + 1] == ": f32[64@data,256@model]"
        editor.type(text.replace("h = jnp.tanh(x @ w1)", "h = jnp.cosh(x @ w1)"))
        hints = await editor.hints()
        assert (h.line, h.character + 1) not in hints and hints
        assert await editor.save(text.replace('None, "model"))\n', '"model"))\n')) == []
        assert (await editor.lenses())[0][1].startswith("all-reduce model")
    edit(HEAD + LAYER, session)


def test_an_error_of_sharding_has_its_range_and_fixes_that_work(edit) -> None:
    wrong = textwrap.dedent('''
        explicit = AbstractMesh((2, 4), ("data", "model"), (AxisType.Explicit,) * 2)
        a = st.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(explicit, P("data")))
        b = st.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(explicit, P("model")))


        @st.jit
        def total(a, b):
            return a + b
    ''')

    async def session(editor):
        (problem,) = editor.client.diagnostics[editor.uri]
        start = editor.at("a + b")
        assert problem.range == lsp.Range(start, lsp.Position(start.line, start.character + 5))
        assert problem.severity == lsp.DiagnosticSeverity.Error and "data" in problem.message
        actions = await editor.actions(start)
        assert actions
        for action in actions[:2]:
            changed = editor.edited(action)
            before = editor.path.read_text()
            assert await editor.save(changed) == [], changed
            assert len(await editor.save(before)) == 1
    edit(HEAD + wrong, session)


def test_what_is_wasted_or_cannot_be_parsed_is_told(edit) -> None:
    waste = textwrap.dedent('''
        table = st.ShapeDtypeStruct((64, 64), np.float32)


        @st.jit
        def step(a, table):
            return a @ table, jnp.tanh(table @ table.T)


        a = st.ShapeDtypeStruct((64, 64), np.float32, sharding=NamedSharding(mesh, P("data")))
    ''')

    async def session(editor):
        found = await editor.looked_at()                 # a second time, for what takes longer
        assert {p.severity for p in found} == {lsp.DiagnosticSeverity.Warning}
        assert any(p.code == "redundant-compute" and p.range.start.line == editor.at("tanh").line
                   and "fix: " in p.message for p in found)
        (problem,) = await editor.save(editor.path.read_text().replace("def step(a", "def step(a("))
        assert problem.range.start.line == next(
            i for i, line in enumerate(editor.lines) if "def step" in line)
        assert problem.severity == lsp.DiagnosticSeverity.Error
    edit(HEAD + waste, session)


def test_a_comment_gives_the_types_of_a_call(edit) -> None:
    text = ("# shardtrace: f(f32[128@data,64@model], w=f32[64@model,8])\n"
            "@st.jit\ndef f(x, w):\n    y = x @ w\n    return y\n")

    async def session(editor):
        assert ": f32[128@data,8]" in (await editor.hints()).values()
        assert [title.split(" ")[0] for _, title in await editor.lenses()] == ["all-reduce"]
    edit(HEAD + text, session)


def test_a_file_that_hangs_or_ends_the_process_does_no_harm(edit) -> None:
    async def session(editor):
        text = editor.path.read_text()
        await editor.save(text + "\nimport time\ntime.sleep(3600)\n")
        (problem,) = await editor.save(text + "\nimport os\nos._exit(3)\n")
        assert "status 3" in problem.message
        assert await editor.save(text) == [] and len(await editor.lenses()) == 1
        await editor.save(text + "\nprint('{\"not\": \"an answer\"}')\ninput\n")
        assert len(await editor.lenses()) == 1
    edit(HEAD + LAYER, session, options={"seconds": 2})


def test_advice_that_can_be_written_down_is_an_action(edit) -> None:
    text = textwrap.dedent('''
        ring = AbstractMesh((8,), ("d",))


        def body(x):
            whole = st.lax.all_gather(x, "d", axis=0, tiled=True)
            return x - whole.mean(0)


        f = st.jit(st.shard_map(body, mesh=ring, in_specs=P("d"), out_specs=P("d")))
        f.trace(st.ShapeDtypeStruct((512, 1024), np.float32,
                                    sharding=NamedSharding(ring, P("d"))))
    ''')

    async def session(editor):
        at, actions = editor.at("all_gather("), []
        end = time.monotonic() + PATIENCE
        while not actions and time.monotonic() < end:
            actions = await editor.actions(at)
            await asyncio.sleep(0.2)
        assert "lax.pmean(x.mean(0)" in editor.edited(actions[0])
        assert "less by: " in await editor.hover(at)
    edit(HEAD + text, session)


def test_what_is_called_is_told_while_the_file_runs(edit, tmp_path) -> None:
    seen = tmp_path / "seen"
    waits = f"    while not os.path.exists({str(seen)!r}):\n        time.sleep(0.01)\n"

    async def told(editor, label):
        end = time.monotonic() + PATIENCE
        while label not in (await editor.hints()).values() and time.monotonic() < end:
            await asyncio.sleep(0.02)

    async def session(editor):
        x, double = editor.at("x, w1"), editor.at("y = x")
        wider = editor.path.read_text().replace("put((64, 256)", "put((128, 256)")
        text = wider.replace("    twice(", waits + "    twice(").replace(", 'data'))", "))")
        editor.type(text)
        editor.path.write_text(text)
        editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(editor.document))
        await told(editor, ": f32[128@data,256]")
        hints = await editor.hints()            # and what was known of others stays
        assert hints[x.line, x.character + 1] == ": f32[128@data,256]"
        assert hints[double.line, double.character + 1] == ": f32[64@data,8]"
        seen.touch()
        await editor.looked_at()
        hints = await editor.hints()
        assert hints[x.line, x.character + 1] == ": f32[128@data,256]"
        assert hints[double.line, double.character + 1] == ": f32[64,8]"
    twice = "@st.jit\ndef twice(x):\n    y = x + x\n    return y\n\n\n"
    edit(f"import os\nimport time\n{HEAD}{twice}{LAYER}    twice(put((64, 8), 'data'))\n", session)


def test_a_file_that_is_saved_again_is_not_run_on(edit, tmp_path) -> None:
    running = tmp_path / "running"

    async def session(editor):
        text = editor.path.read_text()
        hangs = f"{text}    open({str(running)!r}, 'w')\n    while True:\n        pass\n"
        for changed in (hangs, text.replace("tanh", "cos")):
            editor.type(changed)
            editor.path.write_text(changed)
            editor.client.text_document_did_save(lsp.DidSaveTextDocumentParams(editor.document))
            while not running.exists():
                await asyncio.sleep(0.02)
        await editor.looked_at()                # long before those seconds are over
        assert "from cos" in await editor.hover(editor.at("jnp.cos"))
    edit(HEAD + LAYER, session, options={"seconds": 10 * PATIENCE})


def test_types_and_collectives_come_before_their_reasons(tmp_path) -> None:
    path = tmp_path / "mlp.py"
    path.write_text(HEAD + LAYER)
    answers = []
    look({"path": str(path), "seconds": PATIENCE}, answers.append)
    running, first, then = answers
    assert running.pop("running") and running == first
    assert first["hints"] == then["hints"] and len(first["hints"]) == 4
    assert first["lenses"] == then["lenses"] and first["lenses"]
    assert not first["causes"] and then["causes"]
    told = ["\n".join(h["text"] for h in found["hovers"]) for found in (first, then)]
    assert all("f32[256,256@model]" in text for text in told)
    assert ["argument `w2`" in text for text in told] == [False, True]


def test_types_of_a_long_function_come_before_its_collectives(tmp_path) -> None:
    path = tmp_path / "mlp.py"
    body = "    h = jnp.tanh(x @ w1)\n"
    assert body in LAYER
    path.write_text(HEAD + LAYER.replace(body, f"{body}    for _ in range(500):\n"
                                         "        h = jnp.tanh(h)\n"))
    answers = []
    look({"path": str(path), "seconds": PATIENCE}, answers.append)
    typed, *planned, first, then = answers
    assert typed["hints"] == first["hints"] and not typed["lenses"]
    assert all(a["lenses"] == first["lenses"] != [] for a in (*planned, then))
    assert all(a["running"] for a in (typed, *planned))


@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")      # of JAX, where a test loaded it
def test_a_file_that_cannot_be_read_is_told(tmp_path) -> None:
    path = tmp_path / "latin.py"
    path.write_bytes(b"# \xe9\n")
    for file, why in ((path, "can't decode byte"), (tmp_path / "gone.py", "No such file")):
        (found,) = answers({"path": str(file), "seconds": PATIENCE}, Isolated(answer), None)
        assert why in found["problems"][0]["message"] and not found["hints"]


def test_programs_that_were_found_are_learned_from_as_text(tmp_path) -> None:
    path = tmp_path / "mlp.py"
    path.write_text(HEAD + LAYER)
    told = []
    answer({"path": str(path), "seconds": PATIENCE}, told.append)
    (text,) = told[-1]["programs"]
    stages = further(parse_program(text))
    assert [c.kind for c in each_collective(stages["optimized"])] == ["all-gather"]
    learn(["no program", text])          # what cannot be learned from is left out


def test_lines_above_the_first_import() -> None:
    text = '"""Doc."""\nfrom __future__ import annotations\n\nimport os\n'
    assert Names(text).first_import == _first_import(text) == 3
