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
from ablate.commands._studies import planned
from ablate.data import Corpus, DataError, prepare
from ablate.documents import study_document
from ablate.engines import Engine, EngineError, Event, Options, load
from ablate.plan import Plan
from ablate.progress import Progress, open_progress
from ablate.request import Request
from ablate.store import Store
from reports.collect import ReportError


def run_study(options: argparse.Namespace) -> int:
    """Everything, and the exit status."""
    plan, store = planned(options), Store(options.store)
    engine = _engine(options, plan)
    requests = [_request(plan, store, identity, options) for identity in _identities(plan)]
    before = {request.digest: request.missing() for request in requests}
    todo = [request for request in requests if before[request.digest]]
    _say_what_is_reused(before)
    with open_progress(store, plan.study.name, _labels(plan)) as progress:
        _prepare(plan, store, progress)
        store.write_json(store.study_path(plan.study.name, plan.study.scale), study_document(plan))
        failures = _carry_out(engine, todo, progress)
    return _close(options, plan, store, before, failures)


def _identities(plan: Plan) -> list[dict[str, Any]]:
    return [run.identity for run in plan.runs]


def _labels(plan: Plan) -> dict[str, tuple[str, int]]:
    """Arm and seed of every run."""
    return {run.digest: (run.arm, run.seed) for run in plan.runs}


def _engine(options: argparse.Namespace, plan: Plan) -> Engine:
    device = plan.runs[0].identity["numerics"]["device"]
    try:
        return load(options.engine, Options(device, options.workers))
    except EngineError as error:
        raise InputError(str(error)) from error


def _request(plan: Plan, store: Store, identity: dict[str, Any], options: argparse.Namespace) -> Request:
    return Request(
        store=str(store.root.resolve()),
        corpus=str((store.data_dir() / plan.identity.digest).resolve()),
        identity=identity,
        measure=plan.measure.model_dump(mode="json") if plan.measure else None,
        measure_digest=plan.measure_digest,
        evals=plan.evals.model_dump(mode="json") if plan.evals else None,
        evals_digest=plan.evals_digest,
        checkpoint_seconds=options.checkpoint_seconds,
    )


def _say_what_is_reused(before: dict[str, list[str]]) -> None:
    to_train = sum("train" in missing for missing in before.values())
    reused = len(before) - to_train
    more = sum(bool(missing) and "train" not in missing for missing in before.values())
    text = f"{len(before)} runs: {to_train} to train, {reused} in the store already"
    print(text + (f", of which {more} to measure or evaluate" if more else ""), file=sys.stderr)


def _prepare(plan: Plan, store: Store, progress: Progress) -> Corpus:
    try:
        return prepare(plan.data, store.data_dir(), plan.study.folder, progress.data)
    except DataError as error:
        raise InputError(str(plan.study.error("data", str(error)))) from error


def _carry_out(engine: Engine, todo: list[Request], progress: Progress) -> list[Event]:
    """Run what is missing; the runs that failed."""
    failures = []
    progress.begin(todo)
    with closing(engine.run(todo)) as events:
        for event in events:
            progress.show(event)
            if event is not None and event.kind == "failed":
                failures.append(event)
    return failures


def _close(
    options: argparse.Namespace,
    plan: Plan,
    store: Store,
    before: dict[str, list[str]],
    failures: list[Event],
) -> int:
    """Report, closing table or JSON document, and the names of the runs that failed."""
    folder = store.study_dir(plan.study.name, plan.study.scale)
    try:
        report, summary = reports.render(folder), reports.summarise(folder)
    except ReportError as error:
        raise InputError(str(error)) from error
    if options.json:
        counts = _counts(store, before, failures)
        print_json(_document(plan, report, counts, store, failures) | {"arms": summary.arm_documents()})
    else:
        print_table(reports.table(summary))
        print(report)
    labels = _labels(plan)
    for event in failures:
        arm, seed = labels[event.digest]
        where = store.error_path(event.digest)
        details = f" ({where})" if where.exists() else ""
        print(f"ablate: failed: {arm}, seed {seed}: {event.error}{details}", file=sys.stderr)
    return SOME_FAILED if failures else DONE


def _counts(store: Store, before: dict[str, list[str]], failures: list[Event]) -> dict[str, int]:
    to_train = [digest for digest, missing in before.items() if "train" in missing]
    return {
        "trained": sum(store.read_result(digest) is not None for digest in to_train),
        "reused": len(before) - len(to_train),
        "failed": len(failures),
    }


def _document(plan: Plan, report: Path, counts: dict[str, int], store: Store, failures: list[Event]) -> dict[str, Any]:
    """What `ablate run --json` prints, but for the arms."""
    failed = {event.digest for event in failures}
    return {
        "study": plan.study.name,
        "scale": plan.study.scale,
        "report": str(report),
        **counts,
        "runs": [
            {
                "digest": run.digest,
                "arm": run.arm,
                "seed": run.seed,
                "status": "failed" if run.digest in failed else store.status(run.digest),
            }
            for run in plan.runs
        ],
    }
