"""Which interpreters the C core is built for, and which versions of torch were tested with it.

Other interpreters get the Python face alone, which runs all eagerly.
With another torch the core looks at what it finds: what is as expected is compiled.

``meson.build`` and ``src/host/python/pyframe.c`` have the same versions; ``tests/fault`` compares them.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
import sys
import sysconfig
import warnings

import torch

VERSIONS = ((3, 11), (3, 12), (3, 13), (3, 14))
ADVICE = "use CPython 3.11 to 3.14 with the GIL"
TORCH = ((2, 11), (2, 16))  # from, and below
TORCH_ADVICE = "pip install 'torch>=2.11,<2.16'"


def _unknown() -> str | None:
    """What the core does not know about this interpreter; None: it knows all."""
    name = f"{platform.python_implementation()} {platform.python_version()}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return f"{name} without the GIL"
    known = platform.python_implementation() == "CPython" and sys.version_info[:2] in VERSIONS
    return None if known else name


def torch_is_tested() -> bool:
    """True if this version of torch is one of those that magneto is tested with."""
    release = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return release is None or TORCH[0] <= (int(release[1]), int(release[2])) < TORCH[1]


UNKNOWN = _unknown()


def _prepare() -> None:
    """Makes ``magneto._magneto`` what stands for the core where there is none.

    Raises:
        ImportError: the core is missing, or there is none and MAGNETO_STRICT=1 makes fallbacks errors.
    """
    if UNKNOWN is None:
        if importlib.util.find_spec("magneto._magneto") is None:
            raise ImportError(
                "magneto: the C core is missing; run `make build` in a checkout, "
                "or install again with `pip install --force-reinstall --no-cache-dir`"
            )
        return
    message = f"magneto does not know {UNKNOWN}: nothing is compiled, everything runs eagerly; {ADVICE}"
    if os.environ.get("MAGNETO_STRICT") == "1":
        raise ImportError(message)
    from . import _eager_core

    sys.modules["magneto._magneto"] = _eager_core
    sys.modules["magneto"]._magneto = _eager_core  # type: ignore[attr-defined]  # `from . import _magneto`
    warnings.warn(message, RuntimeWarning, stacklevel=4)  # at the import of magneto


_prepare()
if UNKNOWN is None and not torch_is_tested():
    warnings.warn(
        f"magneto was not tested with torch {torch.__version__}: "
        f"what differs from what it knows runs eagerly; {TORCH_ADVICE}",
        RuntimeWarning,
        stacklevel=3,  # at the import of magneto
    )
