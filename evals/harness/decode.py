"""Batched generation over the KV cache, with the settings that lm-eval's tasks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from zoo.decode import Sampling, steps
from zoo.model import Decoder
from zoo.site import Given

_PROCESSORS = ("top_k", "top_p", "min_p", "repetition_penalty")
_KNOWN = {"until", "max_gen_toks", "do_sample", "temperature", *_PROCESSORS}
_DEFAULT_MAX_NEW = 256


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt and how to continue it. `place` is its place among all requests."""

    place: int
    prompt: list[int]
    until: tuple[str, ...]
    max_new: int
    sampling: Sampling

    @staticmethod
    def parse(place: int, prompt: list[int], settings: Mapping[str, Any], context: int) -> GenerationRequest:
        """lm-eval's generation settings. A prompt too long for `context` loses its beginning.

        Where more new tokens are asked for than `context` has room for beside a prompt, which lm-eval refuses, they get
        what the prompt leaves, and at least half of `context`.

        Raises ValueError for a setting that is unknown here: leaving it out would change what is measured.
        """
        unknown = sorted(set(settings) - _KNOWN)
        if unknown:
            raise ValueError(f"unknown generation settings: {', '.join(unknown)}")
        until = settings.get("until") or ()
        sample = settings.get("do_sample", "temperature" in settings)
        processors = {name: settings[name] for name in _PROCESSORS if settings.get(name) is not None}
        processors["top_k"] = processors.get("top_k") or None  # lm-eval and transformers write 0 for none
        max_new = int(settings.get("max_gen_toks", _DEFAULT_MAX_NEW))
        if max_new >= context:
            max_new = max(1, context // 2, context - len(prompt))
        return GenerationRequest(
            place,
            # As in lm-eval: one token more would fit, since the last new one is never read back.
            prompt[-max(1, context - max_new) :],
            (until,) if isinstance(until, str) else tuple(u for u in until if u),
            max_new,
            Sampling(temperature=settings.get("temperature", 1.0) if sample else 0.0, **processors),
        )

    @property
    def question(self) -> tuple[Any, ...]:
        """All that decides the answer but for the model and the seed, as plain data."""
        # A greedy text does not depend on the request's place, a drawn one does (see `Row`).
        place = self.place if self.sampling.temperature else 0
        return place, self.prompt, self.until, self.max_new, self.sampling.model_dump()


class Row:
    """Generated tokens of one request, and whether it is finished."""

    def __init__(self, request: GenerationRequest, seed: int) -> None:
        self.request = request
        self.tokens: list[int] = []
        self.text = ""
        self.done = request.max_new < 1
        # A row's own generator: its sample does not depend on what else is in the batch.
        self.generator = torch.Generator().manual_seed(seed * 1_000_003 + request.place)

    def choose(self, logits: Tensor) -> int:
        """The next token from (V,) logits, on the CPU."""
        text = torch.tensor([self.request.prompt + self.tokens])
        return int(self.request.sampling.choose(logits[None].double(), text, generator=self.generator))

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


def decode(
    model: Decoder, tokenizer: Tokenizer, requests: list[GenerationRequest], *, eos: int, seed: int
) -> list[str]:
    """The text that continues each prompt. Prompts are padded on the left, and read once; a model that sees all of a
    prefix has the prompt as its prefix."""
    device = next(model.parameters()).device
    rows = [Row(request, seed) for request in requests]
    width = max(len(r.prompt) for r in requests)
    new = max(r.max_new for r in requests)
    tokens = torch.tensor([[eos] * (width - len(r.prompt)) + r.prompt for r in requests])
    left_pad = torch.tensor([width - len(r.prompt) for r in requests], device=device)
    padding = left_pad if bool(left_pad.any()) else None
    given = Given(prefix=width - left_pad) if model.spec.visible == "prefix" else Given()

    def choose(logits: Tensor) -> Tensor:
        last = logits.float().cpu()
        return torch.tensor([row.choose(logits) for row, logits in zip(rows, last, strict=True)], device=device)[
            :, None
        ]

    for chosen in steps(model, tokens.to(device), new, choose, left_pad=padding, **given):
        for row, token in zip(rows, chosen[:, 0].tolist(), strict=True):
            row.append(token, tokenizer, eos)
        if all(row.done for row in rows):
            break
    return [row.text for row in rows]
