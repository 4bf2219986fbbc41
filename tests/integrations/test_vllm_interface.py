"""The shape of vLLM's CompilerInterface (vllm/compilation/compiler_interface.py): a stub with its methods.

vLLM captures the model by Dynamo once, with a symbolic number of tokens, splits the graph, and gives each piece to
`compile`; it calls what it gets with tensors and ints, in the order of the graph's placeholders.
"""

import torch

import magneto
from tests.support.counts import assert_counts


class MagnetoAdaptor:
    """What a CompilerInterface of vLLM would be."""

    name = "magneto"

    def initialize_cache(self, cache_dir, disable_cache=False, prefix=""):
        pass  # magneto keeps its own cache folder: MAGNETO_CACHE_DIR

    def compute_hash(self, vllm_config):
        return magneto.__version__

    def compile(self, graph, example_inputs, compiler_config, compile_range, key=None):
        return magneto.compile(graph, fullgraph=True, options=compiler_config or None), None

    def load(self, handle, graph, example_inputs, graph_index, compile_range):
        raise NotImplementedError("no handle is given out: compiled code is found in the cache folder")


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = torch.nn.Linear(16, 48), torch.nn.Linear(16, 16)
        self.norm = torch.nn.RMSNorm(16)

    def forward(self, x, residual):
        residual = x + residual
        q, k, v = self.qkv(self.norm(residual)).view(-1, 3, 2, 8).unbind(1)
        return self.out((q.softmax(-1) * k + v).flatten(1)), residual


def test_pieces_with_a_symbolic_number_of_tokens():
    model, adaptor, pieces = Layer().eval(), MagnetoAdaptor(), []
    adaptor.initialize_cache("", disable_cache=True)
    assert isinstance(adaptor.compute_hash(None), str)

    def capture(graph, inputs):
        compiled, handle = adaptor.compile(graph, inputs, {"freezing": True}, (1, 64), "piece_0")
        assert handle is None
        pieces.append(compiled)
        return compiled

    captured = torch.compile(model, backend=capture, dynamic=False, fullgraph=True)
    with torch.no_grad():
        for tokens in (7, 13, 1, 64, 32):
            x, residual = torch.randn(tokens, 16), torch.randn(tokens, 16)
            torch._dynamo.maybe_mark_dynamic(x, 0)
            torch._dynamo.maybe_mark_dynamic(residual, 0)
            for got, want in zip(captured(x, residual), model(x, residual), strict=True):
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert len(pieces) <= 2  # any number of tokens, and one
    assert_counts(breaks=0)
