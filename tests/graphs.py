"""Graph texts of real programs, and a reference evaluator of graph texts.

`graph_text(fn, *args)` runs fn eagerly and writes down every ATen op below autograd (forward, backward, in-place ops,
factories) with the results' real dtypes, sizes and strides.  Tensors that the function reaches from outside
(parameters, buffers, constants) become inputs after the arguments, in order of first use.  `run_text` runs such a
text with torch's own ops: the oracle for every graph pass.  As a script: `graphs.py MODEL` prints a model's text.
"""

import builtins
import pathlib
import re
import sys

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

DTYPES = {
    torch.uint8: "u8", torch.int8: "i8", torch.int16: "i16", torch.int32: "i32", torch.int64: "i64",
    torch.float16: "f16", torch.float32: "f32", torch.float64: "f64", torch.complex32: "c32",
    torch.complex64: "c64", torch.complex128: "c128", torch.bool: "bool", torch.bfloat16: "bf16",
    torch.uint16: "u16", torch.uint32: "u32", torch.uint64: "u64",
}  # fmt: skip
FORMATS = [torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d]
DEFS = pathlib.Path(__file__).resolve().parents[1].joinpath("src", "ir", "graph").glob("ops_*.def")
ROWS = set(re.findall(r'(?m)^TOP\(\w+, "([^"]+)"', "".join(p.read_text() for p in DEFS)))
BY_NAME = {name: dtype for dtype, name in DTYPES.items()}


def contiguous_strides(size):
    strides, step = [], 1
    for n in reversed(size):
        strides.insert(0, step)
        step *= max(n, 1)
    return strides


def type_text(t):
    text = f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]"
    if list(t.stride()) != contiguous_strides(t.shape):
        text += "{" + ",".join(map(str, t.stride())) + "}"
    if t.storage_offset():
        text += f"+{t.storage_offset()}"
    return text + (f"@cuda:{t.device.index}" if t.is_cuda else "")


class Unwritable(Exception):
    """An argument that the graph text cannot hold (a complex number, a generator)."""


class Recorder(TorchDispatchMode):
    """Writes one line per dispatched op; self.inputs holds what each input was before the run."""

    def __init__(self):
        super().__init__()
        self.externs, self.head, self.lines, self.inputs = [], [], [], []
        self.number, self.keep, self.storage, self.next = {}, [], {}, 1

    def name(self, t, fresh=False):
        if fresh or id(t) not in self.number:
            self.number[id(t)] = self.next
            self.keep.append(t)
            self.next += 1
            if not fresh:
                self.add_input(t)
        return f"%{self.number[id(t)]}"

    def add_input(self, t):
        # The value before the run.  Inputs that share memory keep sharing it.
        base = t.untyped_storage()
        shared = self.storage.get(base._cdata)
        line = f"%{self.number[id(t)]} = input {type_text(t)}"
        if shared is None:
            copy = base.clone()
            self.storage[base._cdata] = (copy, self.number[id(t)])
        else:
            copy = shared[0]
            line += f" of %{shared[1]}"
        with torch.no_grad():
            value = torch.empty(0, dtype=t.dtype, device=t.device).set_(
                copy, t.storage_offset(), t.shape, t.stride()
            )
        self.inputs.append(value)
        self.head.append(line)

    def arg(self, a, kind):
        if isinstance(a, torch.Tensor):
            return self.name(a)
        if isinstance(a, (list, tuple)):
            return "[" + ", ".join(self.arg(x, kind) for x in a) + "]"
        if isinstance(a, torch.dtype):
            return f"dtype({DTYPES[a]})"
        if isinstance(a, torch.device):
            return f"device({a})"
        if isinstance(a, torch.layout):
            return "layout(0)"
        if isinstance(a, torch.memory_format):
            return f"memory_format({FORMATS.index(a)})"
        if isinstance(a, str):
            return '"' + a + '"'
        if a is None or isinstance(a, bool):
            return str(a)
        if isinstance(a, float) or (isinstance(a, int) and "float" in kind):
            return repr(float(a))
        if isinstance(a, int):
            return str(a)
        raise Unwritable(str(a))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        schema, text = func._schema, []
        if schema.name.startswith("profiler::"):
            return func(*args, **kwargs)
        for i, p in enumerate(schema.arguments):
            kind = str(p.type)
            if p.kwarg_only:
                if p.name in kwargs and kwargs[p.name] is not None:
                    text.append(f"{p.name}={self.arg(kwargs[p.name], kind)}")
            elif i < len(args):
                text.append(self.arg(args[i], kind))
            elif p.name in kwargs:
                text.append(f"{p.name}={self.arg(kwargs[p.name], kind)}")
        out = func(*args, **kwargs)
        flat = pytree.tree_leaves(out, is_leaf=lambda x: x is None) if len(schema.returns) else []
        if any(t is not None and not isinstance(t, torch.Tensor) for t in flat):
            return out  # a number: taken as a constant of this run
        names = [self.name(t, fresh=True) if t is not None else "_" for t in flat]
        name = schema.name + ("." + schema.overload_name if schema.overload_name else "")
        if name not in ROWS and f"extern {schema}" not in self.externs:
            self.externs.append(f"extern {schema}")
        line = f"{', '.join(names)} = " if names else ""
        line += f"{name}({', '.join(text)})"
        if names:
            line += " : " + ", ".join(type_text(t) if t is not None else "_" for t in flat)
        self.lines.append(line)
        return out


