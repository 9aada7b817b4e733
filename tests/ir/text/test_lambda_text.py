"""Programs in JAX's notation are laid out as JAX lays them out."""
import textwrap

import numpy as np
import pytest

import shardtrace as st
import shardtrace.numpy as jnp
from shardtrace import lax
from shardtrace.sharding import AxisType
from shardtrace.sharding import PartitionSpec as P

X = np.ones((4, 4), np.float32)
inner = st.jit(lambda x: x + 1.0)


@st.jit
def square(x):
    return x**2


@st.jit
def outer(x):
    return square(x) + square(x)


@st.jit
def long(y):
    for _ in range(11):
        y = y + 1
    return y


def scaled(x, y):
    by_y = st.jit(lambda v: v * y)

    @st.jit
    def a(v):
        return v + 1.0

    return by_y(x) + by_y(a(a(y)))


CASES = {
    "calls alike": (scaled, (X[0], X[0]), """
        let lambda = { lambda ; b:f32[4] c:f32[4]. let d:f32[4] = mul c b in (d,) } in
        let a = { lambda ; e:f32[4]. let f:f32[4] = add e 1.0:f32[] in (f,) } in
        { lambda ; g:f32[4] h:f32[4]. let
            i:f32[4] = jit[name=<lambda> jaxpr=lambda] h g
            j:f32[4] = jit[name=a jaxpr=a] h
            k:f32[4] = jit[name=a jaxpr=a] j
            l:f32[4] = jit[name=<lambda> jaxpr=lambda] h k
            m:f32[4] = add i l
          in (m,) }
    """),
    "one line": (jnp.sin, (X,), """
        { lambda ; a:f32[4,4]. let b:f32[4,4] = sin a in (b,) }
    """),
    "nothing": (lambda x: (x, 1.0), (X,), """
        { lambda ; a:f32[4,4]. let  in (a, 1.0:f32[]) }
    """),
    "product": (lambda x: x @ x + 1, (X,), """
        { lambda ; a:f32[4,4]. let
            b:f32[4,4] = dot_general[
              dimension_numbers=(([1], [0]), ([], []))
              preferred_element_type=float32
            ] a a
            c:f32[4,4] = add b 1.0:f32[]
          in (c,) }
    """),
    "scan": (lambda x: lax.scan(lambda c, t: (c + t, c * 2.), x[0], x), (X,), """
        { lambda ; a:f32[4,4]. let
            b:f32[1,4] = slice[limit_indices=(1, 4) start_indices=(0, 0) strides=None] a
            c:f32[4] = squeeze[dimensions=(0,)] b
            d:f32[4] e:f32[4,4] = scan[
              jaxpr={ lambda ; f:f32[4] g:f32[4]. let
                  h:f32[4] = add f g
                  i:f32[4] = mul f 2.0:f32[]
                in (h, i) }
              length=4
              num_carry=1
              num_consts=0
              reverse=False
              unroll=1
            ] c a
          in (d, e) }
    """),
    "cond": (lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.cos, x), (X,), """
        { lambda ; a:f32[4,4]. let
            b:f32[1,1] = slice[limit_indices=(1, 1) start_indices=(0, 0) strides=None] a
            c:f32[] = squeeze[dimensions=(0, 1)] b
            d:bool[] = gt c 0.0:f32[]
            e:i32[] = convert_element_type[new_dtype=int32 weak_type=False] d
            f:f32[4,4] = cond[
              branches=(
                { lambda ; g:f32[4,4]. let h:f32[4,4] = cos g in (h,) }
                { lambda ; i:f32[4,4]. let j:f32[4,4] = sin i in (j,) }
              )
            ] e a
          in (f,) }
    """),
    "a constant": (lambda x: x + X, (X,), """
        { lambda a:f32[4,4]; b:f32[4,4]. let c:f32[4,4] = add b a in (c,) }
    """),
    "one call": (lambda x: inner(x), (X,), """
        { lambda ; a:f32[4,4]. let
            b:f32[4,4] = jit[
              name=<lambda>
              jaxpr={ lambda ; a:f32[4,4]. let b:f32[4,4] = add a 1.0:f32[] in (b,) }
            ] a
          in (b,) }
    """),
    "shared calls": (lambda x: outer(x) + outer(x), (X[0],), """
        let outer = { lambda ; a:f32[4]. let
            b:f32[4] = jit[name=square jaxpr=square] a
            c:f32[4] = jit[name=square jaxpr=square] a
            d:f32[4] = add b c
          in (d,) } in
        let square = { lambda ; e:f32[4]. let f:f32[4] = integer_pow[y=2] e in (f,) } in
        { lambda ; g:f32[4]. let
            h:f32[4] = jit[name=outer jaxpr=outer] g
            i:f32[4] = jit[name=outer jaxpr=outer] g
            j:f32[4] = add h i
          in (j,) }
    """),
    "two types": (lambda x, y: square(x) * square(x) + square(y) * square(y), (X[0, :1], X[0, :2]),
                  """
        let square = { lambda ; a:f32[1]. let b:f32[1] = integer_pow[y=2] a in (b,) } in
        let square1 = { lambda ; c:f32[2]. let d:f32[2] = integer_pow[y=2] c in (d,) } in
        { lambda ; e:f32[1] f:f32[2]. let
            g:f32[1] = jit[name=square jaxpr=square] e
            h:f32[1] = jit[name=square jaxpr=square] e
            i:f32[1] = mul g h
            j:f32[2] = jit[name=square jaxpr=square1] f
            k:f32[2] = jit[name=square jaxpr=square1] f
            l:f32[2] = mul j k
            m:f32[2] = add i l
          in (m,) }
    """),
    "an argument twice": (lambda x: st.jit(lambda x, y: x * y)(x, x), (X[0],), """
        { lambda ; a:f32[4]. let
            b:f32[4] = jit[
              name=<lambda>
              jaxpr={ lambda ; a:f32[4] c:f32[4]. let b:f32[4] = mul a c in (b,) }
            ] a a
          in (b,) }
    """),
}


