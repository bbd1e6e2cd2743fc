"""Probes: each against a slow computation, without a trace in training, and stored like metrics."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
import torch

import zoo
from ablate.machine.numerics import enforce
from ablate.training.loop import train
from ablate.training.probes import ProbeSpec, load, names
from ablate.training.session import Session
from ablate.training.stop import Interrupted
from store import Store
from store.documents import ProbeRecord, RunDocument, RunProbes
from tests.ablate.conftest import TinyCorpus, metrics_without_clock
from zoo.mixers import attention

MODEL = {"n_layers": 2, "vocab_size": 16, "d_model": 16}
MOE = {"kind": "deepseek_moe", "experts": 4, "top_k": 2, "d_ff": 8}


def watched(document: RunDocument, *which: str, every: float = 0.3) -> RunDocument:
    return document.model_copy(update={"probes": RunProbes(every=every, which=tuple(which or names()))})


def readings(store: Store, document: RunDocument, probe: str, step: int = 1) -> dict[tuple[int | None, str], float]:
    """Values by layer and name."""
    frame = store.read_probes(document.digest).filter(probe=probe, step=step)
    return {(layer, name): value for layer, name, value in frame.select("layer", "name", "value").iter_rows()}


def train_watched(root, document, numerics, **options) -> tuple[Store, Session]:
    store = Store(root)
    session = Session(store, document, TinyCorpus(), numerics, rest_seconds=0.0, **options)
    session.run()
    return store, session


def at_start(document: RunDocument) -> tuple[zoo.Decoder, torch.Tensor]:
    """The model before its first step, and the tokens of that step, its targets the last column's."""
    model = zoo.build(zoo.parse(document.model), seed=document.seed)
    batch = TinyCorpus().batch(0, batch=4, context=16, seed=document.seed)
    return model, torch.from_numpy(batch)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model",
    [
        {"block": {"dropout": 0.2, "mixer": {"kind": "attention", "dropout": 0.1}}},
        {"block": {"ffn": {**MOE, "balance_loss": 0.01}}},
    ],
    ids=["dropout", "experts"],
)
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path, identity, model, dtype):
    """Dropout draws random numbers and routers learn in every training pass: neither may notice."""
    document = identity(steps=8, model={**MODEL, **model}, dtype=dtype)
    sessions = []
    for name, asked in (("without", document), ("with", watched(document, every=0.1))):
        torch.manual_seed(0)
        store, session = train_watched(tmp_path / name, asked, enforce("cpu", dtype))
        assert store.probes_path(document.digest).exists() is (name == "with")
        sessions.append(session)
    plain, probed = (metrics_without_clock(s.store.metrics_path(document.digest)) for s in sessions)
    assert plain == probed
    for a, b in zip(*(s.model.state_dict().values() for s in sessions), strict=True):
        assert torch.equal(a, b)


def test_gradient_norms_are_those_of_autograd(tmp_path, identity, numerics):
    document = watched(identity(steps=1, model=MODEL, grad_clip=1e-3), "gradient_norm")
    store, _ = train_watched(tmp_path, document, numerics)
    model, window = at_start(document)
    logits = model(window[:, :-1])
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten()).backward()
    squares = {name: float((p.grad.double() ** 2).sum()) for name, p in model.named_parameters()}

    def norm(*endings: str, start: str = "") -> float:
        chosen = [v for name, v in squares.items() if name.startswith(start) and name.endswith(endings)]
        return math.sqrt(sum(chosen))

    found = readings(store, document, "gradient_norm")
    for layer in (0, 1):
        block = f"blocks.{layer}."
        assert found[layer, "all"] == pytest.approx(norm("", start=block), rel=1e-4)
        assert found[layer, "ffn.output"] == pytest.approx(norm("down.weight", start=block), rel=1e-4)
        assert found[layer, "ffn.input"] == pytest.approx(norm("up.weight", "gate.weight", start=block), rel=1e-4)
        assert found[layer, "mixer.output"] == pytest.approx(norm("o.weight", start=block), rel=1e-4)
    assert found[None, "embedding"] == pytest.approx(norm("embedding.weight"), rel=1e-4)
    assert found[None, "output"] == pytest.approx(norm("down.weight", "o.weight"), rel=1e-4)
    assert found[None, "all"] == pytest.approx(norm(""), rel=1e-4)
    metrics = store.read_metrics(document.digest)
    assert found[None, "all"] == pytest.approx(metrics["grad_norm"].drop_nulls()[0], rel=1e-5)


