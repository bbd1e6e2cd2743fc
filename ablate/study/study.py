"""A study as `ablate.study.reading` reads it: typed sections and resolved arms, and problems between its parts.

These are problems of tuning, seeds, optimizers and caveats that are each valid alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablate.data.sources import DataSource
from ablate.study.arms import DATA, SOURCES, TRAIN, Arm, ArmBuilder, tuning_edit
from ablate.study.complaints import Problem, StudyError
from ablate.study.layers import Origins, common_length
from ablate.study.scales import ShippedScale
from ablate.study.sections import AutoSeeds, Budget, StudySections
from ablate.study.tune_spec import Carried, TuneSpec
from ablate.study.written import Written
from ablate.training.probes import ProbeSpec
from ablate.training.spec import TrainSpec
from evals.costs.spec import MeasureSpec
from evals.spec import EvalSpec
from store.documents import Caveat, HeldOutPart
from store.documents.study import SCALES
from zoo.errors import did_you_mean

__all__ = ["Arm", "Problem", "Study", "StudyError"]


@dataclass(frozen=True)
class Study:
    """A question, ready to be planned. The first arm is the baseline: the base model as it is."""

    written: Written
    scale: str
    sections: StudySections
    arms: tuple[Arm, ...]
    vocabulary_given: bool
    """Whether the study sets the model's vocabulary size; otherwise it is the tokenizer's."""
    origins: Origins = field(repr=False, compare=False)
    builder: ArmBuilder = field(repr=False, compare=False)
    factors: tuple[str, ...] = ()
    """Names by whose effects its arms are judged together; empty if arms are compared one by one."""
    budget_share: str | None = None
    """Path of the setting that makes the budget a share of the study's; None if it is the whole."""
    rung: str | None = None
    """Name of this rung of the ladder; None without a ladder."""
    reads: HeldOutPart = "test"
    """Held-out part of final losses."""
    shipped: ShippedScale | None = None
    """The shipped scale, if the study runs at one."""
    brought: Mapping[str, object] = field(default_factory=dict)
    """Settings that come from that scale, by path."""
    smaller: tuple[Study, ...] = ()
    """The same study at the other rungs of its ladder, as they are listed: smaller models and shorter runs."""

    @property
    def name(self) -> str:
        """Name of the study in the store."""
        return self.written.name

    @property
    def path(self) -> Path | None:
        """The study's file; None if it was written in Python."""
        return self.written.path

    @property
    def text(self) -> str:
        """The text of the study file."""
        return self.written.text

    @property
    def question(self) -> str:
        """The question that it answers, in a sentence."""
        return self.sections.question

    @property
    def source(self) -> str | None:
        """Source of the question or the claim."""
        return self.sections.source

    @property
    def shortfall(self) -> str | None:
        """Why models of this scale are too small for the question; None if the study does not say so."""
        needs = self.sections.needs
        if needs is None or self.scale not in SCALES or SCALES.index(self.scale) >= SCALES.index(needs):
            return None
        return f"models of the scale {self.scale} are too small to answer this question, which needs {needs}"

    @property
    def baseline(self) -> str:
        """The name of the arm that the others are compared with."""
        return self.sections.baseline

    @property
    def contrasts(self) -> tuple[tuple[str, str], ...]:
        """Declared comparisons besides those with the baseline: (arm, other arm)."""
        return tuple((arm, other) for arm, other in (each.split(" - ") for each in self.sections.contrasts))

    @property
    def caveats(self) -> tuple[Caveat, ...]:
        """Sentences that the result must not be read without."""
        return tuple(Caveat(text=each) if isinstance(each, str) else each for each in self.sections.caveats)

    @property
    def budget(self) -> Budget:
        """The training budget of every arm."""
        return self.sections.budget

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of every arm; with `seeds: auto`, those of the first round."""
        seeds = self.sections.seeds
        return tuple(range(seeds.start)) if isinstance(seeds, AutoSeeds) else seeds

    @property
    def auto_seeds(self) -> AutoSeeds | None:
        """Rule by which seeds are added; None if their number is fixed, or nothing is compared."""
        seeds = self.sections.seeds
        return seeds if isinstance(seeds, AutoSeeds) and not self.is_search_alone else None

    @property
    def tune(self) -> TuneSpec | None:
        """Settings that each arm tunes first; None for none."""
        tune = self.sections.tune
        return tune if isinstance(tune, TuneSpec) and not self.is_search_alone else None

    @property
    def carried(self) -> Carried | None:
        """Source of the learning rates in the file, if they were tuned earlier."""
        return self.sections.tune if isinstance(self.sections.tune, Carried) else None

    @property
    def search(self) -> Any:
        """The space and objectives of `ablate search`; None if there is no search."""
        return getattr(self.sections, "search", None)

    @property
    def is_search_alone(self) -> bool:
        """Whether nothing is compared: a space to search, and no arm besides the baseline."""
        return self.search is not None and len(self.arms) == 1

    @property
    def data(self) -> DataSource:
        """Training data."""
        return self.sections.data

    @property
    def own_tokenizers(self) -> bool:
        """Whether arms differ in their tokenizer: then losses compare per byte, not per token."""
        return any(arm.data != self.data for arm in self.arms)

    @property
    def train(self) -> TrainSpec:
        """Training settings of the base."""
        return self.sections.train

    @property
    def measure(self) -> MeasureSpec | None:
        """Measurements of trained models; None for none."""
        return self.sections.measure

    @property
    def evals(self) -> EvalSpec | None:
        """Evaluations; None for none."""
        return self.sections.evals

    @property
    def probes(self) -> ProbeSpec | None:
        """Probes during training; None for none."""
        return self.sections.probes

    @property
    def folder(self) -> Path:
        """Base of relative paths in the study."""
        return self.written.folder

    def error(self, setting: str, reason: str) -> StudyError:
        """An error at a setting, by its dotted path (`"budget.flops"`)."""
        return StudyError([self.origins.problem(tuple(setting.split(".")), reason)])


REMEDY = "set `tune: off` if learning rates are part of the question, `tune: carried` if they were tuned earlier"


def tuning_problems(builder: ArmBuilder, tune: TuneSpec, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Tuned values that an arm cannot have, and settings that both tuning and an arm set."""
    seen: dict[Problem, None] = {}
    for path in tune.paths:
        reason = builder.shared_reason(tuple(path.split("."))) or _never_tuned(path)
        if reason:
            yield builder.origins.problem(tuning_edit(path, None).target, reason, at_key=True)
            continue
        for arm in arms:
            yield from _chosen_twice(builder, tune, arm, path)
            for place, value in enumerate(tune.space_around(arm.train.lr)[path].ends):
                try:
                    builder.build(arm.name, [*arm.own, tuning_edit(path, value, str(place))], arm.target)
                except StudyError as error:
                    seen |= dict.fromkeys(_at_path(problem, path, builder) for problem in error.problems)
    yield from seen


