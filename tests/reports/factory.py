"""Synthetic studies, written through the store as a real run would write them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np

import reports
from reports.judge.findings.study_summary import StudySummary
from reports.page.sections import Section
from store import Store
from store.documents import (
    CacheBytes,
    CachePoint,
    CostPoint,
    CostProcess,
    CostsDocument,
    DecodePoint,
    EvalsDocument,
    GradNorm,
    MeasureDocument,
    PrefillPoint,
    ProbeRecord,
    Quartiles,
    References,
    ReferencesDocument,
    ResultDocument,
    SampleRecord,
    Score,
    SpentBudget,
    StudyArm,
    StudyClaim,
    StudyContrast,
    StudyDesign,
    StudyDocument,
    StudyLook,
    StudyRates,
    StudyRun,
    StudyRung,
    StudyTuning,
)
from store.documents.data import counted_tokens
from store.documents.measure import Work
from tests.documents import ENVIRONMENT, measure_of, quartiles, result_of, run_of, text_meta_of

CONTEXTS = (64, 128, 256)
TOKENS_PER_STEP = 2048
CONTEXT = 128
JUDGING_EXCESS = 0.01
"""Excess of the loss on the judging part over that on the test part."""


@dataclass(frozen=True)
class Arm:
    """Losses by seed (None for a run that is absent) and what else an arm is made of."""

    name: str
    losses: Sequence[float | None]
    speed: float = 4000.0
    memory_mib: float = 200.0
    kv_bytes_per_token: float = 2048.0
    parameters: int = 1_000_000
    flops_per_token: float = 6e6
    steps: int = 20
    tokens_before: int = 4_000_000
    """Tokens of the arm that it starts from: with them it has trained for long enough."""
    edits: Mapping[str, Any] = field(default_factory=dict)
    diverged: Sequence[int] = ()
    flattens: float = 6.0
    """Power with which the loss approaches its end: at 1 it falls to the last step."""


@dataclass(frozen=True)
class StudyOf:
    """A study to write. `results` and `identities` are merged into the document of (arm, seed)."""

    arms: Sequence[Arm]
    name: str = "norm_placement"
    question: str = "Where should the norm go?"
    source: str = "question: Where should the norm go?\n"
    next_scale: str | None = "cpu-long"
    measured: bool = True
    processes: int = 5
    """Number of processes that timed the arms against each other, if it is measured; 0 as in stores of old."""
    text: bool = False
    """Whether the store has the text that runs read: its unigram loss is 5.98."""
    references: References | None = None
    """Losses of simple models on that text, whatever number of its tokens they count."""
    margin: float | None = None
    looks: Sequence[Mapping[str, float]] | None = None
    contrasts: Sequence[tuple[str, str]] = ()
    claims: Sequence[StudyClaim] = ()
    design: StudyDesign | None = None
    probes: Sequence[str] = ()
    smaller: Mapping[str, tuple[Literal["size", "length"], Sequence[Arm]]] = field(default_factory=dict)
    """The arms at the other rungs of a ladder, by name."""
    smaller_tuning: Mapping[str, Sequence[StudyTuning]] = field(default_factory=dict)
    """Tuning of the arms at those rungs."""
    tuning: Sequence[StudyTuning] = ()
    results: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)
    identities: Mapping[tuple[str, int], Mapping[str, Any]] = field(default_factory=dict)

    def write(self, root: Path) -> Path:
        """Write every document and return the study's folder."""
        store = Store(root)
        if self.text:
            store.data("data0").path.mkdir(parents=True, exist_ok=True)
            store.data("data0").write(text_meta_of())
        for tokens in (*(arm.steps * TOKENS_PER_STEP + arm.tokens_before for arm in self.arms), None):
            if self.references is not None:
                counted = counted_tokens(tokens, text_meta_of().tokens.train)
                found = self.references.model_copy(update={"tokens": counted})
                document = ReferencesDocument(digest="data0", context=CONTEXT, references=found)
                store.data("data0").write_references(document)
        for arm in self.arms:
            for seed, loss in enumerate(arm.losses):
                if loss is not None:
                    self._write_run(store, arm, seed, loss)
        for name, (_, arms) in self.smaller.items():
            for number, arm in enumerate(arms):
                for run, loss in zip(_runs(name, number, arm), arm.losses, strict=True):
                    if loss is not None:
                        store.write_run(run_of(run.digest, seed=run.seed, steps=arm.steps))
                        store.write_result(_result(run.digest, arm, run.seed, loss))
        folder = store.study(self.name, "cpu")
        folder.write(self.document())
        if self.measured and self.processes:
            speeds = {arm.name: arm.speed for arm in self.arms}
            folder.write_costs(costs_of(speeds, processes=self.processes))
        return folder.path

    def document(self) -> StudyDocument:
        return StudyDocument(
            name=self.name,
            scale="cpu",
            path=None,
            question=self.question,
            citation=None,
            source=self.source,
            next_scale=self.next_scale,
            baseline=self.arms[0].name,
            budget=SpentBudget(flops=2.4e11),
            matched="flops",
            margin=self.margin,
            contrasts=tuple(StudyContrast(arm=arm, other=other) for arm, other in self.contrasts),
            claims=tuple(self.claims),
            design=self.design,
            per="token",
            objective=None,
            conventions=(),
            looks=tuple(StudyLook(**look) for look in self.looks or ()),
            created="2026-01-01T00:00:00+00:00",
            arms=tuple(map(self._arm, self.arms)),
            measure="m1" if self.measured else None,
            costs=COSTS if self.measured and self.processes else None,
            evals="e1" if self.measured else None,
            rates=StudyRates(how="tuned" if self.tuning else "written", where=None),
            tuning=tuple(self.tuning),
            ladder=tuple(self._ladder()),
        )

    def _ladder(self) -> Iterator[StudyRung]:
        for name, (axis, arms) in self.smaller.items():
            planned = (self._arm(arm, _runs(name, number, arm)) for number, arm in enumerate(arms))
            tuning = tuple(self.smaller_tuning.get(name, ()))
            yield StudyRung(name=name, axis=axis, arms=tuple(planned), tuning=tuning)
        if self.smaller:
            arms = tuple(map(self._arm, self.arms))
            yield StudyRung(name="full", axis=None, arms=arms, tuning=tuple(self.tuning))

    def digest(self, arm: Arm, seed: int) -> str:
        return f"{self.arms.index(arm):02d}ab{seed:02d}"

    def _arm(self, arm: Arm, runs: tuple[StudyRun, ...] | None = None) -> StudyArm:
        return StudyArm(
            name=arm.name,
            edits=dict(arm.edits),
            tuned={},
            matching={},
            parameters=arm.parameters,
            parameters_embedding=arm.parameters // 4,
            flops_per_token=arm.flops_per_token,
            tokens=arm.steps * TOKENS_PER_STEP,
            steps=arm.steps,
            tokens_before=arm.tokens_before,
            kv_bytes_per_token=arm.kv_bytes_per_token,
            seconds=None,
            data="data0",
            cache_bytes=tuple(CacheBytes(context=c, bytes=int(c * arm.kv_bytes_per_token)) for c in CONTEXTS),
            differs={},
            identity=f"identity of {arm.name}",
            runs=runs or tuple(StudyRun(digest=self.digest(arm, seed), seed=seed) for seed in range(len(arm.losses))),
        )

    def _write_run(self, store: Store, arm: Arm, seed: int, loss: float) -> None:
        digest = self.digest(arm, seed)
        key = (arm.name, seed)
        train = {"context": CONTEXT} if self.references else {}
        store.write_run(run_of(digest, seed=seed, steps=arm.steps, train=train))
        _merge(store.run_path(digest), self.identities.get(key, {}))
        store.metrics_path(digest).write_bytes(b"".join(_lines(arm, seed, loss)))
        store.write_result(_result(digest, arm, seed, loss))
        _merge(store.result_path(digest), self.results.get(key, {}))
        if self.probes:
            store.append_probes(digest, _probe_records(self.probes, arm, seed))
        if self.measured and seed not in arm.diverged:
            store.write_measure(digest, "m1", _measure(arm, seed))
            correct, bits = _answers(loss, seed)
            store.write_evals(digest, "e1", _evals(correct, bits), list(_samples(correct, bits)))
            _merge(store.evals_path(digest, "e1"), {"samples_sha256": None})  # tests change samples


