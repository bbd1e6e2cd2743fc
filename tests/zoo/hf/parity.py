"""Checks of every family: logits, round trips, padding, cached chunks, on random configs."""

from __future__ import annotations

import copy
import importlib
import inspect
import random
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM, DynamicCache

import zoo
from zoo.hf import families

LENGTH = 19
FAMILIES = sorted(p.stem for p in (Path(__file__).parent / "families").glob("[a-z]*.py"))
"""A file of that folder has `draw(rng) -> config`, one random small config; its name is the first
`model_type` of a family."""


def draw(family: str, seed: int) -> Any:
    module = importlib.import_module(f"tests.zoo.hf.families.{family}")
    return module.draw(random.Random(f"{family} {seed}"))


def hf_model(config: Any, seed: int = 0) -> Any:
    """A model whose every parameter is random: what starts at zero or one would hide what it multiplies."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = eager(_auto(config).from_config(config))
    generator = torch.Generator().manual_seed(seed)
    computed = families()[config.model_type].buffers
    buffers = [
        value
        for name, value in model.state_dict(keep_vars=True).items()
        if value.is_floating_point() and not any(fnmatch(name, pattern) for pattern in computed)
    ]
    with torch.no_grad():
        for tensor in {id(t): t for t in buffers}.values():
            tensor.add_(0.2 * torch.randn(tensor.shape, generator=generator))
    return model.eval()


def _auto(config: Any) -> Any:
    if config.is_encoder_decoder:
        return AutoModelForSeq2SeqLM
    return AutoModelForMaskedLM if config.model_type == "bert" else AutoModelForCausalLM


def eager(model: Any) -> Any:
    """With the plainest implementation: others of experts refuse odd sizes."""
    model.config._attn_implementation = "eager"  # not set_attn_implementation, which passes over Falcon
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    return model


def assert_near(actual: Tensor, expected: Tensor) -> None:
    """Equal to 1e-4 of the largest logit."""
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= 1e-4 * expected.abs().max()


def tokens_for(config: Any, batch: int, length: int = LENGTH) -> Tensor:
    return torch.randint(0, config.vocab_size, (batch, length), generator=torch.Generator().manual_seed(1))


def length_dependent(ours: zoo.Decoder) -> bool:
    """Whether RoPE turns by angles that depend on the length of the text: then what is cached was turned by others than
    the whole text would be, and transformers in chunks is the reference for ours in chunks."""
    scalings = [getattr(position, "scaling", None) for position, _ in ours.spec.positions]
    return any(scaling is not None and scaling.kind in ("dynamic", "longrope") for scaling in scalings)


LEAKS = {
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "nemotron_h"), "use_bias"),
    **dict.fromkeys(("jamba", "bamba", "granitemoehybrid", "falcon_h1"), "mamba_proj_bias"),
    **dict.fromkeys(("lfm2", "lfm2_moe"), "conv_bias"),
}
"""The option with which a family's padding reaches the convolution: a bias of the projection before it."""
UNMASKED = ("recurrent_gemma", "xlstm")
"""Families whose states read padding like any other token."""


def padding_leaks(model: Any, ours: zoo.Decoder) -> bool:
    """Whether transformers' padding changes the text after it: Mamba's through `LEAKS`, that of every linear mixer
    whose convolution an activation follows that makes something of zeros, and Llama 4's temperature counts it. Then
    each row by itself is the reference."""
    tuned = getattr(model.config, "attn_temperature_tuning", False)
    lively = any(getattr(layer.mixer, "activation", None) in ("laplace", "sigmoid") for layer in ours.spec.layers)
    unmasked = model.config.model_type in UNMASKED
    return bool(tuned or lively or unmasked or getattr(model.config, LEAKS.get(model.config.model_type, ""), False))


def in_chunks(model: Any, chunks: tuple[Tensor, ...]) -> Tensor:
    """transformers' logits, cached whole: its cache of a short window loses tokens that a chunk still needs. A copy of
    the model, since dynamic RoPE remembers the longest text it has seen."""
    # Only a cache that knows the config has more than keys and values: states, keys of an indexer.
    more = {"linear_attention", "indexed_attention", "hybrid"}.intersection(
        getattr(model.config, "layer_types", None) or ()
    )
    model, cache = copy.deepcopy(model), DynamicCache(config=model.config if more else None)
    return torch.cat([model(chunk, past_key_values=cache, use_cache=True).logits for chunk in chunks], dim=1)


@torch.no_grad()
def check_logits(model: Any, ours: zoo.Decoder) -> None:
    """Uncached, and cached in chunks of several lengths."""
    tokens = tokens_for(model.config, 2)
    expected = whole = copy.deepcopy(model)(tokens, use_cache=False).logits
    assert_near(ours(tokens), whole)
    for lengths in ([1] * LENGTH, [6, 1, 1, 9, 2], [2, 17]):
        chunks, cache = tokens.split(lengths, dim=1), ours.new_cache(2, LENGTH)
        if length_dependent(ours):
            expected = in_chunks(model, chunks)
        assert_near(torch.cat([ours(chunk, cache) for chunk in chunks], dim=1), expected)


@torch.no_grad()
def check_padding(model: Any, ours: zoo.Decoder) -> None:
    """An attention mask of left-padded rows is our left_pad."""
    tokens, left_pad = tokens_for(model.config, 3), torch.tensor([0, 3, 7])
    mask = (torch.arange(LENGTH) >= left_pad[:, None]).long()
    places = {"position_ids": (mask.cumsum(dim=1) - 1).clamp(min=0)}
    takes = "position_ids" in inspect.signature(model.forward).parameters
    if padding_leaks(model, ours):
        rows = [model(row[pad:][None], use_cache=False).logits[0] for row, pad in zip(tokens, left_pad, strict=True)]
        expected = torch.cat(rows)
    else:
        padded = copy.deepcopy(model)(tokens, attention_mask=mask, use_cache=False, **(places if takes else {}))
        expected = padded.logits[mask.bool()]
    assert_near(ours(tokens, left_pad=left_pad)[mask.bool()], expected)
    if not length_dependent(ours):
        cache = ours.new_cache(3, LENGTH)
        first, second = tokens.split([9, LENGTH - 9], dim=1)
        cached = torch.cat((ours(first, cache, left_pad), ours(second, cache)), dim=1)
        assert_near(cached[mask.bool()], expected)


@torch.no_grad()
def check_round_trip(model: Any, ours: zoo.Decoder) -> None:
    """Bit for bit the same model, also without remembering where it came from."""
    tokens = tokens_for(model.config, 2)
    again = eager(zoo.to_hf(ours))
    assert type(again) is type(model)
    theirs, weights = again.state_dict(), model.state_dict()
    assert list(theirs) == list(weights)
    for name, value in weights.items():
        assert theirs[name].dtype == value.dtype and torch.equal(theirs[name], value), name
    expected = copy.deepcopy(model)(tokens).logits
    assert torch.equal(again(tokens).logits, expected)
    ours.origin = None
    forgotten = eager(zoo.to_hf(ours))
    assert_near(forgotten(tokens).logits, expected)