@pytest.mark.parametrize("case", CASES)
def test_jaxprs_are_laid_out_as_jax_lays_them_out(case):
    f, args, text = CASES[case]
    assert st.make_jaxpr(f)(*args).pretty_print(use_color=False) == textwrap.dedent(text).strip()


def test_long_functions_stand_in_front():
    text = st.make_jaxpr(lambda x: long(x))(X).pretty_print()
    assert text.startswith("let long = { lambda ; a:f32[4,4]. let\n"
                           "    b:f32[4,4] = add a 1.0:f32[]")
    assert text.endswith(
        "\n{ lambda ; m:f32[4,4]. let n:f32[4,4] = jit[name=long jaxpr=long] m in (n,) }")


def test_types_show_shardings_or_nothing():
    mesh = st.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    with st.set_mesh(mesh):
        program = st.make_jaxpr(jnp.sin)(st.reshard(X, P("x")))
    assert "a:f32[4@x,4]" in program.pretty_print()
    assert program.pretty_print(print_shapes=False) == "{ lambda ; a. let b = sin a in (b,) }"
    assert "test_lambda_text.py" in st.make_jaxpr(lambda x: jnp.sin(x))(X).pretty_print(
        source_info=True)


@pytest.mark.parametrize("case", CASES)
def test_jax_prints_the_same(case):
    jax = pytest.importorskip("jax")
    if case in ("nothing", "an argument twice", "one call", "shared calls", "two types", "scan",
                "cond", "calls alike"):
        pytest.skip("the function calls this library")
    f, args, text = CASES[case]
    f = {"one line": jax.numpy.sin}.get(case, f)
    assert jax.make_jaxpr(f)(*args).pretty_print(use_color=False) == textwrap.dedent(text).strip()


def _with_rules(lib, kind):
    """A function with rules of its own, by JAX or here."""
    def f_jvp(primals, tangents):
        return f(*primals), tangents[0]

    def f_fwd(x):
        return f(x), ()

    def f_bwd(_, ct):
        return (ct,)

    def f(x):
        return x + 1.0

    f = getattr(lib, kind)(f)
    f.defjvp(f_jvp) if kind == "custom_jvp" else f.defvjp(f_fwd, f_bwd)
    return lib.vmap(f)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_rules_of_users_are_shown_by_name(kind):
    jax = pytest.importorskip("jax")
    ours, theirs = (lib.make_jaxpr(_with_rules(lib, kind))(X).pretty_print(use_color=False)
                    for lib in (st, jax))
    assert ours == theirs
    assert "=f_" in ours
