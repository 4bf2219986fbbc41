"""What a recording may have read, and ways to change it: name -> maker of (function of one tensor, changes).

Each maker gives a fresh program, so that its changes may be made in any order.
"""

import builtins
import collections
import dataclasses
import functools
import math
import operator
import os
import sys
import types

import torch
import torch.nn.functional as F
from torch import nn

CASES = {}


def case(name):
    def deco(f):
        CASES[name] = f
        return f

    return deco


# each case returns (fn(x)->anything, [mutators])
G = 3


@case("global")
def _():
    ns = {"torch": torch, "G": 3}
    exec("def f(x): return x*G", ns)
    return ns["f"], [
        lambda: ns.__setitem__("G", 4),
        lambda: ns.__setitem__("G", 4.0),
        lambda: ns.__setitem__("G", torch.ones(3) * 9),
        lambda: (ns.pop("G"), ns.__setitem__("__builtins__", dict(vars(builtins), G=11))),
    ]


@case("builtin shadow")
def _():
    ns = {"torch": torch}
    exec("def f(x): return x*len((1,2))*max(1,2)*abs(-3)", ns)

    def shadow():
        ns["len"] = lambda t: 7

    def bi():
        builtins.max = lambda *a: 100

    def back():
        builtins.max = mx

    mx = max
    return ns["f"], [shadow, bi, back]


@case("code swap")
def _():
    def g(x):
        return x + 1

    def h(x):
        return x + 2

    def f(x):
        return g(x) * 2

    def f2(x):
        return x

    return f, [
        lambda: setattr(g, "__code__", h.__code__),
        lambda: setattr(g, "__defaults__", (5,)),
        lambda: setattr(
            f,
            "__code__",
            (lambda x: x * 5).__code__
            if not f.__closure__
            else f.__code__.replace(co_consts=tuple(7 if c == 2 else c for c in f.__code__.co_consts)),
        ),
    ]


@case("kwdefaults")
def _():
    def g(x, *, k=2):
        return x * k

    def f(x):
        return g(x)

    return f, [
        lambda: g.__kwdefaults__.__setitem__("k", 5),
        lambda: setattr(g, "__kwdefaults__", {"k": 9}),
        lambda: g.__kwdefaults__.__setitem__("k", 6),
    ]


@case("kwdefaults mutable global fn")
def _():
    ns = {}
    exec("def g(x, *, k=[2]): return x*k[0]\ndef f(x): return g(x)", ns)
    g = ns["g"]
    return ns["f"], [
        lambda: g.__kwdefaults__["k"].__setitem__(0, 5),
        lambda: g.__kwdefaults__.__setitem__("k", [6]),
        lambda: setattr(g, "__kwdefaults__", {"k": [9]}),
        lambda: g.__kwdefaults__.__setitem__("k", [11]),
    ]


@case("kwdefaults own")
def _():
    def f(x, *, k=2):
        return x * k

    return f, [lambda: f.__kwdefaults__.__setitem__("k", 5), lambda: setattr(f, "__kwdefaults__", {"k": 9})]


@case("defaults mutable")
def _():
    def g(x, k=[1, 2]):  # noqa: B006  a change writes to it
        return x * sum(k)

    def f(x):
        return g(x)

    return f, [
        lambda: g.__defaults__[0].append(5),
        lambda: setattr(g, "__defaults__", ([7],)),
        lambda: g.__defaults__[0].append(1),
    ]


class A:
    k = 2

    def __init__(s, v):
        s.v = v

    def __add__(s, o):
        return o * s.v

    def __len__(s):
        return 3

    def __eq__(s, o):
        return True

    def __hash__(s):
        return 1

    def __bool__(s):
        return True

    def __call__(s, x):
        return x * 2

    def __getitem__(s, i):
        return i + s.v

    def __contains__(s, i):
        return i == s.v

    def __iter__(s):
        return iter([s.v, 2])

    def __enter__(s):
        return s.v

    def __exit__(s, *a):
        return None

    def __neg__(s):
        return s.v

    def __index__(s):
        return 1

    def __float__(s):
        return 2.5

    def __lt__(s, o):
        return True

    @property
    def p(s):
        return s.v * 10

    def m(s):
        return s.v

    @classmethod
    def c(cls):
        return cls.k

    @staticmethod
    def s():
        return 4


def newA():
    d = dict(A.__dict__)
    d.pop("__dict__", None)
    d.pop("__weakref__", None)
    return type("A", (), d)


