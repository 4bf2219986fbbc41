"""Programs about objects: views, threads, numbers, classes that change, weak proxies.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === out_args
o = torch.zeros(3)


def f(x):
    torch.add(x, 1, out=o)
    y = o * 2
    torch.mul(x, 2, out=o)
    return y


S = lambda: o


# === view_chain_writes
T = torch.zeros(2, 3)


def f(x):
    v = T[0]
    w = T.t()[1]
    v += x
    w.mul_(3)
    T[:, 2].fill_(8)
    T.select(0, 1).copy_(x)
    v[0:1] += 5
    return T.sum() + v.sum() + w.sum(), v


S = lambda: T


# === setitem_masks
def f(x):
    y = x.clone()
    y[y > 1] = 0
    y[torch.tensor([0])] = 4
    y[..., -1:] -= 2
    y[None, 1] = 3
    return y


# === subclass_getattr_module
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(3, 3)

    def __getattr__(self, n):
        try:
            return super().__getattr__(n)
        except AttributeError:
            return getattr(self.lin, n)


m = M()


def f(x):
    return m.lin(x).detach() * m.in_features, m.weight.shape, hasattr(m, "nope")


# === type_tricks breaks=1
def f(x):
    return (
        x * (type(x) is torch.Tensor) + (x.__class__ is torch.Tensor),
        isinstance(x, (int, torch.Tensor)),
        type(3)(4.5),
        type("D", (dict,), {})(a=1),
        issubclass(bool, int),
        callable(f),
        type(x).__name__,
        x.__class__.__mro__[-1] is object,
    )


# === threading_local_attributes
import threading

L = threading.local()
L.v = 2


class K(threading.local):
    z = 5

    @property
    def two(self):
        return self.q * 2

    def __getattr__(self, n):
        return n


l = K()
l.q = 4


def f(x):
    if hasattr(L, "gone"):
        del L.gone
    else:
        L.gone = x
    return x * L.v + l.two + l.z, l.nope, sorted(L.__dict__), getattr(L, "no", 1)


S = lambda: (L.v, hasattr(L, "gone"), l.q)


# === threading_local_with_init
import threading

made = []


class K(threading.local):
    def __init__(self):
        made.append(1)
        self.v = 2


L = K()


def f(x):
    L.v += 1
    return x * L.v


S = lambda: (L.v, len(made))


# === numbers_that_change_in_dicts_of_many_kinds
class L(list):
    pass


class D(dict):
    pass


class C:
    b = 0


l = L([1])
l.k = 0
d = D(a=1)
d.k = 0
big = {i: i for i in range(600)}


def kd(x, *, k=0):
    return x * k


def f(x):
    return x * l.k, x * d.k, x * big[5], x * C.__dict__["b"], x * vars(C).get("b"), kd(x)


def between():
    l.k += 1
    d.k += 2
    C.b += 3
    big[5] += 1000
    kd.__kwdefaults__["k"] += 4


# === class_dict_read
import typing


class C:
    a: int
    b = 3


def f(x):
    return (
        x * len(typing.get_type_hints(C, include_extras=True)),
        len(vars(C)),
        sorted(C.__dict__),
        dict(vars(C))["b"],
        list(vars(C))[-1],
        "b" in set(C.__dict__),
    )


def between():
    C.b += 1


# === one_key_of_a_huge_dict
import sys

D = {f"k{i}": i for i in range(6000)}


def f(x):
    return (
        x * D.get("k7"),
        D.get("new"),
        D.get("nothing", 5),
        D.__contains__("k9"),
        D.__getitem__("k8"),
        "k5" in D,
        D["k6"],
        dict.get(D, "k1"),
        sys.modules.get("torch") is torch,
    )


def between():
    D["k7"] += 1
    D["new"] = D.get("new", 0) + 2


# === threading_local
import threading

L = threading.local()
L.v = 2


def f(x):
    L.v = getattr(L, "v", 0) + 1
    return x * L.v


S = lambda: L.v


# === lock_use breaks=1
import threading

K = threading.Lock()
n = [0]


def f(x):
    with K:
        n[0] += 1
        y = x + n[0]
    return y, K.locked()


S = lambda: n


# === tensor_subclass_attr breaks=1
class T(torch.Tensor):
    pass


def f(x):
    x = x.as_subclass(T)
    y = x * 2
    return type(y).__name__, x.shape


# === warn_once breaks=1
import warnings

seen = []


def f(x):
    if not seen:
        seen.append(1)
        warnings.warn("first")
    return x + 1


# === older_iter_map
L = [1, 2, 3]


def f(x):
    it = iter(L)
    a = next(it)
    L.append(a)
    return x * sum(it) + len(L)


S = lambda: L


# === nested_defaults
def g(x, l=[], *, d={}):
    l.append(len(l))
    d[len(d)] = x
    return x * len(l) + len(d)


def f(x):
    return g(x) + g(x)


S = lambda: (g.__defaults__[0], sorted(g.__kwdefaults__["d"]))


# === cached_prop
import functools


class C:
    n = 0

    @functools.cached_property
    def w(self):
        C.n += 1
        return torch.ones(3) * 2


c = C()


def f(x):
    return x * c.w + c.w, C.n


S = lambda: (C.n, "w" in vars(c))


# === grad_fn_attr
def f(x):
    y = x.clone().requires_grad_()
    z = y * 2
    return z.grad_fn is not None, z.is_leaf, y.is_leaf, z.detach()


# === numbers_from_special_methods breaks=1
import operator, random


class N:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n

    def __index__(self):
        return self.n

    def __int__(self):
        return self.n

    def __float__(self):
        return self.n * 1.0


class R:
    def __hash__(self):
        return random.randrange(10)


calls = [0]


def f(x):
    calls[0] += 1
    o = N(calls[0])
    try:
        n = (
            len({o, N(40)}),
            {o: 1}[o],
            [7, 8, 9, 10, 11, 12, 13, 14][o],
            int(o),
            float(o),
            list(range(o)),
            hex(o),
            operator.index(o),
        )
    except TypeError as e:
        n = str(e)
    try:
        k = {R(): 1}.popitem()[1]
    except TypeError as e:
        k = str(e)
    return x + 1, n, k


# === class_of_a_module_object breaks=1
import types


def f(x):
    log = []

    class S(types.ModuleType):
        a = 1

    class M(types.ModuleType):
        def __getattribute__(self, name):
            log.append(name)
            return types.ModuleType.__getattribute__(self, name)

        def __setattr__(self, name, v):
            log.append(("set", name))
            types.ModuleType.__setattr__(self, name, v)

    m = types.ModuleType("m")
    m.__class__ = S
    k = M("k")
    k.foo = 12
    return x + m.a, hasattr(m, "a"), type(m) is S, k.foo, log


# === death_of_objects_made_by_new breaks=1
class C:
    count = 0

    def __new__(cls):
        cls.count += 1
        return object.__new__(cls)

    def __del__(self):
        self.__class__.count -= 1


def f(x):
    a = C.count
    c = C()
    a = a, C.count
    del c
    l = [C(), C()]
    a = a, C.count
    del l
    return x + 1, a, C.count


# === classes_written_while_they_are_made
import enum


class Named:
    def __init__(self, n):
        self.n = n

    def __set_name__(self, owner, name):
        owner.total = getattr(owner, "total", 0) + self.n


class Base:
    def __init_subclass__(cls):
        cls.seen = cls.__name__


def f(x):
    class F(enum.Flag):
        A = 1
        B = 2

    class I(enum.IntFlag):
        A = enum.auto()
        B = enum.auto()

    class T(Base):
        a = Named(3)
        b = Named(4)

    both = F.A | F.B
    return (
        x + T.total,
        both.value,
        F.A in both,
        int(I.A | I.B),
        F._flag_mask_,
        len(F.__members__),
        F(1).name,
        T.seen,
    )


# === weak_proxies breaks=1
import weakref


class L:
    pass


class O:
    def __init__(self):
        self.held = L()
        self.r = r = weakref.proxy(self.held)
        r.prev = r.next = r


o = O()


def f(x):
    d = O()
    d.r.val = x + 1
    o.r.val = x + 1
    y = o.r.val + 1
    o.held.val = 3
    y = y + o.r.val
    return d.held.val, d.held.prev is d.r, hasattr(d.r, "zz"), y, hasattr(o.r, "q")


# === weak_proxies_of_older_objects graphs=1
import weakref


class T:
    n = 2

    def __init__(self):
        self.x = torch.ones(3)
        self.log = []

    def scale(self, k):
        self.log.append(k)
        self.seen = k
        return self.x * k


t = T()
p = weakref.proxy(t)


def f(x):
    return p.x + p.scale(3) * p.n + x, hasattr(p, "seen"), t.seen


def between():
    t.x = t.x + 1
    T.n += 1


S = lambda: (t.log, t.seen)


# === chained_compare_objects
class C:
    def __init__(self, v):
        self.v = v

    def __lt__(self, o):
        return C(self.v + 1)

    def __bool__(self):
        return self.v > 0

    def __radd__(self, o):
        return o * 2

    def __matmul__(self, o):
        return "mm"

    def __contains__(self, k):
        return k == 3

    def __index__(self):
        return 1


def f(x):
    a = C(1)
    return x + (1 if (a < a < a) else 0), x[C(1)], 3 in a, a @ a, 5 + a, [7, 8][a], hex(a)


# === abstract_classes_know_classes_made_here breaks=2
import collections.abc as c


class Base:
    pass


def f(x):
    class A(Base):
        pass

    y = x + (c.MutableSequence.register(A) is A)
    print(end="")
    return y * 2, issubclass(A, c.Sequence), isinstance(A(), c.Sized), issubclass(A, c.Mapping)


# === named_tuples_of_c breaks=1
import os, time


def f(x):
    size, when = os.terminal_size((3, 4)), time.struct_time((2005, 3, 2, 0, 0, 0, 2, 61, -1, "zone", 60))
    best = x.max(0)
    print(end="")
    return (
        x * size.lines + when.tm_year,
        size,
        when,
        when.tm_zone,
        when.tm_gmtoff,
        best.values * 2,
        tuple(best),
    )
