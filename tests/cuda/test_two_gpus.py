"""Two GPUs: compiled functions on either, models over both, and data-parallel training over NCCL."""

import copy
import os
import socket
import threading

import pytest
import torch
import torch.distributed as dist

import magneto

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs")


def network(device):
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(288, 10),
    ).to(device)


@pytest.mark.parametrize("first", [0, 1])
def test_either(first):
    model = network("cpu")
    for index in (first, 1 - first, first):
        here = copy.deepcopy(model).to(f"cuda:{index}").eval()
        compiled = magneto.compile(here)
        x = torch.randn(4, 3, 8, 8, device=f"cuda:{index}")
        for _ in range(4):
            got = compiled(x)
        assert got.device == x.device
        torch.testing.assert_close(got, here(x), rtol=1e-4, atol=1e-4)
        assert torch.cuda.current_device() == 0


def test_one_function_on_both():
    function = magneto.compile(lambda x: (x.sin() * 2).sum(0))
    for index in (0, 1, 1, 0, 0, 1, 1):
        x = torch.randn(64, 100, device=f"cuda:{index}")
        torch.testing.assert_close(function(x), (x.sin() * 2).sum(0))


def test_current_device():
    function = magneto.compile(lambda n: torch.arange(5, device="cuda") * n)
    for index in (0, 1, 0, 1, 1):
        with torch.cuda.device(index):
            got = function(3)
        assert got.device.index == index
        assert got.tolist() == [0, 3, 6, 9, 12]


class OverBoth(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.Linear(16, 32).to("cuda:0")
        self.second = torch.nn.Linear(32, 4).to("cuda:1")

    def forward(self, x):
        return self.second(self.first(x).relu().to("cuda:1")).tanh()


def test_model_over_both():
    model = OverBoth()
    twin = copy.deepcopy(model)
    compiled = magneto.compile(model)
    x = torch.randn(8, 16, device="cuda:0")
    for _ in range(4):
        got, wanted = compiled(x), twin(x)
        torch.testing.assert_close(got, wanted)
        got.square().sum().backward()
        wanted.square().sum().backward()
    for p, q in zip(model.parameters(), twin.parameters()):
        torch.testing.assert_close(p.grad, q.grad)


def test_threads_on_their_own_devices():
    function = magneto.compile(lambda x, w: (x @ w).relu() + 1)
    failures = []

    def work(index):
        try:
            torch.manual_seed(index)
            x, w = (torch.randn(32, 32, device=f"cuda:{index}") for _ in range(2))
            for _ in range(30):
                torch.testing.assert_close(function(x, w), (x @ w).relu() + 1)
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=work, args=(i % 2,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def train(wrap, rank, steps=6):
    """Parameters after some steps of data-parallel training."""
    model = wrap(network(f"cuda:{rank}"))
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    torch.manual_seed(100 + rank)
    for _ in range(steps):
        x = torch.randn(8, 3, 8, 8, device=f"cuda:{rank}")
        target = torch.randint(10, (8,), device=f"cuda:{rank}")
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
    return [p.detach().clone() for p in model.parameters()]


def data_parallel(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    parallel = torch.nn.parallel.DistributedDataParallel
    wanted = train(lambda m: parallel(m, device_ids=[rank]), rank)
    wraps = [
        lambda m: parallel(magneto.compile(m), device_ids=[rank]),
        lambda m: magneto.compile(parallel(m, device_ids=[rank])),
    ]
    for wrap in wraps:
        got = train(wrap, rank)
        for g, w in zip(got, wanted):
            torch.testing.assert_close(g, w, rtol=1e-3, atol=1e-4)
        other = [torch.empty_like(g) for g in got]
        for g, o in zip(got, other):
            o.copy_(g)
            dist.broadcast(o, 0)
            assert torch.equal(o, g)  # both ranks have the same
    dist.destroy_process_group()


def test_data_parallel():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    torch.multiprocessing.spawn(data_parallel, (port,), 2)