def cls_case(name, use, *attrs):
    @case("class op " + name)
    def _():
        C = newA()
        a = C(3)

        def f(x):
            return use(x, a)

        return f, [functools.partial(setattr, C, n, v) for n, v in attrs]


cls_case("add", lambda x, a: a + x, ("__add__", lambda s, o: o * 100))
cls_case("len", lambda x, a: x * len(a), ("__len__", lambda s: 30))
cls_case("eq", lambda x, a: x if a == 5 else x * 2, ("__eq__", lambda s, o: False))
cls_case("bool", lambda x, a: x if a else x * 2, ("__bool__", lambda s: False))
cls_case("call", lambda x, a: a(x), ("__call__", lambda s, x: x * 20))
cls_case("getitem", lambda x, a: x * a[2], ("__getitem__", lambda s, i: i * 100))
cls_case("contains", lambda x, a: x * (3 in a), ("__contains__", lambda s, i: False))
cls_case("iter", lambda x, a: x * sum(a), ("__iter__", lambda s: iter([1, 2, 3, 4])))


def _w(x, a):
    with a as v:
        return x * v


cls_case("with", _w, ("__enter__", lambda s: 77))
cls_case("neg", lambda x, a: x * -a, ("__neg__", lambda s: 77))
cls_case("float", lambda x, a: x * float(a), ("__float__", lambda s: 7.5))
cls_case("index", lambda x, a: x * [1, 2, 3][a], ("__index__", lambda s: 2))
cls_case("lt", lambda x, a: x * (a < 1), ("__lt__", lambda s, o: False))
cls_case("prop", lambda x, a: x * a.p, ("p", property(lambda s: 5)), ("p", 6))
cls_case("meth", lambda x, a: x * a.m(), ("m", lambda s: 5))
cls_case("cm", lambda x, a: x * a.c(), ("c", classmethod(lambda s: 5)))
cls_case("sm", lambda x, a: x * a.s(), ("s", staticmethod(lambda: 5)))
cls_case("attr", lambda x, a: x * a.k, ("k", 5))
cls_case("getattr added", lambda x, a: x * getattr(a, "zz", 1), ("zz", 5))
cls_case("__getattr__ added", lambda x, a: x * getattr(a, "zz", 1), ("__getattr__", lambda s, n: 8))
cls_case("__getattribute__ added", lambda x, a: x * a.v, ("__getattribute__", lambda s, n: 8))
cls_case("hash", lambda x, a: x * {a: 3}[a], ("__hash__", lambda s: 5))
cls_case(
    "radd", lambda x, a: (1 + a if hasattr(type(a), "__radd__") else 1) * x, ("__radd__", lambda s, o: 50)
)
cls_case("isinstance", lambda x, a: x * (2 if isinstance(a, collections.abc.Sized) else 3), ("__len__", None))
cls_case("iadd", lambda x, a: operator.iadd(a, x), ("__iadd__", lambda s, o: o * 31))
cls_case("repr", lambda x, a: x * len(repr(a.v)) * len(str(a)[:1]), ("__str__", lambda s: ""))
cls_case("format", lambda x, a: x * len(f"{a}"[:1]), ("__format__", lambda s, f: ""))


@case("class op init")
def _():
    C = newA()

    def f(x):
        return x * C(3).v

    def ini(s, v):
        s.v = v * 2

    return f, [
        lambda: setattr(C, "__init__", ini),
        lambda: setattr(C, "__new__", staticmethod(lambda cls, v: types.SimpleNamespace(v=55))),
    ]


@case("bases")
def _():
    class B1:
        k = 2

    class B2:
        k = 5

    class D(B1):
        pass

    d = D()

    def f(x):
        return x * d.k

    return f, [
        lambda: setattr(D, "__bases__", (B2,)),
        lambda: setattr(B2, "k", 9),
        lambda: setattr(D, "k", 1),
    ]


@case("__class__")
def _():
    class B1:
        k = 2

    class B2:
        k = 5

    d = B1()

    def f(x):
        return x * d.k

    return f, [lambda: setattr(d, "__class__", B2)]


@case("module __class__")
def _():
    class M1(nn.Module):
        def forward(s, x):
            return x * 2

    class M2(nn.Module):
        def forward(s, x):
            return x * 3

    m = nn.Sequential(M1(), nn.ReLU())

    def f(x):
        return m(x)

    return f, [lambda: setattr(m[0], "__class__", M2)]


