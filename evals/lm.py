"""A zoo model as lm-eval's language model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F

from evals.causal import check_causal
from evals.decode import Request, decode
from zoo.model import Decoder

Encoded = tuple[tuple[str, str], list[int], list[int]]
"""lm-eval's request: the strings, the context's tokens, the continuation's tokens."""


@dataclass(frozen=True)
class Window:
    """One row to score: `tokens` are read but for the last, and the last `scored` of them are predicted."""

    request: int
    tokens: list[int]
    scored: int


class ZooLM(TemplateLM):  # type: ignore[misc]  # lm_eval has no types
    """Scores and continues text with a causal model.

    eos: the token that ends a document; it also stands in for an empty context.
    context: the largest number of tokens that the model reads at once; longer contexts lose their beginning.
    batch: rows per forward pass.
    seed: of sampling, where a task asks for a temperature.
    """

    def __init__(
        self,
        model: Decoder,
        tokenizer: Tokenizer,
        *,
        eos: int,
        context: int,
        batch: int = 16,
        seed: int = 0,
    ) -> None:
        super().__init__()
        check_causal(model.spec)
        if context < 1 or batch < 1:
            raise ValueError(f"context and batch must be positive, not {context} and {batch}")
        self.model = model
        self.context = context
        self.batch = batch
        self.seed = seed
        self._device = next(model.parameters()).device
        self._encoder = tokenizer
        self._eos = eos

    @property
    def eot_token_id(self) -> int:
        return self._eos

    @property
    def device(self) -> torch.device:
        return self._device

    def tok_encode(
        self,
        string: str,
        add_special_tokens: bool | None = None,
        **_: Any,
    ) -> list[int]:
        """Tokens of the text alone: special tokens are added nowhere."""
        return list(self._encoder.encode(string, add_special_tokens=False).ids)

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokens of a context that is not empty, and of what follows it.

        As in lm-eval, spaces that end the context belong to the continuation, and both are encoded as one text where
        that leaves the context's tokens alone. Where a token would span the boundary the continuation is encoded by
        itself, so that all of it is scored and nothing else.
        """
        stripped = context.rstrip()
        continuation = context[len(stripped) :] + continuation
        head, whole = self.tok_encode(stripped), self.tok_encode(stripped + continuation)
        if whole[: len(head)] == head:
            return head, whole[len(head) :]
        return head, self.tok_encode(continuation)

    def loglikelihood(self, requests: list[Any], disable_tqdm: bool = True) -> list[Any]:
        """[(Σ log p(token | what precedes it) over the continuation, whether each token is the likeliest)]."""
        return list(super().loglikelihood(requests, disable_tqdm=disable_tqdm))

    def loglikelihood_rolling(
        self,
        requests: list[Any],
        disable_tqdm: bool = True,
    ) -> list[float]:
        """[log p(text)], each token scored once, in windows that share no scored token; eos precedes the first."""
        encoded: list[Encoded] = [
            (("", text), [self._eos], self.tok_encode(text)) for (text,) in (r.args for r in requests)
        ]
        return [total for total, _ in self._loglikelihood_tokens(encoded)]

    def _loglikelihood_tokens(self, requests: Sequence[Encoded], **_: Any) -> list[tuple[float, bool]]:
        windows = [
            window
            for place, (_strings, context, continuation) in enumerate(requests)
            for window in self._windows(place, context or [self._eos], continuation)
        ]
        # Longest first: neighbours pad little, and what does not fit in memory fails at once.
        windows.sort(key=lambda w: -len(w.tokens))
        totals, greedy = [0.0] * len(requests), [True] * len(requests)
        with evaluating(self.model):
            for first in range(0, len(windows), self.batch):
                chunk = windows[first : first + self.batch]
                for window, (total, likeliest) in zip(chunk, self._score(chunk), strict=True):
                    totals[window.request] += total
                    greedy[window.request] &= likeliest
        return list(zip(totals, greedy, strict=True))

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
        """(Σ log p, is greedy) of each row. Padding is on the right, where a causal model cannot see it."""
        longest = max(len(w.tokens) for w in windows) - 1
        tokens = torch.full((len(windows), longest), self._eos)
        targets = torch.full((len(windows), longest), -1)
        for row, window in enumerate(windows):
            read = len(window.tokens) - 1
            tokens[row, :read] = torch.tensor(window.tokens[:-1])
            targets[row, read - window.scored : read] = torch.tensor(
                window.tokens[len(window.tokens) - window.scored :], dtype=torch.long
            )
        return self._log_likelihood(tokens.to(self._device), targets.to(self._device))

    def _log_likelihood(self, tokens: Tensor, targets: Tensor) -> list[tuple[float, bool]]:
        """tokens, targets: (B, T); a target of −1 is not scored."""
        scored = targets >= 0
        # The head reads only what is scored: it is the larger part of a small model's work.
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
        """Text that continues each prompt, without the stop sequence that ended it."""
        prompts = [
            Request.parse(i, self.tok_encode(prompt) or [self._eos], settings, self.context)
            for i, (prompt, settings) in enumerate(r.args for r in requests)
        ]
        order = sorted(prompts, key=lambda r: (-len(r.prompt), r.max_new))
        texts = [""] * len(prompts)
        with evaluating(self.model):
            for first in range(0, len(order), self.batch):
                chunk = order[first : first + self.batch]
                answers = decode(self.model, self._encoder, chunk, eos=self._eos, seed=self.seed)
                for request, text in zip(chunk, answers, strict=True):
                    texts[request.place] = text
        return texts


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """No gradients, and evaluation mode; training mode comes back afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.inference_mode():
            yield
    finally:
        model.train(training)