def _runs(rung: str, number: int, arm: Arm) -> tuple[StudyRun, ...]:
    """Runs of an arm at a smaller rung."""
    return tuple(StudyRun(digest=f"{rung}{number:02d}ab{seed:02d}", seed=seed) for seed in range(len(arm.losses)))


def _merge(path: Path, changes: Mapping[str, Any]) -> None:
    with changed(path) as document:
        for key, value in changes.items():
            document[key] = (document[key] or {}) | value if isinstance(value, dict) else value


def _result(digest: str, arm: Arm, seed: int, loss: float) -> ResultDocument:
    diverged = seed in arm.diverged
    speed = arm.speed * (1 + 0.004 * seed)
    seconds = arm.steps * TOKENS_PER_STEP / speed
    return result_of(
        digest,
        status="diverged" if diverged else "finished",
        reason="loss is NaN at step 7" if diverged else None,
        steps=arm.steps,
        tokens=arm.steps * TOKENS_PER_STEP,
        train_seconds=seconds,
        wall_seconds=seconds + 3,
        loss=None if diverged else loss,
        bits_per_byte=None if diverged else loss * 0.75,
        judging_loss=None if diverged else loss + JUDGING_EXCESS,
        judging_bits_per_byte=None if diverged else (loss + JUDGING_EXCESS) * 0.75,
        train_loss=loss - 0.1,
        tokens_per_second=quartiles(speed, 0.01),
        peak_memory_bytes=int((arm.memory_mib + seed) * 2**20),
        loss_spikes=10 + seed,
        grad_norm=GradNorm(median=0.5, max=2.0, spikes=seed),
        parameters=arm.parameters,
        parameters_embedding=arm.parameters // 4,
        flops_per_token=arm.flops_per_token,
        flops=arm.steps * TOKENS_PER_STEP * arm.flops_per_token,
    )


