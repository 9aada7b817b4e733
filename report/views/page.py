"""An explanation as one self-contained page of HTML: no network, no server, no library."""
from __future__ import annotations

import base64
import functools
import gzip
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...ir.support.lazy import lazy_import

_html = lazy_import("html")
_HERE = Path(__file__).parent
_SCRIPTS = ("page.js", "selection.js", "graph.js", "charts.js")
_PACKED = 200_000        # characters from which data is compressed
_TABS = ("lines", "collectives", "graph", "time", "memory")


def page_of(views: Sequence[dict[str, Any]], title: str, text: str = "") -> str:
    """The page for explanations as data (`view_data`). text: shown to readers without scripts."""
    style, script = _parts()
    tabs = "".join(f'<button role="tab" id="tab-{name}" aria-controls="{name}">{name}</button>'
                   for name in _TABS)
    padded = "".join(f'<section id="{name}" role="tabpanel" class="padded" hidden></section>'
                     for name in _TABS[1:])
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy"
 content="default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'">
<title>{_html.escape(title)}</title>
<style>{style}</style>
<header>
<h1>{_html.escape(title)}</h1><select id="view" aria-label="program" hidden></select>
<span id="about"></span><span class="grow"></span>
<button id="theme" aria-label="light or dark">◐</button>
<dl class="totals" id="totals"></dl>
</header>
<nav role="tablist" id="tabs">{tabs}</nav>
<main>
<section id="lines" role="tabpanel">
<div class="pane"><div class="bar"><select id="file" aria-label="file"></select></div>
<div class="list" id="source" aria-label="source"></div></div>
<div class="pane"><div class="bar"><select id="stage" aria-label="stage"></select>
<label><input type="checkbox" id="differences"> what the stage changed</label></div>
<div class="list" id="program" aria-label="program"></div></div>
</section>{padded}
<aside id="detail" aria-live="polite"></aside>
</main>
<noscript><pre>{_html.escape(text)}</pre></noscript>
{_data(views)}
<script>{script}</script>
</html>
"""


@functools.cache
def _parts() -> tuple[str, str]:
    """The style and the script."""
    return (_HERE.joinpath("page.css").read_text(encoding="utf-8"),
            "\n".join(_HERE.joinpath(name).read_text(encoding="utf-8") for name in _SCRIPTS))


def _data(views: Sequence[dict[str, Any]]) -> str:
    text = json.dumps(_finite([_plain(v) for v in views]), separators=(",", ":"), allow_nan=False)
    if len(text) < _PACKED:
        text = text.replace("<", "\\u003c")     # the same to JSON, and no end of the element
        return f'<script type="application/json" id="data">{text}</script>'
    packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode("ascii")
    return f'<script type="text/plain" id="data">{packed}</script>'


def _plain(view: dict[str, Any]) -> dict[str, Any]:
    """The data for a page, without paths of the machine that made it."""
    causes = [{**c, "groups": [{**g, "fixes": g["fixes"] and [
        {**f, "edits": []} for f in g["fixes"]]} for g in c["groups"]]} for c in view["causes"]]
    return {**view, "causes": causes, "files": [{**f, "path": f["name"]} for f in view["files"]]}


def _finite(value: Any) -> Any:
    """The data without numbers that JSON cannot express."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value
