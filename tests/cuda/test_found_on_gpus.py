"""Programs that random models and the dashboard found wrong on a GPU."""

import pytest
import torch
import torch.nn.functional as F

import magneto

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def same(fn, *makes, calls=4, **options):
    """calls of fn and of its compiled form, each with inputs of its own."""
    compiled = magneto.compile(fn, **options)
    for k in range(calls):
        for make in makes:
            torch.manual_seed(k)
            ours = make()
            torch.manual_seed(k)
            theirs = make()
            got, want = compiled(*ours), fn(*theirs)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def memory(t):
    return t.untyped_storage().data_ptr()


def test_results_of_a_graph_share_memory_as_eager_does():
    def fn(x):
        y = torch.erfinv(x)
        z = torch.nextafter(x, x + 1)
        return y, y.view(-1), y[0], z, z.view(torch.int32)

    compiled, kept = magneto.compile(fn), []
    for _ in range(5):
        x = torch.rand(3, 4, device="cuda") * 0.5
        out = compiled(x)
        assert memory(out[0]) == memory(out[1]) == memory(out[2]) != memory(out[3]) == memory(out[4])
        torch.testing.assert_close(out, fn(x))
        kept.append((out, [t.clone() for t in out]))
    for out, want in kept:
        torch.testing.assert_close(list(out), want)
    out[1].zero_()
    assert not out[0].any() and not out[2].any()


def test_an_input_that_is_written_and_moves():
    def fn(x):
        return F.relu(x, inplace=True).cummin(-1).indices

    same(fn, lambda: (torch.randn(8, device="cuda"),), calls=12)


def test_inputs_that_overlap_themselves_and_move():
    edges = torch.tensor([-1.0, 0.0, 1.0], device="cuda")
    same(
        lambda x: torch.bucketize(x, edges),
        lambda: (torch.randn(2, 1, 3, device="cuda").expand(2, 5, 3),),
        calls=12,
    )
    same(lambda x: x.cumprod(-1), lambda: (torch.randn(1, device="cuda").expand(6),), calls=12)


def test_random_graphs_come_and_go():
    """PyTorch's host allocator takes up no pool again that its last capture left."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5)).cuda()
    plain = magneto.compile(lambda x: torch.erfinv(x.sin() * 0.5))
    x = torch.randn(4, 8, device="cuda")
    for _ in range(3):
        for compiled in (plain, magneto.compile(lambda x: torch.rand_like(x) + model(x))):
            for _ in range(4):
                compiled(x)
        torch.rand(3, device="cuda")
        magneto.reset()
        plain(x)


def test_two_loads_of_one_address_under_other_conditions():
    x = torch.randn(1, 2, device="cuda", dtype=torch.bfloat16).expand(2, 2)
    same(lambda x: torch.vstack([x, x]), lambda: (x,))


def test_sums_over_rows_of_a_number_that_the_call_knows():
    def fn(x):
        part = x[:, 0]
        return (part * 2).sum(), (part > 0).any(), part + 1

    same(fn, *[lambda n=n: (torch.randn(n, 3, 12, device="cuda"),) for n in (2, 3, 5, 7)], dynamic=True)


def test_floats_become_bytes_by_int64():
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
        x = torch.tensor([-1.5, -0.5, 3.7, 254.0, 300.0], device="cuda", dtype=dtype)
        same(lambda x: (x.to(torch.uint8), x.to(torch.int8), x.to(torch.int16)), lambda x=x: (x,))


def test_rms_norm_over_a_size_that_changes():
    def fn(x):
        return F.rms_norm(x, x.shape[-1:])

    makes = [lambda n=n: (torch.randn(3, n, device="cuda", requires_grad=True),) for n in (4, 6, 7)]
    same(fn, *makes)


def test_associative_scan_in_pointwise_mode():
    from torch._higher_order_ops.associative_scan import associative_scan

    def fn(decay, x):
        factor = torch.exp(-decay * x.abs())
        return associative_scan(
            lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (factor, x), 0, combine_mode="pointwise"
        )[1]

    decay = torch.rand(4, device="cuda", requires_grad=True)
    x = torch.randn(9, 4, device="cuda", requires_grad=True)
    state, states = torch.zeros_like(x[0]), []
    for f, row in zip(torch.exp(-decay * x.abs()), x, strict=True):
        state = f * state + row
        states.append(state)
    want, got = torch.stack(states), magneto.compile(fn)(decay, x)
    grads = [torch.autograd.grad(r.square().sum(), (decay, x)) for r in (got, want)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)


def test_bounds_that_are_numbers_that_change():
    compiled = magneto.compile(lambda x, n: (x.clamp(max=n), x.clamp(-1, n), x.clamp(min=n / 2)))
    for n in range(6):
        x = torch.randn(20, device="cuda", requires_grad=True)
        y = x.detach().clone().requires_grad_()
        got, want = compiled(x, n), (y.clamp(max=n), y.clamp(-1, n), y.clamp(min=n / 2))
        torch.testing.assert_close(got, want)
        torch.stack(got).sum().backward()
        torch.stack(want).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
