"""One sample of torch's operator database, run eagerly and compiled, and everything a program can see compared.

`check(fn, args, kwargs)` returns the reasons of graph breaks; it raises AssertionError where magneto differs from eager.
`jobs(op, kinds, dtypes, limit)` yields (label, function without arguments that runs one such check).
TEST_DEVICE=cuda makes the samples on a GPU."""

import contextlib
import itertools
import os
import warnings

import torch
import torch.testing._internal.common_methods_invocations as invocations
from torch.testing._internal.common_utils import noncontiguous_like
from torch.utils import _pytree as pytree

import magneto
from support import counts

# The samples of random operators seed the generator inside the call, which is not what programs do.
invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
op_db = invocations.op_db

KINDS = (
    "forward",
    "gradient",
    "method",
    "inplace",
    "inplace_gradient",
    "out",
    "strided",
    "channels_last",
    "reference",
    "error",
)
UNSET = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
TOLERANCE = {torch.float16: (4e-3, 4e-3), torch.bfloat16: (2e-2, 2e-2), torch.float32: (1e-4, 2e-5), torch.float64: (1e-7, 1e-7),
             torch.complex64: (1e-4, 2e-5), torch.complex128: (1e-7, 1e-7), torch.complex32: (4e-3, 4e-3)}  # fmt: skip
MAX_NUMEL = 1 << 20
DEVICE = os.environ.get("TEST_DEVICE", "cpu")


def name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def tensors(value):
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def plain(t):
    return t.layout is torch.strided and not t.is_quantized and not t.is_nested


def copies(value):
    """An equal value with tensors that share memory among themselves as the originals do."""
    memo, storages = {}, {}

    def one(t):
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in memo:
            with torch.no_grad():
                if (
                    not plain(t)
                    or type(t) is not torch.Tensor
                    or t.is_conj()
                    or t.is_neg()
                    or t.device.type not in ("cpu", "cuda")
                ):
                    new = t.detach().clone()
                else:
                    storage = t.untyped_storage()
                    if storage._cdata not in storages:
                        storages[storage._cdata] = storage.clone()
                    new = torch.empty(0, dtype=t.dtype, device=t.device).set_(
                        storages[storage._cdata], t.storage_offset(), t.shape, t.stride()
                    )
            memo[id(t)] = new.requires_grad_(t.requires_grad)
        return memo[id(t)]

    return pytree.tree_map(one, value)


def rng_state():
    """Of the generators of the CPU and, on a GPU, of the device."""
    states = [torch.get_rng_state()]
    if DEVICE == "cuda":
        states.append(torch.cuda.get_rng_state())
    return torch.cat(states)


class Outcome:
    """What one run left behind."""


def run(fn, args, kwargs, seed, tangent_seed):
    r = Outcome()
    r.args, r.kwargs = copies((args, kwargs))
    r.inputs = tensors((r.args, r.kwargs))
    r.error = r.value = None
    torch.manual_seed(seed)
    try:
        r.value = fn(*r.args, **r.kwargs)
        r.state = rng_state()
    except Exception as e:
        r.error = e
        r.trace = e.__traceback__
        return r
    r.grads = None
    if tangent_seed is not None:
        gen = torch.Generator().manual_seed(tangent_seed)
        outs = [t for t in tensors(r.value) if t.requires_grad and plain(t)]
        tangents = []
        for t in outs:
            with torch.no_grad():
                v = torch.randn(
                    t.shape, generator=gen, dtype=torch.complex128 if t.is_complex() else torch.float64
                )
                tangents.append(torch.empty_like(t).copy_(v))
        try:
            if outs:
                torch.autograd.backward(outs, tangents)
        except Exception as e:
            r.error = e
            return r
        r.grads = [t.grad if t.is_leaf else None for t in r.inputs]
    return r


