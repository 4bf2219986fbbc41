"""How far from eager's may a result be?

Rounding is measured, not assumed.
Eager runs again with every rounded number changed by up to one unit in its last place, and once in float64.
A result is wrong where it is farther from float64 than eager, by more than what such changes explain.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NOISY_RUNS = 4
FACTOR = 24  # times the change that noise makes: four runs rarely meet the largest one
ULPS = 32  # of a result, beside it

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


def wide(x: Any) -> Any:
    """The same with float64 in place of smaller floats: of a tensor, or of a dtype."""
    if isinstance(x, torch.dtype):
        return WIDE.get(x, x)
    return x.to(WIDE[x.dtype]) if isinstance(x, torch.Tensor) and x.dtype in WIDE else x


class Noise(TorchDispatchMode):
    """Changes results of calls by up to one unit in the last place; views are left alone.

    Where a result has fewer numbers than an operand, the operand's are changed, too: sums round inside.
    flush: denormal numbers become zeros instead.
    """

    def __init__(self, seed: int, flush: bool = False) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)
        self.flush = flush

    def _changed(self, t: Any) -> Any:
        if not isinstance(t, torch.Tensor) or not t.numel() or t.layout != torch.strided:
            return t
        if not (t.is_floating_point() or t.is_complex()):
            return t
        if self.flush:
            return torch.where(t.abs() < torch.finfo(t.dtype).tiny, torch.zeros_like(t), t)
        r = torch.rand(t.shape, generator=self.generator, dtype=torch.float64).to(t.device) * 2 - 1
        new = (t.to(WIDE.get(t.dtype, t.dtype)) * (1 + torch.finfo(t.dtype).eps * r)).to(t.dtype)
        whole = (t == t.round()) & (t.abs() < 1000) if t.is_floating_point() else t == 0
        return torch.where(whole, t, new)

    def _inside(self, func: Any, args: Any, kwargs: Any, out: Any) -> Any:
        """The result of a sum whose terms are rounded otherwise; of other calls `out`."""
        if not isinstance(out, torch.Tensor) or not out.is_floating_point() or self.flush:
            return out
        if torch.Tag.nondeterministic_seeded in func.tags:
            return out
        larger = lambda t: isinstance(t, torch.Tensor) and t.numel() > out.numel()  # noqa: E731
        if not any(map(larger, tree_leaves((args, kwargs)))):
            return out
        args, kwargs = tree_map(lambda t: self._changed(t) if larger(t) else t, (args, kwargs))
        return func(*args, **kwargs)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        schema = func._schema
        if not schema.is_mutable:
            aliases = any(a.alias_info is not None for a in (*schema.arguments, *schema.returns))
            return out if aliases else tree_map(self._changed, self._inside(func, args, kwargs, out))
        for declared, given in zip(schema.arguments, args, strict=False):
            info = declared.alias_info
            if info is not None and info.is_write and isinstance(given, torch.Tensor):
                if 0 not in [s for s, n in zip(given.stride(), given.shape, strict=True) if n > 1]:
                    given.copy_(self._changed(given))
        return out


@dataclasses.dataclass
class Seen:
    """What a run left behind, in one order.  names: of the tensors."""

    names: list[str]
    tensors: list[torch.Tensor | None]


def physical(t: torch.Tensor) -> torch.Tensor:
    """The numbers in memory: a conjugate that is lazy in one way of running is not in the other."""
    t = t.detach()
    if t.is_conj() or t.is_neg():
        torch._C._set_conj(t, False)
        torch._C._set_neg(t, False)
    return t


def _strides(t: torch.Tensor) -> list[int]:
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []


def other_facts(got: torch.Tensor | None, want: torch.Tensor | None) -> str | None:
    """What differs besides numbers."""
    if got is None or want is None:
        return None if got is want else f"is {'None' if got is None else 'a tensor'}"
    for name in ("dtype", "shape", "device", "layout"):
        a, b = getattr(got, name), getattr(want, name)
        if a != b:
            return f"has {name} {a} instead of {b}"
    if want.layout == torch.strided and _strides(got) != _strides(want):
        return f"has strides {got.stride()} instead of {want.stride()}"
    return None


def equal(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    same = a == b
    return same | (a.isnan() & b.isnan()) if a.is_floating_point() or a.is_complex() else same


def first_difference(
    got: Seen,
    want: Seen,
    noisy: Callable[[], Sequence[Seen]],
    exact: Callable[[], Seen | None],
) -> str | None:
    """A sentence, or None.  noisy, exact: eager runs with noise and in float64, asked for once if at all."""
    for name, a, b in zip(got.names, got.tensors, want.tensors, strict=True):
        facts = other_facts(a, b)
        if facts:
            return f"{name} {facts}"
    runs: Sequence[Seen] | None = None
    truth: Seen | None = None
    for i, (name, a, b) in enumerate(zip(got.names, got.tensors, want.tensors, strict=True)):
        if a is None or b is None or b.layout != torch.strided or bool(equal(a, b).all()):
            continue
        if runs is None:
            runs, truth = noisy(), exact()
        others = [r.tensors[i] for r in runs]
        text = _wrong(a, b, others, truth.tensors[i] if truth else None)
        if text:
            return f"{name}: {text}"
    return None


def _rounding(b: torch.Tensor, others: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, torch.Tensor]:
    """By element: how far rounding may move it, and whether it may become anything."""
    floats = b.is_floating_point() or b.is_complex()
    base = b.to(WIDE.get(b.dtype, b.dtype))
    spread = torch.zeros(b.shape, dtype=torch.float64, device=b.device)
    free = torch.zeros_like(spread, dtype=torch.bool)
    for o in others:
        if o is None or o.shape != b.shape:
            return spread, torch.ones_like(free)
        if floats:
            o = o.to(base.dtype)
            free |= o.isfinite() != base.isfinite()
            spread = torch.maximum(spread, (o - base).abs().double().nan_to_num(0, 0, 0))
        else:
            free |= o != base
    if not floats:
        return spread, free
    real = base.abs().double()
    info = torch.finfo(b.dtype)
    # an element of a sum that cancels is as uncertain as its neighbours are large
    finite = real[real.isfinite()]
    near = info.eps * float(finite.max()) if finite.numel() else 0.0
    if not others:  # nothing is known of it: half of the digits
        return info.eps**0.5 * (real.nan_to_num(0, 0, 0) + near / info.eps), free
    return FACTOR * spread + ULPS * info.eps * real.nan_to_num(0, 0, 0) + near + 2 * info.tiny, free


def _wrong(
    a: torch.Tensor, b: torch.Tensor, others: Sequence[torch.Tensor | None], truth: torch.Tensor | None
) -> str | None:
    spread, free = _rounding(b, others)
    if b.is_floating_point() or b.is_complex():
        kind = WIDE.get(b.dtype, b.dtype)
        x, y = a.to(kind), b.to(kind)
        off = ~equal(a, b) & ~free & ~((x - y).abs() <= spread)
        if truth is not None and truth.shape == b.shape:
            e = truth.to(kind)
            error = (y - e).abs().nan_to_num(0, 0, 0)
            off &= ~((x - e).abs() <= 2 * error + spread) & ~equal(x, e)
            if b.is_floating_point():  # float64 has room where b's dtype has none
                off &= ~((e.abs() > torch.finfo(b.dtype).max) & (x == e.sign() * torch.inf))
    else:
        off = ~equal(a, b) & ~free
    n = int(off.sum())
    if not n:
        return None
    at = off.nonzero()[0].tolist()
    pick = tuple(at)
    text = f"{n} of {off.numel()} numbers differ; at {at}: {a[pick].item()}, eager has {b[pick].item()}"
    return text + (f", float64 {truth[pick].item()}" if truth is not None and truth.shape == b.shape else "")
