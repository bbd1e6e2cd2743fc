"""Batched generation over the KV cache, with the settings that lm-eval's tasks use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from evals.conventions import PROCESSORS, Conventions
from evals.reading.passes import alike
from zoo.decode import Sampling, steps
from zoo.model import Decoder
from zoo.site import Given

_MAX_NEW = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""lm-eval's names of the largest number of new tokens; the first that is given counts."""
_KNOWN = {"until", *_MAX_NEW, "do_sample", "temperature", *PROCESSORS}
_INERT = {"num_beams": 1}
"""Other settings that are accepted only at these values, which have no effect."""
_DEFAULT_MAX_NEW = 256


class UnsupportedGenerationError(ValueError):
    """A task requests generation settings that are not implemented: ignoring them would change what is measured."""


@dataclass(frozen=True)
class GenerationRequest:
    """One prompt and how to continue it. `place` is its index among all requests."""

    place: int
    prompt: list[int]
    until: tuple[str, ...]
    max_new: int
    sampling: Sampling

    @staticmethod
    def parse(
        place: int, prompt: list[int], settings: Mapping[str, Any], context: int, stops: tuple[str, ...] = ()
    ) -> GenerationRequest:
        """Request with lm-eval's generation settings. A prompt too long for `context` loses its beginning.

        A request for `context` or more new tokens, which lm-eval refuses, gets as many as the prompt leaves room for,
        and at least half of `context`. stops: further strings that end the text.

        Raises UnsupportedGenerationError for an unknown setting, and for a value that cannot be used.
        """
        inert = {name for name, value in _INERT.items() if settings.get(name) == value}
        if unknown := sorted(set(settings) - _KNOWN - inert):
            raise UnsupportedGenerationError(f"its generation settings are not supported: {', '.join(unknown)}")
        try:
            given = settings.get("until") or ()
            if not isinstance(given, str | list | tuple) or not all(isinstance(each, str) for each in given):
                raise ValueError(f"until: must be texts, not {given!r}")
            until = tuple(filter(None, [given] if isinstance(given, str) else given))
            max_new = int(
                next((settings[name] for name in _MAX_NEW if settings.get(name) is not None), _DEFAULT_MAX_NEW)
            )
            sample = settings.get("do_sample")
            if sample is None:  # lm-eval's rule
                sample = bool(settings.get("temperature"))
            if max_new < 0:
                raise ValueError(f"{max_new} new tokens")
            if sample not in (True, False):
                raise ValueError(f"do_sample: must be true or false, not {sample!r}")
            processors = {name: settings[name] for name in PROCESSORS if settings.get(name) is not None}
            processors["top_k"] = processors.get("top_k") or None  # lm-eval and transformers write 0 for none
            sampling = Sampling(temperature=settings.get("temperature", 1.0) if sample else 0.0, **processors)
        except (TypeError, ValueError, OverflowError) as error:
            at = [f"{each['loc'][0]}: {each['msg']}" for each in getattr(error, "errors", list)()]
            reason = (at or [str(error)])[0]
            raise UnsupportedGenerationError(f"its generation settings cannot be used: {reason}") from error
        if max_new >= context:
            max_new = max(1, context // 2, context - len(prompt))
        # As in lm-eval: one token more would fit, since the last new one is never read back.
        read = prompt[-max(1, context - max_new) :]
        return GenerationRequest(place, read, (*until, *stops), max_new, sampling)

    @property
    def question(self) -> tuple[Any, ...]:
        """Everything that determines the answer, except the model and the seed, as plain data."""
        # Greedy text does not depend on the request's index; sampled text does (see `Generation`).
        place = self.place if self.sampling.temperature else 0
        return place, self.prompt, self.until, self.max_new, self.sampling.model_dump()


class Generation:
    """Generated tokens of one request, and whether it is finished.

    hides_special: whether special tokens are left out of the text; stop sequences are searched for in them, too.
    """

    def __init__(self, request: GenerationRequest, seed: int, hides_special: bool = False) -> None:
        self.request = request
        self.hides_special = hides_special
        self.tokens: list[int] = []
        self.text = ""
        self.done = request.max_new < 1
        # One generator per row, so that its sample does not depend on the rest of the batch.
        self.generator = torch.Generator().manual_seed(seed * 1_000_003 + request.place)

    def choose(self, logits: Tensor) -> int:
        """Next token from logits (V,), on the CPU."""
        text = torch.tensor([self.request.prompt + self.tokens])
        return int(self.request.sampling.choose(logits[None].double(), text, generator=self.generator))

    def append(self, token: int, how: Conventions) -> None:
        """Add a token; finish at an end token, at a stop sequence (cut off with the text after it) or at the limit."""
        if self.done:
            return
        self.done = token in how.ends
        if self.done and not self.hides_special:
            return
        self.tokens.append(token)
        whole = how.decode(self.tokens, skip_special_tokens=False)
        self.done |= any(stop in whole for stop in self.request.until) or len(self.tokens) >= self.request.max_new
        shown = how.decode(self.tokens, skip_special_tokens=True) if self.hides_special else whole
        self.text = shown[: min((at for stop in self.request.until if (at := shown.find(stop)) >= 0), default=None)]


def decode(model: Decoder, how: Conventions, requests: list[GenerationRequest], *, seed: int) -> list[str]:
    """Continuation of each prompt. Prompts are padded on the left and read once; for a model with a bidirectional
    prefix, the prompt is the prefix."""
    rows = [Generation(request, seed, how.hides_special) for request in requests]
    for places in alike(model, requests, lambda request: len(request.prompt)):
        _write(model, how, [rows[place] for place in places])
    return [row.text for row in rows]


def _write(model: Decoder, how: Conventions, rows: list[Generation]) -> None:
    """Generate until every row is done."""
    device = next(model.parameters()).device
    requests = [row.request for row in rows]
    width = max(len(r.prompt) for r in requests)
    new = max(r.max_new for r in requests)
    tokens = torch.tensor([[min(how.ends)] * (width - len(r.prompt)) + r.prompt for r in requests])
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
            row.append(token, how)
        if all(row.done for row in rows):
            break
