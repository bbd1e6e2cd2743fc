"""What a trained model can do and costs: lm-eval tasks, speed, memory, and the machine's own ceiling."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evals.harness import Evaluation, evaluate
    from evals.lm import ZooLM
    from evals.loading import UnknownTaskError
    from evals.matmul import peak_flops_per_second
    from evals.memory import peak_memory
    from evals.positions import loss_by_position
    from evals.precision import use_fast_float32
    from evals.recall import loss_by_recall
    from evals.spec import EvalSpec, MeasureSpec, PositionsSpec, RecallSpec
    from evals.speed import measure

# Lazy, so that `import evals` loads neither torch nor lm_eval.
_HOME = {
    "EvalSpec": "evals.spec",
    "Evaluation": "evals.harness",
    "MeasureSpec": "evals.spec",
    "PositionsSpec": "evals.spec",
    "RecallSpec": "evals.spec",
    "UnknownTaskError": "evals.loading",
    "ZooLM": "evals.lm",
    "evaluate": "evals.harness",
    "loss_by_position": "evals.positions",
    "loss_by_recall": "evals.recall",
    "measure": "evals.speed",
    "peak_flops_per_second": "evals.matmul",
    "peak_memory": "evals.memory",
    "use_fast_float32": "evals.precision",
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
