"""`studies/<name>-<scale>/study.json`: what a study requested: arms, budgets, and the digests of their runs."""

from __future__ import annotations

import json
import operator
import shlex
from pathlib import Path
from typing import Literal

from pydantic import Field, JsonValue

from ablate.store.documents._document import (
    Document,
    Flops,
    NatsPerToken,
    Part,
    Seconds,
    Tokens,
    is_none,
)
from ablate.store.documents.claims import StudyClaim
from ablate.store.documents.design import StudyDesign
from ablate.store.documents.published import StudyPublished
from ablate.store.documents.registered import StudyRegistration
from ablate.store.documents.shell import from_here, plugin_options
from ablate.store.documents.study_arm import StudyArm
from ablate.store.documents.tuning import StudyRates, StudyTuning

SCALES = ("smoke", "cpu", "cpu-long", "gpu-minutes", "gpu-hour", "gpu-day", "gpu-week")
"""Scales that come with the tool, from the smallest to the largest."""
UNJUDGED = frozenset({"smoke"})
"""Scales whose runs are too short for any verdict, and to stall."""
FORMER_SCALES = {"gpu-quick": "gpu-minutes", "gpu": "gpu-week"}
"""Names that scales had before, and have now: studies and commands may use either."""


class ParameterBudget(Part):
    """The setting that matches every arm's parameters to the baseline's."""

    knob: str
    """Its path."""
    step: int
    """Legal values are multiples of this."""
    count: str
    """`total` or `non_embedding` parameters."""


class SpentBudget(Part):
    """Budget of one training run: one of flops, tokens and seconds."""

    flops: Flops | None = None
    """Training FLOPs, forward and backward."""
    tokens: Tokens | None = None
    """Tokens read in training."""
    seconds: Seconds | None = None
    """Seconds of training steps on this device."""
    parameters: ParameterBudget | None = None
    """Matching of parameters, if they are matched."""


class StudyObjective(Part):
    """The training objective."""

    kind: str
    """The objective's name."""
    counts: str
    """Tokens that the loss is a mean over, in words."""


class StudyContrast(Part):
    """A comparison of two arms, neither of which is the baseline."""

    arm: str
    """The arm's name."""
    other: str
    """Name of the arm that it is compared with."""


class StudyLook(Part):
    """One look of a study that adds seeds in rounds: its arms are judged at this number of seeds."""

    seeds: int
    """Number of seeds."""
    alpha: float
    """Significance level of this look."""


class StudyRung(Part):
    """A study at one rung of its ladder."""

    name: str
    """The rung's name."""
    axis: Literal["size", "length"] | None
    """Respect in which it is smaller than the last rung: `size` where the models are others, `length` where they are
    the same and the budget is smaller. Null for the last."""
    arms: tuple[StudyArm, ...]
    """Its arms."""
    tuning: tuple[StudyTuning, ...]
    """Tuning of its arms."""


class ScaleForecast(Part):
    """Time of a study at another scale, as it was planned there: that of all runs, one after another."""

    scale: str
    """The scale."""
    tuning: Seconds
    """Estimated time of the tuning runs."""
    training: Seconds
    """Estimated time of the runs that are judged, without measuring and evaluating."""


