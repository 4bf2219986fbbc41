"""Many model families in train mode: parameters and buffers after training steps are eager's.

The default tier takes a few families; MAGNETO_MODELS=full takes all.  Steps are counted in float32 while differences cannot
have grown yet, and in float64 for long runs: a rectifier that flips on a rounding error is no difference of the program."""

import copy
import os
import random

import numpy as np
import pytest
import torch

import magneto
from bench.families import FAMILIES
from support import counts, tensors

pytestmark = pytest.mark.model
FULL = os.environ.get("MAGNETO_MODELS") == "full"
NAMES = (
    sorted(FAMILIES) if FULL else ["torchvision/mobilenet_v3_small", "transformers/GPT2", "transformers/T5"]
)
# ResNet's images leave its batch norms two values each, which makes 1e-6 of a last bit within fifty steps, in eager as well.
LONG = (
    [n for n in NAMES if n != "transformers/ResNet"]
    if FULL
    else ["transformers/" + n for n in ("Bert", "Llama", "T5", "ViT", "Mamba2")]
    + ["timm/mobilenetv3_small_050"]
)


def cast(value, dtype):
    if isinstance(value, torch.Tensor):
        return value.to(dtype) if value.is_floating_point() else value
    if isinstance(value, dict):
        return {k: cast(v, dtype) for k, v in value.items()}
    return type(value)(cast(v, dtype) for v in value) if isinstance(value, (list, tuple)) else value


def loss_of(out):
    return sum(t.pow(2).mean() for t in tensors(out) if t.requires_grad)


def train(call, model, args, kwargs, steps):
    opt = torch.optim.SGD(model.parameters(), 1e-2)
    for i in range(steps):
        torch.manual_seed(i)
        np.random.seed(i)
        random.seed(i)
        opt.zero_grad()
        loss_of(call(*args, **kwargs)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()


def check(name, steps, dtype, tolerance):
    torch.manual_seed(0)
    eager, args, kwargs = FAMILIES[name]()
    eager = eager.to(dtype).train()
    args, kwargs = cast(args, dtype), cast(kwargs, dtype)
    mine = copy.deepcopy(eager)
    train(eager, eager, args, kwargs, steps)
    before = counts()
    train(magneto.compile(mine), mine, args, kwargs, steps)
    after = counts()
    assert after.fallbacks == before.fallbacks
    assert after.joint_graphs > before.joint_graphs
    for (k, a), (_, b) in zip(mine.state_dict().items(), eager.state_dict().items(), strict=True):
        scale = max(float(b.abs().max()), 2e-2) if b.numel() and b.is_floating_point() else 1.0
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance * scale, msg=lambda m: f"{k}: {m}")
    for (k, a), (_, b) in zip(mine.named_parameters(), eager.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), k


@pytest.mark.parametrize("name", NAMES)
def test_first_steps(name):
    check(name, 2, torch.float32, 5e-3)


@pytest.mark.parametrize("name", LONG)
def test_fifty_steps(name):
    check(name, 50, torch.float64, 1e-6)
