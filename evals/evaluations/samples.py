"""Text that a model generates after prompts from held-out text."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, NonNegativeFloat

from evals.evaluations import EvaluationSpec
from evals.evaluations._decoding import GenerationRequest, decode
from evals.evaluations._passages import nothing, obstacle, plain, starts_of
from evals.found import Found
from evals.reading.passes import evaluating
from evals.subject import HeldOutText, Subject
from store.documents import JsonObject
from zoo.decode import Sampling


class SamplesSpec(EvaluationSpec):
    """Text generated after prompts from held-out text. Prompts and random draws are the same in all arms."""

    prompts: Annotated[int, Field(ge=1, le=16)] = 4
    """Number of prompts, drawn from held-out text."""
    prompt_tokens: Annotated[int, Field(ge=1, le=512)] = 32
    """Tokens of a prompt."""
    new_tokens: Annotated[int, Field(ge=1, le=512)] = 64
    """Tokens generated after each prompt."""
    temperature: NonNegativeFloat = 0.8
    """Sampling temperature; 0 always takes the likeliest token."""

    def run(self, subject: Subject, data: HeldOutText) -> Found:
        """A row for each prompt: the prompt, its continuation in the text, and the model's continuation."""
        length = self.prompt_tokens + self.new_tokens
        before = list(data.conventions.before)
        if reason := obstacle(subject.model, data.text, reads=len(before) + length, takes=length):
            return nothing(reason)
        starts = starts_of(data.text, length, self.prompts, subject.seed)
        real = [data.text.tokens[start : start + length].tolist() for start in starts]
        sampling, stops = Sampling(temperature=self.temperature), data.conventions.stops
        requests = [
            GenerationRequest(place, before + tokens[: self.prompt_tokens], stops, self.new_tokens, sampling)
            for place, tokens in enumerate(real)
        ]
        with evaluating(subject.model):
            written = decode(subject.model, data.conventions, requests, seed=subject.seed)
        rows: list[JsonObject] = [
            {
                "prompt": plain(data.tokenizer, tokens[: self.prompt_tokens]),
                "held_out": plain(data.tokenizer, tokens[self.prompt_tokens :]),
                "sample": sample,
            }
            for tokens, sample in zip(real, written, strict=True)
        ]
        return Found(about={"temperature": self.temperature}, rows=rows)
