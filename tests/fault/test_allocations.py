"""The n-th allocation fails, for every n: an exception or the right result, nothing half done, and the next call is right."""

import warnings

import numpy as np
import pytest
import torch

import magneto
from magneto import _magneto


class Box:
    def __init__(self):
        self.n, self.t = 1, None


def helper(a, k):
    b = a * k
    print(end="")
    return [b, {"k": k}]


def program(x, items, box):
    y = x * 2 + len(items)
    items.append(y)
    box.n = box.n + 1
    try:
        z = helper(y, 3)
    finally:
        box.t = y
    return z[0] + sum(i * x for i in range(3)), z[1]


def state(f):
    x, items, box = torch.ones(3), [1], Box()
    r, d = f(x, items, box)
    return [t.tolist() for t in (r, items[1], box.t)], d, len(items), box.n


def sweep(compiled, want, reset, step=1):
    """Fails one allocation after the other until a call needs no more of them."""
    failed = 0
    for n in range(1, 4000, step):
        if reset:
            magneto.reset()
        _magneto.fail_allocation(n)
        try:
            assert state(compiled) == want
        except (MemoryError, RuntimeError) as e:  # strict mode names the graph that could not be compiled
            assert isinstance(e, MemoryError) or "out of memory" in str(e), e
            failed += 1
        finally:
            done = _magneto.fail_allocation(0)
        assert torch.is_grad_enabled() and not torch.compiler.is_compiling()
        assert state(compiled) == want
        if done < n:
            break
    return failed, done < n


@pytest.fixture
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("backend, step", [("aten", 1), ("eager", 7), ("magneto", 3)])
def test_while_compiling(backend, step, quiet):
    compiled = magneto.compile(program, backend=backend)
    assert sweep(compiled, state(program), True, step)[1]


def test_on_a_hit(quiet):
    compiled = magneto.compile(program)
    want = state(program)
    state(compiled)
    assert sweep(compiled, want, False)[1]


def test_kernels_of_many_texts(quiet):
    """A kernel of which a part is missing is none: several in one graph, each with loops inside."""

    def f(x, y):
        a = x[:, None] * x
        return a.clone(), a[1:] * 2, a.sum(0), (y.softmax(-1) + a).flatten()

    def state():
        return [t.tolist() for t in compiled(torch.arange(3.0), torch.ones(3, 3))]

    compiled = magneto.compile(f)
    want = [t.tolist() for t in f(torch.arange(3.0), torch.ones(3, 3))]
    for n in range(1, 1000):
        magneto.reset()
        _magneto.fail_allocation(n)
        try:
            assert np.allclose(
                np.concatenate([np.ravel(v) for v in state()]), np.concatenate([np.ravel(v) for v in want])
            )
        except (MemoryError, RuntimeError) as e:
            assert isinstance(e, MemoryError) or "out of memory" in str(e), e
        finally:
            done = _magneto.fail_allocation(0)
        if done < n:
            break


def numpy_program(a, t):
    y = np.sin(a) + t.numpy()
    y[0] = a.sum() + np.arange(3.0)
    a += 1
    print(end="")
    return y.max(), y[1:], torch.from_numpy(y * 2)


@pytest.mark.parametrize("backend, step", [("aten", 1), ("eager", 5)])
def test_numpy_while_compiling(backend, step, quiet):
    compiled = magneto.compile(numpy_program, backend=backend)

    def run(f):
        a, t = np.ones((2, 3)), torch.ones(3)
        return [r.tolist() for r in f(a, t)], a.tolist()

    want = run(numpy_program)
    for n in range(1, 3000, step):
        magneto.reset()
        _magneto.fail_allocation(n)
        try:
            assert run(compiled) == want
        except (MemoryError, RuntimeError) as e:
            assert isinstance(e, MemoryError) or "out of memory" in str(e), e
        finally:
            done = _magneto.fail_allocation(0)
        assert run(compiled) == want
        if done < n:
            return
    raise AssertionError("the sweep never ended")
