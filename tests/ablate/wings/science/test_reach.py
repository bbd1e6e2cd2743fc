"""How far verdicts travel: to the sizes of sources, to larger models, and with their caveats to every reader."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

import reports
from ablate.cli import main
from ablate.study.reading import load_study
from ablate.study.written import RESULTS
from ablate.wings.results import kept_signs, recorded
from ablate.wings.results.document import outcome_at
from ablate.wings.results.kept_signs import Conditions, Group, Growth, KeptSigns, kept_sign
from ablate.wings.science import counting_signs, result_files
from ablate.wings.science.atlas import gathered, known_sources, study_files
from ablate.wings.science.cards import cards
from ablate.wings.science.claim_spec import ClaimSpec
from ablate.wings.science.counting_signs import counted
from ablate.wings.science.handbook import handbook
from ablate.wings.science.judging_claims import line
from ablate.wings.science.markdown import findings
from ablate.wings.science.recording import result_of
from ablate.wings.science.registering import registered_content
from ablate.wings.science.sections.claims import outcomes
from ablate.wings.science.site import atlas_pages
from ablate.wings.science.sources import Sources
from ablate.wings.science.stated import study_claims
from store import StudyFolder
from store.documents import StudyClaim
from tests.reports.factory import Arm, StudyOf
from tests.test_imports import ROOT

ARMS = [Arm("base", [2.400, 2.412, 2.391, 2.405]), Arm("far", [2.300, 2.313, 2.290, 2.306])]
"""Arms of 750 k non-embedding parameters, of which `far` is better."""


def stated(expect: str, *sizes: float) -> StudyClaim:
    fields: dict[str, Any] = {"arm": "far", "against": "base", "expect": expect, "sizes": sizes}
    return StudyClaim(planned="2026-01-01", **fields)


@pytest.mark.parametrize(
    ("sizes", "agrees", "differs"),
    [
        ((), "agrees", "differs"),
        ((2.2e8,), "agrees", "differs"),
        ((3.01e6,), "agrees", "differs"),
        ((3e6,), "holds", "does not hold"),
        ((187_500,), "holds", "does not hold"),
        ((187_000,), "agrees", "differs"),
        ((1e3, 1e9), "holds", "does not hold"),
        ((4e6, 1e9), "agrees", "differs"),
    ],
)
def test_only_within_a_factor_of_four_of_its_source_is_a_claim_confirmed_or_contradicted(
    sizes: tuple[float, ...], agrees: str, differs: str, tmp_path: Path
) -> None:
    claims = [stated("better", *sizes), stated("worse", *sizes), stated("same", *sizes)]
    found = outcomes(reports.summarise(StudyOf(ARMS, claims=claims, measured=False).write(tmp_path)))
    assert [each.outcome for each in found] == [agrees, differs, differs]


def test_every_place_says_the_size_and_the_words_of_one_function(tmp_path: Path) -> None:
    folder = StudyOf(ARMS, claims=[stated("worse", 2.2e8), stated("better")], measured=False).write(tmp_path)
    summary = reports.summarise(folder)
    far, unknown = "differs at 750 k parameters (published at 220 M)", "agrees at 750 k parameters"
    assert line(outcomes(summary)[0]).startswith(f"Claim: far: higher loss than base: {far} (−0.0998 ")
    page = reports.render(folder, summary).read_text(encoding="utf-8")
    assert f"</svg>{far}</span>" in page and f"</svg>{unknown}</span>" in page
    assert 'class="differs"' in page and 'class="agrees"' in page and "does-not-hold" not in page.partition("<body>")[2]
    told: Any = reports.documents(summary)["claims"]
    assert [(each["outcome"], each["parameters"]) for each in told] == [
        ("differs", [750_000, 750_000]),
        ("agrees", [750_000, 750_000]),
    ]
    assert {card.told for card in cards([result_of(folder)], ()) if card.claim} == {far, unknown}


@pytest.mark.parametrize(
    ("source", "sizes", "where"),
    [
        (None, (1.75e11,), "fine-tuning"),
        ("Hu et al. 2021, arXiv:2106.09685", (1.75e11,), "fine-tuning"),
        ("Biderman et al. 2024, arXiv:2405.09673", (), None),
        ("folklore", (), None),
    ],
)
def test_sizes_and_conditions_are_those_of_the_source_that_is_named(
    source: str | None, sizes: tuple[float, ...], where: str | None
) -> None:
    spec = ClaimSpec(claim="lora-attn", arm="attention", expect="worse", source=source)
    found = spec.stated("base", "2026-01-01", screens=False)
    assert (found.sizes, found.where) == (sizes, where)


def test_a_result_recorded_before_sizes_were_known_travels_as_far_as_todays() -> None:
    assert outcome_at("does not hold", (5e4, 6e4), (2.2e8,)) == "differs"
    assert outcome_at("differs", (5e4, 6e4), (2e5,)) == "does not hold"
    assert outcome_at("holds", (5e4, 6e4), ()) == outcome_at("agrees", (5e4, 6e4), ()) == "agrees"
    assert outcome_at("cannot tell", (5e4,), (5e4,)) == "cannot tell"


def test_shipped_results_contradict_no_source_at_sizes_far_from_its_own() -> None:
    results, _ = gathered([RESULTS])
    outcomes = set[str]()
    for card in cards(results, known_sources().studies):
        if card.claim is None or not card.results:
            continue
        sizes, trained = card.claim.sizes, [own for result in card.results for own in result.setting.parameters]
        apart = min((abs(math.log(size / own)) for size in sizes for own in trained), default=99)
        outcomes |= {row.outcome for row in card.rows}
        if apart > math.log(4) and not any(min(sizes, default=1e99) < own < max(sizes) for own in trained):
            assert not {row.outcome for row in card.rows} & {"holds", "does not hold"}, card.title
    assert {"agrees", "differs"} <= outcomes
    assert "does not hold" not in (ROOT / "studies" / "FINDINGS.md").read_text(encoding="utf-8")


def test_sizes_are_written_as_one_number_or_several() -> None:
    given: dict[str, Any] = {"arm": "a", "expect": "better"}
    assert ClaimSpec.model_validate({**given, "sizes": 2.2e8}).sizes == (2.2e8,)
    assert ClaimSpec.model_validate({**given, "sizes": [8e9, 62_000_000_000]}).sizes == (8e9, 6.2e10)
    assert "sizes" not in ClaimSpec.model_validate(given).model_dump(), "what was registered stays as it was"
    assert (handbook()["act-swiglu"].sizes, handbook()["par-loss"].sizes) == ((2.2e8,), (8e9, 6.2e10))


SOURCE = RESULTS / "small_predicts_large@cpu.json"
PROSE = {"data": "prose", "vocabularies": (1024,), "unit": "nats/token"}


def test_signs_are_counted_anew_from_the_losses_that_were_recorded() -> None:
    """Pair by pair from the plain file: groups cover all pairs, and each has the pairs between its bounds."""
    plain = json.loads(SOURCE.read_text(encoding="utf-8"))
    last = {arm["name"]: arm["difference"]["mean"] if arm["difference"] else 0.0 for arm in plain["arms"]}
    packaged = kept_signs.table()
    assert packaged == counted(recorded.read(SOURCE)), (
        f"out of date: python -m ablate.wings.science.counting_signs {SOURCE.relative_to(ROOT)}"
    )
    assert len(last) == packaged.arms > 3 and packaged.growths
    for growth, rung in zip(packaged.growths, plain["rungs"], strict=True):
        here = {"base": 0.0} | {arm: each["mean"] for arm, each in rung["differences"].items()}
        pairs = [(here[a] - here[b], last[a] - last[b]) for a, b in itertools.combinations(last, 2)]
        assert len(pairs) == sum(group.pairs for group in growth.groups)
        ends = [group.least for group in growth.groups] + [math.inf]
        for group, end in zip(growth.groups, ends[1:], strict=True):
            own = [(small, large) for small, large in pairs if group.least * 0.9999 <= abs(small) < end * 0.9999]
            assert (len(own), sum(small * large > 0 for small, large in own)) == (group.pairs, group.kept)


def table_of(**other: Any) -> KeptSigns:
    """Counts at 14 k and 25 k parameters, compared again at 56 k, of differences from 0, 0.02 and 0.08 nats."""
    small, near = (
        tuple(Group(least=least, pairs=16, kept=kept) for least, kept in zip((1e-4, 0.02, 0.08), of, strict=True))
        for of in ((8, 9, 10), (6, 14, 16))
    )
    growths = (Growth(parameters=14_000.0, groups=small), Growth(parameters=25_000.0, groups=near))
    sizes = {"parameters": 56_000.0, "growths": growths, "tokens_per_parameter": 36.0}
    return KeptSigns(**{"study": "sizes@cpu", "arms": 9, **PROSE, **sizes, **other})


def at(parameters: float, **other: Any) -> Conditions:
    return Conditions(parameters=(parameters, parameters), **{**PROSE, **other})


def test_only_settled_differences_on_the_same_text_at_about_that_scale_have_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kept_signs, "table", table_of)
    found = kept_sign("worse", 0.03, at(56_000))
    assert found is not None and (found.group.kept, found.group.pairs) == (14, 16)
    assert found.before == 25_000, "the size nearest to its own that was followed to a larger one"
    assert kept_sign("better", -0.03, at(56_000)) == found, "in either direction"
    small = kept_sign("worse", 0.03, at(14_000))
    assert small is not None and (small.group.kept, small.before, small.after) == (9, 14_000, 56_000)
    assert [kept_sign("worse", size, at(56_000)).group.kept for size in (1e-5, 0.02, 9.0)] == [6, 14, 16]
    assert [kept_sign("worse", 0.03, at(size)) is None for size in (3_499, 3_501, 223_999, 224_001)] == [1, 0, 0, 1]
    assert kept_sign("inconclusive", 0.03, at(56_000)) is None
    assert kept_sign("worse", None, at(56_000)) is None
    for other in ({"data": "needle"}, {"vocabularies": (257,)}, {"unit": "nats/byte"}):
        assert kept_sign("worse", 0.03, at(56_000, **other)) is None


def test_the_page_the_terminal_and_json_say_how_often_such_a_difference_kept_its_sign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factory's text has other sources and sizes than the packaged counts: here they are counted on those."""
    folder = StudyOf([*ARMS, Arm("near", [2.402, 2.411, 2.392, 2.404])], measured=False).write(tmp_path)
    assert not any("kept their sign" in note for note in reports.notes(reports.summarise(folder)))
    here = table_of(data="", vocabularies=(), parameters=1e6)
    monkeypatch.setattr(kept_signs, "table", lambda: here)
    summary = reports.summarise(folder)
    said = "times the parameters, such differences kept their sign in 16 of 16 pairs of arms (far)."
    assert any(said in note and "Counted in sizes@cpu: pairs of 9 arms" in note for note in reports.notes(summary))
    assert said in reports.render(folder, summary).read_text(encoding="utf-8")
    far, near = (each["sign_kept"] for each in reports.documents(summary)["arms"][1:])
    assert near is None and far == {
        **{"least": 0.08, "pairs": 16, "kept": 16},
        **{"parameters_before": 25_000, "parameters_after": 1e6},
    }
    written = result_of(folder)
    assert said in counting_signs.signs(written) and counting_signs.signs(written, ["near"]) == ""


