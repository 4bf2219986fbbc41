"""The 71 models of the dashboard: name -> Model, with random weights and small configurations.

29 transformers, 5 shapes of language models, 18 of timm, 9 of torchvision, and 10 small programs that stress
graph breaks, containers, gradients inside of a model and sizes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

import bench.workloads  # noqa: F401  (torchvision's operators)
from bench.families import FAMILIES

WIDTH = 4  # hidden sizes of transformers: 128


@dataclasses.dataclass(frozen=True)
class Model:
    """make() returns (module, arguments, keyword arguments).

    Every tensor argument has the batch as its first dimension, but for those of `whole`: positions or names.
    sizes: the five batches that one compiled function is called with.
    """

    group: str
    make: Callable[[], tuple]
    whole: tuple = ()
    sizes: tuple = (2, 3, 4, 5, 7)


def resized(model: Model, args: tuple, kwargs: dict, batch: int) -> tuple[tuple, dict]:
    """The arguments with `batch` rows: rows are repeated or left out."""

    def part(key, value):
        if not isinstance(value, torch.Tensor) or key in model.whole or not value.dim():
            return value
        return value[torch.arange(batch) % value.shape[0]]

    return tuple(part(k, v) for k, v in enumerate(args)), {k: part(k, v) for k, v in kwargs.items()}


def _family(name: str) -> Callable[[], tuple]:
    return (lambda: FAMILIES[name](WIDTH)) if name.startswith("transformers/") else FAMILIES[name]


class Decode(nn.Module):
    """One token after keys and values of earlier ones, which are arguments: per layer keys, then values."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids, *past):
        from transformers import DynamicCache

        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        return self.net(input_ids=ids, past_key_values=cache).logits


def _decode():
    net, _, _ = FAMILIES["transformers/Llama"](WIDTH)
    config = net.config
    heads, width = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
    past = [torch.randn(2, heads, 24, width) for _ in range(2 * config.num_hidden_layers)]
    return Decode(net), (torch.randint(3, 99, (2, 1)), *past), {}


def _prompt(name: str, length: int, pad: int = 0):
    def make():
        net, _, _ = FAMILIES[f"transformers/{name}"](WIDTH)
        kwargs = {"input_ids": torch.randint(3, 99, (2, length)), "use_cache": False}
        if pad:
            kwargs["attention_mask"] = torch.ones(2, length, dtype=torch.long)
            kwargs["attention_mask"][1, :pad] = 0
        return net, (), kwargs

    return make


class GraphNetwork(nn.Module):
    """Messages along edges, attention by scatter, a readout for each node."""

    def __init__(self, width=64):
        super().__init__()
        self.inward, self.message, self.score = (
            nn.Linear(width, width),
            nn.Linear(2 * width, width),
            nn.Linear(width, 1),
        )
        self.out = nn.Linear(width, 8)

    def forward(self, x, edges):
        h = self.inward(x).relu()
        source, target = edges[0], edges[1]
        for _ in range(2):
            m = self.message(torch.cat([h[source], h[target]], -1)).relu()
            weight = self.score(m).sigmoid()
            total = torch.zeros_like(h).index_add(0, target, m * weight)
            norm = torch.zeros_like(h[:, :1]).index_add(0, target, weight)
            h = h + total / (norm + 1e-3)
        return self.out(h)


def _graph_network():
    return GraphNetwork(), (torch.randn(200, 64), torch.randint(0, 200, (2, 800))), {}


class Demucs(nn.Module):
    """Convolutions over a wave with a recurrent middle and skips that are trimmed to length."""

    def __init__(self):
        super().__init__()
        sizes = [1, 16, 32]
        self.down = nn.ModuleList(
            nn.Sequential(nn.Conv1d(a, b, 8, 4), nn.ReLU(), nn.Conv1d(b, 2 * b, 1), nn.GLU(1))
            for a, b in zip(sizes, sizes[1:], strict=False)
        )
        self.middle = nn.LSTM(32, 32, bidirectional=True)
        self.join = nn.Linear(64, 32)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(b, a, 8, 4) for a, b in zip(sizes, sizes[1:], strict=False)
        )

    def forward(self, wave):
        x, skips = wave, []
        for layer in self.down:
            x = layer(x)
            skips.append(x)
        x = self.join(self.middle(x.permute(2, 0, 1))[0]).permute(1, 2, 0)
        for layer in reversed(self.up):
            skip = skips.pop()
            x = layer(x + skip[..., : x.shape[-1]])
            if skips:
                x = F.pad(x, (0, skips[-1].shape[-1] - x.shape[-1])).relu()
        return x


