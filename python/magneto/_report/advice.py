"""What to change, by the words of a guard that failed."""

from __future__ import annotations

import re

_VALUES = re.compile(r"^(?P<what>.*?): recorded (?P<was>.*), now (?P<now>.*)$", re.S)
# Words of the guard -> what helps.  The first row that fits counts.
_RULES = (
    (
        r"size\(\d+\)",
        "magneto.mark_dynamic(tensor, dim) before the first call, or pad to a few sizes",
    ),
    (r"stride|contiguous", "give the tensor one memory format: .contiguous() before the call"),
    (r"dtype", "cast to one dtype before the call, or accept one compilation for each"),
    (r"requires_grad", "call it with one kind of input; torch.no_grad() for inference"),
    (r"grad_mode|inference_mode|autocast|torch state", "call it in one mode: each mode is compiled once"),
    (r"training", "train() and eval() are compiled once each"),
    (r"device", "move the tensor before the call"),
    (r"type|class", "pass one type: each is compiled for itself"),
    (
        r"recorded kind|value|==|int|float|str|constant",
        "pass what changes as a tensor, or hand it to the function as an argument instead of an attribute",
    ),
    (r"is |identity|object", "keep one object instead of making a new one for each call"),
    (r"len|keys|dict|list", "keep the container's shape; containers that grow are compiled again"),
)


def recompile(text: str) -> dict[str, str]:
    """Source, what about it, both values, and what helps, of the words of a failed guard."""
    m = _VALUES.match(text)
    what, was, now = (m["what"], m["was"], m["now"]) if m else (text, "", "")
    source, _, rest = what.partition(" ")
    if not source.startswith(("L[", "G[", "torch", "C[")):
        source, rest = "", what
    advice = next((a for rule, a in _RULES if re.search(rule, what)), "keep what differs between calls alike")
    return {"source": source, "what": rest, "was": was, "now": now, "advice": advice}
