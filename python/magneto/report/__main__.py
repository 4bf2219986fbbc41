"""``python -m magneto.report --diff a.html b.html``: what differs between two reports."""

from __future__ import annotations

import argparse
import sys

from .._report import diff


def main(argv: list[str] | None = None) -> int:
    """Prints the differences.

    Returns:
        The exit status: 0, or 2 if a file is no report.
    """
    parser = argparse.ArgumentParser(prog="python -m magneto.report", description=__doc__)
    parser.add_argument("--diff", nargs=2, metavar=("A", "B"), required=True, help="two reports")
    given = parser.parse_args(argv)
    try:
        print(diff.text(*given.diff))
    except (OSError, ValueError) as e:
        print(f"magneto.report: {e}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
