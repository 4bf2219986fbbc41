"""Containers: built while recording, or older than the call and read or changed by it."""

import pytest

import obj_harness

PROGRAMS = obj_harness.parse(r"""
=== list_methods
def f(x):
    l = [x, 1, x * 2]
    l.insert(1, 'a'); l.extend((3, 4)); l.append(x + 1); l += [7]; l *= 2
    l.remove('a'); l.reverse(); p = l.pop(); q = l.pop(0); n = l.count(1); i = l.index(3)
    c = l.copy(); c.clear(); del l[0]; del l[-2:]
    return l, p, q, n, i, c
=== list_sort
def f(x):
    l = [3, 1, 2]; l.sort(); m = sorted([(2, 'b'), (1, 'a')], key=lambda p: p[0], reverse=True)
    k = ['bb', 'a', 'ccc']; k.sort(key=len, reverse=True); k2 = sorted(k, key=str.lower)
    return x * l[0] + m[0][0], l, m, k, k2, list(reversed(l))
=== list_sort_tensors_by_key
def f(x):
    l = [(2, x), (1, x * 2)]; l.sort(key=lambda p: p[0]); return l[0][1] + l[1][1]
=== list_slices
def f(x):
    l = [1, 2, 3, 4, x]; l[1:3] = [9]; l[::2] = ['p', 'q']; l[len(l):] = [x + 1]; a = l[::-1]; b = l[-2:]
    del l[0:1]
    return l, a, b, l == [9, 'q', x, 5] if False else 0
=== list_compare
def f(x):
    return x + 1, [1, 2] < [1, 3], (1, 2) == (1, 2), [1] == [1], (1,) < (1, 2), [1, 2] != [1, 3], (1, 2) >= (1, 1), [] == (), not [], bool([0])
=== list_mul_add
def f(x):
    l = [0] * 3; t = (1, 2) + (3,); u = [x] * 2 + [1]; return u[0] + u[1] + sum(l), t * 2, u
=== older_list_all
L = [1, 2, 3]
def f(x):
    L.append(4); L.insert(0, 0); L[1] = 9; L.pop(); del L[0]; L.reverse(); L.sort(); L += [5]; L.extend(i for i in (7, 8)); L.remove(5)
    return x * len(L) + L.index(7)
S = lambda: L
=== older_list_grows_by_append entries=1
L = []; d = {'a': L}
def f(x):
    L.append(x.sum()); d['a'].append(2)
    return x + 1
S = lambda: L
=== older_list_grows_in_cells_and_attributes entries=1
class Log: pass
o = Log(); o.rows = [1]; h = o.rows
def make():
    seen = [0]
    def f(x):
        seen.append(len(h) and x * 2); o.rows.append((x, 1)); o.rows.append(o.rows.append)
        del o.rows[-1]
        return x - 1
    return f, seen
f, seen = make()
def between(): o.rows[1:] = []; h[0] += 0
S = lambda: (seen, o.rows, h is o.rows)
=== older_list_is_read_after_append entries=3
def ARGS(): return torch.ones(2), L
L = [torch.zeros(2)]
def f(x, l):
    l.append(x * 2); l.append(x + len(l)); n = len(l); l.append(l[0] + n); return x * n, l[-1]
S = lambda: L
=== older_list_is_read_in_what_is_appended
L = [torch.zeros(2), 1]; M = [L]
def f(x):
    M[0].append(L[0] + len(L) + x); L.append(M[0].pop()); M.append(M[0]); return x + L[-1], [t for t in M[1]][1]
S = lambda: (L, len(M), M[-1] is L)
=== list_grows_while_it_is_iterated
L = [1, 2]
def f(x):
    for k in L:
        if k < 4: L.append(k + 2)
        x = x + k
    return x
def between(): del L[2:]
S = lambda: L
=== older_list_nested
L = [[1], {'a': [2]}, (3, [4])]
def f(x):
    L[0].append(1); L[1]['a'].append(x); L[2][1].append(5); L[1]['b'] = L[0]
    return x * len(L[0]) + L[1]['a'][0]
S = lambda: (L, L[1]['b'] is L[0])
=== older_list_of_tensors
T = [torch.ones(3), torch.zeros(3)]
def f(x):
    T[0] = T[1] + x; T.append(x); T[1].add_(1)
    return T[0] * len(T)
S = lambda: T
=== older_list_iter_and_mutate
L = [1, 2, 3]
def f(x):
    for v in list(L): L.append(v * 2)
    for i, v in enumerate(L): x = x + i * v
    return x
S = lambda: L
=== cache_append
class C:
    def __init__(self): self.k = []; self.v = {}
c = C()
def f(x):
    c.k.append(x * 2); c.v[len(c.k)] = x
    return torch.cat(c.k) if len(c.k) > 1 else c.k[0]
S = lambda: (c.k, c.v)
=== tuple_methods
def f(x):
    t = (x, 1, 2, 1); return t.count(2), t.index(2) if False else 0, t[1:], (1, 2).index(2), len(t), t + (3,), x in (1, 2) if False else 1
=== star_and_unpack
def f(x):
    a, *b = [x, 1, 2]; *c, d = (1, 2, x); (e, g), h = (1, 2), 3; return [*b, *c], {**{'a': 1}, 'b': d}, {*b}, a + e + g + h
=== dict_methods
def f(x):
    d = dict(a=1, b=x); d.update(c=3); d.update({'d': 4}); d.update([('e', 5)]); s = d.setdefault('f', []); s.append(x)
    p = d.pop('a'); q = d.pop('zz', None); i = d.popitem(); d |= {'g': 7}; e = d | {'h': 8}; k = dict.fromkeys(['x', 'y'], 0)
    c = d.copy(); c.clear(); del d['c']
    return d, p, q, i, e, k, c, d.get('nope'), d.get('nope', 2), 'b' in d, len(d), list(d), list(d.keys()), list(reversed(d)), dict(zip('ab', (1, 2)))
=== dict_views
def f(x):
    d = {'a': 1, 'b': 2}; e = {'b': 3, 'c': 4}
    ks = d.keys() & e.keys(); us = d.keys() | e.keys(); ds = d.keys() - e.keys(); xs = d.keys() ^ e.keys(); it = d.items() & {('a', 1)}
    return x + len(ks), sorted(us), sorted(ds), sorted(xs), it, 'a' in d.keys(), ('a', 1) in d.items(), 2 in d.values(), d.keys() == {'a', 'b'}, d.keys().isdisjoint(e), d.keys() <= {'a', 'b', 'c'}
=== dict_view_live
def f(x):
    d = {'a': x}; k = d.keys(); v = d.values(); i = d.items(); d['b'] = x + 1
    return list(k), list(v)[1], len(i), k
=== dict_view_returned
def f(x):
    d = {'a': x, 'b': x + 1}; return d.keys(), d.values(), d.items()
S = lambda: 0
def wrap(f): return f
g = f
def f(x): k, v, i = g(x); return list(k), list(v), list(i), type(k)
=== dict_order
def f(x):
    d = {}
    for k in 'cab': d[k] = x
    d.pop('c'); d['c'] = 1; return list(d.items()), sum(i for i, _ in enumerate(d)) + x
=== dict_tensor_keys
def f(x):
    y = x + 1; d = {x: 1, y: 2}; return x * d[x] + d[y], x in d, len(d)
=== dict_mixed_keys
class K: pass
k = K()
def f(x):
    d = {1: x, 'a': 2, (1, 2): 3, None: 4, True: 5, 2.5: 6, k: 7, int: 8, torch.float32: 9, len: 10, frozenset([1]): 11}
    return d[1] + 0 if False else x, d[(1, 2)], d[None], d[k], d[int], d[torch.float32], d[len], len(d), d[frozenset([1])]
=== dict_comprehension
def f(x):
    d = {k: x * v for k, v in {'a': 1, 'b': 2}.items() if v}; s = {i % 2 for i in range(4)}; return d, s, {v: k for k, v in dict(a=1).items()}
=== older_dict_all
D = {'a': 1, 'b': [2]}
def f(x):
    D['c'] = x; D.setdefault('d', []).append(len(D)); D.update(e=5, a=D['a'] + 1); D.pop('e'); D |= {'z': 0} if False else {}
    D['b'] += [3]; D.setdefault('a', 9); del D['c']; D['t'] = x * 2
    return x * D['a'] + len(D['b'])
S = lambda: D
f.__globals__  # the |= above makes D local without this
exec("def f(x):\n    global D\n    D['c'] = x; D.setdefault('d', []).append(len(D)); D.update(e=5, a=D['a'] + 1); D.pop('e'); D |= {'z': 0}\n    D['b'] += [3]; del D['c']; D['t'] = x * 2\n    return x * D['a'] + len(D['b'])")
=== older_dict_popitem_order
D = {'a': 1, 'b': 2}
def f(x):
    k, v = D.popitem(); D['n'] = v; D[k] = v + 1
    return x * v, list(D)
S = lambda: list(D.items())
=== older_dict_clear
D = {'a': 1}
def f(x):
    n = len(D); D.clear(); D['k'] = x; return x * n
S = lambda: D
=== older_dict_in_dict_tensor
D = {'m': {'w': torch.ones(3)}, 'l': [torch.zeros(3)]}
def f(x):
    D['m']['w'] = D['m']['w'] + x; D['l'][0] += 1; D['new'] = D['l'][0]
    return D['m']['w'].sum()
S = lambda: (D, D['new'] is D['l'][0])
=== dict_arg_mutated
def ARGS(): return torch.ones(3), {'a': torch.ones(3), 'n': 1}
def f(x, d):
    d['n'] += 1; d['b'] = d['a'] + x; d.pop('a'); return d['b'] * d['n']
=== dict_arg_returned
def ARGS(): return torch.ones(3), {'a': torch.ones(3)}
def f(x, d):
    d['b'] = x + 1; return d
=== list_arg_identity
def ARGS():
    l = [torch.ones(3)]; return l, l
def f(a, b):
    a.append(a[0] + 1); return b[1], a is b, len(b)
=== ordered_dict
from collections import OrderedDict
def f(x):
    d = OrderedDict(); d['a'] = x; d['b'] = 2; d['c'] = 3; d.move_to_end('a'); d.move_to_end('c', last=False)
    p = d.popitem(); q = d.popitem(last=False); d['z'] = 1; d.update(y=2)
    return d, p, q, list(reversed(d)), d == OrderedDict(b=2, z=1, y=2), OrderedDict([('p', 1)]), d.pop('z'), list(d.items())
=== older_ordered_dict
from collections import OrderedDict
D = OrderedDict(a=1, b=2, c=3)
def f(x):
    D.move_to_end('b'); k, v = D.popitem(last=False); D[k + 'x'] = v; D.setdefault('q', x)
    return x * v + len(D)
S = lambda: list(D.items())
=== default_dict
from collections import defaultdict
def f(x):
    d = defaultdict(list); d['a'].append(x); d['b'].append(1); d['a'].append(2); e = defaultdict(lambda: 5); e['q'] += 1
    n = defaultdict(int, a=1); n['b'] -= 1; m = defaultdict(lambda: defaultdict(int)); m['x']['y'] += 1
    return d, e['q'], e['new'], n, d.default_factory is list, 'zz' in d, d.get('zz'), len(d), m['x']['y']
g = f
def f(x): r = g(x); return [dict(v) if isinstance(v, dict) else v for v in r]
=== older_default_dict
from collections import defaultdict
D = defaultdict(list, a=[1]); N = defaultdict(int)
def f(x):
    D['a'].append(2); D['new'].append(x); N['c'] += 1; N['d'] = N['c'] + N.get('e', 7)
    return x * len(D['a']) + N['c'], 'zz' in D
S = lambda: (dict(D), dict(N), D.default_factory)
=== default_dict_factory_closure
from collections import defaultdict
c = [0]
def make(): c[0] += 1; return c[0]
D = defaultdict(make)
def f(x):
    return x * D['a'] + D['b'] + D['a']
S = lambda: (dict(D), c)
=== deque_fresh
from collections import deque
def f(x):
    q = deque([1, 2, x], maxlen=4); q.append(4); q.appendleft(0); q.extend([5, 6]); q.extendleft([7]); q.rotate(1); p = q.pop(); l = q.popleft()
    q[0] = 'z'; q.insert(1, 'i'); n = q.count('z'); q.remove('z'); r = list(reversed(q)); c = q.copy(); c.clear()
    return list(q), p, l, n, r, len(q), q.maxlen, list(c), 'i' in q, q[0], q.index('i') if 'i' in q else -1, q == deque(), deque([1]) < deque([2])
=== deque_returned
from collections import deque
def f(x):
    q = deque(maxlen=3); q.append(x); q.append(x + 1); return q
g = f
def f(x): q = g(x); return list(q), q.maxlen
=== older_deque
from collections import deque
Q = deque(maxlen=3); R = deque([1, 2])
def f(x):
    Q.append(x); R.append(R.popleft() + 1); R.rotate(1); R.extend([9]); R.pop(); R.appendleft(4); R.pop()
    s = x
    for t in Q: s = s + t
    return s * len(Q) + R[0] + sum(R)
S = lambda: (list(Q), Q.maxlen, list(R))
=== older_deque_read
from collections import deque
Q = deque([1, 2, 3])
def f(x): return x * Q[0] + len(Q) + sum(Q) + (2 in Q) + list(Q)[-1], bool(Q), Q == deque([1, 2, 3])
def between(): Q.append(len(Q))
=== deque_arg
from collections import deque
def ARGS(): return torch.ones(3), deque([torch.ones(3)], maxlen=2)
def f(x, q):
    q.append(x + 1); q.append(x * 2); return q[0] + q[1], len(q)
=== deque_on_self
from collections import deque
class M(torch.nn.Module):
    def __init__(self): super().__init__(); self.h = deque(maxlen=2)
    def forward(self, x): self.h.append(x * 2); return sum(self.h) + len(self.h)
m = M()
def f(x): return m(x)
S = lambda: list(m.h)
=== counter_fresh
from collections import Counter
def f(x):
    c = Counter('abca'); c.update('a'); c['z'] += 2; d = Counter(a=1); e = c + d; g = c - d; h = c & d; i = c | d
    c.subtract('b')
    return x + c['a'], dict(c), c.most_common(2), dict(e), dict(g), dict(h), dict(i), sorted(c.elements()), c.total(), c['nope'], +c == c
=== older_counter
from collections import Counter
C = Counter('ab')
def f(x):
    C['a'] += 1; C.update(['q']); n = C.most_common(1)[0][1]; C.subtract(['b'])
    return x * C['a'] + n + C['missing']
S = lambda: dict(C)
=== chain_map
from collections import ChainMap
def f(x):
    m = ChainMap({'a': x}, {'a': 1, 'b': 2}); m['c'] = 3; n = m.new_child({'b': 9})
    return m['a'] + m['b'], n['b'], sorted(n), len(m), n.parents is m, m.maps[0]['c'], 'b' in m, m.get('zz', 4)
=== older_chain_map
from collections import ChainMap
base = {'b': 2}; M = ChainMap({}, base)
def f(x):
    M['a'] = M.get('a', 0) + 1; base['b'] += 1; return x * M['a'] + M['b']
S = lambda: (M.maps, base)
=== mapping_proxy
import types
D = {'a': 1}; P = types.MappingProxyType(D)
def f(x):
    y = x * P['a'] + len(P); p = types.MappingProxyType({'z': x}); return y + p['z'], 'a' in P, list(P), P.get('b', 3), dict(p), list(P.items()), P | {'q': 1}
def between(): D['a'] += 1
=== user_dict_list
from collections import UserDict, UserList
class D(UserDict):
    def __setitem__(self, k, v): super().__setitem__(k, v * 2)
O = D(a=1)
def f(x):
    d = D(a=x); d['b'] = x + 1; l = UserList([1, x]); l.append(2); O['n'] = len(O)
    return d['a'] + d['b'], len(l), l[0], list(d), 'a' in d, l.data
S = lambda: O.data
=== set_ops
def f(x):
    a = {1, 2, 3}; b = {2, 3, 4}
    a.add(5); a.discard(9); a.remove(5); a.update([6], (7,)); c = a & b; d = a | b; e = a - b; g = a ^ b
    a &= b; h = a.copy(); h |= {8}; h -= {2}; h ^= {3}; p = {1}.pop()
    return x + len(c), c, d, e, g, a, h, p, a <= b, a < b, a.issubset(b), b.issuperset(a), a.isdisjoint({9}), a == {2, 3}, {1, 2}.union([3], [4]), {1, 2}.intersection([2]), {1, 2}.difference([1]), {1, 2}.symmetric_difference([2, 3])
=== frozenset_ops
F = frozenset(['a', 'b'])
def f(x):
    g = F | {'c'}; h = F & {'a'}; return x * len(g), g, h, 'a' in F, F - {'a'}, frozenset([1, 2]) == {1, 2}, hash(frozenset([1])) == hash(frozenset([1])), {F: 1}[F]
=== set_of_tensors
def f(x):
    y = x + 1; s = {x, y, x}; return len(s), x in s, (x * 2) in s, x * len(s)
=== older_set_all
Z = {1, 2}
def f(x):
    global Z
    Z.add(len(Z) + 1); Z.discard(1); Z |= {10}; Z.update([20, 30]); Z.remove(20); Z -= {30}; n = len(Z & {2, 10})
    return x * n + (2 in Z)
S = lambda: sorted(Z)
=== older_frozenset_guard
c = [frozenset([1, 2])]
def f(x): return x * len(c[0]) + (3 in c[0])
def between(): c[0] = c[0] | {3}
=== set_of_objects
class C:
    def __init__(self, n): self.n = n
    def __hash__(self): return self.n
    def __eq__(self, o): return isinstance(o, C) and self.n == o.n
Z = {C(1)}
def f(x):
    Z.add(C(1)); Z.add(C(len(Z) + 1)); return x * len(Z), C(1) in Z
S = lambda: sorted(c.n for c in Z)
=== range_ops
def f(x):
    r = range(1, 10, 2); return x * r[1] + len(r), r[-1], r[1:3], list(reversed(r)), 3 in r, r.index(5), r.start, r.step, r.stop, r == range(1, 11, 2), r.count(3), list(range(3, 0, -1))
=== slice_ops
def f(x):
    s = slice(1, None, 2); return x[s], s.start, s.step, s.indices(5), slice(2) == slice(None, 2, None), [1, 2, 3, 4][s]
=== str_ops
def f(x):
    s = 'Hello {} {k}'.format(1, k='v'); t = f'{len(s):>4}|{3.14159:.2f}|{"q"!r}'; u = 'a,b'.split(','); v = '-'.join(u)
    return x * len(s), s, t, u, v, s.upper(), s.startswith('He'), s.replace('l', 'L'), 'b' in v, '%s %d %5.1f' % ('a', 2, 1.5), 'ab'.encode(), 'x'.center(5, '*'), 'abc'[::-1], s.find('o'), 'A1'.isalnum(), 'a\nb'.splitlines(), str(1.0), repr('a'), ' q '.strip()
=== bytes_ops
def f(x):
    b = bytes([1, 2]); a = bytearray(b); a.append(3); a[0] = 9; return x * len(a), b, bytes(a), a.hex(), int.from_bytes(b, 'big'), memoryview(b)[0]
=== nested_identity
def f(x):
    a = [x]; b = {'a': a, 'b': a}; a.append(b['a'][0] + 1); return b, b['a'] is b['b'], a
=== self_referential
def f(x):
    l = [x + 1]; l.append(l); d = {}; d['self'] = d; return l
g = f
def f(x): l = g(x); return l[1] is l, l[0]
=== namedtuples
from collections import namedtuple
from typing import NamedTuple
P = namedtuple('P', 'a b', defaults=[7])
class Q(NamedTuple):
    a: int
    b: object = None
    def total(self): return self.a + 1
    @property
    def twice(self): return self.a * 2
o = P(1, [2])
def f(x):
    p = P(x); q = Q(3, x); r = p._replace(b=x + 1); a, b = r; o.b.append(q.total())
    return p, q, r, a + b, q.twice, p._asdict(), P._fields, P._make([1, 2]), p.index(7) if False else 0, isinstance(p, tuple), len(p), p[0] + q.b, P._field_defaults, o.a, Q.__annotations__ is not None, p == (x, 7) if False else 1, P(1, 2) == P(1, 2), P(1, 2) < P(1, 3), P(1, 2) + (3,)
S = lambda: o
=== namedtuple_arg
from collections import namedtuple
P = namedtuple('P', 'a b')
def ARGS(): return P(torch.ones(3), {'k': torch.ones(3)}),
def f(p):
    p.b['n'] = p.a + 1; return p._replace(a=p.b['k'] * 2), p, type(p).__name__
=== namedtuple_with_new
from collections import namedtuple
class P(namedtuple('PB', 'a b')):
    __slots__ = ()
    def __new__(cls, a, b=None): return super().__new__(cls, a, b if b is not None else a)
    def sum(self): return self.a + self.b
def f(x):
    p = P(x); return p.sum(), p._replace(b=1), P(1, 2).sum()
=== struct_seq
def f(x):
    v, i = torch.max(x, 0); m = x.sort(); t = torch.topk(x, 2); return v, i, m.values, m.indices, m[0], t.values, torch.return_types.topk is type(t), torch.min(x, dim=0)
=== torch_size
def ARGS(): return torch.ones(2, 3, 4),
def f(x):
    s = x.shape; return x.view(s[0], -1), s.numel(), s[1:], s == (2, 3, 4), s == torch.Size([2, 3, 4]), len(s), list(s), tuple(s), s[-1], s + (1,), s * 2, 3 in s, s.index(3), s.count(4), isinstance(s, tuple), isinstance(s, torch.Size), torch.Size([1, 2]).numel(), s[:-1] + (2,), hash(s) == hash(torch.Size([2, 3, 4])), x.size(), x.size(0), x.dim(), x.ndim, x.stride(), x.numel(), type(s) is torch.Size, max(s), sorted(s), [*s], str(s), repr(s)
=== dtypes_devices
def f(x):
    d = x.dtype; v = x.device
    return x.to(torch.float64), d.is_floating_point, d.is_complex, d.itemsize, d == torch.float32, str(d), v.type, v.index, str(v), v == torch.device('cpu'), torch.device('cpu', 0).index, torch.finfo(d).max, torch.finfo(d).eps, torch.finfo(torch.float16).min, torch.iinfo(torch.int32).max, torch.iinfo(torch.int8).bits, torch.finfo(d).dtype, d.to_complex(), {d: 1}[torch.float32], isinstance(d, torch.dtype), torch.promote_types(torch.int8, torch.float32), torch.result_type(x, 1), torch.can_cast(torch.float32, torch.int8), torch.is_floating_point(x), x.is_floating_point(), torch.get_default_dtype(), x.layout, torch.finfo(d).tiny, torch.finfo(d).smallest_normal, torch.finfo(d).bits, torch.finfo(d).resolution
=== finfo_arg
def ARGS(): return torch.ones(3), torch.finfo(torch.float32), torch.iinfo(torch.int64), torch.float16, torch.device('cpu'), torch.strided
def f(x, a, b, d, v, l): return x.clamp(max=a.max) + a.eps, b.max, x.to(d), torch.zeros(2, device=v), l is torch.strided
=== iterators_fresh
def f(x):
    i = iter([1, 2, 3]); a = next(i); z = zip([1, 2], [x, x + 1]); p, q = next(z); e = enumerate('ab', 1); m = map(lambda v: v * 2, [1, 2]); r = reversed([1, 2])
    return x * a + p, list(i), next(e), list(m), next(r), list(z), next(iter({}), 'none'), list(filter(None, [0, 1])), list(iter(lambda: 1, 1))
=== iterators_returned
import itertools
def f(x):
    return iter([x, 1]), enumerate([x]), zip([1], [x]), itertools.count(3), map(str, [1]), itertools.chain([x], [2]), range(3), reversed([1, x])
g = f
def f(x): a = g(x); return next(a[0]), next(a[1]), next(a[2]), next(a[3]), next(a[4]), list(a[5]), list(a[6]), list(a[7])
=== iterators_half_consumed
def f(x):
    i = iter([x, x + 1, x + 2]); next(i); e = enumerate(['a', 'b', 'c']); next(e); d = iter({'a': 1, 'b': 2}); next(d); return i, e, d
g = f
def f(x): a = g(x); return list(a[0]), list(a[1]), list(a[2])
=== iterator_arg
def ARGS(): return torch.ones(3), iter([1, 2, 3])
def f(x, it): return x * next(it) + next(it)
g = f
=== older_count breaks=1
import itertools
C = itertools.count(5); N = iter(range(100)); L = iter([1, 2, 3, 4, 5, 6, 7])
def f(x): return x * next(C) + next(N) + next(L)
=== older_iterators
L = [1, 2, 3, 4, 5]; I = iter(L); T = iter((1, 2, 3)); R = iter(range(3, 60, 2)); V = reversed(L); W = reversed((4, 5, 6)); E = enumerate([1.5, 2.5], 3)
Z = zip(L, range(2)); K = zip(iter([7, 8, 9, 10]), enumerate([1, 2, 3, 4]), strict=True); B = iter([torch.ones(3), torch.zeros(3)])
def f(x):
    for i in V: x = x + i; break
    return x * next(I) + next(R) - next(W), next(T), next(E, None), list(Z), next(K), next(B, x) + 1, I is iter(I)
S = lambda: [i.__reduce__() for i in (I, T, R, V, W, E, Z, K)]
=== older_iterator_whose_list_grows
L = [1, 2]; I = iter(L)
def f(x): L.append(3); y = x * next(I); L.append(4); return y
S = lambda: (L, I)
=== older_iterator_positions_recompile_once breaks=1 entries=6
I = iter(range(100))
def f(x): return x * next(I)
S = lambda: I
=== older_iterator_in_broken_loop breaks=1
def ARGS(): return torch.ones(3), iter([1, 2, 3, 4])
def f(x, it):
    for i in it:
        x = x + i
        print(i)
    return x, it
=== older_iterator_exhausted
def ARGS(): return torch.ones(3), iter([1, 2]), reversed((1, 2)), iter(range(2)), zip([1], iter([1, 2]))
def f(x, *its): return [sum(i) if j < 3 else list(i) for j, i in enumerate(its)], [next(i, None) for i in its], x + 1
=== older_cycle breaks=1
import itertools
C = itertools.cycle([1, 2, 3])
def f(x): return x * next(C) + 1
=== older_generator breaks=1
G = (i for i in range(100))
def f(x): return x * next(G) + 1
=== enumerate_zip_strict
def f(x):
    try: list(zip([1], [1, 2], strict=True)); e = 0
    except ValueError as ex: e = str(ex)
    for i, (a, b) in enumerate(zip([1, 2], [x, x]), start=2): x = x + i * a * b
    return x, e
=== itertools_all
import itertools
def f(x):
    return x + 1, list(itertools.chain.from_iterable([[1], [2]])), list(itertools.islice(itertools.count(), 2, 6, 2)), list(itertools.accumulate([1, 2, 3])), list(itertools.product('ab', [1])), list(itertools.permutations([1, 2])), list(itertools.combinations([1, 2, 3], 2)), list(itertools.zip_longest([1], [2, 3], fillvalue=0)), list(itertools.repeat(1, 2)), list(itertools.takewhile(lambda v: v < 2, [1, 2])), list(itertools.dropwhile(lambda v: v < 2, [1, 2])), [(k, list(g)) for k, g in itertools.groupby('aab')], list(itertools.starmap(pow, [(2, 3)])), list(itertools.pairwise([1, 2, 3])), list(itertools.compress('abc', [1, 0, 1])), [list(t) for t in itertools.tee([1, 2])], list(itertools.filterfalse(None, [0, 1])), list(itertools.accumulate([x, x], lambda a, b: a + b))[1]
=== heapq_bisect_array
import heapq, bisect, array
H = [3, 1, 2]
def f(x):
    h = [3, 1, 2]; heapq.heapify(h); heapq.heappush(h, 0); m = heapq.heappop(h); i = bisect.bisect([1, 3], 2); l = [1, 3]; bisect.insort(l, 2); heapq.heapify(H); heapq.heappush(H, len(H))
    return x * m + i, h, l, heapq.nlargest(2, [1, 5, 3]), H[0]
S = lambda: H
=== functools_things
import functools, operator
def f(x):
    p = functools.partial(torch.add, alpha=2); r = functools.reduce(operator.add, [x, x, 1]); k = functools.cmp_to_key(lambda a, b: b - a)
    return p(x, x), r, sorted([1, 3, 2], key=k), p.func is torch.add, p.keywords, functools.reduce(lambda a, b: a * b, [1, 2, 3], 1)
=== operator_things
import operator
class C: a = 1
def f(x):
    return operator.add(x, 1), operator.itemgetter(1)([1, x]), operator.attrgetter('a')(C), operator.methodcaller('upper')('a'), operator.mul(2, 3), operator.truth([]), operator.contains([1], 1), operator.is_(None, None), operator.neg(x), operator.getitem([x], 0), operator.iadd(x.clone(), 1), operator.concat([1], [2]), operator.index(3), operator.setitem({}, 1, 2), operator.length_hint([1]), operator.itemgetter(0, 1)((1, 2)), operator.not_(0), operator.matmul(x, x)
=== list_subclass
class L(list):
    def total(self): return sum(self)
    def append(self, v): super().append(v * 2)
O = L([1]); O.tag = 't'
def f(x):
    l = L([1, 2]); l.append(3); l.note = x; O.append(5); O.tag += 'u'; return x * l.total(), l[2], l.note, len(O), type(l).__name__, l + [1], isinstance(l, list)
S = lambda: (list(O), O.tag)
=== dict_subclass
class D(dict):
    def __missing__(self, k): self[k] = k * 2; return self[k]
    def __getattr__(self, k):
        try: return self[k]
        except KeyError: raise AttributeError(k)
    def __setattr__(self, k, v): self[k] = v
O = D(a=1)
def f(x):
    d = D(); d.y = x; O.n = O.get('n', 0) + 1; O['zz']; return d.y + d['q'].__len__() + O.a, hasattr(d, 'no'), O.n, dict(d)
S = lambda: dict(O)
=== set_subclass
class Z(set):
    def addall(self, *v):
        for i in v: self.add(i)
        return self
class FZ(frozenset): pass
O = Z([1])
def f(x):
    s = Z(); s.addall(1, 2); O.addall(len(O) + 1); return x * len(s) + len(O), sorted(s), 2 in s, FZ([1, 2]) & {1}, type(s | {3}).__name__
S = lambda: sorted(O)
=== tuple_subclass
class T(tuple):
    def first(self): return self[0]
def f(x):
    t = T((x, 1)); return t.first(), t, len(t), T([1, 2]) == (1, 2), type(t[0:1]).__name__
=== str_int_subclass
class Str(str):
    def shout(self): return self.upper() + '!'
class Int(int):
    def plus(self, n): return Int(self + n)
    @property
    def half(self): return self // 2
class Float(float): pass
s = Str('ab'); n = Int(6)
def f(x): return x * n.half + n.plus(1), s.shout(), Str('q') + 'r', n == 6, {s: 1}['ab'], Float(2.5) * 2, x * Float(1.5), isinstance(n, int), type(n).__name__, n + 1, x + Int(2)
=== simple_namespace
import types
N = types.SimpleNamespace(a=1, l=[])
def f(x):
    n = types.SimpleNamespace(t=x, k=2); n.z = n.t * n.k; N.a += 1; N.l.append(x); N.new = x + 1; return n.z * N.a, vars(n).keys() == {'t', 'k', 'z'}, n, len(N.l), n == types.SimpleNamespace(k=2) if False else 0
S = lambda: (vars(N))
=== list_contains_objects
class C:
    def __eq__(self, o): return isinstance(o, C)
    __hash__ = None
def f(x): return x + 1, C() in [1, C()], [C()] == [C()], [C()].index(C()), [1, C()].count(C()), (C(),) == (C(),), C() != 3
=== any_all_sum_minmax
def f(x):
    return x + sum([1, 2], 3), any(v > 1 for v in [1, 2]), all([]), min(3, 1), max([1, 5], key=lambda v: -v), min([], default=4), sum([[1], [2]], []), sum([x, x]), max('abc'), abs(-2), divmod(7, 2), round(2.567, 1), pow(2, 3, 5), sum(v for v in (1.5, 2))
=== dict_iteration_error forced=0
def f(x):
    d = {'a': 1}
    try:
        for k in d: d[k + 'x'] = 1
    except RuntimeError as e: return x + 1, str(e)
=== errors_from_containers
NONE = None
def f(x):
    out = []
    for g in (lambda: {}['a'], lambda: [][0], lambda: [].pop(), lambda: {}.popitem(), lambda: set().pop(), lambda: (1).foo, lambda: [].remove(1), lambda: {[]: 1}, lambda: 1 + 'a', lambda: len(3), lambda: int('z'), lambda: next(iter([])), lambda: [1][::0], lambda: {1} + {2}, lambda: (1, 2)[5], lambda: NONE(), lambda: [1, 2].index(5), lambda: iter(4), lambda: 'a' < 1, lambda: [] < 1):
        try: g()
        except Exception as e: out.append((type(e).__name__, str(e)))
    return x * len(out), out
=== pytree_use
import torch.utils._pytree as pytree
def f(x):
    leaves, spec = pytree.tree_flatten({'a': x, 'b': [x + 1, (2, x)]}); r = pytree.tree_map(lambda t: t * 2, [x, {'k': x}]); u = pytree.tree_unflatten(leaves, spec)
    return leaves[1] + leaves[0], r, u, len(leaves), pytree.tree_all(lambda v: True, r)
=== del_items_older
D = {i: i for i in range(5)}; L = list(range(10))
def f(x):
    del D[min(D)]; del L[0]; L[1:3] = []; D.pop(max(D), None); return x * len(D) + len(L)
S = lambda: (D, L)
=== list_of_lists_alias
a = [1]; L = [a, a]
def f(x): L[0].append(2); L[1].append(3); L.append(a); return x * len(a), L[0] is L[1]
S = lambda: (L, L[0] is a, L[-1] is a)
=== swap_items
D = {'a': torch.zeros(3), 'b': torch.ones(3)}; L = [1, 2, 3]
def f(x):
    D['a'], D['b'] = D['b'], D['a']; L[0], L[-1] = L[-1], L[0]; return D['a'] + x * L[0]
S = lambda: (D, L)
=== containers_of_modules
m = [torch.nn.ReLU(), torch.nn.Tanh()]; d = {'r': torch.nn.Sigmoid()}
def f(x):
    for l in m: x = l(x)
    m.append(d['r']); return d['r'](x)
S = lambda: [type(l).__name__ for l in m]
=== dict_views_from_outside entries=1
from collections import OrderedDict
d = {'a': 1, 'b': 2}; o = OrderedDict(p=torch.ones(2), q=2)
def ARGS(): return torch.ones(2), d.keys(), d.values(), o.items()
def f(x, k, v, i): return x + ('b' in k) + len(v) + sum(v), list(k), [n for n, _ in i], [t for _, t in i][0] * 2, k & {'a', 'z'}, list(reversed(k)), k
=== dict_view_changes_outside entries=3
d = {'a': 1, 'b': 2}; n = [0]
def ARGS(): return torch.ones(2), d.keys()
def between(): n[0] += 1; d[n[0]] = 0
def f(x, k): return x + len(k) if 2 in k else x - len(k)
=== dict_view_of_a_dict_that_is_written
d = {'a': 1}; v = d.items()
def f(x):
    d['n'] = x; r = len(v), 'n' in d.keys(), [k for k, _ in v]; del d['n']; return x + 1, r
S = lambda: (list(v), d)
=== maps_over_containers_by_torch_fx
from torch.fx.node import map_aggregate, map_arg
from collections import namedtuple
P = namedtuple('P', 'a b')
L = [[1, 2], {'a': slice(1, 3)}]
def f(x):
    m = map_aggregate([x, (1, P(x * 2, 3))], lambda v: v * 2)
    n = map_aggregate(L, lambda v: v if v is None else v + 1)
    try: m.append(x)
    except TypeError: x = x + 1
    return x, m, type(m), n, type(n[1]), map_arg(L, lambda v: 1 / 0)
=== frozenset_subclass
class F(frozenset):
    def __init__(self, *a): self.n = len(self)
class G(frozenset):
    def __iter__(self): log.append('iter'); return super().__iter__()
    def __contains__(self, k): log.append('in'); return super().__contains__(k)
log = []
class H: s = F([1, 2, 3]); t = G([3, 4]); u = frozenset('ab')
h = H()
def f(x):
    s, t = h.s, h.t
    return x * len(s) + s.n, sorted(s), 3 in s, s | t, s == t, s - {3}, type(s.copy()).__name__, 4 in t, t.issubset(s), list(t), t & s, s.union(h.u) == h.u | s
between = lambda: setattr(h, 's', F([3, 2]))
S = lambda: log
""")


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    obj_harness.check(PROGRAMS[name])


@pytest.mark.parametrize("k", [1, 3, 7])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_breaks(name, k):
    obj_harness.check_forced(PROGRAMS[name], k)
