"""Breaking programs give what eager gives, wherever the break is."""
import break_programs
import pytest
from harness import check, forced_breaks

CASES = [pytest.param(f, make, id=f.__name__) for f, make in break_programs.CASES]


@pytest.mark.parametrize("f, make", CASES)
def test_breaks(f, make):
    check(f, make)


@pytest.mark.parametrize("k", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("f, make", CASES)
def test_forced_breaks(f, make, k):
    with forced_breaks(k):
        check(f, make)
