"""Kinds of arguments, and breaks in every kind of statement.  One graph unless the decorator says otherwise."""

import collections
import contextlib
import copy
import itertools
import operator
import types
import weakref

import torch
import torch.nn as nn
import torch.nn.functional as F

from lang_registry import prog

R = torch.randn


# --- in the manner of test_misc
@prog(lambda: (R(3), R(3)))
def boolarg(a, b):
    def f(aa, bb, flag):
        return aa - bb if flag else bb - aa

    return f(a, b, True), f(a, b, False)


@prog(lambda: (R(10),))
def builtin_isinstance(x):
    t = torch.arange(1, 3)
    a = isinstance(x, torch.Tensor)
    b = isinstance(t, torch.Tensor)
    c = isinstance(x, int)
    d = isinstance(3, int)
    e = isinstance([1], list)
    return x + a + b + c + d + e


@prog(lambda: (R(3, 4),))
def shape_unpack(x):
    a, b = x.size()
    return x * b + a


@prog(lambda: (R(3, 4),))
def tensor_dict1(x):
    return {"a": x + 1, "b": x.sum()}


@prog(lambda: ({"a": R(2), "b": R(2)},))
def tensor_dict2(d):
    total = 0
    for v in d.values():
        total = total + v
    return total


@prog(lambda: ({"a": R(2), "b": R(2)},))
def tensor_dict3(d):
    d = dict(d)
    d["c"] = d.pop("a") + 1
    return {k: v * 2 for k, v in sorted(d.items())}


@prog(lambda: (R(4), R(4)))
def min_max_over_iterable(a, b):
    return max([a.shape[0], 2, 9]) * a + min(b.shape[0], 7)


@prog(lambda: ([R(2), R(2), R(2)],))
def list_mutate_arg(l):
    l[0] = l[1] + 1
    l.append(l[2] * 2)
    l.reverse()
    return l[0]


@prog(lambda: ({"a": R(2)},))
def dict_mutate_arg(d):
    d["a"] = d["a"] + 1
    d["new"] = d["a"] * 2
    return d["new"]


@prog(lambda: (R(2), (R(2), [R(2), {"k": R(2)}])))
def nested_inputs(x, n):
    return x + n[0] * n[1][0] - n[1][1]["k"]


@prog(lambda: (R(4),))
def numel(x):
    return x * x.numel() + x.nelement()


@prog(lambda: (R(5, 2),))
def tensor_len(x):
    return x + len(x) + x.__len__()


@prog(lambda: (R(2, 2),))
def dtype_dev(x):
    return x.to(dtype=torch.float64, device="cpu") if x.dtype is torch.float32 else x


@prog(lambda: (R(4, 4),))
def inplace_views(x):
    y = x.clone()
    v = y[1]
    v.add_(3)
    y.t_()
    return y, v


@prog(lambda: (R(4, 4),))
def inplace_arg(x):
    x.add_(1)
    x[0].mul_(2)
    return x.sum()


@prog(lambda: (R(3), R(3)))
def out_kw(a, b):
    o = torch.empty(3)
    torch.add(a, b, out=o)
    return o


@prog(lambda: (R(3),))
def tensor_data(x):
    y = x.detach()
    return y.data + 1


@prog(lambda: (R(3, requires_grad=True),))
def req_grad(x):
    y = x * 2
    return y, y.requires_grad, x.is_leaf, x.detach().requires_grad


@prog(lambda: (R(3),))
def grad_state(x):
    with torch.no_grad():
        y = torch.ones(3, requires_grad=False) + x
    return y, torch.is_grad_enabled()


@prog(lambda: (R(3),))
def set_grad_fn(x):
    torch._C._set_grad_enabled(False)
    y = x + 1
    torch._C._set_grad_enabled(True)
    return y


@prog(lambda: (R(8),))
def closure_recompile(x):
    a = 2

    def inner(y):
        return y + a

    a = 3
    return inner(x)


@prog(lambda: (R(8),))
def closure_out_of_scope(x):
    def g():
        z = x * 2

        def h():
            return z + 1

        return h

    return g()()


@prog(lambda: (R(8),))
def nonlocal_list(x):
    acc = []

    def add(t):
        acc.append(t)

    for i in range(3):
        add(x + i)
    return torch.stack(acc)


@prog(lambda: (R(2, 3),))
def size_input_args(x):
    return (
        torch.zeros(x.size()),
        torch.zeros(*x.size()),
        x.new_ones(x.shape),
        x.view(x.size(0), -1),
        torch.empty_like(x).shape,
    )


