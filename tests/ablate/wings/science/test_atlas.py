"""The atlas: outcomes over several results, links that lead somewhere, and pages that work offline in a browser."""

from __future__ import annotations

import csv
import html
import io
import itertools
import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ablate.cli import main
from ablate.study.written import RESULTS
from ablate.wings.catalogue.model_table import COLUMNS
from ablate.wings.results.document import RecordedClaim, RecordedInterval, RecordedResult
from ablate.wings.science import result_files
from ablate.wings.science.atlas import gathered, known_sources, study_files, write_texts
from ablate.wings.science.cards import Card, cards
from ablate.wings.science.figures import axis_over, forest, ranked_result, ratio_ticks
from ablate.wings.science.handbook import HandbookClaim
from ablate.wings.science.markdown import (
    MOST_WORDS,
    findings,
    findings_files,
    picture,
    tables_file,
    with_tables,
    words_in,
)
from ablate.wings.science.recording import result_of
from ablate.wings.science.site import atlas_pages, variants_in
from ablate.wings.science.sources import CatalogueEntry, PublishedModel, Sources, StatedStudy, VariantSetting, year_of
from ablate.wings.science.topics import SEVERAL, home, topics_of
from reports.page.html.ranking import ranked
from reports.page.sections import summarise_study as summarise
from reports.page.wording import short_answer
from store.documents import StudyClaim
from store.errors import ReportError
from tests.many import few
from tests.reports.browsing import no_chromium, visit, wait_until
from tests.reports.factory import Arm, StudyOf
from tests.test_imports import ROOT

BEATS = {
    "arm": "double",
    "against": "pre",
    "expect": "better",
    "by": 0.02,
    "source": "arXiv:2408.00118",
    "sizes": (1e6,),
}


def claim(**fields: Any) -> StudyClaim:
    return StudyClaim(**{"planned": "2026-01-01", **fields})


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> RecordedResult:
    arms = (
        Arm("pre", [2.31, 2.30, 2.29, 2.32, 2.30], steps=600),
        Arm("double", [2.28, 2.26, 2.27, 2.28, 2.26], steps=600, edits={"block.norm_placement": "double"}),
    )
    return result_of(StudyOf(arms).write(tmp_path_factory.mktemp("atlas") / "runs"))


def judged(result: RecordedResult, outcome: str, scale: str = "cpu", **fields: Any) -> RecordedResult:
    effect = RecordedInterval(mean=-0.034, low=-0.05, high=-0.018)
    found = {**BEATS, "planned": "2026-01-01", "effect": effect, "seen": 0.021, "reason": "as measured", **fields}
    return result.model_copy(update={"scale": scale, "claims": (RecordedClaim(outcome=outcome, **found),)})


def only(results: list[RecordedResult], *studies: StatedStudy) -> Card:
    """The card of the only claim."""
    (card,) = [card for card in cards(results, studies) if card.claim is not None]
    return card


@pytest.mark.parametrize(
    ("outcomes", "standing"),
    [
        (["holds"], "holds"),
        (["holds", "cannot tell"], "holds"),
        (["holds", "does not hold"], "depends"),
        (["differs"], "does not hold"),
        (["cannot tell", "not tested"], "cannot tell"),
        (["not tested"], "not tested"),
    ],
)
def test_a_claim_stands_by_all_its_results(result: RecordedResult, outcomes: list[str], standing: str) -> None:
    card = only([judged(result, outcome, f"scale{place}") for place, outcome in enumerate(outcomes)])
    assert card.standing == standing
    assert [row.label for row in card.rows] == [f"scale{place}" for place in range(len(outcomes))]