class Net(nn.Module):
    def __init__(s):
        super().__init__()
        s.l = nn.Linear(3, 3)
        s.bn = nn.BatchNorm1d(3)
        s.act = nn.ReLU()
        s.seq = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0))
        s.register_buffer("buf", torch.ones(3))
        s.conf = {"a": 1, "b": [1, 2]}
        s.lst = [nn.Linear(3, 3)]
        s.ml = nn.ModuleList([nn.Linear(3, 3)])
        s.md = nn.ModuleDict({"q": nn.Linear(3, 3)})
        s.pl = nn.ParameterList([nn.Parameter(torch.ones(3))])

    def forward(s, x):
        x = s.act(s.bn(s.l(x))) + s.buf * s.conf["a"] * s.conf["b"][0]
        for m in s.ml:
            x = m(x)
        for k, m in s.md.items():
            x = m(x) * len(k)
        return s.seq(x) + s.lst[0](x) + s.pl[0]


def net_case(name, *muts):
    @case("net " + name)
    def _():
        torch.manual_seed(0)
        n = Net().eval()

        def f(x):
            return n(x)

        return f, [functools.partial(m, n) for m in muts]


net_case("train", lambda n: n.train(), lambda n: n.eval(), lambda n: setattr(n.bn, "training", True))
net_case(
    "swap",
    lambda n: setattr(n, "l", nn.Linear(3, 3)),
    lambda n: setattr(n, "act", nn.Tanh()),
    lambda n: n.seq.__setitem__(0, nn.Linear(3, 3)),
    lambda n: n.seq.append(nn.ReLU()),
    lambda n: n.ml.append(nn.Linear(3, 3)),
    lambda n: n.md.update({"zz": nn.Linear(3, 3)}),
    lambda n: n.lst.__setitem__(0, nn.Linear(3, 3)),
)
net_case(
    "params",
    lambda n: setattr(n.l, "weight", nn.Parameter(torch.ones(3, 3))),
    lambda n: setattr(n.l.weight, "data", torch.zeros(3, 3)),
    lambda n: n.l.weight.data.mul_(0).add_(2),
    lambda n: setattr(n.l, "bias", None),
    lambda n: n.l._parameters.__setitem__("weight", nn.Parameter(torch.eye(3))),
    lambda n: n.pl.__setitem__(0, nn.Parameter(torch.ones(3) * 4)),
    lambda n: n.l.weight.requires_grad_(False),
    lambda n: setattr(n, "buf", torch.zeros(3)),
    lambda n: n.buf.add_(3),
    lambda n: n.load_state_dict(
        {k: v * 0.5 if v.is_floating_point() else v for k, v in n.state_dict().items()}
    ),
)
net_case(
    "dtype",
    lambda n: setattr(n.l, "weight", nn.Parameter(torch.ones(3, 3).t())),
    lambda n: n.double() and n.float(),
)
net_case(
    "conf",
    lambda n: n.conf.__setitem__("a", 2),
    lambda n: n.conf["b"].__setitem__(0, 3),
    lambda n: setattr(n, "conf", {"a": 5, "b": [6]}),
)


def hook_by_hand(n):
    n.l._forward_hooks[12345] = lambda m, i, o: o * 3


def pre_by_hand(n):
    n.act._forward_pre_hooks[12346] = lambda m, i: (i[0] * 3,)


def clear(n):
    n.l._forward_hooks.clear()
    n.act._forward_pre_hooks.clear()


def bw(n):
    n.bn._backward_hooks[99999] = lambda m, gi, go: None


net_case(
    "hooks by registration",
    lambda n: n.l.register_forward_hook(lambda m, i, o: o * 2),
    lambda n: n.act.register_forward_pre_hook(lambda m, i: (i[0] * 2,)),
)
net_case("hooks by hand", hook_by_hand, pre_by_hand, clear, bw)


def glob(n):
    torch.nn.modules.module._global_forward_hooks[77777] = lambda m, i, o: (
        o * 1.5 if isinstance(o, torch.Tensor) else o
    )


def unglob(n):
    torch.nn.modules.module._global_forward_hooks.clear()


