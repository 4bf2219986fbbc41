"""Comparing a compiled function with eager: results, what was printed, what happened to the arguments."""
import contextlib
import io
import types

import torch
from magneto import _magneto


def same(x, y):
    """Equal values of equal types, tensors within tolerance, plain objects by their attributes."""
    if isinstance(x, torch.Tensor):
        return (isinstance(y, torch.Tensor) and type(x) is type(y) and x.shape == y.shape and x.dtype == y.dtype
                and x.stride() == y.stride() and torch.allclose(x, y, atol=1e-6, equal_nan=True))
    if type(x) is not type(y):
        # Classes of two namespaces that were made from the same source.
        if type(x).__qualname__ != type(y).__qualname__:
            return False
    if isinstance(x, types.GeneratorType):
        return x.__qualname__ == y.__qualname__ and same(list(x), list(y))
    if isinstance(x, (list, tuple)):
        return len(x) == len(y) and all(map(same, x, y)) and same(getattr(x, "__dict__", 0), getattr(y, "__dict__", 0))
    if isinstance(x, dict):
        return list(x) == list(y) and all(same(x[k], y[k]) for k in x)
    if hasattr(x, "__dict__") and not isinstance(x, type) and not callable(x):
        return same(x.__dict__, y.__dict__)
    return x == y


def run(f, args, seed=0):
    """(result or exception text, printed text)"""
    torch.manual_seed(seed)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            r = f(*args)
        except Exception as e:
            r = f"{type(e).__name__}: {e}"
    return r, out.getvalue()


@contextlib.contextmanager
def forced_breaks(k, inner=False):
    """A break after every k-th instruction of a frame; inner: after k instructions, when inside of a call."""
    _magneto.force_break(k, inner)
    try:
        yield
    finally:
        _magneto.force_break(0)


def check(f, make_args, calls=3, **options):
    """Calls f eagerly and compiled on equal arguments; returns the counters and segments."""
    _magneto.reset()
    compiled = _magneto.Callable(f, **options)
    for i in range(calls):
        torch.manual_seed(i)
        a = make_args()
        torch.manual_seed(i)
        b = make_args()
        want, want_text = run(f, a, i)
        got, got_text = run(compiled, b, i)
        assert same(want, got), f"call {i}: eager {want!r}, compiled {got!r}"
        assert want_text == got_text
        assert same(list(a), list(b)), f"call {i}: arguments are left as {b!r}, eager {a!r}"
    return _magneto.stats(), sorted((e["unit"], e["end"], e["break"] or "return", e["nodes"]) for e in _magneto.entries())


def graphs_breaks(stats):
    return stats["graphs"], sum(stats["breaks"].values())
