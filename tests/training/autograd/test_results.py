"""What comes out of a compiled function under autograd: values, gradients, aliasing, flags."""

import pytest
import torch

import magneto
from support import counts
from training import check, check_module, same


def leaf(*size, **kw):
    return torch.randn(*size, **kw).requires_grad_()


def test_elementwise():
    check(lambda x, y: torch.sin(x) * y + x.exp(), leaf(3, 4), leaf(3, 4))


def test_broadcast_and_reduce():
    check(lambda x, y: (x * y).sum(-1, keepdim=True) + y.mean(), leaf(3, 4), leaf(4))


def test_matmul():
    check(lambda x, w, b: torch.relu(torch.nn.functional.linear(x, w, b)), leaf(5, 8), leaf(6, 8), leaf(6))


def test_input_without_grad():
    check(lambda x, y: (x * y).tanh(), leaf(3, 4), torch.randn(3, 4))


def test_several_outputs():
    check(lambda x, y: (x * y, x.sin(), y.cos().sum()), leaf(3, 4), leaf(3, 4))


def test_integer_and_plain_outputs():
    check(lambda x, y: (x * 2, x.argmax(-1), y + 1, (x > 0)), leaf(3, 4), torch.randn(3))


def test_detached_output():
    def f(x):
        h = x.sin() * 2
        return h, h.detach(), h.detach() + 1

    check(f, leaf(3, 4))
    x = leaf(3, 4)
    h, d, _ = magneto.compile(f)(x)
    assert d.data_ptr() == h.data_ptr() and not d.requires_grad


def test_no_grad_part():
    def f(x):
        with torch.no_grad():
            s = x.abs().max()
        return x / s, s

    check(f, leaf(3, 4))


def test_output_is_input():
    def f(x, y):
        return x, y, x * y

    c = check(f, leaf(3, 4), torch.randn(3, 4))
    x, y = leaf(3, 4), torch.randn(3, 4)
    a, b, _ = c(x, y)
    assert a is x and b is y


def test_output_is_view_of_input():
    def f(x):
        return x.view(-1), x.t(), x * 2

    c = check(f, leaf(3, 4))
    x = leaf(3, 4)
    v, t, _ = c(x)
    assert v._base is x and t._base is x and v.data_ptr() == x.data_ptr()
    assert v.grad_fn.name() == "ViewBackward0" and t.grad_fn.name() == "TBackward0"


def test_only_views_of_inputs():
    check(lambda x: (x.view(-1), x[0]), leaf(3, 4), joint=0)


def test_outputs_share_memory():
    def f(x):
        h = x.sin()
        return h, h.view(-1), h[0]

    c = check(f, leaf(3, 4))
    h, v, r = c(leaf(3, 4))
    assert v._base is h and r._base is h


def test_chunks_of_a_hidden_tensor():
    def f(x):
        a, b = (x * 2).chunk(2, -1)
        return a, b

    c = check(f, leaf(3, 4))
    a, b = c(leaf(3, 4))
    assert a._base is b._base is not None
    with pytest.raises(RuntimeError, match="multiple views"):
        a.add_(1)


def test_view_of_a_hidden_tensor():
    check(lambda x: x.sin().t(), leaf(3, 4))
    check(lambda x: x.sin()[1:, ::2], leaf(3, 4), graphs=None)


def test_same_output_twice():
    def f(x):
        h = x * 2
        return h, h, [h]

    c = check(f, leaf(3))
    a, b, d = c(leaf(3))
    assert a is b is d[0]


def test_equal_outputs_do_not_share():
    c = check(lambda x: (x * 2, x * 2), leaf(3))
    a, b = c(leaf(3))
    assert a.data_ptr() != b.data_ptr()


def test_equal_gradients_do_not_share():
    c = check(lambda x, y: (x * 2).sum() + (y * 2).sum(), leaf(3), leaf(3))
    x, y = leaf(3), leaf(3)
    c(x, y).backward()
    x.grad.add_(1)
    assert torch.equal(y.grad, torch.full((3,), 2.0))


def test_same_gradient_for_two_inputs():
    c = check(lambda x, y: x + y, leaf(3), leaf(3))
    x, y = leaf(3), leaf(3)
    c(x, y).sum().backward()
    x.grad.add_(1)
    assert torch.equal(y.grad, torch.ones(3))


def test_inplace_on_fresh():
    def f(x):
        h = x * 2
        h.add_(1).relu_()
        k = h + 1
        k[0] = 0
        return h * k

    check(f, leaf(3, 4))


def test_view_then_inplace():
    def f(x):
        h = x * 2
        v = h.view(-1)
        h.mul_(3)
        return v * 2

    check(f, leaf(3, 4))


def test_views_and_inplace_as_results():
    def f(x):
        h = x * 2
        v = h.view(-1)
        h.mul_(3)
        return v, h

    check(f, leaf(3, 4), joint=0)


