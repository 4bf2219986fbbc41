"""Whole models through the recorder, their graphs run node by node: one graph each, exactly eager's results."""

import pytest
import torch

from harness import forced_breaks
from magneto import _magneto
from support import assert_counts, assert_same

pytestmark = [pytest.mark.model, pytest.mark.filterwarnings("ignore")]


def vision(name, size=64):
    def make():
        torchvision = pytest.importorskip("torchvision")
        return getattr(torchvision.models, name)(weights=None), (torch.randn(2, 3, size, size),), {}

    return make


def text(config, model, **sizes):
    def make():
        transformers = pytest.importorskip("transformers")
        net = getattr(transformers, model)(getattr(transformers, config)(vocab_size=1000, **sizes))
        return net, (), dict(input_ids=torch.randint(0, 1000, (2, 16)))

    return make


MODELS = {
    "resnet18": vision("resnet18"),
    "densenet121": vision("densenet121"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "vit_b_16": vision("vit_b_16", 224),
    "gpt2": text("GPT2Config", "GPT2LMHeadModel", n_layer=3, n_embd=64, n_head=4),
    "bert": text(
        "BertConfig",
        "BertModel",
        num_hidden_layers=3,
        hidden_size=64,
        num_attention_heads=4,
        intermediate_size=128,
    ),
    "llama": text(
        "LlamaConfig",
        "LlamaForCausalLM",
        num_hidden_layers=2,
        hidden_size=64,
        intermediate_size=128,
        num_attention_heads=4,
    ),
}


def build(name):
    torch.manual_seed(0)
    net, args, kwargs = MODELS[name]()
    return net.eval(), args, kwargs


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode", "grad"])
@pytest.mark.parametrize("name", MODELS)
def test_one_graph(name, mode):
    net, args, kwargs = build(name)
    context = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode, "grad": torch.enable_grad}[
        mode
    ]
    with context():
        want = net(*args, **kwargs)
        compiled = _magneto.Callable(net, eager_backend=True)
        for _ in range(2):
            got = compiled(*args, **kwargs)
            assert type(got) is type(want)
            assert_same(want=dict_of(want), got=dict_of(got), rtol=1e-5, atol=1e-6)
    assert_counts(graphs=1, breaks=0, recompiles=0)


def dict_of(result):
    """Tensors of a result in order; outputs of transformers hold caches and tuples."""
    if isinstance(result, torch.Tensor):
        return [result.detach()]
    values = (
        result.values() if isinstance(result, dict) else result if isinstance(result, (list, tuple)) else ()
    )
    return [t for v in values for t in dict_of(v)]


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "bert"])
def test_forced_breaks(name):
    """A break after every few instructions of the outermost frame, and so of every frame below it."""
    net, args, kwargs = build(name)
    with torch.no_grad(), forced_breaks(7):
        want = net(*args, **kwargs)
        got = _magneto.Callable(net, eager_backend=True)(*args, **kwargs)
        assert_same(want=dict_of(want), got=dict_of(got), rtol=1e-5, atol=1e-6)


def test_training_mode_updates_buffers():
    """Batch norm's running statistics are buffers of the module: written in place by the graph."""
    torchvision = pytest.importorskip("torchvision")
    torch.manual_seed(0)
    a, b = (torchvision.models.resnet18(weights=None).train() for _ in range(2))
    b.load_state_dict(a.state_dict())
    x = torch.randn(2, 3, 64, 64)
    compiled = _magneto.Callable(b, eager_backend=True)
    for _ in range(2):
        assert_same(want=a(x).detach(), got=compiled(x).detach(), rtol=1e-5, atol=1e-6)
    for (k, v), w in zip(a.state_dict().items(), b.state_dict().values()):
        assert_same(w, v, f"{k!r}", rtol=1e-5, atol=1e-6)
