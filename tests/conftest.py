"""Shared by every test: strict mode, two threads, a clean compiler before each test."""

import os

os.environ.setdefault("MAGNETO_STRICT", "1")
os.environ.setdefault("MAGNETO_TRIALS", "0")  # else small graphs may go to CPython

import pytest
import torch

import bench.workloads  # noqa: F401  (operators that torchvision's CPU wheel needs)


def pytest_configure(config):
    config.addinivalue_line("markers", "model: runs a whole model")
    config.addinivalue_line("markers", "sweep: the rest of a sweep, of which make check runs a part")
    torch.set_num_threads(1 if os.environ.get("PYTEST_XDIST_WORKER") else 2)


@pytest.fixture(autouse=True)
def clean_compiler():
    """Each test starts and ends without compiled entries and with torch's default state.  Compiling always pays."""
    import magneto
    from support import trials_take

    magneto.reset()
    torch.manual_seed(0)
    with trials_take(recorded=1, compiled=1, eager=2):
        yield
    magneto.reset()
    assert torch.is_grad_enabled(), "a test or the compiler left grad mode off"
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0, (
        "a test or the compiler left autocast open: its cache of weights would go stale"
    )
