"""Where the search for a learning rate begins. Losses are made up; nothing is trained."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import pytest

from ablate.data import DataIdentity
from ablate.planning.campaign import CampaignOutcome, campaign
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import Plan
from ablate.planning.plan_shown import remarks, tuning_runs
from ablate.planning.study_document import study_document
from ablate.study.reading import load_study
from ablate.study.study import Study
from ablate.study.tune_spec import COARSE, SHORT, TuneSpec
from ablate.study.written import SHIPPED
from ablate.wings.tuning.known_rates import KnownRatesError, search_starts
from store import Store
from store.documents import RunDocument, StudyDocument
from store.documents.tuning import RATE

STUDY = """question: Which?
baseline: pre
base: {preset: small, d_model: 8, n_layers: 1, block.mixer.heads: 2, block.ffn.d_ff: 16}
arms: {post: {block.norm_placement: post}, double: {block.norm_placement: double}}
seeds: 2
train: {context: 4, batch: 2, lr: 1e-2}
budget: {tokens: 800}
tune: auto
"""
LONGER = STUDY.replace("tokens: 800", "tokens: 1200")
BEST = {"pre": 2.2e-2, "post": 8e-3, "double": 2.2e-2}


def plan(study: Study) -> Plan:
    return make_plan(study, identify=lambda _: DataIdentity("d" * 32, 257, ""))


class Laboratory:
    """A store, and studies that run in it with losses from a formula; `trained` counts the runs by study."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "runs")
        self.losses: dict[str, float] = {}
        self.trained: list[RunDocument] = []

    def study(self, text: str, name: str = "study") -> Study:
        path = self.folder / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return load_study(path, "cpu")

    def run(
        self, text: str, name: str = "study", best: Mapping[str, float] = BEST, stages: int = 99
    ) -> CampaignOutcome | None:
        """The outcome of a study whose arms have these best rates; None if it is interrupted after so many stages."""
        study, self.trained = self.study(text, name), []
        found = campaign(
            study, plan, self.losses.get, starts=lambda each, plan: search_starts(each, plan, self.store, keep=True)
        )
        for _, stage in zip(range(stages), found, strict=False):
            for run in (run for each in stage.plans for run in each.runs if run.digest not in self.losses):
                rate = run.identity.train["lr"]
                assert isinstance(rate, float)
                self.losses[run.digest] = math.log(rate / best[run.arm.split()[0]]) ** 2 + 1e-3 * (run.seed % 2)
                self.store.write_run(run.identity)
                self.trained.append(run.identity)
            if stage.outcome is not None:
                self.store.study(study.name, study.scale).write(study_document(stage.outcome))
                return stage.outcome
        return None

    def document(self, name: str = "study") -> StudyDocument:
        found = self.store.study(name, "cpu").read()
        assert found is not None
        return found

    def starts(self, text: str, name: str = "study") -> dict[str, tuple[float, ...]]:
        study = self.study(text, name)
        return {arm: each.rates for arm, each in search_starts(study, plan(study), self.store, keep=False).items()}


@pytest.fixture
def laboratory(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path)


def around(rate: float) -> list[float]:
    return [float(f"{factor * rate:.6g}") for factor in (0.5, 1, 2)]


def tried_first(document: StudyDocument) -> dict[str, Sequence[float]]:
    return {each.arm: each.rates[:3] for each in document.tuning}


def test_a_longer_study_begins_at_the_best_rates_of_a_shorter_one(laboratory: Laboratory) -> None:
    laboratory.run(STUDY)
    short = {each.arm: each.rate for each in laboratory.document().tuning}
    assert all(each.coarse and each.start is None for each in laboratory.document().tuning)
    outcome = laboratory.run(LONGER)
    assert outcome is not None
    document = laboratory.document()
    assert tried_first(document) == {arm: tuple(around(rate)) for arm, rate in short.items()}
    for each in document.tuning:
        assert each.start is not None and not each.coarse
        assert (each.start.arm, each.start.source) == (each.arm, "study@cpu in this store")
    assert {arm.name: arm.train.lr for arm in outcome.plan.arms} == pytest.approx(BEST, rel=0.15)
    assert {run.steps for run in laboratory.trained} == {150}, "no short runs"


