"""Weights in common, losses of all layers, and growth: against models that spell them out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.features.sharing import Sharing


def small(**edits: Any) -> zoo.ModelSpec:
    return zoo.load("small", **{"d_model": 16, "n_layers": 6, **edits})


@pytest.mark.parametrize(
    ("sharing", "expected"),
    [
        (Sharing(blocks=1), [0, 0, 0, 0, 0, 0]),
        (Sharing(blocks=2), [0, 1, 0, 1, 0, 1]),
        (Sharing(blocks=2, order="sequence"), [0, 0, 0, 1, 1, 1]),
        (Sharing(blocks=4, order="sequence"), [0, 0, 1, 2, 2, 3]),
        (Sharing(blocks=6), [0, 1, 2, 3, 4, 5]),
        (Sharing(blocks=2, prelude=1, coda=1), [0, 1, 2, 1, 2, 3]),
        (Sharing(blocks=2, order="sequence", prelude=2), [0, 1, 2, 2, 3, 3]),
    ],
    ids=str,
)
def test_a_shared_model_is_one_whose_layers_have_equal_weights(sharing: Sharing, expected: list[int]) -> None:
    spec = small(sharing=sharing.model_dump())
    assert list(spec.block_of_each) == expected
    model, unshared = random_model(spec), zoo.build(small()).eval()
    weights = model.state_dict()
    copied = {name: value for name, value in weights.items() if not name.startswith("blocks.")}
    for layer, block in enumerate(expected):
        prefix = f"blocks.{block}."
        copied |= {
            f"blocks.{layer}.{name.removeprefix(prefix)}": v for name, v in weights.items() if name.startswith(prefix)
        }
    unshared.load_state_dict(copied)
    tokens = random_tokens(spec, 2, 9)
    torch.testing.assert_close(model(tokens), unshared(tokens), rtol=0, atol=0)


def test_shared_layers_are_counted_once_and_computed_and_cached_each() -> None:
    spec, unshared = small(sharing={"blocks": 2}), small()
    ours, theirs = zoo.cost(spec), zoo.cost(unshared)
    block = spec.layers[0].cost(16, 1024).parameters
    assert theirs.params - ours.params == 4 * block
    assert ours.params == sum(p.numel() for p in zoo.build(spec).parameters())
    assert ours.flops_per_token == theirs.flops_per_token
    assert ours.cache_bytes(2, 30) == theirs.cache_bytes(2, 30) == zoo.build(spec).new_cache(2, 30).nbytes


def test_experts_that_are_shared_are_counted_once_among_the_active_too() -> None:
    edits = {"block.ffn": {"kind": "topk_moe", "experts": 4, "top_k": 1, "d_ff": 8}}
    one, six = (zoo.cost(small(**edits, n_layers=n, sharing={"blocks": 1})) for n in (1, 6))
    assert (one.params, one.params_active) == (six.params, six.params_active)


def test_layers_that_share_must_be_alike() -> None:
    windows = {"blocks.local.mixer.window": 4, "pattern": ["block", "local"]}
    small(**windows, sharing={"blocks": 2})
    with pytest.raises(zoo.SpecError, match=r"sharing\.blocks: layer 1 is 'local' and cannot share weights with 'bl"):
        small(**windows, sharing={"blocks": 1})
    with pytest.raises(zoo.SpecError, match=r"sharing\.blocks: 7 is more than the 6 layers$"):
        small(sharing={"blocks": 7})


def test_every_layer_predicts_by_the_models_own_head() -> None:
    spec = small(layer_loss=0.3)
    model, tokens = random_model(spec).train(), random_tokens(spec, 2, 10)
    tokens, targets = tokens[:, :-1], tokens[:, 1:]
    objective, nats = model.loss(tokens, targets)
    with zoo.taps(model, "blocks.*.stream") as seen:
        model(tokens)
    losses = [
        F.cross_entropy(model.read_out(model.norm(seen[f"blocks.{i}.stream"][0])).flatten(0, 1), targets.flatten())
        for i in range(6)
    ]
    torch.testing.assert_close(nats, losses[-1])
    torch.testing.assert_close(objective, losses[-1] + 0.3 * torch.stack(losses[:-1]).mean())
    assert torch.equal(*model.eval().loss(tokens, targets))


def test_new_settings_change_no_digest_where_they_are_off() -> None:
    assert {"sharing", "layer_loss"} & small().dump().keys() == set()
    assert small().digest != small(layer_loss=0.1).digest != small(sharing={"blocks": 1}).digest


@pytest.mark.parametrize(("growth", "expected"), [("stack", [0, 1, 0, 1, 0, 1]), ("duplicate", [0, 0, 0, 1, 1, 1])])
def test_a_grown_model_starts_from_copies_of_the_layers(growth: Any, expected: list[int]) -> None:
    source = random_model(small(n_layers=2))
    grown = zoo.convert(source, small(), growth=growth)
    ours, theirs = grown.state_dict(), source.state_dict()
    for name, value in ours.items():
        if name.startswith("blocks."):
            _, layer, rest = name.split(".", 2)
            assert torch.equal(value, theirs[f"blocks.{expected[int(layer)]}.{rest}"])
        else:
            assert torch.equal(value, theirs[name])


def test_a_stacked_model_of_a_looped_one_computes_what_it_did() -> None:
    """A stack of two, three times over, is the model whose six layers alternate between two blocks."""
    looped = random_model(small(sharing={"blocks": 2}))
    grown = zoo.convert(looped, small(), growth="stack").eval()
    tokens = random_tokens(looped.spec, 1, 8)
    torch.testing.assert_close(grown(tokens), looped(tokens), rtol=0, atol=0)


def test_growth_says_what_it_cannot_do() -> None:
    source = zoo.build(small(n_layers=4))
    with pytest.raises(zoo.SpecError, match="n_layers: 6 blocks are not a multiple of 4, as growth: stack needs"):
        zoo.convert(source, small(), growth="stack")
    with pytest.raises(zoo.SpecError, match="n_layers: going from 4 to 6 blocks needs growth: stack or duplicate"):
        zoo.convert(source, small())
    with pytest.raises(zoo.SpecError, match="has the shape"):
        zoo.convert(source, small(n_layers=8, d_model=32), growth="stack")


LOOP = {"blocks": 2, "prelude": 1, "coda": 1, "injection": True, "state_std": 0.5}


@pytest.mark.parametrize("training", [False, True])
def test_a_loop_with_injection_reads_the_preludes_output_in_every_turn(training: bool) -> None:
    """Section 3.2 of arXiv:2502.05171: e = P(x), s_i = R(e, s_{i−1}), p = C(s_r); layers 1 to 4 are two turns."""
    spec = small(sharing=LOOP)
    model, tokens = random_model(spec).train(training), random_tokens(spec, 2, 9)
    torch.manual_seed(3)
    found = model(tokens)
    step = model.step(tokens, 0, None, {})
    prelude, *core, coda = (lambda x, block=block: block(x, step) for block in model.blocks)
    e = prelude(model.embed(tokens, step))
    torch.manual_seed(3)
    state = 0.5 * torch.randn(2, 9, 16) if training else torch.zeros(2, 9, 16)
    for _ in range(2):
        state = torch.cat((state, e), dim=-1) @ model.loop.adapter.weight.T
        for layer in core:
            state = layer(state)
    state = state / (state.square().mean(-1, keepdim=True) + 1e-6).sqrt() * model.loop.norm.gain
    torch.testing.assert_close(found, model.read_out(model.norm(coda(state))), rtol=1e-5, atol=1e-5)


def test_a_loop_with_injection_costs_its_adapter_and_norm() -> None:
    looped, plain = zoo.cost(small(sharing=LOOP)), zoo.cost(small(sharing={**LOOP, "injection": False, "state_std": 0}))
    assert looped.params - plain.params == 2 * 16 * 16 + 16
    assert looped.flops_per_token_forward - plain.flops_per_token_forward == 2 * 2 * (2 * 16 * 16)
    assert small(sharing=LOOP).computation() == small(sharing={**LOOP, "state_std": 0}).computation()


@pytest.mark.parametrize(
    ("edits", "reason"),
    [
        ({"sharing": {**LOOP, "order": "sequence"}}, r"sharing\.order: must be cycle with injection"),
        ({"sharing": {"blocks": 1, "state_std": 0.5}}, r"sharing\.state_std: needs injection: true"),
        ({"sharing": LOOP, "block.norm_placement": "mhc"}, r"norm_placement: sharing\.injection needs a single stream"),
        ({"sharing": LOOP, "altup": {}}, r"altup: sharing\.injection needs a single stream"),
        ({"sharing": LOOP, "chunks": {}}, r"chunks: sharing\.injection needs one stack of layers"),
    ],
    ids=str,
)
def test_where_injection_makes_no_sense_it_is_refused(edits: dict[str, Any], reason: str) -> None:
    with pytest.raises(zoo.SpecError, match=reason):
        small(**edits)
