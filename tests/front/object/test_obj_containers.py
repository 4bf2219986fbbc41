"""Containers: built while recording, or older than the call and read or changed by it."""

import pytest

import obj_harness

PROGRAMS = obj_harness.load("lists_and_dicts", "other_containers", "iterators")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
