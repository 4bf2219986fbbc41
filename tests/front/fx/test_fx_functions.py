"""autograd.Function, checkpoints and the engine in graphs for a custom backend."""

import enum

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import magneto


class Mode(enum.Enum):
    SIN = 1
    COS = 2


class Choose(torch.autograd.Function):
    """Backward is on purpose no derivative: the graph must not show the ops of forward instead."""

    @staticmethod
    def forward(ctx, x, mode, scale=(2, 3)):
        ctx.save_for_backward(x)
        ctx.scale = scale[0]
        return (x.sin() if mode is Mode.SIN else x.cos()) * scale[1]

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * 10 * ctx.scale, None, None


class Both(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, others):
        ctx.mark_non_differentiable(i := x.argmax())
        return x + others[0], x * others[1], i

    @staticmethod
    def backward(ctx, g, h, _):
        return g * 3 + h * 5, None


class Cast(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x):
        return x * 2

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        return g * 7


class Prints(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        print(end="")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 9


def one(x):
    return Choose.apply(x * 2, Mode.SIN).exp()


def other(x):
    return Choose.apply(x, Mode.COS, (4, 5))


def several(x):
    a, b, i = Both.apply(x, [x.detach() + 1, x.detach() * 2])
    return a * b + i


def cast(x):
    return Cast.apply(x) + 1


class Setting:
    def __init__(self, scale):
        self.scale = scale


class Object(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, o):
        ctx.o = o
        return x * o.scale, x + 1

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.o.scale * 10 + h, None


SETTING = Setting(3)


def with_object(x):
    a, b = Object.apply(x, SETTING)
    return a * b


class Apply(torch.autograd.Function):
    """Calls what it is given; gives an object with tensors in it, too, which autograd does not see."""

    @staticmethod
    def forward(ctx, x, f):
        ctx.save_for_backward(x)
        return f(x), Setting([x + 1, x * 2])

    @staticmethod
    def backward(ctx, g, _):
        return g * ctx.saved_tensors[0] * 10, None


LINEAR = torch.nn.Linear(5, 5)


def with_tensors(x):
    a, b = Object.apply(x, Setting(x.detach() * 3))
    return a * b


def with_module(x):
    y, o = Apply.apply(x, LINEAR)
    return y * o.scale[0] + o.scale[1]


def with_closure(x):
    w = x.detach().exp()
    return (
        Apply.apply(x, lambda t: t * w)[0] + Apply.apply(x, torch.sin)[0] + Apply.apply(x, LINEAR.forward)[0]
    )


def block(x):
    return checkpoint(lambda y: (y * x).sin(), x, use_reentrant=False).exp()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "magneto"])
@pytest.mark.parametrize(
    "f", [one, other, several, cast, with_object, with_tensors, with_module, with_closure, block]
)
def test_one_graph_with_the_users_backward(f, backend):
    a, b = (torch.linspace(-1, 1, 5).requires_grad_() for _ in range(2))
    want, got = f(a), magneto.compile(f, backend=backend, fullgraph=True)(b)
    want.sum().backward()
    got.sum().backward()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(b.grad, a.grad)


@pytest.mark.parametrize("f, ops", [(one, 4), (other, 2), (several, 10), (cast, 3)])
def test_a_call_is_one_operation_and_an_item_for_each_result(f, ops):
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    magneto.compile(f, backend=counter, fullgraph=True)(torch.randn(4, requires_grad=True))
    assert (counter.frame_count, counter.op_count) == (1, ops)


def test_another_object_is_another_graph():
    f, x = (
        magneto.compile(lambda x, o: Object.apply(x, o)[0], backend="eager", fullgraph=True),
        torch.ones(2, requires_grad=True),
    )
    for scale in (3, 3, 5):
        (g,) = torch.autograd.grad(f(x, Setting(scale)).sum(), x)
        assert g.tolist() == [scale * 10] * 2


def test_an_object_with_a_tensor_is_part_of_the_graph():
    f, x = (
        magneto.compile(lambda x, o: Object.apply(x, o)[0] + 1, backend="aot_eager", fullgraph=True),
        torch.ones(2, requires_grad=True),
    )
    for scale in (torch.tensor(2.0), torch.tensor(4.0)):
        (g,) = torch.autograd.grad(f(x, Setting(scale)).sum(), x)
        assert g.tolist() == [float(scale) * 10] * 2


