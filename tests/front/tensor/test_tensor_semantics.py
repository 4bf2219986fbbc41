"""What a compiled function does to tensors is what eager does: writes to inputs, aliasing of results, identity, version
counters, layouts, gradients."""

import random

import pytest
import torch
from torch import nn

import magneto

torch.manual_seed(0)
BASE = torch.randn(4, 4)


def one():
    return (BASE.clone(),)


def two():
    return BASE.clone(), BASE.clone()


def two_complex():
    z = torch.complex(BASE, BASE.flip(0)).to(torch.complex128)
    return z.clone(), (z * 1j).t()


def overlapping():
    b = BASE.clone()
    return b[:2], b[1:3]


def apart():
    return BASE.clone()[:2], BASE.clone()[1:3]


def twice_the_same():
    b = BASE.clone()
    return b, b


def seq(*steps):
    return steps[-1]


CASES = {
    "write to input": (lambda x: seq(x.add_(1), x * 2), one),
    "return written input": (lambda x: x.add_(1), one),
    "return input": (lambda x: x, one),
    "return input twice": (lambda x: (x, x), one),
    "view of input": (lambda x: x[1:].t(), one),
    "views of views": (lambda x: (x[1:], x[1:][0], x.view(-1)[2:]), one),
    "write through a view": (lambda x: seq(x[0].mul_(2), x + 1), one),
    "write to a view of a view": (lambda x: seq(x.t()[1:].sub_(3), x * 1), one),
    "setitem": (lambda x: seq(x.__setitem__((0, slice(1, 3)), 5.0), x * 1), one),
    "overlapping inputs": (lambda x, y: seq(x.add_(1), x * y), overlapping),
    "inputs that do not overlap": (lambda x, y: seq(x.add_(1), x * y), apart),
    "one tensor as two arguments": (lambda x, y: seq(x.add_(1), x * y), twice_the_same),
    "shape change of an input": (lambda x: x.t_().mul(2), one),
    "out=": (lambda x, y: torch.add(x, 1, out=y), two),
    "data=": (lambda x, y: seq(setattr(x, "data", y), x + 1), two),
    "copy_": (lambda x, y: x.copy_(y), two),
    "views of a result": (lambda x: (lambda z: (z, z[0], z.t()))(x * 2), one),
    "result twice": (lambda x: (lambda z: (z, z))(x * 2), one),
    "write after a view was taken": (lambda x: (lambda z: seq(z.add_(1), (z, z[0])))(x * 2), one),
    "inplace relu": (lambda x: nn.functional.relu(x, inplace=True) + 1, one),
    "write to nothing": (lambda x: x[:0].add_(1), one),
    "squeeze_ of a fresh tensor": (lambda x: (x * 2)[None].squeeze_(0).t_(), one),
    "swap": (lambda x, y: (y, x), two),
    "foreach": (lambda x, y: seq(torch._foreach_add_([x, y], 2.0), x + y), two),
    "index_put": (lambda x: seq(x.index_put_((torch.tensor([0, 2]),), torch.tensor(9.0)), x.sum()), one),
    "detach": (lambda x: x.detach().mul_(2), one),
    "complex128": (lambda x, y: seq(x.mul_(y), x[1].add_(1), x.t()[0].fill_(5), x + y), two_complex),
    "complex128 by parts": (
        lambda x, y: seq(torch.view_as_real(x)[..., 0].fill_(7), y.imag.zero_(), x * y),
        two_complex,
    ),
    "complex128 exchanged": (lambda x, y: (lambda z: seq(x.copy_(y), y.copy_(z), x))(x.clone()), two_complex),
    "complex128, broadcast": (
        lambda x, y: seq(x.copy_(y[0]), y.copy_(y.flip(0)), torch._foreach_mul_([x, y], 2.0), y),
        two_complex,
    ),
}


def memory(t):
    return t.untyped_storage().data_ptr() if t.numel() else None


def flat(result):
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("name", CASES)
def test_like_eager(name):
    fn, make = CASES[name]
    compiled = magneto.compile(fn)
    for _ in range(3):
        ours, theirs = make(), make()
        got, want = flat(compiled(*ours)), flat(fn(*theirs))
        assert len(got) == len(want)
        for g, w in zip(got, want):
            assert torch.equal(g, w) and g.dtype == w.dtype
            assert g.stride() == w.stride() and g.storage_offset() == w.storage_offset()
            assert [g is a for a in ours] == [w is a for a in theirs]
            assert [memory(g) == memory(a) for a in ours] == [memory(w) == memory(a) for a in theirs]
            assert [g is o for o in got] == [w is o for o in want]
            assert [memory(g) == memory(o) for o in got] == [memory(w) == memory(o) for o in want]
        for a, b in zip(ours, theirs):
            assert torch.equal(a, b) and a._version == b._version


