"""A search's space, constraints, samplers and bookkeeping, on a study whose scores are known beforehand."""

from __future__ import annotations

import json
import operator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import BaseStorage, InMemoryStorage
from ruamel.yaml import YAML

from ablate.data.identity import DataIdentity
from ablate.planning.make_plan import make_plan
from ablate.running.request import Request
from ablate.study.study import StudyError
from ablate.wings.search.asking import counts_of_illegal
from ablate.wings.search.documents import SearchFolder
from ablate.wings.search.history import base_params
from ablate.wings.search.ranking import best_first, fronts
from ablate.wings.search.samplers import ended, make_pruner
from ablate.wings.search.search_constraints import rule
from ablate.wings.search.search_space import Params, SearchSpace
from ablate.wings.search.search_spec import Fidelity
from ablate.wings.search.space_check import check_space
from ablate.wings.search.storage import Owner, open_storage
from ablate.wings.search.trial_runner import Job, StudyTrialRunner
from store import Store
from tests.ablate.known import NUMBERS, Instant, Known, bowl, search, spec_of, study_of


def test_illegal_settings_are_never_run_and_are_counted(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    lab = Known(study, bowl, legal=lambda params: params["train.warmup"] < 0.02)
    found, _ = search(lab, spec_of(study, trials=8), tmp_path)
    run = [trial for trial in found.trials if ended(trial)]
    assert len(run) == 8
    assert all(trial.params["train.warmup"] < 0.02 for trial in run)
    assert counts_of_illegal(found) == {"not legal": len(found.trials) - 8}
    assert len(found.trials) > 8


def test_a_grid_tries_every_legal_combination_once(tmp_path: Path) -> None:
    space = "{block.ffn: {choice: [swiglu, gelu]}, n_layers: {range: [1, 3]}, block.mixer.kv_heads: [1, 2]}"
    study = study_of(tmp_path, space)
    lab = Known(study, lambda p: (p["n_layers"],), legal=lambda p: p["n_layers"] != 2)
    found, _ = search(lab, spec_of(study, sampler="grid", trials=100), tmp_path)
    tried = sorted(tuple(trial.params.values()) for trial in found.trials if ended(trial))
    assert tried == sorted((n, f, k) for f in ("swiglu", "gelu") for n in (1, 3) for k in (1, 2))


@pytest.mark.parametrize("storage", ["journal", "sqlite"])
def test_an_interrupted_search_goes_on_and_repeats_nothing(storage: str, tmp_path: Path) -> None:
    study = study_of(tmp_path)
    spec, engine = spec_of(study, trials=12, sampler="random", pruner=None), Instant(until=5)
    url = None if storage == "journal" else f"sqlite:///{tmp_path}/trials.db"
    lab = Known(study, bowl)
    with pytest.raises(KeyboardInterrupt):
        search(lab, spec, tmp_path, engine=engine, storage=open_storage(url, SearchFolder(tmp_path)))
    later = Instant()
    found, _ = search(lab, spec, tmp_path, seed=1, engine=later, storage=open_storage(url, SearchFolder(tmp_path)))
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 12
    assert len(later.ran) == 7
    first = [lab.jobs[digest][0] for digest in engine.ran]
    assert not any(lab.jobs[digest][0] in first for digest in later.ran)


def test_an_interrupted_trial_tells_the_pruner_each_value_once(tmp_path: Path) -> None:
    """optuna warns of a value that is told again, and tests fail at a warning."""
    study, storage = study_of(tmp_path), InMemoryStorage()
    spec = spec_of(study, pruner="median", trials=6, sampler="random")
    lab = Known(study, bowl)
    with pytest.raises(KeyboardInterrupt):
        search(lab, spec, tmp_path, engine=Instant(until=3, deaf=True), storage=storage)
    told = {
        trial.number: trial.intermediate_values for trial in storage.get_all_trials(0) if trial.state.name == "RUNNING"
    }
    assert any(told.values())
    found, _ = search(lab, spec, tmp_path, engine=Instant(deaf=True), storage=storage)
    assert all(found.trials[number].intermediate_values.items() >= values.items() for number, values in told.items())
    assert all(trial.state.is_finished() for trial in found.trials)


def test_a_trial_of_a_command_that_lives_is_left_alone(tmp_path: Path) -> None:
    storage = open_storage(None, SearchFolder(tmp_path))
    study = optuna.create_study(storage=storage)
    theirs, ours = Owner(SearchFolder(tmp_path)), Owner(SearchFolder(tmp_path))
    theirs.sign(study.ask())
    with theirs.alive(), ours.alive():
        assert ours.take_over(study) == []
    with ours.alive():
        assert [trial.number for trial in ours.take_over(study)] == [0]


def test_a_search_with_a_seed_is_repeated_and_an_interruption_changes_nothing(tmp_path: Path) -> None:
    """Another seed draws other settings, and so does every trial."""
    study = study_of(tmp_path)

    def tried(sampler: str, seed: int, storage: BaseStorage | None = None) -> list[Params]:
        spec = spec_of(study, trials=15, sampler=sampler)
        found, _ = search(Known(study, bowl), spec, tmp_path, seed, storage=storage)
        return [trial.params for trial in found.trials]

    for sampler in ("tpe", "random", "nsga2"):
        whole = tried(sampler, 0)
        assert tried(sampler, 0) == whole != tried(sampler, 1), sampler
    assert len({tuple(params.values()) for params in tried("random", 0)}) == 15
    storage = InMemoryStorage()
    with pytest.raises(KeyboardInterrupt):
        search(Known(study, bowl), spec_of(study, trials=15, sampler="random"), tmp_path, 0, Instant(5), storage)
    assert tried("random", 0, storage) == tried("random", 0)


def test_the_pruner_ends_bad_trials_and_keeps_the_best(tmp_path: Path) -> None:
    study = study_of(tmp_path)
    for pruner in ("asha", "hyperband", "median"):
        engine = Instant()
        spec = spec_of(study, pruner=pruner, trials=30, sampler="random")
        found, _ = search(Known(study, bowl), spec, tmp_path, engine=engine)
        pruned = [trial for trial in found.trials if trial.state.name == "PRUNED"]
        assert 3 <= len(pruned) < 30, pruner
        assert len(engine.stopped) == len(pruned)
        scores = sorted(bowl(trial.params)[0] for trial in found.trials)
        assert found.best_value in scores[:5]


class Halved(Known):
    """Runs of four validations, of which the first two are known."""

    def job(self, params: Params, share: float = 1.0, repeat: int = 0) -> Job:
        return replace(super().job(params, share, repeat), validations=4)

    def curve(self, job: Job) -> list[float]:
        return super().curve(job)[:2]


def test_a_pruned_trial_counts_for_what_was_trained(tmp_path: Path) -> None:
    """So a pruner buys further trials, and all cost as much as was asked for, to within one trial."""
    study = study_of(tmp_path)
    found, _ = search(Halved(study, bowl), spec_of(study, pruner="median", trials=30, sampler="random"), tmp_path)
    pruned = [trial for trial in found.trials if trial.state.name == "PRUNED"]
    assert {trial.user_attrs["share"] for trial in pruned} == {0.5}
    cost = len(found.trials) - len(pruned) / 2
    assert len(found.trials) > 30
    assert 29 < cost <= 30 + 1e-6


def test_searches_for_loss_are_pruned_where_they_can_be(tmp_path: Path) -> None:
    study = study_of(tmp_path)

    def kind(validations: int = 5, **given: Any) -> str | None:
        found = spec_of(study, **given).pruning(validations)
        return found.kind if found else None

    assert kind() == kind(pruner="auto") == "median"
    assert kind(pruner="asha") == "asha"
    assert kind(pruner=None) is None
    assert kind(2) is None
    assert kind(objectives=["loss", "parameters"]) is kind(seeds=2) is kind(fidelity={"start": 1 / 9}) is None


def test_short_runs_come_first_and_the_front_is_promoted(tmp_path: Path) -> None:
    study = study_of(tmp_path)

    def two(params: Params) -> tuple[float, float]:
        return bowl(params)[0], params["block.ffn.d_ff"]

    objectives = ["loss", "parameters"]
    spec = spec_of(study, objectives=objectives, trials=27, fidelity={"start": 1 / 9, "factor": 3}, sampler="random")
    lab = Known(study, two)
    _, done = search(lab, spec, tmp_path)
    assert spec.shares == pytest.approx((1 / 9, 1 / 3, 1))
    short, middle, whole = done.done
    assert len(short) == 27
    for lower, upper in ((short, middle), (middle, whole)):  # ranks change as others end, so that a few more go on
        assert set(best_first(lower, ["minimize"] * 2)[: len(lower) // 3]) <= set(upper)
        assert len(upper) < 2 * len(lower) / 3
    assert set(whole) <= set(middle) <= set(short)
    assert {share for _, share in lab.jobs.values()} == set(spec.shares)


@pytest.mark.parametrize("start", [0.11, 1 / 9, 0.13])
def test_shares_of_the_budget_end_with_the_whole(start: float) -> None:
    assert Fidelity(start=start, factor=3).shares == pytest.approx((1 / 9, 1 / 3, 1))


def test_a_run_that_has_ended_keeps_its_score(tmp_path: Path) -> None:
    """Also where the pruner gave it up a moment before."""
    study, engine = study_of(tmp_path), Instant(deaf=True)
    spec = spec_of(study, pruner="median", trials=20, sampler="random")
    found, _ = search(Known(study, bowl), spec, tmp_path, engine=engine)
    assert len(engine.stopped) >= 3
    assert [trial.state.name for trial in found.trials] == ["COMPLETE"] * 20


def test_no_trial_is_pruned_before_its_warm_up_and_a_fifth_of_the_run(tmp_path: Path) -> None:
    assert [Job((), validations=10, warmup=share).wait for share in (0.0, 0.1, 0.5)] == [2, 2, 5]
    assert [Job((), validations=count).wait for count in (3, 5, 15, 35)] == [1, 1, 3, 7]
    study = study_of(tmp_path)
    for kind in ("asha", "hyperband", "median"):
        trials = optuna.create_study(pruner=make_pruner(spec_of(study, pruner=kind), 10, 3))
        for worst in range(12):
            trial = trials.ask()
            for step in range(1, 3):
                trial.report(float(worst), step)
                assert not trial.should_prune(), kind
            trial.report(float(worst), 3)
            trials.tell(trial, float(worst))


def test_fronts_are_those_of_pairwise_comparison() -> None:
    rng = np.random.default_rng(0)
    values = {n: tuple(map(float, rng.integers(0, 6, 2))) for n in range(30)}
    study = optuna.create_study(directions=["minimize", "maximize"])
    for of in values.values():
        study.add_trial(optuna.trial.create_trial(values=of))
    assert set(fronts(values, ["minimize", "maximize"])[0]) == {trial.number for trial in study.best_trials}
    assert best_first({0: (3.0,), 1: (1.0,), 2: (2.0,)}, ["minimize"]) == [1, 2, 0]


@pytest.mark.parametrize("objectives", [1, 2, 3])
def test_every_front_is_what_the_fronts_before_leave(objectives: int) -> None:
    """With equal values, and infinite ones of runs that diverged."""
    rng, signs = np.random.default_rng(objectives), [1, -1, 1][:objectives]
    points = np.where(rng.random((60, objectives)) < 0.1, np.inf, rng.integers(0, 8, (60, objectives)))
    left = {int(n): tuple(of) for n, of in zip(rng.permutation(60), points.tolist(), strict=True)}
    for front in fronts(left, ["minimize" if sign > 0 else "maximize" for sign in signs]):
        signed = {n: [s * v for s, v in zip(signs, of, strict=True)] for n, of in left.items()}
        best = [
            n
            for n, own in signed.items()
            if not any(all(map(operator.le, other, own)) and other != own for other in signed.values())
        ]
        assert front == best
        left = {n: of for n, of in left.items() if n not in front}
    assert not left


@pytest.mark.timeout(30)
def test_thousands_of_trials_are_ranked_in_a_moment() -> None:
    """A promotion ranks all trials, for every new one: trials of one objective all differ, and are a front each."""
    values = {n: (float(value),) for n, value in enumerate(np.random.default_rng(0).random(20_000))}
    assert best_first(values, ["minimize"]) == sorted(values, key=lambda n: values[n])


def test_a_range_ends_where_its_steps_do(tmp_path: Path) -> None:
    drawn = SearchSpace(
        (study := study_of(tmp_path, "{n_layers: {range: [2, 9], step: 3}}")).builder, study.search.space
    )  # type: ignore[union-attr]
    assert [params["n_layers"] for params in drawn.all()] == [2, 5, 8]


def test_a_path_that_a_part_does_not_have_is_not_asked(tmp_path: Path) -> None:
    space = (
        "{block.ffn: {choice: [swiglu, topk_moe]}, block.ffn.experts: {range: [2, 8]}, block.mixer.kv_heads: [1, 2]}"
    )
    drawn = SearchSpace((study := study_of(tmp_path, space)).builder, study.search.space)  # type: ignore[union-attr]
    rng = np.random.default_rng(0)
    for params in (drawn.random(rng) for _ in range(20)):
        assert ("block.ffn.experts" in params) == (params["block.ffn"] == "topk_moe")


@pytest.mark.parametrize(
    ("text", "quantities", "holds"),
    [
        ("a.kv divides a.heads", {"a.kv": 2, "a.heads": 8}, True),
        ("a.kv divides a.heads", {"a.kv": 3, "a.heads": 8}, False),
        ("a.kv divides a.heads", {"a.heads": 8}, True),  # a part without kv heads is not concerned
        ("cache_bytes(8192) <= 64 MB", {"cache_bytes(8192)": 64_000_000}, True),
        ("cache_bytes(8192) <= 64 MB", {"cache_bytes(8192)": 64_000_001}, False),
        ("parameters within 2 % of base", {"parameters": 1_019}, True),
        ("parameters within 2 % of base", {"parameters": 979}, False),
        ("n_layers > 3", {"n_layers": 3}, False),
        ("a.heads * 32 == d_model", {"a.heads": 4, "d_model": 128}, True),
        ("a.heads * 32 == d_model", {"a.heads": 4, "d_model": 96}, False),
        ("d_model / a.heads >= 16 * 2", {"a.heads": 4, "d_model": 96}, False),
    ],
)
def test_constraints_say_what_they_read(text: str, quantities: dict[str, float], holds: bool) -> None:
    found = rule(text)
    assert (found.distance(quantities.get, {"parameters": 1_000.0}.get) == 0) is holds
    assert (found.distance(quantities.get, {"parameters": 1_000.0}.get) == 0) is holds


def laboratory(folder: Path, space: str, *sets: str) -> StudyTrialRunner:
    """What a real search plans with, on a corpus that nobody has."""
    return StudyTrialRunner(
        study_of(folder, space, *sets),
        lambda asked: make_plan(asked, identify=lambda _: DataIdentity("0" * 32, 257, "")),
        Store(folder),
        lambda _, run: Request(store=str(folder), corpus=str(folder), identity=run),
    )


ROLES = "{embedding: 0.0, input: 0.1, output: 0.1, head: 0.1}"


@pytest.mark.parametrize(
    ("space", "edit", "params"),
    [
        ("{train.weight_decay: {log: [1e-3, 1.0]}}", "seeds=1", {"train.weight_decay": 0.1}),
        ("{train.weight_decay: [0.0, 0.1]}", "seeds=1", {"train.weight_decay": 0.1}),
        ("{train.weight_decay: [0.5x, 2x]}", "train.weight_decay=0.2", {"train.weight_decay": 0.2}),
        (f"{{train.weight_decay: [{ROLES}, 0.1]}}", f"train.weight_decay={ROLES}", {"train.weight_decay": ROLES}),
        ("{train.optimizer: [adamw, lion], train.grad_clip: [null, 1.0]}", "seeds=1", {"train.optimizer": "adamw"}),
        ("{train.betas: [[0.9, 0.95], [0.9, 0.99]]}", "train.betas=[0.9, 0.99]", {"train.betas": "[0.9, 0.99]"}),
        ("{train.weight_decay: [0.0, 0.3]}", "seeds=1", None),
        ("{train.weight_decay: {log: [1e-3, 1.0]}}", f"train.weight_decay={ROLES}", None),  # no number says it
        ("{train.lr: {log: [1e-3, 1e-2]}}", "train.lr=0.00123456789", None),  # trials have six digits
    ],
)
def test_the_base_is_found_in_spaces_over_maps(space: str, edit: str, params: Params | None, tmp_path: Path) -> None:
    found = base_params(lab := laboratory(tmp_path, space, edit))
    if params is None or found is None:
        assert found is params
        return
    assert lab.space.arm("", found).identity == lab.study.arms[0].identity
    wanted = {path: json.dumps(YAML(typ="safe").load(v)) if "{" in str(v) else v for path, v in params.items()}
    assert found.items() >= wanted.items()


@pytest.mark.parametrize("objective", ["kv_bytes_per_token", "decode_tokens_per_second"])
def test_a_search_of_encoders_has_no_objective_of_caches(objective: str, tmp_path: Path) -> None:
    """A limit on the cache is kept, by 0 bytes."""
    encoder = ["base.visible=all", "train.objective=masked", "evals=null"]
    limits = "search.constraints=[kv_bytes_per_token <= 1, cache_bytes(8192) <= 1 B]"
    check_space(laboratory(tmp_path, NUMBERS, *encoder, limits))
    with pytest.raises(StudyError, match=f"search.objectives.1: {objective}: an encoder has no KV cache"):
        check_space(laboratory(tmp_path, NUMBERS, *encoder, f"search.objectives=[loss, {objective}]"))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            "space={train.lr: {log: [1e-1, 1e-3]}}",
            "search.space.train.lr.log: the range is empty: 0.1 is not below 0.001",
        ),
        (
            "space={n_layers: {range: [2, 6], step: 8}}",
            "search.space.n_layers.range: the range has one value, 2: a step of 8 leads beyond 6",
        ),
        (
            "space={block.ffn: {chioce: [swiglu, gelu]}, block.ffn.d_ff: {ratio: [1x, 4x]}}",
            "search.space.block.ffn: unknown kind of axis chioce (did you mean 'choice'?)",
        ),
        ("space={block.mixer.headss: [1, 2]}", "search.space.block.mixer.headss: unknown key (did you mean 'heads'?)"),
        (
            "space={train.optimizer.weight_decay: [0.0, 0.1]}",
            "search.space.train.optimizer.weight_decay: unknown key (did you mean 'train.weight_decay'?)",
        ),
        (
            "space={block.ffn.norm_placement: [pre, post]}",
            "search.space.block.ffn.norm_placement: unknown key (did you mean 'block.norm_placement'?)",
        ),
        ("space={lr: {log: [1e-3, 1e-1]}}", "search.space.lr: unknown key (did you mean 'train.lr'?)"),
        ("space={block.ffn: [swiglo, gelu]}", "search.space.block.ffn: unknown kind 'swiglo' (did you mean 'swiglu'?)"),
        (
            "space={train.schedule: [cosine, cosin]}",
            "search.space.train.schedule: unknown schedule 'cosin' (did you mean 'cosine'?)",
        ),
        ("constraints=[heads | 4]", "'heads | 4' is not a constraint"),
        ("objectives=[los]", "unknown objective 'los' (did you mean 'loss'?)"),
        ("objectives=[task.acc]", "task.acc needs a direction: {task.acc: maximize} or"),
        ("pruner=cat", "unknown pruner 'cat'"),
        ("sampler={kind: tpe, n_startup: 5}", "optuna's TPESampler has no setting 'n_startup' (did you mean 'n_st"),
        ("space={block.ffn: {range: [0.5x, 2x]}}", "multiples such as 0.5x need a number in the base"),
        ("sampler=grid", "grid needs a list, or a range with a step, for train.lr"),
    ],
)
def test_bad_searches_are_one_clear_line(edit: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(StudyError) as error:
        study_of(tmp_path, NUMBERS, f"search.{edit}")
    assert message in str(error.value)
    assert "\n" not in str(error.value)
