"""Networks of published sizes with random weights: what the tables of CPU and GPU share.

They are in eval mode where nothing else is said.  Small models are in families.py and models.py.
"""

from __future__ import annotations

import torch


class Classifier(torch.nn.Module):
    """A network and its cross-entropy loss."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, target):
        return torch.nn.functional.cross_entropy(self.net(x), target)


class LanguageModel(torch.nn.Module):
    """A network and the loss of predicting its own input."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, ids):
        return self.net(input_ids=ids, labels=ids).loss


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=1e-4)


def vision(name: str):
    import torchvision

    return getattr(torchvision.models, name)().eval()


def vit():
    import timm

    return timm.create_model("vit_base_patch16_224").eval()


def bert():
    import transformers

    return transformers.BertModel(transformers.BertConfig()).eval()


def bert_with_loss(dropout: float = 0):
    """In train mode."""
    import transformers

    config = transformers.BertConfig(hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout)
    return LanguageModel(transformers.BertForMaskedLM(config)).train()


def gpt2():
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config()).eval()


def gpt2_with_loss(dropout: float = 0):
    """In train mode."""
    import transformers

    config = transformers.GPT2Config(resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout)
    return LanguageModel(transformers.GPT2LMHeadModel(config)).train()


def llama():
    """134 million parameters."""
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=12,
        num_attention_heads=12,
        vocab_size=32000,
    )
    return transformers.LlamaForCausalLM(config).eval()


def tiny(x, y):
    return torch.sin(x) + torch.cos(y)


def pointwise(x, y):
    return torch.nn.functional.gelu(x * y + 1).sin().sum(-1)
