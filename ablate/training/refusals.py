"""Settings of execution that a run's model or training exclude."""

from __future__ import annotations

from ablate.training.execution import Execution
from ablate.training.spec import PARTS, TrainSpec
from store.documents import RunDocument
from zoo.compatibility.support import unsupported
from zoo.compatibility.traits import Operation
from zoo.spec import ModelSpec


def refusal(run: RunDocument, train: TrainSpec, model: ModelSpec, execution: Execution) -> str | None:
    """Why a run cannot be executed with these settings; None if it can. train, model: the run's own."""
    cut, devices = execution.microbatch, execution.devices
    splits = {f"`--microbatch {cut}`": isinstance(cut, int), f"`--devices {devices}`": devices > 1}
    option = next((option for option, is_there in splits.items() if is_there), None)
    if option is not None and model.couples_rows is not None:
        return f"{option}: a batch cannot be split: {model.couples_rows}"
    if train.batch % devices:
        return f"{option}: a batch of {train.batch} rows cannot be split evenly across {devices} devices"
    return _unsharded(run, train, model) if execution.shard else None


def _unsharded(run: RunDocument, train: TrainSpec, model: ModelSpec) -> str | None:
    unfit = {
        **{f"`train.{name}`": getattr(train, name) is not None for name in PARTS},
        "`train.average`": train.average is not None,
        "`train.compile` (add `--set train.compile=false`)": train.compile,
        "a teacher": run.teacher is not None,
        "probes": run.probes is not None,
        f"the optimizer {train.optimizer.kind}": train.optimizer.kind != "adamw",
        **{str(part): True for part in unsupported(model, Operation.SHARDING)},
    }
    found = next((name for name, is_there in unfit.items() if is_there), None)
    return None if found is None else f"`--shard` does not support {found}"
