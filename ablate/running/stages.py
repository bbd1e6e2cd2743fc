"""Run a study: each stage trains, measures and evaluates what the store lacks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import reports
from ablate.planning.campaign import CampaignOutcome, Stage, Stages
from ablate.planning.durations import busy_line, duration, speed_for
from ablate.planning.plan_shown import refusal_lines
from ablate.planning.prospects import Prospects
from ablate.planning.study_document import length_lines, prepared, study_document
from ablate.readable import clock
from ablate.running.context import RunContext
from ablate.running.corpora import prepare_corpora, prepare_references, prepare_sources
from ablate.running.costing import Costing
from ablate.running.engines import Event
from ablate.running.following import Progress
from ablate.running.rehearsal import CalibrationError
from ablate.running.request import Request, phases_after
from ablate.study.reading import load_study
from ablate.study.study import Study
from evals.costs.spec import PROCESSES
from evals.found import listening, skipped_lines
from store import AblateError, Store
from store.documents import JsonObject, RunDocument, StudyDocument, TuningDocument
from store.documents.study import ScaleForecast
from store.extensions import module_of, modules_of
from store.store import Status


@dataclass(frozen=True)
class Failure:
    """A failed run. details: the file with the traceback, if there is one."""

    digest: str
    arm: str
    seed: int
    error: str
    details: Path | None

    @classmethod
    def stored(cls, store: Store, digest: str, arm: str, seed: int) -> Failure | None:
        """The error that ended a run's last worker; None if there was none, or the run has a result since."""
        error = store.read_error(digest)
        if error is None or store.read_result(digest) is not None:
            return None
        return cls(digest, arm, seed, error, store.error_path(digest))

    def __str__(self) -> str:
        where = f" ({self.details})" if self.details else ""
        return f"{self.arm}, seed {self.seed}: {self.error}{where}"


