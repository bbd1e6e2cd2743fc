"""The studies that ship: every scale can be planned, fits the schema, runs, and asks what its name says."""

from __future__ import annotations

import functools
import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from ablate.cli import main
from ablate.data import DataIdentity
from ablate.data.sources import TextSource
from ablate.planning.make_plan import make_plan
from ablate.planning.plan import ArmPlan, Plan
from ablate.running.request import Request
from ablate.study.reading import load_study, loss_alone, studies_at
from ablate.study.scales import rungs_by_scale, scale_names
from ablate.study.study import Study
from ablate.study.written import Written, read_study
from ablate.study.yamlfile import parse_yaml
from ablate.wings.prepare.schema import study_schema
from ablate.wings.science.stated import study_claims
from ablate.wings.search.space_check import check_space
from ablate.wings.search.trial_runner import StudyTrialRunner
from store import Store

FOLDER = Path(__file__).parents[2] / "studies"
STUDIES = sorted(path.stem for path in FOLDER.glob("*.yaml"))
SEARCHED = ("search_small_lm",)
"""Studies of many short trials, and no arms."""
ON_TASKS = ("mqar", "hybrid_recall", "swa_recall", "attention_depth")
"""Studies on synthetic tasks: models of a few small layers."""
TUNED = ("norm_placement", "ffn_activation", "rope_base", "gqa_groups", "swa_nope")
"""Studies of which every arm has its own best rate, and trains for long enough."""
TWO_SEEDS = ("screening",)
"""All runs of a design tell of one noise."""
BY_HEADS = ("heads",)
"""Head sizes are the question."""
HOURS = ("small_predicts_large",)
"""Half an hour of two cores and more at `cpu`."""
HALF_HOURS = ("rope_base", "swa_nope")
"""Half an hour of two cores, their tuning apart."""
SHORT = ("uptraining",)
"""Arms that train on for 5 % of a run, which is the question."""
TRAINED = [name for name in STUDIES if name not in SEARCHED]


@functools.cache
def written(name: str) -> Written:
    return read_study(FOLDER / f"{name}.yaml")


@functools.cache
def rungs_at(name: str, scale: str) -> tuple[Study, ...]:
    """The study at every rung of one scale, as `load_study` reads it; its other scales are not read."""
    studies, problems = studies_at(rungs_by_scale(written(name), scale)[0])
    assert not problems
    return tuple(studies)


@functools.cache
def study_at(name: str, scale: str) -> Study:
    *smaller, study = rungs_at(name, scale)
    return replace(study, smaller=tuple(map(loss_alone, smaller)))


def shares(plan: Plan) -> list[tuple[ArmPlan, float]]:
    """Each arm with what it may spend of the budget: part of it where it starts from another."""
    given = [arm.given.values() for arm in plan.study.arms]
    return [(arm, math.prod(each.share for each in own)) for arm, own in zip(plan.arms, given, strict=True)]


