"""Objects and side effects, second part: hooks, parametrizations, gradients, the standard library, exceptions half way."""

import obj_harness

test_program, test_forced_breaks = obj_harness.tests(
    obj_harness.load("gradients", "library", "mixed"), forced=(1, 3)
)
