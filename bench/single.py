"""Single operations beside eager, forward and forward with backward, several sizes each.

    python -m bench ops [--only REGEX] [--below RATIO] [--peer]

Each row is one operation on one set of sizes.  Eager and magneto (and torch.compile with --peer) are
interleaved in one process; a figure is the median of the microseconds a call.
A row "... +grad" is the forward pass, and the backward pass of ones, in eager and compiled alike.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F

R = torch.randn


@dataclasses.dataclass(frozen=True)
class Op:
    """One row: make() returns (function, arguments).

    grad: the backward pass is timed, too.
    """

    name: str
    make: Callable[[], tuple]
    grad: bool = False


def _sizes(shape: tuple[int, ...]) -> str:
    return "x".join(str(n) for n in shape)


def _on(name: str, shapes: list[tuple[int, ...]], fn: Callable, *more: Callable, grad=True) -> Iterator[Op]:
    """Rows of one function of a float tensor of each of the shapes.

    more: what makes further arguments from the shape.
    """
    for shape in shapes:

        def make(shape=shape):
            return fn, (R(*shape), *(m(shape) for m in more))

        yield Op(f"{name} {_sizes(shape)}", make)
        if grad:
            yield Op(f"{name} {_sizes(shape)} +grad", make, True)


IMAGES = [(1, 3, 17, 17), (2, 8, 32, 32), (4, 32, 56, 56), (2, 3, 224, 224)]
ROWS = [(4, 10), (64, 128), (1024, 100), (256, 4096)]


def _resize() -> Iterator[Op]:
    for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
        for scale in (2.0, 1.5, 0.6):
            yield from _on(
                f"interpolate {mode} {scale}",
                IMAGES,
                lambda x, mode=mode, scale=scale: F.interpolate(x, scale_factor=scale, mode=mode),
            )
    for mode in ("bilinear", "bicubic"):
        yield from _on(
            f"interpolate {mode} 0.6 antialias",
            IMAGES,
            lambda x, mode=mode: F.interpolate(x, scale_factor=0.6, mode=mode, antialias=True),
        )
    yield from _on(
        "interpolate bilinear 2.0 corners",
        IMAGES,
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
    )

    def grid(shape):
        theta = torch.eye(2, 3).repeat(shape[0], 1, 1) + 0.05 * R(shape[0], 2, 3)
        return F.affine_grid(theta, list(shape), align_corners=False)

    for mode in ("bilinear", "nearest", "bicubic"):
        for pad in ("zeros", "border", "reflection"):
            yield from _on(
                f"grid_sample {mode} {pad}",
                IMAGES,
                lambda x, g, mode=mode, pad=pad: F.grid_sample(x, g, mode, pad, align_corners=False),
                grid,
            )
    yield from _on("pixel_shuffle 2", [(1, 4, 17, 17), (4, 32, 56, 56)], lambda x: F.pixel_shuffle(x, 2))
    yield from _on("pixel_unshuffle 2", [(1, 4, 16, 16), (4, 32, 56, 56)], lambda x: F.pixel_unshuffle(x, 2))


def _pad() -> Iterator[Op]:
    for mode in ("constant", "reflect", "replicate", "circular"):
        yield from _on(f"pad {mode}", IMAGES, lambda x, mode=mode: F.pad(x, (2, 1, 1, 2), mode))
        yield from _on(f"pad 1d {mode}", [(2, 3, 100), (8, 64, 1000)], lambda x, m=mode: F.pad(x, (3, 3), m))
    yield from _on("roll", IMAGES, lambda x: x.roll((1, 2), (2, 3)))
    yield from _on("flip", IMAGES, lambda x: x.flip(3))


def _windows() -> Iterator[Op]:
    yield from _on("max_pool2d 3/2", IMAGES, lambda x: F.max_pool2d(x, 3, 2, 1))
    yield from _on("max_pool2d 2", IMAGES, lambda x: F.max_pool2d(x, 2))
    yield from _on("max_pool2d 5", [(2, 8, 5, 5), (4, 32, 56, 56)], lambda x: F.max_pool2d(x, 5))
    yield from _on("max_pool2d 2 indices", IMAGES, lambda x: F.max_pool2d(x, 2, return_indices=True))
    yield from _on(
        "max_pool2d 5 indices",
        [(64, 32, 5, 5), (4, 32, 56, 56)],
        lambda x: F.max_pool2d(x, 5, return_indices=True),
    )
    yield from _on("avg_pool2d 2", IMAGES, lambda x: F.avg_pool2d(x, 2))
    yield from _on("avg_pool2d 3/1", IMAGES, lambda x: F.avg_pool2d(x, 3, 1, 1))
    yield from _on("adaptive_avg_pool2d 7", IMAGES, lambda x: F.adaptive_avg_pool2d(x, 7))
    yield from _on("adaptive_avg_pool2d 1", IMAGES, lambda x: F.adaptive_avg_pool2d(x, 1))
    yield from _on("adaptive_max_pool2d 5", IMAGES, lambda x: F.adaptive_max_pool2d(x, 5))
    yield from _on(
        "fractional_max_pool2d",
        IMAGES,
        lambda x, s: F.fractional_max_pool2d(x, 2, output_ratio=(0.7, 0.7), _random_samples=s),
        lambda shape: torch.rand(shape[0], shape[1], 2),
    )
    yield from _on("lp_pool2d", IMAGES, lambda x: F.lp_pool2d(x.abs() + 0.1, 2, 2))
    yield from _on("max_pool1d", [(2, 8, 100), (8, 64, 1000)], lambda x: F.max_pool1d(x, 3, 2))
    yield from _on("avg_pool3d", [(1, 4, 8, 16, 16)], lambda x: F.avg_pool3d(x, 2))
    yield from _on("unfold 3", IMAGES, lambda x: F.unfold(x, 3, padding=1))
    yield from _on("unfold 2/2", [(2, 8, 32, 32), (4, 32, 56, 56)], lambda x: F.unfold(x, 2, stride=2))
    for c, n in ((4, 16), (32, 56)):
        yield from _on("fold 3", [(2, c * 9, n * n)], lambda x, n=n: F.fold(x, (n, n), 3, padding=1))


def _conv() -> Iterator[Op]:
    def conv(shape, out, kernel, groups=1, stride=1, dims=2):
        def make():
            w = R(out, shape[1] // groups, *[kernel] * dims) * 0.1
            f = getattr(F, f"conv{dims}d")
            return (
                lambda x, w, b: f(x, w, b, padding=kernel // 2, stride=stride, groups=groups),
                (R(*shape), w, R(out)),
            )

        name = f"conv{dims}d {_sizes(shape)} {out} k{kernel} g{groups} s{stride}"
        yield Op(name, make)
        yield Op(name + " +grad", make, True)

    for shape in [(1, 8, 8, 8), (1, 32, 28, 28), (4, 64, 56, 56)]:
        c = shape[1]
        yield from conv(shape, c, 3, groups=c)
        yield from conv(shape, c, 5, groups=c, stride=2)
        yield from conv(shape, c, 7, groups=c)
        yield from conv(shape, c, 3, groups=4)
        yield from conv(shape, 2 * c, 1)
        yield from conv(shape, c, 3)
    yield from conv((1, 1, 8, 8), 4, 3)
    yield from conv((2, 3, 64, 64), 16, 3, stride=2)
    yield from conv((2, 16, 100), 16, 3, dims=1)
    yield from conv((2, 64, 1000), 64, 5, groups=64, dims=1)
    for shape in [(1, 8, 8, 8), (2, 32, 28, 28)]:
        yield from _on(
            "conv_transpose2d 4/2",
            [shape],
            lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1),
            lambda s: R(s[1], s[1], 4, 4) * 0.1,
        )


def _index() -> Iterator[Op]:
    def ints(high):
        return lambda shape: torch.randint(0, high(shape), (64,))

    tables = [(10, 8), (1000, 64), (4096, 768)]
    yield from _on("index_select rows", tables, lambda x, i: x.index_select(0, i), ints(lambda s: s[0]))
    yield from _on("index_select columns", tables, lambda x, i: x.index_select(1, i), ints(lambda s: s[1]))
    yield from _on("x[:, i]", tables, lambda x, i: x[:, i], ints(lambda s: s[1]))
    yield from _on("x[i]", tables, lambda x, i: x[i], ints(lambda s: s[0]))
    yield from _on("embedding", tables, lambda w, i: F.embedding(i, w), ints(lambda s: s[0]))
    for mode in ("sum", "mean", "max"):
        yield from _on(
            f"embedding_bag {mode}",
            tables,
            lambda w, i, m=mode: F.embedding_bag(i.view(8, 8), w, mode=m),
            ints(lambda s: s[0]),
        )
    yield from _on(
        "gather", tables, lambda x, i: x.gather(1, i), lambda s: torch.randint(0, s[1], (s[0], s[1]))
    )
    yield from _on(
        "take", tables, lambda x, i: x.take(i), lambda s: torch.randint(0, s[0] * s[1], (s[0], s[1]))
    )
    yield from _on(
        "scatter", tables, lambda x, i: x.scatter(1, i, x * 2), lambda s: torch.randint(0, s[1], s)
    )
    yield from _on(
        "scatter_add", tables, lambda x, i: x.scatter_add(1, i, x * 2), lambda s: torch.randint(0, s[1], s)
    )
    yield from _on(
        "scatter_add rows",
        tables,
        lambda x, i: x.scatter_add(0, i, x * 2),
        lambda s: torch.randint(0, s[0], s),
    )
    for how in ("sum", "amax", "mean", "prod"):
        yield from _on(
            f"scatter_reduce {how}",
            tables,
            lambda x, i, h=how: x.scatter_reduce(0, i, x * 2, h),
            lambda s: torch.randint(0, s[0], s),
        )
    yield from _on(
        "index_add", tables, lambda x, i, y: x.index_add(0, i, y), ints(lambda s: s[0]), lambda s: R(64, s[1])
    )
    yield from _on(
        "index_copy",
        tables,
        lambda x, i, y: x.index_copy(0, i, y),
        lambda s: torch.randperm(s[0])[:64],
        lambda s: R(min(64, s[0]), s[1]),
    )
    yield from _on("index_fill", tables, lambda x, i: x.index_fill(0, i, 1.0), ints(lambda s: s[0]))
    yield from _on(
        "index_put accumulate",
        tables,
        lambda x, i, y: x.index_put((i,), y, accumulate=True),
        ints(lambda s: s[0]),
        lambda s: R(64, s[1]),
    )
    yield from _on("masked_fill", tables, lambda x, m: x.masked_fill(m, 0.0), lambda s: R(*s) > 0)
    yield from _on("where", tables, lambda x, m: torch.where(m, x, -x), lambda s: R(*s) > 0)
    yield from _on("masked_select", tables, lambda x, m: x.masked_select(m), lambda s: R(*s) > 0)
    for n in (100, 10000, 1000000):
        yield Op(
            f"bincount {n}",
            lambda n=n: (lambda i: torch.bincount(i, minlength=1000), (torch.randint(0, 1000, (n,)),)),
        )
        yield Op(f"histc {n}", lambda n=n: (lambda x: torch.histc(x, 100, -3, 3), (R(n),)))
        yield Op(f"one_hot {n}", lambda n=n: (lambda i: F.one_hot(i, 32), (torch.randint(0, 32, (n,)),)))
        yield Op(
            f"searchsorted {n}",
            lambda n=n: (lambda e, x: torch.searchsorted(e, x), (torch.linspace(-3, 3, 100), R(n))),
        )
        yield Op(
            f"bucketize {n}",
            lambda n=n: (lambda e, x: torch.bucketize(x, e), (torch.linspace(-3, 3, 100), R(n))),
        )


def _rows() -> Iterator[Op]:
    for name in ("cumsum", "cumprod", "logcumsumexp", "cummax"):

        def along(x, name=name, dim=-1):
            y = getattr(torch, name)(x, dim)
            return y if isinstance(y, torch.Tensor) else y[0]

        yield from _on(name + " rows", ROWS, along)
        yield from _on(name + " columns", ROWS, lambda x, along=along: along(x, dim=0))
    for name in ("sum", "mean", "amax", "prod", "std", "logsumexp", "norm", "argmax"):
        grad = name != "argmax"
        yield from _on(name + " rows", ROWS, lambda x, n=name: getattr(torch, n)(x, dim=-1), grad=grad)
        yield from _on(name + " columns", ROWS, lambda x, n=name: getattr(torch, n)(x, dim=0), grad=grad)
    yield from _on("sum all", ROWS, lambda x: x.sum())
    yield from _on("max rows", ROWS, lambda x: x.max(-1).values)
    yield from _on("sort", ROWS, lambda x: x.sort(-1).values)
    yield from _on("argsort", ROWS, lambda x: x.argsort(-1), grad=False)
    yield from _on("topk 5", [(4, 10), (64, 128), (256, 4096)], lambda x: x.topk(5).values)
    yield from _on("kthvalue", ROWS, lambda x: x.kthvalue(3).values)
    yield from _on("median", ROWS, lambda x: x.median(-1).values)
    yield from _on("quantile", ROWS, lambda x: x.quantile(0.3, -1))
    yield from _on("softmax", ROWS, lambda x: x.softmax(-1))
    yield from _on("softmax columns", ROWS, lambda x: x.softmax(0))
    yield from _on("log_softmax", ROWS, lambda x: x.log_softmax(-1))
    yield from _on("layer_norm", ROWS, lambda x, w: F.layer_norm(x, x.shape[1:], w, w), lambda s: R(s[1]))
    yield from _on("rms_norm", ROWS, lambda x, w: F.rms_norm(x, x.shape[1:], w), lambda s: R(s[1]))
    yield from _on("normalize", ROWS, lambda x: F.normalize(x))
    yield from _on(
        "batch_norm 1d", ROWS, lambda x, w: F.batch_norm(x, None, None, w, w, True), lambda s: R(s[1])
    )
    yield from _on(
        "batch_norm 2d", IMAGES, lambda x, w: F.batch_norm(x, None, None, w, w, True), lambda s: R(s[1])
    )
    yield from _on(
        "batch_norm eval",
        IMAGES,
        lambda x, w, m: F.batch_norm(x, m.float(), m.abs() + 1.0, w, w),
        lambda s: R(s[1]),
        lambda s: torch.zeros(s[1], dtype=torch.int64),
    )
    yield from _on("instance_norm", IMAGES, lambda x: F.instance_norm(x))
    yield from _on(
        "group_norm",
        [(2, 8, 32, 32), (4, 32, 56, 56)],
        lambda x, w: F.group_norm(x, 4, w, w),
        lambda s: R(s[1]),
    )
    yield from _on("cross_entropy", ROWS, F.cross_entropy, lambda s: torch.randint(0, s[1], (s[0],)))
    yield from _on("nll_loss", ROWS, F.nll_loss, lambda s: torch.randint(0, s[1], (s[0],)))
    yield from _on("mse_loss", ROWS, F.mse_loss, lambda s: R(*s))
    yield from _on("smooth_l1_loss", ROWS, F.smooth_l1_loss, lambda s: R(*s))
    yield from _on("bce_with_logits", ROWS, F.binary_cross_entropy_with_logits, lambda s: torch.rand(*s))
    yield from _on(
        "kl_div", ROWS, lambda x, y: F.kl_div(x, y, reduction="batchmean"), lambda s: torch.rand(*s)
    )
    yield from _on("cosine_similarity", ROWS, F.cosine_similarity, lambda s: R(*s))
    yield from _on("cdist", [(4, 10), (64, 128), (256, 64)], torch.cdist, lambda s: R(*s))


def _elements() -> Iterator[Op]:
    more = [(10,), (64, 64), (1000, 1000)]
    for name in (
        "sin exp log1p erf tanh sigmoid sqrt rsqrt abs floor reciprocal lgamma digamma erfinv atan "
        "asinh sinc round sign logit i0 expm1 exp2 cos tan square neg"
    ).split():
        yield from _on(name, more, lambda x, n=name: getattr(torch, n)(x.abs().clamp(0.01, 0.99)))
    for name in "relu gelu silu mish softplus elu hardswish leaky_relu selu hardtanh logsigmoid celu".split():
        yield from _on(name, more, lambda x, n=name: getattr(F, n)(x))
    for name in "add mul div sub pow atan2 maximum hypot fmod remainder copysign".split():
        yield from _on(
            name,
            more,
            lambda x, y, n=name: getattr(torch, n)(x.abs() + 0.1, y),
            lambda s: torch.rand(*s) + 0.5,
        )
    yield from _on(
        "gelu.sin.sum",
        [(64, 64), (2048, 2048)],
        lambda x, y: F.gelu(x * y + 1).sin().sum(-1),
        lambda s: R(*s),
    )
    yield from _on("clamp", more, lambda x: x.clamp(-1, 1))
    yield from _on("lerp", more, lambda x, y: torch.lerp(x, y, 0.3), lambda s: R(*s))
    yield from _on("double exp", more, lambda x: x.double().exp())
    yield from _on("double sin+pow", more, lambda x: x.double().sin() + x.double().abs() ** 1.5)
    yield from _on("to half", more, lambda x: x.half() * 2)
    yield from _on("to bfloat16", more, lambda x: x.bfloat16() * 2)


def _shapes() -> Iterator[Op]:
    sizes = [(4, 10), (64, 128), (256, 4096)]
    yield from _on("unbind", [(4, 10), (64, 128)], lambda x: x.unbind(0))
    yield from _on("unbind + 1", [(4, 10), (64, 128)], lambda x: [t + 1 for t in x.unbind(0)])
    yield from _on("split", sizes, lambda x: [t * 2 for t in x.split(x.shape[1] // 2, 1)])
    yield from _on("chunk glu", sizes, lambda x: F.glu(x))
    yield from _on("cat", sizes, lambda x: torch.cat([x, x], 1))
    yield from _on("stack", sizes, lambda x: torch.stack([x, x, x]))
    yield from _on("transpose copy", sizes, lambda x: x.t().contiguous())
    yield from _on("repeat", sizes, lambda x: x.repeat(2, 3))
    yield from _on("repeat_interleave", sizes, lambda x: x.repeat_interleave(3, 1))
    yield from _on("tril", sizes, lambda x: x.tril())
    yield from _on("diagonal", sizes, lambda x: x.diagonal() * 2)
    yield from _on("diag_embed", [(4, 10), (64, 128)], lambda x: x.diag_embed())
    yield from _on("permute copy", IMAGES, lambda x: x.permute(0, 2, 3, 1).contiguous())
    yield from _on("slice write", sizes, lambda x: x.clone().index_fill_(1, torch.arange(2), 0.0))


def _products() -> Iterator[Op]:
    def mm(m, k, n, bias):
        def make():
            return F.linear if bias else torch.matmul, (
                (R(m, k), R(n, k), R(n)) if bias else (R(m, k), R(k, n))
            )

        name = f"{'linear' if bias else 'mm'} {m}x{k}x{n}"
        yield Op(name, make)
        yield Op(name + " +grad", make, True)

    for m, k, n in [
        (1, 8, 8),
        (4, 16, 16),
        (32, 64, 64),
        (1, 768, 768),
        (1, 768, 3072),
        (4, 768, 768),
        (16, 1024, 1024),
        (128, 768, 768),
        (128, 3072, 768),
        (1, 2048, 32000),
        (256, 256, 256),
        (300, 17, 5),
        (1000, 4, 1000),
    ]:
        yield from mm(m, k, n, False)
        yield from mm(m, k, n, True)
    for b, m, k, n in [
        (2, 3, 4, 5),
        (12, 128, 64, 128),
        (12, 128, 128, 64),
        (64, 1, 64, 128),
        (8, 32, 32, 32),
    ]:

        def make(b=b, m=m, k=k, n=n):
            return torch.bmm, (R(b, m, k), R(b, k, n))

        yield Op(f"bmm {b}x{m}x{k}x{n}", make)
        yield Op(f"bmm {b}x{m}x{k}x{n} +grad", make, True)
    for b, h, q, k, d in [
        (1, 12, 128, 128, 64),
        (1, 12, 1, 128, 64),
        (1, 3, 197, 197, 64),
        (2, 2, 5, 5, 8),
        (4, 8, 49, 49, 16),
    ]:
        for causal in (False, True):
            if causal and q != k:
                continue

            def attend(b=b, h=h, q=q, k=k, d=d, causal=causal):
                return (
                    lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=causal),
                    (R(b, h, q, d), R(b, h, k, d), R(b, h, k, d)),
                )

            name = f"sdpa {b}x{h}x{q}x{k}x{d}{' causal' if causal else ''}"
            yield Op(name, attend)
            yield Op(name + " +grad", attend, True)
    yield Op(
        "einsum bhid,bhjd",
        lambda: (lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b), (R(2, 4, 32, 16), R(2, 4, 32, 16))),
    )
    yield Op("addmm", lambda: (torch.addmm, (R(64), R(32, 64), R(64, 64))))
    yield Op("outer", lambda: (torch.outer, (R(1000), R(1000))))
    yield Op("dot", lambda: (torch.dot, (R(10000), R(10000))))
    yield Op("mv", lambda: (torch.mv, (R(1000, 1000), R(1000))))


def ops() -> list[Op]:
    """All rows."""
    groups = (_resize, _pad, _windows, _conv, _index, _rows, _elements, _shapes, _products)
    return [op for group in groups for op in group()]


def _call(fn: Callable, args: tuple, grad: bool) -> Callable:
    """What is timed, given what is compiled."""
    if not grad:
        return lambda: fn(*args)
    leaves = [a for a in args if a.requires_grad]

    def both():
        out = fn(*args)
        outs = [t for t in (out if isinstance(out, (list, tuple)) else [out]) if t.requires_grad]
        return torch.autograd.grad(outs, leaves, [torch.ones_like(t) for t in outs], allow_unused=True)

    return both


def time_op(op: Op, peer: bool = False, seconds: float = 0.2) -> dict[str, float]:
    """Microseconds a call: medians of interleaved rounds."""
    import magneto

    torch.manual_seed(0)
    fn, args = op.make()
    args = tuple(a.requires_grad_(op.grad) if a.is_floating_point() else a for a in args)
    kinds = {"eager": fn, "magneto": magneto.compile(fn)}
    if peer:
        torch._dynamo.reset()
        kinds["torch.compile"] = torch.compile(fn)
    with torch.set_grad_enabled(op.grad):
        calls = {kind: _call(f, args, op.grad) for kind, f in kinds.items()}
        for call in calls.values():
            for _ in range(30):  # small graphs are timed beside CPython meanwhile
                call()
        start = time.perf_counter()
        calls["eager"]()
        inner = max(1, int(1e-3 / max(time.perf_counter() - start, 1e-7)))
        times: dict[str, list[float]] = {kind: [] for kind in calls}
        deadline = time.perf_counter() + seconds * len(calls)
        while len(times["eager"]) < 7 or (time.perf_counter() < deadline and len(times["eager"]) < 100):
            for kind, call in calls.items():
                start = time.perf_counter()
                for _ in range(inner):
                    call()
                times[kind].append((time.perf_counter() - start) / inner * 1e6)
    return {kind: statistics.median(t) for kind, t in times.items()}
