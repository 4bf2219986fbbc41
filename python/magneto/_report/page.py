"""The page of a report: one HTML file with its style, script and data in it, and nothing of the network."""

from __future__ import annotations

import base64
import gzip
import json
import pathlib
from typing import Any

import jinja2
import markupsafe

from . import charts, numbers

_HERE = pathlib.Path(__file__).parent


def _json(x: Any) -> markupsafe.Markup:
    text = json.dumps(x, separators=(",", ":"), ensure_ascii=False, default=str)
    return markupsafe.Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _packed(x: Any) -> str:
    return base64.b64encode(gzip.compress(json.dumps(x).encode(), mtime=0)).decode()


def _tree(nodes: list[dict[str, Any]]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Runs of nodes of one module, in order."""
    out: list[tuple[str, list[dict[str, Any]]]] = []
    for n in nodes:
        if not out or out[-1][0] != n["module"]:
            out.append((n["module"], []))
        out[-1][1].append(n)
    return out


def render(facts: dict[str, Any]) -> str:
    """The page."""
    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    env.filters.update(
        ms=numbers.milliseconds,
        amount=numbers.amount,
        bytes=numbers.size,
        percent=numbers.percent,
        base=numbers.file_name,
        tree=_tree,
    )
    texts = facts["texts"]
    data = {k: v for k, v in facts.items() if k != "texts"}
    step_of: dict[str, str] = {}
    for p in facts["plans"]:
        for s in p["steps"]:
            for n in s["nodes"]:
                step_of.setdefault(f"{p['id']}n{n}", s["id"])
    steps = sorted((s for p in facts["plans"] for s in p["steps"]), key=lambda s: -s["total_ms"])
    return env.get_template("page.html").render(
        **facts,
        steps=steps,
        step_of=step_of,
        plan_of={p["id"]: p for p in facts["plans"]},
        total_ms=sum(p["total_ms"] for p in facts["plans"]) or 1.0,
        memory=charts.memory,
        stages=charts.stages,
        timeline=charts.timeline(facts["plans"]),
        style=markupsafe.Markup((_HERE / "page.css").read_text()),
        script=markupsafe.Markup((_HERE / "page.js").read_text()),
        data=_json(data),
        packed=_json({k: _packed(v) for k, v in texts.items()}),
    )
