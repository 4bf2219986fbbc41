"""mark_dynamic: a size that is promised to differ keeps several values within its bounds, as under torch.compile."""

import operator

import pytest
import torch
import torch._dynamo
from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

import magneto


def loop(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i]
    return total


def rows(x):
    total = 0
    for row in x:
        total = total + row
    return total


def unpacked(x):
    a, b, c, d = x
    return a + b + c + d


SETTLED = {
    "a loop over the size": loop,
    "a loop over the rows": rows,
    "unpacking": unpacked,
    "unbind": lambda x: sum(x.unbind(0)),
    "an index": lambda x: x * operator.index(x.shape[0]),
    "a length": lambda x: x * len([0] * x.shape[0]),
    "a hash": lambda x: x * (hash(x.shape[0]) % 3),
    "a format": lambda x: x + len(f"{x.shape[0]}"),
    "broadcasting": lambda x: x + torch.ones(4, 4),
    "a matrix product": lambda x: torch.ones(4, 4) @ x,
    "its transpose": lambda x: x + x.t(),
    "a view": lambda x: x.view(16),
    "a reshape": lambda x: x.reshape(4, 4),
    "a comparison of twice the size": lambda x: x.sin() if x.shape[0] * 2 == 8 else x.cos(),
    "a comparison of shapes": lambda x: x * 2 if x.shape == (4, 4) else x,
}
FREE = {
    "int": lambda x: x * int(x.shape[0]),
    "float": lambda x: x * float(x.shape[0]),
    "str": lambda x: x + len(str(x.shape[0])),
    "a remainder": lambda x: x.sin() if x.shape[0] % 2 == 0 else x.cos(),
    "an order": lambda x: x.sin() if x.shape[0] > 3 else x.cos(),
    "a view with a free size": lambda x: x.view(2, -1),
    "a part": lambda x: x[:4] * 2,
    "pieces": lambda x: x.chunk(2)[0],
    "a product": lambda x: x.t() @ x,
    "cat": lambda x: torch.cat([x, x]),
    "another dimension": lambda x: x * x.shape[1] if x.shape[1] == 4 else x,
}


def marked(*size, **bounds):
    x = torch.ones(*size)
    magneto.mark_dynamic(x, 0, **bounds)
    return x


def by_torch(f):
    torch._dynamo.reset()
    return torch.compile(f, backend="eager")


@pytest.mark.parametrize("compiler", [magneto.compile, by_torch], ids=["magneto", "torch"])
@pytest.mark.parametrize("f", SETTLED.values(), ids=SETTLED)
def test_what_leaves_one_value_to_a_marked_size_is_an_error(f, compiler):
    with pytest.raises(Exception, match="(?s)marked as dynamic|Constraints violated") as error:
        compiler(f)(marked(4, 4))
    assert isinstance(error.value, ConstraintViolationError) or "ConstraintViolationError" in str(error.value)


STRICTER = pytest.mark.xfail(
    torch.__version__ >= "2.15",
    reason="since 2.15 torch.compile refuses guards that leave several values, too",
)


@pytest.mark.parametrize(
    "compiler", [magneto.compile, pytest.param(by_torch, marks=STRICTER)], ids=["magneto", "torch"]
)
@pytest.mark.parametrize("f", FREE.values(), ids=FREE)
def test_what_leaves_several_values_to_a_marked_size_is_none(f, compiler):
    torch.testing.assert_close(compiler(f)(marked(4, 4)), f(torch.ones(4, 4)))


@pytest.mark.parametrize("f", SETTLED.values(), ids=SETTLED)
def test_a_size_that_is_only_likely_dynamic_may_have_one_value(f):
    x = torch.ones(4, 4)
    magneto.maybe_mark_dynamic(x, 0)
    torch.testing.assert_close(magneto.compile(f)(x), f(x))


@pytest.mark.parametrize("compiler", [magneto.compile, by_torch], ids=["magneto", "torch"])
def test_sizes_outside_of_their_bounds_are_an_error(compiler):
    def f(x):
        return x * 2

    c = compiler(f)
    for n in 5, 4, 8:
        torch.testing.assert_close(c(marked(n, 4, min=4, max=8)), torch.full((n, 4), 2.0))
    for n in 3, 9:
        with pytest.raises(ConstraintViolationError):
            c(marked(n, 4, min=4, max=8))
    torch.testing.assert_close(c(torch.ones(9, 4)), torch.full((9, 4), 2.0))  # this one is not marked
    magneto.reset()
    with pytest.raises(ConstraintViolationError):
        compiler(f)(marked(9, 4, min=4, max=8))


def test_the_error_names_the_bounds_of_the_mark_whatever_the_program_compares():
    c = magneto.compile(lambda x: x * 2 if x.shape[0] <= 8 else x)
    with pytest.raises(ConstraintViolationError, match="is 16, but it is marked as dynamic between 2 and 8"):
        c(marked(16, 4, min=2, max=8))
    with pytest.raises(ConstraintViolationError, match="is 3, but it is marked as dynamic from 5 on"):
        c(marked(3, 4, min=5))


def test_bounds_answer_questions():
    def f(x):
        return x.sin() if x.shape[0] > 3 else x.cos()

    c = magneto.compile(f)
    for n in 5, 7, 4:
        torch.testing.assert_close(c(marked(n, 4, min=4, max=8)), torch.ones(n, 4).sin())
    assert magneto._magneto.stats()["entries"] == 1
    torch.testing.assert_close(c(torch.ones(2, 4)), torch.ones(2, 4).cos())


@pytest.mark.parametrize(
    ("f", "size", "bounds"),
    [
        (lambda x: x.sin() if x.shape[0] == 6 else x.cos(), 7, {"min": 6, "max": 7}),
        (lambda x: x.sin() if x.shape[0] >= 8 else x.cos(), 8, {"min": 4, "max": 8}),
        (lambda x: x.sin() if x.shape[0] // 4 == 2 else x.cos(), 8, {"min": 4, "max": 8}),
    ],
)
def test_bounds_count_for_what_is_left(f, size, bounds):
    with pytest.raises(ConstraintViolationError):
        magneto.compile(f)(marked(size, 4, **bounds))
    torch.testing.assert_close(magneto.compile(f)(marked(size, 4)), f(torch.ones(size, 4)))


def test_arguments_of_mark_dynamic():
    x = torch.ones(4, 4)
    for wrong in {"min": 1.5}, {"max": True}, {"unknown": 1}:
        with pytest.raises(TypeError):
            magneto.mark_dynamic(x, 0, **wrong)
    with pytest.raises(ValueError, match="min is 5"):
        magneto.mark_dynamic(x, 0, min=5, max=4)
    with pytest.raises(IndexError):
        magneto.mark_dynamic(x, 2)
    magneto.mark_dynamic(x, 0, min=2, max=3)
    magneto.mark_dynamic(x, -2, min=2, max=9)  # the same dimension: the last bounds count
    magneto.mark_dynamic(x, 1, min=4)
    torch.testing.assert_close(magneto.compile(lambda x: x * 2)(x), torch.full((4, 4), 2.0))
    assert {(r.dim, r.min, r.max) for r in x._dynamo_dynamic_range} == {(0, 2, 9), (1, 4, None)}