net_case("global hooks by hand", glob, unglob)
net_case(
    "forward patched",
    lambda n: setattr(n.l, "forward", lambda x: x * 7),
    lambda n: delattr(n.l, "forward"),
    lambda n: setattr(n, "forward", lambda x: x),
)
net_case(
    "delattr",
    lambda n: delattr(n, "act") or setattr(n, "act", nn.Identity()),
    lambda n: n.l.__dict__.__setitem__("weight", torch.ones(3, 3) * 5),
)


def patch(obj, name, new):
    old = getattr(obj, name)
    return (lambda: setattr(obj, name, new(old))), (lambda: setattr(obj, name, old))


for obj, name, use in [
    (F, "relu", lambda x: F.relu(x)),
    (torch, "sin", lambda x: torch.sin(x)),
    (torch.Tensor, "add", lambda x: x.add(1)),
    (torch.Tensor, "__add__", lambda x: x + 1),
    (torch.Tensor, "relu", lambda x: x.relu()),
    (torch.Tensor, "__mul__", lambda x: x * 2),
    (torch.Tensor, "__getitem__", lambda x: x[0]),
    (math, "sqrt", lambda x: x * math.sqrt(4)),
    (nn.Linear, "forward", lambda x: LIN(x)),
    (nn.Module, "__call__", lambda x: LIN(x)),
    (torch.Tensor, "shape", lambda x: x * x.shape[0]),
    (torch.Tensor, "size", lambda x: x * x.size(0)),
    (torch.Tensor, "__rsub__", lambda x: 1 - x),
    (torch.Tensor, "__iter__", lambda x: sum(x)),
    (torch.Tensor, "__len__", lambda x: x * len(x)),
]:

    @case(f"patch {getattr(obj, '__name__', obj)}.{name}")
    def _(obj=obj, name=name, use=use):
        own = name in vars(obj)
        old = getattr(obj, name)
        if name == "shape":
            new = property(lambda s: (50,))
        else:
            new = lambda *a: 42 + 0 * torch.ones(3) if name != "__len__" else 77
        if name == "__iter__":
            new = lambda s: iter([torch.ones(3)])
        if name == "size":
            new = lambda s, *a: 77
        if name == "sqrt":
            new = lambda *a: 9.0

        def back():
            if own:
                setattr(obj, name, old)
            else:
                delattr(obj, name)

        return use, [lambda: setattr(obj, name, new), back]


LIN = nn.Linear(3, 3)


@case("setattr on Tensor class new attr")
def _():
    def f(x):
        return x * getattr(x, "zork", 1)

    return f, [lambda: setattr(torch.Tensor, "zork", 5), lambda: delattr(torch.Tensor, "zork")]


@case("set order")
def _():
    s = {1, 9}

    def f(x):
        for i in s:
            x = x * 2 + i
        return x

    def order():
        s.clear()
        s.add(9)
        s.add(1)

    return f, [order, lambda: s.add(5)]


@case("set str order via attr")
def _():
    o = types.SimpleNamespace(s={8, 0})

    def f(x):
        for i in o.s:
            x = x * 2 + i
        return x

    def order():
        s = set(range(64))
        [s.discard(i) for i in range(64) if i not in (0, 8)]
        o.s = s

    def order2():
        o.s = set()
        o.s.add(0)
        o.s.add(8)

    return f, [order2, order]


@case("frozenset order")
def _():
    o = types.SimpleNamespace(s=frozenset([8, 0]))

    def f(x):
        for i in o.s:
            x = x * 2 + i
        return x

    return f, [lambda: setattr(o, "s", frozenset([0, 8]))]


@case("dict order")
def _():
    d = {"a": 1, "b": 2}

    def f(x):
        for k, v in d.items():
            x = x * 2 + v
        return x

    def order():
        v = d.pop("a")
        d["a"] = v

    return f, [order, lambda: d.__setitem__("c", 4)]


@case("module dict order")
def _():
    m = nn.ModuleDict({"a": nn.Linear(3, 3), "b": nn.ReLU()})

    def f(x):
        for k, v in m.items():
            x = v(x) + len(k)
        return x

    def order():
        v = m._modules.pop("a")
        m._modules["a"] = v

    return f, [order]


@case("instance dict order")
def _():
    o = types.SimpleNamespace(a=1, b=2)

    def f(x):
        for v in vars(o).values():
            x = x * 2 + v
        return x

    def order():
        v = o.a
        del o.a
        o.a = v

    return f, [order]


