"""`studies/<name>-<scale>/study.json`: the plan of a study: arms, budgets, and the digests of their runs."""

from __future__ import annotations

import json
import operator
import shlex
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, JsonValue, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from store.documents._document import (
    CONTRADICTS,
    Document,
    Flops,
    NatsPerToken,
    Part,
    Seconds,
    Time,
    Tokens,
    is_none,
)
from store.documents.claims import StudyClaim, StudyPublished, StudyRegistration
from store.documents.shell import from_here, plugin_options
from store.documents.study_arm import StudyArm, StudyDesign
from store.documents.tuning import StudyRates, StudyTuning

SCALES = ("smoke", "cpu", "cpu-long", "gpu-minutes", "gpu-hour", "gpu-day", "gpu-week", "gpu-ladder")
"""Scales that come with the tool, from the smallest to the largest."""
UNJUDGED = frozenset({"smoke"})
"""Scales whose runs are too short for any verdict, or to count as stalled."""


class Caveat(Part):
    """A caveat about the whole result, or about one arm."""

    text: Annotated[str, Field(min_length=1)]
    """One or two sentences."""
    arm: str | None = Field(default=None, exclude_if=is_none)
    """The arm, or the factor of a design, that it is about; null for the whole result."""

    def __str__(self) -> str:
        """`Caveat (lion): Tuned in its learning rate alone.`"""
        return f"Caveat{f' ({self.arm})' if self.arm else ''}: {self.text}"


class ParameterBudget(Part):
    """The setting that matches every arm's parameters to the baseline's."""

    knob: str
    """Path of the setting."""
    step: int
    """Legal values are multiples of this."""
    count: str
    """`total` or `non_embedding` parameters."""


class SpentBudget(Part):
    """Budget of one training run: one of FLOPs, tokens and seconds."""

    flops: Flops | None = None
    """Training FLOPs, forward and backward."""
    tokens: Tokens | None = None
    """Tokens read in training."""
    seconds: Seconds | None = None
    """Seconds of training steps on this device."""
    parameters: ParameterBudget | None = None
    """How parameters are matched, if they are."""


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

    seeds: PositiveInt
    """Number of seeds."""
    alpha: Annotated[float, Field(gt=0, lt=1)]
    """Significance level of this look."""


class StudyRung(Part):
    """A study at one rung of its ladder."""

    name: str
    """The rung's name."""
    axis: Literal["size", "length"] | None
    """How it is smaller than the last rung: `size` if its models differ, `length` if only its budget is smaller. Null
    for the last."""
    arms: tuple[StudyArm, ...]
    """Its arms."""
    tuning: tuple[StudyTuning, ...]
    """Tuning of its arms."""


