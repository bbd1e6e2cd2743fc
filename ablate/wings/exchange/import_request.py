"""Import of a model that was trained elsewhere: its held-out text, and its run in the store."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from ablate.api.study_argument import StudyLike
from ablate.data import Corpus, prepare
from ablate.data.sources import TextSource, parse
from ablate.machine.environment import describe, own_threads
from ablate.machine.numerics import Numerics, enforce, pick_device
from ablate.planning.identity import canonical_model, digest_of_seed
from ablate.planning.plan import training_cost
from ablate.readable import now
from ablate.running.progress import Wanted, open_progress, teller
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.training.reader import TrainingReader, score
from ablate.training.spec import TrainSpec
from ablate.training.trained import keep_published, keep_trained
from ablate.wings.starts.checkpoints import Checkpoint, CheckpointError
from evals.conventions import Bos, TrainedConventions
from evals.costs import peaks
from evals.costs.memory import peak_memory
from evals.costs.spec import MeasureSpec
from evals.reading.passes import obstacle
from evals.spec import EvalSpec
from store import Store
from store.documents import GradNorm, ImportDocument, ResultDocument, RunData, RunDocument
from store.errors import ArgumentError
from zoo.errors import SpecError
from zoo.settings.explain import checked
from zoo.spec import longest_text

TOKENS_AT_ONCE = 4096
"""Tokens of a forward pass."""


def imported_run(
    checkpoint: Checkpoint, corpus: Corpus, context: int, numerics: Numerics, bos: Bos = "auto"
) -> RunDocument:
    """The identity of an imported run, determined by weights, text, BOS, context and numerics.

    Raises CheckpointError if the model is not causal, its maximum length is below the context, or its vocabulary is
    smaller than the tokenizer's.
    """
    spec, how = checkpoint.spec, checkpoint.read_as_published(bos)
    begins = (how or TrainedConventions(Tokenizer.from_file(str(corpus.tokenizer_path)), corpus.eos, bos)).before
    longest = longest_text(spec)
    if reason := obstacle(spec):
        raise CheckpointError(f"{checkpoint.folder} {reason}: only causal models can be imported")
    if longest is not None and context - 1 + max(1, len(begins)) > longest:
        raise CheckpointError(
            f"{checkpoint.folder} has positions for {longest:,} tokens: a context of {context:,} is too long"
        )
    if corpus.vocab_size > spec.vocab_size:
        sizes = f"{corpus.vocab_size:,} tokens, but the model {spec.vocab_size:,}"
        raise CheckpointError(f"{checkpoint.folder}: the tokenizer has {sizes}: it belongs to another model")
    train = TrainSpec(context=context, batch=max(1, TOKENS_AT_ONCE // context))
    run = RunDocument(
        digest="",
        seed=0,
        model=canonical_model(spec),
        train=train.model_dump(mode="json"),
        steps=0,
        data=RunData(digest=corpus.digest),
        numerics=numerics.identity(),
        imported=checkpoint.digest,
        conventions=checkpoint.conventions,
        begins=begins,
    )
    return run.model_copy(update={"digest": digest_of_seed(run, spec, train)(run.seed)})


def store_imported(store: Store, checkpoint: Checkpoint, run: RunDocument, corpus: Corpus, numerics: Numerics) -> None:
    """Score held-out text with the model, and store model and loss, unless the run is finished already.

    Raises CheckpointError.
    """
    with store.claim(run.digest):
        if store.status(run.digest) == "finished":
            return
        store.write_run(run)
        began, started = time.perf_counter(), now()
        model = checkpoint.load().to(numerics.device).float()
        train = TrainSpec.of(run)
        with peak_memory(numerics.device) as memory:
            reader = TrainingReader(corpus, train, model.spec.vocab_size, run.seed, numerics.device)
            found = score(model, reader.held_out(run.reads).after(run.begins), numerics.autocast)
        keep_trained(store, run.digest, model.eval(), corpus.tokenizer_path)
        if run.conventions is not None:
            keep_published(store, run.digest, checkpoint.published)
        seconds = time.perf_counter() - began
        cost = training_cost(train, checkpoint.spec, (train.context,))
        result = ResultDocument(
            digest=run.digest,
            status="finished",
            steps=0,
            tokens=0,
            train_seconds=0.0,
            wall_seconds=seconds,
            loss=found.nats,
            bits_per_byte=found.bits_per_byte,
            loss_spike_steps=(),
            grad_norm=GradNorm(median=None, max=None, spikes=0),
            # Fields that describe training are empty.
            reason=None,
            accuracy=None,
            floor=None,
            judging_loss=None,
            judging_bits_per_byte=None,
            start_loss=None,
            train_loss=None,
            tokens_per_second=None,
            loss_spikes=None,
            mfu=None,
            matmul_flops_per_second=peaks.peak_flops_per_second(numerics.device, numerics.torch_dtype),
            peak_memory_bytes=memory.bytes,
            peak_memory_source=memory.source,
            parameters=cost.params,
            parameters_embedding=cost.params_embedding,
            flops_per_token=cost.flops_per_token,
            flops=0.0,
            environment=describe(numerics.device, own_threads()),
            started=started,
            finished=now(),
        )
        store.write_result(result, found.items)


CONTEXT = 1024
"""Longest default context, in tokens."""
HELD_OUT = 0.9
"""Held-out share of a user's own text: nothing is trained on the rest."""
TOKENS = 16_384
"""Number of held-out tokens, unless a study sets it."""