def test_inner_values_that_escape_end_the_graph():
    class Leaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, box):
            box.append(x.exp())
            return box[0] * 2

        @staticmethod
        def backward(ctx, g):
            return g * 11, None

    def f(x):
        box = []
        return Leaks.apply(x, box) + 1, box[0]

    a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
    want, got = f(a), magneto.compile(f, backend="eager")(b)
    want[0].sum().backward()
    got[0].sum().backward()
    torch.testing.assert_close((got, b.grad), (want, a.grad))


@pytest.mark.parametrize("backend", ["eager", "magneto"])
def test_a_class_allowed_in_graphs_is_not_looked_into(backend):
    torch.compiler.allow_in_graph(Prints)
    x = torch.ones(3, requires_grad=True)
    magneto.compile(lambda x: Prints.apply(x) + 1, backend=backend, fullgraph=True)(x).sum().backward()
    assert x.grad.tolist() == [9, 9, 9]


def test_the_engine_is_part_of_a_graph_when_torch_is_told_so():
    import torch._dynamo.config as config

    if not hasattr(config, "trace_autograd_ops"):
        pytest.skip("this torch has no such switch")

    def f(x):
        return torch.autograd.grad((x.sin() * x).sum(), x)[0] + 1

    x = torch.randn(4, requires_grad=True)
    with config.patch(trace_autograd_ops=True):
        got = magneto.compile(f, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(got, f(x))


def test_classes_as_arguments():
    """They have no literal in the code of a graph: attributes of the module.  Here the autograd.Function behind x[b, q]."""
    from torch.nn.attention.flex_attention import create_block_mask

    def f(x):
        mask = create_block_mask(
            lambda b, h, q, k: (k <= q) & (x[b, q % 4] > 0),
            B=2,
            H=None,
            Q_LEN=128,
            KV_LEN=128,
            device="cpu",
            _compile=False,
        )
        return mask.kv_num_blocks

    x = torch.randn(2, 4)
    assert torch.equal(magneto.compile(f, backend="eager")(x), f(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "magneto"])
@pytest.mark.parametrize("module", [torch.nn.MultiheadAttention, torch.nn.TransformerEncoderLayer])
def test_attention_modules_answer_as_in_eager(module, backend):
    """Same strides, too: the fast path that they take without autograd gives other ones than the slow path does."""

    def run(x):
        out = m(x, x, x)[0] if module is torch.nn.MultiheadAttention else m(x)
        return out.view(-1, 8)

    m, x = module(8, 2, batch_first=True).eval(), torch.randn(3, 5, 8)
    with torch.no_grad():
        torch.testing.assert_close(magneto.compile(run, backend=backend, fullgraph=True)(x), run(x))


class Noting(torch.autograd.Function):
    """Backward writes to an object that forward was given."""

    @staticmethod
    def forward(ctx, x, notes):
        ctx.notes = notes
        return x * 2

    @staticmethod
    def backward(ctx, g):
        if isinstance(ctx.notes, Setting):
            ctx.notes.seen = g.sum()
        else:
            ctx.notes.append(g.sum())
        return g * 5, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize(
    "make",
    [list, lambda: [torch.ones(2)], lambda: Setting(3), lambda: Setting(torch.ones(2))],
    ids=["list", "list of tensors", "object", "object with a tensor"],
)
def test_what_backward_writes_to_an_argument_is_kept(make, backend):
    got = []
    for compiled in (False, True):
        notes = make()
        f = lambda x, notes: Noting.apply(x, notes).sin()
        f = magneto.compile(f, backend=backend) if compiled else f
        for i in range(3):
            x = torch.full((3,), 1.0 + i, requires_grad=True)
            f(x, notes).sum().backward()
            got.append((x.grad, list(notes) if isinstance(notes, list) else vars(notes)))
    torch.testing.assert_close(got[3:], got[:3])


class Wrong(torch.autograd.Function):
    """Backward raises, so that a graph with it is right as long as nobody asks for gradients."""

    @staticmethod
    def forward(ctx, x, mode):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return g


def test_backward_that_raises_stays_in_the_graph():
    f = magneto.compile(lambda x: Wrong.apply(x, Mode.SIN), backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    torch.testing.assert_close(f(x), x.sin())
    with pytest.raises(RuntimeError, match="incorrect number of gradients"):
        f(x).sum().backward()


@pytest.mark.parametrize("held", [[torch.ones(3) * 2], {0: torch.ones(3) * 2}], ids=["list", "dict"])
def test_a_closure_over_a_container_from_outside_is_an_argument(held):
    def f(x):
        return Apply.apply(x, lambda t: t * held[0])[0].exp()

    x = torch.ones(3)
    torch.testing.assert_close(magneto.compile(f, backend="eager")(x.requires_grad_()), f(x))
