"""Classes and instances: attribute lookup, operators, descriptors, metaclasses, dataclasses, enums, typing, weak references."""

import gc

import pytest
import torch

import magneto
import obj_harness

PROGRAMS = obj_harness.parse(r"""
=== plain_object
class C:
    k = 2
    def __init__(self, x): self.x = x; self.n = 1
    def m(self, y): self.n += 1; return self.x * y + self.k
    @classmethod
    def make(cls, x): return cls(x)
    @staticmethod
    def s(a): return a + 1
def f(x):
    c = C(x); d = C.make(x + 1); e = c.m(2) + d.m(3) + C.s(1); c.k = 5; del c.n
    return e, c, d.n, hasattr(c, 'n'), c.__dict__.keys() == {'x', 'k'}, type(c) is C, c.__class__.__name__, C.k, isinstance(c, C)
=== older_descriptors_and_callables_in_classes breaks=1
class D:
    def __init__(self): self.n = 0; self.l = []
    def __set__(self, o, v): self.n += 1; self.l.append(v)
    def __get__(self, o, t): self.n += 10; return self if o is None else 1
class Op:
    def __init__(self): self.n = 0
    def __call__(self, *a): self.n += 1 + len(a); return 1
d = D(); ops = {n: Op() for n in ('__len__', '__getitem__', '__hash__', '__neg__', '__enter__', '__exit__')}
C = type('C', (), dict(ops, d=d))
def f(x):
    c = C(); c.d = 5
    with c: y = x * c.d + len(c) + c[0] - (-c) + hash(c)
    print(end=''); c.d = 6
    return y
S = lambda: (d.n, d.l, [o.n for o in ops.values()])
=== functional_enum
import enum
def f(x): C = enum.Enum('C', 'RED GREEN'); return x + C.GREEN.value, [c.name for c in C], C.__module__
=== cached_typing_of_objects_made_here breaks=1
import typing
def f(x): T = typing.TypeVar('T'); u = typing.List[T]; print(end=''); return x + 1, u.__parameters__ == (T,), T.__name__
=== older_object_attrs
class C: pass
c = C(); c.n = 0; c.t = torch.ones(3); c.l = []; c.o = C(); c.o.z = 1
def f(x):
    c.n += 1; c.t = c.t + x; c.l.append(c.n); c.o.z *= 2; c.new = x; c.o.t = c.t; del c.new; c.o2 = c.o
    return c.t * c.n
S = lambda: (vars(c), c.o2 is c.o)
=== object_arg
class P:
    def __init__(self, a, b): self.a = a; self.b = b
def ARGS(): return P(torch.ones(3), [1]),
def f(p):
    p.a = p.a * 2; p.b.append(p.a); p.c = 'x'; return p.a + len(p.b), p
=== object_shared_twice
class P: pass
def ARGS():
    p = P(); p.v = torch.ones(3); return p, p, [p]
def f(a, b, c): a.v = a.v + 1; b.n = 3; return c[0].v + c[0].n, a is b, a is c[0]
=== class_attr_write
class C:
    n = 0; t = None
def f(x):
    C.n += 1; C.t = x * 2; C.new = C.n; return x * C.n + C.t
S = lambda: (C.n, C.t, C.new)
=== class_attr_write_via_cls
class C:
    count = 0
    def __init__(self): type(self).count += 1
    @classmethod
    def bump(cls): cls.count += 10; return cls.count
def f(x): c = C(); return x * C.bump() + c.count + C().count
S = lambda: C.count
=== class_attr_delete
class C: a = 1
def f(x):
    C.b = 3; y = x * C.b; del C.b; return y, hasattr(C, 'b'), C.a
S = lambda: 'b' in vars(C)
=== class_attr_setattr
class B: z = 1
class C(B): pass
def f(x):
    setattr(C, 'q', 2); C.z = C.z + 1; m = getattr(C, 'q'); delattr(C, 'q'); C().inst = 3
    return x * m + C.z + B.z
S = lambda: (vars(C).get('z'), B.z, hasattr(C, 'q'))
=== class_method_patch
class C:
    def m(self, x): return x + 1
def n(self, x): return x * 5
def f(x):
    c = C(); a = c.m(x); C.m = n; b = c.m(x); return a + b
S = lambda: C.m is n
=== class_attr_seen_by_instance
class C:
    v = 1
    @property
    def p(self): return self.v * 2
c = C()
def f(x):
    a = c.v; C.v = a + 1; b = c.v + c.p + C().v; c.v = 100; d = c.v + C.v; del c.v; return x * a + b + d + c.v
S = lambda: C.v
=== class_attr_subclass_sees
class A: k = 1
class B(A): pass
b = B()
def f(x): A.k += 1; y = x * B.k + b.k; B.k = 10; return y + A.k + b.k
def between(): del B.k
S = lambda: A.k
=== class_registry
class Base:
    registry = {}
    def __init_subclass__(cls, tag=None, **kw): super().__init_subclass__(**kw); cls.tag = tag; Base.registry[tag] = cls.__name__
class A1(Base, tag='a'): pass
def f(x):
    class L(Base, tag='l'):
        def m(self, y): return y * 2
    return L().m(x), L.tag, sorted(Base.registry), A1.tag
S = lambda: dict(Base.registry)
=== class_in_function
def f(x):
    class A:
        z = 1
        def __init__(self, v): self.v = v
        def g(self): return self.v * self.z
    class B(A):
        def g(self): return super().g() + 1
    return B(x).g(), B.__name__, B.__mro__[1].__name__, issubclass(B, A), B.__qualname__
=== class_three_arg_type
def f(x):
    T = type('T', (object,), {'k': 3, 'm': lambda self, y: y * self.k}); U = type('U', (T,), {})
    return U().m(x), U.__name__, U.__bases__ == (T,), isinstance(U(), T)
=== class_returned breaks=1
def f(x):
    class A: k = 2
    return A, x * A.k
g = f
def f(x): a, y = g(x); return a.k, a.__name__, y
=== set_name_and_class_getitem
class D:
    def __set_name__(self, owner, name): self.name = '_' + name
    def __get__(self, o, t): return self if o is None else getattr(o, self.name)
    def __set__(self, o, v): setattr(o, self.name, v * 2)
    def __delete__(self, o): delattr(o, self.name)
class C:
    a = D()
    def __class_getitem__(cls, k): return (cls.__name__, k)
o = C(); o.a = 1
def f(x):
    class L: b = D()
    l = L(); l.b = x; c = C(); c.a = x; o.a = o.a + 1; y = c.a + l.b * o.a; del c.a
    return y, C[int], hasattr(c, '_a'), L.b.name
S = lambda: vars(o)
=== nondata_descriptor
class D:
    def __get__(self, o, t): return 5 if o is None else o.base + 1
class C:
    d = D()
    def __init__(self): self.base = 1
c = C()
def f(x): a = c.d; c.__dict__['d'] = 10; b = c.d; del c.__dict__['d']; return x * a + b + C.d + C().d
S = lambda: vars(c)
=== property_all
class C:
    def __init__(self): self._v = 1
    @property
    def v(self): return self._v
    @v.setter
    def v(self, x): self._v = x
    @v.deleter
    def v(self): self._v = None
    ro = property(lambda self: 3)
c = C()
def f(x):
    c.v = c.v + 1; y = x * c.v + c.ro; d = C(); d.v = x; z = d.v; del d.v
    try: c.ro = 1; e = 0
    except AttributeError as ex: e = str(ex)
    return y + z, d.v, e
S = lambda: c._v
=== slots_class
class C:
    __slots__ = ('a', 'b')
    def __init__(self, a): self.a = a
class D(C): __slots__ = ('c', '__dict__')
o = C(1); p = D(2); p.z = 5
def f(x):
    c = C(x); c.b = x + 1; o.a += 1; o.b = x; p.c = o.a; p.z += 1; p.a = p.a + 1; p.w = 1
    try: c.nope = 1; e = ''
    except AttributeError as ex: e = str(ex)
    try: D(1).c; g = 0
    except AttributeError as ex: g = str(ex)
    del o.b
    return c.a + c.b, c, e, g, hasattr(o, 'b'), p.z, p.a
S = lambda: (o.a, hasattr(o, 'b'), p.c, p.z, p.a, p.w)
=== slots_arg
class C:
    __slots__ = ('a', 'b')
def ARGS():
    c = C(); c.a = torch.ones(3); c.b = [1]; return c,
def f(c): c.a = c.a * 2; c.b.append(len(c.b)); return c.a * len(c.b), hasattr(c, 'zz')
=== getattr_family
class C:
    def __init__(self): object.__setattr__(self, 'log', []); self.a = 1
    def __getattr__(self, n):
        if n.startswith('dyn'): return len(n)
        raise AttributeError(n)
    def __setattr__(self, n, v): self.log.append(n); object.__setattr__(self, n, v)
    def __delattr__(self, n): self.log.append('-' + n); object.__delattr__(self, n)
c = C()
def f(x):
    c.b = x; del c.b; d = C(); d.z = x * 2
    return x * c.a + c.dynamo + d.z, d.log, getattr(c, 'no', 3), hasattr(c, 'no')
S = lambda: (c.log,)
=== getattribute_override
class C:
    def __init__(self): self.n = 1
    def __getattribute__(self, n):
        if n == 'twice': return object.__getattribute__(self, 'n') * 2
        return super().__getattribute__(n)
c = C()
def f(x): d = C(); c.n += 1; return x * c.twice + d.twice + c.n
S = lambda: c.n
=== proxy_object
class Proxy:
    def __init__(self, t): self.__dict__['t'] = t
    def __getattr__(self, n): return getattr(self.t, n)
    def __setattr__(self, n, v): setattr(self.t, n, v)
class T: v = 1
t = T(); p = Proxy(t)
def f(x): p.v = p.v + 1; q = Proxy(x); return q.sin() * p.v + q.shape[0]
S = lambda: (t.v, vars(p).keys() == {'t'})
=== metaclass_call
class Meta(type):
    made = []
    def __call__(cls, *a, **k): o = super().__call__(*a, **k); o.tag = cls.__name__; return o
    def __instancecheck__(cls, o): return hasattr(o, 'quack')
    def __subclasscheck__(cls, o): return o is int
    def __len__(cls): return 3
    def __iter__(cls): return iter([1, 2])
    def __contains__(cls, v): return v == 7
    def __getitem__(cls, k): return k * 2
    @property
    def prop(cls): return 'p'
class C(metaclass=Meta):
    def __init__(self, x): self.x = x
class Q: quack = 1
def f(x):
    c = C(x); return c.x * len(C), c.tag, isinstance(Q(), C), isinstance(3, C), issubclass(int, C), list(C), 7 in C, C[4], C.prop, type(C) is Meta
=== singleton
class S1:
    inst = None
    def __new__(cls):
        if cls.inst is None: cls.inst = super().__new__(cls); cls.inst.n = 0
        return cls.inst
def f(x): a = S1(); b = S1(); a.n += 1; return x * b.n, a is b
S = lambda: S1.inst.n
=== singleton_metaclass
class Meta(type):
    _i = {}
    def __call__(cls, *a):
        if cls not in Meta._i: Meta._i[cls] = super().__call__(*a)
        return Meta._i[cls]
class C(metaclass=Meta):
    def __init__(self): self.n = 0
def f(x): C().n += 1; return x * C().n, C() is C()
S = lambda: [o.n for o in Meta._i.values()]
=== new_override
class C:
    def __new__(cls, a, *r): o = object.__new__(cls); o.made = a; return o
    def __init__(self, a, b=2): self.b = b
class I(int):
    def __new__(cls, v): return super().__new__(cls, v * 2)
def f(x): c = C(x, 3); return c.made * c.b, I(3), x * I(2)
=== operators_all
class V:
    def __init__(self, t): self.t = t
    def __add__(self, o): return V(self.t + (o.t if isinstance(o, V) else o))
    def __radd__(self, o): return V(o + self.t)
    def __iadd__(self, o): self.t = self.t + 10; return self
    def __sub__(self, o): return NotImplemented
    def __rsub__(self, o): return V(o - self.t)
    def __mul__(self, o): return V(self.t * o)
    __rmul__ = __mul__
    def __matmul__(self, o): return 'mm'
    def __truediv__(self, o): return V(self.t / o)
    def __floordiv__(self, o): return 'fd'
    def __mod__(self, o): return 'mod'
    def __pow__(self, o): return V(self.t ** o)
    def __rpow__(self, o): return 'rpow'
    def __and__(self, o): return 'and'
    def __or__(self, o): return 'or'
    def __xor__(self, o): return 'xor'
    def __lshift__(self, o): return 'ls'
    def __rrshift__(self, o): return 'rrs'
    def __neg__(self): return V(-self.t)
    def __pos__(self): return self
    def __invert__(self): return 'inv'
    def __abs__(self): return V(self.t.abs())
    def __divmod__(self, o): return (1, 2)
    def __round__(self, n=None): return 'r'
    def __index__(self): return 1
    def __float__(self): return 2.5
    def __int__(self): return 4
    def __complex__(self): return 1j
    def __bool__(self): return True
    def __len__(self): return 2
    def __hash__(self): return 5
    def __eq__(self, o): return isinstance(o, V)
    def __lt__(self, o): return True
    def __le__(self, o): return False
    def __gt__(self, o): return 'gt'
    def __getitem__(self, i): return self.t[i] if not isinstance(i, slice) else (i.start, i.stop)
    def __contains__(self, k): return k == 'in'
    def __call__(self, *a, **k): return (a, k)
    def __format__(self, spec): return 'F' + spec
    def __str__(self): return 'str'
    def __repr__(self): return 'repr'
    def __iter__(self): return iter([1, 2])
    def __reversed__(self): return 'rev'
    def __trunc__(self): return 8
o = V(torch.ones(3))
def f(x):
    v = V(x); w = v; w += 1
    try: v - 1; e = 0
    except TypeError as ex: e = str(ex)
    return (v + 1).t + (1 + v).t + (v * 2).t + (3 * v).t + (v / 2).t + (v ** 2).t + (-v).t + abs(v).t + (v + o).t, w is v, e, (5 - v).t, v @ 1, v // 1, v % 1, 2 ** v, v & 1, v | 1, v ^ 1, v << 1, 1 >> v, +v is v, ~v, divmod(v, 1), round(v), [10, 11][v], float(v), int(v), bool(v), len(v), hash(v), v == o, v != o, v < 1, v <= 1, v > 1, v[0], v[1:2], 'in' in v, v(1, a=2), f'{v:>3}', str(v), repr(v), '%s %r' % (v, v), list(v), reversed(v), {v: 1}[o], sum([v, v]).t, [*v], max(3, 2), o is not v
=== operators_older
class N:
    def __init__(self): self.n = 0
    def __iadd__(self, o): self.n += o; return self
    def __add__(self, o): self.n += 100; return self.n
    def __lshift__(self, o): self.n -= 1; return self
    def __setitem__(self, k, v): setattr(self, k, v)
    def __getitem__(self, k): return getattr(self, k)
    def __delitem__(self, k): delattr(self, k)
    def __len__(self): return self.n
    def __bool__(self): self.n += 1; return False
    def __call__(self, x): self.n += 1; return x * self.n
    def __contains__(self, k): return hasattr(self, k)
    def __iter__(self):
        for i in range(2): self.n += 1; yield i
o = N()
def f(x):
    global o
    o += 5; y = o + 1; o << 1; o['k'] = x; z = o['k'] + len(o); del o['k']
    return o(x) + y + z + (1 if o else 2) + sum(o), 'k' in o
S = lambda: o.n
=== reflected_subclass
class A:
    def __add__(self, o): return 'A'
    def __radd__(self, o): return 'rA'
    def __eq__(self, o): return 'eqA'
class B(A):
    def __radd__(self, o): return 'rB'
    def __eq__(self, o): return 'eqB'
class T:
    def __radd__(self, o): return 'tensor + T'
    def __rmul__(self, o): return o * 3
    def __torch_function__(self, *a): return NotImplemented
def f(x): return A() + B(), B() + A(), 1 + A(), A() == B(), A() + 1, x * 2
=== tensor_op_object
class T:
    def __init__(self, k): self.k = k
    def __radd__(self, o): return o * self.k
    def __rmul__(self, o): return o + self.k
    def __rsub__(self, o): return 'rsub'
    def __eq__(self, o): return 'eq'
def f(x): return x + T(3), x * T(2), x - T(1)
=== iterator_class
class It:
    def __init__(self, n): self.n = n
    def __iter__(self): return self
    def __next__(self):
        if self.n == 0: raise StopIteration
        self.n -= 1; return self.n
o = It(100)
def f(x):
    for i in It(3): x = x + i
    return x + next(o) + sum(It(4)) + next(It(0), 7), list(zip(It(2), 'ab')), [*It(2)]
S = lambda: o.n
=== getitem_iteration
class Seq:
    def __getitem__(self, i):
        if i > 2: raise IndexError
        return i * 10
    def __len__(self): return 3
def f(x): s = Seq(); return x + sum(s), list(s), 10 in s, list(reversed(s)), [a for a in s]
=== context_managers
import contextlib
log = []
class CM:
    def __init__(self, n, eat=False): self.n = n; self.eat = eat
    def __enter__(self): log.append('in' + self.n); return self
    def __exit__(self, t, v, tb): log.append('out' + self.n + (t.__name__ if t else '')); return self.eat
@contextlib.contextmanager
def gen(k):
    log.append(k)
    try: yield k
    finally: log.append('-' + k)
def f(x):
    with CM('a') as a, gen('g') as g, contextlib.suppress(KeyError), contextlib.ExitStack() as st:
        st.enter_context(CM('s')); st.callback(log.append, 'cb')
        with CM('b', True): raise ValueError('q')
        x = x * 2
        with contextlib.nullcontext(3) as n: x = x + n
        raise KeyError
    return x, a.n, g
S = lambda: log
=== dataclass_all
from dataclasses import dataclass, field, asdict, astuple, replace, fields, is_dataclass, InitVar, KW_ONLY
from typing import Any, ClassVar
@dataclass
class P:
    a: Any
    b: int = 2
    c: list = field(default_factory=list)
    d: ClassVar[int] = 9
    e: InitVar[int] = 1
    def __post_init__(self, e): self.z = self.b * e
@dataclass(frozen=True, order=True)
class F:
    n: int; s: str = 'q'
@dataclass(slots=True)
class Sl:
    a: Any; b: int = 1
@dataclass(kw_only=True, eq=False)
class K(P): k: int = 0
o = P(torch.ones(3))
def f(x):
    p = P(x, 3, e=2); p.c.append(x); q = replace(p, b=5, e=1); o.b += 1; o.c.append(o.b)
    try: F(1).n = 2; er = ''
    except Exception as ex: er = type(ex).__name__ + str(ex)
    s = Sl(x); s.b = 4
    return p.a * p.b + q.b + o.b, asdict(F(1)), astuple(F(2, 'w')), [fl.name for fl in fields(P)], is_dataclass(p), er, F(1) < F(2), F(1) == F(1), hash(F(1)) == hash(F(1)), repr(F(3)), q.z, p.d, s, K(a=1, k=2).k, p, replace(s, b=7), {F(1): 2}[F(1)], F(1) in [F(1)]
S = lambda: (o.b, o.c)
=== dataclass_asdict_tensors
from dataclasses import dataclass, asdict, astuple
from typing import Any
@dataclass
class P:
    a: Any; b: Any
def f(x):
    d = asdict(P(x, [x + 1, {'k': P(1, 2)}])); t = astuple(P(x, 1)); return d['a'] + d['b'][0], t[0], d
=== dataclass_arg
from dataclasses import dataclass, field, replace, asdict
from typing import Any, Optional
@dataclass
class Cfg:
    t: Any; n: int = 1; sub: Optional[Any] = None
def ARGS(): return Cfg(torch.ones(3), sub=Cfg(torch.zeros(3), 2)),
def f(c):
    c.n += 1; c.sub.t = c.t + 1; d = replace(c, n=7); return c.t * c.n + d.n + c.sub.t, d, asdict(c.sub)
=== dataclass_older_frozen
from dataclasses import dataclass
@dataclass(frozen=True)
class Cfg:
    n: int = 3; t: object = None
    @property
    def two(self): return self.n * 2
c = Cfg(t=torch.ones(3)); D = {c.n: c}
def f(x): return x * c.two + c.t, D[3] is c, c == Cfg(3, c.t) if False else 0
=== dataclass_created_inside
from dataclasses import dataclass
def f(x):
    p = make(x); return p.a + p.b
@dataclass
class P:
    a: object; b: int = 1
    def with_b(self, b): return P(self.a, b)
def make(x): return P(x).with_b(3)
=== enums
import enum
class E(enum.Enum):
    A = 1; B = 'b'
    @property
    def low(self): return self.name.lower()
    @classmethod
    def parse(cls, s): return cls[s]
class I(enum.IntEnum): X = 1; Y = 2
class Fl(enum.Flag): R = 1; W = 2
class St(str, enum.Enum): P = 'p'
class Au(enum.Enum): Q = enum.auto(); R = enum.auto()
D = {E.A: 2}
def f(x):
    return x * I.Y + D[E.A], E('b') is E.B, E['A'], E.A.low, E.parse('B'), list(E), len(E), E.A in E, I.X + 1, I.X < I.Y, Fl.R | Fl.W, Fl.R in (Fl.R | Fl.W), St.P == 'p', St('p'), Au.R.value, E.A == E.A, E.A is E.B, isinstance(E.A, E), E.A.name, E.A.value, str(E.A), repr(E.A), {E.A, E.B} == {E.B, E.A}, hash(E.A) == hash(E.A), E.__members__['A'], I(2), sorted(I), max(I), x[I.X], f'{St.P.value}', f'{I.X}', [e.name for e in Fl]
=== enum_arg_guard
import enum
class E(enum.Enum): A = 1; B = 2
v = [E.A]
def ARGS(): return torch.ones(3), v[0]
def f(x, e):
    if e is E.A: return x + e.value
    elif e == E.B: return x * e.value
def between(): v[0] = E.B
=== enum_defined_inside breaks=1 forced=0
import enum
def f(x):
    class E(enum.Enum): A = 1; B = 2
    return x * E.B.value, E.A.name
=== match_classes
from dataclasses import dataclass
@dataclass
class P: a: int; b: object
class Q:
    __match_args__ = ('z',)
    def __init__(self, z): self.z = z
def g(o, x):
    match o:
        case P(1, b): return x + b
        case P(a=a) if a > 5: return x * a
        case Q(z): return z
        case {'k': v, **rest}: return x - v, rest
        case [a, *b]: return x + a, b
        case str() | int(): return 's'
        case None: return x
        case _: return 'other'
def f(x): return [g(o, x) for o in (P(1, x), P(7, 0), Q(x), {'k': 1, 'm': 2}, [1, 2, 3], 'a', 5, None, 2.5)]
=== typing_objects
from typing import List, Optional, Union, Generic, TypeVar, cast, get_type_hints, Protocol, runtime_checkable, Literal, Annotated, Callable, TYPE_CHECKING, get_origin, get_args, Any, TypedDict
import typing
T = TypeVar('T')
class G(Generic[T]):
    def __init__(self, v: T): self.v = v
@runtime_checkable
class HasV(Protocol):
    v: int
class TD(TypedDict): a: int
def ann(a: int, b: str = 'x') -> List[int]: return [a]
def f(x):
    g = G[int](x); t: Optional[List[int]] = None; l: List = cast(List[int], [1])
    return g.v * 2, isinstance(g, HasV), get_origin(List[int]) is list, get_args(Union[int, str]), ann.__annotations__['a'] is int, get_type_hints(ann)['b'] is str, l, TYPE_CHECKING, TD(a=1), List[int] == List[int], isinstance(1, int | str), Optional[int] == Union[int, None], G.__parameters__ == (T,), list[int].__args__
=== abc_objects
import abc, collections.abc, numbers
class Base(abc.ABC):
    @abc.abstractmethod
    def m(self, x): ...
    def tmpl(self, x): return self.m(x) + 1
class D(Base):
    def m(self, x): return x * 2
class V: pass
Base.register(V)
d = D()
def f(x):
    try: Base(); e = ''
    except TypeError as ex: e = str(ex)
    return d.tmpl(x) + D().tmpl(x), e, isinstance(V(), Base), isinstance([], collections.abc.Sequence), isinstance({}, collections.abc.Mapping), isinstance(1, numbers.Number), isinstance(f, collections.abc.Callable), issubclass(dict, collections.abc.MutableMapping), isinstance(x, collections.abc.Iterable), isinstance((i for i in ()), collections.abc.Generator), isinstance(3, collections.abc.Hashable), isinstance(x, collections.abc.Hashable), isinstance(x, collections.abc.Sequence), isinstance([x], list) and isinstance((x,), (list, tuple))
=== abc_mapping
from collections.abc import MutableMapping, Sequence
class M(MutableMapping):
    def __init__(self): self.d = {}
    def __getitem__(self, k): return self.d[k]
    def __setitem__(self, k, v): self.d[k] = v
    def __delitem__(self, k): del self.d[k]
    def __iter__(self): return iter(self.d)
    def __len__(self): return len(self.d)
o = M()
def f(x):
    m = M(); m['a'] = x; m.update(b=2); m.setdefault('c', 3); o['n'] = o.get('n', 0) + 1; k, v = m.popitem()
    return m['a'] * o['n'], dict(m), list(m.items()), 'a' in m, m.pop('b'), m == {'c': 3}, {**m}, k
S = lambda: o.d
=== is_and_id
class C: pass
c = C(); d = c; L = [c]
def f(x): return x + 1, c is d, L[0] is c, id(c) == id(d), x is x, None is None, type(x) is torch.Tensor, c in L, C() is C(), [] is [], (c,)[0] is c, id(x) == id(x), f is f, torch.float32 is torch.float32, c is not None
=== isinstance_kinds
class A: pass
class B(A): pass
P = torch.nn.Parameter(torch.ones(3)); m = torch.nn.Linear(3, 3)
def f(x):
    return x + 1, isinstance(B(), A), isinstance(B(), (int, A)), issubclass(B, (int, A)), isinstance(x, torch.Tensor), isinstance(x, torch.nn.Parameter), isinstance(P, torch.nn.Parameter), isinstance(P, torch.Tensor), isinstance(m, torch.nn.Module), isinstance(x, (int, float)), isinstance(x, torch.FloatTensor), torch.is_tensor(x), isinstance(True, int), callable(m), callable(x), callable(A), callable(3), isinstance(A, type), issubclass(type(m), torch.nn.Module), isinstance(m.weight, torch.nn.parameter.Parameter), isinstance(x.shape, tuple), isinstance(x, object), type(P) is torch.nn.Parameter, isinstance(x, torch.nn.Buffer) if hasattr(torch.nn, 'Buffer') else 0, isinstance(torch.relu, type(len)), isinstance(f, type(lambda: 0))
=== dir_vars_hasattr
class C:
    k = 1
    def __init__(self): self.a = 1; self.b = 2
    def m(self): pass
c = C()
def f(x):
    d = C(); d.z = x; return x + 1, [n for n in dir(d) if not n.startswith('_')], vars(d)['a'], [n for n in dir(C) if not n.startswith('_')], hasattr(c, 'm'), hasattr(C, 'nope'), [n for n in dir(c) if not n.startswith('_')], sorted(vars(c)), 'k' in vars(C), 'a' in c.__dict__, C.__dict__['k'], c.__class__.__dict__.keys() >= {'k', 'm'}, list(c.__dict__.items())
=== getattr_default_exceptions
class C:
    @property
    def bad(self): raise AttributeError('inner')
    @property
    def worse(self): raise ValueError('v')
c = C()
def f(x):
    try: c.worse; e = 0
    except ValueError as ex: e = str(ex)
    try: c.missing; g = 0
    except AttributeError as ex: g = str(ex)
    return x + 1, getattr(c, 'bad', 5), hasattr(c, 'bad'), e, g
=== callable_objects
class F:
    def __init__(self, k): self.k = k; self.calls = 0
    def __call__(self, x, *, s=1): self.calls += 1; return x * self.k + s
class G:
    def __init__(self): self.fn = lambda v: v + 1; self.t = torch.sin; self.m = [].append
    def run(self, x): return self.fn(self.t(x))
h = F(3); g = G()
def f(x): return h(x, s=2) + F(2)(x) + g.run(x) + list(map(h, [x]))[0]
S = lambda: h.calls
=== bound_methods
class C:
    def __init__(self, n): self.n = n
    def m(self, x): return x * self.n
    def chain(self): self.n += 1; return self
c = C(2); bm = c.m
def f(x):
    m = c.m; k = C(3).m; return m(x) + k(x) + bm(x) + C.m(c, x), m.__self__ is c, m.__func__ is C.m, m == c.m, c.chain().chain().n, m.__name__, k
g = f
def f(x): r = list(g(x)); r[-1] = r[-1](torch.ones(2)); return r
S = lambda: c.n
=== super_forms
class A:
    def __init__(self, v=0): self.v = v
    def m(self, x): return x + self.v
    @classmethod
    def c(cls): return cls.__name__ + 'A'
    @property
    def p(self): return 1
class M1(A):
    def m(self, x): return super().m(x) * 2
class M2(A):
    def m(self, x): return super(M2, self).m(x) + 10
class D(M1, M2):
    def __init__(self, v): super().__init__(v); self.w = super().p
    def m(self, x): s = super(); return s.m(x)
    @classmethod
    def c(cls): return super().c() + 'D'
    @property
    def p(self): return super().p + 1
d = D(1)
def f(x): return d.m(x) + D(2).m(x), D.c(), d.p, d.w, [k.__name__ for k in D.__mro__], super(D, d).p, D.mro()[1] is M1
=== function_attrs
def g(x): g.calls = getattr(g, 'calls', 0) + 1; return x * g.calls
def h(a, b=2, *, c=3): "doc"; return a
def f(x):
    def k(y): return y
    k.tag = 1; h.mark = 5
    return g(x), k.tag, h.__name__, h.__doc__, h.__defaults__, h.__kwdefaults__, h.__code__.co_argcount, h.__module__, h.mark, f.__name__, h.__code__.co_varnames, h.__qualname__, k.__closure__
S = lambda: (g.calls, h.mark)
=== function_defaults_changed
def h(a, b=2): return a * b
def f(x): return h(x)
def between(): h.__defaults__ = (h.__defaults__[0] + 1,)
=== inspect_signature
import inspect
class C:
    def m(self, a, *r, k=1): return a
def h(a, b=2, *c, d: int = 3, **e): return a
def f(x):
    s = inspect.signature(h); b = s.bind(x, 5, z=1); b.apply_defaults()
    return h(*b.args, **b.kwargs) + 1, list(s.parameters), s.parameters['b'].default, s.parameters['d'].kind.name, b.arguments['b'], str(inspect.signature(C().m)), inspect.isfunction(h), inspect.ismethod(C().m), inspect.isclass(C), s.parameters['d'].annotation is int, inspect.getfullargspec(h).args, s.parameters['a'].default is inspect.Parameter.empty, inspect.isgeneratorfunction(h), inspect.unwrap(h) is h
=== weakrefs
import weakref
class C:
    def m(self): return 3
c = C(); W = weakref.ref(c); WK = weakref.WeakKeyDictionary(); WK[c] = 2; WV = weakref.WeakValueDictionary(a=c); WS = weakref.WeakSet([c]); WM = weakref.WeakMethod(c.m); Pr = weakref.proxy(c); c.v = 5
def f(x):
    r = weakref.ref(c); return x * W().m() + WK[c], r() is c, W() is c, WV['a'] is c, c in WK, len(WK), W == r, weakref.getweakrefcount(c) > 0
=== weakref_to_tensor_owner
import weakref
m = torch.nn.Linear(3, 3)
class Child:
    def __init__(self, p): self.p = weakref.ref(p)
ch = Child(m)
def f(x): return ch.p()(x) * 2
S = lambda: 0
torch.nn.init.ones_(m.weight); torch.nn.init.zeros_(m.bias)
=== weakref_mutating breaks=1
import weakref
class C: pass
c = C(); WK = weakref.WeakKeyDictionary(); WS = weakref.WeakSet()
def f(x):
    WK[c] = WK.get(c, 0) + 1; WS.add(c); return x * WK[c] + len(WS)
S = lambda: (len(WK), WK[c], len(WS))
=== weakref_finalize breaks=1
import weakref
class C: pass
log = []
def f(x):
    c = C(); weakref.finalize(c, log.append, 1); r = weakref.ref(c); y = x * 2; del c; return y + len(log), r() is None
S = lambda: log
=== del_method breaks=1
log = []
class C:
    def __init__(self, x): self.x = x
    def __del__(self): log.append('del')
def f(x):
    c = C(x); y = c.x * 2; del c; log.append('after'); return y + len(log)
S = lambda: log
=== copy_module
import copy
class C:
    def __init__(self, a): self.a = a; self.l = [a]
class K:
    def __init__(self): self.n = 0
    def __copy__(self): k = K(); k.n = 1; return k
    def __deepcopy__(self, memo): k = K(); k.n = 2; return k
o = C(torch.ones(3)); D = {'t': torch.ones(3), 'l': [1, [2]]}; L = [D, o]
def f(x):
    c = C(x); d = copy.copy(c); e = copy.copy(o); d.l.append(1); e.a = x
    g = copy.deepcopy([1, {'a': (2, [3])}]); h = copy.copy(D); h['new'] = 1; i = copy.copy([x, 1]); j = copy.copy({1, 2}); k = copy.deepcopy(K()); m = copy.copy(K())
    return c.a + o.a, len(c.l), d.l is c.l, e.l is o.l, g, h, i, j, k.n, m.n, copy.copy((x,)), copy.deepcopy(3), copy.copy(f) is f, copy.copy(C) is C
S = lambda: (o.l, D)
=== deepcopy_tensors
import copy
class C:
    def __init__(self, a): self.a = a; self.l = [a]
o = C(torch.ones(3)); D = {'t': torch.ones(3)}
def f(x):
    a = copy.deepcopy(C(x)); b = copy.deepcopy(D); c = copy.deepcopy([x, (x, 1)]); d = copy.deepcopy(o)
    a.a.add_(1); b['t'].add_(2); c[0].mul_(3); d.a.add_(5)
    return a.a + b['t'] + c[0] + d.a + o.a + x, a.l[0] is a.a, c[0] is c[1][0], d.l[0] is d.a
S = lambda: (o.a, D)
=== config_copy
import copy
class Config:
    def __init__(self, **k): self.__dict__.update(k)
    def to_dict(self): return copy.deepcopy(self.__dict__)
cfg = Config(n=2, sub={'a': [1]}, name='c', dt=torch.float32)
def f(x):
    c = copy.copy(cfg); c.n = 5; d = copy.deepcopy(cfg); d.sub['a'].append(2); e = cfg.to_dict(); return x * c.n + cfg.n + len(d.sub['a']) + e['n'], len(cfg.sub['a']), d.dt
S = lambda: vars(cfg)
=== model_output
from transformers.utils import ModelOutput
from dataclasses import dataclass
from typing import Optional, Any
@dataclass
class Out(ModelOutput):
    a: Optional[Any] = None
    b: Optional[Any] = None
def f(x):
    o = Out(a=x); o.b = x + 1; o['a'] = o['a'] * 2; return o, o[0] + o.b, o.to_tuple(), list(o.keys()), 'b' in o, len(o), o.get('zz'), dict(o.items()), {**o}['a'], isinstance(o, dict)
=== model_output_arg
from transformers.utils import ModelOutput
from dataclasses import dataclass
from typing import Optional, Any
@dataclass
class Out(ModelOutput):
    a: Optional[Any] = None
    b: Optional[Any] = None
def ARGS(): return Out(a=torch.ones(3)),
def f(o):
    o.b = o.a * 2; n = Out(**o); return n.a + o[1], o.to_tuple(), n
=== transformers_config
from transformers import PretrainedConfig
import copy
cfg = PretrainedConfig(hidden=4, layers=2)
def f(x):
    c = copy.deepcopy(cfg); c.hidden = 7; return x * cfg.hidden + c.hidden + getattr(cfg, 'nope', 3), cfg.use_return_dict
S = lambda: cfg.hidden
=== exceptions_custom
class E(Exception):
    def __init__(self, m, code): super().__init__(m); self.code = code
def f(x):
    try: raise E('m', 3)
    except E as e: c, a, s = e.code, e.args, str(e)
    try:
        try: 1 / 0
        except ZeroDivisionError as z: raise KeyError('k') from z
    except KeyError as k: t = type(k.__cause__).__name__, k.__context__ is k.__cause__
    return x * c, a, s, t
=== exception_stored
class C: err = None
c = C()
def f(x):
    try: raise ValueError('v')
    except ValueError as e: c.err = e.args
    return x + 1
S = lambda: c.err
=== mro_and_bases
class A: pass
class B(A): "d"
def f(x): return x + 1, B.__bases__ == (A,), B.__mro__ == (B, A, object), B.__doc__, B.__module__, B.__name__, A.__subclasses__() == [B], B().__doc__, object.__new__(B).__class__ is B, B.__dict__.get('zz'), type(B) is type, A.__init__ is object.__init__
=== class_swap
class A:
    def m(self, x): return x + 1
class B(A):
    def m(self, x): return x * 2
o = A()
def f(x): return o.m(x)
def between(): o.__class__ = B
=== class_assignment_inside breaks=1
class A:
    k = 1
class B:
    k = 2
o = A()
def f(x):
    c = A(); c.__class__ = B; o.__class__ = B; return x * c.k + o.k
def between(): o.__class__ = A
S = lambda: type(o).__name__
=== dict_replaced breaks=1
class C: pass
o = C(); o.a = 1
def f(x):
    c = C(); c.__dict__ = {'z': x}; o.__dict__ = {'a': o.a + 1, 'q': 2}; return c.z * o.a + o.q
S = lambda: vars(o)
=== dict_update_on_instance
class C: pass
o = C(); o.a = 1
def f(x):
    o.__dict__.update(b=x, a=o.a + 1); o.__dict__['c'] = 3; o.__dict__.pop('c'); d = o.__dict__; d['z'] = 5; c = C(); c.__dict__.update({'q': x}); return o.b * o.a + c.q + o.z
S = lambda: vars(o)
=== functools_class_tools
import functools
class C:
    n = 0
    @functools.cached_property
    def cp(self): self.n += 1; return torch.ones(3) * self.n
    @functools.singledispatchmethod
    def sd(self, a): return 'any'
    @sd.register
    def _(self, a: int): return 'int'
    pm = functools.partialmethod(lambda self, a, b: a * b, b=3)
@functools.total_ordering
class O:
    def __init__(self, v): self.v = v
    def __eq__(self, o): return self.v == o.v
    def __lt__(self, o): return self.v < o.v
    __hash__ = None
@functools.singledispatch
def sd(a): return 'any'
@sd.register(list)
def _(a): return 'list'
@functools.wraps(sd)
def w(*a): return sd(*a)
c = C()
def f(x): return c.cp + c.cp + C().cp, c.pm(x), O(1) >= O(0), O(2) > O(1), max([O(1), O(3)], key=lambda o: o.v).v
S = lambda: c.n
=== singledispatch breaks=1
import functools
@functools.singledispatch
def sd(a): return 'any'
@sd.register(list)
def _(a): return 'list'
@sd.register
def _(a: int): return 'int'
def f(x): return x + 1, sd(1), sd([]), sd('a')
=== lru_cached_method
import functools
calls = []
class C:
    def __init__(self): self.k = 3
    @functools.lru_cache(maxsize=None)
    def m(self, n): calls.append(n); return n * self.k
c = C()
def f(x): return x * c.m(2) + c.m(2)
S = lambda: calls
=== copies_of_older_slots
import copy
class P:
    __slots__ = ('a', '_P__b')
    def __init__(self): self.a = torch.ones(3); self.__b = [1]
class Q(P):
    __slots__ = ('c', 'd', 'e', '__dict__')
    def __init__(self): super().__init__(); self.c = self.d = self.e = 2; self.z = 3
p, q = P(), Q()
def f(x):
    p.a = x + 3; c = copy.copy(p); d = copy.deepcopy(q); d.a += x
    return c.a, c._P__b is p._P__b, d.a, d._P__b is q._P__b, d.c + d.z, p.__reduce_ex__(2)[2], q.__reduce_ex__(4)[2][0]
S = lambda: (p.a, q.a, q.z)
=== older_protocols_of_older_objects breaks=1
class P:
    __slots__ = 'a',
class Q:
    def __init__(self): self.a = 3
p, q, at = P(), Q(), [0]
p.a = 1
def ARGS(): return torch.ones(3), at[0] % 4
def between(): at[0] += 1
def f(x, protocol):
    r = [c.__name__ for c in q.__reduce_ex__(protocol)[:1]]
    try: r.append(len(p.__reduce_ex__(protocol)))
    except TypeError as e: r.append(str(e))
    return x + 1, r
=== cold_cache_of_tensors forced=0
import functools
def make(): return functools.lru_cache(lambda n: torch.arange(float(n)) + 1)
tables = [make()]
def between(): tables.append(make())
def f(x): return x * tables[-1](3), tables[-1](3)
S = lambda: [(t.cache_info().currsize, type(t(3)) is torch.Tensor, t(3).add(1)) for t in tables]
=== cold_cache_that_counts forced=0 entries=6
import functools
calls = []
@functools.lru_cache
def table(n): calls.append(n); return torch.ones(n)
seen = []
def f(x): seen.append(calls is None); y = x * table(3); return y, len(calls), calls[-1]
S = lambda: calls
=== cold_cached_method_of_a_changed_object breaks=1 forced=0
import functools
class C:
    def __init__(self): self.buf = torch.ones(3)
    @functools.lru_cache
    def table(self, n): return self.buf * n
def ARGS(): return torch.ones(3), C()
def f(x, c): c.buf = x * 2; return c.table(5), x.add_(1), c.table(2)
=== warm_cache_after_a_write
import functools
@functools.lru_cache
def table(n): return torch.ones(n) * 2
table(3)
def f(x): x.add_(1); return x * table(3)
=== cold_cache_after_a_write breaks=1 forced=0
import functools
t = torch.ones(3)
def make(): return functools.lru_cache(lambda n: t[:n] * 2)
tables = [make()]
def between(): tables.append(make())
def f(x): t.add_(x); return x * tables[-1](3)
S = lambda: t
=== ids_of_objects_made_here breaks=2
class C:
    def __init__(self): self.v = 1
def f(x):
    c, l, t = C(), [1], x + 1; ids = id(c), id(l), {id(t): 3}
    print(end='')
    return x + 1, id(c) == ids[0], id(l) == ids[1], ids[2][id(t)], c, l, t
=== ids_that_stay_inside
class C:
    def __init__(self): self.v = 1
def f(x):
    c, d = C(), C(); ids = {id(c): 1, id(d): 2}
    return x + 1, ids[id(d)], id(c) in ids, c, d
=== cleared_cache
import functools
scale, at = [2], [0]
def made(**options): return functools.lru_cache(**options)(lambda *a, **k: scale[0] * (sum(a) + sum(k.values())))
tables = made(), made(maxsize=None), made(typed=True), made(maxsize=1), made(maxsize=0)
def between():
    at[0] += 1
    if at[0] == 1: tables[3](7)
    if at[0] == 2:
        scale[0] = 5
        for t in tables: t.cache_clear()
def f(x): return [(x * t(3), t(2.5) + t(1, k=2) + t(k=3, j=1.5) + t()) for t in tables]
=== warm_cache_that_others_use entries=1
import functools
@functools.lru_cache
def table(n): return torch.ones(3) * n
at = [0]
def between(): at[0] += 1; table(at[0])
def f(x): return x * table(9)
=== cache_asked_with_other_objects
import functools
class C:
    def __init__(self, k): self.k = k
objects = [C(2), C(5), C(2)]
@functools.lru_cache
def m(pair): return pair[0].k, pair
at = [0]
def ARGS(): return torch.ones(3), objects[at[0] % 3]
def between(): at[0] += 1
def f(x, o): k, pair = m((o, 1)); return x * k, pair[0] is o
=== numpy_scalars_inputs
import numpy as np
def ARGS(): return torch.ones(3), np.float32(2.5), np.int64(3), np.bool_(True)
def f(x, a, b, c): return x * float(a) + int(b), bool(c)
=== numpy_scalar_mul breaks=1
import numpy as np
def ARGS(): return torch.ones(3), np.float32(2.5), np.int64(3)
def f(x, a, b): return x * a + b, a + 1
=== numpy_array_input breaks=1
import numpy as np
def ARGS(): return torch.ones(3), np.arange(3.0)
def f(x, a): return x + torch.from_numpy(a) + torch.tensor(a.sum()), a.shape, a.dtype
=== numpy_compute breaks=1
import numpy as np
def f(x): a = x.numpy() * 2; return torch.from_numpy(np.sin(a)) + 1, a.sum(), torch.as_tensor(a) + torch.tensor(a)
=== nested_functions_state
def mk():
    n = 0; l = []
    def inc(x):
        nonlocal n
        n += 1; l.append(n); return x * n
    return inc, lambda: (n, l)
inc, get = mk()
def f(x): return inc(x) + inc(x)
S = lambda: get()
=== closure_returned
def f(x):
    n = 1
    def g(y):
        nonlocal n
        n += 1; return x * n + y
    g(x); return g, lambda: n
h = f
def f(x): g, get = h(x); return g(x), get()
=== property_on_tensor_holder
class Box:
    def __init__(self, w): self._w = w
    @property
    def w(self): return self._w.t()
    @w.setter
    def w(self, v): self._w = v.t()
b = Box(torch.ones(2, 3))
def f(x): b.w = b.w * 2; return b.w @ torch.ones(2) + x
S = lambda: b._w
=== object_graph_cycle
class N:
    def __init__(self, v): self.v = v; self.next = None; self.prev = None
a = N(torch.ones(3)); b = N(torch.zeros(3)); a.next = b; b.prev = a
def f(x):
    n = N(x); n.next = a; n.prev = b; b.next = n; a.v = a.v + 1; r = x
    for _ in range(3): r = r + n.v; n = n.next or N(x)
    return r
S = lambda: (a.v, b.next.v, b.next.next is a)
def between(): b.next = None
=== user_defined_len_bool_order
class C:
    def __len__(self): return 0
class D:
    def __bool__(self): return False
    def __len__(self): return 3
class E(list): pass
def f(x): return x + (1 if C() else 2) + (10 if D() else 20), bool(E()), not C(), C() or 5, D() and 6, any([C(), D()])
=== object_methods_direct
class C:
    def __init__(self): self.a = 1
c = C()
def f(x):
    object.__setattr__(c, 'a', c.a + 1); v = object.__getattribute__(c, 'a'); C.__setattr__(c, 'b', x); object.__delattr__(c, 'b'); n = object.__new__(C); C.__init__(n); c.__setattr__('z', v)
    return x * v + n.a, c.__getattribute__('z'), c.__eq__(c), c.__ne__(n), c.__hash__() == hash(c), C.__call__ is not None, c.__sizeof__() > 0, 'a' in c.__dir__()
S = lambda: vars(c)
=== string_repr_of_older
class C:
    def __init__(self): self.n = 1
    def __repr__(self): return f'C({self.n})'
c = C(); L = [1, 'a']; D = {'k': (1, None)}
def f(x): c.n += 1; return x + 1, str(c), f'{L} {D} {c!r}', repr([c]), '{0.n} {1[k]}'.format(c, D), '%r' % (L,), str(C.__name__), f'{x.shape}'
S = lambda: c.n
=== exec_like_getattr_strings
class C:
    def op_add(self, x): return x + 1
    def op_mul(self, x): return x * 2
c = C()
def f(x):
    for n in ('add', 'mul'): x = getattr(c, f'op_{n}')(x)
    return x, getattr(torch, 'sin')(x), getattr(x, 'cos')(), getattr(torch.nn.functional, 'relu')(x)
=== user_function_in_dict
T = {'a': lambda x: x + 1, 'b': torch.sin, 'c': torch.nn.ReLU(), 'd': str.upper, 'e': [].__len__}
def f(x): return T['c'](T['b'](T['a'](x))), T['d']('q'), T['e']()
=== class_made_inside_and_returned
def f(x):
    class A:
        "doc"
        k = 2
        def __init__(self, v): self.v = v
        def m(self): return self.v * self.k
        @property
        def p(self): return self.m() + 1
        @staticmethod
        def s(x): return x * 2
        @classmethod
        def c(cls, x): return cls(x)
    class B(A):
        __slots__ = ('w',)
        def __init__(self, v): super().__init__(v); self.w = v - 1
    b = B(x); a = A.c(x + 1)
    return a, b, A, B, b.p, B.s(x), type(a) is A
=== class_made_inside_works_afterwards
class G:
    def __init__(self, make): self.a, self.cls = make()
    def again(self): return self.cls(3).m(), self.a.m(), type(self.a) is self.cls, isinstance(self.cls(1), self.cls.__bases__[0])
def f(x):
    class Base:
        def m(self): return 10
    class A(Base):
        def __init__(self, v): self.v = v
        def m(self): return super().m() + self.v
    out.append((A(x), A)); return x + 1
out = []
def between():
    a, cls = out[-1]; out.append((cls(3).m(), a.m(), type(a) is cls, cls.__mro__[1].__name__)); del out[-2]
S = lambda: out
=== class_made_inside_over_c_types
def f(x):
    class E(ValueError): pass
    class L(list): tag = 'x'
    class T(tuple): pass
    class I(int): pass
    l = L([x + 1]); l.z = x; t = T((x, 2)); t.q = x * 2
    return E('a', 1).args, l, t, I(3) + 1, t.q, l.tag
=== class_made_inside_across_a_break breaks=1
def f(x):
    class A:
        def __init__(self, v): self.v = v
        def m(self): return self.v + 1
    a = A(x * 2); print('break'); return a.m(), isinstance(a, A), a
=== tuple_subclass_with_attributes
class T(tuple): pass
class P(tuple):
    def __new__(cls, a, b): t = super().__new__(cls, (a, b)); t.sum = a + b; return t
def f(x):
    t = T([x, 1]); t.a = x + 1; t.me = [t]; p = P(x, x); return t.a, t.me[0] is t, p.sum, p, [t]
=== namedtuple_made_inside
import collections
def f(x):
    N = collections.namedtuple('N', 'a b', defaults=(x + 1,)); n = N(x); m = n._replace(a=2)
    return n, m, N._fields, n.b + m.b, N._make([1, 2]), N.__module__, callable(N._make)
=== namedtuple_made_inside_works_afterwards
import collections
out = []
def f(x): out.append(collections.namedtuple('N', ['a', 'b'])(x, 1)); return x + 1
def between(): n = out.pop(); out.append((n._asdict(), n._replace(b=2)[1], repr(type(n)), n.a is n[0]))
S = lambda: out
=== wraps_of_cached_function
import functools
@functools.lru_cache
def g(x: int) -> int:
    "doc"
    return x * 2
def deco(fn):
    @functools.wraps(fn)
    def inner(*a, **k): return fn(*a, **k)
    return inner
def f(x): h = deco(g); return h(x) + h(3), h.__name__, h.__doc__, h.__annotations__, h.__wrapped__ is g
=== exception_frames_cleared forced=0
import traceback
def g(x, kind): y = x + 1; raise kind('no')
def f(x):
    try: g(x, KeyError)
    except KeyError as e:
        tb = e.__traceback__; traceback.clear_frames(tb); names = []
        while tb is not None: names.append(tb.tb_frame.f_code.co_name); tb = tb.tb_next
    return x * 2, names
=== instances_made_by_c_code
class A:
    def __init__(self, v): self.v = v
class B(A): __slots__ = ('w',)
def f(x): l = list(map(A, [x, x + 1])); b = next(map(B, [x * 2])); b.w = 1; return l, l[0].v + 1, b, [a.v for a in map(A, [x])]
=== deepcopy_of_older_modules
import copy
nn = torch.nn
torch.manual_seed(0)
m = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ModuleDict({'a': nn.ReLU()})['a']); m.cfg = {'a': [1, torch.ones(2)]}
def ARGS(): return torch.randn(4, 3),
def f(x):
    c = copy.deepcopy(m); c[0].bias.requires_grad; d = copy.deepcopy(c)
    return c(x), c.cfg['a'][1] is m.cfg['a'][1], c.cfg, d[0].weight is c[0].weight, sorted(c.state_dict()), c[0].weight.requires_grad, copy.copy(m)(x)
S = lambda: [b.clone() for b in m.buffers()]
=== keys_of_classes_that_compare breaks=3
def f(x):
    class Key:
        def __hash__(self): return hash('m')
        def __eq__(self, other): C.__bases__ = (Two,); return False
    class One: m = 'one'; k = 1
    class Two: m = 'two'; k = 2
    C = type('C', (One,), {Key(): 5})
    return x * C.k, C.m, C.k
=== deepcopy_asks_for_the_state
import copy
class A:
    def __init__(self): self.n = 0; self.t = torch.ones(2); self.s = {1, 2}
    def __getstate__(self): self.n += 1; d = dict(self.__dict__); d.pop('s'); return d
    def __setstate__(self, d): self.__dict__.update(d); self.back = True
a = A()
def f(x): b = copy.deepcopy(a); c = copy.copy(a); b.t = b.t + x[:2]; return b, c, b.n + c.n, hasattr(b, 's'), copy.deepcopy({1, 2}), c.t is a.t
S = lambda: vars(a)
=== metaclass_orders_bases breaks=1
log = []
class M(type):
    def mro(cls): log.append((cls.__mro__ is None, cls.__name__, hasattr(super(cls, cls), 'zz'))); return type.mro(cls)
def f(x):
    class A(metaclass=M): k = 2
    return x * A.k, A.__mro__ == (A, object)
S = lambda: log
=== subclasses_of_a_class_made_here
def f(x):
    class A: k = 2
    none = A.__subclasses__()
    class B(A): pass
    one = A.__subclasses__() == [B]
    return x * B.k, none, one
=== limit_of_digits
import sys
def f(x):
    was = sys.get_int_max_str_digits(); sys.set_int_max_str_digits(640)
    try: n = len(str(10 ** 700))
    except ValueError: n = -1
    sys.set_int_max_str_digits(0); m = len(str(10 ** 700)); sys.set_int_max_str_digits(was + 1)
    return x * n, n, m, was
S = lambda: (sys.get_int_max_str_digits(), sys.set_int_max_str_digits(4300))
""")


def test_classes_made_by_a_recording_are_not_listed():
    class Base:
        pass

    def f(x):
        class A(Base):
            k = 2

        return x * A.k, A

    gc.collect()
    gc.disable()
    try:
        c = magneto.compile(f)
        made = [c(torch.ones(2))[1] for _ in range(3)]
        assert Base.__subclasses__() == made
    finally:
        gc.enable()


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
