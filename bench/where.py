"""Machine and commit: what figures have to state."""

from __future__ import annotations

import pathlib
import platform
import subprocess


def processor() -> tuple[str, str]:
    """The processor's name and its vector level."""
    text = pathlib.Path("/proc/cpuinfo").read_text()
    fields = dict(line.split("\t: ", 1) for line in text.replace("\t\t", "\t").splitlines() if "\t: " in line)
    model = fields.get("model name", platform.machine())
    name = f"{model}, family {fields.get('cpu family')} model {fields.get('model')}"
    return name, "v4" if "avx512vl" in text else "v3" if "avx2" in text else "v2"


def commit() -> str:
    """The commit that is checked out, short; "" without git."""
    try:
        asked = ["git", "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except FileNotFoundError:
        return ""
