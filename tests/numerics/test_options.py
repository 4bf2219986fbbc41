"""How the option numerics is given, and what is said of a wrong one."""

import pytest
import torch

import magneto


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
