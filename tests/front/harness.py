"""What the tests of the front end share: checked calls, forced breaks, training steps."""

import contextlib
import gc

import torch

import magneto
from magneto import _magneto
from support import assert_calls_same


@contextlib.contextmanager
def forced_breaks(k, inner=False):
    """A break after every k-th instruction of a frame; inner: after k instructions, when inside of a call."""
    _magneto.force_break(k, inner)
    try:
        yield
    finally:
        _magneto.force_break(0)


def is_clean():
    """Does nothing of a recording last: collector, torch's modes, the flag of compiling?"""
    return (
        gc.isenabled()
        and not torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and not torch._C._len_torch_dispatch_stack()
    )


def check(f, make_args, calls=3, **options):
    """Calls f eagerly and compiled on equal arguments."""
    _magneto.reset()
    assert_calls_same(_magneto.Callable(f, **options), f, [make_args] * calls, rtol=1e-5, atol=1e-6)


def trained(parameters, make_optimizer, compiled, inputs, clip=False):
    """Whole training steps, one for each input: their losses, the parameters as they end, and the optimizer's state."""
    opt = make_optimizer(parameters)

    def step(x):
        loss = sum((p * x).square().sum() for p in parameters)
        opt.zero_grad()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        opt.step()
        return loss

    if compiled:
        step = magneto.compile(step)
    return [step(x).item() for x in inputs], [p.detach() for p in parameters], opt.state
