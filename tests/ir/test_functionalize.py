"""functionalize: the rewritten graph gives what the recorded one gives: values, strides, aliasing, mutated inputs."""
import pathlib
import re
import subprocess
import sys

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
import graphs  # noqa: E402

MGOPT = ROOT / "build" / "mgopt"


def mgopt(text, *passes):
    done = subprocess.run([MGOPT, *passes], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + text
    return done.stdout


def add_inplace(x, y):
    return x.add(1).mul_(y).relu_() + x


def mutate_input(x, y):
    x.add_(y)
    z = x * 2
    x.mul_(3)
    return z


def through_slice(x, y):
    z = x + 1
    z[1:3].mul_(2)
    z[:, 0] = 5.0
    return z, y + z.sum()


def slice_of_input(x, y):
    x[2].copy_(y[1])
    x[:, 1:2].fill_(7)
    return x.sum()


def view_then_base(x, y):
    z = x.clone()
    v = z.view(-1)
    v[3:9].add_(1)
    w = v * 2
    z.add_(1)
    return w, v, z


def transposed(x, y):
    z = x.t().contiguous()
    z.t().add_(y)
    z.transpose(0, 1).select(0, 1).zero_()
    return z


def pieces(x, y):
    z = x + 0
    a, b = z.split([1, 3])
    b.mul_(2)
    for row in z.unbind(0):
        row.add_(1)
    return z, a + 1


def reshaped(x, y):
    z = x * 1
    z.unsqueeze(0).squeeze(0).view(2, 2, 5).permute(2, 0, 1)[1].add_(10)
    return z


def diagonal(x, y):
    z = y + 0
    z.diagonal().fill_(3)
    return z


def detached(x, y):
    z = x * 2
    d = z.detach()
    d.add_(1)
    return z, d


def returns_views(x, y):
    z = x + y
    return z, z[1], z.t(), x.view(-1), y


def same_twice(x, y):
    z = x + y
    return z, z, x


def inplace_result(x, y):
    z = y * 1
    return x.add_(1), z.t_()


def metadata(x, y):
    z = x * 2
    z.unsqueeze_(0)
    z.add_(1)
    z.squeeze_(0).t_()
    return z


def out_variant(x, y):
    z = torch.empty_like(x)
    torch.add(x, y, out=z)
    return z * 2


def strided(x, y):
    z = x + 0
    z.as_strided((2, 3), (5, 2), 1).mul_(4)
    return z


def casting(x, y):
    z = torch.zeros(4, 5, dtype=torch.float16)
    z.add_(x)
    z[1] = y[0]
    i = torch.zeros(4, dtype=torch.int64)
    i.copy_(x[:, 0])
    return z, i


def index_put(x, y):
    z = x.clone()
    z[torch.tensor([0, 2])] = y[:2]
    z.masked_fill_(z > 0.5, -1)
    z.scatter_(1, torch.zeros(4, 1, dtype=torch.int64), 9.0)
    return z


CASES = [f for n, f in list(globals().items()) if callable(f) and getattr(f, "__module__", "") == __name__ and n != "mgopt"]


def storage_groups(tensors):
    """Which tensors share memory, as a partition."""
    first = {}
    return [first.setdefault(t.untyped_storage()._cdata, i) for i, t in enumerate(tensors)]


@pytest.mark.parametrize("layout", ["contiguous", "transposed"])
@pytest.mark.parametrize("case", CASES, ids=lambda f: f.__name__)
def test_same_as_eager(case, layout):
    torch.manual_seed(0)
    x, y = torch.randn(4, 5), torch.randn(4, 5)
    if layout == "transposed":
        x = torch.randn(5, 4).t()
    try:
        text, inputs = graphs.graph_text(case, x, y)
    except RuntimeError:
        pytest.skip("eager refuses this layout")
    kept = [t.clone() for t in inputs]  # preserves strides of dense tensors
    want = graphs.run_text(text, inputs)
    got_text = mgopt(text, "-functionalize")
    assert not re.search(r"aten::[a-z]\w*_(\.\w+)?\(|out=", got_text), "something is still written in place"
    got = graphs.run_text(got_text, kept)
    assert len(got) == len(want)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    for a, b in zip(kept, inputs):
        torch.testing.assert_close(a, b)
    assert storage_groups(kept + got) == storage_groups(list(inputs) + want), got_text
