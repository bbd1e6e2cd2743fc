"""Adapter that makes a zoo model a language model of lm-eval."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer
from torch.nn import functional as F

from evals.conventions import Bos, Conventions, Messages, TrainedConventions
from evals.evaluations._decoding import GenerationRequest, UnsupportedGenerationError, decode
from evals.harness.answers import Answers
from evals.reading.passes import Batches, Rows, alike, check_causal, evaluating
from zoo.model import Decoder
from zoo.settings.identity import canonical

Encoded = tuple[tuple[str, str], list[int], list[int]]
"""lm-eval's request: the strings, the context's tokens, the continuation's tokens."""


Ask = Callable[[dict[int, Any]], Iterable[tuple[int, Any]]]
"""Function that answers questions by index, in any order."""


@dataclass(frozen=True)
class Window:
    """One row to score: all `tokens` but the last are read, and the last `scored` of them are predicted."""

    request: int
    tokens: list[int]
    scored: int


class UnreadableTextError(ValueError):
    """A task asks about something else than text. The message says what it is."""


def _check_texts(requests: Sequence[Any]) -> None:
    """Raise UnreadableTextError unless what is asked about is text, beside the settings of generation."""
    for each in (each for request in requests for each in request.args):
        if not isinstance(each, str | dict):
            raise UnreadableTextError(f"a {type(each).__name__} is where a text belongs")


