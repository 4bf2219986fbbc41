"""Numbers and strings that are only passed on are no reason to compile again; those that anybody looks at are guarded."""

import collections
import copy
import dataclasses
import enum
import functools
import itertools
import math
import operator
import re

import pytest
import torch

import magneto
from support import assert_same


class Counter:
    def __init__(self):
        self.frames = 0

    def __call__(self, gm, inputs):
        self.frames += 1
        return gm.forward


class Holder:
    def __init__(self, value):
        self.value = value


def compiled(f):
    magneto.reset()
    counter = Counter()
    return magneto.compile(f, backend=counter), counter


# ---- passed on ----


def in_tuple(x, v):
    return x.sin(), v


def in_list(x, v):
    kept = []
    kept.append(v)
    return x.sin(), kept


def in_dict(x, v):
    return {"x": x + 1, "v": v}


def to_function(x, v):
    def f(x, unused):
        return x + 1

    return f(x, v)


def through_method(x, v):
    class C:
        def __init__(self, v):
            self.v = v

    return x + 1, C(v).v


def unpacked(x, v):
    kept = []
    for name, number in [(v, 1), (v, 2)]:
        kept.append(name)
    return x + 1, kept


def zipped(x, v):
    return x + 1, [a for a, b in zip([v, v], range(2))]


def is_there(x, v):
    if v is not None and isinstance(v, (str, int, float)):
        return x + 1, v
    return x - 1, v


PASSED_ON = [in_tuple, in_list, in_dict, to_function, through_method, unpacked, zipped, is_there]
VALUES = [("alpha", "beta", "c"), (11, 42, 3), (2.5, -3.0, 0.0), (3, 4, 2**70)]


@pytest.mark.parametrize("values", VALUES, ids=["str", "int", "float", "long"])
@pytest.mark.parametrize("f", PASSED_ON, ids=lambda f: f.__name__)
def test_what_is_passed_on_is_not_guarded(f, values):
    x = torch.randn(3)
    g, counter = compiled(f)
    for v in values:
        assert repr(g(x, v)) == repr(f(x, v))
    assert counter.frames == 1


def wrapped(how, v):
    return {
        "attribute": lambda: Holder(v),
        "list": lambda: [v],
        "dict": lambda: {"value": v},
        "tuple": lambda: (v, 1),
        "list of tuples": lambda: [(v, 1)],
        "dict of lists": lambda: {"value": [v]},
    }[how]()


def out_of(how, o):
    if how == "attribute":
        return o.value
    if how == "dict":
        return o["value"]
    if how == "dict of lists":
        return o["value"][0]
    if how == "list of tuples":
        return o[0][0]
    return o[0]


HOWS = ["attribute", "list", "dict", "tuple", "list of tuples", "dict of lists"]


@pytest.mark.parametrize("how", HOWS)
def test_loaded_from_a_container(how):
    def f(x, o):
        return x + 1, out_of(how, o)

    x = torch.randn(3)
    g, counter = compiled(f)
    for v in ("a", "b", "cc"):
        assert g(x, wrapped(how, v))[1] == v
    assert counter.frames == 1


def test_of_a_dict_that_a_closure_holds():
    holder = {"value": "hello"}

    def f(x):
        return x + 1, holder["value"]

    x = torch.randn(3)
    g, counter = compiled(f)
    assert g(x)[1] == "hello"
    holder["value"] = "world"
    assert g(x)[1] == "world"
    assert counter.frames == 1


def test_items_of_a_list_of_tuples():
    def inner(x, key, patches):
        return x * x + 1

    def f(x, keys):
        patches = []
        for key, patch in keys:
            patches.append(patch)
        return inner(x, key, patches), patches

    x = torch.randn(3)
    g, counter = compiled(f)
    for keys in ([("a", 1), ("b", 2)], [("c", 3), ("d", 4)]):
        assert g(x, keys)[1] == [v for _, v in keys]
    assert counter.frames == 1


