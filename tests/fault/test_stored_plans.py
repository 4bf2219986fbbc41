"""Plans on disk: a graph that was compiled before is loaded, any other one is not taken for it, and damaged files are compiled anew."""

import os
import subprocess
import sys

START = """
import gc, glob, os, warnings
import torch, magneto
from magneto import _magneto

torch.set_num_threads(1)
folder = os.environ["MAGNETO_CACHE_DIR"]

def files(kind):
    return sorted(glob.glob(os.path.join(folder, "*." + kind)))

def forget():
    magneto.reset()
    gc.collect()
    _magneto.kernel_cache_clear()

def counts():
    info = _magneto.kernel_cache_info()
    return info["plans_loaded"], info["plans_saved"]

def deep(x, w, step=lambda y: y.sin() * 0.5 + y.cos()):
    for _ in range(8):
        x = step(x) + w
    return x

def call(f, *args):
    # Results in a fresh compiler, and how many plans were loaded and saved.
    forget()
    before = counts()
    args = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    result = magneto.compile(f)(*args)
    after = counts()
    return result, tuple(b - a for a, b in zip(before, after))

x, w = torch.randn(6, 6), torch.randn(6)
"""

VARIANTS = (
    START
    + """
def variants():
    yield deep, x, w
    yield lambda x, w: deep(x, w) * 2, x, w
    yield lambda x, w: deep(x, w) * 3, x, w
    yield lambda x, w: deep(x, w) * 3.0000000000000004, x, w
    yield deep, x.double(), w
    yield deep, x.t(), w
    yield deep, x[:4], w
    yield deep, x, torch.randn(1)
    yield lambda x, w: deep(x, w).sum(0), x, w
    yield lambda x, w: deep(x, w).sum(1), x, w
    yield lambda x, w: deep(x, w).sum(1, keepdim=True), x, w
    yield lambda x, w: torch.nn.functional.gelu(deep(x, w)), x, w
    yield lambda x, w: torch.nn.functional.gelu(deep(x, w), approximate="tanh"), x, w
    yield lambda x, w: deep(x, w).amax(0), x, w
    yield lambda x, w: deep(x, w).amin(0), x, w
    yield lambda x, w: (deep(x, w), x.t()), x, w
    yield lambda x, w: (deep(x, w), w.view(2, 3)), x, w
    yield lambda x, w: x.copy_(deep(x, w)), x, w
    yield lambda x, w: w.copy_(deep(x, w)[0]), x, w
    yield lambda x, w: torch.linalg.cholesky(deep(x, w) @ deep(x, w).t() + 9 * torch.eye(6)), x, w
    yield lambda x, w: deep(x, w) @ x, x, w
    yield lambda x, w: deep(x, w) @ x.t(), x, w
    yield lambda x, w: deep(x, w)[torch.arange(5, -1, -1)], x, w
    yield lambda x, w: deep(x, w).masked_fill(torch.ones(6, 6).tril() == 0, -1.0), x, w
    yield lambda x, w: deep(x, w).masked_fill(torch.ones(6, 6).triu() == 0, -1.0), x, w
    yield lambda x, w: deep(x, w).to(torch.float16), x, w
    yield lambda x, w: deep(x, w).to(torch.bfloat16), x, w

def check(f, *args):
    got, made = call(f, *args)
    want = f(*[a.clone() for a in args])
    torch.testing.assert_close(got, want)
    if isinstance(got, torch.Tensor):
        assert got.stride() == want.stride()
    return made

each = list(variants())
for i, (f, *args) in enumerate(each):
    made = check(f, *args)
    assert made[1] >= 1, (i, made)  # no other graph's plan was taken
for i, (f, *args) in enumerate(each):
    made = check(f, *args)
    assert made[0] >= 1 and made[1] == 0, (i, made)
"""
)

