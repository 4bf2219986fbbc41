"""itertools, builtins, functools, collections, functions and classes.  Every program is one graph unless its decorator says otherwise."""

import abc
import collections
import dataclasses
import enum
import functools
import itertools
import math
import operator
import typing
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from functools import (
    cached_property,
    cmp_to_key,
    lru_cache,
    partial,
    partialmethod,
    reduce,
    singledispatch,
    total_ordering,
    wraps,
)

import torch
import torch.nn as nn
import torch.nn.functional as F

from lang_registry import prog


# ---- itertools
@prog
def it_chain(x):
    return [x * i for i in itertools.chain([1, 2], (3,))]


@prog
def it_chain_from(x):
    return [x * i for i in itertools.chain.from_iterable([[1, 2], [3]])]


@prog
def it_product(x):
    return [x * a + b for a, b in itertools.product([1, 2], range(2))]


@prog
def it_product_repeat(x):
    return [x * a + b for a, b in itertools.product([1, 2], repeat=2)]


@prog
def it_comb(x):
    return [a * b for a, b in itertools.combinations([x, x + 1, x + 2], 2)]


@prog
def it_comb_r(x):
    return [a * b for a, b in itertools.combinations_with_replacement([x, x + 1], 2)]


@prog
def it_perm(x):
    return [a - b for a, b in itertools.permutations([x, x + 1, x + 2], 2)]


@prog
def it_groupby(x):
    return [(k, [x * v for v in g]) for k, g in itertools.groupby([1, 1, 2, 3, 3])]


@prog
def it_groupby_key(x):
    return [(k, [x * v for v in g]) for k, g in itertools.groupby([1, 3, 2, 4], key=lambda v: v % 2)]


@prog
def it_accumulate(x):
    return list(itertools.accumulate([x, x, x]))


@prog
def it_accumulate_f(x):
    return list(itertools.accumulate([x, x + 1, x], operator.mul))


@prog
def it_accumulate_l(x):
    return list(itertools.accumulate([x, x + 1, x], lambda a, b: a * b + 1, initial=x))


@prog
def it_tee(x):
    a, b = itertools.tee([x, x + 1])
    return list(a) + list(b)


@prog
def it_count(x):
    r = []
    for i in itertools.count(2, 3):
        if i > 10:
            break
        r.append(x * i)
    return r


@prog
def it_cycle(x):
    c = itertools.cycle([x, x + 1])
    return [next(c) for _ in range(5)]


@prog
def it_repeat_inf(x):
    return [a * b for a, b in zip([1, 2, 3], itertools.repeat(x))]


@prog
def it_zip_longest(x):
    return [a + b for a, b in itertools.zip_longest([1, 2, 3], [x], fillvalue=x * 0)]


@prog
def it_pairwise(x):
    return [a - b for a, b in itertools.pairwise([x, x + 1, x * 2])]


@prog
def it_starmap(x):
    return list(itertools.starmap(lambda a, b: a * b, [(x, 2), (x, 3)]))


@prog
def it_starmap_op(x):
    return list(itertools.starmap(operator.mul, [(x, 2), (x, 3)]))


@prog
def it_takewhile(x):
    return [x * i for i in itertools.takewhile(lambda v: v < 3, itertools.count())]


@prog
def it_dropwhile(x):
    return [x * i for i in itertools.dropwhile(lambda v: v < 3, range(5))]


@prog
def it_filterfalse(x):
    return [x * i for i in itertools.filterfalse(lambda v: v % 2, range(5))]


@prog
def it_compress(x):
    return [y for y in itertools.compress([x, x + 1, x + 2], [1, 0, True])]


@prog
def it_islice(x):
    return [x * i for i in itertools.islice(range(10), 1, 8, 2)]


@prog
def it_islice_list(x):
    l = [x, x + 1, x + 2]
    return list(itertools.islice(l, 2))


# ---- builtins
@prog
def b_map(x):
    return list(map(lambda a, b: a * b, [x, x + 1], [2, 3]))


@prog
def b_map_torch(x):
    return list(map(torch.sin, [x, x + 1]))


@prog
def b_map_method(x):
    return list(map(torch.Tensor.relu, [x, x + 1]))


@prog
def b_zip(x):
    return [a + b for a, b in zip([x, x], (1, 2))]


@prog
def b_zip_strict(x):
    try:
        return [a for a in zip([1, 2], [1], strict=True)]
    except ValueError as e:
        return x + 1, str(e)