def graph_text(fn, *args):
    """The graph text of fn(*args) and the list of its inputs (as they were before the call)."""
    rec = Recorder()
    for t in pytree.tree_leaves(args):
        if isinstance(t, torch.Tensor):
            rec.name(t)
    with rec:
        out = fn(*args)
    names = [rec.name(t) for t in pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    # inputs come first in the text; renumber so that definitions are in order
    order = [int(m) for line in rec.head for m in re.findall(r"^%(\d+)", line)]
    for line in rec.lines:
        left = line.split(" = ")[0] if re.match(r"[%_]", line) else ""
        order += [int(m) for m in re.findall(r"%(\d+)", left)]
    new = {old: i + 1 for i, old in enumerate(order)}
    text = "\n".join(rec.externs + rec.head + rec.lines + [f"return {', '.join(names)}"]) + "\n"
    return re.sub(r"%(\d+)", lambda m: f"%{new[int(m[1])]}", text), rec.inputs


# ---- evaluator ----


def memory(tensors):
    """Which tensors share memory, and where in it they start."""
    first = {}
    return [
        (first.setdefault(t.untyped_storage().data_ptr(), i), t.storage_offset())
        for i, t in enumerate(tensors)
    ]


def clone_inputs(inputs):
    """Copies that share memory as the originals do."""
    copies, out = {}, []
    for t in inputs:
        base = t.untyped_storage()
        copy = copies.setdefault(base.data_ptr(), base.clone())
        out.append(torch.empty(0, dtype=t.dtype).set_(copy, t.storage_offset(), t.shape, t.stride()))
    return out


def check_none(bad, kind, message):
    """mg::check: what is left of a call whose result nobody reads."""
    if bool(bad.any()):
        raise getattr(builtins, kind)(message)


def find_op(full):
    if full == "mg::check":
        return check_none
    space, name = full.split("::")
    name, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, space), name), overload or "default")


def parse_type(text):
    """'f32[4,3]{1,4}+8' -> (dtype, size, stride, offset)"""
    m = re.match(r"(\w+)\[([-\d,]*)\](?:\{([-\d,]*)\})?(?:\+(\d+))?", text)
    ints = lambda s: [int(x) for x in s.split(",")] if s else []
    size = ints(m[2])
    return BY_NAME[m[1]], size, ints(m[3]) if m[3] is not None else contiguous_strides(size), int(m[4] or 0)


def split_types(text):
    """The types after ' : ', split at commas outside brackets."""
    return re.findall(r"_|\w+\[[^\]]*\](?:\{[^}]*\})?(?:\+\d+)?(?:@[\w:]+)?", text)


def is_written(argument):
    return argument.alias_info is not None and argument.alias_info.is_write


def functional(op):
    """The op as functionalize leaves it: it writes copies, which are further results."""

    def run(*args, **kw):
        written = [i for i, p in enumerate(op._schema.arguments) if is_written(p)]
        if not written:
            return op(*args, **kw)
        args, made = list(args), []
        for i in written:
            name = op._schema.arguments[i].name
            given = args[i] if i < len(args) else kw[name]
            made += clone_inputs([given])
            if i < len(args):
                args[i] = made[-1]
            else:
                kw[name] = made[-1]
        return [*pytree.tree_leaves(op(*args, **kw)), *made]

    return run


def once(t, like=None):
    """Of elements that lie at one place in memory (of `like`), only the first."""
    for d, (n, step) in enumerate(zip(t.shape, (t if like is None else like).stride())):
        if step == 0 and n > 1:
            t = t.narrow(d, 0, 1)
    return t


def as_declared(copy, kind):
    """A copy with the strides that its type says: passes copy to give a value the strides that eager's has."""
    _, size, stride, _ = parse_type(kind)
    if not isinstance(copy, torch.Tensor) or list(copy.shape) != size or list(copy.stride()) == stride:
        return copy
    made = torch.empty_strided(size, stride, dtype=copy.dtype)
    once(made).copy_(once(copy, made))
    return made


