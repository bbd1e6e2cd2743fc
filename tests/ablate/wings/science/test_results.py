"""Recorded results: whole, small, readable, and read back as they were written."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

import ablate
import reports
from ablate.cli import main
from ablate.wings.catalogue.parts import own_parts, parts_of
from ablate.wings.compare.losses import ArmLosses, judge, noise_of
from ablate.wings.results import recorded
from ablate.wings.science import result_files
from ablate.wings.science.atlas import study_files
from store import Store
from store.errors import ReportError
from tests.reports.factory import Arm, StudyOf, changed
from tests.test_imports import ROOT

SHIPPED = ROOT / "studies" / "results"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    arms = (
        Arm("pre", [2.31, 2.30, 2.29, 2.32, 2.30], steps=600),
        Arm("post", [2.41, 2.42, 2.38, 2.43, 2.41], steps=600, edits={"block.norm_placement": "post"}, speed=3600.0),
        Arm("wild", [2.5, 2.5, 2.5, 2.5, 2.5], steps=600, diverged=(0, 1, 2, 3, 4)),
    )
    return StudyOf(arms, text=True).write(tmp_path / "runs")


def test_a_result_holds_what_the_report_says(study: Path, tmp_path: Path) -> None:
    path = ablate.record_result(study, tmp_path / "results", notes=["Two cores."])
    assert path.name == "norm_placement@cpu.json"
    found, summary = recorded.read(path), reports.summarise(study)
    assert found.answer == reports.headline(summary)
    assert found.notes == ("Two cores.",)
    assert found.command == "ablate run norm_placement --scale cpu"
    pre, post, wild = found.arms
    assert list(post.seeds.values()) == [2.41, 2.42, 2.38, 2.43, 2.41]
    assert pre.difference is None and pre.verdict == "baseline"
    assert post.difference is not None and post.verdict == "worse"
    mean = np.mean(np.subtract(list(post.seeds.values()), list(pre.seeds.values())))
    assert post.difference.mean == pytest.approx(mean, rel=1e-4)
    assert post.edits == {"block.norm_placement": "post"}
    assert post.costs["training-time"].ratio == pytest.approx(4000 / 3600, rel=1e-3)
    assert wild.diverged == (0, 1, 2, 3, 4) and wild.loss is None and wild.seeds == {}
    assert (post.curve.steps[0], post.curve.steps[-1]) == (0, 600)
    assert found.setting.seeds == 5 and found.setting.parameters == (750_000, 750_000)


def test_a_recorded_command_names_plugins_from_where_the_study_is_named(study: Path, tmp_path: Path) -> None:
    """Whoever repeats it has neither our folders nor our home."""
    store = Store(study.parents[1])
    document = store.study("norm_placement", "cpu").read()
    assert document is not None
    files_given = (str(tmp_path / "mine" / "fox.py"), "/home/me/delta.py")
    place = {"path": str(tmp_path / "studies" / "norm_placement.yaml"), "plugin_files": files_given}
    store.study("norm_placement", "cpu").write(document.model_copy(update=place))
    found = recorded.read(ablate.record_result(study, tmp_path / "results"))
    assert found.command == (
        "ablate run studies/norm_placement.yaml --scale cpu --plugin mine/fox.py --plugin delta.py"
    )


def test_what_is_read_is_written_again_to_the_byte(study: Path, tmp_path: Path) -> None:
    path = ablate.record_result(study, tmp_path)
    assert result_files.as_text(recorded.read(path)) == path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["format"] == 1


def test_notes_stay_until_others_are_given(study: Path, tmp_path: Path) -> None:
    ablate.record_result(study, tmp_path, notes=["First."])
    assert recorded.read(ablate.record_result(study, tmp_path)).notes == ("First.",)
    assert recorded.read(ablate.record_result(study, tmp_path, notes=["Second."])).notes == ("Second.",)


def test_a_large_result_gives_up_points_of_its_curves_and_no_more(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arms = [Arm(f"arm_with_a_long_name_{n}", (2.3 + 0.01 * rng.standard_normal(3)).tolist()) for n in range(40)]
    study = StudyOf(arms, measured=False).write(tmp_path / "runs")
    path = ablate.record_result(study, tmp_path)
    assert path.stat().st_size <= result_files.MOST_BYTES
    many = recorded.read(path)
    assert len(many.arms) == 40 and all(len(arm.seeds) == 3 for arm in many.arms)
    with pytest.raises(ReportError, match=r"more than 60,000 bytes: 400 arms are too many"):
        result_files.write(many.model_copy(update={"arms": many.arms * 10}), tmp_path)


def test_curves_are_thinned_to_their_ends(study: Path, tmp_path: Path) -> None:
    found = recorded.read(ablate.record_result(study, tmp_path))
    thin = result_files.with_curves(found, 3).arms[0].curve
    assert len(thin.steps) == len(thin.loss) <= 3
    assert (thin.steps[-1], thin.loss[-1]) == (found.arms[0].curve.steps[-1], found.arms[0].curve.loss[-1])


def test_a_ladder_has_its_other_rungs(tmp_path: Path) -> None:
    small = (Arm("pre", [2.6, 2.7, 2.65]), Arm("post", [2.8, 2.88, 2.86]))
    large = (Arm("pre", [2.3, 2.31, 2.29]), Arm("post", [2.4, 2.42, 2.38]))
    study = StudyOf(large, smaller={"tiny": ("size", small)}, measured=False).write(tmp_path / "runs")
    (rung,) = recorded.read(ablate.record_result(study, tmp_path)).rungs
    assert (rung.name, rung.axis) == ("tiny", "size")
    assert rung.differences["post"].mean == pytest.approx(np.mean([0.2, 0.18, 0.21]), rel=1e-4)


def test_nothing_is_recorded_of_what_has_no_result(study: Path, tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="its study has no file to record it beside: name a directory"):
        ablate.record_result(study)
    with changed(study / "study.json") as document:
        document["scale"] = "smoke"
    with pytest.raises(ReportError, match="a smoke run only shows that the study works"):
        ablate.record_result(study, tmp_path)
    empty = StudyOf([Arm("pre", [None]), Arm("post", [None])], measured=False).write(tmp_path / "empty")
    with pytest.raises(ReportError, match="no run has ended"):
        ablate.record_result(empty, tmp_path)
    with pytest.raises(ablate.AblateError, match="is a store: only a study's result can be recorded"):
        ablate.record_result(study.parent.parent, tmp_path)


def test_a_damaged_file_is_one_clear_message(study: Path, tmp_path: Path) -> None:
    path = ablate.record_result(study, tmp_path)
    whole = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(whole | {"arms": "none"}), encoding="utf-8")
    with pytest.raises(
        ReportError, match=r"norm_placement@cpu.json: arms: expected a list, not 'none': write it again"
    ):
        recorded.read(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ReportError, match=r"norm_placement@cpu.json: "):
        recorded.read(path)
    with pytest.raises(ReportError, match="cannot be read: No such file"):
        recorded.read(tmp_path / "absent.json")


def test_the_command_records_beside_the_study(study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with changed(study / "study.json") as document:
        document["path"] = str(tmp_path / "mine" / "norm_placement.yaml")
    assert main(["report", str(study), "--record", "--note", "By hand."]) == 0
    written = tmp_path / "mine" / "results" / "norm_placement@cpu.json"
    assert capsys.readouterr().out.split() == [str(study / "report.html"), str(written)]
    assert recorded.read(written).command == "ablate run mine/norm_placement.yaml --scale cpu"
    assert main(["report", str(study), "--note", "Alone."]) == 2
    assert "--note needs --record" in capsys.readouterr().err
    assert main(["report", str(study), "--record", str(tmp_path / "other"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["recorded"] == str(tmp_path / "other" / written.name)


def test_parts_are_named_by_setting_and_kind() -> None:
    written = parts_of({"block.norm_placement": "post", "block.mixer": {"kind": "mla"}, "block.ffn.kind": "geglu"})
    assert {"norm_placement=post", "mixer=mla", "ffn=geglu"} <= written
    resolved = parts_of({"block": {"norm_placement": {"kind": "post"}, "mixer": {"kind": "mla"}, "canon": {"at": "a"}}})
    assert {"norm_placement=post", "mixer=mla", "canon"} <= resolved
    assert parts_of({"block.mixer.position": {"kind": "rope", "scaling": {"kind": "yarn"}}}) == {
        "position=rope",
        "scaling=yarn",
    }
    own = own_parts({"a": {"ffn": {"kind": "relu"}, "norm": "x"}, "b": {"ffn": {"kind": "glu"}, "norm": "x"}, "c": {}})
    assert own == {"a": ("ffn=relu",), "b": ("ffn=glu",), "c": ()}


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.json")), ids=lambda path: path.name)
def test_shipped_results_are_whole_and_small(path: Path) -> None:
    found = recorded.read(path)
    assert path.name == f"{found.name}.json"
    file = study_files()[found.study]
    assert file.is_file()
    assert path.stat().st_size <= result_files.MOST_BYTES
    assert result_files.as_text(found) == path.read_text(encoding="utf-8")
    assert found.commit and found.machine and found.command.startswith(f"ablate run {file.relative_to(ROOT)}")
    assert not Store(ROOT / "studies").exists


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.json")), ids=lambda path: path.stem)
def test_shipped_verdicts_hold_when_their_own_losses_are_judged_again(path: Path) -> None:
    """Rules change after a result is recorded. Judged again, contrasts share a whole 5 %, not a first look's share of
    it: a difference may be found that was not then, and none that was may be lost."""
    found = recorded.read(path)
    arms = [
        ArmLosses(
            arm.name,
            {**arm.seeds, **dict.fromkeys((*arm.stalled, *arm.diverged), math.inf)},
            {each.rate: [math.inf if loss is None else loss for loss in each.losses] for each in arm.tuning},
            arm.rate,
        )
        for arm in found.arms
        if arm.seeds
    ]
    again = judge(arms, [(arm.name, found.baseline) for arm in arms if arm.name != found.baseline], noise_of(arms))
    verdicts = {contrast.arm: contrast.verdict for contrast in again}
    named = {arm.name: arm.verdict for arm in found.arms if arm.verdict in ("better", "worse")}
    assert {name: verdicts[name] for name in named} == named