@case("global dict order (class attr)")
def _():
    class C:
        d = {"a": 1, "b": 2}

    def f(x):
        for v in C.d.values():
            x = x * 2 + v
        return x

    def order():
        v = C.d.pop("a")
        C.d["a"] = v

    return f, [order]


@case("closure")
def _():
    k = 2

    def setk(v):
        nonlocal k
        k = v

    def f(x):
        return x * k

    return f, [lambda: setk(3), lambda: setk(3.0), lambda: setk(True), lambda: setk(torch.ones(3) * 5)]


@case("enum/dataclass")
def _():
    @dataclasses.dataclass
    class D:
        a: int = 1
        b: list = dataclasses.field(default_factory=list)

    d = D(2, [1])

    def f(x):
        return x * d.a + len(d.b)

    return f, [lambda: setattr(d, "a", 9), lambda: d.b.append(1)]


@case("torch state")
def _():
    def f(x):
        y = x.float() * torch.ones(3)
        return (
            y + torch.empty(1).dtype.itemsize,
            torch.is_grad_enabled(),
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.get_default_dtype(),
        )

    n = torch.get_num_threads()
    return f, [
        lambda: torch.set_default_dtype(torch.float64),
        lambda: torch.set_default_dtype(torch.float32),
        lambda: torch.use_deterministic_algorithms(True),
        lambda: torch.use_deterministic_algorithms(False),
        lambda: torch.set_num_threads(1),
        lambda: torch.set_num_threads(n),
        lambda: torch.set_grad_enabled(False),
        lambda: torch.set_grad_enabled(True),
    ]


@case("state queries")
def _():
    def f(x):
        return (
            x,
            torch.is_inference_mode_enabled(),
            torch.is_autocast_enabled(),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
            torch.backends.mkldnn.enabled,
            torch.is_anomaly_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.is_grad_enabled(),
        )

    return f, [
        lambda: torch.set_autocast_enabled("cpu", True),
        lambda: torch.set_autocast_enabled("cpu", False),
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        lambda: torch.set_autocast_dtype("cpu", torch.bfloat16),
        lambda: torch.set_autocast_cache_enabled(False),
        lambda: torch.set_autocast_cache_enabled(True),
    ]


@case("default device")
def _():
    def f(x):
        return torch.ones(2).device.type, x + 1

    return f, [
        lambda: torch.set_default_device("meta"),
        lambda: torch.set_default_device("cpu"),
        lambda: torch.set_default_device(None),
    ]


@case("weakref")
def _():
    import weakref

    class O:
        pass

    o = [O()]
    o[0].v = 3
    w = weakref.ref(o[0])

    def f(x):
        t = w()
        return x * (t.v if t is not None else 100)

    return f, [lambda: setattr(o[0], "v", 4), lambda: o.clear()]


@case("partial")
def _():
    p = functools.partial(lambda k, x: x * k, 3)
    h = types.SimpleNamespace(p=p)

    def f(x):
        return h.p(x)

    return f, [
        lambda: setattr(h, "p", functools.partial(p.func, 5)),
        lambda: h.p.__setstate__((p.func, (7,), {}, {})),
    ]


@case("bound method attr")
def _():
    class O:
        def __init__(s, v):
            s.v = v

        def m(s, x):
            return x * s.v

    a, b = O(2), O(3)
    h = types.SimpleNamespace(m=a.m)

    def f(x):
        return h.m(x)

    return f, [lambda: setattr(a, "v", 7), lambda: setattr(h, "m", b.m)]


@case("sys.modules / import in function")
def _():
    mod = types.ModuleType("mymodzz")
    mod.k = 2
    sys.modules["mymodzz"] = mod
    mod2 = types.ModuleType("mymodzz")
    mod2.k = 5

    def f(x):
        import mymodzz

        return x * mymodzz.k

    return f, [lambda: setattr(mod, "k", 3), lambda: sys.modules.__setitem__("mymodzz", mod2)]


@case("metaclass")
def _():
    class Meta(type):
        def __call__(cls, *a):
            return super().__call__(*a)

        @property
        def q(cls):
            return 3

        def __len__(cls):
            return 3

        def __getitem__(cls, i):
            return i

    class C(metaclass=Meta):
        v = 1

    def f(x):
        return x * C.q * len(C) * C[2]

    return f, [
        lambda: setattr(Meta, "q", 7),
        lambda: setattr(Meta, "__len__", lambda c: 9),
        lambda: setattr(Meta, "__getitem__", lambda c, i: 11),
    ]


