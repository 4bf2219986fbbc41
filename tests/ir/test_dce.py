"""Dead code: what nobody reads goes, but for the checks of kernels that may raise."""

import pathlib
import subprocess

import pytest

MGOPT = pathlib.Path(__file__).resolve().parents[2] / "build" / "mgopt"

HEAD = """%1 = input f32[8,8]
%2 = input i64[3]
%3 = aten::mm(%1, %1) : f32[8,8]
"""


def dce(body):
    run = subprocess.run([MGOPT, "-dce"], input=HEAD + body, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize(
    "call",
    [
        "index.Tensor(%3, [%2])",
        "index_select(%3, 0, %2)",
        "embedding(%3, %2, -1, False, False)",
        "index_put(%3, [%2], %1, False)",
    ],
)
def test_a_check_computes_no_result(call):
    text = dce(f"%4 = aten::{call} : f32[3,8]\n%5 = aten::exp(%4) : f32[3,8]\nreturn %1\n")
    assert "mg::check" in text and "IndexError" in text
    assert "aten::mm" not in text and "aten::exp" not in text and "aten::index" not in text


@pytest.mark.parametrize("call", ["exp(%3)", "div.Tensor(%3, %1)", "_unsafe_index.Tensor(%1, [None, None])"])
def test_what_cannot_raise_goes(call):
    text = dce(f"%4 = aten::{call} : f32[8,8]\nreturn %1\n")
    assert "aten::" not in text and "mg::check" not in text


def test_a_call_without_a_cheaper_check_stays():
    text = dce("%4 = aten::cholesky(%3, False) : f32[8,8]\n%5 = aten::exp(%4) : f32[8,8]\nreturn %1\n")
    assert "aten::cholesky" in text and "aten::mm" in text and "aten::exp" not in text


def test_a_result_that_is_read_needs_no_check():
    text = dce("%4 = aten::index.Tensor(%3, [%2]) : f32[3,8]\nreturn %4\n")
    assert "aten::index.Tensor" in text and "mg::check" not in text
