"""What ATen has no kernel for raises ATen's error in compiled code too, where and when eager raises it; a number where an op takes a tensor."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from tests.ops import sweep

INTS, FLOATS = (torch.int64, torch.uint8, torch.bool), (torch.float32, torch.bfloat16)
REFUSED = [
    (torch.abs, [torch.bool]), (torch.floor, [torch.bool]), (torch.trunc, [torch.bool]), (torch.frac, INTS), (F.relu, [torch.bool]),
    (F.relu6, [torch.bool]), (F.hardtanh, [torch.bool]), (F.gelu, INTS), (F.silu, INTS), (F.mish, INTS), (F.elu, INTS), (F.celu, INTS),
    (F.selu, INTS), (F.leaky_relu, INTS), (F.hardswish, INTS), (F.hardsigmoid, INTS), (F.softplus, INTS), (F.softshrink, INTS),
    (F.hardshrink, INTS), (F.logsigmoid, INTS), (F.glu, INTS), (F.tanhshrink, [torch.bool]), (torch.argmax, [torch.bool]),
    (torch.trace, [torch.bool]), (lambda x: torch.round(x, decimals=1), INTS), (lambda x: torch.hypot(x, x), INTS),
    (lambda x: torch.nextafter(x, x), INTS), (lambda x: torch.logaddexp(x, x), INTS), (lambda x: torch.lerp(x, x, 2), INTS),
    (lambda x: x.clamp(False, True), [torch.bool]), (lambda x: x - 1.5, [torch.bool]), (lambda x: x - x.float(), [torch.bool]),
    (lambda x: 1 - x, [torch.bool]), (lambda x: x << 1, FLOATS), (lambda x: x >> 1, FLOATS),
    (lambda x: F.prelu(x, x[0, :1]), INTS), (lambda x: F.threshold(x, 1, 0), [torch.bool]),
    (lambda x: F.pad(x[None], (1, 1), "reflect"), [torch.bool]), (lambda x: F.pad(x[None], (1, 1), "replicate"), [torch.bool]),
    (lambda x: F.max_pool2d(x[None], 2), [torch.bool]), (lambda x: F.adaptive_max_pool2d(x[None], 2), INTS),
    (lambda x: F.avg_pool3d(x[None, None], (1, 2, 2)), [torch.bfloat16]),
    (lambda x: F.interpolate(x[None, None], scale_factor=2), (torch.int64, torch.bool)),
    (lambda x: F.nll_loss(x, torch.tensor([0, 1, 2, 3])), INTS),
    (lambda x: x - True, FLOATS), (lambda x: False - x, FLOATS), (lambda x: x.add(1, alpha=True), FLOATS), (lambda x: x.sub_(True), FLOATS),
    (lambda x: x.add(x, alpha=1.5), INTS[:2]), (lambda x: (x.sub(x, alpha=1.5), x)[1], INTS[:2]),
    (lambda x: x.expand(2, 4), FLOATS), (lambda x: x[0].expand(4, 5), FLOATS), (lambda x: x.expand(4), FLOATS), (lambda x: x.expand(-1, 4, 4), FLOATS),
    (lambda x: x.copy_(torch.ones(5)), FLOATS), (lambda x: x.copy_(torch.ones(1, 4, 4)[:, :2]), FLOATS), (lambda x: x[1:].expand_as(x), FLOATS),
    (lambda x: x.__setitem__(slice(1, None), torch.ones(4, 4)), FLOATS),
]  # fmt: skip


EMPTY, NUMBER, IMAGE = torch.ones(0, 3, 4), torch.tensor(1.0), torch.ones(2, 3, 4, 0)
EDGES = [
    (lambda x: F.pad(x, (1, 1), "reflect"), EMPTY[:, :, :0]), (lambda x: F.pad(x, (1, 1), "replicate"), EMPTY[:, :, :0]),
    (lambda x: F.interpolate(x, size=(3, 3)), IMAGE), (lambda x: F.adaptive_avg_pool2d(x, 2), IMAGE), (lambda x: F.adaptive_max_pool2d(x, 2), IMAGE),
    (lambda x: torch.index_select(x, 0, torch.tensor([0])), EMPTY), (lambda x: torch.index_select(x, 0, torch.tensor([0, 0])), NUMBER),
    (lambda x: torch.index_select(x, 0, torch.tensor([], dtype=torch.int64)), NUMBER), (lambda x: F.embedding(torch.tensor([0]), x), EMPTY[:, 0]),
    (lambda x: torch.select_scatter(x, NUMBER, 0, 0), NUMBER), (lambda x: torch.slice_scatter(x, NUMBER, 0, 0, 1), NUMBER),
    (lambda x: torch.slice_scatter(x, x[0], 0, 5), torch.ones(2, 2)), (lambda x: x.flip(1), NUMBER), (lambda x: x.cumsum(1), NUMBER),
    (lambda x: x.softmax(1), NUMBER), (lambda x: x.max(), EMPTY), (lambda x: x.argmax(), EMPTY), (lambda x: x.argmin(0), EMPTY), (lambda x: x.max(0), EMPTY),
    (lambda x: x.norm(float("inf")), EMPTY), (lambda x: F.conv2d(x, torch.ones(1, 2, 2, 2), groups=2), torch.ones(2, 4, 4, 4)),
    (lambda x: torch.select(x, 2, 2), EMPTY[:, :, :2]), (lambda x: x.select(0, -5), torch.ones(3, 4)), (lambda x: x.select(1, 4), torch.ones(3, 4)),
    (lambda x: torch.ops.aten.slice(x, 0, 0, 3, 0), torch.ones(3, 4)),
    (lambda x: torch.native_group_norm(x, x[0, :3, 0], None, 2, 4, 3, 2, 1e-5), torch.ones(2, 4, 3)),
    (lambda x: torch.native_group_norm(x.transpose(1, 2), None, None, 2, 3, 4, 3, 1e-5), torch.ones(2, 4, 3)),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(EDGES)))
def test_edges_of_sizes(i):
    fn, x = EDGES[i]
    with pytest.raises((RuntimeError, IndexError)) as want:
        fn(x)
    with pytest.raises(type(want.value)) as got:
        magneto.compile(fn)(x)
    assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


@pytest.mark.parametrize("i", range(len(REFUSED)))
def test_refused_dtypes(i):
    fn, dtypes = REFUSED[i]
    compiled = magneto.compile(fn)
    for dtype in dtypes:
        x = torch.arange(16).reshape(4, 4).to(dtype)
        with pytest.raises((RuntimeError, NotImplementedError)) as want:
            fn(x)
        with pytest.raises(type(want.value)) as got:
            compiled(x)
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


def fill(x):
    x.copy_(2.7)
    y = torch.zeros_like(x)
    y[1:].copy_(True)
    return x + y, y


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_copy_of_a_number(dtype):
    sweep.check(fill, (torch.ones(3, 4, dtype=dtype),))


def through_expanded(x):
    x.expand(2, 3)[1].add_(1)
    y = x.clone()
    y.expand(2, 3)[0, 1:].mul_(5)
    return x * 2, y


def test_write_through_a_part_of_an_expanded_view():
    sweep.check(through_expanded, (torch.arange(3.0),))


@pytest.mark.parametrize("dynamic", [None, True])
def test_running_statistics_that_are_longer_than_the_channels_keep_their_end(dynamic):
    def fn(x, mean, var):
        return torch.ops.aten._native_batch_norm_legit(x, None, None, mean, var, True, 0.1, 1e-5)

    compiled = magneto.compile(fn, dynamic=dynamic)
    for n in (5, 10):
        sweep.check(fn, (torch.randn(4, 5, 3), torch.zeros(n), torch.ones(n)), calls=1, compiled=compiled)


@pytest.mark.parametrize("shape,dim", [((10, 3, 0), 1), ((3, 0), 0), ((3, 0), 1)])
def test_extrema_of_no_elements_along_a_dimension_that_has_some(shape, dim):
    breaks = sweep.check(lambda x: x.min(dim=dim), (torch.randn(shape),))
    assert bool(breaks) == (shape[dim] == 0)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("shape", [(), (10,), (3, 10)])
def test_multilabel_margin_loss_of_one_row(shape, reduction):
    args = torch.randn(shape, requires_grad=True), torch.zeros(shape, dtype=torch.int64)
    assert not sweep.check(
        lambda x, t: F.multilabel_margin_loss(x, t, reduction=reduction), args, gradient=True
    )


def test_tanh_of_small_numbers_is_as_near_as_eagers():
    x = torch.linspace(-0.5, 0.5, 40001)
    got, near = magneto.compile(lambda x: (torch.tanh(x), x + 1))(x)[0], torch.tanh(x.double())
    assert ((got.double() - near).abs() <= 0.7 * (near.abs() * 2.0**-23)).all()
    assert (got.abs() <= x.abs()).all() and (got.signbit() == x.signbit()).all()


def test_operators_find_their_overload_among_several():
    index, b = torch.tensor([[0]]), torch.ones(2, 3)
    assert sweep.check(lambda x: torch.ops.aten.scatter(x + 1, -1, index, b), (torch.zeros(2, 3),)) == []
    sweep.check(lambda x: torch.ops.aten.scatter(x + 1, -1, index, "b"), (torch.zeros(2, 3),))


def test_part_of_another_size_than_what_is_written_there():
    f = magneto.compile(lambda x, s: torch.diagonal_scatter(x, s, 1), dynamic=True)
    for n in (20, 8):
        x, fits = torch.randn(n, n), torch.randn(n - 1)
        assert torch.equal(f(x, fits), torch.diagonal_scatter(x, fits, 1))
        with pytest.raises(RuntimeError, match="expected src to have a size equal"):
            f(x, torch.randn(n - 3))
