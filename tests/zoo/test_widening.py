"""A wider model computes what the narrower one does, and its copies part."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests.many import few
from zoo.conformance import matrix
from zoo.conformance.combinations import given_to, random_model, random_tokens
from zoo.conversion import check_conversion
from zoo.conversion.widening import Copies
from zoo.ffns._dense import Dense

LENGTH = 9
OPTIONS = [option for options in matrix.axes().values() for option in options]
UNKNOWN: dict[str, set[str]] = {
    "mixer": {option.name.split()[0] for option in matrix.axes()["mixer"]} - {"attention"},
    "mixer.forget": {"yes"},
    "mixer.exclusive": {"yes"},
    "mixer.keys_as_values": {"yes"},
    "mixer.position": {"alibi", "sinusoidal", "t5", "transformer_xl"},
    "ffn": {"deepseek_moe", "expert_choice_moe", "hash_moe", "rwkv6", "rwkv7", "scaled_swiglu", "topk_moe"},
    "norm": {"partial_rmsnorm"},
    "encoder": {"n_layers=2"},
    "mtp": {"depth=2"},
    "norm_placement": {"attention_residuals", "gated", "mhc", "ngpt", "rezero"},
    "logit_gain": {"yes"},
    "unet_skips": {"yes"},
    "value_embeddings": {"tables=1"},
    "altup": {"streams=3"},
    "chunks": {"ratio=2.5"},
    "per_layer_embeddings": {"features=5"},
    "laurel": {"rank=5"},
    "gated_norm": {"rank=5"},
    "depth_routing": {"capacity=0.5"},
    "sharing": {"injection=yes", "recursion=alpha=0.5"},
    "ffn.sparsity": {"0.3"},
    "ffn.scales": {"2,3"},
}
"""Options, by axis, for which nobody has worked out how to widen them."""
WITHOUT_A_GAIN = {
    "norm": {"none", "layernorm gain=no bias=no", "rmsnorm gain=no"},
    "norm_placement": {"post", "deepnorm"},
    "final_norm": {"no"},
}
"""With nothing before a tied head to take up the copies that it sums over."""


def base(**edits: Any) -> zoo.ModelSpec:
    return matrix.combine(()).edit(edits)


def twice(spec: zoo.ModelSpec) -> dict[str, Any]:
    """Edits that double all sizes of the base block and what other blocks of the matrix have of their own."""
    edits: dict[str, Any] = {"d_model": 2 * spec.d_model}
    if hasattr(spec.block.mixer, "heads"):
        edits["block.mixer.heads"] = 2 * spec.block.mixer.heads
    if features := spec.block.mixer.model_dump().get("features"):
        edits["block.mixer.features"] = 2 * features
    ffn = spec.named("block").ffn
    if isinstance(ffn, Dense):
        edits["block.ffn.d_ff"] = 2 * ffn.width
    return edits | ({"blocks.attn.mixer.heads": 8} if "attn" in spec.blocks else {})


def grown(spec: zoo.ModelSpec, edits: dict[str, Any], seed: int = 0) -> tuple[zoo.Decoder, zoo.Decoder]:
    """A random model and what it grows to. They compute in float64, with weights that were float32 when they grew."""
    source = random_model(spec)
    wide = zoo.convert(source, spec.edit(edits), growth="width", seed=seed).eval()
    return source.double(), wide.double()


def assert_same_function(source: zoo.Decoder, wide: zoo.Decoder) -> None:
    tokens, given = random_tokens(source.spec, 2, LENGTH), given_to(source.spec, 2, LENGTH)
    with torch.no_grad():
        expected, found = source(tokens, **given), wide(tokens, **given)
    assert (found - expected).abs().max() <= 1e-5 * max(1.0, expected.abs().max().item())


@pytest.mark.parametrize("option", few(OPTIONS, 80), ids=str)
def test_with_every_choice_of_the_matrix_it_computes_the_same_or_is_refused(option: matrix.AxisOption) -> None:
    assert_same_or_refused(option, tied=True)


@pytest.mark.parametrize(
    "option",
    [o if o.axis in WITHOUT_A_GAIN else pytest.param(o, marks=pytest.mark.slow) for o in OPTIONS],
    ids=str,
)
def test_with_an_untied_head_too(option: matrix.AxisOption) -> None:
    """The default run covers the choices on which a head depends."""
    assert_same_or_refused(option, tied=False)


def assert_same_or_refused(option: matrix.AxisOption, *, tied: bool) -> None:
    spec = matrix.combine([option]).edit({"tie_embeddings": tied})
    edits, kind = twice(spec), option.name.split()[0]
    if kind in UNKNOWN.get(option.axis, ()):
        with pytest.raises(zoo.SpecError, match="growth: width cannot widen"):
            check_conversion(spec, spec.edit(edits), "width")
    elif spec.tie_embeddings and {kind, option.name} & WITHOUT_A_GAIN.get(option.axis, set()):
        with pytest.raises(zoo.SpecError, match="without a gain before the head to undo that: set logit_scale to"):
            check_conversion(spec, spec.edit(edits), "width")
        assert_same_function(*grown(spec, {**edits, "logit_scale": 0.5}))
    else:
        assert_same_function(*grown(spec, edits))


GPT = {"block.norm": "layernorm", "block.ffn": {"kind": "gelu", "d_ff": 40, "bias": True}, "block.mixer.bias": True}
PARTS: dict[str, dict[str, Any]] = {
    "gpt, tied": GPT,
    "gpt, untied, learned positions": {
        **GPT, "tie_embeddings": False, "block.mixer.position": "learned", "head_bias": True,
    },
    "double, gqa, unit offset": {
        "block.norm_placement": "double", "block.mixer.kv_heads": 2,
        "block.norm": {"kind": "rmsnorm", "unit_offset": True},
    },
    "parallel, mqa, gates, sinks": {
        "block.topology": "parallel", "block.mixer.kv_heads": 1, "block.mixer.gate": "head", "block.mixer.sinks": True
    },
    "gqa, a norm for each head, conv": {
        "block.mixer.kv_heads": 2, "block.mixer.qk_norm": "layernorm", "block.mixer.qk_norm_over": "heads",
        "block.mixer.conv": 3, "block.ffn.conv": 2, "block.canon": {},
    },
    "gqa, norms of the whole length": {
        "block.mixer.kv_heads": 2, "block.norm": "l2norm", "block.mixer.qk_norm": "l2norm",
        "block.mixer.qk_norm_over": "full",
    },
    "bert": {
        "visible": "all", "token_types": 2, "head_transform": "gelu", "head_bias": True, "embedding_norm": True, **GPT
    },
    "shared streams": {
        "block.norm_placement": {"kind": "hyper_connections", "n": 3}, "sharing": {"blocks": 2}, "embedding_dim": 14,
        "n_layers": 4,
    },
}  # fmt: skip


@pytest.mark.parametrize("parts", PARTS)
def test_models_of_several_parts_compute_the_same(parts: str) -> None:
    spec = base(**PARTS[parts])
    kv_heads = spec.block.mixer.kv_heads
    assert_same_function(*grown(spec, twice(spec)))
    assert_same_function(*grown(spec, {**twice(spec), "block.mixer.kv_heads": kv_heads and 2 * kv_heads}))


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [((4, 4), (8, 8)), ((4, 4), (12, 12)), ((4, 2), (8, 2)), ((4, 2), (8, 4)), ((4, 1), (12, 3)), ((4, 2), (16, 4))],
)
@pytest.mark.parametrize("over", ["head", "heads", "full"])
def test_query_heads_read_copies_of_the_kv_head_they_did(narrow: Any, wide: Any, over: str) -> None:
    spec = base(**{
        "block.mixer.heads": narrow[0], "block.mixer.kv_heads": narrow[1], "block.mixer.qk_norm": "rmsnorm",
        "block.mixer.qk_norm_over": over, "block.mixer.head_dim": 6, "block.mixer.bias": True,
    })  # fmt: skip
    edits = {"d_model": 48, "block.mixer.heads": wide[0], "block.mixer.kv_heads": wide[1]}
    assert_same_function(*grown(spec, edits))


@pytest.mark.parametrize(
    "edits",
    [{"block.ffn.d_ff": 57}, {"d_model": 72}, {"block.mixer.heads": 12}, {"d_model": 96, "block.ffn.d_ff": 41}, {}],
    ids=str,
)
def test_sizes_grow_each_by_its_own_factor(edits: dict[str, Any]) -> None:
    """Hidden features to any number; without any growth it is the same model."""
    spec = base(**{"block.mixer.head_dim": 6})
    assert_same_function(*grown(spec, edits))


@pytest.mark.parametrize("table", [14, 28])
@pytest.mark.parametrize("scales", [(1.0, 1.0), ("sqrt_d_model", 1.0), ("sqrt_d_model", 2**-0.5), (3.0, 0.2)])
@pytest.mark.parametrize("tied", [True, False])
def test_scales_of_embedding_and_logits_are_made_up_for(tied: bool, scales: tuple[Any, float], table: int) -> None:
    embedding_scale, logit_scale = scales
    spec = base(tie_embeddings=tied, embedding_scale=embedding_scale, head_bias=True)
    wide = {**twice(spec), "logit_scale": logit_scale}
    assert_same_function(*grown(spec, wide))
    assert_same_function(*grown(spec.edit({"embedding_dim": 14}), {**wide, "embedding_dim": table}))


def test_no_gain_changes_where_the_scales_follow_the_width() -> None:
    """√D on the table and 1/√m on its logits are what width transfer asks for."""
    spec = base(embedding_scale="sqrt_d_model")
    source, wide = grown(spec, {**twice(spec), "logit_scale": 0.5**0.5})
    assert torch.equal(wide.get_parameter("norm.gain"), source.get_parameter("norm.gain").repeat(2))


def test_the_seed_draws_how_copies_share() -> None:
    spec = base()
    first, same, other = (grown(spec, twice(spec), seed)[1].state_dict() for seed in (0, 0, 1))
    assert all(torch.equal(first[name], same[name]) for name in first)
    name = "blocks.0.ffn.down.weight"
    assert not torch.equal(first[name], other[name])


def test_shares_of_the_copies_of_a_feature_sum_to_one_and_are_drawn_evenly() -> None:
    """Shares of three copies each have Dirichlet(1, 1, 1)'s mean 1/3 and variance 1/18; a single copy has all."""
    copies = Copies(torch.tensor([0, 1, 0, 0, 2]), 3)
    shares = copies.shares(20_000, torch.Generator().manual_seed(0))
    torch.testing.assert_close(shares[:, [0, 2, 3]].sum(1), torch.ones(20_000, dtype=torch.float64))
    assert (shares[:, [1, 4]] == 1).all()
    assert shares[:, 0].mean().item() == pytest.approx(1 / 3, abs=0.01)
    assert shares[:, 0].var().item() == pytest.approx(1 / 18, abs=0.002)


