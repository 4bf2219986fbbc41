"""The option numerics="eager": pointwise ops, casts and moves give eager's bits."""

import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import magneto
from magneto import _magneto
from tests.numerics.calls import CALLS, FLOATS, INTS, SIZE, ulps, values
from tests.support.counts import assert_counts

DTYPES = [*FLOATS, *INTS, torch.bool, torch.complex64]

# ATen's kernels for a plain x86-64 have no fused multiply-add, and those for AVX-512 other vectors.
pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2" or _magneto.machine(None)["vector_bytes"] != 32,
    reason="measured where torch and magneto both use AVX2",
)


def eagerly(fn):
    return magneto.compile(fn, options={"numerics": "eager"}, fullgraph=True)


def assert_bits(got, want):
    away = ulps(got, want)
    assert not away.any(), f"{int((away > 0).sum())} of {away.numel()} differ, by up to {int(away.max())} ulp"


def inputs(call, dtype, strided):
    """Values of that dtype; of 16 bits all of them, where the op takes one tensor."""
    if call.tensors == 1 and dtype in (torch.bfloat16, torch.float16) and not strided:
        return [torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)[:-3]]
    xs = [values(dtype, seed) for seed in range(call.tensors)]
    return [torch.stack([x, x], 1)[:, 0] for x in xs] if strided else xs


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.op.replace(" ", "_"))
def test_pointwise_ops_have_eagers_bits(call):
    for dtype in DTYPES:
        for strided in (False, True):
            xs = inputs(call, dtype, strided)
            try:
                want = call.fn(*xs)
            except (RuntimeError, NotImplementedError, TypeError):
                continue  # eager has no such kernel
            magneto.reset()
            got = eagerly(lambda *tensors: call.fn(*tensors))(*xs)
            assert_counts(graphs=None, breaks=0)
            assert got.dtype == want.dtype and got.stride() == want.stride()
            assert not (away := ulps(got, want)).any(), (
                f"{dtype}, {'strided' if strided else 'contiguous'}: {int((away > 0).sum())} of "
                f"{away.numel()} differ, by up to {int(away.max())} ulp"
            )


# Names of the table that are other names of an op that is called, or arise from casts and writes.
OTHER_NAMES = """true_divide max.other min.other __and__ __or__ __xor__ __lshift__ __rshift__ contiguous _to_copy to
type_as copy fill lift_fresh_copy alias_copy detach_copy conj_physical _conj_physical _prelu_kernel log_sigmoid
log_sigmoid_forward""".split()


def test_every_row_of_the_table_has_a_call():
    table = Path(__file__).parents[2] / "src/back/lower/lower_exact.def"
    rows = re.findall(r'EXACT\("([^"]+)"', table.read_text())
    called = {c.op.split()[0] for c in CALLS}
    assert len(rows) > 100
    assert [r for r in rows if r not in called and r not in OTHER_NAMES] == []


def chain(draw, dtype):
    """A random program of ops that are loops, on two tensors."""
    steps = [
        lambda x, y: x + y,
        lambda x, y: x * 1.1 - y,
        lambda x, y: x / (y.abs() + 1),
        lambda x, y: torch.where(x > y, x, y * 0.3),
        lambda x, y: x.clamp(-3, 2) + y,
        lambda x, y: torch.addcmul(x, x, y, value=0.7),
        lambda x, y: torch.lerp(x, y, 0.4) if dtype != torch.float16 else x - y,
        lambda x, y: F.leaky_relu(x - y),
        lambda x, y: x.to(torch.float32).mul(1.3).to(dtype) * y,
        lambda x, y: x.t().contiguous().t() + y[0],
        lambda x, y: F.hardswish(x) * y.round(),
        lambda x, y: torch.log1p(x.abs()) - y,
        lambda x, y: x.add_(0.3).mul_(y),
        lambda x, y: 0.7 - x,
    ]
    picked = [steps[i] for i in torch.randint(len(steps), (9,), generator=draw).tolist()]

    def program(x, y):
        x = x.clone()
        for step in picked:
            x, y = step(x, y), x
        return x, y

    return program


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_chains_have_eagers_bits(dtype, seed):
    draw = torch.Generator().manual_seed(seed)
    program = chain(draw, dtype)
    x, y = (torch.randn(33, 131, generator=draw).to(dtype) for _ in range(2))
    for got, want in zip(eagerly(program)(x, y), program(x, y), strict=True):
        assert_bits(got, want)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_rounded_chains_of_arithmetic_have_eagers_bits(dtype, seed):
    draw = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(4103, generator=draw).to(dtype) for _ in range(2))

    def program(x, y):
        z = ((x * 1.1 + 0.3) * 1.7 - y) / 3
        return torch.where(z > y, z * y, z - x) + x.relu() * y

    compiled = magneto.compile(program, options={"numerics": "rounded"})
    assert_bits(compiled(x, y), program(x, y))
    magneto.reset()
    assert not torch.equal(magneto.compile(program)(x, y), program(x, y))  # else this test shows nothing