def test_nonleaf_input():
    def outer(f, x):
        return f(x * 3)

    def f(x):
        return x.sin()

    c = magneto.compile(f)
    a, b = leaf(3), None
    b = a.detach().clone().requires_grad_()
    outer(f, a).sum().backward()
    outer(c, b).sum().backward()
    same(b.grad, a.grad)
    assert counts().joint_graphs == 1


def test_inplace_on_nonleaf_input():
    def f(x):
        x.mul_(2)
        return x.sin()

    c = magneto.compile(f)
    for _ in range(2):
        a = leaf(3)
        b = a.detach().clone().requires_grad_()
        u, v = a * 1, b * 1
        f(u).sum().backward()
        c(v).sum().backward()
        same(b.grad, a.grad)
        same(v.detach(), u.detach())
        assert u._version == v._version and v.grad_fn.name() == "MulBackward0"


def test_buffer_written():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))
            self.register_buffer("ema", torch.zeros(4))
            self.register_buffer("n", torch.zeros((), dtype=torch.long))

        def forward(self, x):
            self.n += 1
            with torch.no_grad():
                self.ema.mul_(0.9).add_(x.mean(0), alpha=0.1)
            return x * self.w + self.ema

    check_module(Counter, (torch.randn(3, 4),))


def test_buffer_read_and_saved():
    class Scale(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.randn(4))
            self.register_buffer("s", torch.ones(4))

        def forward(self, x):
            with torch.no_grad():
                self.s.add_(x.abs().amax(0))
            return (x * self.w / self.s).sin()

    check_module(Scale, (torch.randn(3, 4),))


def test_batch_norm():
    check_module(
        lambda: torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()),
        (torch.randn(2, 3, 8, 8),),
        steps=5,
    )


def test_dropout():
    check_module(
        lambda: torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Dropout(0.5), torch.nn.GELU(), torch.nn.Linear(16, 4)
        ),
        (torch.randn(5, 8),),
    )


def test_unused_parameter():
    class M(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            self.b(x)
            return self.a(x)

    check_module(M, (torch.randn(3, 4),))


def test_gradient_only_of_what_is_reached():
    """A parameter that no given gradient reaches has none, as in eager."""
    f = lambda x, y: (x * 2, y * 3)
    c = magneto.compile(f)
    x, y = leaf(3), leaf(3)
    a, _ = c(x, y)
    a.sum().backward()
    assert y.grad is None and x.grad is not None


def test_expanded_and_transposed():
    check(lambda x: x.expand(3, 4).sin() + x.view(1, 4).t().sum(), leaf(4))


def test_transposed_leaf():
    check(lambda x, y: x.sin() * y, torch.randn(4, 3).t().requires_grad_(), leaf(3, 4))


def test_channels_last():
    x = torch.randn(2, 3, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    check(lambda x, w: torch.nn.functional.conv2d(x, w).relu(), x, leaf(4, 3, 3, 3))


def test_float64_and_bf16():
    check(lambda x: x.sin() * x, leaf(3, 4, dtype=torch.float64))
    check(lambda x: x.sin() * 2, leaf(3, 4, dtype=torch.bfloat16), graphs=None, rtol=1e-2, atol=1e-2)


def test_complex():
    check(lambda x: (x * x).abs().sum() + x.real.sum(), leaf(3, dtype=torch.complex64), graphs=None)


def test_embedding_and_loss():
    def f(w, i, t):
        h = torch.nn.functional.embedding(i, w)
        return torch.nn.functional.cross_entropy(h, t)

    check(f, leaf(10, 6), torch.randint(0, 10, (5,)), torch.randint(0, 6, (5,)))


def test_index_and_scatter():
    def f(x, i):
        return (
            x[i].sum(0),
            x.gather(0, i[:, None].expand(3, 4)),
            torch.zeros(3, 4).scatter_add(0, i[:, None].expand(3, 4), x),
        )

    check(f, leaf(3, 4), torch.tensor([0, 2, 2]))


def test_enable_grad_inside():
    def f(x):
        with torch.enable_grad():
            return x.sin()

    c = magneto.compile(f)
    x = leaf(3)
    with torch.no_grad():
        for _ in range(2):
            y = c(x)
            assert y.requires_grad and not torch.is_grad_enabled()
    y.sum().backward()
    same(x.grad, x.detach().cos())


def test_graph_break():
    def f(x, w):
        h = (x * w).sin()
        print(end="")
        return h * w, h.sum()

    check(f, leaf(3, 4), leaf(4), graphs=None)


def test_requires_grad_switches():
    """Another combination of requires_grad is another entry."""
    f = lambda x, y: x * y
    c = magneto.compile(f)
    for gx, gy in ((True, False), (False, True), (False, False), (True, True)) * 2:
        x, y = torch.randn(3).requires_grad_(gx), torch.randn(3).requires_grad_(gy)
        o = c(x, y)
        assert o.requires_grad == (gx or gy)
        if o.requires_grad:
            o.sum().backward()
            assert (x.grad is not None) == gx and (y.grad is not None) == gy
    assert counts().joint_graphs == 3


def test_convolutions_of_a_backward_graph():
    """Small and large weights: their convolution_backward runs on channels-last and on contiguous data."""

    def make():
        return torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3),
            torch.nn.BatchNorm2d(8),
            torch.nn.ReLU(),
            torch.nn.Conv2d(8, 16, 3, groups=2),
            torch.nn.SiLU(),
            torch.nn.MaxPool2d(3),
            torch.nn.Conv2d(16, 64, 5),
            torch.nn.ReLU(),
        )

    check_module(make, (torch.randn(2, 3, 20, 20),))


