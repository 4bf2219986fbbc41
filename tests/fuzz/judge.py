"""Does a compiled program do what eager does?  Everything a program can see is compared.

Numbers may differ by rounding.  How much rounding may change a number is measured: eager runs again, several times, with
every rounded result changed by up to one unit in its last place, and once without oneDNN.  What is still too far away
is held against float64.
"""

import contextlib
import os
import re
import warnings

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import magneto
import random_models

RUNS, FACTOR, ULPS = 6, 24, 32
DEVICE = os.environ.get("FUZZ_DEVICE", "cpu")
if DEVICE != "cpu":
    torch.backends.cudnn.allow_tf32 = False  # its error is larger than what is allowed here
EXACT = set(
    """clone copy cat stack index gather where neg abs relu maximum minimum amax amin max min sort topk flip roll constant_pad_nd zeros
    ones full arange fill masked_fill select_scatter slice_scatter scatter index_select embedding zeros_like ones_like full_like new_zeros
    new_full new_ones empty empty_like new_empty floor ceil round trunc sign sgn eq ne lt le gt ge repeat unfold tril triu take fmax fmin
    lift_fresh copysign isnan isinf isfinite nan_to_num index_fill masked_scatter masked_select clamp clamp_min clamp_max kthvalue median mode
    diagonal_scatter as_strided_scatter constant unique eye scalar_tensor diag_embed heaviside isin nextafter one_hot max_pool1d argmax argmin
    threshold hardtanh _unsafe_index max_pool2d_with_indices pixel_shuffle unbind split rot90 cummax cummin rand randn randint rand_like randn_like
    bernoulli randperm uniform normal _local_scalar_dense item nonzero threshold_backward fill_diagonal logical_not set resize_ set_ argsort bucketize
    searchsorted histc zero t_ squeeze_ unsqueeze_ transpose_ resize_as detach_ requires_grad_ dropout native_dropout""".split()
)


class Noise(TorchDispatchMode):
    """Changes the operands and results of every call that rounds.  flush: denormal numbers become zeros instead."""

    def __init__(self, seed, flush=False):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.flush = flush

    def noisy(self, t, written=False):
        if (
            not isinstance(t, torch.Tensor)
            or not (t.is_floating_point() or t.is_complex())
            or not t.numel()
            or t.layout != torch.strided
        ):
            return t
        if self.flush:
            new = torch.where(t.abs() < torch.finfo(t.dtype).tiny, torch.zeros_like(t), t)
        else:
            kind = (
                t.dtype
                if t.is_floating_point()
                else {torch.complex64: torch.float32}.get(t.dtype, torch.float64)
            )
            wide = torch.float64 if t.is_floating_point() else torch.complex128
            r = torch.rand(t.shape, generator=self.generator, dtype=torch.float64, device="cpu") * 2 - 1
            r = r.to(t.device)
            new = (t.to(wide) * (1 + torch.finfo(kind).eps * r)).to(t.dtype)
            whole = t == (t.round() if t.is_floating_point() else t)
            new = torch.where(whole & (t.abs() < 1000), t, new)
        if written:
            t.copy_(new)
            return t
        return (
            new
            if new.stride() == t.stride()
            else torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).copy_(new)
        )

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        alias = [a.alias_info for a in (*func._schema.arguments, *func._schema.returns)]
        if name in EXACT or name.rstrip("_") in EXACT or func._schema.name == "aten::_to_copy":
            return func(*args, **kwargs)
        if any(a is not None and not a.is_write for a in alias):
            return func(*args, **kwargs)  # a view
        if any(a is not None for a in alias):
            out = func(*args, **kwargs)
            for a, info in zip(args, (a.alias_info for a in func._schema.arguments)):
                if (
                    info is not None
                    and isinstance(a, torch.Tensor)
                    and 0 not in [s for s, n in zip(a.stride(), a.shape) if n > 1]
                ):
                    self.noisy(a, True)
            return out
        out = func(*tree_map(self.noisy, args), **kwargs)
        return tree_map(self.noisy, out)


class OtherKernels:
    """Eager without oneDNN: its other kernels round in other places, and are eager as well."""

    def __enter__(self):
        self.before = torch._C._get_mkldnn_enabled()
        torch._C._set_mkldnn_enabled(False)

    def __exit__(self, *error):
        torch._C._set_mkldnn_enabled(self.before)


