"""`ablate.import_model`: a checkpoint of one's own, measured and evaluated beside runs that were trained here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ablate.api.allowing import refuse_code
from ablate.api.evaluating import Scores, evaluate
from ablate.api.questions import StudyLike, read
from ablate.checkpoints import Checkpoint, CheckpointError
from ablate.data import Corpus, prepare
from ablate.data.sources import TextSource
from ablate.data.spec import parse
from ablate.errors import ArgumentError
from ablate.machine.environment import cores
from ablate.machine.numerics import Numerics, enforce, pick_device, restored
from ablate.planning.checks import evaluated
from ablate.planning.identity import request_digest
from ablate.running.engines import Options, load
from ablate.running.importing import imported_run, take_in
from ablate.running.progress import Wanted, open_progress
from ablate.running.request import Request
from ablate.store import Store
from ablate.store.documents import ImportDocument, JsonObject, MeasureDocument, ResultDocument, RunDocument
from ablate.study.study import Study
from ablate.study.written import Sets
from evals.costs.spec import MeasureSpec
from zoo.costs import longest_text
from zoo.errors import SpecError
from zoo.explain import checked
from zoo.spec import parse as parse_model

CONTEXT = 1024
"""The longest context, unless it is given."""
HELD_OUT = 0.9
"""Share of one's own text that is held out: nothing is trained on the rest."""
TOKENS = 16_384
"""Of the held-out text that are read, unless a study says."""


@dataclass(frozen=True)
class Imported:
    """A model of the store that was trained elsewhere.

    Attributes:
        name: in reports, and wherever a run is asked for.
        digest: of its run.
        result: its loss on held-out text, and its size.
        measured: speed, memory and cache; None where they were not measured.
        scores: of evaluations; None where there are none.
        store: the folder of the store.
    """

    name: str
    digest: str
    result: ResultDocument
    measured: MeasureDocument | None
    scores: Scores | None
    store: Path

    def document(self) -> JsonObject:
        """What `ablate import --json` prints."""
        known = self.result.model_dump(include={"parameters", "loss", "bits_per_byte", "flops_per_token"})
        measured = self.measured.model_dump(by_alias=True) if self.measured else None
        evals = self.scores.document() if self.scores else None
        return {"name": self.name, "digest": self.digest, **known, "measured": measured, "evals": evals}


@dataclass(frozen=True)
class _Asked:
    """What an imported model is read on and asked, from a study or from arguments."""

    source: TextSource
    folder: Path
    context: int
    measure: MeasureSpec
    study: Study | None = field(default=None)


@restored()
def import_model(
    directory: str | Path,
    *,
    name: str | None = None,
    study: StudyLike | None = None,
    scale: str | None = None,
    sets: Sets = (),
    text: Sequence[str] = (),
    context: int | None = None,
    measure: bool | Mapping[str, object] = True,
    dtype: str = "float32",
    device: str | None = None,
    store: str | Path = "runs",
    progress: Wanted = True,
    allow_code: bool = False,
    **settings: Any,
) -> Imported:
    """Make a run of a model that was trained elsewhere: its loss on held-out text, serving costs, and evaluations.

    It stands in the reports of the store beside the runs that were trained here. It is judged against none of them,
    since it saw other data and spent another budget. What the store has is not computed again.

    Args:
        directory: a folder as transformers, peft or `zoo.save` writes it, or that of a run.
        name: in reports; None: the folder's own.
        study, scale, sets: a study whose text, context, measurements and evaluations are taken over, with the model's
            own tokenizer, so that its numbers stand beside those of the study's arms.
        text: files of text in place of a study's, as `data.paths` of a study names them. Without either it is the
            standard library of Python.
        context: tokens of a window; None: the study's, or 1,024, or what the model has positions for.
        measure: settings of a study's section `measure`; False measures nothing.
        dtype: `float32`, or `bfloat16` for autocast over float32 weights.
        device: `cpu` or `cuda`; None: `cuda` where there is a GPU.
        store: the store's folder; created if it is missing.
        progress: True reports on standard error, False is silent, a function receives each line.
        allow_code: let lm-eval task files that the study names run, as in `ablate.run`.
        **settings: evaluations, as `ablate.evaluate` takes them; without any those of the study, or the loss by
            position.

    Returns:
        Its name, its run, and what was found.

    Raises:
        CheckpointError: the folder is no causal language model that can be opened.
        ArgumentError: an argument cannot be used.
        DataError, StudyError: the text cannot be read.

    Example:
        >>> ablate.import_model("checkpoints/SmolLM2-135M", study="norm_placement").result.bits_per_byte
    """
    where, place = device or pick_device(), Store(store)
    checkpoint = Checkpoint.at(directory, Path())
    asked = _asked(checkpoint, study, scale, sets, text, context, measure, where)
    if asked.study is not None:
        refuse_code(asked.study, place, allow_code)
    own = name or Path(directory).resolve().name
    run, corpus = _brought_in(place, checkpoint, own, asked, enforce(where, dtype, cores()), progress)
    request = _request(place, corpus, run, asked, measured=measure is not False, own=not settings)
    for _ in load("inprocess", Options(where)).run([request]):
        pass
    folder, measured = str(Path(directory).resolve()), request.measure_digest
    place.write_import(ImportDocument(name=own, folder=folder, run=run.digest, measure=measured, created=_now()))
    return _imported(place, own, run, request, settings)


