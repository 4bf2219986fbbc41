"""Random graph texts: what a random model runs below autograd, with any of its values as results, and an order of passes.

Each pass of build/mgopt is followed by the graph's verifier.  The text that it gives is run by the reference evaluator
(tests/graphs.py), and what the back end makes of the first text is run as well.  All have to be what eager was.
"""

import base64
import contextlib
import io
import pathlib
import random
import re
import subprocess
from dataclasses import dataclass, replace

import torch

import graphs
import judge
import mg_reference
import random_models
from magneto import _magneto

MGOPT = pathlib.Path(__file__).resolve().parents[2] / "build" / "mgopt"
UNSUPPORTED = "not supported here"  # the product runs such a graph op by op
_library = mg_reference.library()


@dataclass
class Graph:
    text: str
    inputs: list
    passes: list


# ---- making ----


def recorded(p):
    """The text of a program's first call, with gradients of what requires some."""
    space = random_models.namespace(p.text())
    torch.manual_seed(3)
    net = space["Net"]().train(p.train)
    args = space["make"](**p.calls[0])
    leaves = [t for t in args[:-1] if t.requires_grad]

    def run(*args):
        mode = "enable_grad" if p.mode == "enable_grad" else "no_grad"
        with getattr(torch, mode)():
            out = [t for t in net(*args) if isinstance(t, torch.Tensor)]
        ends = [t for t in out if t.requires_grad]
        if not ends or not leaves:
            return out
        grads = torch.autograd.grad(ends, leaves, [torch.ones_like(t) for t in ends], allow_unused=True)
        return out + [g for g in grads if g is not None]

    torch.manual_seed(7)
    return graphs.graph_text(run, *args)


def types_of(text):
    """Value -> the text of its type."""
    types = {}
    for line in text.splitlines():
        if m := re.match(r"%(\d+) = input (\S+)", line):
            types[int(m[1])] = m[2]
        elif m := re.match(r"((?:%\d+|_)(?:, (?:%\d+|_))*) = .* : (.*)$", line):
            for n, t in zip(re.findall(r"%\d+|_", m[1]), graphs.split_types(m[2]), strict=True):
                if n != "_":
                    types[int(n[1:])] = t
    return types


def reshapes(text, types):
    """Does an op in place give its tensor other sizes or strides, as unsqueeze_ does?"""
    written = re.findall(r"(?m)^%(\d+) = aten::\w+_(?:\.\w+)?\(%(\d+)", text)
    return any(types[int(a)] != types[int(b)] for a, b in written)


def returning(text, values):
    head = text[: text.index("\nreturn") + 1]
    return head + "return " + ", ".join(f"%{v}" for v in values) + "\n"


def results(text):
    return [int(n) for n in re.findall(r"%(\d+)", re.search(r"(?m)^return.*$", text)[0])]


def order(r):
    """Passes in the compiler's order; some are left out, some come again."""
    passes = ["functionalize", "dce"]
    for name in ("patterns", "decompose", "simplify", "layout"):
        passes += [name] * (r.random() < 0.85)
        passes += [r.choice(["dce", "simplify"])] * (r.random() < 0.25)
    return passes + ["dce"]


def make(seed):
    r = random.Random(seed)
    for k in range(20):
        try:
            text, inputs = recorded(random_models.Maker(seed * 100 + k).make())
        except Exception:  # no program, or one whose arguments a text cannot hold
            continue
        types = types_of(text)
        empty = {int(n) for n in re.findall(r"(?m)^%(\d+) = aten::(?:new_)?empty", text)}
        values = [v for v in types if v not in empty]  # nobody knows what is in memory that nobody wrote
        if any(types[int(n)] != t for n, t in re.findall(r"out=%(\d+)\) : (\S+)", text)):
            continue  # memory that grows: recordings have none
        if reshapes(text, types):
            continue  # nor have they this, whose earlier name would be of the new sizes
        chosen = results(text) if r.random() < 0.6 else []
        chosen += r.sample(values, min(len(values), r.choice([0, 1, 1, 2, 4])))
        return Graph(returning(text, chosen or values[-1:]), inputs, order(r))
    raise random_models.Refused(seed)


# ---- checking ----


