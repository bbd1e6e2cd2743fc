"""Plans against arithmetic done by hand."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import zoo
from ablate.data import DataIdentity
from ablate.planning import identity
from ablate.planning.campaign import CampaignOutcome, RungStudy
from ablate.planning.durations import BEGIN_SECONDS, EVALUATING_SECONDS, START_SECONDS, Duration, duration
from ablate.planning.identity import canonical_model
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import Plan
from ablate.planning.plan_shown import plan_json, plan_rows
from ablate.planning.study_document import length_lines, study_arm, study_document
from ablate.study.reading import load_study
from evals.costs.machine import Speed
from store import Store
from store.documents import CacheBytes, RunProbes, SpentBudget
from tests.documents import measure_of
from tests.many import over
from zoo.settings.axis import variants
from zoo.settings.identity import identity_of

DATA = DataIdentity("d" * 32, 257, "")

# D 8, one layer, H 2 of d 4, F 16, V 257 tied, T 4, batch 2.
STUDY = """question: Fewer kv heads?
source: by hand
baseline: mha
base: {preset: small, d_model: 8, n_layers: 1, block.mixer.heads: 2, block.ffn.d_ff: 16}
arms: {mqa: {block.mixer.kv_heads: 1}}
seeds: 2
train: {context: 4, batch: 2}
budget: {flops: 1e6}
measure: {contexts: [2, 8]}
tune: off
"""
EMBEDDING = 257 * 8
FFN = 3 * 8 * 16
GAINS = 3 * 8
MHA = 4 * 8 * 8
MQA = 2 * 8 * 8 + 2 * 8 * 4
SCORES = 4 * 2 * 4 * 2.5  # QKᵀ and AV: 2·2 FLOPs × H × d × the mean of 1, 2, 3 and 4 keys


def flops_per_token(attention: int) -> float:
    return 3 * (2 * (attention + FFN + EMBEDDING) + SCORES)


def plan_of(tmp_path: Path, text: str = STUDY, *sets: str, **given: Any) -> Plan:
    path = tmp_path / "by_hand.yaml"
    path.write_text(text, encoding="utf-8")
    return make_plan(load_study(path, "cpu", sets), **{"identify": lambda _: DATA, **given})


def test_time_is_that_of_what_is_missing_and_of_tuning(tmp_path: Path) -> None:
    """Training at 40 % of 1e6 FLOPs per second, as `estimated_seconds` has it; two contexts × four batches × two phases
    of 0.5 s where nothing was measured, and the median of what was where it is known."""
    plan, store = (
        plan_of(tmp_path, STUDY.replace("[2, 8]}", "[2, 8], batches: [1, 2, 4, 8], seconds: 0.5}")),
        Store(tmp_path),
    )
    mha, mqa = plan.arms
    lacking = {run.digest: ["train", "measure"] for run in mha.runs} | {run.digest: [] for run in mqa.runs}
    found = duration([plan], lacking, store, Speed(1e6))
    # Both arms against each other: five processes that take 3 s to start, half of a point's time for all but two.
    against = 5 * 3 + 2 * 0.5 * (2 * 4 + 0.5 * 15)
    besides = {"starting": 2 * START_SECONDS, "beginning": BEGIN_SECONDS}
    assert found == Duration(2 * mha.flops / 0.4e6, 2 * 8 * 2 * 0.5, 0.0, comparing=against, **besides)
    assert (found / 2).comparing == against, "while nothing else runs"
    assert (found / 2).total == (found.total - against - BEGIN_SECONDS) / 2 + against + BEGIN_SECONDS
    assert duration([plan], lacking, store, Speed(1e6), 3.0) == replace(found, tuning=3.0)
    for number, seconds in enumerate((10.0, 40.0, 20.0)):
        measured = measure_of(seconds=seconds)
        store.write_measure(f"{number}", str(plan.measure_digest), measured)
    assert duration([plan], lacking, store, Speed(1e6)).measuring == 2 * 20.0
    lacking = {digest: ["evals"] for digest in lacking}
    found = duration([plan], lacking, store, Speed(1e6))
    assert found.evaluating is None and found.total == BEGIN_SECONDS + len(lacking) * EVALUATING_SECONDS
    assert str(found) == "about 0:30 in all: 0:20 of evaluation (assumed), 0:10 of starting"
    assert str(Duration(250.0, 40.0, 70.0, 600.0) / 2) == (
        "about 8:00 in all: 5:00 of tuning, 2:05 of training, 0:20 of measuring, 0:35 of evaluation"
    )
    assert str(Duration(0.2, 0.0, 0.0)) == "about 0:01 of training"  # no time at all would be a wrong promise


def test_steps_follow_from_the_arm_s_own_flops(tmp_path: Path) -> None:
    mha, mqa = plan_of(tmp_path).arms
    assert (mha.parameters, mha.parameters_embedding) == (EMBEDDING + FFN + GAINS + MHA, EMBEDDING)
    assert mqa.parameters == mha.parameters - MHA + MQA
    assert (mha.flops_per_token, mqa.flops_per_token) == (flops_per_token(MHA), flops_per_token(MQA))
    assert (mha.steps, mqa.steps) == (round(1e6 / flops_per_token(MHA) / 8), round(1e6 / flops_per_token(MQA) / 8))
    assert mha.tokens == mha.steps * 8
    assert mha.flops == pytest.approx(1e6, rel=0.5 / mha.steps)


def test_a_budget_of_tokens_gives_every_arm_the_same_steps(tmp_path: Path) -> None:
    arms = plan_of(tmp_path, STUDY, "budget.tokens=84").arms
    assert [arm.steps for arm in arms] == [10, 10]  # 84 / 8 = 10.5, halves to even
    assert [arm.matched for arm in arms] == ["tokens", "tokens"]
    assert arms[1].differs["tokens"] == 0.0
    assert arms[1].differs["flops"] == pytest.approx(100 * (flops_per_token(MQA) / flops_per_token(MHA) - 1))
    assert arms[1].differs["parameters"] == pytest.approx(100 * (MQA - MHA) / (EMBEDDING + FFN + GAINS + MHA))


def test_cache_bytes_are_declared_per_context_in_the_training_dtype(tmp_path: Path) -> None:
    mha, mqa = plan_of(tmp_path).arms
    assert mha.cache_bytes == tuple((n, 2 * 2 * 4 * 4 * n) for n in (2, 4, 8, 16))  # K and V, H·d, 4 bytes
    assert (mha.kv_bytes_per_token, mqa.kv_bytes_per_token) == (64, 32)
    assert plan_of(tmp_path, STUDY, "train.dtype=bfloat16").arms[0].kv_bytes_per_token == 32
    windowed = plan_of(tmp_path, STUDY, "base.block.mixer.window=2").arms[0]
    assert windowed.kv_bytes_per_token == 64 * 2 / 4


def test_runs_come_seed_by_seed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    assert [(run.arm, run.seed) for run in plan.runs] == [("mha", 0), ("mqa", 0), ("mha", 1), ("mqa", 1)]
    assert len({run.digest for run in plan.runs}) == 4


def test_an_identity_is_run_json_and_its_digest_that_of_the_resolved_model(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    run, arm = plan.runs[0], plan.arms[0]
    stored = json.loads(run.identity.model_dump_json(by_alias=True))
    assert set(stored) == {"schema", "digest", "seed", "model", "train", "steps", "data", "numerics"}
    assert stored["numerics"] == {"device": "cpu", "dtype": "float32", "matmul": "medium"}
    assert stored["data"] == {"digest": DATA.digest}
    assert zoo.parse(stored["model"]).digest == arm.spec.digest
    hashed = {key: stored[key] for key in ("seed", "steps", "data", "numerics")}
    hashed |= {"model": arm.spec.identity(), "train": identity_of(arm.train)}
    text = json.dumps(hashed, sort_keys=True, separators=(",", ":"))
    assert run.digest == stored["digest"] == hashlib.sha256(text.encode()).hexdigest()[:20]


@pytest.mark.parametrize(
    "change",
    ["base.block.ffn.d_ff=24", "train.lr=1e-3", "train.batch=1", "budget.flops=2e6", "base.z_loss=1e-4", "seeds=[7]"],
)
def test_what_changes_a_result_changes_the_digest(change: str, tmp_path: Path) -> None:
    before, after = plan_of(tmp_path), plan_of(tmp_path, STUDY, change)
    assert before.runs[0].digest != after.runs[0].digest


def test_data_and_numerics_change_the_digest(tmp_path: Path) -> None:
    other = DataIdentity("e" * 32, 257, "")
    gpus = ({"device": "cuda", **gpu} for gpu in ({}, {"gpu": "NVIDIA H200"}, {"gpu": "NVIDIA L4"}))
    changes = ({}, {"identify": lambda _: other}, {"matmul": "highest"}, *gpus)
    digests = {plan_of(tmp_path, STUDY, **given).runs[0].digest for given in changes}
    assert len(digests) == 6


@pytest.mark.parametrize(
    "change",
    [
        "base.block.ffn.d_ff=2x",
        "base.block.mixer.kv_heads=2",
        "train.lr=0.003",
        "question=Other?",
        "baseline=other",
        "measure=null",
        "evals.limit=3",
        "base.vocab_size=257",
    ],
)
def test_spelling_names_and_measurements_do_not(change: str, tmp_path: Path) -> None:
    before, after = plan_of(tmp_path), plan_of(tmp_path, STUDY, change)
    assert before.runs[0].digest == after.runs[0].digest
    assert before.runs[0].identity == after.runs[0].identity


def test_probes_are_part_of_a_run_only_when_there_are_some(tmp_path: Path) -> None:
    """A stored run without them cannot show what they saw, and one that never asked must be found again."""
    before, off = plan_of(tmp_path), plan_of(tmp_path, STUDY, "probes=null")
    assert before.runs == off.runs
    some, same, other = (
        plan_of(tmp_path, STUDY, f"probes={given}").runs[0]
        for given in (
            "[log_z, expert_load]",
            "{which: [expert_load, log_z], every: 0.1}",
            "{which: [log_z], every: 0.1}",
        )
    )
    assert some.identity.probes == RunProbes(every=0.1, which=("expert_load", "log_z"))
    assert some == same
    assert len({before.runs[0].digest, some.digest, other.digest}) == 3


def test_editing_one_arm_leaves_the_other_s_runs_alone(tmp_path: Path) -> None:
    before, after = plan_of(tmp_path), plan_of(tmp_path, STUDY, "arms.mqa.block.norm_placement=post")
    assert before.arms[0].runs == after.arms[0].runs
    assert not {run.digest for run in before.arms[1].runs} & {run.digest for run in after.arms[1].runs}


def test_patterns_of_blocks_have_one_spelling() -> None:
    blocks = {"local": {"mixer.window": 4}, "same": {"mixer": {"window": 4}}, "unused": {"ffn": "relu"}}
    one = zoo.load("small", n_layers=4, blocks=blocks, pattern=["local", "block"])
    other = zoo.load("small", n_layers=4, blocks=blocks, pattern=["same", "block", "local", "block"])
    assert canonical_model(one) == canonical_model(other)
    assert zoo.parse(canonical_model(one)).resolve() == one.resolve()


AXES = {"mixers": "block.mixer", "ffns": "block.ffn", "norms": "block.norm", "residuals": "block.norm_placement"}


@over(
    (path, {"kind": kind, **example})
    for axis, path in AXES.items()
    for kind, cls in variants(f"zoo.{axis}").items()
    for example in cls.examples
)
def test_a_stored_model_is_read_back(path: str, variant: dict[str, Any]) -> None:
    """A run's document has what resolution filled in, which a variant must not take for a setting that it lacks."""
    visible = "all" if variant["kind"] in ("linformer", "expert_choice_moe") else "causal"
    spec = zoo.load("small", **{"visible": visible, path: variant})
    assert zoo.parse(canonical_model(spec)).resolve() == spec.resolve()


