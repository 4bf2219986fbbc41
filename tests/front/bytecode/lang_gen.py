"""Generators, generator expressions, comprehensions.  Every program is one graph unless its decorator says otherwise."""

import collections
import contextlib
import functools
import itertools
import operator

import torch

from lang_registry import prog


@prog
def gen_simple(x):
    def g():
        yield x + 1
        yield x + 2

    a, b = g()
    return a * b


@prog
def gen_list(x):
    def g(n):
        for i in range(n):
            yield x * i

    return list(g(3))


@prog
def gen_sum(x):
    return sum(x * i for i in range(4))


@prog
def gen_tuple(x):
    return tuple(x + i for i in range(3))


@prog
def gen_dict(x):
    return dict((str(i), x * i) for i in range(3))


@prog
def gen_cat(x):
    return torch.cat([y for y in (x + i for i in range(3))])


@prog
def gen_stack_tuple(x):
    return torch.stack(tuple(x + i for i in range(3)))


@prog
def gen_zip(x):
    def g():
        i = 0
        while True:
            yield i
            i += 1

    return [a * b for a, b in zip(g(), [x, x + 1, x + 2])]


@prog
def gen_enumerate(x):
    return [i * t for i, t in enumerate(x + k for k in range(3))]


@prog
def gen_next_default(x):
    g = (t for t in [])
    return next(g, x + 1)


@prog
def gen_send(x):
    def g():
        acc = x
        while True:
            v = yield acc
            if v is None:
                return
            acc = acc + v

    it = g()
    a = next(it)
    b = it.send(2)
    c = it.send(3)
    it.close()
    return a, b, c


@prog
def gen_throw(x):
    def g():
        y = x
        try:
            yield y
        except ValueError as e:
            yield y * 2
        finally:
            y = None

    it = g()
    a = next(it)
    b = it.throw(ValueError("a"))
    return a + b


@prog
def gen_throw_uncaught(x):
    def g():
        yield x

    it = g()
    next(it)
    try:
        it.throw(KeyError("k"))
    except KeyError as e:
        return x + 1
    return x


@prog
def gen_close_finally(x):
    log = []

    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("done")

    it = g()
    a = next(it)
    it.close()
    return a + len(log), log


@prog
def gen_close_return(x):
    def g():
        try:
            yield x
        except GeneratorExit:
            return

    it = g()
    a = next(it)
    it.close()
    return a + 1


@prog
def gen_yield_from(x):
    def inner():
        r = yield x
        return 5

    def outer():
        v = yield from inner()
        yield x * v

    return list(outer())


@prog
def gen_yield_from_list(x):
    def outer():
        yield from [x, x + 1]
        yield from (x + i for i in range(2))
        yield from range(3)

    return list(outer())


@prog
def gen_yield_from_send(x):
    def inner():
        a = yield 1
        b = yield a * 2
        return b

    def outer():
        r = yield from inner()
        yield r * 3

    g = outer()
    next(g)
    a = g.send(x)
    b = g.send(x + 1)
    return a, b


@prog
def gen_return_value(x):
    def g():
        yield x
        return 3

    it = g()
    next(it)
    try:
        next(it)
    except StopIteration as e:
        return x * e.value


@prog
def gen_stopiteration_inside(x):
    def g():
        yield x
        raise StopIteration

    try:
        return list(g())
    except RuntimeError as e:
        return x + 1, str(e)


@prog
def gen_exception_through(x):
    def g():
        yield x
        raise ValueError("boom")

    out = []
    try:
        for t in g():
            out.append(t)
    except ValueError as e:
        out.append(x * 2)
    return out


@prog
def gen_partial_then_return(x):
    def g():
        yield x
        yield x + 1
        yield x + 2

    it = g()
    a = next(it)
    for b in it:
        break
    return a, b


@prog
def gen_infinite_islice(x):
    def g():
        i = 0
        while True:
            yield x * i
            i += 1

    return list(itertools.islice(g(), 3))


@prog
def gen_closure_mutation(x):
    n = 0

    def g():
        nonlocal n
        for i in range(3):
            n += i
            yield n

    r = [x * v for v in g()]
    return r, n


