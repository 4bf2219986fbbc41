"""What trials of the product measure, told instead of measured: what they decide does not depend on the machine's load."""

from __future__ import annotations

from contextlib import contextmanager

from magneto import _magneto


@contextmanager
def trials_take(compiled: float, eager: float, recorded: float = 1000, cpu: tuple[float, float] = (0, 0)):
    """Milliseconds of a call that runs compiled, that CPython runs, and that records.

    cpu: of the processor, of one that records and one that CPython runs; 0: as by the clock.
    """
    before = _magneto.feed_trials(recorded, compiled, eager, *cpu)
    try:
        yield
    finally:
        _magneto.feed_trials(*before)
