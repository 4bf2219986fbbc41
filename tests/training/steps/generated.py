"""Random training programs: what a seed draws is the text of a function `program(C)`, which compiles with `C` and returns what
it saw: results, gradients, what hooks got, errors, parameters and the optimizer's state.

A program has a module with parameters, a forward pass of random ops over them, and a loop of steps around it. What is compiled is
the forward pass, the module, or the whole step. Every value has a shape that broadcasts to (2, 3), in float64.
Strides of gradients are not looked at: those of expanded ones are dense here."""

import random

HEAD = '''import torch
from torch import nn
import torch.nn.functional as F


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b

    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return {returned}


def see(value, strides=True):
    """What there is to see of a nested value now: later writes do not change it."""
    if isinstance(value, torch.Tensor):
        facts = value.requires_grad, value.is_leaf, value.grad_fn is None, value.dtype, value.retains_grad
        return value.detach().clone(), facts, tuple(value.stride()) if strides else None
    if isinstance(value, dict):
        return {k: see(v, strides) for k, v in value.items()}
    return [see(v, strides) for v in value] if isinstance(value, (list, tuple)) else value


def log_sum(log):
    return lambda g: log.append(g.detach().clone())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        g = torch.Generator().manual_seed(1)
        self.lin = nn.Linear(3, 3).double()
        self.never = nn.Linear(3, 2).double()
        with torch.no_grad():
            for p in self.parameters():
                p.copy_(torch.rand(p.shape, generator=g, dtype=p.dtype) - 0.5)
        for i, shape in enumerate([(2, 3), (3,), (1, 3), (2, 1), (), (2, 3)]):
            setattr(self, f"w{i}", nn.Parameter(torch.rand(shape, generator=g, dtype=torch.float64) + 0.25))
        self.register_buffer("mask", torch.tensor([[True, False, True], [False, True, True]]))
        self.register_buffer("yes", torch.ones(2, 3, dtype=torch.bool))
        self.register_buffer("rows", torch.tensor([1, 0]))
        self.log = []
'''

LEAVES = ["m.w0", "m.w1", "m.w2", "m.w3", "m.w4", "m.w5", "x", "m.lin.weight[0]", "m.lin.bias"]

PLAIN = [
    "{a} + {b}", "{a} * {b}", "{a} - 0.5 * {b}", "torch.sin({a})", "{a}.tanh()", "torch.sigmoid({a} + {b})", "F.relu({a} - 0.3)",
    "{a}.abs() + 0.1", "({a} * {a} + 0.1).sqrt()", "{a}.exp() * 0.1", "F.softmax({f}, 1)", "{f}.cumsum(0)", "{a} / ({b}.abs() + 1)",
    "F.layer_norm({f}, (3,))", "F.dropout({a}, 0.5, False)", "{f}.pow(2).mean(0)", "{f}.max(0)[0]", "{f}.sort(1)[0]", "{f} @ m.lin.weight",
]  # fmt: skip
SHARED = [  # gradients that are zero, partly zero or undefined
    "torch.where(m.mask, {a}, {b})", "torch.where(m.yes, {a}, {b})", "torch.where({a} > 0, {a}, {b})", "{a} * 0", "{a}.detach()",
    "{a}.detach() + {b}", "{a}.clone()", "{a} * 0 + {b}", "{f}[0]", "{f}[:, 1:2]", "{f}[m.rows]", "{f}[1:] + {b}",
    "{f}[m.mask].sum() + {b}", "torch.zeros_like({a})", "{f}.unbind(0)[1]", "torch.stack([{f}, {g}], 0)[1]", "torch.cat([{f}, {g}])[:2]",
    "{f}.clamp(max=-9)", "{f}.masked_fill(m.mask, 0.5)", "{f}.index_select(0, m.rows)", "{f}.view(-1).view(2, 3)", "{f}.t().contiguous().t()",
    "({a} > 0.2).double() + {b}", "{f}.round() + {b}", "{a}.sign() * {b}", "{f}.scatter(0, m.rows[None].expand(1, 2), 1.0)",
    "m.lin({f})", "m.lin(m.lin({f}))", "Scaled.apply({f}, {g})", "torch.nan_to_num({a})", "{a}.real", "{f}.chunk(3, 1)[2]", "{f}.T.mT",
    "{a}.expand(2, 3)", "torch.broadcast_tensors({a}, {f})[0]", "{f}.diagonal()[0] + {b}", "{f}.split(1)[1]", "{f}.flip(0)", "torch.lerp({f}, {g}, 0.0)",
]  # fmt: skip


