"""Width transfer: the coordinate check of Yang et al. 2022, arXiv:2203.03466, appendix D.1, and what is refused."""

import numpy as np
import pytest
import torch

import zoo
from ablate.machine.numerics import Numerics
from ablate.training.batch import Batch
from ablate.training.loop import Learner, train
from ablate.training.optim import build_optimizer, trained, width_factors
from ablate.training.spec import TrainSpec
from ablate.training.transfer import refusals

BASE = 32
WIDTHS = (32, 64, 128, 256)
STEPS = 4
FLOAT32 = Numerics("cpu", "float32", "highest")
ORIGINAL = {"kind": "muon", "adjust": "original"}


def model_spec(width: int, **edits: object) -> zoo.ModelSpec:
    """Two layers that follow the width as the rule wants it: heads of 16 features, d_ff by a ratio."""
    parts = {
        "block.mixer": {"kind": "attention", "heads": width // 16, "head_dim": 16},
        "block.ffn": {"kind": "swiglu", "d_ff": "8/3x"},
    }
    sizes = {"vocab_size": 64, "d_model": width, "n_layers": 2, "embedding_scale": "sqrt_d_model"}
    return zoo.parse({**sizes, **parts, "tie_embeddings": False, **edits})


def train_spec(*, transfer: bool = True, **settings: object) -> TrainSpec:
    base = {"base_width": BASE} if transfer else None
    fixed = {"warmup": 0, "schedule": "constant", "weight_decay": 0, "grad_clip": None}
    return TrainSpec.model_validate({**fixed, "width_transfer": base, **settings})


def changes(width: int, spec: TrainSpec, edits: dict[str, object]) -> dict[str, float]:
    """Root mean square, over entries, of what a few steps change in the last stream and in the logits."""
    model = zoo.build(model_spec(width, **edits))
    tokens = torch.randint(64, (8, 17), generator=torch.Generator().manual_seed(1))
    before = activations(model, tokens)
    optimizer = build_optimizer(model, zoo.roles(model), spec, width, model.spec.n_layers)
    learner = Learner(model.loss, optimizer, spec, FLOAT32)
    assert sum(len(steps) for steps in train(learner, lambda _: Batch.next_token(tokens), STEPS)) == STEPS
    after = activations(model, tokens)
    return {name: (after[name] - before[name]).square().mean().sqrt().item() for name in before}


@torch.no_grad()
def activations(model: torch.nn.Module, tokens: torch.Tensor) -> dict[str, torch.Tensor]:
    seen = {}
    hook = model.norm.register_forward_pre_hook(lambda _, inputs: seen.update(stream=inputs[0].clone()))
    seen["logits"] = model(tokens)
    hook.remove()
    return seen


def slopes(
    spec: TrainSpec, tied: bool, scaled: bool, tied_head: float | None = None, widths: tuple[int, ...] = WIDTHS
) -> dict[str, float]:
    """Exponents of the width in those changes.

    A tied head reads a gain of one, as after some training: it starts smaller in wider models (see `zoo.init`), and
    that would hide what the standard rates do to them.
    """
    edits = {w: {"tie_embeddings": tied, "logit_scale": (BASE / w) ** 0.5 if tied and scaled else 1.0} for w in widths}
    found = [changes(width, spec, {**edits[width], "init.tied_head": tied_head}) for width in widths]
    logs = np.log(widths)
    return {name: float(np.polyfit(logs, np.log([each[name] for each in found]), 1)[0]) for name in found[0]}


@pytest.mark.parametrize(
    ("optimizer", "lr", "tied", "widths"),
    [
        pytest.param("adamw", 3e-3, False, WIDTHS, marks=pytest.mark.slow),
        ("adamw", 3e-3, True, WIDTHS),
        ("lion", 1e-3, False, WIDTHS),
        ("muon", 1e-2, True, WIDTHS[:3]),
        (ORIGINAL, 1e-2, False, WIDTHS[:3]),
        pytest.param("schedule_free", 3e-3, False, WIDTHS, marks=pytest.mark.slow),
        pytest.param("muon", 1e-2, True, WIDTHS, marks=pytest.mark.slow),
        pytest.param(ORIGINAL, 1e-2, False, WIDTHS, marks=pytest.mark.slow),
        ("sgd", 0.05, False, WIDTHS),
        pytest.param("sgd", 0.05, True, WIDTHS, marks=pytest.mark.slow),
    ],
)
def test_activations_change_alike_at_every_width(optimizer, lr, tied, widths):
    """The standard rates make them change more the wider the model is. Logits may change a little less, since those of
    μP start from less than Θ(1) at finite widths: what is not learnt fades as 1/√n. The slow suite
    takes Muon to the largest width, where its products are in bfloat16, slow on processors without it."""
    settings = {"optimizer": optimizer, "lr": lr}
    standard = slopes(train_spec(transfer=False, **settings), tied, scaled=False, widths=widths)
    ours = slopes(train_spec(**settings), tied, scaled=True, widths=widths)
    assert standard["stream"] > 0.25
    assert standard["logits"] > 0.5
    assert abs(ours["stream"]) < 0.15
    assert -0.4 < ours["logits"] < 0.1


def test_they_change_alike_from_the_quiet_start_of_a_tied_head_too():
    ours = slopes(train_spec(optimizer="adamw", lr=3e-3), tied=True, scaled=True, tied_head=0.5)
    assert abs(ours["stream"]) < 0.15
    assert -0.4 < ours["logits"] < 0.1


@pytest.mark.parametrize("optimizer", ["adamw", "lion", "muon", ORIGINAL, "schedule_free", "sgd"])
def test_nothing_changes_at_the_base_width(optimizer):
    factors = width_factors(train_spec(optimizer=optimizer), BASE)
    assert set(factors.values()) == {1.0}


@pytest.mark.parametrize("kind", ["adamw", "lion", "muon", "schedule_free", "sgd"])
def test_rate_times_weight_decay_does_not_follow_the_width(kind):
    model = zoo.build(model_spec(128))
    spec = train_spec(optimizer=kind, weight_decay=0.1)
    found = trained(model, zoo.roles(model), spec, 128, model.spec.n_layers)
    assert {each.lr_factor for each in found} != {1.0}
    for each in found:
        assert each.lr_factor * each.weight_decay == pytest.approx(0.1 if each.parameter.dim() == 2 else 0)


def test_the_schedule_reaches_every_group_times_its_factor():
    model = zoo.build(model_spec(128))
    spec = train_spec(lr=1e-3)
    optimizer = build_optimizer(model, zoo.roles(model), spec, 128, model.spec.n_layers)
    tokens = torch.zeros(1, 3, dtype=torch.int64)
    ((step,),) = train(Learner(model.loss, optimizer, spec, FLOAT32), lambda _: Batch.next_token(tokens), 1)
    by_parameter = {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}
    assert step.lr == 1e-3
    assert by_parameter[id(model.embedding.weight)] == pytest.approx(1e-3 / 2)
    assert by_parameter[id(model.blocks[0].mixer.q.weight)] == pytest.approx(1e-3 / 4)
    assert by_parameter[id(model.head.weight)] == pytest.approx(1e-3 / 4)
    assert by_parameter[id(next(model.norm.parameters()))] == 1e-3


ATTENTION = {"kind": "attention", "heads": 8, "head_dim": 16}
REFUSED = {
    "tied": ({"tie_embeddings": True}, {}, "set logit_scale to 0.5"),
    "scale of the table": ({"embedding_scale": 1.0}, {}, "set embedding_scale to sqrt_d_model"),
    "factorised table": ({"embedding_dim": 8}, {}, "embedding_dim"),
    "heads that widen": ({"block.mixer": {"kind": "attention", "heads": 8}}, {}, "set block.mixer.head_dim"),
    "too few heads": (
        {"block.mixer": {**ATTENTION, "heads": 4}},
        {},
        "heads × head_dim must equal d_model: 4 × 16 is not 128",
    ),
    "fixed d_ff": ({"block.ffn": {"kind": "gelu", "d_ff": 512}}, {}, "such as 4x"),
    "experts": ({"block.ffn": "topk_moe"}, {}, "does not support the ffn topk_moe"),
    "mixer": ({"block.mixer": "mla"}, {}, "does not support the mixer mla"),
    "position": ({"block.mixer": {**ATTENTION, "position": "learned"}}, {}, "the position learned"),
    "norm": ({"block.norm": "none"}, {}, "does not support the norm none"),
    "routing": ({"block.depth_routing": {}}, {}, "does not support depth_routing"),
    "recursion": ({"sharing": {"recursion": {}}}, {}, "does not support sharing.recursion"),
    "injection": ({"sharing": {"injection": True}}, {}, "does not support sharing.injection"),
    "skips": ({"unet_skips": True}, {}, "does not support unet_skips"),
    "losses of layers": ({"layer_loss": 0.1}, {}, "does not support layer_loss"),
    "canon": ({"block.canon": {}}, {}, "does not support canon"),
    "convolution": ({"block.mixer": {**ATTENTION, "conv": 4}}, {}, "does not support mixer.conv"),
    "sinks": ({"block.mixer": {**ATTENTION, "sinks": True}}, {}, "does not support mixer.sinks"),
    "values": ({"block.mixer": {**ATTENTION, "value_residual": True}}, {}, "does not support mixer.value_residual"),
    "bias of the head": ({"head_bias": True}, {}, "does not support head_bias"),
    "placement": ({"block.norm_placement": "hyper_connections"}, {}, "placement hyper_connections"),
    "another block": (
        {"blocks": {"wide": {"ffn": {"kind": "gelu", "d_ff": 512}}}, "pattern": ["block", "wide"]},
        {},
        "such as 4x",
    ),
    "clipped sgd": ({}, {"optimizer": "sgd", "grad_clip": 1.0}, "sgd needs grad_clip: null"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_the_argument_does_not_cover_is_refused(case):
    edits, settings, reason = REFUSED[case]
    model = model_spec(128, **edits)
    (found,) = refusals(model, train_spec(**settings))
    assert reason in found
    assert refusals(model, train_spec(transfer=False, **settings)) == []


@pytest.mark.parametrize("placement", ["pre", "post", "double", "output"])
def test_what_it_covers_is_not(placement):
    tied = {"tie_embeddings": True, "logit_scale": 0.5}
    assert refusals(model_spec(128, **{"block.norm_placement": placement, **tied}), train_spec()) == []


def final_loss(width: int, spec: TrainSpec) -> float:
    """Mean of the last 15 of 60 training losses on a random source, of which a token says all about the next."""
    table = torch.softmax(2.0 * torch.randn(64, 64, generator=torch.Generator().manual_seed(3)), -1)

    def batch(step: int) -> Batch:
        generator = torch.Generator().manual_seed(step)
        columns = [torch.randint(64, (8, 1), generator=generator)]
        for _ in range(32):
            columns.append(torch.multinomial(table[columns[-1][:, 0]], 1, generator=generator))
        return Batch.next_token(torch.cat(columns, 1))

    model = zoo.build(model_spec(width))
    optimizer = build_optimizer(model, zoo.roles(model), spec, width, model.spec.n_layers)
    stretches = train(Learner(model.loss, optimizer, spec, FLOAT32), batch, 60)
    return float(np.mean([step.loss for steps in stretches for step in steps][-15:]))


@pytest.mark.slow
def test_the_best_rate_of_a_narrow_model_is_the_best_of_a_wide_one():
    """At four times the width the best of the standard rates is four times smaller; the transferred one stays."""
    best = {}
    for name, transfer, width in (("narrow", False, 32), ("standard", False, 128), ("transferred", True, 128)):
        losses = {
            lr: final_loss(width, train_spec(transfer=transfer, lr=lr, schedule="linear", final_lr=0.0, warmup=0.1))
            for lr in (0.002, 0.008, 0.032, 0.128)
        }
        best[name] = min(losses, key=losses.__getitem__)
    assert best == {"narrow": 0.032, "standard": 0.008, "transferred": 0.032}
