"""What runs when an older object goes out of use runs at the statement that drops it: __del__, clean-up of generators, weak references'
callbacks.  The programs are generated: each way to drop what a box holds, with each kind of finalizer, at each depth below the box."""

import collections
import functools
import gc
import math
import operator
import warnings
import weakref

import pytest
import torch
from torch.utils._device import _device_constructors

from harness import check, forced_breaks
from magneto import _magneto
from support import assert_counts

LOG = []
REFS = []


class Plain:
    pass


class Slots:
    __slots__ = ("a", "__weakref__")


class Dies:
    def __del__(self):
        LOG.append("del")


class ModuleDies(torch.nn.Module):
    def __del__(self):
        LOG.append("module")


def suspended():
    try:
        yield 1
    finally:
        LOG.append("generator")


def generator():
    g = suspended()
    next(g)
    return g


def watched(o, what):
    REFS.append(weakref.ref(o, lambda r: LOG.append(what)))
    return o


def finalized():
    o = Plain()
    weakref.finalize(o, LOG.append, "finalize")
    return o


KINDS = {
    "del": Dies,
    "generator": generator,
    "weak": lambda: watched(Plain(), "weak"),
    "finalize": finalized,
    "module_del": ModuleDies,
    "module_weak": lambda: watched(torch.nn.Module(), "module"),
    "function_weak": lambda: watched(lambda: 0, "function"),
    "tensor_weak": lambda: watched(torch.ones(2), "tensor"),
}


def with_a(o, v):
    o.a = v
    return o


NESTS = {
    "itself": lambda o: o,
    "tuple": lambda o: (o, 1),
    "tuples": lambda o: ((o,), (1,)),
    "list": lambda o: [o],
    "dict": lambda o: {"k": o},
    "instance": lambda o: with_a(Plain(), o),
    "instances": lambda o: with_a(Plain(), [with_a(Plain(), o)]),
    "slots": lambda o: with_a(Slots(), o),
    "partial": lambda o: functools.partial(print, o),
    "closure": lambda o: lambda: o,
    "deque": lambda o: collections.deque([o]),
}


class List(list):
    pass


class Dict(dict):
    pass


def default_dict(v):
    d = collections.defaultdict(int)
    d["a"] = v
    d["b"] = 5
    return d


def cell(v):
    def put(n):
        nonlocal v
        v = n

    def drop():
        nonlocal v
        del v

    put.drop = drop
    return put


BOXES = {
    "list": lambda v: [v, 5],
    "List": lambda v: List([v, 5]),
    "dict": lambda v: {"a": v, "b": 5},
    "Dict": lambda v: Dict(a=v, b=5),
    "odict": lambda v: collections.OrderedDict(a=v, b=5),
    "ddict": default_dict,
    "deque": lambda v: collections.deque([v, 5]),
    "full_deque": lambda v: collections.deque([v, 5], maxlen=2),
    "set": lambda v: {v, 5},
    "keys": lambda v: {v: 1, "b": 2},
    "object": lambda v: with_a(Plain(), v),
    "slots": lambda v: with_a(Slots(), v),
    "module": lambda v: with_a(torch.nn.Module(), v),
    "class": lambda v: type("C", (), {"a": v}),
    "nested": lambda v: {"x": [v, 1]},
    "cell": cell,
}

