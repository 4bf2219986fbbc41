"""docs/numerics.md says how far the default setting is from eager; this measures it."""

import pytest
import torch

from tests.numerics.calls import CALLS, FLOATS
from tests.numerics.table import cell, measured, rank, rows

ROWS = rows()

pytestmark = pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="the page is about eager's AVX2 kernels"
)


@pytest.mark.parametrize("call", CALLS, ids=lambda c: c.op.replace(" ", "_"))
def test_no_op_is_farther_from_eager_than_the_page_says(call):
    stated = ROWS.get(call.op, ["="] * len(FLOATS))
    for dtype, text in zip(FLOATS, stated, strict=True):
        away = measured(call, dtype)
        if away is None:
            assert text in ("", "=" if call.op not in ROWS else ""), f"eager refuses {dtype}"
            continue
        assert away <= rank(text), f"{dtype}: {away} units, the page says {text}"
        assert (away == 0) == (text == "="), f"{dtype}: {away} units, the page says {text}"


def test_the_page_names_no_op_that_is_not_measured():
    assert [op for op in ROWS if op not in {c.op for c in CALLS}] == []
    assert len(ROWS) > 40


@pytest.mark.parametrize(
    "away, text", [(None, ""), (0, "="), (2, "2"), (3, "2^2"), (64, "2^6"), (65, "2^7"), (2000, "far")]
)
def test_cells(away, text):
    assert cell(away) == text
    assert away is None or rank(text) >= away
