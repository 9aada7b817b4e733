"""`lsp`: the language server, for editors."""
from __future__ import annotations

import argparse

from ...ir.diagnostics.extras import is_installed
from ...ir.support.lazy import lazy_import
from ..problems import FINE, Problem

_server = lazy_import("..editor.server", __package__)
_worker = lazy_import("..editor.worker", __package__)


def lsp(options: argparse.Namespace) -> int:
    """Serve an editor over standard input and output, until it ends that."""
    if options.worker:
        return _worker.serve()
    if not is_installed("pygls"):
        raise Problem("the language server needs pygls, which is not installed: "
                      "pip install 'shardtrace[lsp]'")
    _server.make_server().start_io()
    return FINE