@prog
def b_zip_strict_ok(x):
    return [a * b for a, b in zip([1, 2], [x, x], strict=True)]


@prog
def b_enumerate(x):
    return [t * i for i, t in enumerate([x, x], start=3)]


@prog
def b_sorted(x):
    l = [(2, x), (1, x + 1)]
    return [t for _, t in sorted(l, key=lambda p: p[0])]


@prog
def b_sorted_rev(x):
    return x + sorted([3, 1, 2], reverse=True)[0]


@prog
def b_sort_inplace(x):
    l = [3, 1, 2]
    l.sort(key=lambda v: -v)
    return x * l[0], l


@prog
def b_minmax(x):
    return (
        x + min(3, 1, 2) + max([4, 5], key=lambda v: -v) + max([], default=9) + max({"a": 1, "b": 2}.values())
    )


@prog
def b_minmax_t(x):
    return max(x.size(0), x.size(1)) * x


@prog
def b_sum_start(x):
    return sum([x, x], start=x)


@prog
def b_sum_start2(x):
    return sum([1, 2], 10) + x


@prog
def b_sum_lists(x):
    return sum([[x], [x + 1]], [])


@prog
def b_reversed(x):
    return [t * i for i, t in enumerate(reversed([x, x + 1]))]


@prog
def b_reversed_range(x):
    return [x * i for i in reversed(range(3))]


@prog
def b_divmod(x):
    a, b = divmod(7, 3)
    return x * a + b


@prog
def b_pow(x):
    return x * pow(2, 3) + pow(2, 5, 7) + pow(2.0, -1)


@prog
def b_pow_t(x):
    return pow(x, 2), x**3, 2**x


@prog
def b_round(x):
    return x + round(2.567, 2) + round(2.5)


@prog
def b_abs(x):
    return abs(x) + abs(-3) + abs(-2.5)


@prog
def b_iter_sentinel(x):
    l = [1, 2, 3, 0, 5]
    it = iter(l)
    return [x * v for v in iter(lambda: next(it), 0)]


@prog
def b_any_all(x):
    return x + any([0, 1]) + all([]) + any(v > 2 for v in [1, 2, 3])


@prog
def b_isinstance(x):
    return (
        x
        + isinstance(1, (int, str))
        + isinstance(x, torch.Tensor)
        + issubclass(bool, int)
        + isinstance(1, int | str)
    )


@prog
def b_callable(x):
    return x + callable(len) + callable(3)


@prog
def b_getattr(x):
    return x + getattr(x, "ndim") + getattr(x, "zzz", 3) + hasattr(x, "shape")


@prog
def b_len(x):
    return x + len(x) + len([1, 2]) + len({"a": 1}) + len("abc") + len(range(4)) + len(x.shape)


@prog
def b_ordchr(x):
    return x + ord("a"), chr(98), hex(255), oct(8), bin(5), ascii("ä"), repr("q"), format(3.14159, ".2f")


@prog
def b_int_parse(x):
    return x + int("12") + int("ff", 16) + float("1.5") + int(3.9) + bool([]) + int(True)


@prog
def b_complex(x):
    c = complex(1, 2)
    return x + c.real + abs(c * c.conjugate())


@prog
def b_bytes(x):
    b = b"abc"
    return x + b[0] + len(b + b"d") + b.find(b"c"), bytes([1, 2]), bytearray(b"zz")


@prog
def b_slice(x):
    s = slice(1, 3)
    return x[s], x[:, s], s.start, slice(None, None, 2)


@prog
def b_type(x):
    return type(3)(4.5) * x, type([1]) is list, type(x) is torch.Tensor, type(x) == torch.Tensor


@prog
def b_dict_methods(x):
    d = dict(a=1, b=2)
    d.update(c=x)
    d.update({"d": 4})
    d |= {"e": 5}
    e = d | {"f": 6}
    p = d.pop("a")
    q = d.pop("zz", 7)
    r = d.setdefault("g", [])
    r.append(1)
    k = list(d.keys())
    v = [i for i in d.values() if isinstance(i, int)]
    it = [(a) for a, b in d.items()]
    c = d.copy()
    c.popitem()
    del d["b"]
    return d["c"] * p + q, k, v, it, list(e), len(c), dict.fromkeys(["m", "n"], 0), "b" in d