@pytest.mark.parametrize(
    "size,options",
    [
        (4, {"dilation": 2, "padding": 2}),
        (4, {"dilation": 2, "padding": 2, "groups": 32}),
        (2, {"padding": 1}),
        (7, {"dilation": 3, "padding": 3, "bias": False, "stride": 2}),
    ],
)
def test_gradients_of_convolutions_without_a_channels_last_kernel(size, options):
    """The library runs them on data of another format.  ATen's would copy the weight to channels-last and its gradient back."""
    m = torch.nn.Sequential(
        torch.nn.Conv2d(8, 32, 1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(32, 64, 3, **options),
        torch.nn.ReLU(),
        torch.nn.Conv2d(64, 8, 1),
    )
    x = torch.randn(2, 8, size, size)

    def f(x):
        return torch.autograd.grad(m(x).square().sum(), list(m.parameters()))

    compiled = magneto.compile(f)
    for _ in range(2):
        for got, want in zip(compiled(x), f(x), strict=True):
            same(got, want, rtol=1e-4, atol=1e-4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        compiled(x)
    names = [e.key for e in prof.key_averages()]
    assert sum(name.startswith("magneto::convolution_backward") for name in names) > 0, names
    assert "aten::convolution_backward" not in names


class _Growing(torch.nn.Module):
    """Each layer reads the concatenation of all before it; `shown` concatenations are results."""

    def __init__(self, shown):
        super().__init__()
        self.shown = shown
        self.norms = torch.nn.ModuleList(torch.nn.BatchNorm2d(8 + 4 * i) for i in range(5))
        self.convs = torch.nn.ModuleList(torch.nn.Conv2d(8 + 4 * i, 4, 3, padding=1) for i in range(5))

    def forward(self, x):
        parts, cats = [x.tanh()], []
        for norm, conv in zip(self.norms, self.convs):
            cats.append(torch.cat(parts, 1))
            parts.append(conv(norm(cats[-1]).relu()))
        return [torch.cat(parts, 1), *(cats[i] for i in self.shown)]


@pytest.mark.parametrize("shown", [(), (4,), (0, 2), (1, 2, 3)])
def test_growing_concatenations(shown):
    """What backward keeps of them may share memory; results may not, and stay what they are when they are written to."""
    check_module(lambda: _Growing(shown), (torch.randn(2, 8, 6, 6),))
    m = magneto.compile(_Growing(shown))
    out = m(torch.randn(2, 8, 6, 6))
    loss = sum(t.square().mean() for t in out)
    loss.backward(retain_graph=True)
    first = [p.grad.clone() for p in m.parameters()]
    m.zero_grad()
    loss.backward()
    for p, q in zip(m.parameters(), first):
        same(p.grad, q)
    starts = [t.untyped_storage().data_ptr() for t in out]
    assert len(set(starts)) == len(starts)


@pytest.mark.parametrize(
    "rank,kernel,batch", [(2, 1, 1), (2, 3, 1), (2, 1, 2), (3, 3, 1), (3, 3, 2), (3, 5, 1)]
)
def test_conv_of_small_channels_last_input(rank, kernel, batch):
    """ATen's own kernels for one small image choose other layouts than mkldnn's."""
    form = torch.channels_last if rank == 2 else torch.channels_last_3d
    conv = torch.nn.functional.conv2d if rank == 2 else torch.nn.functional.conv3d
    x = torch.randn(batch, 6, *[5] * rank).to(memory_format=form).requires_grad_()
    w = leaf(6, 6, *[kernel] * rank)

    def f(x, w):
        y = conv(x, w, padding=kernel // 2)
        return y, *torch.autograd.grad(y.sum(), (x, w))

    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # one thread chooses ATen's for more
    try:
        for a, b in zip(f(x, w), magneto.compile(f)(x, w)):
            same(b.detach(), a.detach(), "value")
    finally:
        torch.set_num_threads(threads)
