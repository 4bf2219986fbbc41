"""Functions, containers, strings, the standard library, constants of tensors.  One graph unless the decorator says otherwise."""

import collections
import contextlib
import copy
import functools
import math
import types
import typing

import torch
import torch.nn as nn
import torch.nn.functional as F

from lang_registry import prog

R = torch.randn


# test_functions style
@prog(lambda: (R(3), R(3)))
def f_inline_jit(a, b):
    @torch.jit.ignore
    def q(t):
        return t + 1

    return q(a) * b


@prog(lambda: (R(3),))
def f_is_tensor_like(x):
    return x + torch.overrides.is_tensor_like(x) if hasattr(torch, "overrides") else x


@prog(lambda: (R(3),))
def f_get_default_dtype(x):
    return x + 1, torch.get_default_dtype() == torch.float32


@prog(lambda: (R(3),))
def f_device_ctor(x):
    return (
        torch.zeros(2, device=torch.device("cpu")),
        torch.ones(2, device=x.device),
        x.to(torch.device("cpu"), torch.float64),
    )


@prog(lambda: (R(2, 3),))
def f_transpose_idx(x):
    return x.T[0], x.mT, x.transpose(-1, -2)[..., 0]


@prog(lambda: (R(2, 3),))
def f_tuple_mul(x):
    return x.repeat((1,) * 2), torch.zeros((2,) * 3), x.view((-1,) + (3,))


@prog(lambda: (R(2, 3),))
def f_list_cmp(x):
    return x + ([1, 2] == [1, 2]) + ((1, 2) < (2,)) + ([1] != [2]) + ({"a": 1} == {"a": 1}) + ({1} == {1})


@prog(lambda: (R(2, 3),))
def f_list_clear(x):
    l = [x]
    l.clear()
    d = {"a": 1}
    d.clear()
    s = {1}
    s.clear()
    return x + len(l) + len(d) + len(s)


@prog(lambda: (R(2, 3),))
def f_dict_order(x):
    d = {}
    d["b"] = x
    d["a"] = x + 1
    d["b"] = x + 2
    return (
        list(d),
        list(d.values()),
        next(iter(d)),
        list(reversed(d)),
        d.keys() & {"a"},
        d.items() >= {("zz", 1)} if False else 0,
    )


@prog(lambda: (R(2, 3),))
def f_dict_unpack_merge(x):
    a = {"x": 1, "y": x}
    b = {**a, "x": 2}
    c = a | b
    return b["x"] * x, c, dict(zip("ab", [x, 1])), dict([("k", x)]), dict(a, z=3)


@prog(lambda: (R(2, 3),))
def f_nested_dd(x):
    d = collections.defaultdict(lambda: collections.defaultdict(int))
    d["a"]["b"] += 1
    return x + d["a"]["b"]


@prog(lambda: (R(2, 3),))
def f_setdefault_get(x):
    d = {}
    for k in "aab":
        d.setdefault(k, []).append(k)
        d[k + "n"] = d.get(k + "n", 0) + 1
    return x + d["an"], d


@prog(lambda: (R(2, 3),))
def f_str_iter(x):
    return (
        x + sum(ord(c) for c in "abc"),
        [c for c in "hi"],
        "".join(reversed("abc")),
        "a-b".split("-")[1],
        "%(a)s" % {"a": 1},
        "abc".index("c"),
        sorted("cab"),
        "x" in "xyz",
        "a" < "b",
        max("abc"),
        "A".lower() == "a",
    )


