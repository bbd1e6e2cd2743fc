"""What a reader can look at: text that a model writes, its loss token by token, what its heads attend to.

Prompts and passages come from held-out text with a seed, so that all arms of a study are given the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import JsonValue
from tokenizers import Tokenizer
from torch import Tensor

import zoo
from ablate.store.documents import JsonObject, Section
from evals.harness.decode import Request, decode
from evals.reading.mode import evaluating
from evals.reading.windows import Text, token_nats
from evals.spec import AttentionSpec, SamplesSpec, TokenLossesSpec
from zoo.costs import longest_text
from zoo.decode import Sampling
from zoo.model import Decoder

ROWS_AT_ONCE = 16


def write_samples(
    model: Decoder, tokenizer: Tokenizer, text: Text, spec: SamplesSpec, *, eos: int, seed: int
) -> Section:
    """The section `samples`: prompts, what follows them in the text, and what the model writes."""
    length = spec.prompt_tokens + spec.new_tokens
    starts = _starts(text, length, spec.prompts, seed)
    if reason := _reason(model, text, length, starts):
        return _without(reason)
    real = [text.tokens[start : start + length].tolist() for start in starts]
    prompts = [tokens[: spec.prompt_tokens] for tokens in real]
    sampling = Sampling(temperature=spec.temperature)
    requests = [Request(place, prompt, (), spec.new_tokens, sampling) for place, prompt in enumerate(prompts)]
    with evaluating(model):
        written = decode(model, tokenizer, requests, eos=eos, seed=seed)
    rows: Iterator[JsonObject] = (
        {
            "prompt": _plain(tokenizer, prompt),
            "held_out": _plain(tokenizer, tokens[spec.prompt_tokens :]),
            "sample": sample,
        }
        for prompt, tokens, sample in zip(prompts, real, written, strict=True)
    )
    return Section(about={"temperature": spec.temperature}, rows=tuple(rows))


def token_losses(
    model: Decoder, tokenizer: Tokenizer, text: Text, spec: TokenLossesSpec, *, context: int, seed: int
) -> Section:
    """The section `token_losses`: by passage, its tokens as text and −ln p of each, in nats.

    The first token of a passage is predicted from the one before it, which is not shown.
    """
    length = min(spec.tokens, context)
    starts = _starts(text, length + 1, spec.passages, seed)
    if reason := _reason(model, text, length, starts):
        return _without(reason)
    windows = torch.from_numpy(text.tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64))
    with evaluating(model):
        nats = np.concatenate([token_nats(model, rows, length) for rows in windows.split(ROWS_AT_ONCE)])
    rows: Iterator[JsonObject] = (
        {
            "start": int(start),
            "pieces": [_plain(tokenizer, [token]) for token in window[1:].tolist()],
            "nats": [round(value, 4) for value in row.tolist()],
        }
        for start, window, row in zip(starts, windows, nats, strict=True)
    )
    return Section(rows=tuple(rows))


def attention_maps(
    model: Decoder, tokenizer: Tokenizer, text: Text, spec: AttentionSpec, *, context: int, seed: int
) -> Section:
    """The section `attention`: by layer and head, a row of weights for each token, up to itself.

    Only softmax attention over tokens has such weights.
    """
    length = min(spec.tokens, context)
    starts = _starts(text, length, 1, seed)
    if reason := _reason(model, text, length, starts):
        return _without(reason)
    tokens = text.tokens[starts[0] : starts[0] + length].astype(np.int64)
    with evaluating(model), zoo.taps(model, "blocks.*.mixer.weights") as seen:
        model.hidden(torch.from_numpy(tokens[None]).to(model.embedding.weight.device))
    layers = sorted(((int(name.split(".")[1]), found[0][0]) for name, found in seen.items()), key=lambda pair: pair[0])
    if not layers:
        return _without("no layer has attention weights")
    chosen = sorted({round(place) for place in np.linspace(0, len(layers) - 1, min(spec.layers, len(layers)))})
    rows: Iterator[JsonObject] = (
        {
            "layer": layers[i][0],
            "pieces": [_plain(tokenizer, [token]) for token in tokens.tolist()],
            "heads": [_triangle(head) for head in layers[i][1][: spec.heads]],
        }
        for i in chosen
    )
    return Section(rows=tuple(rows))


def _without(reason: str) -> Section:
    return Section(rows=({"reason": reason},))


def _triangle(weights: Tensor) -> JsonValue:
    """(T, T) → rows of 1, 2, … T weights."""
    rows = weights.double().cpu().tolist()
    return [[round(value, 3) for value in row[: place + 1]] for place, row in enumerate(rows)]


def _starts(text: Text, length: int, wanted: int, seed: int) -> NDArray[np.int64]:
    """Where up to `wanted` stretches of `length` tokens begin, none overlapping another."""
    slots = len(text.tokens) // length
    chosen = np.random.default_rng(seed).choice(slots, min(wanted, slots), replace=False)
    return np.sort(chosen) * length


def _reason(model: Decoder, text: Text, length: int, starts: NDArray[np.int64]) -> str | None:
    end = longest_text(model.spec)
    if end is not None and length > end:
        return f"positions end at {end}, and this takes {length}"
    if not len(starts):
        return f"held-out text has {len(text.tokens)} tokens, and this takes {length}"
    return None


def _plain(tokenizer: Tokenizer, tokens: list[int]) -> str:
    """A token may be part of a character: it is shown as a replacement character."""
    return str(tokenizer.decode(tokens, skip_special_tokens=False))
