"""Results of a store's studies, recorded in files to commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from ablate.api.reporting import reported
from ablate.wings.catalogue.parts import Plain, own_parts
from ablate.wings.results.document import (
    RecordedArm,
    RecordedContrast,
    RecordedCost,
    RecordedCurve,
    RecordedEffect,
    RecordedInterval,
    RecordedResult,
    RecordedSetting,
    RecordedTrial,
    end,
    interval,
    range_of,
)
from ablate.wings.results.recorded import read
from ablate.wings.science import result_files
from reports.judge.findings.comparison import Comparison
from reports.judge.findings.study_summary import ArmSummary, StudySummary
from reports.judge.reading.documents import StudyDocuments, TextReferences
from reports.page.sections import summarise_study
from reports.page.sections.losses import Losses
from reports.page.sections.trade_off import TradeOff
from reports.page.wording import answers
from reports.page.wording.arm_words import qualified
from store import AblateError, Store, StudyFolder
from store.documents import StudyArm, StudyDocument
from store.documents.study import UNJUDGED
from store.documents.tuning import RATE, untuned
from store.errors import ReportError


def record_result(path: str | Path, directory: str | Path | None = None, notes: Sequence[str] = ()) -> Path:
    """Record a study's result as a small file to commit: losses, differences, verdicts, claims, costs and conditions.

    Args:
        path: a study's folder in a store.
        directory: the folder for the file; None: `results` in the folder of the study's file.
        notes: what a reader should know beside the numbers; if empty, the notes of an earlier file are kept.

    Returns:
        The file, `<study>@<scale>.json`.

    Raises:
        AblateError: `path` is not a study, it has no result, or its study has no file and no directory is given.

    Example:
        >>> ablate.record_result("runs/studies/norm_placement-cpu", notes=["The machine ran other programs, too."])
        PosixPath('studies/results/norm_placement@cpu.json')
    """
    folder, kind = reported(path)
    if kind != "study":
        raise AblateError(f"{path} is a {kind}: only a study's result can be recorded")
    place = beside(folder) if directory is None else Path(directory)
    found = result_of(folder, notes)
    before = place / f"{found.name}.json"
    if not notes and before.exists():
        found = found.model_copy(update={"notes": read(before).notes})
    return result_files.write(found, place)


def result_of(study_dir: Path, notes: Sequence[str] = ()) -> RecordedResult:
    """The result of a study in a store. Raises ReportError if there is none."""
    summary = summarise_study(study_dir)
    if summary.study.scale in UNJUDGED:
        raise ReportError(
            f"{study_dir}: a {summary.study.scale} run only shows that the study works, so it is not recorded"
        )
    if not any(arm.seeds or arm.failed for arm in summary.arms):
        raise ReportError(f"{study_dir}: no run has ended, so there is no result to record")
    return recorded(summary, StudyDocuments.of(study_dir), notes)


def beside(study_dir: Path) -> Path:
    """`results` in the folder of the study's file. Raises ReportError if the study has no file."""
    study = StudyFolder(study_dir).read()
    if study is None or study.path is None:
        raise ReportError(f"{study_dir}: its study has no file to record it beside: name a directory")
    return Path(study.path).parent / "results"


def results_of_store(root: Path) -> Iterator[tuple[RecordedResult, Path | None]]:
    """The result of each study in a store that has one, with the path of its report if that exists."""
    for folder in Store(root).studies():
        study = folder.read()
        if study is not None and study.scale not in UNJUDGED and StudyDocuments.of(folder.path).ended:
            yield result_of(folder.path), folder.report_path if folder.report_path.exists() else None


def recorded(summary: StudySummary, documents: StudyDocuments, notes: Sequence[str] = ()) -> RecordedResult:
    """The recorded form of a study's result. documents: the study's, for the settings of its runs. notes: for its
    readers."""
    study, known = summary.study, dict(summary.environment)
    runs = {arm.name: _run_of(documents, arm) for arm in study.arms}
    parts = own_parts(runs)
    found = RecordedResult(
        study=study.name,
        scale=study.scale,
        question=study.question,
        citation=study.citation,
        created=study.created,
        recorded=datetime.now(UTC).date().isoformat(),
        commit=_joined(known, "git_commit") or None,
        machine=_joined(known, "device"),
        threads=_joined(known, "threads"),
        torch=_joined(known, "torch"),
        command=_command(study),
        notes=tuple(notes),
        setting=_setting(summary),
        answer=answers.headline(summary),
        qualifiers=tuple(answers.qualifiers(summary)),
        caveats=study.caveats,
        baseline=summary.baseline,
        unit=summary.unit,
        margin=study.margin,
        arms=tuple(_arm(summary, arm, runs[arm.name], parts[arm.name]) for arm in summary.arms),
        effects=tuple(
            RecordedEffect(
                name=each.effect.name,
                verdict=each.verdict,
                difference=_difference(each.comparison),
                detectable=_detectable(each.comparison),
            )
            for each in summary.effects
        ),
        contrasts=tuple(
            RecordedContrast(
                arm=each.arm, against=each.base, difference=_difference(each.comparison), verdict=each.verdict
            )
            for each in summary.contrasts
        ),
    )
    for section in summary.sections.values():
        found = found.model_copy(update=section.recorded(summary))
    return with_references(found, summary.references)


