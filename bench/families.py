"""Model families by name: small configurations, random weights.

`FAMILIES[name]()` makes (model, args, kwargs); every tensor has two rows.  A transformer's `width=n` makes its hidden sizes
n times as large.  The tests of models and the dashboard take their models from here.  `BREAKS[name]` says why a family needs more than one graph; every other one
is expected to be recorded whole."""

import torch


def _vision(name, size, **options):
    def make():
        import torchvision

        return (
            torchvision.models.get_model(name, weights=None, **options),
            (torch.randn(2, 3, size, size),),
            {},
        )

    return make


def _timm(name):
    def make():
        import timm

        config = timm.models.get_pretrained_cfg(name)
        size = config.input_size if config and config.input_size else (3, 224, 224)
        return timm.create_model(name, pretrained=False), (torch.randn(2, *size),), {}

    return make


def _ids(vocabulary=99, length=12):
    return torch.randint(3, vocabulary, (2, length))


# The options of configurations that `width` multiplies.
_WIDTHS = frozenset(
    "hidden_size d_model dim n_embd embedding_size intermediate_size encoder_ffn_dim decoder_ffn_dim d_ff d_kv ffn_dim "
    "hidden_dim d_inner d_head head_dim word_embed_proj_dim true_hidden_size intra_bottleneck_size "
    "moe_intermediate_size shared_expert_intermediate_size attention_hidden_size".split()
)


def _hugging(model, config, inputs, **options):
    def make(width=1):
        import transformers

        wide = {name: value * width if name in _WIDTHS else value for name, value in options.items()}
        return getattr(transformers, model)(getattr(transformers, config)(**wide)), (), inputs()

    return make


def _tokens():
    return {"input_ids": _ids()}


def _masked():
    return {"input_ids": _ids(), "attention_mask": torch.ones(2, 12, dtype=torch.long)}


def _pairs():
    return {"input_ids": _ids(), "decoder_input_ids": _ids()}


def _pixels(size=32):
    return lambda: {"pixel_values": torch.randn(2, 3, size, size)}


def _wave():
    return {"input_values": torch.randn(2, 800)}


_BASE = dict(
    vocab_size=99,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    max_position_embeddings=64,
)
_SPECIAL = dict(pad_token_id=0, bos_token_id=1, eos_token_id=2)
_IMAGE = dict(
    image_size=32,
    patch_size=8,
    num_channels=3,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
)
_SEQ2SEQ = dict(
    d_model=32,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=37,
    decoder_ffn_dim=37,
    vocab_size=99,
    max_position_embeddings=64,
)
_T5 = dict(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_decoder_layers=2, num_heads=4)
_AUDIO = dict(
    vocab_size=32,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=37,
    conv_dim=(16, 16),
    conv_stride=(4, 4),
    conv_kernel=(8, 8),
    num_feat_extract_layers=2,
    num_conv_pos_embeddings=16,
    num_conv_pos_embedding_groups=2,
)

_ENCODERS = {
    "Bert": {},
    "Roberta": {},
    "Electra": dict(embedding_size=32),
    "Ernie": {},
    "MPNet": {},
    "Camembert": {},
    "XLMRoberta": {},
    "RemBert": dict(input_embedding_size=32, output_embedding_size=32, **_SPECIAL),
    "MegatronBert": {},
    "Nystromformer": {},
    "Deberta": {},
    "DebertaV2": {},
    "LayoutLM": {},
    "ConvBert": dict(embedding_size=32),
    "MobileBert": dict(
        embedding_size=32,
        intra_bottleneck_size=32,
        hidden_size=64,
        true_hidden_size=32,
        num_feedforward_networks=1,
    ),
    "RoFormer": dict(embedding_size=32),
    "FNet": {},
    "BigBird": {},
    "Data2VecText": {},
    "ModernBert": dict(cls_token_id=1, sep_token_id=2, **_SPECIAL),
}
_MOE = dict(
    num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16
)
_DECODERS = {
    "Llama": {},
    "Mistral": {},
    "Qwen2": {},
    "Qwen3": {},
    "Gemma": dict(head_dim=8),
    "Gemma2": dict(head_dim=8),
    "Phi": {},
    "Phi3": {},
    "Cohere": {},
    "Olmo": {},
    "Olmo2": {},
    "StableLm": {},
    "Starcoder2": {},
    "GPTNeoX": {},
    "Persimmon": {},
    "Granite": {},
    "Glm": dict(head_dim=8),
    "Falcon": {},
    "SmolLM3": {},
    "Ernie4_5": {},
    "Nemotron": {},
    "Qwen2Moe": _MOE,
    "DeepseekV3": dict(
        n_routed_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        kv_lora_rank=8,
        q_lora_rank=8,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        num_key_value_heads=4,
    ),
}

