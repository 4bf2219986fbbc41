"""Hooks that a compiled function registers on tensors: values, handles, and how many graphs it takes."""

import pytest
import torch
from torch.utils.hooks import RemovableHandle

import magneto
from support import assert_counts, assert_same

LOG = []


class Box:
    def __init__(self, value):
        self.value = value
        self.handle = None


def on_input(x, box):
    x.register_hook(lambda g: g * box.value)
    return x.sin()


def in_order(x, box):
    x.register_hook(lambda g: g + 1)
    x.register_hook(lambda g: g * 3)
    return x.sin()


def removed(x, box):
    first = x.register_hook(lambda g: g * 7)
    y = x.sin()
    first.remove()
    first.remove()
    x.register_hook(lambda g: g * 3)
    return y


def kept_on_object(x, box):
    box.handle = x.register_hook(lambda g: g * box.value)
    return x.cos()


def with_block(x, box):
    with x.register_hook(lambda g: g * 5):
        y = x.cos()
    return y


def writes(x, box):
    x.register_hook(lambda g: LOG.append(g.sum().item()))
    return x.exp()


def accumulated(x, box):
    def scale(p):
        p.grad.mul_(box.value)

    x.register_post_accumulate_grad_hook(scale)
    return x.exp()


def on_made(x, box):
    y = x.sin()
    y.register_hook(lambda g: g * box.value)
    return y * y


def on_made_twice(x, box):
    y = x.sin()
    a = y.register_hook(lambda g: g + y.detach())
    y.register_hook(lambda g: g * 3)
    a.remove()
    return (y * 2).exp() + y


def on_made_then_written(x, box):
    y = x.sin()
    y.register_hook(lambda g: g * box.value)
    y.mul_(2)
    return y * y


INPUT = [on_input, in_order, removed, kept_on_object, with_block, writes, accumulated]
MADE = [on_made, on_made_twice, on_made_then_written]


def grads(f, seed=0):
    """Results of three calls with another tensor and another object each."""
    out = []
    for i in range(3):
        x = torch.linspace(-1, 1, 5).add(i + seed).requires_grad_()
        y = f(x, Box(i + 2.0))
        y.sum().backward()
        out += [y.detach(), x.grad]
    return out


def compiled(f, **kwargs):
    magneto.reset()
    return magneto.compile(f, **kwargs)


@pytest.mark.parametrize("f", INPUT, ids=lambda f: f.__name__)
@pytest.mark.parametrize("backend", ["magneto", "eager", "aot_eager"])
def test_on_inputs_takes_one_graph(f, backend):
    want, logged = grads(f), LOG.copy()
    LOG.clear()
    torch.testing.assert_close(grads(compiled(f, fullgraph=True, backend=backend)), want)
    assert logged == LOG
    LOG.clear()


@pytest.mark.parametrize("f", MADE, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "options",
    [{}, {"fullgraph": True}, {"backend": "eager", "fullgraph": True}, {"backend": "aot_eager"}],
    ids=str,
)
def test_on_tensors_made_inside(f, options):
    torch.testing.assert_close(grads(compiled(f, **options)), grads(f))


def test_handles_are_torchs_own():
    def f(x):
        return x * 2, x.register_hook(lambda g: g * 10), x.register_hook(lambda g: g + 1)

    c = compiled(f, fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    y, a, b = c(x)
    assert type(a) is RemovableHandle and type(b) is RemovableHandle and a.id != b.id
    y.sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 21.0))
    a.remove()
    x.grad = None
    (x * 2).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 3.0))
    b.remove()


def test_errors_are_torchs_own():
    def f(x):
        x.register_hook(lambda g: g)
        return x * 2

    with pytest.raises(
        RuntimeError, match="cannot register a hook on a tensor that doesn't require gradient"
    ):
        compiled(f)(torch.ones(2))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x.register_hook(lambda g: g * 2), (x * 3).sum().backward(), x.grad.clone())[
            2
        ],  # backward in the same call
        lambda x: (x * 3, x.register_hook(lambda g: g * 2).id)[0],
    ],
    ids=["backward", "handle_id"],
)
def test_breaks_where_a_hook_would_have_to_exist(f):
    a, b = torch.ones(2, requires_grad=True), torch.ones(2, requires_grad=True)
    torch.testing.assert_close(compiled(f)(a), f(b))


def test_a_hook_given_as_argument_is_guarded():
    def f(x, hook):
        x.register_hook(hook)
        return x * 2

    c = compiled(f, fullgraph=True)
    for k in (2.0, 3.0, 2.0):
        x = torch.ones(2, requires_grad=True)
        c(x, lambda g, k=k: g * k).sum().backward()
        assert torch.equal(x.grad, torch.full((2,), 2 * k))


