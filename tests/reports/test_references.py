"""Where losses stand among simple models of their text, and that nothing compares two of which both are worse than a
bigram table without saying so."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ablate
import reports
from ablate.study.written import RESULTS
from ablate.training.objectives.next_token import NextToken
from ablate.wings.results import recorded
from ablate.wings.results.document import RecordedResult
from ablate.wings.science.atlas import gathered
from ablate.wings.science.cards import cards
from ablate.wings.science.markdown import findings, picture, unclaimed, with_tables
from ablate.wings.science.recording import with_references
from reports.judge.findings.study_summary import StudySummary
from reports.judge.reading.documents import text_references
from reports.page.wording import answers, finding_words
from reports.page.wording.arm_words import AMONG, PAIR, baseline_line, pair_note, qualified, standing
from reports.page.wording.short_answer import MOST_WORDS
from store import Store
from store.documents import References, StudyObjective
from tests.documents import text_meta_of
from tests.reports.factory import Arm, StudyOf, arm_documents

TEXT = References(tokens=1, unigram=5.98, bigram=4.4, kn3=3.8, kn5=3.6, gzip=3.3, bytes_per_token=2.5)
PRE, POST = [4.50, 4.51, 4.49, 4.52, 4.50], [4.61, 4.62, 4.58, 4.63, 4.61]


def study_of(*arms: tuple[str, Sequence[float]], references: References | None = TEXT) -> StudyOf:
    planned = [Arm(name, losses, steps=600, parameters=100_000) for name, losses in arms]
    return StudyOf(planned, text=True, measured=False, references=references)


def summary_of(folder: Path, *arms: tuple[str, Sequence[float]], references: References | None = TEXT) -> StudySummary:
    return reports.summarise(study_of(*arms, references=references).write(folder / "runs"))


def less(losses: Sequence[float], by: float) -> list[float]:
    return [loss - by for loss in losses]


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (7.0, "worse than bigrams"),
        (4.4, "worse than bigrams"),
        (4.39, "between bigrams and trigrams"),
        (3.8, "between bigrams and trigrams"),
        (3.79, "between trigrams and 5-grams"),
        (3.6, "between trigrams and 5-grams"),
        (3.59, "better than 5-grams"),
    ],
)
def test_a_loss_stands_among_the_n_gram_models(loss: float, expected: str) -> None:
    assert TEXT.standing(loss) == expected
    assert TEXT.is_below_bigrams(loss) == (expected == "worse than bigrams")
    assert TEXT.per_byte().standing(loss / 2.5 * (1 - 1e-12)) == TEXT.standing(loss * (1 - 1e-12))


@pytest.mark.parametrize(
    ("loss", "expected"),
    [
        (4.2, "between bigrams and 5-grams"),
        (3.9, "between 5-grams and trigrams"),
        (3.7, "better than trigrams"),
    ],
)
def test_on_little_text_5_grams_may_be_worse_than_trigrams(loss: float, expected: str) -> None:
    assert TEXT.model_copy(update={"kn5": 4.0}).standing(loss) == expected


def test_losses_per_byte_are_those_per_token_over_its_bytes() -> None:
    per_byte = TEXT.per_byte()
    assert per_byte.bigram == pytest.approx(4.4 / 2.5)
    assert TEXT.bits_per_byte["bigram"] == pytest.approx(4.4 / 2.5 / math.log(2))
    assert per_byte.bits_per_byte == pytest.approx(TEXT.bits_per_byte)


def test_a_headline_of_arms_below_the_bigrams_begins_with_it(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, ("pre", PRE), ("post", POST))
    assert answers.headline(summary).startswith(f"{AMONG}pre is best: post is 0.106 nats (")
    assert answers.in_full(summary).startswith(AMONG)
    assert standing(summary, "pre") == standing(summary, "post") == "worse than bigrams"
    assert " · baseline worse than bigrams · 5 seeds · " in finding_words.source(summary)  # below an exported picture


def test_a_headline_names_a_baseline_below_the_bigrams_if_another_arm_is_above(tmp_path: Path) -> None:
    summary = summary_of(tmp_path, ("pre", PRE), ("rope", less(POST, 0.4)), ("post", POST))
    headline = answers.headline(summary)
    assert headline.startswith("rope beats pre by 0.294 nats (")
    assert len(headline.split()) <= MOST_WORDS
    assert headline.endswith("; pre is worse than a bigram table.")


def test_a_headline_of_a_baseline_above_the_bigrams_stays(tmp_path: Path) -> None:
    """Its differences are from the baseline, so none is between two arms below."""
    arms = ("pre", less(PRE, 0.3)), ("post", POST), ("double", less(PRE, 0.25))
    headline = answers.headline(summary_of(tmp_path / "known", *arms))
    assert "bigram" not in headline
    assert headline == answers.headline(summary_of(tmp_path / "unknown", *arms, references=None))


def test_a_contrast_of_two_arms_below_the_bigrams_says_so(tmp_path: Path) -> None:
    """Even if baseline and best arm are above them."""
    arms = [Arm(name, losses, steps=600) for name, losses in (("pre", less(PRE, 0.3)), ("post", POST), ("none", PRE))]
    contrasts = [("post", "none"), ("pre", "none")]
    study = StudyOf(arms, text=True, measured=False, references=TEXT, contrasts=contrasts)
    both, one = reports.contrasts(reports.summarise(study.write(tmp_path / "runs")))
    assert both.startswith("post − none: +0.106 ± ") and f" nats, {PAIR}; " in both
    assert one.startswith("pre − none: ") and PAIR not in one


def test_without_references_nothing_is_said(tmp_path: Path) -> None:
    """Of a store of an earlier version, a synthetic task, or another objective than the next token."""
    summary = summary_of(tmp_path, ("pre", PRE), ("post", POST), references=None)
    assert summary.references == {}
    assert answers.headline(summary).startswith("pre is best")
    assert baseline_line(summary) == standing(summary, "pre") == ""
    assert reports.documents(summary)["references"] is None
    assert [arm["standing"] for arm in arm_documents(summary)] == [None, None]
    page = reports.render(tmp_path / "runs" / "studies" / "norm_placement-cpu").read_text(encoding="utf-8")
    assert "than bigrams" not in page and "than a bigram" not in page


def test_another_objective_has_no_references(tmp_path: Path) -> None:
    """Next-token prediction of documents apart is no other."""
    study = study_of(("pre", PRE), ("post", POST), ("double", POST))
    objectives = {("pre", 0): {"kind": "masked"}, ("double", 0): {"kind": "next_token", "documents": "apart"}}
    trains = {run: {"train": {"objective": objective}} for run, objective in objectives.items()}
    changed = StudyOf(study.arms, text=True, measured=False, references=TEXT, identities=trains)
    assert set(reports.summarise(changed.write(tmp_path / "runs")).references) == {"post", "double"}
    document = study.document()
    apart = document.model_copy(update={"objective": StudyObjective(kind=str(NextToken(documents="apart")), counts="")})
    masked = document.model_copy(update={"objective": StudyObjective(kind="masked", counts="")})
    assert [each.predicts_next_token for each in (document, apart, masked)] == [True, True, False]


def test_references_are_of_as_many_tokens_as_an_arm_reads(tmp_path: Path) -> None:
    """The earlier training of an arm that starts from another included; repetitions count once."""
    arms = [
        Arm("pre", PRE, steps=100, tokens_before=0),
        Arm("longer", PRE, steps=100, tokens_before=204_800),
        Arm("longest", PRE, steps=1000, tokens_before=0),
    ]
    study = StudyOf(arms, text=True, measured=False, references=TEXT)
    store = Store(study.write(tmp_path / "runs").parents[1])
    found = text_references(study.document(), store, {"data0": text_meta_of()})
    assert {name: (each.read.tokens, each.whole.tokens) for name, each in found.items()} == {
        "pre": (200_000, 990_000),
        "longer": (410_000, 990_000),
        "longest": (990_000, 990_000),
    }


def test_page_terminal_and_json_say_where_the_arms_stand(tmp_path: Path) -> None:
    folder = study_of(("pre", PRE), ("post", less(PRE, 0.8)), ("double", less(PRE, 1))).write(tmp_path / "runs")
    summary = reports.summarise(folder)
    line = baseline_line(summary)
    assert line.startswith("pre (4.504) is worse than bigrams: counted over the 990 k tokens that a run reads, ")
    assert "unigrams reach 5.980, bigrams 4.400, trigrams 3.800 and 5-grams 3.600 nats per token" in line
    assert line.endswith(f"gzip 3.300 ({3.3 / 2.5 / math.log(2):.2f} bits per byte).")
    assert reports.notes(summary)[0] == line
    page = reports.render(folder).read_text(encoding="utf-8")
    assert page.index('class="answer"') < page.index(line) < page.index("<nav id=")
    document: Any = reports.documents(summary)
    assert json.loads(json.dumps(document["references"], allow_nan=False)) == document["references"]
    assert {"unigram", "bigram", "kn3", "kn5", "gzip", "tokens"} < document["references"].keys()
    assert document["references"]["whole"]["bits_per_byte"]["bigram"] == pytest.approx(4.4 / 2.5 / math.log(2))
    assert [arm["standing"] for arm in document["arms"]] == [
        "worse than bigrams",
        "between trigrams and 5-grams",
        "better than 5-grams",
    ]


def test_a_recorded_result_keeps_its_references(tmp_path: Path) -> None:
    folder = study_of(("pre", PRE), ("post", POST)).write(tmp_path / "runs")
    found = recorded.read(ablate.record_result(folder, tmp_path))
    assert found.references == TEXT.model_copy(update={"tokens": 990_000}) == found.references_whole
    assert found.answer == answers.headline(reports.summarise(folder))
    assert found.standing == "worse than bigrams"
    assert all(arm.references is None for arm in found.arms)


def test_references_that_are_added_later_qualify_the_answer_once(tmp_path: Path) -> None:
    """As do those of a study that is recorded with them."""
    study, plain = study_of(("pre", PRE), ("post", POST)), study_of(("pre", PRE), ("post", POST), references=None)
    known = reports.summarise(study.write(tmp_path / "known")).references
    whole = recorded.read(ablate.record_result(tmp_path / "known/studies/norm_placement-cpu", tmp_path))
    before = recorded.read(ablate.record_result(plain.write(tmp_path / "plain"), tmp_path))
    added = with_references(before, known)
    assert not before.answer.startswith(AMONG)
    assert added.answer == whole.answer == with_references(added, known).answer
    other = {**known, "post": known["pre"].per_byte()}
    assert with_references(before, other).references_by_arm["post"] == known["pre"].read.per_byte()


def test_only_a_difference_between_two_arms_below_the_bigrams_has_a_note() -> None:
    losses, known = {"a": 4.5, "b": 4.6, "c": 4.3}, dict.fromkeys("abc", TEXT)
    assert pair_note(("a", "b"), losses, known) == PAIR
    assert pair_note(("a", "c"), losses, known) == pair_note(("a", "stalled"), losses, known) == ""
    assert pair_note(("a", "b"), losses, {}) == pair_note((), losses, known) == ""


def below(result: RecordedResult) -> set[str]:
    """Arms whose loss is not less than that of a bigram table of as many tokens as they read, from the file's own
    numbers."""
    known = {arm.name: arm.references or result.references for arm in result.arms}
    return {a.name for a in result.arms if (read := known[a.name]) and a.loss and a.loss.mean >= read.bigram}


def shipped() -> list[RecordedResult]:
    return gathered([RESULTS])[0]


def test_every_recorded_result_of_a_text_has_references() -> None:
    """Where models predict the next token of it."""
    for result in shipped():
        predicts_text = result.setting.data in ("prose", "stdlib") and result.unit != "nats/target"
        assert (result.references is not None) == predicts_text, result.study
    for result in shipped():
        if known := result.references:
            assert known.kn5 < known.kn3 < known.bigram < known.unigram < math.log(result.setting.vocabularies[0])
            assert known.bigram > (result.references_whole or known).bigram


@pytest.mark.parametrize("result", shipped(), ids=lambda result: result.name)
def test_no_recorded_answer_compares_models_below_the_bigrams_without_saying_so(result: RecordedResult) -> None:
    """Its differences are between arms and the baseline."""
    best = min(result.losses, key=result.losses.__getitem__)
    if best in below(result):
        assert result.answer.startswith(AMONG)
    elif result.baseline in below(result):
        assert f"; {result.baseline} is worse than a bigram table" in result.answer
    else:
        assert "bigram" not in result.answer
    plain = result.answer.removeprefix(AMONG)
    assert qualified(plain, result.losses, result.references_by_arm, result.baseline) == result.answer


@pytest.mark.parametrize("result", shipped(), ids=lambda result: result.name)
def test_no_row_compares_models_below_the_bigrams_without_saying_so(result: RecordedResult) -> None:
    """Neither in the table of a README, nor on a card, nor in the summary's tables and its picture."""
    table = with_tables(f"<!-- results {result.name} -->\n<!-- end of results -->\n", [result], {})
    for arm in result.arms:
        (row,) = [line for line in table.splitlines() if line.startswith(f"| `{arm.name}` |")]
        compares = arm.difference is not None and {arm.name, result.baseline} <= below(result)
        assert (PAIR in row) == compares, row
    assert f" · baseline {result.standing} · " in table or not result.references
    found = cards([result], [])
    for card in found:
        named = card.claim and (card.claim.order or (card.claim.arm, card.claim.against or result.baseline))
        for row in card.rows:
            compared = set(named or row.label.split(" against ")) - {None}
            on_loss = card.claim is None or (card.claim.measure == "loss" and card.claim.expect != "stalls")
            assert bool(row.note) == (on_loss and bool(compared) and compared <= below(result)), row
    noted = [row for card in unclaimed(found) for row in card.rows if row.note]
    rows = [line for line in findings(found, [result], "FINDINGS.svg").splitlines() if line.startswith("| [")]
    assert sum(PAIR in row for row in rows) == len(noted)
    assert picture(found).count('fill="#fff" stroke') == sum(row.effect is not None for row in noted)


def test_the_summary_and_the_readme_are_of_qualified_results() -> None:
    """As they are committed: every line on a result says where its baseline stands."""
    root = RESULTS.parent
    text, readme = ((each).read_text(encoding="utf-8") for each in (root / "FINDINGS.md", root.parent / "README.md"))
    for result in shipped():
        lines = [line for line in text.splitlines() if re.match(rf"- \[{result.study}\]\(", line)]
        lines += [line for line in readme.splitlines() if line.startswith(f"| [`{result.study}`]")]
        assert lines
        assert all(f"baseline {result.standing}" in line for line in lines if result.standing)
        assert all(AMONG in line for line in lines if result.answer.startswith(AMONG))
