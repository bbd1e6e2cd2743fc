"""Reading studies: scales, settings, arms and grids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zoo
from ablate.study.reading import default_scale, load_study, next_scale
from ablate.study.sections import AutoSeeds
from ablate.study.study import Study

STUDY = """question: Does it matter?
source: somebody
baseline: pre
base: {preset: small, d_model: 64, block: {mixer: {heads: 4}}}
arms:
  post: {block.norm_placement: post}
  slow: {train: {lr: 1e-4}, train.warmup: 0}
seeds: [3, 5]
train: {context: 32, lr: 1e-3}
budget: {flops: 1e10}
data: {source: stdlib, tokenizer: {kind: bpe, vocab_size: 512}, validation_fraction: 0.1}
scales:
  tiny:
    base.d_model: 32
    base: {block: {mixer.kv_heads: 2}}
    train.batch: 2
    budget: {tokens: 4e4}
    seeds: 1
    arms.post.block.norm: layernorm
  other: {data: {source: files, paths: x.txt}}
tune: off
"""


@pytest.fixture
def load(tmp_path: Path):  # type: ignore[no-untyped-def]
    path = tmp_path / "some_study.yaml"

    def read(text: str = STUDY, scale: str = "cpu", *sets: str) -> Study:
        path.write_text(text, encoding="utf-8")
        return load_study(path, scale, sets)

    return read


def test_a_study_is_its_sections_and_its_arms_baseline_first(load) -> None:  # type: ignore[no-untyped-def]
    study = load()
    assert (study.name, study.scale, study.question, study.source) == (
        "some_study",
        "cpu",
        "Does it matter?",
        "somebody",
    )
    assert study.text == STUDY
    assert [arm.name for arm in study.arms] == ["pre", "post", "slow"]
    assert study.seeds == (3, 5)
    assert (study.budget.kind, study.budget.flops) == ("flops", 1e10)
    base = zoo.load("small", d_model=64)
    assert [arm.model for arm in study.arms] == [base, base.edit({"block.norm_placement": "post"}), base]
    assert [arm.train.lr for arm in study.arms] == [1e-3, 1e-3, 1e-4]
    assert study.arms[2].edits == {"train.lr": 1e-4, "train.warmup": 0}


def test_a_scale_edits_the_whole_study_and_a_setting_comes_last(load) -> None:  # type: ignore[no-untyped-def]
    study = load(STUDY, "tiny", "train.batch=4", "arms.post.d_model=16")
    assert study.arms[0].model == zoo.load("small", **{"d_model": 32, "block.mixer.kv_heads": 2})
    assert study.arms[1].model.d_model == 16
    assert study.arms[1].model.block.norm.kind == "layernorm"
    assert (study.train.batch, study.train.context) == (4, 32)
    assert (study.budget.kind, study.budget.tokens) == ("tokens", 40_000)
    assert study.seeds == (0,)


@pytest.mark.parametrize("word", ["off", "false", "null"])
def test_tuning_is_off_however_yaml_says_so(load, word: str) -> None:  # type: ignore[no-untyped-def]
    study = load(STUDY.replace("tune: off", f"tune: {word}"))
    assert (study.tune, study.carried) == (None, None)


def test_a_new_budget_replaces_the_old_one(load) -> None:  # type: ignore[no-untyped-def]
    assert load(STUDY, "cpu", "budget.tokens=1e5").budget.tokens == 100_000


def test_tuning_and_rounds_of_seeds_are_edited_by_path_and_a_space_is_replaced(load) -> None:  # type: ignore[no-untyped-def]
    text = STUDY.replace("tune: off", "tune: {space: {train.batch: [2, 3]}, fraction: 0.5, seeds: 2}")
    text = text.replace("seeds: [3, 5]", "seeds: {start: 4, cap: 20}")
    tune = load(text, "cpu", "tune.fraction=0.1").tune
    assert (tune.fraction, tune.seeds, list(tune.space)) == (0.1, 2, ["train.batch"])
    other = load(text, "cpu", "tune={space: {train.grad_clip: [2, 4]}}").tune
    assert (other.fraction, other.seeds, list(other.space)) == (0.5, 2, ["train.grad_clip"])
    assert load(text, "cpu", "seeds.cap=8").auto_seeds == AutoSeeds(start=4, cap=8)
    assert load(text, "cpu", "seeds=2").seeds == (0, 1)


def test_another_source_keeps_what_all_sources_have(load) -> None:  # type: ignore[no-untyped-def]
    data = load(STUDY, "other").data
    assert (data.source, data.tokenizer.vocab_size, data.validation_fraction) == ("files", 512, 0.1)
    assert load(STUDY, "other", "data.source=stdlib").data == load().data


def test_a_setting_is_yaml_1_2(load) -> None:  # type: ignore[no-untyped-def]
    study = load(STUDY, "cpu", "seeds=[7]", "train.lr=2e-3", "measure=null", "train.grad_clip=~", "question=off")
    assert (study.seeds, study.train.lr, study.measure, study.train.grad_clip) == ((7,), 2e-3, None, None)
    assert study.question == "off"


def test_the_vocabulary_is_the_tokenizer_s_unless_given(load) -> None:  # type: ignore[no-untyped-def]
    assert not load().vocabulary_given
    assert load(STUDY, "cpu", "base.vocab_size=1000").vocabulary_given


def test_without_a_gpu_the_scale_is_cpu(load, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert default_scale(["gpu-hour"]) == "cpu"
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert default_scale(["gpu"]) == default_scale([]) == "gpu"
    assert default_scale(["gpu", "gpu-minutes"]) == "gpu-minutes"
    assert default_scale(["gpu-minutes", "gpu-hour"]) == "gpu-hour"
    assert default_scale(["gpu-hour"], "cpu") == "cpu"
    assert load(STUDY, "gpu").arms == load().arms


def test_a_grid_crosses_every_arm_and_its_neutral_cell_is_the_arm(load) -> None:  # type: ignore[no-untyped-def]
    text = STUDY.replace("  slow: {train: {lr: 1e-4}, train.warmup: 0}\n", "")
    text += "grid: {train.lr: [5e-4, 1e-3], block.ffn.d_ff: [8/3x, 4x]}\n"
    arms = load(text).arms
    assert [arm.name for arm in arms] == [
        "pre",
        "pre+lr=0.0005",
        "pre+lr=0.0005+d_ff=4x",
        "pre+d_ff=4x",
        "post+lr=0.0005",
        "post+lr=0.0005+d_ff=4x",
        "post",
        "post+d_ff=4x",
    ]
    cell = {arm.name: arm for arm in arms}["post+lr=0.0005+d_ff=4x"]
    assert cell.train.lr == 5e-4
    assert cell.model == zoo.load("small", **{"d_model": 64, "block.norm_placement": "post", "block.ffn.d_ff": "4x"})
    assert cell.edits == {"block.norm_placement": "post", "train.lr": 5e-4, "block.ffn.d_ff": "4x"}


def test_a_grid_without_the_base_s_value_still_has_the_baseline_first(load) -> None:  # type: ignore[no-untyped-def]
    text = STUDY.replace("  slow: {train: {lr: 1e-4}, train.warmup: 0}\n", "") + "grid: {train.lr: [5e-4, 2e-3]}\n"
    assert [arm.name for arm in load(text).arms] == [
        "pre",
        "pre+lr=0.0005",
        "pre+lr=0.002",
        "post+lr=0.0005",
        "post+lr=0.002",
    ]


def test_a_grid_alone_is_a_study(load) -> None:  # type: ignore[no-untyped-def]
    text = "question: Q?\nbase: {preset: small}\nbudget: {tokens: 1e6}\ngrid: {block.mixer.kv_heads: [4, 2, 1]}\n"
    assert [arm.name for arm in load(text).arms] == ["base", "base+kv_heads=2", "base+kv_heads=1"]


def test_nested_and_dotted_grids_are_the_same(load) -> None:  # type: ignore[no-untyped-def]
    head = "question: Q?\nbase: {preset: small}\nbudget: {tokens: 1e6}\ntune: off\n"
    assert load(head + "grid: {train: {lr: [1e-3]}}\n").arms == load(head + "grid: {train.lr: [1e-3]}\n").arms


def test_an_edit_of_the_optimizer_goes_into_its_kind_and_a_new_kind_keeps_none(load) -> None:  # type: ignore[no-untyped-def]
    sets = ["train.optimizer=muon", "train.optimizer.momentum=0.8", "arms.post.train.optimizer.nesterov=false"]
    study = load(STUDY, "cpu", *sets, "arms.slow.train.optimizer=sgd")
    found = [arm.train.optimizer.model_dump() for arm in study.arms]
    assert [each["kind"] for each in found] == ["muon", "muon", "sgd"]
    assert [(each["momentum"], each["nesterov"]) for each in found] == [(0.8, True), (0.8, False), (0.9, False)]


def test_the_default_optimizer_can_be_edited_without_its_name(load) -> None:  # type: ignore[no-untyped-def]
    study = load(STUDY, "cpu", "arms.post.train.optimizer.betas=[0.8, 0.9]")
    assert [arm.train.optimizer.betas for arm in study.arms] == [(0.9, 0.95), (0.8, 0.9), (0.9, 0.95)]


@pytest.mark.parametrize(
    ("written", "sets", "every", "which"),
    [
        ("all", (), 0.1, 8),
        ("[log_z]", (), 0.1, 1),
        ("{every: 0.5}", (), 0.5, 8),
        ("{which: [log_z, expert_load], every: 1}", (), 1.0, 2),
        ("[log_z]", ("probes.every=0.5",), 0.5, 1),
        ("{every: 0.5}", ("probes=[log_z]",), 0.5, 1),
        ("{every: 0.5}", ("probes=all",), 0.5, 8),
    ],
)
def test_probes_may_be_written_short_and_edited(load, written, sets, every, which) -> None:  # type: ignore[no-untyped-def]
    probes = load(f"{STUDY}probes: {written}\n", "cpu", *sets).probes
    assert (probes.every, len(probes.which)) == (every, which)


def test_there_are_no_probes_unless_they_are_asked_for(load) -> None:  # type: ignore[no-untyped-def]
    assert load().probes is None
    assert load(f"{STUDY}probes: all\n", "cpu", "probes=null").probes is None


def test_the_next_scale_is_the_first_whose_model_or_budget_is_larger() -> None:
    """Whatever a scale would bring: a base of a size of its own is the same at all."""

    def after(scale: str = "cpu", **study: Any) -> str | None:
        base = {"question": "Q?", "base": {"preset": "small"}, "arms": {"a": {"block.norm_placement": "post"}}}
        return next_scale(load_study(base | study, scale))

    own = {"preset": "small", "d_model": 32, "n_layers": 2, "block.mixer.heads": 2}
    assert after(base={"block.ffn": "relu"}) == "cpu-long"
    assert after("gpu-week", base={"block.ffn": "relu"}) == "gpu-ladder"
    assert after("gpu-ladder", base={"block.ffn": "relu"}) is None
    assert after(base=own) is None
    budgets = {"cpu": {"budget.tokens": 1e5}, "cpu-long": {"seeds": 5}, "gpu": {"budget.tokens": 1e6}}
    assert after(budget={"tokens": 1e4}) is None
    assert after(budget={"tokens": 1e4}, scales=budgets) == "gpu"
    assert after("cpu-long", budget={"tokens": 1e4}, scales={**budgets, "gpu": {"budget.tokens": 1e3}}) is None
    assert after("mine", budget={"tokens": 1e4}, scales={"mine": {}, **budgets}) is None
    smaller = {"smoke": {"base": own}, "gpu-minutes": {"base": {**own, "n_layers": 4}}}
    assert after(budget={"tokens": 1e4}, scales=smaller) == "gpu-minutes"
    assert after("gpu-minutes", budget={"tokens": 1e4}, scales=smaller) is None
