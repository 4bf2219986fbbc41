"""What torch refuses raises torch's own error, where the program can catch it, also where a meta kernel would accept it or say it otherwise."""

import copy

import pytest
import torch
import torch.nn.functional as F

import magneto

REFUSED = """
i.mul_(1.5) | i.add_(1.5) | i.div_(2) | i.pow_(1.5) | i.sub_(x) | b.mul_(i) | b.add_(i)
torch.add(x, x, out=i) | torch.sin(x, out=i) | torch.cat([x, x], out=torch.zeros(6, dtype=torch.uint8)) | torch.clamp(x, 0, 1, out=i)
torch.addcdiv(x, i, i) | i.addcdiv_(i, i) | torch.lerp(x, x, x.double()) | torch.heaviside(x, x.double()) | x.index_add(0, i * 0, i)
x.unfold(0, 4, 1) | torch.clamp(x, None, None) | torch.index_select(x, 0, torch.ones(2, 2, dtype=torch.long)) | x[:2] + x | x.dot(i)
x.uniform_(5, 2) | x.normal_(0, -1) | x.random_(5, 2) | x.random_(0) | x.exponential_(-1) | x.geometric_(2) | x.log_normal_(0, -1) | x.cauchy_(0, -1)
x.bernoulli_(2.0) | torch.randint(5, 5, (2,)) | torch.bernoulli(x * 2) | torch.normal(x, -x) | torch.bernoulli(x, 2.0)
F.pad(x[None], (3, 3), mode="reflect") | F.conv2d(x.view(1, 1, 3, 1), torch.ones(3, 1, 1, 1), groups=2) | F.interpolate(x.view(1, 1, 3), size=0)
F.conv_transpose2d(torch.ones(1, 2, 3, 3), torch.ones(3, 2, 1, 1)) | F.pixel_shuffle(torch.ones(1, 3, 2, 2), 2) | F.smooth_l1_loss(x, x, beta=-1.0)
F.pixel_unshuffle(torch.ones(1, 3, 3, 3), 2) | F.nll_loss(torch.ones(2, 3), torch.tensor([1, 1]), torch.ones(2)) | torch.argmax(x[:0])
torch.tensor([1j]).conj().numpy() | torch.tensor([1j]).conj().imag.numpy() | F.layer_norm(x, (2,)) | x.masked_fill(i, 1) | torch.zeros(-1)
torch._assert_async(x.sum() > 9) | torch._assert_async(x > 0)
"""
CALLS = [c.strip() for line in REFUSED.strip().splitlines() for c in line.split(" | ")]


@pytest.mark.parametrize("call", CALLS)
def test_the_error_is_torchs_own(call):
    space = {"torch": torch, "F": F}
    exec(
        f"""def f(x, i, b):
    try: {call}
    except Exception as e: return type(e), str(e), x + 1
    return None""",
        space,
    )
    args = torch.ones(3), torch.ones(3, dtype=torch.long), torch.ones(3, dtype=torch.bool)
    want = space["f"](*(a.clone() for a in args))
    assert want
    c = magneto.compile(space["f"])
    for _ in range(2):
        got = c(*(a.clone() for a in args))
        assert got and got[:2] == want[:2]


@pytest.mark.parametrize(
    "call",
    [
        "x.add_(i)",
        "i.mul_(2)",
        "x.mul_(1.5)",
        "b.mul_(b)",
        "x.uniform_(2, 2)",
        "x.normal_(0, 0)",
        "torch.clamp(x, 0)",
        "x.unfold(0, 3, 1)",
    ],
)
def test_what_is_near_to_it_stays_in_the_graph(call):
    f = eval(f"lambda x, i, b: {call} + 1", {"torch": torch})
    args = torch.ones(3), torch.ones(3, dtype=torch.long), torch.ones(3, dtype=torch.bool)
    got = magneto.compile(f, fullgraph=True)(*(a.clone() for a in args))
    assert torch.equal(got, f(*(a.clone() for a in args)))


def test_a_run_that_only_asserts_asserts():
    c = magneto.compile(lambda x: torch._assert_async(x))
    c(torch.tensor(1))
    with pytest.raises(RuntimeError, match="single nonzero value"):
        c(torch.tensor(0))


def test_arrays_of_conjugates_that_are_forced():
    for f in (lambda x: x.conj().numpy(force=True), lambda x: x.conj().imag.numpy(force=True)):
        x = torch.tensor([1 + 2j, 3j])
        assert (magneto.compile(f)(x) == f(x)).all()


def gradient_of_a_copy(x):
    a, g, again = copy.deepcopy([x, x.grad, x])
    return a.grad is g, a is again, a.grad is x.grad, a.grad * 2, a + 1


def test_deepcopy_copies_gradients():
    for x in (torch.ones(3), torch.ones(3, requires_grad=True)):
        x.grad = torch.full((3,), 2.0)
        got, want = magneto.compile(gradient_of_a_copy)(x), gradient_of_a_copy(x)
        assert (
            got[:3] == want[:3] == (True, True, False)
            and torch.equal(got[3], want[3])
            and torch.equal(got[4], want[4])
        )


def test_deepcopy_keeps_attributes_and_strides():
    def f(x):
        c = copy.deepcopy(x)
        return c.tag, c.stride()

    for x in (torch.ones(2, 3), torch.ones(8, 2)[::2].t(), torch.ones(8, 1).expand(8, 3)):
        x.tag = "a"
        assert magneto.compile(f)(x) == f(x)
