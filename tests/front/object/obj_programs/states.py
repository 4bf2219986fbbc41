"""Programs about objects: effects with exceptions, cells, the random state, formatting.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)

# === memo_decorator
memo = {}


def cached(fn):
    def w(n):
        if n not in memo:
            memo[n] = fn(n)
        return memo[n]

    return w


@cached
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def f(x):
    return x * fib(6)


S = lambda: memo


# === effects_then_exception
log = []
D = {}


def f(x):
    log.append(1)
    D["a"] = x + 1
    if x.shape[0] == 3:
        raise ValueError("stop")
    return x


S = lambda: (log, D)


# === effects_caught_exception
log = []


def g(x):
    log.append("g")
    x.add_(1)
    raise KeyError("k")


def f(x):
    try:
        g(x)
    except KeyError:
        log.append("caught")
    finally:
        log.append("fin")
    return x * 2


S = lambda: log


# === nested_cells_shared
def mk():
    a = 0
    t = torch.zeros(3)

    def inc(x):
        nonlocal a, t
        a += 1
        t = t + x
        return t * a

    def get():
        return a, t

    return inc, get


i, g = mk()


def f(x):
    return i(x) + i(x) + g()[0]


S = lambda: g()


# === global_function_replaced
def h(x):
    return x + 1


def k(x):
    return x * 10


def f(x):
    global h
    y = h(x)
    h = k
    return y + h(x)


S = lambda: h is k


# === dict_of_views
T = torch.zeros(4)
V = {"v": T[1:3]}


def f(x):
    V["v"].add_(1)
    T.mul_(2)
    V["w"] = T.view(2, 2)
    return T + V["v"].sum(), V["w"]


S = lambda: (T, V["v"])


# === list_default_grow
def g(v, acc=[]):
    acc.append(v)
    return acc


def f(x):
    return x * len(g(1)) + len(g(2))


S = lambda: g.__defaults__


# === rng_state breaks=1
def f(x):
    torch.manual_seed(5)
    a = torch.rand(3)
    s = torch.get_rng_state() if False else 0
    b = torch.randn(3)
    return a + b + x


S = lambda: torch.rand(2)


# === formatting_guarded
class C:
    name = "n"


c = C()
c.v = 3


def f(x):
    s = "{0.v} {0.name}".format(c)
    c.v += 1
    t = f"{c.v}"
    return x * len(s) + int(t), s, t


S = lambda: c.v


# === sorted_attrgetter
import operator


class C:
    def __init__(self, n):
        self.n = n

    def get(self, k=0):
        return self.n + k


L = [C(3), C(1), C(2)]


def f(x):
    L[0].n += 10
    a = sorted(L, key=operator.attrgetter("n"))
    b = max(L, key=operator.methodcaller("get", k=1))
    L.sort(key=operator.attrgetter("n"))
    return x * a[0].n + b.n, [c.n for c in L], operator.attrgetter("n", "get")(L[0])[0]


S = lambda: [c.n for c in L]


# === from_numpy_changes breaks=1
import numpy as np

a = np.ones(3, dtype=np.float32)


def f(x):
    y = torch.from_numpy(a) + x
    z = torch.as_tensor(a) * 2
    w = torch.tensor(a)
    return y + z + w


def between():
    a[0] += 1


# === numpy_scalar_guard
import numpy as np

c = [np.float32(2)]


def f(x):
    return x * float(c[0]), torch.full((2,), c[0].item())


def between():
    c[0] = np.float32(c[0] + 1)


# === dir_sees_writes
class C:
    pass


c = C()
c.a = 1


def f(x):
    c.b = x
    n = [k for k in dir(c) if k[0] != "_"]
    del c.a
    c.a = 2
    return x * len(n), n, [k for k in sorted(c.__dir__()) if k[0] != "_"]


# === vars_alias
class C:
    pass


c = C()
c.a = 1


def f(x):
    d = vars(c)
    d["a"] += 1
    c.b = d["a"]
    e = dict(d)
    e["z"] = 1
    return x * c.a + d["b"], sorted(e), d is c.__dict__


S = lambda: vars(c)