def test_aliasing_pattern_changes():
    fn = lambda x, y: seq(x.add_(1), x * y)
    compiled = magneto.compile(fn)
    for make in (apart, overlapping, apart, twice_the_same, overlapping):
        ours, theirs = make(), make()
        assert torch.equal(compiled(*ours), fn(*theirs))
        for a, b in zip(ours, theirs):
            assert torch.equal(a, b)


def test_any_overlap_is_noticed():
    def fn(parts):
        for part in parts[::3]:
            part.mul_(2).add_(1)
        return [part * 3 for part in parts]

    compiled = magneto.compile(fn, recompile_limit=400)
    rng = random.Random(0)
    for _ in range(120):
        starts = [rng.choice([k * 4, k * 4, rng.randrange(28)]) for k in range(7)]
        ours, theirs = torch.arange(32.0), torch.arange(32.0)
        got, want = compiled([ours[a : a + 4] for a in starts]), fn([theirs[a : a + 4] for a in starts])
        assert all(torch.equal(g, w) for g, w in zip(got, want)) and torch.equal(ours, theirs)


def test_writes_through_views_of_memory_that_overlaps_itself():
    def fn(x):
        row = x[0]
        x.diagonal().fill_(3)
        row.diagonal().fill_(-1)
        return row + 0

    compiled = magneto.compile(fn)
    for _ in range(2):
        ours, theirs = torch.zeros(1, 2, 2).expand(2, 2, 2), torch.zeros(1, 2, 2).expand(2, 2, 2)
        assert torch.equal(compiled(ours), fn(theirs)) and torch.equal(ours, theirs)


def test_one_guard_keeps_any_number_of_tensors_apart():
    def fn(parts):
        for part in parts:
            part.add_(1)

    compiled = magneto.compile(fn)
    for _ in range(3):
        compiled([torch.zeros(2) for _ in range(300)])
    (entry,) = (e for e in magneto._magneto.entries() if e["code"] is fn.__code__)
    assert entry["hits"] >= 2 and entry["guards"].count("share no memory") == 1
    whole = torch.zeros(301)
    compiled([whole[i : i + 2] for i in range(300)])  # each overlaps the next
    assert whole.tolist() == [1.0] + [2.0] * 299 + [1.0]


LAYOUTS = {
    "empty": lambda: torch.ones(0, 3),
    "0-dim": lambda: torch.tensor(3.0),
    "expanded": lambda: torch.arange(3.0).expand(4, 3),
    "channels_last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "strided": lambda: torch.randn(4, 6)[::2, 1::2],
    "transposed": lambda: torch.randn(3, 5).t(),
    "offset": lambda: torch.randn(10)[3:],
    "one element": lambda: torch.randn(1, 1, 1),
}


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool],
)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype):
    x = LAYOUTS[layout]().to(dtype)
    fn = lambda t: (t * 2, t.clone(), t + t.sum(), t[..., None])
    compiled = magneto.compile(fn)
    for _ in range(2):
        for g, w in zip(compiled(x), fn(x)):
            torch.testing.assert_close(g, w, check_stride=True)


def test_every_new_result_is_a_new_tensor():
    compiled = magneto.compile(lambda x: x + 1)
    x = torch.ones(1000)
    a, b = compiled(x), compiled(x)
    a.zero_()
    assert torch.equal(b, torch.full((1000,), 2.0)) and memory(a) != memory(b)


def test_constants_are_not_shared_between_calls():
    compiled = magneto.compile(lambda x: (torch.tensor([1.0, 2.0]), x + 1))
    x = torch.ones(2)
    compiled(x)[0].zero_()
    assert torch.equal(compiled(x)[0], torch.tensor([1.0, 2.0]))


class Double(torch.autograd.Function):
    """A function whose gradient is not the derivative of what it computes."""

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 100


