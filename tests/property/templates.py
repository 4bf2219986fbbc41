"""Random programs from templates: a function f(x, y, n, w, l, d, o, q, u, wt) of tensors, an int, a str, a list, a dict, an object, a set,
a tuple and a leaf.  pick(k) gives a number in range(k); all choices come from it, smaller numbers make simpler programs.

A template is text with holes: {i} int, {b} truth value, {t} tensor, {s} str, {l} list of ints, {d} dict of ints by str, {o} Node, {q} set
of ints, {u} tuple of ints, {e} an exception to raise, {k} a small constant; {vi} a variable that holds an int, and so on, {g} and {f} a
generator and a function. @a_i is a new variable a<number> of kind i, @@i the latest one of this statement. {{ and }} are braces, {{pad}} the
indentation. A line >> is a block; ~ before it: of a loop, ! of finally, $ of a function; > after it: one level deeper.
"""

import re

PRELUDE = """
import collections, contextlib, copy, dataclasses, enum, functools, itertools, math, operator, types, typing, weakref
import torch

class Oops(Exception):
    def __init__(self, n=0, *rest):
        super().__init__(n, *rest)
        self.n = n

class Sub(Oops, KeyError):
    pass

class Desc:
    def __set_name__(self, owner, name): self.name = "_" + name
    def __get__(self, o, t=None): return self if o is None else o.__dict__.get(self.name, 4)
    def __set__(self, o, v): o.__dict__[self.name] = v % 17

class Meta(type):
    def __call__(cls, *a, **k):
        r = super().__call__(*a, **k)
        cls.made = (cls.made + 1) % 50
        return r

class Node(metaclass=Meta):
    made = 0
    rate = 3
    z = Desc()
    def __init__(self, v, kids=()):
        self.v, self.kids, self.log, self.memo = v, list(kids), [], {}
    def __getattr__(self, name):
        if name.startswith("dyn"): return len(name) + self.v
        raise AttributeError(name)
    def __iter__(self): return iter(self.kids)
    def __len__(self): return len(self.kids)
    def __contains__(self, x): return x == self.v
    def __getitem__(self, i): return self.log[i] if isinstance(i, slice) else self.v + (i if isinstance(i, int) else 1)
    def __setitem__(self, i, x): self.memo[i] = x
    def __delitem__(self, i): self.memo.pop(i, None)
    def __add__(self, x): return self.v + (x.v if isinstance(x, Node) else x)
    def __radd__(self, x): return x + self.v
    def __iadd__(self, x):
        self.v = (self.v + x) % 23
        return self
    def __eq__(self, x): return isinstance(x, Node) and x.v == self.v
    def __lt__(self, x): return self.v < x.v
    def __hash__(self): return hash(self.v % 3)
    def __bool__(self): return self.v % 2 == 1
    def __call__(self, x, *, k=1): return x * k + self.rate
    def __enter__(self):
        self.log.append("enter")
        return self
    def __exit__(self, t, e, tb):
        self.log.append(t.__name__ if t else "exit")
        return t is not None and self.v % 2 == 0 and issubclass(t, Oops)
    @property
    def twice(self): return self.v * 2
    @twice.setter
    def twice(self, x): self.v = x // 2 % 29
    @classmethod
    def make(cls, v): return cls(v % 9)
    @staticmethod
    def fold(a, b=2): return (a * 3 + b) % 13
    @functools.cached_property
    def lazy(self): return self.v + 100
    def walk(self):
        yield self.v
        for k in self.kids: yield from k.walk()
    def grow(self, n=1):
        self.kids.append(type(self)((self.v + n) % 7))
        return self

class Leaf(Node):
    rate = 5
    def __init__(self, v, kids=()):
        super().__init__(v, kids)
        self.leaf = True
    @property
    def twice(self): return super().twice + 1
    def __call__(self, x, **kw): return super().__call__(x + 1, **kw)
    def grow(self, n=2): return super().grow(n + 1)

class Slot:
    __slots__ = ("a", "b", "__weakref__")
    def __init__(self, a, b=0): self.a, self.b = a, b

@dataclasses.dataclass
class Data:
    a: int
    b: list = dataclasses.field(default_factory=list)
    c: str = "c"
    def total(self): return self.a + sum(self.b)

Pair = collections.namedtuple("Pair", "p q", defaults=[7])

class Color(enum.IntEnum):
    RED = 1
    BLUE = 2

class MyList(list):
    def push(self, x):
        self.append(x)
        return len(self)

class MyDict(dict):
    def __missing__(self, k): return 40 + len(k)

@contextlib.contextmanager
def manager(log, k, swallow=False):
    log.append(k)
    try:
        yield k
    except Oops:
        log.append("oops")
        if not swallow: raise
    finally:
        log.append(-k)

def stop(x=1):
    print(end="")
    return x

def count(n):
    got = 0
    while got < n:
        got += 1
        back = yield got
        if back: got += back

def deco(f):
    @functools.wraps(f)
    def inner(*a, **k):
        r = f(*a, **k)
        CALLS.append(f.__name__)
        return r
    return inner

@deco
def helper(a, b=1, /, c=2, *rest, d=3, **kw):
    return (a + b * c + d + len(rest) + len(kw)) % 31

def rec(n, f=lambda x: x + 1):
    return f(0) if n <= 0 else rec(n - 1, f) + 1

CALLS = []
COUNT = 0
TABLE = {"x": 1, "y": [1, 2]}
"""

