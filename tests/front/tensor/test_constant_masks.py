"""Masks of attention that hide nothing, or what is_causal hides, whatever the inputs are, are not in the graph."""

import re

import pytest
import torch

import magneto

Q = 5
ATTENTION = torch.nn.functional.scaled_dot_product_attention


def rows(n=Q):
    return torch.arange(n)[None, None, :, None]


def columns(n=Q):
    return torch.arange(n)[None, None, None, :]


def cleared(x):
    mask = torch.ones(Q, Q, dtype=torch.bool)
    mask[0, 1] = False
    return mask


TRUE = {
    "arange": lambda x: (rows() >= 0).expand(2, 1, Q, Q),
    "sizes": lambda x: (torch.arange(x.shape[2])[:, None] >= 0).expand(x.shape[2], x.shape[2]),
    "shifted": lambda x: rows() + 3 > 2,
    "behind": lambda x: rows() - columns() <= Q - 1,
    "before": lambda x: -1 < columns(),
    "tensors": lambda x: columns() >= rows() - (Q - 1),
    "and": lambda x: rows().new_ones((), dtype=torch.bool) & (rows() >= 0) & (columns() < Q),
    "or": lambda x: (rows() >= columns()) | (rows() < Q),
    "ones": lambda x: torch.ones(Q, Q, dtype=torch.bool),
    "full": lambda x: torch.full((1, Q), True),
    "converted": lambda x: (rows() + 1).to(torch.bool),
}
CAUSAL = {
    "compared": lambda x: rows() >= columns(),
    "strictly": lambda x: columns() < rows() + 1,
    "expanded": lambda x: (columns() <= rows()).expand(2, 1, Q, Q),
    "two dimensions": lambda x: torch.arange(Q)[:, None] >= torch.arange(Q),
    "sizes": lambda x: torch.arange(x.shape[2])[:, None] >= torch.arange(x.shape[2]),
    "differences": lambda x: rows() - columns() > -1,
    "both shifted": lambda x: torch.arange(3, Q + 3)[:, None] >= torch.arange(Q + 4)[3 : Q + 3],
    "and": lambda x: rows().new_ones((), dtype=torch.bool) & (columns() <= rows()) & (rows() >= 0),
    "copied": lambda x: (rows() >= columns()).clone().to(torch.bool),
}
NOT_KNOWN = {
    "anticausal": lambda x: rows() <= columns(),
    "without the diagonal": lambda x: (rows() > columns()) | (rows() == 0),
    "one more": lambda x: rows() + 1 >= columns(),
    "doubled": lambda x: rows() + rows() >= columns() + columns(),
    "every second": lambda x: torch.arange(2 * Q)[::2][:, None] >= torch.arange(Q),
    "by batch": lambda x: rows() + torch.arange(2)[:, None, None, None] >= columns(),
    "or a window": lambda x: (rows() >= columns()) | (rows() - columns() >= -2),
    "causal and a window": lambda x: (rows() >= columns()) & (rows() - columns() <= 2),
    "window": lambda x: rows() - columns() <= Q - 2,
    "data": lambda x: x[:, :1, :, :1] > -100,
    "written": cleared,
    "zero": lambda x: rows().to(torch.bool) | (columns() == 0),
    "bits": lambda x: ((rows() + 1) & (columns() + 1) >= 0) & (columns() != 1),
    "wrapped": lambda x: (torch.arange(Q).to(torch.int8) + 126 > 0)[None, :].expand(Q, Q),
    "float": lambda x: (torch.arange(Q, dtype=torch.float32) >= 0)[None, :].expand(Q, Q),
}


def attending(make, grad):
    """A function that attends under a mask made of its first argument, and its arguments."""
    torch.manual_seed(0)
    inputs = [torch.randn(2, 3, Q, 8, requires_grad=grad) for _ in range(3)]
    return (lambda q, k, v: ATTENTION(q, k, v, attn_mask=make(q))), inputs


def recorded(function, inputs, capfd):
    """The text of the graph that a call records."""
    magneto._magneto.set_logs("graph")
    try:
        magneto.compile(function)(*inputs)
    finally:
        magneto._magneto.set_logs("")
    return capfd.readouterr().err


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", [*TRUE, *CAUSAL, *NOT_KNOWN])
def test_like_eager(name, grad):
    function, inputs = attending((TRUE | CAUSAL | NOT_KNOWN)[name], grad)
    expected, got = function(*inputs), magneto.compile(function)(*inputs)
    torch.testing.assert_close(got, expected)
    if grad:
        seed = torch.randn_like(expected)
        wanted = torch.autograd.grad(expected, inputs, seed)
        torch.testing.assert_close(torch.autograd.grad(got, inputs, seed), wanted)


@pytest.mark.parametrize("name", [*TRUE, *CAUSAL])
def test_dropped(name, capfd):
    text = recorded(*attending((TRUE | CAUSAL)[name], False), capfd)
    assert f"0.0, {name in CAUSAL}" in text.split("attention", 1)[1]
    assert "attn_mask=" not in text and "masked" not in text


@pytest.mark.parametrize("given", ["position", "keyword"])
def test_causal_is_given(given, capfd):
    """The flag may be an argument already."""

    def function(q, k, v):
        mask = rows() >= columns()
        if given == "position":
            return ATTENTION(q, k, v, mask, 0.0, False)
        return ATTENTION(q, k, v, attn_mask=mask, is_causal=False)

    _, inputs = attending(TRUE["ones"], False)
    assert "0.0, True" in recorded(function, inputs, capfd)
    torch.testing.assert_close(magneto.compile(function)(*inputs), function(*inputs))


def test_fewer_queries(capfd):
    """is_causal means something else there."""

    def function(q, k, v):
        return ATTENTION(q[:, :, :3], k, v, attn_mask=rows(3) >= columns())

    _, inputs = attending(TRUE["ones"], False)
    assert "attn_mask=" in recorded(function, inputs, capfd)
    torch.testing.assert_close(magneto.compile(function)(*inputs), function(*inputs))


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_kept(name, capfd):
    bare = recorded(*attending(lambda x: None, False), capfd)
    kept = recorded(*attending(NOT_KNOWN[name], False), capfd)
    line = [text.split("attention", 1)[1] for text in (bare, kept)]
    assert line[0] != line[1]


def test_wrong_shape():
    def function(q, k, v):
        return ATTENTION(q, k, v, attn_mask=torch.ones(Q + 1, Q + 1, dtype=torch.bool))

    _, inputs = attending(TRUE["ones"], False)
    with pytest.raises(RuntimeError):
        magneto.compile(function)(*inputs)


def test_mask_and_causal():
    def function(q, k, v):
        return ATTENTION(q, k, v, torch.ones(Q, Q, dtype=torch.bool), 0.0, True)

    _, inputs = attending(TRUE["ones"], False)
    try:
        want = function(*inputs)
    except RuntimeError as e:  # from torch 2.14 on
        with pytest.raises(RuntimeError, match=re.escape(str(e))):
            magneto.compile(function)(*inputs)
    else:
        torch.testing.assert_close(magneto.compile(function)(*inputs), want)


def nested(x, levels=30):
    mask = (rows() >= 0).expand(1, 1, Q, Q)
    for _ in range(levels):
        mask = mask & mask.transpose(2, 3)
    return mask


def test_masks_that_use_themselves_twice():
    """Looking at such a mask takes no time that doubles with each level."""
    function, inputs = attending(nested, False)
    torch.testing.assert_close(magneto.compile(function)(*inputs), function(*inputs))
