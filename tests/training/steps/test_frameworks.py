"""Models and frameworks as their users train them: whole steps of known models, transformers' Trainer, DistributedDataParallel."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

import magneto
from support import counts
from training import assert_same_on_both_ranks

pytestmark = pytest.mark.model


def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    size = {"n_layer": 2, "n_head": 2, "n_embd": 32, "vocab_size": 100, "n_positions": 32}
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**size, **off, bos_token_id=0, eos_token_id=0))


def tokens(n):
    g = torch.Generator().manual_seed(1)
    x = torch.randint(0, 100, (n, 16), generator=g)
    x[:, 1::2] = x[:, 0::2]
    return x


def images(n):
    g = torch.Generator().manual_seed(1)
    return [
        (torch.randn(8, 3, 32, 32, generator=g), torch.randint(0, 10, (8,), generator=g)) for _ in range(n)
    ]


def vision(name):
    import torchvision

    torch.manual_seed(0)
    if name == "densenet":
        return torchvision.models.DenseNet(
            growth_rate=8, block_config=(2, 3, 2), num_init_features=16, num_classes=10
        )
    return torchvision.models.resnet18(num_classes=10)


def train(m, opt, loss, batches, compiled):
    def step(b):
        opt.zero_grad()
        out = loss(m, b)
        out.backward()
        opt.step()
        return out.detach()

    f = magneto.compile(step) if compiled else step
    return m, [f(b) for b in batches]


def whole_step(make, optimizer, loss, batches, rtol):
    magneto.reset()
    runs = []
    for compiled in (False, True):
        m = make().train()
        runs.append(train(m, optimizer(m.parameters()), loss, batches, compiled))
    (m1, l1), (m2, l2) = runs
    torch.testing.assert_close(torch.stack(l2), torch.stack(l1), rtol=rtol, atol=rtol)
    for p, q in zip(m1.parameters(), m2.parameters()):
        assert (p.grad is None) == (q.grad is None)
    s = counts()
    assert s.graphs == 2 and s.recompiles == 1 and not s.reasons and not s.fallbacks, s
    return m1, m2


def test_gpt2_with_adamw():
    def loss(m, b):
        return m(input_ids=b, labels=b).loss

    def adamw(p):
        return torch.optim.AdamW(p, lr=1e-3)

    a, b = whole_step(gpt2, adamw, loss, list(tokens(40).split(4)), 1e-4)
    for p, q in zip(a.parameters(), b.parameters()):
        torch.testing.assert_close(p, q, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("name", ["resnet18", "densenet"])
def test_convolution_networks(name):
    """Batch norms amplify rounding from step to step: the first steps are compared."""

    def loss(m, b):
        return F.cross_entropy(m(b[0]), b[1])

    def optimizer(p):
        if name == "densenet":
            return torch.optim.Adam(p, lr=1e-4)
        return torch.optim.SGD(p, lr=1e-3, momentum=0.9, weight_decay=1e-4)

    a, b = whole_step(lambda: vision(name), optimizer, loss, images(3), 2e-2)
    for p, q in zip(a.buffers(), b.buffers()):
        torch.testing.assert_close(p, q, rtol=5e-2, atol=5e-3)


class Tokens(torch.utils.data.Dataset):
    def __init__(self):
        self.x = tokens(64)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return {"input_ids": self.x[i], "labels": self.x[i]}


def test_trainer(tmp_path):
    from transformers import Trainer, TrainingArguments

    magneto.reset()
    curves = []
    for compiled in (False, True):
        m = gpt2()
        args = TrainingArguments(
            output_dir=str(tmp_path), max_steps=12, per_device_train_batch_size=4, logging_steps=1, report_to=[], save_strategy="no",
            use_cpu=True, disable_tqdm=True, learning_rate=1e-3,
        )  # fmt: skip
        trainer = Trainer(model=magneto.compile(m) if compiled else m, args=args, train_dataset=Tokens())
        trainer.train()
        curves.append([h["loss"] for h in trainer.state.log_history if "loss" in h])
    assert len(curves[0]) == 12 and curves[0][-1] < curves[0][0]
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=1e-4, atol=1e-4)
    s = counts()
    assert s.graphs == 1 and not s.reasons and not s.fallbacks, s


@pytest.mark.parametrize("workers", [0, 2])
def test_loop_with_a_data_loader(workers):
    magneto.reset()
    curves = []
    for compiled in (False, True):
        m = gpt2()
        opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 16)
        loader = torch.utils.data.DataLoader(Tokens(), 4, num_workers=workers)
        step = magneto.compile(m) if compiled else m
        curve = []
        for b in loader:
            opt.zero_grad()
            loss = step(**b).loss
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            opt.step()
            sched.step()
            curve.append(loss.item())
        curves.append(curve)
    torch.testing.assert_close(torch.tensor(curves[1]), torch.tensor(curves[0]), rtol=1e-4, atol=1e-4)
    assert counts().graphs == 1


# ---- long runs: in float64, so that rounding has not grown into another curve ----


class Classifier(nn.Module):
    """A narrow resnet18 as Trainer wants its models."""

    def __init__(self):
        super().__init__()
        from timm.models.resnet import BasicBlock, ResNet

        torch.manual_seed(0)
        self.net = ResNet(BasicBlock, [2, 2, 2, 2], num_classes=10, channels=(8, 16, 32, 64))

    def forward(self, pixels, labels):
        logits = self.net(pixels)
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(2)
        self.y = torch.randint(0, 10, (64,), generator=g)
        self.x = torch.randn(64, 3, 32, 32, generator=g).double() + self.y.view(-1, 1, 1, 1) / 5

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"pixels": self.x[i], "labels": self.y[i]}


LONG = {
    "gpt2": (lambda: gpt2().double(), Tokens, 300),
    "resnet18": (lambda: Classifier().double(), Pictures, 200),
}


@pytest.fixture
def one_thread():
    """Small ops: a team costs more than it saves."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def same_curves(curves, steps):
    eager, mine = (torch.tensor(c) for c in curves)
    assert len(eager) == steps and eager[-20:].mean() < 0.8 * eager[:20].mean()
    torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", LONG)