KINDS = (
    START
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.ModuleList(torch.nn.Conv2d(4, 4, 3, padding=1, stride=1 + i // 3) for i in range(4))
        self.norm = torch.nn.ModuleList(torch.nn.BatchNorm2d(4) for _ in range(4))
        self.drop = torch.nn.Dropout(0.3)
        self.out = torch.nn.Linear(4, 3)
    def forward(self, x):
        for conv, norm in zip(self.conv, self.norm):
            x = self.drop(torch.relu(norm(conv(x))))
        return self.out(x.mean((2, 3)))

def step(run, net, x):
    net.zero_grad()
    torch.manual_seed(1)
    out = run(x)
    out.square().sum().backward()
    return [out] + [p.grad for p in net.parameters()] + list(net.buffers())

import copy
image, start = torch.randn(2, 4, 9, 9), Net()
saved = []
for again in range(3):
    forget()
    net, twin = copy.deepcopy(start), copy.deepcopy(start)
    before = counts()
    run = magneto.compile(net)
    for _ in range(2):
        torch.testing.assert_close(step(run, net, image), step(twin, twin, image))
    saved.append(tuple(b - a for a, b in zip(before, counts())))
assert saved[0][1] == 2 and saved[1] == saved[2] == (2, 0), saved  # forward and backward

pick = lambda x, i: deep(x, x[0])[i]
for again in range(2):
    result, made = call(pick, x, torch.tensor([1, 5]))
    torch.testing.assert_close(result, pick(x, torch.tensor([1, 5])))
    assert made == ((0, 1), (1, 0))[again], made
    try:
        magneto.compile(pick)(x, torch.tensor([1, 6]))  # the stored plan's checks
    except IndexError as e:
        assert "out of" in str(e)
    else:
        raise AssertionError("no IndexError")

_, made = call(lambda x: x + 1, x)
assert made == (0, 0)  # not worth a file
"""
)

DAMAGE = (
    START
    + """
want = deep(x, w)
def run():
    got, made = call(deep, x, w)
    torch.testing.assert_close(got, want)
    return made

assert run() == (0, 1) and run() == (1, 0)
(plan,), (object,) = files("plan"), files("o")
good = open(plan, "rb").read()
for at in [0, 8, 16, 24, 32, *range(40, len(good), len(good) // 12)]:  # a wrong byte anywhere
    with open(plan, "wb") as f:
        f.write(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1:])
    assert run() == (0, 1), at
    assert open(plan, "rb").read() == good
for n in (0, 1, 40, 200, len(good) - 8, len(good) - 1):
    with open(plan, "wb") as f:
        f.write(good[:n])
    assert run() == (0, 1), n
with open(plan, "ab") as f:
    f.write(b"more")
assert run() == (0, 1)

other, made = call(lambda x, w: deep(x, w) - 1, x, w)  # a whole file, of another graph
assert made == (0, 1)
(wrong,) = set(files("plan")) - {plan}
os.replace(wrong, plan)
assert run() == (0, 1)

os.unlink(object)  # its kernels are gone
assert run() == (0, 1) and object in files("o") and run() == (1, 0)
with open(object, "r+b") as f:
    f.truncate(100)
assert run() == (0, 1) and run() == (1, 0)
"""
)

READ = (
    START
    + """
got, made = call(deep, x.fill_(0.3), w.fill_(0.1))
torch.testing.assert_close(got, deep(x, w))
print(*made)
"""
)


def run(code, folder, **env):
    os.chmod(folder, 0o700)
    env = {**os.environ, "MAGNETO_STRICT": "1", "MAGNETO_CACHE": "1", "MAGNETO_CACHE_DIR": str(folder), **env}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_graphs_that_differ_have_plans_of_their_own(tmp_path):
    run(VARIANTS, tmp_path)


def test_training_and_checks(tmp_path):
    run(KINDS, tmp_path)


def test_damaged_files(tmp_path):
    run(DAMAGE, tmp_path)


def test_other_processes(tmp_path):
    assert run(READ, tmp_path) == "0 1\n"
    assert run(READ, tmp_path) == "1 0\n"
    assert run(READ, tmp_path, MAGNETO_ONEDNN="none") == "1 0\n"
    assert run(READ.replace("set_num_threads(1)", "set_num_threads(2)"), tmp_path) == "0 1\n"
    assert run(READ, tmp_path, MAGNETO_CACHE="0") == "0 0\n"
