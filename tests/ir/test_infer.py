"""Inferred results equal torch's: dtype, sizes, strides and offset, for op_db's samples in several layouts."""

import collections
import itertools
import pathlib
import random
import subprocess
import sys

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import graphs

MGOPT = pathlib.Path(__file__).resolve().parents[2] / "build" / "mgopt"
DTYPES = [torch.float32, torch.int64]
SAMPLES = 4
AT_MOST = "mismatch: aten::_ctc_loss.Tensor: result 1 "  # as wide as the longest length, which is data: inferred is what there is room for


def plain(t, rng):
    return t


def permuted(t, rng):
    """The same values with dimensions in another order in memory."""
    order = list(range(t.dim()))
    rng.shuffle(order)
    inverse = [order.index(i) for i in range(t.dim())]
    return t.permute(order).contiguous().permute(inverse)


def gappy(t, rng):
    """The same values in every second place of a larger tensor."""
    if not t.dim():
        return t
    size = list(t.shape)
    dim = rng.randrange(t.dim())
    size[dim] *= 2
    return t.new_zeros(size).slice(dim, 0, None, 2).copy_(t)


def last(t, rng):
    return t.contiguous(memory_format=torch.channels_last) if t.dim() == 4 else t


def spread(t, rng):
    """Expanded along a dimension of size one."""
    ones = [i for i, n in enumerate(t.shape) if n == 1]
    if not ones:
        return t
    return t.expand([3 if i == ones[0] else n for i, n in enumerate(t.shape)])


LAYOUTS = [plain, permuted, gappy, last, spread]


def check(lines):
    """mgopt's messages about the ops recorded so far."""
    return subprocess.run([MGOPT, "-q", "-infer"], input=lines, capture_output=True, text=True)


def record(op, dtype, layouts):
    """One text with every sample in every layout; samples that raise in a layout are left out."""
    rec = graphs.Recorder()
    for layout in layouts:
        try:
            samples = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=False), SAMPLES))
        except Exception:
            continue
        rng = random.Random(0)
        # A tensor that stands for what is written or for random state must keep its own layout.
        move = lambda t: layout(t, rng) if isinstance(t, torch.Tensor) and t.layout == torch.strided else t
        for s in samples:
            before = len(rec.lines)
            try:
                args, kwargs = pytree.tree_map(move, (s.args, s.kwargs))
                given = pytree.tree_map(move, s.input)
                with torch.no_grad(), rec:
                    op(given, *args, **kwargs)
            except Exception:
                del rec.lines[before:]
    return "\n".join(rec.externs + rec.head + rec.lines) + "\nreturn\n"


def messages(op, layouts=LAYOUTS, dtypes=DTYPES):
    found = collections.Counter()
    for dtype in dtypes:
        if dtype not in op.dtypes:
            continue
        text = record(op, dtype, layouts)  # one run of mgopt: to start one costs more than to infer
        if not text.count("="):
            continue
        for line in check(text).stderr.splitlines():
            found[line] += 1
    return found


def one_in_four(ops):
    """All of them; `make check` runs one in four."""
    return [pytest.param(o, marks=[pytest.mark.sweep] if i % 4 else []) for i, o in enumerate(ops)]


@pytest.mark.parametrize("op", one_in_four(op_db), ids=lambda o: o.name + o.variant_test_name)
def test_op(op):
    torch.manual_seed(0)
    found = messages(op, dtypes=DTYPES[:1], layouts=[plain, permuted])  # the script below tries every layout
    wrong = [m for m in found if not m.startswith(("unsupported", AT_MOST))]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("train", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", graphs.MODELS)
def test_model(name, train):
    text, _ = graphs.model_text(name, train)
    run = check(text)
    wrong = [m for m in run.stderr.splitlines() if not m.startswith("unsupported")]
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    for o in op_db:
        if len(sys.argv) > 1 and o.name not in sys.argv[1:]:
            continue
        torch.manual_seed(0)
        for message, n in messages(o).items():
            print(n, o.name, message, flush=True)
