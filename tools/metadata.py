#!/usr/bin/env python3
"""Writes python/magneto.dist-info from pyproject.toml: entry points work without installing."""

import pathlib
import tomllib

root = pathlib.Path(__file__).resolve().parent.parent
project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
info = root / "python" / f"{project['name']}-{project['version']}.dist-info"
info.mkdir(exist_ok=True)
files = {
    "METADATA": f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n",
    "entry_points.txt": "\n".join(
        f"[{group}]\n" + "\n".join(f"{k} = {v}" for k, v in rows.items()) + "\n"
        for group, rows in project.get("entry-points", {}).items()
    ),
}
for name, text in files.items():
    path = info / name
    if not path.exists() or path.read_text() != text:
        path.write_text(text)
