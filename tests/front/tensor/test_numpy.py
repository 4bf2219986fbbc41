"""NumPy code inside of compiled functions: it runs in the graph and gives what NumPy gives - arrays and scalars of the same
dtype, shape, strides and memory, and NumPy's own errors."""

import copy

import numpy as np
import pytest
import torch

import magneto
from support import assert_same, counts

rng = np.random.default_rng(0)
F = rng.standard_normal((4, 3)).astype(np.float32)
D = rng.standard_normal((3, 4)) * 2
S = rng.standard_normal((3, 3)) + 3 * np.eye(3)
V = rng.standard_normal(5)
I = rng.integers(-5, 9, (4, 3))
B = rng.integers(0, 2, (4, 3)).astype(bool)
C = (rng.standard_normal(4) + 1j * rng.standard_normal(4)).astype(np.complex64)
U = rng.integers(0, 255, 6).astype(np.uint8)


def check(fn, *args, fullgraph=True, backend=None):
    mine, want = copy.deepcopy(args), copy.deepcopy(args)
    expected = fn(*want)
    opt = magneto.compile(fn, fullgraph=fullgraph, **({"backend": backend} if backend else {}))
    opt(*mine)
    mine = copy.deepcopy(args)
    got = opt(*mine)
    assert_same(got, expected, strides="used")
    assert_same(list(mine), list(want))
    return got


def program(text, *names):
    return eval(f"lambda {', '.join(names)}: {text}", globals())


UNARY = (
    "absolute negative positive sign square sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan arcsin arccos arctan sinh cosh \
tanh arcsinh arccosh arctanh degrees radians deg2rad rad2deg floor ceil trunc rint reciprocal conjugate isnan isinf \
isfinite signbit logical_not fabs".split()
)
BINARY = "add subtract multiply divide floor_divide remainder power float_power maximum minimum arctan2 hypot copysign fmax fmin fmod \
logaddexp logaddexp2 heaviside nextafter logical_and logical_or logical_xor equal not_equal less less_equal greater greater_equal".split()
ARRAYS = {"F": F, "D": D, "I": I, "B": B, "U": U, "H": F.astype(np.float16), "i": I.astype(np.int32)}


ZERO = np.array([0, 1, -2, 0, 3])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(
    "text",
    [
        "I // 0",
        "I % 0",
        "divmod(I, 0)",
        "np.fmod(I, 0)",
        "Z // Z",
        "np.mod(Z, Z)",
        "Z.__ifloordiv__(Z[::-1].copy())",
        "Z.__imod__(0)",
        "np.floor_divide(Z, Z, out=np.empty_like(Z))",
        "I // 3",
        "7 // Z",
        "F // F",
    ],
)
def test_division_by_zero_of_integers(text):
    """NumPy gives 0, and a warning; torch raises."""
    check(program(text, "I", "Z", "F"), I, ZERO, F, fullgraph=False)


@pytest.mark.parametrize(
    "text", ["2 ** I", "I ** I", "np.power(np.int64(3), I)", "I ** abs(I)", "I ** 2", "F ** I"]
)
def test_integer_powers(text):
    """Which exponents raise depends on their values."""
    f = program(text, "I", "F")
    for a in (I, abs(I)):
        try:
            f(a, abs(F))
        except ValueError as e:
            with pytest.raises(ValueError, match=str(e)[:20]):
                magneto.compile(f)(a, abs(F))
        else:
            check(f, a, abs(F), fullgraph=False)


def test_views_that_may_not_be_written():
    def f(s, v):
        d = np.diagonal(s)
        return d, np.diag(s), np.broadcast_to(v, (2, 3)), d + v, v

    for a in check(f, S, V[:3])[:3]:
        assert not a.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        magneto.compile(lambda s: np.diag(s).__setitem__(0, 1))(S.copy())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_errors_that_are_asked_for_raise():
    def inside(v):
        with np.errstate(over="raise"):
            return np.exp(v * 1e6)

    def outside(v):
        return v / 0

    for f in (inside, magneto.compile(inside)):
        with pytest.raises(FloatingPointError):
            f(V)
    opt = magneto.compile(outside)
    assert_same(opt(V), outside(V))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        opt(V)
    assert_same(opt(V), outside(V))