@prog
def gen_nested(x):
    def a(n):
        for i in range(n):
            yield x + i

    def b():
        for t in a(2):
            yield t * 2

    return [t for t in b()]


@prog
def gen_recursive(x):
    def walk(tree):
        for t in tree:
            if isinstance(t, list):
                yield from walk(t)
            else:
                yield x * t

    return list(walk([1, [2, [3, 4]], 5]))


@prog
def gen_any_all(x):
    a = any(i > 2 for i in range(4))
    b = all(i > 2 for i in range(4))
    return x + a + b


@prog
def gen_max_min(x):
    return x + max(i * i for i in range(4)) - min((i for i in range(3)), default=7)


@prog
def gen_sorted(x):
    return x * sorted((3 - i for i in range(3)), key=lambda v: -v)[0]


@prog
def gen_set(x):
    s = set(i % 2 for i in range(5))
    return x + len(s)


@prog
def gen_join(x):
    s = ",".join(str(i) for i in range(3))
    return x + len(s), s


@prog
def gen_star(x):
    def f(*a):
        return a[0] + a[1]

    return f(*(x + i for i in range(2)))


@prog
def gen_unpack_star(x):
    a, *b = (x + i for i in range(3))
    return a, b


@prog
def gen_in(x):
    return x + (3 in (i for i in range(5)))


@prog
def gen_map_filter(x):
    return [x * i for i in filter(lambda v: v % 2, map(lambda v: v + 1, (i for i in range(5))))]


@prog
def gen_reduce(x):
    return functools.reduce(operator.add, (x * i for i in range(4)))


@prog
def gen_ctx_inside(x):
    @contextlib.contextmanager
    def cm():
        yield x + 1

    def g():
        with cm() as y:
            yield y
            yield y * 2

    return list(g())


@prog
def gen_no_grad_inside(x):
    def g():
        with torch.no_grad():
            yield x + 1

    return list(g())


@prog
def gen_class_iter(x):
    class It:
        def __init__(self, n):
            self.n = n

        def __iter__(self):
            for i in range(self.n):
                yield x * i

    return [t for t in It(3)]


@prog
def gen_method(x):
    class M:
        def __init__(self):
            self.k = 2

        def items(self):
            yield x * self.k
            self.k += 1
            yield x * self.k

    m = M()
    return list(m.items()), m.k


@prog
def gen_gi_attrs(x):
    def g():
        yield 1

    it = g()
    r = it.gi_running
    return x + int(r)


@prog
def gen_isgenerator(x):
    import inspect
    import types

    def g():
        yield 1

    it = g()
    return x + isinstance(it, types.GeneratorType) + inspect.isgenerator(it)


@prog
def gen_deque(x):
    d = collections.deque((x + i for i in range(4)), maxlen=2)
    return list(d)


@prog
def gen_torch_sequential(x):
    m = torch.nn.Sequential(*(torch.nn.ReLU() for _ in range(2)))
    return m(x)


@prog
def gen_finally_multi(x):
    log = []

    def g():
        for i in range(3):
            try:
                yield x * i
            finally:
                log.append(i)

    out = list(g())
    return out, log


@prog
def gen_break_finally(x):
    log = []

    def g():
        try:
            for i in range(5):
                yield x * i
        finally:
            log.append("end")

    for t in g():
        if len(log) == 0:
            break
    return t, log


@prog
def gen_throw_in_yield_from(x):
    def inner():
        try:
            yield x
        except ValueError:
            yield x * 5

    def outer():
        yield from inner()

    g = outer()
    next(g)
    return g.throw(ValueError)


@prog
def gen_left_in_yield_from(x):
    def inner(n):
        for i in range(n):
            yield x * i

    def outer(n):
        yield from inner(n)

    for a, b in zip(itertools.chain(outer(2)), itertools.chain(outer(2))):
        x = x + a * b
    return x


@prog
def gen_throw_types(x):
    def g():
        while True:
            try:
                yield x
            except Exception as e:
                yield str(type(e).__name__)

    it = g()
    next(it)
    a = it.throw(TypeError("x"))
    return x + 1, a


