"""Window functions are factories with a rule in C: torch's own kernels for their shape import sympy, a second for the first call."""

import subprocess
import sys

import pytest
import torch

import magneto

KINDS = ["hann", "hamming", "blackman", "bartlett", "kaiser"]
OPTIONS = [
    {},
    {"periodic": False},
    {"dtype": torch.float64},
    {"dtype": torch.bfloat16},
    {"dtype": torch.int64},
]


def outcome(f, n):
    try:
        return f(n)
    except Exception as e:
        return type(e), str(e).splitlines()[0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [-1, 0, 1, 2, 5, 400])
def test_like_eager(kind, n):
    window = getattr(torch, kind + "_window")
    for options in OPTIONS:

        def f(n, options=options):
            return window(n, **options) * 1

        magneto.reset()
        want, got = outcome(f, n), outcome(magneto.compile(f), n)
        if isinstance(want, tuple):
            assert want == got, options
        else:
            assert torch.equal(want, got) and want.dtype == got.dtype, options


PROGRAM = """
import sys, torch, magneto

def spectrum(audio):
    torch._check(audio.dim() == 1)
    window = torch.hann_window(64)
    power = torch.stft(audio, 64, 16, window=window, return_complex=True)[..., :-1].abs() ** 2
    mel = torch.clamp(weights @ power, min=1e-10).log10()
    return torch.maximum(mel, mel.max() - 8.0)

weights, audio = torch.rand(8, 33), torch.randn(640)
missing = [m for m in ("sympy", "torch._dynamo") if m not in sys.modules]
compiled = magneto.compile(spectrum)
got = compiled(audio)
assert not [m for m in missing if m in sys.modules], "imported while compiling"
assert torch.allclose(got, spectrum(audio), atol=1e-5)
assert not magneto._magneto.stats()["fallbacks"]
"""


def test_nothing_large_is_imported_for_a_spectrum():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120)


LAYOUTS = [
    torch.randn(3, 4, dtype=torch.cfloat).t(),
    torch.randn(3, 4, 5, dtype=torch.cdouble).permute(2, 0, 1),
    torch.randn(3, 4, dtype=torch.cfloat)[:, ::2].t(),
    torch.randn(4, 1, dtype=torch.cfloat).expand(4, 3),
    torch.randn((), dtype=torch.cfloat),
    torch.randn(0, 3, dtype=torch.cfloat),
]


@pytest.mark.parametrize("x", LAYOUTS, ids=lambda x: f"{tuple(x.shape)}{x.stride()}")
def test_magnitudes_of_complex_numbers(x):
    """The rule of abs in C: a real result with the strides that ATen gives, and gradients."""
    for f in (torch.abs, lambda x: x.abs() * 2 + 1, lambda x: x.abs().square().sum(0)):
        want, got = f(x), magneto.compile(f)(x)
        assert want.dtype == got.dtype and want.stride() == got.stride()
        torch.testing.assert_close(got, want)
        a, b = (x.detach().clone().requires_grad_() for _ in range(2))
        f(a).sum().backward()
        magneto.compile(f)(b).sum().backward()
        torch.testing.assert_close(b.grad, a.grad)