@dataclass(frozen=True)
class ImportSettings:
    """The text, measurements and conventions for an imported model, from a study or from arguments."""

    source: TextSource
    folder: Path
    context: int
    measure: MeasureSpec
    study: Study | None = None
    bos: Bos = "auto"


def remember_import(
    store: Store, name: str, directory: str | Path, run: RunDocument, measure: str | None = None
) -> None:
    """Record which run in the store is the model in a folder."""
    created = now()
    folder = str(Path(directory).resolve())
    store.write_import(ImportDocument(name=name, folder=folder, run=run.digest, measure=measure, created=created))


def imported_first(directory: Path, root: str | Path, progress: Wanted) -> str:
    """The digest of a checkpoint's run. If the store has no current one under the folder's name, report that and import
    the checkpoint first.

    Raises the errors of `import_model`.
    """
    place, name, checkpoint = Store(root), directory.resolve().name, Checkpoint.at(directory, Path())
    found = place.read_import(name)
    before = place.read_run(found.run) if found else None
    how = checkpoint.read_as_published()
    known = (checkpoint.digest, checkpoint.conventions, how.before if how else ())
    if before is not None and (before.imported, before.conventions, before.begins) == known:
        return before.digest
    asked = import_settings(checkpoint, None, None, (), (), None, True, pick_device())
    text = "Python's standard library (choose another with `ablate import DIR --text` or `--study`)"
    teller(progress)(f"importing {name} first; held-out text: {text}")
    run, _ = import_run(place, checkpoint, name, asked, enforce(pick_device(), "float32", own_threads()), progress)
    remember_import(place, name, directory, run)
    return run.digest


def import_run(
    store: Store, checkpoint: Checkpoint, name: str, asked: ImportSettings, numerics: Numerics, progress: Wanted
) -> tuple[RunDocument, Corpus]:
    """Import a model, unless the store has its finished run. Returns its run and corpus. Raises ArgumentError."""
    with open_progress(store, name, {}, progress) as shown:
        corpus = prepare(asked.source, store.data_dir, asked.folder, shown.data, asked.context)
    assert isinstance(corpus, Corpus)  # the source is text
    run = imported_run(checkpoint, corpus, asked.context, numerics, asked.bos)
    found = store.read_import(name)
    before = store.read_run(found.run) if found else None
    if found and before and before.imported != run.imported:
        reason = f"the store has another model of this name, from {found.folder}: import this one under another name"
        raise ArgumentError("name", reason, name)
    if store.status(run.digest) != "finished":
        reading = f"{name}: reading held-out text" + (", with its BOS before every window" if run.begins else "")
        for line in (*checkpoint.receipt, *corpus.meta.receipt, reading):
            teller(progress)(line)
        if checkpoint.published and run.conventions is None:
            said = "transformers cannot read its tokenizer, so tasks are evaluated without a BOS"
            teller(progress)(f"{name}: {said}")
    store_imported(store, checkpoint, run, corpus, numerics)
    return run, corpus


def import_settings(
    checkpoint: Checkpoint,
    study: StudyLike | None,
    scale: str | None,
    sets: Sets,
    text: Sequence[str],
    context: int | None,
    measure: bool | Mapping[str, object],
    device: str,
    *,
    bos: object = None,
) -> ImportSettings:
    if checkpoint.tokenizer is None:
        raise CheckpointError(f"{checkpoint.without_tokenizer}: an import needs a tokenizer")
    given, begins = _measure(measure), _bos(bos)
    if study is None:
        if sets or scale:
            raise ArgumentError("sets" if sets else "scale", "needs a study")
        own = _own_text(checkpoint, text)
        context = context or min(CONTEXT, longest_text(checkpoint.spec) or CONTEXT)
        return ImportSettings(own, Path(), context, given or MeasureSpec(), bos=begins or "auto")
    if text:
        raise ArgumentError("text", "cannot be combined with a study, which has its own text")
    found = load_study(study, scale, sets, device=device)
    if not isinstance(found.data, TextSource):
        raise ArgumentError("study", f"needs text, but its data, {found.data.source}, is a synthetic task", found.name)
    source = found.data.tokenised_by(_own_text(checkpoint, ()).tokenizer)
    wanted = given or found.measure or MeasureSpec()
    begins = begins or (found.evals.bos if found.evals else "auto")
    return ImportSettings(source, found.folder, context or found.train.context, wanted, found, begins)


def _own_text(checkpoint: Checkpoint, text: Sequence[str]) -> TextSource:
    """The given files, or else Python's standard library, with the checkpoint's tokenizer."""
    source = {"source": "files", "paths": list(text), "validation_fraction": HELD_OUT} if text else {"source": "stdlib"}
    found = parse({**source, "validation_tokens": TOKENS, "tokenizer": checkpoint.tokenizer})
    assert isinstance(found, TextSource)
    return found


def _bos(given: object) -> Bos | None:
    try:
        return None if given is None else checked(EvalSpec, {"bos": given}).bos
    except SpecError as error:
        raise ArgumentError("bos", error.reason) from error


def _measure(settings: bool | Mapping[str, object]) -> MeasureSpec | None:
    if isinstance(settings, bool):
        return None
    try:
        return checked(MeasureSpec, settings)
    except SpecError as error:
        raise ArgumentError("measure", error.reason, error.path) from error
