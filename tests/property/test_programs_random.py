"""Random programs give what Python gives: results, changed arguments, globals, printed text; also with forced breaks."""

import contextlib
import io
import os
import warnings

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import generator
import magneto
from magneto import _magneto


def same(a, b):
    if isinstance(a, torch.Tensor):
        return (
            type(a) is type(b)
            and a.shape == b.shape
            and a.dtype == b.dtype
            and torch.allclose(a, b, atol=1e-4, rtol=1e-4, equal_nan=True)
        )
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same([*a.items()], [*b.items()])  # a key may be a tensor
    if hasattr(a, "__dict__") and not isinstance(a, type):
        return same(a.__dict__, b.__dict__)
    return type(a) is type(b) and a == b


def run(f, space, n):
    args = torch.tensor([1.0, -2.0, 0.5]), n, [3, 1, 2], {0: 1, 1: 5}, space["Box"](n + 2)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            r = f(*args)
        except Exception as e:
            chain = type(e.__cause__).__name__, type(e.__context__).__name__
            r = f"{type(e).__name__}: {e}, {chain}"
    return r, list(args), space["COUNT"], out.getvalue()


def check(text, breaks=0, inner=False):
    code = compile(text, "<random program>", "exec")
    a, b = {}, {}
    exec(code, a)
    exec(code, b)
    magneto.reset()
    compiled = magneto.compile(b["f"], options={"recompile_limit": 4})
    _magneto.force_break(breaks, inner)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for n in (1, 2, 1, 4):
                want, got = run(a["f"], a, n), run(compiled, b, n)
                assert same(want, got), f"n = {n}:\neager    {want}\ncompiled {got}\n{text}"
                assert torch.is_grad_enabled()
    finally:
        _magneto.force_break(0)


@settings(
    max_examples=int(os.environ.get("MAGNETO_EXAMPLES", "60")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data(), breaks=st.sampled_from([0, 0, 1, 2, 3, 5]), inner=st.booleans())
def test_random_program(data, breaks, inner):
    numbers = data.draw(st.lists(st.integers(0, 10000), min_size=5, max_size=150))
    left = iter(numbers)
    check(generator.program(lambda k: next(left, 0) % k), 9 * breaks if inner else breaks, inner)
