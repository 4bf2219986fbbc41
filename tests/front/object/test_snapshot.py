"""Construction programs: what a function returns, and what is alive at a break, is rebuilt with the same shape, identity and
aliasing as eager execution gives."""

import collections
import dataclasses
import functools
import types

import pytest
import torch

import magneto
from support import assert_same, counts

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Data:
    t: object
    n: int = 0
    l: list = dataclasses.field(default_factory=list)


class Slots:
    __slots__ = ("a", "b")


class Prop:
    def __init__(self, v):
        self.__dict__["v"] = v

    @property
    def v(self):
        return self.__dict__["v"] * 2


class Base:
    def m(self, x):
        return x + 1


class Derived(Base):
    def m(self, x):
        return super().m(x) * 10

    def parts(self):
        return super().m, self.m


class Result(collections.OrderedDict):
    pass


def _slots(x):
    s = Slots()
    s.a = x * 2
    return s


def _shared(x):
    l = [x + 1]
    return {"a": l, "b": l, "c": (l, l)}


def _cycle(x):
    l = [x]
    d = {"l": l}
    l.append(d)
    return l


def _result(x):
    r = Result(a=x, b=x + 1)
    r.extra = [x * 3]
    r.move_to_end("a")
    return r


def _counter(x):
    n, total = 0, x

    def step(y, k=2, *, z=3):
        nonlocal n, total
        n += 1
        total = total + y * k * z
        return total, n

    step(x)
    return step


PROGRAMS = {
    "tensor": lambda x: x * 2,
    "same_input": lambda x: x,
    "none": lambda x: None,
    "list": lambda x: [x + 1, 2, "a", None, [x]],
    "tuple": lambda x: (x, (x + 1, (x + 2,)), ()),
    "dict": lambda x: {"b": x, 1: x + 1, (2, 3): {}},
    "set": lambda x: {1, "a", (2, 3)},
    "frozenset": lambda x: frozenset({1, (2,)}),
    "slice": lambda x: slice(x.shape[0], None, 2),
    "range": lambda x: range(x.shape[0]),
    "namedtuple": lambda x: Point(x + 1, [x]),
    "size": lambda x: x.shape,
    "dtype": lambda x: (x.dtype, x.device, torch.float16),
    "dataclass": lambda x: Data(x * 2, 3, [x]),
    "slots": _slots,
    "property": lambda x: Prop(x + 1),
    "simple_namespace": lambda x: types.SimpleNamespace(a=x + 1, b=2),
    "ordered_dict": lambda x: collections.OrderedDict(b=x, a=x + 1),
    "ordered_subclass": _result,
    "deque": lambda x: collections.deque([x, 2], maxlen=3),
    "defaultdict": lambda x: collections.defaultdict(list, a=[x]),
    "partial": lambda x: functools.partial(torch.add, x, alpha=2),
    "bound_method": lambda x: Data(x).__eq__,
    "list_method": lambda x: [x + 1].append,
    "super_method": lambda x: Derived().parts(),
    "exception": lambda x: ValueError("text", 3),
    "bytes": lambda x: (b"x", bytearray(b"y"), 2.5, 1j, ..., NotImplemented),
    "shared": _shared,
    "cycle": _cycle,
    "same_tensor_twice": lambda x: (lambda y: (y, y, [y]))(x + 1),
    "list_iterator": lambda x: (lambda it: (next(it), it))(iter([x, x + 1, x + 2])),
    "dict_iterator": lambda x: (lambda it: (next(it), it))(iter({"a": 1, "b": 2})),
    "reversed": lambda x: (lambda it: (next(it), it))(reversed([1, 2, 3])),
    "enumerate": lambda x: (lambda it: (next(it), it))(enumerate([x, x + 1])),
    "zip": lambda x: zip([x, x + 1], [1, 2]),
    "map": lambda x: map(torch.neg, [x, x + 1]),
    "class": lambda x: (Data, int, torch.nn.Linear),
    "module": lambda x: (torch, functools),
    "function": lambda x: (assert_same, torch.add, len),
}


# A dict's iterator comes back as one over its remaining keys.
EXACT = dict(rtol=0, atol=0, iterators=True)


@pytest.mark.parametrize("name", PROGRAMS)
def test_returned(name):
    f = PROGRAMS[name]
    c = magneto.compile(f)
    for i in range(3):
        x = torch.arange(3.0) + i
        assert_same(want=f(x), got=c(x), what=name, **EXACT)
    assert counts().fallbacks == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_alive_at_a_break(name):
    make = PROGRAMS[name]

    def f(x):
        v = make(x)
        w = [v]
        magneto.graph_break()
        return v, w, w[0] is v, x + 1

    c = magneto.compile(f)
    for i in range(3):
        x = torch.arange(3.0) + i
        want, got = f(x), c(x)
        assert_same(got, want, name, **EXACT)
        assert got[2] is True


def test_a_method_of_a_dict_iterator_waits_for_a_call():
    def f(x):
        return (x + 1, [iter({"a": x, "b": 2}).__next__, magneto.graph_break()][0]())

    x = torch.arange(3.0)
    assert_same(magneto.compile(f)(x), f(x), **EXACT)


def test_returned_function_has_fresh_state():
    c = magneto.compile(_counter)
    x = torch.ones(3)
    one, two, ref = c(x), c(x), _counter(x)
    for _ in range(2):
        want = ref(x)
        assert_same(got=one(x), want=want, **EXACT)
    assert_same(want=two(x), got=_counter(x)(x), **EXACT)
    assert one.__name__ == "step" and one.__kwdefaults__ == {"z": 3}