def test_hundreds_of_steps_of_a_loop(name, one_thread):
    make, data, steps = LONG[name]
    magneto.reset()
    curves = []
    for compiled in (False, True):
        m = make().train()
        opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
        step = magneto.compile(m) if compiled else m
        g = torch.Generator().manual_seed(3)
        curve = []
        while len(curve) < steps:
            for b in torch.utils.data.DataLoader(data(), 8, shuffle=True, generator=g):
                opt.zero_grad()
                loss = step(**b)["loss"]
                loss.backward()
                nn.utils.clip_grad_norm_(m.parameters(), 1.0)
                opt.step()
                sched.step()
                curve.append(loss.item())
        curves.append(curve[:steps])
    same_curves(curves, steps)
    s = counts()
    assert s.graphs == 1 and not s.reasons and not s.fallbacks, s


@pytest.mark.parametrize("name", LONG)
def test_hundreds_of_steps_of_a_trainer(name, tmp_path, one_thread):
    from transformers import Trainer, TrainingArguments

    make, data, steps = LONG[name]
    magneto.reset()
    curves = []
    for compiled in (False, True):
        m = make()
        args = TrainingArguments(
            output_dir=str(tmp_path), max_steps=steps, per_device_train_batch_size=8, logging_steps=1, report_to=[], save_strategy="no",
            use_cpu=True, disable_tqdm=True, learning_rate=1e-3, logging_nan_inf_filter=False,
        )  # fmt: skip
        trainer = Trainer(model=magneto.compile(m) if compiled else m, args=args, train_dataset=data())
        trainer.train()
        curves.append([h["loss"] for h in trainer.state.log_history if "loss" in h])
    same_curves(curves, steps)
    s = counts()
    assert s.graphs == 1 and not s.reasons and not s.fallbacks, s


# ---- two processes ----


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.trunk, self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x, flag):
        x = self.trunk(x).relu()
        return self.a(x) if flag else self.b(x)


def ddp_train(kind, rank, compiled):
    from torch.nn.parallel import DistributedDataParallel as DDP

    wrap = magneto.compile if compiled else (lambda f: f)
    m = Branches()
    unused = {"find_unused_parameters": True}
    if kind == "inside":
        f = d = DDP(wrap(m), **unused)
    elif kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (2,))
        for part in (m.trunk, m.a, m.b, m):
            fully_shard(part, mesh=mesh)
        f, d = wrap(m), None
    else:
        d = DDP(m, bucket_cap_mb=0.0005, **unused)
        f = wrap(d)
    opt = torch.optim.Adam(m.parameters(), lr=0.01)
    g = torch.Generator().manual_seed(rank + 5)
    for i in range(8):
        x, y = torch.randn(8, 8, generator=g), torch.randint(0, 4, (8,), generator=g)
        if i % 4 == 3 and d is not None:
            with d.no_sync():
                F.cross_entropy(f(x, True), y).backward()
            continue
        F.cross_entropy(f(x, i % 2 == 0), y).backward()
        opt.step()
        opt.zero_grad()
    return [(p.full_tensor() if kind == "fsdp" else p).detach().clone() for p in m.parameters()]


def ddp_worker(rank, file):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    for kind in ("inside", "outside", "fsdp"):
        magneto.reset()
        want, got = ddp_train(kind, rank, False), ddp_train(kind, rank, True)
        s = counts()
        assert not s.fallbacks and s.graphs, (kind, s)
        assert_same_on_both_ranks(want, got)
    dist.destroy_process_group()


def test_data_parallel(tmp_path):
    """The same parameters on both ranks as eager: a compiled module inside and around the wrapper, unused parameters, no_sync."""
    if not dist.is_available() or not dist.is_gloo_available():
        pytest.skip("torch without gloo")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    torch.multiprocessing.spawn(ddp_worker, (str(tmp_path / "store"),), nprocs=2)
