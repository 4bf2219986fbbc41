"""Whole models from their own packages, random weights, eval mode: one graph, eager's results."""

import pytest
import torch

import magneto
from support import tensors

pytestmark = pytest.mark.model


def vision(name, size):
    def make(batch):
        import torchvision

        return getattr(torchvision.models, name)().eval(), (torch.randn(batch, 3, size, size),)

    return make


def timm_model(name, size):
    def make(batch):
        import timm

        return timm.create_model(name).eval(), (torch.randn(batch, 3, size, size),)

    return make


def bert(batch):
    import transformers

    return transformers.BertModel(transformers.BertConfig()).eval(), (torch.randint(0, 30000, (batch, 32)),)


def gpt2(batch):
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval(), (
        torch.randint(0, 50000, (batch, 32)),
    )


MODELS = {
    "resnet18": vision("resnet18", 96),
    "mobilenet_v2": vision("mobilenet_v2", 96),
    "densenet121": vision("densenet121", 96),
    "vit_base_patch16_224": timm_model("vit_base_patch16_224", 224),
    "bert": bert,
    "gpt2": gpt2,
}


def same(got, want):
    assert type(got) is type(want)
    got, want = tensors(got), tensors(want)
    assert len(got) == len(want) > 0
    for a, b in zip(got, want):
        assert a.stride() == b.stride()
        scale = float(b.abs().max()) if b.numel() else 1.0
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(scale, 1.0))


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_inference(name, batch, mode):
    if mode == "inference_mode" and batch == 4:
        pytest.skip("one batch size is enough for the second mode")
    model, args = MODELS[name](batch)
    compiled = magneto.compile(model, fullgraph=True)
    with getattr(torch, mode)():
        want = model(*args)
        for _ in range(2):
            same(compiled(*args), want)
        with torch.no_grad():  # weights are read on every call
            weight = next(p for p in model.parameters() if p.dim() > 1)
            weight.mul_(1.25)
        same(compiled(*args), model(*args))


@pytest.mark.parametrize("name", ["resnet18", "gpt2"])
def test_grad_mode(name):
    """With autograd on, results carry a right grad_fn."""
    model, args = MODELS[name](1)
    compiled = magneto.compile(model, fullgraph=True)
    want = tensors(model(*args))[0]
    got = tensors(compiled(*args))[0]
    assert got.requires_grad
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
    parameters = [p for p in model.parameters()][:3]
    expected = torch.autograd.grad(want.sum(), parameters, allow_unused=True)
    for a, b in zip(torch.autograd.grad(got.sum(), parameters, allow_unused=True), expected):
        if b is not None:
            torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-2 * float(b.abs().max()))
