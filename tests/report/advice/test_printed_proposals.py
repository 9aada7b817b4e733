"""What explain proposes, typed into the file, moves as many bytes as it says.

The test reads the printed words and edits the text of the program; it knows nothing of changes.
"""
from __future__ import annotations

import re

import pytest

from ...user_files import user_file, user_module

HEAD = """\
import numpy as np

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import nn
from shardtrace.lax import with_sharding_constraint
from shardtrace.sharding import AxisType, NamedSharding, PartitionSpec as P, reshard

mesh = st.make_mesh((2, 4), ("X", "Y"), axis_types=(AxisType.{kind},) * 2)
st.set_mesh(mesh)


def struct(shape, spec):
    return st.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, spec))


"""
AUTO = {
    "two columns": """
def f(x, w1, w2):
    h = jnp.tanh(x @ w1)
    return h @ w2


x = struct((64, 256), P('X'))
w1 = struct((256, 256), P(None, 'Y'))
w2 = struct((256, 256), P(None, 'Y'))
""",
    "weight by rows": """
def f(x, w):
    return jnp.tanh(x) @ w


x = struct((64, 256), P('X'))
w = struct((256, 512), P('Y'))
""",
    "constraint in the middle": """
def f(x, w):
    h = x @ w
    h = with_sharding_constraint(h, P())
    return jnp.sin(h) @ w.T


x = struct((64, 256), P('X'))
w = struct((256, 512), P())
""",
    "two layouts": """
def f(a, b):
    c = jnp.sin(a)
    return c + b


a = struct((64, 256), P('X'))
b = struct((64, 256), P(None, 'X'))
""",
    "softmax": """
def f(x):
    z = x - jnp.max(x, axis=1, keepdims=True)
    e = jnp.exp(z)
    return e / e.sum(1, keepdims=True)


x = struct((64, 256), P('X', 'Y'))
""",
    "tensor parallel": """
def f(x, w1, w2):
    h = jnp.tanh(x @ w1)
    y = h @ w2
    return y + x


x = struct((64, 256), P('X'))
w1 = struct((256, 512), P(None, 'Y'))
w2 = struct((512, 256), P('Y'))
""",
    "sort": """
def f(x):
    s = jnp.sort(x, axis=1)
    return s * 2


x = struct((64, 256), P('X', 'Y'))
""",
    "dict of weights": """
def f(p, x):
    h = x @ p['w1']
    return h @ p['w2']


w1 = struct((256, 512), P(None, 'Y'))
w2 = struct((512, 256), P(None, 'Y'))
p = {'w1': w1, 'w2': w2}
x = struct((64, 256), P('X'))
""",
    "layers in a list": """
def f(ws, x):
    for w in ws:
        x = x + jnp.tanh(x @ w['up']) @ w['down']
    return x


up = struct((256, 512), P(None, 'Y'))
down = struct((512, 256), P(None, 'Y'))
ws = [{'up': up, 'down': down} for _ in range(3)]
x = struct((64, 256), P('X'))
""",
    "functions made of several ops": """
def f(x, gate, up, down):
    weights = nn.softmax(x @ gate)
    hidden = nn.gelu(jnp.einsum("td,edf->etf", x, up))
    out = jnp.einsum("etf,efd->etd", hidden, down)
    return jnp.einsum("etd,te->td", out, weights)


x = struct((16, 32), P('X'))
gate = struct((32, 4), P())
up = struct((4, 32, 64), P('Y'))
down = struct((4, 64, 32), P('Y'))
""",
    "gradient": """
def f(w1, w2, x):
    def loss(w1, w2):
        h = nn.gelu(x @ w1)
        y = h @ w2
        return jnp.mean((y - x) ** 2)
    g1, g2 = st.grad(loss, (0, 1))(w1, w2)
    return g1.T @ g2.T


w1 = struct((64, 256), P(None, 'Y'))
w2 = struct((256, 64), P('Y'))
x = struct((32, 64), P('X'))
""",
    "batched": """
def f(x, w):
    def row(v):
        h = jnp.tanh(v @ w)
        return nn.softmax(h @ w.T)
    return st.vmap(row)(x)


x = struct((16, 64), P('X'))
w = struct((64, 128), P('X', 'Y'))
""",
    "held whole": """
def f(x, w):
    return x @ w


x = struct((64, 256), P('X'))
w = st.ShapeDtypeStruct((256, 512), np.float32)
""",
    "idle axis": """
def f(x, w):
    return jnp.sin(x) @ w


x = struct((64, 256), P('X'))
w = struct((256, 512), P())
""",
}
EXPLICIT = {
    "contraction": """
def f(x, w):
    h = x @ reshard(w, P(None, 'Y'))
    return jnp.tanh(h)


x = struct((64, 256), P('X'))
w = struct((256, 512), P('Y'))
""",
    "gather in the middle": """
def f(x, w):
    h = jnp.sin(x)
    h = reshard(h, P(None, None))
    return h @ w


x = struct((64, 256), P('X'))
w = struct((256, 64), P(None, 'Y'))
""",
}


def programs():
    for kind, bodies in (("Auto", AUTO), ("Explicit", EXPLICIT)):
        for name, body in bodies.items():
            names = re.search(r"def f\((.*)\):", body)[1]
            yield name, (f"{HEAD.format(kind=kind)}{body.strip()}\nout = None\n"
                         f"explained = st.explain(st.jit(f, out_shardings=out))({names})\n")


