"""Shared by every test: strict mode, two threads, a clean compiler before each test."""

import os

os.environ.setdefault("MAGNETO_STRICT", "1")
os.environ.setdefault("MAGNETO_TRIALS", "0")  # else small graphs may go to CPython

import pytest
import torch

# torchvision's CPU wheel registers its fake kernels for operators that only its C++ library defines.
if torch.version.cuda is None:
    _torchvision_ops = torch.library.Library("torchvision", "DEF")
    _torchvision_ops.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _torchvision_ops.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def pytest_configure(config):
    config.addinivalue_line("markers", "model: runs a whole model")
    torch.set_num_threads(1 if os.environ.get("PYTEST_XDIST_WORKER") else 2)


@pytest.fixture(autouse=True)
def clean_compiler():
    """Each test starts and ends without compiled entries and with torch's default state."""
    import magneto

    magneto.reset()
    torch.manual_seed(0)
    yield
    magneto.reset()
    assert torch.is_grad_enabled(), "a test or the compiler left grad mode off"
    torch.autocast_increment_nesting()
    assert torch.autocast_decrement_nesting() == 0, (
        "a test or the compiler left autocast open: its cache of weights would go stale"
    )
