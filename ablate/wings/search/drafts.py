"""Cost of a proposal, computed without planning its runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ablate.planning.plan import ArmPlan, training_cost
from ablate.study.arms import Arm
from ablate.training.spec import TrainSpec
from ablate.wings.search.search_constraints import CACHE
from ablate.wings.search.search_space import number_at
from zoo.costs import Cost
from zoo.spec import ModelSpec


@dataclass(frozen=True)
class Draft:
    """An arm before planning. widths: row widths that training cycles through."""

    arm: Arm
    vocabulary: int
    widths: tuple[int, ...]

    @cached_property
    def spec(self) -> ModelSpec:
        given = "vocab_size" in self.arm.edits
        return self.arm.model if given else self.arm.model.edit({"vocab_size": self.vocabulary})

    @property
    def train(self) -> TrainSpec:
        return self.arm.train

    @cached_property
    def cost(self) -> Cost:
        return training_cost(self.train, self.spec, self.widths)


def quantity(model: ArmPlan | Draft, name: str) -> float | None:
    """A cost of a model, or the number at a path of its settings; None if there is none. An encoder's KV cache takes
    0 bytes."""
    match name:
        case "parameters":
            return float(model.cost.params)
        case "parameters_embedding":
            return float(model.cost.params_embedding)
        case "flops_per_token":
            return float(model.cost.flops_per_token)
        case "kv_bytes_per_token":
            return model.cost.cache_bytes(1, model.train.context, model.train.dtype) / model.train.context
    if match := CACHE.fullmatch(name):
        return float(model.cost.cache_bytes(1, int(match[1]), model.train.dtype))
    return number_at(model.spec, model.train, name)