@prog
def b_set_methods(x):
    s = {1, 2, 3}
    t = {2, 3, 4}
    s.add(9)
    s.discard(1)
    s.remove(2)
    s.update([7])
    return (
        x
        + len(s | t)
        + len(s & t)
        + len(s - t)
        + len(s ^ t)
        + (2 in t)
        + s.isdisjoint({100})
        + ({2} <= t)
        + len(frozenset(s)),
        sorted(s),
        sorted(s.union(t)),
        sorted(t.intersection([2])),
        {1} < {1, 2},
        sorted(s.difference({9})),
    )


@prog
def b_tuple_methods(x):
    t = (1, 2, 2)
    return (
        x + t.index(2) + t.count(2),
        t + (3,),
        t * 2,
        t[::-1],
        (1, 2) < (1, 3),
        hash((1, 2)) == hash((1, 2)),
    )


@prog
def b_str_methods(x):
    s = "Hello, World"
    return (
        x + len(s),
        s.upper(),
        s.lower(),
        s.split(", "),
        "-".join(["a", "b"]),
        s.replace("l", "L"),
        s.startswith("He"),
        s.endswith(("x", "d")),
        s.find("o"),
        s.strip("H"),
        s.title(),
        "%s-%d" % ("a", 3),
        "{:>5}|{a}".format("q", a=2),
        s.partition(","),
        s.zfill(20),
        s.center(20, "*"),
        s.isdigit(),
        "a,b".rsplit(",", 1),
        s.encode(),
        s[1:3],
        s[::-1],
        "a" * 3,
        "b" in s,
        s.casefold(),
        "x".join("abc"),
        s.count("l"),
        "a b".splitlines(),
        s.swapcase(),
        "abc".removeprefix("a"),
        "abc".translate({97: 98}),
        "a".ljust(3) + "|",
        "A".isupper(),
        str.upper("q"),
    )


@prog
def b_fstrings(x):
    n = 3
    v = 2.5
    return (
        x + 1,
        f"{x.shape}",
        f"{n:03d}",
        f"{v:.3f}",
        f"{n!r}",
        f"{x.shape[0]}x{x.shape[1]}",
        f"{x.dtype}",
        f"{n=}",
        f"{'a':>{n}}",
        f"{x.device}",
        f"{type(x).__name__}",
        str(x.size()),
        f"{x.ndim:>4}",
        "%r %s" % (x.dtype, x.shape),
        "{} {}".format(x.dtype, n),
        f"{tuple(x.shape)}",
    )


@prog
def b_chain_cmp(x):
    a = 1 < x.size(0) < 5 <= 5 != 6
    return x + a


@prog
def b_ternary_bool(x):
    n = x.size(0)
    return x + (n and 3) + (0 or n) + (not n) if n else x


@prog
def b_math(x):
    return (
        x * math.sqrt(4)
        + math.pi
        + math.floor(2.5)
        + math.ceil(2.1)
        + math.log(10)
        + math.exp(1)
        + math.prod([1, 2, 3])
        + math.gcd(4, 6)
        + math.isclose(1, 1)
        + math.factorial(4)
        + math.comb(4, 2)
        + math.fsum([0.1, 0.2])
        + math.inf * 0
        if False
        else x * math.sin(1)
        + math.hypot(3, 4)
        + math.copysign(1, -2)
        + math.log2(8)
        + math.isqrt(10)
        + math.trunc(2.7)
        + math.degrees(1)
        + math.isnan(math.nan)
        + math.isinf(math.inf)
        + math.lcm(4, 6)
        + math.dist([0, 0], [3, 4])
        + math.modf(2.5)[0]
        + math.perm(4, 2)
        + math.fmod(5, 3)
        + math.tau
    )


@prog
def b_operator(x):
    return (
        operator.add(x, 1),
        operator.mul(x, x),
        operator.getitem([x], 0),
        operator.itemgetter(1)([1, x]),
        operator.itemgetter(0, 1)([x, 2]),
        operator.attrgetter("shape")(x),
        operator.methodcaller("sum", 0)(x),
        operator.neg(x),
        operator.truediv(x, 2),
        operator.eq(1, 1),
        operator.contains([1], 1),
        operator.index(3),
        operator.is_(x, x),
        operator.not_(0),
        operator.concat([1], [2]),
        operator.iadd([1], [2]),
        operator.matmul(x, x.t()),
        operator.pow(x, 2),
        operator.xor(1, 3),
        operator.truth([1]),
        operator.floordiv(7, 2),
        operator.mod(7, 4),
        operator.lt(1, 2),
        operator.length_hint([1, 2]),
        operator.countOf([1, 1], 1),
        operator.indexOf([3, 4], 4),
        operator.inv(2),
        operator.abs(x),
        operator.pos(x),
        operator.setitem({}, 1, 2),
    )


