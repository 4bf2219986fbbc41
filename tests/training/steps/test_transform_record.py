"""The thread's record of torch.func transforms, which each backward pass copies once it is there."""

from __future__ import annotations

import ctypes
import threading

import torch

import magneto

_record = ctypes.CDLL("libtorch_cpu.so")._ZN2at9functorch20functorchTLSAccessorEv
_record.restype = ctypes.POINTER(ctypes.c_void_p)


def _in_thread(run):
    """What a new thread finds, which has no record."""
    found = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    thread.join()
    return found[0]


def test_compiling_leaves_no_record():
    def run():
        x = torch.randn(10, requires_grad=True)
        magneto.compile(lambda x: x.exp() + 1)(x).sum().backward()
        torch.testing.assert_close(x.grad, x.detach().exp())
        return bool(_record()[0])

    assert not _in_thread(run)


def test_a_transform_that_was_compiled_leaves_none():
    def run():
        x = torch.randn(10)
        slope = magneto.compile(lambda x: torch.func.grad(lambda t: (t * t).sum())(x))
        torch.testing.assert_close(slope(x), 2 * x)
        return bool(_record()[0])

    assert not _in_thread(run)


def test_the_record_of_the_program_stays():
    def run():
        x = torch.randn(10)
        torch.func.grad(lambda t: t.sum())(x)
        before = bool(_record()[0])
        magneto.compile(lambda x: x * 2)(x)
        return before, bool(_record()[0])

    assert _in_thread(run) == (True, True)


def test_a_break_inside_of_a_transform_keeps_it():
    def run():
        x = torch.randn(10)

        def f(t):
            magneto.graph_break()
            return (t * t).sum()

        return torch.equal(magneto.compile(lambda x: torch.func.grad(f)(x) + 1)(x), 2 * x + 1)

    assert _in_thread(run)
