"""Studies with a factorial design: which runs they plan, and what is refused, at its place."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from ablate.study.reading import load_study
from ablate.study.study import Study, StudyError
from ablate.wings.designs.asked import design_lines, screen_of
from tests.ablate.test_study_errors import place_of

DESIGN = "design: {factorial: 8, interactions: [gated × gqa]}\n"
STUDY = """question: Which of these choices matter?
base: {preset: small, d_model: 32, n_layers: 2, block.mixer.heads: 2, block.ffn: {kind: relu, d_ff: 4x}}
factors:
  gated: {block.ffn: {kind: swiglu, d_ff: 8/3x}}
  double: {block.norm_placement: double}
  gqa: {block.mixer.kv_heads: 1}
  nope: {block.mixer.position: nope}
design: {factorial: 8, interactions: [gated × gqa]}
seeds: 2
tune: off
budget: {tokens: 2e4}
"""


def read(folder: Path, text: str, name: str = "screen.yaml") -> Study:
    (folder / name).write_text(text)
    return load_study(folder / name, "cpu")


def test_a_full_design_has_every_combination_as_if_written_by_hand(tmp_path: Path) -> None:
    study = read(tmp_path, STUDY.replace("factorial: 8", "factorial: full"))
    edits = {name: f"  {name}: {rest}" for name, _, rest in (line.strip().partition(": ") for line in FACTORS)}
    arms = {
        "+".join(names): ", ".join(edits[name].partition("{")[2][:-1] for name in names)
        for levels in product((0, 1), repeat=4)
        if (names := [name for name, level in zip(edits, levels, strict=True) if level])
    }
    by_hand = STUDY.partition("factors:")[0] + "arms:\n" + "".join(f"  {n}: {{{e}}}\n" for n, e in arms.items())
    others = read(tmp_path, by_hand + "budget: {tokens: 2e4}\n", "by_hand.yaml")
    assert study.arms[0].name == others.arms[0].name == "base"
    assert {arm.name: arm.identity for arm in study.arms} == {arm.name: arm.identity for arm in others.arms}


FACTORS = STUDY.partition("factors:\n")[2].partition("design:")[0].splitlines()


def test_half_of_the_combinations_with_the_base_first(tmp_path: Path) -> None:
    study = read(tmp_path, STUDY)
    names = [arm.name for arm in study.arms]
    assert names[0] == "base"
    assert len(set(names)) == 8
    chosen = [set(name.split("+")) - {"base"} for name in names]
    for factor in ("gated", "double", "gqa", "nope"):
        assert sum(factor in each for each in chosen) == 4
    assert all(len(each) % 2 == 0 for each in chosen), "I = ABCD holds of runs with an even number of factors"


def test_the_plan_says_what_cannot_be_told_apart(tmp_path: Path) -> None:
    screen = screen_of(read(tmp_path, STUDY))
    assert screen is not None
    lines = list(design_lines(screen, tuned=False))
    assert lines[0] == (
        "Design. A fraction of resolution IV, 8 of 16 combinations of 4 factors: main effects are clear of "
        "two-factor interactions, which are aliased with each other."
    )
    assert lines[1] == "Effects, judged together: gated, double, gqa, nope, gated × gqa."
    assert "gated×gqa = double×nope" in lines[2]


ERRORS = {
    "too few runs": (
        STUDY.replace("factorial: 8", "factorial: @4"),
        "design.factorial: no two-level design of 4 factors has 4 runs: choose 8, 16",
    ),
    "no power of two": (STUDY.replace("factorial: 8", "factorial: @12"), "choose 8, 16"),
    "aliased": (
        STUDY.replace("factorial: 8", "factorial: @8").replace("[gated × gqa]", "[gated × gqa, double x nope]"),
        "design.factorial: gated×gqa is aliased with double×nope: use more runs or fewer interactions",
    ),
    "an unknown factor": (
        STUDY.replace("[gated × gqa]", "[@gatd × gqa]"),
        "design.interactions.0: 'gatd × gqa': unknown factor 'gatd' (did you mean 'gated'?)",
    ),
    "with itself": (STUDY.replace("[gated × gqa]", "[@gqa × gqa]"), "'gqa × gqa': needs two different factors"),
    "twice": (STUDY.replace("[gated × gqa]", "[gated × gqa, @gqa × gated]"), "'gqa × gated' is given twice"),
    "one factor": (STUDY.partition("  double")[0] + "design: {factorial: @full}\nbudget: {tokens: 2e4}\n", "2 factors"),
    "a clash": (
        STUDY.replace("{block.mixer.position: nope}", "{@block.ffn.d_ff: 2x}"),
        "factors.nope.block.ffn.d_ff: factor gated also edits block.ffn: a run cannot have both",
    ),
    "nothing": (
        STUDY.replace("nope: {block.mixer.position: nope}", "@nope: {block.mixer.position: rope}"),
        "factors.nope: is identical to the base",
    ),
    "from another arm": (
        STUDY.replace("{block.mixer.position: nope}", "{start: {@arm: base}}"),
        "not allowed in a design: runs start from initial values",
    ),
    "what the zoo refuses together": (
        STUDY.replace("nope: {block.mixer.position: nope}", "wide: {block.mixer.heads: 1}")
        .replace("gqa: {block.mixer.kv_heads: 1}", "gqa: {block.mixer.kv_heads: @2}")
        .replace("heads: 2, block.ffn", "heads: 4, block.ffn"),
        "(in run gqa+wide and 1 more: leave one of its factors out, or combine two in one factor)",
    ),
    "arms beside": (STUDY + "@arms: {post: {block.norm_placement: post}}\n", "arms: cannot be combined with a design"),
    "no design": (STUDY.replace("factors:", "@factors:").replace(DESIGN, ""), "factors: need a design"),
    "tuned without spare contrasts": (
        STUDY.replace("factorial: 8", "factorial: @8").replace("tune: off", "tune: auto"),
        "design.factorial: the noise of tuning is estimated from contrasts without an effect, of which the design "
        "has 2 and needs 4: use more runs, or set `tune: off`",
    ),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_cannot_be_designed_is_one_line_where_it_is_written(name: str, tmp_path: Path) -> None:
    text, reason = ERRORS[name]
    text, place = place_of(text)
    with pytest.raises(StudyError) as error:
        read(tmp_path, text)
    lines = str(error.value).splitlines()
    assert any(line.startswith(f"{tmp_path / 'screen.yaml'}:{place}: ") and reason in line for line in lines), lines


def test_a_scale_may_edit_a_factor(tmp_path: Path) -> None:
    scaled = STUDY + "scales:\n  smoke: {factors.gated.block.ffn.d_ff: 2x, design.factorial: 16}\n"
    (tmp_path / "screen.yaml").write_text(scaled)
    study = load_study(tmp_path / "screen.yaml", "smoke")
    gated = next(arm for arm in study.arms if arm.name == "gated")
    assert len(study.arms) == 16
    assert gated.model.block.ffn.d_ff == "2x"
