"""Batched generation over the KV cache, with the settings that lm-eval's tasks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from zoo.model import Decoder

_KNOWN = {"until", "max_gen_toks", "do_sample", "temperature", "top_k", "top_p"}
_DEFAULT_MAX_NEW = 256


@dataclass(frozen=True)
class Request:
    """One prompt and how to continue it. `temperature` 0 is greedy; `place` is its place among all requests."""

    place: int
    prompt: list[int]
    until: tuple[str, ...]
    max_new: int
    temperature: float
    top_k: int | None
    top_p: float

    @staticmethod
    def parse(place: int, prompt: list[int], settings: Mapping[str, Any], context: int) -> Request:
        """lm-eval's generation settings. A prompt too long for `context` loses its beginning.

        Raises ValueError for a setting that is unknown here: leaving it out would change what is measured.
        """
        unknown = sorted(set(settings) - _KNOWN)
        if unknown:
            raise ValueError(f"unknown generation settings: {', '.join(unknown)}")
        until = settings.get("until") or ()
        sample = settings.get("do_sample", "temperature" in settings)
        max_new = min(int(settings.get("max_gen_toks", _DEFAULT_MAX_NEW)), context)
        return Request(
            place,
            # As in lm-eval: one token more would fit, since the last new one is never read back.
            prompt[-max(1, context - max_new) :],
            (until,) if isinstance(until, str) else tuple(u for u in until if u),
            max_new,
            float(settings.get("temperature", 1.0)) if sample else 0.0,
            settings.get("top_k") or None,
            float(settings.get("top_p", 1.0)),
        )


class Row:
    """What has been generated for one request, and whether it is finished."""

    def __init__(self, request: Request, seed: int) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.text = ""
        self.done = request.max_new < 1
        # A row's own generator: its sample does not depend on what else is in the batch.
        self.generator = torch.Generator().manual_seed(seed * 1_000_003 + request.place)

    def choose(self, logits: Tensor) -> int:
        """The next token from (V,) logits, on the CPU."""
        if self.request.temperature == 0:
            return int(logits.argmax())
        weights = _truncated(logits.double() / self.request.temperature, self.request).softmax(-1)
        return int(torch.multinomial(weights, 1, generator=self.generator))

    def append(self, token: int, tokenizer: Tokenizer, eos: int) -> None:
        """Take a token; finish at eos, at a stop sequence (cut off with what follows) or at the limit."""
        if self.done:
            return
        if token == eos:
            self.done = True
            return
        self.tokens.append(token)
        text = tokenizer.decode(self.tokens, skip_special_tokens=False)
        ends = [text.find(stop) for stop in self.request.until if stop in text]
        self.text = text[: min(ends)] if ends else text
        self.done = bool(ends) or len(self.tokens) >= self.request.max_new


def _truncated(logits: Tensor, request: Request) -> Tensor:
    """(V,) logits with those outside the top k, or outside the smallest set of mass p, at −∞."""
    if request.top_k is not None:
        floor = logits.topk(min(request.top_k, logits.shape[-1])).values[-1]
        logits = logits.masked_fill(logits < floor, float("-inf"))
    if request.top_p < 1:
        ranked, order = logits.sort(descending=True, stable=True)
        mass_before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)
        logits = logits.index_fill(0, order[mass_before >= request.top_p], float("-inf"))
    return logits


def decode(model: Decoder, tokenizer: Tokenizer, requests: list[Request], *, eos: int, seed: int) -> list[str]:
    """The text that continues each prompt. Prompts are padded on the left, and read once."""
    device = next(model.parameters()).device
    rows = [Row(request, seed) for request in requests]
    width = max(len(r.prompt) for r in requests)
    new = max(r.max_new for r in requests)
    tokens = torch.tensor([[eos] * (width - len(r.prompt)) + r.prompt for r in requests])
    left_pad = torch.tensor([width - len(r.prompt) for r in requests], device=device)
    cache = model.new_cache(batch=len(rows), capacity=width + new)
    padding = left_pad if bool(left_pad.any()) else None
    logits = model(tokens.to(device), cache=cache, left_pad=padding)
    while True:
        last = logits[:, -1].float().cpu()
        chosen = [row.choose(last[i]) for i, row in enumerate(rows)]
        for row, token in zip(rows, chosen, strict=True):
            row.append(token, tokenizer, eos)
        if all(row.done for row in rows):
            return [row.text for row in rows]
        logits = model(torch.tensor(chosen, device=device)[:, None], cache=cache)
