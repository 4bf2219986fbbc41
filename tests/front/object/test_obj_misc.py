"""Objects and side effects, second part: hooks, parametrizations, gradients, the standard library, exceptions half way."""

import pytest

import obj_harness

PROGRAMS = obj_harness.load("gradients", "library", "mixed")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
