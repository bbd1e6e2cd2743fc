"""Layers on chunks, against the equations of H-Net (arXiv:2507.07955 §2.2) written out token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.costs_decoding import decode_cost
from zoo.features.chunks import ratio_loss
from zoo.site import ForwardPass

CHUNKS = {"ratio": 3, "encoder_layers": 1, "decoder_layers": 2}
SMALL: dict[str, Any] = {"d_model": 24, "n_layers": 5, "vocab_size": 61, "block.mixer.heads": 4, "chunks": CHUNKS}


def layers(model: zoo.Decoder, which: range, x: Tensor) -> Tensor:
    """(T, D) → (T, D)."""
    step = ForwardPass.of(torch.zeros(1, len(x), dtype=torch.int64))
    for i in which:
        x = model.blocks[i](x[None], step)[0]
    return x


def cosine(a: Tensor, b: Tensor) -> Tensor:
    return (a @ b) / (a.norm() * b.norm())


def hidden(model: zoo.Decoder, tokens: Tensor) -> tuple[Tensor, Tensor, list[int]]:
    """The input to the decoder's layers for one text (T,), the probabilities, and the places where chunks begin."""
    parts = model.chunking
    embedded = model.embed(tokens[None], ForwardPass.of(tokens[None]))[0]
    x = parts.encoder_norm(layers(model, range(1), embedded))
    p = [torch.ones((), dtype=x.dtype)]
    for now, before in zip(x[1:], x[:-1], strict=True):
        p.append((1 - cosine(parts.q.weight @ now, parts.k.weight @ before)) / 2)
    begins = [t for t, share in enumerate(p) if share >= 0.5]
    z = parts.main_norm(layers(model, range(1, 3), x[begins]))
    smooth = [z[0]]
    for share, new in zip([p[t] for t in begins][1:], z[1:], strict=True):
        smooth.append(share * new + (1 - share) * smooth[-1])
    out = []
    for t in range(len(tokens)):
        chunk = sum(begin <= t for begin in begins) - 1
        certain = p[t] if t in begins else 1 - p[t]
        straight = certain + (1 - certain).detach()
        out.append(straight * smooth[chunk] + parts.residual.weight @ x[t] + parts.residual.bias)
    return torch.stack(out), torch.stack(p), begins


def test_every_text_is_read_as_the_paper_says_and_learned_from_as_it_says() -> None:
    model = random_model(zoo.load("small", **SMALL)).double().train()
    rows = random_tokens(model.spec, 3, 20)
    tokens, targets = rows[:, :-1], rows[:, 1:]
    theirs, losses, found = [], [], []
    for row in tokens:
        read, p, begins = hidden(model, row)
        found.append(len(begins))
        theirs.append(model.read_out(model.norm(layers(model, range(3, 5), read))))
        f, g = len(begins) / len(row), p.mean()
        losses.append(3 / 2 * (2 * f * g + (1 - f) * (1 - g)))
    assert len(set(found)) > 1, "rows with as many chunks each fill up nothing"
    torch.testing.assert_close(model(tokens), torch.stack(theirs))
    nats = torch.nn.functional.cross_entropy(torch.stack(theirs).flatten(0, 1), targets.flatten())
    expected = nats + 0.03 * torch.stack(losses).mean()
    wanted = torch.autograd.grad(expected, list(model.parameters()))
    objective, _ = model.loss(tokens, targets)
    torch.testing.assert_close(objective, expected, check_dtype=False)
    for ours, their in zip(torch.autograd.grad(objective, list(model.parameters())), wanted, strict=True):
        torch.testing.assert_close(ours, their, rtol=1e-5, atol=1e-7)


def test_the_ratio_loss_is_one_at_the_ratio_and_more_elsewhere_on_the_diagonal() -> None:
    """With F = G = 1/N, and by hand for a text in which every second token begins a chunk with certainty."""
    at = torch.zeros(1, 12)
    at[:, ::4] = 1
    assert ratio_loss(at, at.bool(), 4.0).item() == pytest.approx(1.0)
    half = torch.zeros(2, 12)
    half[:, ::2] = 1
    assert ratio_loss(half, half.bool(), 4.0).item() == pytest.approx(4 / 3 * (3 / 4 + 1 / 4))


def with_loss_over(over: str) -> dict[str, Any]:
    return {**SMALL, "chunks": {**CHUNKS, "loss_over": over}}


def test_the_ratio_loss_can_be_that_of_the_batch() -> None:
    """Texts of which one has a chunk at every token and one at none but its first: their mean ratio counts."""
    p, n = torch.stack([torch.ones(12), torch.tensor([1.0, *[0.0] * 11])]), 4.0
    losses = {over: ratio_loss(p, p.bool(), n, over).item() for over in ("text", "batch")}

    def loss(f: float) -> float:
        return n / (n - 1) * ((n - 1) * f * f + (1 - f) * (1 - f))

    assert losses["text"] == pytest.approx((loss(1.0) + loss(1 / 12)) / 2)
    assert losses["batch"] == pytest.approx(loss(13 / 24))


def test_a_model_learns_by_the_ratio_that_counts() -> None:
    """One text is a batch of its own; two differ in how many chunks they have."""
    whole, each = (random_model(zoo.load("small", **with_loss_over(over))).train() for over in ("batch", "text"))
    each.load_state_dict(whole.state_dict())
    tokens = random_tokens(whole.spec, 2, 14)
    for rows, same in ((1, True), (2, False)):
        losses = [model.loss(tokens[:rows, :-1], tokens[:rows, 1:])[0].item() for model in (whole, each)]
        assert (losses[0] == pytest.approx(losses[1], rel=1e-6)) is same