def run_text(text, inputs, check=None):
    """Runs a graph text on real tensors; returns its outputs.

    inputs are written to as the text says (in-place ops, writebacks).  check(line, results, types) is called after
    each node.  Outputs are made aliases as the alias lines say, so they can be compared with eager's.
    """
    space = dict(BY_NAME)
    space.update(
        dtype=lambda d: d, layout=lambda n: torch.strided, memory_format=lambda n: FORMATS[n], device=torch.device,
        inf=float("inf"), nan=float("nan"),
    )  # fmt: skip
    v, meta, given, writes, returned, types = {}, {}, list(inputs), [], [], []
    space["v"] = v
    for line in text.splitlines():
        line = line.split("#")[0].strip()
        if not line or line.startswith(("extern", "symbol")):
            continue
        if m := re.match(r"%(\d+) = input", line):
            v[int(m[1])] = given.pop(0)
            meta[int(m[1])] = parse_type(line.split("= input ")[1])
            continue
        if m := re.match(r"writeback %(\d+) = %(\d+)", line):
            writes.append((int(m[1]), int(m[2])))
            continue
        if line.startswith("return"):
            returned = [v[int(n)] for n in re.findall(r"%(\d+)", line)]
            # a written input may also be read by another write-back or be an output: copy all values first
            values = [(v[a], v[b].clone()) for a, b in writes]
            types = [meta[int(n)] for n in re.findall(r"%(\d+)", line)]
            with torch.no_grad():
                for target, value in values:
                    once(target).copy_(once(value, target))
            continue
        if m := re.match(r"alias output (\d+) = (same|view) (input|output) (\d+)", line):
            target = (inputs if m[3] == "input" else returned)[int(m[4])]
            k = int(m[1])
            if m[2] == "same":
                returned[k] = target
            else:
                dtype, size, stride, offset = types[k]
                returned[k] = torch.empty(0, dtype=dtype).set_(target.untyped_storage(), offset, size, stride)
            continue
        m = re.match(r"(?:((?:%\d+|_)(?:, (?:%\d+|_))*) = )?([\w:.]+)\((.*)\)(?: : (.*))?$", line)
        assert m, line
        args = re.sub(r"%(\d+)", r"v[\1]", m[3])
        args = re.sub(r"device\(([\w:]+)\)", r'device("\1")', args)
        op = find_op(m[2])
        names = re.findall(r"%\d+|_", m[1]) if m[1] else []
        if hasattr(op, "_schema") and len(names) == len(op._schema.returns) + sum(
            map(is_written, op._schema.arguments)
        ):
            op = functional(op)
        out = eval(f"op({args})", space | {"op": op})
        flat = pytree.tree_leaves(out, is_leaf=lambda x: x is None) if names else []
        assert len(flat) == len(names), line
        for n, t, kind in zip(names, flat, split_types(m[4]) if m[4] else []):
            if n != "_":
                v[int(n[1:])] = as_declared(t, kind) if m[2] == "aten::clone" else t
                meta[int(n[1:])] = parse_type(kind)
        if check:
            check(line, flat, split_types(m[4]) if m[4] else [])
    return returned


# ---- models: small configurations of the real architectures, random weights ----


def _torchvision():
    global _library
    if torch.version.cuda is None and not hasattr(
        torch.ops.torchvision, "nms"
    ):  # the CPU wheel registers fake kernels for ops that only its C++ library defines
        _library = torch.library.Library("torchvision", "DEF")
        _library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    return torchvision.models


def _vision(name, size=64):
    def make():
        return getattr(_torchvision(), name)(weights=None).eval(), (torch.randn(2, 3, size, size),)

    return make


def _vit():
    model = _torchvision().VisionTransformer(32, 8, 2, 4, 64, 128, num_classes=10)
    return model.eval(), (torch.randn(2, 3, 32, 32),)


def _bert():
    _torchvision()  # transformers imports it
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=100, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    model = BertModel(config).eval()
    return (lambda ids: model(ids)[0]), (torch.randint(0, 100, (2, 16)),)


def _gpt2():
    _torchvision()
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=100, n_positions=32, n_embd=64, n_layer=2, n_head=4)
    model = GPT2LMHeadModel(config).eval()
    return (lambda ids: model(ids, use_cache=False).logits), (torch.randint(0, 100, (2, 16)),)


def _mlp():
    model = torch.nn.Sequential(
        torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8)
    )
    return model, (torch.randn(4, 32),)


MODELS = {
    "mlp": _mlp,
    "resnet18": _vision("resnet18"),
    "densenet121": _vision("densenet121"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "vit": _vit,
    "bert": _bert,
    "gpt2": _gpt2,
}


def model_text(name, train=False):
    """Graph text and inputs of a model: inference, or forward + backward (gradients are outputs) when train is set."""
    torch.manual_seed(0)
    fn, args = MODELS[name]()
    if not train:
        with torch.no_grad():
            return graph_text(fn, *args)

    def step(*args):
        out = fn(*args)
        params = [p for p in fn.parameters()] if isinstance(fn, torch.nn.Module) else []
        params = params or [p for c in fn.__closure__ for p in c.cell_contents.parameters()]
        loss = out.float().square().mean()
        return [loss] + [g for g in torch.autograd.grad(loss, params, allow_unused=True) if g is not None]

    if isinstance(fn, torch.nn.Module):
        fn.train()
        for m in fn.modules():  # two runs must draw the same random numbers: none
            if isinstance(m, torch.nn.Dropout):
                m.p = 0.0
    return graph_text(step, *args)


if __name__ == "__main__":
    print(model_text(sys.argv[1], train="train" in sys.argv[2:])[0], end="")
