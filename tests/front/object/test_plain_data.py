"""pickle.dumps while recording: plain data is part of the graph, whatever else could be in it is a break."""

import pickle

import pytest
import torch

import magneto
from support import assert_counts


class Options:
    def __init__(self, n):
        self.n = n


def keyed(x, data):
    return x + 1, pickle.dumps(data), pickle.dumps({"rank": len(data)})


@pytest.mark.parametrize("data", [(), {"a": 1, "b": [2.5, None]}, ["a", ("b", True)]], ids=repr)
def test_plain_data_is_pickled_in_the_graph(data):
    x = torch.ones(2)
    c = magneto.compile(keyed, fullgraph=True)
    for _ in range(2):
        assert c(x, data)[1:] == keyed(x, data)[1:]
    assert_counts(graphs=1, breaks=0)


def test_values_in_plain_data_are_guarded():
    x = torch.ones(2)
    c = magneto.compile(keyed)
    for data in ({"a": 1}, {"a": 2}, {"b": 2}, {"a": 1, "b": 2}):
        assert c(x, data)[1:] == keyed(x, data)[1:]


@pytest.mark.parametrize(
    "data", [[Options(3)], ["twice", ["twice"]], {"t": torch.Size([2])}], ids=["object", "shared", "size"]
)
def test_what_is_no_plain_data_breaks_the_graph(data):
    x = torch.ones(2)
    c = magneto.compile(keyed)
    assert c(x, data)[1:] == keyed(x, data)[1:]
    assert_counts(breaks=1)


def test_a_container_that_occurs_twice_is_pickled_as_in_eager():
    part = [1]
    x, data = torch.ones(2), [part, part]
    assert magneto.compile(keyed)(x, data)[1:] == keyed(x, data)[1:]