class SpeechTransformer(nn.Module):
    """An encoder over padded frames: masks are made from lengths, and a list of layers is walked."""

    def __init__(self, width=64):
        super().__init__()
        self.inward = nn.Linear(20, width)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 128, dropout=0.0, batch_first=True) for _ in range(2)
        )
        self.out = nn.Linear(width, 30)

    def forward(self, frames, lengths):
        mask = torch.arange(frames.shape[1], device=frames.device)[None] >= lengths[:, None]
        x, states = self.inward(frames), []
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=mask)
            states.append(x.masked_fill(mask[..., None], 0))
        return {"scores": self.out(x).log_softmax(-1), "states": states}


class Recommender(nn.Module):
    """DLRM: embeddings of sparse features, their products with each other and with the dense ones."""

    def __init__(self, tables=6, width=16):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(100, width, mode="sum") for _ in range(tables))
        self.dense = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(nn.Linear(pairs + width, 64), nn.ReLU(), nn.Linear(64, 1))
        self.register_buffer("rows", torch.tril_indices(tables + 1, tables + 1, -1))

    def forward(self, dense, sparse):
        x = self.dense(dense)
        z = torch.stack([x] + [table(sparse[:, k]) for k, table in enumerate(self.tables)], 1)
        products = z @ z.transpose(1, 2)
        return self.top(torch.cat([x, products[:, self.rows[0], self.rows[1]]], 1)).sigmoid()


class SoftActorCritic(nn.Module):
    """Actions of a squashed normal distribution, their log probability, and the lesser of two critics."""

    def __init__(self, state=17, action=6, width=64):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(state, width), nn.ReLU(), nn.Linear(width, 2 * action))
        self.critics = nn.ModuleList(
            nn.Sequential(nn.Linear(state + action, width), nn.ReLU(), nn.Linear(width, 1)) for _ in range(2)
        )

    def forward(self, state, noise):
        mean, deviation = self.actor(state).chunk(2, -1)
        normal = torch.distributions.Normal(mean, deviation.clamp(-5, 2).exp(), validate_args=False)
        raw = normal.mean + normal.stddev * noise
        action = raw.tanh()
        log = (normal.log_prob(raw) - (1 - action**2 + 1e-6).log()).sum(-1)
        values = [critic(torch.cat([state, action], -1)) for critic in self.critics]
        return torch.minimum(*values).squeeze(-1) - 0.2 * log


class MetaLearner(nn.Module):
    """MAML: a few steps of gradient descent inside of the model, on copies of its weights."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def forward(self, x, y, query):
        with torch.enable_grad():
            weights = dict(self.net.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(torch.func.functional_call(self.net, weights, (x,)), y)
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {k: w - 0.05 * g for (k, w), g in zip(weights.items(), slopes, strict=True)}
        return torch.func.functional_call(self.net, weights, (query,))


def _block(a: int, b: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = _block(3, 16), _block(16, 32), _block(32, 64)
        self.up, self.d, self.e = nn.ConvTranspose2d(64, 32, 2, 2), _block(64, 32), _block(48, 16)
        self.out = nn.Conv2d(16, 2, 1)

    def forward(self, x):
        a = self.a(x)
        b = self.b(F.max_pool2d(a, 2))
        c = self.c(F.max_pool2d(b, 2))
        d = self.d(torch.cat([self.up(c), b], 1))
        wide = F.interpolate(d, scale_factor=2, mode="bilinear", align_corners=False)
        return self.out(self.e(torch.cat([wide, a], 1)))


def _dcgan():
    layers: list[nn.Module] = []
    for a, b, stride, padding in ((32, 64, 1, 0), (64, 32, 2, 1), (32, 16, 2, 1)):
        layers += [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
    net = nn.Sequential(*layers, nn.ConvTranspose2d(16, 3, 4, 2, 1), nn.Tanh())
    return net, (torch.randn(2, 32, 1, 1),), {}


class DataBranches(nn.Module):
    """Decides by values of tensors, which is a graph break each."""

    def __init__(self):
        super().__init__()
        self.small, self.large, self.out = nn.Linear(32, 64), nn.Linear(32, 64), nn.Linear(64, 8)

    def forward(self, x):
        h = self.small(x) if x.abs().mean() < 10 else self.large(x)
        scale = h.detach().norm().item()
        if scale > 1:
            h = h / scale
        return self.out(h.relu())


class Logging(nn.Module):
    """Counts, keeps a history of numbers and runs hooks, as research code does."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(48, 48) for _ in range(3))
        self.calls, self.history = 0, []
        for layer in self.layers:
            layer.register_forward_hook(lambda _, __, out: out * 1.0)

    def forward(self, x):
        self.calls += 1
        for layer in self.layers:
            x = torch.tanh(layer(x)) + x
        self.history.append(float(x.detach().mean()))
        del self.history[:-10]
        return x


