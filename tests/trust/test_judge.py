"""What counts as rounding: measured by noise, with float64 as judge."""

import torch

from magneto._trust import judge


def verdict(got, want, noisy=(), exact=None):
    def seen(t):
        return judge.Seen(["result 0"], [t])

    return judge.first_difference(
        seen(got),
        seen(want),
        lambda: [seen(t) for t in noisy],
        lambda: None if exact is None else seen(exact),
    )


def test_the_last_places_may_differ():
    want = torch.tensor([1.0, 2.0, 3.0])
    assert verdict(want * (1 + 3e-7), want, [want * (1 + 1e-7)]) is None
    assert "at [0]" in verdict(want * 1.001, want, [want * (1 + 1e-7)])


def test_a_result_nearer_to_float64_than_eagers_is_right():
    exact = torch.tensor([1 / 3], dtype=torch.float64)
    want = torch.tensor([0.34], dtype=torch.bfloat16)
    assert verdict(torch.tensor([1 / 3], dtype=torch.bfloat16), want, [want], exact) is None
    assert verdict(torch.tensor([0.5], dtype=torch.bfloat16), want, [want], exact)


def test_what_noise_changes_to_anything_is_free():
    want, flipped = torch.tensor([True, False]), torch.tensor([False, False])
    assert verdict(flipped, want, [flipped]) is None
    assert "1 of 2 numbers" in verdict(flipped, want, [want])


def test_nan_is_a_number_like_others():
    nan = torch.tensor([float("nan")])
    assert verdict(nan, nan.clone()) is None
    assert verdict(torch.tensor([1.0]), nan, [nan], nan.double())
    assert verdict(nan, torch.tensor([1.0]), [torch.tensor([1.0])], torch.tensor([1.0], dtype=torch.float64))


def test_shape_strides_and_dtype_have_to_agree():
    t = torch.zeros(2, 3)
    assert "shape" in verdict(t[:1], t)
    assert "dtype" in verdict(t.double(), t)
    assert "strides" in verdict(t.t().contiguous().t(), t)
    assert "None" in verdict(None, t)


def test_noise_leaves_views_and_whole_numbers_alone():
    with judge.Noise(1):
        x = torch.full((4,), 3.0)
        view = x.view(2, 2)
        assert view.data_ptr() == x.data_ptr()
        assert torch.equal(x, torch.full((4,), 3.0))
        y = torch.full((1000,), 0.1)
    assert not torch.equal(y, torch.full((1000,), 0.1))
    torch.testing.assert_close(y, torch.full((1000,), 0.1), rtol=2.4e-7, atol=0)


def test_a_sum_that_cancels_is_as_uncertain_as_its_terms():
    torch.manual_seed(0)
    x = torch.randn(64, 128)
    x -= x.double().mean().float()

    def noisy(fn):
        runs = []
        for seed in range(1, judge.NOISY_RUNS):
            with judge.Noise(seed):
                runs.append(fn(x))
        return runs

    want, exact = x.mean(), x.double().mean()
    other = x.t().contiguous().sum(0).sum() / x.numel()  # another order
    assert abs(want) < 1e-8
    assert verdict(other, want, noisy(torch.mean), exact) is None
    assert verdict(want + 1e-6, want, noisy(torch.mean), exact)
    with judge.Noise(1):  # neither draws nor numbers of a result that is as large change inside
        torch.manual_seed(3)
        picked = torch.multinomial(x.abs()[0], 5)
        near = x - x * (1 - 1e-7)
    torch.manual_seed(3)
    assert torch.equal(picked, torch.multinomial(x.abs()[0], 5))
    torch.testing.assert_close(near, x - x * (1 - 1e-7), rtol=1e-5, atol=1e-6)
