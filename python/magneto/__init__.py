"""magneto: makes unmodified PyTorch programs faster."""

import torch as _torch  # noqa: F401  (the extension finds torch's libraries already loaded)

from . import _magneto  # noqa: F401
