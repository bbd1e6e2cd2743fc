"""A setting in the wrong section of a study: the message says where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from ablate.study.reading import load_study
from ablate.study.study import StudyError

HEAD = """question: Does it matter?
baseline: pre
arms:
  post: {block.norm_placement: post}
"""
HOMES = {
    "lr": "train.lr",
    "learning_rate": "train.lr",
    "batch": "train.batch",
    "batch_size": "train.batch",
    "context": "train.context",
    "warmup": "train.warmup",
    "optimizer": "train.optimizer",
    "weight_decay": "train.weight_decay",
    "steps": "budget.tokens",
    "epochs": "budget.tokens",
    "tokens": "budget.tokens",
    "flops": "budget.flops",
    "seed": "seeds",
    "preset": "base.preset",
    "model": "base",
    "d_model": "base.d_model",
    "hidden_size": "base.d_model",
    "n_layers": "base.n_layers",
    "block": "base.block",
    "heads": "base.block.mixer.heads",
    "kv_heads": "base.block.mixer.kv_heads",
    "d_ff": "base.block.ffn.d_ff",
    "norm": "base.block.norm",
    "dropout": "base.block.dropout",
    "activation": "base.block.ffn.activation",
    "paths": "data.paths",
    "tokenizer": "data.tokenizer",
    "contexts": "measure.contexts",
    "tasks": "evals.tasks",
    "trials": "tune.trials",
}


def reason_in(text: str, folder: Path, sets: tuple[str, ...] = ()) -> str:
    path = folder / "x.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(StudyError) as caught:
        load_study(path, scale="cpu", sets=sets)
    (problem,) = caught.value.problems
    return f"{problem.path}: {problem.reason}"


@pytest.mark.parametrize("key", HOMES)
def test_a_setting_at_the_top_has_its_section(key: str, tmp_path: Path) -> None:
    assert reason_in(f"{HEAD}{key}: 1\n", tmp_path) == f"{key}: unknown key (did you mean '{HOMES[key]}'?)"


@pytest.mark.parametrize(
    ("text", "path", "home"),
    [
        ("train: {d_model: 64}\n", "train.d_model", "base.d_model"),
        ("train: {steps: 64}\n", "train.steps", "budget.tokens"),
        ("base: {lr: 1}\n", "base.lr", "train.lr"),
        ("  x: {lr: 1}\n", "arms.x.lr", "train.lr"),
        ("  x: {batch_size: 1}\n", "arms.x.batch_size", "train.batch"),
        ("  x: {heads: 1}\n", "arms.x.heads", "block.mixer.heads"),
        ("scales: {cpu: {lr: 1}}\n", "scales.cpu.lr", "train.lr"),
    ],
)
def test_a_setting_of_another_section_has_its_path(text: str, path: str, home: str, tmp_path: Path) -> None:
    assert reason_in(HEAD + text, tmp_path) == f"{path}: unknown key (did you mean '{home}'?)"


def test_an_edit_has_its_section(tmp_path: Path) -> None:
    assert reason_in(HEAD, tmp_path, ("lr=1",)) == "lr: unknown key (did you mean 'train.lr'?)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trian: {}\n", "trian: unknown key (did you mean 'train'?)"),
        ("train: {learning_rate: 1}\n", "train.learning_rate: unknown key (did you mean 'lr'?)"),
        ("measure: {batch: [1]}\n", "measure.batch: unknown key (did you mean 'batches'?)"),
        ("name: x\n", "name: unknown key"),
        ("colour: x\n", "colour: unknown key"),
    ],
)
def test_what_is_near_or_nowhere_stays(text: str, said: str, tmp_path: Path) -> None:
    assert reason_in(HEAD + text, tmp_path) == said
