"""Programs about objects: lists, tuples, dicts.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === list_methods
def f(x):
    l = [x, 1, x * 2]
    l.insert(1, "a")
    l.extend((3, 4))
    l.append(x + 1)
    l += [7]
    l *= 2
    l.remove("a")
    l.reverse()
    p = l.pop()
    q = l.pop(0)
    n = l.count(1)
    i = l.index(3)
    c = l.copy()
    c.clear()
    del l[0]
    del l[-2:]
    return l, p, q, n, i, c


# === list_sort
def f(x):
    l = [3, 1, 2]
    l.sort()
    m = sorted([(2, "b"), (1, "a")], key=lambda p: p[0], reverse=True)
    k = ["bb", "a", "ccc"]
    k.sort(key=len, reverse=True)
    k2 = sorted(k, key=str.lower)
    return x * l[0] + m[0][0], l, m, k, k2, list(reversed(l))


# === list_sort_tensors_by_key
def f(x):
    l = [(2, x), (1, x * 2)]
    l.sort(key=lambda p: p[0])
    return l[0][1] + l[1][1]


# === list_slices
def f(x):
    l = [1, 2, 3, 4, x]
    l[1:3] = [9]
    l[::2] = ["p", "q"]
    l[len(l) :] = [x + 1]
    a = l[::-1]
    b = l[-2:]
    del l[0:1]
    return l, a, b, l == [9, "q", x, 5] if False else 0


# === list_compare
def f(x):
    return (
        x + 1,
        [1, 2] < [1, 3],
        (1, 2) == (1, 2),
        [1] == [1],
        (1,) < (1, 2),
        [1, 2] != [1, 3],
        (1, 2) >= (1, 1),
        [] == (),
        not [],
        bool([0]),
    )


# === list_mul_add
def f(x):
    l = [0] * 3
    t = (1, 2) + (3,)
    u = [x] * 2 + [1]
    return u[0] + u[1] + sum(l), t * 2, u


# === older_list_all
L = [1, 2, 3]


def f(x):
    L.append(4)
    L.insert(0, 0)
    L[1] = 9
    L.pop()
    del L[0]
    L.reverse()
    L.sort()
    L += [5]
    L.extend(i for i in (7, 8))
    L.remove(5)
    return x * len(L) + L.index(7)


S = lambda: L


# === older_list_grows_by_append entries=1
L = []
d = {"a": L}


def f(x):
    L.append(x.sum())
    d["a"].append(2)
    return x + 1


S = lambda: L


# === older_list_grows_in_cells_and_attributes entries=1
class Log:
    pass


o = Log()
o.rows = [1]
h = o.rows


def make():
    seen = [0]

    def f(x):
        seen.append(len(h) and x * 2)
        o.rows.append((x, 1))
        o.rows.append(o.rows.append)
        del o.rows[-1]
        return x - 1

    return f, seen


f, seen = make()


def between():
    o.rows[1:] = []
    h[0] += 0


S = lambda: (seen, o.rows, h is o.rows)


# === older_list_is_read_after_append entries=3
def ARGS():
    return torch.ones(2), L


L = [torch.zeros(2)]


def f(x, l):
    l.append(x * 2)
    l.append(x + len(l))
    n = len(l)
    l.append(l[0] + n)
    return x * n, l[-1]


S = lambda: L


# === older_list_is_read_in_what_is_appended
L = [torch.zeros(2), 1]
M = [L]


def f(x):
    M[0].append(L[0] + len(L) + x)
    L.append(M[0].pop())
    M.append(M[0])
    return x + L[-1], [t for t in M[1]][1]


S = lambda: (L, len(M), M[-1] is L)


# === list_grows_while_it_is_iterated
L = [1, 2]


def f(x):
    for k in L:
        if k < 4:
            L.append(k + 2)
        x = x + k
    return x


def between():
    del L[2:]


S = lambda: L


# === older_list_nested
L = [[1], {"a": [2]}, (3, [4])]


def f(x):
    L[0].append(1)
    L[1]["a"].append(x)
    L[2][1].append(5)
    L[1]["b"] = L[0]
    return x * len(L[0]) + L[1]["a"][0]


S = lambda: (L, L[1]["b"] is L[0])


# === older_list_of_tensors
T = [torch.ones(3), torch.zeros(3)]


def f(x):
    T[0] = T[1] + x
    T.append(x)
    T[1].add_(1)
    return T[0] * len(T)


S = lambda: T


# === older_list_iter_and_mutate
L = [1, 2, 3]


def f(x):
    for v in list(L):
        L.append(v * 2)
    for i, v in enumerate(L):
        x = x + i * v
    return x


S = lambda: L


# === cache_append
class C:
    def __init__(self):
        self.k = []
        self.v = {}


c = C()


def f(x):
    c.k.append(x * 2)
    c.v[len(c.k)] = x
    return torch.cat(c.k) if len(c.k) > 1 else c.k[0]


S = lambda: (c.k, c.v)


# === tuple_methods
def f(x):
    t = (x, 1, 2, 1)
    return (
        t.count(2),
        t.index(2) if False else 0,
        t[1:],
        (1, 2).index(2),
        len(t),
        t + (3,),
        x in (1, 2) if False else 1,
    )


# === star_and_unpack
def f(x):
    a, *b = [x, 1, 2]
    *c, d = (1, 2, x)
    (e, g), h = (1, 2), 3
    return [*b, *c], {**{"a": 1}, "b": d}, {*b}, a + e + g + h


# === dict_methods
def f(x):
    d = dict(a=1, b=x)
    d.update(c=3)
    d.update({"d": 4})
    d.update([("e", 5)])
    s = d.setdefault("f", [])
    s.append(x)
    p = d.pop("a")
    q = d.pop("zz", None)
    i = d.popitem()
    d |= {"g": 7}
    e = d | {"h": 8}
    k = dict.fromkeys(["x", "y"], 0)
    c = d.copy()
    c.clear()
    del d["c"]
    return (
        d,
        p,
        q,
        i,
        e,
        k,
        c,
        d.get("nope"),
        d.get("nope", 2),
        "b" in d,
        len(d),
        list(d),
        list(d.keys()),
        list(reversed(d)),
        dict(zip("ab", (1, 2))),
    )


# === dict_views
def f(x):
    d = {"a": 1, "b": 2}
    e = {"b": 3, "c": 4}
    ks = d.keys() & e.keys()
    us = d.keys() | e.keys()
    ds = d.keys() - e.keys()
    xs = d.keys() ^ e.keys()
    it = d.items() & {("a", 1)}
    return (
        x + len(ks),
        sorted(us),
        sorted(ds),
        sorted(xs),
        it,
        "a" in d.keys(),
        ("a", 1) in d.items(),
        2 in d.values(),
        d.keys() == {"a", "b"},
        d.keys().isdisjoint(e),
        d.keys() <= {"a", "b", "c"},
    )


# === dict_view_live
def f(x):
    d = {"a": x}
    k = d.keys()
    v = d.values()
    i = d.items()
    d["b"] = x + 1
    return list(k), list(v)[1], len(i), k


# === dict_view_returned
def f(x):
    d = {"a": x, "b": x + 1}
    return d.keys(), d.values(), d.items()


S = lambda: 0


def wrap(f):
    return f


g = f


def f(x):
    k, v, i = g(x)
    return list(k), list(v), list(i), type(k)


# === dict_order
def f(x):
    d = {}
    for k in "cab":
        d[k] = x
    d.pop("c")
    d["c"] = 1
    return list(d.items()), sum(i for i, _ in enumerate(d)) + x


# === dict_tensor_keys
def f(x):
    y = x + 1
    d = {x: 1, y: 2}
    return x * d[x] + d[y], x in d, len(d)


# === dict_mixed_keys
class K:
    pass


k = K()


def f(x):
    d = {
        1: x,
        "a": 2,
        (1, 2): 3,
        None: 4,
        True: 5,
        2.5: 6,
        k: 7,
        int: 8,
        torch.float32: 9,
        len: 10,
        frozenset([1]): 11,
    }
    return (
        d[1] + 0 if False else x,
        d[(1, 2)],
        d[None],
        d[k],
        d[int],
        d[torch.float32],
        d[len],
        len(d),
        d[frozenset([1])],
    )


# === dict_comprehension
def f(x):
    d = {k: x * v for k, v in {"a": 1, "b": 2}.items() if v}
    s = {i % 2 for i in range(4)}
    return d, s, {v: k for k, v in dict(a=1).items()}


# === older_dict_all
D = {"a": 1, "b": [2]}


def f(x):
    D["c"] = x
    D.setdefault("d", []).append(len(D))
    D.update(e=5, a=D["a"] + 1)
    D.pop("e")
    D |= {"z": 0} if False else {}
    D["b"] += [3]
    D.setdefault("a", 9)
    del D["c"]
    D["t"] = x * 2
    return x * D["a"] + len(D["b"])


S = lambda: D
f.__globals__  # the |= above makes D local without this
exec(
    "def f(x):\n    global D\n    D['c'] = x; D.setdefault('d', []).append(len(D)); D.update(e=5, a=D['a'] + 1); D.pop('e'); D |= {'z': 0}\n    D['b'] += [3]; del D['c']; D['t'] = x * 2\n    return x * D['a'] + len(D['b'])"
)


# === older_dict_popitem_order
D = {"a": 1, "b": 2}


def f(x):
    k, v = D.popitem()
    D["n"] = v
    D[k] = v + 1
    return x * v, list(D)


S = lambda: list(D.items())


# === older_dict_clear
D = {"a": 1}


def f(x):
    n = len(D)
    D.clear()
    D["k"] = x
    return x * n


S = lambda: D


# === older_dict_in_dict_tensor
D = {"m": {"w": torch.ones(3)}, "l": [torch.zeros(3)]}


def f(x):
    D["m"]["w"] = D["m"]["w"] + x
    D["l"][0] += 1
    D["new"] = D["l"][0]
    return D["m"]["w"].sum()


S = lambda: (D, D["new"] is D["l"][0])


# === dict_arg_mutated
def ARGS():
    return torch.ones(3), {"a": torch.ones(3), "n": 1}


def f(x, d):
    d["n"] += 1
    d["b"] = d["a"] + x
    d.pop("a")
    return d["b"] * d["n"]


# === dict_arg_returned
def ARGS():
    return torch.ones(3), {"a": torch.ones(3)}


def f(x, d):
    d["b"] = x + 1
    return d


# === list_arg_identity
def ARGS():
    l = [torch.ones(3)]
    return l, l


def f(a, b):
    a.append(a[0] + 1)
    return b[1], a is b, len(b)