def test_where_of_ufuncs():
    check(lambda v: np.sin(v, where=v > 0, out=np.zeros(5)), V, fullgraph=False)
    check(lambda v: np.add(v, 1, where=True), V)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name):
    """Where torch._numpy has no such type the graph breaks, with NumPy's result."""
    f = getattr(np, name)
    for key, a in ARRAYS.items():
        try:
            f(a)
        except TypeError as e:
            with pytest.raises(type(e)):
                magneto.compile(lambda x: f(x))(a)
        else:
            check(lambda x: (f(x), f(x[0])), a, fullgraph=key in "FD")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name):
    f = getattr(np, name)
    for a, b in [
        (F, F + 1),
        (F, F[0]),
        (F, 2),
        (F, 2.5),
        (I, 3),
        (F, I),
        (I, I + 11),
        (B, B),
        (F, np.float64(1.5)),
        (F, np.int64(2)),
        (I, np.float32(0.5)),
        (F.astype(np.float16), F),
        (U, np.uint8(3)),
        (F, True),
    ]:
        try:
            f(a, b)
        except (TypeError, ValueError) as e:
            with pytest.raises(type(e)):
                magneto.compile(lambda x, y: f(x, y))(a, b)
        else:
            check(lambda x, y: f(x, y), a, b, fullgraph=False)


