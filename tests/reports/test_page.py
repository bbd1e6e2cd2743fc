"""The page as text: escaping, self-containment, and what it says of incomplete studies."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import plotly.graph_objects as go
import pytest
from plotly.offline import get_plotlyjs, get_plotlyjs_version
from pytest_benchmark.fixture import BenchmarkFixture

import reports
from ablate.wings.serve.site import render_site
from reports.page.figures.drawing import CONFIG, PALETTE, label, looks
from reports.page.html.templating import CARTESIAN, coded, plotly_js
from reports.page.sections import draw, summarise_study
from reports.page.sections.losses import Losses
from tests.reports.browsing import data_of, unpacked
from tests.reports.factory import HOSTILE, SEEN, Arm, StudyOf, typical

HOSTILE_STUDY = StudyOf(
    arms=[
        Arm(HOSTILE, [2.4, 2.5], steps=4),
        Arm("<b>x</b></script>", [2.3, 2.45], steps=4, edits={f"a.{HOSTILE}": HOSTILE}),
    ],
    name=HOSTILE,
    question=f"Why {HOSTILE}?",
    source=f"question: {HOSTILE}\n</pre></script>",
    results={(HOSTILE, 0): {"environment": {"device": HOSTILE}}},
)


class Page(HTMLParser):
    """Collects tags and their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def page_of(study: StudyOf, root: Path) -> str:
    path = reports.render(study.write(root))
    assert path.name == "report.html"
    return path.read_text(encoding="utf-8")


def test_hostile_text_stays_text(tmp_path: Path) -> None:
    text = page_of(HOSTILE_STUDY, tmp_path)
    page = Page(text)
    assert HOSTILE not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert [tag for tag, _ in page.tags].count("script") == 3
    labels = re.findall(r'"name": ?"([^"]*)"', json.dumps(data_of(text)))
    assert "&lt;b&gt;x&lt;/b&gt;&lt;/script&gt;" in labels
    assert not any("<" in name for name in labels)


def test_code_between_backticks_is_code_and_markup_is_not() -> None:
    said = coded("Speeds: `ablate run <b>x</b>` measures <i>them</i>; one ` alone stays.")
    code = "<code>ablate run &lt;b&gt;x&lt;/b&gt;</code>"
    assert said == f"Speeds: {code} measures &lt;i&gt;them&lt;/i&gt;; one ` alone stays."


def test_nothing_is_fetched_and_nothing_can_be_uploaded(tmp_path: Path) -> None:
    text = page_of(typical(4), tmp_path)
    page = Page(text)
    for tag, attributes in page.tags:
        assert not {"src", "srcset", "action"} & attributes.keys(), tag
        assert str(attributes.get("href", "data:,")).startswith(("data:,", "#"))
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.partition("script-src")[2].partition(";")[0]
    config = data_of(text)["config"]
    assert config == CONFIG
    assert config["displaylogo"] is False
    assert config["showSendToCloud"] is False
    assert {"sendDataToCloud", "sendChartToCloud"} <= set(config["modeBarButtonsToRemove"])


def test_plotly_is_inlined_once_and_without_webgl(tmp_path: Path) -> None:
    text = page_of(typical(4), tmp_path)
    assert unpacked(text, "plotly").startswith(f"/**\n* plotly.js (cartesian - minified) v{get_plotlyjs_version()}\n")
    assert "plotly.js v" not in text
    kinds = {trace["type"] for f in data_of(text)["figures"].values() for trace in f["data"]}
    assert kinds == {"scatter"}


def test_other_traces_take_the_whole_of_plotly() -> None:
    flat, deep = (plotly_js([{"data": [{"type": kind}, {}]}]) for kind in ("heatmap", "parcoords"))
    assert set(re.findall(r'moduleType:"trace",name:"(\w+)"', flat)) == CARTESIAN
    assert deep == get_plotlyjs()


def test_a_page_is_small_enough_to_send(tmp_path: Path) -> None:
    assert len(page_of(typical(600), tmp_path).encode()) < 1e6


