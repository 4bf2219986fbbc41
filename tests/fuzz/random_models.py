"""Random models: what a seed draws is a Program, whose text is a module with inputs for each call.

A line is tried eagerly on the inputs of every call before it is taken, so that almost all programs run.
"""

import random
import re
import warnings
from dataclasses import asdict, dataclass, field

import torch

import op_texts

HEAD = """import torch
import torch.nn.functional as F
from torch import nn

F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
SPECIAL = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e12, -1e-12, 1.0, -2.5, 0.5])
"""
FLOATS = ["F32"] * 8 + ["F64", "F64", "BF16", "BF16", "F16"]
DTYPES = [
    *FLOATS[-5:],
    "F32",
    "F32",
    "torch.int64",
    "torch.int32",
    "torch.uint8",
    "torch.int8",
    "torch.bool",
    "torch.int16",
]
LIMIT = 6000  # elements of one value
LOCAL_NAMES = re.compile(r"\b[xv]\d+\b")


@dataclass
class Program:
    seed: int = 0
    inputs: list = field(default_factory=list)  # expressions, of the sizes N and M, and of inputs before
    grads: list = field(default_factory=list)  # which inputs require gradients
    calls: list = field(default_factory=list)  # of each call: N, M, n
    init: list = field(default_factory=list)  # modules
    body: list = field(default_factory=list)  # statements, of one line or several
    result: list = field(default_factory=list)  # expressions
    mode: str = "no_grad"  # no_grad, inference_mode, enable_grad
    train: bool = True
    dynamic: bool | None = None

    def text(self):
        """A module: class Net, make(N, M, n) and the calls."""
        names = [f"x{i}" for i in range(len(self.inputs))]
        lines = [HEAD, "class Net(nn.Module):", "    def __init__(self):", "        super().__init__()"]
        lines += ["        " + s for s in self.init]
        lines += ["", f"    def forward(self, {', '.join([*names, 'n'])}):"]
        for statement in self.body:
            lines += ["        " + s for s in statement.splitlines()]
        lines += [f"        return {', '.join(self.result)},", "", "", "def make(N, M, n, seed=0):"]
        lines += ["    g = torch.Generator().manual_seed(seed)"]
        for name, text, grad in zip(names, self.inputs, self.grads):
            lines.append(f"    {name} = {text}" + (".detach().requires_grad_()" if grad else ""))
        lines += [f"    return [{', '.join([*names, 'n'])}]", "", ""]
        lines += [
            f"CALLS = {self.calls!r}",
            f"MODE, TRAIN, DYNAMIC = {self.mode!r}, {self.train}, {self.dynamic}",
            "",
        ]
        return "\n".join(lines)

    def copy(self, **changes):
        new = asdict(self)
        new.update(changes)
        return Program(**new)


