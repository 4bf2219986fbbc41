"""Every pointwise op that is compiled, as calls on tensors of one dtype, and values for them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


class Call(NamedTuple):
    """One op: the row of the table of pages and of lower_exact.def that it belongs to, and how it is called."""

    op: str
    fn: Callable[..., Tensor]
    tensors: int


FLOATS = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INTS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]

UNARY = """abs neg positive floor ceil round trunc frac sign sgn square exp exp2 expm1 log log2 log10 log1p
sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf erfc lgamma reciprocal sinc logit
deg2rad rad2deg angle nan_to_num bitwise_not logical_not isnan isinf isfinite isposinf isneginf signbit
sigmoid relu""".split()
BINARY = """add sub mul div floor_divide remainder fmod maximum minimum fmax fmin pow float_power atan2 copysign
hypot heaviside logaddexp logaddexp2 xlogy ldexp nextafter eq ne lt le gt ge logical_and logical_or logical_xor
bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift isclose""".split()
NUMBERS = (
    "add sub mul div floor_divide remainder fmod pow eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor"
)


def _unary(name: str) -> Call:
    return Call(name, getattr(torch, name), 1)


def _binary(name: str) -> Call:
    return Call(name, getattr(torch, name), 2)


def _number(name: str) -> Call:
    fn, whole = getattr(torch, name), name.startswith("bitwise")

    def call(x: Tensor) -> Tensor:
        return fn(x, 3 if whole or not x.is_floating_point() else 0.3)

    return Call(f"{name} number", call, 1)


def _zero_dim(name: str) -> Call:
    fn = getattr(torch, name)
    return Call(f"{name} 0-dim", lambda x: fn(x, x[5]), 1)


def _float(x: Tensor) -> Tensor:
    """x, which has to be of floats: eager takes others, for which the op has no meaning."""
    if not x.is_floating_point():
        raise TypeError("no floats")
    return x


MORE = [
    Call("special_entr", torch.special.entr, 1),
    Call("special_ndtr", torch.special.ndtr, 1),
    Call("special_xlog1py", torch.special.xlog1py, 2),
    Call("round.decimals", lambda x: torch.round(x, decimals=2), 1),
    Call("logit eps", lambda x: torch.logit(x, 1e-3), 1),
    Call("add alpha", lambda x, y: torch.add(x, y, alpha=3), 2),
    Call("sub alpha", lambda x, y: torch.sub(x, y, alpha=3), 2),
    Call("rsub", lambda x: (0.3 if x.is_floating_point() else 3) - x, 1),
    Call("div floor", lambda x, y: torch.div(x, y, rounding_mode="floor"), 2),
    Call("div trunc", lambda x, y: torch.div(x, y, rounding_mode="trunc"), 2),
    Call("pow 2", lambda x: x**2, 1),
    Call("pow 3", lambda x: x**3, 1),
    Call("pow 0.5", lambda x: x**0.5, 1),
    Call("pow -1", lambda x: x**-1, 1),
    Call("pow -2", lambda x: x**-2, 1),
    Call("number pow", lambda x: 2**x, 1),
    Call("where", lambda x, y: torch.where(x < y, x, y), 2),
    Call("masked_fill", lambda x, y: x.masked_fill(y < 1, 2), 2),
    Call("clamp", lambda x: x.clamp(0, 2), 1),
    Call("clamp_min", lambda x: x.clamp_min(0), 1),
    Call("clamp_max", lambda x: x.clamp_max(2), 1),
    Call("clamp.Tensor", lambda x, y: torch.clamp(x, y, x), 2),
    Call("addcmul", lambda x, y, z: torch.addcmul(x, y, z, value=2), 3),
    Call("addcdiv", lambda x, y, z: torch.addcdiv(x, y, z, value=2), 3),
    Call("lerp number", lambda x, y: torch.lerp(x, y, 0.3), 2),
    Call("lerp", torch.lerp, 3),
    Call("relu6", F.relu6, 1),
    Call("hardtanh", F.hardtanh, 1),
    Call("hardswish", F.hardswish, 1),
    Call("hardsigmoid", F.hardsigmoid, 1),
    Call("silu", F.silu, 1),
    Call("gelu", F.gelu, 1),
    Call("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), 1),
    Call("mish", F.mish, 1),
    Call("elu", F.elu, 1),
    Call("selu", F.selu, 1),
    Call("celu", lambda x: F.celu(x, 1.5), 1),
    Call("leaky_relu", F.leaky_relu, 1),
    Call("softplus", F.softplus, 1),
    Call("softshrink", F.softshrink, 1),
    Call("hardshrink", F.hardshrink, 1),
    Call("threshold", lambda x: F.threshold(x, 0.1, 20), 1),
    Call("logsigmoid", F.logsigmoid, 1),
    Call("glu", lambda x: F.glu(torch.stack([x, x.flip(0)]), 0), 1),
    Call("mse_loss", lambda x, y: F.mse_loss(x, y, reduction="none"), 2),
    Call("smooth_l1_loss", lambda x, y: F.smooth_l1_loss(_float(x), y, reduction="none", beta=0.7), 2),
    Call("huber_loss", lambda x, y: F.huber_loss(x, y, reduction="none", delta=0.7), 2),
    Call("soft_margin_loss", lambda x, y: F.soft_margin_loss(x, y, reduction="none"), 2),
    Call(
        "binary_cross_entropy_with_logits",
        lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
        2,
    ),
    Call("threshold_backward", lambda g, x: aten.threshold_backward(g, x, 0), 2),
    Call("sigmoid_backward", aten.sigmoid_backward, 2),
    Call("tanh_backward", aten.tanh_backward, 2),
    Call("silu_backward", aten.silu_backward, 2),
    Call("gelu_backward", aten.gelu_backward, 2),
    Call("gelu_backward tanh", lambda g, x: aten.gelu_backward(g, x, approximate="tanh"), 2),
    Call("hardswish_backward", aten.hardswish_backward, 2),
    Call("hardsigmoid_backward", aten.hardsigmoid_backward, 2),
    Call("hardtanh_backward", lambda g, x: aten.hardtanh_backward(g, x, -1, 1), 2),
    Call("leaky_relu_backward", lambda g, x: aten.leaky_relu_backward(g, x, 0.01, False), 2),
    Call("elu_backward", lambda g, x: aten.elu_backward(g, 1.5, 1.1, 1, False, x), 2),
    Call("softplus_backward", lambda g, x: aten.softplus_backward(g, x, 1, 20), 2),
    Call("mish_backward", aten.mish_backward, 2),
    Call("hardshrink_backward", lambda g, x: aten.hardshrink_backward(g, x, 0.5), 2),
    Call("softshrink_backward", lambda g, x: aten.softshrink_backward(g, x, 0.5), 2),
    Call("log_sigmoid_backward", lambda g, x: aten.log_sigmoid_backward(g, x, torch.exp(-x.abs())), 2),
    Call("native_dropout_backward", lambda g, x: aten.native_dropout_backward(_float(g), x < 0, 1.25), 2),
    Call("logit_backward", lambda g, x: aten.logit_backward(g, x, 1e-3), 2),
    Call("mse_loss_backward", lambda g, x, y: aten.mse_loss_backward(g, x, y, 0), 3),
    Call("smooth_l1_loss_backward", lambda g, x, y: aten.smooth_l1_loss_backward(_float(g), x, y, 0, 0.7), 3),
    Call("huber_loss_backward", lambda g, x, y: aten.huber_loss_backward(g, x, y, 0, 0.7), 3),
    Call(
        "binary_cross_entropy_backward",
        lambda g, x, y: aten.binary_cross_entropy_backward(g, x, y, None, 0),
        3,
    ),
    Call("mse_loss_backward mean", lambda g, x, y: aten.mse_loss_backward(g, x, y, 1), 3),
    Call(
        "smooth_l1_loss_backward mean",
        lambda g, x, y: aten.smooth_l1_loss_backward(_float(g), x, y, 1, 0.7),
        3,
    ),
    Call("huber_loss_backward mean", lambda g, x, y: aten.huber_loss_backward(g, x, y, 1, 0.7), 3),
    Call(
        "binary_cross_entropy_backward mean",
        lambda g, x, y: aten.binary_cross_entropy_backward(g, x, y, None, 1),
        3,
    ),
    Call("prelu", lambda x: F.prelu(x, x[5:6]), 1),
    Call("prelu channels", lambda x, y: aten._prelu_kernel(x, y), 2),
    Call(
        "binary_cross_entropy",
        lambda x, y: F.binary_cross_entropy(*(t.nan_to_num(0).clamp(0, 1) for t in (x, y)), reduction="none"),
        2,
    ),
    Call("to float64", lambda x: x.to(torch.float64), 1),
    Call("to float32", lambda x: x.to(torch.float32), 1),
    Call("to bfloat16", lambda x: x.to(torch.bfloat16), 1),
    Call("to float16", lambda x: x.to(torch.float16), 1),
    Call("to int64", lambda x: x.to(torch.int64), 1),
    Call("to int32", lambda x: x.to(torch.int32), 1),
    Call("to uint8", lambda x: x.to(torch.uint8), 1),
    Call("to bool", lambda x: x.to(torch.bool), 1),
    Call("clone", torch.clone, 1),
    Call("flip", lambda x: x.flip(0), 1),
    Call("roll", lambda x: x.roll(3), 1),
    Call("transpose", lambda x: x[:64].view(8, 8).t().contiguous(), 1),
    Call("cat", lambda x, y: torch.cat([x, y]), 2),
    Call("gather", lambda x: x[torch.arange(0, 64, 3)], 1),
]

CALLS = [
    *map(_unary, UNARY),
    *map(_binary, BINARY),
    *map(_number, NUMBERS.split()),
    *map(_zero_dim, ["add", "sub", "mul", "div"]),
    *MORE,
]

SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.0, -1.0, 0.5, -0.5, 2.0, 1e-40, -1e-40, 3e-39, 1e-45]
SIZE = 4096 + 7  # eager computes what is left over behind its vectors in another way


def _floats(dtype: torch.dtype, seed: int) -> Tensor:
    """Numbers of the sizes that programs have, all exponents, and special values."""
    draw = torch.Generator().manual_seed(seed)
    far = torch.exp2((torch.rand(SIZE // 4, generator=draw, dtype=torch.float64) - 0.5) * 280)
    far *= torch.where(torch.rand(SIZE // 4, generator=draw) < 0.5, -1.0, 1.0)
    info = torch.finfo(dtype)
    special = torch.tensor([*SPECIAL, info.max, info.tiny, info.tiny / 2, info.eps, 89.0, -88.0, -104.0])
    special = special.double()[torch.randint(len(SPECIAL) + 7, (SIZE // 8,), generator=draw)]
    near = torch.randn(SIZE - len(far) - len(special), generator=draw, dtype=torch.float64) * 2
    whole = torch.cat([far, special, near])
    return whole[torch.randperm(SIZE, generator=draw)].to(dtype)


def _ints(dtype: torch.dtype, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    info = torch.iinfo(dtype)
    x = torch.randint(max(info.min, -(2**62)), min(info.max, 2**62), (SIZE,), generator=draw).to(dtype)
    small = torch.randint(0 if dtype == torch.uint8 else -9, 9, (SIZE,), generator=draw).to(dtype)
    return torch.where(torch.rand(SIZE, generator=draw) < 0.5, x, small)


def values(dtype: torch.dtype, seed: int) -> Tensor:
    if dtype == torch.bool:
        return torch.rand(SIZE, generator=torch.Generator().manual_seed(seed)) < 0.5
    if dtype.is_complex:
        return torch.complex(_floats(torch.float32, seed), _floats(torch.float32, seed + 10)).to(dtype)
    return _floats(dtype, seed) if dtype.is_floating_point else _ints(dtype, seed)


_BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}


def ulps(got: Tensor, want: Tensor) -> Tensor:
    """How many numbers of the dtype lie between two, by element.  All NaN are one number."""
    assert got.dtype == want.dtype
    if got.is_complex():
        return ulps(torch.view_as_real(got), torch.view_as_real(want))
    if not got.is_floating_point():
        return (got != want).to(torch.int64) * 2**31
    place = []
    for t in (got, want):
        bits = t.contiguous().view(_BITS[t.element_size()]).to(torch.int64)
        magnitude = bits & (2 ** (8 * t.element_size() - 1) - 1)
        place.append(torch.where(bits < 0, -magnitude - 1, magnitude))  # -0 is next to 0
    away = (place[0] - place[1]).abs()
    nan = got.isnan() | want.isnan()
    return torch.where(nan, torch.where(got.isnan() & want.isnan(), 0, 2**31), away)