@prog
def gen_dict_comp_nested(x):
    return {i: [x * j for j in range(i)] for i in range(3)}


@prog
def gen_set_comp(x):
    return x + sum({i // 2 for i in range(6)})


@prog
def comp_if(x):
    return [x + i for i in range(6) if i % 2 if i > 1]


@prog
def comp_nested_for(x):
    return [x * i + j for i in range(2) for j in range(2)]


@prog
def comp_walrus(x):
    r = [y for i in range(4) if (y := i * 2) > 2]
    return x + sum(r) + y


@prog
def comp_tensor(x):
    return [row * 2 for row in x]


@prog
def comp_shadow(x):
    i = 10
    r = [i for i in range(3)]
    return x + i, r


@prog
def comp_closure(x):
    fs = [lambda i=i: x + i for i in range(3)]
    return [f() for f in fs]


@prog
def comp_closure_late(x):
    fs = [lambda: x + i for i in range(3)]
    return [f() for f in fs]


@prog
def comp_lambda_call(x):
    return [(lambda v: v * x)(i) for i in range(3)]


@prog
def comp_in_class(x):
    class A:
        v = [i for i in range(3)]
        w = {k: k for k in v}

    return x + sum(A.v) + len(A.w)


@prog
def gen_break_inside(x):
    def g():
        for i in range(2):
            yield x * i

    r = []
    for t in g():
        r.append(t)
    return r


@prog(None, graphs=None, breaks=None)
def gen_suspended_across_break(x):
    def g():
        y = x + 1
        yield y
        y = y * 2
        yield y

    it = g()
    a = next(it)
    print("break")
    b = next(it)
    return a + b


@prog(None, graphs=None, breaks=None)
def gen_print_inside(x):
    def g():
        for i in range(3):
            print(i)
            yield x * i

    r = []
    for t in g():
        r.append(t + 1)
    return r


@prog(None, graphs=None, breaks=None)
def genexp_print_inside(x):
    def p(i):
        print(i)
        return x * i

    return list(p(i) for i in range(3))


def steps(t, *rest, k=3, **more):
    i = 0
    for s in (t.sin(), t.cos(), t.tan()):
        i += 1
        yield s + i * k


@prog
def gen_returned_advanced(x):
    g = steps(x + 1)
    return next(g), g


@prog
def gen_returned_not_started(x):
    return steps(x, 1, k=2, z=x), (y * 2 for y in (x, x + 1))


@prog
def gen_returned_exhausted(x):
    g = steps(x)
    return sum(g), g


@prog
def gen_returned_in_containers(x):
    def outer(t):
        yield from steps(t, k=t.sum())
        yield t

    g = outer(x)
    next(g)
    h = zip(range(2), steps(x))
    return {"g": [g], "h": list(h), "m": list(map(lambda t: t + 1, g))}


@prog
def gen_returned_with_cells(x):
    seen = [0]
    n = 1

    def g(t):
        def bump():
            seen[0] += n
            return t + seen[0]

        while seen[0] < 4:
            yield bump()

    a = g(x)
    b = next(a)
    n = 2
    return a, b, g(x)


@prog
def gen_returned_inside_try(x):
    log = []

    def g():
        try:
            yield x + 1
            yield x + 2
        finally:
            log.append("end")

    a = g()
    return next(a), a, log


@prog
def gen_returned_that_takes_values(x):
    def g():
        z = yield x
        while z is not None:
            z = yield x + z

    a = g()
    next(a)
    return a.send(2), a


@prog
def gen_that_refers_to_itself(x):
    def g():
        yield x + 1
        yield x + (me is not None)

    me = g()
    next(me)
    return me


@prog(graphs=2, breaks=1)
def gen_kept_over_a_break(x):
    g = steps(x)
    a = next(g)
    print("break")
    return a + next(g), g


@prog
def function_that_returns_itself(x):
    def f():
        return f

    return x + 1, f is f(), [f() is f for _ in range(2)]
