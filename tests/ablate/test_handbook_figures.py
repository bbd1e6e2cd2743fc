"""Figures of the handbook that follow by arithmetic: what the zoo computes is what is published."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import zoo
from ablate.training.optimizers import Trained
from ablate.training.spec import TrainSpec
from ablate.wings.foretell.roofline import predict
from evals.costs.devices import device
from zoo.costs import Cost
from zoo.costs_decoding import decode_cost
from zoo.decode import Sampling
from zoo.ffns._activations import UNGATED
from zoo.loss import Head, next_token_loss
from zoo.positions.rope import RoPE
from zoo.site import ForwardPass

D = 1024
BARE: dict[str, Any] = {
    "d_model": D,
    "n_layers": 1,
    "block.norm": "none",
    "final_norm": False,
    "block.mixer.heads": 8,
    "block.mixer.position": "nope",
}
"""One layer without norms or positions."""


def cost(context: int = 64, **edits: Any) -> Cost:
    return zoo.cost(zoo.load("small", **BARE | edits), context=context)


def matrices(**edits: Any) -> int:
    """Parameters of the layer."""
    found = cost(**edits)
    return found.params - found.params_embedding


def test_rmsnorm_has_half_the_parameters_of_layernorm() -> None:
    bare = matrices()
    rms, layer = (matrices(**{"block.norm": norm}) - bare for norm in ("rmsnorm", "layernorm"))
    assert (rms, layer) == (2 * D, 2 * 2 * D)


def test_gelu_and_its_approximations_differ_by_a_fiftieth_at_most() -> None:
    z = torch.linspace(-20, 20, 40_001, dtype=torch.float64)
    exact, *others = (UNGATED[name](z) for name in ("gelu", "gelu_tanh", "gelu_sigmoid"))
    tanh, sigmoid = (float((exact - other).abs().max()) for other in others)
    assert tanh < 0.0005 and round(sigmoid, 2) == 0.02


def test_a_gated_ffn_has_as_many_parameters_at_two_thirds_of_the_width() -> None:
    attention = matrices(**{"block.ffn": "none"})
    wide, gated, half_more = (
        matrices(**{"block.ffn": {"kind": kind, "d_ff": d_ff}}) - attention
        for kind, d_ff in (("gelu", 4 * D), ("swiglu", 2730), ("swiglu", 4 * D))
    )
    assert (wide, gated) == (8_388_608, 8_386_560)
    assert half_more == 1.5 * wide


def test_the_ffn_is_two_thirds_of_a_block_until_the_text_is_long() -> None:
    block = matrices(**{"block.ffn": {"kind": "gelu", "d_ff": "4x"}})
    assert matrices(**{"block.ffn": "none"}) == block / 3

    def scores_and_ffn(context: int) -> tuple[float, float]:
        """Forward FLOPs per token of the scores and of the FFN. A shorter text has the projections and the head."""
        bare = cost(context, **{"block.ffn": "none"}).flops_per_token_forward
        ffn = cost(context, **{"block.ffn": {"kind": "gelu", "d_ff": "4x"}}).flops_per_token_forward - bare
        return bare - cost(1, **{"block.ffn": "none"}).flops_per_token_forward, ffn

    scores, ffn = scores_and_ffn(8 * D)
    assert scores == pytest.approx(ffn, rel=1e-3)
    assert scores_and_ffn(D)[0] == pytest.approx(ffn / 8, rel=1e-2)


def test_heads_leave_products_and_parameters_alone() -> None:
    few, many = (cost(**{"block.mixer.heads": heads}) for heads in (1, 16))
    assert few.params == many.params
    assert few.flops_per_token_forward == pytest.approx(many.flops_per_token_forward, rel=0.01)  # but for the softmax


def test_shared_kv_heads_save_this_much_of_the_projections() -> None:
    kept = {kv: matrices(**{"block.ffn": "none", "block.mixer.kv_heads": kv}) for kv in (8, 4, 1)}
    assert [kept[kv] / kept[8] for kv in (4, 1)] == [0.75, 0.5625]
    output = D * D
    assert [round((kept[kv] - output) / (kept[8] - output), 3) for kv in (4, 1)] == [0.667, 0.417]


def test_llama_3_8b_caches_128_kib_per_token() -> None:
    assert zoo.cost(zoo.load("llama3"), context=8192).cache_bytes(1, 1, "bfloat16") == 128 * 2**10


def test_a_rolling_buffer_of_mistral_takes_an_eighth_at_32k() -> None:
    edits: list[dict[str, Any]] = [
        {},
        {"block.mixer.window": None},
        {"block.mixer.window": None, "block.mixer.kv_heads": 32},
    ]
    gib = [
        zoo.cost(zoo.load("mistral_7b", **each), context=2**15).cache_bytes(1, 2**15, "bfloat16") / 2**30
        for each in edits
    ]
    assert gib == [0.5, 4, 16]


def test_scores_grow_with_the_square_of_the_text() -> None:
    assert round(8192**2 / 1e6) == 67
    scores = [
        context * (cost(context).flops_per_token_forward - cost(1).flops_per_token_forward)
        for context in (2**12, 2**13)
    ]
    assert scores[1] / scores[0] == pytest.approx(4, rel=1e-3)


def test_vocabularies_of_bert_and_mistral() -> None:
    assert [zoo.load(name).vocab_size for name in ("bert", "mistral_7b")] == [30_522, 32_000]


def test_thirty_layers_of_2048_are_no_7_b_model() -> None:
    wide = {"d_model": 2048, "n_layers": 30, "block.mixer.heads": 16, "block.ffn": {"kind": "gelu", "d_ff": "4x"}}
    assert matrices(**wide) == 30 * 12 * 2048**2 == pytest.approx(1.5e9, rel=0.01)


def test_products_of_factors_below_one_vanish() -> None:
    assert math.prod([0.95] * 100) == pytest.approx(0.006, abs=5e-4)


LOGITS = Head(lambda rows: rows, 7)
"""A head whose logits are what it reads."""


def test_logits_of_ten_thousand_overflow_nothing() -> None:
    logits = torch.tensor([[[1e4, 0, 0, 0, 0, 0, 0], [0, -1e4, 0, 0, 0, 0, 1e4]]])
    _, nats = next_token_loss(LOGITS, logits, torch.tensor([[0, 5]]))
    assert nats.item() == pytest.approx(1e4 / 2)


def test_the_gradient_of_the_z_loss_is_in_proportion_to_log_z() -> None:
    logits = torch.randn(1, 5, 7, generator=torch.Generator().manual_seed(0), requires_grad=True)
    goals = torch.zeros(1, 5, dtype=torch.long)

    def gradient(z_loss: float) -> torch.Tensor:
        return torch.autograd.grad(next_token_loss(LOGITS, logits, goals, z_loss)[0], logits)[0]

    shares, log_z = logits.detach().softmax(-1), logits.detach().logsumexp(-1, keepdim=True)
    torch.testing.assert_close(gradient(1e-2) - gradient(0), 2e-2 * log_z * shares / 5)


def test_the_softmax_raises_the_rank_of_attention_and_a_causal_mask_fills_it() -> None:
    """Ranks of the scores of one narrow head and of its attention."""
    tokens, head = 16, 2
    queries, keys = torch.randn(2, tokens, head, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scores = queries @ keys.T
    causal = scores.masked_fill(torch.ones(tokens, tokens).triu(1).bool(), -torch.inf).softmax(-1)
    ranks = [int(torch.linalg.matrix_rank(each)) for each in (scores, scores.softmax(-1), causal)]
    assert ranks[0] == head < ranks[1] and ranks[2] == tokens


def test_convolutions_of_width_3_reach_two_tokens_further_per_layer() -> None:
    """Causal ones: as many as one on each side."""
    layers, tokens = 3, 12
    edits = {"d_model": 24, "n_layers": layers, "block.mixer": "none", "block.canon": {"width": 3, "before": ["ffn"]}}
    model = zoo.build(zoo.load("small", **edits)).requires_grad_(True)
    for name, weight in model.named_parameters():
        torch.nn.init.normal_(weight, std=0.3, generator=torch.Generator().manual_seed(len(name)))
    rows = model.embedding(torch.arange(tokens)[None]).detach().requires_grad_()
    model.embedding.register_forward_hook(lambda *_: rows)
    (gradient,) = torch.autograd.grad(model(torch.arange(tokens)[None])[0, -1].square().sum(), rows)
    reached = [place for place in range(tokens) if gradient[0, place].abs().max() > 0]
    assert reached == list(range(tokens - 1 - 2 * layers, tokens))


def test_a_rotation_keeps_lengths_so_that_cosines_depend_on_distance_alone() -> None:
    """Cosine attention goes with RoPE: normalising commutes with turning."""
    rope = RoPE().build(8, 1)
    query, key = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0))

    def cosine(at: int, of: int) -> float:
        here, there = (ForwardPass.of(torch.zeros(1, 1, dtype=torch.long), place, None) for place in (at, of))
        turned = rope.rotate_queries(query, here), rope.rotate_keys(key, there)
        assert turned[0].norm() == pytest.approx(query.norm())
        return torch.cosine_similarity(*turned, dim=-1).item()

    assert cosine(9, 4) == pytest.approx(cosine(105, 100), abs=1e-5)
    assert zoo.build(zoo.load("small", **{"block.mixer": {"kind": "cosine", "heads": 4, "position": "rope"}}))


def test_adam_holds_twelve_bytes_beside_each_weight_and_sgd_four() -> None:
    """Gradients and states, in float32."""
    for optimizer, expected in (({"kind": "adamw"}, 12), ({"kind": "sgd", "momentum": 0.0}, 4)):
        weight = torch.nn.Parameter(torch.ones(64, 32))
        weight.grad = torch.ones_like(weight)
        updates = TrainSpec.model_validate({"optimizer": optimizer}).optimizer.build(
            [Trained(weight, "input", 0.0, 1.0)], 1e-3
        )
        updates.step()
        states = [state for of in updates.state.values() for state in of.values() if torch.is_tensor(state)]
        held = weight.grad.nbytes + sum(state.nbytes for state in states if state.shape == weight.shape)
        assert held / weight.numel() == expected
    assert [7e9 * per_weight / 1e9 for per_weight in (4, 12)] == [28, 84]


@pytest.mark.parametrize(("temperature", "sharper"), [(0.5, True), (2.0, False)])
def test_a_temperature_below_one_sharpens_and_one_above_flattens(temperature: float, sharper: bool) -> None:
    logits = torch.randn(4, 50, generator=torch.Generator().manual_seed(0))
    sampled = Sampling(temperature=temperature).processed(logits, torch.zeros(4, 0, dtype=torch.long))
    torch.testing.assert_close(sampled, logits / temperature)
    entropies = [torch.distributions.Categorical(logits=each).entropy() for each in (sampled, logits)]
    assert ((entropies[0] < entropies[1]) == sharper).all()


def test_a_window_costs_as_much_for_every_token_of_a_long_text() -> None:
    windowed, full = (
        [cost(context, **{"block.mixer.window": window}).flops_per_token_forward for context in (2**13, 2**16)]
        for window in (64, None)
    )
    assert windowed[1] == pytest.approx(windowed[0], rel=1e-3)
    assert full[1] > 3 * full[0]  # all but the projections is eight times as much


def test_a_soft_cap_of_30_takes_100_to_29_9() -> None:
    assert 30 * math.tanh(100 / 30) == pytest.approx(29.9, abs=0.05)
    edits = {"d_model": 24, "block.mixer.heads": 2, "logit_scale": 1e6}
    free, capped = (zoo.build(zoo.load("small", **edits, final_softcap=cap)) for cap in (None, 30.0))
    tokens = torch.arange(8)[None]
    torch.testing.assert_close(capped(tokens), 30 * torch.tanh(free(tokens) / 30))


@pytest.mark.parametrize(("kv_heads", "slower"), [(32, 6.2), (1, 1.2)])
def test_a_token_reads_the_whole_cache_which_grows_with_the_text(kv_heads: int, slower: float) -> None:
    """2·L·K·d numbers more for each token before it. With Llama 7B on an H100, a token after 128 k others takes six
    times as long as the first, and with one head of keys and values a fifth longer."""
    layers, head_dim = 32, 128
    spec = zoo.load("llama", **{"block.mixer.kv_heads": kv_heads})
    short, long = (decode_cost(spec, 1, context).cache_elements for context in (1, 2**17))
    assert (long - short) / (2**17 - 1) == 2 * layers * kv_heads * head_dim
    first, last = (predict(spec, device("h100"), context=context).decode.memory_seconds for context in (1, 2**17))
    assert last / first == pytest.approx(slower, rel=0.03)
