"""Multi-head latent attention against transformers' DeepSeek models, and its two forms against each other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import DeepseekV2Config, DeepseekV2ForCausalLM, DeepseekV3Config, DeepseekV3ForCausalLM

import zoo
from tests.zoo.slow import close, rms
from zoo.conformance.combinations import random_model, random_tokens
from zoo.mixers.mla import MLA
from zoo.site import ForwardPass

SIZES = {"heads": 3, "kv_rank": 10, "nope_dim": 6, "rope_dim": 4, "v_dim": 5}


def spec_of(**mixer: Any) -> zoo.ModelSpec:
    mixer = {"kind": "mla", **SIZES, **mixer}
    return zoo.load("small", d_model=24, n_layers=2, **{"block.mixer": mixer, "block.ffn.d_ff": 40})


def hf_config(kind: type, q_rank: int | None, **options: Any) -> Any:
    """Dense layers only: experts are tested elsewhere."""
    return kind(
        vocab_size=61,
        hidden_size=24,
        intermediate_size=40,
        num_hidden_layers=2,
        first_k_dense_replace=2,
        num_attention_heads=3,
        num_key_value_heads=3,
        q_lora_rank=q_rank,
        kv_lora_rank=10,
        qk_nope_head_dim=6,
        qk_rope_head_dim=4,
        v_head_dim=5,
        tie_word_embeddings=False,
        **options,
    )


def randomise(model: torch.nn.Module) -> None:
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            centre = 1.0 if parameter.dim() == 1 else 0.0
            parameter.copy_(centre + 0.3 * torch.randn(parameter.shape, generator=generator))


def copy_weights(hf: Any, model: zoo.Decoder) -> None:
    """Names of transformers → ours; its key and value projections are one matrix, head by head."""
    weights = {"embedding.weight": hf.model.embed_tokens.weight, "head.weight": hf.lm_head.weight}
    weights["norm.gain"] = hf.model.norm.weight
    for i, layer in enumerate(hf.model.layers):
        own, block = layer.self_attn, f"blocks.{i}."
        q = {"q": "q_proj"} if own.q_lora_rank is None else {"q": "q_b_proj", "q_down": "q_a_proj"}
        for name, theirs in {**q, "kv_down": "kv_a_proj_with_mqa", "o": "o_proj"}.items():
            projection = getattr(own, theirs)
            weights[f"{block}mixer.{name}.weight"] = projection.weight
            if projection.bias is not None:
                weights[f"{block}mixer.{name}.bias"] = projection.bias
        if own.q_lora_rank is not None:
            weights[f"{block}mixer.q_norm.gain"] = own.q_a_layernorm.weight
        weights[f"{block}mixer.kv_norm.gain"] = own.kv_a_layernorm.weight
        k, v = own.kv_b_proj.weight.unflatten(0, (3, 11)).split((6, 5), dim=1)
        weights[f"{block}mixer.k.weight"], weights[f"{block}mixer.v.weight"] = k.flatten(0, 1), v.flatten(0, 1)
        for name in ("gate", "up", "down"):
            weights[f"{block}ffn.{name}.weight"] = getattr(layer.mlp, f"{name}_proj").weight
        weights[f"{block}mixer_residual.norm_in.gain"] = layer.input_layernorm.weight
        weights[f"{block}ffn_residual.norm_in.gain"] = layer.post_attention_layernorm.weight
    model.load_state_dict(weights)


V2 = (DeepseekV2Config, DeepseekV2ForCausalLM, "interleaved", {})
V3 = (DeepseekV3Config, DeepseekV3ForCausalLM, "interleaved", {"rope_interleave": True})
V3_HALF = (DeepseekV3Config, DeepseekV3ForCausalLM, "half", {"rope_interleave": False})


@pytest.mark.parametrize("family", [V2, V3, V3_HALF], ids=["v2", "v3", "v3-half"])
@pytest.mark.parametrize("q_rank", [None, 7])
@pytest.mark.parametrize("bias", [False, True])
def test_logits_are_those_of_transformers(family: tuple[Any, ...], q_rank: int | None, bias: bool) -> None:
    config_of, model_of, layout, options = family
    hf = model_of(hf_config(config_of, q_rank, attention_bias=bias, **options)).eval()
    randomise(hf)
    spec = spec_of(q_rank=q_rank, bias=bias, position={"kind": "rope", "layout": layout}).edit(
        {"vocab_size": 61, "tie_embeddings": False, "embedding_scale": 1.0, "block.norm.eps": hf.config.rms_norm_eps}
    )
    model = zoo.build(spec).eval()
    copy_weights(hf, model)
    tokens = random_tokens(spec, 2, 15)
    with torch.no_grad():
        expected = hf(tokens).logits
        torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())
        cache = model.new_cache(batch=2, capacity=15)
        decoded = torch.cat([model(chunk, cache) for chunk in tokens.split([4, 1, 1, 6, 3], dim=1)], dim=1)
        torch.testing.assert_close(decoded, expected, rtol=1e-4, atol=1e-4 * expected.abs().max().item())


@pytest.mark.parametrize("window", [None, 4])
def test_the_absorbed_form_is_the_expanded_one(window: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moving W_k to the queries and W_v to the outputs changes no number, padded or not."""
    model = random_model(spec_of(window=window, q_rank=7))
    tokens, left_pad = random_tokens(model.spec, 2, 13), torch.tensor([0, 5])
    with torch.no_grad():
        expected = [model(tokens), model(tokens, left_pad=left_pad)]
        monkeypatch.setattr(MLA, "absorbs", lambda spec, queries, keys: True)
        absorbed = [model(tokens), model(tokens, left_pad=left_pad)]
    torch.testing.assert_close(absorbed[0], expected[0], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(absorbed[1][1, 5:], expected[1][1, 5:], rtol=1e-4, atol=1e-4)


def test_one_token_is_decoded_from_the_latent_and_a_long_chunk_is_not() -> None:
    """At DeepSeek V3's widths the absorbed form is cheaper for chunks of up to about 170 tokens."""
    spec = MLA(heads=1, kv_rank=512, nope_dim=128, rope_dim=64, v_dim=128)
    assert spec.absorbs(1, 1000)
    assert not spec.absorbs(400, 1000)
    assert not spec.absorbs(1000, 1000)


def test_the_cache_holds_the_latent_and_the_shared_key_alone() -> None:
    """DeepSeek-V3: 512 + 64 numbers per token and layer, where expanded keys and values would be 128 · (192 + 128)."""
    mixer = {"kind": "mla", "heads": 128, "kv_rank": 512, "nope_dim": 128, "rope_dim": 64}
    cost = zoo.cost(zoo.load("small", n_layers=61, **{"block.mixer": mixer}))
    assert cost.cache_bytes(1, 1, "bfloat16") == 61 * (512 + 64) * 2
    windowed = zoo.cost(zoo.load("small", n_layers=61, **{"block.mixer": {**mixer, "window": 16}}))
    assert windowed.cache_bytes(1, 1000, "bfloat16") == 16 * 61 * (512 + 64) * 2


def test_an_explicit_scale_is_the_factor_on_the_scores() -> None:
    """With YaRN, DeepSeek multiplies 1/√d by mscale²: the same as queries that much larger."""
    plain, scaled = random_model(spec_of()), random_model(spec_of(scale=2.5 * 10**-0.5))
    tokens = random_tokens(plain.spec, 2, 9)
    with torch.no_grad():
        for block in plain.blocks:
            block.mixer.q.weight *= 2.5
        torch.testing.assert_close(plain(tokens), scaled(tokens), rtol=1e-4, atol=1e-4)


def test_what_cannot_be_rotated_says_where() -> None:
    with pytest.raises(zoo.SpecError, match=r"block\.mixer\.position: RoPE rotates pairs"):
        spec_of(rope_dim=5)


@pytest.mark.parametrize("mixer", [{"kind": "mla"}, {"kind": "attention"}])
def test_a_window_of_one_warns_that_queries_and_keys_do_nothing(mixer: dict[str, Any]) -> None:
    spec = zoo.load("small", d_model=24, n_layers=2, **{"block.mixer": {**mixer, "window": 1}})
    with pytest.warns(zoo.SpecWarning, match=r"block\.mixer: with a window of 1 a token sees only itself"):
        model = zoo.build(spec).double()  # in single precision some processors' kernels leave 1e-9 by rounding
    tokens = torch.arange(10).view(1, 10)
    model.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    ours = {name: p.grad for name, p in model.named_parameters() if ".q." in name or ".k." in name}
    assert ours
    assert all(grad is not None and grad.abs().max() < 1e-12 for grad in ours.values())


def test_a_window_of_one_beside_a_sink_is_what_someone_may_want() -> None:
    assert not zoo.load("small", **{"block.mixer.window": 1, "block.mixer.sinks": True}).cautions


def slow_sinks(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """x: (T, D) → (T, D): equations 9 to 19 of DeepSeek-V2 with one more logit per head in the softmax, and no
    positions."""
    spec, heads = layer.spec, layer.heads
    latent = layer.kv_down(x)[:, : spec.kv_rank]
    latent = latent / (latent.square().mean(-1, keepdim=True) + spec.latent_norm.eps).sqrt() * layer.kv_norm.gain
    shared = layer.kv_down(x)[:, spec.kv_rank :]
    q = layer.q(x).unflatten(-1, (heads, -1))
    k, v = (part(latent).unflatten(-1, (heads, -1)) for part in (layer.k, layer.v))
    out = []
    for t in range(len(x)):
        mixed = []
        for h in range(heads):
            keys = [torch.cat((k[s, h], shared[s])) for s in range(t + 1)]
            powers = [((q[t, h] @ key) * spec.scale).exp() for key in keys]
            total = sum(powers) + layer.sinks[h].exp()
            mixed.append(sum(power / total * v[s, h] for s, power in enumerate(powers)))
        out.append(layer.o(torch.cat(mixed)))
    return torch.stack(out)


def test_a_sink_takes_its_share_of_the_softmax_expanded_and_absorbed() -> None:
    model = random_model(spec_of(sinks=True, position="nope")).double()
    layer: Any = model.blocks[0].mixer
    x = torch.randn(1, 9, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        expected = slow_sinks(layer, x[0])
        torch.testing.assert_close(layer(x, ForwardPass.of(x[..., 0]))[0], expected)
        cache = layer.new_cache(1, 9, torch.float64)
        layer(x[:, :8], ForwardPass.of(x[:, :8, 0]), cache)
        assert layer.spec.absorbs(1, 9)
        torch.testing.assert_close(layer(x[:, 8:], ForwardPass.of(x[:, 8:, 0], start=8), cache)[0], expected[8:])


def test_an_indexer_does_not_imitate_weights_that_a_sink_takes_from() -> None:
    with pytest.raises(zoo.SpecError, match=r"mixer\.sinks: .+: set index_loss: 0"):
        spec_of(kind="dsa", sinks=True)
    assert zoo.build(spec_of(kind="dsa", sinks=True, index_loss=0.0)).blocks[0].mixer.sinks is not None


def turned(x: torch.Tensor, position: int) -> torch.Tensor:
    """x: (ρ,): pair (2i, 2i + 1) as a complex number, times exp(√−1 m base^(−2i/ρ))."""
    pairs = torch.view_as_complex(x.view(-1, 2).contiguous())
    angles = position * 10_000.0 ** (-torch.arange(len(pairs), dtype=x.dtype) * 2 / len(x))
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angles), angles)).flatten()


