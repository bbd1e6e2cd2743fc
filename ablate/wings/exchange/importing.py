"""`ablate.import_model`: a model trained elsewhere, measured and evaluated like runs that were trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.api.public import Dtype
from ablate.api.study_argument import StudyLike, refuse_code
from ablate.data import Corpus
from ablate.machine.environment import own_threads
from ablate.machine.numerics import enforce, pick_device, restored
from ablate.planning.checks import evaluated
from ablate.planning.identity import request_digest
from ablate.running.engines.inprocess import run_here
from ablate.running.progress import Wanted, open_counts
from ablate.running.request import Request
from ablate.study.written import Sets
from ablate.training.execution import Count
from ablate.wings.evaluate.evaluating import Scores, evaluate
from ablate.wings.evaluate.evaluating import asked as evaluations
from ablate.wings.exchange.import_request import ImportSettings, import_run, import_settings, remember_import
from ablate.wings.starts.checkpoints import Checkpoint
from evals.conventions import Bos
from store import Store
from store.documents import JsonObject, MeasureDocument, ResultDocument, RunDocument
from zoo.spec import parse as parse_model


@dataclass(frozen=True)
class Imported:
    """A model of the store that was trained elsewhere.

    Attributes:
        name: the model's name in reports, which other functions accept in place of the run's digest.
        digest: the digest of the model's run.
        result: loss on held-out text, and size.
        measured: speed, memory and cache; None if they were not measured.
        scores: results of evaluations; None if there are none.
        store: the folder of the store.
    """

    name: str
    digest: str
    result: ResultDocument
    measured: MeasureDocument | None
    scores: Scores | None
    store: Path

    def document(self) -> JsonObject:
        """The document that `ablate import --json` prints."""
        known = self.result.model_dump(include={"parameters", "loss", "bits_per_byte", "flops_per_token"})
        measured = self.measured.model_dump(by_alias=True) if self.measured else None
        evals = self.scores.document() if self.scores else None
        return {"name": self.name, "digest": self.digest, **known, "measured": measured, "evals": evals}


@restored()
def import_model(
    directory: str | Path,
    *,
    name: str | None = None,
    study: StudyLike | None = None,
    scale: str | None = None,
    sets: Sets = (),
    text: Sequence[str] = (),
    context: Count | None = None,
    measure: bool | Mapping[str, object] = True,
    dtype: Dtype = "float32",
    device: str | None = None,
    bos: Bos | None = None,
    store: str | Path = "runs",
    progress: Wanted = True,
    allow_code: bool = False,
    **settings: Any,
) -> Imported:
    """Bring in a model trained elsewhere as a run: its loss on held-out text, serving costs, and evaluations.

    The store's reports show the model along with the runs trained here. It is not judged against any of them, since it
    was trained on other data with another budget. Stored results are not recomputed.

    Args:
        directory: a folder written by transformers, peft or `zoo.save`, or the folder of a run.
        name: the model's name in reports; None: the folder's name.
        study, scale, sets: a study whose text, context, measurements and evaluations are used, with the model's own
            tokenizer, so that its numbers can be read next to those of the study's arms.
        text: text files, instead of a study's text, given as in `data.paths` of a study. If neither is given, the text
            is Python's standard library.
        context: tokens per window; None: the study's, or 1,024 or the number of the model's positions if that is less.
        measure: settings of a study's section `measure`; False measures nothing.
        dtype: `float32`, or `bfloat16` for autocast over float32 weights.
        device: `cpu` or `cuda`; None: `cuda` if there is a GPU.
        bos: whether texts, and windows of held-out text, begin with a BOS: `on` or `off`; None: as the study's
            `evals.bos` says, or as the model's own tokenizer does.
        store: the store's folder; created if it is missing.
        progress: True reports on standard error, False is silent, a function receives each line.
        allow_code: allow the study's lm-eval task files to run code, as in `ablate.run`.
        **settings: evaluations, as in `ablate.evaluate`; by default those of the study, or the loss by position.

    Returns:
        The model's name and run, with loss, measurements and scores.

    Raises:
        CheckpointError: the folder has no causal language model that can be opened.
        ArgumentError: an argument cannot be used.
        DataError, StudyError: the text cannot be read.

    Example:
        >>> ablate.import_model("checkpoints/SmolLM2-135M", study="norm_placement").result.bits_per_byte
    """
    where, place = device or pick_device(), Store(store)
    checkpoint = Checkpoint.at(directory, Path())
    asked = import_settings(checkpoint, study, scale, sets, text, context, measure, where, bos=bos)
    if asked.study is not None:
        refuse_code(asked.study, allow_code)
    wanted = {**(settings or {"positions": {"multiples": [1]}}), "bos": asked.bos}
    evaluations(wanted, checkpoint.spec)  # refused before anything is written
    own = name or Path(directory).resolve().name
    run, corpus = import_run(place, checkpoint, own, asked, enforce(where, dtype, own_threads()), progress)
    request = _request(place, corpus, run, asked, measured=measure is not False, own=not settings)
    with open_counts(progress):
        run_here(request, where)
    remember_import(place, own, directory, run, request.measure_digest)
    result = place.read_result(run.digest)
    assert result is not None  # it was just written
    measured = place.read_measure(run.digest, request.measure_digest) if request.measure_digest else None
    if request.evals_digest:
        found = place.read_evals(run.digest, request.evals_digest)
        scores = Scores(run.digest, found) if found else None
    else:
        scores = evaluate(run.digest, store=place.root, progress=progress, **wanted)
    return Imported(own, run.digest, result, measured, scores, place.root)


def _request(
    store: Store, corpus: Corpus, run: RunDocument, asked: ImportSettings, measured: bool, own: bool
) -> Request:
    """The request for measurements and evaluations. own: request the study's evaluations, if there is a study."""
    evals = evaluated(asked.study, {"the imported model": parse_model(run.model)}) if asked.study and own else None
    if evals is not None:
        evals = evals.model_copy(update={"bos": asked.bos})
    return Request(
        store=str(store.root.resolve()),
        corpus=str(corpus.directory.resolve()),
        identity=run,
        measure=asked.measure.model_dump(mode="json") if measured else None,
        measure_digest=request_digest(asked.measure) if measured else None,
        evals=evals.model_dump(mode="json") if evals else None,
        evals_digest=request_digest(evals) if evals else None,
        threads=own_threads(),
    )