def test_fresh_objects_are_new_at_each_call():
    c = magneto.compile(lambda x: ([x], {"a": 1}, Data(x)))
    x = torch.ones(3)
    a, b = c(x), c(x)
    assert all(p is not q for p, q in zip(a, b))
    a[2].l.append(1)
    assert c(x)[2].l == []


def test_input_identity():
    c = magneto.compile(lambda x, l: (x, l, l[0]))
    x, l = torch.ones(3), [torch.zeros(3)]
    a = c(x, l)
    assert a[0] is x and a[1] is l and a[2] is l[0]


def test_writes_to_arguments():
    def f(x, l, d, o, s):
        l.append(x + 1)
        l[0] = "first"
        d["k"] = l
        d.pop("gone", None)
        o.t = x * 2
        o.l = l
        del o.old
        s.add(3)
        return len(l)

    c = magneto.compile(f)
    for i in range(3):
        results = []
        for call in (f, c):
            x = torch.ones(3) * i
            l, d, o, s = [0], {"gone": 1, "stays": 2}, types.SimpleNamespace(old=1), {1}
            n = call(x, l, d, o, s)
            assert d["k"] is l and o.l is l
            results.append((n, l, d, vars(o), sorted(s)))
        assert_same(*results, **EXACT)


@pytest.mark.parametrize("method", ["__init__", "add_note", "__setstate__"])
def test_methods_that_write_an_older_exception_break(method):
    def f(e, x, v):
        getattr(Exception, method)(e, v(x))
        return x + 1

    value = {
        "__init__": lambda x: x * 2,
        "add_note": lambda x: "note",
        "__setstate__": lambda x: {"k": x * 3},
    }[method]
    before = counts().breaks
    x, want, got = torch.ones(3), ValueError(1), ValueError(1)
    assert torch.equal(magneto.compile(f)(got, x, value), f(want, x, value))
    assert_same(got, want, **EXACT)
    assert counts().breaks == before + 1


def _inside_autocast(x):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ x
        magneto.graph_break()
        return (y @ y).float()


def _generator_inside_autocast(x):
    def parts():
        with torch.autocast("cpu", torch.bfloat16):
            yield x @ x
            yield x @ x @ x

    p = parts()
    y = next(p)
    magneto.graph_break()
    return (y + next(p)).float()


def _exception_inside_autocast(x):
    try:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            magneto.graph_break()
            raise ValueError
    except ValueError:
        return y.float()


@pytest.mark.parametrize("f", [_inside_autocast, _generator_inside_autocast, _exception_inside_autocast])
def test_a_break_inside_autocast_leaves_as_many_levels_as_were_entered(f):
    """At depth 0 torch drops the weights it has cast: with the depth wrong, it would use stale ones from then on."""

    def depth():
        torch.autocast_increment_nesting()
        return torch.autocast_decrement_nesting()

    seen = []

    def g(x):
        return f(x)

    c = magneto.compile(g)
    for i in range(3):
        x = torch.ones(3, 3) * i
        assert torch.equal(c(x), g(x))
        seen.append(depth())
    with torch.autocast("cpu", torch.float16):
        c(x)
        seen.append(depth())
    assert seen == [0, 0, 0, 1]


class _Queue(collections.deque):
    def __init__(self, n):
        super().__init__([0] * n, n + 2)
        self.n = n
        self.log = ["init"]

    def append(self, x):
        self.log.append("append")
        super().append(x)


class _Groups(collections.defaultdict):
    __slots__ = ("log",)

    def __init__(self, n):
        self.log = ["init"]
        super().__init__(list)
        self[n] = n

    def __setitem__(self, key, x):
        self.log.append("setitem")
        super().__setitem__(key, x)


class _Pairs(map):
    def __new__(cls, *args, extra):
        made = super().__new__(cls, *args)
        made.extra = made.log = [extra]
        return made

    def __reduce__(self):
        self.log.append("reduce")
        return super().__reduce__()


class _Call(functools.partial):
    __slots__ = ("log",)

    def __new__(cls, *args):
        made = super().__new__(cls, sorted, *args, reverse=True)
        made.log = [args]
        made.extra = 4
        return made

    def __iter__(self):
        return iter((self(), self.func, self.args, self.keywords))


class _Failure(Exception):
    def __init__(self, a, b):
        self.log = ["init"]
        super().__init__(f"{a}-{b}")
        self.parts = a, b

    def __setattr__(self, name, x):
        if name != "log":
            self.log.append(name)
        super().__setattr__(name, x)

    def __reduce__(self):
        return _Failure, self.parts


@pytest.mark.parametrize(
    "make",
    [
        lambda: _Queue(3),
        lambda: _Groups(3),
        lambda: _Pairs(str, [1, 2], extra=3),
        lambda: _Call([1, 2]),
        lambda: _Failure(1, 2),
    ],
)
@pytest.mark.parametrize("brk", [False, True])
def test_instances_over_classes_in_c_are_made_once(make, brk):
    """What rebuilds them runs none of the program's own __new__, __init__, append, __setitem__, __setattr__ and __reduce__."""

    def f(x):
        o = make()
        if isinstance(o, _Queue):
            o.append(5)
        y = x + 1
        if brk:
            magneto.graph_break()
        return o, y

    def facts(o):
        return (
            type(o),
            list(o) if hasattr(o, "__iter__") else o.args,
            getattr(o, "maxlen", None),
            getattr(o, "default_factory", None),
            o.log,
            getattr(o, "__dict__", None),
        )

    assert facts(magneto.compile(f)(torch.ones(2))[0]) == facts(f(torch.ones(2))[0])


def test_hot_return_is_cheap():
    """A single returned tensor runs no construction program worth speaking of."""
    c = magneto.compile(lambda x: x.clone())
    x = torch.ones(3)
    c(x)
    assert torch.equal(c(x), x) and c(x) is not x