KINDS = {
    "i": "n",
    "t": "x y",
    "s": "w",
    "l": "l",
    "d": "d",
    "o": "o",
    "q": "q",
    "u": "u",
}  # the parameters of each kind

EXPR = {
    "k": [str(k) for k in range(7)] + ["-1", "-2"],
    "i": [
        "{vi}",
        "{k}",
        "len({l})",
        "({i} + {i}) % 11",
        "({i} * {i}) % 7",
        "{o}.v",
        "{d}.get({s}, {k})",
        "({l}[{i} % len({l})] if {l} else {k})",
        "({i} if {b} else {i})",
        "({i} - {i})",
        "sum({l})",
        "max({i}, {i}, key=lambda z: -z)",
        "({i} << 1) & 15",
        "divmod({i}, 3)[{k} % 2]",
        "{o}.twice % 19",
        "{o}.z",
        "{o}.made",
        "{o}.dynfoo",
        "len({o})",
        "{o}[{i}]",
        "{o} + {i}",
        "{i} + {o}",
        "{o}({i}, k={k})",
        "{o}.fold({i}, b={i})",
        "{o}.lazy",
        "sum({o}.walk())",
        "len({q})",
        "sum({q})",
        "{u}[{k} % 3]",
        "len({s})",
        "int({b})",
        "(lambda a, *r, c={i}: (a + c + len(r)) % 9)({i}, *{l}[:2])",
        "functools.reduce(lambda a, b: (a * 2 + b) % 31, {l}, {i})",
        "helper({i})",
        "helper({i}, {i}, *{u}, d={k}, z={i})",
        "helper({i}, **{{'c': {i}, 'e': 1}})",
        "rec({i} % 5)",
        "rec({k} % 4, lambda x: x + {i})",
        "next(iter({l}), {k})",
        "next((a for a in {l} if a > {i}), {i})",
        "sum(a * b for a, b in zip({l}, {u}))",
        "sum(itertools.islice(itertools.count({k}), 3))",
        "len(list(itertools.chain({l}, {u})))",
        "operator.add({i}, {i})",
        "abs({i})",
        "hash({u}) % 7",
        "{t}.shape[0]",
        "{t}.dim()",
        "len({t})",
        "int({t}.sum().item()) % 50",
        "TABLE['x']",
        "COUNT",
        "len(CALLS)",
        "(@z_i := {i})",
        "Pair({i}, {i}).q",
        "Pair({i}).p",
        "Data({i}, {l}).total()",
        "dataclasses.replace(Data({i}), a={i}).a",
        "Color({k} % 2 + 1).value",
        "Slot({i}, {i}).b",
        "MyDict({d})[{s}]",
        "sum({d}.values())",
        "int('12') % {i} if {i} > 0 else 1",
        "round({i} / 3)",
        "ord({s}[0]) if {s} else 0",
        "{s}.count('a')",
        "min(({i}, {i}), default=3)",
        "math.gcd({i}, 6)",
        "bool({i}) + {i}",
        "~{i}",
        "-{i}",
        'len(f"{{{i}:>4}}{{{s}!r}}")',
        "len(str({l}))",
        "list(map(lambda a: a + {i}, {l} or [1]))[0]",
        "len([*{l}, *{u}])",
        "len({{**{d}, 'n': {i}}})",
        "type({o}).rate",
        "next({vg}, {k})",
        "isinstance({o}, Leaf) + 1",
        "stop({i})",
        "{f}({i})",
        "len({l}) and {l}[-1]",
        "sum(x_ for r in [{l}, {u}] for x_ in r if x_ % 2)",
        "copy.copy({o}).v",
        "copy.deepcopy({l}).count({i})",
        "sorted({l}, key=lambda a: (a % 3, -a), reverse={b})[0] if {l} else 0",
        "collections.Counter({l}).most_common(1)[0][1] if {l} else 0",
        "(lambda: (yield {i}))().__next__()",
        "eval('1 + 1')",
        "len(vars({o}))",
        "({i}, {i})[{b}]",
        "{i} // 2",
        "{i} % 3",
        "{i} ** 2 % 10",
        "[a for a in range(4)][{k} % 4]",
        "{{a: a * 2 for a in range(5)}}[{k} % 5]",
    ],
    "b": [
        "{i} > {i}",
        "{i} % 2 == 0",
        "not {l}",
        "{s} in {d}",
        "{i} in {l}",
        "{i} < {i} <= {i}",
        "{b} and {b}",
        "{b} or {b}",
        "not {b}",
        "{o} == {o}",
        "{o} is {o}",
        "isinstance({i}, bool)",
        "{i} in {o}",
        "bool({o})",
        "any(a > {i} for a in {l})",
        "all(a < {i} for a in {l})",
        "{q} <= {q}",
        "{u} < {u}",
        "{s}.isupper()",
        "hasattr({o}, 'leaf')",
        "hasattr({o}, 'new')",
        "callable({o})",
        "{l} == {l}",
        "{l} is {l}",
        "{d} == {d}",
        "{o} < {o}",
        "{t}.sum() > {i}",
        "bool(({t} > 0).all())",
        "{t} is {t}",
        "{t}.requires_grad",
        "torch.is_grad_enabled()",
        "type({o}) is Node",
        "issubclass(type({o}), Node)",
        "{i} == 3",
        "'memo' in {o}.__dict__",
        "{i} != {i}",
        "{t}.shape == {t}.shape",
    ],
    "s": [
        "{vs}",
        "'ab'",
        "'c'",
        "'x'",
        "str({i})",
        'f"{{{i}}}-{{{s}}}"',
        "{s} + 'q'",
        "{s}.upper()",
        "{s}[::-1]",
        "'-'.join(map(str, {l}))",
        "'%d:%s' % ({i}, {s})",
        "'{{}}/{{:>3}}'.format({i}, {s})",
        "type({o}).__name__",
        "{s}[{i}:]",
        "{s}.replace('a', 'b')",
        "({s} if {b} else {s})",
        "repr({u})",
        "next(iter({d}), 'no')",
        "Color({k} % 2 + 1).name",
        "({s} * 2)",
        "str({s})[:6]",
        'f"{{{i}=}}"',
        'f"{{{s}!r:>{{{k} + 5}}}}"',
        "helper.__name__",
        "str({t}.dtype)",
        "str(sorted({q}))",
    ],
    "l": [
        "{vl}",
        "[{i}, {i}]",
        "[]",
        "list({u})",
        "({l} + {l})",
        "{l}[{k}:]",
        "{l}[::-1]",
        "[a + {i} for a in {l}]",
        "[a for a in {l} if a % 2]",
        "sorted({l})",
        "sorted({q})",
        "list({d}.values())",
        "({o}.log and {l})",
        "list({o}.walk())",
        "list({vg})[:5]",
        "list(map(operator.neg, {l}))",
        "list(reversed({l}))",
        "[*{l}, {i}]",
        "list(filter(None, {l}))",
        "list(range({i} % 6))",
        "[a for a, _ in itertools.groupby({l})]",
        "list(itertools.accumulate({l}))",
        "[x_ * y_ for x_ in {l}[:3] for y_ in {u}]",
        "({l} if {b} else {l})",
        "copy.copy({l})",
        "list(count({k}))",
        "(lambda *a: list(a))(*{l}, *{u})",
        "list(dict.fromkeys({l}))",
        "TABLE['y']",
        "[f_() for f_ in [lambda a=a: a + {i} for a in range(3)]]",
        "[f_() for f_ in [lambda: a_ for a_ in range(3)]]",
        "list(itertools.takewhile(lambda a: a < {i}, {l}))",
        "(list(zip({l}, {l})) and {l})",
        "MyList({l})",
        "({l} * 2)",
        "{l}[-{k}:{k}]",
        "{l}[::2]",
        "[i_ for i_, a in enumerate({l}, {k})]",
        "list(collections.deque({l}, maxlen=3))",
        "[len(s_) for s_ in {d}]",
        "list({u}[1:])",
        "[a.v for a in {o}]",
        "[a.v for a in sorted([{o}, {o}])]",
    ],
    "d": [
        "{vd}",
        "{{}}",
        "{{'a': {i}, {s}: {i}}}",
        "dict({d})",
        "({d} | {d})",
        "{{s_: len(s_) for s_ in [{s}, {s}]}}",
        "dict(zip('abc', {l}))",
        "dict(a={i})",
        "{{**{d}, 'k': {i}}}",
        "({d} if {b} else {d})",
        "dict(sorted({d}.items()))",
        "{{k_: v_ + 1 for k_, v_ in {d}.items()}}",
        "({o}.memo and {d})",
        "collections.OrderedDict({d})",
        "collections.defaultdict(int, {d})",
        "MyDict({d})",
        "copy.copy({d})",
        "{d}.copy()",
        "dataclasses.asdict(Data({i})) and {d}",
        "Pair({i})._asdict()",
    ],
    "o": [
        "{vo}",
        "Node({i})",
        "Leaf({i})",
        "Node({i}, [{o}])",
        "Node.make({i})",
        "Leaf.make({i})",
        "{o}.grow()",
        "{o}.grow({i})",
        "({o} if {b} else {o})",
        "copy.copy({o})",
        "max({o}, {o})",
        "next(iter({o}), {o})",
        "type({o})({i})",
        "stop({o})",
    ],
    "q": [
        "{vq}",
        "set({l})",
        "{{{i}, {i}}}",
        "{q} | {q}",
        "{q} & {q}",
        "{q} - {q}",
        "{q} ^ {q}",
        "{{a % 3 for a in {l}}}",
        "set({u})",
        "set(range({k} + 1))",
        "frozenset({l})",
        "set(collections.Counter({l}))",
    ],
    "u": [
        "{vu}",
        "({i}, {i}, {i})",
        "(*{u}[1:], {i})",
        "tuple(({l} + [1, 2, 3])[:3])",
        "({u} if {b} else {u})",
        "(Pair({i}, {i}) + ({i},))",
        "tuple(a + 1 for a in {u})",
        "tuple(reversed({u}))",
        "{u}[::-1]",
    ],
    "t": [
        "{vt}",
        "({t} + {t})",
        "({t} * {i})",
        "torch.sin({t})",
        "({t} - {i})",
        "{t}.clone()",
        "torch.stack([{t}, {t}]).sum(0)",
        "torch.where({t} > 0, {t}, {t})",
        "({t} * 0.5).relu()",
        "({i} * {t})",
        "({t} if {b} else {t})",
        "sum([{t}, {t}])",
        "torch.cat([{t}[:1], {t}[1:]])",
        "{t}.view(-1)",
        "{t}.flip(0)",
        "torch.full_like({t}, {i})",
        "({t} / 2)",
        "(-{t})",
        "{t}.cumsum(0)",
        "functools.reduce(torch.add, [{t}, {t}, {t}])",
        "torch.zeros(3) + {t}",
        "torch.tensor([{i}, {i}, {i}]) + {t}",
        "{t}.max(0).values + {t}",
        "[*map(torch.cos, [{t}, {t}])][{k} % 2]",
        "{t}.mul({i}).add({t})",
        "{o}({t})",
        "(lambda a, b: a * b)({t}, {t})",
        "torch.ones_like({t}).mul_({i})",
        "{t}[[0, 2, 1]]",
        "getattr({o}, 't', {t})",
        "dict(a={t}, b={t})['b']",
        "stop({t})",
        "{t}.detach()",
        "torch.maximum({t}, {t})",
        "{t}.abs().sqrt()",
        "torch.arange(3) + {t}",
        "({t} > {t}).float()",
        "{t}.expand(2, 3)[1]",
        "next({vtg}, {t})",
        "{tf}({t})",
    ],
    "e": [
        "Oops({i})",
        "Sub({i}, {s})",
        "KeyError({s})",
        "ValueError({i})",
        "Oops",
        "IndexError('a')",
        "StopIteration({i})",
        "TypeError",
    ],
}

