"""Wrong arguments name themselves; kinds of tensors that are not compiled run eagerly with the right result."""

import contextlib
import importlib.util
import warnings

import pytest
import torch

import magneto


def f(x):
    return x + 1


@pytest.mark.parametrize(
    "kwargs, error, words",
    [
        ({"fullgraph": 1}, TypeError, ["fullgraph", "bool", "int"]),
        ({"dynamic": "yes"}, TypeError, ["dynamic", "str"]),
        ({"disable": 0}, TypeError, ["disable"]),
        ({"mode": 3}, TypeError, ["mode", "int"]),
        ({"mode": "fastest"}, ValueError, ["fastest", "reduce-overhead", "max-autotune", "default"]),
        ({"options": [1]}, TypeError, ["options", "list"]),
        ({"options": {"freez": True}}, ValueError, ["freez", "freeze", "threads"]),
        ({"options": {"threads": "4"}}, TypeError, ["threads", "int", "str"]),
        ({"options": {"threads": True}}, TypeError, ["threads"]),
        ({"options": {"threads": -1}}, ValueError, ["threads"]),
        ({"options": {"freeze": 1}}, TypeError, ["freeze", "bool"]),
        ({"backend": "magnet"}, ValueError, ["magnet", "'magneto'", "'inductor'"]),
        ({"backend": 7}, TypeError, ["backend", "int"]),
    ],
)
def test_arguments(kwargs, error, words):
    for make in (lambda: magneto.compile(f, **kwargs), lambda: magneto.compile(**kwargs)):
        with pytest.raises(error) as info:
            make()
        for word in words:
            assert word in str(info.value)


def test_not_callable():
    for bad in (3, "f", [f]):
        with pytest.raises(TypeError, match="callable"):
            magneto.compile(bad)
        with pytest.raises(TypeError, match="callable"):
            magneto.explain(bad)
        with pytest.raises(TypeError, match="callable"):
            magneto.disable(bad)


def test_unknown_keyword():
    with pytest.raises(TypeError, match="fullgraf"):
        magneto.compile(f, fullgraf=True)


def test_wrong_call():
    c = magneto.compile(f)
    for _ in range(2):
        with pytest.raises(TypeError, match=r"f\(\) missing 1 required positional argument: 'x'"):
            c()
        with pytest.raises(TypeError, match=r"f\(\) takes 1 positional argument but 2 were given"):
            c(1, 2)
        torch.testing.assert_close(c(torch.ones(2)), torch.full((2,), 2.0))


class Sub(torch.Tensor):
    """A user's tensor subclass."""


def quantized():
    return torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)