@pytest.mark.parametrize(
    "study",
    [
        StudyOf([Arm("base", [None]), Arm("arm", [None])], measured=False),
        StudyOf([Arm("base", [2.4], steps=4), Arm("arm", [None])]),
        StudyOf([Arm("base", [9.9], steps=4, diverged=[0]), Arm("arm", [2.5], steps=4)]),
        StudyOf([Arm("only", [2.4, 2.5], steps=4)]),
        StudyOf([Arm(f"arm {i}", [2.4 + i, 2.5], steps=4) for i in range(10)], measured=False),
    ],
    ids=["nothing trained", "one run", "baseline diverged", "one arm", "ten arms"],
)
def test_incomplete_and_odd_studies_still_render(study: StudyOf, tmp_path: Path) -> None:
    text = page_of(study, tmp_path)
    for arm in study.arms:
        assert text.count(f">{arm.name}</th>") >= len(arm.losses)


def test_every_figure_has_words_numbers_and_the_arms_colours(tmp_path: Path) -> None:
    figures = draw(summarise_study(typical(20).write(tmp_path)))
    assert [figure.key for figure in figures] == [
        "losses",
        "difference-curves",
        "trade-off",
        "differences",
        "cache-by-context",
        "decode-by-context",
        "prefill-by-context",
        "eval-differences",
    ]
    for figure in figures:
        assert figure.alt
        assert figure.table.rows
        assert all(len(row) == len(figure.table.columns) for row in figure.table.rows)
        assert (
            colours_by_name(go.Figure(figure.drawing.to_plotly_json())).items()
            <= {
                "post": PALETTE[0],
                "pre": PALETTE[1],
                "double": PALETTE[2],
            }.items()
        )


def colours_by_name(drawing: go.Figure) -> dict[str, str]:
    """Colours, by name, of the traces that belong to arms."""
    return {
        trace.name: trace.line.color or trace.marker.color for trace in drawing.data if trace.name and trace.legendgroup
    }


def test_every_trace_of_an_arm_says_whose_it_is(tmp_path: Path) -> None:
    """The page uses the legend group to fade the other arms."""
    summary = summarise_study(replace(typical(40), probes=tuple(SEEN)).write(tmp_path))
    for figure in draw(summary):
        for trace in go.Figure(figure.drawing.to_plotly_json()).data:
            coloured = {trace.line.color, trace.marker.color, (trace.fillcolor or "")[:16]} & set(PALETTE)
            assert (trace.legendgroup in ("post", "pre", "double")) or not coloured, figure.key


def test_the_index_names_studies_that_share_runs(tmp_path: Path) -> None:
    """The baseline of both is the same three runs."""
    base, other = Arm("base", [2.4, 2.41, 2.39]), Arm("arm", [2.3, 2.31, 2.29])
    StudyOf([base, other], name="first", measured=False).write(tmp_path)
    StudyOf([base], name="second", measured=False).write(tmp_path)
    page = render_site(tmp_path).read_text(encoding="utf-8")
    assert "Shares runs with first at cpu (3): their errors are correlated." in page
    assert page.count("errors are correlated") == 2


def test_arms_never_share_a_look() -> None:
    names = [f"arm {i}" for i in range(16)]
    assert len(set(looks(names).values())) == len(names)


def test_labels_are_short_plain_text() -> None:
    assert label("a<br>b\n&c") == "a&lt;br&gt;b &amp;c"
    assert label("x" * 100) == "x" * 14 + "…" + "x" * 13


def test_rendering_speed(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """Nine runs of 200 steps."""
    folder = typical(200).write(tmp_path)
    path = benchmark(reports.render, folder)
    assert path.stat().st_size > 600_000


def test_the_loss_of_a_run_that_has_not_ended_is_drawn(tmp_path: Path) -> None:
    """Means are of runs that have ended; before there is one, the raw loss is not hidden behind a switch."""
    summary = summarise_study(StudyOf((Arm("pre", (3.0, 3.1)), Arm("post", (3.2, 3.0)))).write(tmp_path))
    section = summary.section(Losses)
    assert section is not None
    style = looks(["pre", "post"])
    (ended,) = section.figures(summary, style)
    assert ended.title == "Validation loss over training"
    (running,) = replace(section, curves=()).figures(summary, style)
    assert running.title == "Training loss so far"
    assert [trace.visible for trace in running.drawing.data] == [True] * len(running.drawing.data) != []
