"""A store with every kind of file, and another of each kind to change places with."""

from __future__ import annotations

import io
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import optuna
import pytest
import torch

import reports
from ablate.cli import main
from ablate.training.trained import TrainingProgress, save_state
from ablate.wings.campaign.campaign_log import ProposalOutcome, ProposalRecord, ProposalTest, log_of, study_of
from ablate.wings.index import index
from ablate.wings.search.documents import search_folder
from ablate.wings.search.storage import open_storage
from ablate.wings.starts.checkpoints import Checkpoint
from evals.harness.answers import Answers, bind
from store import Store, StudyFolder, checksum, stamps
from store.documents import (
    CalibrationDocument,
    CostsDocument,
    EvalsDocument,
    ImportDocument,
    MergedRecord,
    ProbeRecord,
    RegistrationRecord,
    RunNumerics,
    SampleRecord,
    Score,
)
from store.jsonfile import write as write_document
from store.stamps import TICK_NS
from tests.documents import ENVIRONMENT, measure_of, metrics_of, quartiles
from tests.reports.searching import search_of, trials_of

BEGAN = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True)
class Kind:
    """Files of one kind, by their place; RUN is a run that has ended, BEGUN one that has not. `ablate check` notices
    whatever becomes of them, except where it says here why that is harmless."""

    pattern: str
    changed: str = ""
    """Any change: no number rests on it. Such a file is not changed below."""
    removed: str = ""
    swapped: str = ""
    """Put in the place of another of its kind."""
    cut: str = ""
    """Whole lines, or everything, gone from its end."""
    unread: str = ""
    """A bit of what nothing reads."""
    unchecked: str = ""
    """Any change, since whatever reads it notices, and reads what it was made from."""


AGAIN = "made again"
AS_BY_A_KILL = "as a kill leaves it; training resumes only where the state's own lines are there"
KINDS = [
    Kind("RUN/run.json"),
    Kind("RUN/result.json"),
    Kind("RUN/metrics.ndjson"),
    Kind("RUN/probes.ndjson"),
    Kind("RUN/losses.ndjson"),
    Kind("RUN/evals-*.json", removed=AGAIN),
    Kind("RUN/evals-*.samples.ndjson"),
    Kind("RUN/measure-*.json", removed=AGAIN),
    Kind(
        "RUN/answers.db",
        removed=AGAIN,
        cut=AGAIN,
        unread="a free page",
    ),
    Kind("RUN/model/*"),
    Kind("BEGUN/run.json"),
    Kind("BEGUN/metrics.ndjson", removed=AS_BY_A_KILL, cut=AS_BY_A_KILL),
    Kind("BEGUN/probes.ndjson", removed=AS_BY_A_KILL, cut=AS_BY_A_KILL),
    Kind("BEGUN/state.pt", removed="training begins again"),
    Kind("studies/*/study.json"),
    Kind("studies/*/costs-*.json", removed=AGAIN),
    Kind("studies/*/judged.json"),
    Kind("studies/*/registered.ndjson", removed="the study's document has what was registered", cut="the same"),
    Kind("searches/*/search.json"),
    Kind("searches/*/journal.log"),
    Kind("imports/*.json", removed="imported again"),
    Kind("data/*/*"),
    Kind("data/*/references-*.json", removed=AGAIN),
    Kind("checkpoints/*/*"),
    Kind("described/*/meta.json", removed="the report says less of its text"),
    Kind("calibration/*.json", removed=AGAIN),
    Kind("ledger/*.ndjson"),
    Kind("campaigns/*.ndjson", cut="the proposal goes on where it stopped"),
    Kind("campaigns/*.lock", changed="a lock"),
    Kind("merged.ndjson", removed="says where runs came from", cut="the same"),
    Kind("**/checked-*.json", changed="files are read again"),
    Kind("index-*.arrow", unchecked="the files of runs are read"),
    Kind("*/log.txt", changed="for people"),
    Kind("*/error.txt", changed="for people"),
    Kind("**/*.html", changed="drawn again from the documents"),
    Kind("searches/*/trials.*", changed="written again from search.json"),
    Kind("searches/*/*.lock", changed="a lock"),
    Kind("searches/*/owners/*", changed="a lock"),
]
CHANGED_KINDS = [kind for kind in KINDS if not kind.changed]
CHECKED_KINDS = [kind for kind in CHANGED_KINDS if not kind.unchecked]
OPTIONAL = ("searches/*/trials.*", "searches/*/owners/*", "searches/*/*.lock", "campaigns/*.lock", "**/checked-*.json")
"""Kinds of which this store has no file."""


