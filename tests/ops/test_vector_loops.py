"""Loops whose accesses are not plainly contiguous run in vectors: values as eager's at sizes with and without tails, and the shape of
the loops where only that shows it."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from magneto import _magneto

FUNCTIONS = {
    "asin": torch.asin,
    "acos": torch.acos,
    "atan": torch.atan,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "asinh": torch.asinh,
    "atanh": torch.atanh,
    "acosh": lambda x: torch.acosh(1 + x.abs()),
    "erfc": torch.erfc,
    "lgamma": torch.lgamma,
    "exp": torch.exp,
    "expm1": torch.expm1,
    "sin": torch.sin,
    "cos": torch.cos,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "log2": lambda x: torch.log2(x.abs()),
    "erf": torch.erf,
    "pow": lambda x: torch.pow(x.abs(), x),
    "nextafter": lambda x: torch.nextafter(x, 0 * x),
    "atan2": lambda x: torch.atan2(x, 0.3 - x),
    "fmod": lambda x: torch.fmod(x, 0.07),
    "remainder": lambda x: torch.remainder(x, -0.07),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementary_functions(name, dtype):
    fn = FUNCTIONS[name]
    x = torch.rand(3000, dtype=dtype, generator=torch.Generator().manual_seed(0)) * 2 - 1
    for part in x, x[:37], x.view(50, 60)[:, ::7]:
        got, want = magneto.compile(fn)(part), fn(part)
        torch.testing.assert_close(
            got, want, rtol=8 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps
        )


MOVES = {
    "roll": lambda x: x.roll(3, -1),
    "roll twice": lambda x: x.roll((2, -5), (0, 1)),
    "roll of a roll": lambda x: x.roll(1, 1).roll(-4, 1) + 1,
    "reflect": lambda x: F.pad(x[None], (3, 2, 1, 4), mode="reflect"),
    "replicate": lambda x: F.pad(x[None], (3, 2, 1, 4), mode="replicate"),
    "circular": lambda x: F.pad(x[None], (3, 2, 1, 4), mode="circular"),
    "repeat": lambda x: x.repeat(3, 2),
    "repeat in front": lambda x: x.repeat(2, 1, 4) * 2,
    "interleave": lambda x: x.repeat_interleave(3, 1),
    "kron": lambda x: torch.kron(x[:3], x[:, :4]),
    "rolled repeats": lambda x: x.repeat(2, 2).roll(5, 1),
    "slice set": lambda x: torch.slice_scatter(x, torch.zeros_like(x[:, 1:4]), 1, 1, 4),
    "picked columns": lambda x: x[:, torch.arange(x.shape[1] - 1, -1, -2)],
    "filled": lambda x: x.index_fill(1, torch.tensor([0, 2]), 1),
    "diagonal": lambda x: x.diag_embed(1),
    "diagonal below": lambda x: torch.diag_embed(x, -2, 0, 2),
    "diagonal set": lambda x: torch.diagonal_scatter(x, x.diagonal(1).flip(0), 1),
    "diagonals set": lambda x: torch.diagonal_scatter(x[None].repeat(3, 1, 1), x[:, :3], 0, 2, 0),
    "every third set": lambda x: torch.slice_scatter(x, x[:, ::3].flip(1), 1, 0, 2**62, 3),
    "every second row set": lambda x: torch.slice_scatter(x, x[1::2].flip(0), 0, 1, 2**62, 2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bool, torch.bfloat16, torch.int8])
@pytest.mark.parametrize("name", MOVES)
def test_moved_elements(name, dtype):
    fn = MOVES[name]
    for shape in (5, 16), (7, 33), (6, 70):
        x = (torch.randn(shape) * 5).to(dtype)
        try:
            want = fn(x)
        except NotImplementedError:
            pytest.skip("eager has no such padding")
        magneto.reset()
        got = magneto.compile(fn, dynamic=False)(x)
        assert got.dtype == want.dtype and torch.equal(got, want), shape


def fused(fn, *args, capfd):
    _magneto.set_logs("fusion")
    try:
        magneto.compile(fn, dynamic=False)(*args)
    finally:
        _magneto.set_logs("")
    return capfd.readouterr().err


def test_edges_are_loops_of_their_own(capfd):
    """Else every vector of a padded row is two loads and a choice, and every point of a matrix asks whether it lies on the diagonal."""
    x = torch.randn(3, 40)
    for mode in "reflect", "replicate":
        text = fused(lambda x: F.pad(x, (2, 1), mode=mode), x, capfd=capfd)
        assert "point [3,40]" in text and "abs(" not in text and "min(" not in text
    assert "point [40]" in fused(torch.diag, x[0], capfd=capfd)
    assert "point [3,20]" in fused(lambda x: torch.slice_scatter(x, x[:, :20], 1, 0, 40, 2), x, capfd=capfd)


def test_group_of_all_channels_divides_no_index(capfd):
    assert "floordiv" not in fused(
        lambda x, w: F.group_norm(x, 1, w), torch.randn(4, 6, 8), torch.randn(6), capfd=capfd
    )


@pytest.mark.parametrize("fn", [torch.fmod, torch.remainder, torch.floor_divide], ids=lambda f: f.__name__)
def test_remainders_in_the_last_vector_of_a_row(fn):
    a, b = torch.randn(9, 1, 19) * 5, torch.randn(7, 19)
    torch.testing.assert_close(magneto.compile(fn)(a, b), fn(a, b))


@pytest.mark.parametrize("name", ["amax", "amin", "sum", "prod", "argmax"])
def test_rows_of_few_vectors(name):
    """As many accumulators as there are vectors, or fewer; a NaN anywhere is the maximum."""
    fn = {
        "amax": lambda x: x.amax(1),
        "amin": lambda x: x.amin(1),
        "sum": lambda x: x.sum(1),
        "prod": lambda x: x.prod(1),
        "argmax": lambda x: x.argmax(1),
    }[name]
    for n in 16, 31, 33, 64, 100, 128, 257, 1000:
        x = 1 + torch.randn(n + 1, n) / 10
        x[torch.arange(n), torch.arange(n)] = float("nan")
        magneto.reset()
        torch.testing.assert_close(magneto.compile(fn, dynamic=False)(x), fn(x), equal_nan=True)


ROWS = {
    "sum": lambda x: x.sum(-1),
    "max": lambda x: x.amax(-1),
    "argmin": lambda x: x.argmin(-1),
    "softmax": lambda x: x.softmax(-1),
    "norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "any": lambda x: (x > 1).any(-1),
    "cumsum of sums": lambda x: x.sum(-1).cumsum(0),
    "both ways": lambda x: x.sum(-1, keepdim=True) + x.sum(0),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_few_elements(name):
    fn = ROWS[name]
    for n in 1, 2, 3, 7, 15:
        x = torch.randn(67, n, dtype=torch.float64)
        magneto.reset()
        torch.testing.assert_close(magneto.compile(fn, dynamic=False)(x), fn(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int16, torch.int64])
@pytest.mark.parametrize("width", [5, 16, 37, 192])
def test_scattered_rows(width, dtype):
    """The same row is met several times; indices differ from row to row, not within one."""
    x, rows = (torch.randn(9, width) * 4).to(dtype), (torch.randn(40, width) * 4).to(dtype)
    at = torch.randint(0, 9, (40,))
    once = torch.randperm(9)[:6]
    for fn in (
        lambda: x.index_add(0, at, rows),
        lambda: x.index_put((once,), rows[:6]),
        lambda: x.index_put((at,), rows, accumulate=True),
        lambda: x.index_copy(0, once, rows[:6]),
        lambda: x.index_reduce(0, at, rows, "amax"),
        lambda: torch.zeros(3, 9, width, dtype=dtype).index_add(1, at, rows.expand(3, 40, width)),
    ):
        magneto.reset()
        torch.testing.assert_close(magneto.compile(fn)(), fn())


def test_masked_scatter_of_rows_checks_its_indices():
    fn = magneto.compile(lambda x, at, rows: x.index_add(0, at, rows))
    with pytest.raises((IndexError, RuntimeError)):
        fn(torch.zeros(4, 40), torch.tensor([1, 7]), torch.ones(2, 40))


def test_repeats_are_ranges_of_their_own(capfd):
    """Else every element of the result takes two divisions and is loaded alone."""
    assert "point [2,8,3,16]" in fused(lambda x: x.repeat(2, 3), torch.randn(8, 16), capfd=capfd)
    assert "point [4,2,3,5]" in fused(torch.kron, torch.randn(4, 3), torch.randn(2, 5), capfd=capfd)


def test_what_does_not_vary_is_not_reduced(capfd):
    """An index is checked once, not once for each element of its row."""
    text = fused(
        lambda x, at, rows: x.index_add(0, at, rows),
        torch.zeros(4, 48),
        torch.tensor([1, 3, 1]),
        torch.ones(3, 48),
        capfd=capfd,
    )
    assert "reduce any [ | 3]" in text and "| 3,48]" not in text


def test_values_of_decompositions_alone_need_no_vectors(capfd):
    for fn in torch.linalg.svdvals, torch.linalg.eigvalsh:
        _magneto.set_logs("simplified")
        try:
            x = torch.eye(3) + 1
            with torch.no_grad():
                torch.testing.assert_close(magneto.compile(fn)(x), fn(x))
        finally:
            _magneto.set_logs("")
        assert "False)" in capfd.readouterr().err


def test_column_sums_stay_apart_from_rows(capfd):
    """Over the same sizes by chance: one kernel of both would jump through memory."""
    text = fused(
        lambda x, y, g: (g[:, None] * y, (x.t() * g).sum(-1)),
        torch.randn(64, 128),
        torch.randn(128),
        torch.randn(64),
        capfd=capfd,
    )
    assert "[64,2,64]" not in text and "reduce sum [128 | 64]" in text


@pytest.mark.parametrize(
    "mode, shape, options",
    [
        ("bilinear", (5, 7), {"scale_factor": 2.0}),
        ("bilinear", (5, 7), {"scale_factor": (3.0, 2.5)}),
        ("bilinear", (5, 7), {"size": (13, 9)}),
        ("bilinear", (1, 3), {"scale_factor": 8.0}),
        ("bilinear", (6, 4), {"size": (6, 11)}),
        ("bilinear", (8, 8), {"scale_factor": 1.7}),
        ("bilinear", (4, 4), {"size": (3, 9)}),
        ("bilinear", (7, 7), {"scale_factor": 4.0, "align_corners": True}),
        ("linear", (9,), {"scale_factor": 3.0}),
        ("bicubic", (5, 7), {"scale_factor": 2.0}),
        ("bicubic", (2, 3), {"scale_factor": (8.0, 1.5)}),
        ("bicubic", (6, 4), {"size": (7, 13)}),
        ("bicubic", (6, 4), {"size": (3, 13)}),
        ("trilinear", (3, 4, 5), {"scale_factor": 2.0}),
    ],
)
def test_gradients_of_resized_images(mode, shape, options):
    def fn(x):
        return F.interpolate(x, mode=mode, **options)

    a = torch.randn(2, 3, *shape, dtype=torch.float64, requires_grad=True)
    b = a.detach().clone().requires_grad_()
    out, want = magneto.compile(fn, dynamic=False)(a), fn(b)
    torch.testing.assert_close(out, want)
    g = torch.randn_like(out)
    out.backward(g), want.backward(g)
    torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_gradient_of_a_resized_image_is_summed_not_scattered(capfd):
    _magneto.set_logs("fusion")
    try:
        x = torch.randn(1, 1, 8, 8, requires_grad=True)
        magneto.compile(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), dynamic=False)(
            x
        ).sum().backward()
    finally:
        _magneto.set_logs("")
    text = capfd.readouterr().err
    assert "reduce sum" in text and "scatter [" not in text


BYTES = {
    "bool": lambda b, i: ~b & b.flip(0),
    "where": lambda b, i: torch.where(b, b ^ b.roll(1), ~b),
    "int8": lambda b, i: (i >> 1).clamp(-3, 60),
    "uint8": lambda b, i: i.to(torch.uint8) * 3 + 7,
    "both": lambda b, i: torch.where(b, i, i // 3),
    "maximum": lambda b, i: i.max() - i,
    "compared": lambda b, i: (i > 7) == (i < 100),
    "two": lambda b, i: (~b).to(torch.int8) + i,
}


@pytest.mark.parametrize("name", BYTES)
def test_bytes(name):
    for n in 5, 63, 64, 65, 333:
        b, i = torch.rand(n) > 0.5, torch.randint(-128, 128, (n,), dtype=torch.int8)
        magneto.reset()
        assert torch.equal(magneto.compile(BYTES[name], dynamic=False)(b, i), BYTES[name](b, i))


@pytest.mark.parametrize("width", [16, 18, 30, 46, 50])
def test_short_rows_of_windows(width):
    """Rows of fewer results than lanes, whose elements lie apart: half a vector, then the rest."""
    x = torch.randn(2, 3, 8, width)
    programs = [
        lambda x: F.max_pool2d(x, 2, return_indices=True),
        lambda x: F.avg_pool2d(x, 2).sin(),
        lambda x: x[..., ::2].double().erf() * 2,
        lambda x: x[..., ::2].transpose(-1, -2).logsumexp(-1),
        lambda x: x.unfold(3, 2, 2).argmax(-1),
    ]
    for f in programs:
        magneto.reset()
        torch.testing.assert_close(magneto.compile(f, dynamic=False)(x), f(x))


def test_gradients_of_strided_slices_and_dense_windows(capfd):
    programs = {
        "point [32768] b2[mul(i0, 2)]": (lambda x: x[:, ::2] * 2, (256, 256)),
        "scatter": (lambda x: F.max_pool3d(x, 2), (2, 3, 4, 6, 8)),
    }
    for stored, (f, size) in programs.items():
        a = torch.randn(*size).requires_grad_()
        b = a.detach().clone().requires_grad_()
        _magneto.set_logs("fusion")
        try:
            out = magneto.compile(f, dynamic=False)(a)
            out.sum().backward()
        finally:
            _magneto.set_logs("")
        f(b).sum().backward()
        assert torch.equal(a.grad, b.grad)
        text = capfd.readouterr().err
        line = [line for line in text.splitlines() if stored in line]
        assert line and "mod(" not in line[-1], text