class Maker:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.lines, self.names, self.hooks = [], [], 0
        self.depth = 1
        self.raising = self.r.random() < 0.12

    def add(self, line, deeper=0):
        self.lines.append("    " * (self.depth + deeper) + line)

    def value(self):
        if self.names and self.r.random() < 0.65:
            return self.r.choice(self.names)
        return self.r.choice(LEAVES)

    def full(self):
        v = self.value()
        return (
            f"({v} + torch.zeros(2, 3, dtype=torch.float64))"
            if self.r.random() < 0.5
            else f"{v}.expand(2, 3)"
        )

    def new(self):
        self.names.append(f"v{len(self.names)}")
        return self.names[-1]

    def expression(self):
        text = self.r.choice(PLAIN if self.r.random() < 0.45 else SHARED)
        return text.format(a=self.value(), b=self.value(), f=self.full(), g=self.full())

    def statement(self):
        kind = self.r.choices(["op", "inplace", "no_grad", "hook", "retain", "leaf", "grad", "saved", "twice"],
                              [12, 3, 1.5, 2, 1, 0.7, 0.7, 0.25, 0.7])[0]  # fmt: skip
        getattr(self, kind)()

    def op(self):
        e = self.expression()
        self.add(f"{self.new()} = {e}")

    def twice(self):
        e = self.expression()
        a = self.new()
        self.add(f"{a} = {e}")
        self.add(f"{a} = {a} + {e}")

    def inplace(self):
        f, b, g = self.full(), self.value(), self.full()
        v = self.new()
        self.add(f"{v} = {f}.clone()")
        for _ in range(self.r.randint(1, 2)):
            self.add(self.r.choice([
                f"{v}.mul_({b})", f"{v} += {b}", f"{v}[0] = {g}[1]", f"{v}[:, 1:].mul_(0)", f"{v}.copy_({g})", f"{v}.zero_()", f"{v}[m.mask] = 0.5",
                f"{v}.view(-1)[2:].add_(1)", f"{v}[0].sin_()", f"{v}.detach().mul_(2)", f"{v}.index_add_(0, m.rows, {g})", f"{v}.fill_(0.5)",
            ]))  # fmt: skip

    def no_grad(self):
        e, b = self.expression(), self.value()
        v = self.new()
        self.add("with torch.no_grad():")
        self.add(f"{v} = {e}", 1)
        if self.r.random() < 0.3:
            self.add("m.w5.mul_(0.5)", 1)
        if self.r.random() < 0.3:
            self.add("with torch.enable_grad():", 1)
            self.add(f"{v} = {v} * {b}", 2)

    def hook(self):
        on = self.value()
        h = f"h{self.hooks}"
        self.hooks += 1
        what = self.r.choice(
            [
                "log_sum(m.log)",
                "lambda g: None",
                "lambda g: g * 2",
                "lambda g: g * 0",
                "lambda g: g.detach() + 1",
            ]
        )
        if on[0] == "v":
            self.add(f"{on} = {on} * 1")
        elif on in ("x", "m.lin.weight[0]"):
            return
        self.add(f"{h} = {on}.register_hook({what}) if {on}.requires_grad else None")
        if on[0] == "m":
            self.add(f"m.handles.append({h})")
        elif self.r.random() < 0.3:
            self.add(f"if {h}: {h}.remove()")

    def retain(self):
        if self.names:
            v = self.r.choice(self.names)
            self.add(f"if {v}.requires_grad: {v}.retain_grad(); kept.append({v})")

    def leaf(self):
        b = self.value()
        v = self.new()
        self.add(f"{v} = {b}.detach().clone().requires_grad_()")
        if self.r.random() < 0.5:
            self.add(f"kept.append({v})")

    def grad(self):
        a, b, c = self.value(), self.value(), self.value()
        create = self.r.random() < 0.4
        v = self.new()
        self.add(f"{v} = {a} * {b}")
        self.add(f"if {v}.requires_grad and ({b}).requires_grad and ({c}).requires_grad:")
        self.add(
            f"got = torch.autograd.grad(({v} * {v}).sum(), [{b}, {c}], allow_unused=True, create_graph={create}, retain_graph=True)",
            1,
        )
        self.add(f"{v} = {v} + sum(t.sum() for t in got if t is not None)", 1)

    def saved(self):
        a = self.full()
        v = self.new()
        self.add(f"{v} = {a}.exp()")
        self.add(f"{v}b = {v} * {v}")
        self.add(f"{v}.{self.r.choice(['add_(1)', 'zero_()', 'mul_(2)'])}")
        self.add(f"{v} = {v}b")

    def losses(self, outs):
        r = self.r
        use = r.sample(outs, r.randint(1, len(outs)))
        terms = [r.choice(["{}.sum()", "{}.pow(2).mean()", "{}.mean() * 0.5", "({} * 0).sum()", "{}.detach().sum()"] if i else
                          ["{}.sum()", "{}.pow(2).mean()"]).format(o) for i, o in enumerate(use)]  # fmt: skip
        return " + ".join(terms)


