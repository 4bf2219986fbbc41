"""Joint graphs (forward and backward) of eager programs, for the tests of partitioning and of backward graphs.

`record(fn, leaves)` runs fn() and the engine once, eagerly, and writes both down as one graph text; `Joint.check()`
compiles it and compares both halves with that run.
"""

import re

import torch
from torch.utils import _pytree as pytree

from tests import graphs


class Recorded:
    """text: the joint graph; primals, tangents: its inputs as they were before the run; outputs, grads: eager's."""


def record(fn, leaves, seed=0, extra=()):
    """fn: called without arguments; leaves: tensors it reads that gradients are wanted for; extra: others to name first."""
    rec, r = graphs.Recorder(), Recorded()
    leaves = [t for t in leaves if t.requires_grad]
    saved = [t.detach().clone() for t in extra]
    torch.manual_seed(seed)
    probe = [t for t in pytree.tree_leaves(fn()) if isinstance(t, torch.Tensor)]
    with torch.no_grad():
        for t, s in zip(extra, saved):
            t.copy_(s)
    wanted = [i for i, t in enumerate(probe) if t.requires_grad]
    gen = torch.Generator().manual_seed(1)
    tangents = []
    for i in wanted:
        with torch.no_grad():
            v = torch.empty_like(probe[i])
            v.copy_(torch.randn(v.shape, generator=gen, dtype=torch.float64) / max(1, v.numel()) ** 0.5)
        tangents.append(v)
    del probe
    for t in (*leaves, *extra):
        rec.name(t)
    early = len(rec.head)
    for t in tangents:
        rec.name(t)
    late = len(rec.head)
    torch.manual_seed(seed)
    with rec:
        out = [t for t in pytree.tree_leaves(fn()) if isinstance(t, torch.Tensor)]
        r.backward = len(rec.lines) + 1
        grads = (
            torch.autograd.grad([out[i] for i in wanted], leaves, tangents, allow_unused=True)
            if wanted
            else []
        )
    r.has = [g is not None for g in grads]
    given = [g for g in grads if g is not None]
    names = [rec.name(t) for t in [*out, *given]]
    head = rec.head[:early] + rec.head[late:] + rec.head[early:late]
    r.primals = rec.inputs[:early] + rec.inputs[late:]
    r.tangents = rec.inputs[early:late]
    order = [int(m) for line in head for m in re.findall(r"^%(\d+)", line)]
    for line in rec.lines:
        left = line.split(" = ")[0] if re.match(r"[%_]", line) else ""
        order += [int(m) for m in re.findall(r"%(\d+)", left)]
    new = {old: i + 1 for i, old in enumerate(order)}
    text = "\n".join(rec.externs + head + rec.lines + [f"return {', '.join(names)}"]) + "\n"
    r.text = re.sub(r"%(\d+)", lambda m: f"%{new[int(m[1])]}", text)
    r.nprimal, r.nfwd = len(r.primals), len(out)
    r.outputs, r.grads = [t.detach() for t in out], [g.detach() for g in given]
    r.after = [t.detach() for t in (*leaves, *extra)]
    return r


def compile(r, **options):
    from magneto._magneto import Joint

    return Joint(r.text, r.nprimal, r.nfwd, r.backward, **options)


def run(j, r, seed=0):
    """(outputs, gradients, primals as forward left them) of a compiled joint graph."""
    storage = {}

    def fresh(t):  # primals that share memory keep sharing it
        base = t.untyped_storage()
        if base._cdata not in storage:
            storage[base._cdata] = base.clone()
        return torch.empty(0, dtype=t.dtype).set_(
            storage[base._cdata], t.storage_offset(), t.shape, t.stride()
        )

    torch.manual_seed(seed)
    with torch.no_grad():
        primals = [fresh(t) for t in r.primals]
        outs, saved = j.forward(*primals)
        grads = j.backward(*saved, *[t.clone(memory_format=torch.preserve_format) for t in r.tangents])
    return outs, grads, primals


def check(r, seed=0, rtol=None, atol=None, **options):
    """Compiles, runs and compares with eager; returns the compiled graph."""
    j = compile(r, **options)
    outs, grads, primals = run(j, r, seed)
    for what, got, want in (
        ("output", outs, r.outputs),
        ("gradient", grads, r.grads),
        ("primal", primals, r.after),
    ):
        for i, (g, w) in enumerate(zip(got, want)):
            torch.testing.assert_close(
                g, w, rtol=rtol, atol=atol, equal_nan=True, msg=lambda m: f"{what} {i}: {m}"
            )
            if what != "primal" and w.numel():
                steps = [(a, b) for a, b, n in zip(g.stride(), w.stride(), w.shape) if n > 1]
                assert all(a == b for a, b in steps), (
                    f"{what} {i}: strides {g.stride()}, eager has {w.stride()}"
                )
    return j
