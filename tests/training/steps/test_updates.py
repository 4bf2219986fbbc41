"""Updates of many tensors in one graph: how many kernels, and that kernels which run at the same time do not disturb each
other; gradients of convolutions by the library."""

import copy
import re

import pytest
import torch

import magneto
from magneto import _magneto
from training import same

SIZES = [
    (),
    (1,),
    (3,),
    (17, 5),
    (64, 64),
    (300,),
    (128, 65, 3),
    (2, 1, 7),
    (5000,),
    (90000,),
    (16,),
    (333, 33),
]


def plan_of(fn, *args):
    """The kernels of the last plan that calling fn makes: names and parallel points, in order."""
    _magneto.set_logs("plan")
    try:
        fn(*args)
    finally:
        _magneto.set_logs("")


def kernels(text):
    text = text.split("] plan\n")[-1]
    return re.findall(r"kernel (\S+) outer (\S+)", text)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RMSprop", "SGD"])
def test_one_kernel_updates_one_parameter(name, capfd):
    """Moments and parameter in one pass, the arithmetic of step counters apart, no size in the code of a flat tensor."""
    torch.manual_seed(0)
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}
    params = [torch.randn(s).requires_grad_() for s in SIZES if len(s) > 0 and s != (1,)]
    mine = [p.detach().clone().requires_grad_() for p in params]
    a, b = (getattr(torch.optim, name)(ps, lr=0.1, **options) for ps in (params, mine))
    for i in range(4):
        for p, q in zip(params, mine):
            p.grad = torch.randn(p.shape)
            q.grad = p.grad.clone()
        a.step()
        step = magneto.compile(b.step)
        capfd.readouterr()
        plan_of(step) if i < 2 else step()
        if i == 1:
            made = kernels(capfd.readouterr().err)
            big = [n for n in made if n[1] != "1"]
            assert len(big) == len(params) and len(made) <= 2 * len(params), made
        for p, q in zip(params, mine):
            same(q.detach(), p.detach(), f"step {i}")


@pytest.mark.parametrize(
    "name, options",
    [("Adagrad", {"lr_decay": 0.03}), ("Adam", {"amsgrad": True}), ("AdamW", {}), ("SGD", {"momentum": 0.9})],
)
def test_fused_updates_in_double(name, options):
    """The counts of steps are float32, what is computed from them is not."""
    torch.manual_seed(0)
    params = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((5, 3), (7,))]
    mine = [p.detach().clone().requires_grad_() for p in params]
    a, b = (
        getattr(torch.optim, name)(ps, lr=0.1, weight_decay=0.01, fused=True, **options)
        for ps in (params, mine)
    )
    step = magneto.compile(b.step)
    for _ in range(12):
        for p, q in zip(params, mine):
            p.grad = torch.randn(p.shape, dtype=torch.float64)
            q.grad = p.grad.clone()
        a.step(), step()
    for p, q in zip(params, mine):
        torch.testing.assert_close(q, p, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "name, options",
    [
        ("NAdam", {}),
        ("Adam", {"lr": 0.01}),
        ("Adamax", {"lr": 0.01}),
        ("ASGD", {"lr": 0.01}),
        ("Rprop", {"lr": 0.01}),
        ("Muon", {"lr": 0.01}),
        ("RAdam", {"weight_decay": 0.1}),
    ],
)
def test_numbers_out_of_tensors_take_part_as_numbers(name, options):
    """Counts are read as Python numbers, which promote less than tensors do; learning rates are 0-dim float32 tensors."""
    torch.manual_seed(0)
    eager = [torch.randn(s, dtype=torch.float64).requires_grad_() for s in ((5, 3), (3, 4))]
    mine = [p.detach().clone().requires_grad_() for p in eager]
    a, b = (
        getattr(torch.optim, name)(ps, **{k: torch.tensor(v) if k == "lr" else v for k, v in options.items()})
        for ps in (eager, mine)
    )
    step = magneto.compile(b.step, fullgraph=True)
    for i in range(7):
        for p, q in zip(eager, mine):
            p.grad = torch.randn(p.shape, dtype=torch.float64)
            q.grad = p.grad.clone()
        a.step()
        step()
        for p, q in zip(eager, mine):
            same(q.detach(), p.detach(), f"step {i}", rtol=1e-13, atol=1e-14)