FUNCTIONS = [F.mish, F.silu, F.gelu, F.elu, F.softplus, F.hardswish, F.hardtanh, F.logsigmoid, F.leaky_relu]
FUNCTIONS += [
    F.softshrink,
    torch.tanh,
    torch.sigmoid,
    torch.exp,
    torch.log1p,
    torch.sin,
    torch.sqrt,
    torch.rsqrt,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda f: f.__name__)
def test_gradients_have_eagers_bits(fn, dtype):
    def run(f):
        torch.manual_seed(0)
        x = (torch.randn(5003) * 3).to(dtype).requires_grad_()
        y = f(x)
        y.backward(torch.randn(5003).to(dtype))
        return y.detach(), x.grad

    for got, want in zip(run(eagerly(lambda x: fn(x))), run(fn), strict=True):
        assert_bits(got, want)


def test_numbers_that_become_inputs_are_numbers():
    fast = eagerly(lambda x, k: x * k + k)
    x = values(torch.bfloat16, 0)
    for k in (0.3, 0.7, 1.1, 2.3):
        assert_bits(fast(x, k), x * k + k)


def steps_of(fn, *args, capfd):
    _magneto.set_logs("plan")
    try:
        fn(*args)
    finally:
        _magneto.set_logs("")
    text = capfd.readouterr().err.split("] plan\n")[-1]
    return re.findall(r"\d (kernel|host) (\S+)", text)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_a_chain_stays_one_kernel(dtype, capfd):
    x, y = (torch.randn(64, 64).to(dtype) for _ in range(2))
    fast = eagerly(lambda x, y: ((x * 1.1 + y).relu() - x).clamp(-1, 2) / (y.abs() + 1))
    assert [kind for kind, _ in steps_of(fast, x, y, capfd=capfd)] == ["kernel"]


def test_what_loops_cannot_give_is_a_call_of_aten(capfd):
    x = torch.randn(64, 64)
    steps = steps_of(eagerly(lambda x: (x * 2).exp() + 1), x, capfd=capfd)
    assert [kind for kind, _ in steps] == ["kernel", "host", "kernel"]
    assert steps[1][1] == "aten::exp"


def test_each_setting_has_plans_and_entries_of_its_own():
    def program(x):
        for _ in range(12):
            x = (x * 1.1 + 0.3) * 0.7 - x * 0.01
        return x

    x = values(torch.bfloat16, 3)
    want = program(x)
    for numerics, same in (("fast", False), ("eager", True), ("rounded", True), ("fast", False)) * 2:
        got = magneto.compile(program, options={"numerics": numerics})(x)
        assert (not ulps(got, want).any()) == same, numerics
        if numerics == "rounded":
            magneto.reset()  # what comes next is read from the disk


def test_the_back_end_of_torch_compile_takes_it():
    x = values(torch.bfloat16, 1)

    def program(x):
        return (x * 1.1 + 0.3) * 1.7 - x

    with magneto.install():
        compiled = torch.compile(program, backend="magneto", options={"numerics": "eager"})
    assert_bits(compiled(x), program(x))


def test_two_ulps_apart():
    a = torch.tensor([1.0, 0.0, float("nan"), float("inf")])
    b = torch.tensor([1.0 + 2 * 2**-23, -0.0, float("nan"), float("nan")])
    assert ulps(a, b).tolist() == [2, 1, 0, 2**31]
    assert len(values(torch.float32, 0)) == SIZE
