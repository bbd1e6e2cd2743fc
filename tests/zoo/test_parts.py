"""Widths, placements, loss and decoding against their formulas; a whole model against transformers."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.ffns._dense import features
from zoo.loss import Head, SoftTargets, Sums, next_token_loss
from zoo.site import ForwardPass


@pytest.mark.parametrize(
    ("width", "d_model", "multiple", "expected"),
    [("4x", 128, 8, 512), ("8/3x", 128, 8, 344), ("8/3x", 96, 8, 256), ("2.5x", 100, 1, 250), (77, 128, 8, 77),
     ("8/3x", 4096, 256, 11008), ("1/100x", 8, 8, 8), ("3.5x", 4096, 8, 14336)],
)  # fmt: skip
def test_ratios_round_to_the_nearest_multiple(width: int | str, d_model: int, multiple: int, expected: int) -> None:
    assert features(width, d_model, multiple) == expected


@pytest.mark.parametrize("placement", ["pre", "post", "sandwich", "double", "output", "normed"])
def test_placements_are_their_formulas(placement: str) -> None:
    written = {"kind": "post", "norm_in": True} if placement == "sandwich" else placement
    spec = zoo.load("small", d_model=8, n_layers=1, **{"block.norm_placement": written})
    block = random_model(spec).blocks[0]
    x = torch.randn(1, 3, 8, generator=torch.Generator().manual_seed(0))

    def norm(x: torch.Tensor, gain: torch.Tensor) -> torch.Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * gain

    def feed(h: torch.Tensor) -> torch.Tensor:
        return block.ffn(h, ForwardPass.of(h))

    residual = block.ffn_residual
    expected = {
        "pre": lambda f: x + f(norm(x, residual.norm_in.gain)),
        "post": lambda f: norm(x + f(x), residual.norm_after.gain),
        "sandwich": lambda f: norm(x + f(norm(x, residual.norm_in.gain)), residual.norm_after.gain),
        "output": lambda f: x + norm(f(x), residual.norm_out.gain),
        "double": lambda f: x + norm(f(norm(x, residual.norm_in.gain)), residual.norm_out.gain),
        "normed": lambda f: norm(x, residual.norm_in.gain) + f(norm(x, residual.norm_in.gain)),
    }[placement](feed)
    torch.testing.assert_close(residual(x, feed), expected, rtol=1e-5, atol=1e-5)


def test_post_norm_needs_no_final_norm() -> None:
    spec = zoo.load("small")
    assert spec.has_final_norm
    assert not spec.edit({"block.norm_placement": "post"}).has_final_norm
    assert spec.edit({"block.norm_placement": "post", "final_norm": True}).has_final_norm


def test_loss_is_mean_negative_log_likelihood_and_z_loss_is_the_mean_square_of_log_z(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logits = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[3, -100, 0, 2]])
    kept = [(logits[0, t].tolist(), targets[0, t].item()) for t in (0, 2, 3)]
    log_z = [math.log(sum(math.exp(v) for v in row)) for row, _ in kept]
    nats = sum(z - row[goal] for z, (row, goal) in zip(log_z, kept, strict=True)) / 3
    for grad, at_once in itertools.product((True, False), (1, 3, 256)):
        monkeypatch.setattr(Head, "rows_at_once", lambda _head, _rows, at_once=at_once: at_once)
        with torch.set_grad_enabled(grad):
            objective, measured = next_token_loss(Head(lambda rows: rows, 5), logits, targets, z_loss=0.1)
        assert measured.item() == pytest.approx(nats, rel=1e-5)
        assert objective.item() == pytest.approx(nats + 0.1 * sum(z * z for z in log_z) / 3, rel=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_llama_logits_are_those_of_transformers(tied: bool, kv_heads: int) -> None:
    heads = {"block.mixer.heads": 4, "block.mixer.kv_heads": kv_heads, "block.mixer.head_dim": 10}
    sizes = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.ffn.d_ff": 40, "tie_embeddings": tied}
    spec = zoo.load("llama", **heads, **sizes)
    model, tokens = random_model(spec), random_tokens(spec, 2, 17)
    theirs = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=61, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=kv_heads,
            head_dim=10, intermediate_size=40, rms_norm_eps=1e-6, rope_theta=1e4, tie_word_embeddings=tied,
        )
    ).eval()  # fmt: skip
    theirs.load_state_dict(_llama_names(model.state_dict(), tied))
    torch.testing.assert_close(model(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-4)


def _llama_names(weights: dict[str, torch.Tensor], tied: bool) -> dict[str, torch.Tensor]:
    table = {
        "mixer.q": "self_attn.q_proj", "mixer.k": "self_attn.k_proj", "mixer.v": "self_attn.v_proj",
        "mixer.o": "self_attn.o_proj", "ffn.gate": "mlp.gate_proj", "ffn.up": "mlp.up_proj",
        "ffn.down": "mlp.down_proj", "mixer_residual.norm_in.gain": "input_layernorm.weight",
        "ffn_residual.norm_in.gain": "post_attention_layernorm.weight", "blocks.": "model.layers.",
        "embedding.": "model.embed_tokens.", "head.": "lm_head.",
    }  # fmt: skip
    named = {}
    for name, value in weights.items():
        new = "model.norm.weight" if name == "norm.gain" else name
        for ours, theirs in table.items():
            new = new.replace(ours, theirs)
        named[new] = value
    if tied:
        named["lm_head.weight"] = weights["embedding.weight"]
    return named


def test_greedy_decoding_takes_the_best_token_each_time() -> None:
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=31)
    model, tokens = random_model(spec), random_tokens(spec, 2, 5)
    out, slow = zoo.generate(model, tokens, 6), tokens
    for _ in range(6):
        slow = torch.cat((slow, model(slow)[:, -1].argmax(-1, keepdim=True)), dim=1)
    assert torch.equal(out, slow[:, 5:])


def test_sampling_follows_the_softmax() -> None:
    spec = zoo.load("small", d_model=16, n_layers=1, vocab_size=5)
    model, tokens = random_model(spec), random_tokens(spec, 1, 3).repeat(20_000, 1)
    drawn = zoo.generate(model, tokens, 1, temperature=1.5, generator=torch.Generator().manual_seed(0))
    share = F.one_hot(drawn[:, 0], 5).float().mean(0)
    expected = (model(tokens[:1])[0, -1] / 1.5).softmax(-1)
    torch.testing.assert_close(share, expected, rtol=0, atol=0.015)


@pytest.mark.parametrize(
    "edits",
    [
        {"z_loss": 0.01},
        {"final_softcap": 3.0, "logit_scale": 0.5, "head_bias": True},
        {"tie_embeddings": False, "head_transform": "gelu", "final_norm": False},
        {"embedding_dim": 8, "layer_loss": 0.3, "mtp": {"depth": 2}},
    ],
    ids=lambda edits: next(iter(edits)),
)
@pytest.mark.parametrize("at_once", [5, 256])
def test_the_loss_read_out_in_pieces_has_autograds_gradients(
    edits: dict[str, Any], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradients are autograd's of the plain formula, over logits that are all there at once. Some targets do not
    count."""
    spec = zoo.load("small", d_model=16, n_layers=2, vocab_size=61, **edits)
    tokens = random_tokens(spec, 2, 9)
    targets = tokens[:, 1:].masked_fill(torch.arange(8) % 3 == 1, -100)

    def plain(
        head: Head, hidden: torch.Tensor, goals: torch.Tensor, z_loss: float = 0.0, soft: SoftTargets | None = None
    ) -> Sums:
        assert soft is None
        logits, goals = head.read_out(hidden.flatten(0, 1)), goals.flatten()
        nats = F.cross_entropy(logits, goals, reduction="sum")
        return Sums(nats + z_loss * logits[goals != -100].logsumexp(-1).square().sum(), nats.detach())

    monkeypatch.setattr(Head, "rows_at_once", lambda _head, _rows, at_once=at_once: at_once)
    found = []
    for reference in (False, True):
        if reference:
            monkeypatch.setattr("zoo.loss.summed_loss", plain)
            monkeypatch.setattr("zoo.features.mtp.summed_loss", plain)
        model = random_model(spec).train()
        objective, nats = model.loss(tokens[:, :-1], targets)
        objective.backward()
        found.append((objective, nats, [p.grad for p in model.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-4, atol=1e-6)
