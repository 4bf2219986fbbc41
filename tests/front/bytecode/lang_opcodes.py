"""Programs for instructions that ordinary code seldom has."""

import sys

from lang_registry import prog


@prog
def unpack_nested_star(x):
    (a, *b), *c = [(x, 1, 2), 3, 4]
    return a * b[0] + c[1]


@prog
def delete_cells_and_globals(x):
    global TEMPORARY
    TEMPORARY = 3
    y = x * TEMPORARY
    del TEMPORARY
    k = 2

    def f():
        return k  # noqa: F821  deleted below

    r = f()
    del k
    try:
        f()
    except NameError:
        r += 1
    return y + r


@prog
def loops_on_none(x):
    items = [None, None, 3]
    while items[0] is None:
        items.pop(0)
    v = 4
    while v is not None:
        v = None if v == 0 else v - 1
    w = items and items[0] or 7
    n = None
    while n is None:
        n = items.pop() if items else None
    return x * n + w


@prog
def jump_or_pop(x):
    a = x.ndim > 5 or x.shape
    b = x.ndim and x.shape
    c = (0 or None or "z") and (1 and 5)
    return x + len(a) + len(b) + c


@prog
def class_scopes(x):
    k = 4

    class A:
        k = k + 1 if False else 3
        v: int = k
        w = [k for _ in range(2)]
        del k

    return x + A.v + len(A.w)


@prog
def super_attributes(x):
    class A:
        factor = 3

        def f(self, t):
            return t * self.factor

    class B(A):
        def f(self, t):
            return super().f(t) + super(B, self).factor

    return B().f(x)


@prog
def slices(x):
    items = [1, 2, 3, 4]
    items[1:3] = [5]
    part = items[1:]
    i, j = 0, 2
    part[i:j] = part[i:j][::-1]
    return x[i:j] * part[0]


@prog
def annotated_functions(x):
    """From 3.14 on a function of its own computes annotations, when somebody asks."""
    k = int

    def f(a: k, b: "str" = "q", *, c: list[k] = ()) -> float:
        return a

    class A:
        first: k = 3

        def method(self, y: k = 2) -> k:
            return y

    g = lambda: f
    return (
        f(x) + 1,
        f.__annotations__,
        g().__annotations__["a"],
        A.__annotations__,
        A().method.__annotations__,
    )


@prog
def common_constants(x):
    n = x.ndim
    try:
        raise NotImplementedError
    except NotImplementedError:
        n += 1
    a = all(i < 3 for i in range(n)), any(i > 7 for i in range(n)), tuple(i + 1 for i in range(n))
    assert n < 9, "many"
    return x * n, a


class Quiet:
    def __enter__(self):
        return 3

    def __exit__(self, kind, value, traceback):
        return kind is ZeroDivisionError


class NoExit:
    def __enter__(self):
        return 3


class NoEnter:
    def __exit__(self, *error):
        return False


@prog
def context_managers(x):
    errors = []
    for make in (Quiet, NoExit, NoEnter, int):
        try:
            with make() as a, Quiet():
                x = x * a
                x = x + 1 // (x.ndim - 2)
        except (TypeError, AttributeError) as e:
            errors.append(str(e))
    return x, errors


if sys.version_info >= (3, 14):
    # Text, since the oldest version that is supported cannot read it.
    templates = {"prog": prog, "__name__": __name__}
    exec(
        compile(
            """
@prog
def template_strings(x):
    n, name = x.ndim, "x"
    t = t"{name} has {n!r:>4} and {n + 1:{n}} of {name!s} {n=}"
    parts = [(i.value, i.expression, i.conversion, i.format_spec) for i in t.interpolations]
    return x * n, t.strings, parts, t.values, [str(type(i)) for i in t]
""",
            __file__,
            "exec",
        ),
        templates,
    )
