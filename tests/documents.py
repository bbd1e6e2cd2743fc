"""Documents of a run that never was, to be changed at will."""

from __future__ import annotations

from typing import Any

from store.documents import (
    Environment,
    GradNorm,
    MeasureDocument,
    MetricsRecord,
    Part,
    PerSplit,
    Quartiles,
    ReferenceLosses,
    ResultDocument,
    RunData,
    RunDocument,
    RunNumerics,
    TextMeta,
    TextSplit,
)

ENVIRONMENT = Environment(
    python="3.11.7",
    torch="2.13.0",
    ablate="0.1.0",
    git_commit="0123abc",
    git_dirty=False,
    device="a CPU",
    threads=1,
    platform="Linux",
)


def quartiles(median: float, spread: float = 0.0) -> Quartiles:
    return Quartiles(median=median, q25=median * (1 - spread), q75=median * (1 + spread))


def run_of(digest: str, **changes: Any) -> RunDocument:
    numerics = RunNumerics(device="cpu", dtype="float32", matmul="medium")
    given = {"seed": 0, "model": {}, "train": {}, "steps": 20, "data": RunData(digest="data0"), "numerics": numerics}
    return RunDocument(digest=digest, **(given | changes))


def result_of(digest: str, **changes: Any) -> ResultDocument:
    given = {
        "status": "finished",
        "reason": None,
        "steps": 20,
        "tokens": 40960,
        "train_seconds": 10.0,
        "wall_seconds": 13.0,
        "loss": 2.5,
        "bits_per_byte": 1.9,
        "accuracy": None,
        "floor": None,
        "judging_loss": 2.52,
        "judging_bits_per_byte": 1.92,
        "start_loss": 7.6,
        "train_loss": 2.4,
        "tokens_per_second": quartiles(4000.0, 0.01),
        "mfu": 0.4,
        "matmul_flops_per_second": 2.3e11,
        "peak_memory_bytes": 200 * 2**20,
        "peak_memory_source": "cuda allocated",
        "loss_spikes": None,
        "loss_spike_steps": (),
        "grad_norm": GradNorm(median=0.5, max=2.0, spikes=0),
        "parameters": 1_000_000,
        "parameters_embedding": 250_000,
        "flops_per_token": 6e6,
        "flops": 2.4e11,
        "environment": ENVIRONMENT,
        "started": "2026-01-01T00:00:00+00:00",
        "finished": "2026-01-01T00:01:00+00:00",
    }
    return ResultDocument(digest=digest, **(given | changes))


def text_meta_of(**changes: Any) -> TextMeta:
    given = {
        "digest": "data0",
        "spec": {},
        "content": "0",
        "vocab_size": 1024,
        "tokenizer": {},
        "split": TextSplit(fraction=0.01, tokens=65536),
        "content_read": "0",
        "unit": "document",
        "documents": PerSplit(train=94, tuning=1, judging=1, test=4),
        "bytes": PerSplit(train=2_970_000, tuning=5_000, judging=5_000, test=20_000),
        "tokens": PerSplit(train=990_000, tuning=1_667, judging=1_667, test=6_666),
        "vocab_learnt": 1024,
        "eos": 0,
        "dtype": "<u2",
        "validation_tokens": 65536,
        "tokenizers": "0.22.1",
        "references": ReferenceLosses(uniform=6.9315, unigram=5.98, bigram=4.4, gzip=3.3, gzip_bits_per_byte=1.6),
    }
    return TextMeta(**(given | changes))


def measure_of(**changes: Any) -> MeasureDocument:
    given = {
        "request": {},
        "kv_bytes_per_token": 2048.0,
        "kv_context": 256,
        "bandwidth_bytes_per_second": 2e10,
        "cache": (),
        "prefill": (),
        "decode": (),
    }
    return MeasureDocument(**(given | changes))


def metrics_of(step: int, **values: float | None) -> MetricsRecord:
    """A record at a step of 8 tokens and half a second."""
    return MetricsRecord(step=step, tokens=8 * step, seconds=0.5 * step, **values)


def plain_of(document: Part) -> Any:
    """Its plain data, without what is null."""
    return document.model_dump(by_alias=True, exclude_none=True)