def brought_in(directory: Path, root: str | Path) -> str:
    """The digest of a model's run, which is made first where the store has none under the folder's name.

    Raises as `import_model` does.
    """
    place, name, checkpoint = Store(root), directory.resolve().name, Checkpoint.at(directory, Path())
    found = place.read_import(name)
    before = place.read_run(found.run) if found else None
    if before is not None and before.imported == checkpoint.digest:
        return before.digest
    asked = _asked(checkpoint, None, None, (), (), None, True, pick_device())
    run, _ = _brought_in(place, checkpoint, name, asked, enforce(pick_device(), "float32", cores()), False)
    folder = str(directory.resolve())
    place.write_import(ImportDocument(name=name, folder=folder, run=run.digest, created=_now()))
    return run.digest


def _brought_in(
    store: Store, checkpoint: Checkpoint, name: str, asked: _Asked, numerics: Numerics, progress: Wanted
) -> tuple[RunDocument, Corpus]:
    with open_progress(store, name, {}, progress) as shown:
        corpus = prepare(asked.source, store.data_dir, asked.folder, shown.data)
    assert isinstance(corpus, Corpus)  # of a text source
    run = imported_run(checkpoint, corpus, asked.context, numerics)
    _refuse_namesake(store, name, run)
    take_in(store, checkpoint, run, corpus, numerics)
    return run, corpus


def _asked(
    checkpoint: Checkpoint,
    study: StudyLike | None,
    scale: str | None,
    sets: Sets,
    text: Sequence[str],
    context: int | None,
    measure: bool | Mapping[str, object],
    device: str,
) -> _Asked:
    if checkpoint.tokenizer is None:
        raise CheckpointError(f"{checkpoint.folder} has no tokenizer.json, so no text can be read with it")
    given = _measure(measure)
    if study is None:
        if sets or scale:
            raise ArgumentError("sets" if sets else "scale", "belongs to a study: name one")
        return _Asked(_own_text(checkpoint, text), Path(), context or _context(checkpoint), given or MeasureSpec())
    if text:
        raise ArgumentError("text", "the text is the study's: leave out one of the two")
    found = read(study, scale, sets, device)
    if not isinstance(found.data, TextSource):
        raise ArgumentError("study", f"{found.name} has no text: {found.data.source} is a synthetic task")
    source = found.data.model_copy(update={"tokenizer": _own_text(checkpoint, ()).tokenizer})
    wanted = given or found.measure or MeasureSpec()
    return _Asked(source, found.folder, context or found.train.context, wanted, found)


def _own_text(checkpoint: Checkpoint, text: Sequence[str]) -> TextSource:
    """The files, or the standard library, in the checkpoint's own tokens."""
    source = {"source": "files", "paths": list(text), "validation_fraction": HELD_OUT} if text else {"source": "stdlib"}
    found = parse({**source, "validation_tokens": TOKENS, "tokenizer": checkpoint.tokenizer})
    assert isinstance(found, TextSource)
    return found


def _context(checkpoint: Checkpoint) -> int:
    return min(CONTEXT, longest_text(checkpoint.spec) or CONTEXT)


def _measure(settings: bool | Mapping[str, object]) -> MeasureSpec | None:
    if isinstance(settings, bool):
        return None
    try:
        return checked(MeasureSpec, settings)
    except SpecError as error:
        raise ArgumentError("measure", error.reason, error.path) from error


def _refuse_namesake(store: Store, name: str, run: RunDocument) -> None:
    """Raise ArgumentError where another model has the name."""
    found = store.read_import(name)
    before = store.read_run(found.run) if found else None
    if found and before and before.imported != run.imported:
        reason = f"the store has another model of this name, from {found.folder}: import this one under another name"
        raise ArgumentError("name", reason, name)


def _request(store: Store, corpus: Corpus, run: RunDocument, asked: _Asked, measured: bool, own: bool) -> Request:
    """own: whether it is evaluated as the study says, where there is one."""
    evals = evaluated(asked.study, {"the imported model": parse_model(run.model)}) if asked.study and own else None
    return Request(
        store=str(store.root.resolve()),
        corpus=str(corpus.directory.resolve()),
        identity=run,
        measure=asked.measure.model_dump(mode="json") if measured else None,
        measure_digest=request_digest(asked.measure) if measured else None,
        evals=evals.model_dump(mode="json") if evals else None,
        evals_digest=request_digest(evals) if evals else None,
        threads=cores(),
    )


def _imported(store: Store, name: str, run: RunDocument, request: Request, settings: Mapping[str, Any]) -> Imported:
    result = store.read_result(run.digest)
    assert result is not None  # it was just written
    measured = store.read_measure(run.digest, request.measure_digest) if request.measure_digest else None
    if request.evals_digest:
        found = store.read_evals(run.digest, request.evals_digest)
        scores = Scores(run.digest, found) if found else None
    else:
        scores = evaluate(run.digest, store=store.root, **(settings or {"positions": {"multiples": [1]}}))
    return Imported(name, run.digest, result, measured, scores, store.root)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
