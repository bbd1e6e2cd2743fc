"""`ablate eval`: one evaluation request on one stored run."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.cli import DONE, SOME_FAILED, InputError
from ablate.commands import print_json, print_table
from ablate.commands._runs import find_run
from ablate.data import AnyCorpus, DataError, SyntheticCorpus, open_corpus
from ablate.data.synthetic import regraded
from ablate.machine.environment import cores
from ablate.planning.identity import request_digest
from ablate.running.engines import Options, load
from ablate.running.request import Request
from ablate.store import Store
from ablate.store.documents import EvalsDocument, JsonObject, Section
from evals.harness.known import absent, located
from evals.harness.loading import UnknownTaskError
from evals.harness.skipped import skipped_lines
from evals.reading.causal import NotCausalError, check_causal
from evals.spec import EvalSpec
from zoo.spec import parse


def evaluate_run(options: argparse.Namespace) -> int:
    store, digest = find_run(options.run, Path(options.store))
    identity = store.read_run(digest)
    if identity is None:
        raise InputError(f"{digest}: the run has no run.json")
    try:
        check_causal(parse(identity["model"]))
    except NotCausalError as error:
        raise InputError(f"{digest}: {error}") from error
    corpus = _corpus(store, digest, identity)
    spec = _diagnostics(options, corpus) if isinstance(corpus, SyntheticCorpus) else _spec(options)
    request = Request(
        store=str(store.root.resolve()),
        corpus=str(corpus.directory.resolve()),
        identity=identity,
        evals=spec.model_dump(mode="json"),
        evals_digest=request_digest(spec),
        threads=cores(),
    )
    store.drop_incomplete_evals(digest, request_digest(spec))
    try:
        for _ in load("inprocess", Options(request.identity["numerics"]["device"])).run([request]):
            pass
    except UnknownTaskError as error:
        raise InputError(str(error)) from error
    document = store.read_evals(digest, request_digest(spec))
    if document is None:
        raise RuntimeError(f"run {digest} has no evaluation after it was evaluated")
    for line in skipped_lines(document.skipped, document.groups):
        print(f"ablate: {line}", file=sys.stderr)
    if options.json:
        print_json({"digest": digest, **document.model_dump(by_alias=True)})
    else:
        if rows := _rows(document):
            print_table([("task", "metric", "value", "± standard error", "chance"), *rows])
        print("".join(_samples(document.sections.get("samples"))), end="")
    return SOME_FAILED if document.skipped else DONE


def _diagnostics(options: argparse.Namespace, corpus: SyntheticCorpus) -> EvalSpec:
    """What is asked of a run on a task that is made: its own difficulties, or those of `--at`."""
    for name in ("tasks", "include", "data", "fewshot", "positions", "recall", "samples"):
        given = getattr(options, name)
        if given is not None and given is not False:
            raise InputError(f"--{name}: needs held-out text, and {corpus.source.source} has none: see --at")
    at = _once("at", map(_difficulty, options.at or ()))
    try:
        regraded(corpus.source, at)
    except DataError as error:
        raise InputError(f"--at: {error}") from error
    examples = {} if options.limit is None else {"examples": options.limit}
    batch = {} if options.batch is None else {"batch": options.batch}
    return _validated({"tasks": [], "diagnostics": {"at": at, **examples}, **batch})


def _once(option: str, pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """What an option gives by name. Raises InputError for a name that it gives twice, of which one would be lost."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"--{option}: {name} is given twice")
        found[name] = value
    return found


def _difficulty(text: str) -> tuple[str, list[int]]:
    """`pairs=4,64`."""
    name, _, values = text.partition("=")
    try:
        return name, [int(value) for value in values.split(",")]
    except ValueError as error:
        raise InputError(f"--at {text}: expected whole numbers, as in pairs=4,64") from error


def _spec(options: argparse.Namespace) -> EvalSpec:
    if options.at is not None:
        raise InputError("--at: the run was trained on text, which has no difficulties")
    given: dict[str, Any] = {name: getattr(options, name) for name in ("include", "limit", "fewshot", "batch")}
    given["tasks"] = options.tasks and [name for names in options.tasks for name in names.split(",") if name]
    given["data"] = options.data and _once("data", options.data)
    if options.positions is not None:
        given |= {"positions": {"multiples": options.positions}, "tasks": given["tasks"] or []}
    for name in ("samples", "recall"):
        if getattr(options, name):
            given |= {name: True, "tasks": given["tasks"] or []}
    spec = _validated({key: value for key, value in given.items() if value is not None})
    found = located(spec, Path.cwd())
    for where, reason in absent(found):
        raise InputError(f"--{where.partition('.')[0]}: {reason}")
    return found


def _validated(given: dict[str, Any]) -> EvalSpec:
    try:
        return EvalSpec.model_validate(given)
    except ValidationError as error:
        raise InputError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())) from error


def _corpus(store: Store, digest: str, identity: dict[str, Any]) -> AnyCorpus:
    directory = store.data_dir() / identity["data"]["digest"]
    if not directory.is_dir():
        raise InputError(f"{digest}: its corpus is not in {store.data_dir()}")
    return open_corpus(directory)


def _rows(document: EvalsDocument) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for task, metrics in document.scores.items():
        for metric, score in metrics.items():
            numbers = (score.value, score.stderr, score.chance)
            rows.append((task, metric, *("" if n is None else f"{n:.4f}" for n in numbers)))
    return rows + [
        (*_missed(name, section, row), str(row["reason"]), "", "") for name, section, row in _refused(document)
    ]


def _refused(document: EvalsDocument) -> Iterator[tuple[str, Section, JsonObject]]:
    for name in ("positions", "recall", "diagnostics"):
        section = document.sections.get(name, Section(rows=()))
        yield from ((name, section, row) for row in section.rows if "reason" in row)


def _missed(name: str, section: Section, row: JsonObject) -> tuple[str, str]:
    """The task and the metric that a row with a reason has no score of."""
    if name != "diagnostics":
        return name, f"loss_{row['multiple']}x" + (f"_{row['extension']}" if row.get("extension") else "")
    level = row["level"] if isinstance(row["level"], dict) else {}
    return str(section.about["task"]), f"accuracy ({', '.join(f'{name} {value}' for name, value in level.items())})"


def _samples(section: Section | None) -> Iterator[str]:
    """Each prompt, and what the model wrote after it."""
    for number, row in enumerate(section.rows if section else (), 1):
        if "reason" in row:
            yield f"samples: {row['reason']}\n"
        else:
            yield f"--- {number}: prompt\n{row['prompt']}\n--- {number}: sample\n{row['sample']}\n\n"
