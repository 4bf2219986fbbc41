"""Programs about objects: iterators, the tools of the standard library, subclasses of containers.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === iterators_fresh
def f(x):
    i = iter([1, 2, 3])
    a = next(i)
    z = zip([1, 2], [x, x + 1])
    p, q = next(z)
    e = enumerate("ab", 1)
    m = map(lambda v: v * 2, [1, 2])
    r = reversed([1, 2])
    return (
        x * a + p,
        list(i),
        next(e),
        list(m),
        next(r),
        list(z),
        next(iter({}), "none"),
        list(filter(None, [0, 1])),
        list(iter(lambda: 1, 1)),
    )


# === iterators_returned
import itertools


def f(x):
    return (
        iter([x, 1]),
        enumerate([x]),
        zip([1], [x]),
        itertools.count(3),
        map(str, [1]),
        itertools.chain([x], [2]),
        range(3),
        reversed([1, x]),
    )


g = f


def f(x):
    a = g(x)
    return next(a[0]), next(a[1]), next(a[2]), next(a[3]), next(a[4]), list(a[5]), list(a[6]), list(a[7])


# === iterators_half_consumed
def f(x):
    i = iter([x, x + 1, x + 2])
    next(i)
    e = enumerate(["a", "b", "c"])
    next(e)
    d = iter({"a": 1, "b": 2})
    next(d)
    return i, e, d


g = f


def f(x):
    a = g(x)
    return list(a[0]), list(a[1]), list(a[2])


# === iterator_arg
def ARGS():
    return torch.ones(3), iter([1, 2, 3])


def f(x, it):
    return x * next(it) + next(it)


g = f


# === older_count breaks=1
import itertools

C = itertools.count(5)
N = iter(range(100))
L = iter([1, 2, 3, 4, 5, 6, 7])


def f(x):
    return x * next(C) + next(N) + next(L)


# === older_iterators
L = [1, 2, 3, 4, 5]
I = iter(L)
T = iter((1, 2, 3))
R = iter(range(3, 60, 2))
V = reversed(L)
W = reversed((4, 5, 6))
E = enumerate([1.5, 2.5], 3)
Z = zip(L, range(2))
K = zip(iter([7, 8, 9, 10]), enumerate([1, 2, 3, 4]), strict=True)
B = iter([torch.ones(3), torch.zeros(3)])


def f(x):
    for i in V:
        x = x + i
        break
    return (
        x * next(I) + next(R) - next(W),
        next(T),
        next(E, None),
        list(Z),
        next(K),
        next(B, x) + 1,
        I is iter(I),
    )


S = lambda: [i.__reduce__() for i in (I, T, R, V, W, E, Z, K)]


# === older_iterator_whose_list_grows
L = [1, 2]
I = iter(L)


def f(x):
    L.append(3)
    y = x * next(I)
    L.append(4)
    return y


S = lambda: (L, I)


# === older_iterator_positions_recompile_once breaks=1 entries=6
I = iter(range(100))


def f(x):
    return x * next(I)


S = lambda: I


# === older_iterator_in_broken_loop breaks=1
def ARGS():
    return torch.ones(3), iter([1, 2, 3, 4])


def f(x, it):
    for i in it:
        x = x + i
        print(i)
    return x, it


# === older_iterator_exhausted
def ARGS():
    return torch.ones(3), iter([1, 2]), reversed((1, 2)), iter(range(2)), zip([1], iter([1, 2]))


def f(x, *its):
    return [sum(i) if j < 3 else list(i) for j, i in enumerate(its)], [next(i, None) for i in its], x + 1


# === older_cycle breaks=1
import itertools

C = itertools.cycle([1, 2, 3])


def f(x):
    return x * next(C) + 1


# === older_generator breaks=1
G = (i for i in range(100))


def f(x):
    return x * next(G) + 1


# === enumerate_zip_strict
def f(x):
    try:
        list(zip([1], [1, 2], strict=True))
        e = 0
    except ValueError as ex:
        e = str(ex)
    for i, (a, b) in enumerate(zip([1, 2], [x, x]), start=2):
        x = x + i * a * b
    return x, e


# === itertools_all
import itertools


def f(x):
    return (
        x + 1,
        list(itertools.chain.from_iterable([[1], [2]])),
        list(itertools.islice(itertools.count(), 2, 6, 2)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.product("ab", [1])),
        list(itertools.permutations([1, 2])),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.zip_longest([1], [2, 3], fillvalue=0)),
        list(itertools.repeat(1, 2)),
        list(itertools.takewhile(lambda v: v < 2, [1, 2])),
        list(itertools.dropwhile(lambda v: v < 2, [1, 2])),
        [(k, list(g)) for k, g in itertools.groupby("aab")],
        list(itertools.starmap(pow, [(2, 3)])),
        list(itertools.pairwise([1, 2, 3])),
        list(itertools.compress("abc", [1, 0, 1])),
        [list(t) for t in itertools.tee([1, 2])],
        list(itertools.filterfalse(None, [0, 1])),
        list(itertools.accumulate([x, x], lambda a, b: a + b))[1],
    )


# === heapq_bisect_array
import heapq, bisect, array

H = [3, 1, 2]


def f(x):
    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    m = heapq.heappop(h)
    i = bisect.bisect([1, 3], 2)
    l = [1, 3]
    bisect.insort(l, 2)
    heapq.heapify(H)
    heapq.heappush(H, len(H))
    return x * m + i, h, l, heapq.nlargest(2, [1, 5, 3]), H[0]


S = lambda: H


# === functools_things
import functools, operator


def f(x):
    p = functools.partial(torch.add, alpha=2)
    r = functools.reduce(operator.add, [x, x, 1])
    k = functools.cmp_to_key(lambda a, b: b - a)
    return (
        p(x, x),
        r,
        sorted([1, 3, 2], key=k),
        p.func is torch.add,
        p.keywords,
        functools.reduce(lambda a, b: a * b, [1, 2, 3], 1),
    )


# === operator_things
import operator


class C:
    a = 1


def f(x):
    return (
        operator.add(x, 1),
        operator.itemgetter(1)([1, x]),
        operator.attrgetter("a")(C),
        operator.methodcaller("upper")("a"),
        operator.mul(2, 3),
        operator.truth([]),
        operator.contains([1], 1),
        operator.is_(None, None),
        operator.neg(x),
        operator.getitem([x], 0),
        operator.iadd(x.clone(), 1),
        operator.concat([1], [2]),
        operator.index(3),
        operator.setitem({}, 1, 2),
        operator.length_hint([1]),
        operator.itemgetter(0, 1)((1, 2)),
        operator.not_(0),
        operator.matmul(x, x),
    )


# === list_subclass
class L(list):
    def total(self):
        return sum(self)

    def append(self, v):
        super().append(v * 2)


O = L([1])
O.tag = "t"


def f(x):
    l = L([1, 2])
    l.append(3)
    l.note = x
    O.append(5)
    O.tag += "u"
    return x * l.total(), l[2], l.note, len(O), type(l).__name__, l + [1], isinstance(l, list)


S = lambda: (list(O), O.tag)


# === dict_subclass
class D(dict):
    def __missing__(self, k):
        self[k] = k * 2
        return self[k]

    def __getattr__(self, k):
        try:
            return self[k]
        except KeyError:
            raise AttributeError(k)

    def __setattr__(self, k, v):
        self[k] = v


O = D(a=1)


def f(x):
    d = D()
    d.y = x
    O.n = O.get("n", 0) + 1
    O["zz"]
    return d.y + d["q"].__len__() + O.a, hasattr(d, "no"), O.n, dict(d)


S = lambda: dict(O)


# === set_subclass
class Z(set):
    def addall(self, *v):
        for i in v:
            self.add(i)
        return self


class FZ(frozenset):
    pass


O = Z([1])


def f(x):
    s = Z()
    s.addall(1, 2)
    O.addall(len(O) + 1)
    return x * len(s) + len(O), sorted(s), 2 in s, FZ([1, 2]) & {1}, type(s | {3}).__name__


S = lambda: sorted(O)


# === tuple_subclass
class T(tuple):
    def first(self):
        return self[0]


def f(x):
    t = T((x, 1))
    return t.first(), t, len(t), T([1, 2]) == (1, 2), type(t[0:1]).__name__


# === str_int_subclass
class Str(str):
    def shout(self):
        return self.upper() + "!"


class Int(int):
    def plus(self, n):
        return Int(self + n)

    @property
    def half(self):
        return self // 2


class Float(float):
    pass


s = Str("ab")
n = Int(6)


def f(x):
    return (
        x * n.half + n.plus(1),
        s.shout(),
        Str("q") + "r",
        n == 6,
        {s: 1}["ab"],
        Float(2.5) * 2,
        x * Float(1.5),
        isinstance(n, int),
        type(n).__name__,
        n + 1,
        x + Int(2),
    )


# === simple_namespace
import types

N = types.SimpleNamespace(a=1, l=[])


def f(x):
    n = types.SimpleNamespace(t=x, k=2)
    n.z = n.t * n.k
    N.a += 1
    N.l.append(x)
    N.new = x + 1
    return (
        n.z * N.a,
        vars(n).keys() == {"t", "k", "z"},
        n,
        len(N.l),
        n == types.SimpleNamespace(k=2) if False else 0,
    )


S = lambda: vars(N)


# === list_contains_objects
class C:
    def __eq__(self, o):
        return isinstance(o, C)

    __hash__ = None


def f(x):
    return (
        x + 1,
        C() in [1, C()],
        [C()] == [C()],
        [C()].index(C()),
        [1, C()].count(C()),
        (C(),) == (C(),),
        C() != 3,
    )


# === any_all_sum_minmax
def f(x):
    return (
        x + sum([1, 2], 3),
        any(v > 1 for v in [1, 2]),
        all([]),
        min(3, 1),
        max([1, 5], key=lambda v: -v),
        min([], default=4),
        sum([[1], [2]], []),
        sum([x, x]),
        max("abc"),
        abs(-2),
        divmod(7, 2),
        round(2.567, 1),
        pow(2, 3, 5),
        sum(v for v in (1.5, 2)),
    )


# === dict_iteration_error
def f(x):
    d = {"a": 1}
    try:
        for k in d:
            d[k + "x"] = 1
    except RuntimeError as e:
        return x + 1, str(e)


# === errors_from_containers
NONE = None


def f(x):
    out = []
    for g in (
        lambda: {}["a"],
        lambda: [][0],
        lambda: [].pop(),
        lambda: {}.popitem(),
        lambda: set().pop(),
        lambda: (1).foo,
        lambda: [].remove(1),
        lambda: {[]: 1},
        lambda: 1 + "a",
        lambda: len(3),
        lambda: int("z"),
        lambda: next(iter([])),
        lambda: [1][::0],
        lambda: {1} + {2},
        lambda: (1, 2)[5],
        lambda: NONE(),
        lambda: [1, 2].index(5),
        lambda: iter(4),
        lambda: "a" < 1,
        lambda: [] < 1,
    ):
        try:
            g()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return x * len(out), out


# === pytree_use
import torch.utils._pytree as pytree


def f(x):
    leaves, spec = pytree.tree_flatten({"a": x, "b": [x + 1, (2, x)]})
    r = pytree.tree_map(lambda t: t * 2, [x, {"k": x}])
    u = pytree.tree_unflatten(leaves, spec)
    return leaves[1] + leaves[0], r, u, len(leaves), pytree.tree_all(lambda v: True, r)


# === del_items_older
D = {i: i for i in range(5)}
L = list(range(10))


def f(x):
    del D[min(D)]
    del L[0]
    L[1:3] = []
    D.pop(max(D), None)
    return x * len(D) + len(L)


S = lambda: (D, L)


# === list_of_lists_alias
a = [1]
L = [a, a]


def f(x):
    L[0].append(2)
    L[1].append(3)
    L.append(a)
    return x * len(a), L[0] is L[1]


S = lambda: (L, L[0] is a, L[-1] is a)


# === swap_items
D = {"a": torch.zeros(3), "b": torch.ones(3)}
L = [1, 2, 3]


def f(x):
    D["a"], D["b"] = D["b"], D["a"]
    L[0], L[-1] = L[-1], L[0]
    return D["a"] + x * L[0]


S = lambda: (D, L)


# === containers_of_modules
m = [torch.nn.ReLU(), torch.nn.Tanh()]
d = {"r": torch.nn.Sigmoid()}


def f(x):
    for l in m:
        x = l(x)
    m.append(d["r"])
    return d["r"](x)


S = lambda: [type(l).__name__ for l in m]


# === dict_views_from_outside entries=1
from collections import OrderedDict

d = {"a": 1, "b": 2}
o = OrderedDict(p=torch.ones(2), q=2)


def ARGS():
    return torch.ones(2), d.keys(), d.values(), o.items()


def f(x, k, v, i):
    return (
        x + ("b" in k) + len(v) + sum(v),
        list(k),
        [n for n, _ in i],
        [t for _, t in i][0] * 2,
        k & {"a", "z"},
        list(reversed(k)),
        k,
    )


# === dict_view_changes_outside entries=3
d = {"a": 1, "b": 2}
n = [0]


def ARGS():
    return torch.ones(2), d.keys()


def between():
    n[0] += 1
    d[n[0]] = 0


def f(x, k):
    return x + len(k) if 2 in k else x - len(k)


# === dict_view_of_a_dict_that_is_written
d = {"a": 1}
v = d.items()


def f(x):
    d["n"] = x
    r = len(v), "n" in d.keys(), [k for k, _ in v]
    del d["n"]
    return x + 1, r


S = lambda: (list(v), d)


# === maps_over_containers_by_torch_fx
from torch.fx.node import map_aggregate, map_arg
from collections import namedtuple

P = namedtuple("P", "a b")
L = [[1, 2], {"a": slice(1, 3)}]


def f(x):
    m = map_aggregate([x, (1, P(x * 2, 3))], lambda v: v * 2)
    n = map_aggregate(L, lambda v: v if v is None else v + 1)
    try:
        m.append(x)
    except TypeError:
        x = x + 1
    return x, m, type(m), n, type(n[1]), map_arg(L, lambda v: 1 / 0)


# === frozenset_subclass
class F(frozenset):
    def __init__(self, *a):
        self.n = len(self)


class G(frozenset):
    def __iter__(self):
        log.append("iter")
        return super().__iter__()

    def __contains__(self, k):
        log.append("in")
        return super().__contains__(k)


log = []


class H:
    s = F([1, 2, 3])
    t = G([3, 4])
    u = frozenset("ab")


h = H()


def f(x):
    s, t = h.s, h.t
    return (
        x * len(s) + s.n,
        sorted(s),
        3 in s,
        s | t,
        s == t,
        s - {3},
        type(s.copy()).__name__,
        4 in t,
        t.issubset(s),
        list(t),
        t & s,
        s.union(h.u) == h.u | s,
    )


between = lambda: setattr(h, "s", F([3, 2]))
S = lambda: log