def test_a_value_that_is_updated_and_read_in_one_kernel():
    """Old and new values of one buffer, in chains of updates, through views, with reductions between."""

    def f(a, b, c, x):
        a.mul_(0.5).add_(x)
        b.lerp_(a, 0.25)
        a.add_(b)
        c.addcdiv_(a, b.abs() + 1, value=-0.1)
        b[1:].mul_(2)
        norm = a.norm()
        c.mul_(norm.clamp(max=1))
        return a.sum(), (b * c).sum(0), x + a

    g = magneto.compile(f)
    torch.manual_seed(1)
    want = [torch.randn(40, 30) for _ in range(4)]
    got = [t.clone() for t in want]
    for i in range(3):
        for x, y in zip(g(*got), f(*want)):
            same(x, y, f"call {i}")
        for x, y in zip(got, want):
            same(x, y, f"call {i}, argument")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kernels_that_run_at_the_same_time(threads):
    """Independent work of every size, and work that depends on it, on teams of several threads."""

    def f(xs, ys):
        first = [x * 2 + y for x, y in zip(xs, ys)]
        for x, t in zip(xs, first):
            x.sub_(t.sin())
        scale = [1 / (1 + y.square().sum()) for y in ys]
        for y, x, s in zip(ys, xs, scale):
            y.mul_(s).add_(x.flip(0) if x.dim() else x)
        return first, scale

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        torch.manual_seed(2)
        want = [[torch.randn(s) for s in SIZES] for _ in range(2)]
        got = copy.deepcopy(want)
        g = magneto.compile(f)
        for i in range(3):
            for a, b in zip(g(*got), f(*want)):
                for p, q in zip(a, b):
                    same(p, q, f"call {i}")
            for a, b in zip(got, want):
                for p, q in zip(a, b):
                    same(p, q, f"call {i}, argument")
    finally:
        torch.set_num_threads(before)


CONVS = {  # channels in and out, size, window, stride, padding, dilation, groups
    "plain": (16, 32, 12, 3, 1, 1, 1, 1),
    "stride": (16, 32, 13, 3, 2, 1, 1, 1),
    "depthwise": (32, 32, 8, 3, 1, 1, 1, 32),
    "groups": (32, 64, 9, 3, 1, 2, 2, 4),
    "image": (3, 16, 16, 7, 2, 3, 1, 1),
    "1x1": (128, 24, 5, 1, 1, 0, 1, 1),
    "odd": (5, 3, 7, 3, 2, 0, 1, 1),
    "one channel": (1, 4, 8, 3, 1, 1, 1, 1),
    "heavy weights": (256, 48, 3, 3, 1, 1, 1, 1),
}


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("case", CONVS)
def test_gradients_of_convolutions(case, bias, channels_last):
    cin, cout, size, k, stride, padding, dilation, groups = CONVS[case]
    torch.manual_seed(0)
    conv = torch.nn.Conv2d(cin, cout, k, stride, padding, dilation, groups, bias)
    x = torch.randn(2, cin, size, size)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)

    def f(x, *params):
        y = torch.nn.functional.conv2d(
            x.tanh(), *params, *([] if bias else [None]), stride, padding, dilation, groups
        )
        return (y.tanh() * y).sum()

    def grads(fn, *args):
        leaves = [t.detach().clone().requires_grad_() for t in args]
        fn(*leaves).backward()
        return [t.grad for t in leaves]

    args = (x, *conv.parameters())
    for got, want in zip(grads(magneto.compile(f), *args), grads(f, *args)):
        same(got, want, case, rtol=1e-3, atol=1e-4, strides="used")


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_steps_of_complex_parameters(dtype, foreach):
    results = []
    for compile in (lambda f: f, lambda f: magneto.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        params = [torch.randn(3, 2, dtype=dtype).requires_grad_() for _ in range(2)]
        opt = torch.optim.Adam(params, lr=0.1, foreach=foreach)

        def step(x):
            opt.zero_grad()
            sum((p * p.conj() * x).real.sum() for p in params).backward()
            opt.step()

        step = compile(step)
        for i in range(3):
            step(torch.full((2,), i + 1.0))
        results.append([*params, *(v for p in params for v in opt.state[p].values())])
    for got, want in zip(results[1], results[0]):
        same(got.detach(), want.detach())


@pytest.mark.parametrize("wanted", ["input", "weight"])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_one_gradient_of_a_convolution(dims, wanted):
    torch.manual_seed(0)
    conv = getattr(torch.nn, f"Conv{dims}d")(8, 16, 3, bias=False)
    conv.weight.requires_grad_(wanted == "weight")
    compiled = magneto.compile(copy.deepcopy(conv))
    x = torch.randn(2, 8, *[9] * dims)
    results = []
    for m in (conv, compiled):
        y = x.clone().requires_grad_(wanted == "input")
        m(y).square().sum().backward()
        results.append(y.grad if wanted == "input" else m.weight.grad)
    same(results[1], results[0], rtol=1e-3, atol=1e-4)
