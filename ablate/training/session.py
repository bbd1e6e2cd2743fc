"""Training one run: the loop, with logging, validation, saving and the end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

import zoo
from ablate.data.examples import Examples, Rows, width
from ablate.machine.numerics import Numerics
from ablate.store import Store
from ablate.training.batch import Batch
from ablate.training.checkpoint import Place, load_state, save_state
from ablate.training.divergence import Watch, final_reason
from ablate.training.loop import Done, Step, accuracy, bits_per_byte, train, validate
from ablate.training.optim import build_optimizer
from ablate.training.probes import ProbeSpec
from ablate.training.probing import Prober
from ablate.training.schedule import warmup_steps
from ablate.training.spec import TrainSpec
from ablate.training.stop import Interrupted
from ablate.training.trained import trained_model


class Corpus(Protocol):
    """What training reads. See `ablate.data`."""

    def widths(self, context: int) -> tuple[int, ...]: ...

    def batch(self, step: int, *, batch: int, context: int, seed: int) -> Rows: ...

    def validation_rows(self, context: int) -> Sequence[tuple[Rows, NDArray[np.uint32] | None]]: ...


VALIDATION = 2**64
"""In place of a seed, beyond all of them, where an objective draws what to ask about held-out text."""


@dataclass(frozen=True)
class Ending:
    """How training ended. A run that diverged has a `reason`, and none of the numbers.

    Only text has bits per byte, only tasks that are made have an `accuracy`: the share of what is asked that is right.
    """

    status: str
    reason: str | None
    place: Place
    loss: float | None = None
    bits_per_byte: float | None = None
    accuracy: float | None = None


def _initial_model(store: Store, identity: dict[str, Any]) -> zoo.Decoder:
    """Initial values by the seed, or the weights of the trained run that this one starts from."""
    spec, seed, start = zoo.parse(identity["model"]), identity["seed"], identity.get("start")
    if start is None:
        return zoo.build(spec, seed=seed)
    return zoo.convert(trained_model(store, start["run"]), spec, start["pooling"], seed, start.get("growth"))


class Session:
    """One run in this process: model, optimiser, data, and how far it has got.

    `identity` is run.json. `stop` is asked after every step; when it
    says so, the state is saved and Interrupted raised.
    """

    def __init__(
        self,
        store: Store,
        identity: dict[str, Any],
        corpus: Corpus,
        numerics: Numerics,
        *,
        checkpoint_seconds: float = 60.0,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.store, self.corpus, self.numerics = store, corpus, numerics
        self.digest: str = identity["digest"]
        self.seed: int = identity["seed"]
        self.steps: int = identity["steps"]
        self.spec = TrainSpec.model_validate(identity["train"])
        self.checkpoint_seconds, self.stop = checkpoint_seconds, stop
        self.model = _initial_model(store, identity).to(numerics.device)
        width = self.model.spec.d_model
        self.optimizer = build_optimizer(self.model, zoo.roles(self.model), self.spec, width)
        self.loss = torch.compile(self.model.loss) if self.spec.compile else self.model.loss
        self.prober = self._prober(identity.get("probes"))
        self._began = self._saved = time.perf_counter()
        self.place = load_state(store, self.digest, self.model, self.optimizer)
        if "start" in identity and self.place.start_loss is None:
            # It starts below where it may pass through, so divergence is to end above knowing nothing.
            self.place.start_loss = self.place.start_validation_loss = math.log(self.model.spec.vocab_size)
        self._wall_seconds_before = self.place.wall_seconds

    def run(self) -> Ending:
        """Train what is missing. Raises Interrupted."""
        if self.place.step == 0:
            started = self._validate()
            if self.place.start_validation_loss is None:
                self.place.start_validation_loss = started
        warmup = warmup_steps(self.steps, self.spec)
        watch = Watch(warmup, self.place.start_loss, self.place.steps_above_start)
        for step in self._train():
            self._note(step)
            reason = watch.reason(step)
            self.place.start_loss, self.place.steps_above_start = watch.start_loss, watch.above
            if reason is not None:
                return self._ending(reason)
            if self._validation_is_due(step.step):
                self._validate()
            self._save_when_due()
        return self._ending(self._final_reason())

    def rehearse(self) -> Iterator[Step]:
        """The run's training steps with nothing validated, logged or saved: for timing them."""
        self.model.train()
        return self._train()

    def _train(self) -> Iterator[Step]:
        return train(
            self.loss,
            self.optimizer,
            self._batch,
            self.spec,
            self.steps,
            self.numerics.autocast,
            done=Done(self.place.step, self.place.seconds),
            watcher=self.prober,
        )

    def _prober(self, probes: dict[str, Any] | None) -> Prober | None:
        if probes is None:
            return None
        write = partial(self.store.append_probes, self.digest)
        return Prober(self.model, ProbeSpec.model_validate(probes), self.steps, self.numerics.autocast, write)

    def _batch(self, step: int) -> Batch:
        spec = self.spec
        windows = self.corpus.batch(step - 1, batch=spec.batch, context=spec.context, seed=self.seed)
        return self._asked(windows, (self.seed, step)).to(self.numerics.device)

    def _asked(self, rows: Rows, key: tuple[int, ...]) -> Batch:
        """Examples, which say what they ask, or what the objective makes of windows of text, the same for every arm."""
        if isinstance(rows, Examples):
            return Batch.of(rows)
        return self.spec.objective.batch(rows, self.model.spec.vocab_size, np.random.default_rng(key))

    def _note(self, step: Step) -> None:
        self.place.step, self.place.seconds = step.step, step.seconds
        self.store.append_metrics(self.digest, step.record())

    @cached_property
    def _validation(self) -> tuple[list[Batch], int | None]:
        """All that is held out, the same questions each time, for every seed and arm, and the bytes of its targets;
        None where they are no text.
        """
        batches: list[Batch] = []
        n_bytes: int | None = 0
        for rows, sizes in self.corpus.validation_rows(self.spec.context):
            whole, at_once = self._asked(rows, (VALIDATION,)), self.spec.batch * self.spec.context // width(rows)
            batches += [
                whole.rows(start, start + at_once).to(self.numerics.device) for start in range(0, len(rows), at_once)
            ]
            n_bytes = None if n_bytes is None or sizes is None else n_bytes + whole.bytes_of(sizes)
        return batches, n_bytes

    def _validation_is_due(self, step: int) -> bool:
        every = max(1, round(self.spec.validate_every * self.steps))
        return step == self.steps or step % every == 0

    def _validate(self) -> float:
        """Measure and log the validation loss, and the accuracy where there are answers."""
        batches, n_bytes = self._validation
        self.model.eval()  # no dropout, no capacity limits
        nats = validate(self.loss, batches, self.numerics.autocast)
        if n_bytes is None:
            self.place.accuracy = accuracy(self.model, batches, self.numerics.autocast)
        self.model.train()
        self.place.validation_loss = nats
        record = {
            "step": self.place.step,
            "tokens": self.place.step * self.spec.batch * self.spec.context,
            "seconds": self.place.seconds,
            "validation_loss": nats,
            "bits_per_byte": self._bits_per_byte(nats),
            "accuracy": self.place.accuracy,
        }
        self.store.append_metrics(self.digest, record)
        return nats

    def _bits_per_byte(self, nats: float) -> float | None:
        batches, n_bytes = self._validation
        if n_bytes is None:
            return None
        return bits_per_byte(nats, sum(batch.scored for batch in batches), n_bytes)

    def _save_when_due(self) -> None:
        stop = self.stop()
        if stop or time.perf_counter() - self._saved >= self.checkpoint_seconds:
            self._tick()
            save_state(self.store, self.digest, self.place, self.model, self.optimizer)
            self._saved = time.perf_counter()
        if stop:
            raise Interrupted(f"run {self.digest} stopped at step {self.place.step}")

    def _tick(self) -> None:
        self.place.wall_seconds = self._wall_seconds_before + time.perf_counter() - self._began

    def _final_reason(self) -> str | None:
        start, end = self.place.start_validation_loss, self.place.validation_loss
        if start is None or end is None:
            raise RuntimeError(f"run {self.digest} ended without a validation loss")
        return final_reason(start, end)

    def _ending(self, reason: str | None) -> Ending:
        self._tick()
        nats = self.place.validation_loss
        if reason is not None or nats is None:
            return Ending("diverged", reason, self.place)
        return Ending("finished", None, self.place, nats, self._bits_per_byte(nats), self.place.accuracy)
