"""transformers' generate() with a compiled model: eager's tokens, few graphs, no graph break."""

import pytest
import torch

import magneto
from tests.support.counts import assert_counts, counts

transformers = pytest.importorskip("transformers")

SPECIAL = dict(vocab_size=199, pad_token_id=0, bos_token_id=1, eos_token_id=None)
BASE = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=64,
    max_position_embeddings=256,
    **SPECIAL,
)
MODELS = {
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=256, **SPECIAL),
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", BASE),
    "qwen2": ("Qwen2ForCausalLM", "Qwen2Config", BASE),
    "t5": (
        "T5ForConditionalGeneration",
        "T5Config",
        dict(
            d_model=32,
            d_kv=8,
            d_ff=64,
            num_layers=2,
            num_heads=4,
            vocab_size=199,
            pad_token_id=0,
            eos_token_id=None,
            decoder_start_token_id=0,
        ),
    ),
    "whisper": (
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        dict(
            d_model=32,
            encoder_layers=2,
            decoder_layers=2,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=64,
            decoder_ffn_dim=64,
            max_source_positions=50,
            max_target_positions=128,
            num_mel_bins=8,
            decoder_start_token_id=2,
            begin_suppress_tokens=None,
            suppress_tokens=None,
            **SPECIAL,
        ),
    ),
}
WAYS = {
    "greedy": dict(do_sample=False),
    "sample": dict(do_sample=True, top_k=20, top_p=0.9, temperature=0.8),
    "beam": dict(do_sample=False, num_beams=3),
}
CACHES = {"dynamic": {}, "static": dict(cache_implementation="static", disable_compile=True)}


def _model(name):
    transformers.logging.set_verbosity_error()
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**options)).eval()
    for p in made.parameters():
        p.data.mul_(3)  # so that no two tokens are about as likely as each other
    return made


def _prompt(name, length):
    if name == "whisper":
        return dict(input_features=torch.randn(2, 8, 100))
    return dict(input_ids=torch.randint(3, 199, (2, length)))


def _tokens(generate, prompt, **options):
    torch.manual_seed(1)
    return generate(**prompt, max_new_tokens=12, min_new_tokens=12, **options)


def _by_forward(model):
    model.forward = magneto.compile(model.forward)
    return model.generate


def _by_module(model):
    return magneto.compile(model).generate


def _by_generate(model):
    return magneto.compile(model.generate)


@pytest.mark.model
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_forward_gives_eagers_tokens_from_three_graphs(name, way, cache):
    prompt, options = _prompt(name, 7), {**WAYS[way], **CACHES[cache]}
    generate = _by_forward(_model(name))
    expected = _tokens(_model(name).generate, prompt, **options)
    for _ in range(2):
        assert torch.equal(_tokens(generate, prompt, **options), expected)
    assert counts().graphs <= 3
    assert_counts(breaks=0)


@pytest.mark.model
@pytest.mark.parametrize("name, graphs", [("llama", 3), ("gpt2", 3), ("qwen2", 3), ("t5", 4)])
def test_prompts_of_any_length_share_the_graphs(name, graphs):
    eager, generate = _model(name).generate, _by_forward(_model(name))
    for length in (7, 12):
        _tokens(generate, _prompt(name, length))
    before = counts()
    for length in (5, 23, 9, 40):
        prompt = _prompt(name, length)
        assert torch.equal(_tokens(generate, prompt), _tokens(eager, prompt))
    assert_counts(before, graphs=0, misses=0, breaks=0)
    assert before.graphs <= graphs


@pytest.mark.model
@pytest.mark.parametrize("name, graphs", [("llama", 4), ("gpt2", 4), ("t5", 6)])
def test_prompts_of_one_token_cost_their_first_call(name, graphs):
    eager, generate = _model(name).generate, _by_forward(_model(name))
    for length in (7, 12, 1):
        prompt = _prompt(name, length)
        assert torch.equal(_tokens(generate, prompt), _tokens(eager, prompt))
    before = counts()
    for length in (1, 5, 1, 23, 2):
        prompt = _prompt(name, length)
        assert torch.equal(_tokens(generate, prompt), _tokens(eager, prompt))
    assert_counts(before, graphs=0, misses=0, breaks=0)
    assert before.graphs <= graphs


@pytest.mark.model
@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen2", "t5"])
def test_many_tokens_are_two_graphs(name):
    prompt, generate = _prompt(name, 5), _by_forward(_model(name))
    options = dict(max_new_tokens=60, min_new_tokens=60, do_sample=False)
    assert torch.equal(generate(**prompt, **options), _model(name).generate(**prompt, **options))
    assert counts().graphs <= 2
    assert_counts(breaks=0)


@pytest.mark.model
@pytest.mark.parametrize("way", ["greedy", "sample"])
@pytest.mark.parametrize("compiled", [_by_module, _by_generate])
def test_every_way_to_compile_gives_eagers_tokens(compiled, way):
    prompt, generate = _prompt("llama", 7), compiled(_model("llama"))
    expected = _tokens(_model("llama").generate, prompt, **WAYS[way])
    for _ in range(2):
        assert torch.equal(_tokens(generate, prompt, **WAYS[way]), expected)
    assert_counts()


@pytest.mark.model
@pytest.mark.parametrize("order, graphs", [("batches", 3), ("mixed", 3), ("lengths", 4)])
def test_pairs_of_batch_and_length_share_the_graphs(order, graphs):
    """A batch of 1 has graphs of its own.  By lengths: (1, 4), (n, 4), (1, m), (n, m)."""
    pairs = [(batch, length) for batch in (1, 2, 4) for length in (4, 5, 8, 16)]
    pairs = {"batches": pairs, "lengths": sorted(pairs, key=lambda p: p[1]), "mixed": pairs[::5] + pairs}[
        order
    ]
    model = _model("gpt2")
    compiled = magneto.compile(model)
    with torch.no_grad():
        for shape in pairs:
            ids = torch.randint(3, 199, shape)
            torch.testing.assert_close(compiled(input_ids=ids).logits, model(input_ids=ids).logits)
    assert counts().graphs <= graphs
    assert_counts(breaks=0)
