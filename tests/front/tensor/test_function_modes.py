"""torch_function modes of the program: active at the call, entered inside, around a break; their handlers' state; what C++ code of
ours asks tensors is none of their business."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import BaseTorchFunctionMode, TorchFunctionMode

import magneto
from support import counts

BACKENDS = [None, "eager"]


class Scale(TorchFunctionMode):
    """Multiplies every sine by k, and counts the calls that it sees."""

    def __init__(self, k):
        self.k, self.seen = k, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.__name__)
        r = func(*args, **(kwargs or {}))
        return r * self.k if func in (torch.sin, torch.Tensor.sin) else r


class Other(Scale):
    pass


def compiled(fn, backend, **kw):
    return magneto.compile(fn, **({"backend": backend} if backend else {}), **kw)


@pytest.mark.parametrize("backend", BACKENDS)
def test_active_at_the_call(backend):
    def fn(x):
        return torch.sin(x) + 1

    opt, x = compiled(fn, backend, fullgraph=True, recompile_limit=32), torch.ones(3)
    for make in [
        lambda: (Scale(2),),
        lambda: (Scale(3),),
        lambda: (Other(3),),
        lambda: (Scale(2), Other(5)),
        lambda: (Other(5), Scale(2)),
        lambda: (),
        lambda: (Scale(2),),
    ]:
        mine, want = make(), make()
        results = []
        for modes, f in ((mine, opt), (want, fn)):
            with contextlib.ExitStack() as stack:
                for m in modes:
                    stack.enter_context(m)
                results.append([f(x), f(x)])
        torch.testing.assert_close(results[0], results[1])
        assert [m.seen for m in mine] == [m.seen for m in want]
    assert torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_instance_at_each_call_of_a_mode_without_a_handler_of_its_own(backend):
    class Plain(BaseTorchFunctionMode):
        pass

    n, opt, x = counts().entries, compiled(lambda x: torch.sin(x) + 1, backend, fullgraph=True), torch.ones(3)
    for _ in range(3):
        with Plain():
            torch.testing.assert_close(opt(x), torch.sin(x) + 1)
    assert counts().entries == n + 1


def inside(x, m):
    with m:
        y = torch.sin(x)
        n = len(m.seen)
    return torch.sin(y) * n


def nested(x, m):
    with m, Other(7) as o:
        y = torch.sin(x)
    return y, o.k, len(o.seen)


def around_a_break(x, m):
    with m:
        y = torch.sin(x)
        magneto.graph_break()
        z = torch.sin(y)
        with Other(2):
            magneto.graph_break()
            z = torch.sin(z)
    return torch.sin(z)


def raises_inside(x, m):
    try:
        with m:
            y = torch.sin(x)
            raise KeyError
    except KeyError:
        return torch.sin(y)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [inside, nested, around_a_break, raises_inside])
def test_entered_inside(fn, backend):
    opt, x = compiled(fn, backend, fullgraph=fn is not around_a_break), torch.ones(3)
    for k in (2, 3, 3):
        mine, want = Scale(k), Scale(k)
        torch.testing.assert_close(opt(x, mine), fn(x, want))
        assert mine.seen == want.seen and torch._C._len_torch_function_stack() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_device(backend):
    def fn(x):
        return torch.zeros(3) + x, torch.arange(3).device

    torch.set_default_device("cpu")
    try:
        y, d = compiled(fn, backend, fullgraph=True)(torch.ones(3))
        assert y.tolist() == [1, 1, 1] and d.type == "cpu"
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_leaves_the_stack_as_it_was(backend):
    def fn(x):
        with Scale(2):
            x = torch.sin(x)
            raise ValueError("no")

    with Scale(3), pytest.raises(ValueError):
        compiled(fn, backend)(torch.ones(3))
    assert torch._C._len_torch_function_stack() == 0


def handed(a):
    """A function that gives itself to the mode, as those of torch.nn.functional do."""
    if torch._C._is_torch_function_mode_enabled():
        return torch.overrides.handle_torch_function(handed, [], a)
    return a + 1


def whole(x):
    return handed(x)


def number(x):
    return x.sin() * handed(2)


def functional(x):
    return F.relu(x) + F.dropout(x, 0.5, False)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [whole, number, functional])
def test_functions_that_call_the_mode(fn, backend):
    opt, x = compiled(fn, backend, fullgraph=True), torch.ones(3)
    for k in (2, 3, 3):
        mine, want = Scale(k), Scale(k)
        for m, f in ((mine, opt), (want, fn)):
            m.seen.append("before")
            with m:
                m.result = f(x), f(x)
        torch.testing.assert_close(mine.result, want.result)
        assert mine.seen == want.seen


def test_the_graph_of_a_call_that_gives_its_argument():
    graphs = []

    def backend(gm, inputs):
        graphs.append([n.op for n in gm.graph.nodes])
        return gm

    x = torch.ones(3)
    with Scale(2):
        magneto.compile(functional, backend=backend, fullgraph=True)(x)
    assert [[o.split("_")[0] for o in g] for g in graphs] == [
        ["placeholder", "call", "call", "call", "output"]
    ]


def test_modes_do_not_see_what_a_backend_calls():
    def backend(gm, inputs):
        torch.sin(torch.ones(2))
        return gm

    x, mode = torch.ones(3), Scale(2)
    with mode:
        magneto.compile(functional, backend=backend, fullgraph=True)(x)
        seen = mode.seen.copy()
        mode.seen.clear()
        functional(x)
    assert seen == mode.seen


def unique_with_gradients(x):
    return x.unique() + 1


def gumbel(x):
    return F.gumbel_softmax(x[:0], dim=-1)


@pytest.mark.parametrize("fn", [unique_with_gradients, gumbel])
def test_a_recording_that_begins_again_leaves_the_stack_as_it_was(fn):
    """Functions of torch take the mode off while they run, and the first recording ends inside of one."""
    opt = magneto.compile(fn)
    for _ in range(2):
        with torch.device("cpu:0"):
            assert torch._C._len_torch_function_stack() == 1
            opt(torch.randn(2, 2, requires_grad=True))
            assert torch._C._len_torch_function_stack() == 1
    assert torch._C._len_torch_function_stack() == 0
