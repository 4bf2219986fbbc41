"""Products so small that other threads are not worth waking."""

import glob
import threading
import time

import pytest
import torch

import magneto

PRODUCTS = {
    "activation": lambda x: torch.sigmoid(x @ x),
    "watched_activation": lambda x: torch.relu(x @ x),
    "bias": lambda x: torch.addmm(x, x, x),
    "batches": lambda x: torch.baddbmm(x[None], x[None], x[None]),
}


def others_time():
    """Milliseconds of CPU that the other threads of this process have taken."""
    ns = 0
    for path in glob.glob("/proc/self/task/*/schedstat"):
        if int(path.split("/")[4]) != threading.get_native_id():
            with open(path) as f:
                ns += int(f.read().split()[0])
    return ns / 1e6


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", PRODUCTS)
def test_small_products_wake_no_thread(two_threads, name):
    x = torch.full((10, 10), 0.125)
    c = magneto.compile(PRODUCTS[name])
    for _ in range(3):
        assert torch.allclose(c(x), PRODUCTS[name](x))
    time.sleep(0.3)  # a team that has worked looks for more work before it sleeps
    before, begin = others_time(), time.monotonic()
    for _ in range(3000):
        c(x)
    took = 1000 * (time.monotonic() - begin)
    assert others_time() - before < 0.05 * took + 1


@pytest.mark.parametrize("name", PRODUCTS)
def test_nan_passes_small_products(two_threads, name):
    x = torch.full((10, 10), 0.125)
    x[3, 4] = float("nan")
    c = magneto.compile(PRODUCTS[name])
    for _ in range(3):
        assert torch.allclose(c(x), PRODUCTS[name](x), equal_nan=True)
