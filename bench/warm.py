"""What the cells of the dashboard have in common: their processes are forked from one that imported this.

Each model is made on the meta device, which loads its library's code.
Nothing is computed, so no thread is started.
magneto is not imported here: where fork() follows, it uses one thread and plain loops.
$BENCH_MODELS has the names, one a line; without it no model is made.
"""

import contextlib
import gc
import os

import torch

from bench.models import MODELS


def make(names: list[str]) -> None:
    for name in names:
        # A model that computes while it is made cannot be made there, and its library may be missing.
        with contextlib.suppress(Exception), torch.device("meta"):
            MODELS[name].make()
    gc.collect()
    gc.freeze()  # a cell's own collections need not look at all this again


make(os.environ.get("BENCH_MODELS", "").split())
