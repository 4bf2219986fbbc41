"""Programs about objects: classes and instances that a call makes.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === class_made_inside_and_returned
def f(x):
    class A:
        "doc"

        k = 2

        def __init__(self, v):
            self.v = v

        def m(self):
            return self.v * self.k

        @property
        def p(self):
            return self.m() + 1

        @staticmethod
        def s(x):
            return x * 2

        @classmethod
        def c(cls, x):
            return cls(x)

    class B(A):
        __slots__ = ("w",)

        def __init__(self, v):
            super().__init__(v)
            self.w = v - 1

    b = B(x)
    a = A.c(x + 1)
    return a, b, A, B, b.p, B.s(x), type(a) is A


# === class_made_inside_works_afterwards
class G:
    def __init__(self, make):
        self.a, self.cls = make()

    def again(self):
        return (
            self.cls(3).m(),
            self.a.m(),
            type(self.a) is self.cls,
            isinstance(self.cls(1), self.cls.__bases__[0]),
        )


def f(x):
    class Base:
        def m(self):
            return 10

    class A(Base):
        def __init__(self, v):
            self.v = v

        def m(self):
            return super().m() + self.v

    out.append((A(x), A))
    return x + 1


out = []


def between():
    a, cls = out[-1]
    out.append((cls(3).m(), a.m(), type(a) is cls, cls.__mro__[1].__name__))
    del out[-2]


S = lambda: out


# === class_made_inside_over_c_types
def f(x):
    class E(ValueError):
        pass

    class L(list):
        tag = "x"

    class T(tuple):
        pass

    class I(int):
        pass

    l = L([x + 1])
    l.z = x
    t = T((x, 2))
    t.q = x * 2
    return E("a", 1).args, l, t, I(3) + 1, t.q, l.tag


# === class_made_inside_across_a_break breaks=1
def f(x):
    class A:
        def __init__(self, v):
            self.v = v

        def m(self):
            return self.v + 1

    a = A(x * 2)
    print("break")
    return a.m(), isinstance(a, A), a


# === tuple_subclass_with_attributes
class T(tuple):
    pass


class P(tuple):
    def __new__(cls, a, b):
        t = super().__new__(cls, (a, b))
        t.sum = a + b
        return t


def f(x):
    t = T([x, 1])
    t.a = x + 1
    t.me = [t]
    p = P(x, x)
    return t.a, t.me[0] is t, p.sum, p, [t]


# === namedtuple_made_inside
import collections


def f(x):
    N = collections.namedtuple("N", "a b", defaults=(x + 1,))
    n = N(x)
    m = n._replace(a=2)
    return n, m, N._fields, n.b + m.b, N._make([1, 2]), N.__module__, callable(N._make)


# === namedtuple_made_inside_works_afterwards
import collections

out = []


def f(x):
    out.append(collections.namedtuple("N", ["a", "b"])(x, 1))
    return x + 1


def between():
    n = out.pop()
    out.append((n._asdict(), n._replace(b=2)[1], repr(type(n)), n.a is n[0]))


S = lambda: out


# === wraps_of_cached_function
import functools


@functools.lru_cache
def g(x: int) -> int:
    "doc"
    return x * 2


def deco(fn):
    @functools.wraps(fn)
    def inner(*a, **k):
        return fn(*a, **k)

    return inner


def f(x):
    h = deco(g)
    return h(x) + h(3), h.__name__, h.__doc__, h.__annotations__, h.__wrapped__ is g


# === exception_frames_cleared
import traceback


def g(x, kind):
    y = x + 1
    raise kind("no")


def f(x):
    try:
        g(x, KeyError)
    except KeyError as e:
        tb = e.__traceback__
        traceback.clear_frames(tb)
        names = []
        while tb is not None:
            names.append(tb.tb_frame.f_code.co_name)
            tb = tb.tb_next
    return x * 2, names


# === instances_made_by_c_code
class A:
    def __init__(self, v):
        self.v = v


class B(A):
    __slots__ = ("w",)


def f(x):
    l = list(map(A, [x, x + 1]))
    b = next(map(B, [x * 2]))
    b.w = 1
    return l, l[0].v + 1, b, [a.v for a in map(A, [x])]


# === deepcopy_of_older_modules
import copy

nn = torch.nn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ModuleDict({"a": nn.ReLU()})["a"])
m.cfg = {"a": [1, torch.ones(2)]}


def ARGS():
    return (torch.randn(4, 3),)


def f(x):
    c = copy.deepcopy(m)
    c[0].bias.requires_grad
    d = copy.deepcopy(c)
    return (
        c(x),
        c.cfg["a"][1] is m.cfg["a"][1],
        c.cfg,
        d[0].weight is c[0].weight,
        sorted(c.state_dict()),
        c[0].weight.requires_grad,
        copy.copy(m)(x),
    )


S = lambda: [b.clone() for b in m.buffers()]


# === keys_of_classes_that_compare breaks=3 before=14
# From 3.14 on CPython itself finds one class or the other, from call to call.
def f(x):
    class Key:
        def __hash__(self):
            return hash("m")

        def __eq__(self, other):
            C.__bases__ = (Two,)
            return False

    class One:
        m = "one"
        k = 1

    class Two:
        m = "two"
        k = 2

    C = type("C", (One,), {Key(): 5})
    return x * C.k, C.m, C.k


# === deepcopy_asks_for_the_state
import copy


class A:
    def __init__(self):
        self.n = 0
        self.t = torch.ones(2)
        self.s = {1, 2}

    def __getstate__(self):
        self.n += 1
        d = dict(self.__dict__)
        d.pop("s")
        return d

    def __setstate__(self, d):
        self.__dict__.update(d)
        self.back = True


a = A()


def f(x):
    b = copy.deepcopy(a)
    c = copy.copy(a)
    b.t = b.t + x[:2]
    return b, c, b.n + c.n, hasattr(b, "s"), copy.deepcopy({1, 2}), c.t is a.t


S = lambda: vars(a)


# === metaclass_orders_bases breaks=1
log = []


class M(type):
    def mro(cls):
        log.append((cls.__mro__ is None, cls.__name__, hasattr(super(cls, cls), "zz")))
        return type.mro(cls)


def f(x):
    class A(metaclass=M):
        k = 2

    return x * A.k, A.__mro__ == (A, object)


S = lambda: log


# === subclasses_of_a_class_made_here
def f(x):
    class A:
        k = 2

    none = A.__subclasses__()

    class B(A):
        pass

    one = A.__subclasses__() == [B]
    return x * B.k, none, one


# === limit_of_digits
import sys


def f(x):
    was = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        n = len(str(10**700))
    except ValueError:
        n = -1
    sys.set_int_max_str_digits(0)
    m = len(str(10**700))
    sys.set_int_max_str_digits(was + 1)
    return x * n, n, m, was


S = lambda: (sys.get_int_max_str_digits(), sys.set_int_max_str_digits(4300))
