"""Products with weights of four bits: every layout of ATen's, vector level and number of rows."""

import os
import subprocess
import sys

import pytest

PROGRAM = """
import torch, magneto
torch.manual_seed(0)
aten = torch.ops.aten
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for n, k, group in ((16, 32, 32), (48, 64, 64), (64, 512, 128), (208, 1600, 32), (320, 96, 32)):
        weights = torch.randint(0, 16, (n, k), dtype=torch.int32)
        packed = aten._convert_weight_to_int4pack_for_cpu(weights, 1)
        terms = torch.randn(k // group, n, 2, dtype=dtype)
        magneto.reset()
        f = magneto.compile(lambda x, w, t: aten._weight_int4pack_mm_for_cpu(x, w, group, t).relu(), fullgraph=True)
        scale, zero = (terms[:, :, i].double().repeat_interleave(group, 0) for i in range(2))
        exact = (weights.t().double() - 8) * scale + zero
        for rows in (3, 1, 2, 5, 8, 9, 40):
            x = torch.randn(rows, k, dtype=dtype)
            got, want = f(x, packed, terms), (x.double() @ exact).relu()
            assert got.dtype == dtype and got.is_contiguous()
            assert (got.double() - want).abs().max() <= want.max() * max(2e-6, torch.finfo(dtype).eps)
"""

PLACES = [
    {},
    {"MAGNETO_CPU": "x86-64-v3"},
    {"MAGNETO_CPU": "x86-64-v2"},
    {"ATEN_CPU_CAPABILITY": "avx2"},
    {"ATEN_CPU_CAPABILITY": "default"},
]


@pytest.mark.parametrize("place", PLACES, ids=str)
def test_products_with_weights_of_four_bits(place: dict[str, str]) -> None:
    env = {**os.environ, **place, "OMP_NUM_THREADS": "2", "MAGNETO_LOGS": "plan"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "direct.int4" in done.stderr
