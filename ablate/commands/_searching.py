"""`ablate search`: space → trials → runs → search.json → report."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage

import reports
from ablate.cli import DONE, SOME_FAILED, InputError
from ablate.commands import print_json, print_table
from ablate.commands._running import load_engine, prepare_data, request_of
from ablate.commands._studies import Asked, asked, refuse_namesake
from ablate.running.engines import Engine
from ablate.running.progress import Lines
from ablate.searching.laboratory import StudyLaboratory
from ablate.searching.promotion import promote
from ablate.searching.samplers import MissingPackageError, ended, make_pruner, make_sampler
from ablate.searching.search import Search
from ablate.searching.search_document import search_digest, search_document, write_tables
from ablate.searching.storage import Owner, StorageError, close_storage, open_storage
from ablate.store import read_json
from ablate.study.search_spec import SearchSpec
from ablate.study.study import StudyError

BEST = ("number", "settings", "values", "runs")
"""What `--json` says of the best trials."""


def search_study(options: argparse.Namespace) -> int:
    """Everything, and the exit status."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    this = asked(options)
    if this.study.search is None:
        raise InputError(f"{options.study}: has no search: nothing says what may vary")
    try:
        return _Searching(options, this, this.study.search).run()
    except (StudyError, StorageError, MissingPackageError) as error:
        raise InputError(str(error)) from error


class _Searching:
    """One study's search, from the command line to the report."""

    def __init__(self, options: argparse.Namespace, this: Asked, spec: SearchSpec) -> None:
        self.options, self.this, self.spec = options, this, spec
        self.store = this.store
        self.lab = StudyLaboratory(
            this.study, this.plan, this.store, lambda plan, run: request_of(plan, this.store, run, options)
        )
        self.lab.check()
        self.failures: list[str] = []
        self.folder = this.store.search_dir(this.study.name, this.study.scale)
        refuse_namesake(this.study, read_json(self.folder / "search.json"), this.store)

    def run(self) -> int:
        storage = open_storage(self.options.storage, self.folder)
        try:
            return self._search(self._open(storage))
        finally:
            close_storage(storage)

    def _search(self, study: optuna.Study) -> int:
        engine, owner = load_engine(self.options, self.this.device), Owner(self.folder)
        seed = owner.seed(study)
        study.sampler, study.pruner = make_sampler(self.spec, seed), make_pruner(self.spec)
        progress = Lines(self.store, self.this.study.name, {})
        progress.say(f"{self.spec.trials} trials, {_count_ended(study)} of them done already")
        prepare_data(self.this.study, self.store, progress)
        search = Search(study, self.spec, self.lab, owner, seed, progress.say)
        with _quiet():
            search.run(engine)
            if self.options.promote:
                self._train_base(engine, progress)
        return self._close(study, search)

    def _train_base(self, engine: Engine, progress: Lines) -> None:
        """The base with the seeds of trials, as a control of what fresh seeds do."""
        missing = [request for request in self.lab.control().requests if request.missing()]
        if missing:
            progress.say(f"{self.this.study.baseline}: trained with the seeds of trials, to compare with fresh ones")
        with closing(engine.run(missing)) as events:
            for event in events:
                if event is not None and event.kind == "failed":
                    self.failures.append(f"{self.this.study.baseline}: {event.error}")

    def _open(self, storage: BaseStorage) -> optuna.Study:
        name = f"{self.this.study.name}-{self.this.study.scale}-{search_digest(self.lab)}"
        return optuna.create_study(
            storage=storage,
            study_name=name,
            directions=list(self.spec.objectives.values()),
            load_if_exists=True,
        )

    def _close(self, study: optuna.Study, search: Search) -> int:
        promoted = None
        if self.options.promote:
            promoted = promote(self.lab, search, self.options.promote)
        document = search_document(self.lab, study, search.done)
        self.store.write_json(self.folder / "search.json", document)
        write_tables(document, self.folder)
        report = reports.render_search(self.folder)
        if self.options.json:
            print_json(_summary(document, report, promoted))
        else:
            print_table(reports.search_table(self.folder), text_columns=2)
            print(report)
            if promoted:
                print(f"fresh seeds: {self._command(promoted)}")
        self.failures += [f"trial {number}: {error}" for number, error in search.failed.items()]
        for failure in self.failures:
            print(f"ablate: failed: {failure}", file=sys.stderr)
        return SOME_FAILED if self.failures else DONE

    def _command(self, promoted: Path) -> str:
        sets = [f" --set '{text}'" for text in self.options.set if not text.startswith("search.")]
        return f"ablate run {promoted} --scale {self.this.study.scale} --store {self.options.store}" + "".join(sets)


def _count_ended(study: optuna.Study) -> int:
    return sum(map(ended, study.get_trials(deepcopy=False)))


def _summary(document: dict[str, Any], report: Path, promoted: Path | None) -> dict[str, Any]:
    states = [trial["state"] for trial in document["trials"]]
    return {
        "study": document["name"],
        "scale": document["scale"],
        "report": str(report),
        "promoted": str(promoted) if promoted else None,
        "trials": {state: states.count(state) for state in sorted(set(states))},
        "illegal": document["illegal"],
        "best": [{key: trial[key] for key in BEST} for trial in document["trials"] if trial["best"]],
    }


@contextmanager
def _quiet() -> Iterator[None]:
    """Optuna's samplers log what they think of the space; the report says what matters."""
    logger = logging.getLogger("optuna")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
