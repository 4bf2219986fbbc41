"""The FX graphs that back ends of one's own receive: names, meta, source lines, and torch's tools on them."""

import copy
import pickle

import pytest
import torch
import torch.fx
import torch.nn.functional as F
from torch import nn

import magneto

X = torch.linspace(-1, 1, 16).reshape(4, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8))
        self.out = nn.Linear(8, 2)
        self.register_buffer("k", torch.ones(2))

    def forward(self, x, scale=None):
        y = F.relu(self.fc(x))
        y = self.out(y) * self.k
        return y if scale is None else y * scale


NET = Net().eval()


def f(x, y):
    a = x.sin() + y
    return a.relu(), a @ y


def graph_of(fn, *args, **kwargs):
    kept = []

    def keep(gm, example_inputs):
        gm.graph.lint()
        kept.append((gm, example_inputs))
        return gm.forward

    want = fn(*args, **kwargs)
    torch.testing.assert_close(magneto.compile(fn, backend=keep)(*args, **kwargs), want)
    assert len(kept) == 1
    return kept[0]


def placeholders(gm):
    return [n.target for n in gm.graph.nodes if n.op == "placeholder"]


def test_names_of_a_module():
    gm, inputs = graph_of(NET, X, scale=X[:, :2])
    names = placeholders(gm)
    for want in (
        "L_x_",
        "L_scale_",
        "L_self_modules_fc_modules_0_parameters_weight_",
        "L_self_modules_fc_modules_1_buffers_running_mean_",
        "L_self_modules_out_parameters_bias_",
        "L_self_buffers_k_",
    ):
        assert want in names
    assert len(set(names)) == len(names) == len(inputs)
    by_name = dict(zip(names, inputs))
    assert (
        by_name["L_self_modules_out_parameters_bias_"] is NET.out.bias
        and by_name["L_self_buffers_k_"] is NET.k
    )


def test_names_of_global_and_closure_modules():
    net = copy.deepcopy(NET)
    gm, _ = graph_of(lambda x: NET(x) + net(x), X)
    names = placeholders(gm)
    assert "L_x_" in names and "G_NET_buffers_k_" in names and "L_net_buffers_k_" in names


def test_meta():
    gm, inputs = graph_of(NET, X)
    for n in gm.graph.nodes:
        if n.op == "output":
            continue
        assert n.meta["tensor_meta"].dtype == torch.float32
        fake = n.meta["example_value"]
        assert isinstance(fake, torch._subclasses.FakeTensor) and fake.shape == n.meta["tensor_meta"].shape
        assert (
            "example_value" in n.meta
            and n.meta.get("nothing", 3) == 3
            and n.meta.get("example_value") is fake
        )
    (relu,) = [n for n in gm.graph.nodes if n.target is F.relu]
    assert relu.meta["tensor_meta"].shape == (4, 8) and relu.meta["tensor_meta"].stride == (8, 1)
    assert "in forward\n    y = F.relu(self.fc(x))" in relu.stack_trace and __file__ in relu.stack_trace
    (first, _) = [n for n in gm.graph.nodes if n.target is torch._C._nn.linear]
    assert (
        "linear.py" in first.stack_trace.splitlines()[-2]
        and "in forward\n    y = F.relu" in first.stack_trace
    )
    assert [type(i) for i in inputs] == [n.type for n in gm.graph.nodes if n.op == "placeholder"]


def test_shapes_of_several_results():
    gm, _ = graph_of(lambda x: torch.split(x, [1, 3]), X)
    shapes = [tuple(n.meta["tensor_meta"].shape) for n in gm.graph.nodes if "getitem" in n.name]
    assert shapes == [(1, 4), (3, 4)]


def swap_sin(gm):
    for n in list(gm.graph.nodes):
        if n.op == "call_method" and n.target == "sin":
            with gm.graph.inserting_after(n):
                new = gm.graph.call_method("cos", n.args)
            n.replace_all_uses_with(new)
            gm.graph.erase_node(n)
    gm.recompile()
    gm.graph.lint()
    return gm


