"""The scales for a GPU, of every study that ships: arms that match on a CPU match there, and nothing is odd that a GPU
is slow at. What cannot be known without one is predicted by a roofline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ablate
import zoo
from ablate.study.reading import load_study
from ablate.study.scales import scale_names
from ablate.study.study import Arm, Study
from ablate.study.written import read_study
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.step_work import step_work
from evals.costs.devices import device
from tests.ablate.test_studies import BY_HEADS, ON_TASKS, SEARCHED, STUDIES
from tests.ablate.test_studies import rungs_at as at
from tests.many import few
from zoo.costs import Cost, cost
from zoo.model import padded_size

FOLDER = Path(__file__).parents[2] / "studies"
OWN_SIZES = ("screening", *SEARCHED)
"""Studies with scales of their own."""
PROMISED = {"gpu-minutes": 1.2e16, "gpu-hour": 8e16, "gpu-day": 4.5e17, "gpu-week": 1.2e18}
"""FLOPs of a run, at most: about twice those of a scale's own model."""
NAMES = [name for name in STUDIES if name not in OWN_SIZES]
ABSOLUTE = (
    *("aspect_ratio", "cache_kinds", "cosine_attention", "d_ff_ratio", "gqa_groups", "heads"),
    *("masked_lm", "mixers", "qk_norm_lr", "span_corruption"),
)
"""Studies whose sizes of a base or an arm are given at each scale: they do not grow along a ladder of four sizes."""


def arms_of(name: str, scale: str) -> Iterator[tuple[Study, Arm]]:
    for study in at(name, scale):
        for arm in study.arms:
            yield study, arm


def cost_of(study: Study) -> dict[str, Cost]:
    return {arm.name: cost(arm.model, arm.train.context) for arm in study.arms}


def inner(found: Cost) -> int:
    return found.params - found.params_embedding


def spent(study: Study, arm: Arm) -> float:
    """FLOPs of one run."""
    budget = study.budget
    if budget.flops is not None:
        return budget.flops
    found = cost((study.arms[0] if budget.tokens is None else arm).model, arm.train.context)
    return (budget.tokens or inner(found) * (budget.tokens_per_parameter or 0)) * found.flops_per_token


def heads(arm: Arm) -> set[int]:
    sizes = (getattr(layer.mixer, "head_dim", None) for layer in arm.model.layers)
    return {size for size in sizes if isinstance(size, int)}


@pytest.mark.parametrize("name", few(NAMES, 15))
def test_arms_that_match_on_a_cpu_match_on_a_gpu(name: str) -> None:
    """In parameters, to 3 %, unless planning matches them, and in the size of their heads."""
    here = {arm.name: arm for arm in at(name, "cpu")[-1].arms}
    costs, base = cost_of(at(name, "cpu")[-1]), next(iter(here))
    ladder = at(name, "gpu-ladder") if name not in ABSOLUTE else ()
    for study in (*(at(name, scale)[-1] for scale in PROMISED), *ladder):
        there, found = {arm.name: arm for arm in study.arms}, cost_of(study)
        first = next(iter(there))
        for arm in (arm for arm in there if arm in here):
            share, wanted = (inner(c[arm]) / inner(c[b]) for c, b in ((found, first), (costs, base)))
            if name not in BY_HEADS and abs(wanted - 1) < 0.03:
                assert abs(share - 1) < 0.03, (study.scale, study.rung, arm, share)
            if heads(here[arm]) == heads(here[base]):
                assert heads(there[arm]) == heads(there[first]), (study.scale, study.rung, arm)


@pytest.mark.parametrize("name", NAMES)
def test_products_suit_tensor_cores(name: str) -> None:
    """Their sides are multiples of 8, heads have 32 features or more, and the table of tokens is padded."""
    for scale in PROMISED:
        for study, arm in arms_of(name, scale):
            for part in (arm.model, *(each for layer in arm.model.layers for each in (layer.mixer, layer.ffn))):
                sides = [getattr(part, width, None) for width in ("d_model", "head_dim", "d_ff")]
                assert all(side % 8 == 0 for side in sides if isinstance(side, int)), (
                    scale,
                    study.rung,
                    arm.name,
                    part,
                )
            if name not in ON_TASKS:
                assert all(size >= 32 for size in heads(arm)), (scale, study.rung, arm.name, heads(arm))