@case("slots")
def _():
    class S:
        __slots__ = ("a", "l")

    s = S()
    s.a = 2
    s.l = [1]

    def f(x):
        return x * s.a * s.l[0]

    return f, [lambda: setattr(s, "a", 3), lambda: s.l.__setitem__(0, 5), lambda: setattr(s, "l", [9])]


@case("namedtuple/tuple attr")
def _():
    P = collections.namedtuple("P", "a b")
    h = types.SimpleNamespace(p=P(1, [2]))

    def f(x):
        return x * h.p.a + h.p.b[0]

    return f, [
        lambda: h.p.b.__setitem__(0, 9),
        lambda: setattr(h, "p", P(3, [4])),
        lambda: setattr(h, "p", (3, 4)),
    ]


@case("defaultdict/deque/Counter")
def _():
    d = collections.defaultdict(lambda: 5, a=1)
    q = collections.deque([1, 2])
    c = collections.Counter("aab")

    def f(x):
        return x * d["a"] * len(q) + q[0] + c["a"] + d.get("z", 2)

    return f, [
        lambda: d.__setitem__("a", 4),
        lambda: d["z"],
        lambda: q.append(3),
        lambda: q.appendleft(8),
        lambda: c.update("a"),
    ]


@case("str/bytes/big int/complex attrs")
def _():
    h = types.SimpleNamespace(s="abc", b=b"ab", i=10**20, c=1j, n=None)

    def f(x):
        return x * len(h.s) * len(h.b) * (h.i % 7) + h.c.imag + (1 if h.n is None else 2)

    return f, [
        lambda: setattr(h, "s", "abcd"),
        lambda: setattr(h, "b", b"abc"),
        lambda: setattr(h, "i", 10**20 + 1),
        lambda: setattr(h, "c", 2j),
        lambda: setattr(h, "n", 3),
    ]


@case("inherited __getattr__")
def _():
    class O:
        def __getattr__(s, n):
            if n == "dyn":
                return 3
            raise AttributeError(n)

    o = O()

    def f(x):
        return x * o.dyn

    return f, [
        lambda: setattr(o, "dyn", 5),
        lambda: setattr(O, "dyn", 6),
        lambda: (o.__dict__.clear(), delattr(O, "dyn")),
        lambda: setattr(O, "__getattr__", lambda s, n: 9),
    ]


@case("tensor attr")
def _():
    t = torch.ones(3)
    t.k = 2

    def f(x):
        return x * t * t.k

    return f, [
        lambda: setattr(t, "k", 3),
        lambda: t.resize_(1),
        lambda: t.set_(torch.full((3,), 4.0)),
        lambda: setattr(t, "data", torch.full((3,), 5.0)),
        lambda: t.requires_grad_(),
        lambda: setattr(t, "data", torch.full((3,), 5.0).double()),
    ]


@case("env/os")
def _():
    def f(x):
        return x * (2 if os.environ.get("ZZQ") else 3)

    return f, [lambda: os.environ.__setitem__("ZZQ", "1"), lambda: os.environ.pop("ZZQ")]


@case("contextvar")
def _():
    import contextvars

    v = contextvars.ContextVar("v", default=2)

    def f(x):
        return x * v.get()

    return f, [lambda: v.set(5)]


@case("generator fn code")
def _():
    def g(n):
        for i in range(n):  # noqa: UP028  its code is replaced
            yield i

    def f(x):
        for i in g(3):
            x = x + i
        return x

    def g2(n):
        yield 10

    return f, [lambda: setattr(g, "__code__", g2.__code__)]


@case("wraps")
def _():
    class C:
        def m(s, x):
            return x * 2

    def deco(fn):
        @functools.wraps(fn)
        def w(*a, **k):
            return fn(*a, **k) + 1

        return w

    c = C()

    def f(x):
        return c.m(x)

    return f, [lambda: setattr(C, "m", deco(C.m)), lambda: setattr(C, "m", deco(C.m))]


@case("what descriptors do")
def _():
    class D:
        def __init__(s, v):
            s.v = v

        def __get__(s, o, t):
            return s.v

    class C:
        d = D(3)

    c = C()
    c.__dict__["d"] = 5

    def f(x):
        return x * c.d + C.d

    return f, [
        lambda: setattr(D, "__set__", lambda s, o, v: None),
        lambda: delattr(D, "__set__"),
        lambda: setattr(D, "__get__", lambda s, o, t: 11),
        lambda: c.__dict__.pop("d"),
        lambda: setattr(C.__dict__["d"], "v", 7),
        lambda: delattr(D, "__get__"),
    ]


