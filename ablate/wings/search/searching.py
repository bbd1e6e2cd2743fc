"""`ablate.search`: a study's space → trials → runs → search.json → report."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Unpack

import optuna
import polars as pl
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from ablate.api.study_argument import StudyLike, refuse_code, refuse_namesake
from ablate.machine.numerics import restored
from ablate.running.context import RunContext, open_context
from ablate.running.corpora import prepare_corpora, prepare_sources
from ablate.running.engines import Engine
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Lines, Wanted, teller
from ablate.running.request import Request
from ablate.study.complaints import Place, Problem, StudyError
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.training.execution import Count
from ablate.wings.promoting import refuse_edited
from ablate.wings.search.asking import IMPORTED, cost_of
from ablate.wings.search.documents import SearchDocument, search_folder
from ablate.wings.search.history import base_params, begin
from ablate.wings.search.pages import search_found
from ablate.wings.search.promotion import promote as write_promoted
from ablate.wings.search.promotion import promoted_path
from ablate.wings.search.samplers import chosen_sampler, ended, make_pruner, make_sampler
from ablate.wings.search.search import Search
from ablate.wings.search.search_document import (
    BASE_RATE,
    asked_before,
    column_of,
    confirmation,
    scores_of,
    search_digest,
    search_document,
    tuned_rate,
    write_tables,
)
from ablate.wings.search.search_spec import SearchSpec
from ablate.wings.search.shown import search_words
from ablate.wings.search.shown.search_page import render, silenced
from ablate.wings.search.shown.search_summary import read_search
from ablate.wings.search.shown.search_words import closing_table
from ablate.wings.search.space_check import check_space
from ablate.wings.search.storage import Owner, opened_storage
from ablate.wings.search.trial_runner import Job, StudyTrialRunner
from reports.judge.sentences import listed
from store.documents import JsonObject
from store.documents.tuning import RATE

NOTHING_TO_PROMOTE = "nothing is promoted: no scored trial differs from the base in more than its learning rate"
BEST = {"number", "settings", "values", "runs"}
"""Fields of the best trials in `ablate search --json`."""


@dataclass(frozen=True)
class SearchResult:
    """The result of a search.

    Attributes:
        found: the store's document. Scores of fresh seeds, once there are any, replace the scores that chose the best.
        report: the page, one self-contained HTML file.
        promoted: the study that trains the best with fresh seeds, if one was written.
        failed: a line for each failure, with the reason: of trials, of the base's runs, and of promotion.
    """

    found: SearchDocument
    report: Path
    promoted: Path | None = None
    failed: tuple[str, ...] = ()

    @cached_property
    def trials(self) -> pl.DataFrame:
        """A row for each trial: number, state, whether it is among the best, its objectives, its settings by path."""
        trials = self.found.trials
        columns: dict[str, list[Any]] = {
            "number": [trial.number for trial in trials],
            "state": [trial.state for trial in trials],
            "best": [trial.best for trial in trials],
        }
        for place, objective in enumerate(self.found.objectives):
            columns[objective] = [trial.values and trial.values[place] for trial in trials]
        for path in self.found.space:
            columns[path] = column_of([trial.settings.get(path) for trial in trials])
        return pl.DataFrame(columns)

    @property
    def best(self) -> pl.DataFrame:
        """The best trial, or the Pareto front of several objectives."""
        return self.trials.filter(pl.col("best")) if self.trials.height else self.trials

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        return search_words.headline(read_search(self.report.parent, curves=False))

    def table(self) -> tuple[tuple[str, ...], ...]:
        """The best trials as rows of text, the header first; of a smoke search all trials, since none is the best."""
        return closing_table(read_search(self.report.parent, curves=False)).lines

    def document(self) -> JsonObject:
        """The document that `ablate search --json` prints."""
        states = [trial.state for trial in self.found.trials]
        return {
            "study": self.found.name,
            "scale": self.found.scale,
            "report": str(self.report),
            "promoted": str(self.promoted) if self.promoted else None,
            "trials": {state: states.count(state) for state in sorted(set(states))},
            "illegal": {**self.found.illegal},
            "base": self.found.base.model_dump(include={"name", "values", "runs"}),
            "confirmed": [each.model_dump() for each in self.found.confirmed],
            "best": [trial.model_dump(include=BEST) for trial in self.found.trials if trial.best],
        }

    def __repr__(self) -> str:
        name, scale = self.found.name, self.found.scale
        return f"<SearchResult {name} at {scale}: {len(self.found.trials)} trials, {self.best.height} best>"

    def _repr_html_(self) -> str:
        return self.best._repr_html_()


@documented(RunOptions.__annotations__)
@restored()
def search(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    progress: Wanted = True,
    allow_code: bool = False,
    storage: str | None = None,
    promote: Count | None = None,
    **options: Unpack[RunOptions],
) -> SearchResult:
    """Search a study's space for the best settings, or for the Pareto front of several objectives.

    Every trial is an ordinary run in the store. After an interruption, the same call continues: unfinished trials
    resume, and finished ones are not repeated. Any number of processes may share one search.

    Args:
        study, scale, sets, store, progress, allow_code: as in `ablate.run`.
        storage: storage of the trials: `postgresql://…`, `sqlite:///…` or `grpc://host:port`; None: a journal in the
            store.
        promote: write this many of the best trials as an ordinary study with fresh seeds, in the study's folder. The
            file is replaced unless it was edited.
        options: see `ablate.running.options`.

    Returns:
        Trials and the best of them as frames, and the page of the report.

    Raises:
        StudyError: the study cannot be read or planned, or has no `search`.
        ArgumentError, EngineError, StorageError, MissingPackageError: an argument cannot be used.

    Example:
        >>> ablate.search("search_small_lm", scale="cpu", sets={"search.trials": 8}).best
    """
    context = open_context(store, options, progress)
    chosen = load_study(study, scale, sets, device=context.device)
    if chosen.search is None:
        place = Place(chosen.written.place)
        raise StudyError([Problem(place, "", "has no search section, so there is nothing to search")])
    refuse_code(chosen, allow_code)
    with silenced():
        return _StudySearch(context, chosen, chosen.search, promote).run(storage)


def _missing(job: Job) -> list[Request]:
    return [request for request in job.requests if request.missing()]


class _StudySearch:
    """One study's search, from the space to the report."""

    def __init__(self, context: RunContext, study: Study, spec: SearchSpec, promote: int | None) -> None:
        self.context, self.study, self.spec, self.promote = context, study, spec, promote
        self.store = context.store
        self.lab = StudyTrialRunner(study, context.planner(study).plan, self.store, context.request)
        check_space(self.lab)
        self.failures: list[str] = []
        self.is_in_journal = True
        self._kept = 0.0
        self.folder = search_folder(self.store, study.name, study.scale)
        refuse_namesake(study, self.folder.read(), self.store)
        if promote:
            refuse_edited(promoted_path(study))

    def run(self, url: str | None) -> SearchResult:
        self.is_in_journal = url is None
        with opened_storage(url, self.folder) as storage:
            name, before = f"{self.study.name}-{self.study.scale}-{search_digest(self.lab)}", self.folder.read()
            if before is not None and before.optuna_study != name and asked_before(self.lab, before):
                name = before.optuna_study
            trials = optuna.create_study(
                storage=storage,
                study_name=name,
                directions=list(self.spec.objectives.values()),
                load_if_exists=True,
            )
            return self._search(trials, self._edited(storage, trials))

    def _search(self, trials: optuna.Study, notice: str) -> SearchResult:
        engine, owner = self.context.engine, Owner(self.folder)
        sampler, control = chosen_sampler(self.spec, self.lab.space), self.lab.control()
        trials.sampler = make_sampler(self.spec, sampler)
        trials.pruner = make_pruner(self.spec, control.validations, control.wait)
        progress = Lines(self.store, self.study.name, {}, tell=teller(self.context.progress))
        prepare_corpora(self.study, self.store, progress.data)
        prepare_sources(self.study, self.store, progress.say)
        if imported := begin(self.lab, trials, owner):
            notice += f"; {imported} runs of the store count as trials of this space"
        known = [trial for trial in trials.get_trials(deepcopy=False) if ended(trial)]
        done = cost_of(trial for trial in known if IMPORTED not in trial.user_attrs)
        progress.say(f"{self.spec.trials} trials, {done:.3g} of them done already{notice}")
        for warning in self.spec.warnings(control.validations):
            progress.say(warning)
        name, train = self.study.baseline, partial(self._train, engine)
        if base_params(self.lab) is None:
            progress.say(f"{name} lies outside the space: it is trained as the control, and is not a trial")
            train(control)
        search = Search(trials, self.spec, self.lab, owner, sampler, progress.say)
        search.after_trial = partial(self._keep, trials, search)
        search.run(engine)
        train(control)  # missing if `trials` ended before it
        if not trials.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):  # else its command confirms the best
            jobs = confirmation(self.lab, trials, scores_of(trials, search.done))
            if any(map(_missing, jobs.values())):
                progress.say(f"{listed(list(jobs))}: training with fresh seeds, to confirm the best against the base")
                train(*jobs.values())
        if self.promote and RATE in self.spec.space and not self.failures:
            progress.say(f"{name}: tuning its rate, as the trials' rates were")
            trials.set_user_attr(BASE_RATE, tuned_rate(self.lab, train))
        return self._close(trials, search)

    def _train(self, engine: Engine, *jobs: Job) -> None:
        """Train the missing runs of the base and of what is compared with it."""
        names = {digest: job.plan.name for job in jobs if job.plan for digest in job.digests}
        with closing(engine.run([request for job in jobs for request in _missing(job)])) as events:
            for event in events:
                if event is not None and event.kind == "failed":
                    self.failures.append(f"{names[event.digest]}: {event.error}")

    def _keep(self, trials: optuna.Study, search: Search) -> None:
        """Write the interim document for `ablate report`; skipped as needed to take at most a twentieth of the time."""
        began = time.monotonic()
        if began < self._kept:
            return
        self.folder.write(self._document(trials, search, has_ended=False))
        self._kept = time.monotonic() + 20 * (time.monotonic() - began)

    def _edited(self, storage: BaseStorage, trials: optuna.Study) -> str:
        """Note that the search starts over beside trials of another space, objectives or budget; else empty."""
        if trials.get_trials(deepcopy=False):
            return ""
        ours = f"{self.study.name}-{self.study.scale}-"
        others = [each for each in optuna.get_all_study_summaries(storage) if each.study_name.startswith(ours)]
        earlier = sum(each.n_trials for each in others if each.study_name != trials.study_name)
        return f"; the search was edited and starts over; its {earlier} earlier trials are kept" if earlier else ""

    def _close(self, trials: optuna.Study, search: Search) -> SearchResult:
        document = self._document(trials, search)
        self.folder.write(document)
        write_tables(document, self.folder)
        promoted = write_promoted(self.lab, search, self.promote) if self.promote else None
        if promoted is not None:
            left_out = f"left out of {promoted.path.name}: its space has no match for"
            self.failures += [f"{scale}: {left_out} {trials[0]}" for scale, trials in promoted.unlike.items()]
        elif self.promote:
            self.failures.append(NOTHING_TO_PROMOTE)
        failures = [*self.failures, *(f"trial {number}: {error}" for number, error in search.failed.items())]
        page = render(self.folder.path)
        path = promoted.path if promoted else None
        return SearchResult(search_found(self.folder.path), page, path, tuple(failures))

    def _document(self, trials: optuna.Study, search: Search, has_ended: bool = True) -> SearchDocument:
        journal = self.folder.journal.last_seal() if self.is_in_journal else None
        return search_document(self.lab, trials, search.done, journal, has_ended)
