import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True)
def clean_compiler():
    """No compiled entries before or after a test, torch's global state as it was."""
    from magneto import _magneto

    _magneto.reset()
    yield
    _magneto.reset()
    assert torch.is_grad_enabled()