def test_update_ratios_compare_the_weights_before_and_after(tmp_path, identity, numerics):
    document = watched(identity(steps=1, model={**MODEL, "tie_embeddings": False}), "update_ratio")
    store, session = train_watched(tmp_path, document, numerics)
    before = {name: p.detach().double() for name, p in at_start(document)[0].named_parameters()}
    after = {name: p.detach().double() for name, p in session.model.named_parameters()}

    def ratio(start: str) -> float:
        chosen = [name for name in before if name.startswith(start)]
        change = sum(float(((after[name] - before[name]) ** 2).sum()) for name in chosen)
        return math.sqrt(change / sum(float((before[name] ** 2).sum()) for name in chosen))

    found = readings(store, document, "update_ratio")
    assert found[None, "all"] == pytest.approx(ratio(""), rel=1e-4)
    assert [found[layer, "all"] for layer in (0, 1)] == pytest.approx(
        [ratio("blocks.0."), ratio("blocks.1.")], rel=1e-4
    )
    assert found[None, "head"] is None  # it starts at zero, so there is nothing to compare with


def test_activations_are_those_of_the_forward_pass(tmp_path, identity, numerics):
    document = watched(identity(steps=1, model=MODEL), "activation_variance", "log_z")
    store, _ = train_watched(tmp_path, document, numerics)
    model, window = at_start(document)
    streams: list[np.ndarray] = []
    for block in model.blocks:
        block.register_forward_hook(lambda module, args, output: streams.append(output.detach().double().numpy()))
    logits = model(window[:, :-1]).detach().double().numpy()
    expected = {(i, "variance"): float(np.var(stream, axis=-1).mean()) for i, stream in enumerate(streams)}
    assert readings(store, document, "activation_variance") == pytest.approx(expected, rel=1e-4)
    log_z = np.log(np.exp(logits).sum(-1))
    expected = {(None, "mean"): log_z.mean(), (None, "mean_square"): (log_z**2).mean()}
    assert readings(store, document, "log_z") == pytest.approx(expected, rel=1e-4)


def test_attention_is_that_of_a_plain_softmax(tmp_path, identity, numerics, monkeypatch):
    document = watched(identity(steps=1, model=MODEL), "attention_entropy", "max_attention_logit")
    store, _ = train_watched(tmp_path, document, numerics)
    model, window = at_start(document)
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []
    attend = attention.attend

    def spy(q, k, *given):
        seen.append((q.detach().double(), k.detach().double()))
        return attend(q, k, *given)

    monkeypatch.setattr(attention, "attend", spy)
    model(window[:, :-1])
    entropy, largest = (readings(store, document, probe) for probe in ("attention_entropy", "max_attention_logit"))
    for layer, (q, k) in enumerate(seen):
        scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).numpy()
        hidden = np.triu(np.ones(scores.shape[-2:], dtype=bool), 1)
        weights = np.where(hidden, 0, np.exp(scores))
        weights /= weights.sum(-1, keepdims=True)
        per_head = -np.where(hidden, 0, weights * np.log(np.where(hidden, 1, weights))).sum(-1).mean((0, 2))
        assert entropy[layer, "mean"] == pytest.approx(per_head.mean(), rel=1e-4)
        assert entropy[layer, "lowest"] == pytest.approx(per_head.min(), rel=1e-4)
        assert largest[layer, "max"] == pytest.approx(np.where(hidden, -np.inf, scores).max(), rel=1e-4)


def test_expert_load_is_relative_to_an_even_share(tmp_path, identity, numerics):
    document = watched(identity(steps=1, model={**MODEL, "block": {"ffn": MOE}}), "expert_load")
    store, _ = train_watched(tmp_path, document, numerics)
    model, window = at_start(document)
    chosen: list[torch.Tensor] = []
    for block in model.blocks:
        block.ffn.router.register_forward_hook(lambda module, args, routing: chosen.append(routing.chosen))
    model.eval()(window[:, :-1])
    found = readings(store, document, "expert_load")
    for layer, experts in enumerate(chosen):
        counts = [int((experts == e).sum()) for e in range(4)]
        even = sum(counts) / 4
        assert found[layer, "largest"] == pytest.approx(max(counts) / even)
        assert found[layer, "smallest"] == pytest.approx(min(counts) / even)