def test_the_ladder_has_four_sizes_and_a_study_edits_all_of_them() -> None:
    """Millions of non-embedding parameters by hand: 12 d² a layer, 4 d² of attention and 8 d² of SwiGLU."""
    rungs = at("norm_placement", "gpu-ladder")
    found = [inner(cost_of(study)["pre"]) / 1e6 for study in rungs]
    shapes = [(256, 6), (384, 8), (512, 12), (768, 12)]
    assert found == pytest.approx([12 * d * d * layers / 1e6 for d, layers in shapes], rel=0.01)
    assert {study.train.context for study in rungs} == {1024}
    assert {study.budget.tokens_per_parameter for study in rungs} == {20}
    edited = load_study("norm_placement", "gpu-ladder", {"train.lr": 1e-2, "base.n_layers": 3})
    assert {(study.train.lr, study.arms[0].model.n_layers) for study in (*edited.smaller, edited)} == {(1e-2, 3)}
    own = {"scales": {"gpu-ladder": {"ladder": {"half": 0.5, "full": {}}}}}
    replaced = load_study(
        {"question": "?", "baseline": "base", "arms": {"a": {"block.norm": "layernorm"}}, **own}, "gpu-ladder"
    )
    assert [study.rung for study in (*replaced.smaller, replaced)] == ["half", "full"]


@pytest.mark.parametrize("place", ["--set", "its scale", "the file"])
def test_null_removes_a_ladder_wherever_it_is_written(place: str) -> None:
    """The models are those of the ladder's last rung, which edits nothing."""
    own = {"question": "?", "baseline": "base", "arms": {"a": {"block.norm": "layernorm"}}}
    off = {"its scale": {"scales": {"gpu-ladder": {"ladder": None}}}, "the file": {"ladder": None}}.get(place, {})
    flat = load_study({**own, **off}, "gpu-ladder", {"ladder": None} if place == "--set" else {})
    last = load_study(own, "gpu-ladder")
    assert len(last.smaller) == 3 and not flat.smaller and flat.rung is None
    assert [arm.identity for arm in flat.arms] == [arm.identity for arm in last.arms]
    assert flat.budget == last.budget


@pytest.mark.parametrize("ladder", [{}, {"ladder": {"small": {"base.d_model": 32}, "full": {}}}], ids=["none", "own"])
def test_null_removes_a_ladder_of_the_file_or_none(ladder: dict[str, object]) -> None:
    own = {"question": "?", "baseline": "base", "arms": {"a": {"block.norm": "layernorm"}}}
    without = load_study(own, "cpu")
    for study, sets in (
        ({**own, **ladder}, ["ladder=null"]),
        ({**own, **ladder, "scales": {"cpu": {"ladder": None}}}, []),
    ):
        flat = load_study(study, "cpu", sets)
        assert not flat.smaller and [arm.identity for arm in flat.arms] == [arm.identity for arm in without.arms]


OWN_BASE = {"question": "?", "base": {"preset": "small"}, "arms": {"a": {"block.norm_placement": "post"}}}


@pytest.mark.parametrize(
    ("study", "reason"),
    [
        ("aspect_ratio", r"aspect_ratio.yaml:\d+:\d+: arms.deepest: keeps its size from rung 5M to 85M, while shape24"),
        ("d_ff_ratio", "arms.ratio1: keeps its size from rung 5M to 85M, while ratio4 grows"),
        (
            "masked_lm",
            "base: rungs 5M and 85M have the same model and budget, since its own size overrides theirs: give",
        ),
        (OWN_BASE, "base: rungs 5M and 85M have the same model and budget"),
    ],
)
def test_a_model_that_keeps_its_size_along_the_ladder_is_refused(study: Any, reason: str) -> None:
    with pytest.raises(ablate.StudyError, match=reason):
        ablate.plan_on(study, "h100", scale="gpu-ladder")


