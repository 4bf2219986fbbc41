"""Libraries of models and operations: torch.compile by name gives eager's results in few whole graphs."""

import pytest
import torch

import magneto
from bench.libraries import PROGRAMS
from tests.support.counts import assert_counts


@pytest.mark.model
@pytest.mark.parametrize("name", PROGRAMS)
def test_library(name):
    make, graphs, breaks = PROGRAMS[name]
    try:
        f, calls = make()
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")
    with magneto.install():
        compiled = torch.compile(f, backend="magneto", fullgraph=not breaks)
    with torch.no_grad():
        for args in calls:
            torch.testing.assert_close(_plain(compiled(*args)), _plain(f(*args)), rtol=1e-4, atol=1e-4)
    assert_counts(graphs=graphs, breaks=breaks)


def _plain(result):
    """Tensors of diffusers' and others' output classes, as a tuple."""
    return tuple(result.values()) if isinstance(result, dict) else result
