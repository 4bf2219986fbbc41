"""Programs about objects: class bodies and attributes of classes.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === plain_object
class C:
    k = 2

    def __init__(self, x):
        self.x = x
        self.n = 1

    def m(self, y):
        self.n += 1
        return self.x * y + self.k

    @classmethod
    def make(cls, x):
        return cls(x)

    @staticmethod
    def s(a):
        return a + 1


def f(x):
    c = C(x)
    d = C.make(x + 1)
    e = c.m(2) + d.m(3) + C.s(1)
    c.k = 5
    del c.n
    return (
        e,
        c,
        d.n,
        hasattr(c, "n"),
        c.__dict__.keys() == {"x", "k"},
        type(c) is C,
        c.__class__.__name__,
        C.k,
        isinstance(c, C),
    )


# === older_descriptors_and_callables_in_classes breaks=1
class D:
    def __init__(self):
        self.n = 0
        self.l = []

    def __set__(self, o, v):
        self.n += 1
        self.l.append(v)

    def __get__(self, o, t):
        self.n += 10
        return self if o is None else 1


class Op:
    def __init__(self):
        self.n = 0

    def __call__(self, *a):
        self.n += 1 + len(a)
        return 1


d = D()
ops = {n: Op() for n in ("__len__", "__getitem__", "__hash__", "__neg__", "__enter__", "__exit__")}
C = type("C", (), dict(ops, d=d))


def f(x):
    c = C()
    c.d = 5
    with c:
        y = x * c.d + len(c) + c[0] - (-c) + hash(c)
    print(end="")
    c.d = 6
    return y


S = lambda: (d.n, d.l, [o.n for o in ops.values()])


# === functional_enum
import enum


def f(x):
    C = enum.Enum("C", "RED GREEN")
    return x + C.GREEN.value, [c.name for c in C], C.__module__


# === cached_typing_of_objects_made_here breaks=1
import typing


def f(x):
    T = typing.TypeVar("T")
    u = typing.List[T]
    print(end="")
    return x + 1, u.__parameters__ == (T,), T.__name__


# === older_object_attrs
class C:
    pass


c = C()
c.n = 0
c.t = torch.ones(3)
c.l = []
c.o = C()
c.o.z = 1


def f(x):
    c.n += 1
    c.t = c.t + x
    c.l.append(c.n)
    c.o.z *= 2
    c.new = x
    c.o.t = c.t
    del c.new
    c.o2 = c.o
    return c.t * c.n


S = lambda: (vars(c), c.o2 is c.o)


# === object_arg
class P:
    def __init__(self, a, b):
        self.a = a
        self.b = b


def ARGS():
    return (P(torch.ones(3), [1]),)


def f(p):
    p.a = p.a * 2
    p.b.append(p.a)
    p.c = "x"
    return p.a + len(p.b), p


# === object_shared_twice
class P:
    pass


def ARGS():
    p = P()
    p.v = torch.ones(3)
    return p, p, [p]


def f(a, b, c):
    a.v = a.v + 1
    b.n = 3
    return c[0].v + c[0].n, a is b, a is c[0]


# === class_attr_write
class C:
    n = 0
    t = None


def f(x):
    C.n += 1
    C.t = x * 2
    C.new = C.n
    return x * C.n + C.t


S = lambda: (C.n, C.t, C.new)


# === class_attr_write_via_cls
class C:
    count = 0

    def __init__(self):
        type(self).count += 1

    @classmethod
    def bump(cls):
        cls.count += 10
        return cls.count


def f(x):
    c = C()
    return x * C.bump() + c.count + C().count


S = lambda: C.count


# === class_attr_delete
class C:
    a = 1


def f(x):
    C.b = 3
    y = x * C.b
    del C.b
    return y, hasattr(C, "b"), C.a


S = lambda: "b" in vars(C)


# === class_attr_setattr
class B:
    z = 1


class C(B):
    pass


def f(x):
    setattr(C, "q", 2)
    C.z = C.z + 1
    m = getattr(C, "q")
    delattr(C, "q")
    C().inst = 3
    return x * m + C.z + B.z


S = lambda: (vars(C).get("z"), B.z, hasattr(C, "q"))


# === class_method_patch
class C:
    def m(self, x):
        return x + 1


def n(self, x):
    return x * 5


def f(x):
    c = C()
    a = c.m(x)
    C.m = n
    b = c.m(x)
    return a + b


S = lambda: C.m is n


# === class_attr_seen_by_instance
class C:
    v = 1

    @property
    def p(self):
        return self.v * 2


c = C()


def f(x):
    a = c.v
    C.v = a + 1
    b = c.v + c.p + C().v
    c.v = 100
    d = c.v + C.v
    del c.v
    return x * a + b + d + c.v


S = lambda: C.v


# === class_attr_subclass_sees
class A:
    k = 1


class B(A):
    pass


b = B()


def f(x):
    A.k += 1
    y = x * B.k + b.k
    B.k = 10
    return y + A.k + b.k


def between():
    del B.k


S = lambda: A.k


# === class_registry
class Base:
    registry = {}

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag
        Base.registry[tag] = cls.__name__


class A1(Base, tag="a"):
    pass


def f(x):
    class L(Base, tag="l"):
        def m(self, y):
            return y * 2

    return L().m(x), L.tag, sorted(Base.registry), A1.tag


S = lambda: dict(Base.registry)


# === class_in_function
def f(x):
    class A:
        z = 1

        def __init__(self, v):
            self.v = v

        def g(self):
            return self.v * self.z

    class B(A):
        def g(self):
            return super().g() + 1

    return B(x).g(), B.__name__, B.__mro__[1].__name__, issubclass(B, A), B.__qualname__


# === class_three_arg_type
def f(x):
    T = type("T", (object,), {"k": 3, "m": lambda self, y: y * self.k})
    U = type("U", (T,), {})
    return U().m(x), U.__name__, U.__bases__ == (T,), isinstance(U(), T)


# === class_returned breaks=1
def f(x):
    class A:
        k = 2

    return A, x * A.k


g = f


def f(x):
    a, y = g(x)
    return a.k, a.__name__, y


# === set_name_and_class_getitem
class D:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, o, t):
        return self if o is None else getattr(o, self.name)

    def __set__(self, o, v):
        setattr(o, self.name, v * 2)

    def __delete__(self, o):
        delattr(o, self.name)


class C:
    a = D()

    def __class_getitem__(cls, k):
        return (cls.__name__, k)


o = C()
o.a = 1


def f(x):
    class L:
        b = D()

    l = L()
    l.b = x
    c = C()
    c.a = x
    o.a = o.a + 1
    y = c.a + l.b * o.a
    del c.a
    return y, C[int], hasattr(c, "_a"), L.b.name


S = lambda: vars(o)


# === nondata_descriptor
class D:
    def __get__(self, o, t):
        return 5 if o is None else o.base + 1


class C:
    d = D()

    def __init__(self):
        self.base = 1


c = C()


def f(x):
    a = c.d
    c.__dict__["d"] = 10
    b = c.d
    del c.__dict__["d"]
    return x * a + b + C.d + C().d


S = lambda: vars(c)


# === property_all
class C:
    def __init__(self):
        self._v = 1

    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, x):
        self._v = x

    @v.deleter
    def v(self):
        self._v = None

    ro = property(lambda self: 3)


c = C()


def f(x):
    c.v = c.v + 1
    y = x * c.v + c.ro
    d = C()
    d.v = x
    z = d.v
    del d.v
    try:
        c.ro = 1
        e = 0
    except AttributeError as ex:
        e = str(ex)
    return y + z, d.v, e


S = lambda: c._v


# === slots_class
class C:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class D(C):
    __slots__ = ("c", "__dict__")


o = C(1)
p = D(2)
p.z = 5


def f(x):
    c = C(x)
    c.b = x + 1
    o.a += 1
    o.b = x
    p.c = o.a
    p.z += 1
    p.a = p.a + 1
    p.w = 1
    try:
        c.nope = 1
        e = ""
    except AttributeError as ex:
        e = str(ex)
    try:
        D(1).c
        g = 0
    except AttributeError as ex:
        g = str(ex)
    del o.b
    return c.a + c.b, c, e, g, hasattr(o, "b"), p.z, p.a


S = lambda: (o.a, hasattr(o, "b"), p.c, p.z, p.a, p.w)


# === slots_arg
class C:
    __slots__ = ("a", "b")


def ARGS():
    c = C()
    c.a = torch.ones(3)
    c.b = [1]
    return (c,)


def f(c):
    c.a = c.a * 2
    c.b.append(len(c.b))
    return c.a * len(c.b), hasattr(c, "zz")
