"""What special methods and getters of the program return: C code reads it, also where it only passed through them."""

import math
import operator

import pytest
import torch

import magneto
from harness import forced_breaks
from tests.support import assert_same
from tests.support.counts import assert_counts, counts


class Number:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n

    def __int__(self):
        return self.n

    def __float__(self):
        return self.n + 0.5

    def __bool__(self):
        return self.n > 2

    def __len__(self):
        return self.n

    def __hash__(self):
        return self.n

    def __eq__(self, other):
        return self.n == getattr(other, "n", other)

    def __contains__(self, x):
        return self.n

    def __getitem__(self, i):
        return self.n

    def __length_hint__(self):
        return self.n

    def __round__(self, digits=None):
        return self.n

    def __lt__(self, other):
        return self.n % 2

    def __str__(self):
        return self.text

    def __format__(self, spec):
        return self.text + spec

    @property
    def text(self):
        return f"<{self.n}>"

    @property
    def own(self):
        return self.n

    def __getattr__(self, name):
        if name == "missing":
            return self.n
        raise AttributeError(name)


class Counted:
    def __init__(self, n):
        self.n, self.at = n, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.at += 1
        if self.at > 2:
            raise StopIteration
        return self.n


class Named:
    """Its name is what C code gets."""

    def __init__(self, n):
        self.n, self.name = n, "abcdefgh"[n]

    def __hash__(self):
        return hash(self.name)

    def __eq__(self, other):
        return self.name == getattr(other, "name", other)

    def __fspath__(self):
        return self.name

    def __str__(self):
        return self.name

    def __repr__(self):
        return self.name


ITEMS = [7, 8, 9, 10, 11, 12, 13, 14]
BY_NAME = dict(zip("abcdefgh", ITEMS))
BY_NUMBER = dict(enumerate(ITEMS))
CASES = {
    "list": lambda o: ITEMS[o],
    "tuple": lambda o: tuple(ITEMS)[o],
    "text": lambda o: "abcdefgh"[o],
    "bytes": lambda o: b"abcdefgh"[o],
    "range_item": lambda o: range(50)[o],
    "fresh_list": lambda o: [7, 8, 9, 10, 11, 12, 13, 14][o],
    "store": lambda o: operator.setitem(fresh := list(ITEMS), o, 0) or fresh,
    "slice": lambda o: (ITEMS[o:], ITEMS[:o], ITEMS[::o]),
    "slice_object": lambda o: tuple(ITEMS)[slice(0, o)],
    "slice_indices": lambda o: slice(o).indices(8),
    "range": lambda o: list(range(o)),
    "range_loop": lambda o: [i for i in range(o)],
    "repeat": lambda o: ([1] * o, "a" * o),
    "insert": lambda o: (fresh := list(ITEMS)).insert(o, 0) or fresh,
    "pop": lambda o: list(ITEMS).pop(o),
    "int": lambda o: int(o),
    "float": lambda o: float(o),
    "complex": lambda o: complex(o),
    "hex": lambda o: hex(o),
    "chr": lambda o: chr(o),
    "index": lambda o: operator.index(o),
    "sqrt": lambda o: math.sqrt(o),
    "round": lambda o: round(o),
    "bool": lambda o: bool(o),
    "if": lambda o: 1 if o else 2,
    "not": lambda o: not o,
    "len": lambda o: len(o),
    "hint": lambda o: operator.length_hint(o),
    "dict_key": lambda o: BY_NUMBER[o],
    "dict_get": lambda o: BY_NUMBER.get(o, -1),
    "in_dict": lambda o: (o in BY_NUMBER, o in {2: 0, 4: 0}),
    "in_list": lambda o: (o in ITEMS, o in [2, 4], o in (3, 5)),
    "in_set": lambda o: o in {1, 3},
    "set": lambda o: len({o, Number(3), Number(5)}),
    "fresh_dict": lambda o: {o: "mine", Number(2): "other", Number(4): "another"}.get(3, "none"),
    "count": lambda o: [1, 2, 2, 3, 3, 3].count(o),
    "position": lambda o: [1, 2, 3, 4, 5, 6].index(o),
    "equal": lambda o: (o == 2, [o] == [3], (o,) == (4,)),
    "contains": lambda o: 5 in o,
    "getitem": lambda o: (o[0], ITEMS[o[0]]),
    "reversed": lambda o: list(reversed(o))[:1],
    "sorted": lambda o: [x.n for x in sorted([Number(o.n), Number(3), Number(1)])],
    "min": lambda o: min(o, Number(3)).n,
    "str": lambda o: str(o),
    "format": lambda o: f"{o:!}",
    "property": lambda o: (o.own, ITEMS[o.own]),
    "hook": lambda o: (o.missing, ITEMS[o.missing]),
    "getattr": lambda o: ITEMS[getattr(o, "own")],
    "attrgetter": lambda o: ITEMS[operator.attrgetter("own")(o)],
    "map": lambda o: [i for i in map(lambda _: o.n, (1, 2))],
    "filter": lambda o: [i for i in filter(lambda i: o.n - i, (1, 2, 3))],
    "next": lambda o: [i for i in Counted(o.n)],
    "next_of_two": lambda o: next(Counted(o.n)) + sum(Counted(o.n)),
    "sentinel": lambda o: [i for i, _ in zip((1, 2, 3, 4), iter(lambda: o.n, 3))],
    "zip": lambda o: list(zip(Counted(o.n), ITEMS)),
    "key": lambda o: sorted(ITEMS, key=lambda i: i % (o.n + 1)),
    "named_key": lambda o: BY_NAME[Named(o.n)],
    "named_in": lambda o: Named(o.n) in ("b", "d"),
    "named_dict": lambda o: {Named(o.n): 1, "c": 2}["c"],
    "named_text": lambda o: (str(Named(o.n)), repr([Named(o.n)]), f"{Named(o.n)}"),
    "named_join": lambda o: "-".join(map(str, (Named(o.n), o.n))),
    "named_path": lambda o: __import__("os").fspath(Named(o.n)),
}