GRADS = {
    "mul": lambda x: x * 3,
    "inplace": lambda x: (x * 3).add_(1).relu_(),
    "detached": lambda x: x.detach() * 3 + x,
    "no_grad inside": lambda x: no_grad_inside(x),
    "custom function": lambda x: Double.apply(x) + 1,
    "views": lambda x: torch.cat([x[:1], x[1:]]).t(),
    "softmax": lambda x: torch.softmax(x, -1),
    "write into a fresh buffer": lambda x: into_buffer(x),
    "autograd.grad": lambda x: torch.autograd.grad((x * x).sum(), x, create_graph=True)[0] * x,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda q: q.sin() * 2, x, use_reentrant=False),
    "requires_grad_ of a fresh tensor": lambda x: (x.detach() * 2).requires_grad_() * x,
    "non-leaf": lambda x: (x * 1).add_(2),
    "variable": lambda x: (
        x * torch.autograd.Variable(x * 2) + torch.autograd.Variable(torch.ones(4), requires_grad=False)
    ),
    "variable that requires grad": lambda x: of_variable(torch.autograd.Variable(x, requires_grad=True), x),
}


def of_variable(v, x):
    return torch.autograd.grad((v * v).sum(), v)[0] * x * v.is_leaf


def no_grad_inside(x):
    with torch.no_grad():
        y = x * 2
    return y * x


def into_buffer(x):
    out = torch.zeros(4, 4)
    out[1:3] = x[1:3] * 2
    return out


@pytest.mark.parametrize("name", GRADS)
def test_gradients(name):
    fn = GRADS[name]
    compiled = magneto.compile(fn, fullgraph="variable" in name)
    for _ in range(2):
        ours, theirs = BASE.clone().requires_grad_(), BASE.clone().requires_grad_()
        got, want = compiled(ours), fn(theirs)
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad
        if want.requires_grad:
            (got * BASE).sum().backward()
            (want * BASE).sum().backward()
            torch.testing.assert_close(ours.grad, theirs.grad)


def test_non_leaf_input_may_be_written():
    fn = lambda t: t.mul_(2) + 1
    compiled = magneto.compile(fn)
    for _ in range(2):
        a, b = BASE.clone().requires_grad_(), BASE.clone().requires_grad_()
        got, want = compiled(a * 1), fn(b * 1)
        got.sum().backward()
        want.sum().backward()
        assert torch.equal(got, want) and torch.equal(a.grad, b.grad)


def test_leaf_input_may_not_be_written():
    compiled = magneto.compile(lambda t: t.mul_(2))
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        compiled(BASE.clone().requires_grad_())


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_modes_around_the_call(grad):
    m = nn.Linear(4, 4)
    compiled = magneto.compile(m)
    for _ in range(2):
        with grad():
            got, want = compiled(BASE), m(BASE)
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad and got.is_inference() == want.is_inference()


def test_one_function_under_all_modes():
    m = nn.Linear(4, 4)
    compiled = magneto.compile(m)
    for _ in range(2):
        for grad in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with grad():
                got, want = compiled(BASE), m(BASE)
            assert got.requires_grad == want.requires_grad and got.is_inference() == want.is_inference()


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_views_are_inference_tensors_as_their_bases(grad):
    def views(x):
        y, z = x.view(-1), x + 1
        told = [t.is_inference() for t in (x, y, y[1:], x.detach(), z, z.view(-1))]
        return told, x, y, y[1:], z, x.t()

    with torch.inference_mode():
        inside = torch.ones(2, 3)
    compiled = magneto.compile(views, fullgraph=True)
    for x in (inside, torch.ones(2, 3), inside):
        with grad():
            got, want = compiled(x), views(x)
        assert got[0] == want[0] and got[2].data_ptr() == x.data_ptr()
        assert [t.is_inference() for t in got[1:]] == [t.is_inference() for t in want[1:]]
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("where", ["around", "inside"])
def test_autocast(where):
    m = nn.Sequential(nn.Linear(4, 4), nn.Softmax(-1))

    def inside(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m(x)

    fn = inside if where == "inside" else m
    compiled = magneto.compile(fn)
    for grad in (torch.no_grad, torch.enable_grad):
        for _ in range(2):
            with grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=where == "around"):
                got, want = compiled(BASE), fn(BASE)
            assert got.dtype == want.dtype
            torch.testing.assert_close(got, want)


