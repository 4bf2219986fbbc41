"""Running sums and products along rows: rows side by side in vectors, and concatenations that only a scan reads."""

import pytest
import torch

import magneto

SHAPES = [(1, 1), (5, 0), (0, 5), (17, 3), (33, 100), (64, 128), (40, 257), (20, 1024), (16, 31)]


@pytest.fixture(autouse=True)
def stay_compiled(monkeypatch):
    monkeypatch.setenv("MAGNETO_TRIALS", "0")


def compare(f, x, tolerance=1e-4):
    """Values and, of floats, gradients are eager's."""
    runs = []
    magneto.reset()
    for g in (magneto.compile(f), f):
        y = x.detach().requires_grad_(x.is_floating_point())
        out = g(y)
        runs.append((out, torch.autograd.grad(out.sum(), y)[0] if out.requires_grad else None))
    torch.testing.assert_close(runs[0], runs[1], equal_nan=True, rtol=tolerance, atol=tolerance)


FUNCTIONS = {
    "cumsum": lambda x: x.cumsum(-1),
    "cumprod": lambda x: x.cumprod(-1),
    "cumsum down": lambda x: x.cumsum(0),
    "cumprod down": lambda x: x.cumprod(0),
    "prod": lambda x: x.prod(-1),
    "prod down": lambda x: x.prod(0),
    "shifted cumsum": lambda x: torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1).cumsum(1),
    "cumprod of three parts": lambda x: torch.cat([x, x[:, :1] * 0 + 1, x.flip(1)], 1).cumprod(1),
    "scanned and read": lambda x: (lambda y: y.cumsum(1) + y)(torch.cat([x, x], 1)),
    "scanned across": lambda x: torch.cat([x, x], 1).cumsum(0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_like_eager(name, dtype):
    torch.manual_seed(0)
    for shape in SHAPES:
        x = torch.rand(shape, dtype=torch.float64) * 0.4 + 0.8
        if dtype == torch.bfloat16 and "prod" in name:
            continue  # eager rounds every step to 16 bits
        compare(FUNCTIONS[name], x.to(dtype), 6e-2 if dtype == torch.bfloat16 else 1e-4)


@pytest.mark.parametrize("value", [0.0, -0.0, float("inf"), float("nan"), 1e30, 1e-30])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_that_decide_all_that_follows(name, value):
    if name.startswith("prod") and not abs(value) < 1:
        pytest.skip("eager divides the product by the element, where no element is 0")
    torch.manual_seed(1)
    x = torch.rand(33, 20) + 0.5
    x[3, 4] = x[17, 0] = x[32, 19] = x[32, 3] = value
    compare(FUNCTIONS[name], x)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_strided(name):
    torch.manual_seed(2)
    for x in (torch.rand(50, 40).t(), torch.rand(40, 64)[:, ::2], torch.rand(40, 64)[3:37, 5:60]):
        compare(FUNCTIONS[name], x + 0.5)