# Differences that are known and not mended: a part of the text, and what it is.  They are counted, not reported.
KNOWN = [
    ("which is output", "a written result is missed by gradients of others"),
]


def moved(values):
    """The arguments on DEVICE: what shared memory still does, with the same strides and offsets."""
    if DEVICE == "cpu":
        return values
    storages, tensors = {}, {}

    def move(t):
        if not isinstance(t, torch.Tensor):
            return t
        if id(t) not in tensors:
            storage = t.untyped_storage()
            if storage._cdata not in storages:
                storages[storage._cdata] = storage.to(device=DEVICE)
            if t.requires_grad and not t.is_leaf:  # a view of an input that requires gradients
                new = move(t._base).as_strided(t.shape, t.stride(), t.storage_offset())
            else:
                new = torch.empty(0, dtype=t.dtype, device=DEVICE)
                new.set_(storages[storage._cdata], t.storage_offset(), t.shape, t.stride())
                new.requires_grad_(t.requires_grad)
            tensors[id(t)] = new
        return tensors[id(t)]

    return [move(v) for v in values]


def random_state():
    """The state of every generator that a program can draw from."""
    return [torch.get_rng_state()] + ([torch.cuda.get_rng_state()] if DEVICE != "cpu" else [])


def placed():
    """What a program makes without naming a device is on DEVICE."""
    return torch.device(DEVICE) if DEVICE != "cpu" else contextlib.nullcontext()


class Run:
    """What one call left behind."""

    def __init__(self, model, f, arguments, mode, backward=True, noise=None):
        arguments = moved(arguments)
        self.inputs, self.error, self.value = arguments[:-1], None, None
        self.parameters = list(model.parameters())
        for p in self.parameters:
            p.grad = None
        torch.manual_seed(7)
        before = torch.is_grad_enabled(), torch._C._len_torch_function_stack()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                with getattr(torch, mode)(), placed():
                    if noise is None:
                        self.value = f(*arguments)
                    else:
                        with noise:
                            self.value = f(*arguments)
                self.state = random_state()
                self.grads = self.gradients(backward and mode == "enable_grad", noise)
            except Exception as e:
                self.error = e
        after = torch.is_grad_enabled(), torch._C._len_torch_function_stack()
        if after != before:
            raise Difference("modes", f"grad mode and number of function modes are {after}, were {before}")
        self.seen = [t.detach().clone() for t in self.tensors()]
        if self.error is None:
            self.seen += [g for g in self.grads if g is not None]
        self.seen += [b.clone() for b in model.buffers()]

    def tensors(self):
        return [t for t in tree_leaves(self.value) if isinstance(t, torch.Tensor)] + list(self.inputs)

    def gradients(self, wanted, noise):
        outs = (
            [t for t in tree_leaves(self.value) if isinstance(t, torch.Tensor) and t.requires_grad]
            if wanted
            else []
        )
        if not outs:
            return []
        gen = torch.Generator().manual_seed(11)
        tangents = []
        for t in outs:
            v = torch.randn(t.shape, generator=gen)
            tangents.append(torch.empty_like(t, requires_grad=False).copy_(v))
        if noise is None:
            torch.autograd.backward(outs, tangents)
        else:
            with noise:
                torch.autograd.backward(outs, tangents)
        leaves = [t for t in self.inputs if t.is_leaf and t.requires_grad]
        return [t.grad for t in (*leaves, *self.parameters)]


def autograd(t):
    """What autograd says of it, or why it may not be asked: a view of several whose base was written."""
    try:
        return {"requires_grad": t.requires_grad, "is_leaf": t.is_leaf, "grad_fn": t.grad_fn is None}
    except RuntimeError as e:
        return {"refused": str(e)}


def facts(run):
    """What has to be equal: of each tensor its type, strides and autograd, and who shares memory with whom."""
    out, ids, memory = [], {}, {}
    for i, t in enumerate(run.tensors()):
        out.append(
            {"dtype": t.dtype, "shape": tuple(t.shape), "strides": seen_strides(t), "offset": t.storage_offset() if t.numel() else None,
             **autograd(t), "inference": t.is_inference(),
             "object": ids.setdefault(id(t), i), "memory": memory.setdefault(t.untyped_storage().data_ptr(), i) if t.numel() else None,
             "alone": True, "written": not t.is_inference() and t._version > 0 if i >= len(run.tensors()) - len(run.inputs) else None}
        )  # fmt: skip
    for a in out:
        a["alone"] = sum(b["memory"] == a["memory"] for b in out) == 1
        if a["alone"]:
            a["offset"] = 0  # where in memory of its own a result begins is not looked at
    return out