EXPRESSIONS = """
x + 1, 1 - x, x * 2.5, 2 / x, x // 2, x % 2, x ** 2, -x, abs(x), x > 0, x == x, divmod(x, 2.0) | F
~x, x & x, x | ~x, x ^ x | B
x + 1, 1 - x, x / 2, x // 2, x % 3, x << 1, x >> 1, ~x, x & 3, x | 8, x ^ 5 | I
x @ y, y @ x, x.dot(y), np.matmul(x, y), np.dot(x[0], y[:, 0]), x[0] @ y | F D
x.sum(), x.sum(0), x.sum(axis=1, keepdims=True), x.mean(), x.mean(1), x.std(), x.var(0), x.prod(), x.max(), x.min(axis=0) | F
x.sum(), x.sum(0), x.mean(), x.prod(), x.max(), x.min(axis=0), x.cumsum(), x.argmax(), x.argmin(axis=0) | I
x.any(), x.all(), x.any(axis=0), x.sum(), x.all(1) | B
x.argmax(), x.argmin(1), x.argsort(), np.sort(x, axis=0), x.cumsum(axis=1), x.cumprod() | F
np.sum(x), np.mean(x, axis=0), np.std(x), np.var(x, axis=1, ddof=1), np.max(x), np.min(x, axis=0), np.median(x) | F
np.count_nonzero(x > 0), np.average(x, axis=0), np.ptp(x), np.cumsum(x), np.argmax(x, axis=1), np.any(x > 2), np.all(x < 9) | F
np.percentile(x, 30), np.quantile(x, 0.25, axis=0) | D
x.T, x.shape, x.ndim, x.size, x.dtype, x.itemsize, x.nbytes, x.strides, x.real, len(x) | F
x.reshape(-1), x.reshape(2, 6), x.ravel(), x.flatten(), x.transpose(), x.transpose(1, 0), x.swapaxes(0, 1), x.squeeze() | F
np.reshape(x, (3, 4)), np.ravel(x), np.squeeze(x[None]), np.expand_dims(x, 1), np.transpose(x), np.moveaxis(x, 0, 1), np.roll(x, 1) | F
np.atleast_1d(x.sum()), np.atleast_2d(x), np.atleast_3d(x), np.broadcast_to(x[0], (2, 3)) + 0 | F
np.concatenate([x, x]), np.concatenate((x, x), axis=1), np.stack([x, x], axis=1), np.vstack([x, x]), np.hstack([x, x]), np.dstack([x, x]) | F
np.column_stack([x, x]), np.append(x, x), np.tile(x, 2), np.repeat(x, 2, axis=0) | F
np.split(x, 2), np.array_split(x, 3), np.hsplit(x, 3), np.vsplit(x, 2) | F
x[0], x[-1], x[1, 2], x[1:3], x[:, 1], x[::2], x[..., 0], x[None], x[:, None, 1:], x[[0, 2]], x[[0, 1], [1, 2]] | F
x[np.array([0, 2])], x[np.arange(2), 1], np.take(x, [0, 2], axis=1), x.take([1, 3]) | F
np.where(x > 0, x, 0), np.where(x > 0, x, 1.5), np.where(x > 0, 1, 2), np.clip(x, -1, 1), x.clip(0, None) | F
np.diag(x), np.trace(x), np.tril(x), np.triu(x, 1), np.diagonal(x).sum(), x.trace() | S
np.outer(x, x), np.inner(x, x), np.vdot(x, x), np.kron(x, x), np.diff(x), np.convolve | V
np.tensordot(x, y, 1), np.einsum("ij,jk->ik", x, y), np.einsum("ij->j", x) | F D
np.round(x, 1), np.around(x), x.round(2), np.nan_to_num(x), np.sinc(x), np.real(x), np.sign(x) | D
np.isclose(x, x), np.angle(x), np.real(x), np.imag(x), x.conj(), abs(x), x.imag, x * 2j | C
np.zeros(3) + x, np.ones((2, 3)) * x, np.full(3, 7) + x, np.arange(3) * x, np.linspace(0, 1, 3) + x, np.eye(3) + x, np.array([1, 2, 3]) - x | F[0]
np.zeros_like(x), np.ones_like(x, dtype=int), np.full_like(x, 2) | F
np.array([x, x]), np.array([[x[0], x[1]], [x[2], x[0]]]), np.asarray(x), np.array(x), np.array(x, dtype=np.int64) | V
x.astype(np.float64), x.astype(int), x.astype("float16"), x.astype(bool), x.astype(np.dtype("int32")), x.copy() | F
np.meshgrid(x, x), np.indices((2, 3)), np.tri(3), np.vander(x, 3), np.identity(2) | V
np.linalg.norm(x), np.linalg.norm(x, axis=0), np.linalg.det(x), np.linalg.inv(x), np.linalg.solve(x, x[0]), np.linalg.pinv(x) | S
np.linalg.norm(x, ord=1), np.linalg.matrix_power(x, 3), np.linalg.multi_dot([x, x, x]), np.linalg.slogdet(x)[1] | S
np.fft.fft(x), np.fft.ifft(x), np.fft.rfft(x), np.fft.fftshift(x), np.fft.fftfreq(5) | V
[r * 2 for r in x], list(x[0]), sum(x), max(x.shape), tuple(x.T) | F
np.searchsorted(np.sort(x), x), np.bincount | V
np.gcd(x, 6), np.lcm(x, 4), np.left_shift(x, 1), np.bitwise_and(x, 3), np.invert(x) | np.abs(I)
np.sqrt(2.0), np.prod((2, 3)) * x, np.float32(3) * x, np.pi * x, x / np.int64(3), np.floor(2.5) + x | F
isinstance(x, np.ndarray), type(x) is np.ndarray, isinstance(x.sum(), np.float32), isinstance(x, torch.Tensor), hasattr(x, "mean") | F
x.sum() / len(x), x.mean() + 1, (x.sum() * 2).dtype, x[0, 0] + np.float64(1), x.max() > 0 | F
"""
CASES = [line.split(" | ") for line in EXPRESSIONS.strip().splitlines()]


@pytest.mark.parametrize(
    "text, args", [(a, b.strip()) for *a, b in [(" | ".join(c[:-1]), c[-1]) for c in CASES] for a in a]
)
@pytest.mark.parametrize("backend", [None, "eager"])
def test_expressions(text, args, backend):
    if torch.__version__ < "2.12" and ("median" in text or "percentile" in text):
        pytest.skip("torch._numpy looks at the values there")
    values = [eval(a) for a in args.split()]
    check(program(f"({text},)", *"xy"[: len(values)]), *values, backend=backend)


def grows(x):
    x += 1
    x[0] = 5
    return x


def writes_a_view(x):
    y = x[1]
    y *= 2
    x[:, 0] = -1
    return y, x.T


