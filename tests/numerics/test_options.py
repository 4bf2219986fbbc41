"""How the option numerics is given, and what is said of a wrong one."""

import pytest
import torch

import magneto
from magneto import _magneto


def test_options_say_what_is_wrong_with_them():
    with pytest.raises(ValueError, match="'numerics' must be one of 'fast', 'rounded', 'eager', got 'exact'"):
        magneto.compile(torch.sin, options={"numerics": "exact"})
    with pytest.raises(TypeError, match="'numerics' must be of type str, got int"):
        magneto.compile(torch.sin, options={"numerics": 2})
    with pytest.raises(TypeError, match="'emulate_precision_casts' must be of type bool"):
        magneto.compile(torch.sin, options={"emulate_precision_casts": 1})


@pytest.mark.parametrize(
    "options, level",
    [
        ({"emulate_precision_casts": True}, 1),
        ({"emulate_precision_casts": False}, 0),
        ({"numerics": "eager", "emulate_precision_casts": True}, 2),
        ({"emulate_precision_casts": True, "numerics": "fast"}, 1),
    ],
    ids=str,
)
def test_the_stricter_of_two_options_holds(options, level):
    assert magneto.compile(torch.sin, options=options).options()["numerics"] == level


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_rounding_is_eagers_for_every_number_and_takes_several_vectors_at_a_time(dtype):
    """Sums and products are exactly rounded, so that they are the same on every machine."""
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)[:-3]

    def program(x):
        return ((x * 1.1 + 0.3) * 0.7 - x) * 1e-3

    magneto.measure()
    try:
        got, want = magneto.compile(program, options={"numerics": "rounded"})(every), program(every)
        codes = [s.get("code") or "" for p in _magneto.report_data()["plans"] for s in p["steps"]]
    finally:
        magneto.measure(False)
    assert torch.equal(got.isnan(), want.isnan())
    assert torch.equal(got.nan_to_num(0).view(torch.int16), want.nan_to_num(0).view(torch.int16))
    lanes = _magneto.machine(None)["vector_bytes"] // 4
    assert any(f"fmul <{4 * lanes} x float>" in code for code in codes)
