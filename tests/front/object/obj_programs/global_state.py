"""Programs about objects: globals, tensors that are written, printing, warnings, the state of torch.  See obj_harness."""
# ruff: noqa (each program is compiled alone, with torch at hand: names are bound again and again)


# === dict_past_a_data_descriptor
class Field:
    def __set__(self, o, v):
        o.__dict__["field"] = o.__dict__.get("field", 0) + v * 2

    def __delete__(self, o):
        del o.__dict__["field"]


class C:
    field = Field()


c = C()
c.field = 1
d = C()
d.field = 1


def f(x):
    c.field = 10
    del d.field
    y = x + c.field
    d.field = 3
    return y


S = lambda: (c.__dict__, d.__dict__)


# === attributes_of_results
def f(x):
    y = x + 1
    y.tag = "a"
    y.other = x * 2
    z = y * len(y.tag) + y.other
    del y.tag
    y.tag = (y.shape[0], z)
    return y, y.tag, y.other, hasattr(y, "nope"), y.__dict__["tag"] is y.tag


# === copies_of_older_sets
import copy

A = {1, 2}
B = [{3}, (4, {5})]


def f(x):
    a = copy.deepcopy(A)
    b = copy.deepcopy(B)
    c = copy.copy(A)
    a.add(7)
    b[0].add(8)
    return x + len(a), a, b, c


S = lambda: (A, B)


# === named_results
def f(x):
    r = torch.return_types.max((x.max(), x.argmax()))
    return r, torch.max(x, 0), r.values + 1


# === globals_call
N = 0


def f(x):
    globals()["N"] = N + 1
    g = globals()
    y = x * g["N"] + g.get("Q", 5)
    ok = "N" in g
    g["Z"] = x
    del g["Z"]
    return y, ok, N, "Z" in globals(), g.setdefault("K", 3)


S = lambda: (N, K)


# === module_dict
import types

M = types.ModuleType("mm")
M.k = 1


def f(x):
    d = M.__dict__
    d["k"] = d["k"] + 1
    M.z = x
    y = vars(M)["k"] + getattr(M, "k")
    setattr(M, "w", 2)
    del M.z
    return x * y + M.w, hasattr(M, "z"), "k" in M.__dict__


S = lambda: (M.k, M.w)


# === dict_behind_a_property
class C:
    @property
    def v(self):
        return self.__dict__["v"] * 10

    @property
    def w(self):
        return "w" in self.__dict__


c = C()
c.__dict__["v"] = 1
c.__dict__["w"] = 2


def f(x):
    d = c.__dict__
    d["v"] = d["v"] + 1
    if "w" in d:
        del d["w"]
    n = C()
    n.__dict__["v"] = x
    return x * c.v, c.w, n.v, n


S = lambda: (c.__dict__, c.v, c.w)


# === mapping_proxy
import types

P = {"a": 1}


def f(x):
    own = {"k": 2}
    p = types.MappingProxyType(own)
    q = types.MappingProxyType(P)
    own["z"] = 1
    return (
        p,
        dict(p),
        x * p["k"] + q["a"],
        [k for k in iter(p).__iter__()],
        [1, 2].__iter__().__iter__().__next__(),
        iter((3, x)).__iter__(),
    )


# === function_globals
G = 1


def h():
    return G


def f(x):
    h.__globals__["G"] = G + 1
    return x * h() + G


S = lambda: G


# === context_var
import contextvars

V = contextvars.ContextVar("V", default=1)
W = contextvars.ContextVar("W")
W.set(5)


def f(x):
    a = V.get()
    t = V.set(a + 1)
    b = V.get()
    u = W.set(x)
    c = W.get() + b
    W.reset(u)
    return c, W.get(), V.get(), V.name


S = lambda: (V.get(), W.get())


# === context_var_guard
import contextvars

V = contextvars.ContextVar("V", default=1)


def f(x):
    return x * V.get()


def between():
    V.set(V.get() + 1)


# === order_of_effects
log = []


