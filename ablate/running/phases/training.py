"""Training of a run, including storage of its model and result."""

from __future__ import annotations

import logging
from pathlib import Path

from ablate.data import Corpus, open_corpus
from ablate.machine.environment import describe
from ablate.machine.numerics import Numerics
from ablate.planning.budgets import training_cost
from ablate.readable import instant, now
from ablate.running.process_group import process_group_of
from ablate.running.request import Request
from ablate.training.result import model_flop_utilisation, summarise_metrics
from ablate.training.schedule import warmup_steps
from ablate.training.session import Session, TrainOutcome
from ablate.training.stop import StopSignal
from ablate.training.trained import keep_trained
from evals.costs.contention import Waiting, waiting
from evals.costs.devices import published_flops_per_second
from evals.costs.matmul import recent_peak_flops_per_second
from evals.costs.memory import PeakMemory, peak_memory
from evals.costs.sensors import Sensors, watched
from store import Store
from store.documents import ResultDocument

LOG = logging.getLogger(__name__)


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
    with (
        process_group_of(request) as group,
        peak_memory(device) as memory,
        waiting() as waited,
        watched(device) as sensors,
    ):
        session = Session(
            store, request.identity, corpus, numerics, request.execution, group=group, stop=lambda: stop.asked
        )
        with stop.deferred():
            ending = session.run()
    if ending.status == "finished":
        keep_trained(store, request.digest, session.model, corpus.tokenizer_path, session.adapters)
    floor = corpus.floor(request.identity.reads)
    store.write_result(_result(session, ending, request, memory, waited, sensors, floor, started), ending.items)
    store.drop_state(request.digest)


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
    teacher = session.taught.teacher.spec if session.taught else None
    cost = training_cost(spec, session.model.spec, session.corpus.widths(spec.context), teacher)
    summary = summarise_metrics(session.store.read_metrics(session.digest), warmup_steps(session.steps, spec))
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