def _outcome(case, o):
    try:
        return CASES[case](o)
    except (TypeError, ValueError, KeyError, IndexError) as e:
        return repr(e)


OLDER = Number(0)


def _given(x, case, n):
    return x + 1, _outcome(case, n)


def _older(x, case, n):
    x = x + 1
    return x, _outcome(case, OLDER)


def _made(x, case, n):
    x = x * 2
    o = Number(n)
    return x, _outcome(case, o)


def _deep(x, case, n):
    def inner(o):
        return _outcome(case, o)

    return x.sin(), inner(Number(n)), inner(OLDER)


def _calls(f, case):
    """Calls with numbers that change, twice over: as constants, as inputs, and as values known."""
    fast, x = magneto.compile(f), torch.randn(3)
    for n in (1, 2, 3, 5, 2, 3, 1):
        OLDER.n = n
        given = Number(n) if f is _given else n
        assert_same(fast(x, case, given), f(x, case, given))


FORMS = [_given, _older, _made, _deep]


@pytest.mark.parametrize("f", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", CASES)
def test_c_code_reads_what_special_methods_return(case, f):
    _calls(f, case)
    assert counts().fallbacks == 0


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("f", FORMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("case", CASES)
def test_c_code_reads_it_after_forced_breaks(case, f, k):
    with forced_breaks(k):
        _calls(f, case)
    assert counts().fallbacks == 0


class Config:
    def __init__(self, **values):
        self.values = values

    def __getattr__(self, name):
        return self.__dict__["values"][name]

    @property
    def note(self):
        return self.values["note"]

    def __getitem__(self, name):
        return self.values[name]


def test_what_getters_hand_on_is_not_read():
    def noted(x, config):
        return x + config.scale, config.note, config["note"], [n for n in (config.title,)]

    fast, x = magneto.compile(noted), torch.randn(3)
    for note in ("one", "two", "three"):
        config = Config(scale=2.0, note=note, title=note * 2)
        assert_same(fast(x, config), noted(x, config))
    assert_counts(graphs=1, misses=1)
