"""The mg:: ops of graph texts in terms of ATen, so that texts after the library patterns can be run."""

import functools
import pathlib
import re

import torch
import torch.nn.functional as F

DEFS = pathlib.Path(__file__).resolve().parents[1] / "src" / "ir" / "graph" / "ops_mg.def"
ACTS = {
    "": lambda x, a, b: x, "relu": lambda x, a, b: F.relu(x), "gelu": lambda x, a, b: F.gelu(x),
    "gelu_tanh": lambda x, a, b: F.gelu(x, approximate="tanh"), "silu": lambda x, a, b: F.silu(x),
    "sigmoid": lambda x, a, b: torch.sigmoid(x), "tanh": lambda x, a, b: torch.tanh(x), "clip": torch.clamp,
    "hardswish": lambda x, a, b: F.hardswish(x), "hardsigmoid": lambda x, a, b: F.hardsigmoid(x),
    "leaky_relu": lambda x, a, b: F.leaky_relu(x, a), "mish": lambda x, a, b: F.mish(x),
}  # fmt: skip


def schemas():
    return re.findall(r'"mg::(\w+\(.*?) -> Tensor"', DEFS.read_text())


def ref_matmul(x, w, bias, residual, act, a, b):
    y = x @ w
    y = y if bias is None else y + bias
    return ACTS[act](y if residual is None else y + residual, a, b)


def ref_conv(
    x, w, bias, bw, bb, mean, var, residual, eps, act, a, b, stride, pad, dil, transposed, opad, groups
):
    y = torch.ops.aten.convolution(x, w, bias, stride, pad, dil, transposed, opad, groups)
    y = y if var is None else F.batch_norm(y, mean, var, bw, bb, False, 0.0, eps)
    return ACTS[act](y if residual is None else y + residual, a, b)


def ref_sdpa(q, k, v, mask, causal, scale):
    return F.scaled_dot_product_attention(q, k, v, mask, 0.0, causal, scale=scale)


@functools.cache
def library():
    """torch.ops.mg has them from now on."""
    lib = torch.library.Library("mg", "DEF")
    for s in schemas():
        lib.define(s + " -> Tensor")
    for name, fn in (("matmul", ref_matmul), ("conv", ref_conv), ("sdpa", ref_sdpa)):
        lib.impl(name, fn, "CompositeExplicitAutograd")
    return lib