@prog(lambda: (R(2, 3),))
def f_int_methods(x):
    return (
        x
        + (5).bit_count()
        + int("7")
        + int(2.9)
        + (-7 // 2)
        + (-7 % 3)
        + divmod(-7, 3)[0]
        + round(-2.5)
        + hash(5)
        + (True + True)
        + int.__add__(1, 2)
        + (3).__mul__(2)
        + abs(-3)
        + min(1, 2.5)
        + (1 if 0.1 + 0.2 == 0.3 else 2)
        + float("1e3")
        + (10).__floordiv__(3)
    )


GCOUNT = 0


@prog(lambda: (R(2, 3),))
def f_const_fold(x):
    return x * (2 * 3 + 1) - len("abc") * 2 + (1, 2, 3)[1] + [4, 5][-1] + {"a": 6}["a"]


@prog(lambda: (R(4),))
def f_while_list(x):
    l = [1, 2, 3]
    while l:
        x = x + l.pop()
    return x


@prog(lambda: (R(4),))
def f_nested_fn_loop(x):
    out = []
    for i in range(3):

        def f(t, i=i):
            return t * i

        out.append(f)
    return [g(x) for g in out]


@prog(lambda: (R(4),))
def f_any_none(x):
    args = (None, x, None)
    ts = [a for a in args if a is not None]
    return ts[0] + any(a is None for a in args) + all(isinstance(t, torch.Tensor) for t in ts)


@prog(lambda: (R(4),))
def f_partial_kwargs_override(x):
    f = functools.partial(lambda a, b=1, c=2: a * b + c, b=3)
    return f(x), f(x, b=5), f(x, c=7), f.keywords["b"], f.args


@prog(lambda: (R(4),))
def f_compose(x):
    compose = lambda *fs: functools.reduce(lambda f, g: lambda t: g(f(t)), fs)
    return compose(torch.sin, torch.cos, lambda t: t * 2)(x)


@prog(lambda: (R(4),))
def f_currying(x):
    return (lambda a: lambda b: lambda c: a * b + c)(x)(2)(3)


@prog(lambda: (R(4),))
def f_fn_in_dict_attr(x):
    class O:
        pass

    o = O()
    o.f = lambda t: t + 1
    o.d = {"g": lambda t: t * 2}
    return o.d["g"](o.f(x))


@prog(lambda: (R(4),))
def f_method_alias(x):
    class A:
        def m(self, t):
            return t + 1

        n = m

    a = A()
    f = a.m
    g = A.n
    h = types.MethodType(lambda s, t: t * 3, a)
    return f(x) + g(a, x) + h(x), f.__self__ is a, f.__func__ is A.m


@prog(lambda: (R(4),))
def f_bound_tensor_method(x):
    f = x.add
    g = x.view
    return f(1), g(2, 2), torch.Tensor.mul(x, 2), getattr(x, "sin")()


@prog(lambda: (R(4),))
def f_property_chain(x):
    class A:
        def __init__(s, v):
            s._v = v

        @property
        def v(s):
            return s._v * 2

        @v.setter
        def v(s, n):
            s._v = n

        @v.deleter
        def v(s):
            s._v = 0

    a = A(x)
    a.v = a.v + 1
    r = a.v
    del a.v
    return r, a.v


@prog(lambda: (R(4),))
def f_class_counter(x):
    class C:
        n = 0

        def __init__(s):
            C.n += 1
            type(s).n += 1

    C()
    C()
    return x + C.n


@prog(lambda: (R(4),))
def f_iter_proto_reverse(x):
    class It:
        def __init__(s, n):
            s.n = n
            s.i = 0

        def __iter__(s):
            return s

        def __next__(s):
            if s.i >= s.n:
                raise StopIteration
            s.i += 1
            return s.i

        def __len__(s):
            return s.n

        def __getitem__(s, k):
            return k * 10

    return (
        x + sum(It(3)) + max(It(4)) + len(list(It(2))),
        list(zip(It(2), It(3))),
        [v for v in reversed(It(2))],
        tuple(enumerate(It(2))),
        dict(zip(It(2), "ab")),
        2 in It(3),
        sorted(It(3), reverse=True),
        [*It(2)],
        list(map(lambda v: v, It(2))),
    )


@prog(lambda: (R(4),))
def f_zip_unzip(x):
    a, b = zip(*[(x, 1), (x + 1, 2)])
    return a[0] + a[1] + sum(b)


@prog(lambda: (R(4),))
def f_multi_return(x):
    def f():
        return x, x + 1, (x + 2, [x + 3])

    a, b, (c, [d]) = f()
    return a + b + c + d


@prog(lambda: (R(4),))
def f_kwargs_forward(x):
    def inner(*args, **kwargs):
        return args[0] * kwargs["scale"] + kwargs.get("bias", 0)

    def outer(*args, **kwargs):
        kwargs["scale"] = 2
        return inner(*args, **kwargs)

    return outer(x, bias=1)


@prog(lambda: (R(4),))
def f_default_none(x):
    def f(a, mask=None, opts=None):
        opts = opts or {}
        mask = mask if mask is not None else torch.ones_like(a)
        return a * mask * opts.get("k", 2)

    return f(x), f(x, mask=x > 0), f(x, opts={"k": 3})


@prog(lambda: (R(4),))
def f_assert_type_msg(x):
    def check(a, t):
        assert isinstance(a, t), f"expected {t}, got {type(a)}"
        return a

    try:
        check(3, str)
    except AssertionError as e:
        return x + 1, str(e)


@prog(lambda: (R(4),))
def f_nested_try_finally_return(x):
    log = []

    def f():
        for i in range(3):
            try:
                if i == 1:
                    return i
            finally:
                log.append(i)

    return x + f(), log


@prog(lambda: (R(4),))
def f_gen_pipeline(x):
    def src(n):
        for i in range(n):
            yield x + i

    def dbl(it):
        for t in it:
            yield t * 2

    def flt(it):
        for i, t in enumerate(it):
            if i % 2:
                yield t

    return list(flt(dbl(src(4))))


@prog(lambda: (R(4),))
def f_gen_state(x):
    def g():
        total = 0
        while True:
            v = yield total
            if v is None:
                return total
            total = total + v

    it = g()
    next(it)
    it.send(x)
    it.send(x * 2)
    try:
        it.send(None)
    except StopIteration as e:
        return e.value


@prog(lambda: (R(4),))
def f_ctx_gen_nested(x):
    @contextlib.contextmanager
    def a():
        with b() as v:
            yield v + 1

    @contextlib.contextmanager
    def b():
        yield 5

    with a() as v, torch.no_grad():
        return x * v


@prog(lambda: (R(4),))
def f_ctx_stack_dynamic(x):
    with contextlib.ExitStack() as s:
        for i in range(3):
            s.enter_context(contextlib.nullcontext(i))
        s.enter_context(torch.no_grad())
        y = x * 2
    return y, torch.is_grad_enabled()


@prog(lambda: (R(4),))
def f_typing(x):
    T = typing.TypeVar("T")

    def f(a: typing.Optional[torch.Tensor], b: "list[int]" = [1]) -> typing.List[int]:
        return a + len(b)

    return typing.cast(torch.Tensor, f(x))


@prog(lambda: (R(4),))
def f_hash_eq(x):
    return (
        x
        + (hash("a") == hash("a"))
        + len({(1, 2): 3, (1, 2): 4})  # noqa: F601  equal keys
        + ({1: "a", True: "b"}[1] == "b")  # noqa: F601  equal keys
        + (1 == 1.0)
        + (hash(1) == hash(1.0))
    )


@prog(lambda: (R(4),))
def f_float_fmt(x):
    return (
        f"{1e10:g} {0.1 + 0.2!r} {1 / 3:.3e} {float('inf')} {-0.0} {10**20} {0b101} {1_0}",
        repr(1.0),
        str(1e-7),
        x + 1,
        round(1.005, 2),
        int(1e20),
        7.0 % 2.5,
        -7.5 // 2,
        2**-1,
        2**0.5,
        0.1 + 0.2,
    )


@prog(lambda: (R(4),))
def f_shape_arith(x):
    n = x.shape[0]
    h = n // 2
    return (
        x[:h].sum() + x[h:].mean() * n / 2 + math.sqrt(n) + n**-0.5 + float(n) + int(n * 1.5) + max(1, n - 3)
    )


@prog(lambda: (R(4, 6),))
def f_attention(x):
    B, D = x.shape
    H = 2
    q = k = v = x.view(B, H, D // H).transpose(0, 1)
    att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
    att = att.masked_fill(torch.tril(torch.ones(B, B)) == 0, float("-inf"))
    return (F.softmax(att, -1) @ v).transpose(0, 1).contiguous().view(B, D)


@prog(lambda: (R(4),))
def f_tensor_in_tuple_key(x):
    t = (x, 1)
    l = [t]
    return l[0][0] + l[0][1], t in l


@prog(lambda: (R(4), R(4)))
def f_is_same(x, y):
    z = x
    return x + (z is x) + (x is y) + (x is not y)


@prog(lambda: (R(4),))
def f_del_slice_attr(x):
    class A:
        pass

    a = A()
    a.l = [1, 2, 3]
    del a.l[1]
    a.d = {"q": 1, "r": 2}
    del a.d["q"]
    return x + len(a.l) + len(a.d)


@prog(lambda: (R(4),))
def f_star_args_kw_only(x):
    def f(a, *rest, flag=False, **kw):
        return a * len(rest) + flag + len(kw)

    return f(x, 1, 2, flag=True, z=1)


@prog(lambda: (R(4),))
def f_recursive_struct(x):
    def walk(o):
        if isinstance(o, dict):
            return {k: walk(v) for k, v in o.items()}
        if isinstance(o, (list, tuple)):
            return type(o)(walk(v) for v in o)
        if isinstance(o, torch.Tensor):
            return o * 2
        return o

    return walk({"a": [x, (x + 1, 3)], "b": {"c": x, "d": "s"}})


@prog(lambda: (R(4),))
def f_pytree(x):
    import torch.utils._pytree as pt

    l, s = pt.tree_flatten({"a": x, "b": [x + 1, 2]})
    return pt.tree_unflatten([v * 2 for v in l], s), pt.tree_map(lambda t: t + 1, (x, [x]))


@prog(lambda: (R(4),))
def f_operator_inplace_list(x):
    l = [1]
    m = l
    l += [2]
    l = l + [3]
    return x + len(m) + len(l)


@prog(lambda: (R(4),))
def f_tuple_iadd(x):
    t = (1,)
    t += (2,)
    s = "a"
    s += "b"
    s *= 2
    fs = frozenset([1])
    fs |= {2}
    return x + len(t) + len(s) + len(fs)


@prog(lambda: (R(4),))
def f_bytes_struct(x):
    import struct

    return (
        x
        + struct.unpack("<i", struct.pack("<i", 5))[0]
        + int.from_bytes(b"\x00\x01", "big")
        + b"ab".hex().count("6")
    )


@prog(lambda: (R(4),))
def f_heapq_bisect(x):
    import bisect
    import heapq

    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    l = [1, 3]
    bisect.insort(l, 2)
    return x + heapq.heappop(h) + heapq.nlargest(1, h)[0] + bisect.bisect_left(l, 2) + l[1]


@prog(lambda: (R(4),))
def f_copy_mod(x):
    return copy.copy([x])[0] + copy.deepcopy({"a": [1]})["a"][0]


@prog(lambda: (R(4),))
def f_statistics_fraction(x):
    from fractions import Fraction

    return x + float(Fraction(1, 2) + Fraction(1, 3))


@prog(lambda: (R(4),))
def f_pathlib(x):
    import pathlib

    return x + len(pathlib.PurePosixPath("/a/b").parts)


@prog(lambda: (R(4),))
def f_textwrap(x):
    import textwrap

    return x + len(textwrap.dedent("  a\n  b"))


@prog(lambda: (R(4),))
def f_threading_local(x):
    import threading

    l = threading.local()
    l.a = 3
    return x + l.a


@prog(lambda: (R(4),))
def f_rand(x):
    return x + torch.rand(4) * 0 + torch.randn_like(x) * 0


@prog(lambda: (R(4),))
def f_nested_modules_fn(x):
    m = nn.Sequential(nn.Identity(), nn.Sequential(nn.ReLU(), nn.Flatten(0)))
    return m(x)


@prog(lambda: (R(4),))
def f_const_item(x):
    return x * torch.tensor(3.0).item() + int(torch.tensor(2)) + len(torch.tensor([1, 2, 3]).tolist())


@prog(lambda: (R(4),))
def f_index_const(x):
    return x[torch.tensor(1)], x[torch.tensor([True, False, True, False])]


@prog(lambda: (R(4),))
def f_const_bool(x):
    return x + 1 if torch.tensor(True) else x


@prog(lambda: (R(4),))
def f_one_hot(x):
    return F.one_hot(torch.tensor([0, 2]), 3) + x[:3].long() * 0


@prog(lambda: (torch.randint(0, 3, (4,)),))
def f_one_hot_in(x):
    return F.one_hot(x, 3)


@prog(lambda: (R(3), R(3), R(3), torch.tensor(0.3)))
def number_tensors_in_addc(x, a, b, s):
    y = torch.addcmul(x, a, b, value=s), x.addcdiv(a, b, value=s), x.addcmul(a, b, value=2)
    x.addcmul_(a, b, value=s)
    return y, x.addcdiv_(a, b, value=s) is x


@prog(lambda: ([R(3), R(2)], [R(3), R(2)], torch.tensor(0.7), torch.tensor(2.0)))
def number_tensors_in_foreach(a, b, s, e):
    r = torch._foreach_lerp_(a, b, s)
    return (
        r is a,
        torch._foreach_lerp(a, b, s),
        torch._foreach_pow(e, b),
        torch._foreach_pow(b, e),
        torch._foreach_lerp(a, b, 0.5),
    )


@prog
def iterator_methods(x):
    i = iter([x, x + 1])
    j = iter((1, 2))
    k = iter(range(3))
    next(i)
    j.__next__()
    k.__next__()
    return (
        i.__next__(),
        list(i),
        list(j),
        list(k),
        iter({"a": x}).__next__(),
        i.__length_hint__(),
        i.__iter__() is i,
    )