def stepped(spec: zoo.ModelSpec, kind: type[torch.optim.Optimizer]) -> tuple[zoo.Decoder, list[Tensor]]:
    """A grown model after one optimizer step, and how far its two tiles of the stream are apart, layer by layer."""
    _, wide = grown(spec, twice(spec))
    tokens = random_tokens(spec, 4, 16)
    wide.loss(tokens[:, :-1], tokens[:, 1:])[0].backward()
    kind(wide.parameters(), lr=1e-2).step()  # type: ignore[call-arg]
    with torch.no_grad(), zoo.taps(wide, "blocks.*.stream") as seen:
        wide(tokens)
    return wide, [(x[..., : spec.d_model] - x[..., spec.d_model :]).abs() for (x,) in seen.values()]


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_copies_part_at_the_first_step(kind: type[torch.optim.Optimizer]) -> None:
    """Those that were equal, which are what writes to the stream and gains. AdamW's first step is a sign, which some
    copies have in common; in the stream that they make they differ all the same."""
    spec = base(**{"block.mixer.bias": True})
    _, before = grown(spec, twice(spec))
    after, apart = stepped(spec, kind)
    for name in ("embedding.weight", "norm.gain", "blocks.1.mixer_residual.norm_in.gain", "blocks.0.mixer.o.bias"):
        first, second = before.get_parameter(name).detach().chunk(2, dim=-1)
        assert torch.equal(first, second)
        first, second = after.get_parameter(name).detach().chunk(2, dim=-1)
        assert (first != second).double().mean() > (0.99 if kind is torch.optim.SGD else 0.1), name
    assert all((layer > 1e-6).double().mean() > 0.99 for layer in apart)


