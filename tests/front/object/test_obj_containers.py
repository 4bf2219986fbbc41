"""Containers: built while recording, or older than the call and read or changed by it."""

import obj_harness

test_program, test_forced_breaks = obj_harness.tests(
    obj_harness.load("lists_and_dicts", "other_containers", "iterators")
)