class StudyDocument(Document):
    """A study at one scale. The first arm is the baseline."""

    name: str
    """The study's name."""
    scale: str
    """`cpu`, `gpu` …"""
    path: str | None
    """The file that was run: another file of the same name is refused while this one exists. Null for a study
    that came from Python."""
    question: str
    """The question, as the file states it."""
    citation: str | None
    """Source of the claim under test."""
    source: str
    """The file's text."""
    scale_source: str = Field(default="", exclude_if=operator.not_)
    """The text of the scale that came with the tool, if it was one."""
    next_scale: str | None = Field(default=None, exclude_if=is_none)
    """The next larger scale at which its models are larger, or trained for longer; null where it has none."""
    forecast: ScaleForecast | None = Field(default=None, exclude_if=is_none)
    """Time that the next command takes, where that runs it at another scale; null where nothing could tell."""
    sets: dict[str, JsonValue] = Field(default={}, exclude_if=operator.not_)
    """Edits by path that the command gave beside the file (`--set`)."""
    plugin_files: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Files that the command plugged in (`--plugin`), whether or not an arm uses them."""
    baseline: str
    """Name of the arm that the others are compared with."""
    budget: SpentBudget
    """Budget of each run."""
    matched: str
    """Quantities that are equal in all arms: `flops`, `tokens` or `seconds`, alone or with parameters."""
    contrasts: tuple[StudyContrast, ...] = ()
    """Comparisons that the study declares beside those with the baseline."""
    claims: tuple[StudyClaim, ...] = Field(default=(), exclude_if=operator.not_)
    """What is expected of the arms, as the study states it."""
    design: StudyDesign | None = None
    """The factorial design whose runs the arms are; null where arms are compared with the baseline."""
    published: StudyPublished | None = Field(default=None, exclude_if=is_none)
    """The published table that it replicates; its rows are the last claims."""
    margin: NatsPerToken | None
    """The largest difference that does not matter."""
    pilot: bool = Field(default=False, exclude_if=operator.not_)
    """Whether it only explores, so that nothing is judged."""
    per: Literal["token", "target", "byte"]
    """Unit of compared losses: `target` where an objective scores only some tokens, `byte` where arms have
    different tokenizers."""
    objective: StudyObjective | None
    """The training objective, where it is not next-token prediction."""
    conventions: tuple[str, ...]
    """Meaning of a context for arms that are not causal decoders, in words."""
    created: str
    """When it was planned (ISO 8601)."""
    registrations: tuple[StudyRegistration, ...] = Field(default=(), exclude_if=operator.not_)
    """Its registrations, the oldest first."""
    arms: tuple[StudyArm, ...]
    """Those of the last rung, where there is a ladder."""
    measure: str | None
    """Digest of the measurement request."""
    evals: str | None
    """Digest of the evaluation request."""
    costs: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the measurement of its arms' speeds against each other."""
    looks: tuple[StudyLook, ...]
    """Empty where the number of seeds is fixed."""
    rates: StudyRates
    """Origin of the arms' learning rates."""
    tuning: tuple[StudyTuning, ...]
    """Tuning of the arms."""
    ladder: tuple[StudyRung, ...]
    """Every rung, the one that is compared last; empty without a ladder."""

    def arm(self, name: str) -> StudyArm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def run_digests(self) -> set[str]:
        """Digests of all its runs: of arms, of every rung, of tuning."""
        arms = [*self.arms, *(arm for rung in self.ladder for arm in rung.arms)]
        tunings = [*self.tuning, *(tuning for rung in self.ladder for tuning in rung.tuning)]
        trials = (trial for each in tunings for part in (each, *each.coarse) for trial in part.trials)
        return {*(run.digest for arm in arms for run in arm.runs), *(run for trial in trials for run in trial.runs)}

    @property
    def scale_after(self) -> str | None:
        """The scale at which it is asked next: `cpu` after one that answers nothing, else `next_scale`."""
        return "cpu" if self.scale in UNJUDGED else self.next_scale

    def edits_at(self, scale: str) -> dict[str, JsonValue]:
        """The edits that hold at a scale: at another, without those of what scales set."""
        return {path: value for path, value in self.sets.items() if scale == self.scale or not _is_scaled(path)}

    def command(self, *options: str, scale: str | None = None) -> str:
        """The command that runs it, edited as it was and with its plug-ins, at its own scale unless another is given.

        A file is named as seen from here. options: `--set PATH=VALUE` replaces an edit of that path. Edits of what
        scales set, such as sizes and budgets, would undo another scale, and are left out there.
        """
        at = scale or self.scale
        edited = self.edits_at(at)
        study = shlex.quote(from_here(Path(self.path))) if self.path else self.name
        kept = {path: value for path, value in edited.items() if not any(_edits(each, path) for each in options)}
        edits = [f"--set {shlex.quote(f'{path}={json.dumps(value)}')}" for path, value in kept.items()]
        return " ".join(
            filter(None, ("ablate run", study, "--scale", at, plugin_options(self.plugin_files), *edits, *options))
        )

    @property
    def pairs(self) -> tuple[tuple[StudyArm, StudyArm], ...]:
        """All comparisons: every other arm with the baseline, then the declared ones. A design has effects instead."""
        if self.design is not None:
            return ()
        first = ((arm, self.baseline_arm) for arm in self.arms if arm.name != self.baseline)
        return (*first, *((self.arm(each.arm), self.arm(each.other)) for each in self.contrasts))

    @property
    def baseline_arm(self) -> StudyArm:
        """The arm that others are compared with."""
        return self.arm(self.baseline)


def _edits(option: str, path: str) -> bool:
    """Whether an option is an edit of that path."""
    return any(word.startswith(f"{path}=") for word in shlex.split(option))


def _is_scaled(path: str) -> bool:
    """Whether scales set it, which is all that a run is made of but the blocks of its model, or it holds at one: that
    a pilot is judged nevertheless."""
    first, _, rest = path.partition(".")
    sections = ("base", "budget", "data", "evals", "measure", "seeds", "train", "tune", "pilot")
    return first in sections and not (first == "base" and rest.partition(".")[0] == "block")
