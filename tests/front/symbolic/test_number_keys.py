"""Numbers that change from call to call as keys of dicts: hooks, counters on classes, tables with other keys each time."""

import collections

import pytest
import torch

import magneto
from support import assert_counts, assert_same, counts


class Counter:
    n = 0


class Loose:
    """Equal to a number by what its class says."""

    def __init__(self, k):
        self.k = k

    def __eq__(self, other):
        return self.k == other

    def __hash__(self):
        return hash(self.k)


ONE, TWO = {5: "five", "s": 1}, {6: "six"}
KEYED = {"d": {}}


def with_hooks(layers):
    def f(x):
        cache, handles = {}, []

        def save(mod, _, out):
            cache[mod] = out
            return out

        for layer in layers:
            handles.append(layer.register_forward_hook(save))
        for _ in range(3):
            x = layers(x)
            if x.sum() > 1e9:
                x = x + 1
        for h in handles:
            h.remove()
        return x + len(cache)

    return f


def test_hooks_that_a_call_registers_and_removes_are_compiled_once():
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
    f = with_hooks(layers)
    g = magneto.compile(f)
    x = torch.randn(2, 8)
    g(x)
    g(x)
    before = counts()
    for _ in range(12):
        assert_same(g(x), f(x))
    assert_counts(before, graphs=0, recompiles=0)
    assert not any(layer._forward_hooks for layer in layers)


def test_hooks_that_outlive_the_call_are_called_in_their_order():
    layers = torch.nn.Sequential(torch.nn.Linear(4, 4))
    seen = []

    @magneto.compile
    def f(x):
        a = layers[0].register_forward_hook(lambda m, i, o: o + 1)
        b = layers[0].register_forward_hook(lambda m, i, o: o * 2, prepend=True)
        y = layers(x)
        return y, a, b

    x = torch.ones(1, 4)
    for _ in range(6):
        y, a, b = f(x)
        assert_same(y, torch.nn.functional.linear(x, layers[0].weight, layers[0].bias) * 2 + 1)
        assert list(layers[0]._forward_hooks) == [b.id, a.id]
        seen.append(a.id)
        a.remove()
        b.remove()
    assert seen == sorted(set(seen)) and not layers[0]._forward_hooks


def equality(n):
    return {"d": dict_of(n)}["d"] == ONE


def dict_of(n):
    d = {}
    d[n] = "five"
    d["s"] = 1
    return d


def merged(n):
    d = dict_of(n)
    d.update(TWO)
    return list(d.items())


def merged_into(n):
    d = {**TWO, 7: "seven"}
    d.update(dict_of(n))
    return list(d.items())


def union(n):
    return list((dict_of(n) | TWO).items())


def unpacked(n):
    return list({**dict_of(n), **TWO}.items())


def as_set(n):
    s = set(dict_of(n))
    s.add(5)
    return len(s), 6 in s


def keys_and(n):
    return sorted(map(str, dict_of(n).keys() & TWO.keys()))


def among_values(n):
    return [dict_of(n)] == [ONE], ONE in [dict_of(n)]


def plain_lookup(n):
    d = dict_of(n)
    return d.get(5), 6 in d, d.get(7.0), d.get(True, "no"), d.pop(4, None), len(d)


def number_lookup(n):
    d = {5: "a", 6.0: "b", True: "c", "x": "d", None: "e", (7,): "f"}
    return d.get(n, "none"), n in d, d.setdefault(n, "new"), d.pop(n), list(d)


def deleted(n):
    d = {3: 1, 5: 2}
    d[n] = 3
    if 5 in d:
        del d[5]
    return list(d.items())


def missing(n):
    try:
        return {5: 1, 6: 2}[n]
    except KeyError as e:
        return repr(e)


def loose(n):
    d = {Loose(5): "loose"}
    return d.get(n, "none")


def loose_later(n):
    return dict_of(n).get(Loose(5), "none")


def two_numbers(n):
    d = {}
    d[n] = 1
    d[n + 1] = 2
    d[2 * n] = 3
    return list(d.items())


def ordered(n):
    d = collections.OrderedDict()
    d[n] = 1
    d[5] = 2
    d["x"] = 3
    d.move_to_end(n)
    return list(d.items()), d.popitem(last=False)


def copied(n):
    d = dict_of(n).copy()
    d[6] = "six"
    e = dict(d)
    return list(e.items()), list(d.values()), n in e