@case("__getattr__ of a module object")
def _():
    m = types.ModuleType("m")
    m.__getattr__ = lambda n: 3

    def f(x):
        return x * m.zork

    return f, [
        lambda: setattr(m, "__getattr__", lambda n: 5),
        lambda: setattr(m, "zork", 7),
        lambda: delattr(m, "zork"),
    ]


if sys.version_info < (
    3,
    14,
):  # its specialised code takes the item of the dict, where getattr takes the property

    @case("property of a class of module objects")
    def _():
        class M(types.ModuleType):
            @property
            def k(s):
                return 3

        m = M("m")

        def f(x):
            return x * m.k

        return f, [
            lambda: setattr(M, "k", property(lambda s: 5)),
            lambda: m.__dict__.__setitem__("k", 7),
            lambda: setattr(M, "k", 9),
        ]


@case("net with a _call_impl of its own")
def _():
    n = nn.ReLU()

    def f(x):
        return n(x)

    return f, [
        lambda: setattr(n, "_call_impl", lambda *a: a[0] * 9),
        lambda: delattr(n, "_call_impl"),
        lambda: setattr(nn.ReLU, "_call_impl", lambda s, x: x * 7),
        lambda: delattr(nn.ReLU, "_call_impl"),
    ]


@case("what functions and classes say about themselves")
def _():
    class B:
        pass

    class C(B):
        def m(s):
            pass

    class E(B):
        pass

    c = C()

    def g(x: int):
        "doc"

    def f(x):
        return (
            x * len(g.__name__)
            + len(g.__doc__ or "")
            + len(g.__annotations__)
            + len(g.__qualname__) * len(type(c).__name__)
            + len(C.__qualname__)
            + len(C.__module__)
            + len(C.__bases__)
            + len(c.m.__name__)
        )

    return f, [
        lambda: setattr(g, "__name__", "gggg"),
        lambda: setattr(g, "__doc__", "another"),
        lambda: g.__annotations__.__setitem__("y", 1),
        lambda: setattr(g, "__qualname__", "q"),
        lambda: setattr(C, "__name__", "CCC"),
        lambda: setattr(C, "__qualname__", "q"),
        lambda: setattr(C, "__module__", "mmmmmmmm"),
        lambda: setattr(C, "__bases__", (E, B)),
        lambda: setattr(C.m, "__name__", "mmm"),
    ]


@case("subclasses and the recursion limit")
def _():
    class C:
        pass

    made, limit = [], sys.getrecursionlimit()

    def f(x):
        return x * len(C.__subclasses__()) + sys.getrecursionlimit()

    return f, [
        lambda: made.append(type("D", (C,), {})),
        lambda: sys.setrecursionlimit(limit + 100),
        lambda: sys.setrecursionlimit(limit),
    ]


@case("parametrize")
def _():
    import torch.nn.utils.parametrize as P

    class Sym(nn.Module):
        def forward(s, w):
            return w.triu() + w.triu(1).t()

    l = nn.Linear(3, 3)

    def f(x):
        return l(x)

    return f, [
        lambda: P.register_parametrization(l, "weight", Sym()),
        lambda: P.remove_parametrizations(l, "weight", leave_parametrized=False),
    ]


@case("classes that are registered with an ABC")
def _():
    import abc

    class A(abc.ABC):  # noqa: B024  only register() is used
        pass

    class Sub(A):
        pass

    class B:
        pass

    class C:
        pass

    b = B()

    def f(x):
        return x * (2 if isinstance(b, A) else 3) + (5 if issubclass(C, A) else 0)

    return f, [lambda: A.register(C), lambda: Sub.register(B)]


@case("bases that super() and isinstance() ask")
def _():
    class A:
        def m(s):
            return 1

    class B(A):
        def m(s):
            return super().m() + 1

    class C(A):
        def m(s):
            return 10

    b = B()

    def f(x):
        return x * b.m() + (1 if isinstance(b, C) else 2) + (5 if issubclass(B, C) else 7)

    return f, [
        lambda: setattr(B, "__bases__", (C,)),
        lambda: setattr(C, "m", lambda s: 20),
        lambda: delattr(C, "m"),
    ]
