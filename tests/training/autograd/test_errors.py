"""Bad input of training programs gives eager's own errors; helpers of optimizers that keep state of their own."""

import pytest
import torch

import magneto
from programs import Registry, leaf, mlp

program = Registry()


@program(breaks=1)
def a_loss_that_is_no_scalar(C):
    m = mlp()
    return C(lambda x: m(x).backward())(torch.ones(2, 4))


@program()
def such_a_result(C):
    C(mlp())(torch.ones(2, 4)).backward()


@program(joint=0, breaks=1)
def backward_twice_inside(C):
    m = mlp()

    def step(x):
        loss = m(x).sum()
        loss.backward()
        loss.backward()

    return C(step)(torch.ones(2, 4))


@program(joint=0, breaks=1)
def a_write_between_forward_and_backward(C):
    def step(w):
        y = w.exp()
        z = y.sum()
        y.add_(1)
        z.backward()

    return C(step)(leaf(3))


@program()
def nan_in_anomaly_mode(C):
    w = torch.zeros(3, requires_grad=True)
    with torch.autograd.set_detect_anomaly(True):
        C(lambda w: (w.sqrt() * 0).sum())(w).backward()


@program(joint=0)
def the_phase_of_eigenvectors(C):
    a = leaf(3, 3, dtype=torch.float64)
    C(lambda a: torch.linalg.eig(a)[1].real.sum())(a).backward()


@program(joint=0)
def eigenvectors_whatever_their_phase(C):
    a = leaf(3, 3, dtype=torch.float64)
    C(lambda a: torch.linalg.eig(a)[1].abs().sum())(a).backward()
    return a.grad


@program(graphs=2, joint=0)
def averaged_models(C):
    from torch.optim import swa_utils

    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    opt = torch.optim.SGD(m.parameters(), 0.1)
    mean = swa_utils.AveragedModel(m)
    moving = swa_utils.AveragedModel(m, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True)

    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).sum()
        loss.backward()
        opt.step()
        moving.update_parameters(m)
        mean.update_parameters(m)
        return loss.detach()

    f = C(step)
    losses = [f(torch.randn(4, 3)) for _ in range(6)]
    return (
        losses,
        [p.detach() for p in mean.parameters()],
        list(moving.buffers()),
        [p.detach() for p in moving.parameters()],
    )


@program(graphs=None)
def a_grad_scaler_that_skips_a_step(C):
    m = torch.nn.Linear(3, 2)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)

    def step(x):
        opt.zero_grad()
        loss = m(x).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        torch.nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        return loss.detach()

    f = C(step)
    losses = [f(torch.full((4, 3), float("inf") if i == 3 else 1.0 + i)) for i in range(6)]
    return losses, [p.detach() for p in m.parameters()], scaler.get_scale()


@program(graphs=None)
def sparse_gradients(C):
    e = torch.nn.Embedding(10, 3, sparse=True)
    opt = torch.optim.SparseAdam(e.parameters(), 0.1)

    def step(i):
        opt.zero_grad()
        loss = e(i).pow(2).sum()
        loss.backward()
        opt.step()
        return loss.detach()

    f = C(step)
    return [f(torch.tensor([1, 2, i])) for i in range(4)], e.weight.detach()


@pytest.mark.parametrize("name", program.programs)
def test_program(name):
    program.check(name)


def clamp_step(x, low, high):
    x.clamp(low, high).sum().backward()
    return x.grad


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "shapes", [((), (2, 2), ()), ((2,), (2,), (2, 2)), ((2, 2), (2,), ()), ((1,), (2,), (2,))]
)
def test_bounds_of_clamp_that_eager_cannot_differentiate(shapes, inside):
    def run(f):
        x, low, high = (torch.linspace(-1, 1, max(1, sum(s))).sum() + torch.zeros(s) for s in shapes)
        x.requires_grad_()
        try:
            return f(x, low, high) if inside else (f(x, low, high).sum().backward(), x.grad)[1]
        except RuntimeError as e:
            return str(e)

    f = clamp_step if inside else torch.clamp
    magneto.reset()
    compiled = magneto.compile(lambda *a: f(*a))
    got, want = run(compiled), run(f)
    assert type(got) is type(want) and (
        torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want
    )