def slow_normed(layer: Any, x: torch.Tensor) -> torch.Tensor:
    """x: (T, D) → (T, D): equations 9 to 19 with an RMSNorm on both parts of every query and key after the projections,
    as it is written, key by key."""
    spec, heads, norms = layer.spec, layer.heads, layer.qk_norm
    n = spec.nope_dim
    latent = rms(layer.kv_down(x)[:, : spec.kv_rank], layer.kv_norm.gain, spec.latent_norm.eps)
    q = layer.q(x).unflatten(-1, (heads, -1))
    k, v = (part(latent).unflatten(-1, (heads, -1)) for part in (layer.k, layer.v))

    def normed(part: torch.Tensor, norm: Any) -> torch.Tensor:
        return rms(part, norm.gain + spec.qk_norm.unit_offset, spec.qk_norm.eps)

    out = []
    shared = [turned(normed(layer.kv_down(x)[s, spec.kv_rank :], norms.k_rope), s) for s in range(len(x))]
    for t in range(len(x)):
        mixed = []
        for h in range(heads):
            query = torch.cat((normed(q[t, h, :n], norms.q_nope), turned(normed(q[t, h, n:], norms.q_rope), t)))
            keys = [torch.cat((normed(k[s, h], norms.k_nope), shared[s])) for s in range(t + 1)]
            weights = torch.stack([query @ key * spec.scale for key in keys]).softmax(0)
            mixed.append(weights @ v[: t + 1, h])
        out.append(layer.o(torch.cat(mixed)))
    return torch.stack(out)