class NotAProgram(Exception):
    """A line is gone that others need."""


class Difference(AssertionError):
    """kind: a word; failures of one kind count as the same when a program is shrunk."""

    def __init__(self, kind, text):
        super().__init__(f"{kind}: {text}")
        self.kind = kind


def known(error):
    return next((why for text, why in KNOWN if text in str(error)), None)


def seen_strides(t):
    """Those of dimensions that have them: an index may give others to a dimension of one element."""
    return [s for s, n in zip(t.stride(), t.shape) if n > 1] if t.numel() else None


def compare_facts(got, want, what):
    g, w = got.error, want.error
    if isinstance(w, (NameError, AttributeError)):
        raise NotAProgram
    if g is not None or w is not None:
        if g is None:
            raise Difference("no error", f"{what}: eager raises {type(w).__name__}: {str(w)[:200]}")
        if w is None:
            raise Difference(f"error {type(g).__name__} {str(g)[:24]}", f"{what}: {str(g)[:500]}") from g
        if type(g) is not type(w):
            raise Difference(
                "other error",
                f"{what}: {type(g).__name__}: {str(g)[:200]}; eager {type(w).__name__}: {str(w)[:200]}",
            ) from g
    if len(got.tensors()) != len(want.tensors()):
        raise Difference(
            "structure", f"{what}: {len(got.tensors())} tensors, eager has {len(want.tensors())}"
        )
    for i, (a, b) in enumerate(zip(facts(got), facts(want))):
        for name in b:
            if a.get(name) != b[name] and (
                name != "written" or a[name]
            ):  # a copy of a tensor to itself is no write
                n = len(want.tensors()) - len(want.inputs)
                at = f"result {i}" if i < n else f"input {i - n}"
                raise Difference(name, f"{what}: {name} of {at} is {a[name]}, eager has {b[name]}")
    if w is None:
        if not all(map(torch.equal, got.state, want.state)):
            raise Difference("random state", what)
        if [x is None for x in got.grads] != [x is None for x in want.grads]:
            raise Difference(
                "gradients",
                f"{what}: which gradients are None: {[x is None for x in got.grads]}, eager {[x is None for x in want.grads]}",
            )
        for i, (a, b) in enumerate(zip(got.grads, want.grads)):
            if b is not None and (a.dtype, a.shape) != (b.dtype, b.shape):
                raise Difference(
                    "gradient",
                    f"{what}: gradient {i} is {a.dtype} {tuple(a.shape)}, eager {b.dtype} {tuple(b.shape)}",
                )


def equal(a, b):
    return (a == b) | (a.isnan() & b.isnan()) if a.is_floating_point() else a == b


def wrong_values(got, want):
    """Numbers of the tensors seen that are not those of eager."""
    return [i for i, (a, b) in enumerate(zip(got.seen, want.seen)) if not bool(equal(a, b).all())]


def allowed(wants, i, want):
    """Elementwise: how far from `want` a result may be by rounding, and where rounding may change it to anything."""
    base = want.seen[i].double()
    spread, free = torch.zeros_like(base), torch.zeros_like(base, dtype=torch.bool)
    for other in wants:
        if other.error is not None or len(other.seen) != len(want.seen) or other.seen[i].shape != base.shape:
            return spread, torch.ones_like(free)
        o = other.seen[i].double()
        free |= (o.isfinite() != base.isfinite()) | (o.isnan() != base.isnan())
        spread = torch.maximum(spread, (o - base).abs().nan_to_num(0, 0, 0))
    if want.seen[i].is_floating_point():
        info = torch.finfo(want.seen[i].dtype)
        spread = FACTOR * spread + ULPS * info.eps * base.abs().nan_to_num(0, 0, 0) + 2 * info.tiny
        # an element of a sum that cancels is as uncertain as its neighbours are large
        big = base.abs()[base.isfinite()]
        spread = spread + (info.eps * float(big.max()) if big.numel() else 0)
    else:
        free |= spread > 0
    return spread, free


