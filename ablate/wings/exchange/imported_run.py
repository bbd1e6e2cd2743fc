"""Import a model trained elsewhere as a run: its weights, its tokenizer, and its loss on held-out text."""

from __future__ import annotations

import time

from tokenizers import Tokenizer

from ablate.checkpoints import Checkpoint, CheckpointError
from ablate.data import Corpus
from ablate.machine.environment import describe, own_threads
from ablate.machine.numerics import Numerics
from ablate.planning.budgets import training_cost
from ablate.planning.identity import canonical_model, identified
from ablate.readable import now
from ablate.training.reader import TrainingReader
from ablate.training.spec import TrainSpec
from ablate.training.trained import keep_published, keep_trained
from ablate.training.validation import score
from evals.costs import matmul
from evals.costs.memory import peak_memory
from evals.harness.conventions import Bos, TrainedConventions
from evals.reading.causal import obstacle
from store import Store
from store.documents import GradNorm, ResultDocument, RunData, RunDocument
from zoo.lengths import longest_text

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
    return identified(run, spec, train)


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
        train = TrainSpec.model_validate(run.train)
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
            matmul_flops_per_second=matmul.peak_flops_per_second(numerics.device, numerics.torch_dtype),
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
