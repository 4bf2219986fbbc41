"""Samples of torch's operator database on a GPU, forward and backward, like eager."""

import pytest
import torch

from tests.ops import sweep

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")

SAMPLES = 2
CRASHES = "eager's kernel reads beyond its operands"
SKIPPED = {"nn.functional.adaptive_max_pool2d": CRASHES, "nn.functional.adaptive_max_pool3d": CRASHES}
UNINITIALISED = "its second half of results is uninitialised memory"
DIFFERENT = {
    "_softmax_backward_data": "eager wants both operands to have one dtype",
    "nn.functional.scaled_dot_product_attention": UNINITIALISED,
    "torch.ops.aten._efficient_attention_forward": UNINITIALISED,
    "torch.ops.aten._flash_attention_forward": UNINITIALISED,
}


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Convolutions without TF32 (torch.testing allows no other way to say it), and small graphs compiled at once."""
    monkeypatch.setenv("MAGNETO_TRIALS", "0")
    monkeypatch.setattr(sweep, "DEVICE", "cuda")
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


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