class ToCos(torch.fx.Transformer):
    def call_method(self, target, args, kwargs):
        return super().call_method("cos" if target == "sin" else target, args, kwargs)


@pytest.mark.parametrize(
    "backend",
    [
        lambda gm, inputs: swap_sin(gm),
        lambda gm, inputs: torch.fx.Interpreter(swap_sin(gm)).run,
        lambda gm, inputs: ToCos(gm).transform(),
        lambda gm, inputs: swap_sin(copy.deepcopy(gm)),
        lambda gm, inputs: swap_sin(pickle.loads(pickle.dumps(gm))),
        lambda gm, inputs: torch.jit.trace(swap_sin(gm), inputs),
    ],
)
def test_passes(backend):
    a = X.cos() + X
    for _ in range(2):
        torch.testing.assert_close(magneto.compile(f, backend=backend)(X, X), (a.relu(), a @ X))


def test_tools():
    from torch.fx.passes.shape_prop import ShapeProp

    gm, inputs = graph_of(f, X, X)
    ShapeProp(gm).propagate(*inputs)
    gm.graph.print_tabular()
    assert "x.sin()" in gm.print_readable(print_output=False)
    assert "x.sin() + y" in gm.print_readable(print_output=False)  # the source line
    torch.testing.assert_close(torch.fx.symbolic_trace(gm)(*inputs), gm(*inputs))


def test_counting_backends_of_torch():
    from torch._dynamo.testing import CompileCounter, EagerAndRecordGraphs

    c = CompileCounter()
    magneto.compile(NET, backend=c)(X)
    assert (c.frame_count, c.op_count) == (1, 5)
    e = EagerAndRecordGraphs()
    magneto.compile(f, backend=e)(X, X)
    assert len(e.graphs) == 1


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_torch_backends_train(name):
    a, b = copy.deepcopy(NET).train(), copy.deepcopy(NET).train()
    c = magneto.compile(a, backend=name)
    for _ in range(2):
        c(X).sum().backward()
        b(X).sum().backward()
    for p, q in zip([*a.parameters(), *a.buffers()], [*b.parameters(), *b.buffers()]):
        torch.testing.assert_close(p, q)
        torch.testing.assert_close(p.grad, q.grad)


def test_aot_module_simplified():
    from torch._functorch.aot_autograd import aot_module_simplified

    seen = []

    def compiler(gm, inputs):
        seen.append(gm)
        return gm.forward

    c = magneto.compile(f, backend=lambda gm, inputs: aot_module_simplified(gm, inputs, fw_compiler=compiler))
    torch.testing.assert_close(c(X, X), f(X, X))
    assert len(seen) == 1 and any(n.target is torch.ops.aten.sin.default for n in seen[0].graph.nodes)


def test_gradients_of_a_backward_inside_are_part_of_the_graph():
    def step(x):
        y = x.sin().sum()
        y.backward()
        return y.detach(), x.grad * 2

    a, b = X.clone().requires_grad_(), X.clone().requires_grad_()
    want = step(a)
    torch.testing.assert_close(magneto.compile(step, backend=lambda gm, inputs: gm)(b), want)
    torch.testing.assert_close(a.grad, b.grad)


def test_numbers_of_numpy_and_enumerations_are_written_as_numbers():
    import enum

    import numpy as np

    class Size(enum.IntEnum):
        TWO = 2

    gm, _ = graph_of(lambda x: x * np.float64(2.5) + x.sum(Size.TWO - 1) + x.reshape(Size.TWO, 8).sum(), X)
    assert "2.5" in gm.code and "np." not in gm.code and "Size" not in gm.code


def test_writes_that_no_call_shows():
    def f(x):
        x.real = 10
        y = x * 2
        y.imag = x.real
        return y + 1

    g = magneto.compile(f, backend="eager", fullgraph=True)
    for _ in range(2):
        a, b = torch.ones(3, dtype=torch.cfloat), torch.ones(3, dtype=torch.cfloat)
        assert torch.equal(g(a), f(b)) and torch.equal(a, b)