class ScaleForecast(Part):
    """Estimated time of a study as planned at another scale, for all runs one after another."""

    scale: str
    """The scale."""
    tuning: Seconds
    """Estimated time of the tuning runs."""
    training: Seconds
    """Estimated time of the arms' training runs, without measuring and evaluating."""


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
    """The text of the scale, if it is one that comes with the tool."""
    next_scale: str | None = Field(default=None, exclude_if=is_none)
    """The next larger scale at which its models are larger, or trained for longer; null if it has none."""
    forecast: ScaleForecast | None = Field(default=None, exclude_if=is_none)
    """Estimated time of the suggested next command, if that runs the study at another scale; null if unknown."""
    sets: dict[str, JsonValue] = Field(default={}, exclude_if=operator.not_)
    """Edits by path that the command gave beside the file (`--set`)."""
    plugin_files: tuple[str, ...] = Field(default=(), exclude_if=operator.not_)
    """Files that the command plugged in (`--plugin`), whether or not an arm uses them."""
    engine: str = Field(default="", exclude_if=operator.not_)
    """Options of the engine that ran it on other machines (`--engine ray --address …`); empty if it ran here."""
    baseline: str
    """Name of the arm that the others are compared with."""
    budget: SpentBudget
    """Budget of each run."""
    matched: str
    """Quantities that are equal in all arms: `flops`, `tokens` or `seconds`, alone or with parameters."""
    contrasts: tuple[StudyContrast, ...] = ()
    """Comparisons that the study declares besides those with the baseline."""
    claims: tuple[StudyClaim, ...] = Field(default=(), exclude_if=operator.not_)
    """Expected outcomes of the arms, as the study states them."""
    caveats: tuple[Caveat, ...] = Field(default=(), exclude_if=operator.not_)
    """Sentences that its result must not be read without."""
    design: StudyDesign | None = None
    """The factorial design whose runs are the arms; null if arms are compared with the baseline."""
    published: StudyPublished | None = Field(default=None, exclude_if=is_none)
    """The published table that it replicates; its rows are the last claims."""
    margin: NatsPerToken | None
    """The largest negligible difference."""
    pilot: bool = Field(default=False, exclude_if=operator.not_)
    """Whether it only explores, so that nothing is judged."""
    per: Literal["token", "target", "byte"]
    """Unit of compared losses: `target` if the objective scores only some tokens, `byte` if arms have different
    tokenizers."""
    objective: StudyObjective | None
    """The training objective; null for next-token prediction."""
    conventions: tuple[str, ...]
    """Meaning of a context for arms that are not causal decoders, in words."""
    created: Time
    """Time of planning (ISO 8601)."""
    registrations: tuple[StudyRegistration, ...] = Field(default=(), exclude_if=operator.not_)
    """Its registrations, the oldest first."""
    arms: tuple[StudyArm, ...]
    """Its arms; with a ladder, those of the last rung."""
    measure: str | None
    """Digest of the measurement request."""
    evals: str | None
    """Digest of the evaluation request."""
    costs: str | None = Field(default=None, exclude_if=is_none)
    """Digest of the request that measures its arms' speeds against each other."""
    looks: tuple[StudyLook, ...]
    """Its planned looks; empty if the number of seeds is fixed."""
    rates: StudyRates
    """Origin of the arms' learning rates."""
    tuning: tuple[StudyTuning, ...]
    """Tuning of the arms."""
    ladder: tuple[StudyRung, ...]
    """Every rung, in order; the last is the one that is compared. Empty without a ladder."""

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        """Refuse two arms of one name, names of arms that do not exist, and rungs without all arms."""
        arms = {arm.name for arm in self.arms}
        claims = () if self.design else self.claims  # those of a design name its factors
        named = {
            "baseline": [self.baseline],
            "contrasts": [name for each in self.contrasts for name in (each.arm, each.other)],
            "claims": [name for each in claims for pair in each.pairs for name in pair if name is not None],
            "design": [name for each in (self.design.effects if self.design else ()) for name in each.arms],
            "tuning": [each.arm for each in self.tuning],
            "ladder": [each.name for rung in self.ladder for each in rung.arms],
        }
        if wrong := next((field for field, names in named.items() if not arms.issuperset(names)), None):
            raise PydanticCustomError(CONTRADICTS, f"`{wrong}` names an arm that does not exist")
        for each in (self.arms, *(rung.arms for rung in self.ladder)):
            if sorted(arm.name for arm in each) != sorted(arms):
                raise PydanticCustomError(CONTRADICTS, "arms are missing, or two have the same name")
        return self

    def arm(self, name: str) -> StudyArm:
        """The arm of that name."""
        return next(arm for arm in self.arms if arm.name == name)

    @property
    def parameters(self) -> tuple[float, float]:
        """Smallest and largest number of non-embedding parameters of its arms."""
        sizes = [float(arm.parameters_non_embedding) for arm in self.arms]
        return min(sizes), max(sizes)

    @property
    def run_digests(self) -> set[str]:
        """Digests of all its runs: of the arms, of every rung, and of tuning."""
        arms = [*self.arms, *(arm for rung in self.ladder for arm in rung.arms)]
        tunings = [*self.tuning, *(tuning for rung in self.ladder for tuning in rung.tuning)]
        trials = (trial for each in tunings for part in (each, *each.coarse) for trial in part.trials)
        return {*(run.digest for arm in arms for run in arm.runs), *(run for trial in trials for run in trial.runs)}

    @property
    def predicts_next_token(self) -> bool:
        """Whether its losses compare with those of n-gram models of its text."""
        return self.objective is None or self.objective.kind.startswith("next_token")

    @property
    def scale_after(self) -> str | None:
        """The scale to run next: `cpu` after a scale without verdicts, else `next_scale`."""
        return "cpu" if self.scale in UNJUDGED else self.next_scale

    def edits_at(self, scale: str) -> dict[str, JsonValue]:
        """The edits that apply at a scale; at another than the study's own, without edits of what scales set."""
        return {path: value for path, value in self.sets.items() if scale == self.scale or not _is_scaled(path)}

    def command(self, *options: str, scale: str | None = None) -> str:
        """The command that runs it with its edits and plug-ins, at its own scale unless another is given.

        Files are named relative to the working directory. options: `--set PATH=VALUE` replaces an edit of that path.
        Edits of what scales set, such as sizes and budgets, would undo another scale, and are left out there.
        """
        at = scale or self.scale
        edited = self.edits_at(at)
        study = shlex.quote(from_here(Path(self.path))) if self.path else self.name
        replaced = [word for each in options for word in shlex.split(each)]
        kept = {
            path: value for path, value in edited.items() if not any(word.startswith(f"{path}=") for word in replaced)
        }
        edits = [f"--set {shlex.quote(f'{path}={json.dumps(value)}')}" for path, value in kept.items()]
        words = ("ablate run", study, "--scale", shlex.quote(at), plugin_options(self.plugin_files), *edits, *options)
        return " ".join(filter(None, (*words, self.engine)))

    @property
    def portable(self) -> StudyDocument:
        """The document without what belongs to one machine, and could lead a command on another: the folder of its
        file, plug-ins and the engine."""
        path = Path(self.path).name if self.path else None
        return self.model_copy(update={"path": path, "plugin_files": (), "engine": ""})

    @property
    def pairs(self) -> tuple[tuple[StudyArm, StudyArm], ...]:
        """All comparisons: every other arm with the baseline, then the declared ones. A design has effects instead."""
        if self.design is not None:
            return ()
        first = ((arm, self.baseline_arm) for arm in self.arms if arm.name != self.baseline)
        return (*first, *((self.arm(each.arm), self.arm(each.other)) for each in self.contrasts))

    @property
    def baseline_arm(self) -> StudyArm:
        """The arm that the others are compared with."""
        return self.arm(self.baseline)


def _is_scaled(path: str) -> bool:
    """Whether a setting depends on the scale: every setting of a run except the blocks of its model, and `pilot`, which
    may be overridden at one scale."""
    first, _, rest = path.partition(".")
    sections = ("base", "budget", "data", "evals", "measure", "seeds", "train", "tune", "pilot")
    return first in sections and not (first == "base" and rest.partition(".")[0] == "block")
