"""Rounding told from wrong results: both are held against the result in float64.

A fixed tolerance is too narrow for sums that cancel and too wide for the rest, and which side of it a result falls on
depends on the order of summation, thus on the CPU.
"""

import torch
from torch.utils._pytree import tree_map

ULPS = 16  # errors of one rounding each that may meet in one sum


def in_float64(value):
    """Floating-point tensors of a nested value as copies in float64."""
    return tree_map(
        lambda t: t.detach().double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, value
    )


def assert_rounding(got, eager, exact, size=None, message=""):
    """Raises unless got is as good an approximation of exact as a summation in got's dtype can be expected to give.

    Args: got, eager: results of one shape in one dtype; exact: the same in float64; size: per element the sum of the
        sizes of what was added up, in float64 (None: the largest element of exact stands for all of them).
    """
    assert got.shape == eager.shape == exact.shape and got.dtype == eager.dtype, message
    assert torch.equal(got.isfinite(), eager.isfinite()), message
    if not exact.numel():
        return
    finite = exact.isfinite() & got.isfinite()
    exact, wrong = exact[finite], (got.double()[finite] - exact[finite]).abs()
    if not exact.numel():
        return
    size = exact.abs().max() if size is None else size[finite]
    allowed = ULPS * torch.finfo(got.dtype).eps * size + 2 * (eager.double()[finite] - exact).abs().max()
    bad = int((wrong > allowed).sum())
    assert not bad, (
        f"{bad} of {wrong.numel()} elements are off by up to {wrong.max():.2e}, more than rounding explains\n{message}"
    )
