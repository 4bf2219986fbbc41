"""Side effects: replayed in program order, with identity and aliasing kept; modules, hooks, buffers, torch's global state."""

import obj_harness

test_program, test_forced_breaks = obj_harness.tests(obj_harness.load("global_state", "modules", "states"))
