"""magneto.onnx(): onnxruntime gives eager's numbers, for models of several libraries and for sizes that change."""

import pytest
import torch
import torch.utils._pytree as pytree

import magneto
from bench.families import FAMILIES

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def run(path, tensors):
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [i.name for i in session.get_inputs()]
    results = session.run(None, {n: t.numpy() for n, t in zip(names, tensors, strict=True)})
    return [torch.from_numpy(r) for r in results]


@pytest.mark.model
@pytest.mark.parametrize(
    "name", ["torchvision/squeezenet1_0", "timm/starnet_s1", "transformers/Bert", "transformers/XLNet"]
)
def test_models(name, tmp_path):
    torch.manual_seed(0)
    model, args, kwargs = FAMILIES[name]()
    model = model.eval()
    with torch.no_grad():
        want = pytree.tree_leaves(model(*args, **kwargs))
        magneto.onnx(model, args, tmp_path / "model.onnx", kwargs=kwargs)
    got = run(tmp_path / "model.onnx", pytree.tree_leaves((args, kwargs)))
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


def test_sizes_that_change(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()).eval()
    shapes = ({0: torch.export.Dim("rows", min=2)},)
    magneto.onnx(magneto.compile(model), (torch.ones(3, 8),), tmp_path / "m.onnx", dynamic_shapes=shapes)
    for n in (2, 3, 7):
        x = torch.randn(n, 8)
        torch.testing.assert_close(run(tmp_path / "m.onnx", [x])[0], model(x), rtol=1e-4, atol=1e-5)


def test_torchs_exporter_on_a_compiled_module(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Tanh()).eval()
    compiled, x = magneto.compile(model), torch.randn(3, 8)
    compiled(x)
    torch.onnx.export(compiled, (x,), tmp_path / "m.onnx", dynamo=True, verbose=False)
    torch.testing.assert_close(run(tmp_path / "m.onnx", [x])[0], model(x), rtol=1e-4, atol=1e-5)
