#!/usr/bin/env python3
"""Lists the C sources of the given folders and those in them, one path a line, from the repository root."""

import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
for folder in sys.argv[1:]:
    for path in sorted((root / folder).rglob("*.c")):
        print(path.relative_to(root))