def scalars_stay(x):
    s = x[0, 0]
    t = x.sum()
    u = t
    u += 1
    x[0, 0] = 100
    return s, t, u


def out_argument(x):
    o = np.empty_like(x)
    r = np.exp(x, out=o)
    return r is o, o


def methods_in_place(x):
    y = x.copy()
    y.sort(axis=0)
    x.fill(3)
    np.copyto(x[0], y[0])
    return y


def looks_back(x):
    t = torch.from_numpy(x)
    t.mul_(2)
    return t + 1, torch.as_tensor(x), torch.tensor(x), torch.tensor(x, dtype=torch.float64)


def through_c(x):
    f = x.mean
    return list(map(np.sin, [x, x])), f(axis=0), sorted([2, 1]), [a for a in zip(x, x)][0]


@pytest.mark.parametrize(
    "fn", [grows, writes_a_view, scalars_stay, out_argument, methods_in_place, looks_back, through_c]
)
@pytest.mark.parametrize("backend", [None, "eager"])
def test_writes_and_calls(fn, backend):
    check(fn, F, backend=backend)


def test_identity_and_memory():
    def fn(x, t):
        a = t.numpy()
        a += 1
        return x, x[1:], np.asarray(x), a

    opt = magneto.compile(fn, fullgraph=True)
    for _ in range(3):
        x, t = F.copy(), torch.ones(3)
        same_x, view, also_x, a = opt(x, t)
        assert same_x is x and also_x is x
        assert t.tolist() == [2, 2, 2] and a.tolist() == [2, 2, 2]
        view[0] = 7
        a[0] = 9
        assert (x[1] == 7).all() and t[0] == 9


def test_overlapping_arrays():
    def fn(a, b):
        a += 1
        b *= 2
        return a + b

    def run(f, lo, hi):
        base = np.arange(8.0)
        r = f(base[:5], base[lo:hi])
        return r.tolist(), base.tolist()

    opt = magneto.compile(fn, fullgraph=True)
    for lo in (3, 0, 2, 3):
        assert run(opt, lo, lo + 5) == run(fn, lo, lo + 5)

    def with_tensor(a, t):
        t += 1
        return a * 2

    opt = magneto.compile(with_tensor, fullgraph=True)
    for shared in (True, False, True):
        a = np.arange(4.0)
        t = torch.from_numpy(a)[1:] if shared else torch.zeros(3, dtype=torch.float64)
        want = with_tensor(a.copy(), t.clone()) if not shared else np.array([0.0, 4, 6, 8])
        assert opt(a, t).tolist() == want.tolist()


def test_guards():
    seen = []

    def backend(gm, example):
        seen.append([tuple(e.shape) for e in example])
        return gm.forward

    opt = magneto.compile(lambda x: x * 2, backend=backend)
    for x in (F, F + 1, D, F.T, F.astype(np.int32), F[:2], F[::2], F):
        np.testing.assert_array_equal(opt(x), x * 2)
    assert len(seen) == 6
    opt(np.float32(3)), opt([1, 2]), opt(torch.ones(2))  # not arrays