def same(got, want, what, rtol=None, atol=None, values=True):
    assert type(got) is type(want), f"{what}: type {type(got)}, eager {type(want)}"
    if want is None:
        return
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, eager {want.dtype}"
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, eager {tuple(want.shape)}"
    assert got.layout == want.layout and got.device == want.device, what
    assert got.requires_grad == want.requires_grad, f"{what}: requires_grad {got.requires_grad}"
    assert got.is_leaf == want.is_leaf, f"{what}: is_leaf {got.is_leaf}"
    assert got.is_inference() == want.is_inference(), f"{what}: inference tensor"
    assert got.is_conj() == want.is_conj() and got.is_neg() == want.is_neg(), f"{what}: conj or neg bit"
    if plain(want) and want.numel():
        assert got.stride() == want.stride(), f"{what}: strides {got.stride()}, eager {want.stride()}"
        assert got.storage_offset() == want.storage_offset(), (
            f"{what}: offset {got.storage_offset()}, eager {want.storage_offset()}"
        )
    if values:
        with torch.no_grad():
            if rtol is None and want.dtype in TOLERANCE:
                rtol, atol = TOLERANCE[want.dtype]
                if (
                    want.numel()
                    and plain(want)
                    and want.dtype
                    in (torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.float16)
                ):
                    finite = want.detach().abs()
                    finite = finite[finite.isfinite()]
                    atol *= max(1.0, float(finite.max()) / 10) if finite.numel() else 1.0
            torch.testing.assert_close(got.detach(), want.detach(), rtol=rtol, atol=atol, equal_nan=True, check_stride=False,
                                       msg=lambda m: f"{what}: {m}")  # fmt: skip


def storage_key(t):
    return t.untyped_storage()._cdata if plain(t) else id(t)


def alias(r):
    """For every tensor among inputs and results: the first one it is, and the first one whose memory it shares."""
    every = r.inputs + tensors(r.value)
    ids, mem = {}, {}
    return [
        (ids.setdefault(id(t), i), mem.setdefault(storage_key(t), i) if t.numel() else -1)
        for i, t in enumerate(every)
    ]


def compare(got, want, values):
    if want.error is not None or got.error is not None:
        g, w = got.error, want.error
        if g is None:
            raise AssertionError(f"eager raises {type(w).__name__}: {str(w)[:150]}")
        if w is None:
            raise AssertionError(f"raises {type(g).__name__}: {str(g)[:300]}") from g
        assert type(g) is type(w), (
            f"raises {type(g).__name__}: {str(g)[:150]}; eager {type(w).__name__}: {str(w)[:150]}"
        )
        return
    gl, gs = pytree.tree_flatten(got.value)
    wl, ws = pytree.tree_flatten(want.value)
    assert gs == ws, f"structure {gs}, eager {ws}"
    for i, (a, b) in enumerate(zip(gl, wl)):
        if isinstance(b, torch.Tensor):
            same(a, b, f"result {i}", values=values)
        else:
            assert type(a) is type(b), f"result {i}: {type(a)}, eager {type(b)}"
            with contextlib.suppress(RuntimeError):
                assert a == b or a != a or (isinstance(b, float) and abs(a - b) <= 1e-4 * abs(b)), (
                    f"result {i}: {a!r}, eager {b!r}"
                )
    for i, (a, b) in enumerate(zip(got.inputs, want.inputs)):
        same(a, b, f"input {i} afterwards", values=values)
        if not a.is_inference():
            assert (a._version == 0) == (b._version == 0), (
                f"input {i}: version {a._version}, eager {b._version}"
            )
    assert alias(got) == alias(want), f"aliasing {alias(got)}, eager {alias(want)}"
    assert torch.equal(got.state, want.state), "state of the random generator"
    for i, (a, b) in enumerate(zip(got.grads or [], want.grads or [])):
        assert (a is None) == (b is None), f"gradient {i}: {a!r}, eager {b!r}"
        if b is not None:
            same(a, b, f"gradient {i}", values=values)


def check(fn, args=(), kwargs=None, gradient=False, values=True, calls=2, compiled=None):
    """Names of the breaks of fn(*args, **kwargs) compiled; everything visible is as eager has it."""
    kwargs = kwargs or {}
    if compiled is None:
        compiled = magneto.compile(lambda *a, **k: fn(*a, **k))
    before = dict(counts().reasons)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for i in range(calls):
            want = run(fn, args, kwargs, i, 100 + i if gradient else None)
            got = run(compiled, args, kwargs, i, 100 + i if gradient else None)
            try:
                compare(got, want, values)
            except AssertionError as e:
                raise AssertionError(f"call {i}: {e}") from e
            if want.error is not None:
                break
    after = counts().reasons
    return sorted(k for k in after if after[k] != before.get(k, 0))


def dtype_of(op):
    have = op.supported_dtypes(DEVICE)
    for d in (torch.float32, torch.int64, torch.bool, torch.complex64):
        if d in have:
            return d
    return next(iter(have), None)


