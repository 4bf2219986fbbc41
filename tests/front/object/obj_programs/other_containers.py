"""Programs about objects: collections, sets, ranges, strings, named tuples, torch's own tuples.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === ordered_dict
from collections import OrderedDict


def f(x):
    d = OrderedDict()
    d["a"] = x
    d["b"] = 2
    d["c"] = 3
    d.move_to_end("a")
    d.move_to_end("c", last=False)
    p = d.popitem()
    q = d.popitem(last=False)
    d["z"] = 1
    d.update(y=2)
    return (
        d,
        p,
        q,
        list(reversed(d)),
        d == OrderedDict(b=2, z=1, y=2),
        OrderedDict([("p", 1)]),
        d.pop("z"),
        list(d.items()),
    )


# === older_ordered_dict
from collections import OrderedDict

D = OrderedDict(a=1, b=2, c=3)


def f(x):
    D.move_to_end("b")
    k, v = D.popitem(last=False)
    D[k + "x"] = v
    D.setdefault("q", x)
    return x * v + len(D)


S = lambda: list(D.items())


# === default_dict
from collections import defaultdict


def f(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["b"].append(1)
    d["a"].append(2)
    e = defaultdict(lambda: 5)
    e["q"] += 1
    n = defaultdict(int, a=1)
    n["b"] -= 1
    m = defaultdict(lambda: defaultdict(int))
    m["x"]["y"] += 1
    return d, e["q"], e["new"], n, d.default_factory is list, "zz" in d, d.get("zz"), len(d), m["x"]["y"]


g = f


def f(x):
    r = g(x)
    return [dict(v) if isinstance(v, dict) else v for v in r]


# === older_default_dict
from collections import defaultdict

D = defaultdict(list, a=[1])
N = defaultdict(int)


def f(x):
    D["a"].append(2)
    D["new"].append(x)
    N["c"] += 1
    N["d"] = N["c"] + N.get("e", 7)
    return x * len(D["a"]) + N["c"], "zz" in D


S = lambda: (dict(D), dict(N), D.default_factory)


# === default_dict_factory_closure
from collections import defaultdict

c = [0]


def make():
    c[0] += 1
    return c[0]


D = defaultdict(make)


def f(x):
    return x * D["a"] + D["b"] + D["a"]


S = lambda: (dict(D), c)


# === deque_fresh
from collections import deque


def f(x):
    q = deque([1, 2, x], maxlen=4)
    q.append(4)
    q.appendleft(0)
    q.extend([5, 6])
    q.extendleft([7])
    q.rotate(1)
    p = q.pop()
    l = q.popleft()
    q[0] = "z"
    q.insert(1, "i")
    n = q.count("z")
    q.remove("z")
    r = list(reversed(q))
    c = q.copy()
    c.clear()
    return (
        list(q),
        p,
        l,
        n,
        r,
        len(q),
        q.maxlen,
        list(c),
        "i" in q,
        q[0],
        q.index("i") if "i" in q else -1,
        q == deque(),
        deque([1]) < deque([2]),
    )


# === deque_returned
from collections import deque


def f(x):
    q = deque(maxlen=3)
    q.append(x)
    q.append(x + 1)
    return q


g = f


def f(x):
    q = g(x)
    return list(q), q.maxlen


# === older_deque
from collections import deque

Q = deque(maxlen=3)
R = deque([1, 2])


def f(x):
    Q.append(x)
    R.append(R.popleft() + 1)
    R.rotate(1)
    R.extend([9])
    R.pop()
    R.appendleft(4)
    R.pop()
    s = x
    for t in Q:
        s = s + t
    return s * len(Q) + R[0] + sum(R)


S = lambda: (list(Q), Q.maxlen, list(R))


# === older_deque_read
from collections import deque

Q = deque([1, 2, 3])


def f(x):
    return x * Q[0] + len(Q) + sum(Q) + (2 in Q) + list(Q)[-1], bool(Q), Q == deque([1, 2, 3])


def between():
    Q.append(len(Q))


# === deque_arg
from collections import deque


def ARGS():
    return torch.ones(3), deque([torch.ones(3)], maxlen=2)


def f(x, q):
    q.append(x + 1)
    q.append(x * 2)
    return q[0] + q[1], len(q)


# === deque_on_self
from collections import deque


class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.h = deque(maxlen=2)

    def forward(self, x):
        self.h.append(x * 2)
        return sum(self.h) + len(self.h)


m = M()


def f(x):
    return m(x)


S = lambda: list(m.h)


# === counter_fresh
from collections import Counter


def f(x):
    c = Counter("abca")
    c.update("a")
    c["z"] += 2
    d = Counter(a=1)
    e = c + d
    g = c - d
    h = c & d
    i = c | d
    c.subtract("b")
    return (
        x + c["a"],
        dict(c),
        c.most_common(2),
        dict(e),
        dict(g),
        dict(h),
        dict(i),
        sorted(c.elements()),
        c.total(),
        c["nope"],
        +c == c,
    )


# === older_counter
from collections import Counter

C = Counter("ab")


def f(x):
    C["a"] += 1
    C.update(["q"])
    n = C.most_common(1)[0][1]
    C.subtract(["b"])
    return x * C["a"] + n + C["missing"]


S = lambda: dict(C)


# === chain_map
from collections import ChainMap


def f(x):
    m = ChainMap({"a": x}, {"a": 1, "b": 2})
    m["c"] = 3
    n = m.new_child({"b": 9})
    return (
        m["a"] + m["b"],
        n["b"],
        sorted(n),
        len(m),
        n.parents is m,
        m.maps[0]["c"],
        "b" in m,
        m.get("zz", 4),
    )


# === older_chain_map
from collections import ChainMap

base = {"b": 2}
M = ChainMap({}, base)


def f(x):
    M["a"] = M.get("a", 0) + 1
    base["b"] += 1
    return x * M["a"] + M["b"]


S = lambda: (M.maps, base)


# === mapping_proxy
import types

D = {"a": 1}
P = types.MappingProxyType(D)


def f(x):
    y = x * P["a"] + len(P)
    p = types.MappingProxyType({"z": x})
    return y + p["z"], "a" in P, list(P), P.get("b", 3), dict(p), list(P.items()), P | {"q": 1}


def between():
    D["a"] += 1


# === user_dict_list
from collections import UserDict, UserList


class D(UserDict):
    def __setitem__(self, k, v):
        super().__setitem__(k, v * 2)


O = D(a=1)


def f(x):
    d = D(a=x)
    d["b"] = x + 1
    l = UserList([1, x])
    l.append(2)
    O["n"] = len(O)
    return d["a"] + d["b"], len(l), l[0], list(d), "a" in d, l.data


S = lambda: O.data


# === set_ops
def f(x):
    a = {1, 2, 3}
    b = {2, 3, 4}
    a.add(5)
    a.discard(9)
    a.remove(5)
    a.update([6], (7,))
    c = a & b
    d = a | b
    e = a - b
    g = a ^ b
    a &= b
    h = a.copy()
    h |= {8}
    h -= {2}
    h ^= {3}
    p = {1}.pop()
    return (
        x + len(c),
        c,
        d,
        e,
        g,
        a,
        h,
        p,
        a <= b,
        a < b,
        a.issubset(b),
        b.issuperset(a),
        a.isdisjoint({9}),
        a == {2, 3},
        {1, 2}.union([3], [4]),
        {1, 2}.intersection([2]),
        {1, 2}.difference([1]),
        {1, 2}.symmetric_difference([2, 3]),
    )


# === frozenset_ops
F = frozenset(["a", "b"])


def f(x):
    g = F | {"c"}
    h = F & {"a"}
    return (
        x * len(g),
        g,
        h,
        "a" in F,
        F - {"a"},
        frozenset([1, 2]) == {1, 2},
        hash(frozenset([1])) == hash(frozenset([1])),
        {F: 1}[F],
    )


# === set_of_tensors
def f(x):
    y = x + 1
    s = {x, y, x}
    return len(s), x in s, (x * 2) in s, x * len(s)


# === older_set_all
Z = {1, 2}


def f(x):
    global Z
    Z.add(len(Z) + 1)
    Z.discard(1)
    Z |= {10}
    Z.update([20, 30])
    Z.remove(20)
    Z -= {30}
    n = len(Z & {2, 10})
    return x * n + (2 in Z)


S = lambda: sorted(Z)


# === older_frozenset_guard
c = [frozenset([1, 2])]


def f(x):
    return x * len(c[0]) + (3 in c[0])


def between():
    c[0] = c[0] | {3}


# === set_of_objects
class C:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n

    def __eq__(self, o):
        return isinstance(o, C) and self.n == o.n


Z = {C(1)}


def f(x):
    Z.add(C(1))
    Z.add(C(len(Z) + 1))
    return x * len(Z), C(1) in Z


S = lambda: sorted(c.n for c in Z)


# === range_ops
def f(x):
    r = range(1, 10, 2)
    return (
        x * r[1] + len(r),
        r[-1],
        r[1:3],
        list(reversed(r)),
        3 in r,
        r.index(5),
        r.start,
        r.step,
        r.stop,
        r == range(1, 11, 2),
        r.count(3),
        list(range(3, 0, -1)),
    )


# === slice_ops
def f(x):
    s = slice(1, None, 2)
    return x[s], s.start, s.step, s.indices(5), slice(2) == slice(None, 2, None), [1, 2, 3, 4][s]


# === str_ops
def f(x):
    s = "Hello {} {k}".format(1, k="v")
    t = f"{len(s):>4}|{3.14159:.2f}|{'q'!r}"
    u = "a,b".split(",")
    v = "-".join(u)
    return (
        x * len(s),
        s,
        t,
        u,
        v,
        s.upper(),
        s.startswith("He"),
        s.replace("l", "L"),
        "b" in v,
        "%s %d %5.1f" % ("a", 2, 1.5),
        "ab".encode(),
        "x".center(5, "*"),
        "abc"[::-1],
        s.find("o"),
        "A1".isalnum(),
        "a\nb".splitlines(),
        str(1.0),
        repr("a"),
        " q ".strip(),
    )


# === bytes_ops
def f(x):
    b = bytes([1, 2])
    a = bytearray(b)
    a.append(3)
    a[0] = 9
    return x * len(a), b, bytes(a), a.hex(), int.from_bytes(b, "big"), memoryview(b)[0]


# === nested_identity
def f(x):
    a = [x]
    b = {"a": a, "b": a}
    a.append(b["a"][0] + 1)
    return b, b["a"] is b["b"], a


# === self_referential
def f(x):
    l = [x + 1]
    l.append(l)
    d = {}
    d["self"] = d
    return l


g = f


def f(x):
    l = g(x)
    return l[1] is l, l[0]


# === namedtuples
from collections import namedtuple
from typing import NamedTuple

P = namedtuple("P", "a b", defaults=[7])


class Q(NamedTuple):
    a: int
    b: object = None

    def total(self):
        return self.a + 1

    @property
    def twice(self):
        return self.a * 2


o = P(1, [2])


def f(x):
    p = P(x)
    q = Q(3, x)
    r = p._replace(b=x + 1)
    a, b = r
    o.b.append(q.total())
    return (
        p,
        q,
        r,
        a + b,
        q.twice,
        p._asdict(),
        P._fields,
        P._make([1, 2]),
        p.index(7) if False else 0,
        isinstance(p, tuple),
        len(p),
        p[0] + q.b,
        P._field_defaults,
        o.a,
        Q.__annotations__ is not None,
        p == (x, 7) if False else 1,
        P(1, 2) == P(1, 2),
        P(1, 2) < P(1, 3),
        P(1, 2) + (3,),
    )


S = lambda: o


# === namedtuple_arg
from collections import namedtuple

P = namedtuple("P", "a b")


def ARGS():
    return (P(torch.ones(3), {"k": torch.ones(3)}),)


def f(p):
    p.b["n"] = p.a + 1
    return p._replace(a=p.b["k"] * 2), p, type(p).__name__


# === namedtuple_with_new
from collections import namedtuple


class P(namedtuple("PB", "a b")):
    __slots__ = ()

    def __new__(cls, a, b=None):
        return super().__new__(cls, a, b if b is not None else a)

    def sum(self):
        return self.a + self.b


def f(x):
    p = P(x)
    return p.sum(), p._replace(b=1), P(1, 2).sum()


# === struct_seq
def f(x):
    v, i = torch.max(x, 0)
    m = x.sort()
    t = torch.topk(x, 2)
    return v, i, m.values, m.indices, m[0], t.values, torch.return_types.topk is type(t), torch.min(x, dim=0)


# === torch_size
def ARGS():
    return (torch.ones(2, 3, 4),)


def f(x):
    s = x.shape
    return (
        x.view(s[0], -1),
        s.numel(),
        s[1:],
        s == (2, 3, 4),
        s == torch.Size([2, 3, 4]),
        len(s),
        list(s),
        tuple(s),
        s[-1],
        s + (1,),
        s * 2,
        3 in s,
        s.index(3),
        s.count(4),
        isinstance(s, tuple),
        isinstance(s, torch.Size),
        torch.Size([1, 2]).numel(),
        s[:-1] + (2,),
        hash(s) == hash(torch.Size([2, 3, 4])),
        x.size(),
        x.size(0),
        x.dim(),
        x.ndim,
        x.stride(),
        x.numel(),
        type(s) is torch.Size,
        max(s),
        sorted(s),
        [*s],
        str(s),
        repr(s),
    )


# === dtypes_devices
def f(x):
    d = x.dtype
    v = x.device
    return (
        x.to(torch.float64),
        d.is_floating_point,
        d.is_complex,
        d.itemsize,
        d == torch.float32,
        str(d),
        v.type,
        v.index,
        str(v),
        v == torch.device("cpu"),
        torch.device("cpu", 0).index,
        torch.finfo(d).max,
        torch.finfo(d).eps,
        torch.finfo(torch.float16).min,
        torch.iinfo(torch.int32).max,
        torch.iinfo(torch.int8).bits,
        torch.finfo(d).dtype,
        d.to_complex(),
        {d: 1}[torch.float32],
        isinstance(d, torch.dtype),
        torch.promote_types(torch.int8, torch.float32),
        torch.result_type(x, 1),
        torch.can_cast(torch.float32, torch.int8),
        torch.is_floating_point(x),
        x.is_floating_point(),
        torch.get_default_dtype(),
        x.layout,
        torch.finfo(d).tiny,
        torch.finfo(d).smallest_normal,
        torch.finfo(d).bits,
        torch.finfo(d).resolution,
    )


# === finfo_arg
def ARGS():
    return (
        torch.ones(3),
        torch.finfo(torch.float32),
        torch.iinfo(torch.int64),
        torch.float16,
        torch.device("cpu"),
        torch.strided,
    )


def f(x, a, b, d, v, l):
    return x.clamp(max=a.max) + a.eps, b.max, x.to(d), torch.zeros(2, device=v), l is torch.strided
