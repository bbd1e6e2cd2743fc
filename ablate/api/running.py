"""`ablate.run`: train, measure and evaluate what a study is missing, and render its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import reports
from ablate.api.allowing import refuse_code
from ablate.api.promoting import promote_effects, refuse_promotion
from ablate.api.questions import StudyLike, read, refuse_namesake
from ablate.api.result import StudyResult
from ablate.machine.numerics import restored
from ablate.running.progress import Wanted
from ablate.running.stages import StudyRunner
from ablate.running.workshop import open_workshop
from ablate.store.claims import STALL_SECONDS
from ablate.study.study import Study
from ablate.study.written import Sets
from ablate.tracking import check
from ablate.training.execution import Microbatch


@restored()
def run(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    device: str | None = None,
    engine: str = "local",
    workers: int | None = None,
    workers_per_gpu: int = 1,
    engine_settings: Mapping[str, str] | None = None,
    checkpoint_seconds: float = 60.0,
    stall_timeout: float = STALL_SECONDS,
    microbatch: Microbatch | None = None,
    recompute: bool = False,
    devices: int = 1,
    shard: bool = False,
    progress: Wanted = True,
    trackers: Sequence[str] = (),
    allow_code: bool = False,
    promote: str | Path | None = None,
) -> StudyResult:
    """Run a study: train what is missing, measure, evaluate, and write the report.

    Stored runs are reused. After an interruption, the same call resumes.

    Args:
        study: a path, the name of a shipped study, a mapping with the keys of a study file, or a `Study`.
        scale: one of the study's scales; None: `cpu` on a CPU; on a GPU `gpu-quick` or, if there is none, `gpu`.
        sets: edits of the study by dotted path: `{"train.lr": 1e-3}` or `["train.lr=1e-3"]`.
        store: the store's folder; created if it is missing.
        device: `cpu` or `cuda`; None: `cuda` if there is a GPU.
        engine: what executes the runs: `local` in separate processes, `inprocess` in this one, `slurm` as jobs of a
            Slurm cluster, `ray` as tasks of a Ray cluster.
        workers: how many runs at once; None: one for each core, or `workers_per_gpu` for each GPU.
        workers_per_gpu: how many runs share a GPU. Small models leave most of it idle, but runs that share a GPU affect
            each other's measured speed.
        engine_settings: for `slurm`, options of sbatch, such as `{"partition": "gpu"}`; for `ray`, `{"address": …}`.
        checkpoint_seconds: how often a run saves a checkpoint to resume from.
        stall_timeout: seconds without a heartbeat after which a process counts as gone and another takes over its run.
            One that died on this machine is noticed at once.
        microbatch: rows of a batch per pass, accumulating gradients, for models that would not fit in memory otherwise;
            `"auto"` halves the number until they fit. Losses agree with those of whole batches to within rounding.
        recompute: keep only each block's input, and recompute its activations in the backward pass: less memory,
            about a third more time.
        devices: split the batches of each run across this many devices of one machine (data parallel): losses agree
            with those of one device to within rounding.
        shard: also shard weights, gradients and the optimizer's state across these devices (FSDP2).
        progress: True reports on standard error, False is silent, a function receives each line.
        trackers: where else runs are logged: `tensorboard`, `wandb`, `mlflow`, `trackio`. One that fails is dropped,
            and the study goes on.
        allow_code: allow the study's lm-eval task files to run code, now and later, as long as they do not change.
        promote: for a study with a `design`, where to write a study that confirms its better effects with fresh seeds.

    Returns:
        Frames, verdicts and figures of what the study found, and the runs that failed.

    Raises:
        StudyError: the study cannot be read or planned; a line for every problem.
        ArgumentError, EngineError: an argument cannot be used.
        StoreError: a document of the store is damaged.

    Example:
        >>> result = ablate.run("norm_placement", scale="smoke")
        >>> result.contrasts.select("arm", "difference", "low", "high", "verdict")
    """
    execution = {
        "checkpoint_seconds": checkpoint_seconds,
        "stall_timeout": stall_timeout,
        "microbatch": microbatch,
        "recompute": recompute,
        "devices": devices,
        "shard": shard,
    }
    check(trackers)
    workshop = open_workshop(store, device, engine, workers, execution, progress, workers_per_gpu, engine_settings)
    workshop = replace(workshop, trackers=tuple(dict.fromkeys(trackers)))
    chosen = read(study, scale, sets, workshop.device)
    _check_arms(chosen)
    refuse_code(chosen, workshop.store, allow_code)
    if promote is not None:
        refuse_promotion(chosen, promote)
    place = workshop.store.study(chosen.name, chosen.scale)
    refuse_namesake(chosen, place.read(), workshop.store)
    folder = place.path
    runner = StudyRunner(chosen, workshop, lambda: reports.open_arms(folder))
    try:
        runner.run()
    except KeyboardInterrupt:  # losses have been shown
        if runner.outcome is not None:
            reports.record_look(folder)
        raise
    if runner.outcome is None:
        return StudyResult.of(runner, None, None)
    summary = reports.summarise(folder, workshop.store)
    promoted = None if promote is None else promote_effects(chosen, summary, promote)
    return StudyResult.of(runner, summary, reports.render(folder, summary), promoted)


def _check_arms(study: Study) -> None:
    """Raises StudyError for a study that has a space and no arms: its baseline alone would answer nothing."""
    if study.is_search_alone:
        place = study.written.place
        reason = f"there are no arms to train: `ablate search {place} --promote 5` tries the space and writes some"
        raise study.error("search", reason)
