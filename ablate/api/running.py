"""`ablate.run`: train, measure and evaluate what a study is missing, and render its report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import reports
from ablate.api.result import StudyResult
from ablate.api.study_argument import StudyLike, refuse_code, refuse_namesake
from ablate.machine.numerics import restored
from ablate.running.context import open_context
from ablate.running.options import RunOptions, documented
from ablate.running.progress import Wanted
from ablate.running.stages import StudyRunner
from ablate.study.reading import load_study
from ablate.study.sections import AutoSeeds
from ablate.study.study import Study
from ablate.study.written import Sets
from store.documents.shell import plugin_options
from store.errors import ArgumentError
from store.extensions import modules_of
from zoo.settings.registry import plugin_files


@documented(RunOptions.__annotations__)
@restored()
def run(
    study: StudyLike,
    *,
    scale: str | None = None,
    sets: Sets = (),
    store: str | Path = "runs",
    progress: Wanted = True,
    trackers: Sequence[str] = (),
    allow_code: bool = False,
    promote: str | Path | None = None,
    report: bool = True,
    **options: Unpack[RunOptions],
) -> StudyResult:
    """Run a study: train what is missing, measure, evaluate, and write the report.

    Stored runs are reused. After an interruption, the same call resumes.

    Args:
        study: a path, the name of a shipped study, a mapping with the keys of a study file, or a `Study`.
        scale: one of the study's scales; None: `cpu` on a CPU; on a GPU `gpu-hour`, or the study's own for a GPU.
        sets: edits of the study by dotted path: `{"train.lr": 1e-3}` or `["train.lr=1e-3"]`.
        store: the store's folder; created if it is missing.
        progress: True reports on standard error, False is silent, a function receives each line.
        trackers: trackers that runs are also logged to: `tensorboard`, `wandb`, `mlflow`, `trackio`. A tracker that
            fails is dropped, and the study goes on.
        allow_code: allow the study's lm-eval task files to run code, now and later, as long as they do not change.
        promote: for a study with a `design`, where to write a study that confirms its better effects with fresh seeds.
        report: False trains without showing a loss or writing a report, so that the seeds are not looked at: they can
            still be judged together with others, such as those of another lab.
        options: see `ablate.running.options`.

    Returns:
        Results as frames, verdicts and figures, and the runs that failed.

    Raises:
        StudyError: the study cannot be read or planned; a line for every problem.
        ArgumentError, EngineError: an argument cannot be used.
        StoreError: a document of the store is damaged.

    Example:
        >>> result = ablate.run("norm_placement", scale="smoke")
        >>> result.contrasts.select("arm", "difference", "low", "high", "verdict")
    """
    context = open_context(store, options, progress, trackers)
    chosen = load_study(study, scale, sets, device=context.device)
    if scale is None and not isinstance(study, Study) and (shortfall := chosen.shortfall):
        raise chosen.error("needs", f"{shortfall}; `--scale {chosen.scale}` runs it nevertheless")
    # A search space without arms: the baseline alone would answer nothing.
    if chosen.is_search_alone:
        command = " ".join(filter(None, ("ablate search", chosen.written.place, plugin_options(plugin_files()))))
        reason = (
            f"there are no arms to train: `{command} --promote 5` searches the space and writes the best trials as arms"
        )
        raise chosen.error("search", reason)
    refuse_code(chosen, allow_code)
    if not report and isinstance(chosen.sections.seeds, AutoSeeds):
        raise ArgumentError("report", "`seeds: auto` judges the seeds that it has: name the seeds", report)
    if not report and promote is not None:
        raise ArgumentError("report", "`promote` needs verdicts", report)
    promoters = modules_of(__name__) if promote is not None else []
    if promote is not None and not promoters:
        raise ArgumentError("promote", "needs the ability to judge effects, which this installation lacks")
    for each in promoters:
        each.refuse_promotion(chosen, promote)
    before = context.store.study(chosen.name, chosen.scale).read()
    refuse_namesake(chosen, before, context.store)
    runner = StudyRunner(chosen, context, before, blind=not report)
    folder = runner.folder.path
    try:
        runner.run()
    except KeyboardInterrupt:  # losses have been shown, which counts as a look
        if runner.outcome is not None and report:
            reports.record_look(folder)
        raise
    if runner.outcome is None or not report:
        return StudyResult.of(runner, None, None)
    summary = reports.summarise(folder, context.store)
    promoted = next((each.promote(chosen, summary, promote) for each in promoters), None)
    return StudyResult.of(runner, summary, reports.render(folder, summary), promoted)
