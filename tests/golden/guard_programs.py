"""Programs whose guards are compared as text: each function runs one, with `compile` for magneto.compile."""

import enum

import torch

SCALE = 2.0
NAMES = ["a", "b"]


class Mode(enum.Enum):
    fast = 1
    exact = 2


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 8)
        self.scale = 0.5

    def forward(self, x):
        y = self.linear(x) * self.scale
        return y.relu() if self.training else y


def arguments(compile):
    """Numbers are guarded by value, containers by type, length and keys, as far as they are read."""

    def f(x, n, by, names, options, mode):
        x = x * n + by
        if mode is Mode.fast and "twice" in options:
            x = x * options["twice"]
        for name in names:
            x = x + len(name)
        return x

    compile(f)(torch.ones(3), 3, 0.5, ["ab", "c"], {"twice": 2, "unread": 9}, Mode.fast)


def globals_and_cells(compile):
    """What a function reads of its module and of the function around it."""
    offset, parts = 3, (torch.ones(3), torch.zeros(3))

    def inner(x):
        return x * SCALE + offset

    def f(x):
        return inner(x) + parts[0] + len(NAMES)

    compile(f)(torch.ones(3))


def module(compile):
    """Parameters, attributes, the training flag and the hooks that a call looks for."""
    compile(Net())(torch.ones(2, 4))


def same_tensor_twice(compile):
    """Which arguments are one tensor, and which share memory."""
    x = torch.ones(4, 4)

    def f(x, y, row):
        x.add_(1)
        return y * 2, row + 1

    compile(f)(x, x, x[0])


def sizes(compile):
    """Comparisons of dynamic sizes are guarded as expressions."""

    def f(x):
        if x.shape[0] * 2 > x.shape[1]:
            x = x + 1
        return x.reshape(-1, x.shape[0] // 2).softmax(-1)

    compile(f, dynamic=True)(torch.ones(4, 6))


def a_size_that_changed(compile):
    """The second recording takes the size that changed as a symbol, and the other as a number."""

    def f(x):
        return x * x.shape[0] + x.shape[1]

    g = compile(f)
    g(torch.ones(3, 5))
    g(torch.ones(7, 5))


def state_of_torch(compile):
    """The modes that a recording depends on."""

    def f(x):
        if torch.is_grad_enabled() and x.requires_grad:
            return x.sin()
        return torch.zeros(2, dtype=torch.get_default_dtype()) + x

    compile(f)(torch.ones(2))


PROGRAMS = [
    arguments,
    globals_and_cells,
    module,
    same_tensor_twice,
    sizes,
    a_size_that_changed,
    state_of_torch,
]
