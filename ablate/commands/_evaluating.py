"""`ablate eval`: one evaluation request on one stored run."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablate.cli import DONE, SOME_FAILED, InputError
from ablate.commands import print_json, print_table
from ablate.commands._runs import find_run
from ablate.engines import Options, load
from ablate.environment import cores
from ablate.identity import request_digest
from ablate.request import Request
from ablate.store import Store
from evals.known import absent, located
from evals.loading import UnknownTaskError
from evals.spec import EvalSpec


def evaluate_run(options: argparse.Namespace) -> int:
    store, digest = find_run(options.run, Path(options.store))
    spec = _spec(options)
    request = _request(store, digest, spec)
    store.drop_incomplete_evals(digest, request_digest(spec))
    try:
        for _ in load("inprocess", Options(request.identity["numerics"]["device"])).run([request]):
            pass
    except UnknownTaskError as error:
        raise InputError(str(error)) from error
    document = store.read_evals(digest, request_digest(spec))
    if document is None:
        raise RuntimeError(f"run {digest} has no evaluation after it was evaluated")
    skipped = document.get("skipped", {})
    for task, reason in skipped.items():
        print(f"ablate: {task} is skipped: {reason}", file=sys.stderr)
    if options.json:
        print_json({"digest": digest, **document})
    else:
        print_table(_rows(document))
    return SOME_FAILED if skipped else DONE


def _spec(options: argparse.Namespace) -> EvalSpec:
    given: dict[str, Any] = {name: getattr(options, name) for name in ("include", "limit", "fewshot", "batch")}
    given["tasks"] = options.tasks and [name for names in options.tasks for name in names.split(",") if name]
    given["data"] = options.data and dict(options.data)
    if options.positions is not None:
        given |= {"positions": {"multiples": options.positions}, "tasks": given["tasks"] or []}
    try:
        spec = EvalSpec.model_validate({key: value for key, value in given.items() if value is not None})
    except ValidationError as error:
        raise InputError("; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())) from error
    found = located(spec, Path.cwd())
    for where, reason in absent(found):
        raise InputError(f"--{where.partition('.')[0]}: {reason}")
    return found


def _request(store: Store, digest: str, spec: EvalSpec) -> Request:
    identity = store.read_run(digest)
    if identity is None:
        raise InputError(f"{digest}: the run has no run.json")
    corpus = store.data_dir() / identity["data"]["digest"]
    if not corpus.is_dir():
        raise InputError(f"{digest}: its corpus is not in {store.data_dir()}")
    return Request(
        store=str(store.root.resolve()),
        corpus=str(corpus.resolve()),
        identity=identity,
        evals=spec.model_dump(mode="json"),
        evals_digest=request_digest(spec),
        threads=cores(),
    )


def _rows(document: dict[str, Any]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("task", "metric", "value", "± standard error", "chance")]
    for task, metrics in document["tasks"].items():
        for metric, score in metrics.items():
            numbers = (score["value"], score["stderr"], score["chance"])
            rows.append((task, metric, *("" if n is None else f"{n:.4f}" for n in numbers)))
    for window in document.get("positions", {}).get("windows", ()):
        if "reason" in window:
            rows.append(("positions", f"loss_{window['multiple']}x", window["reason"], "", ""))
    return rows
