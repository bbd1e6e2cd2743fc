"""Arms that are taught by another: order, identity, costs, and the loss that a student starts at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ablate
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import StepTime
from store import Store
from zoo.costs import cost

STUDENT = "{block.ffn: gelu, teacher: {arm: post, temperature: 2, weight: 0.7, top_k: 40}}"


@pytest.fixture
def path(study: Path, tmp_path: Path) -> Path:
    """The tiny study with a third arm, which `post` teaches."""
    (tmp_path / "texts").symlink_to(study.parent / "texts")
    text = study.read_text().replace("seeds: 2", f"  taught: {STUDENT}\nseeds: 1")
    found = tmp_path / "taught.yaml"
    found.write_text(text.replace("arms:\n", "arms:\n  plain: {block.ffn: gelu}\n"))
    return found


def test_a_student_s_budget_pays_for_forward_passes_of_its_teacher(path: Path) -> None:
    arms = {arm.name: arm for arm in make_plan(ablate.load_study(path, sets={"budget": {"flops": 3e8}})).arms}
    extra = cost(arms["post"].spec, 32).flops_per_token_forward
    assert arms["taught"].flops_per_token == arms["plain"].flops_per_token + extra
    assert arms["taught"].steps < arms["plain"].steps
    assert arms["taught"].flops == pytest.approx(3e8, rel=0.1)


def test_a_run_is_taught_by_the_run_of_the_same_seed(path: Path, tmp_path: Path) -> None:
    result = ablate.run(path, store=tmp_path / "runs", engine="inprocess")
    store, digests = Store(tmp_path / "runs"), dict(result.runs.select("arm", "digest").iter_rows())
    run = store.read_run(digests["taught"])
    assert run is not None and run.teacher is not None
    how = run.teacher
    assert (how.run, how.temperature, how.weight, how.top_k) == (digests["post"], 2.0, 0.7, 40)
    stored = {arm: store.read_result(digest) for arm, digest in digests.items()}
    assert stored["taught"].flops_per_token > stored["plain"].flops_per_token  # type: ignore[union-attr]
    first = {
        arm: store.read_metrics(digest).filter(step=0)["validation_loss"].item() for arm, digest in digests.items()
    }
    assert first["taught"] == first["plain"]  # validation is of the text alone
    assert stored["taught"].loss != stored["plain"].loss  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        ({"arms.taught.teacher.arm": "pots"}, r"unknown arm 'pots' \(did you mean 'post'\?\)"),
        (
            {"arms.post.teacher": {"arm": "pre"}},
            "cannot be taught by post, which itself starts from, or is taught by, another arm",
        ),
        ({"arms.taught.teacher": {"weight": 0.5, "arm": None}}, "needs exactly one of arm and checkpoint"),
        ({"arms.taught.teacher.weight": 2.0}, "must be less than or equal to 1"),
    ],
)
def test_what_cannot_teach_is_named(path: Path, sets: dict[str, Any], message: str) -> None:
    with pytest.raises(ablate.StudyError, match=message):
        ablate.load_study(path, sets=sets)


def test_teachers_of_other_vocabularies_and_budgets_in_seconds_are_refused(path: Path) -> None:
    with pytest.raises(ablate.StudyError, match="a budget in seconds does not count the teacher's time"):
        make_plan(
            ablate.load_study(path, sets={"budget": {"seconds": 1.0}}),
            clock=lambda work: [StepTime(0.1, "one")] * len(work),
        )
    with pytest.raises(ablate.StudyError, match="the teacher's vocabulary has 300 tokens, but taught's 257"):
        make_plan(ablate.load_study(path, sets={"arms.post.vocab_size": 300}))
