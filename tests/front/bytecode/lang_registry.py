"""The list that the decorator of the lang_* programs fills: (name, function, arguments, number of graphs, of breaks)."""

import torch

PROGRAMS = []


def prog(make=None, graphs=1, breaks=0):
    """Registers a program; make gives its arguments (one 3x4 tensor when it is left out); None means any number."""

    def register(f, args):
        PROGRAMS.append((f.__module__, f, args, graphs, breaks))
        return f

    default = lambda: (torch.randn(3, 4),)
    if callable(make) and make.__name__ != "<lambda>":
        return register(make, default)
    return lambda f: register(f, make or default)
