"""Programs written for Inductor: its modes and option names through torch.compile."""

import pytest
import torch

import magneto
from magneto import compiler
from magneto._backends import inductor_options
from magneto.compiler import MODES
from tests.support.counts import assert_counts


def f(x, w):
    return torch.nn.functional.gelu(x @ w).sum(-1)


OPTIONS = [
    {"freezing": True},
    {"max_autotune": True},
    {"max_autotune": True, "triton.cudagraphs": False, "epilogue_fusion": True, "shape_padding": True},
    {"layout_optimization": False},
    {"cpp.threads": 1},
    {"emulate_precision_casts": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: " ".join(o))
def test_options(options):
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    with magneto.install():
        compiled = torch.compile(f, backend="magneto", options=options, fullgraph=True)
    torch.testing.assert_close(compiled(x, w), f(x, w))
    assert_counts(graphs=1, breaks=0)


@pytest.mark.parametrize("mode", MODES)
def test_modes(mode):
    x, w = torch.randn(4, 8), torch.randn(8, 3)
    with magneto.install():
        compiled = torch.compile(f, backend="magneto", mode=mode, fullgraph=True)
    torch.testing.assert_close(compiled(x, w), f(x, w))
    assert_counts(graphs=1, breaks=0)


def test_an_option_that_inductor_does_not_know_is_named():
    with magneto.install(), pytest.raises(ValueError, match="not_an_option"):
        torch.compile(f, backend="magneto", options={"not_an_option": 1})


def test_emulated_precision_casts_give_eagers_bits():
    x = torch.randn(4096, dtype=torch.bfloat16)

    def g(x):
        return (x * 1.1 + 0.3) * 1.7 - x

    with magneto.install():
        compiled = torch.compile(g, backend="magneto", options={"emulate_precision_casts": True})
    assert torch.equal(compiled(x), g(x))


def test_an_option_without_a_meaning_here_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(inductor_options, "_told", set())
    with caplog.at_level("INFO", "magneto"):
        for _ in range(2):
            magneto.compile(f, options={"epilogue_fusion": True, "freezing": True})
    assert [r.getMessage() for r in caplog.records] == [
        "option 'epilogue_fusion' has no effect: it is about Inductor's kernels"
    ]


@pytest.mark.parametrize("options", [{"max_autotune": "yes"}, {"triton.cudagraphs": 3}, {"freezing": 1}])
def test_an_option_of_another_type_is_named(options):
    (name,) = options
    with pytest.raises(TypeError, match=f"{name}.*must be of type bool, got"):
        magneto.compile(f, options=options)


@pytest.mark.parametrize("name", ["max_autotune", "max_autotune_gemm"])
def test_autotuning_is_that_of_the_mode(name):
    mode = compiler.checked(mode="max-autotune")
    assert compiler.checked(options={name: True}) == mode != compiler.checked(options={name: False})
