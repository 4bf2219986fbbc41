"""Samples of torch's own op database as training programs.

`programs(op, dtype, limit)` yields (fn, leaves): fn() runs one sample on tensors that require grad and returns the
differentiable results; leaves are those tensors."""

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

# Results that eager itself does not determine, or that this database calls in a way no program does.
SKIP = {
    "empty": "unset memory", "empty_like": "unset memory", "new_empty": "unset memory", "empty_strided": "unset memory",
    "new_empty_strided": "unset memory", "empty_permuted": "unset memory",
}  # fmt: skip
OPS = [op for op in op_db if op.supports_autograd and op.name not in SKIP]


def name(op):
    return op.name + ("." + op.variant_test_name if op.variant_test_name else "")


def differentiable(out):
    flat = [t for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    return [t for t in flat if t.requires_grad and t.dtype.is_floating_point and t.layout is torch.strided]


def programs(op, dtype, limit):
    if dtype not in op.supported_dtypes("cpu"):
        return
    torch.manual_seed(0)
    count = 0
    for sample in op.sample_inputs("cpu", dtype, requires_grad=True):
        tensors = [t for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs)) if isinstance(t, torch.Tensor)]
        leaves = [t for t in tensors if t.requires_grad and t.is_leaf]
        leaves = list({id(t): t for t in leaves}.values())
        if not leaves or any(t.layout is not torch.strided or t.is_quantized for t in tensors):
            continue
        if sum(t.numel() for t in tensors) > 1 << 20:
            continue

        def fn(sample=sample):
            out = op(sample.input, *sample.args, **sample.kwargs)
            return differentiable(sample.output_process_fn_grad(out))

        count += 1
        yield fn, leaves
        if limit and count >= limit:
            return