def test_another_class_compiles_again():
    g, counter = compiled(in_tuple)
    x = torch.randn(3)
    for v in ("a", 1, 2.0, None, [1]):
        assert g(x, v)[1] == v
    assert counter.frames > 1


def test_stored_where_the_caller_sees_it():
    def f(x, o, kept, v):
        o.value = v
        kept["k"] = v
        kept["l"].append((v, 1))
        return x + 1

    g, counter = compiled(f)
    for v in ("a", "b", "c"):
        o, kept = Holder(None), {"l": []}
        g(torch.randn(3), o, kept, v)
        assert (o.value, kept) == (v, {"k": v, "l": [(v, 1)]})
    assert counter.frames == 1


def test_across_a_graph_break():
    def f(x, v):
        kept = (v, [v])
        x = x + 1
        magneto.graph_break()
        return x * 2, kept, v

    g, counter = compiled(f)
    for v in ("a", "b"):
        assert g(torch.randn(3), v)[1:] == ((v, [v]), v)
    assert counter.frames == 2


# ---- looked at ----


@dataclasses.dataclass
class Point:
    name: object
    size: object = 1


Named = collections.namedtuple("Named", "name size")


class Keyed:
    def __getitem__(self, k):
        return k == "a"


class Slotted:
    __slots__ = ("value",)


def slotted(v):
    s = Slotted()
    s.value = v
    return s


class Kind(enum.Enum):
    A = "a"
    B = "bb"
    C = "c1"


@functools.lru_cache
def cached(v):
    return len(v)


def raised(v):
    try:
        raise ValueError(v)
    except ValueError as e:
        return str(e)


def caught(v):
    try:
        raise KeyError((v, 1))
    except KeyError as e:
        return e.args[0][0] == "a"


def matched(v):
    match v:
        case "a":
            return 1
        case "bb":
            return 2
    return 3


def generated(v):
    def gen():
        yield v
        yield "b"

    return max(gen()), sorted(gen()), "".join(gen()), list(gen()) == ["a", "b"]


def by_key(v):
    class K:
        def __init__(self, n, v):
            self.n, self.v = n, v

    return [k.n for k in sorted([K(1, "b"), K(2, v)], key=lambda k: k.v)]


def keywords(v):
    return dict(**{v: 1}), (lambda **kw: sorted(kw))(**{v: 2})


def nested(v):
    return [[v]] == [["a"]], ({"k": (v,)} == {"k": ("a",)}), (v,) < ("b",), {v} == {"a"}


