"""Projections of one input as one product, and when they are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

import zoo
from ablate.wings.starts.lora import Adapters, LoraSpec
from zoo.init import Linear
from zoo.projections import joint_product, project_all

SPECS = {
    "attention": {},
    "grouped": {"block.mixer.kv_heads": 2, "block.mixer.bias": True, "block.ffn.bias": True},
    "some biases": {"block.mixer.bias": ["q", "v"]},
    "qk_norm": {"block.mixer.qk_norm": {"kind": "rmsnorm"}},
    "interleaved": {"block.mixer.position.layout": "interleaved", "block.mixer.position.fraction": 0.5},
    "xpos": {"block.mixer.position": {"kind": "xpos"}},
    "alibi": {"block.mixer.position": {"kind": "alibi"}},
    "clipped": {"block.mixer.clip_qkv": 0.5, "block.mixer.temperature": {"floor": 4}},
    "linear": {"block.mixer": {"kind": "gla", "heads": 4}},
}


def model_of(**edits: object) -> zoo.Decoder:
    model = zoo.build(zoo.load("small", **{"d_model": 32, "n_layers": 2, "vocab_size": 61, **edits}), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)))
    return model


def tokens_of(rows: int = 2, length: int = 9) -> Tensor:
    return torch.randint(61, (rows, length), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("edits", SPECS.values(), ids=SPECS)
def test_losses_gradients_and_decoding_are_those_of_separate_products(
    edits: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, tokens = model_of(**edits).double(), tokens_of()
    found, products = [], []
    for most in (2**20, 0):
        monkeypatch.setattr("zoo.projections.MOST_WEIGHTS", most)
        model.zero_grad()
        with Products() as counted:
            loss = model.loss(tokens[:, :-1], tokens[:, 1:])[0]
        products.append(counted.count)
        loss.backward()
        with torch.no_grad():
            cache = model.new_cache(2, 9)
            logits = torch.cat([model(part, cache=cache) for part in tokens.split([4, 1, 1, 3], dim=1)], dim=1)
        found.append((loss, logits, {name: p.grad for name, p in model.named_parameters()}))
    assert products[0] < products[1]
    torch.testing.assert_close(*found)


class Products(TorchFunctionMode):
    """Counts the linear layers' products."""

    count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is F.linear
        return func(*args, **(kwargs or {}))


def layers_of() -> list[Linear]:
    layers = [Linear(8, width, role="input") for width in (8, 4, 4)]
    for layer in layers:
        nn.init.normal_(layer.weight)
    return layers


def hook(layer: Linear) -> None:
    layer.register_forward_hook(lambda _module, _inputs, out: out + 1)


def input_hook(layer: Linear) -> None:
    layer.register_forward_pre_hook(lambda _module, inputs: (2 * inputs[0],))


def replace_forward(layer: Linear) -> None:
    layer.forward = lambda x: x[..., :4] * 3  # type: ignore[method-assign]


def parametrise(layer: Linear) -> None:
    parametrize.register_parametrization(layer, "weight", nn.Hardtanh())


def freeze(layer: Linear) -> None:
    layer.weight.requires_grad_(False)


@pytest.mark.parametrize("act", [hook, input_hook, replace_forward, parametrise, freeze])
def test_a_layer_that_something_else_acts_on_is_called_itself(act: Callable[[Linear], None]) -> None:
    layers, x = layers_of(), torch.randn(2, 3, 8)
    assert joint_product(x, layers) is not None
    act(layers[1])
    assert joint_product(x, layers) is None
    for found, layer in zip(project_all(x, *layers), layers, strict=True):
        torch.testing.assert_close(found, layer(x), rtol=0, atol=0)


def test_another_module_in_the_place_of_a_projection_is_called() -> None:
    model, tokens = model_of().eval(), tokens_of()
    before = model(tokens)
    inner = model.blocks[0].mixer.v
    model.blocks[0].mixer.v = nn.Sequential(inner, nn.Tanh())  # as peft wraps a layer
    assert not torch.allclose(model(tokens), before)


def test_adapters_act_on_every_projection() -> None:
    model, tokens = model_of().eval(), tokens_of()
    adapters = Adapters(model, LoraSpec(rank=2, matrices=("q", "up")), seed=0)
    with torch.no_grad():
        for layer in adapters.layers:
            nn.init.normal_(layer.up)
    adapted = model(tokens)
    adapters.merge()
    torch.testing.assert_close(model(tokens), adapted, rtol=1e-4, atol=1e-4)


def test_inference_mode_and_autocast_decode_as_whole_texts() -> None:
    tokens = tokens_of()
    for mode in (torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        model = model_of().eval()
        with torch.no_grad(), mode:
            cache = model.new_cache(2, 9)
            parts = [model(part, cache=cache) for part in tokens.split([5, 1, 1, 2], dim=1)]
            torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens), rtol=2e-2, atol=2e-2)


def test_a_long_text_is_decoded_in_blocks_of_kept_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.positions._rotary.KEPT", 4)
    for edits in ({}, {"block.mixer.position": {"kind": "xpos"}}):
        model, tokens = model_of(**edits).double(), tokens_of(length=14)
        with torch.no_grad():
            cache = model.new_cache(2, 14)
            parts = [model(part, cache=cache) for part in tokens.split([3, 1, 1, 2, 5, 1, 1], dim=1)]
            torch.testing.assert_close(torch.cat(parts, dim=1), model(tokens))
