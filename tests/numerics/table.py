"""The table of docs/numerics.md: how far the default setting is from eager, and what the others do.

python -m tests.numerics.table      prints its rows, as they are measured
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor

import magneto
from tests.numerics.calls import CALLS, FLOATS, Call, ulps, values

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "numerics.md"
SPECIAL = 2**31  # what ulps() says of a NaN beside a number
LETTERS = dict(zip(FLOATS, "DSBH", strict=True))


def measured(call: Call, dtype: torch.dtype) -> int | None:
    """The largest distance from eager with the default setting; None: eager refuses the dtype."""
    xs = [values(dtype, seed) for seed in range(call.tensors)]
    try:
        want = call.fn(*xs)
    except (RuntimeError, NotImplementedError, TypeError):
        return None
    magneto.reset()
    got: Tensor = magneto.compile(lambda *tensors: call.fn(*tensors))(*xs)
    return int(ulps(got, want).max())


def cell(away: int | None) -> str:
    """Distances are rounded up to powers of two, so that the table is not about single values."""
    if away is None:
        return ""
    if away == 0:
        return "="
    if away <= 2:
        return str(away)
    return f"2^{(away - 1).bit_length()}" if away < 2**10 else "far"


def rank(text: str) -> int:
    """How far a cell of the table allows numbers to be apart."""
    if text == "=":
        return 0
    if text == "far":
        return 2**63
    return 2 ** int(text[2:]) if text.startswith("2^") else int(text)


def rows() -> dict[str, list[str]]:
    """The table of the page: by op, a cell for each dtype of FLOATS."""
    found = re.findall(
        r"^\| `([^`]+)` \| (.*) \|$", PAGE.read_text().split("## Distance from eager")[1], re.M
    )
    return {name: [c.strip() for c in rest.split("|")] for name, rest in found}


if __name__ == "__main__":
    for call in CALLS:
        cells = [cell(measured(call, dtype)) for dtype in FLOATS]
        if any(c not in ("", "=") for c in cells):
            print(f"| `{call.op}` | {' | '.join(cells)} |", flush=True)
        else:
            print(f"EQUAL {call.op}", flush=True)
