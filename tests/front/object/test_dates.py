"""Dates and times are values: made, computed with and guarded by their fields; the clock, the zone and the locale break the graph."""

import datetime

import pytest
import torch

import magneto
from support import assert_counts, assert_same, counts

DAY = datetime.date(2020, 1, 31)
UTC = datetime.UTC


class Friday(datetime.date):
    """A class of the program."""


def constructors(x):
    y = x + 1
    d = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)
    return y * d.hour + datetime.date(2021, 2, 3).day + datetime.time(7, 8).minute


def arithmetic(x):
    y = x + 1
    d = DAY + datetime.timedelta(days=1)
    e = datetime.datetime(2020, 1, 2) - datetime.datetime(2019, 1, 1)
    return y * d.day * e.days, e > datetime.timedelta(days=3), (DAY - d).total_seconds()


def texts(x):
    y = x + 1
    d = datetime.datetime.fromisoformat("2020-01-02T03:04:05")
    return y, d.isoformat(), str(DAY), f"{DAY}", d.replace(year=2021), d.date(), d.ctime()


def zones(x):
    y = x + 1
    d = datetime.datetime(2020, 1, 2, tzinfo=UTC)
    return y * d.hour, d, d.utcoffset()


@pytest.mark.parametrize("f", [constructors, arithmetic, texts, zones], ids=lambda f: f.__name__)
def test_dates_are_made_while_recording(f):
    x = torch.ones(3)
    g = magneto.compile(f)
    for _ in range(3):
        assert_same(g(x), f(x))
    assert_counts(graphs=1, breaks=0, recompiles=0)


@pytest.mark.parametrize(
    "values",
    [
        (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 1)),
        (datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 1, fold=1), datetime.datetime(2020, 1, 1, tzinfo=UTC)),
        (datetime.time(1, 2), datetime.time(1, 2, fold=1), datetime.time(1, 2, tzinfo=UTC)),
        (datetime.timedelta(1), datetime.timedelta(1, 1), datetime.timedelta(1, 0, 1)),
    ],
    ids=["date", "datetime", "time", "timedelta"],
)  # fmt: skip
def test_dates_are_guarded_by_their_fields(values):
    def f(x, d):
        return x + 1, getattr(d, "fold", 0), repr(d), d

    g, x = magneto.compile(f), torch.ones(2)
    for v in values:
        assert_same(g(x, v), f(x, v))
    before = counts()
    for v in values:
        same = v + datetime.timedelta() if not isinstance(v, datetime.time) else v.replace()
        same = same.replace(fold=v.fold) if hasattr(v, "fold") else same
        assert same is not v
        assert_same(g(x, same), f(x, same))
    assert_counts(before, graphs=0, recompiles=0)


NOW = datetime.datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC, fold=1)


@pytest.mark.parametrize(
    "value", [NOW, NOW.date(), NOW.time(), datetime.timedelta(1)], ids=lambda v: type(v).__name__
)
def test_a_date_that_is_only_passed_on_is_not_guarded(value):
    def f(x, d):
        return x + 1, d, {"when": d}

    g, x = magneto.compile(f), torch.ones(2)
    got = [g(x, value), g(x, type(value)(1, 2, 3)), g(x, type(value).min)]
    assert_counts(graphs=1, recompiles=0)
    assert got[0][1] is value and got[0][2]["when"] is value
    assert [r[1] for r in got] == [value, type(value)(1, 2, 3), type(value).min]


def test_the_clock_is_read_in_each_call():
    """A timestamp beside a result: one graph, although each call has another one."""

    def f(x):
        began = datetime.datetime.now()
        y = x.sin()
        return y, began, datetime.datetime.now() - began

    g, x = magneto.compile(f), torch.ones(2)
    times = [g(x)[1] for _ in range(12)]
    assert_counts(graphs=1, recompiles=None)
    assert times == sorted(set(times))


def test_a_difference_of_other_dates_is_another_value():
    def f(x, a, b):
        return x * (b - a).days

    g, x = magneto.compile(f), torch.ones(2)
    for k in range(1, 5):
        args = x, DAY, DAY + datetime.timedelta(days=k)
        assert_same(g(*args), f(*args))


def test_classes_and_zones_of_the_program():
    class Zone(datetime.tzinfo):
        def __init__(self, hours):
            self.hours = hours

        def utcoffset(self, d):
            return datetime.timedelta(hours=self.hours)

    def f(x, d):
        return x + 1, d.isoformat()

    g, x = magneto.compile(f), torch.ones(2)
    zone = datetime.datetime(2020, 1, 1, tzinfo=Zone(1))
    for d in (Friday(2020, 1, 3), Friday(2020, 1, 10), zone):
        assert_same(g(x, d), f(x, d))
    zone.tzinfo.hours = 2
    assert_same(g(x, zone), f(x, zone))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x + 1, datetime.datetime.now() is None),
        lambda x: (x + 1, datetime.date.today() is None),
        lambda x: (x + 1, DAY.strftime("%A")),
        lambda x: (x + 1, f"{DAY:%A}"),
        lambda x: (x + 1, datetime.datetime(2020, 1, 1).timestamp()),
        lambda x: (x + 1, DAY.isocalendar()),
    ],
    ids=["now", "today", "strftime", "format", "timestamp", "isocalendar"],
)
def test_what_no_recording_can_know_breaks(f):
    g, x = magneto.compile(f), torch.ones(2)
    for _ in range(2):
        assert_same(g(x), f(x))
    assert counts().breaks >= 1
