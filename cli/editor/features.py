"""What the language server answers: one function for each request and notification of the protocol.

Each takes the server as its first argument; the table below them has their names in the protocol.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp

from .server import Server, Worker, range_of


def initialized(ls: Server, params: lsp.InitializedParams) -> None:
    asyncio.ensure_future(ls.worker.warm())


def initialize(ls: Server, params: lsp.InitializeParams) -> None:
    options = params.initialization_options or {}
    given = options.get if isinstance(options, dict) else lambda name, other=None: getattr(
        options, name, other)
    ls.worker, ls.adviser = (
        Worker(float(given("seconds") or 10.0), given("hardware")) for _ in range(2))


async def shutdown(ls: Server, params: Any) -> None:
    await ls.worker.end()
    await ls.adviser.end()


def opened(ls: Server, params: lsp.DidOpenTextDocumentParams) -> None:
    ls.look(params.text_document.uri)


def saved(ls: Server, params: lsp.DidSaveTextDocumentParams) -> None:
    ls.look(params.text_document.uri)


def closed(ls: Server, params: lsp.DidCloseTextDocumentParams) -> None:
    ls.looked.pop(params.text_document.uri, None)


def hints(ls: Server, params: lsp.InlayHintParams) -> list[lsp.InlayHint]:
    return [lsp.InlayHint(now.start, item["label"], lsp.InlayHintKind.Type)
            for now, item in ls.at(params.text_document.uri, "hints")
            if params.range.start.line <= now.start.line <= params.range.end.line]


def lenses(ls: Server, params: lsp.CodeLensParams) -> list[lsp.CodeLens]:
    return [lsp.CodeLens(now, lsp.Command(title, ""))
            for now, item in ls.at(params.text_document.uri, "lenses")
            for title in item["titles"]]


async def hover(ls: Server, params: lsp.HoverParams) -> lsp.Hover | None:
    """The types at a position, with what is moved on its line and what would avoid that."""
    uri = params.text_document.uri
    await ls.reasons(uri)
    around = _around(ls.at(uri, "hovers"), params.position)
    if not around:
        return None
    texts = [around[0][1]["text"]]
    line = params.position.line
    texts += [item["text"] for now, item in around[1:]
              if now.start.line == line and item["text"].startswith("**")]
    texts += [f"less by: {item['title']} ({item['effect']})"
              for now, item in ls.at(uri, "advice") if now.start.line == line]
    return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, "\n\n".join(texts)),
                     around[0][0])


async def definition(ls: Server, params: lsp.DefinitionParams) -> list[lsp.Location]:
    await ls.reasons(params.text_document.uri)
    around = _around(ls.at(params.text_document.uri, "causes"), params.position)
    return [lsp.Location(Path(t["path"]).as_uri(), range_of(t["range"]))
            for _, item in around[:1] for t in item["targets"]]


def actions(ls: Server, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
    """Fixes of the problems in a range, and the advice for its lines as refactorings."""
    uri, lines = params.text_document.uri, (params.range.start.line, params.range.end.line)
    found = []
    for now, item in ls.at(uri, "problems"):
        if now.start.line <= lines[1] and lines[0] <= now.end.line:
            found += [lsp.CodeAction(fix["title"], lsp.CodeActionKind.QuickFix,
                                     edit=_edit(uri, fix["edits"])) for fix in item["fixes"]]
    for now, item in ls.at(uri, "advice"):
        if item["edits"] and lines[0] <= now.start.line <= lines[1]:
            found.append(lsp.CodeAction(
                f"{item['title']} ({item['effect']})", lsp.CodeActionKind.RefactorRewrite,
                edit=_edit(uri, item["edits"])))
    return found


def _edit(uri: str, edits: list[dict[str, Any]]) -> lsp.WorkspaceEdit:
    return lsp.WorkspaceEdit({uri: [lsp.TextEdit(range_of(e["range"]), e["text"]) for e in edits]})


def _around(found: list[tuple[lsp.Range, dict[str, Any]]], at: lsp.Position
            ) -> list[tuple[lsp.Range, dict[str, Any]]]:
    """What is around a position, the smallest first."""
    here = at.line, at.character
    around = [(now, item) for now, item in found
              if (now.start.line, now.start.character) <= here <= (now.end.line, now.end.character)]
    return sorted(around, key=lambda f: (f[0].end.line - f[0].start.line,
                                         f[0].end.character - f[0].start.character))


# Name in the protocol, function, options.
_FEATURES: tuple[tuple[str, Callable[..., Any], Any], ...] = (
    (lsp.INITIALIZED, initialized, None),
    (lsp.INITIALIZE, initialize, None),
    (lsp.SHUTDOWN, shutdown, None),
    (lsp.TEXT_DOCUMENT_DID_OPEN, opened, None),
    (lsp.TEXT_DOCUMENT_DID_SAVE, saved, None),
    (lsp.TEXT_DOCUMENT_DID_CLOSE, closed, None),
    (lsp.TEXT_DOCUMENT_INLAY_HINT, hints, None),
    (lsp.TEXT_DOCUMENT_CODE_LENS, lenses, None),
    (lsp.TEXT_DOCUMENT_HOVER, hover, None),
    (lsp.TEXT_DOCUMENT_DEFINITION, definition, None),
    (lsp.TEXT_DOCUMENT_CODE_ACTION, actions, lsp.CodeActionOptions(
        [lsp.CodeActionKind.QuickFix, lsp.CodeActionKind.RefactorRewrite])),
)


def make_server() -> Server:
    """The server, with all that it answers."""
    server = Server()
    for name, answer, options in _FEATURES:
        server.feature(name, options)(answer)
    return server
