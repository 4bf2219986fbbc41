"""Programs about objects: dataclasses, enums, typing, abstract classes, isinstance.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === dataclass_all
from dataclasses import dataclass, field, asdict, astuple, replace, fields, is_dataclass, InitVar, KW_ONLY
from typing import Any, ClassVar


@dataclass
class P:
    a: Any
    b: int = 2
    c: list = field(default_factory=list)
    d: ClassVar[int] = 9
    e: InitVar[int] = 1

    def __post_init__(self, e):
        self.z = self.b * e


@dataclass(frozen=True, order=True)
class F:
    n: int
    s: str = "q"


@dataclass(slots=True)
class Sl:
    a: Any
    b: int = 1


@dataclass(kw_only=True, eq=False)
class K(P):
    k: int = 0


o = P(torch.ones(3))


def f(x):
    p = P(x, 3, e=2)
    p.c.append(x)
    q = replace(p, b=5, e=1)
    o.b += 1
    o.c.append(o.b)
    try:
        F(1).n = 2
        er = ""
    except Exception as ex:
        er = type(ex).__name__ + str(ex)
    s = Sl(x)
    s.b = 4
    return (
        p.a * p.b + q.b + o.b,
        asdict(F(1)),
        astuple(F(2, "w")),
        [fl.name for fl in fields(P)],
        is_dataclass(p),
        er,
        F(1) < F(2),
        F(1) == F(1),
        hash(F(1)) == hash(F(1)),
        repr(F(3)),
        q.z,
        p.d,
        s,
        K(a=1, k=2).k,
        p,
        replace(s, b=7),
        {F(1): 2}[F(1)],
        F(1) in [F(1)],
    )


S = lambda: (o.b, o.c)


# === dataclass_asdict_tensors
from dataclasses import dataclass, asdict, astuple
from typing import Any


@dataclass
class P:
    a: Any
    b: Any


def f(x):
    d = asdict(P(x, [x + 1, {"k": P(1, 2)}]))
    t = astuple(P(x, 1))
    return d["a"] + d["b"][0], t[0], d


# === dataclass_arg
from dataclasses import dataclass, field, replace, asdict
from typing import Any, Optional


@dataclass
class Cfg:
    t: Any
    n: int = 1
    sub: Optional[Any] = None


def ARGS():
    return (Cfg(torch.ones(3), sub=Cfg(torch.zeros(3), 2)),)


def f(c):
    c.n += 1
    c.sub.t = c.t + 1
    d = replace(c, n=7)
    return c.t * c.n + d.n + c.sub.t, d, asdict(c.sub)


# === dataclass_older_frozen
from dataclasses import dataclass


@dataclass(frozen=True)
class Cfg:
    n: int = 3
    t: object = None

    @property
    def two(self):
        return self.n * 2


c = Cfg(t=torch.ones(3))
D = {c.n: c}


def f(x):
    return x * c.two + c.t, D[3] is c, c == Cfg(3, c.t) if False else 0


# === dataclass_created_inside
from dataclasses import dataclass


def f(x):
    p = make(x)
    return p.a + p.b


@dataclass
class P:
    a: object
    b: int = 1

    def with_b(self, b):
        return P(self.a, b)


def make(x):
    return P(x).with_b(3)


# === enums
import enum


class E(enum.Enum):
    A = 1
    B = "b"

    @property
    def low(self):
        return self.name.lower()

    @classmethod
    def parse(cls, s):
        return cls[s]


class I(enum.IntEnum):
    X = 1
    Y = 2


class Fl(enum.Flag):
    R = 1
    W = 2


class St(str, enum.Enum):
    P = "p"


class Au(enum.Enum):
    Q = enum.auto()
    R = enum.auto()


D = {E.A: 2}


def f(x):
    return (
        x * I.Y + D[E.A],
        E("b") is E.B,
        E["A"],
        E.A.low,
        E.parse("B"),
        list(E),
        len(E),
        E.A in E,
        I.X + 1,
        I.X < I.Y,
        Fl.R | Fl.W,
        Fl.R in (Fl.R | Fl.W),
        St.P == "p",
        St("p"),
        Au.R.value,
        E.A == E.A,
        E.A is E.B,
        isinstance(E.A, E),
        E.A.name,
        E.A.value,
        str(E.A),
        repr(E.A),
        {E.A, E.B} == {E.B, E.A},
        hash(E.A) == hash(E.A),
        E.__members__["A"],
        I(2),
        sorted(I),
        max(I),
        x[I.X],
        f"{St.P.value}",
        f"{I.X}",
        [e.name for e in Fl],
    )


# === enum_arg_guard
import enum


class E(enum.Enum):
    A = 1
    B = 2


v = [E.A]


def ARGS():
    return torch.ones(3), v[0]


def f(x, e):
    if e is E.A:
        return x + e.value
    elif e == E.B:
        return x * e.value


def between():
    v[0] = E.B


# === enum_defined_inside breaks=1
import enum


def f(x):
    class E(enum.Enum):
        A = 1
        B = 2

    return x * E.B.value, E.A.name


# === match_classes
from dataclasses import dataclass


@dataclass
class P:
    a: int
    b: object


class Q:
    __match_args__ = ("z",)

    def __init__(self, z):
        self.z = z


def g(o, x):
    match o:
        case P(1, b):
            return x + b
        case P(a=a) if a > 5:
            return x * a
        case Q(z):
            return z
        case {"k": v, **rest}:
            return x - v, rest
        case [a, *b]:
            return x + a, b
        case str() | int():
            return "s"
        case None:
            return x
        case _:
            return "other"


def f(x):
    return [g(o, x) for o in (P(1, x), P(7, 0), Q(x), {"k": 1, "m": 2}, [1, 2, 3], "a", 5, None, 2.5)]


# === typing_objects
from typing import (
    List,
    Optional,
    Union,
    Generic,
    TypeVar,
    cast,
    get_type_hints,
    Protocol,
    runtime_checkable,
    Literal,
    Annotated,
    Callable,
    TYPE_CHECKING,
    get_origin,
    get_args,
    Any,
    TypedDict,
)
import typing

T = TypeVar("T")


class G(Generic[T]):
    def __init__(self, v: T):
        self.v = v


@runtime_checkable
class HasV(Protocol):
    v: int


class TD(TypedDict):
    a: int


def ann(a: int, b: str = "x") -> List[int]:
    return [a]


def f(x):
    g = G[int](x)
    t: Optional[List[int]] = None
    l: List = cast(List[int], [1])
    return (
        g.v * 2,
        isinstance(g, HasV),
        get_origin(List[int]) is list,
        get_args(Union[int, str]),
        ann.__annotations__["a"] is int,
        get_type_hints(ann)["b"] is str,
        l,
        TYPE_CHECKING,
        TD(a=1),
        List[int] == List[int],
        isinstance(1, int | str),
        Optional[int] == Union[int, None],
        G.__parameters__ == (T,),
        list[int].__args__,
    )


# === abc_objects
import abc, collections.abc, numbers


class Base(abc.ABC):
    @abc.abstractmethod
    def m(self, x): ...
    def tmpl(self, x):
        return self.m(x) + 1


class D(Base):
    def m(self, x):
        return x * 2


class V:
    pass


Base.register(V)
d = D()


def f(x):
    try:
        Base()
        e = ""
    except TypeError as ex:
        e = str(ex)
    return (
        d.tmpl(x) + D().tmpl(x),
        e,
        isinstance(V(), Base),
        isinstance([], collections.abc.Sequence),
        isinstance({}, collections.abc.Mapping),
        isinstance(1, numbers.Number),
        isinstance(f, collections.abc.Callable),
        issubclass(dict, collections.abc.MutableMapping),
        isinstance(x, collections.abc.Iterable),
        isinstance((i for i in ()), collections.abc.Generator),
        isinstance(3, collections.abc.Hashable),
        isinstance(x, collections.abc.Hashable),
        isinstance(x, collections.abc.Sequence),
        isinstance([x], list) and isinstance((x,), (list, tuple)),
    )


# === abc_mapping
from collections.abc import MutableMapping, Sequence


class M(MutableMapping):
    def __init__(self):
        self.d = {}

    def __getitem__(self, k):
        return self.d[k]

    def __setitem__(self, k, v):
        self.d[k] = v

    def __delitem__(self, k):
        del self.d[k]

    def __iter__(self):
        return iter(self.d)

    def __len__(self):
        return len(self.d)


o = M()


def f(x):
    m = M()
    m["a"] = x
    m.update(b=2)
    m.setdefault("c", 3)
    o["n"] = o.get("n", 0) + 1
    k, v = m.popitem()
    return m["a"] * o["n"], dict(m), list(m.items()), "a" in m, m.pop("b"), m == {"c": 3}, {**m}, k


S = lambda: o.d


# === is_and_id
class C:
    pass


c = C()
d = c
L = [c]


def f(x):
    return (
        x + 1,
        c is d,
        L[0] is c,
        id(c) == id(d),
        x is x,
        None is None,
        type(x) is torch.Tensor,
        c in L,
        C() is C(),
        [] is [],
        (c,)[0] is c,
        id(x) == id(x),
        f is f,
        torch.float32 is torch.float32,
        c is not None,
    )


# === isinstance_kinds
class A:
    pass


class B(A):
    pass


P = torch.nn.Parameter(torch.ones(3))
m = torch.nn.Linear(3, 3)


def f(x):
    return (
        x + 1,
        isinstance(B(), A),
        isinstance(B(), (int, A)),
        issubclass(B, (int, A)),
        isinstance(x, torch.Tensor),
        isinstance(x, torch.nn.Parameter),
        isinstance(P, torch.nn.Parameter),
        isinstance(P, torch.Tensor),
        isinstance(m, torch.nn.Module),
        isinstance(x, (int, float)),
        isinstance(x, torch.FloatTensor),
        torch.is_tensor(x),
        isinstance(True, int),
        callable(m),
        callable(x),
        callable(A),
        callable(3),
        isinstance(A, type),
        issubclass(type(m), torch.nn.Module),
        isinstance(m.weight, torch.nn.parameter.Parameter),
        isinstance(x.shape, tuple),
        isinstance(x, object),
        type(P) is torch.nn.Parameter,
        isinstance(x, torch.nn.Buffer) if hasattr(torch.nn, "Buffer") else 0,
        isinstance(torch.relu, type(len)),
        isinstance(f, type(lambda: 0)),
    )


# === dir_vars_hasattr
class C:
    k = 1

    def __init__(self):
        self.a = 1
        self.b = 2

    def m(self):
        pass


c = C()


def f(x):
    d = C()
    d.z = x
    return (
        x + 1,
        [n for n in dir(d) if not n.startswith("_")],
        vars(d)["a"],
        [n for n in dir(C) if not n.startswith("_")],
        hasattr(c, "m"),
        hasattr(C, "nope"),
        [n for n in dir(c) if not n.startswith("_")],
        sorted(vars(c)),
        "k" in vars(C),
        "a" in c.__dict__,
        C.__dict__["k"],
        c.__class__.__dict__.keys() >= {"k", "m"},
        list(c.__dict__.items()),
    )


# === getattr_default_exceptions
class C:
    @property
    def bad(self):
        raise AttributeError("inner")

    @property
    def worse(self):
        raise ValueError("v")


c = C()


def f(x):
    try:
        c.worse
        e = 0
    except ValueError as ex:
        e = str(ex)
    try:
        c.missing
        g = 0
    except AttributeError as ex:
        g = str(ex)
    return x + 1, getattr(c, "bad", 5), hasattr(c, "bad"), e, g
