"""Mixtures of experts against a loop over tokens written from the papers' formulas, and against published sizes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.waits import no_waits
from zoo.conformance.combinations import random_model, random_tokens
from zoo.conformance.counting import counted
from zoo.ffns import _experts
from zoo.ffns._activations import GATED
from zoo.ffns._routing import Routing, balance_loss
from zoo.kernels.trial import poison_freed_memory
from zoo.settings.axis import variants
from zoo.site import ForwardPass

V3 = {
    "kind": "deepseek_moe", "experts": 12, "groups": 4, "top_groups": 2, "top_k": 4, "scale": 2.5, "d_ff": 6,
    "shared_experts": 2,
}  # fmt: skip
V2 = {**V3, "score": "softmax", "group_score": "max", "normalise": False, "bias_rate": None, "scale": 16.0}
MIXTRAL = {"kind": "topk_moe", "experts": 6, "top_k": 2, "d_ff": 5}
GPT_OSS = {**MIXTRAL, "router_bias": True, "bias": True, "activation": "clamped_swiglu"}
SWITCH = {**MIXTRAL, "top_k": 1, "softmax_over": "all", "activation": "relu", "bias": True}
PHI = {**MIXTRAL, "top_k": 3, "margin": 0.4}
LLAMA4 = {
    "kind": "deepseek_moe", "experts": 5, "top_k": 2, "d_ff": 6, "normalise": False, "bias_rate": None,
    "weights_on": "input",
}  # fmt: skip
WIDE = {**MIXTRAL, "shared_experts": 1, "shared_d_ff": 13}
UNGROUPED = {"kind": "deepseek_moe", "experts": 6, "top_k": 2, "d_ff": 5, "scale": 1.5}
V4 = {**UNGROUPED, "score": "sqrt_softplus"}
KOLIBRI = {**UNGROUPED, "bias_on": "logit"}
LAGUNA = {**UNGROUPED, "router_softcap": 0.7}
COMMAND = {**MIXTRAL, "shared_experts": 2, "shared_mean": True}
LATENT = {**UNGROUPED, "latent": 4, "activation": "relu"}
FAMILIES = {
    "v3": V3,
    "v2": V2,
    "mixtral": MIXTRAL,
    "gpt_oss": GPT_OSS,
    "switch": SWITCH,
    "phi": PHI,
    "llama4": LLAMA4,
    "wide": WIDE,
    "v4": V4,
    "kolibri": KOLIBRI,
    "laguna": LAGUNA,
    "command": COMMAND,
    "latent": LATENT,
}
every_family = pytest.mark.parametrize("ffn", FAMILIES.values(), ids=FAMILIES.keys())


def model_of(ffn: dict[str, Any], **edits: Any) -> zoo.Decoder:
    spec = zoo.load("small", d_model=8, n_layers=1, vocab_size=31, **{"block.ffn": ffn}, **edits)
    model = random_model(spec)
    router = model.blocks[0].ffn.router
    if getattr(router, "selection_bias", None) is not None:
        # Large enough that biased scores are negative and that the bias, not the score alone, decides.
        router.selection_bias.copy_(
            torch.randn(router.selection_bias.shape, generator=torch.Generator().manual_seed(9))
        )
    return model


def inputs(batch: int = 2, length: int = 7) -> torch.Tensor:
    return torch.randn(batch, length, 8, generator=torch.Generator().manual_seed(1))


def slow_ffn(layer: Any, x: torch.Tensor, activation: str, expert: int | None = None) -> torch.Tensor:
    """One token through one expert, or through a dense layer."""

    def linear(part: Any) -> torch.Tensor:
        weight = part.weight if expert is None else part.weight[expert]
        bias = 0.0 if part.bias is None else part.bias if expert is None else part.bias[expert]
        return weight @ current + bias

    current = x
    up = linear(layer.up)
    if activation == "relu":
        hidden = up.clamp(min=0)
    elif activation == "clamped_swiglu":
        gate, up = linear(layer.gate).clamp(max=7), up.clamp(-7, 7)
        hidden = gate / (1 + (-1.702 * gate).exp()) * (up + 1)
    else:
        gate = linear(layer.gate)
        hidden = gate / (1 + (-gate).exp()) * up
    current = hidden
    return linear(layer.down)


def slow_routing(ffn: Any, x: torch.Tensor) -> dict[int, float]:
    """One token: the chosen experts and their weights."""
    spec, router = ffn.spec, ffn.router
    z = (router.weight @ x + (0.0 if router.bias is None else router.bias)).tolist()
    total = sum(math.exp(v) for v in z)
    if spec.kind == "topk_moe":
        ranked = sorted(range(len(z)), key=lambda e: -z[e])
        if spec.margin is not None:
            return {e: 1 / sum(_near(z[e], z[f], spec.margin) for f in ranked[i:]) for i, e in enumerate(ranked[:3])}
        chosen = ranked[: spec.top_k]
        kept = sum(math.exp(z[e]) for e in chosen)
        return {e: math.exp(z[e]) / (kept if spec.softmax_over == "chosen" else total) for e in chosen}
    if spec.router_softcap is not None:
        z = [spec.router_softcap * math.tanh(v / spec.router_softcap) for v in z]
    formulas = {
        "sigmoid": lambda v: 1 / (1 + math.exp(-v)),
        "sqrt_softplus": lambda v: math.sqrt(math.log(1 + math.exp(v))),
        "softmax": lambda v: math.exp(v) / total,
    }
    scores = [formulas[spec.score](v) for v in z]
    offset = router.selection_bias.tolist() if router.selection_bias is not None else [0.0] * len(z)
    biased = [s + b for s, b in zip(z if spec.bias_on == "logit" else scores, offset, strict=True)]
    size = spec.experts // spec.groups
    groups = [range(g * size, (g + 1) * size) for g in range(spec.groups)]
    best = 2 if spec.group_score == "top2" else 1
    ranked = sorted(groups, key=lambda g: -sum(sorted((biased[e] for e in g), reverse=True)[:best]))
    allowed = [e for group in ranked[: spec.top_groups] for e in group]
    chosen = sorted(allowed, key=lambda e: -biased[e])[: spec.top_k]
    kept = sum(scores[e] for e in chosen) if spec.normalise else 1.0
    return {e: spec.scale * scores[e] / kept for e in chosen}


def _near(largest: float, logit: float, margin: float) -> float:
    """exp(z − m) where z is within 2ε of the largest, else 0."""
    within = (largest - logit) / max(abs(logit), largest) <= 2 * margin
    return math.exp(logit - largest) if within else 0.0


def slow(ffn: Any, x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros_like(x)
    for row in range(x.shape[0]):
        for t in range(x.shape[1]):
            token, activation = x[row, t], ffn.spec.activation
            read = token if ffn.latent_down is None else ffn.latent_down.weight @ token
            total = torch.zeros_like(read)
            for expert, weight in slow_routing(ffn, token).items():
                inside, outside = (weight, 1.0) if ffn.spec.weights_on == "input" else (1.0, weight)
                total = total + outside * slow_ffn(ffn.experts, inside * read, activation, expert)
            out[row, t] += total if ffn.latent_up is None else ffn.latent_up.weight @ total
            if ffn.shared is not None:
                out[row, t] += slow_ffn(ffn.shared, token, activation)
            if ffn.spec.shared_mean:
                out[row, t] /= 2
    return out


@every_family
def test_a_mixture_is_the_loop_over_its_tokens(ffn: dict[str, Any]) -> None:
    layer, x = model_of(ffn).blocks[0].ffn, inputs()
    torch.testing.assert_close(layer(x, ForwardPass.of(x[..., 0])), slow(layer, x), rtol=1e-4, atol=1e-5)


@every_family
def test_gradients_are_those_of_the_loop(ffn: dict[str, Any]) -> None:
    """The gradients agree for everything but the router, whose choices the loop takes as numbers."""
    layer, x = model_of(ffn).blocks[0].ffn, inputs()
    layer(x, ForwardPass.of(x[..., 0])).square().sum().backward()
    ours = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    slow(layer, x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if not name.startswith("router"):
            torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-3, atol=1e-3)


STARVED = 2


def starve(layer: Any, x: torch.Tensor) -> None:
    """Have the router send nothing of x to one expert: its scores are the lowest, whatever the token."""
    with torch.no_grad():
        away = -x.flatten(0, 1).mean(0)
        x += 9 * away.sign()  # tokens that all have one side in common
        layer.router.weight[STARVED] = -away.sign()
        if layer.router.bias is not None:
            layer.router.bias[STARVED] = -9.0
    assert STARVED not in layer.router(x).chosen


@every_family
def test_one_kernel_for_all_experts_is_the_loop_too(ffn: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is for bfloat16 on a GPU; torch has a slow one for float32 on a CPU, whose rows are whole 16 bytes too. One
    expert is sent nothing."""
    monkeypatch.setattr(_experts, "can_group", lambda *_: True)
    layer, x = model_of(ffn | {"d_ff": 8}).blocks[0].ffn, inputs()
    starve(layer, x)
    out = layer(x, ForwardPass.of(x[..., 0]))
    torch.testing.assert_close(out, slow(layer, x), rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    ours = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    slow(layer, x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        if not name.startswith("router"):
            expected = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            torch.testing.assert_close(ours[name], expected, rtol=1e-3, atol=1e-3)


@pytest.mark.gpu
@every_family
def test_the_kernel_for_all_experts_is_the_loop_on_a_gpu(ffn: dict[str, Any]) -> None:
    """The kernel agrees to within bfloat16's rounding, without a wait for the device."""
    widths = {"d_ff": 8} | ({"latent": 8} if "latent" in ffn else {})  # the kernel takes multiples of 8
    layer, x = model_of(ffn | widths).blocks[0].ffn, inputs()
    starve(layer, x)
    layer, x = layer.cuda(), x.cuda()
    expected = slow(layer, x)
    expected.square().sum().backward()
    wanted = {name: p.grad for name, p in layer.experts.named_parameters()}
    layer.zero_grad()
    step = ForwardPass.of(x[..., 0])
    poison_freed_memory("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        layer(x, step)  # the first asks what the device is
        with no_waits():
            out = layer(x, step)
    assert (out - expected).norm() < 0.02 * expected.norm()
    poison_freed_memory("cuda")
    out.float().square().sum().backward()
    for name, parameter in layer.experts.named_parameters():
        assert parameter.grad[STARVED].abs().max() == 0
        assert (parameter.grad - wanted[name]).norm() < 0.05 * wanted[name].norm()


@pytest.mark.gpu
def test_an_expert_without_tokens_gets_a_gradient_of_zeros_on_a_gpu() -> None:
    """Kernels that leave the rows of such an expert as they find them are caught by memory full of NaN."""
    experts = _experts.Experts(4, 16, 32, GATED["swiglu"], gated=True, bias=False, dropout=0.0).cuda()
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    rows = torch.randn(24, 16, device="cuda")
    chosen = torch.tensor([[0, 2], [2, 3]], device="cuda").repeat(12, 1)  # nobody asks expert 1
    weights = torch.full((24, 2), 0.5, device="cuda")
    poison_freed_memory("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        experts(rows, chosen, weights).float().square().sum().backward()
    for parameter in experts.parameters():
        assert torch.isfinite(parameter.grad).all()
        assert parameter.grad[1].abs().max() == 0


def test_the_shared_layer_has_one_spelling_for_each_width() -> None:
    """Three experts of 5 are one layer of 15."""
    of = {"kind": "topk_moe", "experts": 6, "d_ff": 5}
    several, one, odd = (
        zoo.load("small", **{"block.ffn": {**of, "shared_experts": count, "shared_d_ff": width}})
        for count, width in ((3, None), (1, 15), (1, 13))
    )
    assert several.digest == one.digest != odd.digest
    assert zoo.build(odd).blocks[0].ffn.shared.up.weight.shape == (13, odd.d_model)


def test_the_selection_bias_chooses_and_does_not_weigh() -> None:
    layer, x = model_of({**V3, "groups": 1, "top_groups": 1, "shared_experts": 0}).blocks[0].ffn, inputs()
    layer.router.selection_bias.copy_(torch.tensor([9.0] * 4 + [0.0] * 8))
    routing = layer.router(x)
    assert set(routing.chosen.unique().tolist()) == {0, 1, 2, 3}
    scores = (x @ layer.router.weight.T).sigmoid()[..., :4]
    expected = 2.5 * scores / scores.sum(-1, keepdim=True)
    torch.testing.assert_close(routing.weights.sort(-1).values, expected.sort(-1).values)


def test_excluded_groups_stay_out_though_biased_scores_are_negative() -> None:
    layer, x = model_of(V3).blocks[0].ffn, inputs()
    layer.router.selection_bias.fill_(-5.0)
    chosen = layer.router(x).chosen
    assert all(len({e // 3 for e in row}) <= 2 for row in chosen.flatten(0, 1).tolist())


def test_the_bias_moves_against_the_load_in_training_alone() -> None:
    model, x = model_of({**V3, "bias_rate": 0.01}), inputs()
    layer, step = model.blocks[0].ffn, ForwardPass.of(x[..., 0])
    before = layer.router.selection_bias.clone()
    layer(x, step)
    zoo.after_update(model)
    assert torch.equal(layer.router.selection_bias, before)
    layer.train()
    counts = layer.router(x).chosen.flatten().bincount(minlength=12).tolist()
    for part in x:
        layer(part[None], step)
    assert torch.equal(layer.router.selection_bias, before), "a pass that is computed again finds what it found"
    zoo.after_update(model)
    mean = sum(counts) / 12
    moved = [0.01 * ((mean > n) - (mean < n)) for n in counts]
    torch.testing.assert_close(layer.router.selection_bias - before, torch.tensor(moved), rtol=0, atol=1e-6)


def test_bias_updates_even_out_the_load() -> None:
    """From a bias that begins far off. Steps of γ hunt around balance, so γ is small and the steps are many."""
    model = model_of({**V3, "groups": 1, "top_groups": 1, "bias_rate": 0.01})
    layer, x = model.blocks[0].ffn.train(), inputs(8, 64)

    def worst() -> float:
        counts = layer.router(x).chosen.flatten().bincount(minlength=12)
        return (counts.max() / counts.float().mean()).item()

    before = worst()
    for _ in range(500):
        layer(x, ForwardPass.of(x[..., 0]))
        zoo.after_update(model)
    assert before > 2
    assert worst() < 1.2


def test_the_selection_bias_is_saved(tmp_path: Path) -> None:
    model = model_of(V3)
    zoo.save(model, tmp_path)
    opened = zoo.open(tmp_path).blocks[0].ffn.router
    assert torch.equal(opened.selection_bias, model.blocks[0].ffn.router.selection_bias)
    assert "blocks.0.ffn.router.selection_bias" not in dict(model.named_parameters())
    assert not [name for name in model.state_dict() if name.endswith(".counts")]


@pytest.mark.parametrize("over", ["batch", "sequence"])
def test_balance_loss_is_its_formula(over: Any) -> None:
    """E/k · Σ f_e P_e by loops: for the whole batch, or the mean over sequences (DeepSeek V3, eq. 17-20)."""
    generator = torch.Generator().manual_seed(0)
    p = torch.randn(3, 5, 4, generator=generator).softmax(-1)
    chosen = p.topk(2, dim=-1).indices
    texts = [[(b, t) for t in range(5)] for b in range(3)]
    groups = texts if over == "sequence" else [[place for text in texts for place in text]]
    values = []
    for group in groups:
        f = [sum(e in chosen[place].tolist() for place in group) / len(group) for e in range(4)]
        mean = [sum(p[place][e].item() for place in group) / len(group) for e in range(4)]
        values.append(4 / 2 * sum(a * b for a, b in zip(f, mean, strict=True)))
    measured = balance_loss(Routing(p, p, chosen, p, counted=chosen), over)
    assert measured.item() == pytest.approx(sum(values) / len(values), rel=1e-5)
    even = torch.full((1, 4, 4), 0.25)
    ring = torch.tensor([[[0, 1], [1, 2], [2, 3], [3, 0]]])
    assert balance_loss(Routing(even, even, ring, even, counted=ring), over).item() == pytest.approx(1.0)


def test_the_sequence_loss_of_v3_counts_scores_without_bias_and_groups() -> None:
    """Equations 17 to 20 of arXiv:2412.19437, one token and expert at a time; the bias and the groups choose others."""
    layer, x = model_of({**V3, "balance_loss": 1.0}).blocks[0].ffn, inputs()
    routing, spec = layer.router(x), layer.spec
    losses = []
    for row in range(2):
        scores = (x[row] @ layer.router.weight.T).sigmoid().tolist()
        f, p = [0.0] * spec.experts, [0.0] * spec.experts
        for token in scores:
            best = sorted(range(spec.experts), key=lambda e, token=token: -token[e])[: spec.top_k]
            for expert in range(spec.experts):
                f[expert] += spec.experts / (spec.top_k * len(scores)) * (expert in best)
                p[expert] += token[expert] / sum(token) / len(scores)
        losses.append(sum(one * other for one, other in zip(f, p, strict=True)))
    assert balance_loss(routing, "sequence").item() == pytest.approx(sum(losses) / 2, rel=1e-5)
    assert not torch.equal(routing.counted.sort(-1).values, routing.chosen.sort(-1).values)


def test_the_balance_loss_of_v2_counts_who_was_chosen() -> None:
    routing = model_of(V2).blocks[0].ffn.router(inputs())
    assert torch.equal(routing.counted, routing.chosen)


def test_auxiliary_losses_are_weighted_and_for_training_alone() -> None:
    model, x = model_of({**MIXTRAL, "balance_loss": 0.1, "router_z_loss": 0.01}), inputs()
    layer, step = model.blocks[0].ffn, ForwardPass.of(x[..., 0])
    layer(x, step)
    assert step.losses == []
    layer.train()(x, step)
    routing = layer.router(x)
    log_z = [math.log(sum(math.exp(v) for v in row)) for row in routing.logits.flatten(0, 1).tolist()]
    expected = 0.1 * balance_loss(routing, "batch").item() + 0.01 * sum(z * z for z in log_z) / len(log_z)
    assert sum(loss.item() for loss in step.losses) == pytest.approx(expected, rel=1e-5)


def test_the_objective_has_the_auxiliary_losses_and_the_nats_do_not() -> None:
    tokens = torch.randint(0, 31, (2, 9), generator=torch.Generator().manual_seed(0))
    model = model_of({**MIXTRAL, "balance_loss": 1.0}, z_loss=0.0)
    objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:])
    assert torch.equal(objective, nats)
    trained, again = model.train().loss(tokens[:, :-1], tokens[:, 1:])
    assert torch.equal(again, nats)
    assert 0.5 < (trained - nats).item() < 6


def test_load_is_shown() -> None:
    model, tokens = model_of(MIXTRAL), random_tokens(model_of(MIXTRAL).spec, 2, 7)
    hidden: list[torch.Tensor] = []
    model.blocks[0].ffn.router.register_forward_hook(lambda module, args, out: hidden.append(args[0]))
    with zoo.taps(model) as seen:
        model(tokens)
    counts = [0] * 6
    for token in hidden[0].flatten(0, 1):
        for expert in slow_routing(model.blocks[0].ffn, token):
            counts[expert] += 1
    torch.testing.assert_close(seen["blocks.0.ffn.load"][0], torch.tensor(counts) / (2 * 14))


def test_capacity_drops_the_last_tokens_of_a_full_expert() -> None:
    ffn = {**V3, "bias_rate": None, "shared_experts": 1, "capacity_factor": 0.6}
    layer, x = model_of(ffn).blocks[0].ffn, inputs()
    expected, left = torch.zeros_like(x), [math.ceil(0.6 * 14 * 4 / 12)] * 12
    for row in range(2):
        for t in range(7):
            expected[row, t] = slow_ffn(layer.shared, x[row, t], "swiglu")
            for expert, weight in slow_routing(layer, x[row, t]).items():
                if left[expert]:
                    left[expert] -= 1
                    expected[row, t] += weight * slow_ffn(layer.experts, x[row, t], "swiglu", expert)
    step = ForwardPass.of(x[..., 0])
    torch.testing.assert_close(layer.train()(x, step), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(layer.eval()(x, step), slow(layer, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.25, 0.5, None])
def test_flops_leave_out_what_capacity_is_certain_to_drop(factor: float | None) -> None:
    """An expert takes ⌈f·N·k/E⌉ tokens at most; a router that prefers none fills all of them."""
    spec = zoo.load(
        "small", d_model=8, n_layers=1, vocab_size=31, **{"block.ffn": {**MIXTRAL, "capacity_factor": factor}}
    )
    model, tokens = random_model(spec).train(), random_tokens(spec, 8, 37)
    with zoo.attention_backend("plain"), counted(model, passes=3) as count:
        model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    declared = zoo.cost(spec, context=36)
    assert count.total / (8 * 36) == pytest.approx(declared.flops_per_token_square, rel=1e-9)
    assert (
        declared.flops_per_token_forward
        == zoo.cost(spec.edit({"block.ffn.capacity_factor": None}), 36).flops_per_token_forward
    )


def test_what_capacity_drops_does_not_depend_on_later_tokens() -> None:
    layer, x = model_of({**MIXTRAL, "capacity_factor": 0.5}).blocks[0].ffn.train(), inputs(1, 12)
    before, other = layer(x, ForwardPass.of(x[..., 0])), x.clone()
    other[:, 8:] = 3.0
    after = layer(other, ForwardPass.of(x[..., 0]))
    torch.testing.assert_close(after[:, :8], before[:, :8], rtol=1e-5, atol=1e-6)


def test_initial_values_of_experts_follow_their_role() -> None:
    spec = zoo.load("small", d_model=256, n_layers=2, **{"block.ffn": {"kind": "topk_moe", "d_ff": 64, "bias": True}})
    experts = zoo.build(spec).blocks[1].ffn.experts
    for weight, std in ((experts.gate, 1 / 16), (experts.up, 1 / 16), (experts.down, 1 / math.sqrt(64 * 4))):
        assert weight.weight.std().item() == pytest.approx(std, rel=0.02)
        assert weight.bias.abs().sum() == 0
    assert not torch.equal(experts.up.weight[0], experts.up.weight[1])


@every_family
def test_active_parameters_are_those_that_a_token_touches(ffn: dict[str, Any]) -> None:
    """One token alone: the parameters with a gradient, rows of a table of experts counted one by one."""
    model = model_of(ffn)
    layer, x = model.blocks[0].ffn, inputs(1, 1)
    layer(x, ForwardPass.of(x[..., 0])).sum().backward()
    touched = 0
    for name, parameter in layer.named_parameters():
        if name.startswith("experts."):
            touched += sum(row.numel() for row, grad in zip(parameter, parameter.grad, strict=True) if grad.abs().sum())
        else:
            touched += parameter.numel()
    cost = zoo.cost(model.spec)
    assert cost.params - cost.params_active == sum(p.numel() for p in layer.parameters()) - touched


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"kind": "topk_moe", "top_k": 9}, "block.ffn.top_k: must be at most 8, the number of experts, not 9"),
        ({"kind": "topk_moe", "swiglu_limit": 7.0},
         "block.ffn.swiglu_limit: needs activation: clamped_swiglu, not swiglu"),
        ({"kind": "deepseek_moe", "groups": 3}, "block.ffn.groups: 3 groups do not divide 16 experts"),
        ({"kind": "deepseek_moe", "groups": 4, "top_groups": 5},
         "block.ffn.top_groups: must be at most groups = 4, not 5"),
        ({"kind": "deepseek_moe", "groups": 8, "top_groups": 1},
         "block.ffn.top_k: must be at most 2, the experts of top_groups = 1, not 3"),
        ({"kind": "deepseek_moe", "groups": 16, "top_groups": 4},
         "block.ffn.group_score: top2 needs groups of two experts or more"),
    ],
)  # fmt: skip
def test_what_cannot_be_routed_says_why(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError) as caught:
        zoo.load("small", **{"block.ffn": edit})
    assert str(caught.value) == message


@pytest.mark.parametrize("kind", ["topk_moe", "deepseek_moe"])
def test_default_widths_spend_what_swiglu_spends(kind: str) -> None:
    d_model = 96
    dense = zoo.cost(zoo.load("small", d_model=d_model)).flops_per_token_forward
    spec = zoo.load("small", d_model=d_model, **{"block.ffn": kind})
    router = 4 * 2 * d_model * spec.block.ffn.experts
    assert zoo.cost(spec).flops_per_token_forward == dense + router


def test_mixtral_8x7b_has_its_published_size() -> None:
    """46.7 B, of which 12.9 B active (arXiv:2401.04088)."""
    attention = {"kind": "attention", "heads": 32, "kv_heads": 8}
    ffn = {"kind": "topk_moe", "experts": 8, "top_k": 2, "d_ff": 14336}
    cost = zoo.cost(
        zoo.parse({"vocab_size": 32000, "d_model": 4096, "n_layers": 32, "tie_embeddings": False,
                   "block": {"mixer": attention, "ffn": ffn}})
    )  # fmt: skip
    assert cost.params == pytest.approx(46.7e9, rel=1e-3)
    assert cost.params_active == pytest.approx(12.9e9, rel=2e-3)


def test_gpt_oss_20b_has_its_published_size() -> None:
    """20.9 B, of which 3.6 B active, the embedding not counted as such (arXiv:2508.10925, table 1)."""
    attention = {"kind": "attention", "heads": 64, "kv_heads": 8, "head_dim": 64, "bias": True, "sinks": True}
    ffn = {"kind": "topk_moe", "experts": 32, "top_k": 4, "d_ff": 2880, "activation": "clamped_swiglu",
           "bias": True, "router_bias": True}  # fmt: skip
    cost = zoo.cost(
        zoo.parse({"vocab_size": 201088, "d_model": 2880, "n_layers": 24, "tie_embeddings": False,
                   "block": {"mixer": attention, "ffn": ffn}})
    )  # fmt: skip
    assert cost.params == pytest.approx(20.91e9, rel=1e-3)
    assert cost.params_active - cost.params_embedding == pytest.approx(3.61e9, rel=2e-3)


def test_deepseek_v3_has_its_published_size() -> None:
    """671 B, of which 37 B active (arXiv:2412.19437 §4.2). Attention is counted here, from its ranks in the paper."""
    d_model, heads, q_rank, kv_rank, nope, rope, value = 7168, 128, 1536, 512, 128, 64, 128
    attention = d_model * (q_rank + kv_rank + rope) + q_rank + kv_rank + q_rank * heads * (nope + rope)
    attention += kv_rank * heads * (nope + value) + heads * value * d_model
    moe = {"kind": "deepseek_moe", "experts": 256, "top_k": 8, "d_ff": 2048, "groups": 8, "top_groups": 4,
           "scale": 2.5, "shared_experts": 1}  # fmt: skip
    spec = zoo.parse({
        "vocab_size": 129280, "d_model": d_model, "n_layers": 61, "tie_embeddings": False,
        "block": {"mixer": {"heads": heads, "head_dim": 128, "kind": "attention"}, "ffn": moe},
        "blocks": {"dense": {"ffn": {"kind": "swiglu", "d_ff": 18432}}}, "first": ["dense"] * 3,
    })  # fmt: skip
    ours, cost = sum(layer.mixer.cost(d_model, 1).parameters for layer in spec.layers), zoo.cost(spec)
    assert cost.params - ours + 61 * attention == pytest.approx(671e9, rel=1e-3)
    assert cost.params_active - ours + 61 * attention == pytest.approx(37e9, rel=0.02)


def test_the_router_is_exact_in_bfloat16() -> None:
    """Autocast would round its logits and so change who is chosen."""
    layer, x = model_of(V3).blocks[0].ffn, inputs()
    exact = layer.router(x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = layer.router(x)
    assert torch.equal(rough.logits, exact.logits)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")
def test_a_mixture_compiles() -> None:
    """With graph breaks, where shapes depend on the load; at one of them torch warns of itself."""
    model = model_of(MIXTRAL).train()
    tokens = random_tokens(model.spec, 2, 9)
    torch.compiler.reset()
    compiled = torch.compile(model.loss, backend="eager")
    torch.testing.assert_close(compiled(tokens[:, :-1], tokens[:, 1:]), model.loss(tokens[:, :-1], tokens[:, 1:]))


def test_every_mixture_is_tested_here() -> None:
    mixtures = {kind for kind in variants("zoo.ffns") if kind.endswith("_moe")}
    assert mixtures - {"expert_choice_moe", "hash_moe"} == {ffn["kind"] for ffn in FAMILIES.values()}


def test_unused_experts_have_no_gradient() -> None:
    layer, x = model_of(MIXTRAL).blocks[0].ffn, inputs(1, 1)
    layer(x, ForwardPass.of(x[..., 0])).sum().backward()
    used = layer.router(x).chosen.flatten().tolist()
    grads = layer.experts.up.weight.grad.abs().sum((1, 2)) > 0
    assert grads.tolist() == [e in used for e in range(6)]
    assert F.one_hot(torch.tensor(used), 6).sum() == 2
