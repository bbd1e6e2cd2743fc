"""`ablate run`: plan → data → engine → study.json → report."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import reports
from ablate.cli import DONE, SOME_FAILED, InputError
from ablate.commands import print_json, print_table
from ablate.commands._studies import asked, refuse_namesake
from ablate.data import AnyCorpus, Corpus, DataError, prepare
from ablate.data.sources import TextSource
from ablate.planning.campaign import Outcome, Stage
from ablate.planning.identity import RunPlan
from ablate.planning.plan import Plan
from ablate.planning.plan_document import judged_before, study_document
from ablate.running.calibration import CalibrationError
from ablate.running.engines import Engine, EngineError, Event, Options, load
from ablate.running.progress import Progress, open_progress
from ablate.running.request import Request
from ablate.store import Store
from ablate.study.arms import Arm
from ablate.study.study import Study, StudyError
from evals.harness.skipped import skipped_lines
from reports.findings.shapes import StudySummary
from reports.reading.collect import ReportError


def run_study(options: argparse.Namespace) -> int:
    """Everything, and the exit status."""
    return Running(options).run()


class Running:
    """One study on its way from stage to stage."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.asked = asked(options)
        _check_arms(self.asked.study)
        self.store = self.asked.store
        study = self.asked.study
        refuse_namesake(study, self.store.read_study(study.name, study.scale), self.store)
        self.to_train: dict[str, bool] = {}
        """Every run met so far, and whether it was still to be trained then."""
        self.labels: dict[str, tuple[str, int]] = {}
        """Arm and seed of every run met so far, and the size of a ladder."""
        self.evaluations: set[tuple[str, str]] = set()
        """Run and request of every evaluation that was asked for."""
        self.failures: list[Event] = []
        self.outcome: Outcome | None = None

    def run(self) -> int:
        stages = self.asked.stages()
        try:
            stage = next(stages)
            engine = load_engine(self.options, self.asked.device)
            with open_progress(self.store, self.asked.study.name, self.labels) as progress:
                prepare_data(self.asked.study, self.store, progress)
                self._carry_out(stage, engine, progress)
                while not self.failures:  # what failed may decide the next stage
                    stage = stages.send(self._open_arms())
                    self._carry_out(stage, engine, progress)
        except StopIteration:
            pass
        except (StudyError, CalibrationError) as error:
            raise InputError(str(error)) from error
        return self._close()

    def _carry_out(self, stage: Stage, engine: Engine, progress: Progress) -> None:
        """Run what the stage lacks."""
        self.outcome = stage.outcome or self.outcome
        runs = {run.digest: (plan, run) for plan in stage.plans for run in plan.runs}
        self.labels |= {digest: (_label(plan, run), run.seed) for digest, (plan, run) in runs.items()}
        requests = [request_of(plan, self.store, run.identity, self.options) for plan, run in runs.values()]
        for plan, run in runs.values():
            if plan.evals_digest:
                self.evaluations.add((run.digest, plan.evals_digest))
                if run.digest not in self.to_train:
                    self.store.drop_incomplete_evals(run.digest, plan.evals_digest)
        missing = {request.digest: request.missing() for request in requests}
        self.to_train |= {d: "train" in phases for d, phases in missing.items() if d not in self.to_train}
        progress.say(_reuse(stage.name, missing))
        if stage.outcome is not None:
            self._write_study(stage.outcome)
        todo = [request for request in requests if missing[request.digest]]
        progress.begin(todo)
        with closing(engine.run(todo)) as events:
            for event in events:
                progress.show(event)
                if event is not None and event.kind == "failed":
                    self.failures.append(event)

    def _write_study(self, outcome: Outcome) -> None:
        study = self.asked.study
        document, old = study_document(outcome), self.store.read_study(study.name, study.scale)
        done = old and all(self.asked.loss(run["digest"]) is not None for arm in old["arms"] for run in arm["runs"])
        document["judged"] = judged_before(old if done else None, document)
        self.store.write_json(self.store.study_path(study.name, study.scale), document)

    def _open_arms(self) -> tuple[str, ...]:
        """The arms that more seeds could settle, where the study adds seeds by itself."""
        if self.outcome is None or not self.outcome.looks:
            return ()
        return reports.open_arms(self._summary())

    def _summary(self) -> StudySummary:
        try:
            return reports.summarise(self._folder)
        except ReportError as error:
            raise InputError(str(error)) from error

    @property
    def _folder(self) -> Path:
        return self.store.study_dir(self.asked.study.name, self.asked.study.scale)

    def _close(self) -> int:
        """Report, closing table or JSON document, and the names of the runs that failed."""
        summary = self._summary() if self.outcome else None
        report = reports.render(self._folder, summary) if summary else None
        if self.options.json:
            arms = summary.arm_documents() if summary else []
            print_json(self._document(report) | {"arms": arms})
        elif summary:
            print_table(reports.table(summary))
            print(report)
        for event in self.failures:
            arm, seed = self.labels[event.digest]
            where = self.store.error_path(event.digest)
            details = f" ({where})" if where.exists() else ""
            print(f"ablate: failed: {arm}, seed {seed}: {event.error}{details}", file=sys.stderr)
        skipped = self._skipped()
        for line in skipped:
            print(f"ablate: {line}", file=sys.stderr)
        return SOME_FAILED if self.failures or skipped else DONE

    def _skipped(self) -> list[str]:
        """What was to be evaluated and could not be; runs of a study mostly lack the same."""
        documents = (self.store.read_evals(*asked) for asked in sorted(self.evaluations))
        return list(
            dict.fromkeys(line for found in documents if found for line in skipped_lines(found.skipped, found.groups))
        )

    def _document(self, report: Path | None) -> dict[str, Any]:
        """What `ablate run --json` prints, but for the arms."""
        failed = {event.digest for event in self.failures}
        return {
            "study": self.asked.study.name,
            "scale": self.asked.study.scale,
            "report": str(report) if report else None,
            "trained": sum(self.store.read_result(d) is not None for d, new in self.to_train.items() if new),
            "reused": sum(not new for new in self.to_train.values()),
            "failed": len(self.failures),
            "runs": [
                {
                    "digest": digest,
                    "arm": arm,
                    "seed": seed,
                    "status": "failed" if digest in failed else self.store.status(digest),
                }
                for digest, (arm, seed) in self.labels.items()
            ],
        }


