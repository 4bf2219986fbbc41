"""Samples for the differential tests: torch's operator database, and layouts it does not have."""

import os
import random

import torch
from torch.testing._internal.common_methods_invocations import op_db

ALL = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
]
# MAGNETO_DIFF=full: every dtype; otherwise those that take different paths.
DTYPES = (
    ALL
    if os.environ.get("MAGNETO_DIFF") == "full"
    else [torch.float32, torch.bfloat16, torch.int64, torch.bool]
)
# Whole families that are left out, by how their names begin, and why.
CALL = "runs as a call of ATen or of a library"
COMPOUND = "made of many other operators, which are checked themselves"
LEFT_OUT = {
    **dict.fromkeys(("linalg", "fft", "lu", "svd", "qr", "cholesky", "logdet", "pinverse", "inverse", "geqrf", "ormqr"), CALL),
    **dict.fromkeys(("stft", "istft", "histogram", "unique"), CALL),
    **dict.fromkeys(("_refs", "signal", "masked."), COMPOUND),
    **dict.fromkeys(("ops.", "torch.ops"), "not an operator of ATen's tables"),
    **dict.fromkeys(("special.", "polygamma", "mvlgamma"), "special functions are left to tests/ops"),
    "sparse": "not strided",
    "pca_": "draws random numbers",
    "nn.functional.ctc_loss": "leaves a part of its result unwritten",
}  # fmt: skip
OPS = {(op.name, op.variant_test_name): op for op in op_db}


def left_out(name):
    """Why the operator of this name is not checked, or None."""
    return next((why for start, why in LEFT_OUT.items() if name.startswith(start)), None)


def samples(op, dtype, count, requires_grad=False):
    """Up to count samples of an operator, chosen the same way every time."""
    torch.manual_seed(0)
    try:
        found = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    except Exception:  # the database's generators do not know every dtype they claim
        return []
    random.Random(op.name).shuffle(found)
    return found[:count]


def layouts(dtype):
    """4-dimensional tensors of one shape in many layouts, with the values that go wrong."""
    shape = (2, 3, 4, 5)
    if dtype is torch.bool:
        base = torch.arange(120).reshape(shape) % 3 == 0
    elif dtype.is_floating_point:
        base = torch.linspace(-4, 4, 120).reshape(shape).to(dtype)
        base.view(-1)[:6] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0]).to(
            dtype
        )
    else:
        base = (torch.arange(120).reshape(shape) * 7 % 61 - (0 if dtype is torch.uint8 else 30)).to(dtype)
    wide = torch.cat([base, base], 3)
    yield "contiguous", base
    yield "channels_last", base.contiguous(memory_format=torch.channels_last)
    yield "transposed", base.permute(3, 1, 2, 0).contiguous().permute(3, 1, 2, 0)
    yield "strided", wide[..., ::2]
    yield "offset", torch.cat([base, base])[2:]
    yield "expanded", base[:, :1].expand(shape)
    yield "scalar", base[0, 0, 0, 5 % 5].clone()
    yield "empty", base[:0]