STMT = [
    "@v_i = {i}",
    "@v_t = {t}",
    "@v_l = {l}",
    "@v_s = {s}",
    "@v_d = {d}",
    "@v_o = {o}",
    "@v_q = {q}",
    "@v_u = {u}",
    "{l}.append({i})",
    "{vl}.extend({l})",
    "{vl}[:] = {l}",
    "{vl} += [{i}]",
    "{vl} and {vl}.pop()",
    "{vl}.insert({k}, {i})",
    "{vl}.sort(key=lambda a: -a)",
    "{vl}.reverse()",
    "if {vl}: {vl}[{i} % len({vl})] = {i}",
    "if {vl}: del {vl}[0]",
    "del {vl}[{k}:]",
    "{vl}[{k}:{k}] = {l}",
    "{vl}.clear()",
    "{vl} *= 2",
    "{vd}[{s}] = {i}",
    "{vd}.pop({s}, None)",
    "{vd}.update({d})",
    "{vd}.setdefault({s}, {i})",
    "{vd} |= {d}",
    "{vd}[{s}] = {vd}.get({s}, 0) + 1",
    "{vd} and {vd}.popitem()",
    "for k_ in list({vd}): del {vd}[k_]",
    "{vo}.v = {i}",
    "{vo}.v += {i}",
    "{vo} += {i}",
    "{vo}.twice = {i}",
    "{vo}.z = {i}",
    "{vo}.new = {i}",
    "{vo}.t = {t}",
    "{vo}.log.append({i})",
    "{vo}.log += [{s}]",
    "{vo}.kids = [{o}]",
    "{vo}.kids.append({o})",
    "{vo}[{s}] = {i}",
    "del {vo}[{s}]",
    "{vo}.grow({i})",
    "type({vo}).rate = {k}",
    "Node.made = {i}",
    "setattr({vo}, 'v', {i})",
    "if hasattr({vo}, 'new'): del {vo}.new",
    "{vo}.__dict__['v'] = {i}",
    "{vo}.__dict__.update(v={i})",
    "{vo}.memo = {d}",
    "{vo}.fn = lambda a: a + {i}",
    "if 'fn' in {vo}.__dict__: @v_i = {vo}.fn({i})",
    "{vo}.kids.sort()",
    "{vo}.__class__ = Leaf",
    "vars({vo})['w2'] = {s}",
    "if isinstance({vq}, set): {vq}.add({i})",
    "if isinstance({vq}, set): {vq}.discard({i})",
    "{vq} |= {q}",
    "{vq} -= {q}",
    "{vt} += {i}",
    "{vt}.add_({i})",
    "{vt}.mul_(2)",
    "{vt}[0] = {i}",
    "{vt}[1:] = {t}[1:]",
    "{vt}[1:].add_({t}[1:])",
    "{vt}.copy_({t})",
    "@v_t = {vt}[:]",
    "{vt}.zero_()",
    "{vt}.tag = {i}",
    "@v_t = {vt}.view(3)",
    "{vt}.data.add_(1)",
    "stop()",
    "print({i}, end='')",
    "print({s}, end=' ')",
    "pass",
    "assert {i} < 100, {s}",
    "global COUNT\n{{pad}}COUNT = (COUNT + {i}) % 13",
    "CALLS.append({s})",
    "TABLE['x'] = {i}",
    "TABLE['y'].append({i})",
    "globals()['COUNT'] = {i}",
    "@a_i, *@r_l = {u}",
    "@a_i, (@b_i, *@r_l), @c_i = {i}, {u}, {i}",
    "*@r_l, @a_i = {l} + [1]",
    "@a_i = @b_i = {i}",
    "@a_l = @b_l = [{i}]",
    "@a_i, @b_i = {i}, {i}\n{{pad}}@a_i, @b_i = {i}, {i}",
    "@a_t, @b_t = {t}, {t}",
    "@a_t, @b_t, @c_t = [{t} for _ in range(3)]",
    "for @a_i in []: pass\n{{pad}}@a_i = 1",
    "{vi} += {i}",
    "{vi} -= 1",
    "{vs} += {s}",
    "{vt} = {t}",
    "{vi} = {i}",
    "{vl} = {l}",
    "{vo} = {o}",
    "@v_g = count({i} % 6)",
    "@v_g = iter({l})",
    "@v_g = (a + {i} for a in {l})",
    "@v_g = {o}.walk()",
    "@v_g = map(lambda a: a * 2, {l})",
    "@v_g = enumerate({l})\n{{pad}}@v_g = (a for a, _ in @@g)",
    "@v_tg = (a * {i} for a in [{t}, {t}])",
    "@v_g = itertools.cycle([{i}, {i}])\n{{pad}}@v_g = itertools.islice(@@g, 4)",
    "@v_g = reversed({l})",
    "@v_g = iter(lambda: len(CALLS.append(1) or CALLS), 9)",
    "@v_g = zip({l}, {u})\n{{pad}}@v_g = (a * b for a, b in @@g)",
    "@v_f = lambda a: a + {i}",
    "@v_f = functools.partial(helper, {i}, c={i})",
    "@v_f = {o}.fold",
    "@v_f = functools.partial({o}, k={k})",
    "@v_f = {o}",
    "@v_tf = lambda a: a * {i} + {t}",
    "@v_tf = {o}",
    "@v_tf = functools.partial(torch.add, {t})",
    "@v_f = lambda a: a",
    "@v_f = operator.methodcaller('__add__', {i})",
    "@v_f = {l}.count",
    "@v_tf = torch.no_grad()(lambda a: a + {t})",
    "if {b}:\n>>",
    "if {b}:\n>>\n{{pad}}else:\n>>",
    "if {b}:\n>>\n{{pad}}elif {b}:\n>>\n{{pad}}else:\n>>",
    "for @a_i in {l}[:4]:\n~>>",
    "for @a_i in range({i} % 4):\n~>>",
    "for @k_s, @a_i in list({d}.items())[:3]:\n~>>",
    "for @a_i, @b_i in zip({l}[:3], {u}):\n~>>",
    "for @a_i in count({k}):\n~>>\n{{pad}}else:\n>>",
    "for @a_t in [{t}, {t}]:\n~>>",
    "for @a_t in {t}:\n{{pad}}    @a_t = @@t + torch.zeros(3)\n~>>",
    "for @a_o in list({o})[:3]:\n~>>",
    "for @a_i in {vg}:\n{{pad}}    if @@i > 20: break\n~>>",
    "for {vo}.v in range(3):\n~>>",
    "for @a_i in sorted({q})[:3]:\n~>>",
    "@w_i = {k} % 4\n{{pad}}while @@i > 0:\n{{pad}}    @w_i = @@i - 1\n~>>",
    "while True:\n>>\n{{pad}}    break",
    "try:\n>>\n{{pad}}except Exception as e:\n{{pad}}    CALLS.append(type(e).__name__ + str(e)[:40])\n>>",
    "try:\n>>\n{{pad}}    raise {e}\n{{pad}}except (Oops, ValueError) as e:\n{{pad}}    CALLS.append((type(e).__name__, e.args, type(e.__context__).__name__))\n>>\n{{pad}}except LookupError:\n>>\n{{pad}}except Exception:\n>>\n{{pad}}else:\n>>",
    "try:\n>>\n{{pad}}finally:\n!>>",
    "try:\n>>\n{{pad}}except Oops:\n>>\n{{pad}}    raise\n{{pad}}finally:\n!>>",
    "try:\n{{pad}}    if {b}: raise {e}\n>>\n{{pad}}except KeyError as e:\n>>\n{{pad}}    raise Oops({i}) from e\n{{pad}}except StopIteration as e:\n{{pad}}    @v_i = e.value\n{{pad}}except Exception as e:\n{{pad}}    @v_i = len(e.args)\n{{pad}}else:\n>>",
    "try:\n{{pad}}    @v_i = {l}[{i}]\n{{pad}}except IndexError as e:\n{{pad}}    @v_i = 77",
    "try:\n{{pad}}    @v_i = {d}[{s}]\n{{pad}}except KeyError as e:\n{{pad}}    @v_i = len(e.args[0])",
    "try:\n{{pad}}    {o}.nothing\n{{pad}}except AttributeError as e:\n{{pad}}    CALLS.append(str(e))",
    "try:\n{{pad}}    1 // ({i} % 2)\n{{pad}}except ZeroDivisionError as e: CALLS.append(str(e))",
    "try:\n{{pad}}    raise {e}\n{{pad}}except Exception as e:\n{{pad}}    try:\n>>>\n{{pad}}        raise {e}\n{{pad}}    except Exception as e2:\n{{pad}}        CALLS.append((type(e2.__context__).__name__, e2.__context__ is e, e2.__suppress_context__))",
    "if {b}: raise {e}",
    "with {vo}:\n>>",
    "with manager(CALLS, {k} + 1, {b}) as @m_i:\n>>",
    "with torch.no_grad():\n>>",
    "with {vo} as @a_o, manager(CALLS, 3):\n>>",
    "with contextlib.suppress(Oops, LookupError):\n>>",
    "with contextlib.ExitStack() as st:\n{{pad}}    st.enter_context({vo})\n{{pad}}    st.callback(CALLS.append, {i})\n>>",
    "with contextlib.nullcontext({i}) as @a_i:\n>>",
    "with torch.enable_grad():\n>>",
    "with {vo}:\n{{pad}}    raise {e}",
    "def @f_f(a, b={i}, *r, c={k}, **kw):\n$>>\n{{pad}}    return (a + b + c + len(r) + {i}) % 29",
    "def @f_f(a):\n{{pad}}    nonlocal {ni}\n{{pad}}    {ni} = ({ni} + a) % 31\n$>>\n{{pad}}    return {ni}",
    "def @f_tf(a):\n$>>\n{{pad}}    return a * {i} + {t}",
    "@deco\n{{pad}}def @f_f(a, k=1):\n$>>\n{{pad}}    return a + k + {i}",
    "@functools.lru_cache\n{{pad}}def @f_f(a): return a * 2",
    "def @f_f(a):\n{{pad}}    return a if a <= 0 or a > 9 else @@f(a - 1) + {k}",
    "def @f_gf(k):\n$>>\n{{pad}}    for j in range(k % 4):\n{{pad}}        got = yield j + {i}\n{{pad}}        if got: CALLS.append(got)\n{{pad}}    return {i}\n{{pad}}@v_g = @@gf({i})",
    "def @f_gf(k):\n{{pad}}    try:\n{{pad}}        yield {i}\n$>>>\n{{pad}}        yield k\n{{pad}}    except Oops as e:\n{{pad}}        CALLS.append(e.n)\n{{pad}}        yield 5\n{{pad}}    finally:\n{{pad}}        CALLS.append('fin')\n{{pad}}@v_g = @@gf({i})",
    "def @f_gf(k):\n{{pad}}    r = yield from {g}\n{{pad}}    yield from {l}[:3]\n{{pad}}    yield k\n{{pad}}@v_g = @@gf({i})",
    "if isinstance({vg}, types.GeneratorType):\n{{pad}}    try: @v_i = {vg}.send(None)\n{{pad}}    except StopIteration as e: @v_i = 3\n{{pad}}else: @v_i = 4",
    "if isinstance({vg}, types.GeneratorType):\n{{pad}}    try: CALLS.append({vg}.throw(Oops(3)))\n{{pad}}    except (Oops, StopIteration) as e: CALLS.append(repr(e))",
    "getattr({vg}, 'close', int)()",
    "@v_l = list(itertools.islice({vg}, 3))",
    "@a_i = sum(itertools.islice({vg}, 2))",
    "class @c_c:\n{{pad}}    base = {i}\n{{pad}}    def __init__(self, a): self.a = a + {i}\n{{pad}}    def get(self): return self.a + self.base\n{{pad}}@v_i = @@c({i}).get()",
    "class @c_c(Node):\n{{pad}}    rate = {i}\n{{pad}}    def grow(self, n=1):\n$>>>\n{{pad}}        return super().grow(n)\n{{pad}}@v_o = @@c({i}).grow()",
    "match {u}:\n{{pad}}    case (0, a_, _): @v_i = a_\n{{pad}}    case (a_, b_, c_) if a_ > b_: @v_i = a_ - b_\n{{pad}}    case [*r_]: @v_i = len(r_)\n{{pad}}    case _: @v_i = 0",
    "match {d}:\n{{pad}}    case {{'a': a_, **r_}}: @v_i = a_ + len(r_)\n{{pad}}    case _: @v_i = 9",
    "match {o}:\n{{pad}}    case Leaf(v=a_): @v_i = a_\n{{pad}}    case Node(v=1 | 2 | 3 as a_, kids=[]): @v_i = a_ * 10\n{{pad}}    case _: @v_i = 1",
    "match {i}:\n{{pad}}    case 0 | 1:\n>>>\n{{pad}}    case _:\n>>>",
    "@v_i = (lambda f_: f_(f_))(lambda f_, n_={i}: n_)",
    "@v_s = {o}.__class__.__qualname__",
    "@p_i, @q_i = Pair({i}, {i})",
    "@v_i = Pair({i})._replace(q={i}).q",
    "dt = Data({i}, {l})\n{{pad}}dt.b.append({i})\n{{pad}}@v_i = dt.total()",
    "sl = Slot({i}, {l})\n{{pad}}sl.a += 1\n{{pad}}sl.b.append(sl.a)\n{{pad}}@v_i = sl.a",
    "dq = collections.deque({l}, maxlen=4)\n{{pad}}dq.appendleft({i})\n{{pad}}dq.rotate(1)\n{{pad}}@v_l = list(dq)",
    "dd = collections.defaultdict(list)\n{{pad}}for a_ in {l}: dd[a_ % 3].append(a_)\n{{pad}}@v_l = [len(a_) for a_ in dd.values()]",
    "cn = collections.Counter({l})\n{{pad}}cn.update({u})\n{{pad}}@v_i = cn[{i}]",
    "od = collections.OrderedDict({d})\n{{pad}}if od: od.move_to_end(next(iter(od)))\n{{pad}}@v_d = od",
    "cm = collections.ChainMap({{}}, {d})\n{{pad}}cm['a'] = {i}\n{{pad}}@v_i = cm['a']",
    "@v_l = [*{l}]\n{{pad}}for a_ in @@l[:2]: @@l.remove(a_)",
    "@v_i = {vo}.__getitem__({i})",
    "@v_i = len({l})",
    "if {b}: @un_i = 1\n{{pad}}try: CALLS.append(@@i)\n{{pad}}except NameError as e: CALLS.append(str(e))\n{{pad}}@un_i = 2",
    "wr = weakref.ref({vo})\n{{pad}}@v_i = wr().v",
    "ml = MyList({l})\n{{pad}}@v_i = ml.push({i})",
    "sn = types.SimpleNamespace(a={i}, b={l})\n{{pad}}sn.a += 1\n{{pad}}@v_i = sn.a",
    "@v_s = str(sorted(vars({vo})))",
    "@v_l = sorted({l}, key=functools.cmp_to_key(lambda a, b: b - a))",
    "@v_d = {{s_: i_ for i_, s_ in enumerate([{s}, {s}])}}",
    "return {i}",
    "if {b}: return {t}, {i}",
    "if {b}: return {vg}",
    "if {b}: return lambda a: (a, {vi}, {vt})",
    "loss = ({t} * wt).sum()\n{{pad}}loss.backward()",
    "@v_t = ({t} * wt)",
    "wt.grad = None",
]
LOOP = ["if {b}: break", "if {b}: continue", "break", "continue"]


