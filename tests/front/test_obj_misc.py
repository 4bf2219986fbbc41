"""Objects and side effects, second part: hooks, parametrizations, gradients, the standard library, exceptions half way."""

import pytest

import obj_harness

PROGRAMS = obj_harness.parse(r"""
=== hook_kwargs
m = torch.nn.Linear(3, 3); log = []
class K(torch.nn.Module):
    def forward(self, x, s=1.0): return x * s
k = K()
def pre(mod, args, kw): log.append('pre'); return args, {**kw, 's': kw.get('s', 1.0) * 2}
def post(mod, args, kw, out): log.append(sorted(kw)); return out + kw['s']
k.register_forward_pre_hook(pre, with_kwargs=True); k.register_forward_hook(post, with_kwargs=True)
k.register_forward_pre_hook(lambda mod, a: (a[0] + 1,), prepend=True)
def f(x): return k(x, s=3.0), k(x)
S = lambda: log
=== deprecated_functions
from typing_extensions import deprecated
@deprecated('use g', category=FutureWarning)
def old(x): return x.sin()
@deprecated('use D')
class C:
    def __init__(self, n): self.n = n
def f(x): return old(x) + C(2).n
=== hook_removed_inside
m = torch.nn.ReLU(); log = []
def h(mod, a, o): log.append(1); hd.remove(); return o * 2
hd = m.register_forward_hook(h)
def f(x): return m(x) + m(x)
S = lambda: (log, len(m._forward_hooks))
=== hook_registered_inside
m = torch.nn.ReLU(); log = []
def f(x):
    hd = m.register_forward_hook(lambda mod, a, o: o + 1); y = m(x); hd.remove(); return y + m(x)
S = lambda: len(m._forward_hooks)
=== hook_counts
m = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU()); acts = {}; n = [0]
def mk(name):
    def h(mod, a, o): acts[name] = o.detach(); n[0] += 1
    return h
for k, c in m.named_children(): c.register_forward_hook(mk(k))
def f(x): return m(x).detach()
S = lambda: (list(acts), n, [a.shape for a in acts.values()])
=== backward_hooks breaks=1
m = torch.nn.Linear(3, 2); log = []
m.register_full_backward_hook(lambda mod, gi, go: log.append(go[0].sum().item()))
def f(x): y = m(x); y.sum().backward(); return y.detach(), log[-1]
=== tensor_hook_inside breaks=1
log = []
def f(x):
    y = x.clone().requires_grad_(); y.register_hook(lambda g: g * 2); z = (y * 3).sum(); z.backward(); return y.grad
=== tensor_hook_before_break breaks=1
def f(x):
    y = x.clone().requires_grad_(); y.register_hook(lambda g: g * 2); print('a'); z = (y * 3).sum(); print('b'); z.backward(); return y.grad
=== tensor_hook_on_argument breaks=1
def ARGS(): return torch.ones(3, requires_grad=True),
def f(y): y.register_hook(lambda g: g * 2); y.register_hook(lambda g: g + 1); (y * 3).sum().backward(); return y.grad, len(y._backward_hooks)
=== accumulate_hook_on_argument breaks=1
log = []
def ARGS(): return torch.ones(3, requires_grad=True),
def f(y): y.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.sum().item())); (y * 3).sum().backward(); return y.grad
S = lambda: log
=== freeze_in_forward breaks=1
m = torch.nn.Linear(3, 3)
def f(x):
    for p in m.parameters(): p.requires_grad_(False)
    return m(x), [p.requires_grad for p in m.parameters()]
def between(): m.requires_grad_(True)
S = lambda: [p.requires_grad for p in m.parameters()]
=== parametrize
import torch.nn.utils.parametrize as P
class Sym(torch.nn.Module):
    def forward(self, X): return X.triu() + X.triu(1).t()
m = torch.nn.Linear(3, 3); P.register_parametrization(m, 'weight', Sym())
def f(x): return m(x).detach(), P.is_parametrized(m), m.weight.shape
=== parametrize_cached
import torch.nn.utils.parametrize as P
class D(torch.nn.Module):
    def forward(self, X): return X * 2
m = torch.nn.Linear(3, 3); P.register_parametrization(m, 'weight', D())
def f(x):
    with P.cached(): return (m(x) + m(x)).detach()
=== spectral_norm
m = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 3))
def f(x): return m(x).detach()
S = lambda: [b for b in m.buffers()]
=== orthogonal breaks=1
m = torch.nn.utils.parametrizations.orthogonal(torch.nn.Linear(3, 3))
def f(x): return m(x).detach()
=== grad_assign
p = torch.nn.Parameter(torch.ones(3))
def f(x): p.grad = x * 2; y = p.grad + 1; return y, p.grad is not None
S = lambda: p.grad
=== grad_of_leaf_made_here breaks=1
L = []
def f(x):
    w = torch.ones(3, requires_grad=True); m = torch.nn.Linear(3, 1, bias=False); ((w * x).sum() + m(x).sum()).backward(); L.append(w)
    print('a'); return w.grad, m.weight.grad
S = lambda: [w.grad for w in L]
=== grad_of_returned_leaf
L = []
def f(x): w = torch.ones(3, requires_grad=True); (w * x).sum().backward(); L.append(w); v = torch.ones(3, requires_grad=True); v.grad = x * 2; return w, v
S = lambda: [w.grad for w in L]
=== grad_clear
p = torch.nn.Parameter(torch.ones(3)); p.grad = torch.ones(3)
def f(x): a = p.grad * x; p.grad = None; return a, p.grad is None
def between(): p.grad = torch.full((3,), 2.)
S = lambda: p.grad
=== grad_inplace
p = torch.nn.Parameter(torch.ones(3)); p.grad = torch.ones(3)
def f(x): p.grad.add_(x); p.grad.zero_() if x.shape[0] == 5 else p.grad.mul_(2); return p.grad + 1
S = lambda: p.grad
=== data_assign breaks=1
p = torch.nn.Parameter(torch.ones(3))
def f(x): p.data = p.data + x; return (p * 2).detach()
S = lambda: p
=== data_inplace
p = torch.nn.Parameter(torch.ones(3))
def f(x): p.data.add_(x); p.data[0] = 7; p.detach().mul_(2); return (p * 2).detach()
S = lambda: p
=== no_grad_param_update
p = torch.nn.Parameter(torch.ones(3))
def f(x):
    with torch.no_grad(): p.add_(x); p[1] = 4; p.copy_(p * 2)
    return p.detach() + 0
S = lambda: p
=== requires_grad_outer breaks=1
p = torch.ones(3)
def f(x): p.requires_grad_(True); y = p * x; p.requires_grad_(False); return y.detach()
S = lambda: p.requires_grad
=== set_grad_enabled_left
def f(x): y = x * 2; torch.set_grad_enabled(False); return y
S = lambda: torch.is_grad_enabled()
=== set_grad_roundtrip
def f(x):
    p = torch.is_grad_enabled(); torch.set_grad_enabled(False); a = x * 2; torch.set_grad_enabled(p); return a, torch.is_grad_enabled()
=== exception_half
L = []; D = {}; T = torch.zeros(3)
def f(x): L.append(1); D['a'] = x; T.add_(x); raise ValueError('half %d' % len(L))
S = lambda: (L, D, T)
=== exception_half_module
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.n = 0; self.register_buffer('b', torch.zeros(3))
    def forward(self, x):
        self.n += 1; self.b.add_(x)
        if self.n == 2: raise KeyError('two')
        return x * self.n
m = M()
def f(x): return m(x)
S = lambda: (m.n, m.b)
=== exception_in_callee_caught
L = []
def g(x, k):
    L.append(k)
    if k == 1: raise RuntimeError('k')
    return x * k
def f(x):
    r = []
    for k in range(3):
        try: r.append(g(x, k))
        except RuntimeError as e: r.append(str(e)); L.append('c')
        finally: L.append('f')
    return r
S = lambda: L
=== random_choice_seeded breaks=1
import random
R = random.Random(3)
def f(x): return x * R.random() + R.choice([1, 2, 3])
S = lambda: R.random()
=== json_pickle breaks=1
import json, pickle
def f(x): s = json.dumps({'a': [1, 2]}); d = json.loads(s); q = pickle.loads(pickle.dumps({'k': (1, 2)})); return x * d['a'][1] + q['k'][0], s
=== struct_bytes
import struct, binascii, base64, hashlib
def f(x): b = struct.pack('<if', 3, 1.5); u = struct.unpack('<if', b); return x * u[0] + u[1], b.hex(), len(b)
=== re_use
import re
P = re.compile(r'(\d+)-(\w+)')
def f(x):
    m = P.match('12-ab'); n = re.sub(r'\d', '#', 'a1b2'); s = re.split(',', 'a,b'); g = [t.group(2) for t in P.finditer('1-a 2-b')]
    return x * int(m.group(1)), m.groups(), n, s, g, m.span(), bool(P.search('zz'))
=== string_format
def f(x): a = 3; s = f'{a:>5}|{x.shape}|{a!r:^7}|{1.5:.3f}' + '%s %d %5.2f' % ('q', 4, 2.5) + '{:,}'.format(12345) + ' '.join(map(str, [1, 2])) + 'abc'.translate({97: 'z'}); return x * len(s), s, s.partition('|'), 'aXb'.swapcase(), 'a\nb'.splitlines(), 'x'.zfill(4), s.encode()[:3]
=== vars_locals breaks=1
def f(x): a = 1; b = 2; d = dict(locals()); return x * d['a'] + len(d), sorted(d)
=== eval_exec breaks=1
def f(x): return x * eval('1 + 2'), eval('y', {'y': 4})
=== itertools_deep
import itertools as I
def f(x):
    g = I.groupby([1, 1, 2, 3, 3], key=lambda v: v % 2); r = [(k, list(v)) for k, v in g]; a, b = I.tee([1, 2, 3]); next(a)
    return x * len(r), r, list(zip(a, b)), list(I.accumulate([1, 2, 3], lambda p, q: p * q, initial=2)), list(I.starmap(pow, [(2, 3)])), list(I.islice(I.count(2, 3), 3)), list(I.zip_longest([1], [2, 3], fillvalue=0)), list(I.pairwise([1, 2, 3])), list(I.compress('abc', [1, 0, 1])), list(I.dropwhile(lambda v: v < 2, [1, 2, 1])), list(I.product([1, 2], repeat=2)), list(I.permutations([1, 2])), list(I.combinations_with_replacement('ab', 2)), list(I.chain.from_iterable([[1], [2]])), list(I.filterfalse(None, [0, 1])), list(I.repeat(x, 2)), list(I.takewhile(lambda v: v < 3, I.count()))
=== math_all
import math
def f(x): return x * math.sqrt(4) + math.pi, math.floor(2.7), math.gcd(12, 8), math.prod([1, 2, 3]), math.isclose(0.1 + 0.2, 0.3), math.comb(5, 2), math.hypot(3, 4), math.copysign(1, -2), math.log2(8), math.inf > 1, math.fsum([.1] * 10), math.trunc(-2.5), math.isqrt(17), math.frexp(8.0), math.modf(2.5), math.dist([0, 0], [3, 4])
=== copy_inside
import copy
class C:
    def __init__(self, v): self.v = v; self.l = [v]
    def __copy__(self): n = C(self.v); n.tag = 'copied'; return n
    def __deepcopy__(self, memo): n = C(copy.deepcopy(self.v, memo)); n.tag = 'deep'; return n
c = C(1)
def f(x): a = copy.copy(c); b = copy.deepcopy(c); d = copy.deepcopy([x, {'k': (x, [1])}]); e = C(x); g = copy.copy(e); return a.tag, b.tag, d[0] + 1, d[0] is d[1]['k'][0], g.v is x, a.v
=== deepcopy_module breaks=1
import copy
m = torch.nn.Linear(3, 3)
def f(x): n = copy.deepcopy(m); n.weight.data.zero_(); return n(x).detach(), m(x).detach()
=== singledispatch
import functools
@functools.singledispatch
def g(v): return 'obj'
@g.register
def _(v: int): return 'int'
@g.register(list)
def _(v): return 'list' + str(len(v))
g(1), g([]), g('s')
def f(x): return x * 2, g(3), g([1, 2]), g('q')
=== totalordering
import functools
@functools.total_ordering
class V:
    def __init__(self, n): self.n = n
    def __eq__(self, o): return self.n == o.n
    def __lt__(self, o): return self.n < o.n
    __hash__ = None
def f(x): a, b = V(1), V(2); return x + (a <= b) + (a >= b) + (a != b), max(a, b).n, sorted([b, a])[0].n
=== protocol_abc
import typing, abc, collections.abc as ca
@typing.runtime_checkable
class Has(typing.Protocol):
    def go(self): ...
class A:
    def go(self): return 1
class Q(ca.Sequence):
    def __init__(self, v): self.v = v
    def __len__(self): return len(self.v)
    def __getitem__(self, i): return self.v[i]
def f(x): q = Q([x, x + 1]); return x * isinstance(A(), Has) + isinstance(3, Has), list(reversed(q))[0], q.index(q[0]) if False else len(q), isinstance(q, ca.Iterable), issubclass(Q, ca.Sized), [t + 1 for t in q]
=== init_subclass
R = []
class B:
    def __init_subclass__(cls, tag=None, **kw): super().__init_subclass__(**kw); cls.tag = tag; R.append(tag)
def f(x):
    class C(B, tag='t'):
        def go(self): return x * 2
    return C().go(), C.tag, len(R)
S = lambda: R
=== flags_enum
import enum
class F(enum.Flag): A = enum.auto(); B = enum.auto(); AB = A | B
class I(enum.IntEnum): X = 1; Y = 2
class St(str, enum.Enum): P = 'p'
def f(x): v = F.A | F.B; return x * I.Y + I.X, v is F.AB, F.A in v, v & ~F.A, I(2).name, St.P == 'p', St('p') is St.P, [e.name for e in I], F['A'].value, I.X < I.Y, {I.X: 1}[1], St.P.upper()
=== time_in_break breaks=1
import datetime
def f(x): t = datetime.datetime.now(); return x + 1, isinstance(t, datetime.datetime), datetime.timedelta(seconds=3).total_seconds()
=== parameter_dict_changes
pd = torch.nn.ParameterDict({'a': torch.nn.Parameter(torch.ones(3))}); pl = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(3))]); md = torch.nn.ModuleDict({'r': torch.nn.ReLU()}); sq = torch.nn.Sequential(torch.nn.ReLU()); ml = torch.nn.ModuleList([torch.nn.ReLU()])
def f(x):
    for v in pd.values(): x = x + v
    for k, v in pd.items(): x = x * v
    return (md['r'](sq(x)) + pl[0] + sum(p.sum() for p in pl)).detach(), 'a' in pd, len(ml), list(pd), 'r' in md, len(md), list(md), pd.get('zz'), ml[0] is ml[-1], [type(q).__name__ for q in sq], next(iter(pl)) is pl[0]
def between(): pl.append(torch.nn.Parameter(torch.ones(3))); pd['b'] = torch.nn.Parameter(torch.ones(3)); sq.append(torch.nn.Tanh()); ml.insert(0, torch.nn.Tanh())
=== buffer_swap
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.register_buffer('b', torch.zeros(3)); self.steps = 0
    def forward(self, x):
        self.b = self.b * 0.9 + x * 0.1; self.steps = self.steps + 1
        if self.training: self.b.clamp_(max=5)
        return x - self.b
m = M()
def f(x): return m(x)
def between(): m.train(not m.training)
S = lambda: (m.b, m.steps, 'b' in m._buffers)
=== out_args
o = torch.zeros(3)
def f(x): torch.add(x, 1, out=o); y = o * 2; torch.mul(x, 2, out=o); return y
S = lambda: o
=== view_chain_writes
T = torch.zeros(2, 3)
def f(x): v = T[0]; w = T.t()[1]; v += x; w.mul_(3); T[:, 2].fill_(8); T.select(0, 1).copy_(x); v[0:1] += 5; return T.sum() + v.sum() + w.sum(), v
S = lambda: T
=== setitem_masks
def f(x): y = x.clone(); y[y > 1] = 0; y[torch.tensor([0])] = 4; y[..., -1:] -= 2; y[None, 1] = 3; return y
=== subclass_getattr_module
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.lin = torch.nn.Linear(3, 3)
    def __getattr__(self, n):
        try: return super().__getattr__(n)
        except AttributeError: return getattr(self.lin, n)
m = M()
def f(x): return m.lin(x).detach() * m.in_features, m.weight.shape, hasattr(m, 'nope')
=== type_tricks breaks=1
def f(x): return x * (type(x) is torch.Tensor) + (x.__class__ is torch.Tensor), isinstance(x, (int, torch.Tensor)), type(3)(4.5), type('D', (dict,), {})(a=1), issubclass(bool, int), callable(f), type(x).__name__, x.__class__.__mro__[-1] is object
=== threading_local_attributes
import threading
L = threading.local(); L.v = 2
class K(threading.local):
    z = 5
    @property
    def two(self): return self.q * 2
    def __getattr__(self, n): return n
l = K(); l.q = 4
def f(x):
    if hasattr(L, 'gone'): del L.gone
    else: L.gone = x
    return x * L.v + l.two + l.z, l.nope, sorted(L.__dict__), getattr(L, 'no', 1)
S = lambda: (L.v, hasattr(L, 'gone'), l.q)
=== threading_local_with_init breaks=1
import threading
class K(threading.local):
    def __init__(self): self.v = 2
L = K()
def f(x): L.v += 1; return x * L.v
S = lambda: L.v
=== numbers_that_change_in_dicts_of_many_kinds
class L(list): pass
class D(dict): pass
class C: b = 0
l = L([1]); l.k = 0; d = D(a=1); d.k = 0; big = {i: i for i in range(600)}
def kd(x, *, k=0): return x * k
def f(x): return x * l.k, x * d.k, x * big[5], x * C.__dict__['b'], x * vars(C).get('b'), kd(x)
def between(): l.k += 1; d.k += 2; C.b += 3; big[5] += 1000; kd.__kwdefaults__['k'] += 4
=== class_dict_read
import typing
class C:
    a: int
    b = 3
def f(x): return x * len(typing.get_type_hints(C, include_extras=True)), len(vars(C)), sorted(C.__dict__), dict(vars(C))['b'], list(vars(C))[-1], 'b' in set(C.__dict__)
def between(): C.b += 1
=== one_key_of_a_huge_dict
import sys
D = {f'k{i}': i for i in range(6000)}
def f(x): return x * D.get('k7'), D.get('new'), D.get('nothing', 5), D.__contains__('k9'), D.__getitem__('k8'), 'k5' in D, D['k6'], dict.get(D, 'k1'), sys.modules.get('torch') is torch
def between(): D['k7'] += 1; D['new'] = D.get('new', 0) + 2
=== threading_local
import threading
L = threading.local(); L.v = 2
def f(x): L.v = getattr(L, 'v', 0) + 1; return x * L.v
S = lambda: L.v
=== lock_use breaks=1
import threading
K = threading.Lock(); n = [0]
def f(x):
    with K: n[0] += 1; y = x + n[0]
    return y, K.locked()
S = lambda: n
=== tensor_subclass_attr breaks=1
class T(torch.Tensor): pass
def f(x): x = x.as_subclass(T); y = x * 2; return type(y).__name__, x.shape
=== warn_once breaks=1
import warnings
seen = []
def f(x):
    if not seen: seen.append(1); warnings.warn('first')
    return x + 1
=== older_iter_map
L = [1, 2, 3]
def f(x): it = iter(L); a = next(it); L.append(a); return x * sum(it) + len(L)
S = lambda: L
=== nested_defaults
def g(x, l=[], *, d={}): l.append(len(l)); d[len(d)] = x; return x * len(l) + len(d)
def f(x): return g(x) + g(x)
S = lambda: (g.__defaults__[0], sorted(g.__kwdefaults__['d']))
=== cached_prop
import functools
class C:
    n = 0
    @functools.cached_property
    def w(self): C.n += 1; return torch.ones(3) * 2
c = C()
def f(x): return x * c.w + c.w, C.n
S = lambda: (C.n, 'w' in vars(c))
=== grad_fn_attr
def f(x): y = x.clone().requires_grad_(); z = y * 2; return z.grad_fn is not None, z.is_leaf, y.is_leaf, z.detach()
=== numbers_from_special_methods breaks=1
import operator, random
class N:
    def __init__(self, n): self.n = n
    def __hash__(self): return self.n
    def __index__(self): return self.n
    def __int__(self): return self.n
    def __float__(self): return self.n * 1.0
class R:
    def __hash__(self): return random.randrange(10)
calls = [0]
def f(x):
    calls[0] += 1; o = N(calls[0])
    try: n = len({o, N(40)}), {o: 1}[o], [7, 8, 9, 10, 11, 12, 13, 14][o], int(o), float(o), list(range(o)), hex(o), operator.index(o)
    except TypeError as e: n = str(e)
    try: k = {R(): 1}.popitem()[1]
    except TypeError as e: k = str(e)
    return x + 1, n, k
=== class_of_a_module_object breaks=1
import types
def f(x):
    log = []
    class S(types.ModuleType): a = 1
    class M(types.ModuleType):
        def __getattribute__(self, name): log.append(name); return types.ModuleType.__getattribute__(self, name)
        def __setattr__(self, name, v): log.append(('set', name)); types.ModuleType.__setattr__(self, name, v)
    m = types.ModuleType('m'); m.__class__ = S
    k = M('k'); k.foo = 12
    return x + m.a, hasattr(m, 'a'), type(m) is S, k.foo, log
=== death_of_objects_made_by_new breaks=1
class C:
    count = 0
    def __new__(cls): cls.count += 1; return object.__new__(cls)
    def __del__(self): self.__class__.count -= 1
def f(x):
    a = C.count; c = C(); a = a, C.count; del c
    l = [C(), C()]; a = a, C.count; del l
    return x + 1, a, C.count
=== classes_written_while_they_are_made
import enum
class Named:
    def __init__(self, n): self.n = n
    def __set_name__(self, owner, name): owner.total = getattr(owner, 'total', 0) + self.n
class Base:
    def __init_subclass__(cls): cls.seen = cls.__name__
def f(x):
    class F(enum.Flag): A = 1; B = 2
    class I(enum.IntFlag): A = enum.auto(); B = enum.auto()
    class T(Base): a = Named(3); b = Named(4)
    both = F.A | F.B
    return x + T.total, both.value, F.A in both, int(I.A | I.B), F._flag_mask_, len(F.__members__), F(1).name, T.seen
=== weak_proxies breaks=1
import weakref
class L: pass
class O:
    def __init__(self):
        self.held = L(); self.r = r = weakref.proxy(self.held); r.prev = r.next = r
o = O()
def f(x):
    d = O(); d.r.val = x + 1
    o.r.val = x + 1; y = o.r.val + 1; o.held.val = 3; y = y + o.r.val
    return d.held.val, d.held.prev is d.r, hasattr(d.r, 'zz'), y, hasattr(o.r, 'q')
=== weak_proxies_of_older_objects graphs=1
import weakref
class T:
    n = 2
    def __init__(self): self.x = torch.ones(3); self.log = []
    def scale(self, k): self.log.append(k); self.seen = k; return self.x * k
t = T(); p = weakref.proxy(t)
def f(x): return p.x + p.scale(3) * p.n + x, hasattr(p, 'seen'), t.seen
def between(): t.x = t.x + 1; T.n += 1
S = lambda: (t.log, t.seen)
=== chained_compare_objects
class C:
    def __init__(self, v): self.v = v
    def __lt__(self, o): return C(self.v + 1)
    def __bool__(self): return self.v > 0
    def __radd__(self, o): return o * 2
    def __matmul__(self, o): return 'mm'
    def __contains__(self, k): return k == 3
    def __index__(self): return 1
def f(x): a = C(1); return x + (1 if (a < a < a) else 0), x[C(1)], 3 in a, a @ a, 5 + a, [7, 8][a], hex(a)
=== abstract_classes_know_classes_made_here breaks=2
import collections.abc as c
class Base:
    pass
def f(x):
    class A(Base): pass
    y = x + (c.MutableSequence.register(A) is A)
    print(end='')
    return y * 2, issubclass(A, c.Sequence), isinstance(A(), c.Sized), issubclass(A, c.Mapping)
=== named_tuples_of_c breaks=1
import os, time
def f(x):
    size, when = os.terminal_size((3, 4)), time.struct_time((2005, 3, 2, 0, 0, 0, 2, 61, -1, 'zone', 60))
    best = x.max(0)
    print(end='')
    return x * size.lines + when.tm_year, size, when, when.tm_zone, when.tm_gmtoff, best.values * 2, tuple(best)
=== operations_on_a_weak_proxy_are_those_of_its_object graphs=1
import weakref
class C:
    def __init__(self): self.n = 4; self.l = [1, 2]
    def __len__(self): return self.n
    def __iter__(self): return iter(self.l)
    def __add__(self, o): return self.n + o
    def __eq__(self, o): return self.n == o
    def __bool__(self): return self.n > 4
    def __contains__(self, i): return i in self.l
    def twice(self): return self.n * 2
O = C(); P = weakref.proxy(O)
def between(): O.n += 1; O.l.append(O.n)
def f(x): return x * len(P) + P.n, P.twice(), P + 1, P == 5, bool(P), list(P), 5 in P, isinstance(P, C)
=== weak_proxies_of_containers graphs=1
import weakref
class L(list): pass
class D(dict): pass
class S(set): pass
l, d, s = L([1, 2]), D(a=1), S([1]); PL, PD, PS = map(weakref.proxy, (l, d, s))
def between(): l.append(3); d['b'] = 2; d['a'] += 1; s.add(3)
def S(): return list(l), dict(d), sorted(s)
def f(x): PL.append(7); PD['c'] = len(PD); PS.add(8); return x * len(PL) + PL[1], len(PD) + PD['a'], len(PS), 3 in PS
=== weak_proxies_made_inside graphs=1
import weakref
class C:
    def __init__(self): self.n = 4; self.l = [1, 2]
    def __len__(self): return self.n
O = C()
def between(): O.n += 1; O.l.append(O.n)
def S(): return vars(O)
def f(x):
    y = x + 1
    P = weakref.proxy(O)
    P.m = P.n + 1; P.gone = y; del P.gone; P.l.append(P.m)
    return y * P.n, len(P), len(P.l), hasattr(P, 'gone'), P.__class__ is C, weakref.proxy(O) is P
=== a_weak_proxy_of_what_went_out_of_use breaks=1
import weakref
class C: n = 2
def f(x):
    y, c = x + 1, C()
    p = weakref.proxy(c)
    a = p.n
    del c
    try: return y * p.n
    except ReferenceError: return y * 5 + a
=== tables_of_characters_and_codings_of_bytes graphs=1
import base64, binascii, unicodedata
T, B = 'e' + chr(0x301), b'abc'
def f(x):
    y = x + 1
    t = unicodedata.normalize('NFC', T), unicodedata.category('a'), unicodedata.name('a'), unicodedata.numeric('5')
    b = base64.b64encode(B), binascii.hexlify(B), binascii.crc32(B)
    return y * len(t[0]), t, b
=== an_error_of_a_table_of_characters graphs=1
import unicodedata
def f(x):
    y = x + 1
    try: unicodedata.lookup('no such name')
    except KeyError as e: return y * 2, str(e)
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