def test_copies_with_equal_shares_never_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which is why they are drawn."""
    half = lambda copies, rows, draw: torch.full((rows, len(copies.of)), 1 / copies.factor)  # noqa: E731
    monkeypatch.setattr(Copies, "shares", half)
    _, apart = stepped(base(), torch.optim.SGD)
    assert all(layer.max() < 1e-5 for layer in apart)


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "not a multiple": (
        {"d_model": 36, "block.mixer.heads": 6},
        "d_model: growth: width needs a multiple of 24, not 36",
    ),
    "table": ({"embedding_dim": 14}, "embedding_dim: growth: width needs a factorised embedding in both models"),
    "deeper": ({"n_layers": 6}, "n_layers: must be 3, not 6: growth: width keeps the number of layers"),
    "larger heads": (
        {"d_model": 48},
        r"layers.0.mixer.head_dim: must stay 6, not 12: growth: width changes only d_model",
    ),
    "fewer hidden": ({"block.ffn.d_ff": 32}, "layers.0.ffn.d_ff: growth: width needs at least 40, not 32"),
    "fewer heads": (
        {"block.mixer": {"heads": 2, "head_dim": 6}},
        "layers.0.mixer.kv_heads: growth: width needs a multiple of 4, not 2",
    ),
    "another activation": ({"block.ffn.kind": "geglu"}, "layers.0.ffn.kind: must stay swiglu, not geglu"),
    "another base": ({"block.mixer.position.base": 5e5}, r"position.base: must stay 10000.0, not 500000.0"),
}


@pytest.mark.parametrize("case", CASES)
def test_what_would_not_compute_the_same_is_named(case: str) -> None:
    edits, message = CASES[case]
    with pytest.raises(zoo.SpecError, match=message):
        check_conversion(base(), base().edit(edits), "width")


def test_kv_heads_can_only_grow_as_fast_as_query_heads() -> None:
    spec = base(**{"block.mixer.kv_heads": 1, "block.mixer.head_dim": 6})
    message = "layers.0.mixer.heads: growth: width needs a multiple of 4 query heads per kv head, not 2"
    with pytest.raises(zoo.SpecError, match=message):
        check_conversion(spec, spec.edit({"block.mixer.heads": 8, "block.mixer.kv_heads": 4}), "width")


def test_what_training_alone_knows_may_change() -> None:
    spec = base()
    training = {"block.dropout": 0.1, "block.stochastic_depth": 0.1, "z_loss": 1e-4, "init.output": "zero"}
    assert_same_function(*grown(spec, {**twice(spec), **training}))
