"""Scales that come with the tool, under or over what a study says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ablate.data.sources.hf import HfSource
from ablate.planning.make_plan import make_plan
from ablate.study.complaints import StudyError
from ablate.study.reading import load_study
from ablate.study.scales import shipped_scales
from store.documents.study import SCALES
from zoo.costs import cost

SHORTEST = {"question": "?", "baseline": "swiglu", "arms": {"relu2": {"block.ffn": {"kind": "relu2", "d_ff": "4x"}}}}


def study(scale: str = "cpu", **more: Any) -> Any:
    return load_study({**SHORTEST, **more}, scale)


@pytest.mark.parametrize("scale", SCALES)
def test_a_question_and_an_arm_are_a_study_at_every_scale(scale: str) -> None:
    found = study(scale)
    assert [arm.name for arm in found.arms] == ["swiglu", "relu2"]
    assert found.shipped.name == scale
    assert found.brought["base.d_model"] == found.arms[0].model.d_model


def test_the_study_wins_over_the_scale_under_it_and_its_own_edits_of_the_scale_win_over_both() -> None:
    found = study(train={"context": 256}, scales={"cpu": {"seeds": 9, "train.batch": 4}})
    assert (found.train.context, found.train.batch, found.train.warmup) == (256, 4, 0.1)
    assert len(found.seeds) == 9
    assert "train.context" not in found.brought and "seeds" not in found.brought
    assert found.brought["train.warmup"] == 0.1


def test_smoke_is_laid_over_the_study_but_not_over_its_base_nor_its_own_smoke() -> None:
    found = study("smoke", train={"context": 256}, seeds=9, base={"n_layers": 3})
    model = found.arms[0].model
    assert (found.train.context, len(found.seeds), model.d_model, model.n_layers) == (64, 2, 32, 3)
    assert "base.n_layers" not in found.brought and found.brought["seeds"] == 2
    assert study("smoke", scales={"smoke": {"train.context": 32}}).train.context == 32


@pytest.mark.parametrize("kind", ["flops", "tokens", "seconds"])
def test_a_study_with_a_budget_of_one_size_has_its_own_scales_alone(kind: str) -> None:
    written = {"budget": {kind: 1e6}, "base": {"preset": "small"}}
    found = study(**written)
    assert found.shipped is None and not found.brought
    assert found.arms[0].model.d_model == 128, "the preset's own size"
    with pytest.raises(
        StudyError, match=r"unknown scale 'smoke'.*Shipped scales need a study without a top-level budget"
    ):
        study("smoke", **written)


def test_a_budget_in_one_of_its_scales_leaves_the_others_to_the_tool() -> None:
    own = {"scales": {"cpu": {"budget": {"flops": 1e10}}}}
    assert study(**own).budget.flops == 1e10
    assert study("smoke", **own).budget.tokens == shipped_scales()["smoke"].layer.nested["budget"]["tokens"]


@pytest.mark.parametrize("base", [{"preset": "gpt2"}, {"preset": "gpt2", "n_layers": 3}])
@pytest.mark.parametrize("scale", ["smoke", "cpu"])
def test_a_base_with_a_preset_of_its_own_keeps_its_size(base: Mapping[str, Any], scale: str) -> None:
    found = study(scale, base=base, baseline="gpt2")
    assert found.arms[0].model.d_model == 1600
    assert found.arms[0].model.n_layers == base.get("n_layers", 48)


def test_another_source_of_data_keeps_what_it_understands_of_the_scales() -> None:
    assert study(data={"source": "files", "paths": ["a.txt"]}).data.tokenizer.vocab_size == 1024
    for scale in ("smoke", "cpu"):
        found = study(scale, data={"source": "mqar"}, evals={"diagnostics": {"examples": 8}})
        assert found.data.source == "mqar" and "tasks" not in found.evals.model_fields_set
    assert study("smoke", data={"source": "files", "paths": ["a.txt"]}).data.tokenizer.kind == "bytes"


def test_a_limit_of_documents_is_no_limit_of_bytes() -> None:
    """Scales for GPUs read so many documents of a dataset, and scales for CPUs so many bytes of prose."""
    files, dataset = {"source": "files", "paths": ["a.txt"]}, {"source": "hf", "path": "a/b"}
    assert study("gpu-minutes", data=files).data.limit is None
    assert load_study(SHORTEST, "gpu-minutes", ["data={source: files, paths: [a.txt]}"]).data.limit is None
    assert study("cpu", data=files).data.limit == 8_000_000
    assert study("cpu", data=dataset).data.limit == HfSource(path="a/b").limit
    assert study("gpu-minutes", data=dataset).data.limit == 150_000


def test_another_dataset_has_no_configuration_of_the_scale_s() -> None:
    for found in (
        study("gpu-minutes", data={"source": "hf", "path": "a/b"}),
        load_study(SHORTEST, "gpu-minutes", ["data={source: hf, path: a/b}"]),
        load_study(SHORTEST, "gpu-minutes", ["data.path=a/b"]),
    ):
        assert (found.data.path, found.data.name, found.data.limit) == ("a/b", None, 150_000)
    assert study("gpu-minutes").data.name == "sample-10BT"
    assert load_study(SHORTEST, "gpu-minutes", ["data.limit=7"]).data.name == "sample-10BT"


def test_what_a_study_does_without_no_scale_brings_back() -> None:
    for scale in ("smoke", "cpu"):
        found = study(scale, evals=None, measure=None)
        assert found.evals is None and found.measure is None


def test_tokens_per_parameter_are_the_baselines_and_flops_are_the_same_in_all_arms(text: Mapping[str, Any]) -> None:
    """The budget worked out by hand, from declared costs."""
    wide = {"wide": {"block.ffn": {"kind": "swiglu", "d_ff": 512}}}
    plan = make_plan(load_study({**SHORTEST, "arms": wide, "data": text, "scales": {"cpu": {"evals": None}}}, "cpu"))
    base, other = plan.arms
    costs = cost(base.spec, base.train.context)
    flops = 20 * (costs.params - costs.params_embedding) * costs.flops_per_token
    for arm in (base, other):
        assert arm.flops == pytest.approx(flops, rel=0.005)
    assert base.length.tokens_per_parameter == pytest.approx(20, rel=0.005)
    assert plan.study.budget.flops == pytest.approx(flops)
    assert other.length.tokens_per_parameter < 10


def test_a_share_of_tokens_per_parameter_is_a_share_of_the_flops(text: Mapping[str, Any]) -> None:
    ladder = {"half": 0.5, "full": {}}
    found = load_study({**SHORTEST, "data": text, "scales": {"cpu": {"evals": None}}, "ladder": ladder}, "cpu")
    half, full = make_plan(found.smaller[0]), make_plan(found)
    assert half.arms[0].flops == pytest.approx(full.arms[0].flops / 2, rel=0.005)


def test_two_amounts_are_one_too_many() -> None:
    with pytest.raises(
        StudyError, match="needs exactly one of flops, tokens, seconds and tokens_per_parameter, but has"
    ):
        study(scales={"cpu": {"budget": {"flops": 1e9, "tokens_per_parameter": 20}}})


@pytest.fixture
def text(tmp_path: Path) -> Mapping[str, Any]:
    """A corpus that is quick to identify."""
    for number in range(8):
        (tmp_path / f"{number}.txt").write_text(f"{number} " * 4000, encoding="utf-8")
    return {"source": "files", "paths": [str(tmp_path / "*.txt")], "tokenizer": "bytes"}
