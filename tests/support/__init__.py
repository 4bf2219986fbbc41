"""What the tests share: comparing with eager, counting what was compiled, calling programs several times.

assert_same         two values are equal in all that a program can see; says which part differs and how
assert_calls_same   a compiled function does the same as eager, call after call
outcome             what one call did: result or error, printed text, warnings, arguments afterwards
tensors             the tensors in a value, in order
counts              what the compiler did so far: graphs, breaks, recompiles, fallbacks
assert_counts       these counts are as expected; no fallback unless one is expected
CountingBackend     a backend that keeps the graphs that it gets and runs them as they are
assert_rounding     results that differ by rounding only, held against float64
trials_take         trials take these times instead of the clock's
"""

from .calls import Outcome, assert_calls_same, assert_outcomes_same, outcome
from .counts import CountingBackend, Counts, assert_counts, counts
from .rounding import assert_rounding, in_float64
from .same import assert_same, tensors
from .trials import trials_take

__all__ = [
    "CountingBackend",
    "Counts",
    "Outcome",
    "assert_calls_same",
    "assert_counts",
    "assert_outcomes_same",
    "assert_rounding",
    "assert_same",
    "counts",
    "in_float64",
    "outcome",
    "tensors",
    "trials_take",
]