class C:
    def __setattr__(self, n, v):
        log.append(n)
        object.__setattr__(self, n, v)


c = C()
D = {}
N = 0


def f(x):
    global N
    c.a = 1
    log.append("m")
    D["k"] = len(log)
    N = N + D["k"]
    c.b = x
    log.extend(["e", N])
    return x * N


S = lambda: (log, D, N, c.a)


# === inplace_inputs
def ARGS():
    return torch.ones(4), torch.zeros(4)


def f(a, b):
    a.add_(1)
    b[1:3] = a[:2] * 2
    v = a.view(2, 2)
    v.mul_(3)
    a[0] = 9
    b.copy_(b + v.reshape(-1))
    return a.sum() + b, v


# === inplace_alias_args
def ARGS():
    t = torch.ones(4)
    return t, t.view(2, 2), t[1:]


def f(a, b, c):
    b.mul_(2)
    c.add_(1)
    return a + 0, b.sum(), c * a[1:]


# === inplace_global_and_buffer
T = torch.ones(3)
L = [torch.zeros(3)]


def f(x):
    T.add_(x)
    L[0].sub_(T)
    T[0] = 5
    L.append(T * 2)
    return T + L[0] + L[-1]


S = lambda: (T, L)


# === identity_kept
def ARGS():
    t = torch.ones(3)
    return t, [t], {"t": t}


def f(a, l, d):
    l.append(a)
    d["u"] = l
    b = a + 1
    d["b"] = b
    l.append(b)
    return a, l, d, l[0] is a, d["b"] is l[2]


g = f


def f(a, l, d):
    r = g(a, l, d)
    return r[0] is a, r[1] is l, r[2]["u"] is l, r[2]["b"] is l[2], l


# === returns_input_and_view
def ARGS():
    return (torch.ones(2, 3),)


def f(a):
    return a, a.t(), a[0], [a, a]


g = f


def f(a):
    r = g(a)
    r[1].add_(1)
    return r[0] is a, r[3][0] is r[3][1], a, r[2]


# === tensor_attrs
T = torch.ones(3)
T.tag = "x"
T.n = 0


def f(x):
    T.n += 1
    T.extra = x * 2
    x.mine = T.n
    return T.extra * T.n + x.mine, T.tag, hasattr(T, "nope")


S = lambda: (T.n, T.extra)


# === requires_grad_inside
def f(x):
    y = x.clone().requires_grad_()
    z = (y * 2).sum()
    return z, y.requires_grad, z.requires_grad


# === print_middle breaks=1 graphs=2
def f(x):
    y = x + 1
    print("hello", 3)
    return y * 2


# === print_tensor breaks=1
def f(x):
    y = x + 1
    print(y)
    return y * 2


# === logging_disabled breaks=1
import logging

L = logging.getLogger("obj_test")
L.setLevel(logging.ERROR)


def f(x):
    L.info("nothing %s", 1)
    L.debug("x")
    return x + 1, L.isEnabledFor(logging.DEBUG)


# === logging_enabled breaks=1
import logging


class H(logging.Handler):
    out = []

    def emit(self, r):
        self.out.append(r.getMessage())


L = logging.getLogger("obj_test2")
L.setLevel(logging.INFO)
L.propagate = False
L.addHandler(H())


def f(x):
    L.info("v %s", 1)
    return x + 1


S = lambda: H.out


# === warn breaks=1
import warnings


def f(x):
    warnings.warn("careful")
    return x + 1


# === warn_catch breaks=1
import warnings


