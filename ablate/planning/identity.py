"""The identity of a run, which is everything that can change its numbers, and digests that name runs and documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import NamedTuple

from pydantic import BaseModel

from ablate.training.spec import TrainSpec
from evals.spec import EvalSettings
from store.documents import JsonObject, RunDocument, RunStart, RunTeacher
from zoo.settings.identity import DIGITS, canonical, digest_of, identity_of
from zoo.settings.registry import versions_of
from zoo.spec import ModelSpec

SEED = "<the seed>"
"""Placeholder for the seed in the hashed text."""
SOURCES = ("start", "teacher")
"""Fields of a run that name the models that it needs, in the order in which digests take them in."""


class RunPlan(NamedTuple):
    """One training run of an arm."""

    arm: str
    digest: str
    """Name of the run's folder."""
    seed: int
    shared: RunDocument
    """Identity, whose digest and seed do not count: runs of an arm share one object, as there may be thousands."""

    @classmethod
    def of(cls, arm: str, identity: RunDocument) -> RunPlan:
        return cls(arm, identity.digest, identity.seed, identity)

    @property
    def identity(self) -> RunDocument:
        return self.shared.model_copy(update={"digest": self.digest, "seed": self.seed})


def settings_of(run: RunDocument) -> RunDocument:
    """The run without seed, digest and sources: equal for the seeds of an arm."""
    return run.model_copy(update={"digest": "", "seed": 0, **dict.fromkeys(SOURCES)})


def recomputed(run: RunDocument, of_seed: Callable[[int], str]) -> RunDocument:
    """The run with its digest recomputed from its document. of_seed: `digest_of_seed` of its settings."""
    found = run.model_copy(update={"digest": of_seed(run.seed), **dict.fromkeys(SOURCES)})
    for source in SOURCES:
        if (known := getattr(run, source)) is not None:
            found = with_source(found, source, known)
    return found


def request_digest(spec: BaseModel) -> str:
    """The digest that names the result document of a measurement or evaluation request.

    An edited task file or plug-in makes another request.
    """
    beside = {"own": spec.content() if isinstance(spec, EvalSettings) else None, "plugins": versions_of(spec)}
    return digest_of({"request": identity_of(spec), **{key: dict(value) for key, value in beside.items() if value}})


def canonical_model(spec: ModelSpec) -> JsonObject:
    """Plain data that `zoo.parse` reads, identical for every spelling of an architecture: one block name per layer."""
    names = {json.dumps(spec.named("block").model_dump(mode="json"), sort_keys=True): "block"}
    pattern = []
    for layer in spec.layers:
        text = json.dumps(layer.model_dump(mode="json"), sort_keys=True)
        pattern.append(names.setdefault(text, f"block{len(names) + 1}"))
    parts = {name: json.loads(text) for text, name in names.items()}
    block = parts.pop("block")
    fixed = {"block": block, "blocks": parts, "first": [], "pattern": pattern, "final_norm": spec.has_final_norm}
    return {**spec.dump(), **fixed}


def run_identity(run: RunDocument, spec: ModelSpec, train: TrainSpec) -> JsonObject:
    """Everything that determines a run's numbers, except its seed. spec, train: the run's own."""
    beside = {name: value for name, value in identity_of(run).items() if name not in ("digest", "seed")}
    return {**beside, "model": spec.identity(), "train": identity_of(train)}


def without_rate(identity: JsonObject) -> JsonObject:
    """A run's identity without its learning rate; equal for arms that differ only in their tuned rate."""
    train = identity["train"]
    assert isinstance(train, dict)
    return {**identity, "train": {name: value for name, value in train.items() if name != "lr"}}


def digest_of_seed(run: RunDocument, spec: ModelSpec, train: TrainSpec) -> Callable[[int], str]:
    """The run's digest by its seed. The text before the seed is hashed once: an arm may have thousands of seeds."""
    before, seed_of_run, after = canonical({**run_identity(run, spec, train), "seed": SEED}).partition(f'"{SEED}"')
    if not seed_of_run or seed_of_run in after:
        raise ValueError("a run has one seed")
    common = hashlib.sha256(before.encode())

    def digest(seed: int) -> str:
        found = common.copy()
        found.update(f"{seed}{after}".encode())
        return found.hexdigest()[:DIGITS]

    return digest


def with_source(run: RunDocument, source: str, known: RunStart | RunTeacher) -> RunDocument:
    """The run, with a source of `SOURCES`: another run or a checkpoint. The digest changes accordingly."""
    digest = digest_of({"run": run.digest, source: identity_of(known)})
    return run.model_copy(update={"digest": digest, source: known})
