"""Sizes in messages of errors: a message that nobody sees costs no recompile, one that is seen is eager's."""

import pytest
import torch

import magneto
from support import assert_counts, counts


def normed(x):
    return torch.nn.functional.rms_norm(x, (4,))


def test_a_message_that_is_not_needed_guards_no_size():
    c = magneto.compile(normed, fullgraph=True)
    for n in (2, 3, 5, 7):
        x = torch.randn(n, 4)
        torch.testing.assert_close(c(x), normed(x))
    assert_counts(graphs=2)


def refused(x):
    try:
        return torch.nn.functional.rms_norm(x, (x.shape[1] + 1,))
    except (RuntimeError, ValueError) as e:
        return str(e)


@pytest.mark.parametrize("f", [refused, lambda x: refused(x * 2)], ids=["input", "made inside"])
def test_a_message_that_is_read_has_the_sizes_of_its_call(f):
    c = magneto.compile(f)
    for n in (2, 3, 5, 7):
        x = torch.randn(n, 4)
        assert c(x) == f(x)
    assert counts().hits