def nested(n):
    d = {"inner": {"d": dict_of(n)}}
    return d == {"inner": {"d": ONE}}


def kept(n):
    KEYED["d"][n] = "kept"
    r = dict(KEYED["d"])
    KEYED["d"].clear()
    return r


def hashed(n):
    d = dict_of(n)
    return hash(n), (n, 1) in {(5, 1): 2}, len(d)


USES = [equality, merged, merged_into, union, unpacked, as_set, keys_and, among_values, plain_lookup, number_lookup,
        deleted, missing, loose, loose_later, two_numbers, ordered, copied, nested, kept, hashed]  # fmt: skip


@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
def test_a_number_that_is_a_key_is_told_from_other_keys(use):
    def f(x):
        Counter.n += 1
        return x + 1, use(Counter.n)

    g = magneto.compile(f)
    x = torch.ones(2)
    want, got = [], []
    for to, fn in ((want, f), (got, g)):
        Counter.n = 0
        to.extend(fn(x)[1] for _ in range(9))
    assert got == want


@pytest.mark.parametrize("make", [dict, collections.OrderedDict])
def test_a_table_with_other_keys_at_each_call_is_compiled_once(make):
    def f(x, table):
        for k, v in table.items():
            x = x + v * k
        return x, 5 in table, list(table)

    g = magneto.compile(f)
    x = torch.ones(3)
    tables = [make({n: torch.full((3,), float(n)), n + 1: torch.ones(3)}) for n in range(10, 20)]
    for t in tables[:2]:
        assert_same(g(x, t), f(x, t))
    before = counts()
    for t in tables[2:]:
        assert_same(g(x, t), f(x, t))
    assert_counts(before, recompiles=0)
    assert_same(g(x, make({4: x, 5: x})), f(x, make({4: x, 5: x})))


def test_an_ordered_table_whose_order_is_not_that_of_additions():
    def f(x, table):
        for k, v in table.items():
            x = x * k - v
        return x

    g = magneto.compile(f)
    x = torch.ones(3)
    for n in range(2, 8):
        t = collections.OrderedDict(((n, x), (n + 1, x * 2)))
        assert_same(g(x, t), f(x, t))
        t.move_to_end(n)
        assert_same(g(x, t), f(x, t))


def test_a_closure_in_a_table_with_other_keys_is_known_by_its_code():
    table = {}

    def f(x):
        for k, fn in table.items():
            x = fn(x)
        return x

    g = magneto.compile(f)
    x = torch.ones(3)

    def put(n):
        table.clear()
        table[n] = lambda y: y * n

    for n in range(2, 5):
        put(n)
        assert_same(g(x), f(x))
    before = counts()
    for n in range(5, 15):
        put(n)
        assert_same(g(x), f(x))
    assert_counts(before, recompiles=0)


def test_dicts_that_are_asked_for_one_key():
    """An argument that is read by one key is filled when the key is a number that changes."""

    def f(x, n, d):
        return x + 1, (3 if isinstance(d.get(n), int) else n) * n

    c = magneto.compile(f)
    for n in (3, 2, 1, 0, 5, 1, 7):
        x = torch.ones(2)
        assert c(x, n, {0: 1, 1: 5})[1] == f(x, n, {0: 1, 1: 5})[1]


class Missing(dict):
    def __missing__(self, k):
        return -k


def finds(d, k):
    return d[k] if k in d else None


def gets(d, k):
    return d.get(k), d.pop(k, 3), dict(d)


def puts(d, k):
    d[k] = 9
    return list(d.items())


def sets_default(d, k):
    return d.setdefault(k, 5), list(d)


def deletes(d, k):
    if k in d:
        del d[k]
    return list(d.items())


def appends(d, k):
    return d[k], len(d)


LOOKS = [finds, gets, puts, sets_default, deletes, appends]
TABLES = [lambda d: collections.defaultdict(int, d), Missing, collections.Counter]


@pytest.mark.parametrize("use", LOOKS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", TABLES, ids=["defaultdict", "missing", "counter"])
def test_an_older_dict_of_another_class_with_other_keys_is_looked_up_by_their_values(use, make):
    g = magneto.compile(use)
    for n, k in [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5), (5, 6), (7, 7), (8, 2), (2, 8), (6, 6), (9, 9)]:
        mine, other = make({n: 1, 100: 2}), make({n: 1, 100: 2})
        assert repr((g(mine, k), mine)) == repr((use(other, k), other))
