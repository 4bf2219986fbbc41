"""What the benchmarks run: name -> (callable, arguments), with random weights and fixed seeds.

CPU is inference, TRAIN is training.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch

from bench import networks
from bench.networks import Classifier, sgd

# torchvision's CPU wheel registers fake kernels for operators that only its C++ library defines.
if torch.version.cuda is None:
    _torchvision_ops = torch.library.Library("torchvision", "DEF")
    _torchvision_ops.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _torchvision_ops.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


@dataclasses.dataclass(frozen=True)
class Workload:
    """One row of the table.

    make() returns (callable, arguments); goal is the least wanted ratio over torch.compile.
    """

    make: Callable[[], tuple]
    goal: float | None = None
    kind: str = "model"


@dataclasses.dataclass(frozen=True)
class Training:
    """One row of the training table.

    make() returns (model, arguments, optimizer of the parameters); the model returns its loss.
    whole: forward, backward and optimizer step are one compiled function for magneto.
    """

    make: Callable[[], tuple]
    whole: bool = False
    goal: float = 1.0


def _vision(name: str):
    def make():
        torch.manual_seed(0)
        return networks.vision(name), (torch.randn(4, 3, 128, 128),)

    return make


def _bert():
    torch.manual_seed(0)
    return networks.bert(), (torch.randint(0, 30000, (1, 128)),)


def _gpt2():
    torch.manual_seed(0)
    return networks.gpt2(), (torch.randint(0, 50000, (1, 128)),)


def _vit():
    torch.manual_seed(0)
    return networks.vit(), (torch.randn(4, 3, 224, 224),)


def _pointwise():
    return networks.pointwise, (torch.randn(2048, 2048), torch.randn(2048, 2048))


def _softmax():
    return (lambda x: torch.softmax(x, -1)), (torch.randn(4096, 100),)


def _layer_norm():
    norm = torch.nn.LayerNorm(768)
    return (lambda x: norm(x)), (torch.randn(2048, 768),)


def _tiny():
    return networks.tiny, (torch.randn(10, 10), torch.randn(10, 10))


CPU = {
    "sin(x)+cos(y) 10x10": Workload(_tiny, None, "call"),
    "gelu(x*y+1).sin().sum(-1) 2048x2048": Workload(_pointwise, 1.0, "kernel"),
    "softmax 4096x100": Workload(_softmax, 1.0, "kernel"),
    "layer_norm 2048x768": Workload(_layer_norm, 1.0, "kernel"),
    "mobilenet_v2 b4x3x128x128": Workload(_vision("mobilenet_v2"), 1.5),
    "resnet18 b4x3x128x128": Workload(_vision("resnet18"), 1.3),
    "densenet121 b4x3x128x128": Workload(_vision("densenet121"), 1.4),
    "vit_base_patch16_224 b4": Workload(_vit, 1.15),
    "bert-base 1x128": Workload(_bert, 1.15),
    "gpt2 1x128": Workload(_gpt2, 1.4),
}


def _train_vision(name: str, optimizer):
    def make():
        torch.manual_seed(0)
        model = Classifier(networks.vision(name).train())
        return model, (torch.randn(4, 3, 128, 128), torch.randint(0, 1000, (4,))), optimizer

    return make


def _train_gpt2():
    torch.manual_seed(0)
    return networks.gpt2_with_loss(), (torch.randint(0, 50000, (1, 128)),), networks.adamw


def _train_mlp():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32))
    return Classifier(net), (torch.randn(8, 32), torch.randint(0, 32, (8,))), sgd


TRAIN = {
    "mlp 2x32 b8, SGD": Training(_train_mlp),
    "mlp 2x32 b8, SGD, whole step": Training(_train_mlp, whole=True),
    "resnet18 b4x3x128x128, SGD": Training(_train_vision("resnet18", sgd)),
    "resnet18 b4x3x128x128, SGD, whole step": Training(_train_vision("resnet18", sgd), whole=True),
    "densenet121 b4x3x128x128, Adam": Training(_train_vision("densenet121", torch.optim.Adam)),
    "densenet121 b4x3x128x128, Adam, whole step": Training(
        _train_vision("densenet121", torch.optim.Adam), whole=True
    ),
    "gpt2 1x128 without dropout, AdamW": Training(_train_gpt2),
    "gpt2 1x128 without dropout, AdamW, whole step": Training(_train_gpt2, whole=True),
}