def quiet(*arguments: str | Path) -> tuple[int, str]:
    """Exit status of a command, and what it printed."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = main([str(each) for each in arguments])
    return status, out.getvalue() or err.getvalue()


def write_every_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few runs a store has, and however new these are: the clock is some ticks ahead."""
    monkeypatch.setattr(index, "LEAST_NEW", 1)
    monkeypatch.setattr(index, "clock", lambda path: (stamps.clock(path) or 0) + 2 * TICK_NS)


def fill(trained: Path, study: Path, folder: Path) -> Path:
    """The store, from one in which a study of two arms and two seeds is done."""
    root = shutil.copytree(trained, folder / "runs")
    store = Store(root)
    runs = store.runs()[:2]
    twin = study.with_name("twin.yaml")  # the same runs under another name
    twin.write_text(study.read_text())
    status, said = quiet("run", twin, "--store", root, "--engine", "inprocess")
    twin.unlink()
    assert status == 0, said
    for number, digest in enumerate(runs):
        _finish(store, digest, number)
        _begin(store, digest, number)
        _keep_elsewhere(store, digest, number)
        _search(store, f"search{number}", number)
    for like in store.studies():
        record = RegistrationRecord(at=BEGAN, sha256=like.path.name, content={"margin": 0.5})
        like.registrations.append([record, record])
    for number, like in enumerate(store.studies()[:2]):
        _propose(store, f"campaign{number}", like)
    _describe(store)
    with pytest.MonkeyPatch.context() as monkeypatch:
        write_every_index(monkeypatch)
        reports.summarise(store.studies()[0].path)
    return root


def _propose(store: Store, campaign: str, like: StudyFolder) -> None:
    """A proposal that was judged, and its study."""
    study, name = like.read(), study_of(campaign, 1)
    assert study is not None
    folder = store.study(name, study.scale)
    folder.write(study.model_copy(update={"name": name, "pilot": True}))
    folder.write_report("<html></html>")
    test = ProposalTest(
        scale="cpu", study=name, seeds=(1, 2), difference=-0.5, low=-0.75, high=-0.25, p=0.125, verdict="better"
    )
    outcome = ProposalOutcome(
        decision="keep", reason="because", test=test, level=0.5, confirmed=None, costs={}, spent_seconds=1.0
    )
    begun = ProposalRecord(at=BEGAN, number=1, name="x", scale="cpu", edits={"n_layers": 2}, alpha=0.1, base="b")
    log_of(store, campaign).append([begun, begun.model_copy(update={"outcome": outcome})])


def _describe(store: Store) -> None:
    """Corpora whose text is elsewhere, and a run that came from there."""
    for name in ("one", "two"):
        folder = store.data(name)
        meta = store.data("other").read().model_copy(update={"digest": name})
        write_document(folder.described_path, meta)
    digest = store.runs()[0]
    record = MergedRecord(at=BEGAN, archive="0", run=digest, finished=BEGAN, weights=True)
    store.merged_log.append([record, record.model_copy(update={"finished": "2027-01-01T00:00:00+00:00"})])


def _finish(store: Store, digest: str, number: int) -> None:
    """What is kept of a run that has ended."""
    result, losses = store.read_result(digest), store.read_losses(digest)
    assert result is not None and losses is not None
    store.append_probes(digest, _probes(number))
    store.write_result(result, losses)
    for request in ("aa", "bb"):
        value = 0.25 + number + (request == "bb") / 8
        score = Score(value=value, stderr=0.5, higher_is_better=True, chance=0.125, items=2)
        samples = [SampleRecord(task="t", doc_id=n, doc_hash=f"{n}", metrics={"acc": value + n}) for n in range(3)]
        store.write_evals(digest, request, EvalsDocument(request={}, scores={"t": {"acc": score}}), samples)
        store.write_measure(digest, request, measure_of(kv_bytes_per_token=value))
    bind(store.answers_path(digest), checksum.of_file(store.model_dir(digest) / "sums.json"))
    with Answers(store.answers_path(digest), owner=digest) as answers:
        for question in range(40):
            answers.add(answers.key(question), [question + 0.125, True])
    store.write_error(digest, "RuntimeError", "a traceback")


