"""Multi-token prediction against its formula."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
from transformers.modeling_layers import MtpModel

import zoo
from zoo.conformance.combinations import random_model, random_tokens
from zoo.site import ForwardPass

TINY = {
    "vocab_size": 61, "hidden_size": 16, "intermediate_size": 20, "num_hidden_layers": 2, "max_position_embeddings": 32,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "num_experts": 3, "num_experts_per_tok": 2,
    "moe_intermediate_size": 12, "shared_expert_intermediate_size": 12, "linear_num_key_heads": 2,
    "linear_num_value_heads": 2, "linear_key_head_dim": 4, "linear_value_head_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}  # fmt: skip


def model_of(depth: int, weight: float = 0.3, final_norm: str = "shared", **edits: Any) -> zoo.Decoder:
    mtp = {"depth": depth, "weight": weight, "final_norm": final_norm}
    return random_model(zoo.load("small", **{"d_model": 16, "n_layers": 2, "vocab_size": 31, "mtp": mtp}, **edits))


def slow_loss(model: zoo.Decoder, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """One text, its modules' mean loss, from the formula: places are counted one by one."""
    step, total, length = ForwardPass.of(tokens), torch.zeros(()), tokens.shape[1]
    table = model.embedding.weight * model.spec.embedding_factor
    h = table[tokens]
    for block in model.blocks:
        h = block(h, step)
    own = model.spec.mtp is not None and model.spec.mtp.final_norm == "own"
    h = model.norm(h) if own else h
    for k, module in enumerate(model.mtp, start=1):
        pairs = [
            torch.cat((module.hidden_norm(h[0, i]), module.token_norm(table[tokens[0, i + k]])))
            for i in range(length - k)
        ]
        h = module.block(torch.stack(pairs)[None] @ module.project.weight.T, ForwardPass.of(tokens[:, k:]))
        h = module.final_norm(h) if own else h
        logits = (h if own else model.norm(h)) @ model.embedding.weight.T
        for i in range(length - k):
            if targets[0, i + k] != -100:
                total = total - logits[0, i].log_softmax(-1)[targets[0, i + k]]
    return total / (targets != -100).sum()


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("ignored", [(), (0, 5), (2, 3, 4, 5, 6, 7)])
@pytest.mark.parametrize("norm", ["shared", "own"])
def test_the_objective_is_the_formula(depth: int, ignored: tuple[int, ...], norm: str) -> None:
    model, tokens = model_of(depth, 0.6, norm).train(), random_tokens(zoo.load("small", vocab_size=31), 1, 9)
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


@pytest.mark.parametrize(("norm", "norms"), [("shared", 2), ("own", 3)])
def test_a_module_is_a_block_of_the_last_layers_kind_with_norms_and_a_projection(norm: str, norms: int) -> None:
    edits = {"blocks": {"wide": {"ffn.d_ff": 40}}, "pattern": ["block", "wide"]}
    mtp = {"depth": 3, "final_norm": norm}
    with_, without = (zoo.load("small", d_model=16, n_layers=2, mtp=m, **edits) for m in (mtp, None))
    block = 4 * 16 * 16 + 3 * 16 * 40 + 2 * 16
    assert zoo.cost(with_).params - zoo.cost(without).params == 3 * (block + norms * 16 + 2 * 16 * 16)


def test_the_module_of_qwen3_next_is_that_of_transformers() -> None:
    """Attention and experts after a norm of each input, then a norm of its own, which reads the model's normed stream:
    logits of the token after the next."""
    torch.manual_seed(0)
    theirs = Qwen3NextForCausalLM(Qwen3NextConfig(**TINY)).eval()
    looking_ahead = copy.deepcopy(theirs)
    looking_ahead.config.num_mtp_layers, looking_ahead.config.mtp_layer_types = 1, ["full_attention"]
    module = MtpModel(looking_ahead, 1).eval()
    module.tie_with_main_model(theirs)
    with torch.no_grad():
        for parameter in (*theirs.parameters(), *module.layers.parameters()):
            parameter.normal_(std=0.2)
    alone = zoo.from_hf(theirs)
    ours = zoo.build(alone.spec.edit({"mtp": {"final_norm": "own"}}))
    # Their layer is read as a model of one layer is, whose own norm stands for the module's.
    shell = Qwen3NextForCausalLM(Qwen3NextConfig(**TINY | {"num_hidden_layers": 1, "layer_types": ["full_attention"]}))
    layer = module.layers[0]
    shell.model.layers[0].load_state_dict(layer.mtp_block.state_dict())
    shell.model.norm.load_state_dict(layer.post_norm.state_dict())
    block = zoo.from_hf(shell)
    held = {f"mtp.0.block.{name}": value for name, value in block.blocks[0].state_dict().items()}
    held |= {"mtp.0.final_norm.gain": block.norm.gain}
    held |= {"mtp.0.hidden_norm.gain": layer.hnorm.weight, "mtp.0.token_norm.gain": layer.enorm.weight}
    tokens, hidden = layer.eh_proj.weight.chunk(2, dim=1)
    held |= {"mtp.0.project.weight": torch.cat((hidden, tokens), dim=1)}
    ours.load_state_dict({**alone.state_dict(), **held})
    ours.eval()
    text = random_tokens(ours.spec, 2, 9)
    places = torch.arange(8).expand(2, 8)
    with torch.no_grad():
        last = theirs.model(text).last_hidden_state[:, :-1]
        expected = theirs.lm_head(module.forward_layer(0, last, places, None, input_ids=text[:, 1:]))
        before, after = ours.mtp.norms(ours.norm)
        h0 = before(ours.stream(text))[:, :-1]
        cache = ours.mtp[0].new_cache(2, 8, torch.float32)
        embedded = ours.embed(text[:, 1:], ours.step(text[:, 1:], 1, None, {}))
        found = ours.read_out(after(ours.mtp[0](h0, embedded, ours.step(text[:, 1:], 0, None, {}), cache)))
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_modules_have_mixtures_whose_losses_and_load_count() -> None:
    model = model_of(1, 0.3, **{"block.ffn": {"kind": "topk_moe", "d_ff": 8, "balance_loss": 1.0}}).train()
    tokens = random_tokens(model.spec, 2, 9)
    with zoo.taps(model, "*.ffn.load") as seen:
        model.loss(tokens[:, :-1], tokens[:, 1:])
    assert [name for name in seen if name.startswith("mtp")] == ["mtp.0.ffn.load"]
