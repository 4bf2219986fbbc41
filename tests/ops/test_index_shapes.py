"""Ops that read or write at indices, over generated shapes: dimensions of size 0 and 1 in every position, memory that is
not dense, values that are not finite.  Results and gradients are eager's, or both raise.

Every case is one graph of its own.  A sample is run by default; MAGNETO_OPS=full runs all shapes of up to four dimensions.
"""

import itertools
import os
import random

import pytest
import torch
import torch.nn.functional as F

import magneto

SIZES = (0, 1, 2, 5)
FULL = os.environ.get("MAGNETO_OPS") == "full"
SAMPLE = None if FULL else 14


def shapes(ranks, seed):
    """Shapes with sizes of SIZES; those with a size 1 beside a larger one are half of a sample."""
    every = [s for r in ranks for s in itertools.product(SIZES, repeat=r)]
    rng = random.Random(seed)
    if SAMPLE is None or len(every) <= SAMPLE:
        return every
    unit = [s for s in every if 1 in s and max(s) > 1 and 0 not in s]
    return rng.sample(unit, min(SAMPLE // 2, len(unit))) + rng.sample(every, SAMPLE // 2)


def laid_out(t, how):
    """The same values in other memory: dense, transposed, with gaps, or expanded over its leading dimension."""
    if how == "transposed" and t.dim() > 1:
        return t.transpose(0, -1).contiguous().transpose(0, -1)
    if how == "gaps" and t.dim():
        wide = t.new_zeros(*t.shape[:-1], 2 * t.shape[-1] + 1)
        wide[..., 1::2] = t
        return wide[..., 1::2]
    if how == "expanded" and t.dim() and t.shape[0]:
        return t[:1].expand(t.shape)
    return t


def floats(rng, *shape):
    t = torch.randint(-20, 20, shape).float() / 8  # exact sums, many ties
    if t.numel() and rng.random() < 0.3:
        flat = t.view(-1)
        for special in (float("nan"), float("inf"), -float("inf"), -0.0):
            flat[rng.randrange(t.numel())] = special
    return t


def index(rng, most, *shape):
    """Indices below most; none are possible when most is 0."""
    if not most:
        return torch.zeros(*[0] * len(shape), dtype=torch.long)
    return torch.randint(0, most, shape)


def smaller(rng, shape, dim, count):
    return [count if d == dim else n and rng.randint(1, n) for d, n in enumerate(shape)]


# Each maker gets (rng, shape, dim) and gives a function and its tensors, of which those of floats require grad; a shape
# that the op cannot have gives None.
def gather(rng, s, d):
    i = index(rng, s[d], *smaller(rng, s, d, 3))
    return lambda x: x.gather(d, i), [floats(rng, *s)]


def scatter(rng, s, d):
    small = smaller(rng, s, d, min(3, s[d]))
    i = torch.argsort(torch.rand(s), d).narrow(d, 0, small[d])[
        tuple(slice(n) for n in small)
    ]  # no collisions
    return lambda x, y: x.scatter(d, i, y), [floats(rng, *s), floats(rng, *small)]


def scatter_value(rng, s, d):
    i = index(rng, s[d], *smaller(rng, s, d, 3))
    return lambda x: x.scatter(d, i, 1.5), [floats(rng, *s)]


def scatter_add(rng, s, d):
    i = index(rng, s[d], *smaller(rng, s, d, 3))
    return lambda x, y: x.scatter_add(d, i, y), [floats(rng, *s), floats(rng, *i.shape)]


def scatter_reduce(rng, s, d):
    i = index(rng, s[d], *smaller(rng, s, d, 3))
    how, own = rng.choice(["sum", "prod", "mean", "amax", "amin"]), rng.random() < 0.5
    return lambda x, y: x.scatter_reduce(d, i, y, how, include_self=own), [
        floats(rng, *s),
        floats(rng, *i.shape),
    ]


def index_select(rng, s, d):
    i = index(rng, s[d], 3)
    return lambda x: x.index_select(d, i), [floats(rng, *s)]


def slices(rng, s, d, unique=False):
    n = min(2, s[d]) if unique else 3 if s[d] else 0
    i = torch.randperm(s[d])[:n] if unique else index(rng, s[d], n)
    return i, floats(rng, *[n if k == d else v for k, v in enumerate(s)])


def index_add(rng, s, d):
    i, y = slices(rng, s, d)
    return lambda x, y: x.index_add(d, i, y, alpha=2), [floats(rng, *s), y]


def index_copy(rng, s, d):
    i, y = slices(rng, s, d, unique=True)
    return lambda x, y: x.index_copy(d, i, y), [floats(rng, *s), y]


def index_fill(rng, s, d):
    i, _ = slices(rng, s, d)
    return lambda x: x.index_fill(d, i, 2.5), [floats(rng, *s)]


def index_reduce(rng, s, d):
    i, y = slices(rng, s, d)
    how, own = rng.choice(["prod", "mean", "amax", "amin"]), rng.random() < 0.5
    return lambda x, y: x.index_reduce(d, i, y, how, include_self=own), [floats(rng, *s), y]


def index_get(rng, s, d):
    """x[i], x[:, i], x[i, :, j], ... with indices that broadcast."""
    ix = [slice(None)] * len(s)
    ix[d] = index(rng, s[d], rng.choice([1, 3]))
    other = rng.randrange(len(s))
    if other != d and rng.random() < 0.5 and s[other] and s[d]:
        ix[other] = index(rng, s[other], *rng.choice([(1,), (2, 1)]))
    return lambda x: x[tuple(ix)], [floats(rng, *s)]


def index_put(rng, s, d, accumulate=False):
    f, (x,) = index_get(rng, s, d)
    y = floats(rng, *f(x).shape)
    ix = f.__closure__[0].cell_contents
    if not accumulate:  # eager leaves open which of two writes to one place wins
        ix = [slice(None)] * len(s)
        ix[d], y = slices(rng, s, d, unique=True)
    t = tuple(
        torch.arange(n).view([-1 if k == e else 1 for e in range(len(s))]) if isinstance(i, slice) else i
        for k, (i, n) in enumerate(zip(ix, s))
    )
    if any(isinstance(i, slice) for i in ix) and not accumulate:
        t = tuple(i.view([-1 if k == e else 1 for e in range(len(s))]) for k, i in enumerate(t))
        return lambda x, y: x.index_put(t, y), [x, y]
    if accumulate and any(isinstance(i, slice) for i in ix):
        t = tuple(i if not isinstance(i, slice) else None for i in ix)
        return lambda x, y: torch.ops.aten.index_put(x, list(t), y, True), [x, y]
    return lambda x, y: x.index_put(t, y, accumulate), [x, y]


def index_put_add(rng, s, d):
    return index_put(rng, s, d, True)


def take(rng, s, d):
    n = torch.Size(s).numel()
    i = index(rng, n, 2, 3)
    return lambda x: x.take(i), [floats(rng, *s)]


def put(rng, s, d):
    n = torch.Size(s).numel()
    i = index(rng, n, 4)
    return lambda x, y: x.put(i, y, accumulate=True), [floats(rng, *s), floats(rng, *i.shape)]


def take_along(rng, s, d):
    i = index(rng, s[d], *[2 if k == d else 1 for k in range(len(s))])
    return lambda x: torch.take_along_dim(x, i, d), [floats(rng, *s)]


def masked_scatter(rng, s, d):
    m = torch.rand(s) < 0.5
    return lambda x, y: x.masked_scatter(m, y), [floats(rng, *s), floats(rng, *s)]


def masked_fill(rng, s, d):
    m = torch.rand(s) < 0.5
    return lambda x: x.masked_fill(m, -1.0), [floats(rng, *s)]


def extremum(name):
    def make(rng, s, d):
        keep = rng.random() < 0.5
        return lambda x: tuple(getattr(torch, name)(x, d, keepdim=keep)), [floats(rng, *s)]

    return make


def running(name):
    return lambda rng, s, d: (lambda x: tuple(getattr(torch, name)(x, d)), [floats(rng, *s)])


def sort(rng, s, d):
    return lambda x: tuple(torch.sort(x, dim=d, stable=True)), [floats(rng, *s)]


def topk(rng, s, d):
    k = min(2, s[d])
    x = torch.randperm(torch.Size(s).numel()).float().view(s)  # no ties
    return lambda x: tuple(torch.topk(x, k, d)), [x]


def kthvalue(rng, s, d):
    x = torch.randperm(torch.Size(s).numel()).float().view(s)
    return lambda x: tuple(torch.kthvalue(x, 1, d)), [x]


def embedding(rng, s, d):
    i = index(rng, s[0], *s[1:-1], 2)
    return lambda w: F.embedding(i, w, padding_idx=0 if s[0] else None), [floats(rng, s[0], s[-1])]


def embedding_bag(rng, s, d):
    i = index(rng, s[0], s[1], 2)
    return lambda w: F.embedding_bag(i, w, mode="sum"), [floats(rng, s[0], s[-1])]


def unfold(rng, s, d):
    return (lambda x: x.unfold(d, min(2, s[d]), 1), [floats(rng, *s)])


def diagonal_scatter(rng, s, d):
    if len(s) < 2:
        return None
    x = floats(rng, *s)
    return lambda x, y: x.diagonal_scatter(y, 0, d, d - 1), [x, floats(rng, *x.diagonal(0, d, d - 1).shape)]


def select_scatter(rng, s, d):
    if not s[d]:
        return None
    return lambda x, y: x.select_scatter(y, d, s[d] - 1), [floats(rng, *s), floats(rng, *s[:d], *s[d + 1 :])]


def slice_scatter(rng, s, d):
    x = floats(rng, *s)
    return lambda x, y: x.slice_scatter(y, d, 1, None, 2), [
        x,
        floats(rng, *[len(range(1, n, 2)) if k == d else n for k, n in enumerate(s)]),
    ]


def cross_entropy(rng, s, d):
    i = index(rng, s[1], s[0]) if s[1] else torch.zeros(s[0], dtype=torch.long)
    return lambda x: F.cross_entropy(x, i, reduction="none"), [torch.randn(s)]


def one_hot(rng, s, d):
    i = index(rng, 3, *s)
    return lambda x: F.one_hot(i, 4) + x.sum(), [floats(rng, 2)]


POINTS = [gather, scatter, scatter_value, scatter_add, scatter_reduce, index_select, index_add, index_copy, index_fill,
          index_reduce, index_get, index_put, index_put_add, take, put, take_along, masked_scatter, masked_fill, sort, topk,
          kthvalue, unfold, diagonal_scatter, select_scatter, slice_scatter, one_hot]  # fmt: skip
NAMED = {n: extremum(n) for n in ("max", "min", "median", "mode")} | {
    n: running(n) for n in ("cummax", "cummin")
}
CASES = {f.__name__: (f, (1, 2, 3, 4)) for f in POINTS} | {n: (f, (1, 2, 3, 4)) for n, f in NAMED.items()}
CASES |= {
    "embedding": (embedding, (2, 3)),
    "embedding_bag": (embedding_bag, (3,)),
    "cross_entropy": (cross_entropy, (2,)),
}


def attempt(f, tensors):
    """Results and gradients, or the exception's type."""
    leaves = [t.detach().requires_grad_(t.is_floating_point()) for t in tensors]
    try:
        out = f(*leaves)
        out = out if isinstance(out, tuple) else (out,)
        wanted = [o for o in out if o.requires_grad]
        weights = [torch.empty_like(o).copy_(torch.arange(o.numel()).view(o.shape) % 5 + 1) for o in wanted]
        grads = torch.autograd.grad(wanted, leaves, weights, allow_unused=True) if wanted else []
    except (RuntimeError, IndexError, ValueError) as e:
        return type(e)
    return [o.detach() for o in out], list(grads)


def compare(name, make, shape, n):
    """True if the op can have such an argument."""
    rng = random.Random(f"{name} {shape} {n}")
    d = rng.randrange(len(shape))
    torch.manual_seed(rng.randrange(1 << 30))
    made = make(rng, list(shape), d)
    if not made:
        return False
    f, tensors = made
    how = rng.choice(["dense", "dense", "transposed", "gaps", "expanded"])
    tensors = [laid_out(t, how) for t in tensors]
    where = f"{name} of {tuple(shape)} along {d}, {how}"
    want = attempt(f, tensors)
    magneto.reset()
    got = attempt(magneto.compile(f), tensors)
    if isinstance(want, type) or isinstance(got, type):
        assert got == want, f"{where}: {got}, eager {want}"
        return True
    for what, gs, ws in zip(("result", "gradient"), got, want):
        for k, (g, w) in enumerate(zip(gs, ws)):
            assert (g is None) == (w is None), f"{where}: {what} {k}"
            torch.testing.assert_close(
                g, w, equal_nan=True, rtol=1e-5, atol=1e-5, msg=lambda m: f"{where}: {what} {k}: {m}"
            )
            assert w is None or w.numel() == 0 or g.stride() == w.stride(), (
                f"{where}: {what} {k}: strides {g.stride()}, eager {w.stride()}"
            )
    return True


@pytest.mark.parametrize("name", CASES)
def test_shapes_of(name):
    make, ranks = CASES[name]
    assert any([compare(name, make, shape, n) for n, shape in enumerate(shapes(ranks, name))])


# ---- windows and resizing: batch and channels may be 1, and so may each side of the plane ----

PLANES = {
    "max_pool1d": (1, lambda x: F.max_pool1d(x, 2, 1, 1, return_indices=True)),
    "max_pool2d": (2, lambda x: F.max_pool2d(x, 2, 1, 1, return_indices=True)),
    "max_pool3d": (3, lambda x: F.max_pool3d(x, 2, 1, 1, return_indices=True)),
    "adaptive_max_pool1d": (1, lambda x: F.adaptive_max_pool1d(x, 2, return_indices=True)),
    "adaptive_max_pool2d": (2, lambda x: F.adaptive_max_pool2d(x, (2, 1), return_indices=True)),
    "adaptive_avg_pool2d": (2, lambda x: F.adaptive_avg_pool2d(x, (1, 2))),
    "avg_pool2d": (2, lambda x: F.avg_pool2d(x, 2, 1, 1)),
    "fold": (2, lambda x: F.fold(F.unfold(x, 2, padding=1), x.shape[2:], 2, padding=1)),
    "nearest": (2, lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest")),
    "bilinear": (2, lambda x: F.interpolate(x, size=(3, 4), mode="bilinear", align_corners=True)),
    "bicubic": (2, lambda x: F.interpolate(x, size=(4, 3), mode="bicubic")),
    "linear": (1, lambda x: F.interpolate(x, size=3, mode="linear")),
    "reflect": (2, lambda x: F.pad(x, (1, 0, 0, 1), mode="reflect")),
    "replicate": (2, lambda x: F.pad(x, (1, 1, 2, 0), mode="replicate")),
    "circular": (2, lambda x: F.pad(x, (1, 0, 0, 1), mode="circular")),
    "grid_sample": (2, lambda x: F.grid_sample(x, GRID.expand(x.shape[0], -1, -1, -1), align_corners=False)),
    "pixel_shuffle": (2, lambda x: F.pixel_unshuffle(F.pixel_shuffle(x.repeat(1, 4, 1, 1), 2), 2)),
}  # fmt: skip
EMPTY_FAILS = ("pixel_shuffle",)  # eager's backward of an empty one raises about shapes of its own making
GRID = torch.linspace(-1.2, 1.2, 12).view(1, 2, 3, 2)


@pytest.mark.parametrize("name", PLANES)
def test_planes_of(name):
    dims, f = PLANES[name]
    every = list(itertools.product((1, 2), (1, 2, 0), *[(1, 2, 5)] * dims))
    if name in EMPTY_FAILS:
        every = [s for s in every if 0 not in s]
    some = every if FULL else random.Random(name).sample(every, min(len(every), SAMPLE))
    assert all(
        [compare(name, lambda rng, s, d: (f, [floats(rng, *s)]), shape, n) for n, shape in enumerate(some)]
    )
