"""The page of an explanation: it needs nothing from elsewhere, and works in Chromium."""
from __future__ import annotations

import base64
import gzip
import json
import re
from html.parser import HTMLParser

import pytest

import shardtrace as st
from shardtrace.report.views.page import page_of

from .browser import CHROMIUM, browser
from .programs import CASES, explained, struct

TABS = ("lines", "collectives", "graph", "time", "memory")


class Parsed(HTMLParser):
    """ids of a page, and the addresses that it would load from."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.ids += [v for k, v in attrs if k == "id"]
        self.addresses += [v for k, v in attrs if k in ("src", "href")]


def held(text):
    kind, data = re.search(r'<script type="([\w/]+)" id="data">(.*?)</script>', text,
                           re.DOTALL).groups()
    if kind == "application/json":
        return json.loads(data)
    return json.loads(gzip.decompress(base64.b64decode(data)))


@pytest.fixture(scope="module")
def pages():
    return {name: explained(name).to_html(suggestions=1) for name in CASES}


def test_it_loads_nothing_and_has_each_id_once(pages) -> None:
    for text in pages.values():
        parsed = Parsed(text)
        assert parsed.addresses == [] and "default-src 'none'" in text
        assert len(parsed.ids) == len(set(parsed.ids)) and set(parsed.ids) >= set(TABS)
        assert not re.search(r"https?://(?!www\.w3\.org/)", text)


def test_it_holds_the_data_however_much_that_is(pages) -> None:
    assert 'type="application/json" id="data"' in pages["ring"]
    many = page_of([explained("unrolled").view(0)] * 6, "many")
    assert 'type="text/plain" id="data"' in many and len(held(many)) == 6
    assert held(pages["two_products"])[0]["collectives"][0]["kind"] == "all-gather"


def test_it_tells_where_files_lie_to_nobody(pages) -> None:
    for text in pages.values():
        assert "/report/views/programs.py" not in json.dumps(held(text))


def test_what_a_program_is_called_is_no_markup() -> None:
    def f(x):
        return x.sum(0)
    f.__name__ = "</script><img src=x>"
    text = st.explain(f, "v5p")(struct((64, 64), "data")).to_html()
    assert Parsed(text).addresses == [] and "<img" not in text


needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium")


@needs_chromium
@pytest.mark.parametrize("width, dark", [(1280, False), (390, True)])
def test_every_part_shows_what_it_is_for(pages, tmp_path, width, dark) -> None:
    path = tmp_path / "page.html"
    with browser() as page:
        for name, text in pages.items():
            path.write_text(text)
            page.show(path, width=width, dark=dark)
            count = page.value("view.collectives.length")
            for tab in TABS:
                page.value(f"document.getElementById('tab-{tab}').click()")
                shown = page.value("[...document.querySelectorAll('main > section')].filter("
                                   "s => !s.hidden).map(s => s.id).join()")
                assert shown == tab
                # nothing is wider than the window but what scrolls by itself
                assert page.value("document.documentElement.scrollWidth") <= width
            assert page.value("document.querySelectorAll('#collectives .group').length") >= min(
                1, count), name
            assert page.value("document.querySelectorAll('#graph g.node').length") >= 1
            assert page.value("document.querySelectorAll('#time canvas').length") == 1
            assert page.value("document.querySelectorAll('#memory tr').length") >= 1
            assert page.value("new Set([...document.querySelectorAll('#time canvas')].map("
                              "c => c.width)).has(0)") is False
            page._session = None
        assert page.complaints == []


@needs_chromium
def test_a_line_a_value_and_a_stage_are_reached_by_hand_and_by_key(pages, tmp_path) -> None:
    path = tmp_path / "page.html"
    path.write_text(pages["two_products"])
    with browser() as page:
        page.show(path)
        page.value("[...document.querySelectorAll('#source .row')].find("
                   "r => r.textContent.includes('h = jnp.tanh')).click()")
        said = page.value("document.getElementById('detail').textContent")
        assert "h: f32[64@data,256@model]" in said and "computation" in said
        page.value("[...document.querySelectorAll('#detail .link')].find("
                   "b => b.textContent.startsWith('h: ')).click()")
        said = page.value("document.getElementById('detail').textContent")
        assert "argument `w1`" in said and "dot_general" in said
        assert page.value("document.querySelectorAll('#detail .grid span').length") == 32
        page.value("document.getElementById('source').focus()")
        before = page.value("line")
        page.key("ArrowDown", 40)
        assert page.value("line") == before + 1
        assert "all-gather over model" in page.value(
            "document.getElementById('detail').textContent")
        page.value("document.getElementById('tab-lines').focus()")
        page.key("ArrowRight", 39)
        assert page.value("tab") == "collectives"
        page.value("choose('lines'); document.getElementById('differences').click()")
        page.value("document.getElementById('stage').value = 1; "
                   "document.getElementById('stage').onchange({target: {value: 1}})")
        assert page.value("document.querySelectorAll('#program .row.new').length") > 0
        assert page.value("document.querySelectorAll('#program .row.gone').length") > 0
        page.value("document.getElementById('theme').click()")
        assert page.value("document.documentElement.dataset.theme") == "dark"
        assert page.complaints == []


@needs_chromium
def test_of_a_long_program_only_what_is_in_sight_is_drawn(pages, tmp_path) -> None:
    path = tmp_path / "page.html"
    path.write_text(pages["unrolled"])
    with browser() as page:
        page.show(path)
        assert page.value("rows.length") > 240
        assert page.value("document.querySelectorAll('#program .row').length") < 80
        page.value("choose('graph')")
        folded = page.value("drawn.nodes.length")
        assert folded < 40
        page.value("document.querySelector('#graph g.fold').dispatchEvent(new Event('click'))")
        assert page.value("drawn.nodes.length") > folded
        page.value("unfoldAll()")
        assert page.value("drawn.nodes.length") > 240
        assert page.value("document.querySelectorAll('#graph g.node').length") < 60
        assert page.complaints == []