FAMILIES = {}
for _name in (
    "alexnet",
    "convnext_tiny",
    "densenet121",
    "efficientnet_b0",
    "efficientnet_v2_s",
    "mnasnet0_5",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "regnet_x_400mf",
    "regnet_y_400mf",
    "resnet18",
    "resnext50_32x4d",
    "shufflenet_v2_x0_5",
    "squeezenet1_0",
    "vgg11_bn",
    "wide_resnet50_2",
):
    FAMILIES["torchvision/" + _name] = _vision(_name, 96)
for _name in ("swin_t", "swin_v2_t", "vit_b_32", "maxvit_t"):
    FAMILIES["torchvision/" + _name] = _vision(_name, 224)
FAMILIES["torchvision/googlenet"] = _vision("googlenet", 96, init_weights=False)
FAMILIES["torchvision/inception_v3"] = _vision("inception_v3", 299, init_weights=False)
for _name in (
    "vit_tiny_patch16_224 resnet26 resnetv2_50 mobilenetv3_small_050 convnext_atto convnextv2_atto mixer_s32_224 "
    "resmlp_12_224 gmlp_s16_224 poolformer_s12 regnety_002 ghostnet_050 repvgg_a0 dla34 hrnet_w18_small xception41 "
    "levit_128s cait_xxs24_224 coat_lite_tiny pit_ti_224 xcit_nano_12_p16_224 crossvit_tiny_240 mobilevit_xxs "
    "edgenext_xx_small efficientformer_l1 fastvit_t8 cspresnet50 botnet26t_256 halonet26t lambda_resnet26t "
    "eva02_tiny_patch14_224 davit_tiny focalnet_tiny_srf volo_d1_224 mvitv2_tiny rexnet_100 selecsls42 skresnet18 "
    "res2net50_26w_4s resnest14d nest_tiny mobileone_s0 hiera_tiny_224 tiny_vit_5m_224 starnet_s1 "
    "mambaout_femto"
).split():
    FAMILIES["timm/" + _name] = _timm(_name)
for _name, _options in _ENCODERS.items():
    FAMILIES["transformers/" + _name] = _hugging(
        _name + "Model", _name + "Config", _masked, **{**_BASE, **_options}
    )
for _name, _options in _DECODERS.items():
    FAMILIES["transformers/" + _name] = _hugging(
        _name + "ForCausalLM",
        _name + "Config",
        _tokens,
        **{**_BASE, "num_key_value_heads": 2, **_SPECIAL, **_options},
    )
for _name in "Bart MBart Pegasus Blenderbot M2M100 PLBart".split():
    FAMILIES["transformers/" + _name] = _hugging(_name + "Model", _name + "Config", _pairs, **_SEQ2SEQ)
for _name in "T5 MT5 UMT5 LongT5 SwitchTransformers".split():
    FAMILIES["transformers/" + _name] = _hugging(_name + "Model", _name + "Config", _pairs, **_T5)
for _name in "ViT DeiT Beit Dinov2 Data2VecVision ViTMSN IJepa SiglipVision CLIPVision".split():
    FAMILIES["transformers/" + _name] = _hugging(_name + "Model", _name + "Config", _pixels(), **_IMAGE)
for _name in "Swin Swinv2".split():
    FAMILIES["transformers/" + _name] = _hugging(
        _name + "Model",
        _name + "Config",
        _pixels(),
        image_size=32,
        patch_size=2,
        embed_dim=16,
        depths=[1, 2],
        num_heads=[2, 2],
        window_size=4,
    )
for _name in "Wav2Vec2 Hubert".split():
    FAMILIES["transformers/" + _name] = _hugging(_name + "Model", _name + "Config", _wave, **_AUDIO)
