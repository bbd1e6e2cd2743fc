"""The page of a search for two objectives: the trials that no other beats in both come first."""

from __future__ import annotations

from ablate.store.documents import TrialRecord
from reports.figures.pareto import front_figure
from reports.findings.searches import SearchSummary
from reports.pages.search_page import render_page
from reports.wording import search_words
from reports.wording.search_tables import best_table, trials_table
from tests.reports.searching import RATE, search_of

SCORES = {0: (2.40, 600.0), 1: (2.50, 100.0), 2: (2.45, 300.0), 3: (2.60, 30.0), 4: (2.55, 300.0)}
"""Loss and bytes: trial 4 is beaten by trial 2 in both."""


def search(ways: tuple[str, str] = ("minimize", "minimize")) -> SearchSummary:
    document = search_of(
        [_trial(number, number != 4) for number in SCORES],
        ["train.lr", "block.ffn"],
        objectives=dict(zip(("loss", "kv_bytes_per_token"), ways, strict=True)),
    )
    return SearchSummary(document, ())


def _trial(number: int, best: bool) -> TrialRecord:
    return TrialRecord(
        number=number,
        state="finished",
        best=best,
        settings={"train.lr": 0.01, "block.ffn": "<b>"},
        params={"train.lr": 0.01},
        distributions={"train.lr": RATE},
        values=SCORES[number],
        reached=(SCORES[number],),
        curve={},
        runs=(),
        error=None,
    )


def test_the_front_is_a_line_of_steps_through_the_trials_that_are_not_beaten() -> None:
    others, front = front_figure(search()).drawing.data
    assert (list(others.x), list(others.y)) == ([300.0], [2.55])
    assert (list(front.x), list(front.text)) == ([30.0, 100.0, 300.0, 600.0], ["3", "1", "2", "0"])
    assert front.line.shape == "hv"  # with more bytes than a trial's, its loss can be had
    assert "block.ffn &lt;b&gt;" in front.hovertext[0]
    assert front_figure(search()).drawing.layout.xaxis.type == "log"  # 30 to 600
    assert front_figure(search(("minimize", "maximize"))).drawing.data[1].line.shape == "vh"


def test_the_headline_names_the_best_in_each_objective_and_the_table_is_in_order() -> None:
    said = search_words.headline(search())
    assert said == (
        "Trial 0 has the best loss, 2.4, trial 3 has the best kv_bytes_per_token, 30; 4 of 5 scored trials are on the"
        " front."
    )
    assert [row[0] for row in best_table(search()).rows] == ["0", "2", "1", "3"]
    assert "trial 0 has the best kv_bytes_per_token, 600" in search_words.headline(search(("minimize", "maximize")))
    page = render_page(search())
    assert "&lt;b&gt;" in page and page.index('id="front"') < page.index("Which settings matter")


def test_trials_that_diverged_stand_last_whichever_way_is_better() -> None:
    for ways, numbers in ((("minimize", "minimize"), "02134"), (("maximize", "minimize"), "31204")):
        found = search(ways)
        one = found.trials[1].model_copy(update={"best": False})
        diverged = one.model_copy(update={"number": 5, "values": (None, 10.0)})
        trials = (diverged, *found.trials)
        table = trials_table(SearchSummary(found.document.model_copy(update={"trials": trials}), ()))
        assert "".join(row[0] for row in table.rows) == numbers + "5"


def test_settings_whose_paths_end_alike_are_given_in_full() -> None:
    paths = {"blocks.a.mixer.window": 8, "blocks.b.mixer.window": 16, "train.lr": 0.01}
    found = search()
    trials = tuple(each.model_copy(update={"settings": paths, "values": each.values[:1]}) for each in found.trials)
    one = found.document.model_copy(update={"trials": trials, "objectives": {"loss": "minimize"}})
    said = search_words.headline(SearchSummary(one, ()))
    assert said.endswith(": blocks.a.mixer.window 8, blocks.b.mixer.window 16, lr 0.01.")
