"""accelerate compiles with magneto by name: its plugin, whole models and repeated blocks."""

import pytest
import torch

import magneto
from tests.support.counts import assert_counts

accelerate = pytest.importorskip("accelerate")
pytestmark = pytest.mark.model


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(8), torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Stack(torch.nn.Module):
    def __init__(self, blocks=4):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(4, 8)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(blocks))
        self.last = torch.nn.Linear(8, 2)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x)


def train(regions=None):
    """Weights after four steps; regions None: eager, else accelerate's use_regional_compilation."""
    options = {}
    if regions is not None:
        options["dynamo_plugin"] = accelerate.utils.TorchDynamoPlugin(
            backend="magneto", use_regional_compilation=regions
        )
    accelerator = accelerate.Accelerator(cpu=True, **options)
    model = Stack()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    prepared, optimizer = accelerator.prepare(model, optimizer)
    torch.manual_seed(1)
    for _ in range(4):
        optimizer.zero_grad()
        accelerator.backward(prepared(torch.randn(6, 4)).square().mean())
        optimizer.step()
    assert accelerator.unwrap_model(prepared, keep_torch_compile=False) is model
    return [p.detach().clone() for p in model.parameters()]


@pytest.fixture(autouse=True)
def fresh_state():
    yield
    accelerate.state.AcceleratorState._reset_state(True)


# Regions: each block, the layer before them and the layer after them is a graph.
@pytest.mark.parametrize("regions, graphs", [(False, 1), (True, 6)])
def test_plugin(regions, graphs):
    expected = train()
    accelerate.state.AcceleratorState._reset_state(True)
    magneto.reset()
    with magneto.install():
        got = train(regions)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert_counts(graphs=graphs, breaks=0)


@pytest.mark.parametrize("name", ["compile_regions", "compile_regions_fsdp2"])
def test_regions(name):
    compile_regions = getattr(accelerate.utils.other, name)
    model, x = Stack(blocks=6).eval(), torch.randn(3, 4)
    expected = model(x).detach()
    with magneto.install(), torch.no_grad():
        compiled = compile_regions(model, backend="magneto", fullgraph=True)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), expected)
    assert_counts(graphs=8, breaks=0)
