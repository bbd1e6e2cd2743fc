"""The identity of a run, all that can change its numbers, and the digests that name runs and documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel

from ablate.training.spec import TrainSpec
from evals.spec import EvalSettings
from zoo.spec import ModelSpec

SCHEMA = 1


@dataclass(frozen=True)
class RunPlan:
    """One training run. `identity` is its run.json; `digest` names its folder."""

    digest: str
    arm: str
    seed: int
    identity: dict[str, Any]


def digest_of(data: Mapping[str, Any]) -> str:
    """16 hex digits of the sha256 of canonical JSON."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def request_digest(spec: BaseModel) -> str:
    """The digest that names the document which answers a measurement or evaluation request.

    An edited task file is another request.
    """
    own = spec.content() if isinstance(spec, EvalSettings) else None
    return digest_of({"schema": SCHEMA, **spec.model_dump(mode="json"), **({"own": own} if own else {})})


def canonical_model(spec: ModelSpec) -> dict[str, Any]:
    """Plain data that `zoo.parse` reads, the same for every spelling of an architecture: one name per layer."""
    names = {json.dumps(spec.named("block").model_dump(mode="json"), sort_keys=True): "block"}
    pattern = []
    for layer in spec.layers:
        text = json.dumps(layer.model_dump(mode="json"), sort_keys=True)
        pattern.append(names.setdefault(text, f"block{len(names) + 1}"))
    parts = {name: json.loads(text) for text, name in names.items()}
    block = parts.pop("block")
    fixed = {"block": block, "blocks": parts, "first": [], "pattern": pattern, "final_norm": spec.has_final_norm}
    return {**spec.dump(), **fixed}


def run_plan(arm: str, seed: int, spec: ModelSpec, train: TrainSpec, rest: Mapping[str, Any]) -> RunPlan:
    """One run. `rest` is what else its identity has: steps, data, numerics, and probes where it has any.

    Probes change no other number, but a run without has nothing to show.
    """
    model, settings = canonical_model(spec), train.model_dump(mode="json")
    identity = {"schema": SCHEMA, "seed": seed, "model": model, "train": settings, **rest}
    digest = digest_of({**identity, "model": spec.resolve()})
    return RunPlan(digest, arm, seed, {"digest": digest, **identity})


def starting(run: RunPlan, start: dict[str, str]) -> RunPlan:
    """The run when it starts from the weights of another: `run` is the digest of that, `pooling` how heads are made and
    `growth` how layers are, where there are more of them or wider ones."""
    digest = digest_of({"run": run.digest, "start": start})
    return replace(run, digest=digest, identity={**run.identity, "digest": digest, "start": start})
