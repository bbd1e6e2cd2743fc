"""Axes of a search in every spelling, and the legal settings nearest to those that are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ablate.cli import main
from ablate.study.complaints import StudyError
from ablate.wings.search.asking import repaired
from ablate.wings.search.history import spellings
from ablate.wings.search.search_space import Params, SearchSpace
from tests.ablate.known import NUMBERS, study_of
from tests.ablate.toy import toy_study

RNG = np.random.default_rng(0)


def space_of(folder: Path, space: str, *sets: str) -> SearchSpace:
    study = study_of(folder, space, *sets)
    assert study.search is not None
    return SearchSpace(study.builder, study.search.space)


def drawn(space: SearchSpace, count: int = 30) -> list[Params]:
    rng = np.random.default_rng(0)
    return [space.random(rng) for _ in range(count)]


def test_whole_numbers_may_be_drawn_on_a_logarithmic_scale(tmp_path: Path) -> None:
    values = [params["block.ffn.d_ff"] for params in drawn(space_of(tmp_path, "{block.ffn.d_ff: {log: [16, 1024]}}"))]
    assert all(isinstance(value, int) and 16 <= value <= 1024 for value in values)
    assert sum(value < 128 for value in values) == pytest.approx(len(values) / 2, abs=8)


@pytest.mark.parametrize("axis", ["[0.5x, 2x]", "{range: [0.5x, 2x], step: 16}"])
def test_sizes_may_be_multiples_of_the_base(axis: str, tmp_path: Path) -> None:
    """The base is 64 wide; a list of two ratios of an FFN's width stays a choice."""
    space = space_of(tmp_path, f"{{d_model: {axis}, block.ffn.d_ff: [2x, 4x]}}")
    widths = {params["d_model"] for params in drawn(space)}
    assert min(widths) >= 32 and max(widths) <= 128 and all(isinstance(width, int) for width in widths)
    assert "step" not in axis or widths <= {32, 48, 64, 80, 96, 112, 128}
    assert {params["block.ffn.d_ff"] for params in drawn(space)} == {"2x", "4x"}


@pytest.mark.parametrize(
    "axes", ["{train.lora.rank: [2, 4]}", "{train.lora: [null, {rank: 2}]}", "{train.lora.alpha: {range: [1, 2]}}"]
)
def test_a_search_on_an_untrained_base_draws_no_adapters(axes: str, tmp_path: Path) -> None:
    with pytest.raises(
        StudyError, match=r"search\.space\.train\.lora.*has no start: set start.arm or start.checkpoint"
    ):
        study_of(tmp_path, axes)


def test_one_layer_may_have_its_own_kind(tmp_path: Path) -> None:
    local = "base.blocks={local: {mixer.window: 8}}"
    axes = "{pattern.1: [block, local], blocks.local.mixer.window: [4, 8], n_layers: {range: [1, 3]}}"
    space = space_of(tmp_path, axes, local)
    for params in drawn(space):
        layers, is_local = params["n_layers"], params.get("pattern.1") == "local"
        assert ("pattern.1" in params) == (layers > 1)
        assert ("blocks.local.mixer.window" in params) == is_local
        names = space.arm("", params).model.layer_names
        assert names == tuple("local" if is_local and i == 1 else "block" for i in range(layers))


def test_a_part_may_be_chosen_by_its_kind(tmp_path: Path) -> None:
    """Whatever comes first in the file."""
    space = space_of(tmp_path, "{block.ffn.experts: {range: [2, 8]}, block.ffn.kind: [swiglu, topk_moe]}")
    for params in drawn(space):
        assert ("block.ffn.experts" in params) == (params["block.ffn.kind"] == "topk_moe")


def test_settings_are_recognised_in_a_model(tmp_path: Path) -> None:
    """What a run of the store was trained with, as a trial of this space."""
    axes = NUMBERS.replace("}}", "}, block.ffn: {choice: [swiglu, gelu]}, block.mixer.kv_heads: [1, 2, 4]}")
    space = space_of(tmp_path, axes)
    for params in drawn(space):
        arm = space.arm("", params)
        found = [space.settings(each) for each in spellings(space, arm.model, arm.train)]
        assert space.settings(params) in found


def test_a_proposal_moves_to_the_nearest_legal_settings(tmp_path: Path) -> None:
    """Under an equality of sizes hardly any random settings are legal; what has no part in it stays."""
    space = space_of(tmp_path, NUMBERS.replace("}}", "}, n_layers: {range: [1, 6]}}"))

    def distances(params: Params) -> dict[str, float]:
        far = abs(params["block.ffn.d_ff"] * params["n_layers"] - 12) / 12
        return {"size": far} if far > 0.02 else {}

    proposals = drawn(space)
    assert sum(not distances(params) for params in proposals) < 5
    for params in proposals:
        legal = repaired(space, params, distances)
        assert legal is not None and not distances(legal)
        assert all(legal[path] == params[path] for path in ("train.lr", "train.warmup"))


def test_settings_that_cannot_become_legal_are_given_up(tmp_path: Path) -> None:
    space = space_of(tmp_path, "{n_layers: {range: [1, 4]}}")
    assert repaired(space, {"n_layers": 2}, lambda _: {"never": 1.0}) is None


def test_a_plan_of_a_search_says_nothing_of_arms_that_there_are_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = toy_study(tmp_path, "{}")
    study.write_text(
        f"{study.read_text()}seeds: auto\nsearch: {{space: {{block.mixer.kv_heads: [1, 2]}}, trials: 2}}\n"
    )
    command = ["plan", str(study), "--scale", "cpu", "--store", str(tmp_path / "runs")]
    assert main(command) == 0
    said = capsys.readouterr().out
    assert "Search: up to 2 trials" in said and "no arms: `ablate search` searches" in said
    assert "seeds: from" not in said and "In brackets" not in said
