"""autograd.Function inside of compiled functions, and torch.utils.checkpoint around and inside."""

from types import SimpleNamespace

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import magneto
from magneto import _magneto
from programs import Registry, grads, leaf, mlp
from support import counts
from training import check

program = Registry()


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g * x * x  # on purpose not the derivative


class Scale(Function):
    """A number in the context, a second result, setup_context."""

    @staticmethod
    def forward(x, factor):
        return x * factor, x + factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, g, h):
        return g * ctx.factor * 10 + h, None


class Count(Function):
    @staticmethod
    def forward(ctx, x):
        i = x.argmax(-1)
        ctx.mark_non_differentiable(i)
        ctx.save_for_backward(x, i)
        return x.max(-1).values, i

    @staticmethod
    def backward(ctx, g, _):
        x, i = ctx.saved_tensors
        return torch.zeros_like(x).scatter(-1, i.unsqueeze(-1), g.unsqueeze(-1))


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Needs(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y if ctx.needs_input_grad[0] else None, g * x * 2 if ctx.needs_input_grad[1] else None


class Undefined(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return h * 3
        if h is None:
            return g * 2
        return g * 2 + h * 3


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x) + 1

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Cube.apply(g) * x


class Reversal(Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return g.neg() * ctx.weight, None


class Swish(torch.nn.Module):
    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx, g):
            s = torch.sigmoid(ctx.saved_tensors[0])
            return g * (s * (1 + ctx.saved_tensors[0] * (1 - s)))

    def forward(self, x):
        return self.F.apply(x)


def simple(f, *args):
    def run(C):
        g = C(f)
        res = []
        for i in range(2):
            xs = [leaf(3, 4) for _ in range(2)]
            out = g(*xs)
            out = out if isinstance(out, tuple) else (out,)
            sum((o * (k + 1)).sum() for k, o in enumerate(out) if o.requires_grad).backward()
            res.append([out, grads(*xs)])
        return res

    return run


SIMPLE = {
    "saves": lambda x, y: Cube.apply(x.sin()) + y,
    "setup_context": lambda x, y: Scale.apply(x * y, 4.0),
    "non_differentiable": lambda x, y: Count.apply(x * y),
    "dirty": lambda x, y: InPlace.apply(x * y) + 1,
    "needs_input_grad": lambda x, y: Needs.apply(x, y.detach()) * y,
    "undefined": lambda x, y: Undefined.apply(x)[1] * y,
    "nested": lambda x, y: Outer.apply(x) * y,
    "gradient_reversal": lambda x, y: (Reversal.apply(x, 0.5) * y).sin(),
    "twice": lambda x, y: Cube.apply(Cube.apply(x) * y),
    "mixed_with_ops": lambda x, y: (torch.softmax(Cube.apply(x @ y.t()), -1), y.cos()),
}
for name, f in SIMPLE.items():
    g = simple(f)
    g.__name__ = "function_" + name
    program()(g)


@program()
def function_in_a_module(C):
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), Swish(), torch.nn.Linear(8, 2), Swish())
    f = C(m)
    x = leaf(3, 4)
    for _ in range(2):
        y = f(x)
        y.pow(2).sum().backward()
    return [y, x.grad, grads(m)]


@program(graphs=2, joint=0)
def function_without_gradients(C):
    f = C(lambda x: Cube.apply(x) + 1)
    with torch.no_grad():
        a = f(leaf(3))
    return [a, f(torch.randn(3))]


