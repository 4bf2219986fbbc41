"""Sizes of n nested operations cost O(n), and kernels of many elementary functions are short.

Programs are recorded at one length, then with symbols at a second one, in a process of their own that may take a minute: without
memory of shared operands they take hours.
"""

import os
import subprocess
import sys
import textwrap

import pytest
import torch

import magneto
from support import counts

STEPS = {
    "cat": "x = x[:, -31:]; x = torch.cat([x, x[:, -1:] + 1], 1)",
    "slice": "x = torch.cat([x[:, : x.shape[1] // 2], x[:, x.shape[1] // 2 + 1 :], x[:, :1]], 1)",
    "min": "k = min(k, x.shape[1] + k // 2); x = x + k",
    "max": "k = max(k - x.shape[1] // 3, k // 3 + 2); x = x + k",
    "floordiv": "k = (k + x.shape[1]) // 2 + k // 3 + 1; x = x + k",
    "mod": "k = (k * 3 + x.shape[1]) % (k // 2 + 5) + k % 7; x = x + k",
    "where": "x = torch.where(torch.arange(x.shape[1]) < x.shape[1] // 2, x, x + 1)[:, -40:]",
    "pad": "x = F.pad(x[:, -30:], (0, max(0, 4 - x.shape[1])))",
    "roll": "x = torch.roll(x, x.shape[1] // 2, 1)[:, -30:]",
    "chunk": "a, b = x.chunk(2, 1); x = torch.cat([b, a, x[:, :1]], 1)[:, -31:]",
    "stack": "x = torch.stack([x[:, -16:], x[:, -16:] + 1], 2).flatten(1)",
    "unfold": "x = x[:, -30:].unfold(1, 2, 1).sum(-1); x = torch.cat([x, x[:, -2:]], 1)",
}

PROGRAM = """
import torch, magneto
F = torch.nn.functional
def f(x, k):
    for _ in range(N):
        STEP
    return x
for N in (3, 24):
    c = magneto.compile(f)
    for length in (9, 12, 40, 13):
        x = torch.arange(2.0 * length).reshape(2, length)
        assert torch.equal(c(x, 7), f(x, 7)), (N, length)
s = magneto._magneto.stats()
assert not s["fallbacks"], s
"""


def run_alone(program, seconds):
    env = dict(os.environ, MAGNETO_STRICT="1")
    r = subprocess.run(
        [sys.executable, "-c", program], timeout=seconds, env=env, capture_output=True, text=True
    )
    assert r.returncode == 0, r.stderr[-2000:]
    return r.stderr


@pytest.mark.parametrize("step", STEPS)
def test_sizes_of_nested_operations_are_remembered(step):
    run_alone(textwrap.dedent(PROGRAM).replace("STEP", STEPS[step]), 240)


def test_a_cache_that_rolls_64_times_is_compiled_for_a_second_length():
    program = textwrap.dedent(PROGRAM).replace("STEP", STEPS["cat"]).replace("(3, 24)", "(64,)")
    run_alone(program, 240)


CHAIN = """
import torch, magneto
F = torch.nn.functional
def f(x):
    for _ in range(N):
        x = F.gelu(torch.sin(x.exp() * 0.1)) + x.tanh() * torch.erf(x)
    return x
x = torch.linspace(-2, 2, 4000, dtype=torch.DTYPE).reshape(40, 100)
torch.testing.assert_close(magneto.compile(f)(x), f(x))
"""


def code_of(program, **variables):
    variables.update(MAGNETO_LOGS="output_code", MAGNETO_CACHE="0")
    kept = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        return run_alone(program, 240)
    finally:
        for name, value in kept.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def instructions(n, dtype="float32"):
    code = code_of(CHAIN.replace("N", str(n)).replace("DTYPE", dtype))
    return sum(" = " in line for line in code.splitlines())


def test_kernels_with_many_elementary_functions_call_them():
    assert (
        instructions(20) < 20 * 5 * 22
    )  # a polynomial alone has 20 to 60 in the vector loop, and again in the scalar one


FEW = """
import torch, magneto
def f(x):
    for _ in range(N):
        x = torch.tanh(x * 1.5)
    return x
x = torch.linspace(-3, 3, SIZE)
torch.testing.assert_close(magneto.compile(f)(x), f(x))
"""