KINDS = {
    "sparse": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "meta": lambda: torch.ones(3, device="meta"),
    "complex": lambda: torch.ones(3, dtype=torch.complex64),
    "conj": lambda: torch.full((3,), 1j).conj(),
    "neg": lambda: torch.full((3,), 1j).conj().imag,
    "subclass": lambda: torch.ones(3).as_subclass(Sub),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_kinds(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = KINDS[kind]()
        fn = lambda t: (t * 2, torch.ones(2) * 3)
        want = fn(x)
        c = magneto.compile(fn)
        for _ in range(2):
            got = c(x)
            assert type(got[0]) is type(want[0]) and got[0].layout == want[0].layout
            assert got[0].device == want[0].device and got[0].dtype == want[0].dtype
            if kind == "nested":
                assert all(torch.equal(a, b) for a, b in zip(got[0].unbind(), want[0].unbind()))
            elif kind != "meta":
                torch.testing.assert_close(
                    got[0].to_dense() if got[0].layout != torch.strided else got[0],
                    want[0].to_dense() if want[0].layout != torch.strided else want[0],
                )
            torch.testing.assert_close(got[1], want[1])


def test_quantized():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = quantized()
        c = magneto.compile(lambda t: t.dequantize() + 1)
        torch.testing.assert_close(c(q), q.dequantize() + 1)


def test_function_that_raises():
    def g(x, n):
        y = x * 2
        if n > 1:
            raise KeyError(f"n is {n}")
        return y

    c = magneto.compile(g)
    for _ in range(2):
        with pytest.raises(KeyError, match="n is 3"):
            c(torch.ones(2), 3)
    torch.testing.assert_close(c(torch.ones(2), 1), torch.full((2,), 2.0))


def test_torch_raises():
    def g(x, y):
        return torch.sin(x) @ y

    c = magneto.compile(g)
    a, b = torch.ones(2, 3), torch.ones(4, 5)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        c(a, b)
    torch.testing.assert_close(c(a, a.T), g(a, a.T))


@pytest.mark.parametrize("other", [(2,), (3, 3), (1, 3), (2, 3, 1)])
def test_stack_of_other_shapes_raises(other):
    c = magneto.compile(lambda *t: torch.stack(t) + 1)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        c(torch.ones(2, 3), torch.ones(other))
    torch.testing.assert_close(c(torch.ones(2, 3), torch.ones(2, 3)), torch.full((2, 2, 3), 2.0))


def test_vmap_and_modes_around_a_compiled_function():
    c = magneto.compile(lambda x: (x * 2).sum())
    x = torch.randn(3, 4)
    torch.testing.assert_close(torch.vmap(c)(x), (x * 2).sum(1))
    torch.testing.assert_close(torch.func.grad(c)(x), torch.full((3, 4), 2.0))


def test_data_of_a_tensor():
    def g(x):
        y = x * 2
        return y + len(y.tolist()) + float(y[0]) + int(y.numpy().shape[0])

    c = magneto.compile(g)
    for _ in range(2):
        torch.testing.assert_close(c(torch.ones(3)), g(torch.ones(3)))


F = torch.nn.functional
REFUSED = {
    "matrix sizes": lambda: torch.ones(2, 3).mm(torch.ones(4, 5)),
    "linear sizes": lambda: F.linear(torch.ones(2, 3), torch.ones(4, 5)),
    "mixed dtypes": lambda: torch.ones(2, 3) @ torch.ones(3, 2, dtype=torch.float64),
    "batch sizes": lambda: torch.ones(2, 3, 4).bmm(torch.ones(3, 4, 5)),
    "channels": lambda: F.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 2, 3, 3)),
    "kernel too large": lambda: F.conv2d(torch.ones(1, 3, 2, 2), torch.ones(4, 3, 3, 3)),
    "pool padding": lambda: F.max_pool2d(torch.ones(1, 1, 8, 8), 2, padding=2),
    "broadcast": lambda: torch.ones(2, 3) + torch.ones(4),
    "in-place broadcast": lambda: torch.ones(3).add_(torch.ones(2, 3)),
    "in-place dtype": lambda: torch.ones(3, dtype=torch.int64).add_(1.5),
    "cat": lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4)]),
    "view": lambda: torch.ones(6).view(4, 2),
    "gather": lambda: torch.ones(2, 2).gather(0, torch.zeros(3, 3, dtype=torch.int64)),
    "index dtype": lambda: torch.ones(2, 2).gather(0, torch.zeros(2, 2)),
    "scatter": lambda: torch.zeros(3, 5).scatter(0, torch.zeros(2, 2, dtype=torch.int64), torch.ones(1, 1)),
    "dimension": lambda: torch.ones(2).sum(3),
    "mean of integers": lambda: torch.ones(3, dtype=torch.int64).mean(),
    "layer norm": lambda: F.layer_norm(torch.ones(2, 3), (4,)),
    "batch norm": lambda: F.batch_norm(torch.ones(2, 3), torch.ones(4), torch.ones(4)),
    "bool minus": lambda: torch.ones(2, dtype=torch.bool) - torch.ones(2, dtype=torch.bool),
    "negative power": lambda: torch.arange(3) ** -1,
    "tril": lambda: torch.ones(3).tril(),
    "embedding": lambda: F.embedding(torch.ones(2), torch.ones(3, 3)),
    "adaptive pool": lambda: F.adaptive_max_pool2d(torch.ones(1, 2, 3, 4), ()),
    "adaptive pool rank": lambda: torch._C._nn.adaptive_max_pool2d(torch.ones(1, 1, 1, 1, 1), (1, 1)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses(name):
    fn = REFUSED[name]
    with pytest.raises(Exception) as want:
        fn()
    compiled = magneto.compile(fn)
    for _ in range(2):
        with pytest.raises(want.type) as got:
            compiled()
        assert str(got.value) == str(want.value)


def handled(x, i):
    y = x + 1
    try:
        z = y[i]
    except IndexError:
        z = y[:1] - 7
    return z * 2


def factored(x, i):
    a = x[0] * torch.eye(2)
    try:
        return torch.linalg.cholesky(a)
    except RuntimeError:
        return torch.linalg.cholesky(2 - a)


RAISES_IN_A_RUN = {
    "handled": handled,
    "factored": factored,
    "index": lambda x, i: (x + 1)[i] * 2,
    "gather": lambda x, i: (x + 1).gather(0, i) * 2,
    "scatter": lambda x, i: (x + 1).scatter(0, i, x) * 2,
    "embedding": lambda x, i: F.embedding(i, x[:, None] + 1),
    "target": lambda x, i: F.nll_loss(torch.stack([x, x]).log_softmax(1)[:1], i),
    "classes": lambda x, i: F.one_hot(i, 4) + 1,
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", RAISES_IN_A_RUN)
def test_run_that_raises(name, grad):
    """The exception is eager's, and the program's own handlers get it."""
    fn = RAISES_IN_A_RUN[name]
    c = magneto.compile(fn)
    for bad in (False, True, True, False):
        x = (-torch.ones(4) if bad else torch.ones(4)).requires_grad_(grad)
        i = torch.tensor([9 if bad else 1])
        want, got = outcome(fn, x, i), outcome(c, x, i)
        assert type(want) is type(got)
        if isinstance(want, tuple):
            assert want == got
        else:
            torch.testing.assert_close(got, want)


BAD_CALLS = """
x.permute(0, 0, 1) | x.movedim((0, 1), (0, 0)) | x.squeeze((0, 0)) | x.unfold(0, 3, 1) | x.unfold(0, 1, 0) | x.unfold(0, -1, 1) | x[2] | x[-3]
x.view(5, -1) | x.expand(3, 3, 4) | x.narrow(0, 0, 3) | x.split([1, 2]) | x.index_select(0, torch.tensor([[0]])) | v.put_(i, m) | v.fill_(m)
x + v | x @ v | torch.mm(m, v) | torch.bmm(m, m) | torch.addmm(v, m, m) | torch.cat([x, v]) | torch.stack([v, v[1:]]) | torch.where(x > 0, x, v)
v.add_(m) | x.gather(0, i[:, None, None].expand(2, 9, 9)) | x.scatter(0, v, 1.0) | x.long().mean() | x.long().softmax(0) | x.long().requires_grad_()
x << 1 | x.bool().cumsum_(0) | x.long() // 0 | x.to(torch.complex64).sort() | torch.clamp(x) | x.topk(5) | torch.bernoulli(x) | torch.randint(5, 2, (2,))
x[:0].argmax() | x[:0].max() | torch.bucketize(x, m) | torch.tril_indices(-1, 2) | torch.complex(x, x.double())
F.conv1d(x, torch.ones(2, 3, 5)) | F.conv2d(x[None], torch.ones(2, 2, 9, 9)) | F.conv2d(x[None], torch.ones(3, 1, 1, 1), groups=2)
F.conv_transpose2d(x[None], torch.ones(3, 2, 1, 1)) | F.max_pool2d(x, 5) | F.avg_pool1d(x, 5) | F.pad(x, (9, 9), mode="reflect")
F.interpolate(x, scale_factor=0.0) | F.pixel_shuffle(x, 2) | F.pixel_unshuffle(x, 2) | F.layer_norm(x, (3,)) | F.batch_norm(x, v, v)
F.linear(x, m) | F.embedding(v, m) | F.cross_entropy(m, i) | F.one_hot(torch.tensor([5]), 3) | F.group_norm(x, 2) | F.glu(v)
"""
BAD_CALLS = [e.strip() for line in BAD_CALLS.strip().splitlines() for e in line.split(" | ")]
CAUGHT = "def f(x, v, m, i):\n    try:\n        return {}\n    except Exception as e:\n        return type(e), str(e)\n"
UNCAUGHT = "def f(x, v, m, i):\n    return {}\n"


@pytest.mark.parametrize("source", [CAUGHT, UNCAUGHT], ids=["caught", "uncaught"])
@pytest.mark.parametrize(
    "options", [{}, {"dynamic": True}, {"backend": "eager"}], ids=["own", "dynamic", "eager"]
)
@pytest.mark.parametrize("expression", BAD_CALLS)
def test_errors_are_those_of_the_kernels(expression, options, source):
    """Meta kernels accept some arguments that kernels refuse, and use other words where they refuse them."""
    space = {"torch": torch, "F": F}
    exec(source.format(expression), space)

    def run(fn):
        return outcome(
            fn, torch.arange(24.0).reshape(2, 3, 4), torch.arange(5.0), torch.ones(3, 3), torch.tensor([0, 1])
        )

    want = run(space["f"])
    assert issubclass(want[0], Exception)
    assert run(magneto.compile(space["f"], **options)) == want


def test_run_that_raises_in_an_inner_frame():
    def inner(x, i):
        print(end="")
        return x.sin()[i] + 1

    def outer(x, i):
        y = x + 1
        try:
            y = inner(y, i)
        except IndexError as e:
            y = y * len(str(e))
        return y.cos()

    c = magneto.compile(outer)
    for k in (1, 9, 9, 1):
        x, i = torch.rand(4), torch.tensor([k])
        torch.testing.assert_close(c(x, i), outer(x, i))


def unused(x, i):
    try:
        x[i]
    except IndexError:
        return x - 1
    return x + 1


def drawn(x, i):
    y = torch.rand(4)
    try:
        y = y + x[i]
    except IndexError:
        y = y - torch.rand(4)
    return y + torch.rand(4)


def written(x, i):
    x.add_(1)
    try:
        x.index_copy_(0, i, torch.zeros(1))
    except IndexError:
        x.mul_(10)
    return x.clone()


def divided(x, i):
    try:
        return torch.arange(3) // (i - 1)
    except RuntimeError as e:
        return x + len(str(e))


def without_match(x, i):
    try:
        r = x.index_select(0, i)
    except:  # noqa: E722
        r = x - 3
    finally:
        x = x * 2
    return r, x


class Swallows:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, tb):
        self.kind = kind
        return kind is not None


def swallowed(x, i):
    with Swallows() as s:
        x[i]
    return x + (1 if s.kind is None else 5)


def suppressed(x, i):
    with contextlib.suppress(IndexError):
        x = x[i] + 1
    return x * 2


def called(x, i):
    def look(y):
        return y[i].sum()

    try:
        return look(x * 2)
    except IndexError:
        return x.sum()


CATCHES = [unused, drawn, written, divided, without_match, swallowed, suppressed, called]


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("fn", CATCHES, ids=lambda f: f.__name__)
def test_program_catches_what_a_kernel_raises(fn, backend):
    """Whether the result is asked for or not, after random numbers and after writes."""
    c = magneto.compile(fn, backend=backend)
    for bad in (False, True, True, False):
        i, x, y = torch.tensor([9 if bad else 1]), torch.ones(4), torch.ones(4)
        if fn is divided:
            i = torch.tensor([1 if bad else 3])
        torch.manual_seed(3)
        want = fn(x, i), torch.rand(2)
        torch.manual_seed(3)
        got = c(y, i), torch.rand(2)
        torch.testing.assert_close(got, want)
        torch.testing.assert_close(y, x)


def test_blocks_that_catch_nothing_do_not_break():
    @contextlib.contextmanager
    def timed():
        yield

    class Notes:
        def __enter__(self):
            return self

        def __exit__(self, *exc):
            self.seen = exc

    def f(x, i):
        with timed(), Notes(), torch.no_grad():
            x.add_(1)
            y = x[i]
        try:
            z = y.sin()
        except RuntimeError:
            z = y
        try:
            return z[i * 0]
        finally:
            z = None

    magneto.reset()
    c = magneto.compile(f)
    torch.testing.assert_close(c(torch.ones(4), torch.tensor([1])), f(torch.ones(4), torch.tensor([1])))
    assert magneto.explain(f)(torch.ones(4), torch.tensor([1])).graph_count == 1


def test_a_quantized_result_runs_eagerly():
    def f(x):
        q = torch._empty_affine_quantized([4, 1, 2], scale=2, zero_point=2, dtype=torch.quint8)
        return q.flatten(0, 1).shape, q.q_scale(), x + 1

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = magneto.compile(f)(torch.ones(2))
    assert got[:2] == ((4, 2), 2.0) and got[2].tolist() == [2, 2]


def test_onnx_names_the_packages_that_it_lacks(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n, *a: None if n.startswith("onnx") else find(n, *a)
    )
    with pytest.raises(
        ModuleNotFoundError, match="^magneto.onnx needs onnx and onnxscript: pip install onnx onnxscript$"
    ):
        magneto.onnx(torch.nn.ReLU(), (torch.ones(2),))