@prog(lambda: (R(2, 3),))
def const_tensors(x):
    return x + torch.tensor(2.0) + torch.tensor([1.0, 2.0, 3.0]) + torch.ones(())


@prog(lambda: (R(3), 5, 2.5, "mean", True, None, (1, 2), [3]))
def many_consts(x, i, f, s, b, n, t, l):
    if s == "mean" and b and n is None:
        x = x * i + f
    return x + t[1] + l[0]


@prog(lambda: (R(3),))
def str_format_shape(x):
    return "{} {}".format(x.shape, x.dtype), x + 1


@prog(lambda: (R(4),))
def dup_args(x):
    def f(a, b):
        a = a + 1
        return a * b

    return f(x, x)


@prog(lambda: (lambda t: ((t, t)))(R(3)))
def same_tensor_twice(a, b):
    return a + b, a is b


@prog(lambda: (R(3),))
def user_fn_kwdefault(x):
    def f(x, *, y=None, **kw):
        return x + (0 if y is None else y) + len(kw)

    return f(x), f(x, y=2), f(x, z=1)


class UserDefined:
    def __init__(self):
        self.x = 3
        self.t = torch.ones(3)

    def run(self, y):
        return y * self.x + self.t

    @property
    def p(self):
        return self.x + 1

    @staticmethod
    def st(a):
        return a - 1

    def __len__(self):
        return 4

    def __getitem__(self, i):
        return i * 2

    def __contains__(self, i):
        return i == 2

    def __bool__(self):
        return True

    def __eq__(self, o):
        return isinstance(o, UserDefined)

    __hash__ = None


U = UserDefined()


@prog(lambda: (R(3), UserDefined()))
def user_obj_arg(x, u):
    return u.run(x) + u.p + u.st(x) + len(u) + u[3] + (2 in u) + (1 if u else 0) + (u == UserDefined())


@prog(lambda: (R(3),))
def user_obj_global(x):
    return U.run(x) + U.p


@prog(lambda: (R(3), UserDefined()))
def user_obj_mutate(x, u):
    u.x += 1
    u.y = x * u.x
    u.t = u.t + 1
    del u.x
    return u.y + u.t


class NestedA:
    def __init__(self):
        self.b = UserDefined()
        self.l = [UserDefined(), 2]
        self.d = {"q": UserDefined()}


@prog(lambda: (R(3), NestedA()))
def user_obj_nested(x, a):
    a.b.x = 7
    a.l[0].x = 9
    a.d["q"].x += 1
    a.l.append(x)
    return a.b.run(x) + a.l[0].run(x) + a.d["q"].run(x)


