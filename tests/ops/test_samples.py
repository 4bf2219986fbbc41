"""Samples of torch's operator database through magneto.compile: values, strides, aliasing, mutation, errors, gradients.

By default a part of the operators with few samples each; MAGNETO_OPS=full runs all of them in every way (hours)."""

import os
import re

import pytest
import torch

import magneto
from tests.ops import sweep

FULL = os.environ.get("MAGNETO_OPS") == "full"
LIMIT = None if FULL else 2
KINDS = sweep.KINDS if FULL else ("forward", "gradient", "inplace", "out", "error")

# Found by this sweep to be wrong once.
ONCE = ("arange", "complex", "cummax", "diag_embed", "diagonal", "diff", "fft.rfftn", "frexp", "imag", "kron", "kthvalue", "linalg.eig", "linalg.svd",
        "linspace", "max.reduction_with_dim", "nn.functional.embedding_bag", "nn.functional.silu.complex", "polar", "roll", "vdot", "view_as_complex",
        "view_as_real", "zeros")  # fmt: skip

# What differs from eager: the operator, its samples (a pattern of the labels that sweep.jobs gives), whether it always
# differs, and why.
DIFFERS = [
    ("nn.functional.gelu", "out .* strided", False, "eager leaves a strided out= unwritten"),
    ("nn.functional.avg_pool3d", "out .* strided", False, "eager leaves a strided out= unwritten"),
    ("nn.functional.linear", "out .* strided", True, "eager gives a strided out= other strides"),
    ("native_layer_norm", "gradient .*", False, "the difference of equal numbers, which is rounding"),
    ("nn.functional.layer_norm", "gradient .*", False, "the difference of equal numbers, which is rounding"),
]
# Not run at all.
UNDEFINED = [
    ("nn.functional.adaptive_max_pool2d", "error .*", "eager reads past the end of an empty list"),
    ("nn.functional.adaptive_max_pool3d", "error .*", "eager reads past the end of an empty list"),
]
LEFT_OUT = [(name, labels) for name, labels, *_ in DIFFERS + UNDEFINED]

OPS = [op for i, op in enumerate(sweep.op_db) if FULL or i % 40 == 5 or sweep.name(op) in ONCE]


def run_samples(op, kinds, wanted, limit):
    """Runs the samples whose label is wanted."""
    for label, job in sweep.jobs(op, kinds, limit=limit):
        if not wanted(label):
            continue
        sweep.magneto.reset()
        try:
            job()
        except AssertionError as e:
            raise AssertionError(f"{label}: {e}") from e


@pytest.mark.parametrize("op", OPS, ids=sweep.name)
def test_samples(op):
    left_out = [labels for name, labels in LEFT_OUT if name == sweep.name(op)]
    run_samples(op, KINDS, lambda label: not any(re.fullmatch(p, label) for p in left_out), LIMIT)


@pytest.mark.parametrize("name, labels", [
    *(pytest.param(n, p, marks=pytest.mark.xfail(reason=why, strict=always, raises=AssertionError)) for n, p, always, why in DIFFERS),
    *(pytest.param(n, p, marks=pytest.mark.skip(reason=why)) for n, p, why in UNDEFINED),
])  # fmt: skip
def test_samples_that_differ(name, labels):
    (op,) = (op for op in sweep.op_db if sweep.name(op) == name)
    run_samples(op, [labels.split()[0]], lambda label: re.fullmatch(labels, label), None)


SPECIAL = {
    "relu": torch.relu, "relu6": torch.nn.functional.relu6, "hardtanh": lambda x: torch.nn.functional.hardtanh(x, 0.0, 1.0), "sin": torch.sin,
    "tan": torch.tan, "heaviside": lambda x: torch.heaviside(x, x.flip(0)), "fmax": lambda x: torch.fmax(x, -x), "fmin": lambda x: torch.fmin(x, -x),
    "nextafter": lambda x: torch.nextafter(x, x.flip(0)),
}  # fmt: skip


@pytest.mark.parametrize("name", SPECIAL)
def test_signed_zeros_nan_and_steps(name):
    for dtype in (torch.float32, torch.float64, torch.float16):
        x = torch.tensor([0.0, -0.0, 1.5, -2.0, float("nan"), float("inf"), 0.0, -0.0, 1.0], dtype=dtype)
        want, got = SPECIAL[name](x), magneto.compile(SPECIAL[name])(x)
        torch.testing.assert_close(
            got,
            want,
            equal_nan=True,
            rtol=0 if name == "nextafter" else 2e-3 if dtype is torch.float16 else 1e-5,
            atol=0,
        )
        assert torch.equal(torch.signbit(got[want == 0]), torch.signbit(want[want == 0]))


def floor_quotient(x):
    return torch.div(x, 1e-3 * x.flip(0).sign(), rounding_mode="floor")


@pytest.mark.parametrize(
    "fn",
    [torch.sin, torch.cos, torch.tan, torch.sinc, torch.asinh, torch.acosh, floor_quotient],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_large_arguments(fn, dtype):
    x = torch.tensor(
        [1e14, 3e14, 1e15, 1e18, 5e18, 1e20, 1e30, 3e38, float("inf"), float("nan"), 1.0, 0.0], dtype=dtype
    )
    for v in (x, x.repeat(5), -x, x[3]):
        torch.testing.assert_close(
            magneto.compile(lambda v: fn(v.reshape(-1)))(v), fn(v.reshape(-1)), equal_nan=True
        )


def test_large_angles_in_rows_and_sums():
    x = torch.randn(37, 37) * 1e20

    def f(x):
        return (
            (x.sin() + x[:, :1].cos() * x).sum(1),
            x.sin().softmax(0)[0],
            x.t().cos().sum(0),
            x[0].tan() * x,
        )

    for got, want in zip(magneto.compile(f)(x), f(x)):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_whole_quotients_of_16_bit_floats(dtype):
    a, b = (torch.randn(20000) * 9).to(dtype), torch.randn(20000).to(dtype)

    def f(a, b):
        trunc, floor = "trunc", "floor"
        return (a.div(b, rounding_mode=trunc), a.div(b, rounding_mode=floor), a // b, a // 0.3, a.div(b[:1], rounding_mode=trunc),
                a[3].div(b, rounding_mode=floor), torch.fmod(a, b), torch.remainder(a, b))  # fmt: skip

    for got, want in zip(magneto.compile(f)(a, b), f(a, b)):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_foreach_norm_in_a_dtype_and_of_complex_numbers():
    half, c = (
        [torch.randn(9).bfloat16(), torch.randn(2, 3).bfloat16()],
        [torch.randn(5, dtype=torch.complex64)],
    )
    sweep.check(
        lambda h, c: (
            torch._foreach_norm(h, dtype=torch.float64),
            torch._foreach_norm(h, 1),
            torch._foreach_norm(c),
        ),
        (half, c),
    )


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_indexed_rows_of_complex_numbers(dtype):
    x, at = torch.randn(5, 3, dtype=torch.complex64).to(dtype), torch.tensor([3, 0])
    for fn in (
        lambda x: x.index_copy(0, at, x[1:3]),
        lambda x: x.clone().index_copy_(0, at, x[1:3]),
        lambda x: x.index_fill(0, at, 2),
        lambda x: x.index_select(0, at),
    ):
        sweep.check(fn, (x,))
    sweep.check(lambda x: x.index_select(0, at), (x.requires_grad_(),), gradient=True)