def _check_arms(study: Study) -> None:
    """Raises InputError for a study that has a space and no arms: its baseline alone would answer nothing."""
    if study.is_search_alone:
        reason = f"there are no arms to train: `ablate search {study.path} --promote 5` tries the space and writes some"
        raise InputError(str(study.error("search", reason)))


def _label(plan: Plan, run: RunPlan) -> str:
    return f"{run.arm} at {plan.study.rung}" if plan.study.rung else run.arm


def load_engine(options: argparse.Namespace, device: str) -> Engine:
    try:
        return load(options.engine, Options(device, options.workers))
    except EngineError as error:
        raise InputError(str(error)) from error


def request_of(plan: Plan, store: Store, identity: dict[str, Any], options: argparse.Namespace) -> Request:
    return Request(
        store=str(store.root.resolve()),
        corpus=str((store.data_dir() / identity["data"]["digest"]).resolve()),
        identity=identity,
        measure=plan.measure.model_dump(mode="json") if plan.measure else None,
        measure_digest=plan.measure_digest,
        evals=plan.evals.model_dump(mode="json") if plan.evals else None,
        evals_digest=plan.evals_digest,
        checkpoint_seconds=options.checkpoint_seconds,
    )


def _reuse(stage: str, missing: dict[str, list[str]]) -> str:
    to_train = sum("train" in phases for phases in missing.values())
    reused = len(missing) - to_train
    more = sum(bool(phases) and "train" not in phases for phases in missing.values())
    text = f"{stage}: {len(missing)} runs, {to_train} to train, {reused} in the store already"
    return text + (f", of which {more} to measure or evaluate" if more else "")


def prepare_data(study: Study, store: Store, progress: Progress) -> None:
    """Every corpus of the study. Raises InputError."""
    readers = {arm.data.model_dump_json(): arm for arm in study.arms}  # one arm of each corpus: reading it takes time
    for arm in readers.values():
        try:
            corpus = prepare(arm.data, store.data_dir(), study.folder, progress.data)
        except DataError as error:
            raise InputError(str(study.error("data", str(error)))) from error
        if study.own_tokenizers:
            _check_validation(study, arm, corpus)


def _check_validation(study: Study, arm: Arm, corpus: AnyCorpus) -> None:
    """Bits per byte compare on one text: all that is held out."""
    if not (isinstance(arm.data, TextSource) and isinstance(corpus, Corpus)):
        return
    held_out = corpus.meta["tokens"]["validation"]
    if held_out > arm.data.validation_tokens:
        reason = (
            f"arms with tokenizers of their own are validated on all that is held out, and that is {held_out:,} tokens"
            f" in {arm.name}: raise it, or lower data.validation_fraction"
        )
        raise InputError(str(study.error("data.validation_tokens", reason)))
