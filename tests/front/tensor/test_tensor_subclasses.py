"""Tensors of the program's own classes: __torch_function__, attributes and methods, casts, parameters, classes made inside."""

import copy

import pytest
import torch

import magneto
from support import assert_same

BACKENDS = [None, "eager"]


class Doubles(torch.Tensor):
    """Its sines are twice as high."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert cls is Doubles and types == (Doubles,)
        r = super().__torch_function__(func, types, args, kwargs or {})
        return r * 2 if func in (torch.sin, torch.Tensor.sin) else r


class Plain(torch.Tensor):
    factor = [2]

    def times(self):
        return self * self.factor[0]

    @property
    def half(self):
        return self / 2


class Off(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Tagged(torch.nn.Parameter):
    tag = "tagged"


class Counting(torch.Tensor):
    seen = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


class Hooked(torch.Tensor):
    def __getattr__(self, name):
        if name.startswith("get_"):
            return name[4:]
        raise AttributeError(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value if name == "requires_grad" else [value])


class Made(torch.Tensor):
    def __new__(cls, data, scale):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, scale):
        self.scale = scale


class Cast(torch.Tensor):
    def __init__(self, data):
        self.rows = data.shape[0]


def functions(x):
    return torch.sin(x) + 1, x.sin(), torch.add(torch.ones(4), other=x), torch.cat([x, torch.ones(4)])


def members(x):
    return (
        x.times() + x.half,
        type(x),
        x.__class__ is Plain,
        isinstance(x, Plain),
        isinstance(x, Doubles),
        x.shape,
        len(x),
    )


def attributes(x):
    y = x * x.scale
    y.tag = [x.scale, "r"]
    x.seen = True
    return y, y.tag


def casts(x):
    return x.as_subclass(Plain).times(), Plain(x) + 1, torch.Tensor.as_subclass(x, Doubles).sin(), x


def casts_back(x):
    return x.as_subclass(torch.Tensor) + 1, x.as_subclass(torch.Tensor), x.as_subclass(Off), torch.Tensor(x)


def made(x):
    y = Made(x * 2, 3)
    return torch.Tensor._make_subclass(Off, x * 2) + 1, y, y * y.scale, Cast(x)


def switched_off(x):
    with torch._C.DisableTorchFunctionSubclass():
        y = torch.sin(x)
    return y, torch.sin(x)


def written(x):
    x.add_(1)
    x[0] = 7
    return x


def hooks(x):
    x.note = 5
    return x * 2, x.get_name, x.note, hasattr(x, "other")


def broken(x):
    y = torch.sin(x)
    magneto.graph_break()
    return torch.sin(y)


CASES = [
    (functions, Doubles),
    (members, Plain),
    (attributes, Plain),
    (casts, torch.Tensor),
    (casts_back, Plain),
    (casts_back, Doubles),
    (made, torch.Tensor),
    (switched_off, Doubles),
    (written, Plain),
    (written, Doubles),
    (hooks, Hooked),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("fn,cls", CASES)
def test_one_graph(fn, cls, grad, backend):
    if grad and fn is written:
        return

    def arg():
        x = torch.arange(4.0).as_subclass(cls)
        if cls is Plain:
            x.scale = 3
        return x.requires_grad_() if grad else x

    opt = magneto.compile(fn, fullgraph=True, **({"backend": backend} if backend else {}))
    for _ in range(3):
        x, y = arg(), arg()
        assert_same(opt(x), fn(y))
        assert_same(x, y)


def test_gradients():
    def fn(x):
        return (torch.sin(x) * 3).sum()

    opt = magneto.compile(fn, fullgraph=True)
    for _ in range(2):
        a = torch.arange(4.0).as_subclass(Doubles).requires_grad_()
        b = a.detach().clone().requires_grad_()
        opt(a).backward()
        fn(b).backward()
        assert_same(a.grad, b.grad)


def test_guards():
    def fn(x):
        return x.times() * x.scale

    opt = magneto.compile(fn)

    def arg(cls, scale):
        x = torch.ones(3).as_subclass(cls)
        x.scale = scale
        return x

    class Other(Plain):
        factor = [5]

    for cls, scale in [(Plain, 2), (Plain, 3), (Other, 3), (Plain, torch.ones(3)), (Plain, 2)]:
        assert_same(opt(arg(cls, scale)), fn(arg(cls, scale)))
    Plain.factor[0] = 4
    assert_same(opt(arg(Plain, 2)), fn(arg(Plain, 2)))
    Plain.factor = [2]
    assert_same(opt(arg(Plain, 2)), fn(arg(Plain, 2)))
    Plain.times = lambda self: self * 9
    assert_same(opt(arg(Plain, 2)), fn(arg(Plain, 2)))
    del Plain.times
    Plain.times = lambda self: self * self.factor[0]


def test_side_effects_and_breaks():
    def fn(x):
        y = x * 2 + x
        return y

    x = torch.ones(3).as_subclass(Counting)
    Counting.seen = []
    want = fn(x)
    seen, Counting.seen = Counting.seen, []
    opt = magneto.compile(fn)
    got = [opt(x) for _ in range(3)]
    assert Counting.seen == seen * 3
    assert_same(got, [want] * 3, aliasing=False)  # three results
    opt = magneto.compile(broken)
    x = torch.ones(3).as_subclass(Doubles)
    for _ in range(2):
        assert_same(opt(x), broken(x))


def test_parameters():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = Tagged(torch.ones(3, 3))
            self.w.note = "n"
            self.b = torch.nn.Buffer(torch.ones(3))

        def forward(self, x):
            assert (
                isinstance(self.w, torch.nn.Parameter)
                and type(self.w) is Tagged
                and isinstance(self.b, torch.nn.Buffer)
            )
            return torch.nn.functional.linear(x, self.w, self.b), self.w.tag, self.w.note

    net, x = Net(), torch.arange(6.0).reshape(2, 3)
    opt = magneto.compile(net, fullgraph=True)
    for _ in range(2):
        assert_same(opt(x), net(x))
    opt(x)[0].sum().backward()
    got = net.w.grad
    net.w.grad = None
    net(x)[0].sum().backward()
    assert_same(got, net.w.grad)
    twin = copy.deepcopy(net)
    twin.w.note = "n"
    assert_same(magneto.compile(twin)(x), net(x))


def test_made_inside():
    def fn(x):
        p = torch.nn.Parameter(x * 2)
        q = torch.nn.Parameter(x, requires_grad=False)
        b = torch.nn.Buffer(x + 1)
        return p, q, b, p * x, isinstance(p, torch.nn.Parameter), isinstance(b, torch.nn.Buffer)

    opt, x = magneto.compile(fn), torch.arange(3.0)
    for _ in range(2):
        got, want = opt(x), fn(x)
        assert_same(got, want)
        for r in (got, want):
            r[3].sum().backward()
        assert_same(got[0].grad, want[0].grad)

    def local(x):
        class Local(torch.Tensor):
            def more(self):
                return self + 1

        return x.as_subclass(Local).more()

    opt = magneto.compile(local)
    for _ in range(2):
        got, want = opt(x), local(x)
        assert type(got).__name__ == "Local" and torch.equal(
            got.as_subclass(torch.Tensor), want.as_subclass(torch.Tensor)
        )
        assert torch.equal(got.more().as_subclass(torch.Tensor), x + 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_questions_about_torch_function(backend):
    class Handled:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    class Sub(torch.Tensor, Handled):
        pass

    def fn(x, t):
        o = torch.overrides
        return (
            o.has_torch_function((x,)),
            o.has_torch_function_unary(x),
            o.has_torch_function_variadic(x, t),
            torch.relu(t) + 1,
        )

    opt = magneto.compile(fn, **({"backend": backend} if backend else {}))
    for x in (4, torch.ones(2), torch.ones(2).as_subclass(Sub), Handled(), "text"):
        got, want = opt(x, torch.ones(3)), fn(x, torch.ones(3))
        assert got[:3] == want[:3] and got[3].equal(want[3])


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_torch_calls_for_items_and_copies(backend):
    calls = []

    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            calls.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    def items(x):
        return [i * 2 for i in x]

    def copied(x):
        return copy.deepcopy(x)

    def summed(x):
        return x.sin().sum()

    options = {"backend": backend} if backend else {}
    for fn in (summed, magneto.compile(summed, **options)):
        fn(torch.ones(2).as_subclass(Told).requires_grad_())
        assert calls[-2:] == ["sin", "sum"]
    calls.clear()
    for fn in (items, magneto.compile(items, **options)) * 2:
        fn(torch.ones(2, 2).as_subclass(Told))
        assert calls == ["dim", "unbind", "mul", "mul"]
        calls.clear()
    with pytest.raises(RuntimeError, match="default implementation of __deepcopy__"):
        magneto.compile(copied, **options)(torch.ones(2).as_subclass(Told))


@pytest.mark.parametrize("backend", ["magneto", "eager"])
def test_attributes_that_a_property_makes_are_made_by_the_program_only(backend):
    class Shaped(torch.Tensor):
        @property
        def shape(self):
            if not hasattr(self, "asked"):
                self.asked = self.size()
            return self.asked

    def f(x):
        return x + 1, x.shape, x.asked

    a, b = (torch.ones(2, 2).as_subclass(Shaped) for _ in range(2))
    assert magneto.compile(f, backend=backend, fullgraph=True)(a)[1:] == f(b)[1:]
    assert a.asked == b.asked
