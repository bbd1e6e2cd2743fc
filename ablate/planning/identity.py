"""The identity of a run, all that can change its numbers, and the digests that name runs and documents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import BaseModel

from ablate.store.documents import JsonObject, RunDocument, RunStart, RunTeacher
from evals.spec import EvalSettings
from zoo.registry import versions_of
from zoo.spec import ModelSpec

SCHEMA = 1
DIGITS = 16
SEED = "<the seed>"
"""Where the seed stands in the text that is hashed."""


@dataclass(frozen=True)
class RunPlan:
    """One training run of an arm."""

    arm: str
    identity: RunDocument

    @property
    def digest(self) -> str:
        """Names the run's folder."""
        return self.identity.digest

    @property
    def seed(self) -> int:
        return self.identity.seed


def digest_of(data: Mapping[str, object] | Sequence[str]) -> str:
    """16 hex digits of the sha256 of canonical JSON."""
    return hashlib.sha256(canonical(data).encode()).hexdigest()[:DIGITS]


def canonical(data: Mapping[str, object] | Sequence[str]) -> str:
    """JSON with sorted keys and without spaces."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def request_digest(spec: BaseModel) -> str:
    """The digest that names the document which answers a measurement or evaluation request.

    An edited task file or plug-in is another request.
    """
    beside = {"own": spec.content() if isinstance(spec, EvalSettings) else None, "plugins": versions_of(spec)}
    return digest_of(
        {"schema": SCHEMA, **spec.model_dump(mode="json"), **{key: value for key, value in beside.items() if value}}
    )


def canonical_model(spec: ModelSpec) -> JsonObject:
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


def identified(run: RunDocument, resolved: JsonObject, seeds: Sequence[int]) -> Iterator[RunDocument]:
    """The run with each of these seeds and its digest: that of everything else, with the model `resolved`.

    What seeds have in common is written and hashed once: an arm may have thousands.
    """
    plain = run.model_dump(by_alias=True, exclude={"digest"})
    before, seed_of_run, after = canonical({**plain, "model": resolved, "seed": SEED}).partition(f'"{SEED}"')
    if not seed_of_run or seed_of_run in after:
        raise ValueError("a run has one seed")
    common = hashlib.sha256(before.encode())
    for seed in seeds:
        found = common.copy()
        found.update(f"{seed}{after}".encode())
        yield run.model_copy(update={"seed": seed, "digest": found.hexdigest()[:DIGITS]})


def starting(run: RunPlan, start: RunStart) -> RunPlan:
    """The run when it starts from the weights of another, or of a checkpoint."""
    digest = digest_of({"run": run.digest, "start": start.model_dump()})
    return replace(run, identity=run.identity.model_copy(update={"digest": digest, "start": start}))


def taught(run: RunPlan, teacher: RunTeacher) -> RunPlan:
    """The run when it is distilled from another, or from a checkpoint."""
    digest = digest_of({"run": run.digest, "teacher": teacher.model_dump()})
    return replace(run, identity=run.identity.model_copy(update={"digest": digest, "teacher": teacher}))
