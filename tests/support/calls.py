"""Programs that are called several times: what each call did, compared with eager."""

from __future__ import annotations

import contextlib
import copy
import io
import warnings
from dataclasses import dataclass

import torch

from .same import assert_same


@dataclass
class Outcome:
    """What a call did."""

    value: object  # the result; None if it raised
    error: Exception | None
    printed: str
    warnings: list[tuple[type, str]]  # not those of magneto
    arguments: list  # as the call left them


def outcome(f, args=(), seed=0) -> Outcome:
    """Calls f(*args) with the random generator at seed."""
    torch.manual_seed(seed)
    done, text = Outcome(None, None, "", [], list(args)), io.StringIO()
    with contextlib.redirect_stdout(text), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            done.value = f(*args)
        except Exception as e:
            done.error = e
    done.printed = text.getvalue()
    done.warnings = [(w.category, str(w.message)) for w in seen if "magneto" not in str(w.message)]
    return done


def assert_outcomes_same(got: Outcome, want: Outcome, what="call", **options) -> None:
    """options: of assert_same."""
    if got.error is not None and want.error is None:
        raise AssertionError(f"{what} raises {got.error!r}, eager returns {want.value!r}") from got.error
    if want.error is not None and got.error is None:
        raise AssertionError(f"{what} returns {got.value!r}, eager raises {want.error!r}") from want.error
    # One comparison, so that aliasing between results and arguments is seen.
    parts = [(f"{what}: printed", "printed"), (f"{what}: error", "error"), (f"{what}: result", "value")]
    for name, attribute in parts[:2]:
        assert_same(getattr(got, attribute), getattr(want, attribute), name, **options)
    assert_same(*({"result": o.value, "arguments": o.arguments} for o in (got, want)), what, **options)
    assert_same(got.warnings, want.warnings, f"{what}: warnings")


def assert_calls_same(compiled, eager, calls, times=1, first_seed=0, **options) -> None:
    """Calls both functions on equal arguments, call after call; each call does what it does in eager.

    calls: for each call its arguments, which are copied, or a function that makes them (with the generator seeded).
    times: how often in a row each call is made.
    options: of assert_same.
    """
    seed = first_seed
    for arguments in calls:
        for _ in range(times):
            done = []
            for f in (eager, compiled):
                torch.manual_seed(seed)
                args = arguments() if callable(arguments) else copy.deepcopy(tuple(arguments))
                done.append(outcome(f, args, seed))
            want, got = done
            assert_outcomes_same(got, want, f"call {seed - first_seed}", **options)
            seed += 1
