"""Programs about objects: callables, methods, super, weak references, copies, exceptions.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === callable_objects
class F:
    def __init__(self, k):
        self.k = k
        self.calls = 0

    def __call__(self, x, *, s=1):
        self.calls += 1
        return x * self.k + s


class G:
    def __init__(self):
        self.fn = lambda v: v + 1
        self.t = torch.sin
        self.m = [].append

    def run(self, x):
        return self.fn(self.t(x))


h = F(3)
g = G()


def f(x):
    return h(x, s=2) + F(2)(x) + g.run(x) + list(map(h, [x]))[0]


S = lambda: h.calls


# === bound_methods
class C:
    def __init__(self, n):
        self.n = n

    def m(self, x):
        return x * self.n

    def chain(self):
        self.n += 1
        return self


c = C(2)
bm = c.m


def f(x):
    m = c.m
    k = C(3).m
    return (
        m(x) + k(x) + bm(x) + C.m(c, x),
        m.__self__ is c,
        m.__func__ is C.m,
        m == c.m,
        c.chain().chain().n,
        m.__name__,
        k,
    )


g = f


def f(x):
    r = list(g(x))
    r[-1] = r[-1](torch.ones(2))
    return r


S = lambda: c.n


# === super_forms
class A:
    def __init__(self, v=0):
        self.v = v

    def m(self, x):
        return x + self.v

    @classmethod
    def c(cls):
        return cls.__name__ + "A"

    @property
    def p(self):
        return 1


class M1(A):
    def m(self, x):
        return super().m(x) * 2


class M2(A):
    def m(self, x):
        return super(M2, self).m(x) + 10


class D(M1, M2):
    def __init__(self, v):
        super().__init__(v)
        self.w = super().p

    def m(self, x):
        s = super()
        return s.m(x)

    @classmethod
    def c(cls):
        return super().c() + "D"

    @property
    def p(self):
        return super().p + 1


d = D(1)


def f(x):
    return (
        d.m(x) + D(2).m(x),
        D.c(),
        d.p,
        d.w,
        [k.__name__ for k in D.__mro__],
        super(D, d).p,
        D.mro()[1] is M1,
    )


# === function_attrs
def g(x):
    g.calls = getattr(g, "calls", 0) + 1
    return x * g.calls


def h(a, b=2, *, c=3):
    "doc"
    return a


def f(x):
    def k(y):
        return y

    k.tag = 1
    h.mark = 5
    return (
        g(x),
        k.tag,
        h.__name__,
        h.__doc__,
        h.__defaults__,
        h.__kwdefaults__,
        h.__code__.co_argcount,
        h.__module__,
        h.mark,
        f.__name__,
        h.__code__.co_varnames,
        h.__qualname__,
        k.__closure__,
    )


S = lambda: (g.calls, h.mark)


# === function_defaults_changed
def h(a, b=2):
    return a * b


def f(x):
    return h(x)


def between():
    h.__defaults__ = (h.__defaults__[0] + 1,)


# === inspect_signature
import inspect


class C:
    def m(self, a, *r, k=1):
        return a


def h(a, b=2, *c, d: int = 3, **e):
    return a


def f(x):
    s = inspect.signature(h)
    b = s.bind(x, 5, z=1)
    b.apply_defaults()
    return (
        h(*b.args, **b.kwargs) + 1,
        list(s.parameters),
        s.parameters["b"].default,
        s.parameters["d"].kind.name,
        b.arguments["b"],
        str(inspect.signature(C().m)),
        inspect.isfunction(h),
        inspect.ismethod(C().m),
        inspect.isclass(C),
        s.parameters["d"].annotation is int,
        inspect.getfullargspec(h).args,
        s.parameters["a"].default is inspect.Parameter.empty,
        inspect.isgeneratorfunction(h),
        inspect.unwrap(h) is h,
    )


# === weakrefs
import weakref


class C:
    def m(self):
        return 3


c = C()
W = weakref.ref(c)
WK = weakref.WeakKeyDictionary()
WK[c] = 2
WV = weakref.WeakValueDictionary(a=c)
WS = weakref.WeakSet([c])
WM = weakref.WeakMethod(c.m)
Pr = weakref.proxy(c)
c.v = 5


def f(x):
    r = weakref.ref(c)
    return (
        x * W().m() + WK[c],
        r() is c,
        W() is c,
        WV["a"] is c,
        c in WK,
        len(WK),
        W == r,
        weakref.getweakrefcount(c) > 0,
    )


# === weakref_to_tensor_owner
import weakref

m = torch.nn.Linear(3, 3)


class Child:
    def __init__(self, p):
        self.p = weakref.ref(p)


ch = Child(m)


def f(x):
    return ch.p()(x) * 2


S = lambda: 0
torch.nn.init.ones_(m.weight)
torch.nn.init.zeros_(m.bias)


# === weakref_mutating breaks=1
import weakref


class C:
    pass


c = C()
WK = weakref.WeakKeyDictionary()
WS = weakref.WeakSet()


def f(x):
    WK[c] = WK.get(c, 0) + 1
    WS.add(c)
    return x * WK[c] + len(WS)


S = lambda: (len(WK), WK[c], len(WS))


# === weakref_finalize breaks=1
import weakref


class C:
    pass


log = []


def f(x):
    c = C()
    weakref.finalize(c, log.append, 1)
    r = weakref.ref(c)
    y = x * 2
    del c
    return y + len(log), r() is None


S = lambda: log


# === del_method breaks=1
log = []


class C:
    def __init__(self, x):
        self.x = x

    def __del__(self):
        log.append("del")


def f(x):
    c = C(x)
    y = c.x * 2
    del c
    log.append("after")
    return y + len(log)


S = lambda: log


# === copy_module
import copy


class C:
    def __init__(self, a):
        self.a = a
        self.l = [a]


class K:
    def __init__(self):
        self.n = 0

    def __copy__(self):
        k = K()
        k.n = 1
        return k

    def __deepcopy__(self, memo):
        k = K()
        k.n = 2
        return k


o = C(torch.ones(3))
D = {"t": torch.ones(3), "l": [1, [2]]}
L = [D, o]


def f(x):
    c = C(x)
    d = copy.copy(c)
    e = copy.copy(o)
    d.l.append(1)
    e.a = x
    g = copy.deepcopy([1, {"a": (2, [3])}])
    h = copy.copy(D)
    h["new"] = 1
    i = copy.copy([x, 1])
    j = copy.copy({1, 2})
    k = copy.deepcopy(K())
    m = copy.copy(K())
    return (
        c.a + o.a,
        len(c.l),
        d.l is c.l,
        e.l is o.l,
        g,
        h,
        i,
        j,
        k.n,
        m.n,
        copy.copy((x,)),
        copy.deepcopy(3),
        copy.copy(f) is f,
        copy.copy(C) is C,
    )


S = lambda: (o.l, D)


# === deepcopy_tensors
import copy


class C:
    def __init__(self, a):
        self.a = a
        self.l = [a]


o = C(torch.ones(3))
D = {"t": torch.ones(3)}


def f(x):
    a = copy.deepcopy(C(x))
    b = copy.deepcopy(D)
    c = copy.deepcopy([x, (x, 1)])
    d = copy.deepcopy(o)
    a.a.add_(1)
    b["t"].add_(2)
    c[0].mul_(3)
    d.a.add_(5)
    return a.a + b["t"] + c[0] + d.a + o.a + x, a.l[0] is a.a, c[0] is c[1][0], d.l[0] is d.a


S = lambda: (o.a, D)


# === config_copy
import copy


class Config:
    def __init__(self, **k):
        self.__dict__.update(k)

    def to_dict(self):
        return copy.deepcopy(self.__dict__)


cfg = Config(n=2, sub={"a": [1]}, name="c", dt=torch.float32)


def f(x):
    c = copy.copy(cfg)
    c.n = 5
    d = copy.deepcopy(cfg)
    d.sub["a"].append(2)
    e = cfg.to_dict()
    return x * c.n + cfg.n + len(d.sub["a"]) + e["n"], len(cfg.sub["a"]), d.dt


S = lambda: vars(cfg)


# === model_output
from transformers.utils import ModelOutput
from dataclasses import dataclass
from typing import Optional, Any


@dataclass
class Out(ModelOutput):
    a: Optional[Any] = None
    b: Optional[Any] = None


def f(x):
    o = Out(a=x)
    o.b = x + 1
    o["a"] = o["a"] * 2
    return (
        o,
        o[0] + o.b,
        o.to_tuple(),
        list(o.keys()),
        "b" in o,
        len(o),
        o.get("zz"),
        dict(o.items()),
        {**o}["a"],
        isinstance(o, dict),
    )


# === model_output_arg
from transformers.utils import ModelOutput
from dataclasses import dataclass
from typing import Optional, Any


@dataclass
class Out(ModelOutput):
    a: Optional[Any] = None
    b: Optional[Any] = None


def ARGS():
    return (Out(a=torch.ones(3)),)


def f(o):
    o.b = o.a * 2
    n = Out(**o)
    return n.a + o[1], o.to_tuple(), n


# === transformers_config
from transformers import PretrainedConfig
import copy

cfg = PretrainedConfig(hidden=4, layers=2)


def f(x):
    c = copy.deepcopy(cfg)
    c.hidden = 7
    return x * cfg.hidden + c.hidden + getattr(cfg, "nope", 3), cfg.use_return_dict


S = lambda: cfg.hidden


# === exceptions_custom
class E(Exception):
    def __init__(self, m, code):
        super().__init__(m)
        self.code = code


def f(x):
    try:
        raise E("m", 3)
    except E as e:
        c, a, s = e.code, e.args, str(e)
    try:
        try:
            1 / 0
        except ZeroDivisionError as z:
            raise KeyError("k") from z
    except KeyError as k:
        t = type(k.__cause__).__name__, k.__context__ is k.__cause__
    return x * c, a, s, t


# === exception_stored
class C:
    err = None


c = C()


def f(x):
    try:
        raise ValueError("v")
    except ValueError as e:
        c.err = e.args
    return x + 1


S = lambda: c.err


# === mro_and_bases
class A:
    pass


class B(A):
    "d"


def f(x):
    return (
        x + 1,
        B.__bases__ == (A,),
        B.__mro__ == (B, A, object),
        B.__doc__,
        B.__module__,
        B.__name__,
        A.__subclasses__() == [B],
        B().__doc__,
        object.__new__(B).__class__ is B,
        B.__dict__.get("zz"),
        type(B) is type,
        A.__init__ is object.__init__,
    )


# === class_swap
class A:
    def m(self, x):
        return x + 1


class B(A):
    def m(self, x):
        return x * 2


o = A()


def f(x):
    return o.m(x)


def between():
    o.__class__ = B


# === class_assignment_inside breaks=1
class A:
    k = 1


class B:
    k = 2


o = A()


def f(x):
    c = A()
    c.__class__ = B
    o.__class__ = B
    return x * c.k + o.k


def between():
    o.__class__ = A


S = lambda: type(o).__name__


# === dict_replaced breaks=1
class C:
    pass


o = C()
o.a = 1


def f(x):
    c = C()
    c.__dict__ = {"z": x}
    o.__dict__ = {"a": o.a + 1, "q": 2}
    return c.z * o.a + o.q


S = lambda: vars(o)


# === dict_update_on_instance
class C:
    pass


o = C()
o.a = 1


def f(x):
    o.__dict__.update(b=x, a=o.a + 1)
    o.__dict__["c"] = 3
    o.__dict__.pop("c")
    d = o.__dict__
    d["z"] = 5
    c = C()
    c.__dict__.update({"q": x})
    return o.b * o.a + c.q + o.z


S = lambda: vars(o)


# === functools_class_tools
import functools


class C:
    n = 0

    @functools.cached_property
    def cp(self):
        self.n += 1
        return torch.ones(3) * self.n

    @functools.singledispatchmethod
    def sd(self, a):
        return "any"

    @sd.register
    def _(self, a: int):
        return "int"

    pm = functools.partialmethod(lambda self, a, b: a * b, b=3)


@functools.total_ordering
class O:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return self.v == o.v

    def __lt__(self, o):
        return self.v < o.v

    __hash__ = None


@functools.singledispatch
def sd(a):
    return "any"


@sd.register(list)
def _(a):
    return "list"


@functools.wraps(sd)
def w(*a):
    return sd(*a)


c = C()


def f(x):
    return c.cp + c.cp + C().cp, c.pm(x), O(1) >= O(0), O(2) > O(1), max([O(1), O(3)], key=lambda o: o.v).v


S = lambda: c.n
