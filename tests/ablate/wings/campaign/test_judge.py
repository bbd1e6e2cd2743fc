"""`ablate judge`: real proposals for a toy base, from the command line and from Python."""

from __future__ import annotations

import errno
import json
import os
import shlex
import time
from pathlib import Path

import pytest
from filelock import FileLock

import ablate
from ablate.cli import main
from ablate.wings.campaign import campaign_log
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalTest
from ablate.wings.campaign.commands.judge import DISCARD, UNDECIDED
from ablate.wings.campaign.proposals import LEAST_SEEDS, latest
from store import Store, StoreError
from tests.ablate.toy import toy_study

CAMPAIGN = "toy-cpu"
MOST_SEEDS = 4


@pytest.fixture(autouse=True)
def _few_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a toy take longer to begin than to train."""
    monkeypatch.setattr("ablate.wings.campaign.proposals.MOST_SEEDS", MOST_SEEDS)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return toy_study(tmp_path_factory.mktemp("judge"), "{slow: {train.lr: 1e-4}}", steps=40)


def judged(path: Path, store: Path, *arguments: str, budget: str = "10m") -> int:
    here = ["--store", str(store), "--scale", "cpu", "--engine", "inprocess", "--budget", budget]
    return main(["judge", str(path), *here, "--json", *arguments])


def test_a_change_is_kept_becomes_the_base_and_a_worse_one_is_discarded(
    path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "runs"
    assert judged(path, store, "--change", "train.lr=3e-2") == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["decision"], first["number"], first["seeds"]) == ("keep", 1, MOST_SEEDS)
    assert first["high"] < 0 and first["p"] < first["false_discovery"]["level"]
    assert first["cost"] == {"parameters": 1.0, "flops_per_token": 1.0, "kv_bytes_per_token": 1.0}
    assert first["spent_seconds"] > 0
    assert judged(path, store, "--arm", "slow") == DISCARD
    second = json.loads(capsys.readouterr().out)
    assert (second["decision"], second["seeds"]) == ("discard", LEAST_SEEDS)
    # The base of the second has what was kept: its own study says so, and no seed is used twice.
    studies = [Store(store).study(f"judge-{CAMPAIGN}-{number}", "cpu").read() for number in (1, 2)]
    assert all(study is not None and study.pilot for study in studies)
    runs = [{run.seed for arm in study.arms for run in arm.runs} for study in studies if study]
    assert not runs[0] & runs[1]
    base = Store(store).read_run(studies[1].baseline_arm.runs[0].digest)  # type: ignore[union-attr]
    assert base is not None and base.train["lr"] == 3e-2
    assert main(["judge", str(path), "--store", str(store), "--scale", "cpu", "--change", "train.lr=3e-2"]) == 2
    assert "already in the base, kept as no. 1 of toy-cpu" in capsys.readouterr().err
    with pytest.raises(ablate.ArgumentError, match=r"kept as no. 1 of toy-cpu"):  # a change may be a text
        ablate.judge(path, change="train.lr=3e-2", scale="cpu", store=store)
    assert judged(path, store, "--change", "n_layers=2", "--set", "train.batch=2") == 2
    assert "--campaign toy-cpu: began with another model, training or data: judge on that" in capsys.readouterr().err
    assert judged(path, store, "--change", "train.lr=1e-2", budget="0s") == 2  # what the base had before is a change
    assert "too short" in capsys.readouterr().err
    assert not Store(store).ledgers()  # proposals have an error rate of their own
    page = Path(second["page"]).read_text()
    assert "1 of 2 proposals kept" in page
    with pytest.raises(StoreError, match="lacks proposal 2"):
        _shortened(Store(store), 2)
    assert main(["check", str(store)]) == 1
    assert "lacks proposal 2, whose study is" in capsys.readouterr().out


def _shortened(store: Store, lines: int) -> None:
    """A campaign whose file lost its last lines."""
    log = campaign_log.log_of(store, CAMPAIGN).path
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:lines]))
    campaign_log.read(store, CAMPAIGN)


def test_one_that_was_interrupted_goes_on_with_the_same_seeds(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def interrupted(*args: object, **options: object) -> None:
        calls.append(args)
        raise KeyboardInterrupt

    change = {"block.norm": "layernorm"}
    given = {"store": tmp_path, "scale": "cpu", "engine": "inprocess", "progress": False, "budget": 600}
    with monkeypatch.context() as patched:
        patched.setattr("ablate.wings.campaign.proposals.run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            ablate.judge(path, change=change, **given)
    begun = latest(campaign_log.read(Store(tmp_path), CAMPAIGN))
    assert [(each.number, each.outcome) for each in begun] == [(1, None)]
    found = ablate.judge(path, change=change, **given)
    assert found.record.number == 1 and found.proposals == 1
    assert min(found.outcome.test.seeds) == 10_100


def test_the_next_command_judges_as_the_one_before_it(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = ProposalTest(
        scale="cpu",
        study="judge-c-1",
        seeds=(1, 2, 3),
        difference=-0.1,
        low=-0.3,
        high=0.1,
        p=0.05,
        verdict="inconclusive",
    )
    outcome = ProposalOutcome(
        decision="undecided", reason="", test=test, level=0.05, confirmed=None, costs={}, spent_seconds=1.0
    )
    monkeypatch.setattr("ablate.wings.campaign.judging.MOST_SEEDS", 12)
    monkeypatch.setattr("ablate.wings.campaign.judging.Looks.outcome", lambda _: outcome)
    monkeypatch.setattr("ablate.wings.campaign.judging.plugin_files", lambda: [tmp_path / "my norm.py"])
    options = [
        "--change=block.norm=layernorm",
        "--alpha=0.2",
        "--total-budget=2h",
        "--set=train.batch=2",
        "--campaign=c",
    ]
    assert judged(path, tmp_path / "runs", *options) == UNDECIDED
    (suggested,) = json.loads(capsys.readouterr().out)["next"]
    assert shlex.split(suggested["command"]) == [
        *("ablate", "judge", str(path), "--scale", "cpu", '--change=block.norm="layernorm"', "--set=train.batch=2"),
        *("--store", str(tmp_path / "runs"), "--campaign", "c", "--alpha", "0.2", "--total-budget", "7200s"),
        *("--budget", "0m", "--plugin", str(tmp_path / "my norm.py")),
    ]


def test_what_was_interrupted_counts_in_every_campaign(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its whole budget while it runs, as if it were killed, and then with the time that it took."""
    store, during = Store(tmp_path), []

    def interrupted(*_: object, **__: object) -> None:
        during.append(latest(campaign_log.read(store, CAMPAIGN))[-1].charged)
        time.sleep(0.1)
        raise KeyboardInterrupt

    given = {"store": tmp_path, "scale": "cpu", "engine": "inprocess", "progress": False, "budget": 600}
    monkeypatch.setattr("ablate.wings.campaign.proposals.run", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            ablate.judge(path, change={"block.norm": "layernorm"}, total_budget=700, **given)
    first, last = during[0], latest(campaign_log.read(store, CAMPAIGN))[-1].charged
    assert first == 600.0 and 600.1 < during[1] < 700 and last is not None and 0.2 < last < 100
    campaign_log.log_of(store, "another").append(
        [latest(campaign_log.read(store, CAMPAIGN))[-1].model_copy(update={"charged": 200.0})]
    )
    with pytest.raises(ablate.ArgumentError, match=r"all proposals may take 700 s, of which (4..|500) s are left"):
        ablate.judge(path, change={"n_layers": 2}, total_budget=700, **given)


def test_without_locks_it_says_so(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", none)
    assert judged(path, tmp_path, "--change", "n_layers=2") == 2
    lock = campaign_log.log_path(Store(tmp_path), CAMPAIGN).with_suffix(".lock")
    remedy = "No locks available: this file system has no locks: use a store on one that has them (--store DIR)"
    assert capsys.readouterr().err == f"ablate: {lock}: {remedy}\n"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data.tokenizer": "bytes"}, "a proposal cannot change data.tokenizer"),
        ({"seeds": 3}, "seeds are fresh for every proposal"),
        ({"train.context": 8}, "both use the same context"),
        ({"evals.positions": None}, "both are evaluated the same way"),
        ({}, "needs at least one edit"),
    ],
    ids=str,
)
def test_what_a_proposal_may_not_touch(path: Path, tmp_path: Path, change: dict[str, object], reason: str) -> None:
    with pytest.raises(ablate.ArgumentError, match=reason):
        ablate.judge(path, change=change, store=tmp_path, scale="cpu", progress=False)
    assert not list(tmp_path.rglob("*.ndjson"))