class Seen:
    """What one way to run left behind."""

    def __init__(self, g, run, noise=None):
        self.inputs, self.error, self.seen, self.out = graphs.clone_inputs(g.inputs), None, [], []
        torch.manual_seed(7)
        try:
            with torch.no_grad(), noise or contextlib.nullcontext():
                self.out = run(self.inputs)
            self.seen = [t.clone() for t in [*self.out, *self.inputs]]
        except Exception as e:
            self.error = e

    def tensors(self):
        return [*self.out, *self.inputs]


def wide(g):
    """The same graph in float64."""
    text = re.sub(r"\b(f32|f16|bf16)\b", "f64", g.text)
    inputs = [t.double() if t.is_floating_point() else t for t in graphs.clone_inputs(g.inputs)]
    run = Seen(Graph(text, inputs, []), lambda given: graphs.run_text(text, given))
    return run if run.error is None else None


def shared(tensors):
    """Which share memory.  Where in memory of its own a tensor begins is not looked at."""
    found = graphs.memory(tensors)
    alone = [sum(other == base for other, _ in found) == 1 for base, _ in found]
    return [
        (base, offset * (not one)) if t.numel() else None
        for t, (base, offset), one in zip(tensors, found, alone)
    ]


def seen_type(text):
    """What a program sees of a type: strides of dimensions that have some."""
    dtype, size, stride, _ = graphs.parse_type(text)
    return dtype, size, [s for s, n in zip(stride, size) if n > 1] if 0 not in size else None


def compare(got, want, g, what, aliases=True):
    if got.error is not None:
        raise judge.Difference(f"error {type(got.error).__name__}", f"{what}: {got.error}") from got.error
    a, b = got.tensors(), want.tensors()
    if [(t.dtype, t.shape) for t in a] != [(t.dtype, t.shape) for t in b]:
        raise judge.Difference(
            "types", f"{what}: {[(t.dtype, t.shape) for t in a]}, eager {[(t.dtype, t.shape) for t in b]}"
        )
    if aliases and shared(a) != shared(b):
        raise judge.Difference("memory", f"{what}: {shared(a)}, eager {shared(b)}")
    noisy = lambda: [
        Seen(g, lambda given: graphs.run_text(g.text, given), judge.Noise(seed, seed == 0))
        for seed in range(judge.RUNS)
    ]
    judge.check_values(got, want, noisy, lambda: wide(g), what)


def declared(line, flat, types):
    """What a text says of a value is so."""
    for t, kind in zip(flat, types):
        if t is not None and kind != "_":
            dtype, size, _, _ = graphs.parse_type(kind)
            if (t.dtype, list(t.shape)) != (dtype, size):
                raise judge.Difference("declared", f"{line}: {t.dtype} {list(t.shape)}")


def opt(text, name):
    run = subprocess.run([MGOPT, "-" + name], input=text, capture_output=True, text=True, timeout=60)
    if run.returncode and f"mgopt: {UNSUPPORTED}" not in run.stderr:
        raise judge.Difference(f"{name} {run.returncode}", f"{run.stderr[-600:]}\n{text}")
    return run.stdout if not run.returncode else None


def check(g):
    """Raises judge.Difference; returns how many texts and plans were compared."""
    want = Seen(g, lambda given: graphs.run_text(g.text, given, declared))
    if want.error is not None:
        raise judge.NotAProgram
    types = [seen_type(types_of(g.text)[n]) for n in results(g.text)]
    text, n = g.text, 0
    for name in g.passes:
        text, before = opt(text, name), text
        if text is None:
            break
        what = f"after {name}"
        compare(
            Seen(g, lambda given, text=text: graphs.run_text(text, given, declared)),
            want,
            g,
            f"{what}\n{before}\n-->\n{text}\n",
        )
        now = types_of(text)
        if [seen_type(now[v]) for v in results(text)] != types:
            raise judge.Difference("declared results", f"{what}\n{before}\n-->\n{text}\n")
        n += 1
    else:
        opt(text, "lowered")
    try:
        plan = _magneto.Graph(g.text)
    except RuntimeError as e:
        if UNSUPPORTED not in str(e):
            raise judge.Difference("compile", str(e)) from e
        return n
    compare(
        Seen(g, lambda given: list(plan.run(*given))), want, g, "compiled", aliases=False
    )  # entries make views
    return n + 1


