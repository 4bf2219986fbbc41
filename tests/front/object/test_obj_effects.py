"""Side effects: replayed in program order, with identity and aliasing kept; modules, hooks, buffers, torch's global state."""

import pytest

import obj_harness

PROGRAMS = obj_harness.load("global_state", "modules", "states")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
