"""Which evaluations are asked for, by what a section says, the data and the models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

import zoo
from ablate.wings.evaluate import asking
from evals.evaluations import evaluations
from evals.spec import EvalSettings, EvalSpec, EvaluationError
from evals.subject import Conditions, HeldOutText, SyntheticTask

CAUSAL = zoo.load("small")
ENCODER = zoo.load("small", visible="all")


def difficulty_error(at: Any) -> str | None:
    return "pairs are no difficulty" if "pairs" in at else None


TEXT = Conditions(HeldOutText, "stdlib", {"arm base": CAUSAL}, Path())
TASK = Conditions(SyntheticTask, "mqar", {"arm base": CAUSAL}, Path(), difficulty_error=difficulty_error)


def section(**keys: Any) -> EvalSettings:
    return EvalSpec.model_validate(keys)


@pytest.mark.parametrize(
    ("keys", "conditions", "asked"),
    [
        ({}, TEXT, {"tasks"}),
        ({}, TASK, {"diagnostics"}),
        ({"positions": {}}, TEXT, {"positions", "tasks"}),
        ({"positions": {}, "tasks": []}, TEXT, {"positions"}),
        ({"samples": True, "attention": {"tokens": 8}, "tasks": []}, TEXT, {"samples", "attention"}),
        ({"samples": False}, TEXT, {"tasks"}),
        ({"diagnostics": {"examples": 3}}, TASK, {"diagnostics"}),
    ],
)
def test_what_is_asked_for(keys: dict[str, Any], conditions: Conditions, asked: set[str]) -> None:
    spec = section(**keys).under(conditions)
    assert set(spec.asked()) == asked
    again = EvalSpec.model_validate(spec.model_dump(mode="json"))
    assert again.asked() == spec.asked()


@pytest.mark.parametrize(
    ("keys", "conditions", "error"),
    [
        ({"positions": {}}, TASK, "positions: needs held-out text, but mqar has none"),
        ({"limit": 3}, TASK, "limit: needs held-out text, but mqar has none"),
        ({"bos": "on"}, TASK, "bos: needs held-out text, but mqar has none"),
        ({"diagnostics": {}}, TEXT, "diagnostics: needs a synthetic task, but stdlib is text"),
        ({"diagnostics": {"at": {"pairs": 9}}}, TASK, "diagnostics.at: pairs are no difficulty"),
        ({"tasks": []}, TEXT, "tasks: is empty, and no other evaluation is requested"),
        ({"include": ["nowhere"]}, TEXT, f"include.0: there is no folder {Path('nowhere').resolve()}"),
        ({"tasks": ["heldout_pears"]}, TEXT, "tasks.0: unknown task 'heldout_pears' (did you mean 'heldout_pairs'?)"),
    ],
)
def test_what_cannot_be_had_is_named(keys: dict[str, Any], conditions: Conditions, error: str) -> None:
    with pytest.raises(EvaluationError) as found:
        section(**keys).under(conditions)
    assert str(found.value) == error


def test_a_task_of_ones_own_may_be_called_nearly_as_one_of_ours(tmp_path: Path) -> None:
    (tmp_path / "pears.yaml").write_text("{task: heldout_pears, dataset_path: json}", encoding="utf-8")
    spec = section(tasks=["heldout_pears"], include=[str(tmp_path)]).under(TEXT)
    assert set(spec.asked()) == {"tasks"}


def test_needs_are_of_models_and_tokenizers() -> None:
    encoder = Conditions(HeldOutText, "stdlib", {"arm base": CAUSAL, "arm mlm": ENCODER}, Path())
    with pytest.raises(EvaluationError, match=r"^recall: needs causal models, but arm mlm is an encoder$"):
        section(recall=True, tasks=[]).under(encoder)
    with pytest.raises(EvaluationError) as unasked:
        section().under(encoder)
    assert (unasked.value.path, unasked.value.reason) == ("", "needs causal models, but arm mlm is an encoder")
    own = Conditions(HeldOutText, "stdlib", {}, Path(), own_tokenizers=True)
    with pytest.raises(EvaluationError, match=r"^recall: needs one tokenizer for all arms"):
        section(recall=True).under(own)
    assert set(section(positions={}).under(own).asked()) == {"positions", "tasks"}


def test_every_evaluation_documents_its_settings() -> None:
    for name, cls in evaluations().items():
        assert cls.__doc__, name
    described = EvalSpec.model_json_schema()["properties"]
    assert {*described} >= {*evaluations()}
    assert all(entry.get("description") for entry in described.values())


def words(*given: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    asking.add_options(parser)
    return asking.given(parser.parse_args(given))


@pytest.mark.parametrize(
    ("given", "conditions", "expected"),
    [
        ((), TEXT, {}),
        (("--tasks", "a,b", "c", "--limit", "3"), TEXT, {"tasks": ["a", "b", "c"], "limit": 3}),
        (("--positions", "1", "4"), TEXT, {"positions": {"multiples": [1, 4]}, "tasks": ()}),
        (("--recall", "--token-losses"), TEXT, {"recall": True, "token_losses": True, "tasks": ()}),
        (("--samples", "--tasks", "a"), TEXT, {"samples": True, "tasks": ["a"]}),
        (("--data", "a=x", "--data", "b=y=z"), TEXT, {"data": {"a": "x", "b": "y=z"}}),
        (
            ("--at", "pairs=4,8", "length=2", "--limit", "3"),
            TASK,
            {"diagnostics": {"at": {"pairs": [4, 8], "length": [2]}, "examples": 3}},
        ),
        (("--batch", "auto"), TASK, {"batch": "auto"}),
    ],
)
def test_words_become_a_section(given: tuple[str, ...], conditions: Conditions, expected: dict[str, Any]) -> None:
    assert asking.section(words(*given), conditions) == expected


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (("--limit", "x"), "limit: expected a whole number, not 'x'"),
        (("--at", "pairs"), "at: expected whole numbers, as in pairs=4,64, not 'pairs'"),
        (("--at", "pairs=2", "--at", "pairs=4"), "at: pairs is given twice"),
        (("--data", "x"), "data: expected NAME=PATH, not 'x'"),
    ],
)
def test_a_word_that_cannot_be_read_is_named(given: tuple[str, ...], error: str) -> None:
    with pytest.raises(EvaluationError) as found:
        words(*given)
    assert str(found.value) == error


def test_a_setting_of_other_data_is_refused() -> None:
    with pytest.raises(EvaluationError, match=r"^at: needs a synthetic task, but stdlib is text$"):
        asking.section({"at": {"pairs": [1]}}, TEXT)
    with pytest.raises(EvaluationError, match=r"^recall: needs held-out text, but mqar has none$"):
        asking.section({"recall": True}, TASK)
