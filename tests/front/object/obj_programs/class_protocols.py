"""Programs about objects: attribute hooks, metaclasses, operators, iteration, context managers.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === getattr_family
class C:
    def __init__(self):
        object.__setattr__(self, "log", [])
        self.a = 1

    def __getattr__(self, n):
        if n.startswith("dyn"):
            return len(n)
        raise AttributeError(n)

    def __setattr__(self, n, v):
        self.log.append(n)
        object.__setattr__(self, n, v)

    def __delattr__(self, n):
        self.log.append("-" + n)
        object.__delattr__(self, n)


c = C()


def f(x):
    c.b = x
    del c.b
    d = C()
    d.z = x * 2
    return x * c.a + c.dynamo + d.z, d.log, getattr(c, "no", 3), hasattr(c, "no")


S = lambda: (c.log,)


# === getattribute_override
class C:
    def __init__(self):
        self.n = 1

    def __getattribute__(self, n):
        if n == "twice":
            return object.__getattribute__(self, "n") * 2
        return super().__getattribute__(n)


c = C()


def f(x):
    d = C()
    c.n += 1
    return x * c.twice + d.twice + c.n


S = lambda: c.n


# === proxy_object
class Proxy:
    def __init__(self, t):
        self.__dict__["t"] = t

    def __getattr__(self, n):
        return getattr(self.t, n)

    def __setattr__(self, n, v):
        setattr(self.t, n, v)


class T:
    v = 1


t = T()
p = Proxy(t)


def f(x):
    p.v = p.v + 1
    q = Proxy(x)
    return q.sin() * p.v + q.shape[0]


S = lambda: (t.v, vars(p).keys() == {"t"})


# === metaclass_call
class Meta(type):
    made = []

    def __call__(cls, *a, **k):
        o = super().__call__(*a, **k)
        o.tag = cls.__name__
        return o

    def __instancecheck__(cls, o):
        return hasattr(o, "quack")

    def __subclasscheck__(cls, o):
        return o is int

    def __len__(cls):
        return 3

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, v):
        return v == 7

    def __getitem__(cls, k):
        return k * 2

    @property
    def prop(cls):
        return "p"


class C(metaclass=Meta):
    def __init__(self, x):
        self.x = x


class Q:
    quack = 1


def f(x):
    c = C(x)
    return (
        c.x * len(C),
        c.tag,
        isinstance(Q(), C),
        isinstance(3, C),
        issubclass(int, C),
        list(C),
        7 in C,
        C[4],
        C.prop,
        type(C) is Meta,
    )


# === singleton
class S1:
    inst = None

    def __new__(cls):
        if cls.inst is None:
            cls.inst = super().__new__(cls)
            cls.inst.n = 0
        return cls.inst


def f(x):
    a = S1()
    b = S1()
    a.n += 1
    return x * b.n, a is b


S = lambda: S1.inst.n


# === singleton_metaclass
class Meta(type):
    _i = {}

    def __call__(cls, *a):
        if cls not in Meta._i:
            Meta._i[cls] = super().__call__(*a)
        return Meta._i[cls]


class C(metaclass=Meta):
    def __init__(self):
        self.n = 0


def f(x):
    C().n += 1
    return x * C().n, C() is C()


S = lambda: [o.n for o in Meta._i.values()]


# === new_override
class C:
    def __new__(cls, a, *r):
        o = object.__new__(cls)
        o.made = a
        return o

    def __init__(self, a, b=2):
        self.b = b


class I(int):
    def __new__(cls, v):
        return super().__new__(cls, v * 2)


def f(x):
    c = C(x, 3)
    return c.made * c.b, I(3), x * I(2)


# === operators_all
class V:
    def __init__(self, t):
        self.t = t

    def __add__(self, o):
        return V(self.t + (o.t if isinstance(o, V) else o))

    def __radd__(self, o):
        return V(o + self.t)

    def __iadd__(self, o):
        self.t = self.t + 10
        return self

    def __sub__(self, o):
        return NotImplemented

    def __rsub__(self, o):
        return V(o - self.t)

    def __mul__(self, o):
        return V(self.t * o)

    __rmul__ = __mul__

    def __matmul__(self, o):
        return "mm"

    def __truediv__(self, o):
        return V(self.t / o)

    def __floordiv__(self, o):
        return "fd"

    def __mod__(self, o):
        return "mod"

    def __pow__(self, o):
        return V(self.t**o)

    def __rpow__(self, o):
        return "rpow"

    def __and__(self, o):
        return "and"

    def __or__(self, o):
        return "or"

    def __xor__(self, o):
        return "xor"

    def __lshift__(self, o):
        return "ls"

    def __rrshift__(self, o):
        return "rrs"

    def __neg__(self):
        return V(-self.t)

    def __pos__(self):
        return self

    def __invert__(self):
        return "inv"

    def __abs__(self):
        return V(self.t.abs())

    def __divmod__(self, o):
        return (1, 2)

    def __round__(self, n=None):
        return "r"

    def __index__(self):
        return 1

    def __float__(self):
        return 2.5

    def __int__(self):
        return 4

    def __complex__(self):
        return 1j

    def __bool__(self):
        return True

    def __len__(self):
        return 2

    def __hash__(self):
        return 5

    def __eq__(self, o):
        return isinstance(o, V)

    def __lt__(self, o):
        return True

    def __le__(self, o):
        return False

    def __gt__(self, o):
        return "gt"

    def __getitem__(self, i):
        return self.t[i] if not isinstance(i, slice) else (i.start, i.stop)

    def __contains__(self, k):
        return k == "in"

    def __call__(self, *a, **k):
        return (a, k)

    def __format__(self, spec):
        return "F" + spec

    def __str__(self):
        return "str"

    def __repr__(self):
        return "repr"

    def __iter__(self):
        return iter([1, 2])

    def __reversed__(self):
        return "rev"

    def __trunc__(self):
        return 8


o = V(torch.ones(3))


def f(x):
    v = V(x)
    w = v
    w += 1
    try:
        v - 1
        e = 0
    except TypeError as ex:
        e = str(ex)
    return (
        (v + 1).t + (1 + v).t + (v * 2).t + (3 * v).t + (v / 2).t + (v**2).t + (-v).t + abs(v).t + (v + o).t,
        w is v,
        e,
        (5 - v).t,
        v @ 1,
        v // 1,
        v % 1,
        2**v,
        v & 1,
        v | 1,
        v ^ 1,
        v << 1,
        1 >> v,
        +v is v,
        ~v,
        divmod(v, 1),
        round(v),
        [10, 11][v],
        float(v),
        int(v),
        bool(v),
        len(v),
        hash(v),
        v == o,
        v != o,
        v < 1,
        v <= 1,
        v > 1,
        v[0],
        v[1:2],
        "in" in v,
        v(1, a=2),
        f"{v:>3}",
        str(v),
        repr(v),
        "%s %r" % (v, v),
        list(v),
        reversed(v),
        {v: 1}[o],
        sum([v, v]).t,
        [*v],
        max(3, 2),
        o is not v,
    )


# === operators_older
class N:
    def __init__(self):
        self.n = 0

    def __iadd__(self, o):
        self.n += o
        return self

    def __add__(self, o):
        self.n += 100
        return self.n

    def __lshift__(self, o):
        self.n -= 1
        return self

    def __setitem__(self, k, v):
        setattr(self, k, v)

    def __getitem__(self, k):
        return getattr(self, k)

    def __delitem__(self, k):
        delattr(self, k)

    def __len__(self):
        return self.n

    def __bool__(self):
        self.n += 1
        return False

    def __call__(self, x):
        self.n += 1
        return x * self.n

    def __contains__(self, k):
        return hasattr(self, k)

    def __iter__(self):
        for i in range(2):
            self.n += 1
            yield i


o = N()


def f(x):
    global o
    o += 5
    y = o + 1
    o << 1
    o["k"] = x
    z = o["k"] + len(o)
    del o["k"]
    return o(x) + y + z + (1 if o else 2) + sum(o), "k" in o


S = lambda: o.n


# === reflected_subclass
class A:
    def __add__(self, o):
        return "A"

    def __radd__(self, o):
        return "rA"

    def __eq__(self, o):
        return "eqA"


class B(A):
    def __radd__(self, o):
        return "rB"

    def __eq__(self, o):
        return "eqB"


class T:
    def __radd__(self, o):
        return "tensor + T"

    def __rmul__(self, o):
        return o * 3

    def __torch_function__(self, *a):
        return NotImplemented


def f(x):
    return A() + B(), B() + A(), 1 + A(), A() == B(), A() + 1, x * 2


# === tensor_op_object
class T:
    def __init__(self, k):
        self.k = k

    def __radd__(self, o):
        return o * self.k

    def __rmul__(self, o):
        return o + self.k

    def __rsub__(self, o):
        return "rsub"

    def __eq__(self, o):
        return "eq"


def f(x):
    return x + T(3), x * T(2), x - T(1)


# === iterator_class
class It:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


o = It(100)


def f(x):
    for i in It(3):
        x = x + i
    return x + next(o) + sum(It(4)) + next(It(0), 7), list(zip(It(2), "ab")), [*It(2)]


S = lambda: o.n


# === getitem_iteration
class Seq:
    def __getitem__(self, i):
        if i > 2:
            raise IndexError
        return i * 10

    def __len__(self):
        return 3


def f(x):
    s = Seq()
    return x + sum(s), list(s), 10 in s, list(reversed(s)), [a for a in s]


# === context_managers
import contextlib

log = []


class CM:
    def __init__(self, n, eat=False):
        self.n = n
        self.eat = eat

    def __enter__(self):
        log.append("in" + self.n)
        return self

    def __exit__(self, t, v, tb):
        log.append("out" + self.n + (t.__name__ if t else ""))
        return self.eat


@contextlib.contextmanager
def gen(k):
    log.append(k)
    try:
        yield k
    finally:
        log.append("-" + k)


def f(x):
    with CM("a") as a, gen("g") as g, contextlib.suppress(KeyError), contextlib.ExitStack() as st:
        st.enter_context(CM("s"))
        st.callback(log.append, "cb")
        with CM("b", True):
            raise ValueError("q")
        x = x * 2
        with contextlib.nullcontext(3) as n:
            x = x + n
        raise KeyError
    return x, a.n, g


S = lambda: log
