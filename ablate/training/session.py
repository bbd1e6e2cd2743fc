"""Training one run: the loop, with logging, validation, saving and final scores."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Literal

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.batch import ALONE, Accumulation, Loss, ProcessGroup
from ablate.training.compiling import compiled
from ablate.training.divergence import DivergenceWatch, final_reason
from ablate.training.execution import DEFAULT, Execution
from ablate.training.loop import Learner, TrainingStep, train
from ablate.training.observing import Prober, StepTrace, attention_text
from ablate.training.optim import build_optimizer
from ablate.training.probes import ProbeSpec
from ablate.training.reader import HeldOutScores, TrainingData, TrainingReader, Validation, validation_is_due
from ablate.training.spec import TrainSpec
from ablate.training.stop import Interrupted
from ablate.training.trained import HasState, TrainingProgress, load_state, save_state
from ablate.training.weights import ScoredWeights, WeightAverage
from store import Store, StoreError
from store.documents import MetricsRecord, RunDocument, RunProbes
from store.extensions import module_of
from zoo.adapting import after_update, counts_of
from zoo.attend import executed_backends

LOG = logging.getLogger(__name__)
SAVING = 0.01
"""Saving the state takes at most this share of the time."""


@dataclass(frozen=True)
class TrainOutcome:
    """The outcome of training. A run that diverged has a `reason` and no scores. `scores` are of the held-out part that
    the run reads at its end; if that is the test part, `judged` are of the judging part."""

    status: Literal["finished", "diverged"]
    reason: str | None
    place: TrainingProgress
    scores: HeldOutScores | None = None
    judged: HeldOutScores | None = None

    @property
    def loss(self) -> float | None:
        return self.scores.nats if self.scores else None


def initial_model(store: Store, identity: RunDocument) -> zoo.Decoder:
    """The model before training: initialised by the seed, or converted from the run or checkpoint it starts from."""
    if identity.start is None:
        return zoo.build(zoo.parse(identity.model), seed=identity.seed)
    model: zoo.Decoder = _with_sources(identity).initial_model(store, identity, identity.start)
    return model


def _with_sources(run: RunDocument) -> ModuleType:
    """The module that trains runs that need other models. Raises StoreError if there is none."""
    if (wing := module_of(__name__)) is None:
        needs = "starts from another model" if run.start else "is taught by another model"
        raise StoreError(f"run {run.digest} {needs}, which this installation does not support")
    return wing  # type: ignore[no-any-return]


class Session:
    """One run in this process: model, optimiser, data and progress.

    Steps are taken in stretches of about `rest_seconds`. After each, metrics are logged, the state is saved if that is
    due, and `stop` is polled; if it is true, the state is saved and Interrupted raised. Saving is due every
    `execution.checkpoint_seconds`, or less often if it would take a larger share of the time than `SAVING`.
    """

    def __init__(
        self,
        store: Store,
        identity: RunDocument,
        corpus: TrainingData,
        numerics: Numerics,
        execution: Execution = DEFAULT,
        *,
        rest_seconds: float = 0.25,
        group: ProcessGroup = ALONE,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.corpus, self.numerics = store, corpus, numerics
        self.digest, self.seed, self.steps = identity.digest, identity.seed, identity.steps
        self.reads = identity.reads
        self.spec = TrainSpec.of(identity)
        self.checkpoint_seconds, self.stop, self._profiles = execution.checkpoint_seconds, stop, execution.profile
        self.rest_seconds = min(rest_seconds, self.checkpoint_seconds)
        self.model = initial_model(store, identity).to(numerics.device)
        for stack in (self.model, self.model.encoder):
            if stack is not None:
                stack.recompute = execution.recompute
        self.group = group
        subject = group.trained(self.model)
        self.addition = self.spec.part.build(self.model, self.seed) if self.spec.part else None
        part, spec = self.addition or subject, self.model.spec
        optimizer = build_optimizer(part, zoo.roles(part), self.spec, spec.d_model, spec.n_layers)
        loss: Loss = compiled(subject.loss) if self.spec.compile else subject.loss
        self.beside: zoo.ModelSpec | None = None
        """Model that reads every batch, too: a teacher's."""
        if identity.teacher is not None:
            loss, self.beside = _with_sources(identity).taught(store, identity.teacher, loss, numerics.device)
        accumulation = Accumulation(execution.microbatch, self.model.spec.couples_rows, group=group)
        average = WeightAverage(part, self.spec.average, self.steps) if self.spec.average else None
        self.learner = Learner(
            *(loss, optimizer, self.spec, numerics, self.seed, accumulation, average),
            after_update=partial(after_update, subject, constrain=self.addition is None),
            counts=counts_of(subject),
        )
        before = identity.start.batches_before if identity.start else 0
        self.reader = TrainingReader(corpus, self.spec, self.model.spec.vocab_size, self.seed, numerics.device, before)
        scored = optimizer if isinstance(optimizer, ScoredWeights) else average
        self.validation = Validation(self.model, self.reader, numerics, scored)
        self.prober = self._prober(identity.probes)
        self._began = self._rested = time.perf_counter()
        self._save_at = self._began + self.checkpoint_seconds
        self._saved: dict[str, HasState] = {"model": self.model, "optimizer": group.state_of(optimizer)}
        if self.addition is not None:
            self._saved["adapters"] = self.addition
        if average is not None:
            self._saved["average"] = average
        self.place = load_state(store, self.digest, self._saved)
        self._copies: Mapping[int, Path] = {}
        if identity.start is not None and self.place.start_loss is None:
            # Trained weights start at a low loss, which training may exceed for a while: divergence is judged by ln V.
            self.place.start_loss = self.place.start_validation_loss = math.log(self.model.spec.vocab_size)
        self._wall_seconds_before = self.place.wall_seconds

    def run(self, copies: Mapping[int, Path] | None = None) -> TrainOutcome:
        """Train the remaining steps and score the model. Raises Interrupted. copies: files of the state at a step."""
        self._copies = copies or {}
        self.store.truncate_logs(self.digest, self.place.step if self.place.step > 0 else -1)
        if self.place.step > 0:
            LOG.info("resumed after step %d", self.place.step)
        if self.place.step == 0:
            started = self._validate()
            if self.place.start_validation_loss is None:
                self.place.start_validation_loss = started
        watch = DivergenceWatch(self.spec.warmup_steps(self.steps), self.place.start_loss, self.place.steps_above_start)
        trace = StepTrace(self.store.trace_path(self.digest), self.numerics.device) if self._profiles else None
        with executed_backends(training=True) as backends, closing(self._train(trace)) as stretches:
            for steps in stretches:
                self.place.attention = attention_text(backends, self.model.spec, self.spec.context, self.numerics)
                reason = self._note(steps, watch)
                if reason is not None:
                    return self._ending(reason)
                if self._validation_is_due(self.place.step):
                    self._validate()
                if self.place.step in self._copies:
                    self._save(self._copies[self.place.step])
                self._save_when_due()
                self._rested = time.perf_counter()
        return self._ending(None)

    def rehearse(self) -> Iterator[list[TrainingStep]]:
        """The run's training steps without validation, logging and saving, for timing."""
        self.model.train()
        for steps in self._train():
            yield steps
            self._rested = time.perf_counter()

    def _train(self, trace: StepTrace | None = None) -> Generator[list[TrainingStep]]:
        stretches = train(
            self.learner,
            self.reader.batch,
            self.steps,
            self._rests,
            done=self.place.step,
            seconds=self.place.seconds,
            watcher=self.prober,
            trace=trace,
        )
        return self.group.together(stretches, self.place.step, self.steps, self._validation_is_due)

    def _rests(self, step: int) -> bool:
        """Whether to pause after this step: to save, to validate, or since `rest_seconds` have passed."""
        saves = self.group.decides_to_save(lambda: self.stop() or time.perf_counter() >= self._save_at)
        tired = time.perf_counter() - self._rested >= self.rest_seconds
        return saves or tired or step in self._copies or self._validation_is_due(step)

    def _note(self, steps: list[TrainingStep], watch: DivergenceWatch) -> str | None:
        """Log a stretch, up to the step at which the run has diverged; the reason if it has."""
        reasons = ((step, watch.reason(step)) for step in steps)
        diverged = next(((step, reason) for step, reason in reasons if reason is not None), None)
        last, reason = diverged or (steps[-1], None)
        kept = (MetricsRecord(**asdict(step)) for step in steps if step.step <= last.step)
        self.store.append_metrics(self.digest, *kept)
        self.place.step, self.place.seconds = last.step, last.seconds
        self.place.start_loss, self.place.steps_above_start = watch.start_loss, watch.above
        return reason

    def _prober(self, probes: RunProbes | None) -> Prober | None:
        if probes is None:
            return None
        write = partial(self.store.append_probes, self.digest)
        spec = ProbeSpec(every=probes.every, which=probes.which)
        return Prober(self.model, spec, self.steps, self.numerics.autocast, write)

    def _validation_is_due(self, step: int) -> bool:
        return validation_is_due(step, self.steps, self.spec.validate_every)

    def _validate(self) -> float:
        """Score some rows of the judging part, log the scores, and return nats per scored target."""
        found = self.validation.on_the_way()
        self.place.validation_loss = found.nats
        LOG.info("step %d/%d: validation loss %.4f", self.place.step, self.steps, found.nats)
        record = MetricsRecord(
            step=self.place.step,
            tokens=self.place.step * self.spec.tokens,
            seconds=self.place.seconds,
            validation_loss=found.nats,
            bits_per_byte=found.bits_per_byte,
            accuracy=found.accuracy,
        )
        self.store.append_metrics(self.digest, record)
        return found.nats

    def _save_when_due(self) -> None:
        stop, now = self.stop(), time.perf_counter()
        due = self.group.saves(stop or now >= self._save_at)
        if due:
            self._save()
            saved = time.perf_counter()
            # The interval bounds the share of time spent on saving by SAVING.
            self._save_at = saved + max(self.checkpoint_seconds, (saved - now) / SAVING)
        if due and stop:
            raise Interrupted(f"run {self.digest} stopped at step {self.place.step}")

    def _save(self, path: Path | None = None) -> None:
        self._tick()
        save_state(self.store, self.digest, self.place, self._saved, path)

    def _tick(self) -> None:
        self.place.wall_seconds = self._wall_seconds_before + time.perf_counter() - self._began

    def _ending(self, reason: str | None) -> TrainOutcome:
        """The outcome. reason: why the run has diverged; None after its last step."""
        ending = self._scored() if reason is None else TrainOutcome("diverged", reason, self.place)
        self._tick()
        return ending

    def _scored(self) -> TrainOutcome:
        start, last = self.place.start_validation_loss, self.place.validation_loss
        if start is None or last is None:
            raise RuntimeError(f"run {self.digest} ended without a validation loss")
        found, judged = self.validation.at_the_end(self.reads)
        # The start was scored on some rows of the judging part: compare it with their last score.
        end = last if math.isfinite(found.nats) else found.nats
        reason = final_reason(start, end, math.log(self.model.spec.vocab_size))
        if reason is not None:
            return TrainOutcome("diverged", reason, self.place)
        return TrainOutcome("finished", None, self.place, found, judged)