def _lines(arm: Arm, seed: int, loss: float) -> Iterator[bytes]:
    """Metrics whose last validation loss is `loss`, as lines of JSON written by hand."""
    scatter = np.random.default_rng(seed).normal(0, 0.05, arm.steps + 1)
    for step in range(arm.steps + 1):
        left = 1 - step / arm.steps
        value = loss + (7.6 - loss) * left**arm.flattens
        head = f'{{"step": {step}, "tokens": {step * TOKENS_PER_STEP}, "seconds": {step * 0.5}'
        if step:
            yield (
                f'{head}, "loss": {value + scatter[step]}, "lr": 0.001, "grad_norm": 0.5, '
                f'"tokens_per_second": {arm.speed}}}\n'
            ).encode()
        if step % max(1, arm.steps // 10) == 0 or step == arm.steps:
            yield f'{head}, "validation_loss": {value}, "bits_per_byte": 1.0}}\n'.encode()


PROBE_LAYERS = 3
SEEN = {
    "gradient_norm": "all",
    "update_ratio": "all",
    "activation_variance": "variance",
    "max_attention_logit": "max",
    "attention_entropy": "mean",
    "expert_load": "largest",
}
"""Name of the value that is drawn, for each probe that looks at layers."""


def probe_value(layer: int, step: int, seed: int) -> float:
    return 1.0 + layer + 0.1 * step + 0.01 * seed


def _probe_records(probes: Sequence[str], arm: Arm, seed: int) -> Iterator[ProbeRecord]:
    """At the first, a middle and the last step; the model's own number is 100 times layer 0's."""
    for step in sorted({1, max(1, arm.steps // 2), arm.steps}):
        for probe in probes:
            name = SEEN.get(probe, "mean")
            for layer in range(PROBE_LAYERS) if probe in SEEN else ():
                value = probe_value(layer, step, seed)
                yield ProbeRecord(step=step, probe=probe, layer=layer, name=name, value=value)
            value = 100 * probe_value(0, step, seed)
            yield ProbeRecord(step=step, probe=probe, layer=None, name=name, value=value)


TURNS = (0.97, 1.0, 1.02)
"""Results of a measurement's turns, as multiples of its median."""


COSTS = "c1"
COSTS_SCATTER = 0.003
"""Standard deviation of ln(speed) between processes, for each arm."""


def costs_of(
    speeds: Mapping[str, float], scatter: float = COSTS_SCATTER, processes: int = 5, waited: float = 0.0, seed: int = 0
) -> CostsDocument:
    """Arms that train at these speeds, and decode and read as `_measure` has it, timed against each other. Of the
    processes' scatter the mean is taken away."""
    draw = np.random.default_rng(seed)
    noise = scatter * draw.standard_normal((processes, len(speeds)))
    own = noise - noise.mean(axis=0)
    return CostsDocument(
        request=COSTS,
        processes=tuple(
            CostProcess(points=tuple(_cost_points(dict(zip(speeds, row, strict=True)), speeds, draw, waited)))
            for row in own.tolist()
        ),
        environment=ENVIRONMENT,
        seconds=20.0,
        measured="2026-01-01T00:00:00+00:00",
    )


def _cost_points(
    own: Mapping[str, float], speeds: Mapping[str, float], draw: np.random.Generator, waited: float
) -> Iterator[CostPoint]:
    """Cost points of one process: each round has a slowness of its own, which all arms share."""
    places = [(context, batch) for batch in (1, 8) for context in CONTEXTS]
    kinds: list[tuple[Work, int, int, float]] = [("training", 128, 8, 1.0)]
    kinds += [("prefill", c, b, 3.0 * b**0.5 / (1 + c / 512)) for c, b in places]
    kinds += [("decoding", c, b, 0.1 * b**0.5 / (1 + c / 512)) for c, b in places]
    for work, context, batch, factor in kinds:
        slow = np.exp(0.1 * draw.standard_normal(4))
        slow /= np.median(slow)
        turns = {arm: slow / (factor * speed) * math.exp(own[arm]) for arm, speed in speeds.items()}
        yield CostPoint(
            work=work,
            context=context,
            batch=batch,
            seconds={arm: tuple(seconds.tolist()) for arm, seconds in turns.items()},
            waited=dict.fromkeys(speeds, (waited,) * 4),
        )


def _measure(arm: Arm, seed: int) -> MeasureDocument:
    places = [(context, batch) for batch in (1, 8) for context in CONTEXTS]

    def rate(top: float, context: int, batch: int) -> Quartiles:
        return quartiles(top * batch**0.5 / (1 + context / 512) * (1 + 0.03 * seed), 0.1)

    def cache(context: int, batch: int) -> CachePoint:
        size = int(context * batch * arm.kv_bytes_per_token)
        return CachePoint(context=context, batch=batch, declared_bytes=size, allocated_bytes=size)

    def decoded(context: int, batch: int) -> DecodePoint:
        found = rate(arm.speed / 10, context, batch)
        turns = tuple(found.median * each for each in TURNS)
        return DecodePoint(context=context, batch=batch, tokens_per_second=found, turns=turns)

    return measure_of(
        kv_bytes_per_token=arm.kv_bytes_per_token,
        cache=tuple(cache(*place) for place in places),
        prefill=tuple(PrefillPoint(context=c, batch=b, tokens_per_second=rate(arm.speed * 3, c, b)) for c, b in places),
        decode=tuple(decoded(*place) for place in places),
    )


def _answers(loss: float, seed: int) -> tuple[list[float], list[float]]:
    """Which of 100 questions were answered right, and the log-likelihoods of 6 passages of 10 bytes."""
    draw = np.random.default_rng(seed)
    correct = (draw.permutation(100) < 60 + seed).astype(float)
    passages = -10 * math.log(2) * loss * 0.75 * (1 + 0.1 * draw.standard_normal(6))
    return correct.tolist(), passages.tolist()


def _evals(correct: list[float], log_p: list[float]) -> EvalsDocument:
    mean, bits_per_byte = sum(correct) / len(correct), -sum(log_p) / (10 * len(log_p)) / math.log(2)
    accuracy = Score(value=mean, stderr=0.02, higher_is_better=True, chance=0.5, items=len(correct))
    bits = Score(value=bits_per_byte, stderr=0.01, higher_is_better=False, chance=None, items=len(log_p))
    scores = {"heldout_pairs": {"acc": accuracy}, "heldout_text": {"bits_per_byte": bits}}
    return EvalsDocument(request={}, scores=scores)


def _samples(correct: list[float], log_p: list[float]) -> Iterator[SampleRecord]:
    """Samples as the harness records them."""
    for i, value in enumerate(correct):
        yield _sample("heldout_pairs", i, {"acc": value})
    for i, value in enumerate(log_p):
        yield _sample("heldout_text", i, {"bits_per_byte": [value, 10], "byte_perplexity": [value, 10]})


def _sample(task: str, item: int, scores: dict[str, Any]) -> SampleRecord:
    return SampleRecord(task=task, doc_id=item, doc_hash=f"{task}{item}", metrics=scores)


@contextmanager
def changed(path: Path) -> Iterator[Any]:
    """The plain data of a stored document, written back when the context ends."""
    document = json.loads(path.read_text(encoding="utf-8"))
    document.pop("checksum", None)
    yield document
    path.write_text(json.dumps(document), encoding="utf-8")


Shown = TypeVar("Shown", bound=Section)


def shown(summary: StudySummary, kind: type[Shown]) -> Shown:
    """A section that is there."""
    found = summary.section(kind)
    assert found is not None
    return found


def arm_documents(summary: StudySummary) -> list[dict[str, Any]]:
    """`arms` of `ablate run --json`."""
    found: Any = reports.documents(summary)["arms"]
    return list(found)


HOSTILE = "<script>alert(1)</script>"


def typical(steps: int = 200) -> StudyOf:
    """Three arms × three seeds: one better, one inconclusive, with unlike costs."""
    return StudyOf(
        arms=[
            Arm("post", [2.400, 2.412, 2.391], steps=steps),
            Arm(
                "pre",
                [2.310, 2.324, 2.299],
                speed=4100,
                steps=steps,
                edits={"block.residual": "pre"},
            ),
            Arm(
                "double",
                [2.402, 2.405, 2.399],
                speed=3880,
                memory_mib=230,
                kv_bytes_per_token=1024,
                steps=steps,
                edits={"block.residual": {"kind": "double"}},
            ),
        ]
    )
