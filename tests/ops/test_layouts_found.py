"""Results whose layout or dtype torch's meta kernels tell otherwise than eager has them, and calls that lose their result on
tensor subclasses; through sweep.check, which compares strides, dtypes, aliasing and gradients."""

import warnings

import pytest
import torch
import torch.nn.functional as F

import magneto
from tests.ops import sweep

X = torch.linspace(-3, 3, 60).reshape(5, 4, 3).sin()
C = torch.complex(X, X.flip(0) / 4)
IMAGE = torch.arange(2.0 * 4 * 3 * 3).reshape(2, 4, 3, 3).contiguous(memory_format=torch.channels_last)
ORDERS = [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1, 0)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("dim", [(0,), (1, 0), (2, 1, 0)])
def test_fourier_transforms_store_the_transformed_dimensions_innermost(order, dim):
    for fn, x in ((torch.fft.rfftn, X), (torch.fft.fftn, C), (torch.fft.irfftn, C), (torch.fft.fftn, X)):
        sweep.check(lambda x, fn=fn: fn(x, dim=dim).transpose(0, 2), (x.permute(order),))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("shape", [(5, 12), (12, 5), (5, 4, 3)])
def test_singular_vectors_are_stored_by_columns(full, shape):
    def fn(x):
        u, s, v = torch.linalg.svd(x, full_matrices=full)
        return u.mT, s, v.mT

    sweep.check(fn, (X.reshape(shape),))


def test_eigenvectors_are_stored_by_columns():
    sweep.check(lambda x: torch.linalg.eig(x)[1].mT.abs(), (X[0, :3],))


def test_crop_is_a_clone_of_what_is_left():
    sweep.check(lambda x: F.pad(x, (0, -1, 0, -3)).t(), (X[0],))
    sweep.check(lambda x: F.pad(x, (1, 0, 2, 0)), (X[0, :1].requires_grad_(),), gradient=True)


def test_channel_shuffle_keeps_channels_last():
    sweep.check(lambda x: F.channel_shuffle(x, 2), (IMAGE,))


def test_max_unpool_of_channels_last():
    sweep.check(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (IMAGE,))


def test_max_unpool_of_channels_last_under_autograd():
    y, i = F.max_pool2d(
        torch.rand(2, 4, 6, 6).contiguous(memory_format=torch.channels_last), 2, return_indices=True
    )
    sweep.check(lambda y, i: F.max_unpool2d(y, i, 2), (y.requires_grad_(), i), gradient=True)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3), (3, 0)])
def test_singular_vectors_of_no_elements(shape):
    sweep.check(torch.linalg.svd, (torch.ones(shape),))


def test_group_norm_of_memory_with_gaps_is_refused():
    sweep.check(
        lambda x: torch.native_group_norm(x[..., 0], None, None, 2, 4, 3, 2, 1e-5),
        (IMAGE.contiguous(),),
        calls=1,
    )


@pytest.mark.parametrize("stats", [torch.bfloat16, torch.float32])
def test_batch_norm_statistics_of_bfloat16(stats):
    sweep.check(lambda x, m, v: torch.ops.aten._batch_norm_with_update(x, None, None, m, v, 0.1, 1e-5)[:3],
                (IMAGE.bfloat16(), torch.zeros(4, dtype=stats), torch.ones(4, dtype=stats)))  # fmt: skip


@pytest.mark.parametrize("x", [X, X.double(), X.half(), X.long(), C], ids=lambda x: str(x.dtype))
def test_complex_numbers_make_complex_results(x):
    sweep.check(
        lambda x: (x * 2j, x + (1 + 1j), 1j - x, x / 2j, torch.where(x.real > 0, x, 1j), x == 0j, x != 1j),
        (x,),
    )


def test_complex_convolution():
    w = torch.randn(2, 4, 2, 2, dtype=torch.complex64)
    sweep.check(lambda x, w: F.conv2d(x, w.conj()), (IMAGE.to(torch.complex64), w))


