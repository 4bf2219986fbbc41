"""Objects of classes over threading.local that have an __init__, which runs in each thread at its first use."""

import threading

import pytest
import torch

import magneto
from support import counts


@pytest.fixture(autouse=True)
def fresh():
    magneto.reset()


class State(threading.local):
    def __init__(self, start, made):
        made.append(start)
        self.number = start


def in_a_thread(f):
    results = []
    thread = threading.Thread(target=lambda: results.append(f()))
    thread.start()
    thread.join()
    return results[0]


def counter():
    made = []
    state = State(3, made)

    def f(x):
        state.number += 1
        return x * state.number

    return f, made


def test_each_thread_has_its_own():
    f, made = counter()
    g = magneto.compile(f)
    ones = torch.ones(2)
    for n in range(12):
        assert in_a_thread(lambda: [g(ones)[0].item() for _ in range(3)]) == [4, 5, 6]
        assert len(made) == n + 2  # the object itself is made in this thread
    assert [g(ones)[0].item() for _ in range(3)] == [4, 5, 6]
    s = counts()
    assert s.graphs <= 4 and s.fallbacks == s.stopped == 0, s


def test_one_that_this_thread_has_used():
    f, made = counter()
    g = magneto.compile(f, fullgraph=True)
    for want in (4, 5, 6, 7):
        assert g(torch.ones(2)).tolist() == [want] * 2
    assert made == [3] and counts().breaks == 0


def test_one_whose_init_raises():
    class Fails(threading.local):
        def __init__(self, main):
            if threading.get_ident() != main:
                raise ValueError("not in this thread")
            self.number = 2

    state = Fails(threading.get_ident())

    def f(x):
        return x * state.number

    g = magneto.compile(f)
    assert g(torch.ones(2)).tolist() == [2, 2]

    def attempt():
        try:
            return g(torch.ones(2))
        except ValueError as e:
            return str(e)

    assert in_a_thread(attempt) == "not in this thread"
    assert g(torch.ones(2)).tolist() == [2, 2]
