"""Multi-token prediction against its formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import Step


def model_of(depth: int, weight: float = 0.3, **edits: Any) -> zoo.Decoder:
    sizes = {"d_model": 16, "n_layers": 2, "vocab_size": 31, "mtp": {"depth": depth, "weight": weight}}
    return random_model(zoo.load("small", **sizes, **edits))


def slow_loss(model: zoo.Decoder, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One text, its modules' mean loss, from the formula: places are counted one by one."""
    step, total, length = Step.of(tokens), torch.zeros(()), tokens.shape[1]
    table = model.embedding.weight * model.spec.embedding_factor
    h = table[tokens]
    for block in model.blocks:
        h = block(h, step)
    for k, module in enumerate(model.mtp, start=1):
        pairs = [
            torch.cat((module.hidden_norm(h[0, i]), module.token_norm(table[tokens[0, i + k]])))
            for i in range(length - k)
        ]
        h = module.block(torch.stack(pairs)[None] @ module.project.weight.T, Step.of(tokens[:, k:]))
        logits = model.norm(h) @ model.embedding.weight.T
        for i in range(length - k):
            if targets[0, i + k] != -100:
                total = total - logits[0, i].log_softmax(-1)[targets[0, i + k]]
    return total / (targets != -100).sum()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("ignored", [(), (0, 5), (2, 3, 4, 5, 6, 7)])
def test_the_objective_is_the_formula(depth: int, ignored: tuple[int, ...]) -> None:
    model, tokens = model_of(depth, weight=0.6).train(), random_tokens(zoo.load("small", vocab_size=31), 1, 9)
    inputs, targets = tokens[:, :-1], tokens[:, 1:].clone()
    targets[0, list(ignored)] = -100
    objective, nats = model.loss(inputs, targets)
    expected = nats + 0.6 / depth * slow_loss(model, inputs, targets)
    torch.testing.assert_close(objective, expected, rtol=1e-5, atol=1e-5)
    logits = model(inputs)
    torch.testing.assert_close(nats, F.cross_entropy(logits.flatten(0, 1), targets.flatten()))


def test_forward_passes_do_not_run_the_modules() -> None:
    model, tokens = model_of(2), random_tokens(zoo.load("small", vocab_size=31), 2, 9)
    plain = random_model(model.spec.edit({"mtp": None}))
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if not k.startswith("mtp.")})
    assert torch.equal(model(tokens), plain(tokens))
    assert torch.equal(zoo.generate(model, tokens, 4), zoo.generate(plain, tokens, 4))
    objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:])
    assert torch.equal(objective, nats)
    assert zoo.cost(model.spec).params_active == zoo.cost(plain.spec).params
    assert zoo.cost(model.spec).flops_per_token_forward == zoo.cost(plain.spec).flops_per_token_forward


@pytest.mark.parametrize("length", [1, 2, 3])
def test_texts_shorter_than_the_depth_train(length: int) -> None:
    model, tokens = model_of(3).train(), random_tokens(zoo.load("small", vocab_size=31), 2, length + 1)
    with FlopCounterMode(display=False) as counter, zoo.attention_backend("plain"):
        objective, nats = model.loss(tokens[:, :-1], tokens[:, 1:])
        objective.backward()
    assert objective.isfinite()
    assert (objective > nats) == (length > 1)
    declared = zoo.cost(model.spec, context=length).flops_per_token_square
    assert counter.get_total_flops() / (2 * length) == pytest.approx(declared, rel=1e-9)


def test_a_module_is_a_block_of_the_last_layers_kind_with_two_norms_and_a_projection() -> None:
    edits = {"blocks": {"wide": {"ffn.d_ff": 40}}, "pattern": ["block", "wide"]}
    with_, without = (zoo.load("small", d_model=16, n_layers=2, mtp=m, **edits) for m in ({"depth": 3}, None))
    block = 4 * 16 * 16 + 3 * 16 * 40 + 2 * 16
    assert zoo.cost(with_).params - zoo.cost(without).params == 3 * (block + 2 * 16 + 2 * 16 * 16)


def test_modules_have_mixtures_whose_losses_and_load_count() -> None:
    model = model_of(1, 0.3, **{"block.ffn": {"kind": "topk_moe", "d_ff": 8, "balance_loss": 1.0}}).train()
    tokens = random_tokens(model.spec, 2, 9)
    with zoo.taps(model, "*.ffn.load") as seen:
        model.loss(tokens[:, :-1], tokens[:, 1:])
    assert [name for name in seen if name.startswith("mtp")] == ["mtp.0.ffn.load"]
