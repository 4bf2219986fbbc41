"""The tensor side of the recorder against eager: each operator of PyTorch's own operator database is recorded on
stand-ins and the graph is run node by node on the real tensors.  Values, dtypes, strides, aliasing with the inputs and
writes to the inputs must be those of eager."""

import pytest
import torch
import torch.testing._internal.common_methods_invocations as invocations
from torch.utils._pytree import tree_flatten, tree_unflatten

from magneto import _magneto

# The samples of random operators seed the generator inside the call; that is not an operation of the graph.
invocations.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)
op_db = invocations.op_db

SAMPLES = 6  # per operator and dtype

# Kinds of breaks that are right: results depend on values, writes overlap, a tensor is resized, a number is asked for.
MAY_BREAK = {"data_dependent", "layout_op", "memory_change", "memory_overlap", "symbolic_size", "tensor_kind"}


def record(fn, tensors):
    """Runs fn(tensors) through a recording; returns (list of results, break name or None)."""
    try:
        r = _magneto.record_run(fn, tensors)
    except RuntimeError as e:
        if "data is not allocated yet" in str(e):  # a C++ operator reads values past the dispatcher
            return None, "data_dependent"
        raise
    if r["break"]:
        return None, r["break"]
    assert r["alive"] == 0, "stand-ins outlive the recording"
    return r["outs"], None


def flat(result):
    """Tensors of a result, in order."""
    return [x for x in tree_flatten(result)[0] if isinstance(x, torch.Tensor)]


def same(got, want, name):
    assert got.dtype == want.dtype and got.shape == want.shape, name
    assert got.stride() == want.stride() or got.numel() < 2, (name, got.stride(), want.stride())
    assert got.requires_grad == want.requires_grad, name
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True, check_stride=False, msg=name)


def check_sample(op, sample):
    leaves, spec = tree_flatten((sample.input, sample.args, sample.kwargs))
    where = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]

    def call(tensors):
        full = list(leaves)
        for i, t in zip(where, tensors):
            full[i] = t
        a, args, kwargs = tree_unflatten(full, spec)
        return flat(op(a, *args, **kwargs))

    def fresh():
        return [leaves[i].detach().clone().requires_grad_(leaves[i].requires_grad) for i in where]

    eager_in, ours_in = fresh(), fresh()
    torch.manual_seed(0)
    try:
        want = call(eager_in)
    except Exception:
        return "eager raises"
    torch.manual_seed(0)
    got, why = record(call, ours_in)
    if why:
        assert why in MAY_BREAK, why
        return why
    assert len(got) == len(want)
    for i, (g, w) in enumerate(zip(got, want)):
        same(g, w, f"result {i}")
        for a, b in zip(ours_in, eager_in):
            assert (g is a) == (w is b), "identity with an input"
    for i, (a, b) in enumerate(zip(ours_in, eager_in)):
        same(a, b, f"input {i} afterwards")
    return None


# Functions with a gradient of their own: the recording of a callable alone cannot see them; the frame loop breaks there.
CUSTOM_GRADIENT = ("nn.functional.linear_cross_entropy",)


@pytest.mark.parametrize("op", op_db, ids=lambda op: op.formatted_name)
def test_record(op):
    if not op.supported_dtypes("cpu"):
        pytest.skip("not for the CPU")
    if op.name.startswith(("empty", "new_empty")):
        pytest.skip("its result is memory that nobody wrote")
    dtype = (
        torch.float32 if op.supports_dtype(torch.float32, "cpu") else next(iter(op.supported_dtypes("cpu")))
    )
    grad = op.supports_autograd and dtype.is_floating_point and not op.name.startswith(CUSTOM_GRADIENT)
    for i, sample in enumerate(op.sample_inputs("cpu", dtype, requires_grad=grad)):
        if i == SAMPLES:
            break
        check_sample(op, sample)