def test_vocabularies_are_padded_to_multiples_of_64() -> None:
    assert {padded_size(size) % 64 for size in (18, 66, 257, 8192, 8193, 8195, 8220, 32769)} == {0}
    assert [padded_size(size) for size in (8192, 8193, 32769)] == [8192, 8256, 32832]


@pytest.mark.parametrize("name", NAMES)
def test_runs_keep_what_their_scale_promises(name: str) -> None:
    """Compiled, in bfloat16, and in about the time of the scale's own model."""
    for scale, most in PROMISED.items():
        for study, arm in arms_of(name, scale):
            assert arm.train.compile, (scale, arm.name)
            assert arm.train.dtype == "bfloat16"
            assert spent(study, arm) <= most, (scale, study.rung, arm.name, spent(study, arm))


def test_every_study_has_a_scale_for_a_gpu() -> None:
    for name in STUDIES:
        names = scale_names(read_study(FOLDER / f"{name}.yaml").document)
        assert "gpu-hour" in names or name in OWN_SIZES, name


SECONDS = {"gpu-minutes": 75, "gpu-hour": 280, "gpu-day": 1800, "gpu-week": 7200}
"""Most seconds of a run, as predicted: little more than its scale promises."""
SLOWER = {"mixers": 2.5, "hyper_connections": 2.0}
"""Studies of what moves more bytes than attention does: scans as they are written out, and several streams."""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("scale", PROMISED)
@pytest.mark.parametrize("name", NAMES)
def test_a_study_fits_a_gpu_and_its_scale(name: str, scale: str) -> None:
    """Memory, and seconds of a run; where arms take unlike kernels of attention, the plan says so."""
    found = ablate.plan_on(name, "h100", scale=scale)
    counted = [arm for rung in found.rungs for arm in rung if arm.plan.teacher is None]
    for arm in counted:
        assert arm.work is not None, arm.name
        assert arm.work.peak_bytes < device("h100").memory_bytes, arm.name
        assert arm.run_seconds < SECONDS[scale] * SLOWER.get(name, 1.5), (arm.name, arm.run_seconds)
    kernels = {arm.work.attention for arm in found.arms if arm.work}
    assert any("differ in their attention kernels" in note for note in found.notes()) == (len(kernels) > 1)


@pytest.mark.slow
def test_scans_are_said_to_be_counted_as_written_out() -> None:
    found = ablate.plan_on("mixers", "h100", scale="gpu-minutes", sets={"base.n_layers": 1})
    ours = {arm.name: arm.work.attention for arm in found.arms if arm.work}
    assert (ours["softmax"], ours["gated_deltanet"]) == ("fused", "scan (written out)")
    assert any("scans of linear mixers are counted as unfused PyTorch" in note for note in found.notes())


def test_a_step_with_a_prefix_is_counted() -> None:
    """The lengths of prefixes are data, which a trace has none of."""
    spec = zoo.load("small", d_model=32, n_layers=1, vocab_size=64, visible="prefix")
    found = step_work(spec, TrainSpec(context=32, batch=4, objective="prefix"))
    assert found is not None and found.work.flops > 0


@pytest.mark.parametrize(("scale", "seconds"), [("gpu-minutes", 75), ("gpu-hour", 280)])
def test_a_run_takes_what_its_scale_says(scale: str, seconds: float) -> None:
    """The template's, on an H100, as predicted."""
    found = ablate.plan_on("norm_placement", "h100", scale=scale)
    for arm in found.arms:
        assert arm.run_seconds < seconds
        assert arm.work is not None and arm.work.peak_bytes < device("h100").memory_bytes
    assert len({arm.work.attention for arm in found.arms if arm.work}) == 1
