"""Programs about objects: the standard library, copies, protocols, parameters that change.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === random_choice_seeded breaks=1
import random

R = random.Random(3)


def f(x):
    return x * R.random() + R.choice([1, 2, 3])


S = lambda: R.random()


# === json_pickle breaks=1
import json, pickle


def f(x):
    s = json.dumps({"a": [1, 2]})
    d = json.loads(s)
    q = pickle.loads(pickle.dumps({"k": (1, 2)}))
    return x * d["a"][1] + q["k"][0], s


# === struct_bytes
import struct, binascii, base64, hashlib


def f(x):
    b = struct.pack("<if", 3, 1.5)
    u = struct.unpack("<if", b)
    return x * u[0] + u[1], b.hex(), len(b)


# === re_use
import re

P = re.compile(r"(\d+)-(\w+)")


def f(x):
    m = P.match("12-ab")
    n = re.sub(r"\d", "#", "a1b2")
    s = re.split(",", "a,b")
    g = [t.group(2) for t in P.finditer("1-a 2-b")]
    return x * int(m.group(1)), m.groups(), n, s, g, m.span(), bool(P.search("zz"))


# === string_format
def f(x):
    a = 3
    s = (
        f"{a:>5}|{x.shape}|{a!r:^7}|{1.5:.3f}"
        + "%s %d %5.2f" % ("q", 4, 2.5)
        + "{:,}".format(12345)
        + " ".join(map(str, [1, 2]))
        + "abc".translate({97: "z"})
    )
    return (
        x * len(s),
        s,
        s.partition("|"),
        "aXb".swapcase(),
        "a\nb".splitlines(),
        "x".zfill(4),
        s.encode()[:3],
    )


# === vars_locals breaks=1
def f(x):
    a = 1
    b = 2
    d = dict(locals())
    return x * d["a"] + len(d), sorted(d)


# === eval_exec breaks=1
def f(x):
    return x * eval("1 + 2"), eval("y", {"y": 4})


# === itertools_deep
import itertools as I


def f(x):
    g = I.groupby([1, 1, 2, 3, 3], key=lambda v: v % 2)
    r = [(k, list(v)) for k, v in g]
    a, b = I.tee([1, 2, 3])
    next(a)
    return (
        x * len(r),
        r,
        list(zip(a, b)),
        list(I.accumulate([1, 2, 3], lambda p, q: p * q, initial=2)),
        list(I.starmap(pow, [(2, 3)])),
        list(I.islice(I.count(2, 3), 3)),
        list(I.zip_longest([1], [2, 3], fillvalue=0)),
        list(I.pairwise([1, 2, 3])),
        list(I.compress("abc", [1, 0, 1])),
        list(I.dropwhile(lambda v: v < 2, [1, 2, 1])),
        list(I.product([1, 2], repeat=2)),
        list(I.permutations([1, 2])),
        list(I.combinations_with_replacement("ab", 2)),
        list(I.chain.from_iterable([[1], [2]])),
        list(I.filterfalse(None, [0, 1])),
        list(I.repeat(x, 2)),
        list(I.takewhile(lambda v: v < 3, I.count())),
    )


# === math_all
import math


def f(x):
    return (
        x * math.sqrt(4) + math.pi,
        math.floor(2.7),
        math.gcd(12, 8),
        math.prod([1, 2, 3]),
        math.isclose(0.1 + 0.2, 0.3),
        math.comb(5, 2),
        math.hypot(3, 4),
        math.copysign(1, -2),
        math.log2(8),
        math.inf > 1,
        math.fsum([0.1] * 10),
        math.trunc(-2.5),
        math.isqrt(17),
        math.frexp(8.0),
        math.modf(2.5),
        math.dist([0, 0], [3, 4]),
    )


# === copy_inside
import copy


class C:
    def __init__(self, v):
        self.v = v
        self.l = [v]

    def __copy__(self):
        n = C(self.v)
        n.tag = "copied"
        return n

    def __deepcopy__(self, memo):
        n = C(copy.deepcopy(self.v, memo))
        n.tag = "deep"
        return n


c = C(1)


def f(x):
    a = copy.copy(c)
    b = copy.deepcopy(c)
    d = copy.deepcopy([x, {"k": (x, [1])}])
    e = C(x)
    g = copy.copy(e)
    return a.tag, b.tag, d[0] + 1, d[0] is d[1]["k"][0], g.v is x, a.v


# === deepcopy_module breaks=1
import copy

m = torch.nn.Linear(3, 3)


def f(x):
    n = copy.deepcopy(m)
    n.weight.data.zero_()
    return n(x).detach(), m(x).detach()


# === singledispatch
import functools


@functools.singledispatch
def g(v):
    return "obj"


@g.register
def _(v: int):
    return "int"


@g.register(list)
def _(v):
    return "list" + str(len(v))


g(1), g([]), g("s")


def f(x):
    return x * 2, g(3), g([1, 2]), g("q")


# === totalordering
import functools


@functools.total_ordering
class V:
    def __init__(self, n):
        self.n = n

    def __eq__(self, o):
        return self.n == o.n

    def __lt__(self, o):
        return self.n < o.n

    __hash__ = None


def f(x):
    a, b = V(1), V(2)
    return x + (a <= b) + (a >= b) + (a != b), max(a, b).n, sorted([b, a])[0].n


# === protocol_abc
import typing, abc, collections.abc as ca


@typing.runtime_checkable
class Has(typing.Protocol):
    def go(self): ...


class A:
    def go(self):
        return 1


class Q(ca.Sequence):
    def __init__(self, v):
        self.v = v

    def __len__(self):
        return len(self.v)

    def __getitem__(self, i):
        return self.v[i]


def f(x):
    q = Q([x, x + 1])
    return (
        x * isinstance(A(), Has) + isinstance(3, Has),
        list(reversed(q))[0],
        q.index(q[0]) if False else len(q),
        isinstance(q, ca.Iterable),
        issubclass(Q, ca.Sized),
        [t + 1 for t in q],
    )


# === init_subclass
R = []


class B:
    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag
        R.append(tag)


def f(x):
    class C(B, tag="t"):
        def go(self):
            return x * 2

    return C().go(), C.tag, len(R)


S = lambda: R


# === flags_enum
import enum


class F(enum.Flag):
    A = enum.auto()
    B = enum.auto()
    AB = A | B


class I(enum.IntEnum):
    X = 1
    Y = 2


class St(str, enum.Enum):
    P = "p"


def f(x):
    v = F.A | F.B
    return (
        x * I.Y + I.X,
        v is F.AB,
        F.A in v,
        v & ~F.A,
        I(2).name,
        St.P == "p",
        St("p") is St.P,
        [e.name for e in I],
        F["A"].value,
        I.X < I.Y,
        {I.X: 1}[1],
        St.P.upper(),
    )


# === time_in_break breaks=1
import datetime


def f(x):
    t = datetime.datetime.now()
    return x + 1, isinstance(t, datetime.datetime), datetime.timedelta(seconds=3).total_seconds()


# === parameter_dict_changes
pd = torch.nn.ParameterDict({"a": torch.nn.Parameter(torch.ones(3))})
pl = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))])
md = torch.nn.ModuleDict({"r": torch.nn.ReLU()})
sq = torch.nn.Sequential(torch.nn.ReLU())
ml = torch.nn.ModuleList([torch.nn.ReLU()])


def f(x):
    for v in pd.values():
        x = x + v
    for k, v in pd.items():
        x = x * v
    return (
        (md["r"](sq(x)) + pl[0] + sum(p.sum() for p in pl)).detach(),
        "a" in pd,
        len(ml),
        list(pd),
        "r" in md,
        len(md),
        list(md),
        pd.get("zz"),
        ml[0] is ml[-1],
        [type(q).__name__ for q in sq],
        next(iter(pl)) is pl[0],
    )


def between():
    pl.append(torch.nn.Parameter(torch.ones(3)))
    pd["b"] = torch.nn.Parameter(torch.ones(3))
    sq.append(torch.nn.Tanh())
    ml.insert(0, torch.nn.Tanh())


# === buffer_swap
class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("b", torch.zeros(3))
        self.steps = 0

    def forward(self, x):
        self.b = self.b * 0.9 + x * 0.1
        self.steps = self.steps + 1
        if self.training:
            self.b.clamp_(max=5)
        return x - self.b


m = M()


def f(x):
    return m(x)


def between():
    m.train(not m.training)


S = lambda: (m.b, m.steps, "b" in m._buffers)


# === operations_on_a_weak_proxy_are_those_of_its_object graphs=1
import weakref


class C:
    def __init__(self):
        self.n = 4
        self.l = [1, 2]

    def __len__(self):
        return self.n

    def __iter__(self):
        return iter(self.l)

    def __add__(self, o):
        return self.n + o

    def __eq__(self, o):
        return self.n == o

    def __bool__(self):
        return self.n > 4

    def __contains__(self, i):
        return i in self.l

    def twice(self):
        return self.n * 2


O = C()
P = weakref.proxy(O)


def between():
    O.n += 1
    O.l.append(O.n)


def f(x):
    return x * len(P) + P.n, P.twice(), P + 1, P == 5, bool(P), list(P), 5 in P, isinstance(P, C)


# === weak_proxies_of_containers graphs=1
import weakref


class L(list):
    pass


class D(dict):
    pass


class S(set):
    pass


l, d, s = L([1, 2]), D(a=1), S([1])
PL, PD, PS = map(weakref.proxy, (l, d, s))


def between():
    l.append(3)
    d["b"] = 2
    d["a"] += 1
    s.add(3)


def S():
    return list(l), dict(d), sorted(s)


def f(x):
    PL.append(7)
    PD["c"] = len(PD)
    PS.add(8)
    return x * len(PL) + PL[1], len(PD) + PD["a"], len(PS), 3 in PS


# === weak_proxies_made_inside graphs=1
import weakref


class C:
    def __init__(self):
        self.n = 4
        self.l = [1, 2]

    def __len__(self):
        return self.n


O = C()


def between():
    O.n += 1
    O.l.append(O.n)


def S():
    return vars(O)


def f(x):
    y = x + 1
    P = weakref.proxy(O)
    P.m = P.n + 1
    P.gone = y
    del P.gone
    P.l.append(P.m)
    return y * P.n, len(P), len(P.l), hasattr(P, "gone"), P.__class__ is C, weakref.proxy(O) is P


# === a_weak_proxy_of_what_went_out_of_use breaks=1
import weakref


class C:
    n = 2


def f(x):
    y, c = x + 1, C()
    p = weakref.proxy(c)
    a = p.n
    del c
    try:
        return y * p.n
    except ReferenceError:
        return y * 5 + a


# === tables_of_characters_and_codings_of_bytes graphs=1
import base64, binascii, unicodedata

T, B = "e" + chr(0x301), b"abc"


def f(x):
    y = x + 1
    t = (
        unicodedata.normalize("NFC", T),
        unicodedata.category("a"),
        unicodedata.name("a"),
        unicodedata.numeric("5"),
    )
    b = base64.b64encode(B), binascii.hexlify(B), binascii.crc32(B)
    return y * len(t[0]), t, b


# === an_error_of_a_table_of_characters graphs=1
import unicodedata


def f(x):
    y = x + 1
    try:
        unicodedata.lookup("no such name")
    except KeyError as e:
        return y * 2, str(e)
