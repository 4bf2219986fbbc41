"""Dicts that are asked for a key: only that key is guarded, and a key that keeps changing is no recompile."""

import pytest
import torch

import magneto
from tests.support import assert_same
from tests.support.counts import assert_counts, counts


class Scaled(torch.nn.Module):
    """What an adapter is: parameters and numbers in dicts by name, and the name that is active."""

    def __init__(self):
        super().__init__()
        self.parts = torch.nn.ModuleDict()
        self.scales, self.special = {}, {}
        self.active = []

    def add(self, name, rank=3, scale=2.0):
        self.parts[name] = torch.nn.Sequential(torch.nn.Linear(4, rank), torch.nn.Linear(rank, 4))
        self.scales[name] = scale

    def forward(self, x):
        names = self.parts.keys()
        for name in self.active:
            if name not in names or name in self.special:
                continue
            x = x + self.parts[name](x) * self.scales[name]
        return x


def _model(*names):
    model = Scaled().eval()
    for name in names:
        model.add(name)
    model.active = list(names[:1])
    return model, magneto.compile(model), torch.randn(2, 4)


def _follows(model, fast, x):
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x))


def test_keys_that_nobody_asks_for_may_come_and_go():
    model, fast, x = _model("a")
    _follows(model, fast, x)
    model.add("b")
    _follows(model, fast, x)
    del model.parts["b"], model.scales["b"]
    _follows(model, fast, x)
    assert_counts(graphs=1, misses=1, breaks=0)


def test_a_name_that_changes_is_compiled_for_any_name():
    model, fast, x = _model("a", "b")
    for name in "ab":
        model.active = [name]
        _follows(model, fast, x)
    before = counts()
    for name in "cdea":
        if name not in model.parts:
            model.add(name, scale=float(ord(name)))
        model.active = [name]
        _follows(model, fast, x)
    assert_counts(before, graphs=0, misses=0, breaks=0)
    assert before.graphs <= 2


def test_ranks_share_a_graph_with_symbolic_sizes():
    model, fast, x = _model("a", "b")
    for rank, name in enumerate("abcd", 3):
        model.add(name, rank)
        model.active = [name]
        _follows(model, fast, x)
    before = counts()
    for rank, name in enumerate("efgh", 9):
        model.add(name, rank)
        model.active = [name]
        _follows(model, fast, x)
    assert_counts(before, misses=0)
    assert before.graphs <= 3


def test_a_name_that_is_not_there_takes_the_other_way():
    model, fast, x = _model("a", "b")
    for name in ("a", "b", "missing", "a", "lost", "b"):
        model.active = [name]
        _follows(model, fast, x)
    model.special["a"] = None
    for name in "abab":
        model.active = [name]
        _follows(model, fast, x)


def test_two_names_for_one_module_are_followed():
    model, fast, x = _model("a", "b")
    for name in "abab":
        model.active = [name]
        _follows(model, fast, x)
    model.parts["b"] = model.parts["a"]
    for active in (["a", "b"], ["b", "a"], ["b"]):
        model.active = active
        _follows(model, fast, x)


def test_a_module_replaced_under_the_same_name_is_followed():
    model, fast, x = _model("a", "b")
    for name in "abab":
        model.active = [name]
        _follows(model, fast, x)
    model.add("a")
    model.active = ["a"]
    _follows(model, fast, x)
    model.parts["b"] = torch.nn.Identity()
    model.active = ["b"]
    _follows(model, fast, x)


def test_training_follows_the_names():
    def grads(call, model, x):
        model.zero_grad()
        call(x).sum().backward()
        return [p.grad.clone() for n in model.active for p in model.parts[n].parameters()]

    model, fast, x = _model("a", "b")
    model.add("c", 5)
    for name in "abcbac":
        model.active = [name]
        for got, expected in zip(grads(fast, model, x), grads(model, model, x), strict=True):
            torch.testing.assert_close(got, expected)