def backward_lines(k):
    """How the loss is differentiated: lines, in which `loss` is the name of the loss."""
    kind = k.r.choices(
        ["plain", "twice", "freed", "grad", "create", "parts", "inputs", "none"], [6, 2, 1, 2, 1.5, 2, 1, 0.5]
    )[0]
    parts = "[p for p in m.parameters()]"
    if kind == "twice":
        return ["loss.backward(retain_graph=True)", "loss.backward()"]
    if kind == "freed":
        return ["loss.backward()", "loss.backward()"]
    if kind == "grad":
        return [f"seen.append(see(torch.autograd.grad(loss, {parts}, allow_unused=True, retain_graph={k.r.random() < 0.5}), False))",
                *(["loss.backward()"] if k.r.random() < 0.5 else [])]  # fmt: skip
    if kind == "create":
        return [f"gs = torch.autograd.grad(loss, {parts}, allow_unused=True, create_graph=True)",
                "seen.append(see(gs, False))", "more = loss + sum((g * g).sum() for g in gs if g is not None)", "more.backward()"]  # fmt: skip
    if kind == "parts":
        return ["(loss * 0.5).backward(retain_graph=True)", "(loss * loss).backward()"]
    if kind == "inputs":
        return [f"loss.backward(inputs=[m.w0, m.w1, m.w4{', m.never.weight' if k.r.random() < 0.2 else ''}])"]
    return ["loss.backward()"] if kind == "plain" else []


def make(seed):
    """The text of a program."""
    k = Maker(seed)
    r = k.r
    k.depth = 2
    for _ in range(r.randint(2, 9)):
        k.statement()
    outs = r.sample(k.names, min(len(k.names), r.randint(1, 4)))
    if not outs:
        k.op()
        outs = k.names[-1:]
    how = r.choice(["forward", "module", "step", "step"])
    zero = r.choice(
        [
            "opt.zero_grad()",
            "opt.zero_grad(set_to_none=False)",
            "m.zero_grad()",
            "pass",
            "if i % 2: opt.zero_grad()",
        ]
    )
    opt = r.choice(["torch.optim.SGD(m.parameters(), 0.05)", "torch.optim.SGD(m.parameters(), 0.05, momentum=0.9, weight_decay=0.1)",
                    "torch.optim.AdamW(m.parameters(), 0.05)", "torch.optim.AdamW(m.parameters(), 0.05, foreach=False)"])  # fmt: skip
    frozen = r.choice(["w0", "w3", "lin.weight"]) if r.random() < 0.2 else None
    returned = r.choice(
        ["g * b, g * a", "g * b, None", "None, g * a", "g * b, (g * a).sum() * torch.zeros_like(b)"]
    )
    if k.raising:
        returned = "a.no_such_thing(), g" if r.random() < 0.5 else "1 / 0"
    text = [HEAD.replace("{returned}", returned)]
    text += ["        self.handles = []", "", "    def forward(m, x):", "        kept = []", *k.lines,
             f"        return [{', '.join(outs)}], kept", "", "", "def program(C):", "    m, seen = Net(), []"]  # fmt: skip
    if frozen:
        text += [f"    m.{frozen}.requires_grad_(False)"]
    text += [f"    opt = {opt}", "    f = m", ""]
    names = [f"o[{i}]" for i in range(len(outs))]
    step = ["        o, kept = f(x)", f"        loss = {k.losses(names)}", "        if loss.requires_grad:",
            *["            " + line for line in backward_lines(k) or ["pass"]]]  # fmt: skip
    inside = how == "step" and r.random() < 0.7
    zero_inside = how == "step" and r.random() < 0.7
    text += ["    def step(x, i):", *([f"        {zero}"] if zero_inside else []), *step, *(["        opt.step()"] if inside else []),
             "        return loss.detach(), o, kept", ""]  # fmt: skip
    if how == "forward":
        text += ["    f = C(lambda x: m(x))"]
    elif how == "module":
        text += ["    f = C(m)"]
    else:
        text += ["    step = C(step)"]
    text += ["    for i in range(4):", "        x = torch.linspace(-1, 1, 6, dtype=torch.float64).view(2, 3) * (i + 1) / 2",
             f"        x.requires_grad_({r.random() < 0.5})", "        m.handles.clear()", "        try:", *([f"            {zero}"] if not zero_inside else []),
             "            loss, o, kept = step(x, i)", "            if not loss.abs() < 1e3: break  # rounding would be seen", "            seen.append(see((loss, o))); seen.append(see((kept, [t.grad for t in kept]), False))",
             *(["            opt.step()"] if not inside else []), "        except Exception as e:", "            seen.append(e)",
             "        for h in m.handles:", "            if h: h.remove()",
             "        seen.append(see((x.grad, {n: (p, p.grad, p._version) for n, p in m.named_parameters()}), False))",
             "        seen.append(see(m.log, False))", "        loss = o = kept = None",
             "    seen.append(see(opt.state_dict()['state']))", "    return seen", ""]  # fmt: skip
    return "\n".join(text)
