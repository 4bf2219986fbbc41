"""Memory that is not what it seems: conjugate and negative bits, other dtypes over the same bytes, as_strided; through sweep.check."""

import itertools
import math

import pytest
import torch

import magneto
from tests.ops import sweep

C = torch.complex(torch.arange(12.0).reshape(3, 4) - 5, torch.arange(12.0).reshape(3, 4).flip(0) / 4)
X = torch.linspace(-3, 3, 12).reshape(3, 4)
FAR = torch.linspace(-2, 2, 20)[3:13]  # starts inside its storage


def overlapping(x):
    a, b = x.as_strided((3,), (1,), 3), x.as_strided((3,), (1,), 5)
    return a.mul_(2), b.mul_(2)


def nested(x):
    y = x[2:6]
    y.add_(1)
    z = y.as_strided((3,), (2,), 4)
    z.mul_(3)
    x[0] = 7
    return y, z, x.as_strided((2, 2), (4, 1), 3)


def complex_views(x):
    y = torch.view_as_complex((x * 2).view(3, 2, 2))
    z = torch.view_as_complex((x * 3).view(3, 2, 2))
    w = (x * 4).view(torch.complex64)
    return y, z, y * w, (x + 5).sin()


CASES = {
    "complex over intermediates": (complex_views, X),
    "angle of other strides": (lambda c: (c.t().angle(), c[:, ::2].angle()), C),
    "conj": (lambda c: c.conj(), C), "two conj": (lambda c: (c.conj(), c.conj() * 1), C), "mH": (lambda c: c.mH, C),
    "conj of view": (lambda c: c.conj()[1:].T, C), "imag of conj": (lambda c: c.conj().imag, C), "resolve": (lambda c: c.conj().resolve_conj(), C),
    "conj written": (lambda c: c.conj().add_(1), C), "conj of intermediate": (lambda c: (c * 2).conj(), C),
    "conj, then real": (lambda c: torch.view_as_real(c.conj().resolve_conj()), C), "asks": (lambda c: c if c.conj().is_conj() else c + 1, C),
    "neg view": (lambda x: torch._neg_view(x), X), "neg view read": (lambda x: torch._neg_view(x) + 1, X),
    "input with bit": (lambda c: (c * 2, c.conj()), C.conj()), "neg input": (lambda c: c.add_(1), C.conj().imag),
    "imag written": (lambda c: c.imag.add_(1), C), "real copied": (lambda c: c.real.copy_(X), C), "stack": (lambda c: torch.stack([c, c.conj()]), C),
    "as complex": (lambda x: torch.view_as_complex(x.view(3, 2, 2)).mul_(1j), X), "complex number": (lambda c: c * 2j, C),
    "dtype written": (lambda x: x.view(torch.int32).add_(1), X), "dtype fused": (lambda x: (x + 1).view(torch.int32) * 2, X),
    "dtype bool": (lambda x: ((x > 0).view(torch.uint8) + 1, (x.to(torch.uint8) & 1).view(torch.bool)), X),
    "expanded by nothing, written": (lambda x: (x.t().expand(1, 4, 3).mul_(2), x + 1), X),
    "strided overlap": (overlapping, FAR), "strided nested": (nested, FAR), "strided nested inside": (lambda x: nested(x * 2), FAR),
    "strided of view": (lambda x: x[1:].as_strided((2,), (2,), 5).add_(1), FAR),
    "strided of base": (lambda x: (x + 1)[2:].as_strided((2, 3), (3, 1), 0), FAR),
    "before it": (lambda x: x.as_strided((2,), (2,), 0) + 1, FAR), "scatter before it": (lambda x: torch.as_strided_scatter(x, X[0, :2], (2,), (2,), 0), FAR),
    "scatter": (lambda x: torch.as_strided_scatter(x, X[0, :2], (2,), (2,), 4), FAR),
    "in place past the end": (lambda x: x.clone().as_strided_((2, 2), (1, 2), 2 * x.numel()), X),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_values_and_bits(name):
    fn, x = CASES[name]
    sweep.check(fn, (x,))


@pytest.mark.parametrize(
    "name",
    [
        "conj",
        "imag of conj",
        "two conj",
        "conj of intermediate",
        "neg view",
        "stack",
        "complex over intermediates",
    ],
)
def test_gradients_through_bits(name):
    fn, x = CASES[name]
    sweep.check(fn, (x.clone().requires_grad_(),), gradient=True)


@pytest.mark.parametrize(
    "fn",
    [
        lambda c: c[:, None].expand(2, 3).cumprod(-1),
        lambda c: c[:, None].expand(2, 3).conj() * 2,
        lambda c: c.expand(3, 2).conj().sin(),
    ],
)
def test_conjugate_of_repeated_elements(fn):
    sweep.check(fn, (C.reshape(-1)[:2].clone().requires_grad_(),), gradient=True)


WIDTHS = [torch.float16, torch.int8, torch.float32, torch.float64, torch.complex64]


@pytest.mark.parametrize("held, seen", itertools.permutations(WIDTHS, 2))
@pytest.mark.parametrize("size", [(2, 16), (1, 8), (8,), (0, 8)])
def test_writes_through_views_of_another_width(held, seen, size):
    def part(x):
        y, z = x + 0, x.view(seen)
        z[..., :1] = 1
        y.view(seen).mul_(2)
        return y, z

    sweep.check(part, (torch.arange(math.prod(size)).reshape(size).to(held),))


def test_writes_through_bytes_of_a_bool_are_refused():
    """Registers hold 0 or 1, the memory may hold 5.  Without strict mode the graph runs op by op."""

    def marked(x):
        x.view(torch.bool)[:1] = True
        return x * 1

    with pytest.raises(RuntimeError, match="bool bytes"):
        magneto.compile(marked)(torch.tensor([0, 5, 200], dtype=torch.uint8))


def test_comparison_rounds_numbers_to_16_bits():
    x = torch.tensor([0.1, 0.2, -0.1, 3.14], dtype=torch.bfloat16)
    sweep.check(lambda x, t: (x == 0.1, x > 0.1, 3.14 <= x, x == t), (x, torch.tensor(0.1)))


def test_norm_of_one_number_is_it():
    sweep.check(lambda x: torch.norm(x[:, None], p=-41.0, dim=1), (X / 100,))


def test_cumprod_gradient_in_one_kernel_with_wide_masks():
    torch.manual_seed(0)
    sweep.check(lambda x: x.cumprod(1).sum(), (torch.rand(4, 8, 64).requires_grad_(),), gradient=True)


def test_split_that_does_not_add_up():
    sweep.check(lambda x: torch.split(x, [2, 1], dim=1), (X,))


@pytest.mark.parametrize(
    "dtype", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e8m0fnu]
)
def test_numbers_of_8_bits_are_moved(dtype):
    def fn(q, x):
        y = (q.view(torch.uint8) ^ 1).view(dtype)
        return q.t(), torch.cat([q, y]), q[1:].float() * 2, (x * 3).to(dtype).t().contiguous(), y.copy_(x + 1)

    assert not sweep.check(fn, (X.abs().to(dtype), X.abs()))
    assert sweep.check(lambda q: q[0, 0].item(), (X.abs().to(dtype),)) == ["data_dependent"]
    assert not sweep.check(lambda x: x.to(dtype).float() * 2, (X.abs().requires_grad_(),), gradient=True)


