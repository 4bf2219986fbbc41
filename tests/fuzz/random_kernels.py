"""Random kernels for a GPU, which run on the PTX machine: no GPU is needed.

A random model is recorded with its gradients, or compiled with sizes that are symbols, and moved to a GPU as text.
Its kernels run beside the reference evaluator, over random numbers.
Sizes are such that vectors, tiles, teams of threads and long rows occur.
"""

import math
import os
import random
import re
import subprocess
import tempfile
import warnings

import torch

import graphs
import judge
import magneto
import random_graphs
import random_models
from magneto import _magneto
from random_graphs import MGOPT, UNSUPPORTED, Graph, smaller

LOGGED = "[magneto functional] "

SIZES = [1, 2, 5, 8, 31, 32, 33, 48, 64, 100, 128, 257, 1024, 3000]
MOST = 1 << 17  # elements of one value: the machine takes some 50 ns for an instruction of a thread
PASSES = ["-functionalize", "-dce", "-decompose", "-simplify", "-layout", "-dce", "-ptx-run"]
OFFSET = r"\+\w+(?:\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))?"
TYPE = re.compile(rf"((?:{'|'.join(graphs.BY_NAME)})\[[^\]]*\](?:{{[^}}]*}})?(?:{OFFSET})?)")
FACTORY = re.compile(
    r"aten::(?:full|zeros|ones|empty|empty_strided|arange|eye|rand|randn|randint|randperm|scalar_tensor|linspace"
    r"|logspace|tril_indices|triu_indices)(?:\.\w+)?\("
)


def on_gpu(text):
    """The text of the same program on a GPU."""
    moved = []
    for line in text.splitlines():
        head, mark, types = line.rpartition(" : ") if " : " in line else line.partition("= input ")
        if mark and types:
            head = head.replace("device=device(cpu)", "device=device(cuda:0)")
            if FACTORY.search(head) and "device=" not in head:
                head = head[: head.rindex(")")] + ", device=device(cuda:0))"
            line = head + mark + TYPE.sub(r"\1@cuda:0", types)
        moved.append(line)
    return "\n".join(moved) + "\n"


def numel(kind):
    return math.prod(graphs.parse_type(kind)[1])


def recorded_with_symbols(p):
    """The texts that magneto itself makes of a program whose sizes are symbols, forward and backward."""
    space = random_models.namespace(p.text())
    net = magneto.compile(space["Net"]().train(p.train), dynamic=True)
    args = space["make"](**p.calls[0])
    said = os.dup(2)
    with tempfile.TemporaryFile() as f, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.dup2(f.fileno(), 2)
        _magneto.set_logs("functional")
        try:
            out = [t for t in net(*args) if isinstance(t, torch.Tensor) and t.requires_grad]
            if out:
                torch.autograd.backward(out, [torch.ones_like(t) for t in out])
        finally:
            _magneto.set_logs("")
            os.dup2(said, 2)
            os.close(said)
            magneto.reset()
        f.seek(0)
        lines = [
            line.removeprefix(LOGGED) for line in f.read().decode().splitlines() if line.startswith(LOGGED)
        ]
    return [t.replace(" requires_grad", "") for t in "\n".join(lines).split("functional\n")[1:]]


def make(seed):
    r = random.Random(seed)
    for k in range(40):
        try:
            p = random_models.Maker(seed * 100 + k).make()
            p.calls = [{"N": r.choice(SIZES), "M": r.choice(SIZES), "n": r.choice([1, 2, 3])}]
            text, inputs = random_graphs.recorded(p)
            if any(numel(t) > MOST for t in random_graphs.types_of(text).values()):
                continue
            if r.random() < 0.4:
                return Graph(r.choice(recorded_with_symbols(p)), [], [])
            return Graph(text, inputs, [])
        except Exception:  # no program at these sizes
            continue
    raise random_models.Refused(seed)


def check(g):
    """Raises judge.Difference; returns how many texts were checked."""
    run = subprocess.run([MGOPT, *PASSES], input=on_gpu(g.text), capture_output=True, text=True, timeout=300)
    if run.returncode == 1:
        raise judge.Difference("kernel", f"{run.stdout[-2000:]}\n{on_gpu(g.text)}")
    if run.returncode and f"mgopt: {UNSUPPORTED}" not in run.stderr:
        raise judge.Difference(f"mgopt {run.returncode}", f"{run.stderr[-600:]}\n{on_gpu(g.text)}")
    return 1


def text(g, message):
    return random_graphs.text(g, message).replace("random_graphs", "random_kernels")


__all__ = ["Graph", "check", "make", "smaller", "text"]