class Refused(Exception):
    """No text was found that runs."""


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.p = Program(seed=seed)
        self.names = []  # expressions of tensors
        self.count = 0
        self.envs = []

    # ---- inputs ----

    def shape(self):
        r = self.r
        dims = r.choice([0, 1, 1, 2, 2, 2, 3, 3, 4])
        return [
            r.choice(["N", "N", "M", "1", "2", "3", "4", "0" if r.random() < 0.15 else "5"])
            for _ in range(dims)
        ]

    def input(self, i):
        r, shape = self.r, self.shape()
        if i and r.random() < 0.12:  # of an input's memory
            return r.choice(
                [
                    "x{}",
                    "x{}",
                    "x{}.view(x{}.shape)",
                    "x{}[...]",
                    "x{}.t() if x{}.dim() == 2 else x{}",
                    "x{}.detach()",
                ]
            ).replace("{}", str(r.randrange(i)))
        kind = r.choices(["normal", "int", "bool", "special", "round", "large"], [12, 3, 2, 1, 1, 1])[0]
        size = lambda s: "(" + "".join(n + ", " for n in s) + ")"
        layout = r.choices(
            ["plain", "transposed", "sliced", "expanded", "stepped", "last"], [10, 2, 2, 1, 1, 1]
        )[0]
        made, suffix = shape, ""
        if layout == "transposed" and len(shape) > 1:
            made, suffix = shape[::-1], f".permute({', '.join(map(str, reversed(range(len(shape)))))})"
        elif layout == "sliced" and shape:
            made, suffix = [f"{shape[0]} + 1", *shape[1:]], "[1:]"
        elif layout == "expanded" and shape:
            k = r.randrange(len(shape))
            made, suffix = [*shape[:k], "1", *shape[k + 1 :]], f".expand{size(shape)}"
        elif layout == "stepped":
            made, suffix = [*shape, "2"], "[..., 0]"
        elif layout == "last" and len(shape) == 4:
            suffix = ".contiguous(memory_format=torch.channels_last)"
        if kind == "int":
            text = (
                f"torch.randint({r.choice([-5, 0])}, {r.choice([3, 9])}, {size(made)}, generator=g)"
                + r.choice(["", "", ".int()", ".to(torch.int8)", ".to(torch.uint8)", ".to(torch.int16)"])
            )
        elif kind == "bool":
            text = f"(torch.rand({size(made)}, generator=g) > 0.5)"
        elif kind == "special":
            text = f"SPECIAL[torch.randint(0, 10, {size(made)}, generator=g)].to({r.choice(FLOATS)})"
        else:
            text = f"torch.randn({size(made)}, generator=g)" + {
                "round": ".mul(2).round()",
                "large": ".mul(50)",
            }.get(kind, "")
            text += f".to({r.choice(FLOATS)})"
        return text + suffix

    def start(self):
        r, p = self.r, self.p
        p.mode = r.choice(
            [
                "no_grad",
                "enable_grad",
                "enable_grad",
                "no_grad",
                "inference_mode" if r.random() < 0.3 else "enable_grad",
            ]
        )
        p.train = r.random() < 0.7
        p.dynamic = r.choice([None, None, None, None, True, False])
        fixed = r.random() < 0.35
        sizes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33]
        first = {"N": r.choice(sizes), "M": r.choice(sizes), "n": r.randrange(8)}
        p.calls = [first]
        for _ in range(r.choice([1, 2, 3, 4])):
            p.calls.append(
                first
                if fixed
                else {
                    "N": r.choice([0, *sizes] if r.random() < 0.3 else sizes),
                    "M": r.choice(sizes),
                    "n": r.randrange(8),
                }
            )
        for i in range(r.choice([1, 2, 2, 3, 4])):
            p.inputs.append(self.input(i))
        self.ready_inputs()
        self.names = [f"x{i}" for i in range(len(p.inputs))]

    def ready_inputs(self):
        p = self.p
        p.grads = [False] * len(p.inputs)
        make = namespace(p.copy(body=["pass"], result=["x0"]).text())["make"]
        for i, t in enumerate(make(**p.calls[0])[:-1]):
            ok = t.is_floating_point() and not p.inputs[i].startswith("x")
            p.grads[i] = ok and p.mode == "enable_grad" and self.r.random() < 0.6
        space = namespace(p.copy(body=["pass"], result=["x0"]).text())
        for k, call in enumerate(p.calls):
            env = dict(space)
            env.update({f"x{i}": v for i, v in enumerate(space["make"](**call, seed=k)[:-1])})
            env["n"], env["self"] = call["n"], torch.nn.Module()
            self.envs.append(env)

    # ---- text ----

    def value(self, name, k=0):
        return eval(name, self.envs[k])

    def pick(self, accept):
        r = self.r
        for _ in range(6):
            name = r.choice(self.names[-8:] if r.random() < 0.7 else self.names)
            t = self.value(name)
            if isinstance(t, torch.Tensor) and accept(t):
                return name
        return None

    def broadcasts(self, shape):
        def fits(t):
            try:
                torch.broadcast_shapes(t.shape, shape)
            except RuntimeError:
                return False
            return True

        return fits

    def hole(self, letter, chosen):
        r = self.r
        last = chosen.get("last")
        floating = lambda t: t.is_floating_point()
        if letter in "tfmqib" and letter in chosen:
            if r.random() < 0.6:
                return chosen[letter]
            first = self.value(chosen[letter])
            same = self.pick(lambda t: t.shape == first.shape and t.dtype == first.dtype)
            return same or chosen[letter]
        if letter in "tfmqib":
            accept = {"t": lambda t: True, "f": floating, "m": lambda t: floating(t) and t.dim() > 1, "q": lambda t: floating(t) and t.dim() > 2,
                      "i": lambda t: t.dtype == torch.int64, "b": lambda t: t.dtype == torch.bool}[letter]  # fmt: skip
            if letter == "b" and last and r.random() < 0.6:
                name = f"({last} {r.choice(['>', '<=', '!='])} {r.choice(['0', '0.3', '1'])})"
            else:
                name = self.pick(accept)
            if name is None:
                any_name = self.pick(lambda t: True)
                name = {"t": any_name, "f": f"{any_name}.to(F32)", "i": f"{any_name}.long()", "b": f"({any_name} > 0)",
                        "m": f"{any_name}.to(F32).reshape(-1, {r.choice([1, 2, 3])})", "q": f"{any_name}.to(F32).reshape({r.choice([1, 2])}, -1, {r.choice([1, 2])})"}[letter]  # fmt: skip
                self.value(name)
            chosen[letter] = chosen["last"] = name
            return name
        if letter in "uw":
            shape = self.value(last).shape
            fits = self.broadcasts(shape)
            name = self.pick(lambda t: fits(t) and (letter == "u" or floating(t)))
            return name or last
        if letter in "de":
            n = max(self.value(last).dim(), 1)
            return str(r.randrange(-n, n))
        if letter == "n":
            return "n"
        return {
            "s": lambda: r.choice(
                [
                    "0",
                    "1",
                    "2",
                    "-1",
                    "0.5",
                    "-1.5",
                    "3",
                    "1e-3",
                    "100",
                    "0.1",
                    "float('inf')",
                    "True",
                    "float('nan')",
                    "1e10",
                ][: 14 if r.random() < 0.2 else 10]
            ),
            "p": lambda: r.choice(["1", "2", "3"]),
            "k": lambda: r.choice(["0", "1", "-1", "2", "-2", "3"]),
            "T": lambda: r.choice(DTYPES),
            "F": lambda: r.choice(FLOATS),
            "B": lambda: r.choice(["True", "False"]),
        }[letter]()

    def fill(self, template):
        chosen = {}
        return re.sub(r"\{([a-zA-Z])\}", lambda m: self.hole(m[1], chosen), template)

    def attempt(self, statement):
        """Runs a statement in the environment of every call."""
        with getattr(torch, self.p.mode)(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for env in self.envs:
                exec(statement, env)

    def expression(self):
        kinds = list(op_texts.TABLE)
        kind = self.r.choices(kinds, [op_texts.TABLE[k][1] for k in kinds])[0]
        text = self.fill(self.r.choice(op_texts.TABLE[kind][0]))
        if kind != "modules":
            return kind, text
        made, argument = text.split(" | ")
        made = re.sub(
            r"[xv]\d+(?:\[\d+\])*(?:\.[a-zA-Z]\w*\([^()]*\))*\.shape\[-?\d+\]",
            lambda m: str(self.value(m[0])),
            made,
        )
        self.count += 1
        name = f"self.m{self.count}"
        self.p.init.append(f"{name} = {made}")
        return kind, f"{name}({argument})"

    def statement(self):
        saved = list(self.p.init), self.count
        try:
            kind, text = self.expression()
            init = self.p.init[len(saved[0]) :]
            for line in init:
                if LOCAL_NAMES.search(line.split("=", 1)[1]):
                    raise Refused
                self.attempt(line)
            if kind == "in_place" and self.r.random() < 0.8:
                self.attempt(text)
                self.p.body.append(text)
                return
            if " = " in text or " += " in text or " *= " in text:
                raise Refused
            self.bind(text)
        except Exception:
            self.p.init, self.count = saved[0], saved[1] + 1

    def bind(self, text):
        """One more name for what text gives, perhaps inside of a block."""
        self.count += 1
        name = f"v{self.count}"
        body = self.block(name, text)
        self.attempt(body)
        values = [self.value(name, k) for k in range(len(self.envs))]
        if isinstance(values[0], (tuple, list)):
            if not all(isinstance(v, torch.Tensor) for v in values[0]) or len({len(v) for v in values}) > 1:
                raise Refused
            new = [f"{name}[{i}]" for i in range(len(values[0]))]
        else:
            new = [name]
        for n in new:
            for k in range(len(self.envs)):
                v = self.value(n, k)
                if (
                    not isinstance(v, torch.Tensor)
                    or v.numel() > LIMIT
                    or v.layout != torch.strided
                    or v.is_complex()
                    or v.dtype in (torch.uint16, torch.uint32, torch.uint64)
                ):
                    raise Refused
        self.p.body.append(body)
        self.names += new

    def block(self, name, text):
        r = self.r
        if r.random() < 0.88:
            return f"{name} = {text}"
        t = self.pick(lambda t: True)
        return r.choice(
            [
                f"with torch.no_grad():\n    {name} = {text}",
                f"for _ in range(2):\n    {name} = {text}",
                f"for _ in range(n % 3 + 1):\n    {name} = {text}",
                f"if {t}.sum() > 0:\n    {name} = {text}\nelse:\n    {name} = {t} * 1",
                f"if {t}.numel() > 6:\n    {name} = {text}\nelse:\n    {name} = {t} + 1",
                f"if n > 3:\n    {name} = {text}\nelse:\n    {name} = {t}.clone()",
                f'print(end="")\n{name} = {text}',
                f"{name} = (lambda a: {text})({t})",
                f'with torch.autocast("cpu", dtype=BF16):\n    {name} = {text}',
                f"try:\n    {name} = {text}\nexcept RuntimeError:\n    {name} = {t} * 2",
                f"{name} = [{text} for _ in range(2)][n % 2]",
                f"def h{name}(a, k=1):\n    return {text}\n{name} = h{name}({t})",
                f"with torch.enable_grad():\n    {name} = {text}",
                f"{name} = {{'a': {text}, 'b': n}}['a']",
                f"n = n + 1\n{name} = {text}",
                f"{name} = {text}\nif {t}.dim() and {t}.shape[0] % 2 == 0:\n    {name} = {name} + 1",
                f"with torch.set_grad_enabled(n > 2):\n    {name} = {text}",
            ]
        )

    def make(self):
        self.start()
        r, p = self.r, self.p
        want = r.choice([2, 3, 4, 5, 6, 8, 10, 14, 20])
        for _ in range(want * 12):
            if len(p.body) >= want:
                break
            self.statement()
        made = [n for n in self.names if n[0] == "v"] or self.names
        some = r.sample(made, min(len(made), r.choice([1, 1, 2, 3])))
        p.result = (
            list(dict.fromkeys([made[-1], *some]))
            + (["x0"] if r.random() < 0.1 else [])
            + ([made[-1]] if r.random() < 0.05 else [])
        )
        if not p.body:
            p.body = ["pass"]
        return p


def namespace(text, device="cpu", **names):
    """What a program's text defines; names replace what its head defines, device that of autocast."""
    text = text.replace('torch.autocast("cpu"', f'torch.autocast("{device}"')
    space = {"__name__": "random_model"}
    head, rest = text.split("class Net", 1)
    exec(compile(head, "<random model>", "exec"), space)
    space.update(names)
    exec(compile("\n" * head.count("\n") + "class Net" + rest, "<random model>", "exec"), space)
    return space


def program(seed):
    for k in range(20):
        try:
            return Maker(seed * 100 + k).make()
        except Exception:
            continue
    raise Refused(seed)