def small(sample):
    return sum(t.numel() for t in tensors((sample.input, sample.args, sample.kwargs))) <= MAX_NUMEL


def draw(op, dtype, grad, limit, reference=False):
    torch.manual_seed(0)
    make = op.reference_inputs if reference else op.sample_inputs
    return list(itertools.islice((s for s in make(DEVICE, dtype, requires_grad=grad) if small(s)), limit))


def strided(sample, fmt):
    def one(t):
        if not isinstance(t, torch.Tensor) or not plain(t):
            return t
        if fmt == "strided":
            return noncontiguous_like(t)
        if t.dim() in (4, 5):
            f = torch.channels_last if t.dim() == 4 else torch.channels_last_3d
            return t.detach().clone(memory_format=f).requires_grad_(t.requires_grad)
        return t

    new = pytree.tree_map(one, (sample.input, sample.args, sample.kwargs))
    return (new[0], *new[1]), new[2]


def outs_like(value, how):
    def one(t):
        if how == "exact":
            return torch.empty_like(t)
        if how == "strided":
            return torch.empty((*t.shape, 2), dtype=t.dtype, device=t.device)[..., 0]
        return torch.empty(
            (*t.shape, 3), dtype=t.dtype, device=t.device
        )  # of another size: resized with a warning

    if isinstance(value, torch.Tensor):
        return one(value)
    return tuple(one(t) for t in value)


def jobs(op, kinds=KINDS, dtypes=None, limit=None):
    """(label, function that runs one check and returns the breaks)."""
    main = dtype_of(op)
    if main is None:
        return
    fn, values = op.get_op(), op.name not in UNSET
    for kind in kinds:
        for dtype in dtypes or [main]:
            if dtype not in op.supported_dtypes(DEVICE):
                continue
            yield from kind_jobs(op, kind, dtype, fn, values, limit)


def kind_jobs(op, kind, dtype, fn, values, limit):
    float_like = dtype.is_floating_point or dtype.is_complex
    label = f"{kind} {str(dtype)[6:]}"
    if kind == "error":
        if op.error_inputs_func is None or dtype is not dtype_of(op):
            return
        for i, e in enumerate(op.error_inputs(DEVICE)):
            s = e.sample_input
            yield f"{label} {i}", lambda s=s: check(fn, (s.input, *s.args), s.kwargs, calls=1)
        return
    if kind in ("gradient", "inplace_gradient") and not (
        float_like and op.supports_autograd and dtype in op.supported_backward_dtypes(DEVICE)
    ):
        return
    gradient = kind.endswith("gradient")
    variant = {
        "method": op.method_variant,
        "inplace": op.inplace_variant,
        "inplace_gradient": op.inplace_variant,
    }.get(kind, fn)
    if variant is None or kind == "out" and not op.supports_out:
        return
    try:
        samples = draw(op, dtype, gradient, limit, kind == "reference")
    except Exception as e:  # the database cannot make its samples here
        text = f"samples: {type(e).__name__}: {e}"

        def broken():
            raise RuntimeError(text)

        yield label, broken
        return
    for i, s in enumerate(samples):
        args, kwargs = (s.input, *s.args), s.kwargs
        if kind.startswith("inplace") and s.broadcasts_input:
            continue
        if kind in ("strided", "channels_last"):
            if kind == "channels_last" and not any(t.dim() in (4, 5) for t in tensors((args, kwargs))):
                continue
            args, kwargs = strided(s, kind)
        if kind == "inplace_gradient":

            def inner(*a, **k):  # a leaf cannot be written
                return variant(a[0].clone(), *a[1:], **k)

            yield f"{label} {i}", lambda a=args, k=kwargs, inner=inner: check(inner, a, k, True, values)
        elif kind == "out":
            try:
                want = fn(*copies(args), **copies(kwargs))
            except Exception:
                continue
            if not isinstance(want, torch.Tensor) and not (
                isinstance(want, tuple) and all(isinstance(t, torch.Tensor) for t in want)
            ):
                continue
            for how in ("exact", "strided", "resized"):
                k = {**kwargs, "out": outs_like(want, how)}
                yield f"{label} {i} {how}", lambda a=args, k=k: check(fn, a, k, False, values)
        else:
            yield f"{label} {i}", lambda a=args, k=kwargs: check(variant, a, k, gradient, values)