def check_values(got, want, noisy, exact, what):
    bad = wrong_values(got, want)
    if not bad:
        return
    wants = noisy()
    for i in bad:
        a, b = got.seen[i], want.seen[i]
        spread, free = allowed(wants, i, want)
        off = ~equal(a, b) & ~free & ~((a.double() - b.double()).abs() <= spread)
        if not bool(off.any()):
            continue
        judge = exact()
        if (
            judge is not None
            and len(judge.seen) == len(want.seen)
            and judge.seen[i].shape == b.shape
            and b.is_floating_point()
        ):
            e = judge.seen[i].double()
            info = torch.finfo(b.dtype)
            near = (a.double() - e).abs() <= 2 * (b.double() - e).abs().nan_to_num(0, 0, 0) + spread
            near |= (
                (a.double() == e)
                | (a.isnan() & e.isnan())
                | ((e.abs() > info.max) & (a.double() == e.sign() * torch.inf))
            )
            off &= ~near
        if bool(off.any()):
            at = off.nonzero()[0].tolist() if off.dim() else []
            pick = lambda t: t[tuple(at)].item() if at else t.reshape(-1)[0].item()
            name = name_of(i, want)
            raise Difference(
                "value",
                f"{what}: {int(off.sum())} of {off.numel()} numbers of {name} differ; at {at}: {pick(a)}, eager {pick(b)}, allowed {pick(spread):.3g}",
            )


def name_of(i, want):
    results, inputs = len(want.tensors()) - len(want.inputs), len(want.inputs)
    if i < results:
        return f"result {i}"
    if i < results + inputs:
        return f"input {i - results}"
    return f"gradient or buffer {i - results - inputs}"


def twin(space, model, wide=False):
    torch.manual_seed(3)
    new = space["Net"]().to(DEVICE)
    new.load_state_dict(model.state_dict())
    return (new.double() if wide else new).train(model.training)


def exact_run(program, model, call, k):
    """The same call with every floating-point dtype replaced by float64; None if that is another program."""
    torch.set_default_dtype(torch.float64)
    try:
        space = random_models.namespace(
            program.text(), DEVICE, F16=torch.float64, BF16=torch.float64, F32=torch.float64
        )
        wide = twin(space, model, True)
        run = Run(wide, wide, space["make"](**call, seed=k), program.mode)
        return run if run.error is None else None
    except Exception:
        return None
    finally:
        torch.set_default_dtype(torch.float32)


def check(program):
    """Raises Difference if a compiled program is not what eager is; returns the number of calls.

    Values of 16 bits keep float32 between ops where they may (docs/numerics.md), and where eager's rounding decides
    which side of an edge a number is on, results differ.  Such a program is checked with eager's rounding.
    """
    try:
        return check_numerics(program, "fast")
    except Difference as e:
        body = program.text().partition("class Net")[2]
        if e.kind != "value" or not re.search(r"\b(F16|BF16)\b", body):
            raise
        return check_numerics(program, "rounded")


def check_numerics(program, numerics):
    space = random_models.namespace(program.text(), DEVICE)
    torch.manual_seed(3)
    eager = space["Net"]().to(DEVICE).train(program.train)
    twin_space = random_models.namespace(program.text(), DEVICE)
    compiled = twin(twin_space, eager)
    magneto.reset()
    f = magneto.compile(
        compiled, dynamic=program.dynamic, options={"recompile_limit": 12, "numerics": numerics}
    )
    for round_ in range(2):
        for k, call in enumerate(program.calls):
            start = twin(space, eager)
            want = Run(eager, eager, space["make"](**call, seed=k), program.mode)
            got = Run(compiled, f, space["make"](**call, seed=k), program.mode)
            what = f"call {k}" + (" again" if round_ else "")
            compare_facts(got, want, what)

            def noisy(start=start, call=call, k=k):
                runs = []
                for noise in [Noise(seed, seed == 0) for seed in range(RUNS)] + [OtherKernels()]:
                    m = twin(space, start)
                    runs.append(Run(m, m, space["make"](**call, seed=k), program.mode, noise=noise))
                return runs

            check_values(
                got, want, noisy, lambda start=start, call=call, k=k: exact_run(program, start, call, k), what
            )
    return 2 * len(program.calls)