class ZooLM(TemplateLM):  # type: ignore[misc]  # lm_eval has no types
    """Scores and continues text with a causal model.

    tokenizer: for a model that was trained here, its tokenizer, with `eos`, the token that ends a document, and `bos`;
        else the model's conventions (see `evals.conventions`), which include all three.
    context: the maximum number of tokens that the model reads at once; longer contexts lose their beginning.
    batch: rows per forward pass, or `auto` (see `evals.reading.passes`).
    seed: seed of sampling, for tasks with a temperature.
    answers: a file that caches the model's answers (see `evals.harness.answers`).
    Raises NotCausalError for a model that is not causal, ValueError for other wrong arguments.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer | Conventions,
        *,
        context: int,
        eos: int | None = None,
        bos: Bos = "auto",
        batch: Rows = "auto",
        seed: int = 0,
        answers: Path | None = None,
    ) -> None:
        super().__init__()
        check_causal(model.spec)
        if context < 1 or (batch != "auto" and batch < 1):
            raise ValueError(f"context and batch must be positive, not {context} and {batch}")
        self.model = model
        self.context = context
        self._batches = Batches(batch, model.spec.vocab_size)
        self.seed = seed
        self.answers = answers
        self._device = next(model.parameters()).device
        if isinstance(tokenizer, Conventions):
            self.conventions = tokenizer
        elif eos is None:
            raise ValueError("a plain tokenizer needs eos, the token that ends a document")
        else:
            self.conventions = TrainedConventions(tokenizer, eos, bos)

    @property
    def eot_token_id(self) -> int:
        return min(self.conventions.ends)

    @property
    def prefix_token_id(self) -> int:
        """Token that replaces an empty context."""
        return self.conventions.first

    @property
    def device(self) -> torch.device:
        return self._device

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        **_: Any,
    ) -> list[int]:
        read = self.conventions.encode_bare if add_special_tokens is False else self.conventions.encode
        return read(string)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        return self.conventions.pair(context, continuation)

    @property
    def tokenizer_name(self) -> str:
        """Key under which lm-eval caches requests, which are rendered with the tokenizer's chat template."""
        return self.conventions.identity

    def apply_chat_template(self, chat_history: Messages, add_generation_prompt: bool = True) -> str:
        return self.conventions.rendered(chat_history, add_generation_prompt)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[Any]:
        """[(Σ log p(token | preceding tokens) over the continuation, whether each token is the likeliest)]."""
        _check_texts(requests)
        return list(super().loglikelihood(requests, disable_tqdm=disable_tqdm))

    def loglikelihood_rolling(
        self,
        requests: list[Any],
        disable_tqdm: bool = True,
    ) -> list[float]:
        """[log p(text)]. Each token is scored once, in windows that share no scored token; the text's first token is
        scored after `conventions.first`."""
        _check_texts(requests)
        first, tokens = self.conventions.first, self.conventions.rolling
        encoded: list[Encoded] = [(("", text), [first], tokens(text)) for (text,) in (r.args for r in requests)]
        return [total for total, _ in self._loglikelihood_tokens(encoded)]

    def _loglikelihood_tokens(self, requests: Sequence[Encoded], **_: Any) -> list[tuple[float, bool]]:
        questions = [
            (context or [self.conventions.first], continuation) for _strings, context, continuation in requests
        ]
        found = self._remembered("likelihood", questions, self._likelihoods)
        return [(total, greedy) for total, greedy in found]

    def _likelihoods(self, questions: Mapping[int, tuple[list[int], list[int]]]) -> Iterator[tuple[int, Any]]:
        """Yield (index, (Σ log p, is greedy)) of each question as soon as its last window is scored."""
        totals = dict.fromkeys(questions, (0.0, True))
        windows = [w for place, question in questions.items() for w in self._windows(place, *question)]
        left = Counter(window.request for window in windows)
        yield from ((place, totals[place]) for place in questions if not left[place])
        for window, (total, likeliest) in self._batches.run(windows, lambda w: len(w.tokens), self._score):
            place = window.request
            totals[place] = (totals[place][0] + total, totals[place][1] and likeliest)
            left[place] -= 1
            if not left[place]:
                yield place, totals[place]

    def _remembered(self, kind: str, questions: Sequence[Any], ask: Ask) -> list[Any]:
        """Answer to each question. The model computes only answers that are not in the file, equal questions once."""
        with Answers(self.answers, self._owner if self.answers else "") as answers, evaluating(self.model):
            keys = [answers.key(kind, question) for question in questions]
            found = answers.known(keys)
            missing = {key: place for place, key in enumerate(keys) if key not in found}
            for place, answer in ask({place: questions[place] for place in missing.values()}):
                found[keys[place]] = answer
                answers.add(keys[place], answer)
        return [found[key] for key in keys]

    @cached_property
    def _owner(self) -> str:
        """Identity of everything that determines an answer, except the question."""
        kind = self._device.type
        numerics = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else "as it is"
        reads = "prompts as prefixes" if self.model.spec.visible == "prefix" else ""
        words = f"{self.conventions.identity} {self.context} {self.eot_token_id}"
        return f"{fingerprint(self.model)} {words} {kind} {numerics}{reads}"

    def _windows(self, request: int, context: list[int], continuation: list[int]) -> Iterator[Window]:
        """Rows that score every token of the continuation once, with at most `self.context` tokens read in each."""
        if not continuation:
            return
        if len(continuation) <= self.context:
            tokens = (context + continuation)[-(self.context + 1) :]
            yield Window(request, tokens, len(continuation))
            return
        text = context[1:] + continuation
        left = len(text)
        for pair in get_rolling_token_windows(text, context[0], self.context, 1):
            given, predicted = make_disjoint_window(pair)
            of_context = max(0, left - len(continuation))
            left -= len(predicted)
            if len(predicted) > of_context:
                yield Window(request, given + predicted, len(predicted) - of_context)

    def _score(self, windows: list[Window]) -> list[tuple[float, bool]]:
        found: dict[int, tuple[float, bool]] = {}
        for places in alike(self.model, windows, lambda window: len(window.tokens)):
            found |= zip(places, self._score_together([windows[place] for place in places]), strict=True)
        return [found[place] for place in range(len(windows))]

    def _score_together(self, windows: list[Window]) -> list[tuple[float, bool]]:
        """(Σ log p, is greedy) of each row. Padding is on the right, where a causal model cannot see it."""
        longest = max(len(w.tokens) for w in windows) - 1
        tokens = torch.full((len(windows), longest), self.eot_token_id)
        targets = torch.full((len(windows), longest), -1)  # -1: not scored
        for row, window in enumerate(windows):
            read = len(window.tokens) - 1
            tokens[row, :read] = torch.tensor(window.tokens[:-1])
            targets[row, read - window.scored : read] = torch.tensor(
                window.tokens[len(window.tokens) - window.scored :], dtype=torch.long
            )
        tokens, targets = tokens.to(self._device), targets.to(self._device)  # (B, T)
        scored = targets >= 0
        # The head reads only scored tokens: it is the larger part of a small model's work.
        logits = self.model.read_out(self.model.hidden(tokens)[scored]).float()
        wanted = targets[scored]
        log_p = torch.zeros(targets.shape, dtype=torch.float64, device=logits.device)
        log_p[scored] = -F.cross_entropy(logits, wanted, reduction="none").double()
        missed = torch.zeros_like(scored)
        missed[scored] = logits.argmax(-1) != wanted
        totals, misses = log_p.sum(1).tolist(), missed.any(1).tolist()
        return [(total, not miss) for total, miss in zip(totals, misses, strict=True)]

    def generate_until(
        self,
        requests: list[Any],
        disable_tqdm: bool = True,
    ) -> list[str]:
        """Continuation of each prompt, without the stop sequence that ended it. Raises UnsupportedGenerationError."""
        if problem := self.conventions.generation_problem():
            raise UnsupportedGenerationError(f"{problem}, which is not supported")
        _check_texts(requests)
        known = self.conventions
        prompts = []
        for place, (text, settings) in enumerate(request.args for request in requests):
            read, whole = known.encode(text) or [known.first], {**known.generation, **settings}
            prompts.append(GenerationRequest.parse(place, read, whole, self.context, known.stops))
        questions = [(self.seed, *prompt.question) for prompt in prompts]

        def texts(missing: dict[int, Any]) -> Iterator[tuple[int, str]]:
            found = self._batches.run(
                [prompts[place] for place in missing],
                lambda request: len(request.prompt) + request.max_new,
                lambda asked: decode(self.model, known, asked, seed=self.seed),
            )
            yield from ((request.place, text) for request, text in found)

        return self._remembered("text", questions, texts)


def fingerprint(model: Decoder) -> str:
    """sha256 over the spec and every weight of a model: equal only for checkpoints that compute the same."""
    digest = hashlib.sha256(canonical(model.spec.identity()).encode())
    for name, value in sorted(model.state_dict().items()):
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