def test_rank_into_out():
    def fn(x):
        out = torch.zeros(5, dtype=torch.int64)
        return torch.linalg.matrix_rank(x, out=out) is out, out + 1

    assert sweep.check(fn, (X,)) == ["out_argument"]  # torch writes no out= that is a tensor subclass


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"include_last_offset": True}])
def test_bags_with_gradients(mode, dtype, options):
    rows, offsets = (
        torch.tensor([1, 2, 4, 1, 4]),
        torch.tensor([0, 2, 5] if options.get("include_last_offset") else [0, 2]),
    )
    table = X[:, :, 0].to(dtype).clone().requires_grad_()
    assert not sweep.check(
        lambda w, i, o: F.embedding_bag(i, w, o, mode=mode, **options), (table, rows, offsets), gradient=True
    )


def test_legacy_constructors():
    def fn(x):
        return (
            torch.LongTensor([1, 2]) + x,
            torch.Tensor([[1, 2], [x.shape[0], 4]]) * x,
            torch.ByteTensor((1, 2)),
            torch.FloatTensor([]),
        )

    assert not sweep.check(fn, (torch.ones(2),))


def test_ops_without_meta_kernels_are_in_the_graph():
    assert not sweep.check(lambda x: torch.histogram(x.abs(), 3), (X,))
    assert not sweep.check(
        lambda x: torch.histogramdd(x[:, :, 0].abs(), [2, 3, 2, 2], weight=x[:, 0, 0]), (X,)
    )
    assert not sweep.check(lambda x: torch.geqrf(x[0].sin()), (X,))


def test_warnings_of_torch_are_given_in_every_run():
    def fn(x):
        return F.dropout2d(x, 0.0) + F.kl_div(x, x)

    def said(f):
        with warnings.catch_warnings(record=True) as w:
            warnings.simplefilter("always")
            f(X)
        return sorted((str(m.message), m.category, m.filename) for m in w)

    compiled = magneto.compile(fn, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled(X)
    assert said(compiled) == said(fn) != []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            compiled(X)


@pytest.mark.parametrize("wide", [16, 24, 7])
def test_indices_taken_apart_twice(wide):
    def fn(x):  # relative positions: padded, flattened and cut again
        a = F.pad(x, (0, 1)).reshape(-1, 2 * wide * wide)
        a = F.pad(a, (0, wide - 1)).reshape(-1, wide + 1, 2 * wide - 1)[:, :wide, wide - 1 :]
        return a.reshape(-1, 1, wide, wide).expand(-1, wide, -1, -1).permute(0, 3, 1, 2) + 1

    sweep.check(fn, (torch.randn(6, wide, 2 * wide - 1),))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_a_fixed_number_of_nonzero_positions_lies_row_by_row(size):
    sweep.check(lambda x: torch.nonzero_static(x, size=size) + 1, (X[0],))


@pytest.mark.parametrize("args", [(3.1,), (0.0, -8.000001, -4.0), (1.0, 5.000001, 2.0), (2.1, -2.9, -1.0)])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float32])
def test_ranges_of_fractions_have_the_length_of_their_dtype(args, dtype):
    sweep.check(lambda x: x + torch.arange(*args, dtype=dtype).sum(), (X,))
    sweep.check(lambda: torch.arange(*args, dtype=dtype))


@pytest.mark.parametrize(
    "kernel, groups, transposed", [(3, 1, False), (1, 1, False), (3, 4, False), (3, 1, True)]
)
@pytest.mark.parametrize("last", ["image", "filter"])
def test_convolutions_of_doubles_keep_channels_last(last, kernel, groups, transposed):
    x, w = (
        torch.randn(2, 8, 7, 7, dtype=torch.double),
        torch.randn(8, 8 // groups, kernel, kernel, dtype=torch.double),
    )
    x, w = (
        t.to(memory_format=torch.channels_last) if last == name else t
        for t, name in ((x, "image"), (w, "filter"))
    )
    sweep.check(
        lambda x, w: (
            torch.convolution(x, w, None, [1] * 2, [1] * 2, [1] * 2, transposed, [0] * 2, groups) * 2
        ),
        (x, w),
    )
