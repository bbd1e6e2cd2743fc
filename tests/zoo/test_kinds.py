"""Encoders, encoders with decoders and prefix models: what a token sees, one pair at a time, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import zoo
from zoo.attend import attend, attention_backend
from zoo.attending.visible import Scoring, Visible
from zoo.conformance.checking import conforms
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.costs_decoding import decode_cost
from zoo.mixers._cross import CrossAttention
from zoo.positions.two_dimensional import TwoTables
from zoo.residuals.deepnorm import encoder_decoder
from zoo.settings.identity import digest_of
from zoo.site import ForwardPass, Memory

SMALL: dict[str, Any] = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "block.mixer.heads": 4}
LENGTH = 9


def sees(mask_kind: str, query: int, key: int, left: int, right: int, prefix: int) -> bool:
    """The definition, for a query that is not padding. A prefix counts tokens of the row's own text."""
    text = left <= key < LENGTH - right
    ahead = mask_kind == "all" or (mask_kind == "prefix" and key < left + prefix)
    return text and (key <= query or ahead)


@pytest.mark.parametrize("backend", ["plain", "fused"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("mask_kind", ["causal", "all", "prefix"])
def test_a_query_attends_to_what_it_sees(
    mask_kind: Any, padded: bool, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("zoo.attending.visible.QUERIES_AT_ONCE", 4)
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, LENGTH, 6, generator=generator) for _ in range(3))
    left = [0, 2, 3] if padded else [0] * 3
    right = [0, 1, 4] if padded and mask_kind == "all" else [0] * 3
    prefix = [0, 3, 5]
    index = torch.arange(LENGTH)
    visible = Visible(
        index,
        index,
        left_pad=torch.tensor(left) if padded else None,
        mask_kind=mask_kind,
        prefix_ends=torch.tensor(left) + torch.tensor(prefix) if mask_kind == "prefix" else None,
        ends=LENGTH - torch.tensor(right) if any(right) else None,
    )
    with attention_backend(backend):
        out = attend(q, k, v, visible, Scoring(0.4))
    assert out.isfinite().all()
    alone = visible.alone().expand(3, 1, LENGTH)[:, 0]
    for b in range(3):
        for t in range(left[b], LENGTH - right[b]):
            keys = [s for s in range(LENGTH) if sees(mask_kind, t, s, left[b], right[b], prefix[b])]
            assert alone[b, t] == (keys == [t])
            for h in range(2):
                weights = torch.stack([(q[b, h, t] @ k[b, h, s] * 0.4).exp() for s in keys])
                expected = sum(w * v[b, h, s] for w, s in zip(weights / weights.sum(), keys, strict=True))
                torch.testing.assert_close(out[b, h, t], expected, rtol=1e-4, atol=1e-5)


def test_cross_attention_is_its_definition() -> None:
    """2 kv heads for 4, biases, a scale, padding on both sides; then from the cache."""
    spec = CrossAttention(heads=4, kv_heads=2, head_dim=5, bias=True, scale=0.3).resolve(12, None)
    layer = spec.build(12)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    x, hidden = (torch.randn(2, n, 12, generator=generator) for n in (3, 7))
    text = torch.tensor([[1] * 7, [0, 0, 1, 1, 1, 1, 0]], dtype=torch.bool)
    cache = layer.new_cache(2, 8, torch.float32)
    step = ForwardPass.of(x[..., 0])
    step.memory = Memory(hidden, text)
    with torch.no_grad():
        found = layer(x, step)
        assert torch.equal(layer(x, step, cache), found)
        step.memory = Memory(None, text)
        assert torch.equal(layer(x, step, cache), found)
        q, k, v = layer.q(x).view(2, 3, 4, 5), layer.k(hidden).view(2, 7, 2, 5), layer.v(hidden).view(2, 7, 2, 5)
        for b in range(2):
            for t in range(3):
                heads = []
                for h in range(4):
                    keys = [s for s in range(7) if text[b, s]]
                    scores = [math.exp(float(q[b, t, h] @ k[b, s, h // 2]) * 0.3) for s in keys]
                    heads.append(sum(w / sum(scores) * v[b, s, h // 2] for w, s in zip(scores, keys, strict=True)))
                torch.testing.assert_close(found[b, t], layer.o(torch.cat(heads)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "edits",
    [
        {"encoder.n_layers": 1, "block.cross": {"kv_heads": 2, "head_dim": 5, "bias": ["q", "v"], "scale": 0.5}},
        {"encoder.n_layers": 2, "encoder.block": {"mixer.heads": 2, "ffn": "gelu"}, "block.mixer": "mla"},
        {"encoder.n_layers": 3, "encoder.block.mixer": {"kind": "attention", "heads": 3}, "block.mixer": "mamba2",
         "block.cross.heads": 3},
        {"encoder.n_layers": 1, "encoder.blocks": {"other": {"ffn": "relu"}}, "encoder.first": ["other"],
         "block.norm_placement": "deepnorm", "tie_embeddings": False, "embedding_dim": 10},
        {"visible": "all", "token_types": 3, "head_transform": "relu", "head_bias": True, "embedding_norm": True},
        {"visible": "prefix", "block.mixer.position": {"kind": "t5", "buckets": 9, "max_distance": 12}},
        {"encoder.n_layers": 2, "encoder.final_norm": False, "block.mixer.position": "alibi"},
    ],
    ids=str,
)  # fmt: skip
def test_kinds_conform(edits: dict[str, Any]) -> None:
    conforms(zoo.load("small", **SMALL, **{"block.ffn.d_ff": 40}, **edits))


def test_the_transformer_is_that_of_torch() -> None:
    """Post-norm, ReLU, sinusoids, one table thrice: against torch.nn.Transformer on the same weights."""
    spec = zoo.load("transformer-base", d_model=16, n_layers=2, vocab_size=31, **{
        "encoder.n_layers": 3, "block.mixer.heads": 2, "block.ffn.d_ff": 20, "block.mixer.bias": True,
        "block.cross.bias": True,
    })  # fmt: skip
    ours = random_model(spec)
    assert ours.encoder is not None
    sizes = {"d_model": 16, "nhead": 2, "dim_feedforward": 20, "layer_norm_eps": 1e-6, "batch_first": True}
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**sizes), 3, enable_nested_tensor=False).eval()
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**sizes), 2).eval()
    for theirs, blocks in ((encoder, ours.encoder.blocks), (decoder, ours.blocks)):
        for layer, block in zip(theirs.layers, blocks, strict=True):
            _copy(layer, block)
    tokens, source = random_tokens(spec, 2, 7), random_tokens(spec, 2, 11, seed=3)
    sinusoids = ours.positions["0"](ForwardPass.of(source))
    with torch.no_grad():
        embedded = [ours.embedding(x) * 4 + sinusoids[: x.shape[1]] for x in (source, tokens)]
        causal = nn.Transformer.generate_square_subsequent_mask(7)
        stream = decoder(embedded[1], encoder(embedded[0]), tgt_mask=causal)
        expected = stream @ ours.embedding.weight.T
        torch.testing.assert_close(ours(tokens, encoder_tokens=source), expected, rtol=1e-4, atol=1e-4)


def _copy(theirs: Any, ours: Any) -> None:
    """Our block into torch's layer."""
    pairs = [(theirs.self_attn, ours.mixer)] + ([(theirs.multihead_attn, ours.cross)] if ours.cross else [])
    residuals = [ours.mixer_residual, *([ours.cross_residual] if ours.cross else []), ours.ffn_residual]
    with torch.no_grad():
        for attention, own in pairs:
            attention.in_proj_weight.copy_(torch.cat([own.q.weight, own.k.weight, own.v.weight]))
            attention.in_proj_bias.copy_(torch.cat([own.q.bias, own.k.bias, own.v.bias]))
            attention.out_proj.load_state_dict(own.o.state_dict())
        theirs.linear1.load_state_dict(ours.ffn.up.state_dict())
        theirs.linear2.load_state_dict(ours.ffn.down.state_dict())
        for number, residual in enumerate(residuals, start=1):
            norm = getattr(theirs, f"norm{number}")
            norm.weight.copy_(residual.norm_after.gain)
            norm.bias.copy_(residual.norm_after.bias)


def test_deepnorm_has_other_constants_beside_an_encoder() -> None:
    """Wang et al. 2022, table of §4.1, at N = M = 6: α 1.41794 and 2.05977, β 0.49699 and 0.34329."""
    model = zoo.build(
        zoo.load("small", **{**SMALL, "n_layers": 6}, encoder={"n_layers": 6}, **{"block.norm_placement": "deepnorm"})
    )
    assert model.encoder is not None
    for stack, alpha, beta in ((model.encoder, 1.41794, 0.49699), (model, 2.05977, 0.34329)):
        block: Any = stack.blocks[3]
        assert block.ffn_residual.stream_scale == pytest.approx(alpha, rel=1e-5)
        assert block.ffn.up.init_gain == block.mixer.v.init_gain == pytest.approx(beta, rel=1e-4)
    assert encoder_decoder(6, 6)[0].alpha == pytest.approx(1.41794, rel=1e-5)


def test_initial_values_of_the_encoder_are_drawn_for_its_own_depth() -> None:
    model = zoo.build(zoo.load("small", **SMALL, encoder={"n_layers": 8}))
    assert model.encoder is not None
    for stack, layers in ((model.encoder, 8), (model, 2)):
        o: Any = stack.blocks[0].mixer.o.weight
        assert o.std().item() == pytest.approx(24**-0.5 / math.sqrt(2 * layers), rel=0.15)
    assert not torch.equal(model.encoder.blocks[0].mixer.q.weight, model.blocks[0].mixer.q.weight)


def test_beams_take_their_encoders_text_with_them() -> None:
    spec = zoo.load("small", **SMALL, encoder={"n_layers": 1})
    model, tokens, source = random_model(spec), random_tokens(spec, 3, 6), random_tokens(spec, 3, 5, seed=2)
    rows, pads = torch.tensor([2, 0, 0]), torch.tensor([0, 2, 1])
    cache = model.new_cache(3, 6, encoder_capacity=5)
    with torch.no_grad():
        model(tokens[:, :4], cache, encoder_tokens=source, encoder_left_pad=pads)
        cache.reorder(rows)
        last = model(tokens[rows, 4:], cache)
        whole = model(tokens[rows], encoder_tokens=source[rows], encoder_left_pad=pads[rows])
    torch.testing.assert_close(last, whole[:, 4:], rtol=1e-4, atol=1e-5)


def test_places_in_two_dimensions() -> None:
    spec = zoo.load(
        "small", **SMALL, visible="prefix", **{"block.mixer.position": {"kind": "two_dimensional", "length": 9}}
    )
    model, tokens = random_model(spec), random_tokens(spec, 1, 6)
    places, blocks = torch.tensor([[0, 1, 2, 3, 1, 1]]), torch.tensor([[0, 0, 0, 0, 1, 2]])
    tables: Any = model.positions["0"]
    assert isinstance(tables, TwoTables)
    step = model.step(tokens, 0, None, {"places": places, "block_places": blocks})
    expected = tables.table.weight[places] + tables.block_table.weight[blocks]
    torch.testing.assert_close(tables(step), expected, rtol=0, atol=0)
    alone = tables.table.weight[:6] + tables.block_table.weight[0]
    torch.testing.assert_close(tables(model.step(tokens, 0, None, {})), alone, rtol=0, atol=0)
    cache, given = model.new_cache(1, 6), {"prefix": torch.tensor([4])}
    with torch.no_grad():
        whole = model(tokens, places=places, block_places=blocks, **given)
        parts = [model(tokens[:, :4], cache, places=places[:, :4], block_places=blocks[:, :4], **given)]
        parts += [
            model(tokens[:, i : i + 1], cache, places=places[:, i : i + 1], block_places=blocks[:, i : i + 1])
            for i in (4, 5)
        ]
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="a text of 10 tokens is longer than the 9 learned positions"):
        model(tokens, places=places + 6)


def test_rope_turns_by_the_places_that_are_given() -> None:
    spec = zoo.load("small", **SMALL)
    model, tokens = random_model(spec), random_tokens(spec, 2, 7)
    with torch.no_grad():
        shifted = model(tokens, places=torch.arange(7).expand(2, 7) + 100)  # distances alone count
        torch.testing.assert_close(shifted, model(tokens), rtol=1e-3, atol=1e-4)
        spread = model(tokens, places=torch.arange(7).expand(2, 7) * 2)
    assert not torch.allclose(spread, shifted, rtol=1e-2)


def test_a_causal_model_has_no_use_for_a_prefix() -> None:
    model, tokens = random_model(zoo.load("small", **SMALL)), random_tokens(zoo.load("small", **SMALL), 2, 7)
    assert torch.equal(model(tokens, prefix=torch.tensor([3, 5])), model(tokens))
    prefix = random_model(zoo.load("small", **SMALL, visible="prefix"))
    assert torch.equal(prefix(tokens, prefix=torch.tensor([1, 1])), prefix(tokens))
    assert torch.equal(prefix(tokens), model(tokens))


def test_a_model_of_before_says_nothing_new() -> None:
    """Settings at their defaults are not written, so that specs and digests are those of models without them: today's,
    and those of earlier versions, which were of every default and by which their stores are read."""
    spec = zoo.load("small")
    assert not {"visible", "encoder", "token_types", "head_transform"} & spec.dump().keys()
    assert "cross" not in spec.dump()["block"] and "cross" not in spec.resolve()["layers"][0]
    llama3 = zoo.load("llama3")
    assert digest_of(llama3.resolve(), 16) == "95a9e1ad168f04f2" and digest_of(spec.resolve(), 16) == "94da6ba53bcb403f"
    assert llama3.digest == "a5dd69dedd40adfacf65" and spec.digest == "021d66511ea68a8c09d2"


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "state": ({"visible": "all", "block.mixer": "retention"}, "block.mixer: retention is causal: it cannot be used"),
    "window": ({"visible": "prefix", "block.mixer.window": 3}, "block.mixer.window: is causal: it cannot be used"),
    "conv": ({"visible": "all", "block.mixer.conv": 3}, "block.mixer.conv: is causal: it cannot be used"),
    "xpos": ({"visible": "all", "block.mixer.position": "xpos"}, "block.mixer.position: xpos needs causal attention"),
    "buckets": ({"visible": "all", "block.mixer.position": {"kind": "t5", "buckets": 3}}, "must be at least 4 for"),
    "mtp": ({"visible": "prefix", "mtp.depth": 1}, "visible: mtp needs a causal model without an encoder"),
    "both": ({"visible": "all", "encoder.n_layers": 1}, "encoder: cannot be combined with visible: all"),
    "no encoder": ({"block.cross.heads": 2}, "block.cross: needs an encoder to attend to: set encoder"),
    "kv heads": ({"encoder.n_layers": 1, "block.cross.kv_heads": 3}, "block.cross.kv_heads: 3 kv heads do not"),
    "parallel": ({"encoder.n_layers": 1, "block.topology": "parallel"}, "block.topology: must be serial for cross"),
    "typo": ({"encoder.n_layer": 1}, r"encoder.n_layer: unknown key \(did you mean 'n_layers'\?\)"),
    "inside": ({"encoder": {"n_layers": 1, "block.mixer.headz": 1}}, "encoder.block.mixer.headz: unknown key"),
    "its state": ({"encoder.n_layers": 1, "block.mixer": "retention"}, "encoder.block.mixer: retention is causal"),
    "types": ({"encoder.n_layers": 1, "token_types": 2}, "token_types: not supported with an encoder"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_at_its_path(case: str) -> None:
    edits, message = REFUSED[case]
    with pytest.raises(zoo.SpecError, match=message):
        zoo.load("small", **SMALL, **edits)


def call(edits: dict[str, Any], message: str, cached: bool = False, **given: Tensor) -> None:
    spec = zoo.load("small", **SMALL, **edits)
    model, tokens = zoo.build(spec), random_tokens(spec, 2, 4)
    cache = model.new_cache(2, 8) if cached else None
    with pytest.raises(ValueError, match=message):
        model(tokens, cache, **given)


def test_what_a_pass_cannot_do_is_one_error() -> None:
    two, tokens = torch.tensor([1, 2]), torch.zeros(2, 9, dtype=torch.int64)
    call({"encoder.n_layers": 1}, "this model has an encoder: give it encoder_tokens")
    call({}, "this model has no encoder and takes tokens only", encoder_tokens=tokens)
    full = "the cache is for at most 8 encoder tokens, not 9"
    call({"encoder.n_layers": 1}, full, cached=True, encoder_tokens=tokens)
    call({}, "token_types need a model with token-type embeddings", token_types=tokens[:, :4])
    call({"visible": "prefix"}, "right_pad needs a model with visible: all, not prefix", right_pad=two)
    call({"visible": "prefix"}, "the first chunk must contain the whole prefix", cached=True, prefix=two + 3)
    call(
        {"block.mixer.position": "alibi"},
        "places cannot be passed to a model with alibi positions",
        places=tokens[:, :4],
    )
    model = zoo.build(zoo.load("small", **SMALL, encoder={"n_layers": 1}))
    cache = model.new_cache(2, 8)
    model(tokens[:, :2], cache, encoder_tokens=tokens[:, :5])
    with pytest.raises(ValueError, match="encoder_tokens belong to the first chunk only"):
        model(tokens[:, :2], cache, encoder_tokens=tokens[:, :5])
    with pytest.raises(zoo.SpecError, match="does not decode"):
        decode_cost(zoo.load("small", visible="all"), 1, 8)


def test_all_of_the_encoder_learns_and_is_seen() -> None:
    """Taps of both stacks have names of their own."""
    spec = zoo.load("small", **SMALL, encoder={"n_layers": 1})
    model, tokens = random_model(spec), random_tokens(spec, 2, 7)
    with zoo.taps(model, "*stream") as seen:
        model(tokens, **given_to(spec, 2, 7))
    assert sorted(seen) == ["blocks.0.stream", "blocks.1.stream", "encoder.blocks.0.stream"]


def test_an_encoder_decoder_writes_what_it_would_without_a_cache() -> None:
    spec = zoo.load("small", **SMALL, encoder={"n_layers": 1})
    model, prompt, source = random_model(spec), random_tokens(spec, 2, 2), random_tokens(spec, 2, 7, seed=2)
    written = zoo.generate(model, prompt, 5, encoder_tokens=source)
    text = prompt
    for _ in range(5):
        text = torch.cat((text, model(text, encoder_tokens=source)[:, -1:].argmax(dim=-1)), dim=1)
    assert torch.equal(written, text[:, 2:])


def test_what_the_encoders_layers_add_to_the_objective_is_in_it() -> None:
    """Balance of its experts, which the decoder, without any, knows nothing of."""
    experts = {"ffn": {"kind": "topk_moe", "experts": 4, "top_k": 1, "d_ff": 8, "balance_loss": 0.5}}
    spec = zoo.load("small", **SMALL, encoder={"n_layers": 1, "block": experts})
    model, tokens = random_model(spec).train(), random_tokens(spec, 2, 7)
    objective, nats = model.loss(tokens, tokens, **given_to(spec, 2, 7))
    assert objective.item() > nats.item() + 0.4
