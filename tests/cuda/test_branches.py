"""Products that run beside others in a CUDA graph: the same numbers at every replay, and eager's."""

import copy

import pytest
import torch
from torch import nn

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


class Attending(nn.Module):
    def __init__(self, width=256):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (f(y).unflatten(-1, (4, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.out(y)
        return x + self.mlp(x)


def convolutions():
    return nn.Sequential(
        nn.Conv2d(8, 32, 3, padding=1),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1, bias=False),
        nn.ReLU(),
        nn.Conv2d(32, 16, 1),
    )


MODELS = {
    "linear": (
        lambda: nn.Sequential(*[m for _ in range(5) for m in (nn.Linear(256, 256), nn.ReLU())]),
        (512, 256),
    ),
    "attention": (lambda: nn.Sequential(*[Attending() for _ in range(3)]), (4, 128, 256)),
    "convolutions": (convolutions, (8, 8, 32, 32)),
}


def gradients(f, model, x):
    """The loss and all gradients of one call."""
    model.zero_grad()
    loss = f(x).square().mean()
    loss.backward()
    return [loss.detach(), *[p.grad.clone() for p in model.parameters()]]


@pytest.fixture
def beside(capfd):
    """How many calls the graphs that were captured so far have beside others."""
    magneto._magneto.set_logs("plan")

    def count():
        lines = capfd.readouterr().err.splitlines()
        return sum(int(line.split(" kernels, ")[1].split()[0]) for line in lines if "is captured" in line)

    yield count
    magneto._magneto.set_logs("")


@pytest.mark.parametrize("name", MODELS)
def test_gradients(name, beside):
    torch.manual_seed(0)
    make, size = MODELS[name]
    model = make().cuda()
    other = copy.deepcopy(model)
    compiled = magneto.compile(other)
    inputs = [torch.randn(size, device="cuda") for _ in range(3)]
    first = [gradients(compiled, other, x) for x in inputs]  # step by step, then captured
    for _ in range(20):
        for x, wanted in zip(inputs, first, strict=True):
            got = gradients(compiled, other, x)
            for a, b in zip(got, wanted, strict=True):
                torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)
    for x, wanted in zip(inputs, first, strict=True):
        for a, b in zip(gradients(model, model, x), wanted, strict=True):
            torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-5)
    assert beside() > 0


def test_steps_on_two_streams(beside):
    """Each stream has its own side stream, so that their libraries share no memory."""
    torch.manual_seed(0)
    make, size = MODELS["linear"]
    models = [make().cuda() for _ in range(2)]
    others = copy.deepcopy(models)
    streams = [torch.cuda.Stream() for _ in range(2)]
    x = torch.randn(size, device="cuda")
    torch.cuda.synchronize()

    def step(model, x):
        loss = model(x).square().mean()
        for p, g in zip(model.parameters(), torch.autograd.grad(loss, list(model.parameters())), strict=True):
            p.data.add_(g, alpha=-0.1)
        return loss

    steps = [magneto.compile(lambda x, m=m: step(m, x)) for m in others]
    for _ in range(30):
        for compiled, stream in zip(steps, streams, strict=True):
            with torch.cuda.stream(stream):
                compiled(x)
    torch.cuda.synchronize()
    for model in models:
        for _ in range(30):
            step(model, x)
    for a, b in zip(models, others, strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            torch.testing.assert_close(q, p, rtol=1e-3, atol=1e-5)
    assert beside() > 0


def test_memory_is_flat():
    torch.manual_seed(0)
    make, size = MODELS["attention"]
    model = make().cuda()
    compiled = magneto.compile(model)
    x = torch.randn(size, device="cuda")
    for _ in range(6):
        gradients(compiled, model, x)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    for _ in range(50):
        gradients(compiled, model, x)
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() <= before
