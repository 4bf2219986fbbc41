"""with, match, class bodies, strings, the standard library.  Every program is one graph unless its decorator says otherwise."""

import copy
import functools
import inspect
import numbers
import os
import random
import re
import string
import sys
import time
import types
import weakref
from contextlib import (
    AbstractContextManager,
    ContextDecorator,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)

import torch
import torch.nn as nn
import torch.nn.functional as F

from lang_registry import prog


# ---- with
@contextmanager
def cm_mul(log, k):
    log.append("in")
    try:
        yield k
    finally:
        log.append("out")


class CM:
    def __init__(self, v):
        self.v = v
        self.log = []

    def __enter__(self):
        self.log.append("e")
        return self.v

    def __exit__(self, *a):
        self.log.append("x")
        return None


@prog
def w_contextmanager(x):
    log = []
    with cm_mul(log, 3) as k:
        x = x * k
    return x, log


@prog
def w_exc_in_cm(x):
    log = []
    try:
        with cm_mul(log, 3) as k:
            raise ValueError("q")
    except ValueError:
        x = x + 1
    return x, log


@prog
def w_cm_swallow(x):
    @contextmanager
    def sw():
        try:
            yield
        except ValueError:
            pass

    with sw():
        raise ValueError
    return x + 1


@prog
def w_class(x):
    c = CM(2)
    with c as v, CM(4) as w:
        x = x * v + w
    return x, c.log


@prog
def w_exitstack(x):
    log = []
    with ExitStack() as st:
        a = st.enter_context(cm_mul(log, 2))
        st.callback(log.append, "cb")
        st.push(lambda *a: log.append("push") and False)
        x = x * a
    return x, log


@prog
def w_exitstack_exc(x):
    log = []
    with ExitStack() as st:
        st.enter_context(suppress(ValueError))
        st.enter_context(cm_mul(log, 2))
        raise ValueError
    return x + 1, log


@prog
def w_null(x):
    with nullcontext(5) as v, nullcontext():
        x = x + v
    return x


@prog
def w_closing(x):
    class R:
        closed = False

        def close(self):
            self.closed = True

    r = R()
    with closing(r) as q:
        x = x + 1
    return x, r.closed


@prog
def w_abstract(x):
    class A(AbstractContextManager):
        def __exit__(self, *a):
            return False

    with A() as a:
        x = x + isinstance(a, A)
    return x


@prog
def w_decorator(x):
    log = []

    @cm_mul(log, 2)
    def f(t):
        return t * 2

    return f(x), log


@prog
def w_ctxdeco(x):
    class D(ContextDecorator):
        def __enter__(self):
            return self

        def __exit__(self, *e):
            return False

    @D()
    def f(t):
        return t + 1

    return f(x)


@prog
def w_return(x):
    log = []

    def f():
        with cm_mul(log, 1):
            return x + 1

    return f(), log


@prog
def w_loop_break(x):
    log = []
    for i in range(3):
        with cm_mul(log, i) as k:
            if k == 1:
                break
            if k == 0:
                continue
    return x + len(log), log


@prog
def w_nograd(x):
    with torch.no_grad():
        y = x * 2
        a = torch.is_grad_enabled()
    with torch.enable_grad():
        b = torch.is_grad_enabled()
    with torch.set_grad_enabled(False):
        c = torch.is_grad_enabled()
    return y, a, b, c, torch.is_grad_enabled()


@prog
def w_nograd_deco(x):
    @torch.no_grad()
    def f(t):
        return t * 2, torch.is_grad_enabled()

    return f(x)


@prog
def w_autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
    return y.dtype, y.float() + 1


@prog
def w_redirect(x):
    class C:
        def __enter__(s):
            return s

        def __exit__(s, a, b, c):
            return True

    with C():
        with C():
            raise KeyError
        x = x + 1
    return x


@prog
def w_generator_cm_throw(x):
    @contextmanager
    def c():
        try:
            yield 1
        except KeyError as e:
            raise ValueError("conv") from e

    try:
        with c():
            raise KeyError("k")
    except ValueError as e:
        return x + isinstance(e.__cause__, KeyError)


# ---- match
@prog
def m_literal(x):
    match x.shape[0]:
        case 1:
            return x
        case 3 | 4:
            return x * 2
        case _:
            return x - 1


@prog
def m_seq(x):
    match [1, x, 3]:
        case [a]:
            return a
        case [a, b, *rest]:
            return b * a + len(rest)


@prog
def m_seq_star_mid(x):
    match (1, 2, 3, 4):
        case (a, *m, b):
            return x * a + b + len(m)


@prog
def m_map(x):
    match {"k": x, "n": 2, "z": 1}:
        case {"k": t, "n": int(n), **rest}:
            return t * n + len(rest)


