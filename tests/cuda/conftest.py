"""What tests of CUDA graphs share."""

import pytest

import magneto


@pytest.fixture
def compiled_kernels(monkeypatch):
    monkeypatch.setenv("MAGNETO_GPU", "1")
    magneto.reset()


@pytest.fixture
def graph_counts():
    """Captures and replays since; no capture may have failed."""
    before = magneto._magneto.stats()

    def count():
        now = magneto._magneto.stats()
        assert now["cuda_failed"] == before["cuda_failed"]
        return tuple(now[k] - before[k] for k in ("cuda_captures", "cuda_replays"))

    return count


@pytest.fixture
def replays(graph_counts):
    """How many replays there were since; no capture may have failed."""
    return lambda: graph_counts()[1]
