"""Programs with something in the middle that a graph cannot hold."""

import contextlib

import torch


def randn(*shape):
    return torch.randn(*shape)


def print_between(x):
    y = x * 2
    print("hi", y.shape)
    return y + 1


def print_in_loop(x):
    for i in range(3):
        x = x + i
        print(i)
    return x


def print_in_with(x):
    with torch.no_grad():
        y = x * 2
        print(torch.is_grad_enabled())
        z = y + 1
    return z, torch.is_grad_enabled()


def raise_in_try(x):
    try:
        y = x * 2
        print("a")
        if y.sum() > 0:
            raise ValueError("boom")
        y = y + 5
    except ValueError as e:
        print("caught", e)
        y = x - 1
    finally:
        print("finally")
    return y


def containers(x):
    items = [x + 1]
    d = {"a": x * 2, "items": items}
    print("z")
    items.append(x + 2)
    return items, d, d["items"] is items


def mutate_list(x, items):
    items.append(x + 1)
    print(len(items))
    items.append(x * 2)
    return len(items)


def mutate_dict(x, d):
    d["y"] = x + 1
    d.setdefault("q", []).append(x)
    return d["y"]


def closures(x):
    n = [0]
    w = x * 3

    def g(a):
        nonlocal w
        n[0] += 1
        w = w + a
        return w * 2

    y = g(x)
    print("c")
    z = g(y)
    return z, w, n


def item(x):
    s = x.sum().item()
    return x * (1 if s > 0 else 2)


class Pair:
    def __init__(self, a):
        self.a = a
        self.items = [a]

    @property
    def two(self):
        return self.a * 2

    def __add__(self, other):
        return Pair(self.a + other.a)

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)


def objects(x):
    p = Pair(x + 1)
    q = p + p
    print(q.dyn_xx)
    q.b = p
    return q.two * q.b.a, q.b is p, q.dyn_abc


def print_in_callee(x):
    def h(a):
        b = a * 2
        print("in")
        return b + 1

    return h(x) + h(x + 1)


def generators(x):
    g = (x * i for i in range(3))
    s = 0
    for t in g:
        s = s + t
    return s, sum(x + i for i in [1, 2]), [t for t in map(lambda q: q + 1, [x, x])]


@contextlib.contextmanager
def manager(items):
    items.append("in")
    yield 5
    items.append("out")


def context_manager(x):
    items = []
    with manager(items) as k:
        y = x * k
    return y, items


def context_manager_break(x):
    items = []
    with manager(items) as k:
        y = x * k
        print(k)
        y = y + 1
    return y, items


@contextlib.contextmanager
def tidy(items):
    items.append("in")
    try:
        yield
    finally:
        items.append("out")


def context_manager_tidies(x, items):
    """The generator is dropped with each recording that a break ends: its finally block must not run then."""
    with tidy(items), tidy(items[1:]):
        y = x * 2
        print(items)
    return y, items


def exception_in_callee(x):
    def f(a):
        try:
            return {}["k"]
        except KeyError:
            return a + 1

    return f(x)


class Base:
    def f(self, x, *, k=1, **kw):
        return x + k + len(kw)


class Derived(Base):
    def f(self, x, *a, **kw):
        return super().f(x, **kw) * 2


def supers(x):
    return Derived().f(x, 3, k=4, z=5)


class Box:
    pass


def attributes(x, o):
    o.count += 1
    o.y = x * o.count
    print("count")
    o.z = o.y + 1
    return o.count


def make_box():
    o = Box()
    o.count = 1
    return randn(3), o


def raises(x):
    y = x * 2  # noqa: F841  alive where it raises
    raise KeyError("no")


def aliases(a, b):
    a = a * 1
    items = [a, a]
    print("x")
    return items[0] is items[1]


def sorting(x, d):
    return (
        sorted(d.items(), key=lambda kv: -kv[1]),
        [k for k, v in zip(*[list(d), list(d.values())])],
        x + sum(d.values()),
    )


def nested_handlers(x):
    try:
        try:
            y = x + 1  # noqa: F841  alive where it breaks and raises
            print("in")
            raise KeyError("k")
        finally:
            x = x * 2
            print("finally")
    except KeyError as e:
        print("caught", e)
        return x + 1


def return_in_finally_loop(x):
    for i in range(4):
        try:
            if i == 2:
                return x * i
            print(i)
        finally:
            x = x + 1
    return x


def while_loop(x):
    n = 0
    while n < 3:
        x = x * 2
        n += 1
        if n == 2:
            print(n)
            continue
        x = x - 1
    else:
        x = x + 10
    return x


def match_statement(x):
    def kind(o):
        match o:
            case [a, b, *rest]:  # noqa: F841  bound by the pattern
                return x + len(rest)
            case {"k": v, **others}:
                return x * v + len(others)
            case Pair(a=q):
                return q
            case int(n) if n > 3:
                return x - n
            case _:
                return x

    r = [kind(o) for o in ([1, 2, 3], {"k": 2, "z": 1}, Pair(x), 5, 2)]
    print("m")
    return r, kind((1, 2))


def star_unpack(x):
    a, *b, c = [x, x + 1, x + 2, x + 3]
    print(len(b))
    d, (e, f) = (a, (b[0], c))
    return a + c, b, f"{len(b):>3}{'q'!r}", [*b, c], {**{"a": d}, "b": e}, {len(b), 2}, f


def walrus_slices(x):
    items = [x, x, x + 1]
    if (n := len(items)) > 2:
        items[1:] = [x * n]
    del items[0]
    print(n)
    return items[:1], x[..., 1:], not items, -n, ~n, +n, n if n in (3, 4) else 0


def generator_send(x):
    def gen(x):
        for i in range(3):
            y = yield x * i
            x = x + (y or 0)

    g = gen(x)
    a = next(g)
    print("sent")
    b = g.send(2)
    r = [a, b]
    r.extend(g)
    return r


def yield_from(x):
    def inner(x):
        yield x
        yield x + 1
        return 7

    def outer(x):
        r = yield from inner(x)
        yield x * r

    r = list(outer(x))
    print(len(r))
    return r


def local_class(x):
    class Local:
        k = 3

        def m(self, y):
            return y * self.k

    return Local().m(x)


CASES = [
    (f, lambda: (randn(3),))
    for f in (
        print_between,
        print_in_loop,
        print_in_with,
        raise_in_try,
        containers,
        closures,
        item,
        objects,
        print_in_callee,
        generators,
        context_manager,
        context_manager_break,
        exception_in_callee,
        supers,
        raises,
        nested_handlers,
        return_in_finally_loop,
        while_loop,
        match_statement,
        star_unpack,
        walrus_slices,
        generator_send,
        yield_from,
        local_class,
    )
]
CASES += [
    (context_manager_tidies, lambda: (randn(3), [1])),
    (mutate_list, lambda: (randn(3), [1])),
    (mutate_dict, lambda: (randn(3), {"k": 1})),
    (attributes, make_box),
    (aliases, lambda: (randn(2), randn(2))),
    (sorting, lambda: (randn(2), {"a": 1, "b": 2})),
]
