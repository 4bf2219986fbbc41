"""What the compiler did.  Only this file knows the names of the extension's statistics."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from magneto import _magneto


@dataclass(frozen=True)
class Counts:
    """What was counted since the last reset, or between two of these: later - earlier."""

    graphs: int  # graphs that were compiled
    joint_graphs: int  # of these: graphs with a backward pass
    entries: int  # recordings that are kept
    recompiles: int
    hits: int  # calls that found an entry
    misses: int  # calls that did not
    fallbacks: int  # frames that run eagerly after an error of the compiler
    attempts: int  # recordings that were begun
    bytecodes: int
    left: int  # runs of entries that were abandoned
    stopped: int  # frames that are not recorded any more
    breaks: int  # graph breaks, of all reasons
    reasons: dict[str, int] = field(default_factory=dict)  # graph breaks by reason

    def __sub__(self, earlier: Counts) -> Counts:
        numbers = {
            f.name: getattr(self, f.name) - getattr(earlier, f.name)
            for f in fields(self)
            if f.name != "reasons"
        }
        new = {k: n - earlier.reasons.get(k, 0) for k, n in self.reasons.items()}
        return Counts(**numbers, reasons={k: n for k, n in new.items() if n})

    def __str__(self) -> str:
        told = [
            f"{f.name} {getattr(self, f.name)}"
            for f in fields(self)
            if f.name != "reasons" and getattr(self, f.name)
        ]
        return ", ".join(told + [f"break: {k} ({n})" for k, n in self.reasons.items()]) or "nothing"


def counts(since: Counts | None = None) -> Counts:
    """What was counted since the last reset; since: only what came after it."""
    stats = _magneto.stats()
    reasons = dict(stats["breaks"])
    names = [f.name for f in fields(Counts) if f.name not in ("breaks", "reasons")]
    now = Counts(**{n: stats[n] for n in names}, breaks=sum(reasons.values()), reasons=reasons)
    return now - since if since else now


def assert_counts(since: Counts | None = None, **expected) -> None:
    """The named counts are as expected, and fallbacks are 0 if not named.  None: any number."""
    now = counts(since)
    wrong = []
    for name, number in {"fallbacks": 0, **expected}.items():
        if number is not None and getattr(now, name) != number:
            wrong.append(f"{name}: {getattr(now, name)}, expected {number}")
    assert not wrong, f"{'; '.join(wrong)} (counted: {now})"


class CountingBackend:
    """A backend that keeps the graphs that it gets and runs them as they are."""

    def __init__(self):
        self.modules, self.inputs = [], []

    @property
    def graphs(self) -> int:
        return len(self.modules)

    def __call__(self, gm, example_inputs):
        self.modules.append(gm)
        self.inputs.append(example_inputs)
        return gm.forward
