"""The study that confirms what a screen found, and a screen from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

import reports
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.wings.designs.promotion import promote
from ablate.wings.promoting import write_study
from store import Store
from store.errors import ArgumentError
from tests.ablate.toy import toy_study
from tests.ablate.wings.designs.test_design import STUDY
from tests.ablate.wings.designs.test_effects import STRENGTHS, losses, plan, study_of


def test_survivors_are_arms_with_seeds_that_the_screen_did_not_use(tmp_path: Path) -> None:
    """gated lowers the loss, nope raises it; seeds 0 to 2 are spent."""
    (tmp_path / "screen.yaml").write_text(STUDY)
    of = plan()
    summary = reports.summarise(study_of(of, losses(of)).write(tmp_path / "store"))
    screened = load_study(tmp_path / "screen.yaml", "cpu")
    path = promote(screened, summary, tmp_path / "confirm.yaml")
    assert path is not None
    study = load_study(path, "cpu")
    assert [arm.name for arm in study.arms] == ["base", "gated"]
    assert study.seeds == (3, 4, 5, 6, 7)
    assert not study.factors
    assert study.tune is not None
    by_name = {arm.name: arm.model for arm in screened.arms}
    assert study.arms[0].model == by_name["base"]
    assert study.arms[1].model.block.ffn == by_name["gated+gqa"].block.ffn
    assert study.arms[1].model.edit({"block.mixer.kv_heads": 1}) == by_name["gated+gqa"]


def test_several_survivors_are_also_tried_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "screen.yaml").write_text(STUDY)
    of = plan()
    monkeypatch.setitem(STRENGTHS, "nope", -0.05)
    summary = reports.summarise(study_of(of, losses(of)).write(tmp_path / "store"))
    path = promote(load_study(tmp_path / "screen.yaml", "cpu"), summary, tmp_path / "confirm.yaml")
    assert path is not None
    arms = {arm.name: arm.model.block for arm in load_study(path, "cpu").arms}
    assert list(arms) == ["base", "gated", "nope", "together"]
    assert (arms["together"].ffn, arms["together"].mixer.position) == (arms["gated"].ffn, arms["nope"].mixer.position)


SCREEN = """question: Does it matter?
base: {preset: small, d_model: 16, n_layers: 1, block.mixer.heads: 2}
factors:
  gqa: {block.mixer.kv_heads: 1}
  double: {block.norm_placement: double}
design: {factorial: full, interactions: [gqa × double]}
seeds: 2
tune: off
data: {source: files, paths: [text.txt], tokenizer: bytes, validation_tokens: 1024}
train: {context: 32, batch: 4, lr: 1e-2}
budget: {tokens: 1e3}
measure: null
pilot: false
evals: null
scales: {smoke: {}}
"""


def test_a_screen_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toy_study(tmp_path, "{}")
    (tmp_path / "screen.yaml").write_text(SCREEN)
    study, confirm = str(tmp_path / "screen.yaml"), tmp_path / "confirm.yaml"
    where = ["--scale", "smoke", "--store", str(tmp_path / "runs"), "--engine", "inprocess"]
    confirm.write_text("mine: 1\n")
    assert main(["run", study, *where, "--promote", str(confirm)]) == 2
    assert "confirm.yaml was edited, or is not from --promote: move or delete it first" in capsys.readouterr().err
    assert (confirm.read_text(), (tmp_path / "runs").exists()) == ("mine: 1\n", False)
    confirm.unlink()
    assert main(["run", study, *where, "--promote", study]) == 2
    assert "is the study's own file: name another" in capsys.readouterr().err
    assert main(["run", study, *where, "--promote", str(confirm), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["promoted"] is None, "smoke has no verdicts"
    assert not confirm.exists()
    assert {effect["verdict"] for effect in document["effects"]} == {"no verdict"}
    assert [effect["factors"] for effect in document["effects"]] == [["gqa"], ["double"], ["gqa", "double"]]
    losses = {arm["name"]: arm["loss"] for arm in document["arms"]}
    gqa = (losses["gqa"] + losses["gqa+double"] - losses["base"] - losses["double"]) / 2
    assert document["effects"][0]["difference"] == pytest.approx(gqa)
    both = (losses["base"] + losses["gqa+double"] - losses["gqa"] - losses["double"]) / 2
    assert document["effects"][2]["difference"] == pytest.approx(both)


def test_a_written_study_is_replaced_until_somebody_edits_it(tmp_path: Path) -> None:
    path = tmp_path / "best.yaml"
    for seeds in (3, 4):
        write_study(path, "The best.", {"question": "Why?", "arms": {"é": {"n_layers": 2}}, "seeds": seeds})
        study = YAML(typ="safe").load(path)
        assert study == {"question": "Why?", "arms": {"é": {"n_layers": 2}}, "seeds": seeds}
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# The best.\n# The next --promote replaces this file unless it was edited (")
    edits = [
        text.replace("seeds: 4", "seeds: 8"),
        text.replace("The best", "My best"),
        text + "# a remark\n",
        text.replace("# The next", "# So the next"),
        "",
        "question: another\n",
    ]
    for edited in edits:
        path.write_text(edited, encoding="utf-8")
        with pytest.raises(ArgumentError, match=r"best.yaml was edited, or is not from --promote"):
            write_study(path, "The best.", {"question": "Why?"})
        assert path.read_text(encoding="utf-8") == edited


def test_a_search_keeps_an_edited_study_and_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study, store = toy_study(tmp_path, "{}"), tmp_path / "runs"
    search = "search: {space: {block.mixer.kv_heads: [1, 2]}, trials: 2}\n"
    study.write_text(study.read_text() + search)
    command = ["search", str(study), "--scale", "cpu", "--store", str(store), "--engine", "inprocess", "--promote", "1"]
    promoted = tmp_path / f"{study.stem}_promoted.yaml"
    promoted.write_text("mine: 1\n")
    assert main([*command, "--json"]) == 2
    assert "_promoted.yaml was edited, or is not from --promote" in capsys.readouterr().err
    assert promoted.read_text() == "mine: 1\n" and not Store(store).runs()
    promoted.unlink()
    for _ in range(2):  # an unedited one is replaced
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["promoted"] == str(promoted)
    assert load_study(promoted, "cpu").seeds == (0, 1, 2)


@pytest.mark.slow
def test_rates_alone_are_not_promoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The study would have no arms."""
    study, store = toy_study(tmp_path, "{}"), tmp_path / "runs"
    study.write_text(study.read_text() + "search: {space: {train.lr: [1e-3, 1e-2]}, trials: 2}\n")
    command = ["search", str(study), "--scale", "cpu", "--store", str(store), "--engine", "inprocess", "--promote", "1"]
    assert main(command) != 0
    assert "nothing is promoted: no scored trial differs from the base" in capsys.readouterr().err
    assert not (tmp_path / f"{study.stem}_promoted.yaml").exists()