def test_a_batch_whose_ratio_counts_cannot_be_cut() -> None:
    whole, each = (zoo.load("small", **with_loss_over(over)) for over in ("batch", "text"))
    assert whole.couples_rows == "chunks.loss_over is batch"
    assert each.couples_rows is None


def test_a_chunk_begins_where_neighbours_differ_before_anything_is_learned() -> None:
    model = zoo.build(zoo.load("small", **SMALL))
    with zoo.taps(model, "borders") as seen:
        model(torch.full((1, 9), 7))
    assert seen["borders"][0].tolist() == [[True] + [False] * 8]


def test_rows_of_a_cache_are_reordered_with_their_chunks() -> None:
    model = random_model(zoo.load("small", **SMALL)).double()
    tokens = random_tokens(model.spec, 3, 14)
    cache = model.new_cache(3, 14)
    with torch.no_grad():
        model(tokens[:, :8], cache)
        cache.reorder(torch.tensor([2, 0, 2]))
        again = torch.cat((tokens[[2, 0, 2], :8], tokens[:, 8:]), dim=1)
        parts = [model(again[:, 8:9], cache), model(again[:, 9:], cache)]
        torch.testing.assert_close(torch.cat(parts, dim=1), model(again)[:, 8:])


def test_what_was_read_can_be_taken_back() -> None:
    model = random_model(zoo.load("small", **SMALL)).double()
    tokens = random_tokens(model.spec, 2, 14)
    cache = model.new_cache(2, 14)
    with torch.no_grad():
        model(tokens[:, :6], cache)
        undo = cache.mark(5)
        model(tokens[:, 6:11].flip(1), cache)
        assert undo(2) == 2, "states are not divided: the two are to be read again"
        torch.testing.assert_close(model(tokens[:, 6:], cache), model(tokens)[:, 6:])


def test_layers_between_cost_what_they_cost_for_their_share_of_the_tokens() -> None:
    spec = zoo.load("small", **SMALL)
    plain = spec.edit({"chunks": None})
    whole, part = zoo.cost(plain, 100), zoo.cost(spec, 100)
    layer, chunks = spec.layers[1], math.ceil(100 / 3)
    saved = 2 * (layer.cost(24, 100).flops - chunks / 100 * layer.cost(24, chunks).flops)
    between = 3 * 24 * 24
    assert whole.flops_per_token_forward - part.flops_per_token_forward == pytest.approx(saved - 2 * between)
    assert part.params - whole.params == between + 24 + 2 * 24
    assert decode_cost(spec, 1, 100).flops < decode_cost(plain, 1, 100).flops


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"n_layers": 3}, "needs n_layers of at least 4, one between encoder and decoder, not 3"),
        ({"chunks.ratio": 1}, "greater than 1"),
        ({"unet_skips": True}, "chunks: unet_skips needs every token in the stream of every layer"),
        ({"visible": "all"}, "visible: chunks needs a causal model"),
        ({"block.ffn": {"kind": "topk_moe", "d_ff": 8}}, r"chunks: block\.ffn \(topk_moe\) needs rows without padding"),
        ({"block.mixer": "dsa"}, r"chunks: block\.mixer \(dsa\) needs rows without padding"),
        (
            {"block.mixer.value_residual": True},
            "chunks: block.mixer.value_residual needs keys or values of other layers",
        ),
    ],
)
def test_what_needs_tokens_in_all_layers_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        zoo.load("small", **{**SMALL, **edits})


def test_a_paged_cache_is_refused() -> None:
    with pytest.raises(zoo.UnsupportedError, match="paged does not support layers that run on only some of the tokens"):
        zoo.build(zoo.load("small", **SMALL)).new_cache(1, 8, kind="paged")


def test_training_learns_the_text_and_the_ratio() -> None:
    """Words of three letters, in random order, apart by a space."""
    torch.manual_seed(0)
    spec = zoo.load("small", **{**SMALL, "vocab_size": 16, "chunks.loss": 0.3})
    model = zoo.build(spec).train()
    words = torch.cat((torch.randint(1, 16, (8, 3)), torch.zeros(8, 1, dtype=torch.int64)), dim=1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        text = words[torch.randint(8, (8, 12))].flatten(1)
        optimizer.zero_grad()
        objective, nats = model.loss(text[:, :-1], text[:, 1:])
        objective.backward()
        optimizer.step()
    text = words[torch.randint(8, (8, 12))].flatten(1)
    with torch.no_grad(), zoo.taps(model, "borders") as seen:
        model(text)
    assert nats.item() < 1.2, "log 16 is 2.77; a word that is known has log 8 / 4 = 0.52"
    assert 0.2 < seen["borders"][0].float().mean().item() < 0.5


def test_the_weight_of_the_ratio_loss_shows_in_training_alone() -> None:
    spec = zoo.load("small", **SMALL)
    other = spec.edit({"chunks.loss": 0.5})
    assert other.computation() == spec.computation()
    assert other.digest != spec.digest
    assert spec.edit({"chunks.ratio": 5}).computation() != spec.computation(), "declared costs differ"
