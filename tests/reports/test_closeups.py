"""Samples and token losses in the report: means by hand, text escaped, and only like compared with like."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reports.judge.reading.evaluations import EvaluatedRun, RunKey
from reports.page.evaluations import EvaluationSection
from reports.page.evaluations.samples import Samples
from reports.page.evaluations.token_losses import TokenLosses, class_of
from reports.page.html.page import render_page
from reports.page.sections import draw, summarise_study
from store import Store
from store.documents import EvalsDocument, Section
from tests.reports.factory import HOSTILE, Arm, StudyOf, changed

PIECES = [["import", " x", "\n", "4"], [" the", "ory", ".", HOSTILE]]
BASE = [[1.0, 2.0, 0.5, 3.0], [1.0, 1.0, 1.0, 1.0]]
SHIFT = [[-0.5, 0.2, 0.0, 0.0], [0.0, -3.0, 0.0, 1.0]]


def sections(shift: float, pieces: list[list[str]] = PIECES) -> dict[str, Section]:
    nats = [[b + shift * s for b, s in zip(*rows, strict=True)] for rows in zip(BASE, SHIFT, strict=True)]
    passages: list[Any] = [{"start": 0, "pieces": p, "nats": n} for p, n in zip(pieces, nats, strict=True)]
    text: Any = {"prompt": "def f(", "held_out": "x):", "sample": f"{shift}{HOSTILE}"}
    samples = Section(about={"temperature": 0.8}, rows=(text,))
    return {"samples": samples, "token_losses": Section(rows=tuple(passages))}


SECTIONS = {"base": {0: sections(0), 1: sections(0)}, "arm": {0: sections(1), 1: sections(2)}}


def summarised(kind: type[EvaluationSection], by_arm: dict[str, dict[int, dict[str, Section]]]) -> Any:
    """A section of the report, of stored tables by arm and seed."""
    runs = [
        EvaluatedRun(RunKey(arm, seed, ""), EvalsDocument(request={}, scores={}, sections=tables), [])
        for arm, of in by_arm.items()
        for seed, tables in of.items()
    ]
    frames = kind.collect(SimpleNamespace(evaluated=runs))
    return kind.summarise(SimpleNamespace(frames=frames, study=SimpleNamespace(baseline="base")))


def test_differences_are_paired_means_over_seeds() -> None:
    (found,) = summarised(TokenLosses, SECTIONS).differences
    assert (found.arm, found.seeds) == ("arm", 2)
    shown = [[value for _, value in passage] for passage in found.passages]
    assert shown == [pytest.approx([1.5 * s for s in row]) for row in SHIFT]
    parts = {part.name: part for part in found.parts}
    assert parts["all"].difference == pytest.approx(1.5 * (-0.3 - 2.0) / 8)
    # Passages' sums are −0.45 and −3.0, of 4 tokens each: the standard error of the mean of their means.
    assert parts["all"].stderr == pytest.approx(abs(-0.45 / 4 + 3.0 / 4) / 2)
    assert (parts["rest of words"].tokens, parts["rest of words"].difference) == (2, pytest.approx(1.5 * -1.75))
    assert parts["digits"].stderr is None
    assert parts["tokens 2 to 2"].difference == pytest.approx(1.5 * (0.2 - 3.0) / 2)
    assert [(spot.before, spot.piece) for spot in found.best] == [(" the", "ory"), ("", "import")]
    assert found.worst[0].piece == HOSTILE


def test_prompts_are_side_by_side_only_where_they_are_the_same_text() -> None:
    other = sections(1)
    other["samples"].rows[0]["prompt"] = "class X"
    found = summarised(Samples, {"base": {0: sections(0)}, "arm": {0: other}})
    assert (found.prompts, found.reasons) == ((), (("samples", "the arms' prompts differ"),))


def test_only_the_same_tokens_are_compared() -> None:
    other = {"base": SECTIONS["base"], "arm": {0: sections(1, [["a", "b", "c", "d"], PIECES[1]])}}
    found = summarised(TokenLosses, other)
    assert (found.differences, found.reasons) == ((), (("arm", "its tokens or seeds differ from those of base"),))
    refused = {**SECTIONS, "arm": {0: {"token_losses": Section(rows=({"reason": "reads at most 16 tokens"},))}}}
    found = summarised(TokenLosses, refused)
    assert (found.differences, found.reasons) == ((), (("arm", "reads at most 16 tokens"),))


@pytest.mark.parametrize(
    ("piece", "name"),
    [
        ("\n    ", "space and line ends"),
        ("", "space and line ends"),
        (" 12", "digits"),
        (" def", "starts of words"),
        ("ine", "rest of words"),
        ("):", "punctuation"),
        ("_a", "punctuation"),
    ],
)
def test_tokens_have_one_class(piece: str, name: str) -> None:
    assert class_of(piece) == name


def test_shades_say_who_wins() -> None:
    assert [TokenLosses.shade(value) for value in (-2.5, -0.5, -0.1, 0.05, 0.1, 1.9, 2)] == [
        "win3", "win2", "win1", "", "lose1", "lose2", "lose3",
    ]  # fmt: skip


def test_a_map_for_each_head_and_a_choice_of_layers(tmp_path: Path) -> None:
    heads = [[[1.0], [0.25, 0.75], [0.5, 0.3, 0.2]], [[1.0], [0.0, 1.0], [0.0, 0.0, 1.0]]]
    pieces = ["a", "\\n", HOSTILE]
    layers = [{"layer": 0, "pieces": pieces, "heads": heads}, {"layer": 3, "pieces": pieces, "heads": heads[:1]}]
    study = StudyOf([Arm("base", [2.4], steps=4), Arm("arm", [2.3], steps=4)])
    folder, store = study.write(tmp_path), Store(tmp_path)
    with changed(store.evals_path(study.digest(study.arms[1], 0), "e1")) as document:
        document["sections"]["attention"] = {"rows": layers}
    summary = summarise_study(folder)
    found = next(each for each in draw(summary) if each.key == "attention")
    (switch,) = found.switches
    assert [option.label for option in switch.options] == ["arm, layer 0", "arm, layer 3"]
    assert switch.options[0].traces["z"][0] == [[1.0, None, None], [0.25, 0.75, None], [0.5, 0.3, 0.2]]
    assert switch.options[1].traces["z"][1] == []
    assert found.table.rows[0] == ("arm", "0", "0", "0.475", "0.275", "0.375")
    assert HOSTILE not in render_page(summary)


def test_the_page_shows_them_escaped(tmp_path: Path) -> None:
    study = StudyOf([Arm("base", [2.4, 2.5], steps=4), Arm("arm", [2.3, 2.4], steps=4)])
    folder, store = study.write(tmp_path), Store(tmp_path)
    for arm in study.arms:
        for seed in range(2):
            digest = study.digest(arm, seed)
            stored, samples = store.read_evals(digest, "e1"), store.read_samples(digest, "e1")
            assert stored is not None and samples is not None
            stored.sections.update(SECTIONS[arm.name][seed])
            store.write_evals(digest, "e1", stored, samples)
    html = render_page(summarise_study(folder))
    assert HOSTILE not in html
    assert '<h2 id="token-by-token">Token by token <a' in html
    assert "<h3>arm against base</h3>" in html
    assert '<span class="win3" title="−4.50">ory</span>' in html
    assert "Text that the models of seed 0 generate" in html
