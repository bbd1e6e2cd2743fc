"""Hash routing, experts without an FFN and the router that is an MLP: against loops over tokens written from the
papers, and against the modules of transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import DeepseekV4Config, LongcatFlashConfig, ZayaConfig
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HashRouter
from transformers.models.longcat_flash.modeling_longcat_flash import LongcatFlashTopkRouter
from transformers.models.zaya.modeling_zaya import ZayaRouter

import zoo
from tests.zoo.test_moe import inputs, model_of, slow_ffn
from zoo.conformance.combinations import random_tokens
from zoo.conformance.counting import counted
from zoo.ffns._routing import Routing, balance_loss
from zoo.site import ForwardPass

HASH = {"kind": "hash_moe", "experts": 7, "top_k": 3, "d_ff": 5}
IDLE = {"kind": "topk_moe", "experts": 3, "top_k": 2, "d_ff": 5, "softmax_over": "all"}
ALL_IDLE = {**IDLE, "zero_experts": 1, "copy_experts": 2, "constant_experts": 2}
LONGCAT = {"kind": "deepseek_moe", "experts": 4, "top_k": 3, "d_ff": 5, "shared_experts": 0, "score": "softmax",
           "normalise": False, "scale": 6.0, "copy_experts": 2}  # fmt: skip
ZAYA = {**LONGCAT, "top_k": 1, "scale": 1.0, "copy_experts": 0, "zero_experts": 1, "router_hidden": 6}
CHOICE = {"kind": "expert_choice_moe", "experts": 4, "top_k": 2, "d_ff": 5}
IDS = torch.tensor([[3, 3, 30, 0, 12, 7, 3], [30, 1, 2, 5, 8, 13, 21]])


def murmur(x: int) -> int:
    """The last step of Murmur3 on a 32-bit word."""
    x ^= x >> 16
    x = x * 0x85EBCA6B % 2**32
    x ^= x >> 13
    x = x * 0xC2B2AE35 % 2**32
    return x ^ x >> 16


def experts_of(token: int, experts: int, seed: int) -> list[int]:
    """All experts, those that a token prefers first."""
    word = murmur((murmur(seed) + token) % 2**32)
    return sorted(range(experts), key=lambda e: (-murmur((word + e) % 2**32), -e))


def run(layer: Any, x: Tensor) -> Tensor:
    out: Tensor = layer(x, ForwardPass.of(IDS))
    return out


@pytest.mark.parametrize("seed", [0, 11])
def test_a_hash_sends_every_id_to_its_experts_and_weighs_them_alike(seed: int) -> None:
    layer, x = model_of({**HASH, "seed": seed}).blocks[0].ffn, inputs()
    expected = torch.zeros_like(x)
    for row in range(2):
        for t in range(7):
            for expert in experts_of(int(IDS[row, t]), 7, seed)[:3]:
                expected[row, t] += slow_ffn(layer.experts, x[row, t], "swiglu", expert)
    torch.testing.assert_close(run(layer, x), expected, rtol=1e-4, atol=1e-5)


def test_one_hash_of_one_expert_is_the_paper_s_layer() -> None:
    """FFN_{hash(token)}(x), of the ReLU layers that the paper has."""
    layer, x = model_of({**HASH, "top_k": 1, "activation": "relu"}).blocks[0].ffn, inputs()
    chosen = [[experts_of(int(token), 7, 0)[0] for token in row] for row in IDS]
    expected = torch.stack(
        [torch.stack([slow_ffn(layer.experts, x[b, t], "relu", chosen[b][t]) for t in range(7)]) for b in range(2)]
    )
    torch.testing.assert_close(run(layer, x), expected, rtol=1e-4, atol=1e-5)


def test_hashes_spread_ids_evenly_and_differ_by_seed() -> None:
    ids = torch.arange(50_000)
    chosen = [zoo.build(zoo.load("small", **{"block.ffn": {**HASH, "seed": seed}})).blocks[0].ffn.router.hash(ids)
              for seed in (0, 1)]  # fmt: skip
    for each in chosen:
        share = each.flatten().bincount(minlength=7) / each.numel()
        assert ((share - 1 / 7).abs() < 0.003).all()
        assert (each.sort(-1).values.diff(dim=-1) > 0).all(), "an expert twice"
    same = (chosen[0][:, 0] == chosen[1][:, 0]).float().mean().item()
    assert same == pytest.approx(1 / 7, abs=0.01)


def test_weights_of_hashed_experts_are_those_of_deepseek_v4() -> None:
    layer, x = model_of({**HASH, "score": "sqrt_softplus", "scale": 1.5}).blocks[0].ffn, inputs()
    config = DeepseekV4Config(
        hidden_size=8, num_local_experts=7, num_experts_per_tok=3, vocab_size=31, scoring_func="sqrtsoftplus",
        routed_scaling_factor=1.5,
    )  # fmt: skip
    theirs = DeepseekV4HashRouter(config)
    with torch.no_grad():
        theirs.weight.copy_(layer.router.weight)
        theirs.tid2eid.copy_(torch.tensor([experts_of(token, 7, 0)[:3] for token in range(31)]))
        _, weights, chosen = theirs(x, IDS)
        routing = layer.router(x, IDS)
    assert torch.equal(routing.chosen.flatten(0, 1), chosen)
    torch.testing.assert_close(routing.weights.flatten(0, 1), weights)


def test_hashes_are_of_the_token_that_a_further_module_reads() -> None:
    """Multi-token prediction: module k reads the embedding of the token k further on, whose experts it has."""
    model = model_of({**HASH, "top_k": 1}, mtp={"depth": 1}).train()
    read: list[Tensor] = []
    for block in (model.blocks[0], model.mtp[0].block):
        block.ffn.router.register_forward_hook(lambda module, args, out: read.append(args[1]))
    model.loss(IDS[:, :-1], IDS[:, 1:])
    assert torch.equal(read[0], IDS[:, :-1])
    assert torch.equal(read[1], IDS[:, 1:-1])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        ({"balance_loss": 0.1}, "balance_loss: must be 0: hash routing is not learned"),
        ({"router_z_loss": 0.1}, "router_z_loss: must be 0: hash routing is not learned"),
        ({"scale": 2.0}, "scale: needs score"),
        ({"normalise": False}, "normalise: needs score"),
        ({"kind": "topk_moe", "tau": 2.0}, "tau: needs zero_experts, copy_experts or constant_experts"),
        ({**ALL_IDLE, "top_k": 9}, "top_k: must be at most 8, the number of experts, not 9"),
        ({**ALL_IDLE, "capacity_factor": 1.0},
         "capacity_factor: not supported with zero, copy or constant experts"),
        ({**LONGCAT, "groups": 2}, "groups: must be 1 with zero, copy or constant experts"),
    ],
)  # fmt: skip
def test_what_cannot_be_routed_says_why(edit: dict[str, Any], message: str) -> None:
    with pytest.raises(zoo.SpecError) as caught:
        zoo.load("small", **{"block.ffn": {**HASH, **edit} if "kind" not in edit else edit})
    assert str(caught.value) == f"block.ffn.{message}"


def slow_idle(layer: Any, x: Tensor) -> Tensor:
    """One token after another, expert by expert: those with an FFN, zero, copy, constant."""
    spec, out = layer.spec, torch.zeros_like(x)
    kinds = ["ffn"] * spec.experts + ["zero"] * spec.zero_experts + ["copy"] * spec.copy_experts
    for row in range(x.shape[0]):
        for t in range(x.shape[1]):
            token = x[row, t]
            z = (layer.router.weight @ token).tolist()
            p = [math.exp(v) / sum(math.exp(u) for u in z) for v in z]
            for e in sorted(range(len(z)), key=lambda e: -z[e])[: spec.top_k]:
                if e >= len(kinds):
                    number = e - len(kinds)
                    first, second = layer.zero_compute.shares.weight[2 * number : 2 * number + 2] @ token
                    kept = 1 / (1 + (second - first).exp())
                    out[row, t] += p[e] * (kept * token + (1 - kept) * layer.zero_compute.constants[number])
                elif kinds[e] == "ffn":
                    out[row, t] += p[e] * slow_ffn(layer.experts, token, "swiglu", e)
                elif kinds[e] == "copy":
                    out[row, t] += p[e] * token
    return out


@pytest.mark.parametrize(
    "kinds",
    [{"zero_experts": 2}, {"copy_experts": 2}, {"constant_experts": 2}, ALL_IDLE],
    ids=["zero", "copy", "constant", "all"],
)
def test_experts_without_an_ffn_give_nothing_what_they_read_or_a_constant(kinds: dict[str, int]) -> None:
    """Equations 3 to 5 of MoE++, and the gradients of the loop."""
    layer, x = model_of({**IDLE, **kinds}).blocks[0].ffn, inputs(4, 9)
    out, expected = layer(x, ForwardPass.of(x[..., 0])), slow_idle(layer, x)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    ours = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    expected.square().sum().backward()
    for name, parameter in layer.named_parameters():
        if not name.startswith("router"):
            torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_a_layer_whose_tokens_all_pass_by_its_ffns() -> None:
    layer, x = model_of({**IDLE, "top_k": 1, "copy_experts": 1}).blocks[0].ffn, inputs(1, 1).abs()
    with torch.no_grad():
        layer.router.weight.copy_(torch.tensor([[-1.0], [-1.0], [-1.0], [1.0]]).expand(-1, 8))
    weight = layer.router(x).probabilities[..., 3:]
    torch.testing.assert_close(layer(x, ForwardPass.of(x[..., 0])), weight * x)


def test_copies_are_longcat_flash_s_identity_experts() -> None:
    layer, x = model_of(LONGCAT).blocks[0].ffn, inputs()
    config = LongcatFlashConfig(
        hidden_size=8, n_routed_experts=4, zero_expert_num=2, moe_topk=3, routed_scaling_factor=6.0,
        expert_ffn_hidden_size=5, num_layers=1,
    )  # fmt: skip
    router = LongcatFlashTopkRouter(config)
    with torch.no_grad():
        router.classifier.weight.copy_(layer.router.weight)
        router.e_score_correction_bias.copy_(layer.router.selection_bias)
        _, weights, chosen = router(x)
        expected = torch.zeros_like(x).flatten(0, 1)
        for n, token in enumerate(x.flatten(0, 1)):
            for weight, e in zip(weights[n], chosen[n].tolist(), strict=True):
                expected[n] += weight * (token if e >= 4 else slow_ffn(layer.experts, token, "swiglu", e))
        torch.testing.assert_close(layer(x, ForwardPass.of(x[..., 0])).flatten(0, 1), expected, rtol=1e-4, atol=1e-5)


def test_a_router_of_three_layers_is_zaya_s() -> None:
    """Of its first layer, which has no router below it to average with."""
    layer, x = model_of(ZAYA).blocks[0].ffn, 3 * inputs(8, 16)
    config = ZayaConfig(hidden_size=8, num_experts=4, num_experts_per_tok=1, router_hidden_size=6, rms_norm_eps=1e-5)
    theirs, ours = ZayaRouter(config, 0), layer.router
    pairs = [
        (theirs.down_proj, ours.mlp.down), (theirs.router_mlp.fc1, ours.mlp.first),
        (theirs.router_mlp.fc2, ours.mlp.second),
    ]  # fmt: skip
    with torch.no_grad():
        for target, source in pairs:
            target.weight.copy_(source.weight)
            target.bias.copy_(source.bias)
        theirs.router_mlp.norm.weight.copy_(ours.mlp.gain)
        theirs.router_mlp.out_proj.weight.copy_(ours.weight)
        ours.selection_bias.mul_(0.01)  # so that scores decide, too: some tokens skip
        theirs.balancing_biases.copy_(ours.selection_bias)
        logits, weights, chosen, _ = theirs(x)
        routing = ours(x)
    torch.testing.assert_close(routing.logits.flatten(0, 1), logits)
    skipped = routing.chosen.flatten(0, 1) == 4
    assert skipped.any() and not skipped.all()
    torch.testing.assert_close(routing.weights.flatten(0, 1).masked_fill(skipped, 0.0), weights)
    assert torch.equal(routing.chosen.flatten(0, 1).masked_fill(skipped, 0), chosen)


@pytest.mark.parametrize("tau", [0.5, 1.0, 3.0])
def test_the_balance_loss_of_moe_plus_plus_weighs_idle_experts_by_tau(tau: float) -> None:
    """Σ_i η_i f_i P_i, with η = τ for experts without an FFN, times E/k. Among loads of one kind that follow their own
    probabilities, it is least where an expert with an FFN gets τ times what one without gets."""
    probabilities = torch.randn(3, 5, 5, generator=torch.Generator().manual_seed(0)).softmax(-1)
    chosen = probabilities.topk(2, dim=-1).indices
    penalties = [1.0, 1.0, 1.0, tau, tau]
    expected = 0.0
    for e in range(5):
        f = sum(e in token for text in chosen.tolist() for token in text) / 15
        expected += 5 / 2 * penalties[e] * f * probabilities[..., e].mean().item()
    routing = Routing(probabilities, probabilities, chosen, probabilities, counted=chosen)
    assert balance_loss(routing, "batch", penalties).item() == pytest.approx(expected, rel=1e-5)
    shares = [x / 1000 for x in range(1, 333)]  # of each of three experts with an FFN; two others get the rest

    def of_share(share: float) -> float:
        idle = (1 - 3 * share) / 2
        return 3 * share**2 + 2 * tau * idle**2

    best = min(shares, key=of_share)
    spec = zoo.load("small", **{"block.ffn": {**IDLE, "copy_experts": 2, "tau": tau}}).block.ffn
    assert spec.even_load[0] == pytest.approx(best, abs=1e-3)
    assert spec.ffns_per_token == pytest.approx(2 * 3 * best, abs=1e-2)


def test_flops_are_those_of_a_balanced_load() -> None:
    """A router that sends the share τE/(τE + Z) of the assignments to experts with an FFN, here 3 of 4 tokens."""
    ffn = {**IDLE, "top_k": 1, "copy_experts": 1}
    model = model_of(ffn)
    layer = model.blocks[0].ffn
    chosen = torch.arange(4).view(1, 4, 1)

    def balanced(module: Any, args: Any, routing: Routing) -> Routing:
        return Routing(routing.logits, routing.probabilities, chosen, torch.ones(1, 4, 1), chosen)

    layer.router.register_forward_hook(balanced)
    tokens = random_tokens(model.spec, 1, 4)
    with zoo.attention_backend("plain"), counted(model) as count, torch.no_grad():
        model(tokens)
    assert count.unbalanced == 0
    assert count.total / 4 == pytest.approx(zoo.cost(model.spec, context=4).flops_per_token_square / 3, rel=1e-9)


def test_a_bias_sends_ffns_tau_times_the_tokens() -> None:
    model = model_of({**LONGCAT, "tau": 3.0, "bias_rate": 0.002})
    layer, x = model.blocks[0].ffn.train(), inputs(8, 64)
    for _ in range(1000):
        layer(x, ForwardPass.of(x[..., 0]))
        zoo.after_update(model)
    load = layer.router(x).chosen.flatten().bincount(minlength=6) / (8 * 64 * 3)
    assert ((load[:4] - 3 / 14).abs() < 0.02).all()
    assert ((load[4:] - 1 / 14).abs() < 0.02).all()


def slow_choice(layer: Any, x: Tensor) -> Tensor:
    """x: (T, D), one text: equations 1 to 3 of the paper, expert by expert."""
    spec, out = layer.spec, torch.zeros_like(x)
    scores = (x @ layer.router.weight.T).softmax(-1)
    for e in range(spec.experts):
        taken = sorted(range(len(x)), key=lambda t: (-scores[t, e].item(), t))
        for t in taken[: math.ceil(spec.top_k * len(x) / spec.experts)]:
            out[t] += scores[t, e] * slow_ffn(layer.experts, x[t], "swiglu", e)
    return out


@pytest.mark.parametrize("length", [1, 7, 8])
def test_experts_choose_the_tokens_that_score_highest_with_them(length: int) -> None:
    layer, x = model_of(CHOICE, visible="all").blocks[0].ffn, inputs(2, length)
    out, expected = layer(x, ForwardPass.of(x[..., 0])), torch.stack([slow_choice(layer, text) for text in x])
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)
    out.square().sum().backward()
    ours = {name: p.grad for name, p in layer.named_parameters()}
    layer.zero_grad()
    expected.square().sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(ours[name], parameter.grad, rtol=1e-3, atol=1e-3)


def test_padding_is_not_chosen_and_does_not_count() -> None:
    layer, x = model_of(CHOICE, visible="all").blocks[0].ffn, inputs(3, 9)
    step = ForwardPass.of(x[..., 0], left_pad=torch.tensor([0, 2, 1]))
    step.ends = torch.tensor([9, 8, 4])
    out = layer(x, step)
    for row, (begin, end) in enumerate(((0, 9), (2, 8), (1, 4))):
        torch.testing.assert_close(out[row, begin:end], slow_choice(layer, x[row, begin:end]), rtol=1e-4, atol=1e-5)


def test_experts_that_choose_are_for_models_that_see_all_of_a_text() -> None:
    for visible in ("causal", "prefix"):
        with pytest.raises(zoo.SpecError, match=r"ffn: expert_choice_moe needs visible: all: .+"):
            zoo.load("small", visible=visible, **{"block.ffn": CHOICE})
    with pytest.raises(
        zoo.SpecError,
        match="balance_loss: not applicable: with expert choice, every expert takes the same number of tokens",
    ):
        zoo.load("small", visible="all", **{"block.ffn": {**CHOICE, "balance_loss": 0.1}})