@prog
def m_guard(x):
    match 5:
        case n if n < 3:
            return x
        case n if n > 4:
            return x * n


@prog
def m_or_as(x):
    match ("a", [1, 2]):
        case (("a" | "b") as s, [int() as p, q]):
            return x * p + q + len(s)


@prog
def m_none_bool(x):
    r = []
    for v in (None, True, 1.5, "s", b"q", -3):
        match v:
            case None:
                r.append("none")
            case True:
                r.append("t")
            case float():
                r.append("f")
            case str(s):
                r.append(s)
            case bytes():
                r.append("b")
            case -3:
                r.append("m3")
    return x + len(r), r


@prog
def m_value(x):
    class C:
        A = 1
        B = 2

    match 2:
        case C.A:
            return x
        case C.B:
            return x + 2


@prog
def m_tensor(x):
    match x:
        case torch.Tensor():
            return x + 1


@prog
def m_shape(x):
    match x.shape:
        case (a, b):
            return x.reshape(b, a)
        case _:
            return x


@prog
def m_nomatch(x):
    match 3:
        case 4:
            x = x + 1
    return x * 2


@prog
def m_nested(x):
    match {"a": [1, {"b": (x, 2)}]}:
        case {"a": [_, {"b": (t, n)}]}:
            return t * n


@prog
def m_args(x):
    class Q:
        __match_args__ = ("u", "v")

        def __init__(s, u, v):
            s.u = u
            s.v = v

    match Q(1, x):
        case Q(1, t):
            return t + 1


@prog
def m_complex(x):
    match 3 + 4j:
        case 3 + 4j:
            return x + 4


# ---- class bodies
@prog
def k_class_closure(x):
    k = 3

    class A:
        n = k + 1

        def f(self, t):
            return t * k + self.n

    return A().f(x)


@prog
def k_class_loop(x):
    class A:
        v = 0
        for i in range(3):
            v += i
        del i

    return x + A.v


@prog
def k_class_annotations(x):
    class A:
        a: int = 1
        b: "str"

    return x + len(A.__annotations__) + A.a


@prog
def k_class_deco(x):
    def d(c):
        c.z = 5
        return c

    @d
    class A:
        pass

    return x + A.z


@prog
def k_class_setattr(x):
    class A:
        k = 1

    A.k = 4
    A.f = lambda self, t: t * self.k
    setattr(A, "w", 3)
    r = A().f(x) + A.w
    del A.w
    return r, hasattr(A, "w")


@prog
def k_type3(x):
    A = type("A", (), {"k": 3, "f": lambda s, t: t * s.k})
    return A().f(x), A.__name__


@prog
def k_inherit_module(x):
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.act = nn.ReLU()

        def forward(self, t):
            return self.act(t) + 1

    return M()(x)


@prog
def k_mutable_class_attr(x):
    class A:
        items = []

    A.items.append(1)
    A().items.append(2)
    return x + len(A.items)


@prog
def k_prop_cached(x):
    class A:
        @functools.cached_property
        def p(self):
            return x * 2

    a = A()
    return a.p + a.p


@prog
def k_class_method_alt(x):
    class A:
        @classmethod
        def make(cls, v):
            o = cls()
            o.v = v
            return o

    return A.make(x).v + 1


@prog
def k_new(x):
    class A:
        def __new__(cls, v):
            o = super().__new__(cls)
            o.v = v * 2
            return o

        def __init__(self, v):
            self.w = v

    a = A(x)
    return a.v + a.w


@prog
def k_singleton(x):
    class S:
        inst = None

        def __new__(cls):
            if cls.inst is None:
                cls.inst = super().__new__(cls)
            return cls.inst

    return x + (S() is S())


@prog
def k_subclass_list(x):
    class L(list):
        def total(self):
            return sum(self)

    l = L([x, x])
    l.append(x)
    return l.total(), len(l)


@prog
def k_subclass_dict(x):
    class D(dict):
        def __missing__(self, k):
            return 7

        def __getattr__(self, n):
            return self[n]

    d = D(a=x)
    return d.a * d["zz"]


@prog
def k_subclass_int(x):
    class I(int):
        def twice(self):
            return self * 2

    return x * I(3).twice() + I(2)


@prog
def k_subclass_str(x):
    class S(str):
        def sh(self):
            return self.upper()

    return x + 1, S("a").sh()


@prog
def k_subclass_tuple(x):
    class T(tuple):
        def s(self):
            return self[0] + self[1]

    return T((x, 1)).s()


@prog
def k_protocol_hash(x):
    class K:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return hash(self.n)

        def __eq__(self, o):
            return self.n == o.n

    d = {K(1): x, K(2): x + 1}
    return d[K(1)] + d[K(2)] * (K(1) in d)