def f(x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = x + 1
        warnings.warn("q")
    return y


# === random_reads breaks=1
import random

random.seed(3)


def f(x):
    return x * random.random() + random.randint(1, 5)


S = lambda: random.random()


# === time_reads breaks=1
import time


def f(x):
    t = time.time()
    y = x + 1
    return y, time.time() >= t, time.perf_counter() > 0


# === environ
import os

os.environ["OBJ_T"] = "2"


def f(x):
    return (
        x * int(os.environ["OBJ_T"]),
        os.environ.get("OBJ_NOPE", "d"),
        "OBJ_T" in os.environ,
        os.getenv("OBJ_T"),
    )


def between():
    os.environ["OBJ_T"] = str(int(os.environ["OBJ_T"]) + 1)


# === environ_write breaks=1
import os


def f(x):
    os.environ["OBJ_W"] = "1"
    return x + 1, os.environ["OBJ_W"]


S = lambda: os.environ.get("OBJ_W")


# === default_dtype_inside
def f(x):
    torch.set_default_dtype(torch.float64)
    y = torch.zeros(3)
    torch.set_default_dtype(torch.float32)
    return x + y, torch.zeros(2).dtype, torch.get_default_dtype()


# === default_dtype_left
def f(x):
    torch.set_default_dtype(torch.float64)
    return torch.zeros(3) + x


def between():
    torch.set_default_dtype(torch.float32)


S = lambda: torch.get_default_dtype()


# === python_module_setattr
import types


class Config(types.ModuleType):
    def __setattr__(self, k, v):
        super().__setattr__("writes", vars(self).get("writes", 0) + 1)
        super().__setattr__(k, v)

    def __delattr__(self, k):
        super().__delattr__(k)
        super().__setattr__("gone", k)


c, m = Config("c"), types.ModuleType("m")


def f(x):
    c.k = vars(c).get("k", 1) * 2
    c.t = x
    del c.t
    types.ModuleType.__setattr__(m, "n", getattr(m, "n", 0) + 1)
    m.z = m.n
    return x * c.k * c.writes, m.n


S = lambda: (c.k, c.writes, c.gone, m.n, m.z)


# === deterministic_inside
def f(x):
    torch.use_deterministic_algorithms(True)
    a = torch.are_deterministic_algorithms_enabled()
    y = x + 1
    torch.use_deterministic_algorithms(False, warn_only=True)
    return y, a, torch.are_deterministic_algorithms_enabled()


S = lambda: torch.are_deterministic_algorithms_enabled()


# === deterministic_left
def f(x):
    torch.use_deterministic_algorithms(True, warn_only=True)
    return x + 1


S = lambda: (
    torch.are_deterministic_algorithms_enabled(),
    torch.is_deterministic_algorithms_warn_only_enabled(),
)


def between():
    torch.use_deterministic_algorithms(False)


# === threads_inside breaks=1
def f(x):
    n = torch.get_num_threads()
    torch.set_num_threads(1)
    y = x + 1
    torch.set_num_threads(n)
    return y, torch.get_num_threads() == n


# === default_device_inside
def f(x):
    with torch.device("cpu"):
        y = torch.ones(3)
    return x + y


# === inference_mode_inside graphs=1
def f(x):
    with torch.inference_mode():
        y = x + 1
        a = torch.is_inference_mode_enabled()
    return a, torch.is_inference_mode_enabled(), y


# === inference_mode_left breaks=1
M = torch.inference_mode()


def f(x):
    M.__enter__()
    y = x + 1
    print("in", torch.is_inference_mode_enabled())
    M.__exit__(None, None, None)
    return y * 2, torch.is_inference_mode_enabled()


# === inference_mode_abandoned breaks=1
def g(x):
    with torch.inference_mode():
        print("a")
        return x * 2


def f(x):
    return g(x) + 1, torch.is_inference_mode_enabled()


# === inference_mode_decorator graphs=1
@torch.inference_mode()
def g(x):
    return x * 2


def f(x):
    y = g(x)
    return y, y.requires_grad, torch.is_inference_mode_enabled(), torch.is_grad_enabled()


# === grad_modes
def f(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
        y = x + 1
        with torch.enable_grad():
            b = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        c = torch.is_grad_enabled()
    return y, a, b, c, torch.is_grad_enabled()


# === autocast_inside
def f(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x.view(1, 3) @ torch.ones(3, 2)
    return y, torch.is_autocast_enabled("cpu")
