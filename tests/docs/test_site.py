"""The site: every public name has its place in the reference, and every link leads to a page."""
from __future__ import annotations

import inspect
import posixpath
import re
import xml.etree.ElementTree

import pytest

import shardtrace as st
from shardtrace.ir.ops.dialect import OPS
from shardtrace.sharding import AbstractMesh, AxisType, NamedSharding, reshard
from shardtrace.sharding import PartitionSpec as P

from ..paths import DOCS, module_of_site


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return module_of_site("build").pages()


def test_every_public_name_is_described(pages):
    reference = module_of_site("reference")
    for module in reference.public_modules():
        page = pages[f"reference/api/{module}.md"]
        told = dict(re.findall(r"^## `(\w+)`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
        for name, _ in reference.public_names(module):
            assert len(told[name].strip()) >= 15, f"{module}.{name}: {told[name]!r}"


def test_every_op_is_described_with_its_rule(pages):
    sections = dict(re.findall(r"^## `([^`]*)`\n(.*?)(?=^## |\Z)", pages["reference/ops.md"],
                               re.MULTILINE | re.DOTALL))
    assert sections.keys() == OPS.keys()
    assert "`i k, k j -> i j | k:sum`" in sections["dot_general"]
    without = [name for name, text in sections.items() if "factor rule: `" not in text
               and not name.startswith("variadic_")]
    assert len(without) < len(sections) / 5, without


def test_the_start_page_shows_what_the_tutorial_prints():
    tutorial = (DOCS / "tutorial" / "4-collectives.md").read_text().splitlines()
    (shown,) = re.findall(r"(?s)^```text\n(.*?)^```$", (DOCS / "index.md").read_text(),
                          re.MULTILINE)
    assert [line for line in shown.splitlines() if line not in tutorial] == []
    figures = "24.1 us instead of 45.7"
    assert figures in " ".join((DOCS / "index.md").read_text().split())
    assert "45.7 us, then 24.1 us" in tutorial


def test_drawings_are_made_of_what_the_pages_speak_of(pages):
    drawn = {page: re.findall(r"<svg .*?</svg>", text) for page, text in pages.items()}
    for page, pictures in drawn.items():
        assert "<!-- drawing:" not in pages[page]
        for picture in pictures:
            assert xml.etree.ElementTree.fromstring(picture).get("viewBox"), page
    assert len(drawn["architecture.md"]) == 2
    for page in (DOCS / "explanation").glob("*.md"):
        assert drawn[f"explanation/{page.name}"], page.name


def test_a_drawing_of_an_exchange_shows_what_each_device_holds():
    drawings = module_of_site("drawings")
    mesh = AbstractMesh((4,), ("x",), (AxisType.Explicit,))
    sums = st.ShapeDtypeStruct((8, 8), "float32",
                               sharding=NamedSharding(mesh, P(unreduced={"x"})))
    moved = drawings.exchanges(sums, lambda v: reshard(v, NamedSharding(mesh, P("x"))))
    before, after = moved.split("reduce_scatter")
    assert before.count("url(#part)") == 4 and "f32[8,8]{U:x}" in before
    assert "url(#part)" not in after
    heights = re.findall(r"height='([\d.]+)' fill='hsl", moved)
    assert heights == ["64.0"] * 4 + ["16.0"] * 4       # the whole, then a quarter of the rows


def test_links_lead_to_pages(pages):
    for page, text in pages.items():
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)",
                                 re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", text)):
            there = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            assert there in pages, f"{page} links to {target}"


def test_menu_has_every_page(pages):
    listed = {"index.md"}
    for page, text in pages.items():
        for menu in re.findall(r"^```\{toctree\}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            for name in re.findall(r"^(?:.*<)?([\w/.-]+)>?$", menu, re.MULTILINE):
                listed.add(posixpath.join(posixpath.dirname(page), f"{name}.md"))
    assert listed == pages.keys()


@pytest.mark.parametrize("docstring,markdown", [
    ("One line_ of *text*.", r"One line\_ of \*text\*."),
    ("Does it.\n\nx: what goes in,\n  in two lines. y: more.\nz: another.",
     "Does it.\n\n- **x**: what goes in, in two lines. y: more.\n- **z**: another."),
    ("Fails::\n\n    a + b\n\n    c", "Fails:\n\n```text\na + b\n\nc\n```"),
    ("Adds.\n\n>>> 1 + 1\n2\n>>> 2", "Adds.\n\n```pycon\n>>> 1 + 1\n2\n>>> 2\n```"),
    ("Rows:\n  a  first\n  b  second", "Rows:\n\n```text\na  first\nb  second\n```"),
])
def test_docstrings_as_markdown(docstring, markdown):
    assert module_of_site("docstrings").as_markdown(docstring) == markdown


def test_signatures_are_readable():
    called = module_of_site("docstrings").called

    def f(x: int, dtype=float, *, flag: str | None = None) -> list[int]:
        return [x]

    assert called("f", f) == "f(x: int, dtype=float, *, flag: str | None = None) -> list[int]"
    assert inspect.signature(f).parameters["flag"].default is None


def test_what_differs_from_jax_stands_beside_the_name(pages):
    page = pages["reference/api/shardtrace.numpy.md"]
    section = page.partition("\n## `interp`\n")[2].partition("\n## ")[0]
    assert "**Otherwise than in JAX.**" in section and "numpy's meaning" not in section
    assert len(module_of_site("reference").differences()) > 80
