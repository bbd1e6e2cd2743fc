"""Phases of one run in a worker: train, measure, evaluate. Each phase ends by writing its document to the store.

The libraries of all phases are always loaded, even for a single phase: they count in a process's memory, and runs with
and without evaluation must be comparable.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from ablate.data import Corpus, open_corpus
from ablate.machine.environment import describe
from ablate.machine.numerics import Numerics, enforce_as
from ablate.planning.plan import training_cost
from ablate.readable import instant, now
from ablate.running.request import Request
from ablate.training.batch import ALONE, ProcessGroup
from ablate.training.result import model_flop_utilisation, summarise_metrics
from ablate.training.session import Session, TrainOutcome
from ablate.training.spec import TrainSpec
from ablate.training.stop import Interrupted, StopSignal
from ablate.training.trained import conventions_of, keep_trained, trained_model, trained_tokenizer
from evals.conventions import Bos
from evals.costs import speed
from evals.costs.clock import Sensors, Waiting, waiting, watched
from evals.costs.devices import published_flops_per_second
from evals.costs.memory import PeakMemory, forget, peak_memory, take_share
from evals.costs.peaks import recent_peak_flops_per_second
from evals.costs.spec import MeasureSpec
from evals.evaluations import load_imports
from evals.found import listening
from evals.reading.windows import Text
from evals.spec import EvalSpec, evaluate_all
from evals.subject import HeldOutText, Subject, SyntheticTask
from store import Store, checksum, stamps
from store.claims import FolderClaim
from store.documents import ResultDocument
from store.documents.result import SharedSteps
from store.documents.run import Count
from store.extensions import module_of, modules_of
from zoo.errors import PluginError
from zoo.settings.registry import changed

LOG = logging.getLogger(__name__)

# Evaluation of a trained model on tasks and diagnostics.


def evaluate(request: Request, numerics: Numerics) -> None:
    """Evaluate the model of a trained run, and store scores and samples."""
    store, spec = Store(request.store), EvalSpec.model_validate(request.evals)
    model = trained_model(store, request.digest, numerics.device)
    subject = Subject(
        model,
        context=TrainSpec.of(request.identity).context,
        batch=spec.batch,
        seed=spec.seed,
        answers=store.answers_path(request.digest),
        sums=checksum.of_file(store.model_dir(request.digest) / stamps.NAME),
    )
    began = time.monotonic()
    with numerics.autocast():
        document, samples = evaluate_all(spec, subject, _data(request, spec.bos))
    document = document.model_copy(update={"seconds": time.monotonic() - began})
    store.write_evals(request.digest, str(request.evals_digest), document, samples)


def _data(request: Request, bos: Bos) -> HeldOutText | SyntheticTask:
    store, run = Store(request.store), request.identity
    corpus, part = open_corpus(Path(request.corpus)), run.reads
    if not isinstance(corpus, Corpus):
        return SyntheticTask(corpus.source.source, corpus.questions)
    conventions = conventions_of(store, run, corpus.eos, bos)
    return HeldOutText(
        tokenizer=trained_tokenizer(store, run.digest),
        conventions=conventions,
        text=Text(*corpus.held_out_tokens(part), conventions.before),
        documents=lambda: corpus.held_out(part),
        train=lambda: corpus.tokens("train"),
    )


# Measurement of a trained model: speed, memory, and loss under several kinds of KV cache.


def measure(request: Request, numerics: Numerics) -> None:
    """Measure the model of a trained run, and store the measurement."""
    store, spec, run = Store(request.store), MeasureSpec.model_validate(request.measure), request.identity
    model = trained_model(store, run.digest, numerics.device)
    # Held-out text, needed only to score other kinds of cache than the plain one.
    corpus = open_corpus(Path(request.corpus)) if len(spec.caches) > 1 else None
    text = Text(*corpus.held_out_tokens(run.reads), run.begins) if isinstance(corpus, Corpus) else None
    began = time.monotonic()
    with waiting() as waited, watched(numerics.device) as sensors:
        found = speed.measure(model.to(numerics.torch_dtype), spec, text)
    told = {"seconds": time.monotonic() - began, "waiting": waited.share, "gpu": sensors.state}
    found = found.model_copy(update=told)
    store.write_measure(run.digest, str(request.measure_digest), found)


# Training of a run, including storage of its model and result.


def train(request: Request, numerics: Numerics, stop: StopSignal) -> None:
    """Train a run, resuming from its saved state if any, and store its model and result. Raises Interrupted."""
    store, corpus = Store(request.store), open_corpus(Path(request.corpus))
    if store.read_run(request.digest) is None:
        store.write_run(request.identity)
    if isinstance(corpus, Corpus):
        for line in corpus.meta.receipt:
            LOG.info("%s", line)
    started = instant()
    device = numerics.device
    wings = modules_of(__name__)
    for wing in wings:
        wing.begin(store, request)
    copies = {step: path for wing in wings for step, path in wing.copies(store, request).items()}
    with (
        _group_of(request) as group,
        peak_memory(device) as memory,
        waiting() as waited,
        watched(device) as sensors,
    ):
        session = Session(store, request.identity, corpus, numerics, request.execution, group=group, stop=stop.poll)
        with stop.deferred():
            ending = session.run(copies)
    if ending.status == "finished":
        keep_trained(store, request.digest, session.model, corpus.tokenizer_path, session.addition)
    floor = corpus.floor(request.identity.reads)
    items = ending.scores.items if ending.scores else ()
    store.write_result(_result(session, ending, request, memory, waited, sensors, floor, started), items)
    store.drop_state(request.digest)
    for wing in wings:
        wing.end(store, request)


def _group_of(request: Request) -> AbstractContextManager[ProcessGroup]:
    """The processes that train a run, this one among them."""
    if request.execution.devices == 1:
        return nullcontext(ALONE)
    wing = module_of("ablate.training.batch")  # without one, such runs are refused
    group: AbstractContextManager[ProcessGroup] = wing.process_group_of(request)
    return group


def _result(
    session: Session,
    ending: TrainOutcome,
    request: Request,
    memory: PeakMemory,
    waited: Waiting,
    sensors: Sensors,
    floor: float | None,
    started: str,
) -> ResultDocument:
    place, spec, numerics = ending.place, session.spec, session.numerics
    scores, judged = ending.scores, ending.judged
    cost = training_cost(spec, session.model.spec, session.corpus.widths(spec.context), session.beside)
    metrics = session.store.read_metrics(session.digest)
    summary = summarise_metrics(metrics, spec.warmup_steps(session.steps), place.shared_steps)
    peak = recent_peak_flops_per_second(numerics.device, numerics.torch_dtype)
    environment = describe(numerics.device, request.threads)
    published = published_flops_per_second(environment.device, numerics.dtype)
    tokens = place.step * spec.tokens

    def utilisation(ceiling: float | None) -> float | None:
        return model_flop_utilisation(
            cost.flops_per_token, summary.tokens_per_second.median, ceiling and ceiling * request.execution.devices
        )

    return ResultDocument(
        digest=session.digest,
        status=ending.status,
        reason=ending.reason,
        steps=place.step,
        shared=SharedSteps(run=place.shared_with, steps=place.shared_steps) if place.shared_with else None,
        tokens=tokens,
        train_seconds=place.seconds,
        wall_seconds=place.wall_seconds,
        loss=ending.loss,
        bits_per_byte=scores.bits_per_byte if scores else None,
        accuracy=scores.accuracy if scores else None,
        floor=floor,
        judging_loss=judged.nats if judged else None,
        judging_bits_per_byte=judged.bits_per_byte if judged else None,
        judging_accuracy=judged.accuracy if judged else None,
        attention=place.attention,
        microbatch=session.learner.accumulation.rows,
        devices=request.execution.devices,
        sharding="fsdp2" if request.execution.shard else None,
        waiting=waited.share,
        beside=request.beside,
        **summary._asdict(),
        mfu=None if request.beside else utilisation(peak),
        mfu_published=utilisation(published),
        published_flops_per_second=published,
        matmul_flops_per_second=peak,
        peak_memory_bytes=memory.bytes,
        peak_memory_reserved_bytes=memory.reserved_bytes,
        peak_memory_source=memory.source,
        parameters=cost.params,
        parameters_embedding=cost.params_embedding,
        flops_per_token=cost.flops_per_token,
        flops=cost.flops_per_token * tokens,
        gpu=sensors.state,
        environment=environment,
        started=started,
        finished=now(),
    )


def run_phases(request: Request, stop: StopSignal, claim: FolderClaim) -> None:
    """Execute the missing phases in order; the claim on the run reports progress.

    Raises Interrupted if the worker was asked to stop, and PluginError if a plug-in has changed since the run was
    planned, or is missing.
    """
    load_imports()
    if stale := ", ".join(changed(request.identity.plugins or {})):
        raise PluginError(f"plug-ins changed since the run was planned, or are not on this machine: {stale}")
    numerics = enforce_as(request.identity.numerics, request.threads)
    if numerics.device == "cuda":
        take_share(request.beside + 1)
    phases: dict[str, Callable[[], None]] = {
        "train": lambda: train(request, numerics, stop),
        "measure": lambda: measure(request, numerics),
        "evals": lambda: evaluate(request, numerics),
    }

    def tell(count: Count | None) -> None:
        claim.count = count

    with listening(tell):
        while missing := request.missing():
            if stop.asked:  # during the last steps of training, or while results were written
                raise Interrupted(f"run {request.digest} stopped before {missing[0]}")
            LOG.info("%s", missing[0])
            tell(None)
            if missing[0] != "train":
                forget(numerics.device)  # memory left by training must not count as the trained model's
            phases[missing[0]]()
