"""Checks of encoders, and of encoders with decoders: both sides, cached and not, padded at either side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, EncoderDecoderCache

import zoo
from tests.zoo.hf.parity import LENGTH, assert_near, eager, tokens_for

PADS = torch.tensor([0, 3, 7])
PLACE = torch.arange(LENGTH)
LEFT, RIGHT = PADS[:, None] <= PLACE, LENGTH - PADS[:, None] > PLACE


@torch.no_grad()
def check_encoder(model: Any) -> None:
    """BERT: logits with types of tokens, with padding at the left, at the right and at both sides, and back."""
    ours, tokens = zoo.from_hf(model), tokens_for(model.config, 3)
    types = torch.randint(0, model.config.type_vocab_size, tokens.shape, generator=torch.Generator().manual_seed(2))
    assert_near(ours(tokens), model(tokens).logits)
    expected = model(tokens, token_type_ids=types).logits
    assert_near(ours(tokens, token_types=types), expected)
    sides: list[tuple[Tensor, dict[str, Tensor]]] = [
        (LEFT, {"left_pad": PADS}),
        (RIGHT, {"right_pad": PADS}),
        (LEFT & RIGHT, {"left_pad": PADS, "right_pad": PADS}),
    ]
    for mask, pads in sides:
        places = (PLACE - pads.get("left_pad", torch.zeros(3, dtype=torch.int64))[:, None]).clamp(min=0)
        theirs = model(tokens, attention_mask=mask.long(), position_ids=places, token_type_ids=types).logits
        assert_near(ours(tokens, token_types=types, **pads)[mask], theirs[mask])
    check_return(model, ours, lambda model: model(tokens, token_type_ids=types).logits)


@torch.no_grad()
def check_encoder_decoder(model: Any) -> None:
    """T5 and its kin: what the encoder says, logits uncached and cached in chunks, padding at every side, and back."""
    ours, tokens, source = zoo.from_hf(model), tokens_for(model.config, 3), tokens_for(model.config, 3, 24)[:, 11:]
    source = torch.cat((source, source.flip(1)), dim=1)[:, :LENGTH]
    theirs = model.get_encoder()(source).last_hidden_state
    hidden = ours.encode(source).hidden
    assert hidden is not None
    assert_near(hidden, theirs)
    expected = model(input_ids=source, decoder_input_ids=tokens, use_cache=False).logits
    assert_near(ours(tokens, encoder_tokens=source), expected)
    for mask, pads in ((LEFT, {"encoder_left_pad": PADS}), (RIGHT, {"encoder_right_pad": PADS})):
        padded = {"input_ids": source, "attention_mask": mask.long(), "decoder_input_ids": tokens}
        expected = model(**padded, use_cache=False).logits
        for lengths in ([LENGTH], [1] * LENGTH, [6, 1, 1, 9, 2]):
            assert_near(_cached(ours, tokens.split(lengths, dim=1), encoder_tokens=source, **pads), expected)
        assert_near(_theirs_cached(model, padded), expected)
    _check_decoder_padding(model, ours, source, tokens)
    check_return(model, ours, lambda model: model(input_ids=source, decoder_input_ids=tokens).logits)


def _cached(ours: zoo.Decoder, chunks: tuple[Tensor, ...], **first: Tensor) -> Tensor:
    cache = ours.new_cache(len(chunks[0]), LENGTH)
    found = [ours(chunks[0], cache, **first)]
    return torch.cat([*found, *(ours(chunk, cache) for chunk in chunks[1:])], dim=1)


def _theirs_cached(model: Any, inputs: dict[str, Tensor]) -> Tensor:
    """transformers' logits one token at a time, the encoder's output kept in its cache."""
    cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
    tokens = inputs["decoder_input_ids"].split(1, dim=1)
    steps = [model(**{**inputs, "decoder_input_ids": t}, past_key_values=cache, use_cache=True) for t in tokens]
    return torch.cat([step.logits for step in steps], dim=1)


def _check_decoder_padding(model: Any, ours: zoo.Decoder, source: Tensor, tokens: Tensor) -> None:
    theirs = model(input_ids=source, decoder_input_ids=tokens, decoder_attention_mask=LEFT.long(), use_cache=False)
    assert_near(ours(tokens, left_pad=PADS, encoder_tokens=source)[LEFT], theirs.logits[LEFT])


def check_return(model: Any, ours: zoo.Decoder, logits: Any) -> None:
    """Back to transformers, with and without remembering the config: the same numbers."""
    again = eager(zoo.to_hf(ours))
    assert type(again) is type(model)
    weights = again.state_dict()
    for name, value in model.state_dict().items():
        assert name == "cls.predictions.bias" or torch.equal(weights[name], value), name
    assert torch.equal(logits(again), logits(model))
    ours.origin = None
    forgotten = eager(zoo.to_hf(ours))
    assert_near(logits(forgotten), logits(model))