FAMILIES.update(
    {
        "transformers/GPT2": _hugging(
            "GPT2LMHeadModel", "GPT2Config", _tokens, n_embd=32, n_layer=2, n_head=4, vocab_size=99
        ),
        "transformers/GPTNeo": _hugging(
            "GPTNeoForCausalLM",
            "GPTNeoConfig",
            _tokens,
            hidden_size=32,
            num_layers=2,
            num_heads=4,
            vocab_size=99,
            attention_types=[[["global", "local"], 1]],
        ),
        "transformers/GPTJ": _hugging(
            "GPTJForCausalLM",
            "GPTJConfig",
            _tokens,
            n_embd=32,
            n_layer=2,
            n_head=4,
            rotary_dim=4,
            vocab_size=99,
        ),
        "transformers/OPT": _hugging(
            "OPTForCausalLM",
            "OPTConfig",
            _tokens,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            ffn_dim=64,
            vocab_size=99,
            max_position_embeddings=64,
            word_embed_proj_dim=32,
        ),
        "transformers/Bloom": _hugging(
            "BloomForCausalLM", "BloomConfig", _tokens, hidden_size=32, n_layer=2, n_head=4, vocab_size=99
        ),
        "transformers/MPT": _hugging(
            "MptForCausalLM", "MptConfig", _tokens, d_model=32, n_layers=2, n_heads=4, vocab_size=99
        ),
        "transformers/DistilBert": _hugging(
            "DistilBertModel",
            "DistilBertConfig",
            _tokens,
            dim=32,
            n_layers=2,
            n_heads=4,
            hidden_dim=37,
            vocab_size=99,
        ),
        "transformers/Albert": _hugging("AlbertModel", "AlbertConfig", _tokens, embedding_size=16, **_BASE),
        "transformers/XLNet": _hugging(
            "XLNetModel", "XLNetConfig", _tokens, d_model=32, n_layer=2, n_head=4, d_inner=37, vocab_size=99
        ),
        "transformers/Longformer": _hugging(
            "LongformerModel", "LongformerConfig", _tokens, attention_window=4, **_BASE
        ),
        "transformers/Funnel": _hugging(
            "FunnelModel",
            "FunnelConfig",
            _tokens,
            vocab_size=99,
            d_model=32,
            n_head=4,
            d_head=8,
            d_inner=37,
            block_sizes=[1, 1],
        ),
        "transformers/ConvNext": _hugging(
            "ConvNextModel", "ConvNextConfig", _pixels(), hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]
        ),
        "transformers/ResNet": _hugging(
            "ResNetModel",
            "ResNetConfig",
            _pixels(),
            embedding_size=8,
            hidden_sizes=[8, 16, 16, 16],
            depths=[1, 1, 1, 1],
        ),
        "transformers/Segformer": _hugging(
            "SegformerModel",
            "SegformerConfig",
            _pixels(64),
            hidden_sizes=[8, 16, 16, 16],
            depths=[1, 1, 1, 1],
            num_attention_heads=[1, 2, 2, 2],
        ),
        "transformers/Mamba": _hugging(
            "MambaForCausalLM", "MambaConfig", _tokens, vocab_size=99, hidden_size=32, num_hidden_layers=2
        ),
        "transformers/Mamba2": _hugging(
            "Mamba2ForCausalLM",
            "Mamba2Config",
            _tokens,
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            num_heads=8,
            head_dim=8,
            state_size=16,
            n_groups=1,
        ),
        "transformers/Rwkv": _hugging(
            "RwkvForCausalLM",
            "RwkvConfig",
            _tokens,
            vocab_size=99,
            hidden_size=32,
            num_hidden_layers=2,
            attention_hidden_size=32,
        ),
        "transformers/Whisper": _hugging(
            "WhisperModel",
            "WhisperConfig",
            lambda: {"input_features": torch.randn(2, 20, 60), "decoder_input_ids": _ids()},
            **{**_SEQ2SEQ, "max_position_embeddings": 30},
            num_mel_bins=20,
            max_source_positions=30,
            max_target_positions=30,
            decoder_start_token_id=1,
            **_SPECIAL,
        ),
        "transformers/PatchTST": _hugging(
            "PatchTSTModel",
            "PatchTSTConfig",
            lambda: {"past_values": torch.randn(2, 32, 3)},
            num_input_channels=3,
            context_length=32,
            patch_length=8,
            patch_stride=8,
            d_model=16,
            num_attention_heads=2,
            num_hidden_layers=2,
            ffn_dim=32,
        ),
    }
)

BREAKS = {
    "transformers/Longformer": "the number of global attention positions is read from a tensor",
    "transformers/Mamba": "its scan is a higher-order operator with vmap inside",
}