def _in_text(x, d, key):
    return x + d[key], f"{key}!"


def _compared(x, d, key):
    return x + d[key] if key == "a" else x - d[key]


def _key_and_constant(x, d, key):
    return x * d[key] - d["a"]


def _written(x, d, key):
    own = {key: 1}
    d["last"] = key
    return x + d[key], own


def _kept(x, d, key):
    keys = d.keys()
    return x + d[key], list(keys)


def _iterated(x, d, key):
    keys = d.keys()
    return x + sum(d[k] for k in keys) if key in keys else x


def _got(x, d, key):
    return x + d.get(key, 5.0)


@pytest.mark.parametrize(
    "f", [_in_text, _compared, _key_and_constant, _written, _kept, _iterated, _got], ids=lambda f: f.__name__
)
def test_other_uses_of_the_key_see_its_value(f):
    fast, x = magneto.compile(f), torch.randn(3)
    for key in "abcab":
        numbers = {"a": 2.0, "b": 3.0, "c": 4.0}
        mine, other = dict(numbers), dict(numbers)
        if f is _iterated or f is _kept:
            mine[key * 2] = other[key * 2] = 7.0
        got, expected = fast(x, mine, key), f(x, other, key)
        assert_same(got, expected)
        assert mine == other


class Registry:
    def __init__(self):
        self.table = {"a": 1.0}
        self.key = "a"

    @property
    def entries(self):
        return self.table

    @property
    def current(self):
        return self.entries[self.key]


def test_a_dict_that_properties_hand_on_is_asked_for_one_key():
    registry, x = Registry(), torch.randn(3)
    fast = magneto.compile(lambda x: x * registry.current + registry.entries["a"])
    assert torch.equal(fast(x), x + 1)
    registry.table["unused"] = 5.0
    assert torch.equal(fast(x), x + 1)
    assert_counts(graphs=1, misses=1)
    registry.key = "unused"
    assert torch.equal(fast(x), x * 5 + 1)
    registry.table = {"a": 3.0, "unused": 2.0}
    assert torch.equal(fast(x), x * 2 + 3)


class Forwarding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.note = torch.nn.Linear(4, 4), "first"

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, x):
        return self.inner(x) + self.weight.sum()


def test_module_attributes_by_super_depend_on_nothing_else():
    model, x = Forwarding(), torch.randn(2, 4)
    fast = magneto.compile(model)
    for note in ("first", "second", "third"):
        model.note = note
        torch.testing.assert_close(fast(x), model(x))
    assert_counts(graphs=1, misses=1, breaks=0)
    model.inner = torch.nn.Linear(4, 4)
    torch.testing.assert_close(fast(x), model(x))


class Parts(torch.nn.Module):
    """Parameters, buffers, submodules and plain attributes, asked for by name."""

    kind = 3.0

    def __init__(self):
        super().__init__()
        self.own = 2.0
        for name in "abcd":
            self.register_parameter(name, torch.nn.Parameter(torch.randn(3)))
        self.register_buffer("e", torch.randn(3))
        self.register_buffer("f", torch.randn(3))
        self.g, self.h = torch.nn.Linear(3, 3), torch.nn.ReLU()

    @property
    def made(self):
        return 5.0


def _by_getattr(x, parts, name):
    return x + 1, getattr(parts, name)


def _by_default(x, parts, name):
    return x + 1, getattr(parts, name, "none")


def _by_method(x, parts, name):
    try:
        return x + 1, parts.__getattr__(name)
    except AttributeError as e:
        return x, str(e)


def _by_function(x, parts, name):
    try:
        return x + 1, torch.nn.Module.__getattr__(parts, name)
    except AttributeError as e:
        return x, str(e)


def _by_hasattr(x, parts, name):
    return x + 1, hasattr(parts, name)


def _after_a_write(x, parts, name):
    parts.b = torch.nn.Parameter(torch.ones(3))
    parts.note = x
    return x + 1, getattr(parts, name, None)