def test_the_vocabulary_follows_the_data(tmp_path: Path) -> None:
    assert {arm.spec.vocab_size for arm in plan_of(tmp_path).arms} == {257}
    assert plan_of(tmp_path, STUDY, "base.vocab_size=300").arms[0].spec.vocab_size == 300


def test_the_study_document_is_the_store_s(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    document = study_document(CampaignOutcome((RungStudy(plan),)), datetime(2026, 1, 2, tzinfo=UTC))
    folder = Store(tmp_path / "runs").study("by_hand", "cpu")
    folder.write(document)
    assert folder.read() == document
    assert document.created == "2026-01-02T00:00:00+00:00"
    assert (document.name, document.scale, document.source) == ("by_hand", "cpu", STUDY)
    assert (document.baseline, document.budget, document.matched) == ("mha", SpentBudget(flops=1e6), "flops")
    assert [arm.name for arm in document.arms] == ["mha", "mqa"]
    assert document.arms[1].edits == {"block.mixer.kv_heads": 1}
    assert [(run.digest, run.seed) for run in document.arms[0].runs] == [(r.digest, r.seed) for r in plan.arms[0].runs]
    assert document.arms[0].cache_bytes[0] == CacheBytes(context=2, bytes=128)
    assert (document.measure, document.evals) == (plan.measure_digest, plan.evals_digest)
    assert document.margin is None
    within = study_document(CampaignOutcome((RungStudy(plan_of(tmp_path, STUDY, "margin=0.01")),)))
    nothing = study_document(CampaignOutcome((RungStudy(plan_of(tmp_path, STUDY, "measure=null", "evals=null")),)))
    assert within.margin == 0.01
    assert (nothing.measure, nothing.evals) == (None, None)


def test_tokens_per_parameter_leave_out_the_table_and_count_what_an_arm_started_from(tmp_path: Path) -> None:
    text = STUDY.replace("{mqa: {", "{mqa: {start: {arm: mha, fraction: 0.1}, ")
    mha, mqa = plan_of(tmp_path, text, "budget={tokens: 4000}").arms
    assert mha.length.tokens_per_parameter == 4000 / (FFN + GAINS + MHA)
    assert mqa.length.tokens_per_parameter == 4400 / (FFN + GAINS + MQA)
    assert (mha.length.steps, mqa.length.steps) == (500, 550)


@pytest.mark.parametrize(("tokens", "names"), [(3992, ["mha", "mqa"]), (4000, [])])
def test_fewer_than_500_steps_are_called_undertrained(tmp_path: Path, tokens: int, names: list[str]) -> None:
    plan = plan_of(tmp_path, STUDY, f"budget={{tokens: {tokens}}}")
    line = "Undertrained: all arms, with as few as "
    assert [found.startswith(line) for found in length_lines(plan, {})] == [True] * bool(names)
    assert [
        arm["name"] for arm in plan_json(CampaignOutcome((RungStudy(plan),)))["arms"] if arm["undertrained"]
    ] == names


@pytest.mark.parametrize(
    ("warmup", "lines"),
    [("'500 steps'", ["warm-up takes every step of mha: no rate reaches its peak"]), ("'499 steps'", []), ("0.99", [])],
)
def test_a_warmup_as_long_as_the_training_is_told(warmup: str, lines: list[str], tmp_path: Path) -> None:
    """At equal FLOPs mha takes 500 steps, and mqa 550."""
    plan = plan_of(tmp_path, STUDY, "budget={tokens: 4000}", f"train.warmup={warmup}")
    plan = replace(plan, arms=(plan.arms[0], replace(plan.arms[1], steps=550)))
    assert [line for line in length_lines(plan, {}) if "warm-up" in line] == lines


def test_so_are_fewer_than_five_tokens_per_parameter(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, STUDY, "budget={tokens: 4000}", "base.block.ffn.d_ff=64")
    assert all(arm.length.undertrained for arm in plan.arms)
    assert all(arm.steps == 500 for arm in plan.arms)


def test_plan_json_has_what_is_promised_and_time_only_from_a_speed(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    promised = {
        "parameters",
        "parameters_embedding",
        "flops_per_token",
        "tokens",
        "steps",
        "tokens_per_parameter",
        "undertrained",
        "epochs",
        "references",
        "kv_bytes_per_token",
        "estimated_seconds",
        "matched",
        "differs",
    }
    outcome = CampaignOutcome((RungStudy(plan),))
    document = plan_json(outcome, Speed(1e6, 0.5))
    assert all(promised <= set(arm) for arm in document["arms"])
    assert len(document["runs"]) == 4
    assert document["arms"][0]["estimated_seconds"] == pytest.approx(
        plan.arms[0].flops / 400_000 + plan.arms[0].steps * len(plan.arms[0].spec.layers) * 0.5
    )
    assert plan_json(outcome)["arms"][0]["estimated_seconds"] is None
    rows = plan_rows(plan, Speed(1e6))
    seconds = rows[0].index("seconds/run")
    assert plan_rows(plan, Speed(plan.arms[0].flops / 0.4 / 0.5))[1][seconds] == "0.5"
    assert [row[0] for row in rows] == ["arm", "mha", "mqa"]
    assert {len(row) for row in rows} == {len(rows[0])}


TOY: dict[str, object] = {
    "question": "Does it matter?",
    "base": {"preset": "small", "d_model": 16, "n_layers": 1, "block.mixer.heads": 2},
    "arms": {"wide": {"block.ffn.d_ff": 48}},
    "data": {"source": "copying"},
    "train": {"context": 32, "batch": 4},
    "budget": {"tokens": 3840},
    "measure": None,
    "evals": None,
    "tune": "off",
}


def test_seeds_cost_no_planning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The common part of an arm's runs is resolved, written and hashed once; digests are as if it were not."""
    counts: dict[int, int] = {}
    canonical = identity.canonical

    def planned(seeds: int) -> Plan:
        asked = load_study({**TOY, "seeds": seeds}, "cpu")
        counts[seeds] = 0

        def counted(data: object) -> str:
            counts[seeds] += 1
            return canonical(data)  # type: ignore[arg-type]

        monkeypatch.setattr(identity, "canonical", counted)
        return make_plan(asked)

    few, many = planned(2), planned(2000)
    assert counts[2] == counts[2000]
    assert [run.digest for run in many.arms[1].runs[:2]] == [run.digest for run in few.arms[1].runs]
    last = many.arms[1].runs[-1]
    arm = many.arms[1]
    whole = {**identity.run_identity(last.identity, arm.spec, arm.train), "seed": last.seed}
    assert last.digest == identity.digest_of(whole)
    assert len({run.digest for run in many.runs}) == len(many.runs) == 4000
    seeds = [run.seed for run in many.arms[0].runs]
    assert seeds[:1000] == list(range(1000))
    assert not set(seeds) & set(range(1000, 100_000)), "those choose settings"


def test_a_head_of_its_own_counts_as_little_as_a_tied_one(tmp_path: Path) -> None:
    """Parameters are those of what a model has besides its tables, as its modules have them."""
    text = STUDY.replace("mqa: {block.mixer.kv_heads: 1}", "mqa: {tie_embeddings: false}")
    assert text != STUDY
    tied, untied = plan_of(tmp_path, text).arms
    inside = [
        sum(p.numel() for name, p in zoo.build(arm.spec).named_parameters() if not name.startswith(("embed", "head")))
        for arm in (tied, untied)
    ]
    assert [arm.cost.params_inside for arm in (tied, untied)] == inside and inside[0] == inside[1]
    assert untied.parameters - tied.parameters == untied.cost.params_head == tied.parameters_embedding
    stored = study_arm(untied)
    assert stored.parameters_non_embedding == inside[1] and "parameters_head" not in study_arm(tied).model_dump()
    assert untied.length.undertrained == tied.length.undertrained
