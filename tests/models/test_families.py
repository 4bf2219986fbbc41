"""Many model families, eval mode: recorded whole, no fallback, eager's results on the first call and on a hit.

The default tier takes every third family; MAGNETO_MODELS=full takes all."""

import os

import pytest
import torch

import magneto
from bench.families import BREAKS, FAMILIES
from support import counts, tensors

pytestmark = pytest.mark.model
NAMES = sorted(FAMILIES)
if os.environ.get("MAGNETO_MODELS") != "full":
    NAMES = NAMES[::3]


def close(got, want):
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        assert a.dtype == b.dtype and a.stride() == b.stride()
        scale = float(b.abs().max()) if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(scale, 1e-3), equal_nan=True)


@pytest.mark.parametrize("name", NAMES)
def test_eval(name):
    model, args, kwargs = FAMILIES[name]()
    model.eval()
    with torch.no_grad():
        want = model(*args, **kwargs)
        before = counts()
        compiled = magneto.compile(model)
        close(compiled(*args, **kwargs), want)
        after = counts()
        close(compiled(*args, **kwargs), want)
    assert after.fallbacks == before.fallbacks
    if name in BREAKS:
        return
    assert after.graphs - before.graphs == 1
    assert after.reasons == before.reasons
    assert counts().entries == after.entries