def test_chunk_length_is_tokens_over_chunks(tmp_path, identity, numerics):
    chunks = {"encoder_layers": 1, "decoder_layers": 1}
    document = watched(identity(steps=1, model={**MODEL, "n_layers": 3, "chunks": chunks}), "chunk_length")
    store, _ = train_watched(tmp_path, document, numerics)
    model, window = at_start(document)
    read: list[int] = []
    model.blocks[1].register_forward_hook(lambda module, args, out: read.append(out.shape[1]))
    rows = [model.eval()(row[None, :-1]) for row in window]
    assert len(rows) == len(read)
    length = window[:, :-1].numel() / sum(read)
    assert readings(store, document, "chunk_length")[None, "mean"] == pytest.approx(length)


def test_the_first_and_the_last_step_are_always_probed(tmp_path, identity, numerics):
    for steps, every, expected in ((10, 0.3, [1, 3, 6, 9, 10]), (7, 1.0, [1, 7]), (1, 0.1, [1]), (3, 0.01, [1, 2, 3])):
        document = watched(identity(steps=steps), "log_z", every=every)
        store, _ = train_watched(tmp_path / str(steps), document, numerics)
        assert sorted(store.read_probes(document.digest)["step"].unique()) == expected


def test_a_run_stopped_at_any_step_has_the_same_readings_once(tmp_path, identity, numerics):
    document = watched(identity(steps=9, model=MODEL))
    whole, _ = train_watched(tmp_path / "whole", document, numerics)
    store = Store(tmp_path / "stopped")
    stops = iter([False, True] * 9)
    interruptions = 0
    while store.status(document.digest) != "finished" and interruptions < 9:
        try:
            train_watched(store.root, document, numerics, stop=lambda: next(stops))
            break
        except Interrupted:
            interruptions += 1
            stray = ProbeRecord(step=9, probe="log_z", layer=None, name="mean", value=math.nan)
            store.append_probes(document.digest, [stray])  # as after a kill: later than the saved state
    assert interruptions == 4
    assert whole.read_probes(document.digest).equals(store.read_probes(document.digest))


def test_time_spent_looking_is_not_training(identity, numerics, tmp_path):
    class Slow:
        seconds = 0.0

        def around(self, step, batch):
            self.seconds += 1000.0
            return torch.no_grad()

    session = Session(Store(tmp_path), identity(steps=3), TinyCorpus(), numerics)
    watcher = Slow()
    stretches = train(session.learner, session.reader.batch, 3, done=1, seconds=5.0, watcher=watcher)
    took = [step.seconds for steps in stretches for step in steps]
    assert watcher.seconds == 2000.0
    assert -1996 < took[-1] < -1994  # 5 s before, and next to nothing but what the watcher says it took


def test_every_probe_says_what_it_is_of():
    assert names() == [
        "activation_variance",
        "attention_entropy",
        "chunk_length",
        "expert_load",
        "gradient_norm",
        "log_z",
        "max_attention_logit",
        "update_ratio",
    ]
    assert all(type(load(name)).__doc__ for name in names())
    assert ProbeSpec().which == tuple(names())
    assert ProbeSpec(which=["log_z", "expert_load"]).which == ("expert_load", "log_z")


def test_polars_reads_back_what_was_written(tmp_path):
    store = Store(tmp_path)
    assert store.read_probes("d").height == 0
    record = ProbeRecord(step=1, probe="log_z", layer=None, name="mean", value=math.inf)
    store.append_probes("d", [record, record.model_copy(update={"layer": 3, "value": 1.5})])
    frame = store.read_probes("d")
    assert frame.schema == pl.Schema(
        {"step": pl.Int64, "probe": pl.String, "layer": pl.Int64, "name": pl.String, "value": pl.Float64}
    )
    assert frame.rows() == [(1, "log_z", None, "mean", None), (1, "log_z", 3, "mean", 1.5)]
