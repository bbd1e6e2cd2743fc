"""One study in several stores: a summary of differences, of stores that are independent and of the same arms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from scipy import stats

import ablate
from ablate.cli import main
from store import Store, StudyFolder
from tests.moderated import moderated
from tests.reports.factory import Arm, StudyOf

BASE = [2.50, 2.51, 2.49, 2.52, 2.50]
NOISE = [0.004, -0.003, 0.002, -0.004, 0.001]


def store_of(folder: Path, name: str, gain: float) -> Path:
    """A store whose arm `a` gains so much, and `b` nothing; its runs are its own."""
    arms = [
        Arm("base", BASE),
        Arm("a", [loss - gain + noise for loss, noise in zip(BASE, NOISE, strict=True)]),
        Arm("b", [loss + noise for loss, noise in zip(BASE, reversed(NOISE), strict=True)]),
    ]
    root = folder / name
    path = StudyOf(arms, name="question").write(root)
    own = StudyFolder(path).read()
    assert own is not None
    store, digests = Store(root), {run.digest: f"{run.digest}{name}" for arm in own.arms for run in arm.runs}
    for old, new in digests.items():
        run, result = store.read_run(old), store.read_result(old)
        assert run is not None and result is not None
        store.write_run(run.model_copy(update={"digest": new}))
        store.write_result(result.model_copy(update={"digest": new}))
    renamed = tuple(
        arm.model_copy(
            update={"runs": tuple(run.model_copy(update={"digest": digests[run.digest]}) for run in arm.runs)}
        )
        for arm in own.arms
    )
    StudyFolder(path).write(own.model_copy(update={"arms": renamed}))
    return root


@pytest.fixture
def stores(tmp_path: Path) -> list[Path]:
    return [store_of(tmp_path, name, gain) for name, gain in (("x", 0.10), ("y", 0.12), ("z", 0.50))]


def test_a_summary_over_stores(stores: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = ablate.compare_stores("question", stores)
    a, b = found.differences.rows(named=True)
    assert (a["arm"], a["against"], a["stores"], b["arm"]) == ("a", "base", 3, "b")
    assert a["difference"] == pytest.approx(-0.24, abs=0.01)  # nearly a plain mean: noise is small
    assert a["i2"] > 0.99 and a["q_p"] < 1e-6 and 0.1 < a["tau"] < 0.3
    assert a["low"] < -0.5 and a["high"] > 0  # three stores of which one is another world
    assert b["tau"] == 0.0 and b["q_p"] > 0.9 and b["low"] < 0 < b["high"]
    assert main(["compare", "question", "--stores", *map(str, stores), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["differences"] == found.differences.to_dicts()
    assert main(["compare", "question", "--stores", *map(str, stores)]) == 0
    assert "I²" in capsys.readouterr().out


def test_the_error_of_a_store_is_that_of_its_interval(stores: list[Path]) -> None:
    """That of a normal distribution whose 95 % interval is as wide as the rule's, written out."""
    found = ablate.compare_stores("question", stores[:2])
    row = found.by_store.row(0, named=True)
    losses = {"base": BASE, "a": [x - 0.1 + e for x, e in zip(BASE, NOISE, strict=True)]}
    losses["b"] = [x + e for x, e in zip(BASE, reversed(NOISE), strict=True)]
    expected = moderated(losses, "a", "base")
    low, high = expected.interval(0.05)
    assert row["difference"] == pytest.approx(expected.mean)
    assert row["error"] == pytest.approx((high - low) / 2 / stats.norm.isf(0.025))


def test_stores_that_share_runs_are_to_be_merged(tmp_path: Path, stores: list[Path]) -> None:
    with pytest.raises(ablate.ArgumentError, match="15 runs in common, which would count twice"):
        ablate.compare_stores("question", [stores[0], store_of(tmp_path / "copy", "x", 0.1)])


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["x"], "name two or more stores"),
        (["x", "x"], "a store is named twice"),
        (["x", "nowhere"], "there is no such study in"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    names: list[str], says: str, stores: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "question", "--stores", *(str(stores[0].parent / name) for name in names)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


def test_arms_of_one_name_are_the_same(stores: list[Path]) -> None:
    folder = Store(stores[1]).study("question", "cpu")
    study = folder.read()
    assert study is not None
    base, a, b = study.arms
    rate = a.model_copy(update={"edits": {**a.edits, "train.lr": 0.5}})
    folder.write(study.model_copy(update={"arms": (base, rate, b)}))
    assert ablate.compare_stores("question", stores[:2]).differences.height == 2
    other = a.model_copy(update={"edits": {"n_layers": 9}})
    folder.write(study.model_copy(update={"arms": (base, other, b)}))
    with pytest.raises(ablate.ArgumentError, match="arm a differs between"):
        ablate.compare_stores("question", stores[:2])


def test_options_of_files_have_no_meaning_with_stores(stores: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "question", "--stores", *map(str, stores), "--margin", "0.1"]) == 2
    assert "--margin cannot be combined with --stores" in capsys.readouterr().err
    assert main(["compare", "losses.csv", "--scale", "cpu"]) == 2
    assert "--scale needs --stores" in capsys.readouterr().err