class Program:
    def __init__(self, pick, budget):
        self.pick, self.budget = pick, budget
        self.vars = {k: v.split() for k, v in KINDS.items()} | {
            "g": ["gen0"],
            "tg": ["tgen0"],
            "f": ["fn0"],
            "tf": ["tfn0"],
        }
        self.names, self.lines, self.loops = 0, [], 0
        self.cell = None  # the variable that {ni} stands for
        self.last, self.new = (
            {},
            [],
        )  # of the current statement: the names of its variables; what was bound since

    def choose(self, items):
        return items[self.pick(len(items))]

    def expr(self, kind, depth):
        items = EXPR[kind]
        if depth <= 0 and kind != "k":
            items = items[: 2 if kind in "be" else 1]
        return self.fill(self.choose(items), depth - 1)

    def hole(self, kind, depth):
        if kind == "ni":
            return self.cell
        if kind in ("g", "f", "tf"):
            return self.choose(self.vars[kind])
        if len(kind) > 1 and kind[0] == "v":
            return self.choose(self.vars[kind[1:]])
        return self.expr(kind, depth)

    def variable(self, mark):
        name, kind = mark.split("_")
        if mark not in self.last:
            self.names += 1
            self.last[mark] = f"{name}{self.names}"
        self.last[kind] = self.last[mark]
        self.new.append((kind, self.last[mark]))
        return self.last[mark]

    def fill(self, text, depth):
        def one(m):
            if m["brace"]:
                return m["brace"][0]
            if m["old"]:
                return self.last[m["old"]]
            return self.variable(m["new"]) if m["new"] else self.hole(m["hole"], depth)

        return PART.sub(one, text)

    def bind(self, names):
        for kind, name in names:
            if kind in self.vars and name not in self.vars[kind]:
                self.vars[kind].append(name)

    def block(self, pad, depth, how, bound, text):
        """A nested block: what it binds may be unbound afterwards."""
        saved, loops, last = {k: list(v) for k, v in self.vars.items()}, self.loops, self.last
        if how == "$":
            if "super()" not in text:
                self.vars["i"] = [*self.vars["i"], "a" if "(a" in text else "k"]
        else:
            self.bind(bound)
        self.loops = self.loops + 1 if how == "~" else 0 if how else self.loops
        for _ in range(1 + self.pick(3)):
            self.statement(pad, depth)
        self.vars, self.loops, self.last = saved, loops, last

    def statement(self, pad, depth):
        self.budget -= 1
        text = self.choose(LOOP if self.loops and not self.pick(6) else STMT)
        if ">>" in text and (depth <= 0 or self.budget < 0):
            text = STMT[self.pick(8)]
        if "{ni}" in text:
            self.names += 1
            self.cell = f"cell{self.names}"
            self.lines.append(" " * pad + f"{self.cell} = {self.pick(5)}")
        outer, self.last, bound = self.last, {}, []
        for i, line in enumerate(text.replace("{{pad}}", " " * pad).split("\n")):
            block = re.fullmatch(r"([~!$]?)>>(>?)", line)
            if block:
                self.block(pad + (8 if block[2] else 4), depth - 1, block[1], bound, text)
                continue
            self.new = []
            self.lines.append((" " * pad if not i else "") + self.fill(line, 2))
            bound += self.new
        first = text.split("\n")[0]
        if "for @" not in text and "if {b}: @" not in first and not first.startswith("with "):
            self.bind(bound)
        self.last = outer