def with_references(result: RecordedResult, known: Mapping[str, TextReferences]) -> RecordedResult:
    """The result with losses of simple models by arm, and with an answer that says what they imply."""
    base = known.get(result.baseline)
    if base is None:
        return result
    arms = []
    for arm in result.arms:
        own = known[arm.name].read if arm.name in known else None
        arms.append(arm.model_copy(update={"references": None if own == base.read else own}))
    update = {"arms": tuple(arms), "references": base.read, "references_whole": base.whole}
    found = result.model_copy(update=update)
    answer = qualified(found.answer, found.losses, found.references_by_arm, found.baseline)
    return found.model_copy(update={"answer": answer})


def _joined(environment: Mapping[str, tuple[str, ...]], key: str) -> str:
    """The value that all runs share, or all distinct values separated by commas."""
    return ", ".join(environment.get(key, ()))


def _command(study: StudyDocument) -> str:
    """The command that repeats the study, independent of where its files lie: paths start above the folder `studies`,
    or are the bare file name. Plug-ins outside that folder appear by name only."""
    if study.path is None:
        return study.model_copy(update={"plugin_files": _named_from(None, study.plugin_files)}).command()
    *folders, name = Path(study.path).parts
    first = max((at for at, folder in enumerate(folders) if folder == "studies"), default=len(folders) - 1)
    files = _named_from(Path(*folders[:first]), study.plugin_files)
    path = Path(*folders[first:], name).as_posix()
    return study.model_copy(update={"path": path, "plugin_files": files}).command()


def _named_from(folder: Path | None, files: Sequence[str]) -> tuple[str, ...]:
    """Paths relative to `folder` for files below it, else the bare file name."""
    paths = map(Path, files)
    return tuple(
        each.relative_to(folder).as_posix() if folder and each.is_relative_to(folder) else each.name for each in paths
    )


def _run_of(documents: StudyDocuments, arm: StudyArm) -> Plain:
    """Model and training settings of an arm's first stored run as plain data; empty if no run has started."""
    for run in arm.runs:
        found = documents.store.read_run(run.digest)
        if found is not None:
            return {**found.model, "train": found.train}
    return {}


def _setting(summary: StudySummary) -> RecordedSetting:
    study = summary.study
    contexts = summary.inputs.contexts
    return RecordedSetting(
        parameters=study.parameters,
        tokens_per_parameter=range_of([arm.length.tokens_per_parameter for arm in study.arms]),
        context=contexts[0] if len(contexts) == 1 else None,
        matched=study.matched,
        rates="each arm at its own tuned rate" if study.tuning else untuned(study.rates),
        seeds=max((len(arm.seeds) + arm.failed for arm in summary.arms), default=0),
        data=", ".join(sorted(summary.inputs.sources)),
        vocabularies=summary.inputs.vocabularies,
    )


def _arm(summary: StudySummary, arm: ArmSummary, run: Plain, parts: tuple[str, ...]) -> RecordedArm:
    loss, seeds = arm.loss, [*arm.seeds, *(seed for of in arm.shared.values() for seed in of)]
    planned, worth = arm.planned, summary.effective_compute.get(arm.name)
    edits = {**planned.edits, **planned.tuned, **planned.matching}
    rate = edits.get(RATE, run.get("train", {}).get("lr"))
    section = summary.section(Losses)
    curves = section.curves if section else ()
    points = next((curve.points for curve in curves if (curve.arm, curve.kind) == (arm.name, "validation")), ())
    trade_off = summary.section(TradeOff)
    ratios = ((cost, cost.ratios.get(arm.name)) for cost in (trade_off.distinct if trade_off else ()))
    costs = {
        cost.key: RecordedCost(label=cost.label, ratio=ratio.mean, low=end(ratio.low), high=end(ratio.high))
        for cost, ratio in ratios
        if ratio is not None
    }
    return RecordedArm(
        name=arm.name,
        edits=edits,
        parts=parts,
        verdict=arm.verdict,
        loss=interval(loss),
        difference=_difference(arm.comparison) if arm.comparison else None,
        effective_compute=RecordedInterval(mean=worth.value, low=worth.low or None, high=end(worth.high))
        if worth
        else None,
        detectable=_detectable(arm.comparison) if arm.comparison else None,
        rate=float(rate) if isinstance(rate, int | float) else None,
        seeds=dict(zip(map(str, seeds), loss.values, strict=True)) if loss else {},
        shared=dict(arm.shared),
        stalled=arm.stalled,
        diverged=arm.diverged,
        tuning=tuple(_tuning(summary.study, arm.name)),
        curve=RecordedCurve(steps=tuple(int(point.x) for point in points), loss=tuple(point.mean for point in points)),
        costs=costs,
    )


def _difference(found: Comparison) -> RecordedInterval | None:
    return interval(found.difference, found.p_holm)


def _detectable(found: Comparison) -> float | None:
    return end(found.detectable.value) if found.detectable else None


def _tuning(study: StudyDocument, arm: str) -> Iterator[RecordedTrial]:
    """Every learning rate that an arm tried, if the rate was tuned."""
    for tuning in study.tuning:
        for trial in tuning.trials if tuning.arm == arm and RATE in tuning.chosen else ():
            rate = trial.settings[RATE]
            if isinstance(rate, int | float):
                yield RecordedTrial(rate=float(rate), losses=trial.losses)