def _used(x, parts, name):
    found = getattr(parts, name, 1.0)
    return found(x) if callable(found) else x * found


GETTERS = [_by_getattr, _by_default, _by_method, _by_function, _by_hasattr, _after_a_write, _used]


@pytest.mark.parametrize("names", ["abcd", "efab", "ghab", "abgefh"])
@pytest.mark.parametrize("f", GETTERS, ids=lambda f: f.__name__)
def test_attributes_of_modules_by_names_that_change(f, names):
    fast, x, mine, other = magneto.compile(f), torch.randn(3), Parts(), Parts()
    other.load_state_dict(mine.state_dict())
    for name in [*names, "own", "kind", "made", "missing", *names, "lost"]:
        if f is _by_getattr and name in ("missing", "lost"):
            continue
        got, expected = fast(x, mine, name), f(x, other, name)
        if isinstance(expected, tuple) and callable(expected[1]):
            assert type(got[1]) is type(expected[1]) and got[1] is getattr(mine, name)
        else:
            assert_same(got, expected)


def test_parameters_by_name_are_one_graph():
    fast, x, parts = magneto.compile(_used), torch.randn(3), Parts()
    for name in "abcd":
        assert_same(fast(x, parts, name), _used(x, parts, name))
    assert_counts(graphs=2, misses=2)
    parts.a = torch.nn.Parameter(torch.randn(3))
    assert_same(fast(x, parts, "a"), _used(x, parts, "a"))
    assert_counts(misses=2)
    Parts.x = property(lambda self: 7.0)
    try:
        assert_same(fast(x, parts, "x"), x * 7.0)
    finally:
        del Parts.x
    parts.__dict__["b"] = 4.0
    assert_same(fast(x, parts, "b"), x * 4.0)
    assert_same(fast(x, parts, "c"), _used(x, parts, "c"))


def test_a_class_that_gets_the_attribute_later_is_asked():
    fast, x, parts = magneto.compile(_used), torch.randn(3), Parts()
    for name in "abcd":
        fast(x, parts, name)
    Parts.a = 3.0
    try:
        assert_same(fast(x, parts, "a"), x * 3.0)
        assert_same(fast(x, parts, "b"), _used(x, parts, "b"))
    finally:
        del Parts.a
    assert_same(fast(x, parts, "a"), _used(x, parts, "a"))


class Noting(torch.nn.Module):
    def forward(self, x, *, name="none", **others):
        return x + 1, others.get("note"), others.get(name, "absent"), others.pop("note", None), len(others)


def test_strings_pass_through_modules_and_keyword_dicts():
    module = Noting()

    def noted(x, name, note):
        return module(x, note=note, other=1), module(x, name=name, note=note)

    fast, x = magneto.compile(noted), torch.randn(3)
    for note in ("one", "two", "three"):
        assert_same(fast(x, "note", note), noted(x, "note", note))
    assert_counts(graphs=1, misses=1)
    for name in ("lost", "note", "other"):
        assert_same(fast(x, name, "four"), noted(x, name, "four"))


def _absent(x, d, key):
    return x + 1, d.get(key, "default"), d.get(key)


def _lost(x, d, key):
    try:
        return x + 1, d[key]
    except KeyError as e:
        return x, str(e), e.args


@pytest.mark.parametrize("f", [_absent, _lost], ids=lambda f: f.__name__)
def test_keys_that_are_not_there_may_change(f):
    fast, x, d = magneto.compile(f), torch.randn(3), {"a": 1.0, "b": 2.0}
    for key in ("a", "b", "c", "d", "e", "a", "f", "b"):
        assert_same(fast(x, dict(d), key), f(x, dict(d), key))
    before = counts()
    for key in "ghij":
        assert_same(fast(x, dict(d), key), f(x, dict(d), key))
    if f is _absent:
        assert_counts(before, misses=0)
