"""ATen calls as graph text, one call a graph, for the tests of the back end.

A call recorded by `Recorder` becomes text with eager's metadata (dtype, sizes, strides), so that a test compares one
lowering with eager on the very tensors that eager saw.
"""

import math

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DTYPES = {
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "f16",
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bool: "bool",
    torch.bfloat16: "bf16",
    torch.complex64: "c64",
    torch.complex128: "c128",
    torch.complex32: "c32",
}
MEMORY_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}


class Untextual(Exception):
    """A value has no form in graph text (complex numbers, generators, sparse tensors ...)."""


def tensor_type(t: torch.Tensor) -> str:
    if t.layout is not torch.strided or t.dtype not in DTYPES or t.is_quantized or t.device.type != "cpu":
        raise Untextual(str(t.dtype))
    text = f"{DTYPES[t.dtype]}[{','.join(map(str, t.shape))}]{{{','.join(map(str, t.stride()))}}}"
    return text + (f"+{t.storage_offset()}" if t.storage_offset() else "")


def number(x, kind: str) -> str:
    if isinstance(x, bool):
        return str(x)
    if isinstance(x, int) and "float" not in kind:
        return str(x)
    x = float(x)
    if math.isnan(x) or math.isinf(x):
        return str(x)
    text = repr(x)
    return text if any(c in text for c in ".e") else text + ".0"


def snapshot(t: torch.Tensor) -> torch.Tensor:
    """A tensor of the same layout over a copy of the memory: later writes do not reach it."""
    return torch.empty(0, dtype=t.dtype).set_(
        t.untyped_storage().clone(), t.storage_offset(), t.shape, t.stride()
    )


class Text:
    """Builds graph text.  Tensors are named when first seen: as inputs, or as results of a call."""

    def __init__(self):
        self.names, self.inputs, self.lines, self.alive, self.ops = {}, [], [], [], {}

    def tensor(self, x: torch.Tensor) -> str:
        if id(x) not in self.names:
            kind = tensor_type(x)
            self.names[id(x)] = f"%{len(self.names) + 1}"
            self.inputs.append(snapshot(x))
            self.alive.append(x)
            self.lines.insert(len(self.inputs) - 1, f"{self.names[id(x)]} = input {kind}")
        return self.names[id(x)]

    def value(self, x, kind: str) -> str:
        if isinstance(x, torch.Tensor):
            return self.tensor(x)
        if isinstance(x, (bool, int, float)):
            return number(x, kind)
        if x is None:
            return "None"
        if isinstance(x, str):
            return '"' + x.replace("\\", "\\\\").replace('"', '\\"') + '"'
        if isinstance(x, torch.dtype):
            if x not in DTYPES:
                raise Untextual(str(x))
            return f"dtype({DTYPES[x]})"
        if isinstance(x, torch.device):
            return f"device({x.type})"
        if isinstance(x, torch.layout):
            return "layout(0)"
        if isinstance(x, torch.memory_format):
            return f"memory_format({MEMORY_FORMATS[x]})"
        if isinstance(x, (list, tuple)):
            return "[" + ", ".join(self.value(y, kind) for y in x) + "]"
        raise Untextual(repr(x))

    def call(self, func, args, kwargs, result) -> list:
        """Appends a call; returns its results, lists flattened."""
        schema, parts = func._schema, []
        self.ops[f"extern {schema}"] = True  # ops that the compiler has no row for
        for i, p in enumerate(schema.arguments):
            kind = str(p.type)
            given = i < len(args) or p.name in kwargs
            if not given and p.kwarg_only:
                continue
            x = args[i] if i < len(args) else kwargs[p.name] if given else p.default_value
            text = self.value(x, kind)
            if "List[" in kind and isinstance(x, (int, float)) and not isinstance(x, bool):
                text = f"[{text}]"
            parts.append(f"{p.name}={text}" if p.kwarg_only else text)
        flat = tree_flatten(result)[0]
        if not all(isinstance(r, torch.Tensor) or r is None for r in flat):
            raise Untextual("result")
        outs, types = [], []
        for r in flat:
            types.append("_" if r is None else tensor_type(r))
            if r is not None:
                self.names[id(r)] = f"%{len(self.names) + 1}"
                self.alive.append(r)
            outs.append("_" if r is None else self.names[id(r)])
        self.lines.append(f"{', '.join(outs)} = {op_name(func)}({', '.join(parts)}) : {', '.join(types)}")
        return [r for r in flat if r is not None]

    def line_of(self, result) -> str:
        """The call that made a result."""
        return next(line for line in self.lines if self.names[id(result)] in line.split(" = ")[0].split(", "))

    def finish(self, results) -> str:
        lines = list(self.ops) + self.lines + ["return " + ", ".join(self.names[id(r)] for r in results)]
        return "\n".join(lines) + "\n"


def op_name(func) -> str:
    schema = func._schema
    return schema.name + ("." + schema.overload_name if schema.overload_name else "")


class Call:
    """One ATen call as a graph: `text`, copies of its `inputs`, and of eager's `results`; `again` calls it another way."""

    def __init__(self, func, args, kwargs, result):
        text = Text()
        results = text.call(func, args, kwargs, result)
        self.full, self.text, self.inputs = op_name(func), text.finish(results), text.inputs
        self.results = [snapshot(r) for r in results]
        self.func, self.arguments = (
            func,
            tree_map(lambda t: snapshot(t) if isinstance(t, torch.Tensor) else t, (args, kwargs)),
        )

    def again(self, change) -> list:
        """The results of the call with changed arguments (a function of nested arguments)."""
        args, kwargs = change(self.arguments)
        return [r for r in tree_flatten(self.func(*args, **kwargs))[0] if r is not None]


class CallRecorder(TorchDispatchMode):
    """Collects the functional ATen calls made while it is active, each as a graph of its own, with copies of the tensors
    as they were then."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func._schema.is_mutable or func.namespace != "aten":
            return result
        try:
            with torch.utils._python_dispatch._disable_current_modes():
                self.calls.append(Call(func, args, kwargs, result))
        except Untextual:
            pass
        return result


class Program(TorchDispatchMode):
    """Records everything that runs while it is active into one graph; no call may write its arguments."""

    def __init__(self):
        super().__init__()
        self.text = Text()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if any(
            isinstance(r, torch.Tensor) for r in tree_flatten(result)[0]
        ):  # else: a number read from a tensor
            with torch.utils._python_dispatch._disable_current_modes():
                self.text.call(func, args, kwargs, result)
        return result


def record(fn, *args) -> tuple[str, list, list]:
    """Graph text of fn(*args), its inputs, and eager's results.  Arguments come first among the inputs."""
    program = Program()
    for a in args:
        program.text.tensor(a)
    with torch.no_grad(), program:
        results = tree_flatten(fn(*args))[0]
    return program.text.finish(results), program.text.inputs, [snapshot(r) for r in results]