def test_what_is_asked_of_tensors():
    def facts(m, x):
        w = m.weight
        return (
            isinstance(w, nn.Parameter),
            isinstance(x, nn.Parameter),
            type(x) is torch.Tensor,
            type(w).__name__,
            isinstance(x, torch.Tensor),
            torch.is_tensor(x),
            x.is_leaf,
            w.requires_grad,
            (x * 2).requires_grad,
            (w * 2).requires_grad,
            x.device,
            x.dtype,
            x.shape,
            x.stride(),
            x.is_contiguous(),
            x.layout,
            x.ndim,
            x.numel(),
            x.is_cuda,
            x.is_floating_point(),
            x.element_size(),
            x.grad is None,
            x.size(-1),
            len(x),
        )

    m = nn.Linear(4, 4)
    assert magneto.compile(facts)(m, BASE) == facts(m, BASE)


def test_random_numbers_are_those_of_eager():
    fn = lambda x: (torch.rand(3), nn.functional.dropout(x, 0.5), torch.randn_like(x), torch.randperm(5))
    compiled = magneto.compile(fn, backend="aten")
    for _ in range(2):
        torch.manual_seed(3)
        got = compiled(BASE)
        torch.manual_seed(3)
        for g, w in zip(got, fn(BASE)):
            assert torch.equal(g, w)


def test_results_made_by_copy_own_their_memory():
    def one(x):
        y = torch.zeros_like(x)
        y.copy_(x)
        return y

    def two(x):
        z = x + 1
        a, b = torch.empty_like(z), torch.empty_like(z)
        a.copy_(z)
        b.copy_(z)
        return x, z, a, b

    x = torch.randn(3)
    assert magneto.compile(one)(x).data_ptr() != x.data_ptr()
    assert len({t.data_ptr() for t in magneto.compile(two)(x)}) == 4


def test_views_in_another_dtype_as_results():
    x = torch.randn(6, dtype=torch.complex64)
    for f in (
        torch.view_as_real,
        lambda x: x[2:].imag,
        lambda x: x.view(torch.float32)[1:],
        lambda x: torch.view_as_real(x)[1, 1],
    ):
        got, want = magneto.compile(f)(x), f(x)
        assert got.dtype == want.dtype and got.data_ptr() == want.data_ptr() and got.stride() == want.stride()
        assert torch.equal(got, want)


def test_complex_and_several_results_written_to_out():
    o = torch.empty(3, dtype=torch.complex64)
    a, b = torch.randn(3), torch.randn(3)
    assert magneto.compile(lambda a, b, o: torch.complex(a, b, out=o))(a, b, o) is o
    assert torch.equal(o, torch.complex(a, b))
    v, i = torch.empty(2), torch.empty(2, dtype=torch.int64)
    x = torch.randn(2, 5)
    magneto.compile(lambda x, v, i: torch.kthvalue(x, 2, out=(v, i)))(x, v, i)
    assert torch.equal(v, x.kthvalue(2).values) and torch.equal(i, x.kthvalue(2).indices)


def test_arguments_that_torch_refuses():
    x = torch.randn(3, 4)
    for f in (
        lambda x: torch.diagonal(x, 0, 1, 1),
        lambda x: x.roll([1, 2], 0),
        lambda x: torch.vdot(x, x),
        lambda x: torch.arange(0, 3, -1),
        lambda x: torch.nn.functional.gelu(x, approximate="no"),
    ):
        with pytest.raises((RuntimeError, IndexError)) as want:
            f(x)
        with pytest.raises(type(want.value)) as got:
            magneto.compile(f)(x)
        assert str(got.value) == str(want.value)


def test_is_inference_asks_the_tensor():
    f = magneto.compile(lambda x: x + 1 if x.is_inference() else x - 1, fullgraph=True)
    x = torch.zeros(2)
    with torch.inference_mode():
        y = torch.zeros(2)
    for _ in range(2):
        assert f(x).tolist() == [-1, -1] and f(y).tolist() == [1, 1]
    made = magneto.compile(lambda x: (x + 1).is_inference())
    assert not made(x) and not made(y)
    with torch.inference_mode():
        assert made(x) and made(y)


@pytest.mark.parametrize(
    "shape,order", [((2, 1, 1, 8), (0, 3, 1, 2)), ((2, 3, 3, 8), (0, 3, 1, 2)), ((2, 8, 1, 1), (0, 1, 2, 3))]
)
@pytest.mark.parametrize("train", [False, True])
def test_batch_norm_of_one_pixel_images_is_contiguous(shape, order, train):
    net = nn.BatchNorm2d(8).train(train)
    x = torch.randn(shape).permute(order)
    with torch.no_grad():
        want, got = net(x), magneto.compile(net)(x)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("kernel", [1, 3])