class MyMod(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.n = 0
        self.register_buffer("buf", torch.ones(4))
        self.h = {"a": 1}
        self.lst = [1, 2]

    def forward(self, x):
        self.n += 1
        self.h["a"] += 1
        return self.l(x) * self.n + self.buf + self.h["a"] + len(self.lst)


def mod():
    torch.manual_seed(3)
    return MyMod().eval()


class Mod2(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
        self.p = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.pd = nn.ParameterDict({"w": nn.Parameter(torch.ones(4))})
        self.s = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.act = F.relu

    def forward(self, x, which="a"):
        for i, l in enumerate(self.layers):
            x = l(x) + i
        for k, v in self.d.items():
            x = v(x)
        for m in self.s:
            x = m(x)
        for n, p in self.named_parameters():
            x = x + p.sum() * 0
        for c in self.children():
            x = x + isinstance(c, nn.ModuleList)
        x = (
            self.d[which](x) * self.p[0]
            + self.pd["w"]
            + len(self.layers)
            + self.layers[-1].in_features
            + ("a" in self.d)
            + len(list(self.modules()))
        )
        x = self.layers[1:][0](x) + sum(1 for _ in self.buffers())
        return self.act(self.s[0](x)) + sum(p.numel() for p in self.parameters())


def mod2():
    torch.manual_seed(3)
    return Mod2().eval()


@prog(lambda: (R(2, 4),))
def functional_zoo(x):
    return (
        F.relu(x)
        + F.gelu(x)
        + F.softmax(x, dim=-1)
        + F.layer_norm(x, (4,))
        + F.dropout(x, 0.5, training=False)
        + F.silu(x)
        + F.pad(x, (1, 1))[:, 1:-1]
        + F.one_hot(torch.tensor([0, 1]), 4)
        + F.normalize(x)
        + F.linear(x, torch.eye(4))
        + F.mse_loss(x, x)
        + F.cross_entropy(x, torch.tensor([0, 1]))
    )


@prog(lambda: (R(2, 4),))
def torch_zoo(x):
    return (
        torch.where(x > 0, x, -x),
        torch.einsum("ij,kj->ik", x, x),
        torch.split(x, 2, 1),
        x.chunk(2, 1),
        x.unbind(0),
        torch.topk(x, 2),
        x.max(1),
        x.sort(),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.broadcast_tensors(x, torch.ones(4)),
        torch.atleast_2d(x),
        torch.cumsum(x, 0),
        x.clamp(0, 1),
        torch.stack([x, x]),
        torch.tril(x),
        x.repeat(2, 1),
        torch.cdist(x, x),
        torch.var_mean(x),
        torch.masked_select(x, x > 100) if False else 0,
        x.T,
        x.mT,
        torch.outer(x[0], x[1]),
        torch.block_diag(x, x),
        torch.cartesian_prod(torch.arange(2), torch.arange(2)),
        torch.tensor_split(x, 2),
        torch.unflatten(x, 1, (2, 2)),
    )


@prog(lambda: (R(2, 4),))
def namedtuple_out(x):
    r = torch.max(x, 1)
    v, i = r
    return r.values + v, r.indices, r[0], len(r)


@prog(lambda: (R(2, 4),))
def tensor_methods_str(x):
    return (
        x.size(-1),
        x.dim(),
        x.ndim,
        x.shape[-1],
        x.is_cuda,
        x.get_device(),
        x.is_sparse,
        x.is_quantized,
        x.names if False else 0,
        x.itemsize,
        x.nbytes,
        x.storage_offset(),
        x.is_complex(),
        x + 1,
    )


@prog(lambda: (R(2, 4),))
def listcomp_size(x):
    return x.permute([i for i in reversed(range(x.dim()))]), x.reshape([s for s in x.shape] + [1])


@prog(lambda: (R(2, 4),))
def tuple_index_multi(x):
    return (
        x[0, 1],
        x[(0, 1)],
        x[:, [0, 1]],
        x[..., -1],
        x[None, :, None],
        x[x.shape[0] - 1],
        x[1:, :2],
        x[torch.tensor(1)],
        x[[True, False]],
        x[-1:],
    )


@prog(lambda: (R(6),))
def slice_by_var(x):
    r = []
    for i in range(0, len(x), 2):
        r.append(x[i : i + 2])
    return torch.cat(r)


@prog(lambda: (torch.randint(0, 5, (4,)),))
def int_tensor(x):
    return x // 2, x % 3, x << 1, x & 1, ~x, x**2, -x, x / 2, x.float() * 1.5, x == 2, x.bitwise_or(1)


@prog(lambda: (R(3), [1, 2, 3]))
def list_arg_loops(x, l):
    return [x * i for i in l], sum(l) * x, x + max(l), [a + b for a, b in zip(l, l[1:])]


@prog(lambda: (R(3), {1: "a", 2: "b"}))
def dict_arg_keys(x, d):
    return x + sum(d.keys()), list(d.values()), {v: k for k, v in d.items()}, d.get(5, "z"), 1 in d, len(d)


@prog(lambda: (R(3), {1, 2, 3}))
def set_arg(x, s):
    return x + len(s) + (2 in s), sorted(s | {9})


@prog(lambda: (R(3), range(3)))
def range_arg(x, r):
    for i in r:
        x = x + i
    return x


@prog(lambda: (R(3), slice(0, 2)))
def slice_arg(x, s):
    return x[s]


@prog(lambda: (R(3), torch.float64))
def dtype_arg(x, d):
    return x.to(d)


@prog(lambda: (R(3), torch.device("cpu")))
def device_arg(x, d):
    return x.to(d), torch.ones(2, device=d), d.type, str(d), d == torch.device("cpu")


@prog(lambda: (R(3), torch.Size([3, 1])))
def torchsize_arg(x, s):
    return x.view(s), s[0] + 1


@prog(lambda: (R(3), nn.ReLU, UserDefined))
def class_args(x, c, u):
    return c()(x) + u().x


@prog(lambda: (R(3), collections.OrderedDict(a=R(3), b=2)))
def od_arg(x, d):
    d["c"] = x
    d.move_to_end("a")
    return x + d["a"] * d["b"], list(d.keys())


@prog(lambda: (R(3), collections.defaultdict(list, a=[1])))
def dd_arg(x, d):
    d["b"].append(x)
    d["a"].append(2)
    return x + len(d) + len(d["a"])


@prog(lambda: (R(3), b"ab", 1 + 2j, frozenset([1])))
def odd_consts(x, b, c, f):
    return x + len(b) + c.real + (1 in f)


@prog(lambda: (R(3), 2**70, -1, True))
def big_ints(x, b, n, t):
    return x + (b > 5) + n + t


@prog(lambda: (R(3),), graphs=2, breaks=1)
def gb_print(x):
    x = x + 1
    print("p")
    return x * 2


@prog(lambda: (R(3).abs(),), graphs=2, breaks=1)
def gb_cond(x):
    y = x + 1
    if y.sum() > 0:
        return y * 2
    return y * 3


@prog(lambda: (R(3),))
def gb_numpy(x):
    n = (x + 1).numpy()
    return torch.from_numpy(n) * 2


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_nonzero(x):
    return (
        (x > 0).nonzero(),
        x[x > 0] * 2,
        torch.unique(torch.tensor([1, 1, 2])),
        torch.masked_select(x, x > 0),
    )


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_fstring_tensor(x):
    return f"{x.sum() * 0:.1f}", x + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_repr(x):
    return str(torch.zeros(2) + 1), x + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_while(x):
    y = x.abs()
    while y.sum() < 10:
        y = y * 2
    return y


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_try(x):
    try:
        y = x + 1
        print("a")
        z = y.sum().item()
        if z > 1e9:
            raise ValueError
    except ValueError:
        return x
    else:
        y = y * 2
    finally:
        y = y + 1
        print("fin")
    return y


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_with(x):
    with torch.no_grad():
        y = x + 1
        print(torch.is_grad_enabled())
        y = y * 2
    return y


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_user_with(x):
    log = []

    class C:
        def __enter__(s):
            log.append(1)

        def __exit__(s, *a):
            log.append(2)

    with C():
        y = x + 1
        print("x")
        y = y * 2
    return y, log


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_contextmanager(x):
    @contextlib.contextmanager
    def cm():
        print("enter")
        yield 3
        print("exit")

    with cm() as k:
        y = x * k
    return y


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_listcomp(x):
    def f(i):
        print(i)
        return x * i

    return [f(i) for i in range(3)]


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_nested(x):
    def a(t):
        t = t + 1
        t = b(t)
        return t * 2

    def b(t):
        t = t * 3
        print("b")
        return t - 1

    return a(x) + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_method(x):
    class A:
        def __init__(s):
            s.v = 1

        def m(s, t):
            s.v += 1
            print(s.v)
            t = t * s.v
            s.v += 1
            return t

    a = A()
    y = a.m(x)
    return y, a.v


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_sort_key(x):
    def key(v):
        print(v)
        return -v

    return x * sorted([1, 3, 2], key=key)[0]


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_map(x):
    def f(v):
        print(v)
        return x * v

    return list(map(f, [1, 2]))


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_finally(x):
    try:
        y = x + 1
    finally:
        print("f")
    return y * 2


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_in_except(x):
    try:
        raise KeyError("k")
    except KeyError as e:
        print(e)
        y = x * 2
    return y + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_raise_after(x):
    y = x + 1
    print("q")
    try:
        raise ValueError(y)
    except ValueError as e:
        return e.args[0] * 2


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_recursion(x):
    def r(t, n):
        if n == 0:
            return t
        print(n)
        return r(t * 2, n - 1) + 1

    return r(x, 3)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_lambda_print(x):
    return (lambda t: (print("l"), t * 2)[1])(x) + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_walrus(x):
    if (n := x.abs().sum().item()) > 0:
        return x * n
    return x


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_chain(x):
    return x + (0 < x.abs().sum() < 1e9)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_boolop(x):
    return (x.sum() > 1e9 and x + 1) or (x * 2 if x.abs().sum() > 0 else x)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_ternary(x):
    return x + 1 if x.abs().max() > 0 else x - 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_assert(x):
    assert (x == x).all(), "nan!"
    return x + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_match(x):
    match x.abs().sum().item() > 0:
        case True:
            return x * 2
        case False:
            return x


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_star_call(x):
    def f(*a, **k):
        print(len(a), sorted(k))
        return a[0] * 2

    return f(*[x, 1], **{"z": 2})


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_nested_loops(x):
    for i in range(2):
        for j in range(2):
            if j == 1:
                print(i, j)
            x = x + i * j
    return x


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_nonlocal(x):
    n = 0

    def inc():
        nonlocal n
        n += 1
        print(n)
        return n

    return x * inc() + inc() + n


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_del_local(x):
    y = x + 1
    print("a")
    z = y * 2
    del y
    try:
        y  # noqa: F821  deleted above
    except UnboundLocalError:
        return z


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_set_attr_of_tensor(x):
    y = x + 1
    y.foo = 3
    return y * y.foo


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_eval(x):
    return eval("x + 1")


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_exec(x):
    ns = {"x": x}
    exec("y = x * 2", ns)
    return ns["y"]


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_input_open(x):
    with open("/dev/null") as f:
        s = f.read()
    return x + len(s)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_logging(x):
    import logging

    logging.getLogger("zzz").debug("hi %s", 1)
    return x + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_warn(x):
    import warnings

    warnings.warn("careful")
    return x + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_async_inner(x):
    async def co(t):
        return t * 2

    c = co(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_asyncio(x):
    import asyncio

    async def co(t):
        await asyncio.sleep(0)
        return t * 2

    return asyncio.run(co(x)) + 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def gb_async_gen(x):
    import asyncio

    async def ag():
        for i in range(3):
            yield x * i

    async def main():
        r = 0
        async for t in ag():
            r = r + t
        async with contextlib.AsyncExitStack() as s:
            r = r + 1
        return r + sum([v async for v in ag()])

    return asyncio.run(main())


# --- state that a break or a copy has to keep
def rp_tee_cycle():
    def numbers():
        yield 1
        for n in (2 * i for i in second):
            yield n

    first, second = itertools.tee(numbers(), 2)
    return first


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_generator_fed_by_its_tee(x):
    it = rp_tee_cycle()
    print(end="")
    return x + 1, [next(it) for i in range(5)]


rp_ordered = collections.OrderedDict(a=1)
rp_ordered.note = [7]


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_attributes_of_ordered_dict(x):
    mine = collections.OrderedDict(b=2)
    mine.note = 5
    c = copy.copy(rp_ordered), copy.deepcopy(rp_ordered)
    print(end="")
    return x + 1, mine.note, c[0].note is rp_ordered.note, c[1].note, rp_ordered.note


class RpTuple(tuple):
    def __getattribute__(self, name):
        if name in tuple.__dict__:
            raise AttributeError
        return tuple.__getattribute__(self, name)

    def __getattr__(self, name):
        return "no " + name


rp_tuple = RpTuple(([1], [2]))
rp_tuple.note = 5


@prog(lambda: (R(3),))
def rp_attributes_of_tuple(x):
    rp_tuple.note += 1
    r = rp_tuple.note, rp_tuple.other, rp_tuple[0], len(rp_tuple)
    rp_tuple.note = 5
    return x + 1, r


class RpPlain:
    def method(self):
        pass


rp_plain = RpPlain()
rp_plain.note = 1


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_dir_of_what_was_written(x):
    m = types.ModuleType("m")
    m.note = 2
    RpPlain.method.note = 3
    names = dir(m), dir(RpPlain.method), dir(RpPlain().method), dir(rp_plain)
    del RpPlain.method.note
    return x + 1, names, "note" in dir(rp_plain.method)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_reduce_protocols(x):
    return (
        x + 1,
        [rp_plain.__reduce_ex__(p)[1:] for p in range(5)],
        [rp_plain.__reduce_ex__(p)[0].__name__ for p in range(5)],
    )


rp_random = __import__("random").Random(3)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_random_with_its_own_method(x):
    rp_random.random = [0.25, 0.5, 0.75].pop
    r = [rp_random.uniform(0, 4) for i in range(3)]
    del rp_random.random
    return x + 1, r


rp_deque = collections.deque([1, 2, 3])


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_deque_items_under_an_iterator(x):
    it = iter(rp_deque)
    print(end="")
    rp_deque[1] = 7
    r = list(it)
    rp_deque[1] = 2
    return x + 1, r


class RpGlobals(dict):
    def __missing__(self, key):
        return len(key)


rp_names = eval("lambda x: (x + abcde, abc)", RpGlobals())


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_globals_with_missing(x):
    return rp_names(x)


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_weak_reference_dies(x):
    o = RpPlain()
    r = weakref.ref(o)
    alive = r() is o
    del o
    return x + 1, alive, r()


@prog(lambda: (R(3),))
def rp_map_of_type(x):
    return (
        x + 1,
        list(map(type, [x, torch.nn.Parameter(x), 3, rp_random])),
        [*map(operator.attrgetter("note"), [rp_plain])],
    )


@prog(lambda: (R(3),), graphs=None, breaks=None)
def rp_map_of_type_across_a_break(x):
    m = map(type, [x, x.sum().item(), rp_random.random()])
    a = next(m)
    print(end="")
    return x + 1, a, set(m)
