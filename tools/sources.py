#!/usr/bin/env python3
"""Lists the C sources of the given layers, one path a line, relative to the repository root."""
import pathlib
import sys

root = pathlib.Path(__file__).resolve().parent.parent
for layer in sys.argv[1:]:
    for path in sorted((root / "src" / layer).glob("*.c")):
        print(path.relative_to(root))