@functools.cache
def plan_of(name: str, scale: str) -> Plan:
    study = study_at(name, scale)
    if not isinstance(study.data, TextSource):
        return make_plan(study)
    vocabulary = study.data.tokenizer.vocabulary(study.folder)
    return make_plan(study, identify=lambda _: DataIdentity("0" * 32, vocabulary, ""))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store, so that the text is read and tokenised once."""
    return tmp_path_factory.mktemp("smoke") / "runs"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(study_schema())


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TRAINED)
def test_every_study_states_claims_at_every_scale_with_their_sources(name: str, every: bool) -> None:
    for scale in scale_names(written(name).document) if every else ("smoke", "cpu", "gpu-week"):
        claims = study_claims(rungs_at(name, scale)[-1], planned="")
        assert claims, scale
        assert all(claim.source for claim in claims), scale


@pytest.mark.parametrize("name", ["norm_placement", "small_predicts_large"])
def test_a_study_is_read_as_a_command_reads_it(name: str) -> None:
    assert study_at(name, "cpu") == load_study(FOLDER / f"{name}.yaml", "cpu")


def test_every_study_says_where_its_claim_is_from() -> None:
    for name in STUDIES:
        assert "arXiv:" in written(name).document.data["source"], name


def test_every_study_is_in_the_table_of_findings() -> None:
    findings = (FOLDER / "FINDINGS.md").read_text(encoding="utf-8")
    assert [name for name in STUDIES if name not in SEARCHED and f"({name}.yaml)" not in findings] == []


@pytest.mark.parametrize("name", TRAINED)
def test_every_scale_can_be_planned(name: str) -> None:
    smoke, cpu, gpu = (plan_of(name, scale) for scale in ("smoke", "cpu", "gpu-week"))
    assert max(arm.flops for arm in smoke.arms) < 1e11  # seconds
    assert smoke.study.tune is None or name == "optimizers"
    most = 3e14 if name in HOURS else 6e13 if name in HALF_HOURS else 4e13  # or minutes
    assert sum(arm.flops * len(arm.runs) for arm in cpu.arms) < most
    assert all(len(arm.runs) in ((2,) if name in TWO_SEEDS else (3, 4, 5, 9)) for arm in cpu.arms)
    assert all((1e4 if name in ON_TASKS else 5e4) < arm.parameters < 1.2e6 for arm in cpu.arms)
    assert all(30e6 < arm.parameters < 125e6 for arm in gpu.arms)
    assert all(9e16 <= arm.flops / share < 1.001e18 for arm, share in shares(gpu))
    assert {arm.train.dtype for arm in gpu.arms} == {"bfloat16"}


@pytest.mark.parametrize("name", TRAINED)
def test_models_train_long_enough_to_say_something(name: str) -> None:
    short = [arm.name for arm in plan_of(name, "cpu").arms if arm.steps < 500 or arm.length.tokens_per_parameter < 5]
    assert bool(short) == (name in SHORT), short
    if name not in (*SHORT, *ON_TASKS, *HOURS):
        assert all(arm.length.tokens_per_parameter >= 5 for arm in plan_of(name, "gpu-minutes").arms)
    if name in ON_TASKS:  # whose contexts are longer than the scale's
        assert all(arm.steps >= 500 for arm in plan_of(name, "cpu-long").arms)


@pytest.mark.parametrize("name", TUNED)
def test_verdicts_come_from_long_enough_runs_at_each_arm_s_own_rate(name: str) -> None:
    for scale in ("cpu", "cpu-long", "gpu-minutes", "gpu-hour", "gpu-week"):
        # the demo, of five minutes, and beside it a larger model that is trained as long for its size
        least = 5 if name == "norm_placement" and scale.startswith("cpu") else 12
        assert all(arm.steps >= 500 and arm.length.tokens_per_parameter > least for arm in plan_of(name, scale).arms)
    study = study_at(name, "cpu")
    assert all("train.lr" in arm.edits for arm in study.arms[1:])
    assert study.carried is not None and (FOLDER.parent / study.carried.carried).exists()
    long = study_at(name, "cpu-long")
    assert len(long.seeds) >= 5
    assert long.tune is not None
    assert (long.tune.paths, long.tune.seeds) == (("train.lr",), 2)


@pytest.mark.parametrize("name", TRAINED)
def test_arms_spend_the_same_to_within_a_step(name: str) -> None:
    plan = plan_of(name, "cpu")
    budget = plan.study.budget
    for arm, share in shares(plan):
        assert abs(getattr(arm, budget.kind) / (share * budget.amount) - 1) <= 0.5 / (arm.steps - 0.5) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", STUDIES)
def test_the_smoke_scale_runs_end_to_end(name: str, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = FOLDER / f"{name}.yaml"
    arguments = ["--scale", "smoke", "--store", str(store), "--engine", "inprocess", "--json"]
    assert main(["run", str(study), *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["failed"] == 0
    assert Path(document["report"]).stat().st_size > 10_000
    assert all(arm["loss"] < 8 for arm in document["arms"])


def test_gated_and_ungated_activations_have_the_same_parameters() -> None:
    for scale in ("cpu", "gpu-week"):
        assert all(abs(arm.differs["parameters"]) < 0.1 for arm in plan_of("ffn_activation", scale).arms)


@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu-week"])
def test_the_cache_shrinks_by_exactly_the_kv_heads(scale: str) -> None:
    mha, *others = plan_of("gqa_groups", scale).arms
    heads, groups = mha.spec.block.mixer.heads, [2, 1, 1]
    assert [mha.kv_bytes_per_token / arm.kv_bytes_per_token for arm in others] == [heads / kv for kv in groups]


@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu-week"])
def test_windows_and_positions_are_where_the_arms_say(scale: str) -> None:
    arms = {arm.name: arm.spec.layers for arm in plan_of("swa_nope", scale).arms}
    windows = {name: [layer.mixer.window is not None for layer in layers[:4]] for name, layers in arms.items()}
    every_fourth = [True, True, True, False]
    assert windows == {"full": [False] * 4, "swa": [True] * 4, "swa_nope": every_fourth, "swa_rope": every_fourth}
    positions = {name: [layer.mixer.position.kind for layer in layers[:4]] for name, layers in arms.items()}
    assert positions["swa_nope"] == ["rope", "rope", "rope", "nope"]
    assert set(positions["full"] + positions["swa"] + positions["swa_rope"]) == {"rope"}


def test_the_schema_of_arms_is_one(schema: jsonschema.Draft202012Validator) -> None:
    """Bases, grids and scales repeat it."""
    schema.check_schema(schema.schema["properties"]["arms"])


@pytest.mark.slow
def test_the_schema_is_one(schema: jsonschema.Draft202012Validator) -> None:
    schema.check_schema(schema.schema)


@pytest.mark.parametrize("name", STUDIES)
def test_the_schema_accepts_the_studies(name: str, schema: jsonschema.Draft202012Validator) -> None:
    assert not list(schema.iter_errors(written(name).document.data))


NESTED = """question: Q?
base: {preset: small, d_model: 64, block: {norm: layernorm, mixer.kv_heads: 2}}
arms:
  post: {block.norm_placement: post, block.ffn: {kind: relu, d_ff: 4x}, train.lr: 1e-3}
  m: {train.optimizer: {kind: muon, momentum: 0.9}, train: {weight_decay.embedding: 0, width_transfer.base_width: 64}}
  other: {blocks.x: {ffn: relu}, blocks.x.mixer.window: 3, block.mixer: {position: nope}}