@pytest.mark.parametrize("norm", [{"eps": 0.1}, {"unit_offset": True}], ids=["gain", "unit offset"])
def test_norms_of_queries_and_keys_are_those_of_their_projections_expanded_and_absorbed(norm: dict[str, Any]) -> None:
    model = random_model(spec_of(qk_norm={"kind": "rmsnorm", **norm})).double()
    layer: Any = model.blocks[0].mixer
    x = torch.randn(1, 9, 24, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    with torch.no_grad():
        expected = slow_normed(layer, x[0])
        close(layer(x, ForwardPass.of(x[..., 0]))[0], expected)
        cache = layer.new_cache(1, 9, torch.float64)
        parts = [layer(part, ForwardPass.of(part[..., 0], start=start), cache)[0]
                 for start, part in zip((0, 5, 8), x.split([5, 3, 1], dim=1), strict=True)]  # fmt: skip
        assert layer.spec.absorbs(1, 9)
        close(torch.cat(parts), expected)


def test_a_norm_of_keys_is_cached_as_one_number_for_each_head() -> None:
    plain, normed = (zoo.cost(spec_of(qk_norm=norm)) for norm in (None, "rmsnorm"))
    assert normed.cache_bytes(1, 1, "bfloat16") - plain.cache_bytes(1, 1, "bfloat16") == 2 * 2 * 3
    assert normed.params - plain.params == 2 * 2 * (6 + 4)
    with pytest.raises(zoo.SpecError, match=r"mixer\.qk_norm: must be rmsnorm, .*, not layernorm"):
        spec_of(qk_norm="layernorm")
    with pytest.raises(zoo.SpecError, match=r"mixer\.qk_norm: qk_norm with an indexer is not published"):
        spec_of(kind="dsa", qk_norm="rmsnorm")