@pytest.mark.parametrize("channels", [1, 6])
def test_conv1d_of_a_permuted_input_is_contiguous(kernel, channels):
    net = nn.Conv1d(channels, 5, kernel)
    for x in (torch.randn(2, 12, channels).transpose(1, 2), torch.randn(2, channels, 12)):
        want, got = net(x), magneto.compile(net)(x)
        assert got.stride() == want.stride()
        torch.testing.assert_close(got, want)


def data_then_write(x, y):
    x.data = y
    x.add_(1)
    return x, x.sum()


def data_of_both(x, y):
    x.data, y.data = y * 2, torch.zeros(0)
    return x, y.shape, y


def data_after_view(x, y):
    v = x.view(-1)
    x.data = y
    v.add_(1)
    x.mul_(3)
    return v, x + 1


def data_shape(x, y):
    z = x
    x.data = y.data.view(2, 3)
    return torch.tensor(x is z), x.shape


@pytest.mark.parametrize("backend", ["magneto", lambda gm, inputs: gm])
@pytest.mark.parametrize("f", [data_then_write, data_of_both, data_after_view, data_shape])
def test_data_of_arguments_is_assigned(f, backend):
    """An assignment to ``.data`` is part of the graph; of a leaf that requires grad as well, as long as it is only given back."""
    c = magneto.compile(f, backend=backend, fullgraph=True)
    for grad in (False, True)[: 1 + (f in (data_of_both, data_shape))]:
        a, b = (
            [torch.arange(6.0).requires_grad_(grad), torch.ones(6).requires_grad_(grad)] for _ in range(2)
        )
        torch.testing.assert_close(c(*a), f(*b))
        torch.testing.assert_close(a, b)
        assert [x.is_leaf for x in a] == [x.is_leaf for x in b] and (a[0].data_ptr() == a[1].data_ptr()) == (
            b[0].data_ptr() == b[1].data_ptr()
        )


def test_gradients_after_data_was_assigned():
    def f(x, y):
        x.data = y.detach() * 3
        return (x * x).sum()

    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    magneto.compile(f)(a, torch.arange(3.0)).backward()
    f(b, torch.arange(3.0)).backward()
    torch.testing.assert_close((a, a.grad), (b, b.grad))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float64, torch.bfloat16, torch.float32])
def test_out_of_another_dtype(dtype):
    """Some operators compute in the dtype of out=, some convert, some raise."""
    x = torch.tensor([[0.9201, 0.6166], [1.7, 2.6]])
    programs = (torch.cumsum, torch.cumprod, torch.sum, torch.prod, torch.amax, torch.softmax)
    for f in (lambda x, o, p=p: p(x, 0, out=o) for p in programs):
        magneto.reset()
        results = []
        for g in (f, magneto.compile(f, fullgraph=True)):
            out = torch.zeros(f.__defaults__[0](x, 0).shape, dtype=dtype)
            try:
                g(x, out)
            except RuntimeError:
                out = None
            results.append(out)
        assert (results[0] is None) == (results[1] is None)
        if results[0] is not None:
            torch.testing.assert_close(*results)


@pytest.mark.filterwarnings("ignore:where received a uint8 condition")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bool])
def test_where_of_a_condition_of_uint8(dtype):
    """Deprecated, but eager takes it, and torch's meta kernel does not."""

    def f(mask, x, y):
        return torch.where(mask.unsqueeze(1), x, y), torch.where(
            mask * 2, x, ~y if dtype is torch.bool else -y
        )

    magneto.reset()
    mask = torch.tensor([0, 1, 3, 0], dtype=torch.uint8)
    x, y = (BASE > 0, BASE < 1) if dtype is torch.bool else (BASE.clone().requires_grad_(), BASE + 1)
    got, want = magneto.compile(f, fullgraph=True)(mask, x, y), f(mask, x, y)
    for a, b in zip(got, want):
        assert a.dtype == b.dtype and torch.equal(a, b)
    if x.requires_grad:
        grads = [torch.autograd.grad(r[0].sum() + r[1].sin().sum(), x)[0] for r in (got, want)]
        torch.testing.assert_close(*grads)