def _probes(number: int) -> list[ProbeRecord]:
    return [ProbeRecord(step=step, probe="norms", layer=0, name="x", value=step + 0.5 + number) for step in range(1, 4)]


def _search(store: Store, name: str, number: int) -> None:
    folder = search_folder(store, name, "cpu")
    study = optuna.create_study(storage=open_storage(None, folder), study_name=f"{name}-cpu-0")
    study.optimize(lambda trial: trial.suggest_float("train.lr", 0.1, 1) + number, n_trials=2)
    found = search_of(trials_of(study), ["train.lr"], name=name, journal=folder.journal.last_seal())
    folder.write(found)
    folder.write_report("<html></html>")


def _begin(store: Store, like: str, number: int) -> None:
    """A run that has begun. Those of all numbers have models of one shape."""
    run = store.read_run(like)
    assert run is not None
    begun = f"be{number}"
    store.write_run(run.model_copy(update={"digest": begun, "seed": 100 + number}))
    store.append_metrics(begun, *(metrics_of(step, loss=5.0 + number / 8, lr=0.125) for step in range(1, 5)))
    store.append_probes(begun, _probes(number))
    torch.manual_seed(number)
    save_state(store, begun, TrainingProgress(step=2), {"model": torch.nn.Linear(8, 8)})


def _keep_elsewhere(store: Store, digest: str, number: int) -> None:
    """What studies and imports keep beside runs."""
    run = store.read_run(digest)
    assert run is not None
    Checkpoint.at(store.run_dir(digest), Path()).copy_to(store)
    store.write_import(ImportDocument(name=f"model{number}", folder="there", run=digest, created=BEGAN))
    store.write_calibration(_calibration(f"ca{number}", run.numerics, 0.25 + number))
    costs = CostsDocument(request="c0", processes=(), environment=ENVIRONMENT, seconds=1.5 + number, measured=BEGAN)
    store.studies()[number].write_costs(costs)
    if number:
        corpus, other = store.data(run.data.digest), store.data("other")
        shutil.copytree(
            corpus.path, other.path, ignore=shutil.ignore_patterns("sums.json", "checked-*", "references-*")
        )
        (other.path / "train.bin").write_bytes((corpus.path / "train.bin").read_bytes()[::-1])
        other.write(corpus.read())


def _calibration(digest: str, numerics: RunNumerics, seconds: float) -> CalibrationDocument:
    return CalibrationDocument(
        digest=digest,
        model={},
        train={},
        numerics=numerics,
        device="a CPU",
        workers=1,
        seconds_per_step=quartiles(seconds),
        steps=8,
        environment=ENVIRONMENT,
        measured=BEGAN,
    )


@cache
def files_by_kind(root: Path) -> tuple[dict[Kind, list[Path]], list[Path]]:
    """The files of each kind, and those of none, as they are when first asked for. A file that two patterns have is of
    the later one."""
    found: dict[Kind, list[Path]] = {kind: [] for kind in KINDS}
    unknown = []
    for path in sorted(each for each in root.rglob("*") if each.is_file()):
        names = _names(root, path)
        kinds = [kind for kind in KINDS if any(_matches(name, kind.pattern) for name in names)]
        (found[kinds[-1]] if kinds else unknown).append(path)
    return found, unknown


def _names(root: Path, path: Path) -> tuple[str, str]:
    """The place of a file, and the same with RUN or BEGUN for a digest."""
    first, *rest = path.relative_to(root).parts
    run = root / first
    kind = "RUN" if (run / "result.json").exists() else "BEGUN" if (run / "run.json").exists() else first
    return "/".join([first, *rest]), "/".join([kind, *rest])


def _matches(name: str, pattern: str) -> bool:
    parts = re.escape(pattern).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return re.fullmatch(parts, name) is not None
