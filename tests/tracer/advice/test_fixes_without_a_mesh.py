"""Fixes of sharding errors where no mesh is set work as printed: written into the file and run."""
import re

import pytest

HEADER = """\
import shardtrace as st
{imports}
mesh = st.make_mesh((2, 4), ("x", "y"), axis_types=(st.sharding.AxisType.Explicit,) * 2)


def arrays():
    shape, at = (8, 16), lambda *spec: st.NamedSharding(mesh, st.P(*spec))
    return [st.device_put(np.ones(shape), at(*spec)) for spec in
            (("x", None), (None, "x"), ("y", "x"))]


{alias}
def f(a, b, c):
    {body}
"""
NAMINGS = {
    "names": ("import numpy as np\nimport shardtrace.numpy as jnp\n"
              "from shardtrace.sharding import NamedSharding, PartitionSpec\n"
              "from shardtrace.sharding import reshard", ""),
    "modules": ("import numpy as np\nimport shardtrace.numpy as num", "jnp = num\n"),
    "mesh not in scope": ("import numpy as np\nimport shardtrace.numpy as jnp",
                          "ARRAYS = arrays()\ndel mesh\ntypeof = reshard = None\n"),
    "jit": ("import numpy as np\nimport shardtrace.numpy as jnp", "@st.jit"),
}
BODIES = [
    "return a + b",
    "z = a * b\n    return z",
    "return b @ b.T",
    "return c @ c.T",
    "return b @ c.T + 1",
    "a += b\n    return a",
    "return jnp.einsum('ij,kj->ik', b, c)",
    "return jnp.concatenate([a, b], axis=0)",
    "return jnp.where(a > 0, a, b)",
    "return b.reshape(-1)",
    "return a[:3]",
    "return st.grad(lambda a: jnp.sum(a * b))(a)",
    "return st.lax.scan(lambda s, _: (s + b, None), a, None, length=2)[0]",
]


def run(source, name):
    space = {"__name__": "user"}
    exec(compile(source, name, "exec"), space)
    return space["f"](*(space.get("ARRAYS") or space["arrays"]()))


@pytest.mark.parametrize("naming", NAMINGS)
@pytest.mark.parametrize("body", BODIES)
def test_each_fix_runs_as_printed(tmp_path, naming, body):
    imports, alias = NAMINGS[naming]
    source = HEADER.format(imports=imports, alias=alias, body=body)
    file = tmp_path / "user.py"
    file.write_text(source)
    with pytest.raises(Exception) as caught:
        run(source, str(file))
    diagnostic = caught.value.diagnostic
    assert diagnostic.fixes
    for i, fix in enumerate(diagnostic.fixes):
        run(fix.apply(source), str(tmp_path / f"changed{i}.py"))
    for text in diagnostic.help:            # what is shown is what was tried
        shown = text.split(":\n")[1]
        assert any(fix.text in shown or fix.text in text for fix in diagnostic.fixes)


@pytest.mark.parametrize("body", BODIES)
def test_a_message_shows_no_code_that_was_not_tried(tmp_path, body):
    source = HEADER.format(imports=NAMINGS["names"][0], alias="", body=body)
    with pytest.raises(Exception) as caught:      # no file has the source: nothing can be tried
        run(source, str(tmp_path / "user.py"))
    for text in caught.value.diagnostic.help:
        assert not any("(" in code or "=" in code for code in re.findall("`([^`]*)`", text)), text