class StudyRunner:
    """Runs a study, stage by stage.

    before: the study's earlier document in the store. blind: whether to show no losses.
    """

    def __init__(self, study: Study, context: RunContext, before: StudyDocument | None, *, blind: bool = False) -> None:
        self.study, self.context, self.store, self._before = study, context, context.store, before
        self.folder = self.store.study(study.name, study.scale)
        self.planner = replace(context.planner(study), keeps_starts=True)
        self._blind = blind
        self.to_train: dict[str, bool] = {}
        """Whether each run, by digest, was still to be trained when first encountered."""
        self.labels: dict[str, tuple[str, int]] = {}
        """Arm (with the rung of a ladder) and seed of every run encountered, by digest."""
        self.failures: list[Failure] = []
        self._ended: dict[str, Status] = {}
        """Final status of the runs that have ended, by digest."""
        self.outcome: CampaignOutcome | None = None
        self._evaluations: set[tuple[str, str]] = set()
        """(run digest, request digest) of every requested evaluation."""

    def run(self) -> None:
        """Run all stages; stop after a stage with a failed run, as the next stage may need its result."""
        stages = self.planner.stages()
        stage: Stage | None = next(stages)
        with self.context.follow(self.study, self.labels, blind=self._blind) as progress:
            prepare_corpora(self.study, self.store, progress.data)
            prepare_sources(self.study, self.store, progress.say)
            while stage is not None:
                self._carry_out(stage, progress)
                stage = None if self.failures else self._next(stages)
            if self.outcome is not None and not self.failures:
                self._measure_costs(self.outcome, progress)

    def _next(self, stages: Stages) -> Stage | None:
        """The next stage; None after the last."""
        try:
            # With `seeds: auto`, send the arms that more seeds could settle.
            looks = self.outcome is not None and self.outcome.looks
            return stages.send(reports.open_arms(self.folder.path) if looks else ())
        except StopIteration:
            return None

    def _measure_costs(self, outcome: CampaignOutcome, progress: Progress) -> None:
        """Measure the arms' speeds against each other, while nothing else of the study runs."""
        costing = self._costing(outcome)
        if costing.digest is None:
            return
        known = self.folder.read_costs(costing.digest)
        if known is not None and not known.is_crowded:
            return
        seconds = outcome.plan.alternating_seconds
        progress.say(f"Measuring the arms' speeds against each other: {PROCESSES} processes, about {clock(seconds)}.")
        try:
            with listening(lambda found: progress.work("measuring speeds", found.done / found.total)):
                costing.measure(self.folder)
        except CalibrationError as error:
            progress.say(str(error))

    def _costing(self, outcome: CampaignOutcome) -> Costing:
        return Costing(outcome.plan, self.store, self.context.engine, self.context.options.execution)

    def _carry_out(self, stage: Stage, progress: Progress) -> None:
        self.outcome = stage.outcome or self.outcome
        runs = {run.digest: (plan, run) for plan in stage.plans for run in plan.runs}
        self.labels |= {
            digest: (f"{run.arm} at {plan.study.rung}" if plan.study.rung else run.arm, run.seed)
            for digest, (plan, run) in runs.items()
        }
        for plan, run in runs.values():
            # Repeat evaluations that had to skip tasks: the tasks' data may be available now.
            if plan.evals_digest:
                self._evaluations.add((run.digest, plan.evals_digest))
                if run.digest not in self.to_train:
                    self.store.drop_incomplete_evals(run.digest, plan.evals_digest)
        missing = {}
        for digest, (plan, _) in runs.items():
            # Checking phases directly is faster than building requests for thousands of finished runs.
            measure = plan.measure_digest if plan.measures(digest) else None
            missing[digest] = phases_after(self._status(digest), self.store, digest, measure, plan.evals_digest)
        arms = (arm for plan in stage.plans for arm in plan.arms)
        wanted = (arm for arm in arms if any("train" in missing[run.digest] for run in arm.runs))
        if refused := list(refusal_lines(wanted, self.context.options.execution)):
            raise AblateError("\n".join(refused))
        is_first = not any(self.to_train.values())
        self.to_train |= {d: "train" in phases for d, phases in missing.items() if d not in self.to_train}
        if trains := any("train" in phases for phases in missing.values()):
            for line in self._foretold(stage.outcome) if is_first else ():
                progress.say(line)
        progress.say(_reuse(stage.name, missing))
        if trains:
            progress.say(self._expected(stage, missing))
        if stage.outcome is not None:
            document = study_document(stage.outcome)
            forecast = self._foreseen(document, trains)
            engine = "" if self.context.engine.here else self.context.options.of_engine
            more = {"costs": self._costing(stage.outcome).digest, "forecast": forecast, "engine": engine}
            document = document.model_copy(update=more)
            for wing in modules_of(__name__):
                document = wing.completed(document, self.study, self.folder, self._before, self._had_result)
            self._before = document
            self.folder.write(document)
            self.folder.tuning_path.unlink(missing_ok=True)
            prepare_references(stage.outcome.plan, self.store)
            for line in length_lines(stage.outcome.plan, prepared(self.store, stage.outcome.plan)):
                progress.say(line)
        if todo := [self.context.request(plan, run.identity) for plan, run in runs.values() if missing[run.digest]]:
            self._run(stage, todo, missing, progress)

    def _had_result(self, digest: str) -> bool:
        """Whether a run had a result before this command."""
        return not self.to_train.get(digest, False) and self.store.outcome(digest) is not None

    def _foreseen(self, document: StudyDocument, trains: bool) -> ScaleForecast | None:
        """Forecast of the duration at the next scale: the stored one of the same study, else a new one if there is
        something to train. None on a GPU (whose memory the runs need), if runs are trained elsewhere, and for a scale
        that is for a GPU, has a budget in seconds (every arm's step would be timed) or has no plan."""
        before, scale = self._before, document.scale_after
        if before is not None and before.forecast is not None and _asked(before) == _asked(document):
            return before.forecast
        here = self.context.device == "cpu" and self.context.engine.here
        if not trains or not here or scale is None or scale.startswith("gpu"):
            return None
        try:
            as_written = replace(self.study, written=replace(self.study.written, sets=()))
            there = load_study(as_written, scale, document.edits_at(scale))
            if there.budget.given == "seconds":
                return None
            plan = self.context.plan(there)
            tuning, training = (plan.at_once * seconds for seconds in (plan.time.tuning, plan.time.training))
        except (AblateError, OSError, RuntimeError, MemoryError):  # must not end a run: a plan of that scale says why
            return None
        return ScaleForecast(scale=scale, tuning=tuning, training=training) if tuning + training else None

    def _foretold(self, outcome: CampaignOutcome | None) -> Iterator[str]:
        """Lines on what the study will probably detect and, before tuning (without an outcome), on its total time."""
        if outcome is not None:
            yield from Prospects(outcome, self.store, self.study).lines()
            return
        plan = self.context.plan(self.study)
        yield from plan.prospects.lines()
        if self.context.engine.here:
            yield f"the whole study, {plan.at_once} run{'s' * (plan.at_once > 1)} at once: {plan.time}"

    def _status(self, digest: str) -> Status:
        """Status of a run, cached once the run has ended: there may be a hundred thousand runs."""
        found = self._ended.get(digest) or self.store.status(digest)
        if found in ("finished", "diverged"):
            self._ended[digest] = found
        return found

    def _run(
        self, stage: Stage, todo: Sequence[Request], missing: Mapping[str, Sequence[str]], progress: Progress
    ) -> None:
        for wing in modules_of("ablate.running.request"):
            todo = wing.with_kin(todo, [run.identity for plan in stage.plans for run in plan.runs])
        if stage.tunes:
            tried = {run.digest: self.labels[run.digest][0] for plan in stage.plans for run in plan.runs}
            study = self.study
            about = TuningDocument(
                name=study.name, scale=study.scale, question=study.question, stage=stage.name, runs=tried
            )
            self.folder.write_tuning(about)
        progress.begin(todo, stage.name if stage.tunes else "")
        identities = {request.digest: request.identity for request in todo if "train" in missing[request.digest]}
        wing = module_of("ablate.running.trackers")
        following: AbstractContextManager[Any] = nullcontext()
        if wing is not None:
            following = closing(wing.Trackers(self.store, list(self.context.trackers), progress.say))
        with following as trackers, closing(self.context.engine.run(todo)) as events:
            for event in events:
                progress.show(event)
                if trackers is not None:
                    self._track(trackers, event, identities)
                if event is not None and event.kind == "failed":
                    arm, seed = self.labels[event.digest]
                    details = self.store.error_path(event.digest)
                    self.failures.append(
                        Failure(event.digest, arm, seed, event.error or "failed", details if details.exists() else None)
                    )

    def _track(self, trackers: Any, event: Event | None, identities: Mapping[str, RunDocument]) -> None:
        """Report events of runs that are trained to the trackers."""
        if event is not None and event.digest in identities:
            if event.kind == "started":
                arm = self.labels[event.digest][0]
                trackers.begin(self.study.name, self.study.scale, arm, identities[event.digest])
            else:
                trackers.end(event.digest)
        trackers.look()

    def _expected(self, stage: Stage, missing: Mapping[str, Sequence[str]]) -> str:
        """`scale cpu on AMD EPYC 7B13, 2 runs at once: about 4:50 in all: 4:10 of training, 0:40 of measuring`; without
        durations if the engine's machines are remote."""
        engine = self.context.engine
        runs = f"{engine.at_once} run{'s' if engine.at_once > 1 else ''} at once"
        where = f"scale {self.study.scale} on {engine.where}, {runs}"
        if not engine.here:
            return where
        speed = speed_for(stage.plans, self.planner.numerics)
        found = duration(stage.plans, missing, self.store, speed)
        busy = [] if self._ended else busy_line(engine.at_once)  # later, our own runs are the load
        return "; ".join([f"{where}: {found / self.context.options.speed_up(engine.at_once)}", *busy])

    def statuses(self) -> list[JsonObject]:
        """Status of every run of the study."""
        failed = {failure.digest for failure in self.failures}
        return [
            {
                "digest": digest,
                "arm": arm,
                "seed": seed,
                "status": "failed" if digest in failed else self._status(digest),
            }
            for digest, (arm, seed) in self.labels.items()
        ]

    def skipped(self) -> list[str]:
        """Lines on skipped evaluations, without duplicates, as the runs of a study mostly skip the same ones."""
        documents = (self.store.read_evals(*asked) for asked in sorted(self._evaluations))
        lines = (skipped_lines(found.skipped, found.groups) for found in documents if found)
        return list(dict.fromkeys(chain.from_iterable(lines)))


def _reuse(stage: str, missing: dict[str, list[str]]) -> str:
    to_train = sum("train" in phases for phases in missing.values())
    reused = len(missing) - to_train
    more = sum(bool(phases) and "train" not in phases for phases in missing.values())
    text = f"{stage}: {len(missing)} runs, {to_train} to train, {reused} in the store already"
    return text + (f", of which {more} to measure or evaluate" if more else "")


def _asked(document: StudyDocument) -> tuple[object, ...]:
    """Key of a forecast: the study's text, scale and edits, and the next scale. A forecast holds while it is equal."""
    return document.source, document.scale_source, document.sets, document.scale_after
