"""Random programs: a function f(x, n, l, d, o) of a tensor, an int, a list, a dict and an object, as source text.

pick(k) gives a number in range(k); all choices come from it, smaller numbers make simpler programs, so that shrinking works.
"""

PRELUDE = """
import contextlib, collections, functools, itertools
import torch

class Oops(Exception):
    pass

class Box:
    scale = 2
    def __init__(self, v):
        self.v = v
        self.log = []
    def __add__(self, o):
        return self.v + o
    def __len__(self):
        return self.v % 4
    def __getitem__(self, i):
        return self.v + i
    @property
    def twice(self):
        return self.v * 2
    def bump(self, k=1):
        self.v = (self.v + k) % 11
        return self.v

@contextlib.contextmanager
def manager(o, k):
    o.log.append(k)
    try:
        yield k
    finally:
        o.log.append(-k)

class Guard:
    def __init__(self, o, swallow):
        self.o, self.swallow = o, swallow
    def __enter__(self):
        self.o.log.append("in")
        return self
    def __exit__(self, t, e, tb):
        self.o.log.append(t.__name__ if t else "out")
        return self.swallow and t is Oops

def stop():
    print(end="")
    return 1

COUNT = 0
"""


class Program:
    def __init__(self, pick):
        self.pick = pick
        self.lines = []
        self.ints, self.tensors, self.lists = ["n"], ["x"], ["l"]
        self.names = 0
        self.loops = 0  # around the current statement, in this function
        self.budget = 30

    def choose(self, items):
        return items[self.pick(len(items))]

    def name(self, kind):
        self.names += 1
        return f"{kind}{self.names}"

    # ---- expressions ----

    def int(self, depth=2):
        k = self.pick(15 if depth else 3)
        a = (lambda: self.int(depth - 1)) if depth else (lambda: "1")
        return [
            lambda: self.choose(self.ints),
            lambda: str(self.pick(6)),
            lambda: "len(l)",
            lambda: f"({a()} + {a()}) % 7",
            lambda: f"({a()} * {a()}) % 5",
            lambda: f"(l[{a()} % len(l)] if l else 2)",
            lambda: f"d.get({a()} % 3, 1)",
            lambda: "o.v",
            lambda: f"o.bump({a()})",
            lambda: "o.twice % 9",
            lambda: f"({a()} if {self.cond(depth - 1)} else {a()})",
            lambda: f"sum([i * {a()} for i in range(3)]) % 8",
            lambda: f"max({a()}, {a()})",
            lambda: f"(lambda q, r=2: (q + r) % 6)({a()})",
            lambda: "len(o) + o[1] + (o + 1)",
        ][k]()

    def cond(self, depth=1):
        k = self.pick(7)
        a = lambda: self.int(max(depth, 0))
        return [
            lambda: f"{a()} > {a()}",
            lambda: f"{a()} % 2 == 0",
            lambda: "l",
            lambda: f"{a()} in d",
            lambda: f"not {a()}",
            lambda: f"{a()} < 3 and {a()} != 1",
            lambda: f"isinstance(d.get({a()}), int)",
        ][k]()

    def tensor(self, depth=2):
        k = self.pick(9 if depth else 1)
        a = (lambda: self.tensor(depth - 1)) if depth else (lambda: "x")
        return [
            lambda: self.choose(self.tensors),
            lambda: f"({a()} + {a()})",
            lambda: f"({a()} * {self.int(1)})",
            lambda: f"torch.sin({a()})",
            lambda: f"({a()} - {self.int(1)})",
            lambda: f"{a()}.clone()",
            lambda: f"torch.stack([{a()}, {a()}]).sum(0)",
            lambda: f"torch.where({a()} > 0, {a()}, {a()})",
            lambda: f"({a()} * 0.5).relu()",
        ][k]()

    # ---- statements ----

    def block(self, pad, depth, size=3):
        n, saved = 1 + self.pick(size), (len(self.ints), len(self.tensors), len(self.lists))
        for _ in range(n):
            self.statement(pad, depth)
        for names, k in zip((self.ints, self.tensors, self.lists), saved):
            del names[k:]  # what a branch binds may be unbound afterwards

    def put(self, pad, text):
        self.lines.append("    " * pad + text)

    def statement(self, pad, depth):
        self.budget -= 1
        simple = [
            self.assign_int,
            self.assign_tensor,
            self.list_op,
            self.dict_op,
            self.attribute,
            self.in_place,
            self.graph_break,
            self.unpack,
            self.count,
            self.closure_call,
        ]
        nested = [
            self.branch,
            self.loop,
            self.while_loop,
            self.attempt,
            self.with_block,
            self.function,
            self.generator,
            self.comprehension,
            self.throw,
            self.leave,
        ]
        if depth <= 0 or self.budget <= 0:
            return self.choose(simple)(pad, depth)
        return self.choose(simple + nested)(pad, depth)

    def assign_int(self, pad, depth):
        text = self.int()
        v = self.name("i")
        self.put(pad, f"{v} = {text}")
        self.ints.append(v)

    def assign_tensor(self, pad, depth):
        text = self.tensor()
        v = self.name("t")
        self.put(pad, f"{v} = {text}")
        self.tensors.append(v)

    def list_op(self, pad, depth):
        self.put(
            pad,
            self.choose(
                [
                    f"l.append({self.int()})",
                    "l.reverse()",
                    f"l[:] = l[{self.pick(3)}:]",
                    f"l.extend([{self.int()}, 2])",
                    "l.sort()",
                    "l and l.pop()",
                    f"l += [{self.int()}]",
                    f"l.insert(0, {self.int()})",
                ]
            ),
        )

    def dict_op(self, pad, depth):
        self.put(
            pad,
            self.choose(
                [
                    f"d[{self.int(1)} % 3] = {self.int()}",
                    "d.pop(1, None)",
                    f"d.setdefault({self.int(1)} % 3, 4)",
                    "d.update({2: 3})",
                    "d = dict(d)",
                    f"d = {{**d, {self.pick(4)}: {self.int()}}}",
                ]
            ),
        )

    def attribute(self, pad, depth):
        self.put(
            pad,
            self.choose(
                [
                    f"o.v = {self.int()}",
                    f"o.log.append({self.int()})",
                    f"o.new = {self.int()}",
                    f"o.t = {self.tensor()}",
                    "o.log = list(o.log)",
                    f"setattr(o, 'v', {self.int()})",
                ]
            ),
        )

    def in_place(self, pad, depth):
        t = self.choose(self.tensors)
        self.put(
            pad,
            self.choose(
                [
                    f"{t} = {t} + 1",
                    f"{t}.add_({self.int(1)})",
                    f"{t} += {self.int(1)}",
                    f"{t}[0] = {self.int(1)}",
                    f"{t}.mul_(2)",
                ]
            ),
        )

    def graph_break(self, pad, depth):
        self.put(
            pad,
            self.choose(
                ["stop()", "print(end='')", f"print({self.int()}, end='')", "torch._dynamo.graph_break()"][:3]
            ),
        )

    def unpack(self, pad, depth):
        a, b = self.name("i"), self.name("i")
        self.put(
            pad,
            self.choose([f"{a}, *{b} = {self.int()}, 1, 2", f"({a}, {b}) = ({self.int()}, {self.int()})"]),
        )
        self.put(pad, f"{b} = len({b}) if isinstance({b}, list) else {b}")
        self.ints += [a, b]

    def count(self, pad, depth):
        self.put(pad, "global COUNT")  # moved to the top of the function by the maker
        self.put(pad, f"COUNT = (COUNT + {self.int(1)}) % 13")

    def closure_call(self, pad, depth):
        v = self.name("i")
        self.put(pad, f"{v} = functools.reduce(lambda p, q: (p + q) % 9, [{self.int()}, {self.int()}], 1)")
        self.ints.append(v)

    def branch(self, pad, depth):
        self.put(pad, f"if {self.cond()}:")
        self.block(pad + 1, depth - 1)
        if self.pick(2):
            self.put(pad, "else:")
            self.block(pad + 1, depth - 1)

    def loop(self, pad, depth):
        v = self.name("i")
        self.put(
            pad,
            self.choose(
                [
                    f"for {v} in range({self.pick(4)}):",
                    f"for {v}, _ in enumerate(list(l)[:3]):",
                    f"for {v} in (1, 2):",
                    f"for {v} in sorted(d)[:3]:",
                ]
            ),
        )
        self.ints.append(v)
        self.loops += 1
        self.block(pad + 1, depth - 1)
        if self.pick(3) == 2:
            self.put(pad + 1, f"if {self.cond()}: {self.choose(['break', 'continue'])}")
        self.loops -= 1
        self.ints.remove(v)
        if self.pick(4) == 3:
            self.put(pad, "else:")
            self.block(pad + 1, depth - 1, 1)

    def while_loop(self, pad, depth):
        v = self.name("w")
        self.put(pad, f"{v} = {1 + self.pick(3)}")
        self.put(pad, f"while {v} > 0:")
        self.put(pad + 1, f"{v} -= 1")
        self.loops += 1
        self.block(pad + 1, depth - 1)
        self.loops -= 1

    def attempt(self, pad, depth):
        self.put(pad, "try:")
        self.block(pad + 1, depth - 1)
        if self.pick(2):
            self.put(
                pad + 1,
                self.choose(
                    [
                        f"if {self.cond()}: raise Oops({self.int(1)})",
                        "l[50]",
                        "d['no']",
                        f"1 // ({self.int()} % 2)",
                    ]
                ),
            )
        kind = self.pick(3)
        if kind < 2:
            self.put(pad, "except (Oops, IndexError, KeyError, ZeroDivisionError) as e:")
            self.put(pad + 1, "o.log.append(type(e).__name__)")
            self.block(pad + 1, depth - 1)
            if self.pick(5) == 4:
                self.put(pad + 1, self.choose(["raise", "raise Oops('again') from e", "raise ValueError(1)"]))
        if kind > 0:
            self.put(pad, "finally:")
            loops, self.loops = self.loops, 0
            self.block(pad + 1, depth - 1)
            self.loops = loops

    def with_block(self, pad, depth):
        self.put(
            pad,
            self.choose(
                [
                    f"with manager(o, {self.pick(4)}) as {self.name('m')}:",
                    "with Guard(o, True):",
                    "with Guard(o, False) as gg:",
                    "with torch.no_grad():",
                    "with contextlib.suppress(Oops), Guard(o, False):",
                ]
            ),
        )
        self.block(pad + 1, depth - 1)
        if self.pick(4) == 3:
            self.put(pad + 1, f"if {self.cond()}: raise Oops({self.int(1)})")

    def function(self, pad, depth):
        f, cell = self.name("f"), self.name("i")
        self.put(pad, f"{cell} = {self.int()}")
        self.ints.append(cell)
        self.put(pad, f"def {f}(a, b={self.int(1)}, *rest, c=3):")
        ints, tensors, loops = self.ints[:], self.tensors[:], self.loops
        self.ints += ["a", "b", "c"]
        self.loops = 0
        if self.pick(2):
            self.put(pad + 1, f"nonlocal {cell}")
            self.put(pad + 1, f"{cell} = ({cell} + a) % 7")
        self.block(pad + 1, depth - 1)
        self.put(pad + 1, f"return {self.int()}, {self.tensor()}")
        self.ints, self.tensors, self.loops = ints, tensors, loops
        v, t = self.name("i"), self.name("t")
        self.put(
            pad, f"{v}, {t} = {f}({self.int()}{self.choose(['', ', 2', ', 2, 3', ', c=1', ', *l[:2]'])})"
        )
        self.ints.append(v)
        self.tensors.append(t)

    def generator(self, pad, depth):
        g, v = self.name("g"), self.name("i")
        self.put(pad, f"def {g}(k):")
        ints, tensors, loops = self.ints[:], self.tensors[:], self.loops
        self.ints.append("k")
        self.loops = 0
        self.put(pad + 1, f"for j in range(k % 4 + {self.pick(2)}):")
        self.ints.append("j")
        if self.pick(2):
            self.block(pad + 2, depth - 2, 2)
        self.put(pad + 2, f"yield {self.int()}")
        self.ints, self.tensors, self.loops = ints, tensors, loops
        self.put(
            pad,
            self.choose(
                [
                    f"{v} = sum({g}({self.int()}))",
                    f"{v} = len(list({g}({self.int()})))",
                    f"{v} = next({g}({self.int()}), 5)",
                    f"{v} = [*{g}(2), 1][0]",
                    f"{v} = max(itertools.chain({g}(2), [1]))",
                ]
            ),
        )
        self.ints.append(v)

    def comprehension(self, pad, depth):
        v = self.name("i")
        self.put(
            pad,
            self.choose(
                [
                    f"{v} = len([q for q in l if q != {self.int(1)}])",
                    f"{v} = sum({{q: {self.int(1)} for q in range(3)}}.values()) % 9",
                    f"{v} = len({{q % 2 for q in range({self.int()})}})",
                    f"{v} = sum(q + r for q in (1, 2) for r in range(q)) % 5",
                ]
            ),
        )
        self.ints.append(v)

    def throw(self, pad, depth):
        self.put(pad, f"if {self.cond()} and COUNT > 9: raise Oops({self.int(1)})")

    def leave(self, pad, depth):
        self.put(pad, f"if {self.cond()} and o.v == 3: return {self.tensor()}, {self.int()}")


def program(pick):
    """The text of one program."""
    p = Program(pick)
    for _ in range(2 + pick(6)):
        p.statement(1, 3)
    body = [line for line in p.lines if line.strip() != "global COUNT"]
    if len(body) < len(p.lines):  # every function that writes it must say so; inner ones as well
        out = []
        for line in body:
            out.append(line)
            if line.lstrip().startswith("def "):
                out.append(" " * (len(line) - len(line.lstrip()) + 4) + "global COUNT")
        body = ["    global COUNT", *out]
    result = (
        f"    return {', '.join(p.tensors[-3:])}, {', '.join(p.ints)}, l, d, sorted(map(str, o.log)), o.v"
    )
    return PRELUDE + "\ndef f(x, n, l, d, o):\n" + "\n".join(body) + "\n" + result + "\n"