DROPS = {
    "list": """b.clear() | b[0] = None | del b[0] | b.pop(0) | w = b.pop(0); w = None | b[:] = [] | b[0:1] = [3] | del b[:1] | b.remove(b[0])
        b *= 0 | b.__init__() | b.__setitem__(0, 1) | b.__delitem__(0) | list.clear(b) | operator.setitem(b, 0, 2) | operator.delitem(b, 0)
        b[-2] = 1 | b[::2] = [0] | b[0], b[1] = 1, 2 | b.insert(0, 1); b.pop(1) | w = b[0]; b[0] = 1; w = 2 | w = b[0]; b.clear(); del w
        w = b.copy(); b.clear(); w.clear() | w = list(b); b.clear(); w = 1 | w = [*b]; b.clear(); del w[0] | w, _ = b; b.clear(); w = 0
        for i in range(2): b[i] = i""",
    "List": "b.clear() | b[0] = None | del b[0] | b.pop(0) | b[:] = []",
    "dict": """b.clear() | b['a'] = None | del b['a'] | b.pop('a') | w = b.pop('a', None); w = 0 | b.update(a=1) | b.update({'a': 1})
        b |= {'a': 1} | b.popitem(); b.popitem() | while b: b.popitem() | b.__setitem__('a', 1) | b.__delitem__('a') | dict.clear(b)
        b.__ior__({'a': 1}) | for k in list(b): b[k] = 1 | for k in list(b): del b[k] | for k, v in list(b.items()): del b[k]; v = 0
        operator.setitem(b, 'a', 2) | w = b.get('a'); b.clear(); w = 1 | w = b.copy(); b.clear(); w.clear() | b.update([('a', 1)])
        w = {**b}; b.clear(); del w['a'] | b.__init__(a=3) | operator.ior(b, {'a': 1})""",
    "Dict": "b.clear() | b['a'] = None | del b['a'] | b.pop('a')",
    "odict": "b.clear() | b['a'] = None | del b['a'] | b.pop('a') | b.popitem(last=False) | b.update(a=1) | b.move_to_end('a'); b.popitem()",
    "ddict": "b.clear() | b['a'] = None | del b['a'] | b.pop('a')",
    "deque": "b.clear() | b[0] = None | del b[0] | b.popleft() | w = b.popleft(); w = 0 | b.rotate(1); b.pop() | b.remove(b[0])",
    "full_deque": "b.append(1) | b.extend([1, 2]) | b.appendleft(1); b.appendleft(1) | b += [1, 2]",
    "set": """b.clear() | b.discard(next(i for i in b if not isinstance(i, int))) | b.intersection_update({5}) | b &= {5} | b -= set(b)
        b ^= set(b) | b.difference_update(list(b)) | b.symmetric_difference_update(list(b)) | while b: b.pop()""",
    "keys": "b.clear() | k = next(iter(b)); del b[k]; k = 0 | b.popitem(); b.popitem() | for k in list(b): b.pop(k)",
    "object": """b.a = None | del b.a | setattr(b, 'a', 1) | delattr(b, 'a') | b.__dict__.clear() | b.__dict__.pop('a') | b.__dict__['a'] = 1
        del b.__dict__['a'] | b.__dict__.update(a=1) | vars(b).clear() | b.__dict__ = {} | b.__setattr__('a', 1)
        object.__setattr__(b, 'a', 1) | w = b.a; b.a = 1; w = 1 | w = b.a; del b.a; del w | b.__delattr__('a')""",
    "slots": "b.a = None | del b.a | setattr(b, 'a', 1) | type(b).a.__set__(b, 1) | type(b).a.__delete__(b)",
    "module": "b.a = None | del b.a | b.__dict__.pop('a', 0); b._modules.pop('a', 0) | b._modules['a'] = None; b.__dict__['a'] = 1",
    "class": "b.a = None | del b.a | setattr(b, 'a', 1)",
    "nested": """b.clear() | b['x'] = 1 | b['x'].clear() | b['x'][0] = 1 | b.pop('x') | del b['x'][0] | w = b['x']; del b['x']; del w
        b['x'] = b['x'][1:]""",
    "cell": "b(1) | b.drop()",
}

CASES = [
    (box, drop.strip())
    for box, text in DROPS.items()
    for line in text.splitlines()
    for drop in line.split(" | ")
]


def program(drop):
    """The statement in a frame of its own, with an op on either side, and what has run by then."""
    space = {"operator": operator}
    text = f"def f(x, b, log):\n    y = x + 1\n    {drop}\n    n = len(log)\n    return y * 2, n\n"
    exec(compile(text, f"<{drop}>", "exec"), space)
    return space["f"]


def run(f, box, make):
    """make: what gives the object; as an argument, a caller would hold it where calls are not inlined (PEP 523)."""
    if box == "class":
        gc.collect()  # classes are cycles
    LOG.clear()
    b = BOXES[box](make())
    r = f(torch.ones(2), b, LOG)
    seen = list(LOG)
    del b
    return r[0].tolist(), r[1], seen[: r[1]], list(LOG)


def maker(nest, kind):
    return lambda: NESTS[nest](KINDS[kind]())


def pairs():
    """Each kind and each depth at least once for a statement; all of both would be 88."""
    kinds, nests = list(KINDS), list(NESTS)
    return [(kinds[i % len(kinds)], nests[i * 3 % len(nests)]) for i in range(22)]


@pytest.mark.parametrize("box, drop", CASES)
def test_finalizers_run_at_the_statement(box, drop):
    f = program(drop)
    for kind, nest in pairs():
        try:
            BOXES[box](NESTS[nest](KINDS[kind]()))
        except TypeError:
            continue  # no element of a set
        make = maker(nest, kind)
        eager = run(f, box, make)
        assert eager[1]
        compiled = _magneto.Callable(program(drop))
        for turn in range(2):
            got = run(compiled, box, make)  # pytest would hold what an assert contains
            assert got == eager, (kind, nest, turn)
        REFS.clear()
    _magneto.reset()


