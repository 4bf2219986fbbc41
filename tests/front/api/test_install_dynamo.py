"""After magneto.install(): torch.compiler.reset, torch._dynamo.reset and torch._dynamo.optimize."""

import subprocess
import sys

import pytest
import torch

import magneto
from support import counts


def f(x):
    return x.sin() + 1


@pytest.mark.parametrize("name", ["torch.compiler.reset", "torch._dynamo.reset"])
def test_reset_forgets_what_magneto_compiled(name):
    import torch._dynamo

    reset = torch.compiler.reset if "compiler" in name else torch._dynamo.reset
    x = torch.randn(3)
    with magneto.install():
        compiled = torch.compile(f, backend="magneto")
        compiled(x)
        assert counts().graphs == 1
        reset()
        assert counts().graphs == 0
        torch.testing.assert_close(compiled(x), f(x))
        assert counts().graphs == 1
    reset()  # PyTorch's own again
    assert counts().graphs == 1


def test_optimize_by_name_is_magnetos_front_end():
    from torch._dynamo import optimize  # imported before

    x = torch.randn(3)
    with magneto.install():
        compiled = optimize("magneto", nopython=True)(f)
        module = torch._dynamo.optimize("magneto")(torch.nn.Linear(3, 3))
    assert isinstance(compiled, magneto._magneto.Callable)
    assert isinstance(module, torch._dynamo.OptimizedModule) and module(x).shape == (3,)
    torch.testing.assert_close(compiled(x), f(x))
    assert not isinstance(optimize("magneto")(f), magneto._magneto.Callable)


def test_optimize_with_what_only_dynamo_can_do_is_dynamos():
    import torch._dynamo

    with magneto.install():
        assert not isinstance(torch._dynamo.optimize("eager")(f), magneto._magneto.Callable)
        hooked = torch._dynamo.optimize("magneto", guard_export_fn=lambda guards: None)(f)
        assert not isinstance(hooked, magneto._magneto.Callable)
        assert not isinstance(torch._dynamo.optimize()(f), magneto._magneto.Callable)
    with magneto.install(default=True):
        assert isinstance(torch._dynamo.optimize()(f), magneto._magneto.Callable)


def test_reset_does_not_import_dynamo():
    program = (
        "import sys, torch, magneto\n"
        "magneto.install()\n"
        "torch.compiler.reset()\n"
        "assert 'torch._dynamo' not in sys.modules\n"
        "import torch._dynamo\n"
        "f = torch._dynamo.optimize('magneto')(lambda x: x + 1)\n"
        "assert isinstance(f, magneto._magneto.Callable)\n"
        "magneto.uninstall()\n"
        "assert not isinstance(torch._dynamo.optimize('eager')(f), magneto._magneto.Callable)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