def test_what_cannot_be_judged_is_one_line(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(path, tmp_path, "--change", "block.norm=lyernorm") == 2
    assert "did you mean 'layernorm'" in capsys.readouterr().err
    assert judged(path, tmp_path, "--arm", "slo") == 2
    assert "no arm of that name (did you mean 'slow'?)" in capsys.readouterr().err
    for name in ("--check", "x\nforged", "../x"):
        assert judged(path, tmp_path, "--change", "n_layers=2", f"--campaign={name}") == 2
        assert "a name must be letters, digits" in capsys.readouterr().err
    assert judged(path, tmp_path, "--change", "n_layers=2", "--total-budget=1m") == 2
    assert "all proposals may take 60 s, of which 60 s are left" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    for more in ((), ("--total-budget=1h",), ("--total-budget=1h", "--replicate=cpu")):
        assert judged(path, tmp_path, "--change", "n_layers=2", *more, budget="0s") == 2
        assert "too short: 3 seeds of base and proposal at cpu take about" in capsys.readouterr().err
    assert not (tmp_path / "campaigns").exists()
    assert judged(path, tmp_path, "--change", "n_layers=2", budget="soon") == 2
    assert "expected a time such as 90s, 20m or 2h" in capsys.readouterr().err
    with FileLock(campaign_log.log_path(Store(tmp_path), CAMPAIGN).with_suffix(".lock")):
        assert judged(path, tmp_path, "--change", "n_layers=2") == 2
    assert "another command is judging a proposal of this campaign" in capsys.readouterr().err


def test_instructions_are_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["judge", "norm_placement", "--scale", "cpu", "--init"]) == 0
    text = Path("AGENTS.md").read_text()
    assert "ablate judge norm_placement --scale cpu --change PATH=VALUE" in text
    assert main(["judge", "norm_placement", "--init"]) == 2
    assert "exists already" in capsys.readouterr().err
    Path("AGENTS.md").unlink()
    assert main(["judge", "norm_placment", "--init"]) == 2
    assert "norm_placment" in capsys.readouterr().err and not Path("AGENTS.md").exists()


def test_a_base_needs_no_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = toy_study(tmp_path, "{}")
    with pytest.raises(ablate.StudyError, match="needs at least one arm"):
        ablate.load_study(base, "cpu")
    assert judged(base, tmp_path / "runs", "--change", "n_layers=2", budget="0s") == 2
    assert "too short: 3 seeds of base and proposal" in capsys.readouterr().err  # all but the time was accepted
    assert judged(base, tmp_path / "runs", "--arm", "slow") == 2
    assert "--arm slow: no arm of that name; arms: none" in capsys.readouterr().err