_TRANSFORMERS = (
    "Bert Roberta Electra MPNet Deberta DebertaV2 LayoutLM ConvBert MobileBert RoFormer FNet BigBird "
    "ModernBert Albert DistilBert XLNet Longformer Funnel GPTNeo GPTJ OPT Bloom Bart Pegasus T5 "
    "SwitchTransformers ViT Wav2Vec2 Mamba"
).split()
_TIMM = (
    "vit_tiny_patch16_224 resnet26 mobilenetv3_small_050 convnext_atto mixer_s32_224 poolformer_s12 "
    "regnety_002 ghostnet_050 repvgg_a0 dla34 levit_128s pit_ti_224 xcit_nano_12_p16_224 mobilevit_xxs "
    "edgenext_xx_small cspresnet50 davit_tiny res2net50_26w_4s"
).split()
_TORCHVISION = (
    "alexnet densenet121 mobilenet_v2 mobilenet_v3_small resnet18 resnext50_32x4d shufflenet_v2_x0_5 "
    "squeezenet1_0 vgg11_bn"
).split()

MODELS: dict[str, Model] = {}
for _group, _names in (("transformers", _TRANSFORMERS), ("timm", _TIMM), ("torchvision", _TORCHVISION)):
    for _name in _names:
        MODELS[f"{_group}/{_name}"] = Model(_group, _family(f"{_group}/{_name}"))
MODELS |= {
    "language/gpt2-prompt": Model("language", _prompt("GPT2", 64)),
    "language/llama-prompt": Model("language", _prompt("Llama", 64)),
    "language/llama-token": Model("language", _decode),
    "language/qwen3-padded": Model("language", _prompt("Qwen3", 48, pad=8)),
    "language/qwen2-experts": Model("language", _prompt("Qwen2Moe", 32)),
    "programs/graph-network": Model("programs", _graph_network, whole=(1,), sizes=(200, 220, 250, 260, 300)),
    "programs/demucs": Model("programs", lambda: (Demucs(), (torch.randn(2, 1, 400),), {})),
    "programs/speech-transformer": Model(
        "programs", lambda: (SpeechTransformer(), (torch.randn(2, 50, 20), torch.tensor([50, 37])), {})
    ),
    "programs/dlrm": Model(
        "programs", lambda: (Recommender(), (torch.randn(32, 13), torch.randint(0, 100, (32, 6, 4))), {})
    ),
    "programs/sac": Model(
        "programs", lambda: (SoftActorCritic(), (torch.randn(64, 17), torch.randn(64, 6)), {})
    ),
    "programs/maml": Model(
        "programs", lambda: (MetaLearner(), (torch.randn(10, 8), torch.randn(10, 1), torch.randn(10, 8)), {})
    ),
    "programs/unet": Model("programs", lambda: (UNet(), (torch.randn(2, 3, 64, 64),), {})),
    "programs/dcgan": Model("programs", _dcgan),
    "programs/data-branches": Model("programs", lambda: (DataBranches(), (torch.randn(16, 32),), {})),
    "programs/logging": Model("programs", lambda: (Logging(), (torch.randn(16, 48),), {})),
}
