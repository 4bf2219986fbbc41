"""Tensors on a GPU, and comparison with eager where TF32 may differ."""

import torch


def rnd(*size, dtype=torch.float32):
    return torch.randn(*size, device="cuda", dtype=dtype)


def close(got, want):
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3, equal_nan=True)