# ---- smaller ----


def smaller(g):
    """Less passes, results, nodes; values of the middle become inputs."""
    for k in range(len(g.passes)):
        yield replace(g, passes=g.passes[:k] + g.passes[k + 1 :])
    values = results(g.text)
    for k in range(len(values)):
        if len(values) > 1:
            yield pruned(replace(g, text=returning(g.text, [values[k]])))
            yield pruned(replace(g, text=returning(g.text, values[:k] + values[k + 1 :])))
    operands = {
        int(n)
        for line in g.text.splitlines()
        if "(" in line
        for n in re.findall(r"%(\d+)", line.split(" = ", 1)[-1])
    }
    for v in sorted(operands - set(values), reverse=True):
        yield pruned(replace(g, text=returning(g.text, [v])))
    for k in reversed(
        [k for k, line in enumerate(g.text.splitlines()) if re.match(r"[%_].* = .*\(|\w+::", line)]
    ):
        yield without(g, k)


def pruned(g):
    """Without nodes that nobody reads and that write nothing, and without inputs that nobody reads."""
    lines = g.text.splitlines()
    used = set()
    kept, inputs, position = [], [], len(g.inputs)
    for line in reversed(lines):
        left, _, right = line.partition(" = ") if re.match(r"[%_]", line) else ("", "", line)
        made = re.findall(r"%\d+", left)
        is_input = right.startswith("input")
        position -= is_input
        if made and not used.intersection(made) and not re.search(r"::\w+_(\.\w+)?\(", right):
            continue
        if is_input and g.inputs:  # a text with symbols has none
            inputs.insert(0, g.inputs[position])
        used.update(re.findall(r"%\d+", right))
        kept.insert(0, line)
    return replace(g, text=renumbered(kept), inputs=inputs)


def without(g, k):
    """Line k gone: what it gave is an input with the values that it had."""
    lines = g.text.splitlines()
    made = [int(n) for n in re.findall(r"%(\d+)", lines[k].split(" = ")[0])] if " = " in lines[k] else []
    head = "\n".join(lines[: k + 1])
    run = Seen(
        g, lambda given: graphs.run_text(head + "\nreturn " + ", ".join(f"%{n}" for n in made) + "\n", given)
    )
    if run.error is not None:
        return g
    types = types_of(g.text)
    new = [f"%{n} = input {graphs.type_text(t)}" for n, t in zip(made, run.seen)]
    if len(new) < len(made) or any(graphs.type_text(t) != types[n] for n, t in zip(made, run.seen)):
        return g
    first = next(i for i, line in enumerate(lines) if not re.match(r"extern|%\d+ = input", line))
    text = renumbered([*lines[:first], *new, *lines[first:k], *lines[k + 1 :]])
    return pruned(replace(g, text=text, inputs=[*g.inputs, *run.seen[: len(made)]]))


def renumbered(lines):
    """Values in order of definition."""
    new = {}
    for line in lines:
        if re.match(r"[%_]", line):
            for n in re.findall(r"%(\d+)", line.split(" = ")[0]):
                new[n] = len(new) + 1
    return "\n".join(re.sub(r"%(\d+)", lambda m: f"%{new.get(m[1], 0)}", line) for line in lines) + "\n"


# ---- as a program ----

MAIN = """
import base64, io, pathlib, sys

import torch

sys.path[:0] = [str(pathlib.Path({root!r}) / p) for p in ("tests/fuzz", "tests", "python")]
import random_graphs

inputs = torch.load(io.BytesIO(base64.b64decode({packed!r})))
g = random_graphs.Graph(TEXT, inputs, {passes!r})
if __name__ == "__main__":
    random_graphs.check(g)
"""


def text(g, message):
    packed = io.BytesIO()
    torch.save(g.inputs, packed)
    main = MAIN.format(
        root=str(MGOPT.parents[1]), packed=base64.b64encode(packed.getvalue()).decode(), passes=g.passes
    )
    note = message.replace("\\", "/").replace('"""', "'''")
    return f'"""{note}"""\n\nTEXT = """{g.text}"""\n{main}'