LOOKED_AT = {
    "==": lambda v: v == "a",
    "in string": lambda v: v in "abc",
    "in list": lambda v: v in ["a", "x"],
    "in list of it": lambda v: "a" in [v],
    "in values": lambda v: "a" in {"k": v}.values(),
    "in dict": lambda v: "a" in {v: 1},
    "in zip": lambda v: ("a", 1) in zip([v], [1]),
    "truth": lambda v: 1 if v else 0,
    "not": lambda v: not v,
    "f string": lambda v: f"{v}",
    "f string of list": lambda v: f"{[v]}",
    "format": lambda v: "{}".format(v),
    "percent": lambda v: "%s" % v,
    "percent tuple": lambda v: "%s %d" % (v, 1),
    "str": lambda v: str((v,)),
    "repr": lambda v: repr({"k": v}),
    "len": lambda v: len(v),
    "concat": lambda v: v + "z",
    "join": lambda v: "-".join([v, v]),
    "upper": lambda v: v.upper(),
    "bound method": lambda v: (lambda m: m())(v.upper),
    "startswith": lambda v: "abc".startswith((v, "x")),
    "index": lambda v: ["a", "bb", "c1"].index(v),
    "count": lambda v: [v, "a"].count("a"),
    "key": lambda v: {"a": 1, "bb": 2, "c1": 3}[v],
    "get": lambda v: {"a": 1}.get(v, 0),
    "get tuple": lambda v: {("a", 1): 1}.get((v, 1), 0),
    "setdefault": lambda v: {"a": 1}.setdefault(v, 5),
    "set": lambda v: len({v, "a"}),
    "frozenset": lambda v: frozenset([v, "a"]) == frozenset(["a"]),
    "hash": lambda v: hash((v, 1)) == hash(("a", 1)),
    "iterate": lambda v: [c for c in v],
    "unpack": lambda v: (lambda *c: c)(*v),
    "subscript": lambda v: v[0],
    "slice": lambda v: v[1:],
    "max": lambda v: max(v, "b"),
    "max of list": lambda v: max([v, "b"]),
    "sorted": lambda v: sorted([v, "b"]),
    "sort": lambda v: (lambda l: l.sort() or l)(["b", v]),
    "map": lambda v: list(map(str.upper, [v])),
    "map of iterator": lambda v: list(map(str.upper, iter([v]))),
    "filter": lambda v: list(filter(lambda s: s == "a", [v, "a"])),
    "any": lambda v: any([v == "a"]),
    "reduce": lambda v: functools.reduce(operator.add, [v, "z"]),
    "reduce with function": lambda v: functools.reduce(lambda a, b: a + b, [v, "z"]),
    "itemgetter": lambda v: operator.itemgetter(v)({"a": 1, "bb": 2, "c1": 3}),
    "operator.eq": lambda v: operator.eq([v], ["a"]),
    "chain": lambda v: "".join(itertools.chain([v], ["z"])),
    "groupby": lambda v: [k for k, g in itertools.groupby(["a", v, v])],
    "getattr": lambda v: getattr(Point("n", 1), v, 0),
    "setattr": lambda v: (lambda p: setattr(p, v, 1) or sorted(vars(p)))(Point("n")),
    "dataclass ==": lambda v: Point(v) == Point("a"),
    "dataclass repr": lambda v: repr(Point(v)),
    "asdict": lambda v: str(dataclasses.asdict(Point(v))),
    "replace": lambda v: dataclasses.replace(Point("n"), name=v).name == "a",
    "namedtuple": lambda v: Named(v, 1) == ("a", 1),
    "namedtuple field": lambda v: Named(v, 1)._replace(size=2).name == "a",
    "enum": lambda v: Kind(v).name,
    "lru_cache": lambda v: cached(v),
    "partial": lambda v: functools.partial(operator.eq, v)("a"),
    "partial of function": lambda v: functools.partial(lambda a, b: a == b, v)("a"),
    "closure": lambda v: (lambda: v == "a")(),
    "default": lambda v: (lambda s=v: s == "a")(),
    "own getitem": lambda v: Keyed()[v],
    "slots": lambda v: slotted(v).value == "a",
    "copy": lambda v: copy.copy([v]) == ["a"],
    "deepcopy": lambda v: copy.deepcopy({"k": [v]}) == {"k": ["a"]},
    "copy of object": lambda v: copy.copy(Holder(v)).value == "a",
    "ordered dict": lambda v: collections.OrderedDict(k=v) == {"k": "a"},
    "deque": lambda v: "a" in collections.deque([v]),
    "counter": lambda v: collections.Counter([v, "a"])["a"],
    "defaultdict": lambda v: collections.defaultdict(int, {"a": 1})[v],
    "re": lambda v: bool(re.match("a", v)),
    "isinstance": lambda v: isinstance(v, str),
    "type": lambda v: type(v) is str,
    "is": lambda v: v is v,
    "raised": raised,
    "caught": caught,
    "matched": matched,
    "generated": generated,
    "by key": by_key,
    "keywords": keywords,
    "nested": nested,
}


@pytest.mark.parametrize("what", LOOKED_AT)
def test_what_is_looked_at_is_guarded(what):
    f = LOOKED_AT[what]

    def program(x, v):
        r = f(v)
        return x + 1, r

    check(program, ("a", "bb", "a", "c1"))


