"""Just below, at and above every limit that a program can reach: the result is eager's, whatever the compiler does with it."""

import string

import pytest
import torch

import harness
import magneto
from support import assert_counts


def numbers(n, k=3):
    return [torch.arange(float(k)) + i for i in range(n)]


def made(lines):
    """The function f of a program that is too long to be written down."""
    space = {"torch": torch}
    exec("\n".join(lines), space)
    return space["f"]


# ---- numbers of tensors ----


@pytest.mark.parametrize("n", [255, 256, 600])
def test_arguments(n):
    names = ", ".join(f"a{i}" for i in range(n))
    f = made([f"def f({names}):", "  return [" + ", ".join(f"a{i} + {i}" for i in range(n)) + "]"])
    harness.check(f, lambda: tuple(numbers(n)), 2)
    harness.check(lambda *a, **k: sum(k.values()) - sum(a), lambda: tuple(numbers(n)), 2)


@pytest.mark.parametrize("n", [255, 256, 300])
def test_locals_behind_a_break(n):
    lines = (
        ["def f(x):"]
        + [f"  a{i} = x + {i}" for i in range(n)]
        + ["  print(end='')", "  return [" + ", ".join(f"a{i}" for i in range(n)) + "]"]
    )
    harness.check(made(lines), lambda: (torch.ones(3),), 2)


@pytest.mark.parametrize("n", [47, 48, 49, 63, 64, 65, 511, 512, 513])
def test_inputs_and_outputs_of_one_kernel(n):
    harness.check(lambda *a: [sum(a)] + [x * 2 for x in a], lambda: tuple(numbers(n)), 2)


@pytest.mark.parametrize("n", [64, 65, 511, 512, 513, 1000])
@pytest.mark.parametrize("f", [
    lambda *a: (torch.cat(a), torch.stack(a, 1)),
    lambda *a: torch.block_diag(*a),
    lambda *a: torch.stack(a).unbind(),
    lambda *a: (torch._foreach_norm(a), torch._foreach_mul(a, 2.0), torch._foreach_max(a)),
], ids=["cat", "block_diag", "unbind", "foreach"])  # fmt: skip
def test_tensors_of_one_op(f, n):
    """block_diag is a call of ATen in the plan."""
    harness.check(f, lambda: tuple(numbers(n)), 2)
    assert_counts()