PART = re.compile(r"(?P<brace>\{\{|\}\})|\{(?P<hole>[a-z]+)\}|@@(?P<old>[a-z]+)|@(?P<new>[a-z]+_[a-z]+)")


def program(pick, budget):
    """The text of one program; a few of them do not compile."""
    p = Program(pick, budget)
    for _ in range(2 + pick(6)):
        p.statement(4, 3)
    head, body, lines = ["def f(x, y, n, w, l, d, o, q, u, wt):"], [], "\n".join(p.lines).split("\n")
    if any("global COUNT" in line for line in lines):  # every function that writes it must say so
        head.append("    global COUNT")
    for line in lines:
        if "global COUNT" in line:
            continue
        body.append(line)
        if len(head) > 1 and re.match(r" *def .*:$", line):
            body.append(" " * (len(line) - len(line.lstrip()) + 4) + "global COUNT")
    head.append(
        "    gen0, tgen0, fn0, tfn0 = (a for a in [1, 2]), (a for a in [x]), (lambda a: a), (lambda a: a)"
    )
    keep = dict.fromkeys(v for k in "itlsdoqu" for v in p.vars[k][-3:])
    last = f"    return [{', '.join(keep)}], [{', '.join(p.vars['g'][-2:] + p.vars['f'][-2:])}]"
    return PRELUDE + "\n" + "\n".join([*head, *body, last]) + "\n"