@pytest.mark.parametrize(
    "make",
    [
        lambda: F[::-1],
        lambda: np.broadcast_to(F[0], (4, 3)),
        lambda: F.astype(">f4"),
        lambda: np.array(["a", "b"]),
        lambda: np.array([1, "x", None], dtype=object),
        lambda: np.ma.masked_array(F, F > 0),
        lambda: np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
        lambda: F.astype(np.longdouble),
    ],
)
def test_arrays_that_no_tensor_can_share(make):
    def fn(x, t):
        return t + 1, x, x[:1], len(x)

    x, t = make(), torch.ones(2)
    got, want = magneto.compile(fn)(x, t), fn(x, t)
    assert got[1] is x and got[3] == want[3] and (np.asarray(got[2]) == np.asarray(want[2])).all()
    torch.testing.assert_close(got[0], want[0])


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x + np.ones(7),
        lambda x: x.reshape(5),
        lambda x: x[10],
        lambda x: x.nothing,
        lambda x: bool(x),
        lambda x: np.concatenate([x, x[0]]),
        lambda x: float(x),
        lambda x: hash(x),
        lambda x: x @ x,
        lambda x: iter(x[0, 0]),
    ],
)
def test_errors_are_numpys(fn):
    with pytest.raises(Exception) as want:
        fn(F)
    with pytest.raises(type(want.value)) as got:
        magneto.compile(fn)(F)
    assert str(got.value) == str(want.value)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[x > 0],
        lambda x: float(x[0, 0]) + 1,
        lambda x: x[::-1] + 1,
        lambda x: np.nonzero(x),
        lambda x: str(x),
        lambda x: x.tolist(),
        lambda x: 1 if x.sum() > 0 else 2,
        lambda x: {x[0, 0]: 1},
        lambda x: x.tobytes(),
        lambda x: np.unique(x),
        lambda x: x.flags.c_contiguous,
        lambda x: np.random.default_rng(0).random(3) + x[0],
        lambda x: torch.ones(3) + torch.tensor(x.tolist()),
        lambda x: np.flip(x),
        lambda x: copy.deepcopy(x) + 1,
    ],
)
def test_breaks_give_the_same(fn):
    check(fn, F, fullgraph=False)


def test_requires_grad():
    def fn(x):
        return (x * 2).numpy()

    with pytest.raises(RuntimeError, match="requires grad"):
        magneto.compile(fn)(torch.ones(2, requires_grad=True))

    def detached(x):
        y = x * 2
        return y, y.detach().numpy() + 1, y.numpy(force=True)

    x = torch.ones(2, requires_grad=True)
    y, a, b = magneto.compile(detached, fullgraph=True)(x)
    y.sum().backward()
    assert x.grad.tolist() == [2, 2] and a.tolist() == [3, 3] and b.tolist() == [2, 2]


def test_state_of_objects():
    """Arrays in attributes, globals and closures."""

    class Box:
        def __init__(self):
            self.a = np.arange(3.0)

    box, scale = Box(), np.array([1.0, 2, 3])

    def fn(t):
        box.a = box.a + scale
        return torch.from_numpy(box.a) + t

    opt = magneto.compile(fn, fullgraph=True)
    want = np.arange(3.0)
    for _ in range(3):
        want = want + scale
        assert opt(torch.zeros(3)).tolist() == want.tolist()
        assert type(box.a) is np.ndarray and box.a.tolist() == want.tolist()


def test_after_a_break():
    def fn(x):
        y = np.sin(x)
        f = y.sum
        s = f()
        magneto.graph_break()
        return y * s, f()

    check(fn, F, fullgraph=False)


@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%", "@", "<", ">=", "&", "|"])
def test_operators_between_tensors_and_arrays(op):
    """What eager does: an error, or NumPy's result as a tensor."""
    fn = program(f"(a {op} b)", "a", "b")
    for a, b in [
        (torch.ones(3), V[:3]),
        (V[:3], torch.ones(3)),
        (torch.arange(3), I[0]),
        (I[0], torch.arange(3)),
        (torch.ones(3), np.float32(2)),
    ]:
        try:
            want = fn(a, b)
        except Exception as e:
            with pytest.raises(type(e)):
                magneto.compile(fn)(a, b)
        else:
            got = magneto.compile(fn)(a, b)
            assert_same(got, want)


def test_numpys_own_code_is_no_program():
    """After a break inside of NumPy's Python code no frame of NumPy is compiled."""
    count = []
    fn = lambda x: np.unique(x + 1) * 2
    opt = magneto.compile(fn, backend=lambda gm, ex: count.append(gm) or gm.forward)
    np.testing.assert_array_equal(opt(I), fn(I))
    assert len(count) == 2


def test_tensors_of_lists_of_arrays():
    def f():
        x = np.arange(6, dtype=np.int64)
        return (
            torch.LongTensor([x[0], x[2]]),
            torch.tensor([x[1], x[2]]),
            torch.tensor([x, x], dtype=torch.float32),
        )

    for a, b in zip(magneto.compile(f, fullgraph=True)(), f()):
        assert a.dtype == b.dtype and torch.equal(a, b)


def log_of_two(x, y):
    return x * (np.log(y) - np.log(x))


