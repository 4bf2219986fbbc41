"""Samples of torch's operator database on a GPU, forward and backward, like eager."""

import os

import pytest
import torch

os.environ["TEST_DEVICE"] = "cuda"  # of the samples
# TF32 before torch.testing sets modes of its own
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False

from tests.ops import sweep  # noqa: E402

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SAMPLES = 2
CRASHES = "eager's kernel reads beyond its operands"
SKIPPED = {"nn.functional.adaptive_max_pool2d": CRASHES, "nn.functional.adaptive_max_pool3d": CRASHES}
UNINITIALISED = "its second half of results is uninitialised memory"
DIFFERENT = {
    "native_batch_norm": "runs op by op",
    "_native_batch_norm_legit": "runs op by op",
    "nn.functional.scaled_dot_product_attention": UNINITIALISED,
    "torch.ops.aten._efficient_attention_forward": UNINITIALISED,
    "torch.ops.aten._flash_attention_forward": UNINITIALISED,
}


@pytest.fixture(autouse=True)
def compiled_at_once(monkeypatch):
    monkeypatch.setenv("MAGNETO_TRIALS", "0")


@pytest.mark.parametrize("kind", ["forward", "gradient"])
@pytest.mark.parametrize("op", sweep.op_db, ids=sweep.name)
def test_like_eager(op, kind, request):
    if op.name in SKIPPED:
        pytest.skip(SKIPPED[op.name])
    if op.name in DIFFERENT:
        request.applymarker(pytest.mark.xfail(reason=DIFFERENT[op.name]))
    for _, run in sweep.jobs(op, (kind,), limit=SAMPLES):
        sweep.magneto.reset()
        run()
