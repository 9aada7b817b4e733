"""docs/cost-model.md states the figures that are used: its tables come from hardware.toml.

`python -m tests.partitioner.cost.test_cost_model_page` writes the tables into the page again.
"""
from __future__ import annotations

import re

from shardtrace.partitioner.cost.hardware import Hardware, hardware, hardware_names

from ...paths import DOCS

PAGE = DOCS / "cost-model.md"
COLUMNS = (("peak.bf16", 1e12), ("memory", 1e9), ("hbm", 1e9), ("link", 1e9),
           ("link_latency", 1e-6), ("network", 1e9), ("network_latency", 1e-6), ("kernel", 1e-6),
           ("slice", 1))


def value(device: Hardware, name: str) -> float:
    return device.peak["bf16"] if name == "peak.bf16" else getattr(device, name)


def tables() -> str:
    sources: dict[str, str] = {}

    def cell(device: Hardware, name: str, scale: float) -> str:
        source = device.sources.get(name)
        if source is None:
            return "-"
        title = f"[{source.title}]({source.url})" if source.url else source.title
        number = sources.setdefault(f"{title}, {source.date}", str(len(sources) + 1))
        return f"{value(device, name) / scale:,.6g} ({number})"

    rows = ["| name | device | bf16 TFLOP/s | memory GB | memory GB/s | link GB/s | us a hop | "
            "network GB/s | us a hop | us a kernel | slice or node |", "|---" * 11 + "|"]
    for key in hardware_names():
        device = hardware(key)
        cells = [f"`{key}`", device.name, *(cell(device, n, s) for n, s in COLUMNS)]
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| device | other rates, TFLOP/s | wiring |", "|---|---|---|"]
    for key in hardware_names():
        device = hardware(key)
        others = ", ".join(f"{k} {v / 1e12:,.6g}" for k, v in device.peak.items() if k != "bf16")
        wiring = f"torus of {device.dims} dimensions" if device.dims else "switch"
        if device.wrap:
            wiring += f", a ring where a dimension is a multiple of {device.wrap}"
        if device.wrap_only:
            wiring += f", a ring where a dimension is {device.wrap_only}"
        rows.append(f"| {device.name} | {others or '-'} | {wiring} |")
    rows += ["", "Sources:", ""]
    rows += [f"{number}. {text}" for text, number in sources.items()]
    return "\n".join(rows)


BLOCK = re.compile(r"(<!-- figures -->\n).*?(<!-- end of figures -->)", re.DOTALL)


def test_the_page_has_the_figures_of_the_file():
    found = BLOCK.search(PAGE.read_text())
    assert found and found.group(0).split("\n", 1)[1].rsplit("\n", 1)[0] == tables()


if __name__ == "__main__":
    text = PAGE.read_text()
    PAGE.write_text(BLOCK.sub(lambda m: m.group(1) + tables() + "\n" + m.group(2), text))