@pytest.mark.parametrize("box, drop", [c for c in CASES if c[0] not in ("set", "keys")])
def test_what_was_recorded_without_finalizers_is_not_run_with_them(box, drop):
    f = program(drop)
    for i, (kind, nest) in enumerate(pairs()):
        if i % 3:
            continue
        make = maker(nest, kind)
        eager = run(f, box, make)
        compiled = _magneto.Callable(program(drop))
        for first in 5, "text", torch.ones(2):
            run(compiled, box, lambda first=first: first)
            run(compiled, box, lambda nest=nest, first=first: NESTS[nest](first))
        for turn in range(2):
            got = run(compiled, box, make)
            assert got == eager, (kind, nest, turn)
        REFS.clear()
    _magneto.reset()


def test_a_weak_reference_without_a_callback_is_dead_after_the_statement():
    def f(x, b, r):
        y = x + 1
        b.clear()
        return y, r() is None

    for make in Plain, torch.nn.Module:
        compiled = _magneto.Callable(f)
        for _ in range(2):
            b = [make()]
            assert compiled(torch.ones(2), b, weakref.ref(b[0]))[1] is True


def plain_drops(x, b, d, o, s):
    b[0] = x + 1
    b.pop()
    d["k"] = x * 2
    d.update(n=3)
    d.pop("gone")
    o.a = x + 3
    s.clear()
    o.b.clear()
    return b[0] * d["k"]


def test_what_runs_nothing_when_it_goes_breaks_no_graph():
    def args():
        o = with_a(Plain(), torch.ones(2))
        o.b = [with_a(Plain(), [1.5]), (1, "a"), {"t": torch.ones(2)}]
        return torch.ones(2), [torch.ones(2), [o.a]], {"k": torch.ones(2), "n": 1, "gone": Plain()}, o, {1, 2}

    check(plain_drops, args)
    assert_counts(graphs=1, breaks=0)


def test_what_others_hold_breaks_no_graph():
    """The logger of an object that is dropped has handlers with weak references, and stays."""
    import logging

    logger = logging.getLogger("test_finalizers")
    logger.addHandler(logging.NullHandler())

    def f(x, b):
        b.clear()
        return x + 1

    check(f, lambda: (torch.ones(2), [with_a(Plain(), logger)]))
    assert_counts(graphs=1, breaks=0)


def awaited_by_hand(x):
    async def double(t):
        return t * 2

    c = double(x)
    try:
        c.send(None)
    except StopIteration as e:
        return e.value + 1


def never_awaited(x):
    async def double(t):
        return t * 2

    y = x * 3
    double(y)
    return y + 1


def warnings_of(f):
    """What Python warns about in a call; the records hold the coroutines."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        f(torch.ones(2))
        return [str(w.message) for w in seen]


@pytest.mark.parametrize("k, inner", [(0, False), (2, False), (14, True)])
@pytest.mark.parametrize("f", [awaited_by_hand, never_awaited])
def test_python_warns_about_coroutines_as_in_eager(f, k, inner):
    """Neither about one that only a dropped recording has made, nor not at all on a hit."""
    eager, compiled = warnings_of(f), _magneto.Callable(f)
    assert len(eager) == (f is never_awaited)
    with forced_breaks(k, inner):
        for _ in range(3):
            assert warnings_of(compiled) == eager
    _magneto.reset()


def own_function(x):
    return x


@pytest.mark.parametrize(
    "key", [torch.ones, math.sin, torch._C._nn.gelu, own_function, torch.nn.functional.relu]
)
def test_a_function_of_a_module_may_be_a_key_though_its_end_is_seen(key):
    """Its module holds it, so an entry may as well."""
    ends = []
    ref = weakref.ref(key, ends.append)
    among, table = {key, "other"}, {key: 2}

    def f(x):
        if torch.zeros in among:
            return x
        return x + len(table) + sum(table.values())

    check(f, lambda: (torch.ones(2),))
    assert_counts(graphs=1, breaks=0)
    assert ref() is key and not ends


def test_a_default_device_may_be_set_when_the_ends_of_factories_are_seen():
    refs = [weakref.ref(k, print) for k in _device_constructors()]

    def f(x):
        with torch.device("cpu"):
            return torch.ones(3) + x

    check(f, lambda: (torch.ones(3),))
    assert_counts(graphs=1, breaks=0)
    assert all(r() for r in refs)
