"""One trial in a process of its own, whose exit status tells of a crash: FILE LIMIT are its arguments."""

from __future__ import annotations

import sys

import torch

from . import locate


def main(file: str, limit: str) -> int:
    locate.in_process(torch.load(file, weights_only=False), int(limit))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