@pytest.mark.parametrize("n", [65_535, 65_540])
def test_results_of_one_op(n):
    """Numbers of results have more than 16 bits."""

    def f(x):
        rows = x.unbind(0)
        return rows[3] + rows[-1], rows[n // 2], x.split(1)[n - 1] * 2

    harness.check(f, lambda: (torch.arange(2.0 * n).view(n, 2),), 1)


@pytest.mark.parametrize("n", [63, 64, 65, 130])
@pytest.mark.parametrize("used", ["all", "last", "two", "retained"])
def test_results_that_have_a_gradient(n, used):
    """An input that no differentiated result needs has no gradient, rather than one of zeros."""

    def f(*a):
        return [(x * y).sin() for x, y in zip(a, a[1:] + a[:1])]

    def gradients(f):
        a = [(x / n).requires_grad_() for x in numbers(n)]
        r = f(*a)
        if used == "all":
            sum(x.sum() for x in r).backward()
        elif used == "last":
            r[-1].sum().backward()
        elif used == "two":
            (r[0].sum() + r[n // 2].sum()).backward()
        else:
            r[1].sum().backward(retain_graph=True)
            r[2].sum().backward()
        return [x.grad for x in a]

    compiled = magneto.compile(f)
    for _ in range(2):
        for want, got in zip(gradients(f), gradients(compiled)):
            assert (want is None) == (got is None)
            assert want is None or torch.allclose(want, got)


def test_derivatives_that_are_infinite_in_results_without_a_gradient():
    """Zeros for the tangents of the other results would give NaN."""

    def f(x):
        return [x * i for i in range(70)] + [1 / x]

    def gradient(f):
        x = torch.zeros(3, requires_grad=True)
        f(x)[5].sum().backward()
        return x.grad

    assert torch.equal(gradient(magneto.compile(f)), gradient(f))


@pytest.mark.parametrize("n", [16, 17, 64, 65, 300])
def test_arguments_of_an_autograd_function(n):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *a):
            ctx.save_for_backward(*a)
            return tuple(x * 2 for x in a)

        @staticmethod
        def backward(ctx, *g):
            return tuple(x * 2 + s * 0 for x, s in zip(g, ctx.saved_tensors))

    def f(*a):
        sum(Twice.apply(*a)).sum().backward()
        return [x.grad for x in a]

    harness.check(f, lambda: tuple(x.requires_grad_() for x in numbers(n)), 2)


@pytest.mark.parametrize("n", [30, 31, 32, 33])
def test_arguments_of_a_checkpointed_block(n):
    def f(*a):
        torch.utils.checkpoint.checkpoint(
            lambda *b: sum(x.sin() for x in b), *a, use_reentrant=False
        ).sum().backward()
        return [x.grad for x in a]

    harness.check(f, lambda: tuple(x.requires_grad_() for x in numbers(n)), 2)


def check_training(n, make, clip=False):
    def trained(compiled):
        ps = [torch.nn.Parameter(x) for x in numbers(n, 2)]
        return harness.trained(ps, make, compiled, [torch.ones(2) * 0.01 * k for k in range(3)], clip)[:2]

    torch.testing.assert_close(trained(True), trained(False), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [16, 17, 102, 103, 513])
@pytest.mark.parametrize("kind", ["fused", "foreach"])
def test_parameters_of_a_fused_optimizer(kind, n):
    check_training(n, lambda ps: torch.optim.AdamW(ps, lr=0.1, **{kind: True}), clip=True)


def test_groups_of_parameters():
    def make(ps):
        groups = [{"params": [p], "lr": 0.01 * (i % 5 + 1)} for i, p in enumerate(ps)]
        return torch.optim.SGD(groups, lr=0.1, momentum=0.9)

    check_training(100, make)


# ---- dimensions ----


def shaped(n):
    size = [1] * n
    size[0], size[n // 2], size[-1] = 2, 3, 2
    return torch.randn(12).reshape(size)


@pytest.mark.parametrize("n", [5, 6, 8, 9, 10, 11, 12, 15, 16, 17, 25, 26, 32, 33, 64])
def test_dimensions(n):
    def f(x):
        y = x.sin() + 1
        return [y.transpose(0, -1) * 2, y.sum(-1), y.flatten(), y.permute(*reversed(range(n))).contiguous(), torch.cat([y, y], 1), y.amax(0),
                torch.softmax(y, 1), y.flip(0), y[..., -1:].expand(*y.shape) * y, y.cumsum(n // 2)]  # fmt: skip

    harness.check(f, lambda: (shaped(n),), 2)


@pytest.mark.parametrize("n", [8, 9, 10, 11, 16, 17, 64])
def test_dimensions_of_what_has_a_gradient(n):
    def f(x):
        y = x.sin() + 1
        (torch.softmax(y, 1).mul(y).sum() + (y.transpose(0, -1) * 2).sum(-1).exp().sum()).backward()
        return x.grad

    harness.check(f, lambda: (shaped(n).requires_grad_(),), 2)


@pytest.mark.parametrize("n", [7, 8, 9, 10, 12])
def test_dimensions_whose_sizes_change(n):
    calls = iter(range(100))

    def make():
        k = next(calls) // 2 + 2
        size = [2 + (k + i) % 3 if i in (0, n // 2, n - 1) else k % 2 + 1 if i == 1 else 1 for i in range(n)]
        return (torch.randn(size),)

    harness.check(lambda x: ((x * x.shape[0]).sum(-1), x.transpose(0, -1) + 1, x.flatten()), make, 8)


@pytest.mark.parametrize("n", [9, 10, 11, 15, 16, 17, 63])
def test_dimensions_that_are_made(n):
    def f(x):
        for _ in range(n):
            x = x.unsqueeze(0)
        return x * 2, x.expand(*[2] * 3, *[1] * (n - 3), 3) + x, x.squeeze()

    harness.check(f, lambda: (torch.ones(3),), 2)


def test_more_dimensions_than_most_ops_take():
    """torch refuses 65 dimensions where an op goes over the elements; views have any number."""

    def f(x):
        for _ in range(65):
            x = x.unsqueeze(0)
        return x.shape, x.view(3) + 1

    harness.check(f, lambda: (torch.ones(3),), 2)


@pytest.mark.parametrize("n", [8, 9, 10, 11, 16, 17])
def test_indices(n):
    def f(x, i):
        return x[(i,) * n], x.index_put((i,) * n, torch.ones(()))

    harness.check(f, lambda: (torch.randn([2] + [1] * (n - 1)), torch.zeros(3, dtype=torch.long)), 2)


@pytest.mark.parametrize("n", [10, 26, 27])
def test_labels_of_einsum(n):
    labels = string.ascii_letters[:n]
    harness.check(
        lambda a, b: torch.einsum(f"{labels},{labels}->{labels[::-1]}", a, b),
        lambda: (shaped(n), shaped(n)),
        2,
    )


@pytest.mark.parametrize("k", [2**31 - 1, 2**31, 2**40 - 1, 2**40, 2**40 + 1, 2**62])
def test_elements_that_are_one_in_memory(k):
    def f(x):
        y = x.expand(k, 3)
        return y[-2:] * 2, y.shape[0], y[k // 2].sum()

    harness.check(f, lambda: (torch.ones(3),) if k < 2**60 else (torch.ones(1, 3),), 2)


# ---- depth ----


@pytest.mark.parametrize("n", [8, 9, 16, 17, 64, 65, 300])
def test_nested_containers(n):
    def f(old, x):
        inner, depth = old, 0
        while isinstance(inner[0], list):
            inner, depth = inner[0], depth + 1
        new, tree = x + 1, {}
        at = tree
        for _ in range(n):
            new = [new]
            at["a"] = {}
            at = at["a"]
        at["t"] = x * 2
        print(end="")
        return new, tree, inner[0] + depth

    def make():
        old = [torch.ones(3)]
        for _ in range(n):
            old = [old]
        return old, torch.ones(3)

    harness.check(f, make, 2)


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("n", [14, 15, 16, 17, 40, 200])
def test_nested_frames(n, breaks):
    def f(x):
        def g(k, y):
            if k == 0:
                if breaks:
                    print(end="")
                return y * 2
            return g(k - 1, y + 1) + 1

        return g(n, x)

    harness.check(f, lambda: (torch.ones(3),), 3)


def test_recursion_without_end():
    def f(x):
        def g(y):
            return g(y + 1)

        try:
            return g(x)
        except RecursionError:
            return x - 1

    harness.check(f, lambda: (torch.ones(3),), 2)


@pytest.mark.parametrize("n", [16, 17, 19])
def test_nested_blocks(n):
    lines = ["def f(x):"] + [
        " " * (i + 1) + ("with torch.autocast('cpu', enabled=False):" if i % 2 else "with torch.no_grad():")
        for i in range(n)
    ]
    lines += [" " * (n + 1) + "x = x + 1; print(end=''); x = x * 2", " return x"]
    harness.check(made(lines), lambda: (torch.ones(3),), 2)
    harness.check(
        made(lines[:-2] + [" " * (n + 1) + "x = x + 1", " return x"]),
        lambda: (torch.ones(3),),
        2,
        backend=lambda gm, _: gm.forward,
    )


# ---- lengths ----


@pytest.mark.parametrize("n", [255, 256, 257, 1000])
def test_a_list_of_tensors(n):
    harness.check(lambda a, x: ([y + x for y in a], len(a)), lambda: (numbers(n), torch.ones(3)), 2)


@pytest.mark.parametrize("n", [511, 512, 513])
def test_an_older_iterator(n):
    def run(f):
        it = iter(list(range(n)))
        return [f(it, torch.ones(3)) for _ in range(2)], list(it)

    def f(it, x):
        return x + next(it), x * next(it)

    torch.testing.assert_close(run(magneto.compile(f)), run(f))


@pytest.mark.parametrize("n", [8, 9, 63, 64, 65, 300])
def test_numbers_of_a_tensor(n):
    harness.check(
        lambda x: ([v * 2 for v in x.tolist()], x * len(x.tolist()), sum(x.tolist())),
        lambda: (torch.arange(n),),
        2,
    )


@pytest.mark.parametrize("n", [255, 256, 257, 600])
def test_numbers_that_only_pass_through(n):
    calls = iter(range(100))

    def make():
        k = next(calls) // 2
        return [k + i for i in range(n)], tuple(f"s{k}{i}" for i in range(n)), torch.ones(3)

    harness.check(lambda a, b, x: ({v: i for i, v in enumerate(reversed(b))}, [v for v in a], x + 1), make, 4)


@pytest.mark.parametrize("n", [16, 17, 40])
def test_numbers_that_change_as_arguments_of_c_code(n):
    import math

    calls = iter(range(100))

    def make():
        k = next(calls) // 2
        return [float(k + i) + 0.5 for i in range(n)], torch.ones(3)

    harness.check(lambda a, x: (x * math.hypot(*a), max(*a), "{}".format(a[0]), x + math.fsum(a)), make, 5)


def test_long_strings():
    long = "ab" * 500_000
    box = type("Box", (), {})()
    setattr(box, long, 3)

    def f(s, d, x):
        return x * len(s), s + "c", {s: x}, d[s] + getattr(box, s), f"{s}{x.shape}", s.upper()[-9:]

    harness.check(f, lambda: (long, {long: torch.ones(3)}, torch.ones(3)), 2)


@pytest.mark.parametrize("letter", ["n", "ä", "あ"])
@pytest.mark.parametrize("n", [60, 61, 62, 63, 64, 84, 126, 127, 128, 200, 201, 202, 250, 300])
def test_long_names(n, letter):
    """What is cut for a message is still text."""
    name = letter * n
    lines = [f"class {name}:", f"  {name} = 3", "  def __del__(self): pass", f"  def m(self, x): return x + self.{name}", f"def _{name}(x):",
             f"  {name}s = x + 1", f"  o = {name}()", f"  y = o.m({name}s)", "  del o", f"  return y * {name}s", f"def f(x): return _{name}(x)"]  # fmt: skip
    harness.check(made(lines), lambda: (torch.ones(3),), 2)
    harness.check(made(lines), lambda: (torch.ones(3),), 2, backend=lambda gm, _: gm.forward)


@pytest.mark.parametrize(
    "v",
    [2**31 - 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 5, 2**200, -(2**63), -(2**63) - 1],
)
def test_large_integers(v):
    harness.check(
        lambda n, x: (n + 1, n * 3, n > 5, x * (n % 7), n // 3, -n, n >> 3, x + (n & 15), [n] * 2, hash(n)),
        lambda: (v, torch.ones(3)),
        3,
    )
    harness.check(lambda n, x: x + n, lambda: (v, torch.ones(3)), 3)
    harness.check(lambda n, x: x + n, lambda: (v, torch.ones(3).long()), 3)
    harness.check(lambda n, x: (torch.full((3,), n), x), lambda: (v, torch.ones(3)), 3)
    calls = iter(range(100))
    harness.check(
        lambda n, x: (n + 1, n * n, x * (n % 5), n == 2**63),
        lambda: (v - 2 + next(calls) // 2, torch.ones(3)),
        5,
    )


@pytest.mark.parametrize("n", [100, 1000])
def test_a_long_chain(n):
    def f(x):
        y = x
        for i in range(n):
            y = y * 0.99 + i * 1e-3
        y.sum().backward()
        return y.detach(), x.grad

    harness.check(f, lambda: (torch.ones(3, requires_grad=True),), 2)


@pytest.mark.parametrize("n", [63, 64, 65, 200])
def test_writes_through_views(n):
    def f(x):
        y = x.clone()
        views = [x[i] for i in range(n)]
        for i, v in enumerate(views):
            v.add_(i)
            y[i] = y[i - 1] * 0.5 + i
        return y, views[-1] * 2, x.sum(0)

    harness.check(f, lambda: (torch.ones(n, 3),), 2)


@pytest.mark.parametrize("n", [7, 8, 9, 20])
def test_recompiles(n):
    calls = iter(range(100))
    harness.check(
        lambda x, s: (x * len(s), s + "a", s == "s3"), lambda: (torch.ones(3), f"s{next(calls) // 2}"), n
    )


def test_instances_of_one_method():
    n = 1030

    class Scale(torch.nn.Module):
        def __init__(self, k):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(3) * k)

        def forward(self, x):
            return x * self.weight

    modules = [Scale(i) for i in range(n)]
    compiled = magneto.compile(lambda m, x: m(x))
    with torch.no_grad():
        for i, m in enumerate(modules):
            assert torch.equal(compiled(m, torch.ones(3)), m(torch.ones(3))), i