def test_the_table_of_the_guide_is_that_of_the_counts() -> None:
    known, guide = kept_signs.table(), (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
    for growth in known.growths:
        told = " | ".join(f"{group.kept} of {group.pairs}" for group in growth.groups)
        least = " | ".join(f"{group.least:.3f}" for group in growth.groups[1:])
        assert f"{told} |" in guide and f"| 0 | {least} |" in guide


def test_caveats_travel_from_the_study_to_every_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "norm_placement.yaml"
    text = (ROOT / "studies" / "norm_placement.yaml").read_text(encoding="utf-8")
    caveats = "caveats:\n  - Short runs.\n  - {arm: double, text: Of one depth.}\n"
    file.write_text(f"{text.partition('scales:')[0]}{caveats}", encoding="utf-8")
    study = load_study(file, scale="cpu")
    plain = load_study(ROOT / "studies" / "norm_placement.yaml", scale="cpu-long")
    assert [str(each) for each in study.caveats] == ["Caveat: Short runs.", "Caveat (double): Of one depth."]
    assert "caveats" not in registered_content(study), "not chosen before results, so not registered"
    assert plain.caveats == (), "those of a scale are its own"

    of = StudyOf([Arm("pre", [2.4, 2.41, 2.39]), Arm("double", [2.3, 2.31, 2.29])], measured=False)
    folder = of.write(tmp_path / "runs")
    document = StudyFolder(folder).read()
    assert document is not None
    StudyFolder(folder).write(document.model_copy(update={"caveats": study.caveats}))
    summary = reports.summarise(folder)
    page = reports.render(folder, summary).read_text(encoding="utf-8")
    assert "<li>Caveat: Short runs.</li>\n<li>Caveat (double): Of one depth.</li>" in page
    assert {"Caveat: Short runs.", "Caveat (double): Of one depth."} <= set(reports.notes(summary))
    assert reports.documents(summary)["caveats"] == [
        {"text": "Short runs.", "arm": None},
        {"text": "Of one depth.", "arm": "double"},
    ]
    written = result_of(folder)
    assert written.caveats == study.caveats
    read = recorded.read(result_files.write(written, tmp_path / "results"))
    made = atlas_pages([read], Sources())
    for path in ("index.html", f"results/{read.name}.html"):
        assert "Short runs." in made[path] and "Caveat (double): Of one depth." in made[path]
    assert "Caveat: Short runs. Caveat (double): Of one depth." in findings(cards([read], ()), [read], "x.svg")
    assert counting_signs.caveats(read, ["pre"]) == ["Caveat: Short runs."], "beside a claim about pre, none of double"

    file.write_text(
        file.read_text(encoding="utf-8").replace("arm: double, text", "arm: duoble, text"), encoding="utf-8"
    )
    assert main(["plan", str(file)]) == 2
    assert "caveats.1.arm: unknown arm 'duoble' (did you mean 'double'?)" in capsys.readouterr().err


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_caveats_and_sizes_are_those_of_the_study_file(path: Path) -> None:
    found = recorded.read(path)
    study = load_study(study_files()[found.study], scale=found.scale)
    assert found.caveats == study.caveats
    today = {(each.arm, each.expect, each.measure): each.sizes for each in study_claims(study, "")}
    assert {(each.arm, each.expect, each.measure): each.sizes for each in found.claims} == today