@pytest.mark.parametrize(
    "n, size, functions", [(2, 9000, 0), (3, 9000, 1), (3, 1000, 2), (3, 40, 0), (12, 9000, 2)]
)
def test_functions_that_are_called_are_few(n, size, functions):
    """One for all widths of a long kernel; one of the widest vectors and another in a shorter one.  With AVX2 there are no single
    numbers: what is left over at the end is masked.  The step that the longest kernel repeats is a function, too."""
    code = code_of(FEW.replace("N", str(n)).replace("SIZE", str(size)), MAGNETO_CPU="v3")
    assert sum("define internal" in line for line in code.splitlines()) == functions


@pytest.mark.parametrize("size", [1, 7, 8, 63, 64, 65, 4095, 4096, 4097, 4096 + 31, 4096 + 63, 9999])
def test_few_functions_are_right_behind_the_widest_vectors(size):
    def f(x):
        y = x
        for _ in range(3):
            y = torch.pow(torch.sin(y).abs() + 0.5, torch.tanh(x))
        return y

    x = torch.linspace(-3, 3, size)
    x[size // 2], x[-1] = float("nan"), 1e20
    for same_kernel in (x, x.flip(0)):
        torch.testing.assert_close(
            magneto.compile(f)(same_kernel), f(same_kernel), equal_nan=True, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("rows", [1, 7, 64])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("reduced", [None, 0, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_called_functions_are_right_in_every_form_of_loop(rows, transposed, reduced, dtype):
    def f(x):
        y = x
        for _ in range(3):
            y = (
                torch.sin(y)
                + torch.log1p(y * y) * torch.tanh(y)
                - torch.erf(y)
                + torch.pow(y.abs() + 0.5, torch.sigmoid(x))
            )
        return y if reduced is None else y.sum(reduced)

    x = torch.linspace(-3, 3, rows * 37, dtype=torch.float64).reshape(rows, 37).to(dtype)
    if transposed:
        x = x.t()
    x[0, 0] = float("nan")
    tolerance = {"rtol": 1e-5, "atol": 1e-4}
    torch.testing.assert_close(magneto.compile(f)(x), f(x), equal_nan=True, **tolerance)
    y = x.clone()
    y[0, 0] = 1e20  # beyond 2**48 sines are left to another function
    torch.testing.assert_close(
        magneto.compile(lambda t: f(t).nan_to_num())(y), f(y).nan_to_num(), **tolerance
    )


GROWS = {
    "attention": lambda x: F.scaled_dot_product_attention(*[heads(x)] * 3),
    "causal": lambda x: F.scaled_dot_product_attention(*[heads(x)] * 3, is_causal=True),
    "masked": lambda x: F.scaled_dot_product_attention(
        *[heads(x)] * 3, attn_mask=torch.zeros(x.shape[0], 1, x.shape[1], x.shape[1])
    ),
    "elementwise": lambda x: heads(x).exp() + heads(x).transpose(2, 3).contiguous().transpose(2, 3),
    "convolution": lambda x: F.conv1d(x.transpose(1, 2), torch.ones(32, 1, 3), padding=1, groups=32),
    "narrow": lambda x: x.narrow(0, 0, x.shape[0]).select(0, x.shape[0] - 1),
}
F = torch.nn.functional


def heads(x):
    return x.view(x.shape[0], x.shape[1], 4, 8).transpose(1, 2)


@pytest.mark.parametrize("program", GROWS)
@pytest.mark.parametrize(
    "first, second, later", [(1, 2, (3, 5, 2)), (5, 2, (3, 4, 7)), (2, 3, (4, 2, 6)), (4, 8, (5, 2, 3))]
)
def test_no_size_of_the_recording_is_guarded_by_equality(program, first, second, later):
    f = magneto.compile(GROWS[program])
    for k, batch in enumerate((first, second, *later)):
        x = torch.rand(batch, 8, 32)
        with torch.no_grad():
            torch.testing.assert_close(f(x), GROWS[program](x))
        if k == 1:
            graphs = counts().graphs
    assert counts().graphs == graphs