def test_the_search_goes_on_where_the_best_rate_is_not_the_known_one(laboratory: Laboratory) -> None:
    laboratory.run(STUDY)
    moved = {"pre": 1.6e-1, "post": 8e-3, "double": 2e-3}
    outcome = laboratory.run(LONGER, best=moved)
    assert outcome is not None
    ratios = {arm.name: arm.train.lr / moved[arm.name] for arm in outcome.plan.arms}
    assert all(0.5**0.5 <= ratio <= 2**0.5 for ratio in ratios.values()), ratios
    assert not any(each.edges for each in laboratory.document().tuning)


def test_the_same_arm_in_another_study_trains_nothing_and_a_new_arm_begins_at_the_baseline_s(
    laboratory: Laboratory,
) -> None:
    laboratory.run(STUDY)
    rate = laboratory.document().tuning[0].rate
    text = STUDY.replace("double: {block.norm_placement: double}", "gelu: {block.ffn: gelu}")
    laboratory.run(text, "other", BEST | {"gelu": 3e-2})
    gelu = [each for each in laboratory.document("other").tuning if each.arm == "gelu"]
    assert gelu[0].start is not None
    assert (gelu[0].start.arm, list(gelu[0].start.rates)) == ("pre", around(rate))
    spec = {arm.name: arm.spec.digest for arm in plan(laboratory.study(text, "other")).arms}
    assert laboratory.trained and all(
        run.model["block"]["ffn"]["kind"] == "gelu"  # type: ignore[index, call-overload]
        for run in laboratory.trained
    ), spec


def test_an_interrupted_search_continues_as_it_began_whatever_the_store_learns(laboratory: Laboratory) -> None:
    assert laboratory.run(LONGER, stages=1) is None
    laboratory.run(STUDY, "other")
    assert laboratory.starts(STUDY.replace("seeds: 2", "seeds: 3")) != {}, "the store knows rates now"
    begun = len(laboratory.losses)
    laboratory.run(LONGER)
    assert len(laboratory.losses) > begun
    assert all(each.start is None and len(each.coarse) == 1 for each in laboratory.document().tuning)
    known = laboratory.run(LONGER.replace("tokens: 1200", "tokens: 1300"), stages=1)
    assert known is None
    before = laboratory.starts(LONGER.replace("tokens: 1200", "tokens: 1300"))
    laboratory.run(LONGER.replace("tokens: 1200", "tokens: 1350"), best=dict.fromkeys(BEST, 4e-2))
    assert laboratory.starts(LONGER.replace("tokens: 1200", "tokens: 1300")) == before != {}


def test_a_study_that_an_earlier_version_tuned_is_planned_as_before(laboratory: Laboratory) -> None:
    laboratory.run(STUDY)
    laboratory.run(STUDY, "other", BEST)
    laboratory.store.study("study", "cpu").starts_path.unlink()
    before = laboratory.document()
    laboratory.run(STUDY)
    assert laboratory.trained == []
    assert [each.coarse for each in laboratory.document().tuning] == [each.coarse for each in before.tuning]


@pytest.mark.parametrize(
    "text",
    [
        STUDY.replace("tokens: 800", "tokens: 1680"),
        STUDY.replace("d_model: 8", "d_model: 16").replace("d_ff: 16", "d_ff: 32"),
        STUDY.replace("lr: 1e-2", "lr: 1e-2, optimizer: lion"),
        STUDY.replace("batch: 2", "batch: 5"),
        STUDY.replace("tune: auto", "tune: {known: false}"),
        STUDY.replace("d_ff: 16}", "d_ff: 17}").replace("baseline: pre", "baseline: other"),
    ],
    ids=["length", "size", "optimizer", "batch", "told", "baseline"],
)
def test_unlike_arms_begin_at_grids(laboratory: Laboratory, text: str) -> None:
    laboratory.run(STUDY)
    name = "another" if "baseline: other" in text else "study"
    assert laboratory.starts(LONGER, "study") != {}
    assert laboratory.starts(text, name) == {}