def root_of_strided(x, y):
    return np.sqrt(y.t())


def above(x, y):
    return np.greater(x, y), np.maximum(x, y)


def log_of_ints(x, y):
    return np.log(y.long() + 1)


@pytest.mark.parametrize("fn", [log_of_two, root_of_strided, above, log_of_ints])
def test_ufuncs_of_tensors_alone(fn):
    opt = magneto.compile(fn, fullgraph=True)
    for k in range(2):
        torch.manual_seed(k)
        x, y = torch.rand(3, 4) + 0.5, torch.rand(3, 4) + 0.5
        torch.testing.assert_close(opt(x, y), fn(x, y), rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(opt(x[0, 0], y[0, 0]), fn(x[0, 0], y[0, 0]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_arrays_and_a_number_that_changes(dtype):
    fns = [
        lambda x, a: x * a + 1,
        lambda x, a: a / x,
        lambda x, a: x / a,
        lambda x, a: a - x * 2,
        lambda x, a: np.multiply(x, a) - a,
        lambda x, a: np.where(x < 2.5, a, x),
        lambda x, a: np.where(x < 2.5, x, a),
    ]
    for f in fns:
        magneto.reset()
        n, c = counts().entries, magneto.compile(f, fullgraph=True)
        for a in (2.5, 3.5, 0.25, 7.5):
            x = np.arange(1, 5, dtype=dtype)
            want, got = f(x, a), c(x, a)
            assert got.dtype == want.dtype
            np.testing.assert_allclose(got, want, rtol=1e-6)
        assert counts().entries == n + 2

    def inplace(x, a):
        x *= a
        return x

    c, choice = (
        magneto.compile(inplace, fullgraph=True),
        magneto.compile(fns[-1], dynamic=True, fullgraph=True),
    )
    for a in (2, 3, 4):
        got, want = choice(np.arange(4, dtype=dtype), a), fns[-1](np.arange(4, dtype=dtype), a)
        assert got.dtype == want.dtype and (got == want).all()
        x = np.ones(3, dtype)
        assert c(x, a) is x and (x == a).all()


X = torch.randn(4, 3)
N = torch.arange(12).reshape(4, 3)
SCALARS = [
    lambda y: (X * y, y * X, N * y, torch.tensor(2.5) * y, X.half() * y, X.sum() / y),
    lambda y: (
        X + y + 1,
        y + 1,
        2 * y,
        y / 3,
        -y,
        abs(y),
        3.0 - y,
        y + np.int16(2),
        np.float64(2) * y,
        np.float32(2) - y,
    ),
    lambda y: X if y else N,
    lambda y: (torch.where(X > 0, X, y), X.pow(2) + y, (y,), [y * 2]),
]


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32])
def test_numpys_numbers_that_change(kind, backend):
    for f in SCALARS:
        magneto.reset()
        n, c = counts().entries, magneto.compile(f, backend=backend)
        for v in (2.5, 3.75, 5.25, 6.5, 1.125):
            assert_same(c(kind(v)), f(kind(v)))
        assert counts().entries <= n + 2


@pytest.mark.parametrize("backend", ["magneto", "eager"])
@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numpys_numbers_are_what_they_are(kind, backend):
    def asked(y):
        return (
            X + y if y > 3 else X - y,
            y == 3,
            y.dtype,
            y.item(),
            type(y),
            isinstance(y, float),
            isinstance(y, np.integer),
            f"{y}",
        )

    def made(y):
        return (
            torch.tensor(y),
            torch.tensor([y, 1]),
            torch.as_tensor(y),
            torch.asarray(y),
            torch.full((2,), y),
            X.new_tensor(y),
            torch.tensor(y, dtype=torch.float32),
        )

    def used(y):
        return (
            np.sqrt(y) + X,
            np.arange(3) * y,
            torch.zeros(int(y)),
            X[int(y) - 2],
            X.sum(dim=int(y) % 2),
            min(y, 3),
            max(3.5, y),
        )

    for f in (asked, made, used):
        c = magneto.compile(f, backend=backend)
        for v in (2.5, 3.75, 5.25):
            assert_same(c(kind(v)), f(kind(v)))