def test_a_recorded_result_has_the_figure_of_its_report(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    arms = (
        Arm("pre", [2.31, 2.30, 2.29, 2.32, 2.30], steps=600),
        Arm("double", [2.28, 2.26, 2.27, 2.28, 2.26], steps=600, kv_bytes_per_token=1024.0, speed=3000.0),
        Arm("stuck", [5.99] * 5, steps=600),
    )
    folder = StudyOf(arms, text=True).write(tmp_path / "runs")
    shown, kept = ranked(summarise(folder)), ranked_result(result_of(folder))
    assert [(r.name, r.label, r.verdict, r.said) for r in kept.rows] == [
        (r.name, r.label, r.verdict, r.said) for r in shown.rows
    ]
    assert [(c.key, c.name) for c in kept.columns] == [(c.key, c.name) for c in shown.columns]
    assert kept.alike == shown.alike
    for mine, theirs in zip(kept.rows, shown.rows, strict=True):
        assert (mine.difference is None) == (theirs.difference is None)
        if mine.difference and theirs.difference:
            assert mine.difference.mean == pytest.approx(theirs.difference.mean, abs=1e-4)
            assert mine.difference.values == pytest.approx(theirs.difference.values, abs=1e-3)


def test_a_card_has_effect_and_published_size_on_one_axis(result: RecordedResult) -> None:
    card = only([judged(result, "holds")])
    plot = forest(card)
    (strip,) = plot.strips
    assert (card.published, card.year) == (-0.02, 2024)
    assert strip.bar is not None and strip.mark is not None and plot.published is not None
    low, high = strip.bar
    assert 0 < low < strip.mark < plot.published < high < plot.zero < 100
    assert strip.mark == pytest.approx(low + (high - low) * (-0.034 + 0.05) / (0.05 - 0.018), abs=0.02)
    assert len(strip.seeds) == 5
    assert strip.said == "−0.034 (−0.050 to −0.018)"


def test_costs_are_ratios_on_a_logarithmic_axis(result: RecordedResult) -> None:
    eighth = RecordedInterval(mean=0.125, low=0.125, high=0.125)
    found = judged(result, "holds", measure="kv_bytes", by=8.0, effect=eighth, seen=None)
    card = only([found])
    plot = forest(card)
    assert card.title == "double: smaller KV cache than pre, by a factor of 8"
    assert plot.published == plot.strips[0].mark
    assert ("1×" in dict(map(reversed, plot.ticks))) and plot.strips[0].said == "0.125×"


def test_an_interval_without_an_end_is_drawn_to_the_end_of_the_axis(result: RecordedResult) -> None:
    (strip,) = forest(
        only([judged(result, "cannot tell", effect=RecordedInterval(mean=-0.03, low=None, high=0.1))])
    ).strips
    assert strip.bar is not None and strip.mark is not None and strip.bar[0] <= strip.mark
    assert strip.said == "−0.030 (−∞ to +0.100)"
    assert strip.row.reason == "as measured (smallest detectable: 0.021)"


def test_a_claim_of_the_file_that_no_result_judged_says_so(result: RecordedResult) -> None:
    stated = StatedStudy(
        "norm_placement", "Where?", "", {"double": {"block.norm_placement": "double"}}, (claim(**BEATS),)
    )
    card = only([result], stated)
    assert card.standing == "not tested"
    assert card.rows[0].reason == "the recorded result does not state this claim"
    assert card.rows[0].effect is not None and card.rows[0].effect.mean < 0
    absent = only([], stated)
    assert (absent.standing, absent.rows, absent.topics) == ("not run", (), ("norms",))
    assert absent.parts == {"norm_placement=double"}


def test_a_study_of_many_parts_is_filed_under_none_of_them() -> None:
    parts = ("norms", "positions", "attention and mixers", "feed-forward")
    assert home([parts, ("norms",)]) == SEVERAL
    assert home([("norms", "positions"), ("positions",)]) == "positions"


def test_topics_follow_from_what_arms_edit() -> None:
    assert topics_of([{"block.norm_placement": "post", "train.lr": 0.1}, {}]) == ("norms",)
    assert topics_of([{"block": {"mixer": {"kv_heads": 1}}}]) == ("attention and mixers",)
    assert topics_of([{"block.mixer.position.base": 5e5}]) == ("positions",)
    assert topics_of([{"block.mixer": {"kind": "linear_attention"}, "block.ffn.d_ff": 99}]) == ("attention and mixers",)
    assert topics_of([{"train.lr": 0.1}]) == ("training and data",)
    assert topics_of([{"block.topology": "parallel"}]) == ("block and shape",)


def test_years_are_those_of_the_latest_paper() -> None:
    assert year_of("Xiong et al. 2020, arXiv:2002.04745; Gemma 2, arXiv:2408.00118") == 2024
    assert year_of("Shazeer 2019") == 2019
    assert year_of(None) is None


@pytest.fixture(scope="module")
def sources() -> Sources:
    return known_sources()


@pytest.fixture(scope="module")
def pages(sources: Sources, result: RecordedResult) -> dict[str, str]:
    (shipped, _) = gathered([RESULTS])
    mine = judged(result.model_copy(update={"study": "mine"}), "holds")
    return atlas_pages([*shipped, mine], sources)


def test_every_link_leads_to_a_page_and_nothing_is_loaded(pages: dict[str, str]) -> None:
    ids = {path: set(re.findall(r' id="([^"]+)"', text)) for path, text in pages.items()}
    for path, text in pages.items():
        if not path.endswith(".html"):
            continue
        assert not re.search(r"\ssrc=|url\(|@import", text), path
        for target in re.findall(r'href="(?!https?://|data:)([^"]+)"', text):
            place, _, anchor = target.partition("#")
            found = str((Path("/") / path).parent.joinpath(place).resolve().relative_to("/")) if place else path
            assert found in pages, (path, target)
            assert not anchor or anchor in ids[found], (path, target)


def test_every_shipped_study_and_every_variant_is_there(pages: dict[str, str], sources: Sources) -> None:
    studies = {study.name for study in sources.studies}
    searches = {"search_small_lm"}  # which compare no arms
    assert studies == {path.stem for path in (ROOT / "studies").glob("*.yaml")} - searches
    recorded = {path.name.partition("@")[0] for path in (ROOT / "studies" / "results").glob("*.json")}
    assert all(f"ablate run {name}<" in pages["index.html"] for name in studies - recorded)
    files = {path.stem: path.relative_to(ROOT) for path in study_files().values()}
    assert all(f"ablate run {files[name]}" in pages["index.html"] for name in recorded)
    assert len(sources.catalogue) > 100
    assert all(f"variants/{entry.slug}.html" in pages for entry in sources.catalogue)


def test_every_claim_of_the_handbook_is_there_with_what_tests_it(pages: dict[str, str], sources: Sources) -> None:
    page = pages["handbook.html"]
    found = dict(re.findall(r'<li id="([^"]+)"(.*?)</li>', page, re.DOTALL))
    assert list(found) == [entry.id for entry in sorted(sources.handbook, key=lambda entry: entry.topic)]
    assert len(found) == len(sources.handbook) > 200
    for entry in sources.handbook:
        shown = html.unescape(found[entry.id])
        assert entry.claim in shown
        assert all(check in shown for check in entry.exact), entry.id
        assert all(f"ablate run {study}<" in shown or f">{study}</a>" in shown for study in entry.studies), entry.id
        assert all(text in shown for text in (entry.open, entry.planned, entry.why_not) if text), entry.id
    place = found["place-double"]
    assert 'href="index.html#norm_placement-1"' in place and "differs" in place and "cannot tell" in place
    assert 'href="handbook.html#place-double"' in pages["index.html"]
    assert 'href="../handbook.html#place-double"' in pages["variants/residuals-double.html"]


def test_a_recorded_claim_takes_its_entry_from_the_study(result: RecordedResult) -> None:
    double = {"double": {"block.norm_placement": "double"}}
    stated = StatedStudy("norm_placement", "Where?", "", double, (claim(**BEATS, claim="place-double"),))
    card = only([judged(result, "holds")], stated)
    assert (card.entry, card.standing) == ("place-double", "holds")


def test_variants_know_their_formula_models_and_results(pages: dict[str, str], sources: Sources) -> None:
    entries = {(entry.axis, entry.name): entry for entry in sources.catalogue}
    assert entries["residuals", "double"].formula == "y = x + norm₂(f(norm₁(x)))"
    assert entries["ffns", "swiglu"].formula == "y = W_down (SiLU(W_gate x) ⊙ W_up x)"
    assert entries["residuals", "post"].text.startswith(
        "y = norm(x + f(x)). Vaswani et al. 2017, arXiv:1706.03762.\n\n"
    )
    assert (
        "S_t = α_t S_{t−1}" in (delta := entries["mixers", "gated_deltanet"].text) and "with A and b learned" in delta
    )
    assert "arXiv:2405.04434" in entries["mixers", "mla"].papers
    mla, post = pages["variants/mixers-mla.html"], pages["variants/residuals-post.html"]
    assert all(f"#{name}" in mla for name in ("deepseek_v2", "deepseek_v3", "kimi_k2", "kimi_linear"))
    assert "#llama3" not in mla and "#llama3" in pages["variants/ffns-swiglu.html"]
    assert "post against pre" in post and "no difference" in post
    for model in sources.models:
        known = variants_in(model.parts) & set(entries)
        assert {axis for axis, _ in known} >= {"norms", "residuals", "mixers", "ffns"} or model.name == "gpt4"


def test_the_table_of_models_is_the_same_in_every_form(pages: dict[str, str], sources: Sources) -> None:
    header, *rows = csv.reader(io.StringIO(pages["models.csv"]))
    assert len(rows) == len(sources.models) > 50
    v3 = dict(zip(header, next(row for row in rows if row[0] == "deepseek_v3"), strict=True))
    assert (v3["year"], v3["attention"], v3["experts"], v3["block"]) == (
        "2024",
        "MLA",
        "256, top 8, 1 shared",
        "serial",
    )
    assert "1.015 of the published active count" in v3["note"]
    gpt4 = dict(zip(header, next(row for row in rows if row[0] == "gpt4"), strict=True))
    assert gpt4["feed-forward"] == "swiglu*"
    lines = [line for line in pages["models.md"].splitlines() if line.startswith("| ")]
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {row[0]}" for row in rows]


def test_outside_text_is_escaped(result: RecordedResult) -> None:
    evil = "<script>alert(1)</script> & arXiv:2002.04745 https://example.org/a?b=1&c"
    said = dict.fromkeys(("topic", "claim", "figure", "source", "where", "evidence", "open"), evil)
    taught = HandbookClaim.model_construct(id="x", grade="must tie", standing="disputed", studies=(evil,), **said)
    stated = StatedStudy("s", evil, evil, {"a": {}}, (claim(arm="a", expect="stalls", where=evil),))
    entry = CatalogueEntry("norms", "x", evil, (VariantSetting("a", "<b>", evil),))
    model = PublishedModel(dict.fromkeys(COLUMNS, evil), frozenset(), note=evil)
    noted = result.model_copy(update={"notes": (evil,), "machine": evil})
    made = atlas_pages([noted], Sources((stated,), (entry,), (model,), (taught,)))
    for path, text in made.items():
        if path.endswith(".html"):
            assert "<script>alert" not in text, path
    assert 'href="https://arxiv.org/abs/2002.04745"' in made["variants/norms-x.html"]


def test_the_committed_findings_are_up_to_date(sources: Sources) -> None:
    results, _ = gathered([RESULTS])
    found = cards(results, sources.studies)
    stale = "out of date: ablate atlas --findings studies/FINDINGS.md"
    path = ROOT / "studies" / "FINDINGS.md"
    assert path.read_text(encoding="utf-8") == findings(found, results, "FINDINGS.svg"), stale
    assert path.with_suffix(".svg").read_text(encoding="utf-8") == picture(found), stale
    linked = re.findall(r"\]\(([^)\s]+\.yaml)\)", path.read_text(encoding="utf-8"))
    assert linked and [each for each in linked if not (path.parent / each).is_file()] == []


def test_the_tables_of_the_readme_are_up_to_date() -> None:
    results, _ = gathered([RESULTS])
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = {path.stem: f"studies/{path.name}" for path in (ROOT / "studies").glob("*.yaml")}
    papers = {path.stem: f"studies/papers/{path.name}" for path in (ROOT / "studies" / "papers").glob("*.yaml")}
    assert {*links, *papers} == set(study_files())
    assert text == with_tables(text, results, links | papers), "out of date: ablate atlas --tables README.md"
    told = (ROOT / "studies" / "FINDINGS.md").read_text(encoding="utf-8")
    assert all(result.answer in told for result in results), "the README has a choice of them"


def test_the_gallery_shows_every_recorded_result_as_it_is_recorded() -> None:
    gallery = ROOT / "docs" / "gallery"
    text = (gallery / "README.md").read_text(encoding="utf-8")
    results, _ = gathered([RESULTS])
    stale = "out of date: python docs/gallery/make.py --recorded"
    for result in results:
        name = result.study if result.scale == "cpu" else re.sub(r"\W", "_", result.name)
        cell = rf"\({name}\.webp\)<br>\[`{name}`\]\(\S+\.yaml\): {re.escape(result.answer)} \|"
        assert re.search(cell, text), f"{name}: {stale}"
    shown = set(re.findall(r"\]\((\w+\.webp)\)", text))
    assert shown == {path.name for path in gallery.glob("*.webp")}, stale


@pytest.mark.parametrize("furthest", [0.0156, 0.1, 0.25, 0.62, 0.9, 1.04, 1.3, 8.0])
def test_ratios_below_an_axis_have_room_for_their_texts(furthest: float) -> None:
    ticks = ratio_ticks(axis_over([0.0, math.log(furthest)]))
    assert "1×" in [text for _, text in ticks]
    assert len(ticks) > 1 or abs(math.log(furthest)) < 0.05  # nearer than the nearest round ratio
    assert all(after - before >= 20 for (before, _), (after, _) in itertools.pairwise(ticks))


def test_a_table_may_be_of_some_results(result: RecordedResult, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    others = [result.model_copy(update={"study": name}) for name in ("one", "two")]
    page.write_text("<!-- results two@cpu one@cpu -->\n<!-- end of results -->\n", encoding="utf-8")
    rows = [line for line in tables_file([result, *others], {}, page)[page].splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == ["one", "two"]
    assert "\n1 more is recorded.\n" in tables_file([result, *others], {}, page)[page]


def test_tables_are_written_between_their_markers_alone(result: RecordedResult, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.parent.mkdir()
    marked = "before\n<!-- results -->\nold\n<!-- end of results -->\nbetween\n"
    arms = f"<!-- results {result.name} -->\n<!-- end of results -->\nafter\n"
    page.write_text(marked + arms, encoding="utf-8")
    studies = {"norm_placement": tmp_path / "studies" / "norm_placement.yaml", "other": tmp_path / "other.yaml"}
    text = tables_file([result], studies, page)[page]
    assert text.startswith("before\n<!-- results -->\n") and "old" not in text and text.endswith("\nafter\n")
    assert f"| [`norm_placement`](../studies/norm_placement.yaml) | {result.answer} |" in text
    assert "1 of the 2 studies that ship have no recorded result yet." in text
    double, base = result.arm("double"), result.arm("pre")
    assert double is not None and double.difference is not None and base is not None and base.loss is not None
    assert re.search(rf"\| `double` \| 2\.270 ± [\d.]+ \| −{abs(double.difference.mean):.3f} \(.*\| better \|", text)
    assert f"| `pre` | {base.loss.mean:.3f} ± " in text and "| – | baseline |" in text
    page.write_text(text, encoding="utf-8")
    assert tables_file([result], studies, page) == {page: text}
    page.write_text("nothing", encoding="utf-8")
    with pytest.raises(ReportError, match=r"page\.md: no place for the table: mark it with `<!-- results -->`"):
        tables_file([result], studies, page)
    page.write_text(arms, encoding="utf-8")
    with pytest.raises(ReportError, match=f"no recorded result {result.name}; recorded: none"):
        tables_file([], studies, page)


def test_findings_have_every_answer_and_rows_of_claims_while_there_is_room(
    result: RecordedResult, sources: Sources, tmp_path: Path
) -> None:
    many = [judged(result.model_copy(update={"study": study.name}), "holds") for study in sources.studies]
    files = findings_files(many, replace(sources, studies=()), tmp_path / "F.md")
    text = files[tmp_path / "F.md"]
    assert text.count(result.answer) == len(many)
    assert all(f"[{study.name}]({study.name}.yaml)" in text for study in sources.studies)
    effects = len(many)  # an arm that a claim is about is not drawn twice
    assert files[tmp_path / "F.svg"].count("<circle") == effects
    few = findings(cards(many[:2], ()), many[:2], "")
    assert words_in(few) <= MOST_WORDS and "| study | at | claim or arm | outcome |" in few
    far = [each.model_copy(update={"study": f"{each.study}{n}"}) for each in many for n in range(9)]
    most = findings(cards(far, ()), far, "")
    assert words_in(most) > MOST_WORDS and most.count(result.answer) == len(far) and "| study |" not in most


def test_the_command_takes_stores_folders_and_files(
    result: RecordedResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = (Arm("pre", [2.31, 2.30, 2.29]), Arm("post", [2.41, 2.42, 2.38]))
    StudyOf(arms, name="mine").write(tmp_path / "runs")
    assert main(["report", str(tmp_path / "runs")]) == 0
    file = result_files.write(judged(result, "does not hold"), tmp_path / "results")
    capsys.readouterr()
    out = tmp_path / "sites" / "site"
    assert main(["atlas", str(tmp_path / "runs"), str(file), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "index": str(out / "index.html"),
        "findings": None,
        "tables": None,
    }
    index = (out / "index.html").read_text(encoding="utf-8")
    assert "post against pre" in index and "lower loss than norm before attention and FFN, by 0.02 nats" in index
    (link,) = re.findall(r'href="([^"]+)">report<', index)
    assert (out / link).resolve() == (tmp_path / "runs" / "studies" / "mine-cpu" / "report.html").resolve()
    assert main(["atlas", str(tmp_path / "absent"), "--out", str(out)]) == 2
    assert "expected a store, or a file or folder of recorded results" in capsys.readouterr().err


@pytest.mark.parametrize(
    "mistaken", few(["--findings=", "--findings=studies", "--out=file", "--tables=", "--out=file/below"], 2)
)
def test_an_atlas_without_a_place_for_one_of_its_files_writes_none(
    mistaken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "file").write_text("a file")
    before = sorted(tmp_path.rglob("*"))
    assert main(["atlas", "--findings", "F.md", mistaken]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


@no_chromium
def test_the_atlas_in_a_browser(pages: dict[str, str], tmp_path: Path, browser: Any) -> None:
    write_texts({tmp_path / path: text for path, text in pages.items()})
    index = tmp_path / "index.html"
    for path in (
        index,
        tmp_path / "handbook.html",
        tmp_path / "models.html",
        tmp_path / "variants.html",
        tmp_path / "variants" / "mixers-mla.html",
    ):
        for width in (390, 1280):
            seen = visit(browser, path, width, "dark" if width == 390 else "light")
            assert seen.page.evaluate("document.documentElement.scrollWidth") <= width, (path.name, width)
            assert (seen.messages, seen.requests) == ([], [path.as_uri()])
            seen.page.close()
    page = visit(browser, index).page
    shown = "[...document.querySelectorAll('.cards > li')].filter(card => !card.hidden).length"
    every = page.evaluate(shown)
    page.select_option("#topic", "positions")
    positions = page.evaluate(shown)
    assert 0 < positions < every
    page.select_option("#topic", "")
    page.select_option("#outcome", "holds")
    assert 0 < page.evaluate(shown) < every
    page.select_option("#outcome", "")
    page.fill("#search", "rope 500k")
    wait_until(page, f"{shown} < {every}")
    assert page.inner_text("#count") == f"{page.evaluate(shown)} of {every} claims and questions"
    page.fill("#search", "")
    page.select_option("#year", "2025")
    assert 0 < page.evaluate(shown) < every
    page.close()
    page = visit(browser, tmp_path / "handbook.html").page
    every = page.evaluate(shown)
    for name, value in (("topic", "norms"), ("standing", "disputed"), ("grade", "must tie"), ("answer", "exact check")):
        page.select_option(f"#{name}", value)
        assert 0 < page.evaluate(shown) < every
        page.select_option(f"#{name}", "")
    page.select_option("#topic", "norms")
    page.select_option("#standing", "wrong as taught")
    assert page.inner_text("#count") == f"{page.evaluate(shown)} of {every} claims"
    assert page.evaluate("[...document.querySelectorAll('.topic')].filter(topic => !topic.hidden).length") == 1
    assert page.evaluate("getComputedStyle(document.querySelector('.topic[hidden]')).display") == "none"
    page.close()


def test_arms_are_called_what_their_study_labels_them(sources: Sources) -> None:
    """In titles of claims; without a label, by their names in words."""
    found = cards([], sources.studies)
    titles = {card.title for card in found if card.study == "attention_scale" and card.claim}
    first = "1/√d in the first weights of the queries: the same loss as 1/√d on the scores and √D on the embeddings"
    assert first in titles
    assert "in queries: the same loss as scaled" in {card.brief for card in found}
    assert not any(name in card.title for card in found if card.claim for name in card.names if "_" in name)


def test_recorded_answers_are_short() -> None:
    results, _ = gathered([RESULTS])
    assert {
        result.name: result.answer for result in results if len(result.answer.split()) > short_answer.MOST_WORDS
    } == {}