PROGRAMS = dict(programs())
SPEC = r"P\((?:[^()]|\([^()]*\))*\)"


def explained(path, source, asked):
    """What is asked of the explanation of a program, under the mesh that the program sets."""
    with user_module(user_file(path, source)) as module:
        return asked(module.explained)


def edited(source, text):
    """The program with one proposal typed in."""
    lines = source.split("\n")

    def on(pattern, new, old=None):
        at = next(i for i, line in enumerate(lines) if re.match(pattern, line))
        assert old is None or old in lines[at], (lines[at], old)
        lines[at] = lines[at].replace(old, new) if old else new

    if match := re.fullmatch(
            rf"pass `(\w+)\[(\d+)\]\['(\w+)'\]` as ({SPEC})(?: instead of {SPEC})?", text):
        layers, i, key, spec = match.groups()                   # of one layer alone
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{layers} = "))
        lines.insert(at + 1, f"{layers}[{i}] = {{**{layers}[{i}], '{key}': "
                             f"struct({key}.shape, {spec})}}")
    elif match := re.fullmatch(
            rf"pass (?:all \d+ )?`(.*?)` as ({SPEC})(?: instead of ({SPEC}))?", text):
        name, new, old = match.groups()
        name = re.sub(r".*\['(\w+)'\]|(\w+)", r"\1\2", name)
        at = next(i for i, line in enumerate(lines) if line.startswith(f"{name} = "))
        if old is None:
            lines[at] = re.sub(r"(?:st\.ShapeDtypeStruct|struct)\((\([^()]*\)).*\)",
                               rf"struct(\1, {new})", lines[at])
        else:
            on(f"{name} = ", new, old)
    elif match := re.fullmatch(rf"(?:ask for|keep) the result as ({SPEC}) (?:in|by) out_shardings"
                               rf"(?: instead of {SPEC})?", text):
        on("out = ", f"out = NamedSharding(mesh, {match[1]})")
    elif match := re.fullmatch(rf"bring `(.*)` to ({SPEC}) after line (\d+), with (\w+)", text):
        name, spec, line, how = match.groups()
        at = int(line) - 1
        indent = lines[at][:len(lines[at]) - len(lines[at].lstrip())]
        if name.isidentifier() and not re.search(rf"\b{name} = ", lines[at]):
            lines[at] = re.sub(rf"\b{name}\b", f"{how}({name}, {spec})", lines[at])
        elif name.isidentifier():
            lines.insert(at + 1, f"{indent}{name} = {how}({name}, {spec})")
        else:
            if name.endswith("(...)"):      # up to where its parentheses close
                start = lines[at].index(name[:-5])
                ends = [i for i in range(start, len(lines[at]) + 1)
                        if "(" in lines[at][start:i]
                        and lines[at][start:i].count("(") == lines[at][start:i].count(")")]
                name = lines[at][start:ends[0]]
            assert name in lines[at]
            lines[at] = lines[at].replace(name, f"{how}({name}, {spec})")
    elif match := re.fullmatch(rf"take out the `(\w+)`(?: to {SPEC})? at line (\d+)", text):
        at = int(match[2]) - 1
        lines[at] = re.sub(rf"{match[1]}\((.*), {SPEC}\)", r"\1", lines[at])
    elif match := re.fullmatch(rf"`(\w+)` at line (\d+) to ({SPEC})(?: instead of {SPEC})?", text):
        at = int(match[2]) - 1
        assert match[1] in lines[at]
        lines[at] = re.sub(rf"({match[1]}\(.*?, ){SPEC}", rf"\g<1>{match[3]}", lines[at])
    else:
        raise AssertionError(f"no way to type in: {text}")
    return "\n".join(lines)


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n not in ("held whole", "idle axis")])
def test_proposals_move_the_bytes_that_they_promise(name, tmp_path):
    source = PROGRAMS[name]
    proposals = explained(tmp_path, source, lambda found: {
        s.text: s for c in found.collectives[:3] for s in c.suggestions[:6]})
    assert proposals
    for text, proposal in proposals.items():
        changed = source
        # the last lines first, so that the numbers of the others hold
        for part in sorted(text.split(", and "), key=lambda t: -int(
                (re.search(r"line (\d+)", t) or [0, 0])[1])):
            changed = edited(changed, part)
        received = explained(tmp_path, changed, lambda found: found.received_bytes)
        assert received == proposal.received_bytes, f"{text}\n{changed}"


@pytest.mark.parametrize("name", ["held whole", "idle axis", "two layouts"])
def test_a_layout_in_a_warning_takes_the_waste_away(name, tmp_path):
    source = PROGRAMS[name]
    def waste(found):
        return found.warnings, found.peak_bytes

    warnings, peak = explained(tmp_path, source, waste)
    proposed = [(w, match[0]) for w in warnings
                if (match := re.search(rf"pass `\w+` as {SPEC}", w.fix))]
    assert proposed
    for warning, text in proposed:
        left, lower = explained(tmp_path, edited(source, text), waste)
        assert warning.text not in [w.text for w in left], text
        assert lower < peak