@prog
def b_ints(x):
    n = 7
    return (
        x
        + n // 2
        + n % 4
        + n**2
        + (n << 2)
        + (n >> 1)
        + (n & 3)
        + (n | 8)
        + (n ^ 5)
        + ~n
        + -n
        + n.bit_length()
        + int.from_bytes(b"\x01", "big")
        + n.real
        + n.numerator,
        n / 2,
        n.to_bytes(2, "big"),
        7.5 // 2,
        (2.5).is_integer(),
        (0.5).as_integer_ratio(),
        float.fromhex("0x1p3"),
        (3).conjugate(),
        1_000,
        0x1F,
        1e3,
        3j * 2,
    )


@prog
def b_range(x):
    r = range(1, 10, 3)
    return (
        x + r[1] + len(r) + (4 in r) + r.start + r.stop + r.step + r.index(4),
        list(r[::-1]),
        r == range(1, 10, 3),
        list(range(3, 0, -1)),
    )


@prog
def b_del(x):
    y = x + 1
    z = y * 2
    del y
    l = [1, 2, 3]
    del l[0]
    del l[:1]

    class A:
        pass

    a = A()
    a.v = 1
    del a.v
    return z, l, hasattr(a, "v")


@prog
def b_print_in_vain(x):
    s = "" if False else "x"
    return x + len(s)


@prog
def unpack_tensor(x):
    a, b, c = x
    return a + b * c


@prog
def iter_tensor(x):
    r = 0
    for row in x:
        r = r + row
    return r


@prog
def star_tensor(x):
    a, *b = x
    return a + len(b)


@prog
def list_of_tensor(x):
    return list(x)


@prog
def enum_tensor(x):
    return [i * r for i, r in enumerate(x)]


@prog
def zip_tensor(x):
    return [a + b for a, b in zip(x, x * 2)]


@prog
def rev_tensor(x):
    return [r for r in reversed(x)]


@prog
def map_tensor(x):
    return list(map(lambda r: r * 2, x))


@prog
def while_else(x):
    i = 0
    while i < 3:
        x = x + i
        i += 1
        if i == 10:
            break
    else:
        x = x * 2
    return x


@prog
def for_else(x):
    for i in range(3):
        if i == 1:
            break
    else:
        x = x * 2
    for i in range(3):
        continue
    else:
        x = x + 5
    return x


# ---- functools
@prog
def ft_partial(x):
    f = partial(torch.add, alpha=2)
    return f(x, x)


@prog
def ft_partial_user(x):
    def g(a, b, *, c=1):
        return a * b + c

    h = partial(g, x)
    k = partial(h, c=3)
    return h(2), k(3), k.func is g, k.keywords, h.args[0] + 1


@prog
def ft_reduce(x):
    return reduce(lambda a, b: a + b, [x, x, x]), reduce(lambda a, b: a * b, [1, 2, 3], x)


@prog
def ft_wraps(x):
    def d(f):
        @wraps(f)
        def w(*a, **k):
            return f(*a, **k) * 2

        return w

    @d
    def g(a, k=1):
        "doc"
        return a + k

    return g(x, k=3), g.__name__, g.__doc__, g.__wrapped__(x)


@lru_cache(None)
def cached(n):
    return n * 2


@prog
def ft_lru(x):
    return x * cached(3)


@prog
def ft_lru_local(x):
    @lru_cache
    def g(n):
        return n + 1

    return x * g(1) + g(1)


@functools.cache
def cached_t(n):
    return torch.ones(n)


@prog
def ft_cache_tensor(x):
    return x * cached_t(4)


class CP:
    def __init__(self):
        self.v = 2

    @cached_property
    def p(self):
        return self.v * 3


@prog
def ft_cached_property(x):
    c = CP()
    return x * c.p + c.p, c.__dict__["p"]


@singledispatch
def sd(a):
    return 0


@sd.register
def _(a: int):
    return a * 2


@sd.register(list)
def _(a):
    return len(a)


@prog
def ft_singledispatch(x):
    return x + sd(4) + sd([1, 2, 3]) + sd("s")


