"""The table of runs in docs/contributing.md: what each run reached, and how many programs there were in all."""

import datetime
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing.md"
KINDS = ("models", "graphs", "kernels", "cache", "templates", "statements")
HEAD = "| date | commit | device | load | " + " | ".join(KINDS) + " | in all | failures |"
TOTAL = re.compile(r"^So far: \d[\d,]* programs in \d+ runs?\.$", re.M)


def row(counts, failures, device):
    """What a run that ends now reached, as a line of the table."""
    commit = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"], capture_output=True, text=True
    ).stdout.strip()
    cells = [
        datetime.datetime.now(datetime.UTC).date().isoformat(),
        commit or "unknown",
        device,
        f"{os.getloadavg()[1]:.0f}",
        *(str(counts.get(kind, 0)) for kind in KINDS),
        str(sum(counts.values())),
        str(failures),
    ]
    return f"| {' | '.join(cells)} |"


def added(text, line):
    """The page with one more line in its table, and the sum above it."""
    lines = text.split("\n")
    end = lines.index(HEAD) + 2
    while end < len(lines) and lines[end].startswith("|"):
        end += 1
    lines.insert(end, line)
    programs = [int(cells.split("|")[-3]) for cells in lines[lines.index(HEAD) + 2 : end + 1]]
    said = f"So far: {sum(programs):,} programs in {len(programs)} run{'s' * (len(programs) > 1)}."
    return TOTAL.sub(said, "\n".join(lines), count=1)


def keep(counts, failures, device, page=PAGE):
    """Adds a run to the page."""
    page.write_text(added(page.read_text(), row(counts, failures, device)))