NUMBERS = {
    "add": lambda x, n: x + n,
    "compare": lambda x, n: x + (n > 3),
    "range": lambda x, n: [x + i for i in range(n)],
    "view": lambda x, n: torch.zeros((n, 2)) + 1,
    "list of sizes": lambda x, n: torch.full([n, 2], 1.0) + 1,
    "unpacked": lambda x, n: torch.ones(*(n, 2)) + 1,
    "keyword": lambda x, n: torch.sum(x.expand(6, 3), dim=n - n) + n,
    "index": lambda x, n: [10, 20, 30, 40, 50, 60][n] + x,
    "tensor index": lambda x, n: x.expand(9, 3)[n] * n,
    "tuple index": lambda x, n: x.expand(9, 3)[n, 1] * n,
    "slice": lambda x, n: x.expand(9, 3)[:n],
    "set item": lambda x, n: (lambda y: y.__setitem__(0, n) or y)(x.clone()),
    "store": lambda x, n: operator.setitem(y := x.clone(), 0, n) or y,
    "sum": lambda x, n: x + sum([n, 1]),
    "sum of generator": lambda x, n: x + sum(i for i in [n, 1]),
    "max": lambda x, n: x + max(n, 4),
    "math": lambda x, n: x + math.sqrt(n),
    "divmod": lambda x, n: x + divmod(n, 2)[1],
    "round": lambda x, n: x + round(n / 2),
    "format": lambda x, n: (x + 1, f"{n:03d}"),
    "torch.tensor": lambda x, n: x + torch.tensor([n, n, n]),
    "cat": lambda x, n: torch.cat([x] * n),
    "scalar list": lambda x, n: torch.as_tensor([[n]]) + x,
    "power": lambda x, n: x.abs() ** n,
    "functional": lambda x, n: torch.nn.functional.pad(x, (n, 1)),
    "interpolate": lambda x, n: torch.nn.functional.interpolate(x.view(1, 1, 3), size=(n,)),
    "negative": lambda x, n: x * -n,
    "in range": lambda x, n: x + (n in range(4)),
    "truth of list": lambda x, n: x + (1 if [n] else 0),
    "is of small": lambda x, n: (x, n is n),
    "bits": lambda x, n: x + n.bit_length(),
    "accumulate": lambda x, n: x + list(itertools.accumulate([n, 1]))[-1],
    "loop": lambda x, n: functools.reduce(lambda y, _: y + 1, range(n), x),
    "dtype of sum": lambda x, n: torch.arange(3) + n,
    "dropout": lambda x, n: torch.nn.functional.dropout(x, p=0.0) + n,
}


@pytest.mark.parametrize("what", NUMBERS)
def test_numbers_that_are_looked_at(what):
    check(NUMBERS[what], (2, 5, 2, 4))


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(
    "what",
    ["==", "in list of it", "f string", "join", "key", "sorted", "generated", "dataclass ==", "nested"],
)
def test_looked_at_in_a_container(how, what):
    f = LOOKED_AT[what]

    def program(x, o):
        return x + 1, f(out_of(how, o))

    check(program, [wrapped(how, v) for v in ("a", "bb", "a", "c1")])


@pytest.mark.parametrize("how", ["list", "dict", "tuple", "list of tuples", "dict of lists"])
def test_the_container_is_looked_at(how):
    check(lambda x, o: (x + 1, str(o), o == wrapped(how, "a")), [wrapped(how, v) for v in ("a", "bb", "a")])


def test_both_passed_on_and_looked_at():
    def program(x, a, b):
        if a == "a":
            x = x + 1
        return x * 2, a, b, (b, a)

    x = torch.randn(3)
    g, counter = compiled(program)
    for a, b in (("a", "p"), ("a", "q"), ("b", "q"), ("b", "r"), ("a", "r")):
        want, have = program(x, a, b), g(x, a, b)
        assert torch.equal(want[0], have[0]) and want[1:] == have[1:]
    assert counter.frames == 2


def test_identity():
    sentinel = "a sentinel"

    def program(x, v):
        return (x + 1 if v is sentinel else x - 1), (v, v)[0] is v

    check(program, (sentinel, "another", sentinel))


def check(program, values):
    x = torch.randn(3)
    g, counter = compiled(program)
    for _ in range(2):
        for v in values:
            assert_same(want=program(x, v), got=g(x, v), what=f"{v!r}", rtol=0, atol=0)