@program()
def function_differentiated_twice(C):
    x = leaf(3)
    y = C(lambda x: Cube.apply(x.sin()))(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().backward()
    return [g, x.grad]


@program(graphs=None)
def function_that_raises(C):
    class Bad(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise ValueError("no gradient")

    x = leaf(3)
    C(lambda x: Bad.apply(x) + 1)(x).sum().backward()


@program(breaks=1)
def function_with_side_effects(C):
    seen = []

    class Log(Function):
        @staticmethod
        def forward(ctx, x):
            seen.append("forward")
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append("backward")
            return g * 2

    x = leaf(3)
    f = C(lambda x: Log.apply(x) + 1)
    for _ in range(3):
        f(x).sum().backward()
    return [seen, x.grad]


SCALE = 2.0


@program(graphs=None)
def function_reads_a_global_in_backward(C):
    global SCALE

    class G(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * SCALE

    x = leaf(3)
    f = C(lambda x: G.apply(x) + 1)
    for s in (2.0, 3.0, 3.0):
        SCALE = s
        f(x).sum().backward()
    return [x.grad]


@program(breaks=1)
def function_whose_backward_has_side_effects(C):
    seen = []

    class Log(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            seen.append(1)
            return g * 5

    x = leaf(3)
    f = C(lambda x: Log.apply(x) + 1)
    for _ in range(3):
        f(x).sum().backward()
    return [seen, x.grad]


@program(graphs=2, joint=2)
def function_whose_backward_is_exchanged(C):
    class G(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 5

    x = leaf(3)
    f = C(lambda x: G.apply(x) + 1)
    f(x).sum().backward()
    G.backward = staticmethod(lambda ctx, g: g * 7)
    f(x).sum().backward()
    return [x.grad]


@program()
def function_in_anomaly_mode(C):
    x = leaf(3)
    f = C(lambda x: Cube.apply(x) + 1)
    f(x).sum().backward()
    with torch.autograd.set_detect_anomaly(True):
        f(x).sum().backward()
    return [x.grad]


@program(joint=0)
def function_whose_result_is_a_view(C):
    x = leaf(3)
    f = C(lambda x: Reversal.apply(x, 0.5))
    f(x).sum().backward()
    return [x.grad]


@program(graphs=None)
def function_whose_inner_value_is_a_result(C):
    class Leaks(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.inner = x.exp()
            box.append(ctx.inner)
            return ctx.inner * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.inner

    box = []
    x = leaf(3)
    f = C(lambda x: (Leaks.apply(x) + 1, box.pop()))
    for _ in range(2):
        y, z = f(x)
        y.sum().backward()
    return [y, z, x.grad]


@program()
def function_with_objects_as_arguments(C):
    class Linear(Function):
        @staticmethod
        def forward(ctx, x, m, names):
            ctx.save_for_backward(x)
            ctx.m = m
            return x @ m.weight.t()

        @staticmethod
        def backward(ctx, g):
            return g @ ctx.m.weight * 2, None, None

    m = torch.nn.Linear(3, 3)
    x = leaf(2, 3)
    f = C(lambda x: Linear.apply(x, m, ["a"]).sin())
    for _ in range(2):
        f(x).sum().backward()
    return [x.grad]


@program(graphs=None)
def function_with_a_number_that_changes(C):
    x = leaf(3)
    f = C(lambda x, s: Scale.apply(x, s)[0].sin())
    for s in (1.0, 2.0, 3.0, 4.0):
        f(x, s).sum().backward()
    return [x.grad]


@program(graphs=None)
def function_with_a_wrong_number_of_gradients(C):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(3)
    C(lambda x: Wrong.apply(x, x.detach()) + 1)(x).sum().backward()


@program()
def function_once_differentiable(C):
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            return g * ctx.saved_tensors[0].exp()

    x = leaf(3)
    f = C(lambda x: Once.apply(x) + 1)
    for _ in range(2):
        f(x).sum().backward()
    return [x.grad]


@program(graphs=None)
def function_that_writes_an_input(C):
    x = leaf(3)
    h = x * 1
    y = C(lambda h: InPlace.apply(h) + 1)(h)
    (y + h).sum().backward()
    return [h, y, x.grad]


@program(graphs=None)
def compiled_function_inside_a_function(C):
    inner = C(lambda x: x.sin() * 2)

    class F(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return inner(x)

        @staticmethod
        def backward(ctx, g):
            return inner(g)

    x = leaf(3)
    for _ in range(2):
        F.apply(x).sum().backward()
    return [x.grad]


@program(graphs=None, breaks=0)
def whole_step_with_a_function(C):
    m = torch.nn.Sequential(torch.nn.Linear(4, 8), Swish(), torch.nn.Linear(8, 2))
    opt = torch.optim.SGD(m.parameters(), 0.1)

    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        opt.step()
        return loss.detach()

    f = C(step)
    return [[f(torch.randn(3, 4)) for _ in range(4)], list(m.parameters())]


# ---- checkpoint ----


class Block(torch.nn.Module):
    def __init__(self, n=4, dropout=0.0):
        super().__init__()
        self.a, self.b, self.d = (
            torch.nn.Linear(n, 4 * n),
            torch.nn.Linear(4 * n, n),
            torch.nn.Dropout(dropout),
        )

    def forward(self, x):
        return x + self.d(self.b(torch.nn.functional.gelu(self.a(x))))


class Stack(torch.nn.Module):
    def __init__(self, reentrant, n=4, depth=2, dropout=0.0):
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(n, dropout) for _ in range(depth))
        self.reentrant = reentrant

    def forward(self, x):
        for b in self.blocks:
            x = checkpoint(b, x, use_reentrant=self.reentrant)
        return x.sum()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_in_a_stack(reentrant):
    def run(C):
        m = Stack(reentrant)
        f = C(m)
        x = leaf(2, 4)
        for _ in range(3):
            y = f(x)
            y.backward()
        return [y, x.grad, grads(m)]

    r = Registry()
    r(graphs=None)(run)
    r.check("run")


@program(graphs=None)
def checkpoint_of_a_sequential(C):
    m = mlp(4, 8, 8, 4)
    x = leaf(2, 4)
    f = C(lambda x: checkpoint_sequential(m, 2, x, use_reentrant=False))
    for _ in range(2):
        f(x).sum().backward()
    return [x.grad, grads(m)]


@program(graphs=None)
def checkpoint_around_compiled_blocks(C):
    m = Stack(False)
    m.blocks = torch.nn.ModuleList(C(b) for b in m.blocks)
    x = leaf(2, 4)
    for _ in range(2):
        m(x).backward()
    return [x.grad, grads(m)]


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.norm, self.lin = 0, torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 4)

    def forward(self, x):
        self.n += 1
        return self.norm(self.lin(x)).tanh()


@program(graphs=None)
def checkpoint_of_a_block_with_state(C):
    """Eager runs the block twice: running statistics and counters move twice."""
    m = Counting()
    x = leaf(3, 4)
    f = C(lambda x: checkpoint(m, x, use_reentrant=False).sum())
    for _ in range(3):
        f(x).backward()
    return [x.grad, grads(m), list(m.buffers()), m.n]


@program()
def checkpoint_with_keywords_and_several_results(C):
    def block(a, b, *, k):
        h = (a * b).sin().exp()
        return h.relu() * k, (h.cumsum(0) * a).tanh()

    a, b = leaf(3, 4), leaf(3, 4)
    f = C(lambda a, b: checkpoint(block, a, b, k=2.0, use_reentrant=False, preserve_rng_state=True))
    for _ in range(2):
        p, q = f(a, b)
        (p.sum() + (q * q).sum()).backward()
    return [p, q, a.grad, b.grad]


@program()
def checkpoint_inside_of_a_checkpoint(C):
    m = mlp(4, 8, 4)
    inner = lambda x: checkpoint(m, x, use_reentrant=False).sigmoid()
    x = leaf(2, 4)
    f = C(lambda x: checkpoint(lambda y: inner(inner(y)).view(-1), x, use_reentrant=False).cos())
    for _ in range(2):
        f(x).sum().backward()
    return [x.grad, grads(m)]


@program(graphs=None)
def reentrant_checkpoint_without_gradients_to_track(C):
    m = mlp(4, 8, 4)
    y = C(lambda x: checkpoint(m, x, use_reentrant=True) * 2)(torch.ones(2, 4))
    return [y, y.requires_grad]


@program(graphs=None)
def checkpoint_with_a_selective_policy(C):
    from functools import partial

    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    def policy(ctx, op, *args, **kwargs):
        return (
            CheckpointPolicy.MUST_SAVE
            if op is torch.ops.aten.mm.default
            else CheckpointPolicy.PREFER_RECOMPUTE
        )

    x = leaf(3, 3)
    f = C(
        lambda x: checkpoint(
            lambda y: (y @ y).sin() @ y,
            x,
            use_reentrant=False,
            context_fn=partial(create_selective_checkpoint_contexts, policy),
        )
    )
    f(x).sum().backward()
    return [x.grad]


@program(graphs=None)
def recurrent_layers_are_trained(C):
    m = torch.nn.LSTM(4, 6, num_layers=2, bidirectional=True)
    x = leaf(5, 2, 4)
    f = C(m)
    for _ in range(2):
        y, (h, c) = f(x)
        (y.sum() + h.sum() * c.sum()).backward()
    return [y, x.grad, grads(m)]


@program(graphs=None)
def checkpoint_with_preserved_dropout(C):
    """Eager draws the same mask again in backward: the gradient is zero exactly where the result is."""
    torch.manual_seed(3)
    x = leaf(50)
    y = C(lambda x: checkpoint(lambda t: torch.nn.functional.dropout(t * 2, 0.5), x, use_reentrant=False))(x)
    y.sum().backward()
    return [bool(((y == 0) == (x.grad == 0)).all()), 0 < int((y == 0).sum()) < 50]


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_saves_memory(reentrant):
    """What lies inside of the blocks is not kept between forward and backward: it is computed a second time in backward."""

    def kept(m, f):
        n, own = [], {p.data_ptr() for p in m.parameters()}
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t: n.append(0 if t.data_ptr() in own else t.numel()) or t, lambda t: t
        ):
            loss = f(torch.randn(8, 16, requires_grad=True))
        loss.backward()
        return sum(n)

    def stack():
        torch.manual_seed(0)
        return Stack(reentrant, 16, 4)

    m, blocks = stack(), torch.nn.Sequential(*stack().blocks)
    compiled = kept(m, magneto.compile(m))
    assert counts().joint_graphs == 1
    assert compiled <= kept(m, m)
    assert compiled < kept(blocks, magneto.compile(lambda x: blocks(x).sum()))


class Again(Function):
    """Keeps its arguments only: backward computes the rest again and differentiates it."""

    @staticmethod
    def forward(ctx, f, *args):
        ctx.f = f
        ctx.save_for_backward(*args)
        return f(*args)

    @staticmethod
    def backward(ctx, g):
        with torch.enable_grad():
            args = [t.detach().requires_grad_() for t in ctx.saved_tensors]
            y = ctx.f(*args)
        return None, *torch.autograd.grad(y, args, g)


def test_backward_that_differentiates():
    x, w = torch.randn(3, 4).requires_grad_(), torch.randn(4, 4).requires_grad_()
    check(lambda x, w: Again.apply(lambda x, w: torch.tanh(x @ w), x, w) * 2, x, w)


def test_a_step_around_functions_of_numbers_that_change_and_of_functions_is_one_graph():
    results = []
    for compile in (lambda f: f, magneto.compile):
        torch.manual_seed(0)
        w = torch.randn(4, 4).requires_grad_()

        def step(x, scale):
            w.grad = None
            y = Again.apply(lambda x, w: torch.tanh(x @ w), x, w)
            loss = Scale.apply(y, scale)[0].sum()
            loss.backward()
            return loss.detach()

        step = compile(step)
        results.append([(step(torch.full((3, 4), i / 4), i / 8), w.grad.clone()) for i in range(5)])
    for got, want in zip(results[1], results[0]):
        torch.testing.assert_close(got, want)
    s = counts()
    assert s.graphs <= 3 and not s.reasons and not s.fallbacks, s


class Sized(Function):
    """Sizes in the context and among the arguments, an object of the caller's."""

    @staticmethod
    def forward(ctx, x, n, settings):
        ctx.size, ctx.n, ctx.settings = x.shape[0], n, settings
        return x.view(x.shape[0] * 2) * n

    @staticmethod
    def backward(ctx, g):
        return g.view(ctx.size, 2) * ctx.n * ctx.settings["scale"], None, None


@pytest.mark.parametrize(
    "argument", [lambda x: (2, {"scale": 3}), lambda x: (x.shape[0], {"scale": x.shape[0] + 1})]
)
def test_a_function_at_any_size_needs_two_recordings(argument):
    def f(x):
        return Sized.apply(x.sin(), *argument(x)).cos().sum()

    c = magneto.compile(f, fullgraph=True)
    for n in (2, 3, 5, 4):
        want, got = ((torch.arange(2.0 * n) / n).view(n, 2).requires_grad_() for _ in range(2))
        assert torch.allclose(f(want), c(got))
        assert torch.allclose(torch.autograd.grad(f(want), want)[0], torch.autograd.grad(c(got), got)[0])
    assert len(_magneto.entries()) == 2


@pytest.mark.parametrize("writes", [False, True])
def test_what_lies_on_the_context_is_not_version_checked(writes):
    """Eager looks at the version of saved tensors alone, and backward reads what ctx has at that time; it may write it."""

    class OnContext(Function):
        @staticmethod
        def forward(ctx, a, b, x):
            ctx.b = b
            ctx.save_for_backward(a)
            return x * b

        @staticmethod
        def backward(ctx, g):
            if writes:
                ctx.b.mul_(2)
            return None, None, g + ctx.saved_tensors[0] * ctx.b

    def run(f):
        a, b, x = torch.ones(2), torch.ones(2), torch.ones(2, requires_grad=True)
        outs, got = [f(a, b, x), f(a, b, x)], []
        b.mul_(3)
        for o in outs:
            got += torch.autograd.grad(o.sum(), x)
        o = f(a, b, x)
        a.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            o.sum().backward()
        return [*got, b]

    f = lambda a, b, x: OnContext.apply(a, b, x)
    torch.testing.assert_close(run(magneto.compile(f)), run(f), rtol=0, atol=0)


@torch.library.custom_op("own_derivative_test::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


double.register_fake(lambda x: torch.empty_like(x))
double.register_autograd(lambda ctx, g: g * 2)


def rows_written(out, x):
    even = torch.where(torch.arange(4) % 2 == 0)[0]
    out[even] = double(x[even])
    return out


@pytest.mark.parametrize(
    "f",
    [
        lambda out, x: out.copy_(double(x) * 3),
        lambda out, x: torch._foreach_add_([out], [double(x)])[0],
        lambda out, x: torch._foreach_add_([out], [x * 2])[0],
        rows_written,
    ],
    ids=["copy", "list", "list of aten's", "rows"],
)
def test_older_tensor_written_with_what_an_operator_differentiates_itself(f):
    got = []
    for g in (f, magneto.compile(f)):
        x = torch.ones(4, 3, requires_grad=True)
        g(torch.zeros(4, 3), x).sin().sum().backward()
        got.append(x.grad)
    torch.testing.assert_close(got[1], got[0])
    assert not counts().reasons.keys() - {"data_dependent"}


def test_written_statistics_do_not_make_a_graph_run_op_by_op():
    """They are written by an op that autograd tracks, and are no part of what it gives."""
    weight, bias, mean, var = torch.ones(3), torch.zeros(3), torch.zeros(3), torch.ones(3)
    f = magneto.compile(
        lambda x: torch.ops.aten._native_batch_norm_legit(x, weight, bias, mean, var, True, 0.1, 1e-5)[0] * 2
    )
    f(torch.randn(4, 3, requires_grad=True)).sum().backward()
    assert counts().joint_graphs == 1 and not mean.requires_grad and mean.abs().sum() > 0


def beside(out, x):
    y = double(x)
    out.copy_(x)
    return out + y, y.t()


def before(out, x):
    out.copy_(x * 3)
    return double(x)


@pytest.mark.parametrize("f", [beside, before])
def test_operator_with_its_own_derivative_in_a_graph_that_writes(f):
    """Such graphs run op by op under autograd, and the operator is called as the program called it."""
    got = []
    for g in (f, magneto.compile(f, fullgraph=True)):
        x, out = torch.ones(4, 3, requires_grad=True), torch.zeros(4, 3)
        results = g(out, x)
        results = (*results, out) if isinstance(results, tuple) else (results, out)
        got.append([torch.autograd.grad(r.sum(), x, retain_graph=True)[0] for r in results])
    torch.testing.assert_close(got[1], got[0])


LOG = SimpleNamespace(calls=0, seen=[])


class Logged(Function):
    """Its forward changes objects from outside: a list gets a tensor that has no gradient, a counter moves."""

    @staticmethod
    def forward(ctx, x):
        LOG.calls += 1
        LOG.seen.append(x.sin())
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 7


def logged(x):
    return Logged.apply(x) + Logged.apply(x * 2)


def logged_and_written(x):
    y = Logged.apply(x)
    y.mul_(2)
    return y + LOG.seen[-1]


@pytest.mark.parametrize("f, graphs", [(logged, 1), (logged_and_written, None)])
def test_forward_with_side_effects(f, graphs):
    x = torch.linspace(-1, 1, 4).requires_grad_()
    got = []
    for g in (f, magneto.compile(f, fullgraph=graphs == 1)):
        for _ in range(3):
            LOG.calls, LOG.seen = 0, []
            y = g(x)
            got.append([y, *torch.autograd.grad(y.sum(), x), *LOG.seen, torch.tensor(LOG.calls)])
            assert not any(s.requires_grad for s in LOG.seen)
    for other in got[1:]:
        torch.testing.assert_close(other, got[0])
    with torch.no_grad():
        torch.testing.assert_close(magneto.compile(f)(x), f(x))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_apply_of_an_instance(backend):
    x = leaf(3)
    c = magneto.compile(lambda x: Cube().apply(x) + 1, backend=backend, fullgraph=True)
    y = c(x)
    y.sum().backward()
    torch.testing.assert_close(y, x**3 + 1)
    torch.testing.assert_close(x.grad, 2 * x**2)