def test_arms_of_one_study_begin_alike(laboratory: Laboratory) -> None:
    """The baseline is unknown, the others are known: none begins at known rates."""
    laboratory.run(STUDY)
    unknown = STUDY.replace("baseline: pre", "baseline: gelu").replace("d_ff: 16}", "d_ff: 16, block.ffn.kind: gelu}")
    swiglu = "{block.norm_placement: post, block.ffn: {kind: swiglu, d_ff: 16}}"
    assert laboratory.starts(unknown.replace("{block.norm_placement: post}", swiglu), "other") == {}


def test_a_rate_at_an_edge_is_not_known(laboratory: Laboratory) -> None:
    laboratory.run(STUDY.replace("tune: auto", "tune: {extend: 0}"), best=dict.fromkeys(BEST, 9.0))
    assert all(each.edges for each in laboratory.document().tuning)
    assert laboratory.starts(LONGER) == {}


def recorded(laboratory: Laboratory, rates: str = "each arm at its own tuned rate", context: int = 4) -> None:
    arms = plan(laboratory.study(STUDY)).arms
    size = float(arms[0].parameters - arms[0].parameters_embedding)
    result = {
        "study": "study",
        "recorded": "2026-11-28",
        "setting": {
            "parameters": [size, size],
            "tokens_per_parameter": [arms[0].length.tokens_per_parameter] * 2,
            "context": context,
            "rates": rates,
        },
        "arms": [{"name": arm.name, "edits": {**arm.edits, RATE: 0.03}, "rate": 0.03} for arm in arms],
    }
    folder = laboratory.folder / "results"
    folder.mkdir(exist_ok=True)
    (folder / "study@cpu.json").write_text(json.dumps(result), encoding="utf-8")


def test_recorded_rates_begin_the_search_in_an_empty_store(laboratory: Laboratory) -> None:
    recorded(laboratory)
    assert laboratory.starts(STUDY) == dict.fromkeys(BEST, tuple(around(0.03)))
    starts = search_starts(laboratory.study(STUDY), plan(laboratory.study(STUDY)), laboratory.store, keep=False)
    lines = list(remarks(laboratory.study(STUDY), tuned=False, starts=starts))
    source = "the recorded result of study@cpu, 2026-11-28"
    assert f"tuning begins around known rates: pre 0.03, post 0.03, double 0.03, from {source}" in lines
    tune = laboratory.study(STUDY).tune
    assert tune is not None and (tuning_runs(tune, starts), tuning_runs(tune)) == (10, 11.25)
    longer = STUDY.replace("tokens: 800", "tokens: 1680")
    assert laboratory.starts(longer) == {}
    changed = STUDY.replace("{post: {block.norm_placement: post}", "{post: {block.norm_placement: peri}")
    assert laboratory.starts(changed) == dict.fromkeys(BEST, tuple(around(0.03))), "post begins at the rate of pre"


def test_a_plan_expects_as_many_rates_as_recorded_studies_tried() -> None:
    """With two tuning seeds at each; with one there is no noise to refine by. Counted are the second passes."""
    tried = []
    for path in (SHIPPED / "results").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        written = next(SHIPPED.rglob(f"{found['study']}.yaml")).read_text(encoding="utf-8")
        if not re.search(r"tune: {(fraction|seeds): 1\b", written):
            tried += [len(arm["tuning"]) for arm in found["arms"] if arm.get("tuning")]
    assert len(tried) > 100
    assert mean(tried) == pytest.approx((tuning_runs(TuneSpec()) - len(COARSE) * SHORT) / 2, abs=0.5)


@pytest.mark.parametrize("given", [{"rates": "learning rates not tuned"}, {"context": 8}])
def test_recorded_rates_that_were_not_tuned_or_are_of_another_setting_are_not_known(
    laboratory: Laboratory, given: dict[str, str | int]
) -> None:
    recorded(laboratory, **given)  # type: ignore[arg-type]
    assert laboratory.starts(STUDY) == {}


def test_a_recorded_result_that_cannot_be_read_is_an_error(laboratory: Laboratory) -> None:
    recorded(laboratory)
    path = laboratory.folder / "results" / "study@cpu.json"
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(KnownRatesError, match=r"study@cpu\.json is no recorded result: remove it"):
        laboratory.starts(STUDY)
