"""Mixed precision: autocast around and inside of compiled functions, GradScaler, parameters in 16 bits."""

import pytest
import torch
import torch.nn.functional as F

import magneto
from programs import Registry, grads, leaf, mlp
from support import counts

program = Registry()
LOOSE = {"rtol": 3e-2, "atol": 3e-2}
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def net():
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, padding=1),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 36, 16),
        torch.nn.LayerNorm(16),
        torch.nn.GELU(),
        torch.nn.Linear(16, 4),
    )


def each_type(f):
    for name, dtype in TYPES.items():

        def run(C, dtype=dtype):
            return f(C, dtype)

        run.__name__ = f"{f.__name__}_{name}"
        program(graphs=None, close=LOOSE)(run)
    return f


@each_type
def autocast_around(C, dtype):
    m = net()
    f = C(m)
    res = []
    for _ in range(2):
        x = leaf(2, 3, 6, 6)
        with torch.autocast("cpu", dtype):
            y = f(x)
            loss = F.cross_entropy(y, torch.tensor([1, 2]))
        m.zero_grad()
        loss.backward()
        res += [y, x.grad, list(m.buffers())]
    return [res, grads(m)]


@each_type
def autocast_inside(C, dtype):
    m = net()

    def f(x, t):
        with torch.autocast("cpu", dtype):
            y = m(x)
            loss = F.cross_entropy(y, t)
        return y, loss

    f = C(f)
    for _ in range(2):
        x = leaf(2, 3, 6, 6)
        m.zero_grad()
        y, loss = f(x, torch.tensor([1, 2]))
        loss.backward()
    return [y, loss, x.grad, grads(m)]


@each_type
def autocast_switched_off_inside(C, dtype):
    m = mlp()

    def f(x):
        y = m[0](x)
        with torch.autocast("cpu", enabled=False):
            z = m[1](y.float())
        return y, m[2](z)

    f = C(f)
    for _ in range(2):
        x = leaf(2, 4)
        with torch.autocast("cpu", dtype):
            y, z = f(x)
        m.zero_grad()
        (y.float().sum() + z.float().sum()).backward()
    return [y, z, x.grad, grads(m)]


@each_type
def backward_inside_of_autocast(C, dtype):
    m = mlp()
    f = C(m)
    x = leaf(2, 4)
    for _ in range(2):
        m.zero_grad()
        with torch.autocast("cpu", dtype):
            f(x).float().sum().backward()
    return [x.grad, grads(m)]


@each_type
def on_and_off(C, dtype):
    m = mlp()
    f = C(m)
    x = torch.randn(2, 4)
    res = []
    for on in (True, False, True):
        with torch.autocast("cpu", dtype, enabled=on):
            y = f(x)
        res.append(y)
        y.float().sum().backward()
    return [res, grads(m)]


@each_type
def parameters_in_16_bits(C, dtype):
    m = mlp().to(dtype)
    f = C(m)
    x = leaf(2, 4, dtype=dtype)
    for _ in range(2):
        y = f(x)
        y.sum().backward()
    return [y, x.grad, grads(m)]


@each_type
def attention_under_autocast(C, dtype):
    m = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    f = C(m)
    x = leaf(2, 5, 8)
    for _ in range(2):
        m.zero_grad()
        with torch.autocast("cpu", dtype):
            y = f(x)
        y.float().pow(2).sum().backward()
    return [y, x.grad, grads(m)]


@program(graphs=None, close=LOOSE)
def decorated_autocast(C):
    m = mlp()

    @torch.autocast("cpu", torch.bfloat16)
    def f(x):
        return m(x)

    y = C(f)(torch.randn(2, 4))
    y.float().sum().backward()
    return [y, grads(m)]


@program(graphs=None, close=LOOSE)
def nested_autocast(C):
    m = mlp()

    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            a = m[0](x)
            with torch.autocast("cpu", torch.float16):
                b = m[0](x)
            c = m[0](x)
        return a, b, c

    out = C(f)(leaf(2, 4))
    sum(o.float().sum() for o in out).backward()
    return [out, grads(m)]


@program(graphs=None, close=LOOSE)
def autocast_state_after_the_call(C):
    def f(x):
        on = torch.is_autocast_enabled("cpu")
        return x * 2, on, torch.get_autocast_dtype("cpu")

    f = C(f)
    res = [f(torch.ones(2))]
    with torch.autocast("cpu", torch.bfloat16):
        res.append(f(torch.ones(2)))
    return [res, torch.is_autocast_enabled("cpu")]


def scaler_loop(C, whole, steps=8):
    m = mlp()
    opt = torch.optim.SGD(m.parameters(), 0.05)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=3)

    def forward(x):
        with torch.autocast("cpu", torch.bfloat16):
            return m(x).float().pow(2).mean()

    def step(x):
        opt.zero_grad()
        loss = (f if not whole else forward)(x)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    f = C(forward)
    g = C(step) if whole else step
    losses = []
    for i in range(steps):
        x = torch.randn(4, 4)
        if i == 4:
            x[0, 0] = float("inf")  # this step is skipped and the scale shrinks
        losses.append(g(x))
    return [losses, list(m.parameters()), scaler.get_scale()]


@program(graphs=None, close=LOOSE)
def grad_scaler_outside(C):
    return scaler_loop(C, False)


@program(graphs=None, close=LOOSE)
def grad_scaler_in_the_compiled_step(C):
    return scaler_loop(C, True)


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)


@pytest.mark.parametrize("dtype", TYPES.values(), ids=TYPES)
def test_one_joint_graph(dtype):
    m = net()
    f = magneto.compile(m)
    for _ in range(2):
        with torch.autocast("cpu", dtype):
            f(torch.randn(2, 3, 6, 6)).float().sum().backward()
    s = counts()
    assert (s.graphs, s.joint_graphs, s.reasons) == (1, 1, {}), s
