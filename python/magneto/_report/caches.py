"""What the cache on disk had of each graph, in words."""

from __future__ import annotations

from typing import Any

Facts = dict[str, Any]

# Names of MgStoredFate (src/driver/plan_store.h) -> is it there, why not, what to do.
_PLANS: dict[str, tuple[str, str, str]] = {
    "hit": ("hit", "a run without a report takes it", ""),
    "absent": ("miss", "no plan of this graph was there; it is now", ""),
    "other": ("miss", "one is there that was made under other circumstances; one for these is now", ""),
    "refused": (
        "refused",
        "its file belongs to somebody else, or others may write to it",
        "python -m magneto.doctor",
    ),
    "damaged": ("refused", "its file is damaged, or was not written by this user; it is written anew", ""),
    "unfit": (
        "miss",
        "the one that is there does not fit this process: a library call comes out otherwise",
        "",
    ),
    "small": ("not kept", "compiling so small a graph is about as fast as reading it", ""),
    "early": ("not kept", "something in it is asked for before the first write to an input", ""),
    "symbols": ("not kept", "its sizes are symbols; the kernels are kept", ""),
    "device": ("not kept", "plans for GPUs are not kept; the kernels are", ""),
    "off": ("off", "the cache on disk is off", ""),
}


def plan(fate: str | None, note: str | None, off: str | None) -> Facts | None:
    """The plan of one graph: result, why, what to do.  None: a graph that has no plan of its own.

    Arguments:
        fate: a name of MgStoredFate.
        note: words on it.
        off: why there is no cache.
    """
    if fate is None:
        return None
    result, why, mend = _PLANS[fate]
    if fate == "other" and note:
        why = f"one is there, made with another {note}; one for these circumstances is now"
    if fate == "off" and off:
        why = off
    return {"result": result, "why": why, "mend": mend}


def kernels(steps: list[Facts]) -> Facts:
    """How many kernels came from where."""
    origins = [s["origin"] for s in steps if s["key"]]
    return {k: origins.count(k) for k in ("compiled", "disk", "memory")}