MEMORY = torch.arange(80.0)
PLACES = [slice(4, 14), slice(0, 10), slice(6, 16), slice(7, 17)]


@pytest.mark.parametrize("fn", [
    lambda x: (x + x.storage_offset(), x[2:].storage_offset()),
    lambda x: torch.as_strided(x, (2, 2), (1, 2), 9), lambda x: torch.slice_scatter(x, X[0, :2], 0, 0, 4, 2),
    lambda x: x.view(torch.float64) + 1, lambda x: torch.view_as_complex(x.view(5, 2)) + 1,
])  # fmt: skip
@pytest.mark.parametrize("dynamic", [None, True])
def test_where_a_tensor_begins_in_its_memory_is_guarded(fn, dynamic):
    compiled = magneto.compile(fn, dynamic=dynamic)
    for place in PLACES:
        sweep.check(fn, (MEMORY[place],), calls=1, compiled=compiled)


def test_items_of_one_list_that_share_memory_are_written_in_turn():
    def twice(x):
        y = x + 1
        torch._foreach_add_([y, y], 1.0)
        return y

    def view(x):
        torch._foreach_mul_([x, x.view(-1)], 2.0)
        return x

    def crossed(x):
        y, z = x + 1, x + 2
        torch._foreach_add_([y, z], [z, y])
        return y, z

    def rows(x):
        y = x + 1
        torch._foreach_copy_([y[0], y[1]], [y[1], y[0]])
        torch._foreach_add_([y[:, 0], y[:, 1]], [1.0, 2.0])
        return y

    for f in (twice, view, crossed, rows):
        sweep.check(f, (torch.arange(4.0).reshape(2, 2),))


@pytest.mark.parametrize(
    "stats", [lambda r: (r[0], r[0]), lambda r: (r[0], r.view(-1)[:3]), lambda r: (r[0], r[1])]
)
def test_batch_norm_whose_statistics_share_memory(stats):
    sweep.check(
        lambda x, r: (torch.nn.functional.batch_norm(x, *stats(r), training=True), r * 2),
        (torch.randn(4, 3, 5), torch.ones(2, 3)),
    )
