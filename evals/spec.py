"""Evaluations of a trained model: one key for each, assembled from `evals.evaluations`, and running them on a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self, TypeAlias

from pydantic import BeforeValidator, Field, PositiveInt, create_model

from evals.conventions import Bos
from evals.evaluations import EvaluationSpec, evaluations
from evals.found import Found, counting
from evals.option import Option, rows
from evals.subject import Conditions, Data, HeldOutText, Subject
from store.documents import EvalsDocument, SampleRecord, Section
from zoo.settings.axis import Spec, is_off

EMPTY: tuple[Any, ...] = (None, (), {})
"""Values of a key that request nothing."""


class EvaluationError(ValueError):
    """A requested evaluation is not possible. `path` is its key in the section."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}" if path else reason)
        self.path, self.reason = path, reason


def _word(value: object) -> object:
    """Undo YAML's reading of `on` and `off` as true and false."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class EvalSettings(Spec):
    """Evaluations of every trained model, by name, and the settings that they share."""

    batch: Annotated[PositiveInt | Literal["auto"], Option("N", rows)] = "auto"
    """Batch size; `auto` fills each pass with several thousand tokens, as far as memory allows."""
    seed: int = 0
    """Seed of all sampling: items built from held-out text, passages, prompts, examples."""
    bos: Annotated[Bos, BeforeValidator(_word, json_schema_input_type=Bos | bool), Option("WHEN", str)] = Field(
        default="auto", exclude_if=lambda value: value == "auto"
    )
    """Token at the beginning of every text, and in place of the first token of every window of held-out text: `auto`
    follows the model's own convention, for an imported model that of lm-eval's `hf`. `on` and `off` are lm-eval's
    `add_bos_token`; models trained here begin with their end-of-text token.
    """

    def asked(self) -> dict[str, EvaluationSpec]:
        """Requested evaluations, by name."""
        found: dict[str, EvaluationSpec] = {}
        for name, cls in evaluations().items():
            if own := getattr(self, name):
                found[name] = own
                if cls.inline:
                    found[name] = cls.model_validate({key: getattr(self, key) for key in cls.model_fields})
        return found

    def content(self) -> dict[str, str]:
        """Digests of the files that evaluations read, by evaluation."""
        found = {name: evaluation.content() for name, evaluation in self.asked().items()}
        return {name: digest for name, digest in found.items() if digest is not None}

    def scored(self) -> tuple[str, ...]:
        """Tasks that get scores, as far as they are known before the evaluation."""
        return tuple(task for evaluation in self.asked().values() for task in evaluation.scored())

    def under(self, conditions: Conditions) -> Self:
        """Requested evaluations under these conditions, with absolute paths: those in the section, and the defaults.

        Raises EvaluationError if an evaluation is not possible, or if none is requested.
        """
        for name, cls in evaluations().items():
            given = [key for key in keys_of(name, cls) if key in self.model_fields_set]
            said = [key for key in given if getattr(self, key) not in EMPTY]
            if said and (reason := cls.unmet(conditions)):
                raise EvaluationError(said[0], reason)
        if self.bos != "auto" and conditions.data is not HeldOutText:
            reason = f"needs {HeldOutText.kind}, but {conditions.source} {HeldOutText.absent}"
            raise EvaluationError("bos", reason)
        spec = self.model_copy(update=self._defaults(conditions))
        asked = {name: each.located(conditions.folder) for name, each in spec.asked().items()}
        if not asked:
            empty = (key for key in self.model_fields_set if getattr(self, key) in EMPTY)
            raise EvaluationError(next(empty, ""), "is empty, and no other evaluation is requested")
        update: dict[str, object] = {}
        for name, each in asked.items():
            if reason := each.unmet(conditions):
                raise EvaluationError("", reason)  # without a path: a default, not a key of the section
            for key, reason in each.problems(conditions):
                raise EvaluationError(key if each.inline else f"{name}.{key}", reason)
            update |= dict(each) if each.inline else {name: each}
        return spec.model_copy(update=update)

    def _defaults(self, conditions: Conditions) -> dict[str, object]:
        """Keys of the default evaluations that the section does not set; empty for those that read other data."""
        found: dict[str, object] = {}
        for name, cls in evaluations().items():
            if cls.by_default and name not in self.model_fields_set:
                default = cls.model_fields[name].default if cls.inline else cls()
                found[name] = default if cls.reads is conditions.data else nothing(cls)
        return found


def is_default(cls: type[EvaluationSpec], conditions: Conditions) -> bool:
    """Whether models get this evaluation unless a study says otherwise."""
    return cls.by_default and cls.reads is conditions.data


def keys_of(name: str, cls: type[EvaluationSpec]) -> list[str]:
    """Keys of an evaluation in the section."""
    return list(cls.model_fields) if cls.inline else [name]


def nothing(cls: type[EvaluationSpec]) -> Any:
    """Value of the key with an evaluation's name that does not request the evaluation."""
    return () if cls.inline else None


def _switched_on(value: Any) -> Any:
    """`true` requests an evaluation with default settings, `false` none."""
    return ({} if value else None) if isinstance(value, bool) else value


def _fields(name: str, cls: type[EvaluationSpec]) -> dict[str, object]:
    """Keys of an evaluation, as fields of the section."""
    if cls.inline:
        return {key: (field.annotation, field) for key, field in cls.model_fields.items()}
    given = BeforeValidator(_switched_on, json_schema_input_type=cls | bool | None)
    description = f"`true`, or a map: {cls.__doc__}"
    return {name: (Annotated[cls | None, given], Field(default=None, exclude_if=is_off, description=description))}


if TYPE_CHECKING:
    EvalSpec: TypeAlias = EvalSettings
else:
    EvalSpec = create_model(
        "EvalSpec",
        __base__=EvalSettings,
        __doc__=EvalSettings.__doc__,
        __module__=__name__,
        **{key: field for name, cls in evaluations().items() for key, field in _fields(name, cls).items()},
    )
    EvalSpec.fields_from = tuple(cls for cls in evaluations().values() if cls.inline)


class Evaluation(NamedTuple):
    """Result kept in the store: scores and tables, and one record per item."""

    document: EvalsDocument
    samples: list[SampleRecord]


def evaluate_all(spec: EvalSettings, subject: Subject, data: Data) -> Evaluation:
    """Run every evaluation that a spec requests."""
    found: dict[str, Found] = {}
    for name, each in spec.asked().items():
        with counting(name):
            found[name] = each.run(subject, data)
    parts = found.values()
    document = EvalsDocument(
        request=spec.model_dump(mode="json"),
        scores={task: dict(metrics) for each in parts for task, metrics in each.scores.items() if metrics},
        groups={name: group for each in parts for name, group in each.groups.items()},
        skipped={task: reason for each in parts for task, reason in each.skipped.items()},
        sections={name: Section(about=dict(each.about), rows=tuple(each.rows)) for name, each in found.items()},
    )
    return Evaluation(document, [item for each in parts for item in each.items])
