"""Capabilities and costs of a trained model: lm-eval tasks, speed, memory, and the machine's own ceiling."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evals.costs.memory import peak_memory
    from evals.costs.peaks import peak_flops_per_second, use_fast_float32
    from evals.costs.spec import MeasureSpec
    from evals.costs.speed import measure
    from evals.evaluate import Evaluation, evaluate
    from evals.evaluations.positions import PositionsSpec, loss_by_position
    from evals.evaluations.recall import RecallSpec, loss_by_recall
    from evals.harness.lm import ZooLM
    from evals.harness.loading import UnknownTaskError
    from evals.spec import EvalSpec

# Lazy, so that `import evals` loads neither torch nor lm_eval.
_HOME = {
    "EvalSpec": "evals.spec",
    "Evaluation": "evals.evaluate",
    "MeasureSpec": "evals.costs.spec",
    "PositionsSpec": "evals.evaluations.positions",
    "RecallSpec": "evals.evaluations.recall",
    "UnknownTaskError": "evals.harness.loading",
    "ZooLM": "evals.harness.lm",
    "evaluate": "evals.evaluate",
    "loss_by_position": "evals.evaluations.positions",
    "loss_by_recall": "evals.evaluations.recall",
    "measure": "evals.costs.speed",
    "peak_flops_per_second": "evals.costs.peaks",
    "peak_memory": "evals.costs.memory",
    "use_fast_float32": "evals.costs.peaks",
}

__all__ = [
    "EvalSpec",
    "Evaluation",
    "MeasureSpec",
    "PositionsSpec",
    "RecallSpec",
    "UnknownTaskError",
    "ZooLM",
    "evaluate",
    "loss_by_position",
    "loss_by_recall",
    "measure",
    "peak_flops_per_second",
    "peak_memory",
    "use_fast_float32",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'evals' has no attribute '{name}'")
    return getattr(importlib.import_module(_HOME[name]), name)