@prog
def k_getattribute(x):
    class A:
        def __init__(self):
            self.v = 3

        def __getattribute__(self, n):
            if n == "zz":
                return 9
            return object.__getattribute__(self, n)

    a = A()
    return x * a.zz + a.v


@prog
def k_setattr_hook(x):
    class A:
        def __setattr__(self, n, v):
            object.__setattr__(self, n, v * 2)

    a = A()
    a.q = x
    return a.q


@prog
def k_dir_vars(x):
    class A:
        pass

    a = A()
    a.u = 1
    a.v = x
    return x + len(vars(a)), sorted(a.__dict__), "u" in dir(a)


@prog(graphs=2, breaks=1)
def k_weakref(x):
    class A:
        pass

    a = A()
    r = weakref.ref(a)
    return x + (r() is a)


@prog
def k_copy(x):
    l = [1, [2, 3]]
    a = copy.copy(l)
    b = copy.deepcopy(l)
    b[1].append(4)

    class A:
        pass

    o = A()
    o.v = [x]
    p = copy.copy(o)
    p.v.append(1)
    return x + len(a) + len(l[1]), b, len(o.v)


@prog
def k_deepcopy_tensor(x):
    y = x + 1
    d = copy.deepcopy({"a": y})
    return d["a"] * 2


@prog
def k_simplenamespace(x):
    n = types.SimpleNamespace(a=x, b=2)
    n.c = 3
    return n.a * n.b + n.c


@prog
def k_re(x):
    m = re.match(r"(\d+)-(\w+)", "12-ab")
    return (
        x + int(m.group(1)),
        m.groups(),
        re.sub("a", "b", "aa"),
        re.split(",", "a,b"),
        re.compile("x").findall("xx"),
        bool(re.search("q", "abc")),
    )


@prog
def k_string(x):
    return (
        x + 1,
        string.ascii_lowercase[:3],
        string.Template("$a").substitute(a=1),
        "{0.x}".format(types.SimpleNamespace(x=3)),
    )


@prog
def k_random(x):
    random.seed(0)
    return x * random.random()


@prog
def k_time(x):
    t = time.time()
    return x + 1


@prog
def k_sys(x):
    return x + (sys.maxsize > 0) + (sys.version_info >= (3, 8)) + (
        os.environ.get("NOPE_X", "5") == "5"
    ) + len(os.path.basename("/a/b")), sys.platform


@prog
def k_inspect(x):
    def f(a, b=1):
        return a

    return x + len(inspect.signature(f).parameters) + inspect.isfunction(f) + inspect.isclass(int) + callable(
        f
    ), f.__name__


@prog
def k_torch_misc(x):
    return (
        torch.is_tensor(x),
        torch.is_floating_point(x),
        x.is_floating_point(),
        x.numel(),
        x.size(),
        x.dim(),
        x.stride(),
        x.is_contiguous(),
        x.element_size(),
        x.device.type,
        x.dtype.is_floating_point,
        x.requires_grad,
        x.is_leaf,
        x.grad_fn is None,
        torch.finfo(x.dtype).eps,
        torch.iinfo(torch.int32).max,
        x.layout,
        torch.get_default_dtype(),
        x + 1,
    )


@prog
def k_size_ops(x):
    s = x.shape
    return (
        x.view(s[::-1]),
        x.new_zeros(s + (2,)),
        s.numel(),
        len(s),
        s == (3, 4),
        list(s),
        tuple(s),
        s[-1],
        x.reshape(-1),
        torch.Size([1, 2]),
        hash(s) == hash(torch.Size((3, 4))),
        x.view(*s, 1),
        x.expand(2, *s),
    )


@prog
def k_dtype_dict(x):
    return {torch.float32: x, torch.int64: 1}[x.dtype] + 1, str(x.dtype), x.dtype == torch.float32


@prog
def k_numbers(x):
    return x + isinstance(3, numbers.Number) + isinstance(2.5, numbers.Real)


@prog
def k_tensor_cond_shape(x):
    if x.shape[0] > 2 and x.ndim == 2 or False:
        return x + 1
    return x


@prog
def k_tensor_is_none(x):
    y = None
    if x is not None and y is None and not (x is y):  # noqa: E714  both spellings are tests
        return x + 1
    return x


@prog
def k_tensor_in_list(x):
    l = [x, x + 1]
    return x + (x in l)


@prog
def k_tensor_dict_key(x):
    d = {x: 1}
    return x + d[x]


@prog
def k_assert_tensor_type(x):
    assert torch.is_tensor(x) and x.dtype == torch.float32, "msg"
    return x + 1


@prog
def k_modlist(x):
    ml = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    for m in ml:
        x = m(x)
    return x, len(ml)


