"""transformers' Trainer compiles with magneto by name, after magneto.install(): eager's parameters, one graph."""

import pytest
import torch

import magneto
from magneto import _magneto

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")


def rows(n):
    generator = torch.Generator().manual_seed(n)
    return [
        {k: torch.randint(0, 64, (16,), generator=generator) for k in ("input_ids", "labels")}
        for _ in range(n)
    ]


def train(folder, **options):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=2,
        n_embd=32,
        n_head=2,
        vocab_size=64,
        n_positions=32,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
    )
    arguments = transformers.TrainingArguments(
        str(folder),
        per_device_train_batch_size=4,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        **options,
    )
    model = transformers.GPT2LMHeadModel(config)
    trainer = transformers.Trainer(model, arguments, train_dataset=rows(24), eval_dataset=rows(6))
    trainer.train()
    return trainer


def test_trainer_by_name(tmp_path):
    eager = train(tmp_path / "eager")
    _magneto.reset()
    with magneto.install():
        compiled = train(tmp_path / "compiled", torch_compile=True, torch_compile_backend="magneto")
    stats = _magneto.stats()
    assert stats["graphs"] >= 1 and not stats["recompiles"] and not stats["fallbacks"]
    for want, got in zip(eager.model.parameters(), compiled.model.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    losses = [
        [row["eval_loss"] for row in t.state.log_history if "eval_loss" in row] for t in (eager, compiled)
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and len(losses[0]) == 2


def test_saved_model_has_eagers_names(tmp_path):
    with magneto.install():
        trainer = train(tmp_path, torch_compile=True, torch_compile_backend="magneto")
    trainer.save_model(str(tmp_path / "saved"))
    loaded = transformers.GPT2LMHeadModel.from_pretrained(str(tmp_path / "saved"))
    for name, value in trainer.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_without_install_the_name_is_unknown(tmp_path):
    with pytest.raises(ValueError, match="(?i)magneto"):
        train(tmp_path, torch_compile=True, torch_compile_backend="magneto")
