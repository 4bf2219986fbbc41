"""What trials of the product measure, told instead of measured: what they decide does not depend on the machine's load."""

from __future__ import annotations

from contextlib import contextmanager

from magneto import _magneto


@contextmanager
def trials_take(compiled: float, eager: float, recorded: float = 1000):
    """Milliseconds of a call that runs compiled, that CPython runs, and that records."""
    before = _magneto.feed_trials(recorded, compiled, eager)
    try:
        yield
    finally:
        _magneto.feed_trials(*before)