@prog
def k_star_expr(x):
    a = [*range(3), *(4, 5)]
    b = {**{"a": 1}, "b": 2}
    c = (*a, 6)
    d = {*a}
    f, *g = a
    *h, i = a
    (j, k), l = (1, 2), 3
    return x + sum(a) + len(b) + c[-1] + f + i + len(g) + len(h) + j + k + l


@prog
def k_swap(x):
    a, b = x, x + 1
    a, b = b, a
    return a - b


@prog
def k_chain_assign(x):
    a = b = c = x + 1
    a = a + 1
    return a + b + c, b is c


@prog
def k_slice_assign(x):
    l = [1, 2, 3, 4]
    l[1:3] = [9]
    l[::2] = [7, 7]
    del l[1:]
    return x + len(l), l


@prog
def k_augmented_attr(x):
    class A:
        v = 1

    a = A()
    a.v += 2
    a.v *= 3
    l = [1]
    l[0] += 5
    d = {"a": 1}
    d["a"] -= 3
    return x * a.v + l[0] + d["a"]


@prog
def k_global_func_attr(x):
    k_global_func_attr_helper.calls = 3
    return x + k_global_func_attr_helper.calls


def k_global_func_attr_helper():
    pass


@prog
def k_try_loop_else(x):
    for i in range(3):
        try:
            x = x + i
        except ValueError:
            break
        else:
            x = x * 2
        finally:
            x = x - 1
    else:
        x = x + 10
    return x


@prog
def k_fstr_nested(x):
    w = 10
    p = 3
    s = "abc"
    return (
        x + 1,
        f"{s!r:>{w}}",
        f"{3.14159:{w}.{p}f}",
        f"{s:^{w}}",
        f"{1000000:,}",
        f"{255:#x}",
        f"{0.25:%}",
        f"{'nested ' + f'{p}'}",
        f"{{}}",  # noqa: F541  escapes alone
        f"{x.shape=}",
    )


@prog
def k_print_fmt(x):
    return (
        "%5.2f|%-5s|%05d|%x|%%|%c" % (3.14159, "ab", 42, 255, "z"),
        x + 1,
        "{:<10}|{:^10}|{:+d}".format("a", "b", 5),
        "{a[0]}{b.real}".format(a=[1], b=2),
    )


@prog
def k_lambda_list(x):
    fs = [torch.sin, torch.cos, lambda t: t * 2, F.relu, nn.Tanh(), x.add]
    return sum(f(x) for f in fs)


@prog
def k_dict_of_fn(x):
    d = {"relu": F.relu, "tanh": torch.tanh}
    for n in sorted(d):
        x = d[n](x)
    return x


@prog
def k_nested_func_default(x):
    def f(a, b=[1, 2], *, c={"k": 3}):
        return a * b[1] + c["k"]

    return f(x)


@prog
def k_kwonly(x):
    def f(*, a, b=2):
        return a * b

    return f(a=x)


@prog
def k_posonly(x):
    def f(a, b, /):
        return a * b

    return f(x, 2)


@prog
def k_call_star_mix(x):
    def f(a, b, c, d=4, **k):
        return a * b + c + d + len(k)

    return f(x, *(2,), c=3, **{"d": 5, "e": 6})


@prog
def k_int_loop(x):
    n = 0
    while True:
        n += 1
        if n > 5:
            break
        x = x + n
    return x


@prog
def k_bool_ops_tensors(x):
    return (x > 0) & (x < 1), ~(x > 0), (x > 0) | (x < -1), x == x, x != x, x >= 0, x <= 0, (x > 0) ^ (x > 1)


@prog
def k_reflected(x):
    return (
        1 - x,
        2 / x,
        2**x,
        3 // x,
        5 % x,
        1 + x,
        2 * x,
        -x,
        +x,
        1 < x,
        [1.0, 2.0, 3.0, 4.0] + x if False else x,
    )


@prog
def k_tensor_ctor(x):
    return (
        torch.tensor([1.0, 2.0]) + 1,
        torch.tensor(3),
        torch.zeros(2, 3),
        torch.ones_like(x),
        torch.full((2,), 3.5),
        torch.arange(4),
        torch.eye(2),
        torch.as_tensor(x),
        torch.empty(2).fill_(1),
        x.new_tensor([1.0]),
        torch.linspace(0, 1, 3),
        torch.tensor([[1, 2], [3, 4]]),
        torch.scalar_tensor(2.0),
        torch.tensor(True),
    )


@prog
def k_type_conv(x):
    return (
        x.to(torch.float64),
        x.int(),
        x.long(),
        x.half(),
        x.bool(),
        x.to("cpu"),
        x.type(torch.float64),
        x.double(),
        x.to(x.dtype),
        x.type_as(x.double()),
        x.type(),
    )
