"""Programs from templates give what Python gives: results and what they do afterwards, arguments, globals, aliasing, exceptions with
their context and the lines of their traceback, printed text; also with forced breaks."""

import collections
import contextlib
import io
import itertools
import os
import sys
import types
import warnings

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magneto
import templates
from magneto import _magneto

FILE = "<program from templates>"


class Description:
    """A value as nested tuples that can be compared; objects that were met before appear by their number."""

    def __init__(self):
        self.seen, self.keep = {}, []

    def of(self, a, depth=0):
        t, name = type(a), type(a).__name__
        if isinstance(a, float):
            return name, round(a, 3)
        if isinstance(a, (int, str, bytes, complex, type(None))):
            return name, a
        if depth > 12:
            return "deep"
        each = lambda items: [self.of(x, depth + 1) for x in items]
        if isinstance(a, tuple):
            return name, each(a)
        if id(a) in self.seen:
            return "again", self.seen[id(a)]
        self.seen[id(a)] = len(self.seen)
        self.keep.append(a)
        if isinstance(a, torch.Tensor):
            values = [None if v != v else float(f"{v:.3g}") for v in a.detach().double().flatten().tolist()]
            return (
                name,
                a.dtype,
                a.shape,
                a.stride(),
                values,
                a.requires_grad,
                each([vars(a), a.grad if a.is_leaf else None]),
            )
        if isinstance(a, (list, collections.deque)):
            return name, each(list(a)[:300]), len(a)
        if isinstance(a, dict):
            return name, each(a.items())
        if isinstance(a, (set, frozenset)):
            return name, sorted(map(str, a))
        if isinstance(a, types.FunctionType):
            cells = [c.cell_contents for c in a.__closure__ or () if c != types.CellType()]
            return name, a.__qualname__, each([a.__defaults__, a.__kwdefaults__, cells, a.__dict__])
        if isinstance(a, types.GeneratorType):
            return name, a.__name__, a.gi_frame and (a.gi_frame.f_lineno, a.gi_frame.f_lasti == -1)
        if isinstance(a, BaseException):
            return name, each(a.args)
        if t is type:
            return name, a.__name__
        state = getattr(a, "__dict__", None)
        return name, self.of(state, depth + 1) if isinstance(state, dict) else None


def exception(e):
    chain, lines, t = [], [], e.__traceback__
    while t:
        if t.tb_frame.f_code.co_filename == FILE:
            lines.append((t.tb_frame.f_code.co_name, t.tb_lineno))
        t = t.tb_next
    while e is not None and len(chain) < 6:
        chain.append(
            (
                type(e).__name__,
                "" if " at 0x" in str(e) else str(e),
                e.__cause__ is not None,
                e.__suppress_context__,
            )
        )
        e = e.__context__
    return chain, lines


def afterwards(results):
    """What the generators and functions among the results do when they are used."""
    out = []
    for g in results:
        try:
            out.append(list(itertools.islice(g, 4)) if hasattr(g, "__next__") else g(2))
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


def run(f, space, n):
    node, x, d, l = space["Node"], torch.tensor([1.0, -2.0, 0.5]), {"a": 1, "b": 5}, [3, 1, 2]
    o = (space["Leaf"] if n == 4 else node)(n + 2, [node(1), space["Leaf"](2)])
    if n == 3:
        o.memo = d
    if n == 1:
        o.log = l
    y, wt = (
        x if n == 2 else torch.tensor([2.0, 3.0, -1.0]),
        torch.tensor([0.5, 2.0, -1.0], requires_grad=True),
    )
    args = [x, y, n, "wa", l, d, o, {1, 2, 5}, (n, 1, 4), wt]
    out, used, d = io.StringIO(), [], Description()
    with contextlib.redirect_stdout(out):
        try:
            r = f(*args)
            used = r[1] if isinstance(r, tuple) and len(r) == 2 and isinstance(r[1], list) else []
        except Exception as e:
            r = exception(e)
        state = [
            d.of(v)
            for v in (r, args, [space[k] for k in ("CALLS", "COUNT", "TABLE")], torch.is_grad_enabled())
        ]
        state.append(Description().of([afterwards(used), args, space["CALLS"]]))
    return state, out.getvalue()


def check(text, breaks=0, inner=False):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            code = compile(text, FILE, "exec")
        except SyntaxError:
            return
        a, b = {"__name__": "program"}, {"__name__": "program"}
        exec(code, a)
        exec(code, b)
        magneto.reset()
        compiled, ignored = magneto.compile(b["f"], options={"recompile_limit": 4}), []
        hook, sys.unraisablehook = sys.unraisablehook, lambda u: ignored.append(str(u.exc_value))
        try:
            for n in (1, 2, 1, 3, 4):
                want = run(a["f"], a, n)
                torch.set_grad_enabled(True)
                _magneto.force_break(breaks, inner)
                got = run(compiled, b, n)
                _magneto.force_break(0)
                assert want == got, (
                    f"n = {n}:\neager    {want}\ncompiled {got}\n{text[len(templates.PRELUDE) :]}"
                )
                assert not ignored
        finally:
            _magneto.force_break(0)
            torch.set_grad_enabled(True)
            sys.unraisablehook = hook


@settings(
    max_examples=int(os.environ.get("MAGNETO_EXAMPLES", "50")),
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    data=st.data(),
    breaks=st.sampled_from(
        [(0, False), (0, False), (1, False), (2, False), (3, False), (9, True), (27, True)]
    ),
)
def test_program_from_templates(data, breaks):
    numbers = iter(data.draw(st.lists(st.integers(0, 10000), min_size=20, max_size=200)))
    budget = 4 + 5 * data.draw(st.integers(0, 2))
    check(templates.program(lambda k: next(numbers, 0) % k, budget), *breaks)