@total_ordering
class TO:
    def __init__(self, v):
        self.v = v

    def __eq__(self, o):
        return self.v == o.v

    def __lt__(self, o):
        return self.v < o.v


@prog
def ft_total_ordering(x):
    return x + (TO(1) <= TO(2)) + (TO(3) >= TO(2)) + (TO(1) > TO(2)) + (TO(1) != TO(2)) + max(TO(1), TO(5)).v


@prog
def ft_cmp_to_key(x):
    return x * sorted([3, 1, 2], key=cmp_to_key(lambda a, b: b - a))[0]


class PM:
    def base(self, a, b):
        return a * b

    twice = partialmethod(base, 2)


@prog
def ft_partialmethod(x):
    return PM().twice(x)


@prog
def ft_partial_nn(x):
    act = partial(F.leaky_relu, negative_slope=0.3)
    return act(x)


@prog
def ft_partial_class(x):
    mk = partial(nn.ReLU, inplace=False)
    return mk()(x)


# ---- collections
Pt = namedtuple("Pt", "a b")


@prog
def c_namedtuple(x):
    p = Pt(x, 2)
    q = p._replace(b=3)
    a, b = q
    return p.a * p.b, q, a * b, p._fields, p._asdict()["b"], Pt._make([1, 2]), isinstance(p, tuple), p[0]


class NT(typing.NamedTuple):
    a: torch.Tensor
    b: int = 5

    def m(self):
        return self.a * self.b


@prog
def c_typed_nt(x):
    return NT(x).m(), NT(x, 2)


@prog
def c_odict(x):
    d = OrderedDict([("a", x), ("b", 2)])
    d.move_to_end("a")
    d["c"] = 3
    return d["a"] * d["b"], list(d), d.popitem(last=False)[0], list(reversed(d))