def seed_problems(origins: Origins, tune: TuneSpec, seeds: Sequence[int]) -> Iterator[Problem]:
    """Seeds that both choose the settings and judge them."""
    if both := sorted(set(seeds) & set(tune.seed_numbers)):
        chosen = f"{tune.seed_numbers[0]} to {tune.seed_numbers[-1]}" if tune.seeds > 1 else str(tune.seed_numbers[0])
        reason = f"cannot include {', '.join(map(str, both))}, since tuning uses {chosen}: choose others"
        yield origins.problem(("seeds",), reason)


def _chosen_twice(builder: ArmBuilder, tune: TuneSpec, arm: Arm, path: str) -> Iterator[Problem]:
    for edit in arm.own:
        if common_length(edit.path, tuple(path.split("."))) == min(len(edit.path), path.count(".") + 1):
            reason = f"tuning sets {path} for every arm" + (f": {REMEDY}" if tune.space is None else "")
            yield builder.origins.problem(edit.target, reason, at_key=True)


def _never_tuned(path: str) -> str | None:
    if path == "vocab_size":
        return "cannot be tuned: the data determine the vocabulary size"
    if path.partition(".")[0] in SOURCES:
        return f"{path.partition('.')[0]} cannot be tuned"
    if path.partition(".")[0] == DATA:
        return "cannot be tuned, since losses under different tokenizers are not comparable: make each an arm"
    return None


def _at_path(problem: Problem, path: str, builder: ArmBuilder) -> Problem:
    """Report an unknown path at the path itself, not at its values."""
    if problem.kind != "unknown_key":
        return problem
    return builder.origins.problem(tuning_edit(path, None).target, problem.reason, kind=problem.kind)


def optimizer_problems(builder: ArmBuilder, arms: Sequence[Arm]) -> Iterator[Problem]:
    """Optimizers that average, of weights that are put back on the unit sphere, which an average leaves."""
    for arm in arms:
        if arm.train.optimizer.averages and arm.model.unit_weights:
            own = (edit.target for edit in arm.own if edit.path[:2] == (TRAIN, "optimizer"))
            reason = f"{arm.train.optimizer.kind} averages weights, which unit_weights of the model then rescales"
            yield builder.origins.problem(next(own, (TRAIN, "optimizer")), reason)


def caveat_problems(origins: Origins, sections: StudySections, known: Sequence[str], noun: str) -> Iterator[Problem]:
    """Caveats and labels of arms, or of factors, that the study does not have. known: names of its arms or factors."""
    for place, caveat in enumerate(sections.caveats):
        if isinstance(caveat, Caveat) and caveat.arm is not None and caveat.arm not in known:
            reason = f"unknown {noun} '{caveat.arm}'" + did_you_mean(caveat.arm, known)
            yield origins.problem(("caveats", str(place), "arm"), reason)
    for name in sections.labels:
        if name not in known:
            yield origins.problem(("labels", name), f"unknown {noun} '{name}'" + did_you_mean(name, known))
