"""Log-likelihoods against a plain computation: one text at a time, in float64, token by token."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from lm_eval.api.instance import Instance
from tokenizers import Tokenizer

from evals.harness.lm import ZooLM
from tests.evals.bytelevel import EOS, byte_level
from zoo.model import Decoder

WINDOW = 24
PAIRS = [
    ("The cat", " sat on"),
    ("a", "b"),
    ("", "no context at all"),
    ("def f(x):\n    return", " x + 1"),
    ("ends with spaces  ", "then goes on"),
    ("   ", "only spaces before"),
    ("x" * 60, " too long a context"),
    ("naï", "ve café €5"),
    ("short", " " + "a continuation much longer than the window that the model reads " * 2),
]


def requests(kind: str, arguments: list[tuple[Any, ...]]) -> list[Instance]:
    return [Instance(request_type=kind, doc={}, arguments=a, idx=i) for i, a in enumerate(arguments)]


def adapter(model: Decoder, tokenizer: Tokenizer, **changes: Any) -> ZooLM:
    return ZooLM(model, tokenizer, **{"eos": EOS, "context": WINDOW, "batch": 4} | changes)


def log_p(model: Decoder, tokens: list[int], place: int, first: int = 0) -> tuple[float, bool]:
    """(log p, is likeliest) of tokens[place] given tokens[first:place], by the definition of softmax."""
    with torch.inference_mode():
        logits = copy.deepcopy(model).double()(torch.tensor([tokens[first:place]]))[0, -1]
    value = float(logits[tokens[place]] - torch.log(torch.exp(logits).sum()))
    return value, int(logits.argmax()) == tokens[place]


def plain_score(model: Decoder, context: bytes, continuation: bytes) -> tuple[float, bool]:
    """Every token of the continuation sees what one window of WINDOW tokens, ending at the last token, leaves it."""
    head = list(context) or [EOS]
    tokens = (head + list(continuation))[-(WINDOW + 1) :]
    scored = [log_p(model, tokens, i) for i in range(len(tokens) - len(continuation), len(tokens))]
    return sum(s for s, _ in scored), all(g for _, g in scored)


def split(context: str, continuation: str) -> tuple[bytes, bytes]:
    """Spaces at the end of the context go with the continuation."""
    stripped = context.rstrip()
    return stripped.encode(), (context[len(stripped) :] + continuation).encode()


@pytest.mark.parametrize("batch", [1, 3, 16])
def test_loglikelihood_is_the_sum_of_log_softmax(model: Decoder, byte_tokenizer: Tokenizer, batch: int) -> None:
    pairs = [p for p in PAIRS if len(p[1].encode()) <= WINDOW]
    found = adapter(model, byte_tokenizer, batch=batch).loglikelihood(requests("loglikelihood", pairs))
    for pair, (total, greedy) in zip(pairs, found, strict=True):
        expected, likeliest = plain_score(model, *split(*pair))
        assert total == pytest.approx(expected, abs=2e-5), pair
        assert greedy is likeliest


def test_scores_do_not_depend_on_the_rest_of_the_batch(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    together = adapter(model, byte_tokenizer, batch=16).loglikelihood(requests("loglikelihood", PAIRS))
    alone = [adapter(model, byte_tokenizer).loglikelihood(requests("loglikelihood", [p]))[0] for p in PAIRS]
    assert [t for t, _ in together] == pytest.approx([t for t, _ in alone], abs=2e-5)


def test_the_greedy_continuation_is_recognised(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    prompts = [chr(letter) * 3 for letter in range(ord("a"), ord("z"))]
    with torch.inference_mode():
        likeliest = {p: int(model(torch.tensor([list(p.encode())]))[0, -1].argmax()) for p in prompts}
    prompt, token = next((p, t) for p, t in likeliest.items() if 32 < t < 127)
    pairs = [(prompt, chr(token)), (prompt, "{" if token != ord("{") else "}")]
    found = adapter(model, byte_tokenizer).loglikelihood(requests("loglikelihood", pairs))
    assert [greedy for _, greedy in found] == [True, False]


def test_a_long_continuation_is_scored_once_in_whole_windows(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    """The score is the rolling likelihood over context and continuation, of which only the continuation counts."""
    context, continuation = "short", " of a long continuation, three windows or so. And more of it than that"
    tokens = list((context + continuation).encode())
    expected = 0.0
    for start in range(0, len(tokens) - 1, WINDOW):
        end = min(start + WINDOW, len(tokens) - 1)  # the window predicts tokens start+1 … end
        first = max(0, end - WINDOW)
        expected += sum(log_p(model, tokens, i, first)[0] for i in range(max(start + 1, len(context)), end + 1))
    (found,) = adapter(model, byte_tokenizer).loglikelihood(requests("loglikelihood", [(context, continuation)]))
    assert found[0] == pytest.approx(expected, abs=5e-5)


def test_rolling_windows_are_those_of_lm_evals_example(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    """Ten tokens, four at a time: the last window keeps full context and scores only what is left."""
    text = "0123456789"
    full = [EOS, *text.encode()]
    windows = [(0, 1, 5), (4, 5, 9), (6, 9, 11)]  # read from, first scored, end
    expected = sum(log_p(model, full, i, first)[0] for first, start, end in windows for i in range(start, end))
    lm = adapter(model, byte_tokenizer, context=4)
    assert lm.loglikelihood_rolling(requests("loglikelihood_rolling", [(text,)])) == pytest.approx([expected], abs=2e-5)


def test_rolling_scores_every_token_exactly_once(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    """A model that knows nothing gives each token 1/V."""
    ignorant = copy.deepcopy(model)
    with torch.no_grad():
        ignorant.embedding.weight.zero_()
    texts = ["", "a", "x" * WINDOW, "y" * (WINDOW + 1), "€" * 50]
    found = adapter(ignorant, byte_tokenizer).loglikelihood_rolling(
        requests("loglikelihood_rolling", [(t,) for t in texts])
    )
    assert found == pytest.approx([-len(t.encode()) * math.log(300) for t in texts], rel=1e-6)


def test_a_token_that_spans_the_boundary_is_not_scored_as_nothing(model: Decoder) -> None:
    tokenizer = byte_level([("a", "b")])
    assert tokenizer.encode("ab").ids == [257]
    (found,) = adapter(model, tokenizer).loglikelihood(requests("loglikelihood", [("a", "b")]))
    assert found[0] == pytest.approx(log_p(model, list(b"ab"), 1)[0], abs=1e-5)


def test_training_mode_comes_back(model: Decoder, byte_tokenizer: Tokenizer) -> None:
    training = copy.deepcopy(model).train()
    adapter(training, byte_tokenizer).loglikelihood(requests("loglikelihood", PAIRS[:1]))
    assert training.training
    assert torch.is_grad_enabled()