@prog
def c_defaultdict(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["a"].append(x + 1)
    e = defaultdict(int)
    e["z"] += 2
    f = defaultdict(lambda: x)
    return d["a"][1], e["z"], f["q"], len(d), d


@prog
def c_counter(x):
    c = Counter("abca")
    c["z"] += 1
    return x + c["a"], c.most_common(1), dict(c), sum(c.values()), c["nope"]


@prog
def c_deque(x):
    d = deque([1, 2], maxlen=3)
    d.append(x)
    d.appendleft(0)
    d.rotate(1)
    return len(d), d.pop() is not None, x + d[0]


@prog
def c_chainmap(x):
    m = collections.ChainMap({"a": 1}, {"b": 2})
    return x + m["a"] + m["b"]


@prog
def c_userdict(x):
    class D(collections.UserDict):
        pass

    d = D()
    d["a"] = x
    return d["a"] + len(d)


# ---- dataclass / enum
@dataclasses.dataclass
class DC:
    a: torch.Tensor
    b: int = 2
    c: list = dataclasses.field(default_factory=list)

    def go(self):
        return self.a * self.b


@dataclasses.dataclass(frozen=True)
class FDC:
    a: int
    b: int = 3


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class IE(enum.IntEnum):
    A = 1
    B = 2


class FL(enum.Flag):
    P = enum.auto()
    Q = enum.auto()


@prog
def dc_basic(x):
    d = DC(x)
    d.c.append(3)
    d.b = 4
    return d.go(), d.c, d


@prog
def dc_replace(x):
    d = dataclasses.replace(DC(x), b=7)
    return d.go()


@prog
def dc_fields(x):
    return x + len(dataclasses.fields(DC)) + dataclasses.is_dataclass(DC)


@prog
def dc_frozen(x):
    f = FDC(1)
    try:
        f.a = 2
    except dataclasses.FrozenInstanceError:
        pass
    return x * f.b, f, hash(f) == hash(FDC(1)), f == FDC(1), repr(f)


@prog
def dc_asdict(x):
    return dataclasses.asdict(FDC(1))["b"] * x


@prog
def en_basic(x):
    return (
        x * Color.RED.value,
        Color.BLUE.name,
        Color(1) is Color.RED,
        Color["BLUE"],
        [c.name for c in Color],
        isinstance(Color.RED, Color),
        IE.B + 1,
        IE.A < IE.B,
        Color.RED == Color.BLUE,
        len(Color),
        (FL.P | FL.Q).value,
    )


@prog
def en_param(x):
    def f(c):
        return x + 1 if c is Color.RED else x - 1

    return f(Color.RED), f(Color.BLUE)


@prog
def en_dict(x):
    return {Color.RED: x}[Color.RED] + 1


# ---- funcs, closures
def kw(a, /, b, *args, c=3, **kws):
    return a * b + c + sum(args) + len(kws)


@prog
def fn_kwargs(x):
    return kw(x, 2), kw(x, b=3), kw(x, 1, 2, 3, c=4, d=5), kw(x, *[1, 2], **{"c": 1, "q": 2})


@prog
def fn_missing(x):
    try:
        kw()
    except TypeError as e:
        return x + 1, str(e)


@prog
def fn_unexpected(x):
    try:
        (lambda a: a)(1, 2)
    except TypeError as e:
        return x + 1, str(e)


@prog
def fn_default_mut(x):
    def f(a, l=[]):
        l.append(a)
        return len(l)

    return x + f(1) + f(2)


@prog
def fn_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x * fact(5)


@prog
def fn_mutual(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return x + even(4)


@prog
def fn_nonlocal(x):
    c = 0

    def inc():
        nonlocal c
        c += 1
        return c

    inc()
    inc()
    return x * c


@prog
def fn_closure_factory(x):
    def mk(n):
        def f(t):
            return t * n

        return f

    return mk(2)(x) + mk(3)(x)


@prog
def fn_return_closure(x):
    y = x + 1

    def f(t):
        return t + 2

    return y, f(x)


@prog
def fn_attrs(x):
    def f(t):
        return t * f.k

    f.k = 4
    return f(x)


@prog
def fn_annotations(x):
    def f(a: int, b: "str" = 1) -> torch.Tensor:
        return a + b

    return f(x), f.__annotations__["a"] is int, f.__defaults__, f.__code__.co_argcount, f.__qualname__


@prog
def fn_lambda_default(x):
    return (lambda a, b=x: a * b)(2)


@prog
def fn_decorator_args(x):
    def rep(n):
        def d(f):
            def w(t):
                for _ in range(n):
                    t = f(t)
                return t

            return w

        return d

    @rep(3)
    def g(t):
        return t + 1

    return g(x)


@prog
def fn_staticclass(x):
    class A:
        k = 3

        @staticmethod
        def s(t):
            return t + 1

        @classmethod
        def c(cls, t):
            return t * cls.k

        @property
        def p(self):
            return self.k + 1

        @p.setter
        def p(self, v):
            self.k = v

    a = A()
    r = a.p
    a.p = 10
    return A.s(x), A.c(x), a.c(x), r, a.k


@prog
def fn_inspect_sig(x):
    import inspect

    def f(a, b=2):
        return a

    s = inspect.signature(f)
    return x + len(s.parameters)


@prog
def fn_global_builtin_alias(x):
    mylen = len
    t = torch.sin
    return t(x) * mylen([1])


@prog
def fn_dict_dispatch(x):
    ops = {"a": torch.sin, "b": lambda t: t * 2}
    return ops["a"](x) + ops["b"](x)


@prog
def fn_locals(x):
    y = 3
    d = locals()
    return x * d["y"]


@prog
def fn_varargs_tensor(x):
    def f(*ts):
        return torch.stack(ts)

    return f(x, x + 1)


@prog
def fn_walrus(x):
    if (n := x.shape[0]) > 1:
        x = x * n
    while (n := n - 1) > 0:
        x = x + n
    return x


GV = 3


def _setg():
    global GV
    GV = GV + 0


@prog
def fn_global(x):
    global GV
    GV = 5
    r = x * GV
    GV = 3
    return r


@prog
def fn_inplace_ops(x):
    a = 5
    a += 1
    a -= 2
    a *= 3
    a /= 2
    a //= 1
    a **= 2
    b = 7
    b %= 4
    b <<= 2
    b >>= 1
    b &= 7
    b |= 1
    b ^= 2
    y = x.clone()
    y += 1
    y *= 2
    y -= 1
    y /= 3
    y **= 2
    return x + a + b, y


@prog
def fn_matmul_inplace(x):
    y = x @ x.t()
    y @= y
    return y


@prog
def fn_str_concat_loop(x):
    s = ""
    for i in range(3):
        s += str(i)
    return x + len(s), s


@prog
def fn_ellipsis_none(x):
    return x[..., None], x[None], x[:, 0], x[-1], x[1:, ::2], x[[0, 2]], x[torch.tensor([0, 1])]


@prog
def fn_setitem(x):
    y = x.clone()
    y[0] = 1
    y[:, 1] = 2
    y[1, 2] += 5
    y[y > 1] = 0
    return y


@prog
def fn_imports(x):
    import math as m
    import os.path
    from math import sqrt

    from torch.nn import functional as FF

    return FF.relu(x) * sqrt(4) + m.pi, os.path.join("a", "b")


@prog
def fn_dunder_call(x):
    class A:
        def __call__(self, t, k=2):
            return t * k

    return A()(x), A()(x, k=4)


@prog
def fn_super_chain(x):
    class A:
        def __init__(self, v):
            self.v = v

        def f(self, t):
            return t + self.v

    class B(A):
        def __init__(self, v):
            super().__init__(v * 2)

        def f(self, t):
            return super().f(t) * 2

    class C(B):
        def f(self, t):
            return super(C, self).f(t) - 1

    return C(3).f(x)


@prog
def fn_mro(x):
    class A:
        def go(self):
            return ["A"]

    class B(A):
        def go(self):
            return ["B"] + super().go()

    class C(A):
        def go(self):
            return ["C"] + super().go()

    class D(B, C):
        def go(self):
            return ["D"] + super().go()

    return x + len(D().go()), D().go(), [c.__name__ for c in D.__mro__]


@prog
def fn_metaclass(x):
    class M(type):
        def __new__(m, n, b, d, **k):
            d["extra"] = 4
            return super().__new__(m, n, b, d)

        def __call__(cls, *a):
            o = super().__call__(*a)
            o.z = 2
            return o

    class A(metaclass=M):
        pass

    a = A()
    return x * a.extra + a.z


@prog
def fn_init_subclass(x):
    reg = []

    class A:
        def __init_subclass__(cls, k=1, **kw):
            super().__init_subclass__(**kw)
            reg.append((cls.__name__, k))

    class B(A, k=5):
        pass

    return x + reg[0][1]


@prog
def fn_slots(x):
    class A:
        __slots__ = ("u", "v")

        def __init__(self):
            self.u = 1

    a = A()
    a.v = x
    return a.v + a.u


@prog
def fn_abc(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            return 3

    try:
        A()
    except TypeError:
        pass
    return x * B().f()


@prog
def fn_descriptor(x):
    class D:
        def __get__(self, o, t):
            return 7 if o is None else o._d

        def __set__(self, o, v):
            o._d = v * 2

        def __set_name__(self, o, n):
            self.n = n

    class A:
        d = D()

    a = A()
    a.d = 3
    return x * a.d + A.d, A.__dict__["d"].n


@prog
def fn_operators_class(x):
    class V:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return V(self.v + (o.v if isinstance(o, V) else o))

        def __radd__(self, o):
            return V(o + self.v)

        def __iadd__(self, o):
            self.v = self.v + 100
            return self

        def __neg__(self):
            return V(-self.v)

        def __eq__(self, o):
            return True

        def __hash__(self):
            return 3

        def __lt__(self, o):
            return False

        def __getitem__(self, i):
            return self.v * i

        def __setitem__(self, i, v):
            self.v = v + i

        def __delitem__(self, i):
            self.v = self.v * 0

        def __len__(self):
            return 5

        def __bool__(self):
            return False

        def __contains__(self, k):
            return k == 3

        def __iter__(self):
            return iter([self.v, self.v])

        def __matmul__(self, o):
            return 9

        def __float__(self):
            return 2.5

        def __int__(self):
            return 4

        def __index__(self):
            return 1

        def __abs__(self):
            return 8

        def __round__(self, n=0):
            return 6

        def __str__(self):
            return "V!"

        def __format__(self, s):
            return "F" + s

        def __invert__(self):
            return 11

        def __divmod__(self, o):
            return (1, 2)

        def __reversed__(self):
            return iter([3])

    a = V(x)
    b = a + 1
    c = 2 + a
    a += 1
    d = -a
    a[2] = x
    return (
        b.v,
        c.v,
        d.v,
        a == 5,
        a < 3,
        a[3],
        len(a),
        bool(a),
        3 in a,
        list(a),
        a @ a,
        float(a),
        int(a),
        [1, 2][a],
        abs(a),
        round(a),
        str(a),
        f"{a:x}",
        ~a,
        divmod(a, 1),
        list(reversed(a)),
        {a: 1}[a],
    )