def test_hooks_that_a_compiled_backward_calls():
    """The hook object that the graph registered is an argument of what autograd's own compiler makes; its function is read like any other."""
    from torch._dynamo import compiled_autograd

    def fn(x, box):
        y = x.sin()
        y.register_hook(lambda g: g + box.value)
        return y.sin()

    opt = magneto.compile(fn, backend="eager", fullgraph=True)
    boxes = [Box(torch.tensor(v)) for v in (8.0, 9.0, 8.0)]

    def gradients(f):
        result = []
        for box in boxes:
            x = torch.ones(4, requires_grad=True)
            f(x, box).sum().backward()
            result.append(x.grad)
        return result

    want = gradients(fn)
    with compiled_autograd._enable(lambda gm: magneto.compile(gm, backend="eager", fullgraph=True)):
        got = gradients(opt)
    torch.testing.assert_close(got, want)


def test_hook_of_a_view_whose_base_is_written_to():
    """Such hooks are those of a node that nobody goes through any more; later ones are not."""

    def f(base):
        seen = []
        base = base.clone()
        view, other = base[:], base[:]
        view.register_hook(lambda g: seen.append("view"))
        other.register_hook(lambda g: seen.append("other"))
        view.mul_(2)
        other.grad_fn  # noqa: B018  reading it gives the view its new node
        other.register_hook(lambda g: seen.append(g.clone()))
        (view + other * 1.0).sum().backward()
        return seen

    x = torch.ones(1, requires_grad=True)
    want, got = f(x), magneto.compile(f)(x)
    assert len(want) == len(got) == 1
    torch.testing.assert_close(got, want)


def scaled_and_clamped(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: g.clamp(-1, 1))
    loss = (h * 3).sum()
    loss.backward()
    return loss.detach()


def reads_its_tensor(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: g + h.detach())
    return torch.autograd.grad((h * 3).sum(), [w])[0]


def removes_one(w, x):
    h = (w * x).tanh()
    first = h.register_hook(lambda g: g * 2)
    h.register_hook(lambda g: g * 3)
    first.remove()
    (h * 3).sum().backward()


def logs(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: LOG.append(g.sum() * 2))
    (h * 3).sum().backward()


def keeps_gradients(w, x):
    h, got = (w * x).tanh(), []
    h.register_hook(got.append)
    (h * h).sum().backward()
    return got[0] * 2


def never_reached(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: g * 2)
    return x + 1


def on_a_leaf_of_its_own(w, x):
    v = torch.ones(5, requires_grad=True)
    v.register_hook(lambda g: g * 5)
    (v * x).sum().backward()
    return v.grad


def gives_the_tensor_back(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: g * 2)
    (h * 3).sum().backward(retain_graph=True)
    return h


def gives_the_handle_back(w, x):
    h = (w * x).tanh()
    handle = h.register_hook(lambda g: g * 2)
    (h * 3).sum().backward()
    return handle


def gives_a_tracked_result(w, x):
    h = (w * x).tanh()
    h.register_hook(lambda g: g * 2)
    (h * 3).sum().backward(retain_graph=True)
    return (h * 4).sum()


INSIDE = [
    scaled_and_clamped,
    reads_its_tensor,
    removes_one,
    logs,
    keeps_gradients,
    never_reached,
    on_a_leaf_of_its_own,
]
OUTSIDE = [gives_the_tensor_back, gives_the_handle_back, gives_a_tracked_result]


def steps(f):
    """Results, gradients and what was logged of three calls; results are differentiated where they can be."""
    out = []
    LOG.clear()
    for i in range(3):
        w, x = torch.linspace(-1, 1, 5).requires_grad_(), torch.arange(5.0) + i
        got = f(w, x)
        if torch.is_tensor(got) and got.requires_grad:
            got.sum().backward()
            got = got.detach()
        if isinstance(got, RemovableHandle):
            assert got.hooks_dict_ref() is None or got.id in got.hooks_dict_ref()
            got = None
        out += [got, w.grad]
    out += LOG
    LOG.clear()
    return out


@pytest.mark.parametrize("f", INSIDE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("fullgraph", [False, True])
def test_with_a_recorded_backward_takes_one_graph(f, fullgraph):
    assert_same(steps(compiled(f, fullgraph=fullgraph)), steps(f))
    assert_counts(graphs=1, breaks=0)


@pytest.mark.parametrize("f", OUTSIDE, ids=lambda f: f.__name__)
def test_of_tensors_that_outlive_the_call_are_torchs_own(f):
    assert_same(steps(compiled(f)), steps(f))
