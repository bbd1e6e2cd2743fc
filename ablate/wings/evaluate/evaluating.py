"""`ablate.evaluate`: one evaluation of one stored run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pydantic import ValidationError

from ablate.data import Corpus, MadeCorpus, open_corpus
from ablate.machine.environment import own_threads
from ablate.machine.numerics import restored
from ablate.planning.checks import conditions
from ablate.planning.identity import request_digest
from ablate.running.engines.inprocess import run_here
from ablate.running.progress import Wanted, open_counts
from ablate.running.request import Request
from ablate.study.complaints import complaints
from ablate.wings.evaluate.asking import named, section
from ablate.wings.named.runs import find_run
from evals.found import skipped_lines
from evals.spec import EvalSpec, EvaluationError
from store import Store, StoreError
from store.documents import EvalsDocument, JsonObject
from store.errors import ArgumentError
from store.extensions import modules_of
from store.tables import Schema
from zoo.spec import ModelSpec, parse

SCORES: Schema = {
    "task": pl.String,
    "metric": pl.String,
    **dict.fromkeys(("value", "stderr", "chance"), pl.Float64),
}


@dataclass(frozen=True)
class Scores:
    """Results of an evaluation of a run.

    Attributes:
        digest: the run's digest.
        found: scores, and a section of rows for each other evaluation.
    """

    digest: str
    found: EvalsDocument

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each task and metric: value, standard error, chance."""
        rows = [
            {"task": task, "metric": metric, "value": score.value, "stderr": score.stderr, "chance": score.chance}
            for task, metrics in self.found.scores.items()
            for metric, score in metrics.items()
        ]
        return pl.DataFrame(rows, schema=SCORES)

    @property
    def skipped(self) -> list[str]:
        """Requested tasks that were skipped, a line for each."""
        return list(skipped_lines(self.found.skipped, self.found.groups))

    def document(self) -> JsonObject:
        """The document that `ablate eval --json` prints."""
        return {"digest": self.digest, **self.found.model_dump(by_alias=True)}

    def _repr_html_(self) -> str:
        return self.frame._repr_html_()


@restored()
def evaluate(
    run: str | Path,
    *,
    tasks: Sequence[str] | None = None,
    limit: int | None = None,
    at: Mapping[str, Sequence[int]] | None = None,
    store: str | Path = "runs",
    progress: Wanted = True,
    **settings: Any,
) -> Scores:
    """Evaluate a trained run. Stored scores are not recomputed.

    Args:
        run: the digest of a run in the store, or the beginning of one, or its place in a study (`my_study/swiglu`, for
            the first seed; `my_study/swiglu/2`), or its folder; or the folder of a checkpoint, which is imported first
            (`ablate.import_model`), or the name of an imported one.
        tasks: lm-eval tasks and groups, or paths of task files; None: the project's own, unless `settings` request
            other evaluations.
        limit: maximum number of items per task, or of examples per difficulty.
        at: difficulties of a synthetic task to evaluate at, such as `{"pairs": [4, 64]}`; None: those of training.
        store: the store's folder; not needed if `run` is a folder.
        progress: True reports on standard error, False is silent, a function receives each line.
        **settings: other keys of a study's section `evals`: `positions={"multiples": [1, 2]}`, `recall=True`,
            `samples=True`, `fewshot=0`, `data={"blimp": "data/blimp"}`, `include=["tasks"]`, `batch=8`.

    Returns:
        Scores as a frame, and everything found as a document.

    Raises:
        StoreError: there is no such run, it has not finished, or it is damaged.
        CheckpointError: the folder has no model that can be opened.
        ArgumentError: a setting is unknown, has a wrong value, or does not apply to this run.

    Example:
        >>> ablate.evaluate("3f2a", tasks=["heldout_pairs", "code_names"], limit=100).frame
    """
    folder, found = Path(run), run
    if folder.is_dir() and not (folder / "run.json").exists():  # a checkpoint, which is imported first
        for wing in modules_of("ablate.evaluate"):
            found = wing.imported_first(folder, store, progress)
    place, identity = find_run(found, store)
    directory = place.data(identity.data.digest).path
    if not directory.is_dir():
        raise StoreError(f"{identity.digest}: its corpus is not in {place.data_dir}")
    corpus = open_corpus(directory)
    given = {"tasks": tasks, "limit": limit, "at": at, **settings}
    spec = asked(given, parse(identity.model), None if isinstance(corpus, Corpus) else corpus)
    request = Request(
        store=str(place.root.resolve()),
        corpus=str(corpus.directory.resolve()),
        identity=identity,
        evals=spec.model_dump(mode="json"),
        evals_digest=request_digest(spec),
        threads=own_threads(),
    )
    with open_counts(progress):
        return Scores(identity.digest, _evaluated(place, request))


def asked(settings: Mapping[str, object], model: ModelSpec, corpus: MadeCorpus | None = None) -> EvalSpec:
    """The evaluations that settings ask for, of a model on text, or on the corpus of a synthetic task. Raises
    ArgumentError if one is unknown or not possible."""
    synthetic = corpus.source if corpus else None
    source = synthetic.source if synthetic else "this run's data"
    found = conditions(synthetic, source, {"this one": model}, Path.cwd(), own_tokenizers=False)
    given = {name: value for name, value in settings.items() if value is not None and value is not False}
    try:
        wanted = section(given, found)
        return EvalSpec.model_validate(wanted).under(found)
    except EvaluationError as error:
        raise _argument_error(error.path, error.reason) from error
    except ValidationError as error:
        path, reason, _ = next(complaints(error, wanted, EvalSpec))
        raise _argument_error(".".join(path), reason) from error


def _argument_error(path: str, reason: str) -> ArgumentError:
    """The error for a key of the section `evals`; the rest of a dotted `path` is its value, unless it is an index."""
    argument, _, inside = named(path).partition(".")
    return ArgumentError(argument or "run", reason, None if inside.isdigit() else inside or None)


def _evaluated(store: Store, request: Request) -> EvalsDocument:
    wanted = str(request.evals_digest)
    stored = store.read_evals(request.digest, wanted)
    if stored is not None and not stored.skipped:  # returned before anything is written: the store may be read-only
        return stored
    store.drop_incomplete_evals(request.digest, wanted)
    run_here(request, request.identity.numerics.device)
    document = store.read_evals(request.digest, wanted)
    if document is None:
        raise RuntimeError(f"run {request.digest} has no evaluation after it was evaluated")
    return document
