"""diffusers: compile_repeated_blocks() by name, and LoRA weights that are swapped under compiled blocks."""

import pytest
import torch

import magneto
from bench.libraries import diffusers_flux, diffusers_unet
from tests.support.counts import assert_counts, counts

pytest.importorskip("diffusers")
pytestmark = pytest.mark.model


@pytest.mark.parametrize("make, graphs", [(diffusers_unet, 4), (diffusers_flux, 5)], ids=["unet", "flux"])
def test_compile_repeated_blocks(make, graphs):
    """A graph for each of the blocks that repeat: four of the UNet, three and two of Flux."""
    model, calls = make()
    with torch.no_grad():
        expected = model(*calls[0], return_dict=False)[0]
        with magneto.install():
            model.compile_repeated_blocks(backend="magneto", fullgraph=True)
        for _ in range(2):
            got = model(*calls[0], return_dict=False)[0]
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert_counts(graphs=graphs, breaks=0)


def adapter(model, rank, seed):
    """The state of a LoRA of that rank, as load_lora_adapter() takes it."""
    torch.manual_seed(seed)
    state = {}
    for name, layer in model.named_modules():
        if name.endswith(("to_q", "to_v")) and "single" not in name:
            state[f"{name}.lora_A.weight"] = torch.randn(rank, layer.in_features) * 0.3
            state[f"{name}.lora_B.weight"] = torch.randn(layer.out_features, rank) * 0.3
    return state


def test_lora_hotswap():
    pytest.importorskip("peft")
    model, calls = diffusers_flux()
    states = [adapter(model, rank, seed) for seed, rank in enumerate((4, 2, 3))]

    def swap(model, state, first):
        model.load_lora_adapter(dict(state), adapter_name="style", prefix=None, hotswap=not first)

    plain, _ = diffusers_flux()
    plain.load_state_dict(model.state_dict())
    for each in (model, plain):
        each.enable_lora_hotswap(target_rank=8)
        swap(each, states[0], first=True)
    with magneto.install():
        model.compile_repeated_blocks(backend="magneto", fullgraph=True)
    with torch.no_grad():
        for k, state in enumerate([states[0], *states[1:], states[0]]):
            if k:
                for each in (model, plain):
                    swap(each, state, first=False)
            before = counts()
            got, want = model(*calls[0], return_dict=False)[0], plain(*calls[0], return_dict=False)[0]
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
            assert_counts(before, graphs=0 if k else 5, breaks=0)
