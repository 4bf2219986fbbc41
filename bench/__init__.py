"""Benchmarks: eager, torch.compile and magneto side by side.  `python -m bench cpu`.

They measure the magneto of this checkout.  A package that PYTHONPATH names goes before it; an installed one
serves where nothing is built here.
"""

import importlib.util
import os
import pathlib
import sys


def _find_package() -> None:
    here = pathlib.Path(__file__).resolve().parents[1] / "python"
    named = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    if "magneto" in sys.modules or any(pathlib.Path(p, "magneto").is_dir() for p in named):
        return
    if list(here.glob("magneto/_magneto*.so")) or importlib.util.find_spec("magneto") is None:
        sys.path.insert(0, str(here))


_find_package()