budget: {flops: 1e12}
grid: {train.warmup: [0, 0.1]}
probes: {which: [log_z], every: 0.5}
data: {source: files, paths: texts/*.txt}
evals: {tasks: [heldout_text], bos: true}
claims: [{arm: post, expect: worse, source: x, sizes: 7e9}]
scales:
  cpu: {base.n_layers: 3, base: {d_model: 32}, arms.post.block.norm: rmsnorm, train: {lr: 1}, seeds: [4], probes: all}
"""


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("norm_placement", "norm_placment"),
        ("relu, d_ff", "relu, d_f"),
        ("d_ff: 4x", "d_ff: 4y"),
        ("kv_heads: 2", "kv_heads: two"),
        ("train.warmup", "train.warmupp"),
        ("base.n_layers", "base.n_layer"),
        ("norm: layernorm", "norm: off"),
        ("small", "smal"),
        ("flops: 1e12", "flops: many"),
        ("seeds: [4]", "seeds: [4, 4]"),
        ("train.lr: 1e-3", "train.lr: fast"),
        ("momentum: 0.9", "momentun: 0.9"),
        ("kind: muon", "kind: moun"),
        ("decay.embedding", "decay.embeding"),
        ("question", "qestion"),
        ("which: [log_z]", "which: [log_y]"),
        ("probes: all", "probes: some"),
        ("paths: texts/*.txt", "paths: 3"),
        ("bos: true", "bos: maybe"),
        ("sizes: 7e9", "sizes: seven"),
    ],
)
def test_the_schema_checks_nested_and_dotted_edits(
    right: str, wrong: str, schema: jsonschema.Draft202012Validator
) -> None:
    assert not list(schema.iter_errors(parse_yaml(NESTED, "f").data))
    assert list(schema.iter_errors(parse_yaml(NESTED.replace(right, wrong), "f").data))


@pytest.mark.parametrize("scale", ["smoke", "cpu", "gpu"])
@pytest.mark.parametrize("name", SEARCHED)
def test_a_search_has_legal_settings_at_every_scale(name: str, scale: str, tmp_path: Path) -> None:
    study = study_at(name, scale)
    data = DataIdentity("0" * 32, study.data.tokenizer.vocabulary(study.folder), "")
    lab = StudyTrialRunner(
        study,
        lambda asked: make_plan(asked, identify=lambda _: data),
        Store(tmp_path),
        lambda _, run: Request(store=str(tmp_path), corpus=str(tmp_path), identity=run),
    )
    check_space(lab)  # raises where nothing is legal
    assert len(lab.space.axes) >= 9
